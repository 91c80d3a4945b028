#ifndef TESTS_UNIT_SUPPORT_RELAY_FIXTURE_H
#define TESTS_UNIT_SUPPORT_RELAY_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "wire/base/arena.h"
#include "wire/base/buf.h"
#include "wire/frame/limits.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nipoa.h"

/* The moment at which the tests of the relay happen. */
#define NOW INT64_C(1796000000)
#define NOW_MS (NOW * 1000)

/* An agent, its owner and a stranger, and events signed by them. */
struct fixture {
	struct crypto *crypto;
	struct keypair *agent, *owner, *stranger;
	struct arena arena;     /* of the events made */
	struct buf attestation; /* the owner's for the agent, without conditions */
};

static inline struct keypair *fixture_key(struct crypto *crypto, uint8_t byte)
{
	struct keypair *keypair = NULL;
	uint8_t secret[KEY_BYTES];
	struct err err;

	memset(secret, byte, sizeof(secret));
	ck_assert(keypair_create(crypto, secret, &keypair, &err));
	return keypair;
}

static inline void fixture_attest(struct fixture *fixture, const struct keypair *owner,
				  const char *conditions, struct buf *out)
{
	static const uint8_t aux[32] = {1};
	struct err err;

	buf_init(out, 4096);
	ck_assert_msg(nipoa_sign(fixture->crypto, owner, keypair_public(fixture->agent),
				 slice_of(conditions), aux, out, &err),
		      "%s", err.text);
}

static inline void fixture_init(struct fixture *fixture)
{
	static const uint8_t seed[32] = {7};
	struct err err;

	fixture->crypto = crypto_create(seed, &err);
	ck_assert_ptr_nonnull(fixture->crypto);
	fixture->agent = fixture_key(fixture->crypto, 0x11);
	fixture->owner = fixture_key(fixture->crypto, 0x22);
	fixture->stranger = fixture_key(fixture->crypto, 0x33);
	arena_init(&fixture->arena, 16384);
	fixture_attest(fixture, fixture->owner, "", &fixture->attestation);
}

static inline void fixture_finish(struct fixture *fixture)
{
	buf_finish(&fixture->attestation);
	arena_finish(&fixture->arena);
	keypair_destroy(fixture->agent);
	keypair_destroy(fixture->owner);
	keypair_destroy(fixture->stranger);
	crypto_destroy(fixture->crypto);
}

/* What an event is made of; what is left out is that of a good telemetry frame. */
struct recipe {
	const struct keypair *author;    /* default: the agent */
	const struct keypair *p, *agent; /* default: the owner, the agent */
	const char *frame;               /* default: telemetry */
	const char *tags;                /* JSON array text; instead of the three above */
	struct slice more_tags; /* JSON arrays, comma between; behind the three */
	int64_t created_at;     /* default: NOW */
	uint32_t kind;          /* default: 24200 */
	const char *content;    /* default: looks sealed */
};

/* 99 bytes of which the first is NIP-44's version 2. */
#define SEALED \
	"AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" \
	"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

static inline void fixture_hex(const struct keypair *keypair, char out[65])
{
	hex_encode(keypair_public(keypair), KEY_BYTES, out);
	out[64] = '\0';
}

/* Appends the signed event's JSON to @out. */
static inline void fixture_write(struct fixture *fixture, struct recipe recipe,
				 struct buf *out)
{
	static uint8_t aux[32];
	char p[65], agent[65];
	struct event_draft draft;
	struct buf tags;
	struct err err;

	fixture_hex(recipe.p ? recipe.p : fixture->owner, p);
	fixture_hex(recipe.agent ? recipe.agent : fixture->agent, agent);
	buf_init(&tags, 65536);
	if (recipe.tags) {
		(void)buf_append(&tags, slice_of(recipe.tags));
	} else {
		(void)buf_printf(
			&tags, "[[\"p\",\"%s\"],[\"agent\",\"%s\"],[\"frame\",\"%s\"]%s",
			p, agent, recipe.frame ? recipe.frame : "telemetry",
			recipe.more_tags.len ? "," : "");
		(void)buf_append(&tags, recipe.more_tags);
		(void)buf_lit(&tags, "]");
	}
	draft = (struct event_draft){
		.created_at = recipe.created_at ? recipe.created_at : NOW,
		.kind = recipe.kind ? recipe.kind : FRAME_KIND,
		.tags = buf_slice(&tags),
		.content = slice_of(recipe.content ? recipe.content : SEALED),
	};
	ck_assert_msg(event_sign(fixture->crypto,
				 recipe.author ? recipe.author : fixture->agent, &draft,
				 aux, out, NULL, &err),
		      "%s", err.text);
	buf_finish(&tags);
}

/* The same, parsed; lives until fixture_finish(). */
static inline struct event fixture_event(struct fixture *fixture, struct recipe recipe)
{
	struct event event;
	struct buf json;
	struct err err;

	buf_init(&json, EVENT_MAX_BYTES);
	fixture_write(fixture, recipe, &json);
	ck_assert_msg(event_parse(arena_dup(&fixture->arena, buf_slice(&json)),
				  &fixture->arena, &event, &err),
		      "%s", err.text);
	buf_finish(&json);
	return event;
}

#endif
