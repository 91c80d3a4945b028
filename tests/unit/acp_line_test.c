#include <stdio.h>
#include <string.h>

#include "agent/acp_line.h"
#include "tests/unit/support/support.h"

static struct acp_line line;
static struct buf copy;

static void setup(void)
{
	buf_init(&copy, 65536);
}

static void teardown(void)
{
	buf_finish(&copy);
}

static void scan(const char *text)
{
	acp_line_scan(slice_of(text), &line);
}

static void assert_redacted(const char *text, const char *want)
{
	scan(text);
	ck_assert(line.has_secrets);
	buf_clear(&copy);
	ck_assert(acp_line_redact(&line, &copy));
	assert_slice_eq(buf_slice(&copy), want);
}

START_TEST(request_has_method_and_id)
{
	scan("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"fs/"
	     "read\",\"params\":{\"a\":1}}");
	ck_assert_int_eq(line.shape, ACP_REQUEST);
	assert_slice_eq(line.id, "7");
	assert_slice_eq(line.method, "fs/read");
	assert_slice_eq(line.params, "{\"a\":1}");
	ck_assert(line.id_is_plain);
	ck_assert(line.params_is_object);
}
END_TEST

START_TEST(id_is_the_raw_token)
{
	scan("{\"id\":\"7\",\"method\":\"x\"}");
	assert_slice_eq(line.id, "\"7\"");
	scan("{\"id\":1.0e0,\"method\":\"x\"}");
	assert_slice_eq(line.id, "1.0e0");
	scan("{\"id\":null,\"method\":\"x\"}");
	assert_slice_eq(line.id, "null");
	ck_assert(!line.id_is_plain);
}
END_TEST

START_TEST(notification_has_a_method_and_no_id)
{
	scan("{\"method\":\"session/cancel\",\"params\":{\"sessionId\":\"s\"}}");
	ck_assert_int_eq(line.shape, ACP_NOTIFICATION);
	assert_slice_eq(line.session, "s");
}
END_TEST

START_TEST(response_has_an_id_and_a_result_or_an_error)
{
	scan("{\"id\":1,\"result\":{\"sessionId\":\"new\"}}");
	ck_assert_int_eq(line.shape, ACP_RESPONSE);
	assert_slice_eq(line.session, "new");
	scan("{\"id\":1,\"result\":null}");
	ck_assert_int_eq(line.shape, ACP_RESPONSE);
	scan("{\"id\":1,\"error\":{\"code\":-32000}}");
	ck_assert_int_eq(line.shape, ACP_RESPONSE);
	assert_slice_eq(line.error, "{\"code\":-32000}");
	scan("{\"id\":1}");
	ck_assert_int_eq(line.shape, ACP_OBJECT);
}
END_TEST

START_TEST(array_blank_and_text_are_told_apart)
{
	scan("[{\"id\":1,\"method\":\"x\"}]");
	ck_assert_int_eq(line.shape, ACP_ARRAY);
	scan(" \t\r");
	ck_assert_int_eq(line.shape, ACP_BLANK);
	scan("npm WARN deprecated");
	ck_assert_int_eq(line.shape, ACP_BROKEN);
	ck_assert(!line.repairable);
	scan("\"text\"");
	ck_assert_int_eq(line.shape, ACP_BROKEN);
	assert_slice_eq(slice_of(line.fault.text), "not a JSON object");
}
END_TEST

START_TEST(text_is_first_to_last_byte_that_is_not_blank)
{
	scan("  {\"a\" : 1} \r");
	assert_slice_eq(line.text, "{\"a\" : 1}");
}
END_TEST

START_TEST(chunk_is_the_text_of_a_chunk_update)
{
	scan("{\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":{"
	     "\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\","
	     "\"text\":\"a\\n\"}}}}");
	assert_slice_eq(line.update, "agent_message_chunk");
	assert_slice_eq(line.chunk, "a\\n");
}
END_TEST

START_TEST(empty_chunk_is_a_chunk)
{
	scan("{\"method\":\"session/"
	     "update\",\"params\":{\"update\":{\"content\":{\"text\":\"\"},"
	     "\"sessionUpdate\":\"user_message_chunk\"}}}");
	ck_assert_ptr_nonnull(line.chunk.ptr);
	ck_assert_uint_eq(line.chunk.len, 0);
}
END_TEST

START_TEST(other_updates_and_other_content_are_no_chunk)
{
	scan("{\"method\":\"session/"
	     "update\",\"params\":{\"update\":{\"content\":{\"text\":\"a\"},"
	     "\"sessionUpdate\":\"plan\"}}}");
	ck_assert_ptr_null(line.chunk.ptr);
	scan("{\"method\":\"session/"
	     "update\",\"params\":{\"update\":{\"content\":{\"data\":\"a\"},"
	     "\"sessionUpdate\":\"agent_message_chunk\"}}}");
	ck_assert_ptr_null(line.chunk.ptr);
	scan("{\"method\":\"other\",\"params\":{\"update\":{\"content\":{\"text\":\"a\"},"
	     "\"sessionUpdate\":\"agent_message_chunk\"}}}");
	ck_assert_ptr_null(line.chunk.ptr);
}
END_TEST

START_TEST(of_a_member_that_comes_twice_the_last_counts)
{
	scan("{\"id\":1,\"method\":\"a\",\"id\":2,\"method\":\"b\"}");
	assert_slice_eq(line.id, "2");
	assert_slice_eq(line.method, "b");
}
END_TEST

START_TEST(number_over_a_double_breaks_the_line)
{
	scan("{\"a\":1e999}");
	ck_assert_int_eq(line.shape, ACP_BROKEN);
	ck_assert(!line.repairable);
	scan("{\"a\":1e300}");
	ck_assert_int_eq(line.shape, ACP_OBJECT);
}
END_TEST

START_TEST(lone_surrogate_and_bad_utf8_are_repairable)
{
	scan("{\"a\":\"\\ud83d\"}");
	ck_assert_int_eq(line.shape, ACP_BROKEN);
	ck_assert(line.repairable);
	scan("{\"a\":\"\xff\"}");
	ck_assert(line.repairable);
	scan("[\"\xff\"]");
	ck_assert(!line.repairable);
}
END_TEST

START_TEST(broken_line_has_no_parts)
{
	scan("{\"id\":1,\"method\":\"x\",}");
	ck_assert_int_eq(line.shape, ACP_BROKEN);
	ck_assert_uint_eq(line.method.len, 0);
	ck_assert_uint_eq(line.id.len, 0);
}
END_TEST

START_TEST(permission_request_is_urgent)
{
	scan("{\"id\":1,\"method\":\"session/request_permission\",\"params\":{}}");
	ck_assert(acp_line_is_urgent(&line));
	scan("{\"id\":\"a\",\"method\":\"elicitation/create\",\"params\":{}}");
	ck_assert(acp_line_is_urgent(&line));
}
END_TEST

START_TEST(only_a_proper_request_is_urgent)
{
	scan("{\"id\":null,\"method\":\"session/request_permission\",\"params\":{}}");
	ck_assert(!acp_line_is_urgent(&line));
	scan("{\"id\":1,\"method\":\"session/request_permission\",\"params\":[]}");
	ck_assert(!acp_line_is_urgent(&line));
	scan("{\"method\":\"session/request_permission\",\"params\":{}}");
	ck_assert(!acp_line_is_urgent(&line));
	scan("{\"id\":1,\"method\":\"session/prompt\",\"params\":{}}");
	ck_assert(!acp_line_is_urgent(&line));
}
END_TEST

START_TEST(values_of_mcp_env_and_headers_are_hidden)
{
	assert_redacted(
		"{\"params\":{\"mcpServers\":[{\"name\":\"m\",\"env\":[{\"name\":\"T\","
		"\"value\":\"s3\"}],\"headers\":[{\"name\":\"A\",\"value\":\"s4\"}]}],"
		"\"value\":\"kept\"}}",
		"{\"params\":{\"mcpServers\":[{\"name\":\"m\",\"env\":[{\"name\":\"T\","
		"\"value\":\"…\"}],\"headers\":[{\"name\":\"A\",\"value\":\"…\"}]}],"
		"\"value\":\"kept\"}}");
}
END_TEST

START_TEST(secret_is_found_wherever_it_stands)
{
	char text[128];

	for (int shift = 0; shift < 40; shift++)
		for (int tail = 0; tail < 20; tail++) {
			(void)snprintf(text, sizeof(text),
				       "{\"%.*s\":1,\"env\":[{\"value\":\"s\"}]%.*s}",
				       shift, "mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm",
				       tail, "                    ");
			scan(text);
			ck_assert_msg(line.has_secrets, "%s", text);
		}
}
END_TEST

START_TEST(env_of_any_command_is_hidden)
{
	assert_redacted("{\"params\":{\"command\":\"c\",\"env\":[{\"value\":\"s\","
			"\"name\":\"N\"}]}}",
			"{\"params\":{\"command\":\"c\",\"env\":[{\"value\":\"…\","
			"\"name\":\"N\"}]}}");
}
END_TEST

START_TEST(letters_written_as_escapes_hide_no_secret)
{
	assert_redacted("{\"e\\u006ev\":[{\"value\":\"s\"}]}",
			"{\"e\\u006ev\":[{\"value\":\"…\"}]}");
	assert_redacted("{\"\\u0065\\u006e\\u0076\":[{\"value\":\"s\"}]}",
			"{\"\\u0065\\u006e\\u0076\":[{\"value\":\"…\"}]}");
	assert_redacted("{\"\\u006d\\u0063\\u0070\\u0053\\u0065\\u0072\\u0076\\u0065"
			"\\u0072\\u0073\":[{\"env\":[\"A=s\"]}]}",
			"{\"\\u006d\\u0063\\u0070\\u0053\\u0065\\u0072\\u0076\\u0065"
			"\\u0072\\u0073\":[{\"env\":[\"…\"]}]}");
}
END_TEST

START_TEST(env_in_the_form_of_a_map_is_hidden_in_servers)
{
	assert_redacted(
		"{\"mcpServers\":{\"m\":{\"env\":{\"A\":\"s\",\"B\":{\"c\":1}}}}}",
		"{\"mcpServers\":{\"m\":{\"env\":{\"A\":\"…\",\"B\":\"…\"}}}}");
	assert_redacted("{\"mcpServers\":[{\"env\":[\"A=s\"]}]}",
			"{\"mcpServers\":[{\"env\":[\"…\"]}]}");
}
END_TEST

START_TEST(line_without_secrets_has_none_to_hide)
{
	scan("{\"params\":{\"mcpServers\":[],\"env\":[]}}");
	ck_assert(!line.has_secrets);
	scan("{\"params\":{\"env\":\"production\",\"headers\":[{\"name\":\"a\",\"value\":"
	     "\"b\"}]}}");
	ck_assert(!line.has_secrets);
	scan("{\"text\":\"\\\"env\\\":[{\\\"value\\\":1}]\"}");
	ck_assert(!line.has_secrets);
}
END_TEST

#define CHUNK(text) \
	"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":" \
	"\"s1\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{" \
	"\"type\":\"text\",\"text\":\"" text "\"}}},\"error\":null}"

static void assert_same_slice(struct slice a, struct slice b, const char *text)
{
	ck_assert_msg(a.ptr == b.ptr && a.len == b.len, "%s", text);
}

/* Chunks of every kind, and lines that only begin or end like one. */
START_TEST(a_line_is_read_as_it_is_alone_whatever_came_before_it)
{
	static const char *const texts[] = {
		CHUNK("hello"),
		CHUNK(""),
		CHUNK("a longer text than the one before"),
		"  " CHUNK("blanks around") "\r",
		CHUNK("escaped \\\" quote, \\\\ and \\u20ac"),
		CHUNK("ends with a backslash \\"),
		CHUNK("gr\u00fc\u00df \u20ac \U0001f600"),
		CHUNK("cut \xe2\x82"),
		CHUNK("lone \\ud800"),
		CHUNK("a tab \t"),
		CHUNK("x\",\"more\":\"y"),
		CHUNK("x\"},\"text\":{\"text\":\"y"),
		CHUNK("x\"}}},\"params\":{\"update\":{\"content\":{\"text\":\"y"),
		CHUNK("\",\"env\":[{\"name\":\"A\",\"value\":\"b\"}],\"b\":\""),
		CHUNK("\\\"env\\\":[{\\\"name\\\":1,\\\"value\\\":2}]"),
		"{\"method\":\"session/"
		"update\",\"params\":{\"update\":{\"sessionUpdate\":"
		"\"agent_thought_chunk\",\"content\":{\"text\":\"t\"}},\"sessionId\":"
		"\"s2\"}}",
		"{\"method\":\"session/"
		"update\",\"params\":{\"env\":[{\"name\":\"A\",\"value\":"
		"\"b\"}],\"update\":{\"sessionUpdate\":\"agent_message_chunk\","
		"\"content\":{"
		"\"text\":\"t\"}}}}",
		"{\"id\":1,\"method\":\"m\",\"params\":{}}",
		"",
	};
	const size_t count = sizeof(texts) / sizeof(texts[0]);

	for (size_t i = 0; i < count * count; i++) {
		const struct slice before = slice_of(texts[i / count]);
		const char *text = texts[i % count];
		struct acp_alike alike = {0};
		struct acp_line again;

		acp_line_scan_alike(before, &alike, &again);
		acp_line_scan_alike(slice_of(text), &alike, &again);
		scan(text);
		ck_assert_msg(line.shape == again.shape, "%s", text);
		assert_same_slice(line.text, again.text, text);
		assert_same_slice(line.id, again.id, text);
		assert_same_slice(line.method, again.method, text);
		assert_same_slice(line.params, again.params, text);
		assert_same_slice(line.result, again.result, text);
		assert_same_slice(line.error, again.error, text);
		assert_same_slice(line.session, again.session, text);
		assert_same_slice(line.update, again.update, text);
		assert_same_slice(line.chunk, again.chunk, text);
		ck_assert_msg(line.has_secrets == again.has_secrets &&
				      line.repairable == again.repairable &&
				      line.params_is_object == again.params_is_object,
			      "%s", text);
	}
}
END_TEST

START_TEST(a_line_that_is_too_long_but_for_its_text_is_not_remembered)
{
	struct acp_alike alike = {0};

	buf_init(&copy, 65536);
	(void)buf_lit(&copy, CHUNK("t"));
	memset(buf_extend(&copy, ACP_ALIKE_MAX), ' ', ACP_ALIKE_MAX);
	(void)buf_lit(&copy, "x"); /* blanks at the end would be no part of it */
	acp_line_scan_alike(buf_slice(&copy), &alike, &line);
	ck_assert_int_eq(line.shape, ACP_BROKEN);
	ck_assert_ptr_null(alike.line.text.ptr);
	buf_clear(&copy);
	(void)buf_lit(&copy, "{");
	memset(buf_extend(&copy, ACP_ALIKE_MAX), ' ', ACP_ALIKE_MAX);
	(void)buf_append(&copy, slice_of(&CHUNK("t")[1]));
	acp_line_scan_alike(buf_slice(&copy), &alike, &line);
	assert_slice_eq(line.chunk, "t");
	ck_assert_ptr_null(alike.line.text.ptr);
	acp_line_scan_alike(SLICE(CHUNK("t")), &alike, &line);
	ck_assert_uint_eq(alike.line.text.len, sizeof(CHUNK("")) - 1);
	buf_finish(&copy);
}
END_TEST

static Suite *acp_line_suite(void)
{
	Suite *suite = suite_create("acp_line");
	TCase *shape = tcase_create("shape"), *secrets = tcase_create("secrets");

	tcase_add_test(shape, request_has_method_and_id);
	tcase_add_test(shape, id_is_the_raw_token);
	tcase_add_test(shape, notification_has_a_method_and_no_id);
	tcase_add_test(shape, response_has_an_id_and_a_result_or_an_error);
	tcase_add_test(shape, array_blank_and_text_are_told_apart);
	tcase_add_test(shape, text_is_first_to_last_byte_that_is_not_blank);
	tcase_add_test(shape, chunk_is_the_text_of_a_chunk_update);
	tcase_add_test(shape, empty_chunk_is_a_chunk);
	tcase_add_test(shape, other_updates_and_other_content_are_no_chunk);
	tcase_add_test(shape, of_a_member_that_comes_twice_the_last_counts);
	tcase_add_test(shape, number_over_a_double_breaks_the_line);
	tcase_add_test(shape, lone_surrogate_and_bad_utf8_are_repairable);
	tcase_add_test(shape, broken_line_has_no_parts);
	tcase_add_test(shape, permission_request_is_urgent);
	tcase_add_test(shape, only_a_proper_request_is_urgent);
	tcase_add_test(shape, a_line_is_read_as_it_is_alone_whatever_came_before_it);
	tcase_add_test(shape, a_line_that_is_too_long_but_for_its_text_is_not_remembered);
	tcase_add_checked_fixture(secrets, setup, teardown);
	tcase_add_test(secrets, values_of_mcp_env_and_headers_are_hidden);
	tcase_add_test(secrets, secret_is_found_wherever_it_stands);
	tcase_add_test(secrets, env_of_any_command_is_hidden);
	tcase_add_test(secrets, letters_written_as_escapes_hide_no_secret);
	tcase_add_test(secrets, env_in_the_form_of_a_map_is_hidden_in_servers);
	tcase_add_test(secrets, line_without_secrets_has_none_to_hide);
	suite_add_tcase(suite, shape);
	suite_add_tcase(suite, secrets);
	return suite;
}

int main(void)
{
	return test_run(acp_line_suite());
}
