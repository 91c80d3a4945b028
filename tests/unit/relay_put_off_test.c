#include "relay/publish.h"

#include "relay/verifier.h"
#include "tests/unit/support/relay_fixture.h"
#include "tests/unit/support/support.h"
#include "wire/host/log.h"

/* Events whose signatures are checked together: nobody can tell from what is answered and
 * handed on, and in which order. */

static struct fixture fixture;
static struct core core;
static struct connection *agent, *owner;
static struct buf out;

static void wake(struct connection *connection)
{
	(void)connection;
}

static int64_t unix_ms(void)
{
	return NOW_MS;
}

static const struct connection_io io = {
	.wake = wake, .unix_ms = unix_ms, .now_ms = unix_ms};

/* As if it had answered its challenge. */
static struct connection *connect_as(const struct keypair *key)
{
	struct connection *connection = connection_create(&core, NULL, NULL);

	queue_clear(&connection->queue);
	(void)keyset_add(&connection->keys, keypair_public(key));
	owners_enter(&core.admit.owners, keypair_public(key));
	return connection;
}

static void setup(void)
{
	struct err err;

	log_set_level(LOG_ERROR);
	fixture_init(&fixture);
	core_init(&core, &io, fixture.crypto);
	core.verifier = verifier_create(1, VERIFIER_WAIT_NS, &err);
	ck_assert_ptr_nonnull(core.verifier);
	buf_init(&out, EVENT_MAX_BYTES + 4096);
	ck_assert(owners_bind(&core.admit.owners, keypair_public(fixture.agent),
			      keypair_public(fixture.owner), INT64_MAX, NOW));
	agent = connect_as(fixture.agent);
	owner = connect_as(fixture.owner);
}

static void teardown(void)
{
	while (core.connections)
		connection_destroy(core.connections);
	ck_assert_uint_eq(core.put_off.count, 0);
	verifier_destroy(core.verifier);
	core_finish(&core);
	buf_finish(&out);
	fixture_finish(&fixture);
}

static void say(struct connection *connection, const char *text)
{
	connection_receive(connection, slice_of(text), CHUNK_TEXT, true);
}

static const char *heard(struct connection *connection)
{
	buf_clear(&out);
	(void)queue_take(&connection->queue, &out);
	return buf_text(&out);
}

static void assert_has(const char *text, const char *words)
{
	ck_assert_msg(strstr(text, words) != NULL, "no %s in %s", words, text);
}

/* The text is gone when this returns: whoever needs it later has a copy. */
static void publish_forged(struct connection *connection, struct recipe recipe,
			   bool is_forged)
{
	struct buf message;
	char *sig;

	buf_init(&message, EVENT_MAX_BYTES + 64);
	(void)buf_lit(&message, "[\"EVENT\",");
	fixture_write(&fixture, recipe, &message);
	(void)buf_lit(&message, "]");
	sig = strstr(buf_text(&message), "\"sig\":\"");
	ck_assert_ptr_nonnull(sig);
	sig += sizeof("\"sig\":\"") - 1;
	if (is_forged)
		*sig = *sig == '0' ? '1' : '0';
	say(connection, buf_text(&message));
	memset(message.ptr, '!', message.len);
	buf_finish(&message);
}

static void publish(struct connection *connection, struct recipe recipe)
{
	publish_forged(connection, recipe, false);
}

static struct recipe frame(int64_t age)
{
	return (struct recipe){.created_at = NOW - age};
}

static void subscribe(struct connection *connection)
{
	char message[256], hex[65];

	fixture_hex(fixture.owner, hex);
	(void)snprintf(message, sizeof(message),
		       "[\"REQ\",\"a\",{\"kinds\":[24200],\"#p\":[\"%s\"]}]", hex);
	say(connection, message);
}

START_TEST(what_was_put_off_is_answered_in_order_by_what_each_deserves)
{
	publish(agent, frame(1));
	publish_forged(agent, frame(2), true);
	publish(agent, frame(1000));
	publish(agent, (struct recipe){.kind = 22242});
	publish(agent, frame(3));
	ck_assert_str_eq(heard(agent), "");
	publish_settle(&core);
	assert_has(heard(agent), ",true,\"received by 0 readers\"]");
	assert_has(heard(agent), ",false,\"invalid: signature does not verify\"]");
	assert_has(heard(agent), ",false,\"invalid: created_at is more than 300 s");
	assert_has(heard(agent), ",false,\"invalid: kind 22242 is for AUTH");
	assert_has(heard(agent), ",true,\"received by 0 readers\"]");
	ck_assert_str_eq(heard(agent), "");
	ck_assert_uint_eq(core.counters.frames, 2);
}
END_TEST

START_TEST(readers_get_them_in_the_order_they_came)
{
	struct connection *other = connect_as(fixture.agent);
	char time[16];
	size_t i;

	subscribe(owner);
	(void)heard(owner); /* EOSE */
	for (i = 0; i < 10; i++)
		publish(i % 2 ? agent : other, frame((int64_t)i));
	publish_settle(&core);
	ck_assert_uint_eq(owner->queue.count, 10);
	for (i = 0; i < 10; i++) {
		(void)snprintf(time, sizeof(time), ":%lld,", (long long)NOW - (int)i);
		assert_has(heard(owner), time);
	}
}
END_TEST

START_TEST(whatever_else_comes_waits_for_them)
{
	static const struct {
		const char *message, *answer;
	} others[] = {
		{"[\"REQ\",\"a\",{}]", "[\"EOSE\",\"a\"]"},
		{"[\"COUNT\",\"a\",{}]", "[\"CLOSED\",\"a\""},
		{"[\"AUTH\",{}]", "[\"NOTICE\",\"invalid: "},
		{"[\"EVENT\",{}]", "[\"NOTICE\",\"invalid: "},
		{"[\"EVENT\"", "[\"NOTICE\",\"invalid: "},
		{"nonsense", "[\"NOTICE\",\"invalid: "},
	};
	size_t i;

	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		publish(agent, frame((int64_t)i));
		ck_assert_str_eq(heard(agent), "");
		say(agent, others[i].message);
		assert_has(heard(agent), ",true,\"received by 0 readers\"]");
		assert_has(heard(agent), others[i].answer);
		ck_assert_str_eq(heard(agent), "");
	}
	publish(agent, frame(100));
	connection_receive(agent, SLICE("x"), CHUNK_BINARY, true);
	assert_has(heard(agent), ",true,");
	assert_has(heard(agent), "unsupported: binary");
}
END_TEST

START_TEST(a_subscription_gets_an_event_put_off_before_it_from_the_window_once)
{
	publish(agent, frame(1));
	subscribe(owner);
	assert_has(heard(owner), "[\"EVENT\",\"a\",");
	assert_has(heard(owner), "[\"EOSE\",\"a\"]");
	ck_assert_str_eq(heard(owner), "");
}
END_TEST

START_TEST(so_many_are_not_put_off_any_longer)
{
	size_t i;

	for (i = 1; i < VERIFIER_MAX; i++)
		publish(agent, frame((int64_t)i));
	ck_assert_str_eq(heard(agent), "");
	publish(agent, frame(0));
	for (i = 0; i < VERIFIER_MAX; i++)
		assert_has(heard(agent), ",true,");
	ck_assert_uint_eq(core.put_off.count, 0);
}
END_TEST

START_TEST(a_message_over_16_kib_is_not_put_off)
{
	static char content[20001];

	memset(content, 'A', sizeof(content) - 1);
	content[1] = 'g';
	publish(agent, frame(1));
	publish(agent, (struct recipe){.content = content});
	assert_has(heard(agent), ",true,");
	assert_has(heard(agent), ",true,");
}
END_TEST

START_TEST(an_attestation_in_one_frame_counts_for_the_next)
{
	static const uint8_t aux[32];
	struct connection *stranger = connect_as(fixture.stranger);
	struct recipe bare = {.author = fixture.stranger, .agent = fixture.stranger};
	struct recipe shown = bare;
	struct buf tag;
	struct err err;

	buf_init(&tag, 4096);
	ck_assert(nipoa_sign(fixture.crypto, fixture.owner,
			     keypair_public(fixture.stranger), SLICE_EMPTY, aux, &tag,
			     &err));
	shown.more_tags = buf_slice(&tag);
	publish(stranger, bare);
	publish(stranger, shown);
	publish(stranger, bare);
	publish_settle(&core);
	assert_has(heard(stranger), ",false,\"restricted: nothing attests");
	assert_has(heard(stranger), ",true,");
	assert_has(heard(stranger), ",true,");
	buf_finish(&tag);
}
END_TEST

START_TEST(a_repeat_beside_its_first_copy_is_a_duplicate_once_a_reader_has_that)
{
	publish(agent, frame(1));
	publish(agent, frame(1));
	publish_settle(&core);
	assert_has(heard(agent), "received by 0 readers");
	assert_has(heard(agent), "received by 0 readers");
	subscribe(owner);
	publish(agent, frame(2));
	publish(agent, frame(2));
	publish_settle(&core);
	assert_has(heard(agent), "received by 1 reader");
	assert_has(heard(agent), "duplicate: ");
}
END_TEST

START_TEST(what_a_client_sent_before_it_went_is_handed_on)
{
	subscribe(owner);
	(void)heard(owner);
	publish(agent, frame(1));
	publish(agent, frame(2));
	connection_destroy(agent);
	ck_assert_uint_eq(owner->queue.count, 2);
}
END_TEST

START_TEST(nothing_more_is_taken_from_a_connection_that_one_before_it_ended)
{
	publish(agent, frame(1));
	connection_close(agent, CLOSE_POLICY, "test");
	publish_settle(&core);
	ck_assert_str_eq(heard(agent), "");
	ck_assert_uint_eq(core.counters.frames, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/put off");
	TCase *tcase = tcase_create("put off");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase,
		       what_was_put_off_is_answered_in_order_by_what_each_deserves);
	tcase_add_test(tcase, readers_get_them_in_the_order_they_came);
	tcase_add_test(tcase, whatever_else_comes_waits_for_them);
	tcase_add_test(
		tcase,
		a_subscription_gets_an_event_put_off_before_it_from_the_window_once);
	tcase_add_test(tcase, so_many_are_not_put_off_any_longer);
	tcase_add_test(tcase, a_message_over_16_kib_is_not_put_off);
	tcase_add_test(tcase, an_attestation_in_one_frame_counts_for_the_next);
	tcase_add_test(
		tcase,
		a_repeat_beside_its_first_copy_is_a_duplicate_once_a_reader_has_that);
	tcase_add_test(tcase, what_a_client_sent_before_it_went_is_handed_on);
	tcase_add_test(tcase,
		       nothing_more_is_taken_from_a_connection_that_one_before_it_ended);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
