#include "wire/nostr/nip42.h"

#include <string.h>

#include "wire/nostr/json.h"

/* Relay URLs, challenges and an attestation are short. */
#define TAGS_MAX_BYTES (16 * 1024)

bool nip42_sign(struct crypto *crypto, const struct keypair *keypair, struct slice url,
		struct slice challenge, struct slice auth_tag, int64_t now,
		const uint8_t aux[32], struct buf *out, struct err *err)
{
	struct event_draft draft = {.created_at = now, .kind = NIP42_KIND};
	struct buf tags;
	bool ok;

	buf_init(&tags, TAGS_MAX_BYTES);
	(void)buf_lit(&tags, "[[\"relay\",");
	(void)json_write_string(&tags, url);
	(void)buf_lit(&tags, "],[\"challenge\",");
	(void)json_write_string(&tags, challenge);
	(void)buf_append_byte(&tags, ']');
	if (auth_tag.len) {
		(void)buf_append_byte(&tags, ',');
		(void)buf_append(&tags, auth_tag);
	}
	(void)buf_append_byte(&tags, ']');
	draft.tags = buf_slice(&tags);
	ok = buf_ok(&tags)
		     ? event_sign(crypto, keypair, &draft, aux, out, NULL, err)
		     : err_set(err, ERR_TOO_LARGE, "relay url or challenge is too long");
	buf_finish(&tags);
	return ok;
}

/* What of a relay URL is compared. */
struct place {
	bool tls;
	struct slice host;
	uint64_t port;
	struct slice path; /* without trailing slashes */
};

static char lower(char byte)
{
	return byte >= 'A' && byte <= 'Z' ? (char)(byte | 0x20) : byte;
}

static bool same_folded(struct slice a, struct slice b)
{
	size_t i = 0;

	while (i < a.len && i < b.len && lower(a.ptr[i]) == lower(b.ptr[i]))
		i++;
	return a.len == b.len && i == a.len;
}

/* Takes @prefix, in any case, off the front of @text. */
static bool take_folded(struct slice *text, struct slice prefix)
{
	if (!same_folded(slice_sub(*text, 0, prefix.len), prefix))
		return false;
	*text = slice_sub(*text, prefix.len, text->len);
	return true;
}

static bool parse_place(struct slice url, struct place *out)
{
	struct slice authority;
	size_t end = 0, colon;

	*out = (struct place){0};
	out->tls = take_folded(&url, SLICE("wss://"));
	if (!out->tls && !take_folded(&url, SLICE("ws://")))
		return false;
	while (end < url.len && url.ptr[end] != '/' && url.ptr[end] != '?' &&
	       url.ptr[end] != '#')
		end++;
	authority = slice_sub(url, 0, end);
	out->path = slice_sub(url, end, url.len);
	while (out->path.len && out->path.ptr[out->path.len - 1] == '/')
		out->path.len--;

	/* The colon of a port has only digits behind it; those of an IPv6 address have a
	 * bracket. */
	colon = authority.len;
	while (colon && authority.ptr[colon - 1] >= '0' &&
	       authority.ptr[colon - 1] <= '9')
		colon--;
	out->port = out->tls ? 443 : 80;
	out->host = authority;
	if (colon && authority.ptr[colon - 1] == ':') {
		const struct slice port = slice_sub(authority, colon, authority.len);

		out->host = slice_sub(authority, 0, colon - 1);
		if (port.len && !slice_parse_u64(port, 65535, &out->port))
			return false;
	}
	return out->host.len && slice_find(out->host, '@') == out->host.len;
}

static bool is_same_relay(struct slice claimed, struct slice own)
{
	struct place a, b;

	return parse_place(claimed, &a) && parse_place(own, &b) && a.tls == b.tls &&
	       a.port == b.port && same_folded(a.host, b.host) &&
	       slice_eq(a.path, b.path);
}

bool nip42_check(const struct event *event, struct slice challenge,
		 const struct slice *urls, size_t url_count, int64_t now, struct err *err)
{
	const struct slice relay = tag_value(event_tag(event, SLICE("relay")));
	const struct slice answer = tag_value(event_tag(event, SLICE("challenge")));

	if (event->kind != NIP42_KIND)
		return err_set(err, ERR_MALFORMED, "kind is %u, want %d", event->kind,
			       NIP42_KIND);
	if (event->created_at < now - NIP42_MAX_AGE_S ||
	    event->created_at > now + NIP42_MAX_AGE_S)
		return err_set(err, ERR_MALFORMED,
			       "created_at is not within %d seconds of now",
			       NIP42_MAX_AGE_S);
	if (!challenge.len || !slice_eq(answer, challenge))
		return err_set(err, ERR_MALFORMED,
			       "challenge is not the one that was sent");
	for (size_t i = 0; i < url_count; i++)
		if (is_same_relay(relay, urls[i]))
			return true;
	return err_set(err, ERR_MALFORMED, "relay tag names another relay");
}
