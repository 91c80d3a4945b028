/* Recorded conversations of a real SDK agent (tests/data/transcripts), played again: our
 * requests are made in the recorded order, the agent's bytes arrive in small pieces, and
 * every answer has to find its request. */
#include "agent/acp.h"

#include <string.h>

#include "agent/lookup.h"
#include "tests/unit/support/support.h"
#include "wire/host/paths.h"
#include "wire/nostr/json.h"

#define FILE_MAX (1u << 20)
/* Far smaller than a line, and no divisor of anything. */
#define PIECE_BYTES 7

static const struct {
	const char *name;
	unsigned calls, answered, requests, notifications, broken;
} transcripts[] = {
	{"cancel-pending-permission", 3, 3, 1, 3, 0},
	{"cancel-stall", 3, 3, 0, 1, 0},
	{"crash-midframe", 3, 2, 0, 1, 1},
	{"dirty-stdout", 3, 3, 0, 4, 1},
	{"ext-and-unknown-update", 3, 3, 1, 4, 0},
	{"fs-terminal", 3, 3, 14, 6, 0},
	{"load-list-close-cancelrequest", 8, 7, 0, 3, 0},
	{"permission-allowed-diff", 3, 3, 1, 7, 0},
	{"permission-rejected", 3, 3, 1, 3, 0},
	{"refusal", 3, 3, 0, 1, 0},
	{"simple", 3, 3, 0, 8, 0},
	{"two-sessions-interleaved", 5, 5, 2, 9, 0},
};

static struct acp *acp;
static unsigned calls, answered, gone, requests, notifications, broken;
static struct buf recorded, written; /* lines to the agent: as recorded, as ours */

static void on_read(void *ctx, const struct acp_line *line, const struct acp_line *raw,
		    size_t bytes, void *route)
{
	(void)ctx;
	(void)raw;
	(void)bytes;
	(void)route;
	broken += line->shape == ACP_BROKEN;
}

static void on_request(void *ctx, const struct acp_line *line)
{
	(void)ctx;
	ck_assert(line->id.len > 0 && line->method.len > 0);
	requests++;
}

static void on_notification(void *ctx, const struct acp_line *line)
{
	(void)ctx;
	ck_assert(line->method.len > 0);
	notifications++;
}

static void on_wrote(void *ctx, struct slice line, void *route,
		     struct slice authorization)
{
	(void)ctx;
	(void)line;
	(void)route;
	(void)authorization;
}

static const struct acp_events events = {on_read, on_request, on_notification, on_wrote};

static void write_line(void *ctx, struct slice line, child_on_written *on_written,
		       void *written_ctx)
{
	(void)ctx;
	(void)buf_append(&written, line);
	on_written(written_ctx, line, CHILD_WRITTEN);
}

static void on_answer(void *ctx, const struct acp_answer *answer)
{
	(void)ctx;
	if (answer->failure == ACP_GONE)
		gone++;
	else
		answered++;
}

/* One line of ours, said again: what comes out has to be what was recorded. */
static void say(struct slice raw)
{
	struct slice id = lookup(raw, SLICE("id"));
	struct slice params = lookup(raw, SLICE("params"));
	struct slice method = lookup_string(raw, SLICE("method"));
	char name[64];

	ck_assert(json_check(raw, NULL, NULL));
	ck_assert_uint_lt(method.len, sizeof(name));
	memcpy(name, method.len ? method.ptr : "", method.len);
	name[method.len] = '\0';
	if (method.len && id.len) {
		acp_call(acp, name, params, NULL, 0, on_answer, NULL);
		calls++;
	} else if (method.len) {
		acp_notify(acp, name, params, NULL);
	} else if (lookup(raw, SLICE("result")).len) {
		acp_reply(acp, id, lookup(raw, SLICE("result")), NULL, SLICE_EMPTY, NULL,
			  NULL);
	} else {
		return; /* an error: the words are the recorded client's */
	}
	(void)buf_append(&recorded, raw);
	(void)buf_lit(&recorded, "\n");
}

static void hear(struct slice bytes)
{
	while (bytes.len > 0) {
		size_t len = bytes.len < PIECE_BYTES ? bytes.len : PIECE_BYTES;

		acp_receive(acp, slice_sub(bytes, 0, len));
		bytes = slice_sub(bytes, len, bytes.len);
	}
}

static void play(struct slice record)
{
	struct slice dir = lookup_string(record, SLICE("dir"));
	struct buf raw;

	buf_init(&raw, FILE_MAX);
	(void)json_unescape(lookup_string(record, SLICE("raw")), &raw);
	if (slice_eq(dir, SLICE("c2a"))) {
		say(buf_slice(&raw));
	} else if (slice_eq(dir, SLICE("a2c"))) {
		(void)buf_lit(&raw, "\n");
		hear(buf_slice(&raw));
	}
	buf_finish(&raw);
}

START_TEST(a_recorded_conversation_plays_again)
{
	struct slice rest, record;
	struct buf path, text;
	struct loop *loop;
	struct err err;

	calls = answered = gone = requests = notifications = broken = 0;
	buf_init(&path, 4096);
	buf_init(&text, FILE_MAX);
	buf_init(&recorded, FILE_MAX);
	buf_init(&written, FILE_MAX);
	loop = loop_create(&err);
	acp = acp_create(loop, &events, NULL, write_line, NULL);
	(void)buf_printf(&path, "%s/transcripts/scripted-%s.jsonl", PERCH_TEST_DATA,
			 transcripts[_i].name);
	ck_assert_msg(paths_read(buf_text(&path), &text, &err), "%s", err.text);
	rest = buf_slice(&text);
	while (slice_take_until(&rest, '\n', &record))
		play(record);
	acp_receive_end(acp);
	acp_close(acp);
	ck_assert_uint_eq(calls, transcripts[_i].calls);
	ck_assert_uint_eq(answered, transcripts[_i].answered);
	ck_assert_uint_eq(gone, calls - answered);
	ck_assert_uint_eq(requests, transcripts[_i].requests);
	ck_assert_uint_eq(notifications, transcripts[_i].notifications);
	ck_assert_uint_eq(broken, transcripts[_i].broken);
	assert_slice_eq(buf_slice(&written), buf_text(&recorded));
	acp_destroy(acp);
	loop_destroy(loop);
	buf_finish(&path);
	buf_finish(&text);
	buf_finish(&recorded);
	buf_finish(&written);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("transcripts");
	TCase *tcase = tcase_create("played");

	tcase_add_loop_test(tcase, a_recorded_conversation_plays_again, 0,
			    sizeof(transcripts) / sizeof(*transcripts));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
