#include <stdio.h>
#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/nostr/event.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

static struct crypto *crypto;
static struct keypair *author, *reader;
static struct arena arena;
static struct buf text, scratch, plain;

static void setup(void)
{
	static const uint8_t seed[32] = {1}, secret[32] = {7}, other[32] = {8};

	crypto = crypto_create(seed, NULL);
	ck_assert_ptr_nonnull(crypto);
	ck_assert(keypair_create(crypto, secret, &author, NULL));
	ck_assert(keypair_create(crypto, other, &reader, NULL));
	arena_init(&arena, 4096);
	buf_init(&text, 512 * 1024);
	buf_init(&scratch, 512 * 1024);
	buf_init(&plain, 512 * 1024);
}

static void teardown(void)
{
	keypair_destroy(author);
	keypair_destroy(reader);
	crypto_destroy(crypto);
	arena_finish(&arena);
	buf_finish(&text);
	buf_finish(&scratch);
	buf_finish(&plain);
}

/* A number of cases that the file must not lose. */
#define CASES 21

/* Event and verdict of one case of event-id-cases.json. */
static struct slice case_at(int index, struct slice *name, bool *accept)
{
	struct slice key, must = SLICE_EMPTY, event = SLICE_EMPTY;
	struct json json;
	int i = 0;

	*name = SLICE_EMPTY;
	test_data("event-id-cases.json", &text);
	json_init(&json, buf_slice(&text));
	ck_assert(json_enter_object(&json));
	while (json_member(&json, &key) && !json_is(key, SLICE("cases")))
		ck_assert(json_skip(&json, NULL));
	ck_assert(json_enter_array(&json));
	while (json_element(&json) && i++ < index)
		ck_assert(json_skip(&json, NULL));
	ck_assert(json_enter_object(&json));
	while (json_member(&json, &key)) {
		if (json_is(key, SLICE("name")))
			ck_assert(json_string(&json, name));
		else if (json_is(key, SLICE("must")))
			ck_assert(json_string(&json, &must));
		else
			ck_assert(json_skip(&json, json_is(key, SLICE("event")) ? &event
										: NULL));
	}
	*accept = slice_starts(must, SLICE("accept"));
	/* Where the file leaves a choice: a NUL is refused (design: as buzz does). */
	if (slice_eq(*name, SLICE("NUL")))
		*accept = false;
	return event;
}

START_TEST(published_id_cases_are_accepted_or_refused)
{
	struct slice name;
	struct event event;
	struct err err = {ERR_NONE, ""};
	bool accept;
	const struct slice json = case_at(_i, &name, &accept);
	const bool got = event_parse(json, &arena, &event, &err) &&
			 event_verify(crypto, &event, &scratch, &err);

	ck_assert_msg(got == accept, "%.*s: %s", SLICE_ARG(name), err.text);
	if (!accept)
		ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

/* A client may escape any character it likes: the id is that of the decoded strings. */
START_TEST(an_event_escaped_otherwise_on_the_wire_has_the_same_id)
{
	struct slice name;
	struct event event;
	bool accept;
	const struct slice json = case_at(_i, &name, &accept);

	if (!accept)
		return;
	/* Every character of content and tags as \u escapes, members spaced out. */
	ck_assert(event_parse(json, &arena, &event, NULL));
	buf_clear(&plain);
	(void)json_unescape(event.content, &plain);
	buf_clear(&scratch);
	(void)buf_lit(&scratch, "{ \"\\u0063ontent\" : \"");
	for (size_t i = 0; i < plain.len; i++) {
		if ((uint8_t)plain.ptr[i] < 0x80)
			(void)buf_printf(&scratch, "\\u%04X", plain.ptr[i]);
		else
			(void)buf_append_byte(&scratch, plain.ptr[i]);
	}
	(void)buf_lit(&scratch, "\" ,\n \"tags\" : [ ");
	for (size_t i = 0; i < event.tag_count; i++) {
		(void)buf_append(&scratch, i ? SLICE(" , [ ") : SLICE("[ "));
		for (size_t j = 0; j < event.tags[i].count; j++) {
			const struct slice value = event.tags[i].values[j];

			(void)buf_append(&scratch, j ? SLICE(" , \"") : SLICE("\""));
			for (size_t k = 0; k < value.len; k++)
				(void)buf_printf(&scratch, "\\u%04x", value.ptr[k]);
			(void)buf_lit(&scratch, "\"");
		}
		(void)buf_lit(&scratch, " ]");
	}
	(void)buf_printf(&scratch,
			 " ],\"extra\":{\"id\":[null]},\"kind\":%u,\"created_at\":%lld",
			 event.kind, (long long)event.created_at);
	(void)buf_lit(&scratch, ",\"id\":\"");
	(void)buf_append_hex(&scratch, event.id, 32);
	(void)buf_lit(&scratch, "\",\"pubkey\":\"");
	(void)buf_append_hex(&scratch, event.pubkey, 32);
	(void)buf_lit(&scratch, "\",\"sig\":\"");
	(void)buf_append_hex(&scratch, event.sig, 64);
	(void)buf_lit(&scratch, "\" }");

	ck_assert(event_parse(buf_slice(&scratch), &arena, &event, NULL));
	ck_assert_msg(event_verify(crypto, &event, &plain, NULL), "%.*s",
		      SLICE_ARG(name));
}
END_TEST

static const char good[] =
	"{\"id\":\"0000000000000000000000000000000000000000000000000000000000000001\","
	"\"pubkey\":\"0000000000000000000000000000000000000000000000000000000000000002\","
	"\"sig\":\"0000000000000000000000000000000000000000000000000000000000000000"
	"0000000000000000000000000000000000000000000000000000000000000003\","
	"\"created_at\":5,\"kind\":1,\"tags\":[[\"t\",\"x\"]],\"content\":\"c\"}";

/* What each change of the good event above does to it. */
static const struct {
	const char *from, *to;
	const char *why; /* NULL: still an event */
} changes[] = {
	{"", "", NULL},
	{"\"c\"}", "\"c\",\"extra\":[1,{}]}", NULL},
	{"\"c\"}", "\"\"}", NULL},
	{"[[\"t\",\"x\"]]", "[]", NULL},
	{"[[\"t\",\"x\"]]", "[[\"\"]]", NULL},
	{"\"kind\":1", "\"kind\":65535", NULL},
	{"\"created_at\":5", "\"created_at\":9007199254740991", NULL},
	{"\"c\"}", "\"c\"", "broken or unexpected JSON at byte 342"},
	{"\"c\"}", "\"c\"}}", "broken or unexpected JSON at byte 343"},
	{"{\"id\"", "[\"id\"", "event is not a JSON object"},
	{"\"content\":\"c\"", "\"x\":1", "content is missing"},
	{"\"kind\":1,", "", "kind is missing"},
	{"\"kind\":1", "\"kind\":1,\"kind\":1", "kind is given twice"},
	{"\"kind\":1", "\"kind\":1,\"k\\u0069nd\":1", "kind is given twice"},
	{"\"kind\":1", "\"kind\":65536", "kind is not an integer from 0 to 65535"},
	{"\"kind\":1", "\"kind\":-1", "kind is not an integer from 0 to 65535"},
	{"\"kind\":1", "\"kind\":1.0", "kind is not an integer from 0 to 65535"},
	{"\"kind\":1", "\"kind\":\"1\"", "kind is not an integer from 0 to 65535"},
	{"\"created_at\":5", "\"created_at\":-5",
	 "created_at is not an integer of Unix seconds"},
	{"\"created_at\":5", "\"created_at\":1e+10",
	 "created_at is not an integer of Unix seconds"},
	{"\"created_at\":5", "\"created_at\":9007199254740992",
	 "created_at is not an integer of Unix seconds"},
	{"0001\"", "000A\"", "id is not 64 lower-case hex digits"},
	{"0001\"", "001\"", "id is not 64 lower-case hex digits"},
	{"0001\"", "0001 \"", "id is not 64 lower-case hex digits"},
	{"0002\"", "0002aa\"", "pubkey is not 64 lower-case hex digits"},
	{"0003\"", "003\"", "sig is not 128 lower-case hex digits"},
	{"\"c\"", "null", "content is not a string"},
	{"\"c\"", "\"\\u0000\"", "content holds a NUL"},
	{"\"x\"", "\"a\\u0000\"", "tag value holds a NUL"},
	{"\"x\"", "1", "tag value is not a string"},
	{"\"x\"", "null", "tag value is not a string"},
	{"[\"t\",\"x\"]", "null", "tag is not an array"},
	{"[\"t\",\"x\"]", "[]", "a tag is empty, want one or more strings"},
	{"[[\"t\",\"x\"]]", "{}", "tags is not an array of arrays"},
	{"\"c\"", "\"\\ud800\"", "lone surrogate in a JSON string at byte 340"},
	{"\"x\"", "\"\\udfff\"", "lone surrogate in a JSON string at byte 324"},
	{"\"c\"", "\"\xff\"", "invalid UTF-8 in a JSON string at byte 340"},
};

/* @from's first occurrence in the good event becomes @to. */
static struct slice changed(const char *from, const char *to)
{
	const struct slice whole = slice_of(good), old = slice_of(from);
	const size_t at = old.len ? slice_find_slice(whole, old) : 0;

	ck_assert_uint_lt(at, whole.len);
	buf_clear(&text);
	(void)buf_append(&text, slice_sub(whole, 0, at));
	(void)buf_append(&text, slice_of(to));
	(void)buf_append(&text, slice_sub(whole, at + old.len, whole.len));
	return buf_slice(&text);
}

START_TEST(shape_is_checked_member_by_member)
{
	struct event event;
	struct err err = {ERR_NONE, ""};
	const struct slice json = changed(changes[_i].from, changes[_i].to);
	const bool ok = event_parse(json, &arena, &event, &err);

	ck_assert_msg(ok == !changes[_i].why, "%s: %s", changes[_i].to, err.text);
	if (ok)
		return;
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_str_eq(err.text, changes[_i].why);
}
END_TEST

START_TEST(an_event_is_read_into_its_parts)
{
	struct event event;

	ck_assert(event_parse(
		changed("[\"t\",\"x\"]", "[\"t\",\"a\\nb\"],[\"p\"],[\"t\",\"2\"]"),
		&arena, &event, NULL));
	ck_assert_uint_eq(event.id[31], 1);
	ck_assert_uint_eq(event.pubkey[31], 2);
	ck_assert_uint_eq(event.sig[63], 3);
	ck_assert_int_eq(event.created_at, 5);
	ck_assert_uint_eq(event.kind, 1);
	ck_assert_uint_eq(event.tag_count, 3);
	assert_slice_eq(event.content, "c");
	assert_slice_eq(tag_value(event_tag(&event, SLICE("t"))), "a\nb");
	assert_slice_eq(tag_value(event_tag(&event, SLICE("p"))), "");
	ck_assert_ptr_null(event_tag(&event, SLICE("x")));
	assert_slice_eq(tag_value(NULL), "");
	ck_assert_uint_eq(event_tag_count(&event, SLICE("t")), 2);
	ck_assert(slice_eq(event.text, buf_slice(&text)));
}
END_TEST

START_TEST(an_event_of_more_than_256_kib_is_too_large)
{
	struct event event;
	struct err err;

	(void)changed("", "");
	while (text.len <= EVENT_MAX_BYTES)
		(void)buf_append_byte(&text, ' ');
	ck_assert(!event_parse(buf_slice(&text), &arena, &event, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	buf_truncate(&text, EVENT_MAX_BYTES);
	ck_assert(event_parse(buf_slice(&text), &arena, &event, &err));
}
END_TEST

START_TEST(tags_beyond_the_limit_are_too_many)
{
	struct event event;
	struct err err;
	struct buf tags;

	buf_init(&tags, 64 * 1024);
	(void)buf_lit(&tags, "[[\"a\"]");
	for (int i = 1; i < EVENT_TAGS_MAX; i++)
		(void)buf_lit(&tags, ",[\"a\"]");
	(void)buf_lit(&tags, "]");
	ck_assert(event_parse(changed("[[\"t\",\"x\"]]", buf_text(&tags)), &arena, &event,
			      NULL));
	ck_assert_uint_eq(event.tag_count, EVENT_TAGS_MAX);
	buf_truncate(&tags, tags.len - 1);
	(void)buf_lit(&tags, ",[\"a\"]]");
	ck_assert(!event_parse(changed("[[\"t\",\"x\"]]", buf_text(&tags)), &arena,
			       &event, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	buf_finish(&tags);
}
END_TEST

START_TEST(the_id_of_an_event_that_does_not_parse_is_found)
{
	struct slice hex;

	ck_assert(event_find_id(changed("\"kind\":1", "\"kind\":null"), &hex));
	assert_slice_eq(
		hex, "0000000000000000000000000000000000000000000000000000000000000001");
	ck_assert(!event_find_id(changed("0001\"", "000A\""), &hex));
	ck_assert(event_find_id(changed("\"c\"}", "\"c"), &hex));
	ck_assert(!event_find_id(changed("0001\"", "\""), &hex));
	ck_assert(!event_find_id(changed("\"id\"", "\"ID\""), &hex));
	ck_assert(!event_find_id(SLICE("[]"), &hex));
}
END_TEST

static const struct event_draft draft = {
	.created_at = 1700000000,
	.kind = 1,
	.tags = SLICE_INIT("[[\"t\",\"a\\\"b\"]]"),
	.content = SLICE_INIT("line\n\"quoted\" \xc3\xa9"),
};
static const uint8_t aux[32] = {9}, nonce[32] = {10};

START_TEST(what_is_signed_verifies)
{
	struct event event;
	uint8_t id[32];

	ck_assert(event_sign(crypto, author, &draft, aux, &text, id, NULL));
	ck_assert(event_parse(buf_slice(&text), &arena, &event, NULL));
	ck_assert(event_verify(crypto, &event, &scratch, NULL));
	ck_assert_mem_eq(event.id, id, 32);
	ck_assert_mem_eq(event.pubkey, keypair_public(author), 32);
	ck_assert_int_eq(event.created_at, draft.created_at);
	ck_assert_uint_eq(event.kind, draft.kind);
	assert_slice_eq(event.content, "line\\n\\\"quoted\\\" \xc3\xa9");
	assert_slice_eq(tag_value(&event.tags[0]), "a\"b");
}
END_TEST

/* NIP-01: the id is the SHA-256 of the serialized event. */
START_TEST(an_event_of_which_any_member_was_altered_is_refused)
{
	static const char *const swaps[][2] = {
		{"line", "lime"},
		{"1700000000", "1700000001"},
		{"\"kind\":1", "\"kind\":2"},
		{"a\\\"b", "a\\\"c"},
		{"\"tags\":[[\"t\"", "\"tags\":[[\"u\""},
	};
	struct event event;
	static const char words[] = "id is not the hash of the event, which is ";
	struct err err;
	struct slice whole;
	size_t at;

	ck_assert(event_sign(crypto, author, &draft, aux, &scratch, NULL, NULL));
	whole = buf_slice(&scratch);
	at = slice_find_slice(whole, slice_of(swaps[_i][0]));
	ck_assert_uint_lt(at, whole.len);
	(void)buf_append(&text, slice_sub(whole, 0, at));
	(void)buf_append(&text, slice_of(swaps[_i][1]));
	(void)buf_append(&text, slice_sub(whole, at + strlen(swaps[_i][0]), whole.len));
	ck_assert(event_parse(buf_slice(&text), &arena, &event, NULL));
	ck_assert(!event_verify(crypto, &event, &plain, &err));
	ck_assert_msg(strncmp(err.text, words, strlen(words)) == 0, "%s", err.text);
	/* What it says is what we computed. */
	ck_assert(hex_decode(slice_of(err.text + strlen(words)), event.id, 32));
	ck_assert(event_check_id(crypto, &event, &plain, &err));
}
END_TEST

START_TEST(a_signature_of_another_key_is_refused)
{
	struct event event;
	struct err err;

	ck_assert(event_sign(crypto, author, &draft, aux, &text, NULL, NULL));
	ck_assert(event_parse(buf_slice(&text), &arena, &event, NULL));
	schnorr_sign(crypto, reader, (struct slice){(const char *)event.id, 32}, aux,
		     event.sig);
	ck_assert(!event_verify(crypto, &event, &scratch, &err));
	ck_assert_str_eq(err.text, "signature does not verify");
}
END_TEST

START_TEST(a_sealed_event_verifies_and_opens)
{
	const struct event_draft frame = {
		.created_at = 1700000000, .kind = 24200, .tags = SLICE_INIT("[]")};
	struct event event;
	uint8_t key[32], id[32];
	static const size_t sizes[] = {1, 32, 1000, 40960, NIP44_PLAINTEXT_SEND_MAX};
	const size_t size = sizes[_i];

	ck_assert(nip44_conversation_key(crypto, author, keypair_public(reader), key,
					 NULL));
	for (size_t i = 0; i < size; i++)
		(void)buf_append_byte(&plain, (char)('a' + i % 26));
	(void)buf_lit(&text, "[\"EVENT\",");
	ck_assert(event_seal(crypto, author, key, &frame, buf_slice(&plain), nonce, aux,
			     &text, id, NULL));
	ck_assert(event_parse(slice_sub(buf_slice(&text), 9, text.len), &arena, &event,
			      NULL));
	ck_assert(event_verify(crypto, &event, &scratch, NULL));
	ck_assert_mem_eq(event.id, id, 32);
	ck_assert(nip44_looks_valid(event.content));
	ck_assert_uint_eq(event.content.len, nip44_payload_len(size));

	ck_assert(nip44_conversation_key(crypto, reader, keypair_public(author), key,
					 NULL));
	buf_clear(&scratch);
	ck_assert(nip44_decrypt(crypto, key, event.content, &scratch, NULL));
	ck_assert(slice_eq(buf_slice(&scratch), buf_slice(&plain)));
}
END_TEST

START_TEST(a_seal_that_fails_leaves_its_buffer_as_it_was)
{
	struct buf tight;
	uint8_t key[32] = {1};
	struct err err;

	/* Too long for NIP-44, then for a buffer that ends anywhere in the event. */
	ck_assert(event_seal(crypto, author, key, &draft, SLICE("x"), nonce, aux, &text,
			     NULL, NULL));
	buf_init(&tight, 6 + text.len);
	(void)buf_lit(&tight, "before");
	for (size_t i = 0; i < NIP44_PLAINTEXT_SEND_MAX + 1; i++)
		(void)buf_append_byte(&plain, 'x');
	ck_assert(!event_seal(crypto, author, key, &draft, buf_slice(&plain), nonce, aux,
			      &tight, NULL, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	for (size_t room = 6; room < 6 + text.len; room++) {
		tight.max = room;
		ck_assert_msg(!event_seal(crypto, author, key, &draft, SLICE("x"), nonce,
					  aux, &tight, NULL, &err),
			      "in %zu bytes", room);
		ck_assert_int_eq(err.code, ERR_TOO_LARGE);
		assert_slice_eq(buf_slice(&tight), "before");
		ck_assert(buf_ok(&tight));
	}
	tight.max = 6 + text.len;
	ck_assert(event_seal(crypto, author, key, &draft, SLICE("x"), nonce, aux, &tight,
			     NULL, &err));
	buf_finish(&tight);
}
END_TEST

/* Once warm, sealing a frame into a buffer that has its size moves no memory. */
START_TEST(sealing_again_reuses_the_memory_of_the_buffer)
{
	uint8_t key[32] = {1};
	const char *where;

	ck_assert(event_seal(crypto, author, key, &draft, SLICE("first"), nonce, aux,
			     &text, NULL, NULL));
	where = text.ptr;
	buf_clear(&text);
	ck_assert(event_seal(crypto, author, key, &draft, SLICE("other"), nonce, aux,
			     &text, NULL, NULL));
	ck_assert_ptr_eq(text.ptr, where);
}
END_TEST

START_TEST(ephemeral_kinds_are_20000_to_29999)
{
	ck_assert(!event_is_ephemeral(19999));
	ck_assert(event_is_ephemeral(20000));
	ck_assert(event_is_ephemeral(24200));
	ck_assert(event_is_ephemeral(29999));
	ck_assert(!event_is_ephemeral(30000));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("event");
	TCase *tcase = tcase_create("event");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, published_id_cases_are_accepted_or_refused, 0, CASES);
	tcase_add_loop_test(tcase, an_event_escaped_otherwise_on_the_wire_has_the_same_id,
			    0, CASES);
	tcase_add_loop_test(tcase, shape_is_checked_member_by_member, 0, COUNT(changes));
	tcase_add_test(tcase, an_event_is_read_into_its_parts);
	tcase_add_test(tcase, an_event_of_more_than_256_kib_is_too_large);
	tcase_add_test(tcase, tags_beyond_the_limit_are_too_many);
	tcase_add_test(tcase, the_id_of_an_event_that_does_not_parse_is_found);
	tcase_add_test(tcase, what_is_signed_verifies);
	tcase_add_loop_test(tcase, an_event_of_which_any_member_was_altered_is_refused, 0,
			    5);
	tcase_add_test(tcase, a_signature_of_another_key_is_refused);
	tcase_add_loop_test(tcase, a_sealed_event_verifies_and_opens, 0, 5);
	tcase_add_test(tcase, a_seal_that_fails_leaves_its_buffer_as_it_was);
	tcase_add_test(tcase, sealing_again_reuses_the_memory_of_the_buffer);
	tcase_add_test(tcase, ephemeral_kinds_are_20000_to_29999);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
