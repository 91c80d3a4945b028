#ifndef WIRE_LINK_LINK_URL_H
#define WIRE_LINK_LINK_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"

#define LINK_URL_MAX 1024 /* characters */

/* Where a relay is: ws://host[:port][/path] or wss://…; 80 and 443 by default. */
struct link_url {
	bool tls;
	uint16_t port;
	char host[256];          /* without the brackets of an IPv6 address */
	char authority[256 + 8]; /* what the Host header says */
	char path[LINK_URL_MAX]; /* from the slash on, with the query */
};

/* ERR_MALFORMED says what a relay's address looks like. */
bool link_url_parse(const char *text, struct link_url *out, struct err *err);

#endif
