#include "wire/nostr/nip19.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "wire/nostr/bech32.h"

/* NIP-19: TLV types "0: special", "1: relay", "2: author", "3: kind". */
enum tlv_type { TLV_SPECIAL, TLV_RELAY, TLV_AUTHOR, TLV_KIND };

static const struct slice prefixes[] = {
	[NIP19_NPUB] = SLICE_INIT("npub"),     [NIP19_NSEC] = SLICE_INIT("nsec"),
	[NIP19_NOTE] = SLICE_INIT("note"),     [NIP19_NPROFILE] = SLICE_INIT("nprofile"),
	[NIP19_NEVENT] = SLICE_INIT("nevent"), [NIP19_NADDR] = SLICE_INIT("naddr"),
};
#define PREFIX_COUNT (sizeof(prefixes) / sizeof(prefixes[0]))

bool nip19_encode(enum nip19_kind kind, const uint8_t key[32], struct buf *out)
{
	assert(kind == NIP19_NPUB || kind == NIP19_NSEC || kind == NIP19_NOTE);
	return bech32_encode(prefixes[kind], (struct slice){(const char *)key, 32}, out);
}

static bool find_prefix(struct slice text, enum nip19_kind *out)
{
	for (size_t i = 0; i < PREFIX_COUNT; i++) {
		if (bech32_is(text, prefixes[i])) {
			*out = (enum nip19_kind)i;
			return true;
		}
	}
	return false;
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

	buf_clear(scratch);
	if (text.len > NIP19_MAX_CHARS)
		return err_set(err, ERR_TOO_LARGE, "bech32 text has over %d characters",
			       NIP19_MAX_CHARS);
	if (slice_find(text, '1') == text.len)
		return err_set(err, ERR_MALFORMED, "not a bech32 text");
	if (!find_prefix(text, &entity.kind))
		return err_set(err, ERR_MALFORMED,
			       "bech32 text begins with no known prefix");
	if (!bech32_decode(text, prefixes[entity.kind], scratch, err))
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
