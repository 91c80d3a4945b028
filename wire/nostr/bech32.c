#include "wire/nostr/bech32.h"

#include <stdint.h>
#include <string.h>

#define CHECKSUM_CHARS 6

static const char charset[] = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/* BIP-173's checksum over one more 5-bit value. */
static uint32_t polymod(uint32_t sum, uint32_t value)
{
	static const uint32_t generators[] = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa,
					      0x3d4233dd, 0x2a1462b3};
	const uint32_t top = sum >> 25;

	sum = (sum & 0x1ffffff) << 5 ^ value;
	for (size_t i = 0; i < sizeof(generators) / sizeof(generators[0]); i++)
		if (top >> i & 1)
			sum ^= generators[i];
	return sum;
}

static uint32_t polymod_prefix(struct slice prefix)
{
	uint32_t sum = 1;

	for (size_t i = 0; i < prefix.len; i++)
		sum = polymod(sum, (uint32_t)prefix.ptr[i] >> 5);
	sum = polymod(sum, 0);
	for (size_t i = 0; i < prefix.len; i++)
		sum = polymod(sum, (uint32_t)prefix.ptr[i] & 31);
	return sum;
}

bool bech32_encode(struct slice prefix, struct slice bytes, struct buf *out)
{
	uint32_t sum = polymod_prefix(prefix);
	uint32_t bits = 0;
	unsigned count = 0; /* of bits not written yet */

	(void)buf_append(out, prefix);
	(void)buf_append_byte(out, '1');
	for (size_t i = 0; i < bytes.len || count; i++) {
		if (i < bytes.len) {
			bits = bits << 8 | (uint8_t)bytes.ptr[i];
			count += 8;
		} else {
			bits <<= 5 - count; /* the last value is filled up with zeros */
			count = 5;
		}
		for (; count >= 5; count -= 5) {
			const uint32_t value = bits >> (count - 5) & 31;

			sum = polymod(sum, value);
			(void)buf_append_byte(out, charset[value]);
		}
		bits &= (1U << count) - 1;
	}
	for (int i = 0; i < CHECKSUM_CHARS; i++)
		sum = polymod(sum, 0);
	sum ^= 1;
	for (int i = CHECKSUM_CHARS - 1; i >= 0; i--)
		(void)buf_append_byte(out, charset[sum >> (5 * i) & 31]);
	return buf_ok(out);
}

static char lower(char byte)
{
	return byte >= 'A' && byte <= 'Z' ? (char)(byte | 0x20) : byte;
}

bool bech32_is(struct slice text, struct slice prefix)
{
	if (text.len <= prefix.len || text.ptr[prefix.len] != '1')
		return false;
	for (size_t i = 0; i < prefix.len; i++)
		if (lower(text.ptr[i]) != prefix.ptr[i])
			return false;
	return true;
}

/* BIP-173: "Decoders MUST NOT accept strings where some characters are uppercase and some
 * are lowercase". */
static bool is_mixed_case(struct slice text)
{
	bool upper_seen = false, lower_seen = false;

	for (size_t i = 0; i < text.len; i++) {
		upper_seen |= text.ptr[i] >= 'A' && text.ptr[i] <= 'Z';
		lower_seen |= text.ptr[i] >= 'a' && text.ptr[i] <= 'z';
	}
	return upper_seen && lower_seen;
}

bool bech32_decode(struct slice text, struct slice prefix, struct buf *out,
		   struct err *err)
{
	struct slice data = slice_sub(text, prefix.len + 1, text.len);
	uint32_t sum = polymod_prefix(prefix);
	uint32_t bits = 0;
	unsigned count = 0;

	if (is_mixed_case(text))
		return err_set(err, ERR_MALFORMED,
			       "bech32 text mixes upper and lower "
			       "case");
	if (data.len < CHECKSUM_CHARS)
		return err_set(err, ERR_MALFORMED, "bech32 text is too short");
	for (size_t i = 0; i < data.len; i++) {
		const char *at = memchr(charset, lower(data.ptr[i]), sizeof(charset) - 1);
		uint32_t value;

		if (!at)
			return err_set(err, ERR_MALFORMED,
				       "bech32 text has a wrong character");
		value = (uint32_t)(at - charset);
		sum = polymod(sum, value);
		if (i >= data.len - CHECKSUM_CHARS)
			continue;
		bits = bits << 5 | value;
		count += 5;
		if (count >= 8) {
			count -= 8;
			if (!buf_append_byte(out, (char)(bits >> count)))
				return err_set(err, ERR_TOO_LARGE,
					       "bech32 text is too long");
			bits &= (1U << count) - 1;
		}
	}
	if (sum != 1)
		return err_set(err, ERR_MALFORMED, "bech32 checksum is wrong");
	if (count >= 5 || bits)
		return err_set(err, ERR_MALFORMED, "bech32 padding is wrong");
	return true;
}
