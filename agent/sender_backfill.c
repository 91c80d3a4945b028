#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/sender_part.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/json.h"

/* ---- frames deferred ---- */

/* The one of that number, or NULL. */
static struct deferred *deferred_find(const struct sender *sender, uint64_t number)
{
	size_t low = 0, high = sender->deferred_count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (sender->deferred[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == sender->deferred_count || sender->deferred[low].number != number)
		return NULL;
	return &sender->deferred[low];
}

static struct queue_frame deferred_take(struct sender *sender, struct deferred *deferred)
{
	const struct queue_frame content = deferred->content;
	struct deferred *end = sender->deferred + --sender->deferred_count;

	memmove(deferred, deferred + 1, (size_t)(end - deferred) * sizeof(*deferred));
	return content;
}

static bool may_defer(void *ctx)
{
	const struct sender *sender = ctx;

	return sender->journal && journal_can_take(sender->journal) &&
	       sender->deferred_count < DEFERRED_MAX && !outbox_straggler(sender->outbox);
}

/* Numbers were given in order, so this is the last. */
static void deferred_add(struct sender *sender, uint64_t number,
			 const struct queue_frame *content)
{
	if (sender->deferred_count == sender->deferred_room) {
		sender->deferred_room =
			sender->deferred_room ? 2 * sender->deferred_room : 64;
		sender->deferred = mem_grow(sender->deferred, sender->deferred_room,
					    sizeof(*sender->deferred));
	}
	sender->deferred[sender->deferred_count++] = (struct deferred){
		.number = number, .content = *content, .state = DEFERRED_WRITING};
}

void sender_defer(struct sender *sender, struct slice text,
		  const struct queue_frame *content)
{
	const uint64_t number = outbox_pass(sender->outbox);

	deferred_add(sender, number, content);
	/* Should the disk be too slow it is told lost from the next turn on: nothing may
	 * call the queue now. */
	if (journal_put(sender->journal, number, text))
		return;
	sender->deferred[sender->deferred_count - 1].state = DEFERRED_REFUSED;
	sender->refusals = true;
}

static void take_deferred(void *ctx, struct slice text, const struct queue_frame *content)
{
	sender_defer(ctx, text, content);
}

const struct queue_deferral sender_deferral = {
	.may = may_defer,
	.take = take_deferred,
};

static void lose_deferred(struct sender *sender, struct deferred *deferred)
{
	const struct queue_frame content = deferred_take(sender, deferred);

	queue_deferred_lost(sender->queue, &content, &sender->default_channel,
			    GAP_JOURNAL_FULL);
}

/* Those that the journal would not take. */
static void lose_refused(struct sender *sender)
{
	for (size_t i = sender->deferred_count; i-- > 0;)
		if (sender->deferred[i].state == DEFERRED_REFUSED)
			lose_deferred(sender, &sender->deferred[i]);
	sender->refusals = false;
}

static struct deferred *deferred_ready(const struct sender *sender)
{
	for (size_t i = 0; i < sender->deferred_count; i++)
		if (sender->deferred[i].state == DEFERRED_READY)
			return &sender->deferred[i];
	return NULL;
}

/* ---- what can be served ---- */

static bool journal_next(const struct sender *sender, const char *epoch, uint64_t from,
			 uint64_t *number)
{
	const struct journal_epoch *at =
		sender->journal
			? journal_index_find(journal_index(sender->journal), epoch)
			: NULL;

	return at && ranges_next(&at->frames, from, number);
}

/* Was it refused in this start? */
static bool is_refused(const struct sender *sender, const char *epoch, uint64_t number)
{
	const struct journal_epoch *at =
		sender->journal
			? journal_index_find(journal_index(sender->journal), epoch)
			: NULL;

	return at && ranges_has(&at->refused, number);
}

static bool source_next(void *ctx, const char *epoch, uint64_t from, uint64_t *number)
{
	const struct sender *sender = ctx;
	uint64_t memory, disk;
	bool in_memory = false, on_disk;

	if (strcmp(epoch, sender->epoch) == 0)
		in_memory = outbox_next(sender->outbox, from, &memory);
	while (in_memory && is_refused(sender, epoch, memory))
		in_memory = outbox_next(sender->outbox, memory + 1, &memory);
	on_disk = journal_next(sender, epoch, from, &disk);
	if (!in_memory && !on_disk)
		return false;
	*number = !on_disk || (in_memory && memory < disk) ? memory : disk;
	return true;
}

static void add_all(struct ranges *held, const struct ranges *more)
{
	for (size_t i = 0; i < more->count; i++)
		ranges_add_range(held, more->items[i]);
}

void sender_held(const struct sender *sender, struct ranges *held)
{
	const struct journal_epoch *on_disk = NULL;
	uint64_t number = 0;

	if (sender->journal) {
		on_disk =
			journal_index_find(journal_index(sender->journal), sender->epoch);
		add_all(held, journal_waiting(sender->journal));
	}
	if (on_disk)
		add_all(held, &on_disk->frames);
	while (outbox_next(sender->outbox, number + 1, &number))
		ranges_add(held, number);
	number = 0;
	while (on_disk && ranges_next(&on_disk->refused, number + 1, &number))
		ranges_remove(held, number);
}

/* ---- fetching ---- */

static struct fetch *fetch_find(struct sender *sender, const char *epoch, uint64_t number)
{
	for (size_t i = 0; i < sender->fetch_count; i++)
		if (sender->fetches[i].number == number &&
		    strcmp(sender->fetches[i].epoch, epoch) == 0)
			return &sender->fetches[i];
	return NULL;
}

static void fetch_remove(struct sender *sender, struct fetch *fetch)
{
	struct fetch *end = sender->fetches + --sender->fetch_count;

	buf_wipe(&fetch->text);
	memmove(fetch, fetch + 1, (size_t)(end - fetch) * sizeof(*fetch));
}

/* From memory where it is there, else from the disk. */
static void fetch_add(struct sender *sender, const char *epoch, uint64_t number)
{
	struct fetch *fetch = &sender->fetches[sender->fetch_count++];
	const struct outbox_frame *frame = NULL;

	*fetch = (struct fetch){.number = number};
	memcpy(fetch->epoch, epoch, sizeof(fetch->epoch));
	buf_init(&fetch->text, FRAME_PLAINTEXT_MAX);
	if (strcmp(epoch, sender->epoch) == 0)
		frame = outbox_get(sender->outbox, number);
	if (frame) {
		(void)buf_append(&fetch->text, (struct slice){frame->plaintext.ptr,
							      frame->body_bytes - 1});
		(void)buf_lit(&fetch->text, "}");
		fetch->ready = true;
	} else {
		journal_read(sender->journal, epoch, number);
	}
}

/* What was deferred comes first, the oldest first: nobody has seen it yet. */
static bool fetch_next(struct sender *sender)
{
	const struct serve_source source = {source_next, sender};
	struct deferred *deferred = deferred_ready(sender);
	char epoch[EPOCH_LEN + 1];
	uint64_t number;

	if (deferred) {
		deferred->state = DEFERRED_COMING;
		fetch_add(sender, sender->epoch, deferred->number);
		return true;
	}
	if (!serve_next(&sender->serve, &source, epoch, &number))
		return false;
	if (strcmp(epoch, sender->epoch) == 0)
		deferred = deferred_find(sender, number);
	/* On its way already. */
	if (fetch_find(sender, epoch, number) ||
	    (deferred && deferred->state != DEFERRED_READY))
		return true;
	if (deferred)
		deferred->state = DEFERRED_COMING;
	fetch_add(sender, epoch, number);
	return true;
}

bool sender_backfill_waits(struct sender *sender)
{
	if (sender->refusals)
		lose_refused(sender);
	if (sender->replay_count == REPLAYS_MAX)
		return false;
	while (sender->fetch_count < FETCHES_MAX && fetch_next(sender))
		;
	return sender->fetch_count && sender->fetches[0].ready;
}

/* ---- sending ---- */

/* The text that leaves for what was fetched: itself, or the first part of it. */
static struct slice fitted(struct sender *sender, struct fetch *fetch)
{
	const bool ours = strcmp(fetch->epoch, sender->epoch) == 0;
	struct deferred *deferred = ours ? deferred_find(sender, fetch->number) : NULL;
	struct queue_frame content = {0};

	if (fetch->text.len <= sender->frame_max || !sender->journal)
		return buf_slice(&fetch->text);
	if (deferred)
		content = deferred->content;
	if (!sender_split_old(sender, fetch->epoch, fetch->number,
			      buf_slice(&fetch->text), &content, &sender->payload))
		return buf_slice(&fetch->text);
	/* It may have moved. */
	deferred = ours ? deferred_find(sender, fetch->number) : NULL;
	if (deferred)
		deferred->content = content;
	return buf_slice(&sender->payload);
}

void sender_send_backfill(struct sender *sender)
{
	struct fetch *fetch = &sender->fetches[0];
	struct replay *replay = &sender->replays[sender->replay_count];
	const struct slice text = fitted(sender, fetch);

	buf_clear(&sender->plain);
	(void)buf_append(&sender->plain, text);
	(void)frame_write_suffix(&sender->plain, fetch->epoch, fetch->number, true);
	if (!sender_send_again(sender, fetch->number, buf_slice(&sender->plain),
			       replay->id))
		return; /* it stays the first */
	memcpy(replay->epoch, fetch->epoch, sizeof(replay->epoch));
	replay->number = fetch->number;
	replay->sent_ms = loop_now_ms();
	replay->event_bytes = sender->repeat.len;
	replay->body_bytes = text.len;
	sender->replay_count++;
	fetch_remove(sender, fetch);
}

/* ---- what became of it ---- */

static void replay_remove(struct sender *sender, struct replay *replay)
{
	*replay = sender->replays[--sender->replay_count];
}

/* It has to be sent again. */
static void put_back(struct sender *sender, const struct replay *replay)
{
	struct deferred *deferred = strcmp(replay->epoch, sender->epoch) == 0
					    ? deferred_find(sender, replay->number)
					    : NULL;

	if (deferred)
		deferred->state = DEFERRED_READY;
	else
		serve_again(&sender->serve, replay->epoch, replay->number);
}

static void settle(struct sender *sender, const struct replay *replay, bool published)
{
	struct deferred *deferred = strcmp(replay->epoch, sender->epoch) == 0
					    ? deferred_find(sender, replay->number)
					    : NULL;
	struct queue_frame content;

	if (!deferred)
		return;
	content = deferred_take(sender, deferred);
	if (published)
		queue_deferred_published(sender->queue, &content);
	else
		queue_deferred_lost(sender->queue, &content, &sender->default_channel,
				    GAP_PUBLISH_FAILURE);
}

/* Then it is split when it is sent again. */
static bool is_too_large(struct sender *sender, const struct replay *replay,
			 struct slice text)
{
	if (!sender_is_too_large(text))
		return false;
	sender_shrink(sender, replay->event_bytes);
	return replay->body_bytes > sender->frame_max;
}

/* Who may not speak to this relay may do so again; another frame is no better then. */
static bool is_about_us(struct slice text)
{
	return slice_starts(text, SLICE("restricted:")) ||
	       slice_starts(text, SLICE("blocked:"));
}

bool sender_backfill_ok(struct sender *sender, const uint8_t id[32], bool accepted,
			struct slice text)
{
	struct replay *found = sender->replays;
	struct replay replay;
	char quoted[LOG_QUOTE_BYTES];

	while (found < sender->replays + sender->replay_count &&
	       memcmp(found->id, id, 32) != 0)
		found++;
	if (found == sender->replays + sender->replay_count)
		return false;
	replay = *found;
	replay_remove(sender, found);
	if (accepted) {
		settle(sender, &replay, true);
	} else if (sender_is_passing(text)) {
		put_back(sender, &replay);
		sender_back_off(sender);
	} else if (is_too_large(sender, &replay, text)) {
		put_back(sender, &replay);
	} else if (sender_is_about_time(text)) {
		put_back(sender, &replay);
		sender_learn_time(sender);
	} else {
		log_warn(SENDER_SUBJECT,
			 "frame %" PRIu64 " of before refused by the relay: %s",
			 replay.number, log_quote(text, quoted));
		settle(sender, &replay, false);
		if (sender->journal && !is_about_us(text))
			journal_refuse(sender->journal, replay.epoch, replay.number);
		sender_back_off(sender);
	}
	return true;
}

void sender_backfill_disconnect(struct sender *sender)
{
	while (sender->replay_count) {
		const struct replay replay = sender->replays[--sender->replay_count];

		put_back(sender, &replay);
	}
}

int64_t sender_backfill_deadline(const struct sender *sender)
{
	int64_t oldest = -1;

	for (size_t i = 0; i < sender->replay_count; i++)
		if (oldest < 0 || sender->replays[i].sent_ms < oldest)
			oldest = sender->replays[i].sent_ms;
	return oldest < 0 ? -1 : oldest + OUTBOX_OK_MS;
}

void sender_backfill_finish(struct sender *sender)
{
	while (sender->fetch_count)
		fetch_remove(sender, &sender->fetches[sender->fetch_count - 1]);
	sender_forget_bodies(sender);
	free(sender->deferred);
}

/* ---- leaving ---- */

void sender_pack_rest(struct sender *sender)
{
	struct queue_frame content;
	struct buf text;

	buf_init(&text, FRAME_PLAINTEXT_MAX);
	while (queue_pack(sender->queue, FRAME_PACK_MAX, &text, &content)) {
		if (may_defer(sender)) {
			queue_defer(sender->queue, &content);
			sender_defer(sender, buf_slice(&text), &content);
		} else {
			queue_dropped(sender->queue, &content);
		}
		buf_clear(&text);
	}
	buf_wipe(&text);
}

/* ---- what the journal says ---- */

/* In the default channel: which events there were nobody knows any more. */
static void tell_unclean(struct sender *sender)
{
	const struct feed_context context = {.slot = -1,
					     .channel = &sender->default_channel};

	(void)feed_emit(sender->feed, sender_time(sender), &context,
			SLICE("observer_telemetry_gap"), SLICE_EMPTY,
			SLICE("{\"droppedEvents\":0,\"reasonCounts\":{"
			      "\"replayBufferOverflow\":0,\"publishQueueEviction\":0,"
			      "\"broadcastLag\":0,\"publishFailure\":0,"
			      "\"relayQueueEviction\":0,\"unclean_stop\":1},"
			      "\"scope\":\"publisher_global\"}"));
}

/* After the file was moved aside: what it had of the deferred is lost. */
static void lose_what_is_not_there(struct sender *sender)
{
	uint64_t number;

	for (size_t i = sender->deferred_count; i-- > 0;) {
		struct deferred *deferred = &sender->deferred[i];

		if (deferred->state == DEFERRED_READY &&
		    !(journal_next(sender, sender->epoch, deferred->number, &number) &&
		      number == deferred->number))
			lose_deferred(sender, deferred);
	}
}

static void on_open(void *ctx, bool unclean)
{
	struct sender *sender = ctx;

	sender->journal_known = true;
	lose_what_is_not_there(sender);
	if (unclean && !sender->unclean_told) {
		log_warn(SENDER_SUBJECT,
			 "the start before this one ended without a word: what it had "
			 "not written is lost");
		tell_unclean(sender);
	}
	sender->unclean_told = sender->unclean_told || unclean;
	sender_arm(sender);
}

static void on_kept(void *ctx, uint64_t number)
{
	struct sender *sender = ctx;
	struct deferred *deferred = deferred_find(sender, number);

	if (deferred && deferred->state == DEFERRED_WRITING)
		deferred->state = DEFERRED_READY;
	sender_arm(sender);
}

static void on_lost(void *ctx, uint64_t number)
{
	struct sender *sender = ctx;
	struct deferred *deferred = deferred_find(sender, number);

	/* One that is fetched or sent needs the disk no more. */
	if (deferred && deferred->state != DEFERRED_COMING)
		lose_deferred(sender, deferred);
	sender_arm(sender);
}

static void on_frame(void *ctx, const char *epoch, uint64_t number, struct slice text)
{
	struct sender *sender = ctx;
	struct fetch *fetch = fetch_find(sender, epoch, number);
	struct deferred *deferred = NULL;

	if (!fetch || fetch->ready)
		return;
	if (text.ptr && buf_append(&fetch->text, text) && fetch->text.len) {
		fetch->ready = true;
	} else {
		if (strcmp(epoch, sender->epoch) == 0)
			deferred = deferred_find(sender, number);
		if (deferred)
			lose_deferred(sender, deferred);
		fetch_remove(sender, fetch);
	}
	sender_arm(sender);
}

/* Serves the whole event in the channel that it says. */
static enum sender_body serve_body(struct sender *sender, const char *epoch, uint64_t seq,
				   struct slice text)
{
	struct feed_context context = {.slot = -1, .channel = &sender->default_channel};
	struct observer_event event;
	struct uuid channel;

	if (!text.ptr || !observer_event_parse(text, &event, NULL))
		return SENDER_BODY_GONE;
	if (event.agent_index >= 0 && event.agent_index < 32)
		context.slot = (int)event.agent_index;
	if (event.channel_id.ptr && uuid_parse(event.channel_id, &channel))
		context.channel = &channel;
	return sender_body(sender, &context, epoch, seq, text) ? SENDER_BODY_COMING
							       : SENDER_BODY_BUSY;
}

static void on_body(void *ctx, const char *epoch, uint64_t seq, struct slice text)
{
	struct sender *sender = ctx;
	const enum sender_body verdict = serve_body(sender, epoch, seq, text);

	for (size_t i = sender->body_ask_count; i-- > 0;) {
		const struct body_ask ask = sender->body_asks[i];

		if (ask.seq != seq || strcmp(ask.epoch, epoch) != 0)
			continue;
		sender->body_asks[i] = sender->body_asks[--sender->body_ask_count];
		ask.done(ask.ctx, verdict);
	}
}

void sender_fetch_body(struct sender *sender, const char *epoch, uint64_t seq,
		       sender_on_body_fn *done, void *ctx)
{
	struct body_ask *ask = &sender->body_asks[sender->body_ask_count];

	if (!sender->journal) {
		done(ctx, SENDER_BODY_GONE);
		return;
	}
	if (sender->body_ask_count == BODY_ASKS_MAX) {
		done(ctx, SENDER_BODY_BUSY);
		return;
	}
	*ask = (struct body_ask){.seq = seq, .done = done, .ctx = ctx};
	memcpy(ask->epoch, epoch, sizeof(ask->epoch));
	sender->body_ask_count++;
	journal_read_body(sender->journal, epoch, seq);
}

void sender_forget_bodies(struct sender *sender)
{
	while (sender->body_ask_count) {
		const struct body_ask ask = sender->body_asks[--sender->body_ask_count];

		ask.done(ask.ctx, SENDER_BODY_GONE);
	}
}

/* Seen by the owner, too: what comes now may not be there to be asked for. */
static void on_trouble(void *ctx, const char *reason, uint64_t lost)
{
	struct sender *sender = ctx;
	const struct feed_context context = {.slot = -1,
					     .channel = &sender->default_channel};
	struct buf text, payload;

	buf_init(&text, 1024);
	buf_init(&payload, 8192);
	if (reason && !utf8_valid(slice_of(reason)))
		reason = "the disk refuses it";
	if (reason)
		(void)buf_printf(&text, "What happens is not kept for later: %s", reason);
	else
		(void)buf_printf(&text,
				 "What happens is kept for later again; %" PRIu64
				 " records were not",
				 lost);
	(void)buf_lit(&payload, "{");
	(void)json_write_member_string(&payload, SLICE("text"), buf_slice(&text));
	(void)json_write_member_string(&payload, SLICE("source"), SLICE("journal"));
	(void)json_write_member_string(&payload, SLICE("level"),
				       reason ? SLICE("warn") : SLICE("info"));
	(void)buf_lit(&payload, "}");
	(void)feed_emit(sender->feed, sender_time(sender), &context, SLICE("note"),
			SLICE_EMPTY, buf_slice(&payload));
	buf_finish(&text);
	buf_finish(&payload);
	sender_arm(sender);
}

const struct journal_events sender_journal_events = {
	.on_open = on_open,
	.on_kept = on_kept,
	.on_lost = on_lost,
	.on_frame = on_frame,
	.on_body = on_body,
	.on_trouble = on_trouble,
};
