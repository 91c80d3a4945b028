#include "observer/ingest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/mem.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nip44.h"
#include "wire/nostr/nipoa.h"

#define NOW 1796040000000 /* Unix ms */
#define EPOCH "6a0000010000000a"
#define EPOCH_2 "6a0000020000000b"

/* An owner, an agent of theirs, and what ingest said of the frames it was given. */
struct world {
	struct crypto *crypto;
	struct keypair *owner, *agent;
	struct buf auth; /* the owner's attestation of the agent */
	struct ingest *ingest;
	unsigned frames, live, strangers, gone, gone_why[GONE_WHYS];
	int64_t attested_elsewhere; /* what on_stranger answers */
	uint64_t last_number;
	uint8_t serial;
};

static void on_frame(void *ctx, const struct ingest_frame *frame)
{
	struct world *world = ctx;

	world->frames++;
	world->live += frame->live;
	world->last_number = frame->frame->number;
}

static int64_t on_stranger(void *ctx, const uint8_t *author)
{
	struct world *world = ctx;

	(void)author;
	world->strangers++;
	return world->attested_elsewhere;
}

static void on_gone(void *ctx, const uint8_t *agent, const char *epoch,
		    struct gone_range gone)
{
	struct world *world = ctx;

	(void)agent;
	(void)epoch;
	world->gone += (unsigned)(gone.range.last - gone.range.first + 1);
	world->gone_why[gone.why]++;
}

static void begin(struct world *world)
{
	const uint8_t seed[32] = {1}, owner[32] = {2}, agent[32] = {3};
	struct ingest_options options = {.on_frame = on_frame,
					 .on_stranger = on_stranger,
					 .on_gone = on_gone,
					 .ctx = world};
	struct err err;

	*world = (struct world){0};
	world->crypto = crypto_create(seed, &err);
	ck_assert(keypair_create(world->crypto, owner, &world->owner, &err));
	ck_assert(keypair_create(world->crypto, agent, &world->agent, &err));
	world->auth.max = 1024;
	ck_assert(nipoa_sign(world->crypto, world->owner, keypair_public(world->agent),
			     SLICE(""), seed, &world->auth, &err));
	options.crypto = world->crypto;
	options.owner = world->owner;
	world->ingest = ingest_create(&options);
}

static void end(struct world *world)
{
	ingest_destroy(world->ingest);
	keypair_destroy(world->owner);
	keypair_destroy(world->agent);
	crypto_destroy(world->crypto);
	buf_finish(&world->auth);
}

/* A frame of @author to the owner; NULL auth leaves the tag out. */
static void make(struct world *world, const struct keypair *author, struct slice auth,
		 const char *direction, int64_t created_at, const char *plaintext,
		 struct buf *out)
{
	struct event_draft draft = {.created_at = created_at, .kind = FRAME_KIND};
	char owner[65] = "", agent[65] = "";
	struct buf tags = {.max = 2048};
	uint8_t key[32], nonce[32] = {0}, aux[32] = {0};
	struct err err;

	nonce[0] = world->serial++;
	hex_encode(keypair_public(world->owner), 32, owner);
	hex_encode(keypair_public(author), 32, agent);
	(void)buf_printf(&tags, "[[\"p\",\"%s\"],[\"agent\",\"%s\"],[\"frame\",\"%s\"]",
			 owner, agent, direction);
	if (auth.len) {
		(void)buf_lit(&tags, ",");
		(void)buf_append(&tags, auth);
	}
	(void)buf_lit(&tags, "]");
	draft.tags = buf_slice(&tags);
	out->max = EVENT_MAX_BYTES;
	ck_assert(nip44_conversation_key(world->crypto, author,
					 keypair_public(world->owner), key, &err));
	ck_assert_msg(event_seal(world->crypto, author, key, &draft, slice_of(plaintext),
				 nonce, aux, out, NULL, &err),
		      "%s", err.text);
	buf_finish(&tags);
}

static void give(struct world *world, struct buf *event)
{
	ingest_event(world->ingest, buf_slice(event), NOW);
	buf_finish(event);
}

static void write_plaintext(char out[512], const char *epoch, unsigned number,
			    bool replayed)
{
	char suffix[128] = "";

	if (epoch)
		(void)snprintf(suffix, sizeof(suffix), ",\"epoch\":\"%s\",\"frame\":%u%s",
			       epoch, number, replayed ? ",\"replayed\":true" : "");
	(void)snprintf(out, 512,
		       "{\"seq\":%u,\"timestamp\":\"2026-11-30T12:00:00.000Z\",\"kind\":"
		       "\"note\","
		       "\"agentIndex\":null,\"channelId\":null,\"sessionId\":null,"
		       "\"turnId\":null,"
		       "\"payload\":{}%s}",
		       number * 2, suffix);
}

static void frame_of(struct world *world, const char *epoch, unsigned number,
		     bool replayed, int64_t created_at)
{
	struct buf event = {0};
	char text[512];

	write_plaintext(text, epoch, number, replayed);
	make(world, world->agent, buf_slice(&world->auth), "telemetry", created_at, text,
	     &event);
	give(world, &event);
}

static void frame(struct world *world, const char *epoch, unsigned number, bool replayed)
{
	frame_of(world, epoch, number, replayed, NOW / 1000);
}

START_TEST(a_frame_of_an_attested_agent_is_taken_and_live)
{
	struct world world;

	begin(&world);
	frame(&world, EPOCH, 1, false);
	ck_assert_uint_eq(world.frames, 1);
	ck_assert_uint_eq(world.live, 1);
	end(&world);
}
END_TEST

START_TEST(a_frame_comes_out_once_however_often_it_is_sealed)
{
	struct world world;

	begin(&world);
	frame(&world, EPOCH, 1, false);
	frame(&world, EPOCH, 1, true);
	ck_assert_uint_eq(world.frames, 1);
	ck_assert_uint_eq(ingest_counts(world.ingest)->duplicates, 1);
	end(&world);
}
END_TEST

START_TEST(an_event_that_the_relay_repeats_comes_out_once)
{
	struct world world;
	struct buf event = {0}, copy = {.max = EVENT_MAX_BYTES};
	char text[512];

	begin(&world);
	write_plaintext(text, NULL, 1, false);
	make(&world, world.agent, buf_slice(&world.auth), "telemetry", NOW / 1000, text,
	     &event);
	(void)buf_append(&copy, buf_slice(&event));
	give(&world, &event);
	give(&world, &copy);
	ck_assert_uint_eq(world.frames, 1);
	end(&world);
}
END_TEST

START_TEST(replayed_old_and_overtaken_frames_are_history)
{
	struct world world;
	struct buf event = {0};
	char text[512];

	begin(&world);
	frame(&world, EPOCH_2, 5, false); /* live */
	frame(&world, EPOCH_2, 4, false); /* behind the newest */
	frame(&world, EPOCH_2, 6, true);  /* says so itself */
	frame(&world, EPOCH, 9, false);   /* an earlier start */
	write_plaintext(text, EPOCH_2, 7, false);
	make(&world, world.agent, buf_slice(&world.auth), "telemetry", NOW / 1000 - 301,
	     text, &event);
	give(&world, &event);
	ck_assert_uint_eq(world.frames, 5);
	ck_assert_uint_eq(world.live, 1);
	end(&world);
}
END_TEST

START_TEST(a_start_that_is_too_old_to_be_counted_is_history)
{
	struct world world;

	begin(&world);
	for (unsigned i = 0; i < INGEST_EPOCHS_MAX; i++) {
		char epoch[17];

		(void)snprintf(epoch, sizeof(epoch), "6a0000%02x0000000b", i + 1);
		frame(&world, epoch, 1, false);
	}
	ck_assert_uint_eq(world.live, INGEST_EPOCHS_MAX);
	frame(&world, "6a0000000000000a", 1, false);
	ck_assert_uint_eq(world.frames, INGEST_EPOCHS_MAX + 1);
	ck_assert_uint_eq(world.live, INGEST_EPOCHS_MAX);
	end(&world);
}
END_TEST

START_TEST(an_author_without_our_attestation_is_a_stranger)
{
	struct world world;
	struct buf event = {0};
	char text[512];

	begin(&world);
	write_plaintext(text, EPOCH, 1, false);
	make(&world, world.agent, SLICE_EMPTY, "telemetry", NOW / 1000, text, &event);
	give(&world, &event);
	ck_assert_uint_eq(world.frames, 0);
	ck_assert_uint_eq(world.strangers, 1);
	end(&world);
}
END_TEST

START_TEST(an_agent_that_was_attested_elsewhere_needs_no_tag)
{
	struct world world;

	begin(&world);
	world.attested_elsewhere = INT64_MAX;
	buf_clear(&world.auth);
	frame(&world, EPOCH, 1, false);
	frame(&world, EPOCH, 2, false);
	ck_assert_uint_eq(world.frames, 2);
	ck_assert_uint_eq(world.strangers, 1);
	end(&world);
}
END_TEST

START_TEST(an_attestation_that_has_expired_by_our_clock_is_none)
{
	struct world world;

	begin(&world);
	world.attested_elsewhere = NOW / 1000;
	buf_clear(&world.auth);
	frame(&world, EPOCH, 1, false);
	ck_assert_uint_eq(world.frames, 0);
	end(&world);
}
END_TEST

START_TEST(false_attestations_are_looked_at_a_bounded_number_of_times)
{
	struct world world;
	const uint8_t secret[32] = {9}, aux[32] = {0};
	struct keypair *other;
	struct buf wrong = {.max = 1024};
	struct err err;
	char text[512];

	begin(&world);
	/* Somebody else's agent: a true attestation, of another owner. */
	ck_assert(keypair_create(world.crypto, secret, &other, &err));
	ck_assert(nipoa_sign(world.crypto, other, keypair_public(world.agent), SLICE(""),
			     aux, &wrong, &err));
	write_plaintext(text, EPOCH, 1, false);
	for (unsigned i = 0; i < INGEST_CHECKS_BURST + 10; i++) {
		struct buf event = {0};

		make(&world, world.agent, buf_slice(&wrong), "telemetry", NOW / 1000,
		     text, &event);
		give(&world, &event);
	}
	ck_assert_uint_eq(ingest_counts(world.ingest)->strangers,
			  INGEST_CHECKS_BURST + 10);
	/* The allowance is used up: even the right one has to wait a second. */
	frame(&world, EPOCH, 1, false);
	ck_assert_uint_eq(world.frames, 0);
	keypair_destroy(other);
	buf_finish(&wrong);
	end(&world);
}
END_TEST

START_TEST(a_forged_signature_does_not_shut_the_true_frame_out)
{
	struct world world;
	struct buf event = {0}, forged = {.max = EVENT_MAX_BYTES};
	size_t sig;
	char text[512];

	begin(&world);
	write_plaintext(text, EPOCH, 1, false);
	make(&world, world.agent, buf_slice(&world.auth), "telemetry", NOW / 1000, text,
	     &event);
	(void)buf_append(&forged, buf_slice(&event));
	sig = slice_find_slice(buf_slice(&forged), SLICE("\"sig\":\"")) + 7;
	forged.ptr[sig] = forged.ptr[sig] == '0' ? '1' : '0';
	give(&world, &forged);
	ck_assert_uint_eq(world.frames, 0);
	ck_assert_uint_eq(ingest_counts(world.ingest)->forged, 1);
	give(&world, &event);
	ck_assert_uint_eq(world.frames, 1);
	end(&world);
}
END_TEST

START_TEST(only_telemetry_to_this_owner_is_read)
{
	struct world world;
	struct buf event = {0};
	char text[512];

	begin(&world);
	write_plaintext(text, EPOCH, 1, false);
	make(&world, world.agent, buf_slice(&world.auth), "control", NOW / 1000, text,
	     &event);
	give(&world, &event);
	make(&world, world.agent, buf_slice(&world.auth), "x", NOW / 1000, text, &event);
	give(&world, &event);
	ck_assert_uint_eq(world.frames, 0);
	ck_assert_uint_eq(ingest_counts(world.ingest)->malformed, 2);
	end(&world);
}
END_TEST

START_TEST(a_plaintext_that_is_no_frame_is_counted_and_dropped)
{
	struct world world;
	struct buf event = {0};

	begin(&world);
	make(&world, world.agent, buf_slice(&world.auth), "telemetry", NOW / 1000, "[1,2",
	     &event);
	give(&world, &event);
	ck_assert_uint_eq(world.frames, 0);
	ck_assert_uint_eq(ingest_counts(world.ingest)->malformed, 1);
	end(&world);
}
END_TEST

START_TEST(holes_are_wanted_when_they_have_settled)
{
	struct world world;
	struct control_want wants[4];
	const uint8_t *agent;

	begin(&world);
	agent = keypair_public(world.agent);
	frame(&world, EPOCH, 1, false);
	frame(&world, EPOCH, 5, false);
	ck_assert_uint_eq(ingest_missing(world.ingest, agent), 3);
	ck_assert_uint_eq(ingest_wants(world.ingest, agent, NOW, wants, 4), 0);
	ck_assert_uint_eq(
		ingest_wants(world.ingest, agent, NOW + INGEST_SETTLE_MS, wants, 4), 1);
	ck_assert_str_eq(wants[0].epoch, EPOCH);
	ck_assert_uint_eq(wants[0].range.first, 2);
	ck_assert_uint_eq(wants[0].range.last, 4);
	end(&world);
}
END_TEST

static void assert_wanted(const struct control_want *want, uint64_t first, uint64_t last)
{
	ck_assert_str_eq(want->epoch, EPOCH);
	ck_assert_uint_eq(want->range.first, first);
	ck_assert_uint_eq(want->range.last, last);
}

START_TEST(a_long_hole_is_wanted_in_pieces_the_newest_first)
{
	const uint64_t most = INGEST_PIECE_FRAMES;
	struct control_want wants[WANT_RANGES_MAX];
	const uint8_t *agent;
	struct world world;

	begin(&world);
	agent = keypair_public(world.agent);
	frame(&world, EPOCH, 3 * INGEST_PIECE_FRAMES + 1, false);
	ck_assert_uint_eq(ingest_wants(world.ingest, agent, NOW + INGEST_SETTLE_MS, wants,
				       WANT_RANGES_MAX),
			  3);
	assert_wanted(&wants[0], 2 * most + 1, 3 * most);
	assert_wanted(&wants[1], most + 1, 2 * most);
	assert_wanted(&wants[2], 1, most);
	end(&world);
}
END_TEST

START_TEST(what_is_more_than_one_ask_holds_is_all_in_the_last_piece)
{
	const uint64_t most = INGEST_PIECE_FRAMES;
	struct control_want wants[WANT_RANGES_MAX];
	const uint8_t *agent;
	struct world world;

	begin(&world);
	agent = keypair_public(world.agent);
	frame(&world, EPOCH, 28801, false); /* eight hours */
	ck_assert_uint_eq(ingest_wants(world.ingest, agent, NOW + INGEST_SETTLE_MS, wants,
				       WANT_RANGES_MAX),
			  WANT_RANGES_MAX);
	assert_wanted(&wants[0], 28800 - most + 1, 28800);
	assert_wanted(&wants[WANT_RANGES_MAX - 1], 1,
		      28800 - (WANT_RANGES_MAX - 1) * most);
	end(&world);
}
END_TEST

START_TEST(what_the_harness_no_longer_keeps_is_gone)
{
	struct world world;
	const uint8_t *agent;

	begin(&world);
	agent = keypair_public(world.agent);
	frame(&world, EPOCH, 3, false);   /* 1, 2 missing; the epoch is not named below */
	frame(&world, EPOCH_2, 9, false); /* 1 to 8 missing */
	ingest_feed_state(
		world.ingest, agent,
		SLICE("{\"epochs\":[{\"epoch\":\"" EPOCH_2 "\",\"first\":5,\"last\":12}],"
		      "\"gone\":[{\"epoch\":\"" EPOCH_2 "\",\"frames\":[[6,6]]}]}"),
		NOW);
	ck_assert_uint_eq(world.gone, 2 + 4 + 1);
	/* 5, 7, 8 and, as it says, 10 to 12 may still come. */
	ck_assert_uint_eq(ingest_missing(world.ingest, agent), 6);
	end(&world);
}
END_TEST

START_TEST(why_frames_are_gone_is_told_for_each_range)
{
	struct world world;
	const uint8_t *agent;

	begin(&world);
	agent = keypair_public(world.agent);
	frame(&world, EPOCH, 3, false);
	frame(&world, EPOCH_2, 9, false);
	ingest_feed_state(
		world.ingest, agent,
		SLICE("{\"epochs\":[{\"epoch\":\"" EPOCH_2
		      "\",\"first\":5,\"last\":12,\"why\":\"retention\"}],"
		      "\"gone\":[{\"epoch\":\"" EPOCH_2
		      "\",\"frames\":[[6,6]],\"why\":\"disk\"},{\"epoch\":\"" EPOCH_2
		      "\",\"frames\":[[8,8]],\"why\":\"of a later version\"}],"
		      "\"others\":\"no_journal\"}"),
		NOW);
	ck_assert_uint_eq(world.gone, 4 + 1 + 1 + 2);
	ck_assert_uint_eq(world.gone_why[GONE_RETENTION], 1);
	ck_assert_uint_eq(world.gone_why[GONE_DISK], 1);
	ck_assert_uint_eq(world.gone_why[GONE_UNKNOWN], 1);
	ck_assert_uint_eq(world.gone_why[GONE_NO_JOURNAL], 1);
	end(&world);
}
END_TEST

START_TEST(a_harness_that_cannot_read_its_journal_says_nothing_of_other_epochs)
{
	struct world world;
	const uint8_t *agent;

	begin(&world);
	agent = keypair_public(world.agent);
	frame(&world, EPOCH, 3, false);
	frame(&world, EPOCH_2, 3, false);
	ingest_feed_state(world.ingest, agent,
			  SLICE("{\"epochs\":[{\"epoch\":\"" EPOCH_2
				"\",\"first\":2,\"last\":3,\"why\":\"disk\"}],\"gone\":[]"
				",\"partial\":true}"),
			  NOW);
	ck_assert_uint_eq(world.gone, 1);
	ck_assert_uint_eq(ingest_missing(world.ingest, agent), 2 + 1);
	end(&world);
}
END_TEST

/* ---- complete through ---- */

#define S (NOW / 1000)

static void state(struct world *world, const char *epochs, const char *rest)
{
	struct buf text = {.max = 4096};

	(void)buf_printf(&text, "{\"epochs\":[%s],\"gone\":[]%s}", epochs, rest);
	ingest_feed_state(world->ingest, keypair_public(world->agent), buf_slice(&text),
			  NOW);
	buf_finish(&text);
}

#define OF(epoch, first, last) \
	"{\"epoch\":\"" epoch "\",\"first\":" first ",\"last\":" last "}"

/* Seconds before now; -1: nothing is claimed. */
static int64_t complete(const struct world *world)
{
	const int64_t ms =
		ingest_complete_ms(world->ingest, keypair_public(world->agent));

	return ms ? S - ms / 1000 : -1;
}

START_TEST(nothing_is_complete_before_the_harness_told_what_there_is)
{
	struct world world;

	begin(&world);
	ck_assert_int_eq(complete(&world), -1);
	frame_of(&world, EPOCH, 1, false, S - 9);
	ck_assert_int_eq(complete(&world), -1);
	state(&world, OF(EPOCH, "1", "1"), "");
	ck_assert_int_eq(complete(&world), 9);
	frame_of(&world, EPOCH, 2, false, S - 8);
	ck_assert_int_eq(complete(&world), 8);
	end(&world);
}
END_TEST

START_TEST(a_hole_holds_it_and_what_fills_the_hole_lets_it_go_on)
{
	struct world world;

	begin(&world);
	frame_of(&world, EPOCH, 1, false, S - 9);
	state(&world, OF(EPOCH, "1", "1"), "");
	frame_of(&world, EPOCH, 4, false, S - 6);
	ck_assert_int_eq(complete(&world), 9);
	frame_of(&world, EPOCH, 3, true, S - 5);
	ck_assert_int_eq(complete(&world), 9);
	frame_of(&world, EPOCH, 2, true, S - 4);
	/* Frames that were replayed say nothing of what was sent since the fourth. */
	ck_assert_int_eq(complete(&world), 6);
	end(&world);
}
END_TEST

START_TEST(a_lost_tail_holds_it_once_it_is_told)
{
	struct world world;

	begin(&world);
	frame_of(&world, EPOCH, 1, false, S - 9);
	state(&world, OF(EPOCH, "1", "3"), "");
	ck_assert_int_eq(complete(&world), -1);
	frame_of(&world, EPOCH, 4, false, S - 5);
	ck_assert_int_eq(complete(&world), -1);
	frame_of(&world, EPOCH, 2, true, S - 4);
	frame_of(&world, EPOCH, 3, true, S - 4);
	ck_assert_int_eq(complete(&world), 5);
	end(&world);
}
END_TEST

START_TEST(a_new_start_holds_it_until_it_told_how_the_one_before_ended)
{
	struct world world;

	begin(&world);
	frame_of(&world, EPOCH, 1, false, S - 9);
	state(&world, OF(EPOCH, "1", "1"), "");
	frame_of(&world, EPOCH_2, 1, false, S - 7);
	frame_of(&world, EPOCH_2, 2, false, S - 6);
	ck_assert_int_eq(complete(&world), 9);
	state(&world, OF(EPOCH, "1", "2") "," OF(EPOCH_2, "1", "2"), "");
	ck_assert_int_eq(complete(&world), 9);
	frame_of(&world, EPOCH, 2, true, S - 5);
	ck_assert_int_eq(complete(&world), 6);
	/* What the older one still says is not the live end. */
	frame_of(&world, EPOCH, 3, false, S - 4);
	ck_assert_int_eq(complete(&world), 6);
	end(&world);
}
END_TEST

START_TEST(what_is_gone_for_good_is_counted_and_holds_nothing)
{
	struct world world;

	begin(&world);
	frame_of(&world, EPOCH, 5, false, S - 9);
	state(&world, OF(EPOCH, "4", "5"), "");
	ck_assert_int_eq(complete(&world), -1); /* 4 may come */
	frame_of(&world, EPOCH, 4, true, S - 8);
	ck_assert_int_eq(complete(&world), 9);
	ck_assert_uint_eq(ingest_gone_frames(world.ingest, keypair_public(world.agent)),
			  3);
	end(&world);
}
END_TEST

START_TEST(a_harness_that_cannot_read_its_journal_lets_nothing_be_claimed)
{
	struct world world;

	begin(&world);
	frame_of(&world, EPOCH, 1, false, S - 9);
	state(&world, OF(EPOCH, "1", "1"), ",\"partial\":true");
	ck_assert_int_eq(complete(&world), -1);
	state(&world, OF(EPOCH, "1", "1"), "");
	ck_assert_int_eq(complete(&world), 9);
	end(&world);
}
END_TEST

START_TEST(a_foreign_feed_claims_nothing)
{
	struct world world;

	begin(&world);
	frame_of(&world, NULL, 0, false, S - 9);
	state(&world, "", "");
	ck_assert_int_eq(complete(&world), -1);
	end(&world);
}
END_TEST

START_TEST(a_clock_that_is_ahead_makes_nothing_complete_in_our_future)
{
	struct world world;

	begin(&world);
	frame_of(&world, EPOCH, 1, false, S + 200);
	state(&world, OF(EPOCH, "1", "1"), "");
	ck_assert_int_eq(complete(&world), 0);
	end(&world);
}
END_TEST

START_TEST(after_a_restart_what_the_archive_has_is_no_claim_by_itself)
{
	struct world world;
	const uint8_t *agent;

	begin(&world);
	agent = keypair_public(world.agent);
	(void)ingest_known(world.ingest, agent, EPOCH, 1);
	(void)ingest_known(world.ingest, agent, EPOCH, 2);
	frame_of(&world, EPOCH, 3, false, S - 5);
	ck_assert_int_eq(complete(&world), -1);
	state(&world, OF(EPOCH, "1", "3"), "");
	ck_assert_int_eq(complete(&world), 5);
	end(&world);
}
END_TEST

START_TEST(a_frame_that_was_given_up_and_comes_is_taken)
{
	struct world world;
	const uint8_t *agent;

	begin(&world);
	agent = keypair_public(world.agent);
	frame(&world, EPOCH, 5, false);
	ingest_feed_state(world.ingest, agent,
			  SLICE("{\"epochs\":[{\"epoch\":\"" EPOCH
				"\",\"first\":5,\"last\":5}],\"gone\":[]}"),
			  NOW);
	ck_assert_uint_eq(ingest_gone(world.ingest, agent), 1);
	frame(&world, EPOCH, 2, true);
	ck_assert_uint_eq(world.frames, 2);
	ck_assert_uint_eq(ingest_gone(world.ingest, agent), 2); /* 1, and 3 to 4 */
	frame(&world, EPOCH, 2, true);
	ck_assert_uint_eq(world.frames, 2);
	end(&world);
}
END_TEST

START_TEST(what_the_archive_holds_is_not_taken_again)
{
	struct world world;

	begin(&world);
	ingest_known(world.ingest, keypair_public(world.agent), EPOCH, 1);
	frame(&world, EPOCH, 1, false);
	ck_assert_uint_eq(world.frames, 0);
	frame(&world, EPOCH, 2, false);
	ck_assert_uint_eq(world.frames, 1);
	end(&world);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ingest");
	TCase *tcase = tcase_create("frames");

	tcase_add_test(tcase, a_frame_of_an_attested_agent_is_taken_and_live);
	tcase_add_test(tcase, a_frame_comes_out_once_however_often_it_is_sealed);
	tcase_add_test(tcase, an_event_that_the_relay_repeats_comes_out_once);
	tcase_add_test(tcase, replayed_old_and_overtaken_frames_are_history);
	tcase_add_test(tcase, a_start_that_is_too_old_to_be_counted_is_history);
	tcase_add_test(tcase, an_author_without_our_attestation_is_a_stranger);
	tcase_add_test(tcase, an_agent_that_was_attested_elsewhere_needs_no_tag);
	tcase_add_test(tcase, an_attestation_that_has_expired_by_our_clock_is_none);
	tcase_add_test(tcase, false_attestations_are_looked_at_a_bounded_number_of_times);
	tcase_add_test(tcase, a_forged_signature_does_not_shut_the_true_frame_out);
	tcase_add_test(tcase, only_telemetry_to_this_owner_is_read);
	tcase_add_test(tcase, a_plaintext_that_is_no_frame_is_counted_and_dropped);
	tcase_add_test(tcase, holes_are_wanted_when_they_have_settled);
	tcase_add_test(tcase, a_long_hole_is_wanted_in_pieces_the_newest_first);
	tcase_add_test(tcase, what_is_more_than_one_ask_holds_is_all_in_the_last_piece);
	tcase_add_test(tcase, what_the_harness_no_longer_keeps_is_gone);
	tcase_add_test(tcase, why_frames_are_gone_is_told_for_each_range);
	tcase_add_test(
		tcase,
		a_harness_that_cannot_read_its_journal_says_nothing_of_other_epochs);
	tcase_add_test(tcase, a_frame_that_was_given_up_and_comes_is_taken);
	tcase_add_test(tcase, nothing_is_complete_before_the_harness_told_what_there_is);
	tcase_add_test(tcase, a_hole_holds_it_and_what_fills_the_hole_lets_it_go_on);
	tcase_add_test(tcase, a_lost_tail_holds_it_once_it_is_told);
	tcase_add_test(tcase,
		       a_new_start_holds_it_until_it_told_how_the_one_before_ended);
	tcase_add_test(tcase, what_is_gone_for_good_is_counted_and_holds_nothing);
	tcase_add_test(tcase,
		       a_harness_that_cannot_read_its_journal_lets_nothing_be_claimed);
	tcase_add_test(tcase, a_foreign_feed_claims_nothing);
	tcase_add_test(tcase, a_clock_that_is_ahead_makes_nothing_complete_in_our_future);
	tcase_add_test(tcase, after_a_restart_what_the_archive_has_is_no_claim_by_itself);
	tcase_add_test(tcase, what_the_archive_holds_is_not_taken_again);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
