/* What it costs to seal a frame and to open one, beside the sum of the primitives that
 * this cannot do without. Four arms for each size, in turn:
 *
 *   build             plaintext → signed event text, as the sender does
 *   build_primitives  HKDF, ChaCha20, HMAC, base64, SHA-256, signature, on their own
 *   open              event text → verified plaintext, as the observer does
 *   open_primitives   SHA-256, verification, base64, HKDF, HMAC, ChaCha20, on their own
 *
 * PERCH_PROBE_SIZES (200,2000,16000,65000: bytes of plaintext), PERCH_PROBE_RUNS (200).
 * Fails unless what is opened is what was sealed and the primitives alone come to the
 * same content. */

#include <stdlib.h>
#include <string.h>

#include "probes/probe.h"
#include "wire/base/arena.h"
#include "wire/frame/limits.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nip44.h"

/* What a frame's tags look like: p, agent, frame, auth. */
#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define TAGS \
	"[[\"p\",\"" HEX64 "\"],[\"agent\",\"" HEX64 "\"],[\"frame\",\"telemetry\"]," \
	"[\"auth\",\"" HEX64 "\",\"kind=24200&created_at<1800000000\",\"" HEX64 HEX64 \
	"\"]]"

enum arm { BUILD, BUILD_PRIMITIVES, OPEN, OPEN_PRIMITIVES, ARMS };
static const char *const arm_names[ARMS] = {"build", "build_primitives", "open",
					    "open_primitives"};

static const char *const size_names[] = {"200", "2000", "16000", "65000"};
#define SIZES (sizeof(size_names) / sizeof(size_names[0]))

static const uint8_t nonce[NONCE_BYTES] = {7}, aux[32] = {9};

struct probe {
	struct crypto *crypto;
	struct keypair *agent, *owner;
	uint8_t conversation_key[32];
	struct buf plaintext;
	/* The event as it was sealed first, what it is made of, and what the arms make.
	 */
	struct buf sealed;
	struct arena sealed_arena;
	struct event event;
	struct buf binary; /* its payload before base64 */
	struct buf text, opened, scratch, decoded;
	struct arena arena;
	size_t runs;
	int64_t times_ns[ARMS][PROBE_RUNS_MAX];
};

static const struct event_draft draft = {
	.created_at = 1796025600,
	.kind = FRAME_KIND,
	.tags = SLICE_INIT(TAGS),
};

static void build(struct probe *probe)
{
	uint8_t id[SHA256_BYTES];
	struct err err;

	buf_clear(&probe->text);
	if (!event_seal(probe->crypto, probe->agent, probe->conversation_key, &draft,
			buf_slice(&probe->plaintext), nonce, aux, &probe->text, id, &err))
		probe_fail(err.text);
}

static void open_sealed(struct probe *probe)
{
	struct event event;
	struct err err;

	arena_reset(&probe->arena);
	buf_clear(&probe->opened);
	if (!event_parse(buf_slice(&probe->sealed), &probe->arena, &event, &err) ||
	    !event_verify(probe->crypto, &event, &probe->scratch, &err) ||
	    !nip44_decrypt(probe->crypto, probe->conversation_key, event.content,
			   &probe->opened, &err))
		probe_fail(err.text);
}

/* ---- the primitives ---- */

/* Offsets in the binary payload. */
#define NONCE_AT 1
#define CIPHERTEXT_AT (NONCE_AT + NONCE_BYTES)

static size_t ciphertext_len(const struct probe *probe)
{
	return 2 + nip44_padded_len(probe->plaintext.len);
}

static void cipher(struct probe *probe, const uint8_t keys[76], uint8_t *ciphertext)
{
	chacha20(probe->crypto, keys, keys + 32, ciphertext, ciphertext_len(probe),
		 ciphertext);
}

static void derive(struct probe *probe, uint8_t keys[76])
{
	hkdf_expand(probe->crypto, probe->conversation_key,
		    (struct slice){(const char *)nonce, NONCE_BYTES}, keys, 76);
}

static void mac(struct probe *probe, const uint8_t keys[76], const uint8_t *payload,
		uint8_t out[SHA256_BYTES])
{
	const struct slice text = {(const char *)payload + NONCE_AT,
				   NONCE_BYTES + ciphertext_len(probe)};

	hmac_sha256(probe->crypto, keys + 44, 32, &text, 1, out);
}

/* The hash of what the id is of; where its bytes stand does not change the work. */
static void hash(struct probe *probe, struct slice content, uint8_t out[SHA256_BYTES])
{
	const struct slice pieces[] = {SLICE_INIT("[0,\"" HEX64 "\",1796025600,24200,"),
				       SLICE_INIT(TAGS ",\""), content,
				       SLICE_INIT("\"]")};

	sha256(probe->crypto, pieces, sizeof(pieces) / sizeof(pieces[0]), out);
}

/* binary holds the padded plaintext, as every run leaves it. */
static void build_primitives(struct probe *probe)
{
	uint8_t *payload = (uint8_t *)probe->binary.ptr;
	uint8_t *ciphertext = payload + CIPHERTEXT_AT;
	uint8_t keys[76], id[SHA256_BYTES], sig[SIG_BYTES];

	derive(probe, keys);
	cipher(probe, keys, ciphertext);
	mac(probe, keys, payload, ciphertext + ciphertext_len(probe));
	base64_encode(payload, probe->binary.len, probe->text.ptr);
	hash(probe, (struct slice){probe->text.ptr, base64_len(probe->binary.len)}, id);
	schnorr_sign(probe->crypto, probe->agent,
		     (struct slice){(const char *)id, sizeof(id)}, aux, sig);
}

static void open_primitives(struct probe *probe)
{
	uint8_t keys[76], id[SHA256_BYTES], tag[SHA256_BYTES];
	struct err err;

	hash(probe, probe->event.content, id);
	if (!schnorr_verify(probe->crypto, probe->event.pubkey,
			    (struct slice){(const char *)probe->event.id, 32},
			    probe->event.sig))
		probe_fail("the signature does not verify");
	buf_clear(&probe->decoded);
	if (!base64_decode(probe->event.content, &probe->decoded, &err))
		probe_fail(err.text);
	derive(probe, keys);
	mac(probe, keys, (const uint8_t *)probe->decoded.ptr, tag);
	cipher(probe, keys, (uint8_t *)probe->decoded.ptr + CIPHERTEXT_AT);
}

/* ---- runs ---- */

static void restore_padded(struct probe *probe)
{
	memcpy(probe->binary.ptr, probe->decoded.ptr, probe->decoded.len);
}

static int64_t run_arm(struct probe *probe, enum arm arm)
{
	const int64_t start = probe_clock_ns();
	int64_t end;

	switch (arm) {
	case BUILD:
		build(probe);
		break;
	case BUILD_PRIMITIVES:
		build_primitives(probe);
		break;
	case OPEN:
		open_sealed(probe);
		break;
	case OPEN_PRIMITIVES:
		open_primitives(probe);
		break;
	case ARMS:
		break;
	}
	end = probe_clock_ns();
	if (arm == BUILD_PRIMITIVES)
		restore_padded(probe);
	return end - start;
}

/* Makes the event of @bytes of plaintext and checks what every arm comes to. */
static void prepare(struct probe *probe, size_t bytes)
{
	struct err err;

	buf_clear(&probe->plaintext);
	memset(buf_extend(&probe->plaintext, bytes), 'x', bytes);
	build(probe);
	buf_clear(&probe->sealed);
	(void)buf_append(&probe->sealed, buf_slice(&probe->text));
	arena_reset(&probe->sealed_arena);
	if (!event_parse(buf_slice(&probe->sealed), &probe->sealed_arena, &probe->event,
			 &err))
		probe_fail(err.text);
	open_sealed(probe);
	if (!slice_eq(buf_slice(&probe->opened), buf_slice(&probe->plaintext)))
		probe_fail("what was opened is not what was sealed");
	open_primitives(probe); /* leaves the padded plaintext in decoded */
	buf_clear(&probe->binary);
	(void)buf_append(&probe->binary, buf_slice(&probe->decoded));
	build_primitives(probe);
	restore_padded(probe);
	if (!slice_eq(probe->event.content,
		      (struct slice){probe->text.ptr, probe->event.content.len}))
		probe_fail("the primitives do not come to the same content");
}

static double median(struct probe *probe, enum arm arm)
{
	return (double)probe_quantile(probe->times_ns[arm], probe->runs, 50);
}

static void measure(struct probe *probe, size_t bytes)
{
	prepare(probe, bytes);
	for (size_t round = 0; round < probe->runs; round++)
		for (size_t turn = 0; turn < ARMS; turn++) {
			const enum arm arm = (enum arm)probe_turn(round, turn, ARMS);

			probe->times_ns[arm][round] = run_arm(probe, arm);
		}
	for (enum arm arm = 0; arm < ARMS; arm++)
		probe_print(arm_names[arm], probe->times_ns[arm], probe->runs, "ns",
			    ",\"bytes\":%zu", bytes);
	probe_note("ratios",
		   ",\"bytes\":%zu,\"build_to_primitives\":%.3f,"
		   "\"open_to_primitives\":%.3f",
		   bytes, median(probe, BUILD) / median(probe, BUILD_PRIMITIVES),
		   median(probe, OPEN) / median(probe, OPEN_PRIMITIVES));
}

static void init(struct probe *probe)
{
	static const uint8_t seed[32] = {1}, agent[KEY_BYTES] = {2},
			     owner[KEY_BYTES] = {3};
	struct err err;

	probe->crypto = crypto_create(seed, &err);
	if (!probe->crypto ||
	    !keypair_create(probe->crypto, agent, &probe->agent, &err) ||
	    !keypair_create(probe->crypto, owner, &probe->owner, &err) ||
	    !nip44_conversation_key(probe->crypto, probe->agent,
				    keypair_public(probe->owner), probe->conversation_key,
				    &err))
		probe_fail(err.text);
	arena_init(&probe->arena, 4096);
	arena_init(&probe->sealed_arena, 4096);
	buf_init(&probe->plaintext, FRAME_PLAINTEXT_MAX);
	buf_init(&probe->sealed, EVENT_MAX_BYTES);
	buf_init(&probe->binary, EVENT_MAX_BYTES);
	buf_init(&probe->text, EVENT_MAX_BYTES);
	buf_init(&probe->opened, EVENT_MAX_BYTES);
	buf_init(&probe->scratch, EVENT_MAX_BYTES);
	buf_init(&probe->decoded, EVENT_MAX_BYTES);
}

static void finish(struct probe *probe)
{
	buf_finish(&probe->plaintext);
	buf_finish(&probe->sealed);
	buf_finish(&probe->binary);
	buf_finish(&probe->text);
	buf_finish(&probe->opened);
	buf_finish(&probe->scratch);
	buf_finish(&probe->decoded);
	arena_finish(&probe->sealed_arena);
	arena_finish(&probe->arena);
	keypair_destroy(probe->owner);
	keypair_destroy(probe->agent);
	crypto_destroy(probe->crypto);
}

int main(void)
{
	static struct probe probe;
	const unsigned sizes = probe_choice("PERCH_PROBE_SIZES", size_names, SIZES);
	uint64_t bytes;

	probe.runs = probe_setting("PERCH_PROBE_RUNS", 200, 1, PROBE_RUNS_MAX);
	init(&probe);
	for (size_t i = 0; i < SIZES; i++)
		if (sizes & 1u << i &&
		    slice_parse_u64(slice_of(size_names[i]), FRAME_PLAINTEXT_MAX, &bytes))
			measure(&probe, (size_t)bytes);
	finish(&probe);
	return EXIT_SUCCESS;
}
