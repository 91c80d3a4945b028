#ifndef OBSERVER_HTTP_H2_SESSION_H
#define OBSERVER_HTTP_H2_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/http/http.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* One connection's HTTP/2 (RFC 9113), by nghttp2, without its socket: bytes in, bytes
 * out, time as an argument. Answers wait until the peer reads them; what it makes us keep
 * is bounded:
 *
 *   streams at one time       BROKER_H2_STREAMS_MAX; more: REFUSED_STREAM
 *   headers of a request      BROKER_HEADER_MAX: 431; sixteen times that, or more than
 *                             eight CONTINUATION frames: ENHANCE_YOUR_CALM
 *   a body                    BROKER_BODY_MAX: 413; of one that may not be sent nothing
 *                             is kept; all of a connection: its window,
 *                             BROKER_H2_WINDOW_BYTES
 *   answers that wait         BROKER_H2_HELD_MAX and one more: 503
 *   resets, either side's     BROKER_H2_RESETS_PER_S and a burst: ENHANCE_YOUR_CALM
 *   frames that ask nothing   BROKER_H2_FRAMES_PER_S and a burst: ENHANCE_YOUR_CALM
 *   acknowledgements unread   BROKER_H2_ACKS_MAX: ENHANCE_YOUR_CALM
 *   our SETTINGS not taken    BROKER_REQUEST_S: SETTINGS_TIMEOUT
 *   a request unfinished      BROKER_REQUEST_S: 408; in its headers: ENHANCE_YOUR_CALM
 *   an answer unread          BROKER_H2_UNREAD_S without one byte: CANCEL
 *   no request                BROKER_IDLE_S: NO_ERROR
 *   silence                   LOOP_PING_S: PING; LOOP_HANGUP_S: the end
 *
 * Codes in capitals that end the connection come in GOAWAY, those of one stream (REFUSED_
 * STREAM, CANCEL) in RST_STREAM. A page of the stream may stop reading for as long as it
 * likes: it holds one message, and finds a snapshot later. */
struct h2_session;

struct h2_session_options {
	struct http_handler handler;
	struct http_budget *budget; /* borrowed */
	/* There may be something to take. Called from inside calls of ours as well: take
	 * it later. */
	void (*wake)(void *ctx);
	void *ctx;
};

struct h2_session *h2_session_create(const struct h2_session_options *options,
				     int64_t now_ms);
/* NULL is fine. Tells the holders of its exchanges that they are gone. */
void h2_session_destroy(struct h2_session *session);
/* Takes what the peer sent; after it take. */
void h2_session_receive(struct h2_session *session, struct slice bytes, int64_t now_ms);
/* Appends what is to be sent to @out, about @want bytes at most; call again until nothing
 * was appended. False: after what was appended the connection is to be closed. */
bool h2_session_take(struct h2_session *session, struct buf *out, size_t want,
		     int64_t now_ms);
/* Once a second. False: the peer is gone. */
bool h2_session_tick(struct h2_session *session, int64_t now_ms);
/* Says goodbye: what is running goes on, nothing new is taken. */
void h2_session_end(struct h2_session *session);
/* Some request of it had the token. */
bool h2_session_is_trusted(const struct h2_session *session);
size_t h2_session_streams(const struct h2_session *session);

#endif
