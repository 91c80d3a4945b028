/* Events and messages from anywhere. An event that parses has a canonical form, which
 * parses to an event of the same id. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <string.h>

#include "wire/nostr/event.h"
#include "wire/nostr/json.h"
#include "wire/nostr/message.h"
#include "wire/nostr/nip42.h"
#include "wire/nostr/nipoa.h"

static struct crypto *shared_crypto(void)
{
	static struct crypto *crypto; /* made once: it keeps nothing of an input */
	static const uint8_t seed[32];

	if (!crypto)
		crypto = crypto_create(seed, NULL);
	assert(crypto);
	return crypto;
}

static void write_canonical(const struct event *event, struct buf *out)
{
	(void)buf_lit(out, "{\"id\":\"");
	(void)buf_append_hex(out, event->id, sizeof(event->id));
	(void)buf_lit(out, "\",\"pubkey\":\"");
	(void)buf_append_hex(out, event->pubkey, sizeof(event->pubkey));
	(void)buf_printf(out, "\",\"created_at\":%lld,\"kind\":%u,\"tags\":[",
			 (long long)event->created_at, event->kind);
	for (size_t i = 0; i < event->tag_count; i++) {
		assert(event->tags[i].count > 0);
		(void)buf_append(out, i ? SLICE(",[") : SLICE("["));
		for (size_t j = 0; j < event->tags[i].count; j++) {
			if (j)
				(void)buf_append_byte(out, ',');
			(void)json_write_string(out, event->tags[i].values[j]);
		}
		(void)buf_append_byte(out, ']');
	}
	(void)buf_lit(out, "],\"content\":\"");
	(void)json_write_raw(out, event->content);
	(void)buf_lit(out, "\",\"sig\":\"");
	(void)buf_append_hex(out, event->sig, sizeof(event->sig));
	(void)buf_lit(out, "\"}");
}

static void check_event(struct slice text, struct arena *arena)
{
	static const struct slice urls[] = {SLICE_INIT("wss://relay.example")};
	struct crypto *const crypto = shared_crypto();
	struct event event, again;
	uint8_t owner[KEY_BYTES];
	struct buf scratch, canonical;
	struct slice hex;

	if (!event_parse(text, arena, &event, NULL))
		return;
	assert(json_check(text, NULL, NULL));
	(void)event_find_id(text, &hex);
	buf_init(&scratch, EVENT_MAX_BYTES + 1024);
	buf_init(&canonical, EVENT_MAX_BYTES + 1024);
	write_canonical(&event, &canonical);
	assert(event_parse(buf_slice(&canonical), arena, &again, NULL));
	assert(event_check_id(crypto, &event, &scratch, NULL) ==
	       event_check_id(crypto, &again, &scratch, NULL));
	assert(again.tag_count == event.tag_count);
	(void)event_check_sig(crypto, &event, NULL);
	(void)nipoa_check(crypto, &event, owner, NULL, NULL);
	(void)nip42_check(&event, tag_value(event_tag(&event, SLICE("challenge"))), urls,
			  1, event.created_at, NULL);
	buf_finish(&scratch);
	buf_finish(&canonical);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct slice text = {(const char *)data, size};
	struct client_message said;
	struct relay_message heard;
	struct slice hex, sub_id;
	struct arena arena;

	arena_init(&arena, 4096);
	check_event(text, &arena);
	if (event_find_id(text, &hex))
		assert(hex.len == 64);
	if (client_message_parse(text, &arena, &said, &sub_id, NULL) && said.event.len)
		check_event(said.event, &arena);
	if (relay_message_parse(text, &arena, &heard, NULL) && heard.event.len)
		check_event(heard.event, &arena);
	arena_finish(&arena);
	return 0;
}
