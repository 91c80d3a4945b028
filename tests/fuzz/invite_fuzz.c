/* Invitations and other bech32 texts from a paste: as text, and as the bytes behind a
 * right checksum, so that the parts are reached. The first byte says which. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "wire/nostr/bech32.h"
#include "wire/nostr/invite.h"
#include "wire/nostr/nip19.h"
#include "wire/nostr/nip49.h"

/* What parses is written again as the same meaning. */
static void check(struct crypto *crypto, struct slice text)
{
	struct buf scratch = {.max = 4096}, again = {.max = 4096}, other = {.max = 4096};
	struct invite invite, second;

	if (invite_parse(crypto, text, &scratch, &invite, NULL)) {
		assert(invite_encode(crypto, &invite, &again, NULL));
		assert(invite_parse(crypto, buf_slice(&again), &other, &second, NULL));
		assert(slice_eq(invite.relay, second.relay));
		assert(slice_eq(invite.name, second.name));
		assert(slice_eq(invite.auth_tag, second.auth_tag));
	}
	buf_finish(&scratch);
	buf_finish(&again);
	buf_finish(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t seed[32] = {1};
	static struct crypto *crypto;
	struct slice rest = {(const char *)data + 1, size - 1};
	struct buf text = {.max = 8192};
	struct nip19 entity;

	if (size == 0)
		return 0;
	if (!crypto)
		crypto = crypto_create(seed, NULL);
	if (data[0] == 'b') {
		(void)bech32_encode(SLICE("perch"), rest, &text);
		check(crypto, buf_slice(&text));
	} else {
		check(crypto, rest);
		(void)nip19_decode(rest, &text, &entity, NULL);
		(void)nip49_check_password(rest, NULL);
	}
	buf_finish(&text);
	return 0;
}
