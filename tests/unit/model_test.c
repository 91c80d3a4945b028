#include "observer/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/spans.h"
#include "tests/unit/support/support.h"
#include "wire/base/clock.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

#define NOW 1796040000000 /* 2026-11-30T12:00:00Z */
#define EPOCH_A "6a0000010000000a"
#define EPOCH_B "6a0000020000000b"
#define API "00000000-0000-4000-8000-0000000000a1"
#define DOCS "00000000-0000-4000-8000-0000000000d0"

static const uint8_t claude[KEY_BYTES] = {0xc1};
static const uint8_t codex[KEY_BYTES] = {0xc2};

/* One event of a feed, as text, with what the frame around it says. */
struct sent {
	const uint8_t *agent;
	struct buf text;
	char epoch[17];
	bool live;
};

static void send(struct model *model, const struct sent *sent)
{
	struct observer_event event;
	struct err err;
	struct model_event in = {.agent = sent->agent,
				 .epoch = sent->epoch,
				 .event = &event,
				 .received_ms = NOW,
				 .live = sent->live};

	/* Not ck_assert: it keeps a record of each that held, and there are many. */
	if (!observer_event_parse(buf_slice(&sent->text), &event, &err))
		ck_abort_msg("%s", err.text);
	(void)model_apply(model, &in);
}

/* Writes the event's text; @payload is JSON. NULL is null. */
static struct sent make(const char *epoch, unsigned seq, const char *kind,
			const char *channel, const char *turn, const char *extra,
			const char *payload)
{
	struct sent sent = {.agent = claude, .live = true};
	char stamp[CLOCK_RFC3339_LEN + 1];
	struct buf *out = &sent.text;

	out->max = 1u << 20;
	(void)snprintf(sent.epoch, sizeof(sent.epoch), "%s", epoch);
	clock_format(NOW + seq * 100, stamp);
	(void)buf_printf(out, "{\"seq\":%u,\"monotonicMs\":%u,\"timestamp\":\"%s\"", seq,
			 seq * 100, stamp);
	(void)buf_printf(out, ",\"kind\":\"%s\",\"agentIndex\":0,\"channelId\":", kind);
	(void)buf_printf(out, channel ? "\"%s\"" : "null%s", channel ? channel : "");
	(void)buf_printf(out, ",\"sessionId\":\"s\",\"turnId\":");
	(void)buf_printf(out, turn ? "\"%s\"" : "null%s", turn ? turn : "");
	(void)buf_printf(out, "%s,\"payload\":%s}", extra ? extra : "", payload);
	return sent;
}

static void apply(struct model *model, struct sent sent)
{
	send(model, &sent);
	buf_finish(&sent.text);
	model_settle(model, NOW);
}

#define UPDATE(json) \
	"{\"jsonrpc\":\"2.0\",\"method\":\"session/" \
	"update\",\"params\":{\"sessionId\":\"s\"," \
	"\"update\":" json "}}"
#define CHUNK(text) \
	UPDATE("{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":" \
	       "\"text\"," \
	       "\"text\":\"" text "\"}}")
#define ASK \
	"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/" \
	"request_permission\",\"params\":{" \
	"\"sessionId\":\"s\",\"toolCall\":{\"toolCallId\":\"c1\",\"title\":\"Build\"," \
	"\"kind\":" \
	"\"execute\",\"rawInput\":{\"command\":\"rm -rf " \
	"build\"}},\"options\":[{\"optionId\":" \
	"\"ok\",\"name\":\"Allow\",\"kind\":\"allow_once\"},{\"optionId\":\"no\"," \
	"\"name\":" \
	"\"Reject\",\"kind\":\"reject_once\"}]}}"
#define AUTH(nonce, more) ",\"authorization\":{\"requestNonce\":\"" nonce "\"," more "}"

static void write_all_rows(struct model *model, const char *channel, struct buf *out)
{
	if (!model_write_rows(model, claude, slice_of(channel), NULL, 1000000, out))
		(void)buf_lit(out, "none");
}

static struct slice rows(struct model *model, const char *channel)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 64u << 20;
	write_all_rows(model, channel, &out);
	return buf_slice(&out);
}

static struct slice snapshot(struct model *model)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 64u << 20;
	(void)buf_lit(&out, "{");
	model_write_snapshot(model, NOW, &out);
	(void)buf_lit(&out, "}");
	return buf_slice(&out);
}

static unsigned count_of(struct slice text, const char *needle)
{
	unsigned count = 0;

	for (;;) {
		const size_t at = slice_find_slice(text, slice_of(needle));

		if (at == text.len)
			return count;
		count++;
		text = slice_sub(text, at + 1, text.len);
	}
}

#define assert_has(text, needle) \
	ck_assert_msg(count_of((text), (needle)) > 0, "no %s in %.*s", (needle), \
		      SLICE_ARG(text))
#define assert_lacks(text, needle) \
	ck_assert_msg(count_of((text), (needle)) == 0, "%s in %.*s", (needle), \
		      SLICE_ARG(text))

static void begin_turn(struct model *model)
{
	model_heard(model, claude, NOW);
	apply(model,
	      make(EPOCH_A, 1, "harness_started", NULL, NULL, NULL,
		   "{\"name\":\"claude\",\"host\":\"atlas\",\"mode\":\"agent\","
		   "\"control\":\"full\",\"permissions\":\"ask\",\"startedAtMs\":1,"
		   "\"channels\":[{\"id\":\"" API "\",\"name\":\"api-server\"}]}"));
	apply(model,
	      make(EPOCH_A, 2, "turn_started", API, "t1", NULL,
		   "{\"promptId\":\"p\",\"source\":\"owner\",\"text\":\"Split it\"}"));
}

static void ask(struct model *model);

/* ---- rows ---- */

START_TEST(chunks_of_one_message_are_one_row)
{
	struct model *model = model_create();
	struct slice got;

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1", NULL, CHUNK("Hello ")));
	apply(model, make(EPOCH_A, 4, "acp_read", API, "t1", NULL, CHUNK("there")));
	got = rows(model, API);
	assert_has(got, "\"text\":\"Hello there\"");
	ck_assert_uint_eq(count_of(got, "\"type\":\"message\""), 1);
	model_destroy(model);
}
END_TEST

START_TEST(joined_chunks_took_the_time_since_the_event_before_them)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model,
	      make(EPOCH_A, 9, "acp_read", API, "t1", ",\"merged\":40", CHUNK("Hello")));
	assert_has(rows(model, API), "\"t\":1796040000200,\"end\":1796040000900,\"time\":"
				     "\"model\"");
	model_destroy(model);
}
END_TEST

/* Whatever an agent puts where: no crash, and JSON that a page can read. */
START_TEST(payloads_of_the_wrong_shape_do_no_harm)
{
	static const char *const kinds[] = {"acp_read",
					    "acp_write",
					    "acp_parse_error",
					    "permission_terminal",
					    "turn_started",
					    "turn_completed",
					    "turn_error",
					    "session_resolved",
					    "harness_started",
					    "harness_stopping",
					    "agent_panic",
					    "agent_initialized",
					    "agent_exited",
					    "agent_respawning",
					    "circuit_open",
					    "circuit_recovered",
					    "agent_stalled",
					    "agent_resumed",
					    "managed_agent_runtime_lifecycle",
					    "output",
					    "note",
					    "observer_telemetry_gap",
					    "control_result",
					    "feed_state",
					    "body_part",
					    "batch",
					    "\\u0000",
					    "\\\""};
	static const char *const shapes[] = {
		"null",
		"0",
		"\"x\"",
		"[]",
		"{}",
		"[[[]]]",
		"{\"method\":7,\"params\":[],\"id\":{}}",
		"{\"method\":\"session/update\",\"params\":{\"update\":7}}",
		UPDATE("{\"sessionUpdate\":[]}"),
		UPDATE("{\"sessionUpdate\":\"tool_call\",\"toolCallId\":7,\"title\":[],"
		       "\"status\":"
		       "{},\"content\":{},\"locations\":[7,{\"path\":[]}],\"rawInput\":[]"
		       "}"),
		UPDATE("{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":"
		       "\"\\u0000\\n\","
		       "\"content\":[7,{\"type\":\"diff\"},{\"type\":\"terminal\"},{"
		       "\"type\":"
		       "\"content\"},{\"type\":\"content\",\"content\":{\"type\":"
		       "\"image\"}},"
		       "{\"type\":\"content\",\"content\":{\"type\":\"resource\","
		       "\"resource\":"
		       "7}}],\"rawOutput\":{\"exitCode\":-1,\"output\":7}}"),
		UPDATE("{\"sessionUpdate\":\"plan\",\"entries\":[7,{},{\"content\":[]}]"
		       "}"),
		UPDATE("{\"sessionUpdate\":\"agent_message_chunk\",\"content\":[]}"),
		UPDATE("{\"sessionUpdate\":\"config_option_update\",\"configOptions\":[7,"
		       "{"
		       "\"category\":\"mode\",\"options\":[{\"options\":[{\"value\":"
		       "\"\\\"\"}]}]"
		       "}]}"),
		UPDATE("{\"sessionUpdate\":\"usage_update\",\"used\":-1,\"cost\":7}"),
		"{\"channels\":[7,{\"id\":7},{\"id\":\"\\u0000\"}],\"command\":7,"
		"\"slot\":999,"
		"\"startedAtMs\":-5,\"authMethods\":[7],\"agentInfo\":7}",
		"{\"pending\":[7,{\"requestNonce\":\"n1\"}],\"sessions\":[7,{"
		"\"channelId\":7}],"
		"\"turns\":[7],\"slots\":[7,{\"slot\":-1},{\"slot\":3,\"state\":\"a very "
		"long "
		"word that has no room\"}]}",
		"{\"type\":\"prompt\",\"status\":7}",
		"{\"usage\":[],\"stopReason\":[]}",
	};
	struct model *model = model_create();
	unsigned seq = 10;

	ask(model);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		for (size_t k = 0; k < sizeof(shapes) / sizeof(*shapes); k++) {
			apply(model,
			      make(EPOCH_A, seq++, kinds[i], API, "t1", NULL, shapes[k]));
			apply(model, make(EPOCH_A, seq++, kinds[i], NULL, NULL,
					  AUTH("n1", "\"reason\":7"), shapes[k]));
		}
	model_tick(model, NOW);
	ck_assert(json_check(snapshot(model), NULL, NULL));
	ck_assert_uint_gt(count_of(rows(model, API), "\"id\":"), 100);
	{
		struct buf wrapped = {.max = 64u << 20};

		(void)buf_lit(&wrapped, "{");
		(void)buf_append(&wrapped, rows(model, API));
		(void)buf_lit(&wrapped, "}");
		ck_assert(json_check(buf_slice(&wrapped), NULL, NULL));
		buf_finish(&wrapped);
	}
	model_destroy(model);
}
END_TEST

START_TEST(a_tool_call_is_one_row_from_start_to_end)
{
	struct model *model = model_create();
	struct slice got;

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c1\","
				 "\"title\":\"Edit\",\"kind\":\"edit\",\"status\":"
				 "\"in_progress\"}")));
	apply(model, make(EPOCH_A, 9, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":"
				 "\"c1\",\"status\":\"completed\",\"content\":[{\"type\":"
				 "\"diff\",\"path\":\"/home/u/src/router.c\",\"oldText\":"
				 "\"a\\nb\\n\",\"newText\":\"a\\nc\\n\"}]}")));
	got = rows(model, API);
	ck_assert_uint_eq(count_of(got, "\"type\":\"tool\""), 1);
	assert_has(got, "\"verb\":\"Edited\",\"object\":\"src/router.c\",\"outcome\":"
			"\"+1 \xe2\x88\x92"
			"1\"");
	assert_has(got, "\"lines\":[\" a\",\"-b\",\"+c\"]");
	model_destroy(model);
}
END_TEST

START_TEST(a_finished_tool_call_does_not_go_back)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c1\","
				 "\"title\":\"x\",\"status\":\"completed\"}")));
	apply(model, make(EPOCH_A, 4, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":"
				 "\"c1\",\"status\":\"in_progress\"}")));
	assert_has(rows(model, API), "\"status\":\"completed\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_plan_is_replaced_as_a_whole)
{
	struct model *model = model_create();
	struct slice got;

	begin_turn(model);
	apply(model,
	      make(EPOCH_A, 3, "acp_read", API, "t1", NULL,
		   UPDATE("{\"sessionUpdate\":\"plan\",\"entries\":[{\"content\":\"one\","
			  "\"priority\":\"high\",\"status\":\"pending\"}]}")));
	apply(model,
	      make(EPOCH_A, 4, "acp_read", API, "t1", NULL,
		   UPDATE("{\"sessionUpdate\":\"plan\",\"entries\":[{\"content\":\"two\","
			  "\"priority\":\"high\",\"status\":\"completed\"}]}")));
	got = rows(model, API);
	ck_assert_uint_eq(count_of(got, "\"type\":\"plan\""), 1);
	assert_has(got,
		   "{\"text\":\"two\",\"status\":\"completed\",\"priority\":\"high\"}");
	assert_lacks(got, "one");
	model_destroy(model);
}
END_TEST

START_TEST(calls_that_a_cancelled_turn_left_open_are_cancelled)
{
	struct model *model = model_create();
	struct slice got;

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c1\","
				 "\"title\":\"x\",\"status\":\"in_progress\"}")));
	apply(model,
	      make(EPOCH_A, 5, "turn_completed", API, "t1", NULL,
		   "{\"promptId\":\"p\",\"stopReason\":\"end_turn\",\"cancelledBy\":"
		   "\"owner\",\"durationMs\":300}"));
	got = rows(model, API);
	assert_has(got, "\"status\":\"cancelled\"");
	assert_has(got,
		   "\"state\":\"cancelled\",\"stopReason\":\"end_turn\","
		   "\"cancelledBy\":\"owner\",\"durationMs\":300,\"text\":\"Stopped by "
		   "you\"");
	model_destroy(model);
}
END_TEST

START_TEST(an_unknown_kind_is_shown_raw)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "x-deploy", API, NULL, NULL, "{\"to\":\"prod\"}"));
	assert_has(rows(model, API),
		   "\"type\":\"raw\",\"replay\":false,\"kind\":\"x-deploy\","
		   "\"json\":\"{\\\"to\\\":\\\"prod\\\"}\",\"bytes\":13");
	model_destroy(model);
}
END_TEST

START_TEST(what_concerns_the_harness_is_shown_in_each_of_its_channels)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "harness_stopping", NULL, NULL, NULL,
			  "{\"reason\":\"signal\"}"));
	assert_has(rows(model, API), "\"text\":\"Harness stopped\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_prompt_row_has_the_whole_text_when_it_was_written)
{
	struct model *model = model_create();
	struct slice got;

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_write", API, "t1", NULL,
			  "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/"
			  "prompt\",\"params\":"
			  "{\"sessionId\":\"s\",\"prompt\":[{\"type\":\"text\",\"text\":"
			  "\"Split it "
			  "into two\"}]}}"));
	got = rows(model, API);
	ck_assert_uint_eq(count_of(got, "\"type\":\"prompt\""), 1);
	assert_has(got, "\"text\":\"Split it into two\",\"source\":\"owner\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_nul_in_a_command_hides_nothing)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model,
	      make(EPOCH_A, 3, "acp_read", API, "t1", AUTH("n1", "\"actionable\":true"),
		   "{\"id\":7,\"method\":\"session/"
		   "request_permission\",\"params\":{\"toolCall\":"
		   "{\"toolCallId\":\"c1\",\"kind\":\"execute\",\"rawInput\":{"
		   "\"command\":"
		   "\"ls\\u0000; rm x\"}},\"options\":[]}}"));
	assert_has(snapshot(model), "\"text\":\"ls\\u0000; rm x\"");
	model_destroy(model);
}
END_TEST

/* ---- permissions ---- */

static void ask(struct model *model)
{
	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1",
			  AUTH("n1", "\"actionable\":true"), ASK));
}

START_TEST(a_live_permission_request_is_a_card_with_its_exact_command)
{
	struct model *model = model_create();
	struct slice got;

	ask(model);
	model_tick(model, NOW);
	got = snapshot(model);
	assert_has(got, "\"cards\":[{\"id\":\"n1\"");
	assert_has(got,
		   "\"verb\":\"wants to run\",\"kind\":\"execute\",\"title\":\"Build\","
		   "\"text\":\"rm -rf build\"");
	assert_has(got, "\"actionable\":true,\"trimmed\":false,\"redacted\":false,"
			"\"bodyReady\":true");
	assert_has(got, "\"state\":\"needs-you\"");
	model_destroy(model);
}
END_TEST

/* ---- forgetting ---- */

static struct slice changes(struct model *model)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 64u << 20;
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	(void)buf_lit(&out, "}");
	return buf_slice(&out);
}

static void say(struct model *model, unsigned seq, const char *turn, const char *payload)
{
	apply(model, make(EPOCH_A, seq, "acp_read", API, turn, NULL, payload));
}

START_TEST(what_is_forgotten_leaves_pages_and_what_comes_is_shown)
{
	struct model *model = model_create();

	begin_turn(model);
	say(model, 3, "t1", CHUNK("the secret"));
	assert_has(rows(model, API), "the secret");
	model_drop_changes(model);
	model_forget(model, claude, SLICE(API), INT64_MAX);
	model_settle(model, NOW);
	assert_has(changes(model), "\"removedRows\":[{\"lane\":");
	assert_lacks(rows(model, API), "the secret");
	say(model, 3, "t1", CHUNK("the secret")); /* should it come once more */
	assert_lacks(rows(model, API), "the secret");
	say(model, 4, "t1", CHUNK("and later"));
	assert_has(changes(model), "and later");
	model_destroy(model);
}
END_TEST

START_TEST(only_what_is_meant_is_forgotten)
{
	struct model *model = model_create();

	begin_turn(model);
	say(model, 3, "t1", CHUNK("the secret"));
	model_forget(model, claude, SLICE(DOCS), INT64_MAX);
	model_forget(model, codex, SLICE_EMPTY, INT64_MAX);
	model_forget(model, claude, SLICE_EMPTY, NOW); /* it began after that */
	model_settle(model, NOW);
	assert_has(rows(model, API), "the secret");
	model_forget(model, claude, SLICE_EMPTY, INT64_MAX);
	model_settle(model, NOW);
	assert_lacks(rows(model, API), "the secret");
	model_destroy(model);
}
END_TEST

START_TEST(all_that_is_forgotten_leaves_the_fleet_while_its_agent_is_away)
{
	struct model *model = model_create();
	struct slice told;

	begin_turn(model);
	say(model, 3, "t1", CHUNK("the secret"));
	model_settle(model, NOW);
	model_drop_changes(model);
	model_forget(model, claude, SLICE_EMPTY, INT64_MAX);
	model_settle(model, NOW);
	told = changes(model);
	assert_lacks(told, "removedLanes"); /* it can be asked something */
	assert_lacks(told, "removedAgents");
	assert_has(snapshot(model), "\"aim\":null");
	model_tick(model, NOW + MODEL_ONLINE_MS);
	told = changes(model);
	assert_has(told, "/" API "\"],\"removedAgents\":[\"");
	assert_lacks(told, "\"agents\":");
	assert_has(snapshot(model), "\"agents\":[],\"lanes\":[]");
	assert_lacks(changes(model), "removed");
	model_heard(model, claude, NOW + MODEL_ONLINE_MS);
	model_tick(model, NOW + MODEL_ONLINE_MS);
	told = changes(model);
	assert_has(told, "\"agents\":[{");
	assert_has(told, "\"channelName\":\"api-server\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_lane_that_speaks_after_it_was_forgotten_is_in_the_fleet)
{
	struct model *model = model_create();

	begin_turn(model);
	model_settle(model, NOW);
	model_tick(model, NOW + MODEL_ONLINE_MS);
	model_drop_changes(model);
	model_forget(model, claude, SLICE(API), NOW); /* it began after that */
	assert_lacks(changes(model), "removedLanes");
	model_forget(model, claude, SLICE(API), INT64_MAX);
	assert_has(changes(model), "\"removedLanes\":[");
	assert_has(snapshot(model), "\"agents\":[{"); /* what it is was not forgotten */
	say(model, 3, "t1", CHUNK("and later"));
	assert_has(changes(model), "\"lanes\":[{");
	assert_has(snapshot(model), "\"lanes\":[{");
	model_destroy(model);
}
END_TEST

START_TEST(a_request_that_waits_is_not_forgotten_while_it_waits)
{
	struct model *model = model_create();

	begin_turn(model);
	ask(model);
	model_forget(model, claude, SLICE_EMPTY, INT64_MAX);
	model_settle(model, NOW);
	assert_has(snapshot(model), "\"cards\":[{\"id\":\"n1\"");
	assert_has(snapshot(model), "rm -rf build");
	model_destroy(model);
}
END_TEST

START_TEST(a_replayed_permission_request_is_a_row_and_no_card)
{
	struct model *model = model_create();
	struct sent sent = make(EPOCH_A, 3, "acp_read", API, "t1",
				AUTH("n1", "\"actionable\":true"), ASK);

	begin_turn(model);
	sent.live = false;
	apply(model, sent);
	assert_has(rows(model, API), "\"type\":\"permission\"");
	assert_has(snapshot(model), "\"cards\":[]");
	model_destroy(model);
}
END_TEST

START_TEST(the_harness_can_say_that_an_old_request_still_waits)
{
	struct model *model = model_create();
	struct sent sent = make(EPOCH_A, 3, "acp_read", API, "t1",
				AUTH("n1", "\"actionable\":true"), ASK);

	begin_turn(model);
	sent.live = false;
	apply(model, sent);
	apply(model,
	      make(EPOCH_A, 9, "feed_state", NULL, NULL, NULL,
		   "{\"epochs\":[],\"pending\":[{\"requestNonce\":\"n1\",\"channelId\":"
		   "\"" API "\",\"deadlineMs\":1796040099000}]}"));
	assert_has(snapshot(model), "\"cards\":[{\"id\":\"n1\"");
	assert_has(snapshot(model), "\"deadlineMs\":1796040099000");
	model_destroy(model);
}
END_TEST

START_TEST(an_applied_decision_ends_the_card_and_names_you)
{
	struct model *model = model_create();

	ask(model);
	apply(model, make(EPOCH_A, 5, "acp_write", API, "t1",
			  AUTH("n1", "\"actionable\":false,\"reason\":\"applied\""),
			  "{\"id\":7,\"result\":{\"outcome\":{\"outcome\":\"selected\","
			  "\"optionId\":\"ok\"}}}"));
	assert_has(rows(model, API),
		   "\"state\":\"allowed\",\"picked\":\"ok\",\"by\":\"you\","
		   "\"reason\":\"applied\",\"waitedMs\":200");
	assert_has(snapshot(model), "\"state\":\"over\",\"picked\":\"ok\",\"outcome\":"
				    "\"applied\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_denial_by_time_is_not_shown_as_yours)
{
	struct model *model = model_create();

	ask(model);
	apply(model, make(EPOCH_A, 5, "acp_write", API, "t1",
			  AUTH("n1", "\"actionable\":false,\"reason\":\"timed_out\""),
			  "{\"id\":7,\"result\":{\"outcome\":{\"outcome\":\"selected\","
			  "\"optionId\":\"no\"}}}"));
	assert_has(rows(model, API),
		   "\"state\":\"timed_out\",\"picked\":\"no\",\"by\":\"time\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_card_ends_with_its_turn)
{
	struct model *model = model_create();

	ask(model);
	apply(model, make(EPOCH_A, 5, "turn_completed", API, "t1", NULL,
			  "{\"promptId\":\"p\"}"));
	assert_has(snapshot(model), "\"outcome\":\"turn_ended\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_card_ends_with_a_newer_start_of_the_harness)
{
	struct model *model = model_create();

	ask(model);
	apply(model,
	      make(EPOCH_B, 1, "harness_started", NULL, NULL, NULL, "{\"name\":\"c\"}"));
	assert_has(snapshot(model), "\"outcome\":\"restarted\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_card_that_is_over_goes_after_four_seconds)
{
	struct model *model = model_create();
	struct buf out = {.max = 1u << 20};

	ask(model);
	apply(model, make(EPOCH_A, 4, "permission_terminal", API, "t1",
			  AUTH("n1", "\"reason\":\"uncertain\""), "{}"));
	model_tick(model, NOW + MODEL_CARD_STAY_MS - 1);
	assert_has(snapshot(model), "\"outcome\":\"uncertain\"");
	model_tick(model, NOW + MODEL_CARD_STAY_MS);
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"removedCards\":[\"n1\"]");
	assert_has(snapshot(model), "\"cards\":[]");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

START_TEST(a_trimmed_request_is_not_ready_until_its_body_came)
{
	struct model *model = model_create();
	struct model_card card;
	struct sent whole = make(EPOCH_A, 3, "acp_read", API, "t1",
				 AUTH("n1", "\"actionable\":true"), ASK);

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1",
			  AUTH("n1", "\"actionable\":true") ",\"trimmed\":99",
			  "{\"elided\":\"acp_read payload too "
			  "large\",\"originalBytes\":70000}"));
	ck_assert(model_find_card(model, SLICE("n1"), &card));
	ck_assert(!card.body_ready);
	model_set_body(model, claude, EPOCH_A, 3, buf_slice(&whole.text));
	ck_assert(model_find_card(model, SLICE("n1"), &card));
	ck_assert(card.body_ready);
	assert_has(snapshot(model), "\"text\":\"rm -rf build\"");
	buf_finish(&whole.text);
	model_destroy(model);
}
END_TEST

/* Texts of its events are gone then: the request is told whole all the same. */
START_TEST(a_trimmed_request_of_an_endless_turn_gets_its_body)
{
	static char payload[60100];
	struct model *model = model_create();
	struct model_card card;
	struct sent whole = make(EPOCH_A, 3, "acp_read", API, "t1",
				 AUTH("n1", "\"actionable\":true"), ASK);

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1",
			  AUTH("n1", "\"actionable\":true") ",\"trimmed\":99",
			  "{\"elided\":\"acp_read payload too "
			  "large\",\"originalBytes\":70000}"));
	(void)snprintf(payload, sizeof(payload), "{\"text\":\"");
	memset(payload + 9, 'x', 60000);
	memcpy(payload + 60009, "\"}", 3);
	for (unsigned i = 0; i < 700; i++) {
		apply(model, make(EPOCH_A, 4 + i, "note", API, "t1", NULL, payload));
		model_drop_changes(model);
	}
	ck_assert(model_find_card(model, SLICE("n1"), &card));
	ck_assert(!card.body_ready);
	model_set_body(model, claude, EPOCH_A, 3, buf_slice(&whole.text));
	ck_assert(model_find_card(model, SLICE("n1"), &card));
	ck_assert(card.body_ready);
	assert_has(card.options, "\"id\":\"ok\"");
	assert_has(snapshot(model), "\"text\":\"rm -rf build\"");
	buf_finish(&whole.text);
	model_destroy(model);
}
END_TEST

START_TEST(agents_that_chose_the_same_nonce_have_a_card_each)
{
	struct model *model = model_create();
	struct model_card card;
	struct sent other = make(EPOCH_A, 3, "acp_read", DOCS, "t1",
				 AUTH("n1", "\"actionable\":true"), ASK);
	struct buf id = {.max = 128};

	ask(model);
	other.agent = codex;
	apply(model, other);
	ck_assert_uint_eq(count_of(snapshot(model), "\"verb\":\"wants to run\",\"kind\""),
			  2);
	ck_assert(model_find_card(model, SLICE("n1"), &card));
	ck_assert_mem_eq(card.agent, claude, KEY_BYTES);
	(void)buf_lit(&id, "n1/");
	(void)buf_append_hex(&id, codex, KEY_BYTES);
	ck_assert(model_find_card(model, buf_slice(&id), &card));
	ck_assert_mem_eq(card.agent, codex, KEY_BYTES);
	/* What is sent back is what its harness knows. */
	ck_assert(slice_eq(card.nonce, SLICE("n1")));
	buf_finish(&id);
	model_destroy(model);
}
END_TEST

START_TEST(an_agent_that_asks_without_end_fills_neither_memory_nor_tray)
{
	struct model *model = model_create();

	begin_turn(model);
	for (unsigned i = 0; i < 3 * MODEL_CARDS_MAX; i++) {
		char auth[96];

		(void)snprintf(auth, sizeof(auth), AUTH("n%u", "\"actionable\":true"), i);
		apply(model, make(EPOCH_A, 3 + i, "acp_read", API, "t1", auth, ASK));
	}
	ck_assert_uint_eq(count_of(snapshot(model), "\"verb\":\"wants to run\",\"kind\""),
			  MODEL_CARDS_MAX);
	ck_assert_uint_eq(count_of(rows(model, API), "\"type\":\"permission\""),
			  3 * MODEL_CARDS_MAX);
	model_destroy(model);
}
END_TEST

START_TEST(a_call_that_waits_for_the_owner_does_not_claim_to_run)
{
	struct model *model = model_create();

	ask(model);
	assert_has(rows(model, API), "\"verb\":\"Waiting to run\"");
	assert_has(rows(model, API), "\"time\":\"you\",\"type\":\"tool\"");
	apply(model, make(EPOCH_A, 4, "acp_write", API, "t1",
			  AUTH("n1", "\"reason\":\"applied\""),
			  "{\"id\":7,\"result\":{\"outcome\":{\"outcome\":\"selected\","
			  "\"optionId\":\"ok\"}}}"));
	assert_has(rows(model, API), "\"verb\":\"Running\"");
	assert_has(rows(model, API), "\"time\":\"tool\",\"type\":\"tool\"");
	model_destroy(model);
}
END_TEST

/* ---- live state ---- */

START_TEST(a_plan_says_how_far_it_is_and_output_what_it_printed)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"plan\",\"entries\":[{\"content\":"
				 "\"a\",\"status\":\"completed\"},{\"content\":\"b\","
				 "\"status\":\"pending\"}]}")));
	assert_has(snapshot(model), "\"verb\":\"Planned\"");
	assert_has(snapshot(model), "\"outcome\":\"1 of 2\"");
	apply(model, make(EPOCH_A, 4, "output", DOCS, NULL, NULL,
			  "{\"stream\":\"stdout\",\"text\":\"one\\ntwo\"}"));
	assert_has(snapshot(model), "\"verb\":\"Printed\",\"object\":\"one\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_turn_divides_its_time_between_you_tools_and_the_model)
{
	struct model *model = model_create();

	ask(model); /* asked at 300 ms, the turn began at 200 */
	apply(model, make(EPOCH_A, 5, "acp_write", API, "t1",
			  AUTH("n1", "\"actionable\":false,\"reason\":\"applied\""),
			  "{\"id\":7,\"result\":{\"outcome\":{\"outcome\":\"selected\","
			  "\"optionId\":\"ok\"}}}"));
	apply(model, make(EPOCH_A, 8, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":"
				 "\"c1\",\"status\":\"completed\"}")));
	apply(model, make(EPOCH_A, 10, "turn_completed", API, "t1", NULL,
			  "{\"promptId\":\"p\",\"stopReason\":\"end_turn\"}"));
	assert_has(snapshot(model),
		   "\"timeMs\":{\"model\":300,\"tool\":300,\"you\":200,\"idle\":0}");
	model_destroy(model);
}
END_TEST

/* Told so much later. */
static struct slice told_at(struct model *model, int64_t now_ms)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 64u << 20;
	model_tick(model, now_ms);
	model_write_snapshot(model, now_ms, &out);
	return buf_slice(&out);
}

START_TEST(what_goes_on_ended_with_the_last_word_of_an_agent_that_is_gone)
{
	struct spans *spans = spans_create(1u << 20);
	struct model *model = model_create();
	const int64_t late = NOW + 3600000;

	model_set_spans(model, spans);
	ask(model); /* asked at 300 ms, the turn began at 200 */
	model_heard(model, claude, NOW + 5000);
	assert_has(told_at(model, NOW + 6000), "\"you\":5700,");
	model_write_spans(model, NOW + 6000);
	ck_assert_uint_eq(spans->lane_count, 1);
	ck_assert_int_eq(spans->lanes[0]->open_ms, SPANS_OPEN);
	assert_has(told_at(model, late), "\"state\":\"offline\"");
	assert_has(told_at(model, late), "\"you\":4700,");
	model_write_spans(model, late);
	ck_assert_int_eq(spans->lanes[0]->open_ms, NOW + 5000);
	/* What the archive knows of it counts as well, and does not bring it back. */
	model_last(model, claude, NOW + 9000);
	model_last(model, codex, NOW + 9000);
	assert_has(told_at(model, late), "\"state\":\"offline\"");
	assert_has(told_at(model, late), "\"you\":8700,");
	model_write_spans(model, late);
	ck_assert_int_eq(spans->lanes[0]->open_ms, NOW + 9000);
	model_heard(model, claude, late);
	assert_has(told_at(model, late), "\"you\":3599700,");
	model_write_spans(model, late);
	ck_assert_int_eq(spans->lanes[0]->open_ms, SPANS_OPEN);
	model_destroy(model);
	spans_destroy(spans);
}
END_TEST

START_TEST(an_agent_is_offline_after_seventy_five_seconds_of_silence)
{
	struct model *model = model_create();

	begin_turn(model);
	model_tick(model, NOW + 74999);
	assert_has(snapshot(model), "\"online\":true");
	model_tick(model, NOW + 75000);
	assert_has(snapshot(model), "\"online\":false");
	assert_has(snapshot(model), "\"state\":\"offline\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_channel_in_which_only_a_process_started_is_no_lane)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "agent_initialized", DOCS, NULL, NULL,
			  "{\"slot\":0,\"pid\":7}"));
	assert_lacks(snapshot(model), DOCS);
	apply(model, make(EPOCH_A, 4, "agent_exited", DOCS, NULL, NULL,
			  "{\"slot\":0,\"code\":1,\"reason\":\"crash\"}"));
	assert_has(snapshot(model), DOCS);
	assert_has(snapshot(model),
		   "\"verb\":\"Crashed\",\"object\":\"Agent exited (1)\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_crashed_process_is_seen_in_the_lanes_that_it_serves)
{
	struct model *model = model_create();

	begin_turn(model);
	model_tick(model, NOW);
	apply(model, make(EPOCH_A, 3, "agent_respawning", DOCS, NULL, NULL,
			  "{\"slot\":0,\"attempt\":1,\"delayMs\":1000}"));
	assert_has(snapshot(model),
		   "\"channelName\":\"api-server\",\"slot\":0,\"session\":null,"
		   "\"title\":null,\"state\":\"failed\"");
	apply(model,
	      make(EPOCH_A, 4, "agent_initialized", DOCS, NULL, NULL, "{\"slot\":0}"));
	assert_has(snapshot(model), "\"title\":null,\"state\":\"working\"");
	model_destroy(model);
}
END_TEST

START_TEST(a_channel_that_a_harness_serves_is_a_lane_from_its_first_word)
{
	struct model *model = model_create();

	apply(model, make(EPOCH_A, 1, "harness_started", NULL, NULL, NULL,
			  "{\"name\":\"c\",\"channels\":[{\"id\":\"" DOCS
			  "\",\"name\":\"docs\"}]}"));
	assert_has(snapshot(model), "\"channelName\":\"docs\"");
	model_destroy(model);
}
END_TEST

START_TEST(an_older_mode_does_not_undo_a_newer_one)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 9, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"current_mode_update\","
				 "\"currentModeId\":\"code\"}")));
	apply(model,
	      make(EPOCH_A, 5, "session_resolved", API, NULL, NULL,
		   "{\"sessionId\":\"s\",\"isNew\":true,\"modes\":{\"currentModeId\":"
		   "\"ask\",\"availableModes\":[{\"id\":\"ask\",\"name\":\"Ask\"}]}}"));
	assert_has(snapshot(model),
		   "\"modes\":{\"current\":\"code\",\"available\":[{\"id\":"
		   "\"ask\",\"name\":\"Ask\"}]}");
	model_destroy(model);
}
END_TEST

START_TEST(a_login_that_is_needed_is_told_in_the_agents_words)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model,
	      make(EPOCH_A, 3, "acp_read", API, NULL, NULL,
		   "{\"id\":0,\"result\":{\"protocolVersion\":1,\"authMethods\":[{\"id\":"
		   "\"key\",\"name\":\"API key\"}]}}"));
	apply(model, make(EPOCH_A, 4, "acp_read", API, NULL, NULL,
			  "{\"id\":1,\"error\":{\"code\":-32000,\"message\":\"Please log "
			  "in\"}}"));
	assert_has(snapshot(model),
		   "\"needsLogin\":{\"text\":\"Please log in\",\"methods\":"
		   "[{\"id\":\"key\",\"name\":\"API key\"}]}");
	model_destroy(model);
}
END_TEST

START_TEST(a_prompt_waits_in_its_lane_until_its_turn_starts)
{
	struct model *model = model_create();
	const struct model_control prompt = {.request_id = SLICE_INIT("r1"),
					     .agent = claude,
					     .channel = SLICE_INIT(API),
					     .type = CONTROL_PROMPT,
					     .text = SLICE_INIT("next")};

	begin_turn(model);
	model_control_add(model, &prompt, NOW);
	assert_has(snapshot(model), "\"queue\":[{\"requestId\":\"r1\",\"text\":\"next\","
				    "\"state\":\"sent\"");
	model_control_set(model, SLICE("r1"), CONTROL_ANSWERED, SLICE("queued"),
			  SLICE(""), 1, NOW);
	assert_has(snapshot(model), "\"state\":\"queued\",\"position\":1");
	apply(model,
	      make(EPOCH_A, 9, "turn_started", API, "t2", NULL,
		   "{\"promptId\":\"q\",\"source\":\"owner\",\"requestId\":\"r1\"}"));
	assert_has(snapshot(model), "\"text\":\"next\",\"state\":\"started\"");
	model_tick(model, NOW + 1);
	model_tick(model, NOW + 1 + MODEL_CARD_STAY_MS + 1);
	assert_has(snapshot(model), "\"queue\":[]");
	model_destroy(model);
}
END_TEST

START_TEST(a_decision_that_did_not_count_can_be_made_again)
{
	struct model *model = model_create();
	const struct model_control allow = {.request_id = SLICE_INIT("r1"),
					    .agent = claude,
					    .channel = SLICE_INIT(API),
					    .type = CONTROL_PERMISSION_DECISION,
					    .card = SLICE_INIT("n1"),
					    .option = SLICE_INIT("ok")};

	ask(model);
	model_control_add(model, &allow, NOW);
	assert_has(snapshot(model), "\"state\":\"sent\",\"picked\":\"ok\"");
	model_control_set(model, SLICE("r1"), CONTROL_ANSWERED, SLICE("no_channel"),
			  SLICE(""), -1, NOW);
	assert_has(snapshot(model),
		   "\"state\":\"pending\",\"picked\":null,\"outcome\":null,"
		   "\"detail\":\"no_channel\"");
	model_destroy(model);
}
END_TEST

START_TEST(the_same_call_five_times_in_a_row_is_stalled)
{
	struct model *model = model_create();
	char payload[512];

	begin_turn(model);
	for (unsigned i = 0; i < 5; i++) {
		(void)snprintf(
			payload, sizeof(payload),
			UPDATE("{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c%u\","
			       "\"title\":\"Look\",\"status\":\"completed\"}"),
			i);
		apply(model, make(EPOCH_A, 3 + i, "acp_read", API, "t1", NULL, payload));
	}
	model_tick(model, NOW);
	assert_has(snapshot(model), "\"state\":\"stalled\"");
	assert_has(snapshot(model), "\"stalled\":\"same tool 5 times\"");
	model_destroy(model);
}
END_TEST

/* payloads.md: agent_stalled with reason silent belongs to the turn, which ends it. */
START_TEST(a_silent_agent_is_stalled_until_it_speaks_or_the_turn_ends)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "agent_stalled", API, "t1", NULL,
			  "{\"slot\":0,\"reason\":\"silent\",\"sinceMs\":60000}"));
	model_tick(model, NOW);
	assert_has(snapshot(model), "\"state\":\"stalled\"");
	assert_has(snapshot(model), "\"stalled\":\"silent\"");
	apply(model, make(EPOCH_A, 4, "agent_resumed", API, "t1", NULL,
			  "{\"slot\":0,\"reason\":\"silent\",\"sinceMs\":61000}"));
	assert_has(snapshot(model), "\"stalled\":null");
	apply(model, make(EPOCH_A, 5, "agent_stalled", API, "t1", NULL,
			  "{\"slot\":0,\"reason\":\"silent\",\"sinceMs\":60000}"));
	assert_has(snapshot(model), "\"stalled\":\"silent\"");
	apply(model, make(EPOCH_A, 6, "turn_completed", API, "t1", NULL,
			  "{\"promptId\":\"p1\",\"cancelledBy\":\"timeout\","
			  "\"durationMs\":1}"));
	assert_has(snapshot(model), "\"stalled\":null");
	model_destroy(model);
}
END_TEST

/* It is said in the slot's own channel; the work is in another. */
START_TEST(a_stopped_process_stalls_the_lanes_that_it_works_in)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "agent_stalled", DOCS, NULL, NULL,
			  "{\"slot\":0,\"reason\":\"stopped\"}"));
	model_tick(model, NOW);
	assert_has(snapshot(model), "\"state\":\"stalled\"");
	assert_has(snapshot(model), "\"stalled\":\"process is stopped\"");
	apply(model, make(EPOCH_A, 4, "agent_resumed", DOCS, NULL, NULL,
			  "{\"slot\":0,\"reason\":\"stopped\"}"));
	assert_lacks(snapshot(model), "process is stopped");
	model_destroy(model);
}
END_TEST

static struct slice health(struct model *model)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 1u << 20;
	model_write_health(model, &out);
	return buf_slice(&out);
}

/* "Complete" is what is complete of every agent that is there. */
START_TEST(what_is_complete_in_all_is_the_least_of_the_agents_that_are_there)
{
	struct model *model = model_create();

	assert_has(health(model), "\"completeMs\":null");
	assert_has(health(model), "\"gone\":0");
	model_heard(model, claude, NOW);
	assert_has(health(model), "\"completeMs\":null");
	model_set_complete(model, claude, NOW - 5000, 0);
	assert_has(health(model), "\"completeMs\":1796039995000");
	assert_has(snapshot(model), "\"completeMs\":1796039995000}");
	assert_has(snapshot(model), "\"missing\":0,\"gone\":0");
	model_heard(model, codex, NOW);
	model_tick(model, NOW);
	assert_has(health(model), "\"completeMs\":null"); /* one claims nothing yet */
	model_set_complete(model, codex, NOW - 9000, 3);
	model_tick(model, NOW);
	assert_has(health(model), "\"completeMs\":1796039991000");
	assert_has(health(model), "\"gone\":3");
	/* Who is away does not hold the others; once all are, the last one counts. */
	model_heard(model, claude, NOW + MODEL_ONLINE_MS + 1);
	model_tick(model, NOW + MODEL_ONLINE_MS + 1);
	assert_has(health(model), "\"completeMs\":1796039995000");
	model_tick(model, NOW + 2 * MODEL_ONLINE_MS + 2);
	assert_has(health(model), "\"completeMs\":1796039995000");
	model_destroy(model);
}
END_TEST

/* Of a lane that did nothing in these ten seconds: its events so far were at NOW. */
#define LATER (NOW + 10000)

static void live_on(struct model *model, unsigned seq)
{
	model_heard(model, claude, NOW + seq * 1000);
	apply(model, make(EPOCH_A, seq, "turn_liveness", API, "t1", NULL,
			  "{\"elapsedMs\":1,\"intervalMs\":10000}"));
	model_set_complete(model, claude, NOW + seq * 1000, 0);
	model_tick(model, LATER);
}

START_TEST(a_sign_of_life_is_no_news_but_comes_with_what_is)
{
	struct model *model = model_create();

	begin_turn(model);
	live_on(model, 3);
	ck_assert(model_has_news(model, LATER));
	(void)changes(model);
	ck_assert(!model_changed(model));
	ck_assert(!model_has_news(model, LATER));

	live_on(model, 4);
	ck_assert(model_changed(model));
	ck_assert(!model_has_news(model, LATER));
	ck_assert(model_has_news(model, NOW)); /* it did more than that just then */
	assert_has(changes(model), "\"lastMs\":1796040000400");
	assert_has(snapshot(model),
		   "\"seenMs\":1796040004000,\"completeMs\":1796040004000");

	live_on(model, 5);
	model_set_complete(model, claude, NOW + 5000, 2);
	ck_assert(model_has_news(model, LATER)); /* two frames are gone for good */
	(void)changes(model);
	live_on(model, 6);
	model_tick(model, NOW + 2 * MODEL_ONLINE_MS);
	ck_assert(model_has_news(model, LATER)); /* offline */
	(void)changes(model);
	ck_assert(!model_has_news(model, LATER));
	model_destroy(model);
}
END_TEST

START_TEST(what_a_harness_says_of_itself_is_news_if_it_is_new)
{
	static const char *const idle = "{\"turns\":[],\"control\":\"full\"}";
	struct model *model = model_create();

	begin_turn(model);
	(void)changes(model);
	apply(model, make(EPOCH_A, 3, "feed_state", NULL, NULL, NULL, idle));
	ck_assert(model_has_news(model, LATER)); /* no turn runs any more */
	(void)changes(model);
	apply(model, make(EPOCH_A, 4, "feed_state", NULL, NULL, NULL, idle));
	ck_assert(model_changed(model));
	ck_assert(!model_has_news(model, LATER));
	apply(model, make(EPOCH_A, 5, "turn_liveness", API, "t1", NULL,
			  "{\"elapsedMs\":1,\"intervalMs\":10000}"));
	ck_assert(model_has_news(model, LATER)); /* it is idle since that moment */
	(void)changes(model);
	ask(model);
	ck_assert(model_has_news(model, LATER));
	model_destroy(model);
}
END_TEST

/* Pages move strokes on by themselves. */
START_TEST(the_newest_stroke_of_a_lane_says_when_it_was)
{
	struct model *model = model_create();

	begin_turn(model);
	model_tick(model, NOW + 25000);
	assert_has(snapshot(model), "\"activityMs\":1796040000000,\"activity\":[0,");
	assert_has(snapshot(model), ",0,1]");
	(void)changes(model);
	model_tick(model, NOW + 35000);
	ck_assert(!model_changed(model));
	model_destroy(model);
}
END_TEST

START_TEST(a_foreign_feed_claims_nothing_and_holds_nothing)
{
	struct model *model = model_create();

	apply(model, make("", 1, "note", API, NULL, NULL, "{\"text\":\"x\"}"));
	model_heard(model, claude, NOW);
	model_tick(model, NOW);
	assert_has(snapshot(model), "\"foreign\":true");
	assert_has(health(model), "\"completeMs\":null");
	model_heard(model, codex, NOW);
	model_set_complete(model, codex, NOW - 9000, 0);
	model_tick(model, NOW);
	assert_has(health(model), "\"completeMs\":1796039991000");
	model_destroy(model);
}
END_TEST

START_TEST(what_was_dropped_says_how_much_and_why)
{
	struct model *model = model_create();

	begin_turn(model);
	apply(model, make(EPOCH_A, 7, "observer_telemetry_gap", API, NULL, NULL,
			  "{\"droppedEvents\":12,\"reasonCounts\":{\"broadcastLag\":0,"
			  "\"publishQueueEviction\":9,\"journal_full\":3}}"));
	assert_has(rows(model, API),
		   "\"events\":12,\"cause\":\"publishQueueEviction, journal_full\","
		   "\"text\":\"12 events were dropped before they were sent: too much "
		   "waited "
		   "to be sent, the journal took no more\"");
	apply(model, make(EPOCH_A, 8, "observer_telemetry_gap", API, NULL, NULL,
			  "{\"droppedEvents\":0,\"reasonCounts\":{\"unclean_stop\":1}}"));
	assert_has(rows(model, API), "\"cause\":\"unclean_stop\",\"text\":\"What was not "
				     "written down is lost: "
				     "the start before this one ended without a word\"");
	assert_lacks(rows(model, API), "0 events");
	model_destroy(model);
}
END_TEST

START_TEST(a_hole_in_the_numbering_is_a_row_until_it_is_filled)
{
	struct model *model = model_create();
	struct model_gap gap = {.epoch = EPOCH_A,
				.range = {4, 9},
				.state = GAP_ASKED,
				.seq = 2,
				.t = NOW};
	struct buf out = {.max = 1u << 20};

	begin_turn(model);
	model_set_gaps(model, claude, &gap, 1, 6);
	assert_has(rows(model, API),
		   "\"type\":\"gap\",\"replay\":false,\"frames\":[[4,9]],"
		   "\"state\":\"asked\",\"text\":\"6 frames are missing: the agent was "
		   "asked for them\"");
	gap.state = GAP_GONE;
	gap.why = GONE_KILLED;
	model_set_gaps(model, claude, &gap, 1, 0);
	assert_has(rows(model, API),
		   "\"state\":\"gone\",\"cause\":\"killed\",\"text\":\"6 frames are gone "
		   "for "
		   "good: the agent's harness ended before they were on disk\"");
	model_drop_changes(model);
	model_set_gaps(model, claude, NULL, 0, 0);
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"id\":\"hole:" EPOCH_A ":4\"}]");
	assert_lacks(rows(model, API), "\"type\":\"gap\"");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

START_TEST(rows_are_handed_out_once)
{
	struct model *model = model_create();
	struct buf out = {.max = 1u << 20};

	begin_turn(model);
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1", NULL, CHUNK("x")));
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"type\":\"message\"");
	buf_clear(&out);
	apply(model, make(EPOCH_A, 5, "acp_read", API, "t1", NULL,
			  UPDATE("{\"sessionUpdate\":\"plan\",\"entries\":[]}")));
	/* Late, so the turn is derived again; only what came out otherwise is told. */
	apply(model, make(EPOCH_A, 4, "note", API, "t1", NULL, "{\"text\":\"late\"}"));
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"text\":\"late\"");
	assert_lacks(buf_slice(&out), "\"type\":\"prompt\"");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

START_TEST(an_emitted_span_is_one_row_from_start_to_end)
{
	struct model *model = model_create();
	struct buf out = {.max = 1u << 20};

	apply(model, make(EPOCH_A, 3, "span_start", API, "t1", NULL,
			  "{\"id\":\"7\",\"name\":\"tests\",\"source\":\"emit\"}"));
	apply(model, make(EPOCH_A, 23, "span_end", API, "t1", NULL,
			  "{\"id\":\"7\",\"name\":\"tests\",\"status\":\"failed\"}"));
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"text\":\"tests: failed after 2.0 s\","
				    "\"level\":\"error\"");
	ck_assert_uint_eq(count_of(buf_slice(&out), "\"type\":\"note\""), 1);
	buf_clear(&out);
	apply(model, make(EPOCH_A, 24, "span_end", API, "t1", NULL,
			  "{\"id\":\"8\",\"name\":\"other\"}"));
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"text\":\"other: ended\"");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

START_TEST(a_session_names_its_channel)
{
	struct model *model = model_create();
	struct buf out = {.max = 1u << 20};

	apply(model, make(EPOCH_A, 3, "session_resolved", API, NULL, NULL,
			  "{\"sessionId\":\"s\",\"isNew\":true,\"channelName\":\"api-"
			  "server\"}"));
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"channelName\":\"api-server\"");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

START_TEST(what_the_editor_decides_is_said_to_be_its)
{
	struct model *model = model_create();
	struct buf out = {.max = 1u << 20};

	begin_turn(model);
	apply(model,
	      make(EPOCH_A, 3, "acp_read", API, "t1",
		   ",\"authorization\":{\"requestNonce\":\"n1\",\"actionable\":false}",
		   "{\"id\":5,\"method\":\"session/request_permission\",\"params\":"
		   "{\"sessionId\":\"s\",\"toolCall\":{\"toolCallId\":\"c\"},"
		   "\"options\":[{\"optionId\":\"no\",\"name\":\"No\",\"kind\":"
		   "\"reject_once\"}]}}"));
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"actionable\":false");
	buf_clear(&out);
	apply(model,
	      make(EPOCH_A, 4, "acp_write", API, "t1",
		   ",\"authorization\":{\"requestNonce\":\"n1\",\"actionable\":false,"
		   "\"reason\":\"editor\"}",
		   "{\"id\":5,\"result\":{\"outcome\":{\"outcome\":\"selected\","
		   "\"optionId\":\"no\"}}}"));
	(void)buf_lit(&out, "{");
	model_write_changes(model, NOW, &out);
	assert_has(buf_slice(&out), "\"state\":\"denied\"");
	assert_has(buf_slice(&out), "\"by\":\"editor\"");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

START_TEST(pages_of_rows_join_without_overlap)
{
	struct model *model = model_create();
	struct buf out = {.max = 1u << 20};
	struct pos before;
	const char *payload = "{\"stream\":\"stdout\",\"text\":\"x\"}";

	model_heard(model, claude, NOW);
	for (unsigned i = 1; i <= 10; i++)
		apply(model, make(EPOCH_A, i, "output", API, NULL, NULL, payload));
	ck_assert(pos_parse(SLICE(EPOCH_A "/0000000000000007"), &before));
	ck_assert(model_write_rows(model, claude, SLICE(API), &before, 4, &out));
	ck_assert_uint_eq(count_of(buf_slice(&out), "\"type\":\"output\""), 4);
	assert_has(buf_slice(&out), "\"pos\":\"" EPOCH_A "/0000000000000003\"");
	assert_has(buf_slice(&out), "\"pos\":\"" EPOCH_A "/0000000000000006\"");
	assert_has(buf_slice(&out), "\"more\":true");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

/* A turn that never ends and says a lot: memory stays bounded, what left it is the
 * archive's. */
START_TEST(one_endless_turn_does_not_fill_the_memory)
{
	static char payload[60100];
	struct model *model = model_create();
	struct buf out = {.max = 1u << 27};
	struct pos before;
	unsigned written;

	begin_turn(model);
	for (unsigned i = 0; i < 1400; i++) {
		const int len = snprintf(payload, sizeof(payload), "{\"text\":\"%u ", i);

		memset(payload + len, 'x', 60000 - (size_t)len);
		memcpy(payload + 60000, "\"}", 3);
		apply(model, make(EPOCH_A, 3 + i, "note", API, "t1", NULL, payload));
		model_drop_changes(model);
	}
	ck_assert(!model_write_rows(model, claude, SLICE(API), NULL, 1000000, &out));
	ck_assert(model_write_rows(model, claude, SLICE(API), NULL, 100, &out));
	assert_has(slice_sub(buf_slice(&out), out.len - 70000, out.len), "1399 x");
	written = count_of(buf_slice(&out), "\"type\":\"note\"");
	ck_assert_uint_eq(written, 100);
	/* The beginning is asked of the archive. */
	ck_assert(pos_parse(SLICE(EPOCH_A "/0000000000000100"), &before));
	ck_assert(!model_write_rows(model, claude, SLICE(API), &before, 10, &out));
	assert_has(snapshot(model), "\"state\":\"running\"");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

/* What a row costs counts, not only what its event said. */
START_TEST(countless_short_turns_do_not_fill_the_memory)
{
	struct model *model = model_create();
	struct buf out = {.max = 1u << 27};

	begin_turn(model);
	for (unsigned i = 0; i < 45000; i++) {
		char turn[16];
		struct sent sent;

		(void)snprintf(turn, sizeof(turn), "u%u", i);
		sent = make(EPOCH_A, 3 + i, "note", API, turn, NULL, "{\"text\":\"x\"}");
		send(model, &sent);
		buf_finish(&sent.text);
		if (i % 500 == 499) {
			model_settle(model, NOW + i);
			model_drop_changes(model);
		}
	}
	ck_assert(!model_write_rows(model, claude, SLICE(API), NULL, 45000, &out));
	ck_assert(model_write_rows(model, claude, SLICE(API), NULL, 1000, &out));
	ck_assert_uint_eq(count_of(buf_slice(&out), "\"type\":\"note\""), 1000);
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

START_TEST(rows_of_one_event_are_not_torn_apart_by_a_page)
{
	struct model *model = model_create();
	struct buf out = {.max = 1u << 20};

	begin_turn(model);
	/* A request makes two rows: what is asked, and the call that it is about. */
	apply(model, make(EPOCH_A, 3, "acp_read", API, "t1",
			  AUTH("n1", "\"actionable\":true"), ASK));
	ck_assert(model_write_rows(model, claude, SLICE(API), NULL, 1, &out));
	assert_has(buf_slice(&out), "\"type\":\"tool\"");
	assert_has(buf_slice(&out), "\"type\":\"permission\"");
	buf_finish(&out);
	model_destroy(model);
}
END_TEST

START_TEST(a_feed_without_epochs_is_ordered_by_time_and_marked_foreign)
{
	struct model *model = model_create();
	struct slice got;

	model_heard(model, claude, NOW);
	/* A restart counts from 1 again: the later time still comes later. */
	apply(model, make("", 2, "note", API, NULL, NULL, "{\"text\":\"second\"}"));
	apply(model, make("", 1, "note", API, NULL, NULL, "{\"text\":\"first\"}"));
	got = rows(model, API);
	ck_assert_uint_lt(slice_find_slice(got, SLICE("first")),
			  slice_find_slice(got, SLICE("second")));
	assert_has(snapshot(model), "\"foreign\":true");
	model_destroy(model);
}
END_TEST

/* ---- the property ---- */

static uint32_t random_state;

static unsigned random_below(unsigned n)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % n;
}

#define EVENTS 220

static const char *const channels[] = {API, DOCS, NULL};
static const char *const payloads[][2] = {
	{"acp_read", CHUNK("a ")},
	{"acp_read", CHUNK("b ")},
	{"acp_read",
	 UPDATE("{\"sessionUpdate\":\"agent_thought_chunk\",\"content\":{\"type\":"
		"\"text\",\"text\":\"hm\"}}")},
	{"acp_read",
	 UPDATE("{\"sessionUpdate\":\"agent_message_chunk\",\"messageId\":\"m\","
		"\"content\":{\"type\":\"resource_link\",\"uri\":\"file:///x\","
		"\"name\":\"x\"}}")},
	{"acp_read",
	 UPDATE("{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c1\",\"title\":"
		"\"One\",\"kind\":\"execute\",\"rawInput\":{\"command\":[\"make\","
		"\"-j\"]}}")},
	{"acp_read",
	 UPDATE("{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":\"c1\","
		"\"status\":\"completed\",\"rawOutput\":{\"exitCode\":2,\"output\":"
		"\"boom\"}}")},
	{"acp_read",
	 UPDATE("{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":\"c2\","
		"\"status\":\"in_progress\",\"content\":[{\"type\":\"diff\","
		"\"path\":\"/a/b\",\"oldText\":null,\"newText\":\"x\"}]}")},
	{"acp_read",
	 UPDATE("{\"sessionUpdate\":\"plan\",\"entries\":[{\"content\":\"p\"}]}")},
	{"acp_read", UPDATE("{\"sessionUpdate\":\"brand_new\"}")},
	{"acp_write",
	 "{\"id\":3,\"method\":\"session/prompt\",\"params\":{\"prompt\":[{\"type\":"
	 "\"text\",\"text\":\"go\"}]}}"},
	{"acp_write", "{\"id\":4,\"method\":\"session/load\",\"params\":{}}"},
	{"acp_read", "{\"id\":4,\"result\":{}}"},
	{"acp_read", "{\"id\":9,\"error\":{\"code\":-32603,\"message\":\"no\"}}"},
	{"acp_parse_error",
	 "{\"direction\":\"read\",\"line\":\"oops\",\"bytes\":4,\"error\":\"x\"}"},
	{"turn_started", "{\"promptId\":\"p\",\"source\":\"owner\",\"text\":\"go\"}"},
	{"turn_completed",
	 "{\"promptId\":\"p\",\"stopReason\":\"end_turn\",\"durationMs\":5}"},
	{"turn_error", "{\"message\":\"broke\",\"class\":\"agent\"}"},
	{"turn_liveness", "{\"elapsedMs\":1,\"intervalMs\":10000}"},
	{"agent_initialized",
	 "{\"slot\":0,\"agentInfo\":{\"name\":\"a\",\"version\":\"1\"}}"},
	{"agent_exited",
	 "{\"slot\":0,\"code\":137,\"reason\":\"crash\",\"stderrTail\":\"ouch\"}"},
	{"output", "{\"stream\":\"stderr\",\"text\":\"line\"}"},
	{"note", "{\"text\":\"n\"}"},
	{"span_start", "{\"id\":\"1\",\"name\":\"n\"}"},
	{"span_end", "{\"id\":\"1\",\"name\":\"n\",\"status\":\"ok\"}"},
	{"session_resolved", "{\"sessionId\":\"s\",\"channelName\":\"m\"}"},
	{"harness_started",
	 "{\"name\":\"c\",\"channels\":[{\"id\":\"" API "\",\"name\":\"n\"}]}"},
	{"harness_stopping", "{\"reason\":\"signal\"}"},
	{"observer_telemetry_gap",
	 "{\"droppedEvents\":3,\"reasonCounts\":{\"broadcastLag\":3}}"},
};

static struct sent random_event(unsigned seq)
{
	const char *epoch = seq < EVENTS / 2 ? EPOCH_A : EPOCH_B;
	const char *channel = channels[random_below(3)];
	const unsigned pick = random_below(sizeof(payloads) / sizeof(*payloads) + 3);
	/* Two turns a channel, one after the other. */
	const char *turn = seq % 60 < 30 ? "t1" : "t2";
	struct sent sent;

	if (!channel || random_below(5) == 0)
		turn = NULL;
	if (pick == 0)
		sent = make(epoch, seq, "acp_read", channel, turn,
			    AUTH("n1", "\"actionable\":true"), ASK);
	else if (pick == 1)
		sent = make(epoch, seq, "acp_write", channel, turn,
			    AUTH("n1", "\"reason\":\"applied\""),
			    "{\"id\":7,\"result\":{\"outcome\":{\"outcome\":\"selected\","
			    "\"optionId\":\"no\"}}}");
	else if (pick == 2)
		sent = make(epoch, seq, "acp_read", channel, turn, NULL, ASK);
	else
		sent = make(epoch, seq, payloads[pick - 3][0], channel, turn, NULL,
			    payloads[pick - 3][1]);
	sent.agent = random_below(4) ? claude : codex;
	sent.live = random_below(2);
	return sent;
}

static char *rows_of_stream(const struct sent *events, const unsigned *order,
			    size_t count, unsigned batch)
{
	struct model *model = model_create();
	struct buf out = {.max = 64u << 20};
	char *copy;

	for (size_t i = 0; i < count; i++) {
		send(model, &events[order[i]]);
		if (i % batch == batch - 1)
			model_settle(model, NOW);
	}
	model_settle(model, NOW);
	for (size_t i = 0; i < 2; i++) {
		write_all_rows(model, channels[i], &out);
		if (!model_write_rows(model, codex, slice_of(channels[i]), NULL, 100000,
				      &out))
			(void)buf_lit(&out, "none");
	}
	copy = mem_dup(buf_slice(&out));
	buf_finish(&out);
	model_destroy(model);
	return copy;
}

START_TEST(any_order_duplication_or_batching_ends_in_the_same_rows)
{
	struct sent events[EVENTS];
	unsigned order[2 * EVENTS];
	char *want, *got;

	random_state = 77u + (unsigned)_i;
	for (unsigned i = 0; i < EVENTS; i++) {
		events[i] = random_event(i + 1);
		order[i] = i;
	}
	want = rows_of_stream(events, order, EVENTS, 1);
	for (unsigned i = EVENTS; i < 2 * EVENTS; i++)
		order[i] = random_below(EVENTS);
	for (unsigned i = 2 * EVENTS - 1; i > 0; i--) {
		const unsigned k = random_below(i + 1), was = order[i];

		order[i] = order[k];
		order[k] = was;
	}
	got = rows_of_stream(events, order, 2 * EVENTS, 1 + random_below(40));
	ck_assert_str_eq(got, want);
	ck_assert_uint_gt(count_of(slice_of(want), "\"id\":"), 50);
	free(got);
	free(want);
	for (unsigned i = 0; i < EVENTS; i++)
		buf_finish(&events[i].text);
}
END_TEST

static char *fleet_of_stream(const struct sent *events, const unsigned *order,
			     size_t count, unsigned batch)
{
	struct model *model = model_create();
	char *copy;

	for (size_t i = 0; i < count; i++) {
		send(model, &events[order[i]]);
		if (i % batch == batch - 1)
			model_settle(model, NOW);
	}
	model_settle(model, NOW);
	model_heard(model, claude, NOW);
	model_heard(model, codex, NOW);
	model_settle(model, NOW);
	copy = mem_dup(snapshot(model));
	model_destroy(model);
	return copy;
}

/* The members of one list of a snapshot, by id. */
static void assert_same_list(const char *want, const char *got, const char *list)
{
	struct slice rest = acp_get(slice_of(want), list), item;
	size_t count = 0, others = 0;
	struct map found;

	map_init(&found);
	while (acp_next(&rest, &item)) {
		(void)map_put(&found, acp_get_string(item, "id"), mem_dup(item));
		count++;
	}
	rest = acp_get(slice_of(got), list);
	while (acp_next(&rest, &item)) {
		char *same = map_take(&found, acp_get_string(item, "id"));

		ck_assert_ptr_nonnull(same);
		ck_assert_msg(slice_eq(slice_of(same), item), "%s\nis now\n%.*s", same,
			      SLICE_ARG(item));
		free(same);
		others++;
	}
	ck_assert_uint_eq(others, count);
	ck_assert_uint_gt(count, 0);
	map_finish(&found);
}

/* Frames that are history (nothing live) say what is true now, in whatever order. */
START_TEST(any_order_of_old_frames_ends_in_the_same_agents_and_lanes)
{
	struct sent events[EVENTS];
	unsigned order[EVENTS];
	char *want, *got;

	random_state = 9001u + (unsigned)_i;
	for (unsigned i = 0; i < EVENTS; i++) {
		events[i] = random_event(i + 1);
		events[i].live = false;
		order[i] = i;
	}
	want = fleet_of_stream(events, order, EVENTS, 1);
	for (unsigned i = EVENTS - 1; i > 0; i--) {
		const unsigned k = random_below(i + 1), was = order[i];

		order[i] = order[k];
		order[k] = was;
	}
	got = fleet_of_stream(events, order, EVENTS, 1 + random_below(40));
	assert_same_list(want, got, "agents");
	assert_same_list(want, got, "lanes");
	free(got);
	free(want);
	for (unsigned i = 0; i < EVENTS; i++)
		buf_finish(&events[i].text);
}
END_TEST

/* What pages are told bit by bit adds up to what a new page reads. */
START_TEST(the_stream_of_upserts_and_removals_ends_in_the_same_rows)
{
	struct sent events[EVENTS];
	struct model *model = model_create();
	struct map known;
	struct map_entry *entry = NULL;
	unsigned told = 0;

	random_state = 4711u + (unsigned)_i;
	map_init(&known);
	for (unsigned i = 0; i < EVENTS; i++)
		events[i] = random_event(i + 1);
	for (unsigned n = 0; n < 2 * EVENTS; n++) {
		struct buf out = {.max = 8u << 20};
		struct slice rest, item;

		send(model, &events[n < EVENTS ? random_below(EVENTS) : n - EVENTS]);
		model_settle(model, NOW);
		(void)buf_lit(&out, "{");
		model_write_changes(model, NOW, &out);
		(void)buf_lit(&out, "}");
		ck_assert(json_check(buf_slice(&out), NULL, NULL));
		rest = acp_get(buf_slice(&out), "removedRows");
		while (acp_next(&rest, &item)) {
			struct buf key = {.max = 4096};

			(void)buf_append(&key, acp_get_string(item, "lane"));
			(void)buf_append(&key, acp_get_string(item, "id"));
			free(map_take(&known, buf_slice(&key)));
			buf_finish(&key);
		}
		rest = acp_get(buf_slice(&out), "rows");
		while (acp_next(&rest, &item)) {
			struct buf key = {.max = 4096};

			(void)buf_append(&key, acp_get_string(item, "lane"));
			(void)buf_append(&key, acp_get_string(item, "id"));
			free(map_put(&known, buf_slice(&key), mem_dup(item)));
			told++;
			buf_finish(&key);
		}
		buf_finish(&out);
	}
	for (size_t i = 0; i < 2; i++) {
		struct slice all = rows(model, channels[i]);
		struct slice rest, item;
		struct buf wrapped = {.max = 64u << 20};

		(void)buf_lit(&wrapped, "{");
		(void)buf_append(&wrapped, all);
		(void)buf_lit(&wrapped, "}");
		rest = acp_get(buf_slice(&wrapped), "rows");
		while (acp_next(&rest, &item)) {
			struct buf key = {.max = 4096};
			char *seen;

			(void)buf_append(&key, acp_get_string(item, "lane"));
			(void)buf_append(&key, acp_get_string(item, "id"));
			seen = map_take(&known, buf_slice(&key));
			ck_assert_ptr_nonnull(seen);
			ck_assert(slice_eq(slice_of(seen), item));
			free(seen);
			buf_finish(&key);
		}
		buf_finish(&wrapped);
	}
	while ((entry = map_next(&known, entry)) != NULL) {
		/* Only the other agent's are left. */
		ck_assert_msg(map_key(entry).ptr[1] == '2', "%.*s is left",
			      SLICE_ARG(map_key(entry)));
		free(entry->value);
	}
	ck_assert_uint_gt(told, 50);
	map_finish(&known);
	for (unsigned i = 0; i < EVENTS; i++)
		buf_finish(&events[i].text);
	model_destroy(model);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("model");
	TCase *rows_case = tcase_create("rows");
	TCase *cards = tcase_create("permissions");
	TCase *live = tcase_create("live state");
	TCase *property = tcase_create("property");

	tcase_add_test(rows_case, chunks_of_one_message_are_one_row);
	tcase_add_test(rows_case,
		       joined_chunks_took_the_time_since_the_event_before_them);
	tcase_add_test(rows_case, payloads_of_the_wrong_shape_do_no_harm);
	tcase_add_test(rows_case, a_tool_call_is_one_row_from_start_to_end);
	tcase_add_test(rows_case, a_finished_tool_call_does_not_go_back);
	tcase_add_test(rows_case, a_plan_is_replaced_as_a_whole);
	tcase_add_test(rows_case, calls_that_a_cancelled_turn_left_open_are_cancelled);
	tcase_add_test(rows_case, an_unknown_kind_is_shown_raw);
	tcase_add_test(rows_case,
		       what_concerns_the_harness_is_shown_in_each_of_its_channels);
	tcase_add_test(rows_case, a_prompt_row_has_the_whole_text_when_it_was_written);
	tcase_add_test(rows_case, a_nul_in_a_command_hides_nothing);
	tcase_add_test(rows_case,
		       what_is_complete_in_all_is_the_least_of_the_agents_that_are_there);
	tcase_add_test(rows_case, a_foreign_feed_claims_nothing_and_holds_nothing);
	tcase_add_test(rows_case, what_was_dropped_says_how_much_and_why);
	tcase_add_test(rows_case, a_hole_in_the_numbering_is_a_row_until_it_is_filled);
	tcase_add_test(rows_case, rows_are_handed_out_once);
	tcase_add_test(rows_case, an_emitted_span_is_one_row_from_start_to_end);
	tcase_add_test(rows_case, a_session_names_its_channel);
	tcase_add_test(rows_case, what_the_editor_decides_is_said_to_be_its);
	tcase_add_test(rows_case, pages_of_rows_join_without_overlap);
	tcase_add_test(rows_case, one_endless_turn_does_not_fill_the_memory);
	tcase_add_test(rows_case, countless_short_turns_do_not_fill_the_memory);
	tcase_add_test(rows_case, rows_of_one_event_are_not_torn_apart_by_a_page);
	tcase_add_test(rows_case,
		       a_feed_without_epochs_is_ordered_by_time_and_marked_foreign);
	tcase_add_test(cards, a_live_permission_request_is_a_card_with_its_exact_command);
	tcase_add_test(cards, a_replayed_permission_request_is_a_row_and_no_card);
	tcase_add_test(cards, the_harness_can_say_that_an_old_request_still_waits);
	tcase_add_test(cards, an_applied_decision_ends_the_card_and_names_you);
	tcase_add_test(cards, a_denial_by_time_is_not_shown_as_yours);
	tcase_add_test(cards, a_card_ends_with_its_turn);
	tcase_add_test(cards, a_card_ends_with_a_newer_start_of_the_harness);
	tcase_add_test(cards, a_card_that_is_over_goes_after_four_seconds);
	tcase_add_test(cards, a_trimmed_request_is_not_ready_until_its_body_came);
	tcase_add_test(cards, a_decision_that_did_not_count_can_be_made_again);
	tcase_add_test(cards, a_trimmed_request_of_an_endless_turn_gets_its_body);
	tcase_add_test(cards, agents_that_chose_the_same_nonce_have_a_card_each);
	tcase_add_test(cards,
		       an_agent_that_asks_without_end_fills_neither_memory_nor_tray);
	tcase_add_test(cards, a_call_that_waits_for_the_owner_does_not_claim_to_run);
	tcase_set_timeout(cards, 60);
	tcase_add_test(cards, what_is_forgotten_leaves_pages_and_what_comes_is_shown);
	tcase_add_test(cards, only_what_is_meant_is_forgotten);
	tcase_add_test(cards,
		       all_that_is_forgotten_leaves_the_fleet_while_its_agent_is_away);
	tcase_add_test(cards, a_lane_that_speaks_after_it_was_forgotten_is_in_the_fleet);
	tcase_add_test(cards, a_request_that_waits_is_not_forgotten_while_it_waits);
	tcase_set_timeout(rows_case, 60);
	tcase_add_test(live, a_plan_says_how_far_it_is_and_output_what_it_printed);
	tcase_add_test(live, a_turn_divides_its_time_between_you_tools_and_the_model);
	tcase_add_test(live,
		       what_goes_on_ended_with_the_last_word_of_an_agent_that_is_gone);
	tcase_add_test(live, an_agent_is_offline_after_seventy_five_seconds_of_silence);
	tcase_add_test(live, a_crashed_process_is_seen_in_the_lanes_that_it_serves);
	tcase_add_test(live, a_channel_in_which_only_a_process_started_is_no_lane);
	tcase_add_test(live,
		       a_channel_that_a_harness_serves_is_a_lane_from_its_first_word);
	tcase_add_test(live, an_older_mode_does_not_undo_a_newer_one);
	tcase_add_test(live, a_login_that_is_needed_is_told_in_the_agents_words);
	tcase_add_test(live, a_prompt_waits_in_its_lane_until_its_turn_starts);
	tcase_add_test(live, the_same_call_five_times_in_a_row_is_stalled);
	tcase_add_test(live, a_sign_of_life_is_no_news_but_comes_with_what_is);
	tcase_add_test(live, what_a_harness_says_of_itself_is_news_if_it_is_new);
	tcase_add_test(live, the_newest_stroke_of_a_lane_says_when_it_was);
	tcase_add_test(live, a_silent_agent_is_stalled_until_it_speaks_or_the_turn_ends);
	tcase_add_test(live, a_stopped_process_stalls_the_lanes_that_it_works_in);
	tcase_add_loop_test(
		property, any_order_duplication_or_batching_ends_in_the_same_rows, 0, 60);
	tcase_add_loop_test(property,
			    the_stream_of_upserts_and_removals_ends_in_the_same_rows, 0,
			    20);
	tcase_add_loop_test(property,
			    any_order_of_old_frames_ends_in_the_same_agents_and_lanes, 0,
			    40);
	tcase_set_timeout(property, 60);
	suite_add_tcase(suite, rows_case);
	suite_add_tcase(suite, cards);
	suite_add_tcase(suite, live);
	suite_add_tcase(suite, property);
	return test_run(suite);
}
