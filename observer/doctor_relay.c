#include "observer/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "observer/acp.h"
#include "observer/attested.h"
#include "observer/ingest.h"
#include "wire/base/mem.h"
#include "wire/frame/control.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/link/link.h"
#include "wire/nostr/event.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip19.h"

#define AGENTS_MAX 16       /* asked; our choice, below what a relay takes at once */
#define READY_MS 12000      /* the link's own deadline ends before */
#define ANSWER_MS 4000      /* a harness answers within its tick */
#define CLOCK_WARN_MS 5000  /* the Date counts seconds */
#define CLOCK_FAIL_MS 60000 /* NIP-42 and our relay allow more, others do not */

/* An agent that was asked for the state of its feed; the first may be nobody's key, asked
 * only for the relay's OK. */
struct asked {
	uint8_t agent[KEY_BYTES];
	uint8_t id[32]; /* of the control's event */
	bool nobody, taken, answered;
	int64_t sent_ms, ok_ms, answered_ms; /* loop_now_ms(); 0: not yet */
	char words[160];                     /* the relay's, where it refused */
};

struct visit {
	struct doctor *doctor;
	struct loop *loop;
	struct link *link;
	struct ingest *ingest;
	struct timer *deadline;
	int64_t begun_ms, ready_ms;
	char reason[200];
	struct asked asked[AGENTS_MAX];
	size_t count;
};

static void finish_when_done(struct visit *visit)
{
	for (size_t i = 0; i < visit->count; i++) {
		const struct asked *asked = &visit->asked[i];

		if (!asked->ok_ms || (asked->taken && !asked->nobody && !asked->answered))
			return;
	}
	loop_quit(visit->loop);
}

static void on_frame(void *ctx, const struct ingest_frame *in)
{
	struct visit *visit = ctx;

	for (size_t i = 0; i < in->frame->event_count; i++) {
		if (!json_is(in->frame->events[i].kind, SLICE("feed_state")))
			continue;
		for (size_t k = 0; k < visit->count; k++) {
			struct asked *asked = &visit->asked[k];

			if (memcmp(asked->agent, in->agent, KEY_BYTES) == 0 &&
			    !asked->answered) {
				asked->answered = true;
				asked->answered_ms = loop_now_ms();
			}
		}
	}
	finish_when_done(visit);
}

/* Those whom we attested and who do not carry it: all that we ask are. */
static int64_t on_stranger(void *ctx, const uint8_t *author)
{
	const struct visit *visit = ctx;

	for (size_t i = 0; i < visit->count; i++)
		if (memcmp(visit->asked[i].agent, author, KEY_BYTES) == 0)
			return INT64_MAX;
	return 0;
}

static void on_gone(void *ctx, const uint8_t *agent, const char *epoch,
		    struct gone_range gone)
{
	(void)ctx;
	(void)agent;
	(void)epoch;
	(void)gone;
}

static bool ask(struct visit *visit, struct asked *asked)
{
	struct control control = {.type = CONTROL_FEED_SYNC};
	struct event_draft draft = {.created_at = loop_unix_ms() / 1000,
				    .kind = FRAME_KIND};
	struct buf plaintext = {.max = 4096}, tags = {.max = 512},
		   event = {.max = EVENT_MAX_BYTES};
	uint8_t key[32], nonce[NONCE_BYTES], aux[32], random[20];
	char hex[2 * KEY_BYTES + 1] = "", request_id[33] = "";
	bool ok;

	loop_random(random, sizeof(random));
	hex_encode(random, 16, request_id);
	control.request_id = slice_of(request_id);
	hex_encode(random + 16, 4, control.observer);
	hex_encode(asked->agent, KEY_BYTES, hex);
	(void)buf_printf(&tags,
			 "[[\"p\",\"%s\"],[\"agent\",\"%s\"],[\"frame\",\"control\"]]",
			 hex, hex);
	draft.tags = buf_slice(&tags);
	loop_random(nonce, sizeof(nonce));
	loop_random(aux, sizeof(aux));
	asked->sent_ms = loop_now_ms();
	ok = control_write(&plaintext, &control) &&
	     ingest_conversation_key(visit->ingest, asked->agent, key) &&
	     event_seal(visit->doctor->crypto, visit->doctor->owner, key, &draft,
			buf_slice(&plaintext), nonce, aux, &event, asked->id, NULL) &&
	     link_publish(visit->link, buf_slice(&event));
	sodium_memzero(key, sizeof(key));
	buf_finish(&plaintext);
	buf_finish(&tags);
	buf_finish(&event);
	return ok;
}

static void on_state(void *ctx, enum link_state state, const char *reason,
		     uint64_t retry_ms)
{
	struct visit *visit = ctx;

	(void)retry_ms;
	if (state == LINK_READY && !visit->ready_ms) {
		visit->ready_ms = loop_now_ms();
		for (size_t i = 0; i < visit->count; i++)
			if (!ask(visit, &visit->asked[i]))
				visit->asked[i].ok_ms = -1;
		timer_start(visit->deadline, ANSWER_MS);
	} else if (state == LINK_DOWN) {
		(void)snprintf(visit->reason, sizeof(visit->reason), "%s", reason);
		loop_quit(visit->loop); /* one visit is what was asked for */
	}
}

static void on_event(void *ctx, struct slice sub_id, struct slice event)
{
	struct visit *visit = ctx;

	(void)sub_id;
	ingest_event(visit->ingest, event, loop_unix_ms());
}

static void on_ok(void *ctx, const uint8_t id[32], bool accepted, struct slice text)
{
	struct visit *visit = ctx;
	char quoted[LOG_QUOTE_BYTES];

	for (size_t i = 0; i < visit->count; i++) {
		struct asked *asked = &visit->asked[i];

		if (memcmp(asked->id, id, sizeof(asked->id)) != 0)
			continue;
		asked->ok_ms = loop_now_ms();
		asked->taken = accepted;
		(void)snprintf(asked->words, sizeof(asked->words), "%s",
			       log_quote(text, quoted));
	}
	finish_when_done(visit);
}

static void on_eose(void *ctx, struct slice sub_id)
{
	(void)ctx;
	(void)sub_id;
}

static void on_closed(void *ctx, struct slice sub_id, struct slice text)
{
	struct visit *visit = ctx;
	char quoted[LOG_QUOTE_BYTES];

	(void)sub_id;
	(void)snprintf(visit->reason, sizeof(visit->reason),
		       "it ended our subscription: %s", log_quote(text, quoted));
	loop_quit(visit->loop);
}

static const struct link_events link_events = {
	.on_state = on_state,
	.on_event = on_event,
	.on_ok = on_ok,
	.on_eose = on_eose,
	.on_closed = on_closed,
};

static void on_deadline(void *ctx)
{
	struct visit *visit = ctx;

	loop_quit(visit->loop);
}

static bool add_agent(void *ctx, const uint8_t *agent)
{
	struct visit *visit = ctx;

	memcpy(visit->asked[visit->count++].agent, agent, KEY_BYTES);
	return visit->count < AGENTS_MAX;
}

/* A key that nobody has: the relay says so, which is an answer. */
static bool add_nobody(struct visit *visit)
{
	struct asked *asked = &visit->asked[visit->count];
	struct keypair *keypair = NULL;
	uint8_t secret[KEY_BYTES];

	loop_random(secret, sizeof(secret));
	if (!keypair_create(visit->doctor->crypto, secret, &keypair, NULL))
		return false; /* one in 2^128 */
	memcpy(asked->agent, keypair_public(keypair), KEY_BYTES);
	asked->nobody = true;
	visit->count++;
	keypair_destroy(keypair);
	return true;
}

/* ---- what came of it ---- */

static void tell_clock(struct doctor *doctor, const struct link_info *info)
{
	const int64_t ms = info->clock_offset_ms;
	const int64_t off = ms < 0 ? -ms : ms;
	const char *way = ms < 0 ? "ahead of" : "behind";

	if (!info->has_clock)
		doctor_tell(doctor, DOCTOR_WARNING, "clock",
			    "not compared: the relay told no time");
	else if (off < CLOCK_WARN_MS)
		doctor_tell(doctor, DOCTOR_OK, "clock", "as the relay's (to 2 s)");
	else
		doctor_tell(doctor, off < CLOCK_FAIL_MS ? DOCTOR_WARNING : DOCTOR_FAILED,
			    "clock",
			    "%lld s %s the relay's: set this machine's, by NTP (frames "
			    "that are %d s old count as history)",
			    (long long)off / 1000, way, FRAME_FRESH_S);
}

static void tell_relay(struct visit *visit)
{
	struct doctor *doctor = visit->doctor;
	const struct asked *first = NULL;

	for (size_t i = 0; i < visit->count && !first; i++)
		if (visit->asked[i].ok_ms > 0)
			first = &visit->asked[i];
	if (!visit->ready_ms)
		doctor_tell(doctor, DOCTOR_FAILED, "relay",
			    "%s: %s: start it, or name another with --relay",
			    doctor->relay,
			    *visit->reason ? visit->reason : "no answer in 12 s");
	else if (!first)
		doctor_tell(doctor, DOCTOR_FAILED, "relay",
			    "%s: connected and authenticated, but a frame was not "
			    "answered%s%s: see the relay's log",
			    doctor->relay, *visit->reason ? ": " : " in 4 s",
			    visit->reason);
	else
		doctor_tell(doctor, DOCTOR_OK, "relay",
			    "%s: authenticated in %lld ms, a frame was answered in %lld "
			    "ms",
			    doctor->relay, (long long)(visit->ready_ms - visit->begun_ms),
			    (long long)(first->ok_ms - first->sent_ms));
}

static void tell_agent(struct doctor *doctor, const struct asked *asked)
{
	struct buf npub = {.max = 80};
	char name[20];

	(void)nip19_encode(NIP19_NPUB, asked->agent, &npub);
	(void)snprintf(name, sizeof(name), "%.14s", buf_text(&npub));
	if (asked->answered)
		doctor_tell(doctor, DOCTOR_OK, "agent",
			    "%s: answered through the relay in %lld ms", name,
			    (long long)(asked->answered_ms - asked->sent_ms));
	else if (asked->taken)
		doctor_tell(doctor, DOCTOR_WARNING, "agent",
			    "%s: connected to the relay, but did not answer in 4 s: "
			    "see its harness's log",
			    name);
	else
		doctor_tell(doctor, DOCTOR_WARNING, "agent",
			    "%s: not connected now%s%s%s; start it where it lives if it "
			    "should be",
			    name, *asked->words ? " (" : "", asked->words,
			    *asked->words ? ")" : "");
	buf_finish(&npub);
}

static bool visit_begin(struct visit *visit, struct err *err)
{
	const struct ingest_options ingest = {
		.crypto = visit->doctor->crypto,
		.owner = visit->doctor->owner,
		.on_frame = on_frame,
		.on_stranger = on_stranger,
		.on_gone = on_gone,
		.ctx = visit,
	};
	const struct link_options link = {
		.url = visit->doctor->relay,
		.keypair = visit->doctor->owner,
		.events = &link_events,
		.ctx = visit,
	};
	struct buf filter = {.max = 256};

	visit->loop = loop_create(err);
	if (!visit->loop)
		return false;
	visit->ingest = ingest_create(&ingest);
	visit->deadline = timer_create_on(visit->loop, on_deadline, visit);
	attested_each(add_agent, visit);
	if (!visit->count && !add_nobody(visit))
		return err_set(err, ERR_SYSTEM, "no key could be made");
	visit->link = link_create(visit->loop, &link, err);
	if (!visit->link)
		return false;
	(void)buf_lit(&filter, "{\"kinds\":[24200],\"#p\":[\"");
	(void)buf_append_hex(&filter, keypair_public(visit->doctor->owner), KEY_BYTES);
	(void)buf_lit(&filter, "\"],\"since\":$now-300}");
	link_subscribe(visit->link, SLICE("doctor"), buf_slice(&filter));
	buf_finish(&filter);
	return true;
}

void doctor_check_relay(struct doctor *doctor)
{
	struct visit *visit = mem_alloc(sizeof(*visit));
	struct err err;

	visit->doctor = doctor;
	visit->begun_ms = loop_now_ms();
	if (!visit_begin(visit, &err)) {
		doctor_tell(doctor, DOCTOR_FAILED, "relay", "%s", err.text);
	} else {
		timer_start(visit->deadline, READY_MS);
		loop_run(visit->loop);
		tell_relay(visit);
		if (visit->ready_ms)
			tell_clock(doctor, link_info(visit->link));
		for (size_t i = 0; visit->ready_ms && i < visit->count; i++)
			if (!visit->asked[i].nobody)
				tell_agent(doctor, &visit->asked[i]);
	}
	link_destroy(visit->link);
	timer_destroy(visit->deadline);
	ingest_destroy(visit->ingest);
	if (visit->loop)
		loop_destroy(visit->loop);
	free(visit);
}
