#ifndef WIRE_NOSTR_MESSAGE_H
#define WIRE_NOSTR_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/arena.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/event.h"

#define MESSAGE_SUB_ID_MAX 64 /* code points */
#define MESSAGE_FILTERS_MAX 10

/* What a client says to a relay (NIP-01, 42, 45), parsed down to slices of its text. */
enum client_verb { CLIENT_EVENT, CLIENT_REQ, CLIENT_CLOSE, CLIENT_AUTH, CLIENT_COUNT };

struct client_message {
	enum client_verb verb;
	struct slice event;    /* EVENT, AUTH: from the object's first to its last brace;
				* what    is between is event_parse()'s to check */
	struct slice sub_id;   /* REQ, CLOSE, COUNT: decoded, 1..64 code points */
	struct slice *filters; /* REQ, COUNT: object texts */
	size_t filter_count;   /* 1..MESSAGE_FILTERS_MAX */
};

/* On failure @sub_id_out (may be NULL) is the subscription id when one could be read of a
 * REQ or COUNT, so that it can be answered with CLOSED; else the empty slice. */
bool client_message_parse(struct slice text, struct arena *arena,
			  struct client_message *out, struct slice *sub_id_out,
			  struct err *err);

/* What a relay says to a client. */
enum relay_verb {
	RELAY_EVENT,
	RELAY_OK,
	RELAY_EOSE,
	RELAY_CLOSED,
	RELAY_NOTICE,
	RELAY_AUTH,
	RELAY_COUNT,
};

struct relay_message {
	enum relay_verb verb;
	struct slice sub_id; /* EVENT, EOSE, CLOSED, COUNT: decoded */
	struct slice event;  /* EVENT: as in struct client_message */
	uint8_t id[32];      /* OK */
	bool accepted;       /* OK */
	struct slice text;   /* OK, CLOSED, NOTICE: decoded words; AUTH: the challenge;
			      * COUNT: object text */
};

bool relay_message_parse(struct slice text, struct arena *arena,
			 struct relay_message *out, struct err *err);

/* Writers; each appends one whole message. Words are plain UTF-8. */
bool message_write_event(struct buf *out, struct slice event);  /* client */
bool message_write_auth(struct buf *out, struct slice event);   /* client */
bool message_write_close(struct buf *out, struct slice sub_id); /* client */
bool message_write_req(struct buf *out, struct slice sub_id, struct slice filter);
bool message_write_sub_event(struct buf *out, struct slice sub_id, struct slice event);
bool message_write_ok(struct buf *out, struct slice id_hex, bool accepted,
		      struct slice text);
bool message_write_eose(struct buf *out, struct slice sub_id);
bool message_write_closed(struct buf *out, struct slice sub_id, struct slice text);
bool message_write_notice(struct buf *out, struct slice text);
bool message_write_challenge(struct buf *out, struct slice challenge);

#endif
