#ifndef RELAY_ADDRESS_H
#define RELAY_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/base/slice.h"

struct sockaddr;

#define ADDRESS_TEXT_MAX 46 /* characters and NUL: the longest IPv6 address */
/* Most named proxies; our choice. */
#define PROXIES_MAX 64
/* Most hops of X-Forwarded-For that are looked at, from the end; our choice. */
#define FORWARDED_HOPS_MAX 16

/* Where a client comes from. An IPv4 address is kept as ::ffff:a.b.c.d, so that the two
 * ways of writing one are one. Zeroed: nowhere (a test, a Unix socket). */
struct address {
	bool known;
	uint8_t bytes[16];
};

/* A range of addresses: those that share the first @bits bits. */
struct address_range {
	struct address base;
	unsigned bits; /* of the 16 bytes: 128 for one address */
};

/* The proxies whose word on where a client comes from is believed. */
struct proxies {
	struct address_range ranges[PROXIES_MAX];
	size_t count;
};

/* False for what is neither IPv4 nor IPv6. */
bool address_from_socket(const struct sockaddr *from, struct address *out);
/* A numeric address, without brackets or port. */
bool address_parse(struct slice text, struct address *out);
bool address_eq(const struct address *a, const struct address *b);
/* 127.0.0.0/8 and ::1. */
bool address_is_loopback(const struct address *address);
/* "1.2.3.4", "2001:db8::1", "-" for nowhere. Returns @out. */
const char *address_text(const struct address *address, char out[ADDRESS_TEXT_MAX]);
/* What is counted as one address: an IPv4 address, a /64 of IPv6 (one machine has that
 * many to choose from). Borrows from @address. */
struct slice address_key(const struct address *address);

/* ADDRESS or ADDRESS/BITS. */
bool proxies_add(struct proxies *proxies, const char *text, struct err *err);
bool proxies_have(const struct proxies *proxies, const struct address *address);
/**
 * proxies_client - who stands behind a connection?
 * @peer: the other end of the socket
 * @forwarded: its X-Forwarded-For, all of them in order, comma between; may be empty
 *
 * @peer itself unless it is a named proxy. Else the last hop that is none: what stands
 * before it was written by whoever it is, and may be a lie. A hop that is no address ends
 * the search at the proxy that reported it.
 */
void proxies_client(const struct proxies *proxies, const struct address *peer,
		    struct slice forwarded, struct address *out);

#endif
