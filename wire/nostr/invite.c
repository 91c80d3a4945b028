#include "wire/nostr/invite.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "wire/nostr/bech32.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nipoa.h"

#define VERSION 1
#define BYTES_MAX 1280 /* of INVITE_CHARS_MAX in 5-bit characters */
#define TAG_MAX 2048   /* an attestation with the longest conditions */
#define CONDITIONS_MAX 255
#define OPTIONAL_FROM 128 /* types that an older reader may ignore */

enum part {
	PART_SECRET = 1,
	PART_RELAY,
	PART_NAME,
	PART_OWNER,
	PART_SIG,
	PART_CONDITIONS,
	PART_END,
};

static const struct slice prefix = SLICE_INIT("perch");

/* What the parts were, as they came. */
struct parts {
	struct slice value[PART_END]; /* ptr NULL: not there */
};

static bool is_printable(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.ptr[i] <= ' ' || text.ptr[i] > '~')
			return false;
	return text.len > 0;
}

static bool check_relay(struct slice relay, struct err *err)
{
	if (relay.len > INVITE_RELAY_MAX || !is_printable(relay) ||
	    !(slice_starts(relay, SLICE("ws://")) ||
	      slice_starts(relay, SLICE("wss://"))))
		return err_set(err, ERR_MALFORMED,
			       "the relay of an invitation is ws://… or wss://… of at "
			       "most %d characters",
			       INVITE_RELAY_MAX);
	return true;
}

static bool check_name(struct slice name, struct err *err)
{
	if (name.len > INVITE_NAME_MAX || !is_printable(name))
		return err_set(err, ERR_MALFORMED,
			       "the name in an invitation is 1 to %d characters without "
			       "spaces",
			       INVITE_NAME_MAX);
	return true;
}

bool invite_is(struct slice text)
{
	return bech32_is(slice_trim(text), prefix);
}

/* ---- writing ---- */

static void put(struct buf *out, enum part part, struct slice value)
{
	(void)buf_append_byte(out, (char)part);
	(void)buf_append_byte(out, (char)(uint8_t)value.len);
	(void)buf_append(out, value);
}

/* The tag's three values behind "auth"; its form has been checked by nipoa_parse(). */
static bool split_tag(struct slice tag_json, struct slice values[4])
{
	struct json json;
	size_t count = 0;

	json_init(&json, tag_json);
	if (!json_enter_array(&json))
		return false;
	while (count < 4 && json_element(&json) && json_string(&json, &values[count]))
		count++;
	return count == 4;
}

static bool put_tag(struct slice tag_json, struct buf *out, struct err *err)
{
	struct slice values[4];
	uint8_t owner[KEY_BYTES], sig[SIG_BYTES];

	if (!split_tag(tag_json, values) || !hex_decode(values[1], owner, KEY_BYTES) ||
	    !hex_decode(values[3], sig, SIG_BYTES))
		return err_set(err, ERR_MALFORMED, "the attestation is broken");
	if (values[2].len > CONDITIONS_MAX)
		return err_set(err, ERR_TOO_LARGE,
			       "the conditions of the attestation are over %d bytes",
			       CONDITIONS_MAX);
	put(out, PART_OWNER, (struct slice){(const char *)owner, KEY_BYTES});
	put(out, PART_SIG, (struct slice){(const char *)sig, SIG_BYTES});
	if (values[2].len)
		put(out, PART_CONDITIONS, values[2]);
	return true;
}

bool invite_encode(struct crypto *crypto, const struct invite *invite, struct buf *out,
		   struct err *err)
{
	struct keypair *keypair = NULL;
	uint8_t owner[KEY_BYTES];
	struct buf bytes;
	int64_t expires;
	bool ok;

	buf_init(&bytes, BYTES_MAX);
	(void)buf_append_byte(&bytes, VERSION);
	put(&bytes, PART_SECRET, (struct slice){(const char *)invite->secret, KEY_BYTES});
	put(&bytes, PART_RELAY, invite->relay);
	put(&bytes, PART_NAME, invite->name);
	ok = check_relay(invite->relay, err) && check_name(invite->name, err) &&
	     keypair_create(crypto, invite->secret, &keypair, err) &&
	     nipoa_parse(crypto, invite->auth_tag, keypair_public(keypair), owner,
			 &expires, err) &&
	     put_tag(invite->auth_tag, &bytes, err);
	if (ok && (!buf_ok(&bytes) || !bech32_encode(prefix, buf_slice(&bytes), out)))
		ok = err_set(err, ERR_TOO_LARGE, "no room for the invitation");
	keypair_destroy(keypair);
	buf_wipe(&bytes);
	return ok;
}

/* ---- reading ---- */

static bool take_parts(struct slice bytes, struct parts *out, struct err *err)
{
	while (bytes.len) {
		uint8_t type;
		size_t len;

		if (bytes.len < 2 || (uint8_t)bytes.ptr[1] > bytes.len - 2)
			return err_set(err, ERR_MALFORMED,
				       "this invitation is cut short");
		type = (uint8_t)bytes.ptr[0];
		len = (uint8_t)bytes.ptr[1];
		if (type == 0 || (type >= PART_END && type < OPTIONAL_FROM))
			return err_set(err, ERR_REFUSED,
				       "this invitation has a part that this perch does "
				       "not know (%u): update perch here",
				       type);
		if (type < PART_END) {
			if (out->value[type].ptr)
				return err_set(err, ERR_MALFORMED,
					       "this invitation has part %u twice", type);
			out->value[type] = slice_sub(bytes, 2, 2 + len);
		}
		bytes = slice_sub(bytes, 2 + len, bytes.len);
	}
	return true;
}

static bool check_parts(const struct parts *parts, struct err *err)
{
	for (int part = PART_SECRET; part < PART_CONDITIONS; part++)
		if (!parts->value[part].ptr)
			return err_set(err, ERR_MALFORMED,
				       "this invitation lacks part %d", part);
	if (parts->value[PART_SECRET].len != KEY_BYTES ||
	    parts->value[PART_OWNER].len != KEY_BYTES ||
	    parts->value[PART_SIG].len != SIG_BYTES)
		return err_set(err, ERR_MALFORMED,
			       "this invitation has a key of a wrong length");
	return check_relay(parts->value[PART_RELAY], err) &&
	       check_name(parts->value[PART_NAME], err);
}

/* NIP-OA's grammar of conditions needs no JSON escapes; what does is no condition. */
static bool is_plain(struct slice conditions)
{
	for (size_t i = 0; i < conditions.len; i++)
		if (conditions.ptr[i] <= ' ' || conditions.ptr[i] > '~' ||
		    conditions.ptr[i] == '"' || conditions.ptr[i] == '\\')
			return false;
	return true;
}

/* The attestation as the tag's JSON text, appended to @out. */
static bool write_tag(const struct parts *parts, struct buf *out, struct err *err)
{
	if (!is_plain(parts->value[PART_CONDITIONS]))
		return err_set(err, ERR_MALFORMED,
			       "this invitation's attestation is broken");
	(void)buf_lit(out, "[\"auth\",\"");
	(void)buf_append_hex(out, (const uint8_t *)parts->value[PART_OWNER].ptr,
			     KEY_BYTES);
	(void)buf_lit(out, "\",\"");
	(void)buf_append(out, parts->value[PART_CONDITIONS]);
	(void)buf_lit(out, "\",\"");
	(void)buf_append_hex(out, (const uint8_t *)parts->value[PART_SIG].ptr, SIG_BYTES);
	return buf_lit(out, "\"]") ||
	       err_set(err, ERR_TOO_LARGE, "this invitation's attestation is too long");
}

/* Everything in @bytes (behind the version) into @out, whose slices point there and
 * behind it, where the tag is written. */
static bool read_bytes(struct crypto *crypto, struct buf *scratch, size_t from,
		       struct invite *out, struct err *err)
{
	struct parts parts = {0};
	struct keypair *keypair = NULL;
	size_t end = scratch->len;
	bool ok;

	/* No part may move when the tag comes behind it. */
	if (!buf_reserve(scratch, TAG_MAX))
		return err_set(err, ERR_TOO_LARGE, "no room for the invitation");
	ok = take_parts(slice_sub(buf_slice(scratch), from, end), &parts, err) &&
	     check_parts(&parts, err) && write_tag(&parts, scratch, err);
	if (!ok)
		return false;
	out->relay = parts.value[PART_RELAY];
	out->name = parts.value[PART_NAME];
	out->auth_tag = slice_sub(buf_slice(scratch), end, scratch->len);
	assert(parts.value[PART_SECRET].ptr != NULL); /* check_parts() */
	memcpy(out->secret, parts.value[PART_SECRET].ptr, KEY_BYTES);
	ok = keypair_create(crypto, out->secret, &keypair, err) &&
	     nipoa_parse(crypto, out->auth_tag, keypair_public(keypair), out->owner,
			 &out->expires, err);
	keypair_destroy(keypair);
	return ok;
}

/* Appends @text without its white space. */
static bool append_compact(struct slice text, struct buf *out)
{
	for (size_t i = 0; i < text.len; i++)
		if (!strchr(" \t\r\n", text.ptr[i]) || text.ptr[i] == '\0')
			(void)buf_append_byte(out, text.ptr[i]);
	return buf_ok(out);
}

static bool decode(struct slice text, struct buf *bytes, struct err *err)
{
	struct buf compact;
	struct err why;
	bool ok = false;

	buf_init(&compact, INVITE_CHARS_MAX);
	if (!append_compact(text, &compact))
		(void)err_set(err, ERR_TOO_LARGE,
			      "an invitation has at most %d characters",
			      INVITE_CHARS_MAX);
	else if (!bech32_is(buf_slice(&compact), prefix))
		(void)err_set(err, ERR_MALFORMED,
			      "this is no invitation: want the line perch1… that perch "
			      "invite printed");
	else if (!bech32_decode(buf_slice(&compact), prefix, bytes, &why))
		(void)err_set(err, ERR_MALFORMED,
			      "this invitation is damaged (%.60s): copy the whole line "
			      "once more",
			      why.text);
	else
		ok = true;
	buf_wipe(&compact);
	return ok;
}

bool invite_parse(struct crypto *crypto, struct slice text, struct buf *scratch,
		  struct invite *out, struct err *err)
{
	struct invite invite = {0};
	bool ok = false;

	buf_clear(scratch);
	scratch->max = BYTES_MAX + TAG_MAX;
	if (!decode(text, scratch, err))
		goto out;
	if (scratch->len == 0 || scratch->ptr[0] != VERSION) {
		(void)err_set(err, ERR_REFUSED,
			      "this invitation is of a version that this perch does not "
			      "know: update perch here");
		goto out;
	}
	ok = read_bytes(crypto, scratch, 1, &invite, err);
	if (ok)
		*out = invite;
out:
	sodium_memzero(&invite, sizeof(invite));
	return ok;
}
