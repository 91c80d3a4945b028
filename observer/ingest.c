#include "observer/ingest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "observer/acp.h"
#include "wire/base/arena.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/nostr/event.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"
#include "wire/nostr/nipoa.h"

#define IDS_REMEMBERED \
	4096         /* event ids of all agents: repeats of the relay; our choice */
#define MARKS_MAX 64 /* places of holes that we remember per epoch */
#define GAPS_MAX 256 /* holes shown of one agent */

/* Where a hole shows: before frame @number, whose first event has @seq. */
struct mark {
	uint64_t number, seq;
};

struct epoch {
	char name[17];
	struct missing missing;
	struct mark marks[MARKS_MAX];
	size_t next_mark;
	int64_t hole_ms; /* when the newest hole appeared; 0: none since the start */
};

struct author {
	uint8_t key[KEY_BYTES];
	int64_t attested_until; /* Unix seconds; 0: not attested */
	bool has_conversation;
	uint8_t conversation[32];
	bool foreign;          /* its newest frame had no epoch */
	bool epochs_are_known; /* a feed_state of the newest told of all of them */
	int64_t told_ms;       /* when the newest live frame was made; Unix ms */
	int64_t complete_ms;
	struct epoch *epochs[INGEST_EPOCHS_MAX]; /* ascending */
	size_t epoch_count;
};

struct ingest {
	struct ingest_options options;
	uint8_t owner_hex[2 * KEY_BYTES];
	struct map authors;
	struct arena arena;
	struct buf scratch, payload, plaintext;
	struct ingest_counts counts;
	uint8_t ids[IDS_REMEMBERED][32];
	size_t next_id;
	struct map seen_ids; /* of ids[] */
	int64_t checks_ms;   /* when the allowance of checks was last counted */
	double checks;       /* failed checks that are left */
	int64_t stranger_ms;
};

struct ingest *ingest_create(const struct ingest_options *options)
{
	struct ingest *ingest = mem_alloc(sizeof(*ingest));

	ingest->options = *options;
	hex_encode(keypair_public(options->owner), KEY_BYTES, (char *)ingest->owner_hex);
	map_init(&ingest->authors);
	map_init(&ingest->seen_ids);
	arena_init(&ingest->arena, 1u << 16);
	ingest->scratch.max = ingest->payload.max = EVENT_MAX_BYTES * 2;
	ingest->plaintext.max = NIP44_PLAINTEXT_MAX + 1;
	ingest->checks = INGEST_CHECKS_BURST;
	return ingest;
}

static void author_destroy(struct author *author)
{
	for (size_t i = 0; i < author->epoch_count; i++) {
		missing_finish(&author->epochs[i]->missing);
		free(author->epochs[i]);
	}
	sodium_memzero(author->conversation, sizeof(author->conversation));
	free(author);
}

void ingest_destroy(struct ingest *ingest)
{
	struct map_entry *entry = NULL;

	if (!ingest)
		return;
	while ((entry = map_next(&ingest->authors, entry)) != NULL)
		author_destroy(entry->value);
	map_finish(&ingest->authors);
	map_finish(&ingest->seen_ids);
	arena_finish(&ingest->arena);
	buf_finish(&ingest->scratch);
	buf_finish(&ingest->payload);
	buf_wipe(&ingest->plaintext);
	free(ingest);
}

const struct ingest_counts *ingest_counts(const struct ingest *ingest)
{
	return &ingest->counts;
}

static struct slice key_slice(const uint8_t *key)
{
	return (struct slice){(const char *)key, KEY_BYTES};
}

static struct author *author_find(const struct ingest *ingest, const uint8_t *key)
{
	return map_get(&ingest->authors, key_slice(key));
}

static struct author *author_ensure(struct ingest *ingest, const uint8_t *key)
{
	struct author *author = author_find(ingest, key);

	if (author || ingest->authors.count >= INGEST_AGENTS_MAX)
		return author;
	author = mem_alloc(sizeof(*author));
	memcpy(author->key, key, KEY_BYTES);
	(void)map_put(&ingest->authors, key_slice(key), author);
	return author;
}

static struct epoch *epoch_find(const struct author *author, const char *name)
{
	for (size_t i = 0; i < author->epoch_count; i++)
		if (strcmp(author->epochs[i]->name, name) == 0)
			return author->epochs[i];
	return NULL;
}

static struct epoch *epoch_ensure(struct author *author, const char *name)
{
	struct epoch *epoch = epoch_find(author, name);
	size_t at = 0;

	if (epoch)
		return epoch;
	while (at < author->epoch_count && strcmp(author->epochs[at]->name, name) < 0)
		at++;
	if (author->epoch_count == INGEST_EPOCHS_MAX) {
		if (!at)
			return NULL; /* older than all that we keep count of */
		missing_finish(&author->epochs[0]->missing);
		free(author->epochs[0]);
		memmove(author->epochs, author->epochs + 1,
			(INGEST_EPOCHS_MAX - 1) * sizeof(struct epoch *));
		author->epoch_count--;
		at--;
	}
	epoch = mem_alloc(sizeof(*epoch));
	memcpy(epoch->name, name, strlen(name) + 1);
	memmove(author->epochs + at + 1, author->epochs + at,
		(author->epoch_count - at) * sizeof(struct epoch *));
	author->epochs[at] = epoch;
	author->epoch_count++;
	return epoch;
}

bool ingest_known(struct ingest *ingest, const uint8_t *agent, const char *epoch,
		  uint64_t number)
{
	struct author *author = author_ensure(ingest, agent);
	struct epoch *at = author && *epoch ? epoch_ensure(author, epoch) : NULL;

	return at && missing_add(&at->missing, number) == MISSING_NEW;
}

void ingest_known_gone(struct ingest *ingest, const uint8_t *agent, const char *epoch,
		       struct gone_range gone)
{
	struct author *author = author_ensure(ingest, agent);
	struct epoch *at = author && *epoch ? epoch_ensure(author, epoch) : NULL;

	if (!at)
		return;
	missing_extend(&at->missing, gone.range.last);
	missing_give_up(&at->missing, gone);
}

void ingest_known_range(struct ingest *ingest, const uint8_t *agent, const char *epoch,
			struct frame_range range)
{
	struct author *author = author_ensure(ingest, agent);
	struct epoch *at = author && *epoch ? epoch_ensure(author, epoch) : NULL;

	if (at)
		missing_forget(&at->missing, range);
}

/* ---- one event ---- */

/* Telemetry to us: one p (the owner), one agent (the author), frame=telemetry. */
static bool shape_is_ours(const struct ingest *ingest, const struct event *event)
{
	const struct slice owner = {(const char *)ingest->owner_hex, 2 * KEY_BYTES};
	char author[2 * KEY_BYTES];

	hex_encode(event->pubkey, KEY_BYTES, author);
	return event->kind == FRAME_KIND && event_tag_count(event, SLICE("p")) == 1 &&
	       event_tag_count(event, SLICE("agent")) == 1 &&
	       event_tag_count(event, SLICE("frame")) == 1 &&
	       slice_eq(tag_value(event_tag(event, SLICE("p"))), owner) &&
	       slice_eq(tag_value(event_tag(event, SLICE("agent"))),
			(struct slice){author, sizeof(author)}) &&
	       slice_eq(tag_value(event_tag(event, SLICE("frame"))), SLICE("telemetry"));
}

static bool id_was_seen(const struct ingest *ingest, const uint8_t id[32])
{
	return map_get(&ingest->seen_ids, (struct slice){(const char *)id, 32}) != NULL;
}

/* Only of verified events: a forger must not make us deaf to the real one. */
static void remember_id(struct ingest *ingest, const uint8_t id[32])
{
	uint8_t *slot = ingest->ids[ingest->next_id];

	(void)map_take(&ingest->seen_ids, (struct slice){(const char *)slot, 32});
	memcpy(slot, id, 32);
	(void)map_put(&ingest->seen_ids, (struct slice){(const char *)slot, 32}, ingest);
	ingest->next_id = (ingest->next_id + 1) % IDS_REMEMBERED;
}

static bool may_check(struct ingest *ingest, int64_t now_ms)
{
	if (now_ms > ingest->checks_ms) {
		ingest->checks += (double)(now_ms - ingest->checks_ms) / 1000;
		if (ingest->checks > INGEST_CHECKS_BURST)
			ingest->checks = INGEST_CHECKS_BURST;
		ingest->checks_ms = now_ms;
	}
	return ingest->checks >= 1;
}

/* Asks about an author without a tag of ours; NULL when it stays a stranger. */
static struct author *stranger(struct ingest *ingest, const uint8_t *key, int64_t now_ms)
{
	struct author *author = NULL;
	int64_t until = 0;

	if (now_ms - ingest->stranger_ms >= 1000) {
		ingest->stranger_ms = now_ms;
		until = ingest->options.on_stranger(ingest->options.ctx, key);
	}
	if (until > now_ms / 1000)
		author = author_ensure(ingest, key);
	if (author)
		author->attested_until = until;
	else
		ingest->counts.strangers++;
	return author;
}

/* The author, if this owner attested it; else NULL, at a bounded cost. */
static struct author *known_author(struct ingest *ingest, const struct event *event,
				   int64_t now_ms)
{
	struct author *author = author_find(ingest, event->pubkey);
	uint8_t owner[KEY_BYTES];
	int64_t expires;

	if (author && author->attested_until > now_ms / 1000)
		return author;
	if (event_tag(event, SLICE("auth")) && may_check(ingest, now_ms)) {
		if (nipoa_check(ingest->options.crypto, event, owner, &expires, NULL) &&
		    memcmp(owner, keypair_public(ingest->options.owner), KEY_BYTES) ==
			    0 &&
		    expires > now_ms / 1000) {
			author = author_ensure(ingest, event->pubkey);
			if (author)
				author->attested_until = expires;
			return author;
		}
		ingest->checks -= 1;
	}
	return stranger(ingest, event->pubkey, now_ms);
}

static bool conversation_key(struct ingest *ingest, struct author *author)
{
	if (!author->has_conversation)
		author->has_conversation = nip44_conversation_key(
			ingest->options.crypto, ingest->options.owner, author->key,
			author->conversation, NULL);
	return author->has_conversation;
}

bool ingest_conversation_key(struct ingest *ingest, const uint8_t *agent, uint8_t out[32])
{
	struct author *author = author_ensure(ingest, agent);

	if (!author || !conversation_key(ingest, author))
		return false;
	memcpy(out, author->conversation, 32);
	return true;
}

/* Into ingest->plaintext. */
static bool open_content(struct ingest *ingest, struct author *author,
			 const struct event *event)
{
	struct slice payload = event->content;

	if (!json_is_plain(payload)) {
		buf_clear(&ingest->payload);
		if (!json_unescape(payload, &ingest->payload))
			return false;
		payload = buf_slice(&ingest->payload);
	}
	buf_clear(&ingest->plaintext);
	return conversation_key(ingest, author) &&
	       nip44_decrypt(ingest->options.crypto, author->conversation, payload,
			     &ingest->plaintext, NULL);
}

/* Those that were given up since @before of them had been. */
static void tell_gone(struct ingest *ingest, const struct author *author,
		      const struct epoch *epoch, uint64_t before)
{
	const struct missing *missing = &epoch->missing;
	uint64_t count = missing->given_up - before;

	if (count > missing->gone_count)
		count = missing->gone_count;
	for (size_t i = missing->gone_count - (size_t)count; i < missing->gone_count; i++)
		ingest->options.on_gone(ingest->options.ctx, author->key, epoch->name,
					missing->gone[i]);
}

static uint64_t missing_of(const struct author *author)
{
	uint64_t count = 0;

	for (size_t i = 0; i < author->epoch_count; i++)
		count += missing_count(&author->epochs[i]->missing);
	return count;
}

static void judge_completeness(struct author *author)
{
	if (author->epochs_are_known && author->told_ms > author->complete_ms &&
	    !missing_of(author))
		author->complete_ms = author->told_ms;
}

/* A live frame of the newest epoch: what was sent before it has a lower number. */
static void note_live(struct author *author, const struct frame *frame, int64_t made_ms)
{
	const struct epoch *newest = author->epochs[author->epoch_count - 1];

	if (!frame->replayed && strcmp(frame->epoch, newest->name) == 0 &&
	    frame->number == newest->missing.last && made_ms > author->told_ms)
		author->told_ms = made_ms;
	judge_completeness(author);
}

/* Is this number new, and does it come at the live end? */
static bool take_number(struct ingest *ingest, struct author *author,
			const struct frame *frame, int64_t now_ms, bool *newest)
{
	const bool newest_epoch =
		!author->epoch_count ||
		strcmp(frame->epoch, author->epochs[author->epoch_count - 1]->name) >= 0;
	struct epoch *epoch = epoch_ensure(author, frame->epoch);
	const uint64_t last = epoch ? epoch->missing.last : 0;
	uint64_t gone_before;

	if (!epoch) { /* too old to keep count of: its events dedupe by place */
		*newest = false;
		return true;
	}
	gone_before = epoch->missing.given_up;
	if (missing_add(&epoch->missing, frame->number) != MISSING_NEW)
		return false;
	ingest->counts.filled += frame->number <= last;
	*newest = newest_epoch && frame->number > last;
	if (newest_epoch && !last) /* a start that we had not heard of */
		author->epochs_are_known = false;
	if (frame->number > last + 1) {
		epoch->hole_ms = now_ms;
		epoch->marks[epoch->next_mark] =
			(struct mark){frame->number, frame->events[0].seq};
		epoch->next_mark = (epoch->next_mark + 1) % MARKS_MAX;
	}
	tell_gone(ingest, author, epoch, gone_before);
	return true;
}

static void take_frame(struct ingest *ingest, struct author *author,
		       const struct event *event, int64_t now_ms)
{
	const int64_t age_s = now_ms / 1000 - event->created_at;
	struct ingest_frame out = {.agent = author->key};
	struct frame frame;
	bool newest = true;

	if (!open_content(ingest, author, event) ||
	    !frame_parse(buf_slice(&ingest->plaintext), &ingest->arena, &frame, NULL) ||
	    !frame.event_count) {
		ingest->counts.malformed++;
		return;
	}
	author->foreign = !frame.has_epoch;
	if (frame.has_epoch && !take_number(ingest, author, &frame, now_ms, &newest)) {
		ingest->counts.duplicates++;
		return;
	}
	ingest->counts.frames++;
	ingest->counts.events += frame.event_count;
	ingest->counts.replayed += frame.replayed;
	out.frame = &frame;
	out.plaintext = buf_slice(&ingest->plaintext);
	out.created_ms = event->created_at * 1000;
	if (frame.has_epoch && author->epoch_count)
		note_live(author, &frame,
			  out.created_ms < now_ms ? out.created_ms : now_ms);
	out.live = newest && !frame.replayed && age_s <= FRAME_FRESH_S;
	ingest->counts.live += out.live;
	if (age_s > FRAME_FRESH_S)
		ingest->counts.stale++;
	ingest->options.on_frame(ingest->options.ctx, &out);
}

void ingest_event(struct ingest *ingest, struct slice text, int64_t now_ms)
{
	struct author *author;
	struct event event;

	arena_reset(&ingest->arena);
	if (!event_parse(text, &ingest->arena, &event, NULL) ||
	    !shape_is_ours(ingest, &event)) {
		ingest->counts.malformed++;
		return;
	}
	if (id_was_seen(ingest, event.id)) {
		ingest->counts.duplicates++;
		return;
	}
	author = known_author(ingest, &event, now_ms);
	if (!author)
		return;
	if (!event_verify(ingest->options.crypto, &event, &ingest->scratch, NULL) ||
	    event.created_at - now_ms / 1000 > FRAME_FRESH_S) {
		ingest->counts.forged++;
		return;
	}
	remember_id(ingest, event.id);
	take_frame(ingest, author, &event, now_ms);
	/* Decrypted payloads do not stay in memory that we no longer need. */
	if (ingest->plaintext.len)
		sodium_memzero(ingest->plaintext.ptr, ingest->plaintext.len);
}

/* ---- what is missing ---- */

static bool epoch_of(struct slice item, char out[17])
{
	const struct slice raw = acp_get_string(item, "epoch");
	uint8_t bytes[8];

	if (!hex_decode(raw, bytes, sizeof(bytes)))
		return false;
	(void)snprintf(out, 17, "%.16s", raw.ptr);
	return true;
}

static void give_up(struct ingest *ingest, struct author *author, struct epoch *epoch,
		    struct gone_range gone)
{
	const uint64_t before = epoch->missing.given_up;

	missing_give_up(&epoch->missing, gone);
	tell_gone(ingest, author, epoch, before);
}

/* What was complete is so no more. */
static void take_out(struct ingest *ingest, struct author *author, struct epoch *epoch,
		     struct frame_range range, int64_t now_ms)
{
	const uint64_t before = epoch->missing.given_up;

	missing_take_out(&epoch->missing, range);
	tell_gone(ingest, author, epoch, before);
	epoch->hole_ms = now_ms;
	author->complete_ms = 0;
}

void ingest_unknown(struct ingest *ingest, const uint8_t *agent, const char *epoch,
		    struct frame_range range, int64_t now_ms)
{
	struct author *author = author_find(ingest, agent);
	struct epoch *at = author ? epoch_find(author, epoch) : NULL;

	if (at)
		take_out(ingest, author, at, range, now_ms);
}

void ingest_unknown_all(struct ingest *ingest, int64_t now_ms)
{
	const struct map_entry *entry = NULL;

	while ((entry = map_next(&ingest->authors, entry)) != NULL) {
		struct author *author = entry->value;

		for (size_t i = 0; i < author->epoch_count; i++)
			take_out(ingest, author, author->epochs[i],
				 (struct frame_range){1, FRAME_NUMBER_MAX}, now_ms);
	}
}

static enum gone_why why_of(struct slice object, const char *name)
{
	return gone_why_parse(acp_get_string(object, name));
}

static void apply_gone(struct ingest *ingest, struct author *author, struct slice payload)
{
	struct slice rest = acp_get(payload, "gone"), item;
	char name[17];

	while (acp_next(&rest, &item)) {
		struct slice ranges = acp_get(item, "frames"), range;
		struct epoch *epoch =
			epoch_of(item, name) ? epoch_find(author, name) : NULL;

		while (epoch && acp_next(&ranges, &range)) {
			struct slice numbers = range, first, last;
			struct gone_range gone = {.why = why_of(item, "why")};

			if (acp_next(&numbers, &first) && acp_next(&numbers, &last) &&
			    slice_parse_u64(first, FRAME_NUMBER_MAX, &gone.range.first) &&
			    slice_parse_u64(last, FRAME_NUMBER_MAX, &gone.range.last))
				give_up(ingest, author, epoch, gone);
		}
	}
}

void ingest_feed_state(struct ingest *ingest, const uint8_t *agent, struct slice payload,
		       int64_t now_ms)
{
	struct author *author = author_find(ingest, agent);
	struct slice rest = acp_get(payload, "epochs"), item;
	bool kept[INGEST_EPOCHS_MAX] = {false};
	char name[17];

	if (!author || !acp_is_array(rest))
		return;
	while (acp_next(&rest, &item)) {
		const int64_t first = acp_get_int(item, "first", 1);
		const int64_t last = acp_get_int(item, "last", 0);
		struct epoch *epoch =
			epoch_of(item, name) ? epoch_ensure(author, name) : NULL;

		if (!epoch)
			continue;
		if ((uint64_t)last > epoch->missing.last)
			epoch->hole_ms = now_ms;
		missing_extend(&epoch->missing, (uint64_t)last);
		if (first > 1)
			give_up(ingest, author, epoch,
				(struct gone_range){{1, (uint64_t)first - 1},
						    why_of(item, "why")});
	}
	apply_gone(ingest, author, payload);
	/* An epoch that is not named is kept nowhere any more, unless that cannot be
	 * known yet. */
	if (acp_is_true(acp_get(payload, "partial")))
		return;
	rest = acp_get(payload, "epochs");
	while (acp_next(&rest, &item))
		for (size_t i = 0; epoch_of(item, name) && i < author->epoch_count; i++)
			kept[i] = kept[i] || strcmp(author->epochs[i]->name, name) == 0;
	for (size_t i = 0; i < author->epoch_count; i++)
		if (!kept[i])
			give_up(ingest, author, author->epochs[i],
				(struct gone_range){{1, FRAME_NUMBER_MAX},
						    why_of(payload, "others")});
	author->epochs_are_known = true;
	judge_completeness(author);
}

/* One hole in pieces, the newest first; returns how many, at most @max. */
static size_t cut_hole(struct frame_range hole, const char *epoch,
		       struct control_want *out, size_t max)
{
	size_t count = 0;

	while (count < max && hole.first <= hole.last) {
		struct control_want *want = &out[count++];

		want->range = hole;
		if (count < max && hole.last - hole.first >= INGEST_PIECE_FRAMES)
			want->range.first = hole.last - INGEST_PIECE_FRAMES + 1;
		memcpy(want->epoch, epoch, sizeof(want->epoch));
		hole.last = want->range.first - 1;
	}
	return count;
}

size_t ingest_wants(const struct ingest *ingest, const uint8_t *agent, int64_t now_ms,
		    struct control_want *out, size_t max)
{
	const struct author *author = author_find(ingest, agent);
	struct frame_range holes[WANT_RANGES_MAX];
	size_t count = 0;

	for (size_t i = author ? author->epoch_count : 0; i-- > 0 && count < max;) {
		const struct epoch *epoch = author->epochs[i];
		size_t found;

		if (now_ms - epoch->hole_ms < INGEST_SETTLE_MS)
			continue;
		found = missing_holes(&epoch->missing, holes,
				      max - count < WANT_RANGES_MAX ? max - count
								    : WANT_RANGES_MAX);
		for (size_t k = 0; k < found && count < max; k++)
			count +=
				cut_hole(holes[k], epoch->name, out + count, max - count);
	}
	return count;
}

uint64_t ingest_missing(const struct ingest *ingest, const uint8_t *agent)
{
	const struct author *author = author_find(ingest, agent);

	return author ? missing_of(author) : 0;
}

int64_t ingest_complete_ms(const struct ingest *ingest, const uint8_t *agent)
{
	const struct author *author = author_find(ingest, agent);

	return author && !author->foreign ? author->complete_ms : 0;
}

uint64_t ingest_gone_frames(const struct ingest *ingest, const uint8_t *agent)
{
	const struct author *author = author_find(ingest, agent);
	uint64_t count = 0;

	for (size_t i = 0; author && i < author->epoch_count; i++) {
		const struct missing *missing = &author->epochs[i]->missing;

		count += missing->gone_unlisted;
		for (size_t k = 0; k < missing->gone_count; k++)
			count += missing->gone[k].range.last -
				 missing->gone[k].range.first + 1;
	}
	return count;
}

size_t ingest_gone(const struct ingest *ingest, const uint8_t *agent)
{
	const struct author *author = author_find(ingest, agent);
	size_t count = 0;

	for (size_t i = 0; author && i < author->epoch_count; i++)
		count += author->epochs[i]->missing.gone_count;
	return count;
}

/* The place of a hole: before the frame that follows it. */
static uint64_t hole_seq(const struct epoch *epoch, struct frame_range hole)
{
	for (size_t i = 0; i < MARKS_MAX; i++)
		if (epoch->marks[i].number > hole.last &&
		    epoch->marks[i].number <= hole.last + 1 && epoch->marks[i].seq)
			return epoch->marks[i].seq - 1;
	/* Not seen by this start of ours: a frame holds at least one event. */
	return hole.last;
}

void ingest_tell_gaps(struct ingest *ingest, const uint8_t *agent, enum gap_state state,
		      int64_t now_ms, struct model *model)
{
	const struct author *author = author_find(ingest, agent);
	struct model_gap *gaps;
	size_t count = 0;

	if (!author)
		return;
	gaps = mem_array(GAPS_MAX, sizeof(*gaps));
	for (size_t i = author->epoch_count; i-- > 0;) {
		const struct epoch *epoch = author->epochs[i];
		struct frame_range holes[WANT_RANGES_MAX];
		size_t found = missing_holes(&epoch->missing, holes, WANT_RANGES_MAX);

		for (size_t k = 0; k < found && count < GAPS_MAX; k++)
			gaps[count++] = (struct model_gap){epoch->name,
							   holes[k],
							   state,
							   GONE_UNKNOWN,
							   hole_seq(epoch, holes[k]),
							   now_ms};
		for (size_t k = epoch->missing.gone_count; k-- > 0 && count < GAPS_MAX;) {
			const struct gone_range gone = epoch->missing.gone[k];

			gaps[count++] = (struct model_gap){epoch->name,
							   gone.range,
							   GAP_GONE,
							   gone.why,
							   hole_seq(epoch, gone.range),
							   now_ms};
		}
	}
	model_set_gaps(model, agent, gaps, count, ingest_missing(ingest, agent));
	free(gaps);
}

void ingest_each_agent(const struct ingest *ingest,
		       void (*each)(void *ctx, const uint8_t *agent, bool foreign),
		       void *ctx)
{
	const struct map_entry *entry = NULL;

	while ((entry = map_next(&ingest->authors, entry)) != NULL) {
		const struct author *author = entry->value;

		each(ctx, author->key, author->foreign);
	}
}
