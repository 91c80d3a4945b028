#include "wire/nostr/nip19.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#define CHECKSUM_CHARS 6
/* NIP-19: TLV types "0: special", "1: relay", "2: author", "3: kind". */
enum tlv_type { TLV_SPECIAL, TLV_RELAY, TLV_AUTHOR, TLV_KIND };

static const char charset[] = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";

static const struct slice prefixes[] = {
	[NIP19_NPUB] = SLICE_INIT("npub"),     [NIP19_NSEC] = SLICE_INIT("nsec"),
	[NIP19_NOTE] = SLICE_INIT("note"),     [NIP19_NPROFILE] = SLICE_INIT("nprofile"),
	[NIP19_NEVENT] = SLICE_INIT("nevent"), [NIP19_NADDR] = SLICE_INIT("naddr"),
};
#define PREFIX_COUNT (sizeof(prefixes) / sizeof(prefixes[0]))

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

bool nip19_encode(enum nip19_kind kind, const uint8_t key[32], struct buf *out)
{
	uint32_t sum = polymod_prefix(prefixes[kind]);
	uint32_t bits = 0;
	unsigned count = 0; /* of bits not written yet */

	assert(kind == NIP19_NPUB || kind == NIP19_NSEC || kind == NIP19_NOTE);
	(void)buf_append(out, prefixes[kind]);
	(void)buf_append_byte(out, '1');
	for (size_t i = 0; i < 32 || count; i++) {
		if (i < 32) {
			bits = bits << 8 | key[i];
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

static bool find_prefix(struct slice text, enum nip19_kind *out)
{
	for (size_t i = 0; i < PREFIX_COUNT; i++) {
		size_t same = 0;

		if (prefixes[i].len != text.len)
			continue;
		while (same < text.len && lower(text.ptr[same]) == prefixes[i].ptr[same])
			same++;
		if (same == text.len) {
			*out = (enum nip19_kind)i;
			return true;
		}
	}
	return false;
}

/* Data characters to bytes in @out, checksum verified. */
static bool decode_data(struct slice prefix, struct slice data, struct buf *out,
			struct err *err)
{
	uint32_t sum = polymod_prefix(prefix);
	uint32_t bits = 0;
	unsigned count = 0;

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

static bool copy_key(struct slice value, uint8_t out[32])
{
	if (value.len != 32)
		return false;
	memcpy(out, value.ptr, 32);
	return true;
}

static bool read_tlv(enum tlv_type type, struct slice value, struct nip19 *out)
{
	switch (type) {
	case TLV_SPECIAL:
		if (out->kind != NIP19_NADDR)
			return copy_key(value, out->key);
		out->name = value;
		return utf8_valid(value);
	case TLV_RELAY:
		if (!out->relay.len)
			out->relay = value;
		return utf8_valid(value);
	case TLV_AUTHOR:
		out->has_author = true;
		return copy_key(value, out->author);
	case TLV_KIND:
		if (value.len != 4)
			return false;
		out->has_kind = true;
		out->event_kind = 0;
		for (size_t i = 0; i < 4; i++)
			out->event_kind = out->event_kind << 8 | (uint8_t)value.ptr[i];
		return true;
	}
	return true; /* NIP-19: unknown types "should be ignored" */
}

static bool read_tlvs(struct slice bytes, struct nip19 *out, struct err *err)
{
	bool has_special = false;

	while (bytes.len) {
		size_t len;
		uint8_t type;

		if (bytes.len < 2)
			return err_set(err, ERR_MALFORMED, "bech32 entity is cut short");
		type = (uint8_t)bytes.ptr[0];
		len = (uint8_t)bytes.ptr[1];
		if (len > bytes.len - 2)
			return err_set(err, ERR_MALFORMED, "bech32 entity is cut short");
		has_special |= type == TLV_SPECIAL;
		if (type <= TLV_KIND &&
		    !read_tlv((enum tlv_type)type, slice_sub(bytes, 2, 2 + len), out))
			return err_set(err, ERR_MALFORMED,
				       "bech32 entity has a wrong part");
		bytes = slice_sub(bytes, 2 + len, bytes.len);
	}
	if (!has_special)
		return err_set(err, ERR_MALFORMED, "bech32 entity names nothing");
	if (out->kind == NIP19_NADDR && !(out->has_author && out->has_kind))
		return err_set(err, ERR_MALFORMED, "naddr lacks its author or kind");
	return true;
}

bool nip19_decode(struct slice text, struct buf *scratch, struct nip19 *out,
		  struct err *err)
{
	struct nip19 entity = {0};
	size_t split;

	buf_clear(scratch);
	if (text.len > NIP19_MAX_CHARS)
		return err_set(err, ERR_TOO_LARGE, "bech32 text has over %d characters",
			       NIP19_MAX_CHARS);
	split = slice_find(text, '1'); /* no prefix of ours holds a '1' */
	if (split == text.len || is_mixed_case(text))
		return err_set(err, ERR_MALFORMED, "not a bech32 text");
	if (!find_prefix(slice_sub(text, 0, split), &entity.kind))
		return err_set(err, ERR_MALFORMED,
			       "bech32 text begins with no known prefix");
	if (!decode_data(prefixes[entity.kind], slice_sub(text, split + 1, text.len),
			 scratch, err))
		return false;
	switch (entity.kind) {
	case NIP19_NPUB:
	case NIP19_NSEC:
	case NIP19_NOTE:
		if (!copy_key(buf_slice(scratch), entity.key))
			return err_set(err, ERR_MALFORMED, "bech32 key is not 32 bytes");
		break;
	case NIP19_NPROFILE:
	case NIP19_NEVENT:
	case NIP19_NADDR:
		if (!read_tlvs(buf_slice(scratch), &entity, err))
			return false;
		break;
	}
	*out = entity;
	return true;
}

bool nip19_parse_pubkey(struct slice text, uint8_t out[32], struct err *err)
{
	struct nip19 entity = {0};
	struct buf scratch;
	bool ok;

	if (hex_decode(text, out, 32))
		return true;
	buf_init(&scratch, NIP19_MAX_CHARS);
	ok = nip19_decode(text, &scratch, &entity, err);
	if (ok && entity.kind == NIP19_NPUB)
		memcpy(out, entity.key, 32);
	else if (ok)
		ok = err_set(err, ERR_MALFORMED,
			     "%.*s is not a public key, want npub or hex",
			     SLICE_ARG(prefixes[entity.kind]));
	/* Someone may have pasted their nsec. */
	sodium_memzero(&entity, sizeof(entity));
	buf_wipe(&scratch);
	return ok;
}
