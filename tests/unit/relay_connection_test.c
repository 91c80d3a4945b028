#include "relay/connection.h"

#include <stdlib.h>

#include "tests/unit/support/relay_fixture.h"
#include "tests/unit/support/support.h"
#include "wire/host/log.h"
#include "wire/nostr/nip42.h"

/* The relay's side of NIP-01 and NIP-42 without sockets: text in, text out. */

static struct fixture fixture;
static struct core core;
static struct connection *peer;
static struct buf out;
static int64_t clock_s;
static int wakes;

static void wake(struct connection *connection)
{
	(void)connection;
	wakes++;
}

static int64_t unix_ms(void)
{
	return clock_s * 1000;
}

static const struct connection_io io = {
	.wake = wake, .unix_ms = unix_ms, .now_ms = unix_ms};
static const struct slice urls[] = {SLICE_INIT("ws://relay.test")};

static void setup(void)
{
	log_set_level(LOG_ERROR);
	fixture_init(&fixture);
	clock_s = NOW;
	core_init(&core, &io, fixture.crypto);
	core.urls = urls;
	core.url_count = 1;
	buf_init(&out, EVENT_MAX_BYTES + 4096);
	peer = connection_create(&core, NULL, NULL);
}

static void teardown(void)
{
	while (core.connections)
		connection_destroy(core.connections);
	ck_assert_uint_eq(core.retained.bytes, 0);
	ck_assert_uint_eq(core.counters.connections, 0);
	core_finish(&core);
	buf_finish(&out);
	fixture_finish(&fixture);
}

static void say(struct connection *connection, const char *text)
{
	connection_receive(connection, slice_of(text), CHUNK_TEXT, true);
}

/* The next message, or "" when there is none. */
static const char *heard(struct connection *connection)
{
	buf_clear(&out);
	(void)queue_take(&connection->queue, &out);
	return buf_text(&out);
}

static void assert_heard(struct connection *connection, const char *text)
{
	ck_assert_str_eq(heard(connection), text);
}

/* The message begins so; ids and times vary. */
static void assert_heard_like(struct connection *connection, const char *start)
{
	const char *text = heard(connection);

	ck_assert_msg(strncmp(text, start, strlen(start)) == 0, "got %s", text);
}

static void authenticate(struct connection *connection, const struct keypair *key,
			 struct slice auth_tag)
{
	static const uint8_t aux[32];
	struct buf event, message;
	struct err err;

	queue_clear(&connection->queue);
	buf_init(&event, 8192);
	buf_init(&message, 8192);
	ck_assert(nip42_sign(fixture.crypto, key, urls[0],
			     slice_of(connection->challenge), auth_tag, clock_s, aux,
			     &event, &err));
	(void)buf_printf(&message, "[\"AUTH\",%.*s]", SLICE_ARG(buf_slice(&event)));
	say(connection, buf_text(&message));
	ck_assert_ptr_nonnull(strstr(heard(connection), "\",true,\"\"]"));
	buf_finish(&event);
	buf_finish(&message);
}

static struct connection *connect_as(const struct keypair *key)
{
	struct connection *connection = connection_create(&core, NULL, NULL);

	authenticate(connection, key,
		     key == fixture.agent ? buf_slice(&fixture.attestation)
					  : SLICE_EMPTY);
	return connection;
}

static void publish(struct connection *connection, struct recipe recipe)
{
	struct buf message;

	buf_init(&message, EVENT_MAX_BYTES + 64);
	(void)buf_lit(&message, "[\"EVENT\",");
	fixture_write(&fixture, recipe, &message);
	(void)buf_lit(&message, "]");
	say(connection, buf_text(&message));
	buf_finish(&message);
}

static void subscribe(struct connection *connection, const char *id,
		      const struct keypair *p)
{
	char message[512], hex[65];

	fixture_hex(p, hex);
	(void)snprintf(message, sizeof(message),
		       "[\"REQ\",\"%s\",{\"kinds\":[24200],\"#p\":[\"%s\"]}]", id, hex);
	say(connection, message);
}

/* Content that looks sealed and makes an event of nearly 90,000 bytes. */
static const char *large_content(void)
{
	static char content[87473];

	memset(content, 'A', sizeof(content) - 1);
	content[1] = 'g';
	return content;
}

START_TEST(a_connection_is_greeted_with_a_challenge)
{
	char greeting[64];

	(void)snprintf(greeting, sizeof(greeting), "[\"AUTH\",\"%s\"]", peer->challenge);
	ck_assert_uint_eq(strlen(peer->challenge), 32);
	assert_heard(peer, greeting);
}
END_TEST

START_TEST(a_subscription_without_matches_gets_eose)
{
	(void)heard(peer);
	say(peer, "[\"REQ\",\"a \\\"b\\\"\",{}]");
	assert_heard(peer, "[\"EOSE\",\"a \\\"b\\\"\"]");
}
END_TEST

START_TEST(a_message_in_pieces_is_one_message)
{
	(void)heard(peer);
	connection_receive(peer, SLICE("[\"REQ\","), CHUNK_TEXT, false);
	connection_receive(peer, SLICE(""), CHUNK_TEXT, false);
	connection_receive(peer, SLICE("\"a\",{}]"), CHUNK_TEXT, true);
	assert_heard(peer, "[\"EOSE\",\"a\"]");
	ck_assert_uint_eq(peer->partial.cap, 0);
}
END_TEST

START_TEST(a_message_that_grows_too_large_is_not_buffered)
{
	static char piece[64 * 1024];
	int i;

	(void)heard(peer);
	memset(piece, ' ', sizeof(piece));
	for (i = 0; i < 10; i++)
		connection_receive(peer, (struct slice){piece, sizeof(piece)}, CHUNK_TEXT,
				   false);
	ck_assert_uint_le(peer->partial.cap, RELAY_MESSAGE_MAX);
	assert_heard(peer, "[\"NOTICE\",\"invalid: message is over 262144 bytes\"]");
	ck_assert_int_eq(peer->state, CONNECTION_CLOSING);
	ck_assert_int_eq(peer->close_code, CLOSE_TOO_BIG);
	assert_heard(peer, "");
}
END_TEST

START_TEST(a_closing_connection_is_not_read_any_more)
{
	(void)heard(peer);
	connection_close(peer, CLOSE_GOING_AWAY, "test");
	say(peer, "[\"REQ\",\"a\",{}]");
	assert_heard(peer, "");
}
END_TEST

START_TEST(a_frame_reaches_every_subscription_that_asks_for_it)
{
	struct connection *agent = connect_as(fixture.agent);
	struct connection *owner = connect_as(fixture.owner);

	subscribe(owner, "a", fixture.owner);
	subscribe(owner, "b", fixture.owner);
	queue_clear(&owner->queue);
	publish(agent, (struct recipe){0});
	ck_assert_ptr_nonnull(strstr(heard(agent), ",true,\"received by 1 reader\"]"));
	ck_assert_uint_eq(owner->queue.count, 2);
	ck_assert_uint_eq(core.counters.deliveries, 2);
}
END_TEST

START_TEST(one_text_is_shared_by_all_readers)
{
	struct connection *agent = connect_as(fixture.agent);
	int i;

	queue_clear(&peer->queue);
	for (i = 0; i < 5; i++) {
		struct connection *owner = connect_as(fixture.owner);

		subscribe(owner, "a", fixture.owner);
		queue_clear(&owner->queue);
	}
	publish(agent, (struct recipe){0});
	queue_clear(&agent->queue);
	ck_assert_uint_eq(core.retained.bytes, core.window.newest->body->len);
}
END_TEST

START_TEST(a_frame_that_nobody_keeps_or_hears_is_not_copied)
{
	struct connection *agent = connect_as(fixture.agent);
	struct connection *owner = connect_as(fixture.owner);

	(void)agent;
	publish(owner, (struct recipe){.author = fixture.owner,
				       .p = fixture.agent,
				       .frame = "control"});
	ck_assert_ptr_nonnull(strstr(heard(owner), "received by 0 readers"));
	ck_assert_uint_eq(core.window.bytes, 0);
	ck_assert_uint_eq(core.counters.unheard, 1);
}
END_TEST

START_TEST(the_window_comes_before_eose_and_live_after_it)
{
	struct connection *agent = connect_as(fixture.agent);
	struct connection *owner = connect_as(fixture.owner);

	publish(agent, (struct recipe){0});
	subscribe(owner, "a", fixture.owner);
	publish(agent, (struct recipe){.created_at = NOW + 1});
	assert_heard_like(owner, "[\"EVENT\",\"a\",{");
	assert_heard(owner, "[\"EOSE\",\"a\"]");
	assert_heard_like(owner, "[\"EVENT\",\"a\",{");
	assert_heard(owner, "");
}
END_TEST

START_TEST(a_replaced_subscription_sends_nothing_twice_and_one_eose)
{
	struct connection *agent = connect_as(fixture.agent);
	struct connection *owner = connect_as(fixture.owner);

	publish(agent, (struct recipe){0});
	subscribe(owner, "a", fixture.owner);
	publish(agent, (struct recipe){.created_at = NOW + 1});
	subscribe(owner, "a", fixture.owner);
	assert_heard_like(owner, "[\"EVENT\",\"a\",{");
	assert_heard_like(owner, "[\"EVENT\",\"a\",{");
	assert_heard(owner, "[\"EOSE\",\"a\"]");
	assert_heard(owner, "");
}
END_TEST

START_TEST(replacing_a_subscription_loses_no_unsent_control)
{
	struct connection *agent = connect_as(fixture.agent);
	struct connection *owner = connect_as(fixture.owner);

	subscribe(agent, "a", fixture.agent);
	publish(owner, (struct recipe){.author = fixture.owner,
				       .p = fixture.agent,
				       .frame = "control"});
	subscribe(agent, "a", fixture.agent);
	assert_heard_like(agent, "[\"EVENT\",\"a\",{");
	assert_heard(agent, "[\"EOSE\",\"a\"]");
	assert_heard(agent, "");
}
END_TEST

START_TEST(close_takes_back_what_is_unsent)
{
	struct connection *agent = connect_as(fixture.agent);
	struct connection *owner = connect_as(fixture.owner);

	publish(agent, (struct recipe){0});
	subscribe(owner, "a", fixture.owner);
	say(owner, "[\"CLOSE\",\"a\"]");
	assert_heard(owner, "");
	ck_assert_uint_eq(core.route.count, 0);
}
END_TEST

START_TEST(a_reader_4_mib_behind_is_told_and_closed_and_others_are_not)
{
	struct connection *agent = connect_as(fixture.agent);
	struct connection *slow = connect_as(fixture.owner);
	struct connection *quick = connect_as(fixture.owner);
	int i;

	subscribe(slow, "slow", fixture.owner);
	subscribe(quick, "quick", fixture.owner);
	for (i = 0; i < 60 && slow->state == CONNECTION_OPEN; i++) {
		publish(agent, (struct recipe){.created_at = NOW + i,
					       .content = large_content()});
		queue_clear(&quick->queue);
	}
	ck_assert_int_eq(slow->state, CONNECTION_CLOSING);
	ck_assert_int_eq(slow->close_code, CLOSE_POLICY);
	assert_heard_like(slow, "[\"CLOSED\",\"slow\",\"error: reader too slow, 4");
	assert_heard(slow, "");
	ck_assert_uint_eq(core.counters.refused[REFUSAL_BEHIND], 1);
	ck_assert_int_eq(quick->state, CONNECTION_OPEN);
	publish(agent, (struct recipe){.created_at = NOW + 100});
	ck_assert_uint_eq(quick->queue.count, 1);
}
END_TEST

START_TEST(a_client_that_reads_no_answers_is_closed_too)
{
	int i;

	for (i = 0; i < 100000 && peer->state == CONNECTION_OPEN; i++)
		say(peer, "nonsense");
	ck_assert_int_eq(peer->state, CONNECTION_CLOSING);
	ck_assert_uint_le(peer->queue.bytes, RELAY_READER_QUEUE_MAX);
}
END_TEST

START_TEST(over_256_mib_in_all_the_furthest_behind_goes)
{
	const size_t usual = 2700000, most = 3500000;
	struct connection *connections[100];
	char *text = calloc(1, most);
	int i;

	for (i = 0; i < 100; i++) {
		struct body *body =
			body_create((struct slice){text, i == 42 ? most : usual});

		connections[i] = connection_create(&core, NULL, NULL);
		ck_assert(queue_push(&connections[i]->queue, PARCEL_TEXT, NULL, body));
		body_unref(body);
	}
	free(text);
	ck_assert_uint_gt(core.retained.bytes, RELAY_RETAINED_MAX);
	authenticate(peer, fixture.stranger, SLICE_EMPTY);
	publish(peer,
		(struct recipe){.author = fixture.stranger, .kind = 20001, .tags = "[]"});
	ck_assert_uint_le(core.retained.bytes, RELAY_RETAINED_MAX);
	ck_assert_int_eq(connections[42]->state, CONNECTION_CLOSING);
	ck_assert_uint_eq(core.counters.refused[REFUSAL_BEHIND], 1);
}
END_TEST

START_TEST(a_replay_waits_until_earlier_replays_were_read)
{
	struct connection *agent = connect_as(fixture.agent);
	struct connection *owner = connect_as(fixture.owner);
	int i;

	for (i = 0; i < 60; i++)
		publish(agent, (struct recipe){.created_at = NOW + i,
					       .content = large_content()});
	queue_clear(&agent->queue);
	subscribe(owner, "a", fixture.owner);
	subscribe(owner, "b", fixture.owner);
	subscribe(owner, "c", fixture.owner);
	ck_assert_int_eq(owner->state, CONNECTION_OPEN);
	ck_assert_uint_eq(core.counters.refused[REFUSAL_REPLAY], 1);
	while (owner->queue.count > 1)
		(void)heard(owner);
	assert_heard_like(owner, "[\"CLOSED\",\"c\",\"rate-limited: ");
	subscribe(owner, "c", fixture.owner);
	ck_assert_uint_eq(core.counters.refused[REFUSAL_REPLAY], 1);
}
END_TEST

START_TEST(the_filters_of_one_connection_have_a_limit_in_bytes)
{
	struct buf message;
	int i;

	for (i = 0; i < 10; i++) {
		(void)heard(peer);
		buf_init(&message, RELAY_MESSAGE_MAX);
		(void)buf_printf(&message, "[\"REQ\",\"%d\",{\"#t\":[\"", i);
		memset(buf_extend(&message, 100000), 'x', 100000);
		(void)buf_lit(&message, "\"]}]");
		say(peer, buf_text(&message));
		buf_finish(&message);
	}
	assert_heard(peer,
		     "[\"CLOSED\",\"9\",\"error: more than 2097152 bytes of filters\"]");
	ck_assert_uint_eq(peer->sub_count, 5);
	say(peer, "[\"CLOSE\",\"0\"]");
	say(peer, "[\"REQ\",\"a\",{}]");
	assert_heard(peer, "[\"EOSE\",\"a\"]");
}
END_TEST

START_TEST(a_flood_of_req_is_refused_until_time_has_passed)
{
	queue_clear(&peer->queue);
	for (int i = 0; i < CONNECTION_ASKS_MAX; i++) {
		say(peer, "[\"REQ\",\"a\",{\"kinds\":[1]}]");
		assert_heard(peer, "[\"EOSE\",\"a\"]");
	}
	say(peer, "[\"REQ\",\"a\",{\"kinds\":[1]}]");
	assert_heard_like(peer, "[\"CLOSED\",\"a\",\"rate-limited: ");
	clock_s++;
	say(peer, "[\"REQ\",\"a\",{\"kinds\":[1]}]");
	assert_heard(peer, "[\"EOSE\",\"a\"]");
}
END_TEST

START_TEST(a_flood_of_forged_auth_is_not_looked_at)
{
	struct event event = fixture_event(&fixture, (struct recipe){0});
	char message[4096];

	queue_clear(&peer->queue);
	event.sig[0] ^= 1;
	(void)snprintf(message, sizeof(message), "[\"AUTH\",%.*s]",
		       SLICE_ARG(event.text));
	for (int i = 0; i < CONNECTION_ASKS_MAX; i++) {
		say(peer, message);
		ck_assert_ptr_nonnull(strstr(heard(peer), "invalid: "));
	}
	say(peer, message);
	ck_assert_ptr_nonnull(strstr(heard(peer), "rate-limited: "));
}
END_TEST

START_TEST(an_idle_connection_is_closed_after_the_auth_timeout)
{
	(void)heard(peer);
	connection_auth_timeout(peer);
	assert_heard_like(peer, "[\"NOTICE\",\"auth-required: ");
	ck_assert_int_eq(peer->state, CONNECTION_CLOSING);
}
END_TEST

START_TEST(a_subscribed_or_authenticated_connection_survives_the_auth_timeout)
{
	struct connection *owner = connect_as(fixture.owner);

	say(peer, "[\"REQ\",\"a\",{\"kinds\":[20001]}]");
	connection_auth_timeout(peer);
	connection_auth_timeout(owner);
	ck_assert_int_eq(peer->state, CONNECTION_OPEN);
	ck_assert_int_eq(owner->state, CONNECTION_OPEN);
}
END_TEST

START_TEST(the_socket_is_woken_once_for_many_messages)
{
	wakes = 0;
	queue_clear(&peer->queue);
	say(peer, "[\"REQ\",\"a\",{}]");
	say(peer, "[\"REQ\",\"b\",{}]");
	ck_assert_int_eq(wakes, 1);
}
END_TEST

START_TEST(an_attestation_is_forgotten_with_the_clock)
{
	struct connection *agent = connection_create(&core, NULL, NULL);
	struct buf tag;

	fixture_attest(&fixture, fixture.owner, "created_at<1796000100", &tag);
	authenticate(agent, fixture.agent, buf_slice(&tag));
	publish(agent, (struct recipe){0});
	ck_assert_ptr_nonnull(strstr(heard(agent), ",true,"));
	clock_s = NOW + 100;
	publish(agent, (struct recipe){.created_at = NOW + 99});
	ck_assert_ptr_nonnull(strstr(heard(agent), ",false,\"restricted: "));
	buf_finish(&tag);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/connection");
	TCase *tcase = tcase_create("connection");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_connection_is_greeted_with_a_challenge);
	tcase_add_test(tcase, a_subscription_without_matches_gets_eose);
	tcase_add_test(tcase, a_message_in_pieces_is_one_message);
	tcase_add_test(tcase, a_message_that_grows_too_large_is_not_buffered);
	tcase_add_test(tcase, a_closing_connection_is_not_read_any_more);
	tcase_add_test(tcase, a_frame_reaches_every_subscription_that_asks_for_it);
	tcase_add_test(tcase, one_text_is_shared_by_all_readers);
	tcase_add_test(tcase, a_frame_that_nobody_keeps_or_hears_is_not_copied);
	tcase_add_test(tcase, the_window_comes_before_eose_and_live_after_it);
	tcase_add_test(tcase, a_replaced_subscription_sends_nothing_twice_and_one_eose);
	tcase_add_test(tcase, replacing_a_subscription_loses_no_unsent_control);
	tcase_add_test(tcase, close_takes_back_what_is_unsent);
	tcase_add_test(tcase,
		       a_reader_4_mib_behind_is_told_and_closed_and_others_are_not);
	tcase_add_test(tcase, a_client_that_reads_no_answers_is_closed_too);
	tcase_add_test(tcase, over_256_mib_in_all_the_furthest_behind_goes);
	tcase_add_test(tcase, a_replay_waits_until_earlier_replays_were_read);
	tcase_add_test(tcase, the_filters_of_one_connection_have_a_limit_in_bytes);
	tcase_add_test(tcase, a_flood_of_req_is_refused_until_time_has_passed);
	tcase_add_test(tcase, a_flood_of_forged_auth_is_not_looked_at);
	tcase_add_test(tcase, an_idle_connection_is_closed_after_the_auth_timeout);
	tcase_add_test(
		tcase,
		a_subscribed_or_authenticated_connection_survives_the_auth_timeout);
	tcase_add_test(tcase, the_socket_is_woken_once_for_many_messages);
	tcase_add_test(tcase, an_attestation_is_forgotten_with_the_clock);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
