#include "observer/controls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/nostr/event.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"

#define NOW 1796040000000
#define EPOCH "6a0000010000000a"
#define API "00000000-0000-4000-8000-0000000000a1"

/* An owner's side whose relay is an array, and the key of the agent at the other end. */
struct world {
	struct crypto *crypto;
	struct keypair *owner, *agent;
	struct ingest *ingest;
	struct model *model;
	struct controls *controls;
	struct buf sent[64]; /* plaintexts, opened with the agent's key */
	uint8_t ids[64][32];
	unsigned count;
	bool link_down;
	struct buf body;
};

static bool on_publish(void *ctx, struct slice text)
{
	struct world *world = ctx;
	struct arena arena;
	struct event event;
	struct buf scratch = {.max = EVENT_MAX_BYTES};
	uint8_t key[32];

	if (world->link_down)
		return false;
	ck_assert_uint_lt(world->count, 64);
	arena_init(&arena, 4096);
	ck_assert(event_parse(text, &arena, &event, NULL));
	ck_assert(event_verify(world->crypto, &event, &scratch, NULL));
	ck_assert(nip44_conversation_key(world->crypto, world->agent,
					 keypair_public(world->owner), key, NULL));
	world->sent[world->count].max = NIP44_PLAINTEXT_MAX;
	ck_assert(nip44_decrypt(world->crypto, key, event.content,
				&world->sent[world->count], NULL));
	memcpy(world->ids[world->count++], event.id, 32);
	buf_finish(&scratch);
	arena_finish(&arena);
	return true;
}

static void on_body(void *ctx, const uint8_t *agent, const char *epoch, uint64_t seq,
		    struct slice text)
{
	struct world *world = ctx;

	(void)agent;
	ck_assert_str_eq(epoch, EPOCH);
	ck_assert_uint_eq(seq, 3);
	(void)buf_append(&world->body, text);
}

/* Different each time, the same each run. */
static void not_random(void *out, size_t len)
{
	static uint8_t next;

	for (size_t i = 0; i < len; i++)
		((uint8_t *)out)[i] = (uint8_t)(next * 31 + i);
	next++;
}

static void no_frame(void *ctx, const struct ingest_frame *frame)
{
	(void)ctx;
	(void)frame;
}

static int64_t no_stranger(void *ctx, const uint8_t *author)
{
	(void)ctx;
	(void)author;
	return 0;
}

static void no_gone(void *ctx, const uint8_t *agent, const char *epoch,
		    struct gone_range gone)
{
	(void)ctx;
	(void)agent;
	(void)epoch;
	(void)gone;
}

static void feed(struct world *world, const char *epoch, unsigned seq, const char *kind,
		 const char *payload)
{
	struct buf text = {.max = 65536};
	struct observer_event event;
	const struct model_event in = {.agent = keypair_public(world->agent),
				       .epoch = epoch,
				       .event = &event,
				       .received_ms = NOW,
				       .live = true};

	(void)buf_printf(
		&text,
		"{\"seq\":%u,\"timestamp\":\"2026-11-30T12:00:00.000Z\",\"kind\":\"%s\","
		"\"agentIndex\":0,\"channelId\":\"" API "\",\"sessionId\":null,"
		"\"turnId\":null,\"payload\":%s}",
		seq, kind, payload);
	ck_assert(observer_event_parse(buf_slice(&text), &event, NULL));
	controls_on_event(world->controls, in.agent, &event, NOW);
	(void)model_apply(world->model, &in);
	model_settle(world->model, NOW);
	buf_finish(&text);
}

/* @epoch "": a feed without epochs. */
static void begin(struct world *world, const char *epoch)
{
	const uint8_t seed[32] = {1}, owner[32] = {2}, agent[32] = {3};
	struct ingest_options ingest = {
		.on_frame = no_frame, .on_stranger = no_stranger, .on_gone = no_gone};
	struct controls_options options = {.publish = on_publish,
					   .on_body = on_body,
					   .random = not_random,
					   .ctx = world};
	struct err err;

	*world = (struct world){.body = {.max = 1u << 20}};
	ingest.crypto = options.crypto = world->crypto = crypto_create(seed, &err);
	ck_assert(keypair_create(world->crypto, owner, &world->owner, &err));
	ck_assert(keypair_create(world->crypto, agent, &world->agent, &err));
	ingest.owner = options.owner = world->owner;
	options.ingest = world->ingest = ingest_create(&ingest);
	options.model = world->model = model_create();
	world->controls = controls_create(&options);
	feed(world, epoch, 1, "note", "{\"text\":\"hello\"}");
	if (*epoch)
		ingest_known(world->ingest, keypair_public(world->agent), epoch, 1);
}

static void end(struct world *world)
{
	controls_destroy(world->controls);
	model_destroy(world->model);
	ingest_destroy(world->ingest);
	keypair_destroy(world->owner);
	keypair_destroy(world->agent);
	crypto_destroy(world->crypto);
	for (unsigned i = 0; i < 64; i++)
		buf_finish(&world->sent[i]);
	buf_finish(&world->body);
}

static bool post(struct world *world, const char *rest, char id[33], struct err *err)
{
	struct buf json = {.max = 4096};
	bool ok;

	(void)buf_lit(&json, "{\"agent\":\"");
	(void)buf_append_hex(&json, keypair_public(world->agent), KEY_BYTES);
	(void)buf_printf(&json, "\",\"channel\":\"" API "\",%s}", rest);
	ok = controls_post(world->controls, buf_slice(&json), NOW, id, err);
	buf_finish(&json);
	return ok;
}

static void prompt(struct world *world, char id[33])
{
	struct err err;

	ck_assert_msg(post(world, "\"type\":\"prompt\",\"text\":\"go\"", id, &err), "%s",
		      err.text);
}

static struct slice request_of(const struct buf *sent)
{
	return acp_get_string(buf_slice(sent), "requestId");
}

static bool snapshot_has(struct world *world, const char *needle)
{
	struct buf out = {.max = 1u << 20};
	bool has;

	(void)buf_lit(&out, "{");
	model_write_snapshot(world->model, NOW, &out);
	has = slice_find_slice(buf_slice(&out), slice_of(needle)) < out.len;
	buf_finish(&out);
	return has;
}

static void answer(struct world *world, const char *id, const char *status)
{
	char payload[256];

	(void)snprintf(payload, sizeof(payload),
		       "{\"type\":\"prompt\",\"status\":\"%s\",\"requestId\":\"%s\"}",
		       status, id);
	feed(world, EPOCH, 9, "control_result", payload);
}

START_TEST(a_control_names_its_epoch_and_when_it_expires)
{
	struct world world;
	char id[33];

	begin(&world, EPOCH);
	prompt(&world, id);
	ck_assert_uint_eq(world.count, 1);
	assert_slice_eq(acp_get_string(buf_slice(&world.sent[0]), "epoch"), EPOCH);
	ck_assert_int_eq(acp_get_int(buf_slice(&world.sent[0]), "expires", 0),
			 NOW / 1000 + CONTROL_EXPIRY_S);
	assert_slice_eq(acp_get(buf_slice(&world.sent[0]), "content"),
			"[{\"type\":\"text\",\"text\":\"go\"}]");
	end(&world);
}
END_TEST

START_TEST(it_is_sent_again_every_two_seconds_signed_anew_until_it_is_answered)
{
	struct world world;
	char id[33];

	begin(&world, EPOCH);
	prompt(&world, id);
	controls_tick(world.controls, NOW + 1999);
	ck_assert_uint_eq(world.count, 1);
	controls_tick(world.controls, NOW + 2000);
	ck_assert_uint_eq(world.count, 2);
	ck_assert(slice_eq(request_of(&world.sent[0]), request_of(&world.sent[1])));
	ck_assert(memcmp(world.ids[0], world.ids[1], 32) != 0);
	answer(&world, id, "started");
	controls_tick(world.controls, NOW + 4000);
	ck_assert_uint_eq(world.count, 2);
	ck_assert(snapshot_has(&world, "\"state\":\"answered\",\"status\":\"started\""));
	end(&world);
}
END_TEST

START_TEST(channel_full_is_passing_and_does_not_end_it)
{
	struct world world;
	char id[33];

	begin(&world, EPOCH);
	prompt(&world, id);
	answer(&world, id, "channel_full");
	controls_tick(world.controls, NOW + 2000);
	ck_assert_uint_eq(world.count, 2);
	end(&world);
}
END_TEST

START_TEST(what_could_not_be_sent_is_sent_when_the_relay_is_back)
{
	struct world world;
	char id[33];

	begin(&world, EPOCH);
	world.link_down = true;
	prompt(&world, id);
	world.link_down = false;
	controls_tick(world.controls, NOW + 2000);
	ck_assert_uint_eq(world.count, 1);
	end(&world);
}
END_TEST

START_TEST(after_a_minute_without_an_answer_it_has_expired)
{
	struct world world;
	char id[33];

	begin(&world, EPOCH);
	prompt(&world, id);
	controls_tick(world.controls, NOW + 59999);
	ck_assert(!snapshot_has(&world, "\"state\":\"expired\""));
	controls_tick(world.controls, NOW + 60000);
	ck_assert(snapshot_has(&world, "\"state\":\"expired\",\"status\":null,\"detail\":"
				       "\"no answer in 60 s\""));
	end(&world);
}
END_TEST

START_TEST(a_foreign_feed_is_asked_once_without_an_epoch)
{
	struct world world;
	char id[33];

	begin(&world, "");
	prompt(&world, id);
	controls_tick(world.controls, NOW + 9999);
	ck_assert_uint_eq(world.count, 1);
	ck_assert_ptr_null(acp_get(buf_slice(&world.sent[0]), "epoch").ptr);
	controls_tick(world.controls, NOW + 10000);
	ck_assert(snapshot_has(&world, "\"detail\":\"no answer in 10 s\""));
	end(&world);
}
END_TEST

START_TEST(the_relays_ok_makes_it_relayed)
{
	struct world world;
	char id[33];

	begin(&world, EPOCH);
	prompt(&world, id);
	ck_assert(controls_on_ok(world.controls, world.ids[0], true, SLICE("sent to 1"),
				 NOW));
	ck_assert(snapshot_has(&world, "\"type\":\"prompt\",\"state\":\"relayed\""));
	end(&world);
}
END_TEST

START_TEST(a_prompt_that_does_not_fit_a_frame_is_refused_at_once)
{
	struct world world;
	struct buf json = {.max = 200000};
	char id[33];
	struct err err;

	begin(&world, EPOCH);
	(void)buf_lit(&json, "{\"type\":\"prompt\",\"channel\":\"" API "\",\"agent\":\"");
	(void)buf_append_hex(&json, keypair_public(world.agent), KEY_BYTES);
	(void)buf_lit(&json, "\",\"text\":\"");
	memset(buf_extend(&json, 70000), 'x', 70000);
	(void)buf_lit(&json, "\"}");
	ck_assert(!controls_post(world.controls, buf_slice(&json), NOW, id, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	ck_assert_uint_eq(world.count, 0);
	buf_finish(&json);
	end(&world);
}
END_TEST

START_TEST(what_no_control_is_is_refused_in_a_sentence)
{
	static const char *const wrong[] = {"\"type\":\"feed_sync\"",
					    "\"type\":\"launch\"",
					    "\"type\":7",
					    "\"text\":\"x\"",
					    "\"type\":\"prompt\"",
					    "\"type\":\"set_mode\"",
					    "\"type\":\"switch_model\"",
					    "\"type\":\"prompt\",\"text\":\"\""};
	struct world world;
	char id[33];

	begin(&world, EPOCH);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct err err;

		ck_assert_msg(!post(&world, wrong[i], id, &err), "%s", wrong[i]);
		ck_assert_int_eq(err.code, ERR_MALFORMED);
	}
	ck_assert_uint_eq(world.count, 0);
	end(&world);
}
END_TEST

START_TEST(a_link_that_comes_up_asks_every_agent_for_its_state)
{
	struct world world;

	begin(&world, EPOCH);
	controls_on_ready(world.controls, NOW);
	ck_assert_uint_eq(world.count, 1);
	assert_slice_eq(acp_get_string(buf_slice(&world.sent[0]), "type"), "feed_sync");
	assert_slice_eq(acp_get(buf_slice(&world.sent[0]), "want"), "[]");
	ck_assert_uint_eq(acp_get_string(buf_slice(&world.sent[0]), "observer").len, 8);
	end(&world);
}
END_TEST

START_TEST(an_agent_that_is_online_is_asked_every_minute_an_offline_one_is_not)
{
	struct world world;

	begin(&world, EPOCH);
	controls_on_ready(world.controls, NOW);
	controls_tick(world.controls, NOW + CONTROLS_SYNC_MS);
	ck_assert_uint_eq(world.count, 1);
	model_heard(world.model, keypair_public(world.agent), NOW + CONTROLS_SYNC_MS);
	model_tick(world.model, NOW + CONTROLS_SYNC_MS);
	controls_tick(world.controls, NOW + CONTROLS_SYNC_MS);
	ck_assert_uint_eq(world.count, 2);
	controls_tick(world.controls, NOW + CONTROLS_SYNC_MS + 1);
	ck_assert_uint_eq(world.count, 2);
	end(&world);
}
END_TEST

START_TEST(missing_frames_are_asked_for_once_they_have_settled)
{
	struct world world;

	begin(&world, EPOCH);
	model_heard(world.model, keypair_public(world.agent), NOW);
	model_tick(world.model, NOW);
	controls_on_ready(world.controls, NOW);
	ingest_known(world.ingest, keypair_public(world.agent), EPOCH, 7);
	controls_tick(world.controls, NOW + 1000);
	ck_assert_uint_eq(world.count, 2);
	assert_slice_eq(acp_get(buf_slice(&world.sent[1]), "want"),
			"[{\"epoch\":\"" EPOCH "\",\"frames\":[[2,6]]}]");
	ck_assert(snapshot_has(&world, "\"missing\":5"));
	end(&world);
}
END_TEST

START_TEST(once_all_that_was_asked_for_is_here_the_rest_is_asked_for_at_once)
{
	const uint64_t last = 2 * WANT_RANGES_MAX + 13; /* 70 holes of one frame */
	const uint8_t *agent;
	struct world world;
	unsigned sent;

	begin(&world, EPOCH);
	agent = keypair_public(world.agent);
	model_heard(world.model, agent, NOW);
	model_tick(world.model, NOW);
	controls_on_ready(world.controls, NOW);
	for (uint64_t n = 3; n <= last; n += 2)
		ingest_known(world.ingest, agent, EPOCH, n);
	controls_tick(world.controls, NOW + 1000);
	sent = world.count;
	for (uint64_t n = last - 1; n > 14; n -= 2)
		ingest_known(world.ingest, agent, EPOCH, n);
	controls_tick(world.controls, NOW + 2000); /* 14 was asked for, too */
	ck_assert_uint_eq(world.count, sent);
	ingest_known(world.ingest, agent, EPOCH, 14);
	controls_tick(world.controls, NOW + 2100);
	ck_assert_uint_eq(world.count, sent + 1);
	assert_slice_eq(acp_get(buf_slice(&world.sent[sent]), "want"),
			"[{\"epoch\":\"" EPOCH
			"\",\"frames\":[[12,12],[10,10],[8,8],[6,6],[4,4],[2,2]]}]");
	controls_tick(world.controls, NOW + 2200);
	ck_assert_uint_eq(world.count, sent + 1);
	end(&world);
}
END_TEST

static void part(struct world *world, unsigned number, const char *text)
{
	char payload[256];

	(void)snprintf(payload, sizeof(payload),
		       "{\"epoch\":\"" EPOCH
		       "\",\"seq\":3,\"part\":%u,\"parts\":3,\"text\":\"%s\"}",
		       number, text);
	feed(world, EPOCH, 20 + number, "body_part", payload);
}

START_TEST(a_body_comes_together_from_parts_in_any_order)
{
	struct world world;

	begin(&world, EPOCH);
	part(&world, 3, "c}");
	part(&world, 1, "{a");
	part(&world, 1, "again");
	ck_assert_uint_eq(world.body.len, 0);
	part(&world, 2, "\\u0062");
	assert_slice_eq(buf_slice(&world.body), "{abc}");
	end(&world);
}
END_TEST

START_TEST(parts_of_no_sense_are_ignored)
{
	struct world world;

	begin(&world, EPOCH);
	feed(&world, EPOCH, 5, "body_part",
	     "{\"epoch\":\"" EPOCH "\",\"seq\":3,\"part\":2,\"parts\":1,\"text\":\"x\"}");
	feed(&world, EPOCH, 6, "body_part",
	     "{\"epoch\":\"" EPOCH
	     "\",\"seq\":3,\"part\":1,\"parts\":999999,\"text\":\"x\"}");
	feed(&world, EPOCH, 7, "body_part",
	     "{\"epoch\":\"../../..\",\"seq\":3,\"part\":1,\"parts\":1,\"text\":\"x\"}");
	ck_assert_uint_eq(world.body.len, 0);
	end(&world);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("controls");
	TCase *tcase = tcase_create("controls");

	tcase_add_test(tcase, a_control_names_its_epoch_and_when_it_expires);
	tcase_add_test(
		tcase,
		it_is_sent_again_every_two_seconds_signed_anew_until_it_is_answered);
	tcase_add_test(tcase, channel_full_is_passing_and_does_not_end_it);
	tcase_add_test(tcase, what_could_not_be_sent_is_sent_when_the_relay_is_back);
	tcase_add_test(tcase, after_a_minute_without_an_answer_it_has_expired);
	tcase_add_test(tcase, a_foreign_feed_is_asked_once_without_an_epoch);
	tcase_add_test(tcase, the_relays_ok_makes_it_relayed);
	tcase_add_test(tcase, a_prompt_that_does_not_fit_a_frame_is_refused_at_once);
	tcase_add_test(tcase, what_no_control_is_is_refused_in_a_sentence);
	tcase_add_test(tcase, a_link_that_comes_up_asks_every_agent_for_its_state);
	tcase_add_test(
		tcase,
		an_agent_that_is_online_is_asked_every_minute_an_offline_one_is_not);
	tcase_add_test(tcase, missing_frames_are_asked_for_once_they_have_settled);
	tcase_add_test(tcase,
		       once_all_that_was_asked_for_is_here_the_rest_is_asked_for_at_once);
	tcase_add_test(tcase, a_body_comes_together_from_parts_in_any_order);
	tcase_add_test(tcase, parts_of_no_sense_are_ignored);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
