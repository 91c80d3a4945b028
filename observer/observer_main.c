#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "observer/acp.h"
#include "observer/archive.h"
#include "observer/attested.h"
#include "observer/controls.h"
#include "observer/demo.h"
#include "observer/history.h"
#include "observer/http/api.h"
#include "observer/http/figures.h"
#include "observer/http/h1.h"
#include "observer/http/h2.h"
#include "observer/http/hub.h"
#include "observer/ingest.h"
#include "observer/metrics.h"
#include "observer/model.h"
#include "observer/selfcert.h"
#include "observer/token.h"
#include "observer/words.h"
#include "wire/base/mem.h"
#include "wire/host/keyfile.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"
#include "wire/host/port.h"
#include "wire/host/tls.h"
#include "wire/link/link.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip19.h"

#define TICK_MS 1000
/* What is history is put in order for many frames at a time: for each by itself its whole
 * turn would be derived again. Pages have a message each 100 ms at most; the rest keeps
 * that from being all that is done. Our choice. */
#define SETTLE_MS 100
#define SETTLE_REST_FACTOR 4
/* A harness and its successor overlap by less than that; our choice. */
#define TWIN_AFTER_MS 5000
#define TWIN_EVERY_MS 60000 /* between two warnings */

struct config {
	const char *relay, *listen, *log_level;
	const char *metrics, *tls, *tls_cert, *tls_key; /* NULL: none */
	int64_t ready_fd, keep_days, keep_mib;
	char host[64], metrics_host[64], tls_host[64];
	uint16_t port, metrics_port, tls_port;
};

struct observer {
	const struct config *config;
	struct loop *loop;
	struct keypair *owner;
	struct buf npub, words;
	char token[TOKEN_LEN + 1];
	int lock_fd;
	struct archive *archive;
	struct ingest *ingest;
	struct model *model;
	struct spans *spans;
	struct history *history;
	struct controls *controls;
	struct demo *demo;
	struct link *link;
	struct hub *hub;
	struct api *api;
	struct h1_server *h1;
	struct tls *tls;
	struct h2_server *h2; /* NULL: none */
	struct http_figures figures;
	struct http_budget budget;
	struct buf tls_url; /* without the token */
	char fingerprint[TLS_FINGERPRINT_LEN + 1];
	struct timer *tick, *settle;
	int64_t settled_ms; /* how long the last time took */
	enum link_state link_state;
	int64_t gone_ms; /* when the link was last lost; 0: it is ready */
	char link_reason[200];
	int64_t retry_at_ms;  /* Unix ms; 0: none */
	bool caught_up;       /* what the relay kept has been served */
	uint64_t gone_ranges; /* since the last tick; of them the first: */
	struct gone_range gone_first;
	char gone_epoch[17];
	int64_t twin_ms; /* Unix ms; when the last warning of a twin was given */
};

/* What frames and controls are dated and judged by; our own clock may jump. */
static int64_t relay_ms(const struct observer *observer)
{
	return observer->link ? link_unix_ms(observer->link) : loop_unix_ms();
}

/* ---- frames ---- */

/* Of an epoch before the agent's newest. */
static bool is_of_older_epoch(const struct observer *observer,
			      const struct ingest_frame *in)
{
	return in->frame->has_epoch &&
	       strcmp(in->frame->epoch, model_agent(observer->model, in->agent).epoch) <
		       0;
}

/* A second harness with the same key (an invitation used twice) answers so to every
 * control that was meant for the newer one. */
static bool is_strangers_answer(const struct observer *observer,
				const struct ingest_frame *in,
				const struct observer_event *event)
{
	return json_is(event->kind, SLICE("control_result")) &&
	       json_is(acp_get_string(event->payload, "status"), SLICE("wrong_epoch")) &&
	       is_of_older_epoch(observer, in);
}

/* When an epoch began, by its name (design §4); 0 for one that is no epoch. */
static int64_t epoch_start_ms(const char *epoch)
{
	uint8_t bytes[8];
	int64_t seconds = 0;

	if (!hex_decode(slice_of(epoch), bytes, sizeof(bytes)))
		return 0;
	for (size_t i = 0; i < 4; i++)
		seconds = seconds << 8 | bytes[i];
	return seconds * 1000;
}

/* One harness stops before the next of its key begins. What an older one says live, well
 * after that, comes from another machine. */
static void look_for_twin(struct observer *observer, const struct ingest_frame *in,
			  int64_t now)
{
	const char *newest = model_agent(observer->model, in->agent).epoch;
	struct buf npub = {.max = 80};

	if (in->frame->replayed || !is_of_older_epoch(observer, in) ||
	    in->created_ms < epoch_start_ms(newest) + TWIN_AFTER_MS ||
	    now - observer->twin_ms < TWIN_EVERY_MS)
		return;
	observer->twin_ms = now;
	(void)nip19_encode(NIP19_NPUB, in->agent, &npub);
	log_warn("ingest",
		 "%s runs twice with one key, perhaps on two machines: only the newer is "
		 "live; stop one, or give it an invitation of its own",
		 buf_text(&npub));
	buf_finish(&npub);
}

static void on_settle(void *ctx)
{
	struct observer *observer = ctx;
	const int64_t began_ms = loop_now_ms();

	model_settle(observer->model, loop_unix_ms());
	hub_touch(observer->hub);
	observer->settled_ms = loop_now_ms() - began_ms;
}

static void settle_soon(struct observer *observer)
{
	const int64_t rest_ms = observer->settled_ms * SETTLE_REST_FACTOR;

	if (!timer_armed(observer->settle))
		timer_start(observer->settle,
			    (uint64_t)(rest_ms > SETTLE_MS ? rest_ms : SETTLE_MS));
}

static void on_frame(void *ctx, const struct ingest_frame *in)
{
	struct observer *observer = ctx;
	const struct frame *frame = in->frame;
	const int64_t now = loop_unix_ms();
	bool taken = frame->has_epoch;

	/* What the relay kept was sent some time ago; what comes now is a sign of life.
	 */
	model_heard(observer->model, in->agent,
		    observer->caught_up || in->created_ms > now ? now : in->created_ms);
	look_for_twin(observer, in, now);
	if (frame->replayed)
		model_replayed(observer->model, in->agent);
	for (size_t i = 0; i < frame->event_count; i++) {
		const struct model_event event = {
			.agent = in->agent,
			.epoch = frame->has_epoch ? frame->epoch : "",
			.event = &frame->events[i],
			.received_ms = now,
			.live = in->live,
		};

		if ((in->live || !json_is(event.event->kind, SLICE("feed_state"))) &&
		    !is_strangers_answer(observer, in, event.event))
			controls_on_event(observer->controls, in->agent, event.event,
					  relay_ms(observer));
		taken = model_apply(observer->model, &event) || taken;
	}
	/* A feed without numbers may be served again: then nothing of it was new. */
	if (taken)
		archive_store(observer->archive, in->agent,
			      frame->has_epoch ? frame->epoch : "",
			      frame->has_epoch ? frame->number : 0, now, in->plaintext);
	model_set_complete(observer->model, in->agent,
			   ingest_complete_ms(observer->ingest, in->agent),
			   ingest_gone_frames(observer->ingest, in->agent));
	if (!in->live) {
		settle_soon(observer);
		return;
	}
	model_settle(observer->model, now);
	hub_touch(observer->hub);
}

static int64_t on_stranger(void *ctx, const uint8_t *author)
{
	struct observer *observer = ctx;
	const int64_t until =
		attested_until(observer->loop->crypto, observer->owner, author);
	struct buf npub = {.max = 80};

	if (until > loop_unix_ms() / 1000)
		return until;
	(void)nip19_encode(NIP19_NPUB, author, &npub);
	log_info("ingest",
		 "%s is not attested by this owner: to accept it, run `perch attest %s`",
		 buf_text(&npub), buf_text(&npub));
	buf_finish(&npub);
	return 0;
}

static void on_gone(void *ctx, const uint8_t *agent, const char *epoch,
		    struct gone_range gone)
{
	struct observer *observer = ctx;

	if (observer->gone_ranges++ == 0) {
		observer->gone_first = gone;
		memcpy(observer->gone_epoch, epoch, strlen(epoch) + 1);
	}
	archive_store_gone(observer->archive, agent, epoch, gone);
}

static void on_body(void *ctx, const uint8_t *agent, const char *epoch, uint64_t seq,
		    struct slice text)
{
	struct observer *observer = ctx;

	if (!json_check(text, NULL, NULL)) {
		log_warn("body", "event %llu came together broken",
			 (unsigned long long)seq);
		return;
	}
	model_set_body(observer->model, agent, epoch, seq, text);
	archive_store_body(observer->archive, agent, epoch, seq, text);
	hub_touch(observer->hub);
}

/* ---- the relay ---- */

/* It may have nothing to say and still have much to serve. */
static bool on_attested(void *ctx, const uint8_t *agent)
{
	struct observer *observer = ctx;

	if (attested_until(observer->loop->crypto, observer->owner, agent) >
	    relay_ms(observer) / 1000)
		(void)ingest_known(observer->ingest, agent, "", 0);
	return true;
}

static void on_link_state(void *ctx, enum link_state state, const char *reason,
			  uint64_t retry_ms)
{
	struct observer *observer = ctx;

	observer->link_state = state;
	observer->retry_at_ms = 0;
	if (state == LINK_READY)
		observer->gone_ms = 0;
	else if (!observer->gone_ms)
		observer->gone_ms = loop_unix_ms();
	if (state == LINK_DOWN && retry_ms)
		observer->retry_at_ms = loop_unix_ms() + (int64_t)retry_ms;
	if (state != LINK_CONNECTING || *reason)
		(void)snprintf(observer->link_reason, sizeof(observer->link_reason), "%s",
			       reason);
	if (state != LINK_READY)
		observer->caught_up = false;
	if (state == LINK_READY) {
		log_info("relay", "%s: connected", observer->config->relay);
		attested_each(on_attested, observer);
		controls_on_ready(observer->controls, relay_ms(observer));
	} else if (state == LINK_DOWN) {
		log_warn("relay", "%s: %s", observer->config->relay, reason);
	}
	hub_touch(observer->hub);
}

static void on_link_event(void *ctx, struct slice sub_id, struct slice event)
{
	struct observer *observer = ctx;

	(void)sub_id;
	ingest_event(observer->ingest, event, relay_ms(observer));
}

static void on_link_ok(void *ctx, const uint8_t id[32], bool accepted, struct slice text)
{
	struct observer *observer = ctx;
	char quoted[LOG_QUOTE_BYTES];

	const bool asked = controls_on_ok(observer->controls, id, accepted, text,
					  relay_ms(observer));

	/* A feed_sync to an agent that is not there is nothing to worry about. */
	if (!accepted && asked)
		log_warn("relay", "refused a control: %s", log_quote(text, quoted));
	else if (!accepted)
		log_debug("relay", "refused a feed_sync: %s", log_quote(text, quoted));
	hub_touch(observer->hub);
}

static void on_link_eose(void *ctx, struct slice sub_id)
{
	struct observer *observer = ctx;

	(void)sub_id;
	observer->caught_up = true;
}

static void on_link_closed(void *ctx, struct slice sub_id, struct slice text)
{
	struct observer *observer = ctx;
	char quoted[LOG_QUOTE_BYTES];

	(void)sub_id;
	log_warn("relay", "ended our subscription: %s", log_quote(text, quoted));
	(void)snprintf(observer->link_reason, sizeof(observer->link_reason),
		       "subscription ended: %.*s",
		       (int)utf8_floor(text, sizeof(observer->link_reason) - 24),
		       text.ptr);
	link_reset(observer->link, observer->link_reason);
}

static const struct link_events link_events = {
	.on_state = on_link_state,
	.on_event = on_link_event,
	.on_ok = on_link_ok,
	.on_eose = on_link_eose,
	.on_closed = on_link_closed,
};

static bool publish(void *ctx, struct slice event)
{
	struct observer *observer = ctx;

	return observer->link && link_publish(observer->link, event);
}

/* ---- what the broker asks of us ---- */

static uint64_t write_health(void *ctx, struct buf *out)
{
	static const char *const names[] = {"down", "connecting", "ready"};
	const struct observer *observer = ctx;
	const size_t begun = out->len;
	char trouble[200];
	uint64_t hash;
	const int64_t rtt = observer->link ? link_rtt_ms(observer->link) : -1;

	archive_trouble(observer->archive, trouble);
	(void)buf_lit(out, "\"health\":{\"archive\":{");
	json_write_member_string(out, SLICE("state"),
				 *trouble ? SLICE("failing") : SLICE("ok"));
	json_write_member_string(out, SLICE("reason"), slice_of(trouble));
	if (archive_is_in_memory(observer->archive))
		json_write_member_bool(out, SLICE("inMemory"), true);
	if (*archive_aside(observer->archive))
		json_write_member_string(out, SLICE("aside"),
					 slice_of(archive_aside(observer->archive)));
	(void)buf_lit(out, "},\"relay\":{");
	json_write_member_string(out, SLICE("state"),
				 slice_of(names[observer->link_state]));
	json_write_member_string(out, SLICE("url"), slice_of(observer->config->relay));
	if (rtt >= 0)
		json_write_member_int(out, SLICE("rttMs"), rtt);
	json_write_member_string(out, SLICE("reason"), slice_of(observer->link_reason));
	if (observer->retry_at_ms)
		json_write_member_int(out, SLICE("retryAtMs"), observer->retry_at_ms);
	if (observer->gone_ms)
		json_write_member_int(out, SLICE("sinceMs"), observer->gone_ms);
	(void)buf_lit(out, "}");
	hash = slice_hash(slice_sub(buf_slice(out), begun, out->len), 0);
	hash ^= model_write_health(observer->model, out);
	(void)buf_lit(out, "}");
	return hash;
}

static void write_owner(void *ctx, struct buf *out)
{
	const struct observer *observer = ctx;

	(void)buf_lit(out, "\"owner\":{");
	json_write_member_string(out, SLICE("npub"), buf_slice(&observer->npub));
	json_write_member_string(out, SLICE("words"), buf_slice(&observer->words));
	(void)buf_lit(out, "}");
}

static void write_metrics(void *ctx, struct buf *out)
{
	const struct observer *observer = ctx;
	const struct metrics metrics = {
		.connected = observer->link_state == LINK_READY,
		.ingest = observer->ingest,
		.controls = observer->controls,
		.archive = observer->archive,
		.hub = observer->hub,
		.budget = &observer->budget,
	};

	metrics_write(&metrics, out);
}

static int64_t control_ms(void *ctx)
{
	return relay_ms(ctx);
}

static const char *rotate(void *ctx)
{
	struct observer *observer = ctx;
	struct err err;

	if (!token_rotate(observer->token, &err))
		log_warn("broker", "the token stays: %s", err.text);
	return observer->token;
}

static bool play_demo(void *ctx, struct err *err)
{
	struct observer *observer = ctx;

	return demo_play(observer->demo, err);
}

static void write_url(void *ctx, struct buf *out)
{
	const struct observer *observer = ctx;
	const bool v6 = strchr(observer->config->host, ':') != NULL;

	(void)buf_printf(out, "{\"url\":\"http://%s%s%s:%u/#%s\"", v6 ? "[" : "",
			 observer->config->host, v6 ? "]" : "",
			 h1_server_port(observer->h1), observer->token);
	if (observer->h2)
		(void)buf_printf(out, ",\"tlsUrl\":\"%.*s#%s\",\"fingerprint\":\"%s\"",
				 SLICE_ARG(buf_slice(&observer->tls_url)),
				 observer->token, observer->fingerprint);
	(void)buf_lit(out, "}");
}

/* ---- the archive's memory ---- */

static void on_load_known(void *ctx, const uint8_t *agent, const char *epoch,
			  struct frame_range range)
{
	struct observer *observer = ctx;

	ingest_known_range(observer->ingest, agent, epoch, range);
}

static void on_load_gone(void *ctx, const uint8_t *agent, const char *epoch,
			 struct gone_range gone)
{
	struct observer *observer = ctx;

	ingest_known_gone(observer->ingest, agent, epoch, gone);
}

static void on_load_event(void *ctx, const uint8_t *agent, const char *epoch,
			  struct slice text, int64_t received_ms)
{
	struct observer *observer = ctx;
	struct observer_event event;
	const struct model_event in = {.agent = agent,
				       .epoch = epoch,
				       .event = &event,
				       .received_ms = received_ms};

	if (observer_event_parse(text, &event, NULL))
		(void)model_apply(observer->model, &in);
}

static void on_load_floor(void *ctx, const uint8_t *agent, struct slice channel,
			  const struct pos *pos)
{
	struct observer *observer = ctx;

	model_set_floor(observer->model, agent, channel, pos);
	history_add(observer->history, agent, channel, pos);
}

static void on_load_last(void *ctx, const uint8_t *agent, int64_t last_ms)
{
	struct observer *observer = ctx;

	model_last(observer->model, agent, last_ms);
}

static const struct archive_loader loader = {
	.on_known = on_load_known,
	.on_gone = on_load_gone,
	.on_event = on_load_event,
	.on_floor = on_load_floor,
	.on_last = on_load_last,
};

/* ---- what the archive finds out ---- */

static void on_lost(void *ctx, const uint8_t *agent, const char *epoch,
		    struct frame_range range)
{
	struct observer *observer = ctx;

	ingest_unknown(observer->ingest, agent, epoch, range, relay_ms(observer));
}

static void on_anew(void *ctx)
{
	struct observer *observer = ctx;

	ingest_unknown_all(observer->ingest, relay_ms(observer));
	hub_touch(observer->hub); /* health tells of it */
}

static const struct archive_events archive_events = {on_lost, on_anew};

/* ---- time ---- */

/* One line for all that became known within a second. */
static void log_gone(struct observer *observer)
{
	char more[64] = "";

	if (!observer->gone_ranges)
		return;
	if (observer->gone_ranges > 1)
		(void)snprintf(more, sizeof(more), ", and %llu further ranges",
			       (unsigned long long)observer->gone_ranges - 1);
	log_warn("ingest", "frames %llu to %llu of epoch %s%s are gone for good: %s",
		 (unsigned long long)observer->gone_first.range.first,
		 (unsigned long long)observer->gone_first.range.last,
		 observer->gone_epoch, more, model_gone_words(observer->gone_first.why));
	observer->gone_ranges = 0;
}

static void on_tick(void *ctx)
{
	struct observer *observer = ctx;
	const int64_t now = loop_unix_ms();

	log_gone(observer);
	model_tick(observer->model, now);
	controls_tick(observer->controls, relay_ms(observer));
	hub_touch(observer->hub);
	timer_start(observer->tick, TICK_MS);
}

static void on_signal(void *ctx, int signal)
{
	struct observer *observer = ctx;

	log_info("observer", "stopping on signal %d", signal);
	loop_quit(observer->loop);
}

/* ---- start and stop ---- */

static bool open_owner(struct observer *observer, struct err *err)
{
	bool made;

	if (!keyfile_ensure(observer->loop->crypto, SLICE("owner"), &observer->owner,
			    &made, err))
		return false;
	observer->npub.max = 80;
	observer->words.max = 256;
	(void)nip19_encode(NIP19_NPUB, keypair_public(observer->owner), &observer->npub);
	words_write(keypair_public(observer->owner), &observer->words);
	log_info("observer", "owner %s (%s)%s", buf_text(&observer->npub),
		 buf_text(&observer->words), made ? ", made now" : "");
	return true;
}

static bool open_archive(struct observer *observer, struct err *err)
{
	struct buf path = {.max = 4096}, lock = {.max = 4096}, folder = {.max = 4096};
	struct err refused;
	long pid = 0;
	struct archive_options options = {
		.path = NULL,
		.keep_ms = observer->config->keep_days * 86400000,
		.keep_bytes = observer->config->keep_mib << 20,
	};
	bool ok = false;

	if (!paths_data(SLICE(""), &folder, err) || !paths_make(buf_text(&folder), err) ||
	    !paths_data(SLICE("archive.db"), &path, err) ||
	    !paths_data(SLICE("archive.lock"), &lock, err))
		goto out;
	observer->lock_fd = paths_lock(buf_text(&lock), &pid, &refused);
	if (observer->lock_fd < 0 && refused.code == ERR_REFUSED) {
		(void)err_set(err, ERR_REFUSED,
			      "another observer (pid %ld) has this archive: stop "
			      "it, or "
			      "use it with `perch open`",
			      pid);
		goto out;
	}
	/* A disk that takes no lock takes no frames: live goes on. */
	options.path = observer->lock_fd < 0 ? NULL : buf_text(&path);
	options.why = refused.text;
	observer->archive = archive_open(&options, err);
	if (observer->archive)
		observer->history = history_create(observer->archive, observer->spans,
						   model_values(observer->model));
	ok = observer->archive != NULL &&
	     archive_load(observer->archive, &loader, observer, err) &&
	     archive_start(observer->archive, observer->loop, &archive_events, observer,
			   err);
	if (ok)
		model_settle(observer->model, loop_unix_ms());
out:
	buf_finish(&path);
	buf_finish(&lock);
	buf_finish(&folder);
	return ok;
}

static bool open_broker(struct observer *observer, struct err *err)
{
	const struct hub_options hub = {
		.loop = observer->loop,
		.model = observer->model,
		.write_health = write_health,
		.write_owner = write_owner,
		.ctx = observer,
	};
	struct api_options api = {
		.model = observer->model,
		.archive = observer->archive,
		.controls = observer->controls,
		.spans = observer->spans,
		.history = observer->history,
		.token = observer->token,
		.host = observer->config->host,
		.control_ms = control_ms,
		.rotate = rotate,
		.write_url = write_url,
		.write_metrics = write_metrics,
		.play_demo = play_demo,
		.ctx = observer,
	};
	struct h1_options h1 = {
		.host = observer->config->host,
		.port = observer->config->port,
		.metrics_host =
			observer->config->metrics ? observer->config->metrics_host : NULL,
		.metrics_port = observer->config->metrics_port,
		.budget = &observer->budget,
	};
	struct buf path = {.max = 4096}, folder = {.max = 4096};
	bool ok = false;

	if (!token_ensure(observer->token, err) || !paths_run(SLICE(""), &folder, err) ||
	    !paths_make(buf_text(&folder), err) ||
	    !paths_run(SLICE("observer.sock"), &path, err))
		goto out;
	observer->hub = hub_create(&hub);
	api.hub = observer->hub;
	observer->api = api_create(&api);
	h1.handler = api_handler(observer->api);
	h1.unix_path = buf_text(&path);
	observer->h1 = h1_server_create(observer->loop, &h1, err);
	if (!observer->h1)
		goto out;
	api_set_port(observer->api, h1_server_port(observer->h1));
	ok = true;
out:
	buf_finish(&path);
	buf_finish(&folder);
	return ok;
}

/* The certificate: that of the options, else one of our own making. */
static bool open_certificate(struct observer *observer, struct err *err)
{
	const struct config *config = observer->config;
	struct buf path = {.max = 4096};
	bool made = false, ok;

	if (config->tls_cert) {
		observer->tls = tls_create(config->tls_cert, config->tls_key, err);
		return observer->tls != NULL;
	}
	ok = paths_data(SLICE("tls.pem"), &path, err) &&
	     selfcert_ensure(buf_text(&path), &made, err);
	if (ok)
		observer->tls = tls_create(buf_text(&path), buf_text(&path), err);
	if (made)
		log_info("observer", "made a certificate, %s", buf_text(&path));
	buf_finish(&path);
	return observer->tls != NULL;
}

/* What others write into their address bar. */
static void name_to_show(const struct observer *observer, char out[TLS_NAME_MAX])
{
	const struct config *config = observer->config;
	const char *host = config->tls_host;
	const bool is_all = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;

	if (config->tls_cert && !tls_is_for(observer->tls, host) &&
	    tls_first_name(observer->tls, out))
		return;
	if (is_all)
		host_outward(out);
	else
		(void)snprintf(out, TLS_NAME_MAX, "%s", host);
}

/* What is said of the certificate that was read last. */
static void describe_tls(struct observer *observer)
{
	char name[TLS_NAME_MAX];

	tls_fingerprint(observer->tls, observer->fingerprint);
	name_to_show(observer, name);
	buf_clear(&observer->tls_url);
	observer->tls_url.max = 512;
	(void)buf_printf(&observer->tls_url,
			 strchr(name, ':') ? "https://[%s]:%u/" : "https://%s:%u/", name,
			 h2_server_port(observer->h2));
}

/* SIGHUP: the certificate was renewed. */
static void on_hangup(void *ctx)
{
	struct observer *observer = ctx;
	const struct config *config = observer->config;
	struct err err;

	if (!tls_reload(observer->tls, config->tls_cert, config->tls_key, &err) ||
	    !h2_server_renew(observer->h2, &err)) {
		log_warn("observer", "the certificate stays as it was: %s", err.text);
		return;
	}
	describe_tls(observer);
	log_info("observer", "certificate read again, SHA-256 %s", observer->fingerprint);
}

static bool open_tls(struct observer *observer, struct err *err)
{
	const struct config *config = observer->config;
	struct h2_options options = {
		.host = config->tls_host,
		.port = config->tls_port,
		.handler = api_handler(observer->api),
		.budget = &observer->budget,
	};

	if (!config->tls)
		return true;
	if (!open_certificate(observer, err))
		return false;
	options.tls = observer->tls;
	observer->h2 = h2_server_create(observer->loop, &options, err);
	if (!observer->h2)
		return false;
	api_set_tls(observer->api, observer->tls, h2_server_port(observer->h2));
	describe_tls(observer);
	return true;
}

static bool open_link(struct observer *observer, struct err *err)
{
	const struct link_options options = {
		.url = observer->config->relay,
		.keypair = observer->owner,
		.events = &link_events,
		.ctx = observer,
	};
	struct buf filter = {.max = 256};

	observer->link = link_create(observer->loop, &options, err);
	if (!observer->link)
		return false;
	(void)buf_lit(&filter, "{\"kinds\":[24200],\"#p\":[\"");
	(void)buf_append_hex(&filter, keypair_public(observer->owner), KEY_BYTES);
	(void)buf_lit(&filter, "\"],\"since\":$now-300}");
	link_subscribe(observer->link, SLICE("frames"), buf_slice(&filter));
	buf_finish(&filter);
	return true;
}

static void say_ready(const struct observer *observer)
{
	const int fd = (int)observer->config->ready_fd;
	struct buf line = {.max = 1024};
	const char *host = observer->config->host;
	const bool v6 = strchr(host, ':') != NULL;

	log_info("observer",
		 "serving the page on http://%s%s%s:%u/: see it with `perch open`",
		 v6 ? "[" : "", host, v6 ? "]" : "", h1_server_port(observer->h1));
	if (observer->h2)
		log_info("observer", "and by HTTP/2 on %.*s, certificate SHA-256 %s",
			 SLICE_ARG(buf_slice(&observer->tls_url)), observer->fingerprint);
	if (observer->config->metrics) {
		const char *where = observer->config->metrics_host;
		const bool is_v6 = strchr(where, ':') != NULL;

		log_info("observer", "metrics on http://%s%s%s:%u/metrics",
			 is_v6 ? "[" : "", where, is_v6 ? "]" : "",
			 h1_server_metrics_port(observer->h1));
	}
	if (fd < 0)
		return;
	/* At once: whoever reads it takes what is there for the whole. */
	(void)buf_printf(&line, "%u %s", h1_server_port(observer->h1), observer->token);
	if (observer->h2)
		(void)buf_printf(&line, " %.*s %s",
				 SLICE_ARG(buf_slice(&observer->tls_url)),
				 observer->fingerprint);
	(void)dprintf(fd, "%s\n", buf_text(&line));
	buf_wipe(&line);
	(void)close(fd);
}

static bool observer_start(struct observer *observer, struct err *err)
{
	struct ingest_options ingest = {
		.on_frame = on_frame,
		.on_stranger = on_stranger,
		.on_gone = on_gone,
		.ctx = observer,
	};
	struct controls_options controls = {
		.publish = publish,
		.on_body = on_body,
		.random = loop_random,
		.ctx = observer,
	};

	observer->budget.figures = &observer->figures;
	observer->loop = loop_create(err);
	if (!observer->loop || !open_owner(observer, err))
		return false;
	ingest.crypto = controls.crypto = observer->loop->crypto;
	ingest.owner = controls.owner = observer->owner;
	observer->model = model_create();
	observer->spans = spans_create(SPANS_BYTES_MAX);
	model_set_spans(observer->model, observer->spans);
	observer->ingest = ingest_create(&ingest);
	controls.ingest = observer->ingest;
	controls.model = observer->model;
	observer->controls = controls_create(&controls);
	observer->demo =
		demo_create(observer->config->relay, observer->config->log_level);
	if (!open_archive(observer, err) || !open_broker(observer, err) ||
	    !open_tls(observer, err) || !open_link(observer, err))
		return false;
	/* Where nobody has put a certificate there is none to put in its place. */
	if (!loop_on_hangup(observer->loop,
			    observer->h2 && observer->config->tls_cert ? on_hangup : NULL,
			    observer, err))
		return false;
	loop_on_signal(observer->loop, on_signal, observer);
	observer->tick = timer_create_on(observer->loop, on_tick, observer);
	observer->settle = timer_create_on(observer->loop, on_settle, observer);
	timer_start(observer->tick, TICK_MS);
	say_ready(observer);
	return true;
}

/* What lives on the loop goes before it, what it may still call back after it. */
static void observer_stop(struct observer *observer)
{
	timer_destroy(observer->tick);
	timer_destroy(observer->settle);
	demo_destroy(observer->demo);
	link_destroy(observer->link);
	observer->link = NULL;
	history_stop(observer->history);
	archive_close(observer->archive);
	history_destroy(observer->history);
	h1_server_stop(observer->h1);
	h2_server_destroy(observer->h2);
	observer->h2 = NULL;
	if (observer->hub)
		hub_stop(observer->hub);
	if (observer->loop) {
		controls_destroy(observer->controls);
		ingest_destroy(observer->ingest);
		loop_destroy(observer->loop);
	}
	h1_server_destroy(observer->h1);
	tls_destroy(observer->tls);
	buf_finish(&observer->tls_url);
	api_destroy(observer->api);
	hub_destroy(observer->hub);
	model_destroy(observer->model);
	spans_destroy(observer->spans);
	keypair_destroy(observer->owner);
	if (observer->lock_fd >= 0)
		(void)close(observer->lock_fd);
	sodium_memzero(observer->token, sizeof(observer->token));
	buf_finish(&observer->npub);
	buf_finish(&observer->words);
}

/* Listening takes no names. */
static void want_address(char host[64])
{
	if (strcmp(host, "localhost") == 0)
		(void)snprintf(host, 64, "127.0.0.1");
}

static bool read_config(struct config *config, struct err *err)
{
	enum log_level level;

	if (!log_parse_level(config->log_level, &level, err) ||
	    !options_host_port(config->listen, config->host, &config->port, err))
		return false;
	if (!host_is_loopback(config->host))
		return err_set(
			err, ERR_REFUSED,
			"--listen %s is not a loopback address: the page's token would "
			"travel in the clear; add --tls HOST:PORT for other machines, or "
			"use an ssh tunnel (ssh -L 7777:127.0.0.1:7777 HOST)",
			config->listen);
	if (!config->tls_cert != !config->tls_key)
		return err_set(err, ERR_REFUSED, "--tls-cert and --tls-key go together");
	if (config->tls &&
	    !options_host_port(config->tls, config->tls_host, &config->tls_port, err))
		return false;
	if (config->metrics && !options_host_port(config->metrics, config->metrics_host,
						  &config->metrics_port, err))
		return false;
	if (!config->tls && config->tls_cert)
		log_warn("observer", "--tls-cert does nothing without --tls HOST:PORT");
	want_address(config->host);
	want_address(config->metrics_host);
	want_address(config->tls_host);
	log_set_level(level);
	return true;
}

int observer_main(int argc, char *argv[])
{
	struct config config = {.relay = "ws://127.0.0.1:7447",
				.listen = "127.0.0.1:7777",
				.log_level = "info",
				.keep_days = ARCHIVE_KEEP_DAYS,
				.keep_mib = ARCHIVE_KEEP_MIB,
				.ready_fd = -1};
	const struct option_spec specs[] = {
		{.name = "relay",
		 .type = OPTION_TEXT,
		 .value = &config.relay,
		 .argument = "URL",
		 .help = "relay to listen to (ws://127.0.0.1:7447)"},
		{.name = "listen",
		 .type = OPTION_TEXT,
		 .value = &config.listen,
		 .argument = "HOST:PORT",
		 .help = "where to serve the page (127.0.0.1:7777); port 0 chooses one"},
		{.name = "tls",
		 .type = OPTION_TEXT,
		 .value = &config.tls,
		 .argument = "HOST:PORT",
		 .help = "serve it by HTTP/2 over TLS as well, for a phone or another "
			 "machine; 0.0.0.0:7778 is every address of this one"},
		{.name = "tls-cert",
		 .type = OPTION_TEXT,
		 .value = &config.tls_cert,
		 .argument = "FILE",
		 .help = "with this certificate, a PEM file with its chain (else one "
			 "that is made here; compare its fingerprint); SIGHUP reads "
			 "it again"},
		{.name = "tls-key",
		 .type = OPTION_TEXT,
		 .value = &config.tls_key,
		 .argument = "FILE",
		 .help = "and this key, PEM, without a passphrase"},
		{.name = "metrics",
		 .type = OPTION_TEXT,
		 .value = &config.metrics,
		 .argument = "HOST:PORT",
		 .help = "serve /metrics (figures for Prometheus) and /healthz there "
			 "too (off)"},
		{.name = "log-level",
		 .type = OPTION_TEXT,
		 .value = &config.log_level,
		 .argument = "LEVEL",
		 .help = "error, warn, info or debug (info)"},
		{.name = "keep-days",
		 .type = OPTION_INT,
		 .value = &config.keep_days,
		 .min = 0,
		 .max = 36500,
		 .argument = "N",
		 .help = "days that frames are kept (90); 0: without an end"},
		{.name = "keep-mib",
		 .type = OPTION_INT,
		 .value = &config.keep_mib,
		 .min = 0,
		 .max = 1 << 24,
		 .argument = "MIB",
		 .help = "most that the archive holds (4096), the oldest of whoever "
			 "has most goes first; 0: without an end"},
		{.name = "ready-fd",
		 .type = OPTION_INT,
		 .value = &config.ready_fd,
		 .min = -1,
		 .max = 65535,
		 .argument = "N",
		 .help = "write \"PORT TOKEN\" to this descriptor when ready",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch observer",
		.usage = "[OPTIONS]",
		.summary = "Opens the frames of your agents, keeps them, and serves the "
			   "page "
			   "that shows and steers them.",
		.example = "  perch observer --relay wss://relay.example\n",
		.options = specs,
	};
	struct observer observer = {.config = &config, .lock_fd = -1};
	struct options *options = NULL;
	struct err err = {.code = ERR_NONE};
	char **args;
	int arg_count;
	bool ok = false;

	switch (options_parse(&spec, argc, argv, &options, &args, &arg_count)) {
	case OPTIONS_OK:
		break;
	case OPTIONS_EXIT_OK:
		options_destroy(options);
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		options_destroy(options);
		return 2;
	}
	keyfile_guard_process();
	if (!read_config(&config, &err))
		goto out;
	ok = observer_start(&observer, &err);
	if (ok)
		loop_run(observer.loop);
out:
	if (!ok)
		log_error("observer", "%s", err.text);
	observer_stop(&observer);
	options_destroy(options);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
