#ifndef WIRE_HOST_LOOP_H
#define WIRE_HOST_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/nostr/crypto.h"

struct lws_context;
struct uv_loop_s;

/* A connection that has been silent this long is pinged, and is closed when nothing came
 * for that long: two missed closings (design §11). For client vhosts and server vhosts
 * alike. */
#define LOOP_PING_S 30
#define LOOP_HANGUP_S 75

/* What every process runs on: one libuv loop, libwebsockets as a guest on it, and one
 * crypto context for its thread. SIGPIPE is ignored; SIGTERM and SIGINT call loop_stop's
 * callback. */
struct loop {
	struct uv_loop_s *uv;
	struct lws_context
		*lws; /* one context; vhosts are made by whoever listens or connects */
	struct crypto *crypto;
	/* ours: */
	struct loop_state *state;
};

struct loop *loop_create(struct err *err);
/* Call when everything that lives on the loop was destroyed; runs it until the last
 * handle has closed, then frees (lws needs its context destroyed twice: facts/stack.md
 * §2a). */
void loop_destroy(struct loop *loop);
/* Runs until loop_quit(). */
void loop_run(struct loop *loop);
void loop_quit(struct loop *loop);
/* Called on the loop at SIGTERM or SIGINT (@signal) instead of quitting at once. The
 * second such signal quits. */
void loop_on_signal(struct loop *loop, void (*on_signal)(void *ctx, int signal),
		    void *ctx);
/* Called, with the same @ctx, at the second one, and the third quits: for a last word
 * that takes a moment. */
void loop_on_second_signal(struct loop *loop, void (*on_second)(void *ctx, int signal));

/* Called whenever the loop has done what was due and is about to wait: what a turn left
 * is finished there in one go. One per loop; it does not keep the loop alive. */
void loop_before_wait(struct loop *loop, void (*before_wait)(void *ctx), void *ctx);

/* SIGHUP, which else ends a process: @on_hangup (NULL: there is nothing to read again,
 * and a line says so) is called on the loop. Where the terminal that the process was
 * started in has gone it is what it was made for, and counts as SIGTERM; unless it was
 * ignored then, as nohup has it. */
bool loop_on_hangup(struct loop *loop, void (*on_hangup)(void *ctx), void *ctx,
		    struct err *err);

/* CLOCK_BOOTTIME in ms: for deadlines; goes on in suspend. */
int64_t loop_now_ms(void);
/* CLOCK_MONOTONIC in ns: for how long something took. */
int64_t loop_now_ns(void);
/* Unix time in ms: for display and created_at. */
int64_t loop_unix_ms(void);
void loop_random(void *out, size_t len);
/* A context of its own for whoever has no loop, or another thread; seeded by
 * loop_random(). NULL: see crypto_create(). */
struct crypto *loop_new_crypto(struct err *err);

/* A one-shot timer. Destroying it (NULL is fine) inside its own callback is allowed. */
struct timer;
struct timer *timer_create_on(struct loop *loop, void (*on_timer)(void *ctx), void *ctx);
void timer_destroy(struct timer *timer);
/* (Re)arms it; never fires early, nor, should it come late, before what came until then
 * was read; 0 fires on the next turn of the loop. */
void timer_start(struct timer *timer, uint64_t delay_ms);
void timer_stop(struct timer *timer);
bool timer_armed(const struct timer *timer);

#endif
