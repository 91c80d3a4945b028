#include "agent/inbox.h"

#include <stdlib.h>
#include <string.h>

#include "wire/base/arena.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nip44.h"

/* Controls a second whose signature is looked at: what an owner's programs send is a
 * tenth of it, and a relay that makes controls up must not cost more. */
#define VERIFY_PER_S (10 * CONTROL_PER_S)

struct inbox {
	struct crypto *crypto;
	const uint8_t *conversation_key;
	uint8_t owner[KEY_BYTES];
	char agent_hex[2 * KEY_BYTES];
	struct arena arena;
	struct buf scratch, plaintext;
	/* Ids seen, and the same in the order of their coming, round the ring. */
	struct map seen;
	uint8_t (*ring)[32];
	size_t ring_count, ring_capacity, ring_at;
	int64_t second;
	unsigned in_second; /* signatures looked at */
};

struct inbox *inbox_create(struct crypto *crypto, const struct keypair *agent,
			   const uint8_t owner[KEY_BYTES],
			   const uint8_t *conversation_key)
{
	struct inbox *inbox = mem_alloc(sizeof(*inbox));

	inbox->crypto = crypto;
	inbox->conversation_key = conversation_key;
	memcpy(inbox->owner, owner, KEY_BYTES);
	hex_encode(keypair_public(agent), KEY_BYTES, inbox->agent_hex);
	arena_init(&inbox->arena, 4096);
	buf_init(&inbox->scratch, EVENT_MAX_BYTES * 2);
	buf_init(&inbox->plaintext, NIP44_PLAINTEXT_MAX);
	map_init(&inbox->seen);
	return inbox;
}

void inbox_destroy(struct inbox *inbox)
{
	if (!inbox)
		return;
	arena_finish(&inbox->arena);
	buf_finish(&inbox->scratch);
	buf_wipe(&inbox->plaintext);
	map_finish(&inbox->seen);
	free(inbox->ring);
	free(inbox);
}

static struct slice id_slice(const uint8_t id[32])
{
	return (struct slice){(const char *)id, 32};
}

static void remember(struct inbox *inbox, const uint8_t id[32])
{
	if (inbox->ring_count == CONTROL_REMEMBERED) {
		(void)map_take(&inbox->seen, id_slice(inbox->ring[inbox->ring_at]));
	} else {
		if (inbox->ring_count == inbox->ring_capacity) {
			inbox->ring_capacity =
				inbox->ring_capacity ? 2 * inbox->ring_capacity : 64;
			inbox->ring = mem_grow(inbox->ring, inbox->ring_capacity,
					       sizeof(*inbox->ring));
		}
		inbox->ring_count++;
	}
	memcpy(inbox->ring[inbox->ring_at], id, 32);
	inbox->ring_at = (inbox->ring_at + 1) % CONTROL_REMEMBERED;
	(void)map_put(&inbox->seen, id_slice(id), inbox);
}

/* "Exactly one p, one agent, one frame tag"; @frame_out: the value of the last. */
static bool check_tags(const struct inbox *inbox, const struct event *event,
		       struct slice *frame_out, struct err *err)
{
	const struct slice agent = {inbox->agent_hex, sizeof(inbox->agent_hex)};

	if (event_tag_count(event, SLICE("p")) != 1 ||
	    event_tag_count(event, SLICE("agent")) != 1 ||
	    event_tag_count(event, SLICE("frame")) != 1)
		return err_set(err, ERR_MALFORMED,
			       "tags are not one p, one agent, one frame");
	if (!slice_eq(tag_value(event_tag(event, SLICE("p"))), agent) ||
	    !slice_eq(tag_value(event_tag(event, SLICE("agent"))), agent))
		return err_set(err, ERR_MALFORMED,
			       "tags p and agent do not name this agent");
	*frame_out = tag_value(event_tag(event, SLICE("frame")));
	return true;
}

static bool check(struct inbox *inbox, const struct event *event, int64_t now_s,
		  struct slice *frame_out, struct err *err)
{
	if (event->kind != FRAME_KIND)
		return err_set(err, ERR_MALFORMED, "kind is %u, want %d", event->kind,
			       FRAME_KIND);
	if (memcmp(event->pubkey, inbox->owner, KEY_BYTES) != 0)
		return err_set(err, ERR_REFUSED, "author is not the owner");
	if (!check_tags(inbox, event, frame_out, err))
		return false;
	if (event->created_at < now_s - FRAME_FRESH_S ||
	    event->created_at > now_s + FRAME_FRESH_S)
		return err_set(err, ERR_REFUSED,
			       "created_at is %lld s off, want at most %d",
			       (long long)(event->created_at - now_s), FRAME_FRESH_S);
	return true;
}

static bool within_rate(struct inbox *inbox, int64_t now_s)
{
	if (now_s != inbox->second) {
		inbox->second = now_s;
		inbox->in_second = 0;
	}
	return inbox->in_second++ < VERIFY_PER_S;
}

enum inbox_verdict inbox_open(struct inbox *inbox, struct slice text, int64_t now_s,
			      struct inbox_control *out, struct err *err)
{
	struct slice frame = SLICE_EMPTY;
	struct event event;

	arena_reset(&inbox->arena);
	inbox_wipe(inbox);
	if (!event_parse(text, &inbox->arena, &event, err) ||
	    !check(inbox, &event, now_s, &frame, err))
		return INBOX_REFUSED;
	if (!slice_eq(frame, SLICE("control")) ||
	    map_get(&inbox->seen, id_slice(event.id)) != NULL)
		return INBOX_IGNORED;
	if (!within_rate(inbox, now_s)) {
		(void)err_set(err, ERR_REFUSED, "more than %d controls in a second",
			      VERIFY_PER_S);
		return INBOX_REFUSED;
	}
	if (!event_verify(inbox->crypto, &event, &inbox->scratch, err))
		return INBOX_REFUSED;
	remember(inbox, event.id);
	if (!nip44_decrypt(inbox->crypto, inbox->conversation_key, event.content,
			   &inbox->plaintext, err))
		return INBOX_REFUSED;
	memcpy(out->event_id, event.id, sizeof(out->event_id));
	out->created_at = event.created_at;
	out->plaintext = buf_slice(&inbox->plaintext);
	return INBOX_OPENED;
}

void inbox_wipe(struct inbox *inbox)
{
	buf_wipe(&inbox->plaintext);
}
