#include "wire/frame/uuid.h"

#include <stdio.h>
#include <string.h>

/* 7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7 (payloads.md) */
static const uint8_t perch_namespace[16] = {
	0x7b, 0x1f, 0x0c, 0x52, 0x5a, 0x0e, 0x4c, 0x9b,
	0x9f, 0x8e, 0x3d, 0x2c, 0x6a, 0x41, 0xe0, 0xd7,
};

static bool is_hyphen_place(size_t i)
{
	return i == 8 || i == 13 || i == 18 || i == 23;
}

static void format(const uint8_t bytes[16], struct uuid *out)
{
	char digits[32];
	size_t used = 0;

	hex_encode(bytes, 16, digits);
	for (size_t i = 0; i < UUID_LEN; i++)
		out->text[i] = is_hyphen_place(i) ? '-' : digits[used++];
	out->text[UUID_LEN] = '\0';
}

/* RFC 9562, 5.5: SHA-1 over namespace and name, then version and variant bits. */
static void of_pieces(struct crypto *crypto, struct slice first, struct slice second,
		      struct uuid *out)
{
	const struct slice pieces[3] = {
		{(const char *)perch_namespace, sizeof(perch_namespace)},
		first,
		second,
	};
	uint8_t digest[20];

	sha1(crypto, pieces, 3, digest);
	digest[6] = (uint8_t)((digest[6] & 0x0f) | 0x50);
	digest[8] = (uint8_t)((digest[8] & 0x3f) | 0x80);
	format(digest, out);
}

void uuid_of_name(struct crypto *crypto, struct slice name, struct uuid *out)
{
	of_pieces(crypto, name, SLICE_EMPTY, out);
}

void uuid_of_session(struct crypto *crypto, const uint8_t agent[KEY_BYTES],
		     struct slice session, struct uuid *out)
{
	char key[2 * KEY_BYTES + 1];

	hex_encode(agent, KEY_BYTES, key);
	key[2 * KEY_BYTES] = ':';
	of_pieces(crypto, (struct slice){key, sizeof(key)}, session, out);
}

void uuid_of_slot(struct crypto *crypto, const uint8_t agent[KEY_BYTES], unsigned slot,
		  struct uuid *out)
{
	char key[2 * KEY_BYTES];
	char tail[16];

	hex_encode(agent, KEY_BYTES, key);
	(void)snprintf(tail, sizeof(tail), "/%u", slot);
	of_pieces(crypto, (struct slice){key, sizeof(key)}, slice_of(tail), out);
}

bool uuid_parse(struct slice text, struct uuid *out)
{
	struct uuid lower;

	if (text.len != UUID_LEN)
		return false;
	for (size_t i = 0; i < UUID_LEN; i++) {
		char c = text.ptr[i];

		if (c >= 'A' && c <= 'F')
			c = (char)(c - 'A' + 'a');
		if (is_hyphen_place(i)
			    ? c != '-'
			    : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
		lower.text[i] = c;
	}
	lower.text[UUID_LEN] = '\0';
	*out = lower;
	return true;
}
