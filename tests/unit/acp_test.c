#include "agent/acp.h"

#include "tests/unit/support/support.h"

/* The connection without a process: what it writes is kept here. Source: facts of ACP,
 * JSON-RPC. */

static struct loop *loop;
static struct acp *acp;
static struct buf written; /* all lines */
static struct buf wrote;   /* what on_wrote was told */
static struct buf requests;
static unsigned reads, notifications, answers;
static void *read_route;
static bool writes_fail;
static struct acp_answer last;
static int64_t last_code;

static void on_read(void *ctx, const struct acp_line *line, const struct acp_line *raw,
		    size_t bytes, void *route)
{
	(void)ctx;
	(void)raw;
	(void)line;
	(void)bytes;
	reads++;
	read_route = route;
}

static void on_request(void *ctx, const struct acp_line *line)
{
	(void)ctx;
	(void)buf_append(&requests, line->id);
	(void)buf_lit(&requests, ";");
}

static void on_notification(void *ctx, const struct acp_line *line)
{
	(void)ctx;
	(void)line;
	notifications++;
}

static void on_wrote(void *ctx, struct slice line, void *route,
		     struct slice authorization)
{
	(void)ctx;
	(void)route;
	(void)buf_append(&wrote, line);
	(void)buf_append(&wrote, authorization);
}

static const struct acp_events events = {on_read, on_request, on_notification, on_wrote};

static void write_line(void *ctx, struct slice line, child_on_written *on_written,
		       void *written_ctx)
{
	(void)ctx;
	(void)buf_append(&written, line);
	on_written(written_ctx, line, writes_fail ? CHILD_CUT_OFF : CHILD_WRITTEN);
}

static void on_answer(void *ctx, const struct acp_answer *answer)
{
	(void)ctx;
	answers++;
	last = *answer;
	last_code = answer->code;
	if (answer->failure == ACP_TIMED_OUT)
		loop_quit(loop);
}

static void setup(void)
{
	struct err err;

	loop = loop_create(&err);
	ck_assert_ptr_nonnull(loop);
	buf_init(&written, 1u << 20);
	buf_init(&wrote, 1u << 20);
	buf_init(&requests, 1u << 20);
	reads = notifications = answers = 0;
	writes_fail = false;
	read_route = NULL;
	acp = acp_create(loop, &events, NULL, write_line, NULL);
}

static void teardown(void)
{
	acp_destroy(acp);
	loop_destroy(loop);
	buf_finish(&written);
	buf_finish(&wrote);
	buf_finish(&requests);
}

static void call(void *route)
{
	acp_call(acp, "m", SLICE("{}"), route, 0, on_answer, NULL);
}

static void receive(const char *text)
{
	acp_receive(acp, slice_of(text));
}

START_TEST(a_request_is_one_line_with_a_small_integer_id)
{
	call(NULL);
	call(NULL);
	assert_slice_eq(
		buf_slice(&written),
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"m\",\"params\":{}}\n"
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{}}\n");
}
END_TEST

START_TEST(an_answer_reaches_its_request_and_its_route)
{
	int route;

	call(NULL);
	call(&route);
	receive("{\"id\":1,\"jsonrpc\":\"2.0\",\"result\":{\"a\":1}}\n");
	ck_assert_uint_eq(answers, 1);
	ck_assert(last.ok && last.failure == ACP_ANSWERED);
	ck_assert_ptr_eq(read_route, &route);
	ck_assert_uint_eq(acp_pending(acp), 1);
}
END_TEST

/* The first: 0 and "0" differ. The last is a request of theirs. */
static const char *const strangers[] = {
	"{\"jsonrpc\":\"2.0\",\"id\":\"0\",\"result\":{}}",
	"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}",
	"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"x\"}}",
	"{\"jsonrpc\":\"2.0\",\"id\":0.0,\"result\":{}}",
	"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"m\",\"params\":{}}",
};

START_TEST(an_answer_to_nothing_of_ours_answers_nothing)
{
	call(NULL);
	buf_clear(&written);
	receive(strangers[_i]);
	receive("\n");
	ck_assert_uint_eq(answers, 0);
	ck_assert_uint_eq(written.len, 0);
	ck_assert_uint_eq(reads, 1);
}
END_TEST

START_TEST(an_error_brings_its_code_and_words)
{
	call(NULL);
	receive("{\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-32000,\"message\":"
		"\"log in\"}}\n");
	ck_assert(!last.ok);
	ck_assert_int_eq(last_code, -32000);
	assert_slice_eq(last.message, "log in");
}
END_TEST

START_TEST(the_same_answer_twice_counts_once)
{
	call(NULL);
	receive("{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n"
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n");
	ck_assert_uint_eq(answers, 1);
}
END_TEST

START_TEST(a_request_without_answer_fails_in_time)
{
	acp_call(acp, "m", SLICE("{}"), NULL, 1, on_answer, NULL);
	loop_run(loop);
	ck_assert_int_eq(last.failure, ACP_TIMED_OUT);
	receive("{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n");
	ck_assert_uint_eq(answers, 1);
	assert_slice_eq(buf_slice(&written),
			"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"m\",\"params\":{}}\n"
			"{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":"
			"{\"requestId\":0}}\n");
}
END_TEST

static const struct {
	const char *line;
	unsigned notifications;
} titled[] = {
	{"\x1b]0;t\a{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n", 1},
	{"\x1b]0;t\x1b\\{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n", 1},
	{"\x1b[1;31m\x1b[0m{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n", 1},
	{"\x1b]0;never ends {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n", 0},
	{"\x1bX{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n", 0},
	{"log {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n", 0},
	{"\x1b]\n\x1b[\n\x1b\n", 0},
};

START_TEST(a_message_behind_terminal_sequences_counts_and_no_other)
{
	receive(titled[_i].line);
	ck_assert_uint_eq(notifications, titled[_i].notifications);
}
END_TEST

START_TEST(a_closed_connection_fails_every_request_now_and_later)
{
	call(NULL);
	call(NULL);
	acp_close(acp);
	ck_assert_uint_eq(answers, 2);
	ck_assert_int_eq(last.failure, ACP_GONE);
	call(NULL);
	ck_assert_uint_eq(answers, 3);
}
END_TEST

START_TEST(an_id_is_echoed_as_it_was_spelled)
{
	static const char *const ids[] = {"\"a\\u0022b\"", "9007199254740993", "1.50",
					  "null"};

	for (size_t i = 0; i < 4; i++)
		acp_refuse(acp, slice_of(ids[i]), ACP_METHOD_NOT_FOUND, "no", NULL);
	assert_slice_eq(buf_slice(&written),
			"{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0022b\",\"error\":{\"code\":-"
			"32601,\"message\":\"no\"}}\n"
			"{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"error\":{"
			"\"code\":-32601,\"message\":\"no\"}}\n"
			"{\"jsonrpc\":\"2.0\",\"id\":1.50,\"error\":{\"code\":-32601,"
			"\"message\":\"no\"}}\n"
			"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32601,"
			"\"message\":\"no\"}}\n");
}
END_TEST

START_TEST(a_batch_is_refused_once_and_nothing_of_it_runs)
{
	receive("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"},{\"jsonrpc\":\"2.0\","
		"\"id\":2,\"method\":\"b\"}]\n");
	ck_assert_uint_eq(requests.len, 0);
	assert_slice_eq(buf_slice(&written),
			"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,"
			"\"message\":\"batches are no part of ACP\"}}\n");
}
END_TEST

static const char *const noise[] = {
	"INFO starting up\n", "42\n",
	"\"text\"\n",         "{\"a\":1}\n",
	"{\xff\xfe}\n",       "{\"jsonrpc\":\"2.0\",\"method\":\"session/upd\n",
};

START_TEST(noise_is_mirrored_answered_by_nothing_and_costs_no_frame)
{
	receive(noise[_i]);
	receive("{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{}}\r\n");
	ck_assert_uint_eq(reads, 2);
	ck_assert_uint_eq(notifications, 1);
	ck_assert_uint_eq(written.len, 0);
}
END_TEST

START_TEST(blank_lines_are_nothing)
{
	receive("\n  \r\n\t\n");
	ck_assert_uint_eq(reads, 0);
}
END_TEST

START_TEST(an_answer_counts_though_its_strings_are_broken)
{
	call(NULL);
	receive("{\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-1,\"message\":\"\xff "
		"\\ud800\"}}\n");
	ck_assert_uint_eq(answers, 1);
	ck_assert_int_eq(last_code, -1);
}
END_TEST

START_TEST(a_request_keeps_its_raw_id)
{
	receive("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"a\"}\n"
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"a\"}\n");
	assert_slice_eq(buf_slice(&requests), "\"x\";null;");
}
END_TEST

START_TEST(the_last_line_needs_no_lf)
{
	receive("{\"jsonrpc\":\"2.0\",\"method\":\"n\"}");
	ck_assert_uint_eq(notifications, 0);
	acp_receive_end(acp);
	ck_assert_uint_eq(notifications, 1);
}
END_TEST

static void on_replied(void *ctx, enum child_written outcome)
{
	*(enum child_written *)ctx = outcome;
}

START_TEST(an_answer_is_mirrored_only_once_it_was_written)
{
	enum child_written outcome = CHILD_NOT_WRITTEN;

	writes_fail = true;
	acp_reply(acp, SLICE("5"), SLICE("{}"), NULL, SLICE("{\"x\":1}"), on_replied,
		  &outcome);
	ck_assert_int_eq(outcome, CHILD_CUT_OFF);
	ck_assert_uint_eq(wrote.len, 0);
	writes_fail = false;
	acp_reply(acp, SLICE("5"), SLICE("{}"), NULL, SLICE("{\"x\":1}"), on_replied,
		  &outcome);
	ck_assert_int_eq(outcome, CHILD_WRITTEN);
	assert_slice_eq(buf_slice(&wrote),
			"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}{\"x\":1}");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("acp");
	TCase *tcase = tcase_create("connection");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_request_is_one_line_with_a_small_integer_id);
	tcase_add_test(tcase, an_answer_reaches_its_request_and_its_route);
	tcase_add_loop_test(tcase, an_answer_to_nothing_of_ours_answers_nothing, 0,
			    sizeof(strangers) / sizeof(*strangers));
	tcase_add_test(tcase, an_error_brings_its_code_and_words);
	tcase_add_test(tcase, the_same_answer_twice_counts_once);
	tcase_add_test(tcase, a_request_without_answer_fails_in_time);
	tcase_add_test(tcase, a_closed_connection_fails_every_request_now_and_later);
	tcase_add_test(tcase, an_id_is_echoed_as_it_was_spelled);
	tcase_add_test(tcase, a_batch_is_refused_once_and_nothing_of_it_runs);
	tcase_add_loop_test(tcase,
			    noise_is_mirrored_answered_by_nothing_and_costs_no_frame, 0,
			    sizeof(noise) / sizeof(*noise));
	tcase_add_test(tcase, blank_lines_are_nothing);
	tcase_add_test(tcase, an_answer_counts_though_its_strings_are_broken);
	tcase_add_test(tcase, a_request_keeps_its_raw_id);
	tcase_add_test(tcase, the_last_line_needs_no_lf);
	tcase_add_test(tcase, an_answer_is_mirrored_only_once_it_was_written);
	tcase_add_loop_test(tcase,
			    a_message_behind_terminal_sequences_counts_and_no_other, 0,
			    sizeof(titled) / sizeof(*titled));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
