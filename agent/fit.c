#include "agent/fit.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/nostr/json.h"

#define ELLIPSIS "…"
#define MARKER_PREFIX ELLIPSIS "[elided "
#define MARKER_SUFFIX " bytes]" ELLIPSIS
#define MARKER_MAX 64
#define MARK ",\"trimmed\":"
#define LEN(literal) (sizeof(literal) - 1)

/* A string leaf that can shrink. */
struct leaf {
	struct slice text; /* between the quotes */
	size_t head, tail; /* it keeps text[0, head) and text[tail, len) */
	bool cut;
};

struct leaves {
	struct leaf *items;
	size_t count, capacity;
};

static uint64_t elided_of(const struct leaf *leaf)
{
	return leaf->tail - leaf->head;
}

static size_t digits(uint64_t n)
{
	size_t count = 1;

	for (; n >= 10; n /= 10)
		count++;
	return count;
}

static size_t marker_bytes(uint64_t elided)
{
	return LEN(MARKER_PREFIX MARKER_SUFFIX) + digits(elided);
}

/* Length of what stands at @at and must not be cut: a pair of surrogate escapes, an
 * escape, a UTF-8 sequence, or one byte. */
static size_t unit_len(struct slice text, size_t at)
{
	const unsigned char byte = (unsigned char)text.ptr[at];
	const char *p = text.ptr + at;

	if (byte == '\\') {
		if (p[1] != 'u')
			return 2;
		/* \ud800..\udbff is followed by its other half: the text is strict. */
		if ((p[2] | 0x20) == 'd' && strchr("89abAB", p[3]))
			return 12;
		return 6;
	}
	if (byte < 0x80)
		return 1;
	return byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
}

/* Where @text may be cut so that nothing is split: the last place at or before
 * FIT_KEEP_BYTES from the front, the first at or after that far from the end. */
static void find_cuts(struct leaf *leaf)
{
	const struct slice text = leaf->text;
	const size_t from = text.len - FIT_KEEP_BYTES;
	size_t at = 0, next;

	for (; (next = at + unit_len(text, at)) <= FIT_KEEP_BYTES; at = next)
		;
	leaf->head = at;
	while (at < from)
		at += unit_len(text, at);
	leaf->tail = at;
}

static void add_leaf(struct leaves *leaves, struct slice text)
{
	struct leaf leaf = {.text = text};

	/* It can get no shorter than what it keeps and the marker. */
	if (text.len <= 2 * FIT_KEEP_BYTES)
		return;
	find_cuts(&leaf);
	if (leaf.tail <= leaf.head || elided_of(&leaf) <= marker_bytes(elided_of(&leaf)))
		return;
	if (leaves->count == leaves->capacity) {
		leaves->capacity = leaves->capacity ? 2 * leaves->capacity : 16;
		leaves->items = mem_grow(leaves->items, leaves->capacity, sizeof(leaf));
	}
	leaves->items[leaves->count++] = leaf;
}

/* Recursion ends at JSON_DEPTH_MAX. Keys are no leaves. */
static void collect(struct json *json, struct leaves *leaves)
{
	struct slice text;

	switch (json_peek(json)) {
	case JSON_STRING:
		if (json_string(json, &text))
			add_leaf(leaves, text);
		break;
	case JSON_ARRAY:
		(void)json_enter_array(json);
		while (json_element(json))
			collect(json, leaves);
		break;
	case JSON_OBJECT:
		(void)json_enter_object(json);
		while (json_member(json, &text))
			collect(json, leaves);
		break;
	case JSON_ERROR:
	case JSON_NUMBER:
	case JSON_TRUE:
	case JSON_FALSE:
	case JSON_NULL:
		(void)json_skip(json, NULL);
		break;
	}
}

/* Longest first, first on ties. */
static int by_length(const void *a, const void *b)
{
	const struct leaf *const *x = a, *const *y = b;

	if ((*x)->text.len != (*y)->text.len)
		return (*x)->text.len > (*y)->text.len ? -1 : 1;
	return (*x)->text.ptr < (*y)->text.ptr ? -1 : 1;
}

/* Cuts leaves until @bytes of payload are within the limit. Returns the sum of what is
 * gone, 0 if they do not suffice. */
static uint64_t cut(const struct leaves *leaves, size_t bytes, size_t overhead,
		    size_t limit)
{
	struct leaf **order = mem_array(leaves->count, sizeof(struct leaf *));
	uint64_t sum = 0;
	bool fits = false;

	for (size_t i = 0; i < leaves->count; i++)
		order[i] = &leaves->items[i];
	qsort(order, leaves->count, sizeof(struct leaf *), by_length);
	for (size_t i = 0; i < leaves->count && !fits; i++) {
		const uint64_t elided = elided_of(order[i]);

		order[i]->cut = true;
		sum += elided;
		bytes -= (size_t)elided - marker_bytes(elided);
		fits = overhead + LEN(MARK) + digits(sum) + bytes <= limit;
	}
	free(order);
	return fits ? sum : 0;
}

/* Copies the payload around the cut leaves, which are in the order of the text. */
static void write_cut(struct slice payload, const struct leaves *leaves, struct buf *out)
{
	const char *copied = payload.ptr, *end = payload.ptr + payload.len;

	for (size_t i = 0; i < leaves->count; i++) {
		const struct leaf *leaf = &leaves->items[i];
		const char *text = leaf->text.ptr;

		if (!leaf->cut)
			continue;
		(void)buf_append(out, (struct slice){copied, (size_t)(text + leaf->head -
								      copied)});
		(void)buf_printf(out, MARKER_PREFIX "%" PRIu64 MARKER_SUFFIX,
				 elided_of(leaf));
		copied = text + leaf->tail;
	}
	(void)buf_append(out, (struct slice){copied, (size_t)(end - copied)});
}

uint64_t fit_payload(struct slice payload, size_t overhead, size_t limit,
		     struct slice kind, struct buf *out)
{
	struct leaves leaves = {NULL, 0, 0};
	struct json json;
	uint64_t trimmed;

	if (overhead + payload.len <= limit)
		return 0;
	json_init(&json, payload);
	collect(&json, &leaves);
	trimmed = leaves.count ? cut(&leaves, payload.len, overhead, limit) : 0;
	if (trimmed) {
		write_cut(payload, &leaves, out);
	} else {
		trimmed = payload.len;
		(void)buf_printf(
			out,
			"{\"elided\":\"%.*s payload too large\",\"originalBytes\":%zu}",
			SLICE_ARG(kind), payload.len);
	}
	free(leaves.items);
	assert(buf_ok(out));
	return trimmed;
}
