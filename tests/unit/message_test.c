#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/nostr/message.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

static struct arena arena;
static struct buf out;

static void setup(void)
{
	arena_init(&arena, 4096);
	buf_init(&out, 4096);
}

static void teardown(void)
{
	arena_finish(&arena);
	buf_finish(&out);
}

START_TEST(an_event_is_cut_out_as_it_was_sent)
{
	struct client_message message;

	ck_assert(client_message_parse(SLICE(" [\"EVENT\" , {\"a\": [1,{}]} ] \n"),
				       &arena, &message, NULL, NULL));
	ck_assert_int_eq(message.verb, CLIENT_EVENT);
	assert_slice_eq(message.event, "{\"a\": [1,{}]}");
	ck_assert(client_message_parse(SLICE("[\"AUTH\",{}]"), &arena, &message, NULL,
				       NULL));
	ck_assert_int_eq(message.verb, CLIENT_AUTH);
	assert_slice_eq(message.event, "{}");
}
END_TEST

START_TEST(a_req_has_an_id_and_filters)
{
	struct client_message message;
	struct slice sub_id;

	ck_assert(client_message_parse(
		SLICE("[\"REQ\",\"a\\\"\\u00e9\",{\"kinds\":[1]},{}]"), &arena, &message,
		&sub_id, NULL));
	ck_assert_int_eq(message.verb, CLIENT_REQ);
	assert_slice_eq(message.sub_id, "a\"\xc3\xa9");
	assert_slice_eq(sub_id, "a\"\xc3\xa9");
	ck_assert_uint_eq(message.filter_count, 2);
	assert_slice_eq(message.filters[0], "{\"kinds\":[1]}");
	assert_slice_eq(message.filters[1], "{}");
	ck_assert(client_message_parse(SLICE("[\"C\\u004fUNT\",\"x\",{}]"), &arena,
				       &message, NULL, NULL));
	ck_assert_int_eq(message.verb, CLIENT_COUNT);
}
END_TEST

START_TEST(a_close_has_an_id_only)
{
	struct client_message message;

	ck_assert(client_message_parse(SLICE("[\"CLOSE\",\"x\"]"), &arena, &message, NULL,
				       NULL));
	ck_assert_int_eq(message.verb, CLIENT_CLOSE);
	assert_slice_eq(message.sub_id, "x");
}
END_TEST

static const struct {
	const char *text;
	enum err_code code;
	const char *sub_id; /* what a CLOSED can be addressed to */
} refused[] = {
	{"", ERR_MALFORMED, ""},
	{"{}", ERR_MALFORMED, ""},
	{"[]", ERR_MALFORMED, ""},
	{"[1]", ERR_MALFORMED, ""},
	{"[\"PING\"]", ERR_MALFORMED, ""},
	{"[\"event\",{}]", ERR_MALFORMED, ""},
	{"[\"EVENT\"]", ERR_MALFORMED, ""},
	{"[\"EVENT\",1]", ERR_MALFORMED, ""},
	{"[\"EVENT\",{}", ERR_MALFORMED, ""},
	{"[\"EVENT\",{},1]", ERR_MALFORMED, ""},
	{"[\"EVENT\",{}x", ERR_MALFORMED, ""},
	{"[\"AUTH\",{}}", ERR_MALFORMED, ""},
	{"[\"EVENT\",{}]]", ERR_MALFORMED, ""},
	{"[\"EVENT\",{]", ERR_MALFORMED, ""},
	{"[\"CLOSE\"]", ERR_MALFORMED, ""},
	{"[\"CLOSE\",\"x\",1]", ERR_MALFORMED, ""},
	{"[\"CLOSE\",\"x\"", ERR_MALFORMED, ""},
	{"[\"REQ\"]", ERR_MALFORMED, ""},
	{"[\"REQ\",1,{}]", ERR_MALFORMED, ""},
	{"[\"REQ\",\"\",{}]", ERR_MALFORMED, ""},
	{"[\"REQ\",\"x\"]", ERR_MALFORMED, "x"},
	{"[\"REQ\",\"x\",[]]", ERR_MALFORMED, "x"},
	{"[\"REQ\",\"x\",{},]", ERR_MALFORMED, "x"},
	{"[\"REQ\",\"x\",{\"a\":}]", ERR_MALFORMED, "x"},
	{"[\"REQ\",\"x\",{}] {}", ERR_MALFORMED, "x"},
	{"[\"COUNT\",\"x\"]", ERR_MALFORMED, "x"},
	{"[\"REQ\",\"x\",{},{},{},{},{},{},{},{},{},{},{}]", ERR_TOO_LARGE, "x"},
};

START_TEST(client_messages_of_a_wrong_shape_are_refused)
{
	struct client_message message;
	struct slice sub_id = SLICE("unset");
	struct err err;

	ck_assert_msg(!client_message_parse(slice_of(refused[_i].text), &arena, &message,
					    &sub_id, &err),
		      "%s", refused[_i].text);
	ck_assert_int_eq(err.code, refused[_i].code);
	assert_slice_eq(sub_id, refused[_i].sub_id);
}
END_TEST

START_TEST(subscription_ids_are_at_most_64_code_points)
{
	struct client_message message;

	(void)buf_lit(&out, "[\"CLOSE\",\"");
	for (int i = 0; i < MESSAGE_SUB_ID_MAX; i++)
		(void)buf_lit(&out, "\xf0\x9f\x98\x80");
	(void)buf_lit(&out, "\"]");
	ck_assert(client_message_parse(buf_slice(&out), &arena, &message, NULL, NULL));
	buf_truncate(&out, out.len - 2);
	(void)buf_lit(&out, "x\"]");
	ck_assert(!client_message_parse(buf_slice(&out), &arena, &message, NULL, NULL));
}
END_TEST

START_TEST(relay_messages_are_read_into_their_parts)
{
	struct relay_message message;

#define READ(text) ck_assert(relay_message_parse(SLICE(text), &arena, &message, NULL))
	READ("[\"EVENT\",\"s\",{\"x\":1}]");
	ck_assert_int_eq(message.verb, RELAY_EVENT);
	assert_slice_eq(message.sub_id, "s");
	assert_slice_eq(message.event, "{\"x\":1}");
	READ("[\"OK\","
	     "\"000000000000000000000000000000000000000000000000000000000000000a\",true,"
	     "\"duplicate: a\\nb\"]");
	ck_assert_int_eq(message.verb, RELAY_OK);
	ck_assert_uint_eq(message.id[31], 10);
	ck_assert(message.accepted);
	assert_slice_eq(message.text, "duplicate: a\nb");
	READ("[\"OK\","
	     "\"000000000000000000000000000000000000000000000000000000000000000a\","
	     "false]");
	ck_assert(!message.accepted);
	assert_slice_eq(message.text, "");
	READ("[\"EOSE\",\"s\"]");
	ck_assert_int_eq(message.verb, RELAY_EOSE);
	READ("[\"EOSE\",\"s\",{\"more\":true}]"); /* NIP-67 */
	READ("[\"CLOSED\",\"s\",\"auth-required: who\"]");
	ck_assert_int_eq(message.verb, RELAY_CLOSED);
	assert_slice_eq(message.text, "auth-required: who");
	READ("[\"NOTICE\",\"hello\"]");
	ck_assert_int_eq(message.verb, RELAY_NOTICE);
	assert_slice_eq(message.text, "hello");
	READ("[\"AUTH\",\"challenge\"]");
	ck_assert_int_eq(message.verb, RELAY_AUTH);
	assert_slice_eq(message.text, "challenge");
	READ("[\"COUNT\",\"s\",{\"count\":3}]");
	ck_assert_int_eq(message.verb, RELAY_COUNT);
	assert_slice_eq(message.text, "{\"count\":3}");
}
END_TEST

static const char *const bad_relay[] = {
	"[\"EVENT\",{}]",
	"[\"EVENT\",\"s\",1]",
	"[\"OK\",\"abc\",true,\"\"]",
	("[\"OK\",\"000000000000000000000000000000000000000000000000000000000000000a\",1,"
	 "\"\"]"),
	("[\"OK\",\"000000000000000000000000000000000000000000000000000000000000000a\","
	 "true,1]"),
	"[\"EOSE\"]",
	"[\"EOSE\",\"s\"",
	"[\"EOSE\",\"s\",]",
	"[\"CLOSED\",1,\"x\"]",
	"[\"NOTICE\",1]",
	"[\"AUTH\"]",
	"[\"AUTH\",{}]",
	"[\"AUTH\",\"x\",1]",
	"[\"COUNT\",\"s\",3]",
	"[\"HELLO\"]",
	"nonsense",
};

START_TEST(relay_messages_of_a_wrong_shape_are_refused)
{
	struct relay_message message;
	struct err err;

	ck_assert_msg(
		!relay_message_parse(slice_of(bad_relay[_i]), &arena, &message, &err),
		"%s", bad_relay[_i]);
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(what_a_client_writes_is_what_a_relay_reads)
{
	struct client_message message;

	ck_assert(message_write_event(&out, SLICE("{}")));
	assert_slice_eq(buf_slice(&out), "[\"EVENT\",{}]");
	buf_clear(&out);
	ck_assert(message_write_auth(&out, SLICE("{}")));
	assert_slice_eq(buf_slice(&out), "[\"AUTH\",{}]");
	buf_clear(&out);
	ck_assert(message_write_close(&out, SLICE("a\"b")));
	assert_slice_eq(buf_slice(&out), "[\"CLOSE\",\"a\\\"b\"]");
	buf_clear(&out);
	ck_assert(message_write_req(&out, SLICE("a\"b"), SLICE("{\"kinds\":[1]}")));
	ck_assert(client_message_parse(buf_slice(&out), &arena, &message, NULL, NULL));
	assert_slice_eq(message.sub_id, "a\"b");
	assert_slice_eq(message.filters[0], "{\"kinds\":[1]}");
}
END_TEST

START_TEST(what_a_relay_writes_is_what_a_client_reads)
{
	struct relay_message message;

#define BACK() \
	ck_assert(relay_message_parse(buf_slice(&out), &arena, &message, NULL)); \
	buf_clear(&out)
	ck_assert(message_write_sub_event(&out, SLICE("a\"b"), SLICE("{}")));
	BACK();
	ck_assert_int_eq(message.verb, RELAY_EVENT);
	assert_slice_eq(message.sub_id, "a\"b");
	ck_assert(message_write_ok(
		&out,
		SLICE("000000000000000000000000000000000000000000000000000000000000000a"),
		false, SLICE("invalid: \"x\"")));
	BACK();
	ck_assert_int_eq(message.verb, RELAY_OK);
	assert_slice_eq(message.text, "invalid: \"x\"");
	ck_assert(message_write_eose(&out, SLICE("s")));
	BACK();
	ck_assert_int_eq(message.verb, RELAY_EOSE);
	ck_assert(message_write_closed(&out, SLICE("s"), SLICE("error: y")));
	BACK();
	ck_assert_int_eq(message.verb, RELAY_CLOSED);
	ck_assert(message_write_notice(&out, SLICE("z")));
	BACK();
	ck_assert_int_eq(message.verb, RELAY_NOTICE);
	ck_assert(message_write_challenge(&out, SLICE("c")));
	BACK();
	ck_assert_int_eq(message.verb, RELAY_AUTH);
}
END_TEST

START_TEST(a_message_that_does_not_fit_is_reported)
{
	struct buf small;

	buf_init(&small, 12);
	ck_assert(!message_write_notice(&small, SLICE("too long for it")));
	ck_assert(!buf_ok(&small));
	buf_finish(&small);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("message");
	TCase *tcase = tcase_create("message");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_event_is_cut_out_as_it_was_sent);
	tcase_add_test(tcase, a_req_has_an_id_and_filters);
	tcase_add_test(tcase, a_close_has_an_id_only);
	tcase_add_loop_test(tcase, client_messages_of_a_wrong_shape_are_refused, 0,
			    COUNT(refused));
	tcase_add_test(tcase, subscription_ids_are_at_most_64_code_points);
	tcase_add_test(tcase, relay_messages_are_read_into_their_parts);
	tcase_add_loop_test(tcase, relay_messages_of_a_wrong_shape_are_refused, 0,
			    COUNT(bad_relay));
	tcase_add_test(tcase, what_a_client_writes_is_what_a_relay_reads);
	tcase_add_test(tcase, what_a_relay_writes_is_what_a_client_reads);
	tcase_add_test(tcase, a_message_that_does_not_fit_is_reported);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
