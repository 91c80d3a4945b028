#include "wire/link/link_url.h"

#include <stdio.h>
#include <string.h>

#include "wire/base/slice.h"
#include "wire/host/log.h"

static bool refuse(const char *text, const char *why, struct err *err)
{
	char quoted[LOG_QUOTE_BYTES];

	return err_set(
		err, ERR_MALFORMED,
		"\"%.80s\" is no relay, %s: it wants ws://HOST[:PORT][/PATH] or wss://…",
		log_quote(slice_of(text), quoted), why);
}

/* What stands in a request line and a header must not end either. */
static bool is_graphic(struct slice text)
{
	for (size_t i = 0; i < text.len; i++) {
		if (text.ptr[i] <= ' ' || text.ptr[i] >= 0x7f)
			return false;
	}
	return true;
}

/* HOST, HOST:PORT or [V6]:PORT off @authority. */
static bool split(struct slice authority, struct slice *host, struct slice *port)
{
	size_t end;

	if (authority.len > 0 && authority.ptr[0] == '[') {
		end = slice_find(authority, ']');
		if (end == authority.len)
			return false;
		*host = slice_sub(authority, 1, end);
		end++;
	} else {
		end = slice_find(authority, ':');
		*host = slice_sub(authority, 0, end);
	}
	*port = slice_sub(authority, end, authority.len);
	if (port->len == 0)
		return host->len > 0;
	if (port->ptr[0] != ':')
		return false;
	*port = slice_sub(*port, 1, port->len);
	return host->len > 0 && port->len > 0;
}

bool link_url_parse(const char *text, struct link_url *out, struct err *err)
{
	struct slice rest = slice_of(text);
	struct slice authority;
	struct slice host;
	struct slice port;
	uint64_t number;
	size_t end = 0;
	bool tls = slice_starts(rest, SLICE("wss://"));

	if (!tls && !slice_starts(rest, SLICE("ws://")))
		return refuse(text, "the scheme is another", err);
	if (rest.len >= LINK_URL_MAX)
		return refuse(text, "it is too long", err);
	if (!is_graphic(rest) || slice_find(rest, '#') < rest.len)
		return refuse(text, "it has a character that does not belong there", err);
	rest = slice_sub(rest, tls ? 6 : 5, rest.len);
	while (end < rest.len && rest.ptr[end] != '/' && rest.ptr[end] != '?')
		end++;
	authority = slice_sub(rest, 0, end);
	rest = slice_sub(rest, end, rest.len);
	if (slice_find(authority, '@') < authority.len)
		return refuse(text, "it has a user name", err);
	if (!split(authority, &host, &port) || host.len >= sizeof(out->host))
		return refuse(text, "the host is missing or broken", err);
	number = tls ? 443 : 80;
	if (port.len > 0 && (!slice_parse_u64(port, UINT16_MAX, &number) || number == 0))
		return refuse(text, "the port is none", err);
	*out = (struct link_url){.tls = tls, .port = (uint16_t)number};
	memcpy(out->host, host.ptr, host.len);
	memcpy(out->authority, authority.ptr, authority.len);
	(void)snprintf(out->path, sizeof(out->path), "%s%.*s",
		       rest.len > 0 && rest.ptr[0] == '/' ? "" : "/", SLICE_ARG(rest));
	return true;
}
