#ifndef WIRE_NOSTR_FILTER_H
#define WIRE_NOSTR_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/arena.h"
#include "wire/base/err.h"
#include "wire/nostr/event.h"

/* One NIP-01 filter; lists are sorted for binary search. An absent condition has
 * present == false; a present list of no values matches nothing. */
struct filter_list {
	bool present;
	size_t count;
	uint8_t (*keys)[32]; /* ids, authors; also #e and #p */
};

struct filter_tag {
	char letter; /* a..z A..Z */
	size_t count;
	struct slice *values; /* decoded, sorted bytewise */
};

struct filter {
	struct filter_list ids, authors;
	bool has_kinds;
	uint32_t *kinds;
	size_t kind_count;
	struct filter_tag *tags;
	size_t tag_count;
	bool has_since, has_until, has_limit;
	int64_t since, until, limit;
};

#define FILTER_VALUES_MAX 5000 /* in all lists of one filter; our choice */

/**
 * filter_parse - read one filter object
 * ids, authors, #e and #p take 64 lower-case hex; kinds 0..65535; since, until, limit are
 * integers >= 0. An unknown member, also a #tag of more than one letter, is refused
 * (ERR_REFUSED, to be sent as "unsupported:"), all else wrong is ERR_MALFORMED
 * ("invalid:").
 */
bool filter_parse(struct slice json, struct arena *arena, struct filter *out,
		  struct err *err);
/* Does it match a live event? limit does not count; since and until do, both inclusive.
 */
bool filter_match(const struct filter *filter, const struct event *event);
/* The list of one tag letter, or NULL. */
const struct filter_tag *filter_tag(const struct filter *filter, char letter);

#endif
