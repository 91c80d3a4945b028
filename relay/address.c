#include "relay/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "wire/host/log.h"

/* RFC 4291, 2.5.5.2: "IPv4-Mapped IPv6 Address". */
static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
static const uint8_t loopback_v6[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

static bool is_v4(const struct address *address)
{
	return memcmp(address->bytes, mapped, sizeof(mapped)) == 0;
}

static void set_v4(struct address *out, const void *bytes)
{
	out->known = true;
	memcpy(out->bytes, mapped, sizeof(mapped));
	memcpy(out->bytes + sizeof(mapped), bytes, 4);
}

static void set_v6(struct address *out, const void *bytes)
{
	out->known = true;
	memcpy(out->bytes, bytes, sizeof(out->bytes));
}

bool address_from_socket(const struct sockaddr *from, struct address *out)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	/* Copied: the caller's may stand at any address. */
	if (from->sa_family == AF_INET) {
		memcpy(&v4, from, sizeof(v4));
		set_v4(out, &v4.sin_addr);
		return true;
	}
	if (from->sa_family == AF_INET6) {
		memcpy(&v6, from, sizeof(v6));
		set_v6(out, &v6.sin6_addr);
		return true;
	}
	return false;
}

bool address_parse(struct slice text, struct address *out)
{
	char copy[ADDRESS_TEXT_MAX];
	struct in6_addr v6;
	struct in_addr v4;

	if (text.len == 0 || text.len >= sizeof(copy) || memchr(text.ptr, '\0', text.len))
		return false;
	memcpy(copy, text.ptr, text.len);
	copy[text.len] = '\0';
	if (inet_pton(AF_INET, copy, &v4) == 1)
		set_v4(out, &v4);
	else if (inet_pton(AF_INET6, copy, &v6) == 1)
		set_v6(out, &v6);
	else
		return false;
	return true;
}

bool address_eq(const struct address *a, const struct address *b)
{
	return a->known == b->known &&
	       (!a->known || memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0);
}

bool address_is_loopback(const struct address *address)
{
	if (!address->known)
		return false;
	return is_v4(address) ? address->bytes[12] == 127
			      : memcmp(address->bytes, loopback_v6, 16) == 0;
}

const char *address_text(const struct address *address, char out[ADDRESS_TEXT_MAX])
{
	const char *text = NULL;

	if (address->known)
		text = is_v4(address) ? inet_ntop(AF_INET, address->bytes + 12, out,
						  ADDRESS_TEXT_MAX)
				      : inet_ntop(AF_INET6, address->bytes, out,
						  ADDRESS_TEXT_MAX);
	if (!text)
		(void)snprintf(out, ADDRESS_TEXT_MAX, "-");
	return out;
}

struct slice address_key(const struct address *address)
{
	return (struct slice){(const char *)address->bytes, is_v4(address) ? 16 : 8};
}

static bool in_range(const struct address_range *range, const struct address *address)
{
	unsigned whole = range->bits / 8;
	unsigned rest = range->bits % 8;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	if (memcmp(range->base.bytes, address->bytes, whole) != 0)
		return false;
	return rest == 0 ||
	       ((range->base.bytes[whole] ^ address->bytes[whole]) & mask) == 0;
}

bool proxies_add(struct proxies *proxies, const char *text, struct err *err)
{
	struct address_range *range = &proxies->ranges[proxies->count];
	struct slice rest = slice_of(text);
	char quoted[LOG_QUOTE_BYTES];
	struct slice name = SLICE_EMPTY;
	bool has_bits = slice_find(rest, '/') < rest.len;
	unsigned offset;
	uint64_t bits;

	if (proxies->count == PROXIES_MAX)
		return err_set(err, ERR_TOO_LARGE, "more than %d trusted proxies",
			       PROXIES_MAX);
	(void)slice_take_until(&rest, '/', &name);
	if (!address_parse(name, &range->base))
		return err_set(err, ERR_MALFORMED,
			       "trusted proxy \"%.60s\" is no numeric address like "
			       "10.0.0.2 or 10.0.0.0/8",
			       log_quote(slice_of(text), quoted));
	/* An address written as IPv4 has 32 bits of its own. */
	offset = slice_find(name, ':') == name.len ? 96 : 0;
	bits = 128 - offset;
	if (has_bits && !slice_parse_u64(rest, 128 - offset, &bits))
		return err_set(err, ERR_MALFORMED,
			       "trusted proxy \"%.60s\": %u bits at most",
			       log_quote(slice_of(text), quoted), 128 - offset);
	range->bits = (unsigned)bits + offset;
	proxies->count++;
	return true;
}

bool proxies_have(const struct proxies *proxies, const struct address *address)
{
	size_t i;

	for (i = 0; address->known && i < proxies->count; i++)
		if (in_range(&proxies->ranges[i], address))
			return true;
	return false;
}

/* "1.2.3.4", "1.2.3.4:5678", "2001:db8::1" or "[2001:db8::1]:5678". */
static bool parse_hop(struct slice hop, struct address *out)
{
	if (hop.len > 0 && hop.ptr[0] == '[')
		return address_parse(slice_sub(hop, 1, slice_find(hop, ']')), out);
	return address_parse(hop, out) ||
	       address_parse(slice_sub(hop, 0, slice_find(hop, ':')), out);
}

/* Takes the last hop off the end of @list. */
static struct slice take_hop(struct slice *list)
{
	size_t at = list->len;
	struct slice hop;

	while (at > 0 && list->ptr[at - 1] != ',')
		at--;
	hop = slice_trim(slice_sub(*list, at, list->len));
	*list = slice_sub(*list, 0, at > 0 ? at - 1 : 0);
	return hop;
}

void proxies_client(const struct proxies *proxies, const struct address *peer,
		    struct slice forwarded, struct address *out)
{
	struct address hop = {0};
	int i;

	*out = *peer;
	for (i = 0; i < FORWARDED_HOPS_MAX && forwarded.len > 0; i++) {
		if (!proxies_have(proxies, out) || !parse_hop(take_hop(&forwarded), &hop))
			return;
		*out = hop;
	}
}
