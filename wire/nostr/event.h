#ifndef WIRE_NOSTR_EVENT_H
#define WIRE_NOSTR_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/arena.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

#define EVENT_MAX_BYTES (256 * 1024) /* JSON text; our relay's message limit */
#define EVENT_TAGS_MAX 2000
#define EVENT_KIND_MAX 65535

struct tag {
	struct slice *values; /* decoded; [0] is the name */
	size_t count;         /* at least 1 */
};

/* A signed event. Its slices point into the text it was parsed from or into the arena it
 * was parsed with, and must not outlive either. */
struct event {
	uint8_t id[32];
	uint8_t pubkey[KEY_BYTES];
	uint8_t sig[SIG_BYTES];
	int64_t created_at; /* seconds since the Unix epoch, 0 or more */
	uint32_t kind;
	struct tag *tags;
	size_t tag_count;
	struct slice content; /* as sent, between the quotes: escapes not decoded */
	struct slice text;    /* the whole object, as sent */
	bool has_more;        /* text has members beside the seven of NIP-01 */
};

/**
 * event_parse - read one event from JSON text
 * @json: exactly one object
 * @arena: holds the tags
 *
 * ERR_TOO_LARGE above EVENT_MAX_BYTES or EVENT_TAGS_MAX, else ERR_MALFORMED. Unknown
 * members are ignored; a missing or repeated member, an empty tag, a NUL or a lone
 * surrogate in a string is refused. Checks shape, not truth: that is event_verify()'s
 * business. Source: NIP-01, "Events and signatures".
 */
bool event_parse(struct slice json, struct arena *arena, struct event *out,
		 struct err *err);
/* The 64 lower-case hex digits of the "id" member, for the OK of an event that failed to
 * parse; false if there is none: an OK has no other. */
bool event_find_id(struct slice json, struct slice *hex);
/* Recomputes the id from the decoded members. @scratch is cleared and used. */
bool event_check_id(struct crypto *crypto, const struct event *event, struct buf *scratch,
		    struct err *err);
/* BIP-340 over the id; the id itself must have been checked. */
bool event_check_sig(struct crypto *crypto, const struct event *event, struct err *err);
/* Both, id first. */
bool event_verify(struct crypto *crypto, const struct event *event, struct buf *scratch,
		  struct err *err);

/* First tag of that name, or NULL. */
const struct tag *event_tag(const struct event *event, struct slice name);
/* Number of tags of that name. */
size_t event_tag_count(const struct event *event, struct slice name);
/* Value 1 of a tag, or the empty slice. */
struct slice tag_value(const struct tag *tag);

/* 20000..29999 */
bool event_is_ephemeral(uint32_t kind);

/* What a new event is made of. */
struct event_draft {
	int64_t created_at;
	uint32_t kind;
	struct slice tags;    /* JSON array text in NIP-01's canonical form
			       * (json_write_string);    empty stands for "[]" */
	struct slice content; /* plain UTF-8; ignored by event_seal */
};

/* Appends the signed JSON object to @out. @aux: 32 random bytes. @id may be NULL. On
 * failure
 * @out is as before. */
bool event_sign(struct crypto *crypto, const struct keypair *keypair,
		const struct event_draft *draft, const uint8_t aux[32], struct buf *out,
		uint8_t id[32], struct err *err);
/**
 * event_seal - event_sign() with NIP-44 content, in one pass
 * Encrypts @plaintext under @conversation_key straight into the event text at the end of
 * @out, hashes it there, signs once. On failure @out is as before.
 */
bool event_seal(struct crypto *crypto, const struct keypair *keypair,
		const uint8_t conversation_key[32], const struct event_draft *draft,
		struct slice plaintext, const uint8_t nonce[NONCE_BYTES],
		const uint8_t aux[32], struct buf *out, uint8_t id[32], struct err *err);

#endif
