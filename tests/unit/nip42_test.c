#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/nostr/nip42.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

#define NOW 1700000000

static struct crypto *crypto;
static struct keypair *client;
static struct arena arena;
static struct buf text, scratch;
static const uint8_t aux[32] = {3};
static const struct slice our_urls[] = {SLICE_INIT("wss://relay.example"),
					SLICE_INIT("ws://127.0.0.1:7447")};

static void setup(void)
{
	static const uint8_t seed[32] = {1}, secret[32] = {2};

	crypto = crypto_create(seed, NULL);
	ck_assert_ptr_nonnull(crypto);
	ck_assert(keypair_create(crypto, secret, &client, NULL));
	arena_init(&arena, 4096);
	buf_init(&text, 64 * 1024);
	buf_init(&scratch, 64 * 1024);
}

static void teardown(void)
{
	keypair_destroy(client);
	crypto_destroy(crypto);
	arena_finish(&arena);
	buf_finish(&text);
	buf_finish(&scratch);
}

static struct event an_answer(const char *url, const char *challenge)
{
	struct event event;

	buf_clear(&text);
	ck_assert(nip42_sign(crypto, client, slice_of(url), slice_of(challenge),
			     SLICE_EMPTY, NOW, aux, &text, NULL));
	ck_assert(event_parse(buf_slice(&text), &arena, &event, NULL));
	ck_assert(event_verify(crypto, &event, &scratch, NULL));
	return event;
}

static bool check(const struct event *event, int64_t now, struct err *err)
{
	return nip42_check(event, SLICE("abc\"1"), our_urls, 2, now, err);
}

START_TEST(a_signed_answer_is_accepted)
{
	const struct event event = an_answer("wss://relay.example/", "abc\"1");

	ck_assert(check(&event, NOW, NULL));
}
END_TEST

START_TEST(an_attestation_travels_in_the_answer)
{
	struct event event;

	ck_assert(nip42_sign(crypto, client, SLICE("ws://a"), SLICE("c"),
			     SLICE("[\"auth\",\"x\",\"\",\"y\"]"), NOW, aux, &text,
			     NULL));
	ck_assert(event_parse(buf_slice(&text), &arena, &event, NULL));
	ck_assert(event_verify(crypto, &event, &scratch, NULL));
	assert_slice_eq(tag_value(event_tag(&event, SLICE("auth"))), "x");
	ck_assert_uint_eq(event.tag_count, 3);
}
END_TEST

START_TEST(another_kind_is_refused)
{
	struct event event = an_answer("wss://relay.example", "abc\"1");
	struct err err;

	event.kind = 1;
	ck_assert(!check(&event, NOW, &err));
	ck_assert_str_eq(err.text, "kind is 1, want 22242");
}
END_TEST

START_TEST(an_answer_older_or_newer_than_ten_minutes_is_refused)
{
	const struct event event = an_answer("wss://relay.example", "abc\"1");
	struct err err;

	ck_assert(check(&event, NOW + 600, NULL));
	ck_assert(check(&event, NOW - 600, NULL));
	ck_assert(!check(&event, NOW + 601, &err));
	ck_assert_str_eq(err.text, "created_at is not within 600 seconds of now");
	ck_assert(!check(&event, NOW - 601, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(another_challenge_is_refused)
{
	struct event event = an_answer("wss://relay.example", "abc\"2");
	struct err err;

	ck_assert(!check(&event, NOW, &err));
	ck_assert_str_eq(err.text, "challenge is not the one that was sent");
	event.tag_count = 1; /* none at all */
	ck_assert(!check(&event, NOW, &err));
	event = an_answer("wss://relay.example", "");
	ck_assert(!nip42_check(&event, SLICE_EMPTY, our_urls, 2, NOW, &err));
}
END_TEST

static const struct {
	const char *claimed;
	bool ours;
} urls[] = {
	{"wss://relay.example", true},
	{"wss://relay.example/", true},
	{"wss://relay.example//", true},
	{"WSS://Relay.EXAMPLE", true},
	{"wss://relay.example:443", true},
	{"wss://relay.example:443/", true},
	{"wss://relay.example:", true},
	{"ws://127.0.0.1:7447/", true},
	{"ws://relay.example", false}, /* not over TLS */
	{"ws://relay.example:443", false},
	{"wss://relay.example:80", false},
	{"wss://relay.example:99999", false},
	{"wss://relay.example:0443", false},
	{"wss://relay.example/path", false},
	{"wss://relay.example?x", false},
	{"wss://other.example", false},
	{"wss://relay.example.evil", false},
	{"wss://evil@relay.example", false},
	{"ws://127.0.0.1", false},
	{"wss://", false},
	{"relay.example", false},
	{"https://relay.example", false},
	{"", false},
};

START_TEST(relay_urls_are_compared_by_scheme_host_port_and_path)
{
	const struct event event = an_answer(urls[_i].claimed, "abc\"1");
	struct err err = {ERR_NONE, ""};

	ck_assert_msg(check(&event, NOW, &err) == urls[_i].ours, "%s", urls[_i].claimed);
	if (!urls[_i].ours)
		ck_assert_str_eq(err.text, "relay tag names another relay");
}
END_TEST

START_TEST(ipv6_addresses_and_paths_are_compared_too)
{
	const struct slice own[] = {SLICE_INIT("ws://[::1]:7447/Nostr/")};
	struct event event = an_answer("ws://[::1]:7447/Nostr", "c");

	ck_assert(nip42_check(&event, SLICE("c"), own, 1, NOW, NULL));
	event = an_answer("ws://[::1]:7447/nostr", "c"); /* paths have case */
	ck_assert(!nip42_check(&event, SLICE("c"), own, 1, NOW, NULL));
	event = an_answer("ws://[::1]/Nostr", "c");
	ck_assert(!nip42_check(&event, SLICE("c"), own, 1, NOW, NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nip42");
	TCase *tcase = tcase_create("nip42");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_signed_answer_is_accepted);
	tcase_add_test(tcase, an_attestation_travels_in_the_answer);
	tcase_add_test(tcase, another_kind_is_refused);
	tcase_add_test(tcase, an_answer_older_or_newer_than_ten_minutes_is_refused);
	tcase_add_test(tcase, another_challenge_is_refused);
	tcase_add_loop_test(tcase, relay_urls_are_compared_by_scheme_host_port_and_path,
			    0, COUNT(urls));
	tcase_add_test(tcase, ipv6_addresses_and_paths_are_compared_too);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
