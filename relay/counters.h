#ifndef RELAY_COUNTERS_H
#define RELAY_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "relay/histogram.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* Why something was refused: counted one by one, named in /metrics and in the log. */
enum refusal {
	REFUSAL_MALFORMED, /* a message or an event that does not parse */
	REFUSAL_UTF8,      /* closes the connection */
	REFUSAL_BINARY,    /* a binary message */
	REFUSAL_OVERSIZE,  /* closes the connection */
	REFUSAL_SHAPE,     /* a frame whose tags or content are not those of NIP-AO */
	REFUSAL_UNAUTHENTICATED,
	REFUSAL_AUTHOR, /* authenticated, but as somebody else */
	REFUSAL_STALE,  /* created_at too far from our clock */
	REFUSAL_OWNER,  /* agent and owner do not belong together */
	REFUSAL_RATE,
	REFUSAL_ID,
	REFUSAL_SIGNATURE,
	REFUSAL_STORED_KIND,
	REFUSAL_KIND,    /* a kind that is never published */
	REFUSAL_EXPIRED, /* NIP-40 */
	REFUSAL_AUTH,    /* an AUTH that proves nothing */
	REFUSAL_FILTER,
	REFUSAL_GATED,         /* a REQ for somebody else's frames */
	REFUSAL_SUBSCRIPTIONS, /* too many */
	REFUSAL_REPLAY,        /* the last replay is still being sent */
	REFUSAL_COUNT,
	REFUSAL_BEHIND,   /* a slow reader; closes the connection */
	REFUSAL_IDLE,     /* neither AUTH nor REQ in time; closes the connection */
	REFUSAL_ORIGIN,   /* a web page that was not allowed */
	REFUSAL_FULL,     /* too many connections */
	REFUSAL_FILES,    /* no descriptor for another connection */
	REFUSAL_ADDRESS,  /* too many connections from one address */
	REFUSAL_UNLISTED, /* neither a listed owner nor an agent of one */
	REFUSAL_REVOKED,  /* a key that the operator has shut out */
	REFUSAL_OLD,      /* a newer version is stored */
	REFUSAL_DELETED,  /* its author has deleted it */
	REFUSAL_DATABASE, /* the disk is full, behind or broken */
	REFUSAL_MUTE,     /* nobody received it, and that is to be said so */
	REFUSAL_LAST = REFUSAL_MUTE,
};

/* Log lines for one kind of refusal are at least this far apart: a flood of bad messages
 * must not become a flood of log lines. Our choice. */
#define REFUSAL_LOG_MS 10000

/* What a relay did since its start. */
struct counters {
	uint64_t connections; /* open now */
	uint64_t connections_total;
	uint64_t messages; /* received, whole */
	uint64_t authenticated;
	uint64_t frames; /* kind 24200, admitted */
	uint64_t events; /* other ephemeral kinds, admitted */
	uint64_t stored; /* events of stored kinds, committed */
	uint64_t duplicates;
	uint64_t ignored;    /* frames of a type we do not know */
	uint64_t deliveries; /* events handed to a reader's queue */
	uint64_t unheard;    /* admitted events that nobody listened for */
	uint64_t sent_bytes;
	uint64_t writes; /* to sockets, of one message or several */
	uint64_t refused[REFUSAL_LAST + 1];
	size_t unsent_max;        /* most unsent bytes of one reader, ever */
	struct histogram fan_out; /* of one event, into the readers' queues */
	struct {
		bool logged; /* ever */
		int64_t at_ms;
		uint64_t silent; /* refused since then without a line */
	} quiet[REFUSAL_LAST + 1];
};

/* Lower case with underscores: "stored_kind". */
const char *refusal_name(enum refusal refusal);
/* Counts one refusal. True when it may be logged now; @silent_out: how many before it
 * were not. */
bool counters_refuse(struct counters *counters, enum refusal refusal, int64_t now_ms,
		     uint64_t *silent_out);
/* Appends all of it in Prometheus' text format. */
void counters_write(const struct counters *counters, struct buf *out);

#endif
