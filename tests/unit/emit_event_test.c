#include "agent/emit_event.h"

#include <stdio.h>
#include <string.h>

#include "agent/json_lines.h"
#include "tests/unit/support/support.h"
#include "wire/nostr/json.h"

static struct emit_spans spans;
static struct emit_event event;
static struct err err;

static void setup(void)
{
	emit_spans_init(&spans);
	memset(&event, 0, sizeof(event));
}

static void teardown(void)
{
	emit_event_finish(&event);
	emit_spans_finish(&spans);
}

static bool take(const char *message)
{
	emit_event_finish(&event);
	return emit_event_read(&spans, slice_of(message), &event, &err);
}

static bool take_line(const char *line)
{
	emit_event_finish(&event);
	return json_line_read(&spans, slice_of(line), &event);
}

START_TEST(a_note_is_taken_and_marked)
{
	ck_assert(take("{\"kind\":\"note\",\"payload\":{\"text\":\"hi\"}}"));
	assert_slice_eq(event.kind, "note");
	assert_slice_eq(buf_slice(&event.payload),
			"{\"text\":\"hi\",\"source\":\"emit\"}");
}
END_TEST

START_TEST(nobody_says_another_source)
{
	ck_assert(take("{\"kind\":\"x-a\",\"payload\":{\"source\":\"harness\","
		       "\"sour\\u0063e\":1,\"n\":[1e3]}}"));
	assert_slice_eq(buf_slice(&event.payload), "{\"n\":[1e3],\"source\":\"emit\"}");
}
END_TEST

START_TEST(an_empty_payload_is_fine)
{
	ck_assert(take(" {\"kind\":\"x-a\",\"payload\":{}}\n"));
	assert_slice_eq(buf_slice(&event.payload), "{\"source\":\"emit\"}");
}
END_TEST

START_TEST(the_end_of_a_span_knows_its_name)
{
	ck_assert(take("{\"kind\":\"span_start\",\"payload\":{\"id\":\"7\",\"name\":"
		       "\"build\"}}"));
	ck_assert(take("{\"kind\":\"span_end\",\"payload\":{\"id\":\"7\"}}"));
	assert_slice_eq(buf_slice(&event.payload),
			"{\"name\":\"build\",\"id\":\"7\",\"source\":\"emit\"}");
	ck_assert(take("{\"kind\":\"span_end\",\"payload\":{\"id\":\"7\"}}"));
	assert_slice_eq(buf_slice(&event.payload),
			"{\"name\":\"7\",\"id\":\"7\",\"source\":\"emit\"}");
	ck_assert(take("{\"kind\":\"span_end\",\"payload\":{\"id\":\"7\",\"name\":"
		       "\"own\"}}"));
	assert_slice_eq(buf_slice(&event.payload),
			"{\"id\":\"7\",\"name\":\"own\",\"source\":\"emit\"}");
}
END_TEST

START_TEST(open_spans_are_bounded)
{
	char message[128];

	for (int i = 0; i < 2 * EMIT_SPANS_MAX; i++) {
		(void)snprintf(message, sizeof(message),
			       "{\"kind\":\"span_start\",\"payload\":{\"id\":\"%d\","
			       "\"name\":\"n\"}}",
			       i);
		ck_assert(take(message));
	}
	ck_assert_uint_eq(spans.names.count, EMIT_SPANS_MAX);
}
END_TEST

static const char *const refused[] = {
	"",
	"null",
	"[]",
	"{\"kind\":\"note\"}",
	"{\"kind\":\"note\",\"payload\":{}}",
	"{\"kind\":\"note\",\"payload\":{\"text\":1}}",
	"{\"kind\":\"note\",\"payload\":[\"text\"]}",
	"{\"kind\":\"output\",\"payload\":{\"text\":\"x\",\"stream\":\"stdin\"}}",
	"{\"kind\":\"span_start\",\"payload\":{\"id\":\"1\"}}",
	"{\"kind\":\"span_start\",\"payload\":{\"id\":\"\",\"name\":\"x\"}}",
	"{\"kind\":\"span_end\",\"payload\":{\"name\":\"x\"}}",
	"{\"kind\":\"turn_completed\",\"payload\":{}}",
	"{\"kind\":\"harness_started\",\"payload\":{}}",
	"{\"kind\":\"permission_terminal\",\"payload\":{}}",
	"{\"kind\":\"x-\",\"payload\":{}}",
	"{\"kind\":\"x-A\",\"payload\":{}}",
	"{\"kind\":\"x-\\u0061\",\"payload\":{}}",
	"{\"kind\":1,\"payload\":{}}",
	"{\"kind\":\"x-a\",\"payload\":{\"a\":\"\\ud800\"}}",
	"{\"kind\":\"x-a\",\"payload\":{\"a\":1e999}}",
	"{\"kind\":\"x-a\",\"payload\":{\"a\":\"\xff\"}}",
	"{\"kind\":\"x-a\",\"payload\":{}} {}",
};

START_TEST(what_is_no_event_is_refused)
{
	ck_assert_msg(!take(refused[_i]), "%s", refused[_i]);
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert(err.text[0]);
}
END_TEST

START_TEST(a_message_may_be_so_long_and_no_longer)
{
	static const char head[] = "{\"kind\":\"x-a\",\"payload\":{\"t\":\"";
	static const char tail[] = "\"}}";
	char message[EMIT_MESSAGE_MAX + 2];
	const size_t text = EMIT_MESSAGE_MAX - (sizeof(head) - 1) - (sizeof(tail) - 1);

	for (size_t more = 0; more < 2; more++) {
		memset(message, 'x', sizeof(message));
		memcpy(message, head, sizeof(head) - 1);
		memcpy(message + sizeof(head) - 1 + text + more, tail, sizeof(tail));
		ck_assert(take(message) == (more == 0));
	}
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
}
END_TEST

static const struct {
	const char *line, *kind, *payload;
} lines[] = {
	{"{\"level\":\"warn\",\"msg\":\"m\"}", "note",
	 "{\"text\":\"m\",\"level\":\"warn\",\"source\":\"emit\"}"},
	{"{\"level\":30,\"message\":\"m\",\"pid\":1}", "note",
	 "{\"text\":\"m\",\"level\":\"info\",\"source\":\"emit\"}"},
	{"{\"level\":40,\"msg\":\"m\"}", "note",
	 "{\"text\":\"m\",\"level\":\"warn\",\"source\":\"emit\"}"},
	{"{\"severity\":\"CRITICAL\",\"text\":\"m\"}", "note",
	 "{\"text\":\"m\",\"level\":\"error\",\"source\":\"emit\"}"},
	{"{\"kind\":\"x-a\",\"payload\":{}}", "x-a", "{\"source\":\"emit\"}"},
	{"{\"kind\":\"chat\",\"level\":\"info\",\"msg\":\"m\"}", "note",
	 "{\"text\":\"m\",\"level\":\"info\",\"source\":\"emit\"}"},
	{"{\"msg\":\"no level\"}", "x-json", "{\"msg\":\"no level\"}"},
	{"{}\r", "x-json", "{}"},
};

START_TEST(a_line_of_json_becomes_what_it_says)
{
	ck_assert_msg(take_line(lines[_i].line), "%s", lines[_i].line);
	assert_slice_eq(event.kind, lines[_i].kind);
	assert_slice_eq(buf_slice(&event.payload), lines[_i].payload);
}
END_TEST

START_TEST(other_lines_are_text)
{
	static const char *const texts[] = {"", "plain", "[1]", "{", "{\"a\":}", "{} x"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		ck_assert_msg(!take_line(texts[i]), "%s", texts[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("emit_event");
	TCase *tcase = tcase_create("emit_event");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_note_is_taken_and_marked);
	tcase_add_test(tcase, nobody_says_another_source);
	tcase_add_test(tcase, an_empty_payload_is_fine);
	tcase_add_test(tcase, the_end_of_a_span_knows_its_name);
	tcase_add_test(tcase, open_spans_are_bounded);
	tcase_add_loop_test(tcase, what_is_no_event_is_refused, 0,
			    sizeof(refused) / sizeof(*refused));
	tcase_add_test(tcase, a_message_may_be_so_long_and_no_longer);
	tcase_add_loop_test(tcase, a_line_of_json_becomes_what_it_says, 0,
			    sizeof(lines) / sizeof(*lines));
	tcase_add_test(tcase, other_lines_are_text);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
