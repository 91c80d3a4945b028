#include "relay/route.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"
#include "wire/nostr/message.h"

/* What one link takes, with its share of the map but without its two keys: the peer pays
 * for it in subscription.bytes. */
#define LINK_BYTES 192

/* A subscription's place in the list of one value. */
struct route_link {
	struct subscription *sub;
	struct slice key; /* of the list; in the subscription's arena */
	struct route_list *list;
	struct route_link *next, *prev;
};

struct route_list {
	struct route_link *first;
};

/* Keys of the lists: one of these, then the value in bytes. Behind BY_TAG comes the
 * letter. */
enum condition {
	BY_NOTHING = '*', /* no value */
	BY_FRAME = 'f',   /* p of a frame */
	BY_ID = 'i',
	BY_AUTHOR = 'a',
	BY_KIND = 'k', /* two bytes */
	BY_TAG = '#',
};

/* Kinds that only their p may read, frames and gift wraps: a filter for nothing else must
 * name the reader's own key. */
static bool kind_is_gated(uint32_t kind)
{
	return kind == FRAME_KIND || kind == GIFT_KIND || kind == GIFT_EPHEMERAL_KIND;
}

/* Could the filter match a frame at all, as far as kinds go? */
static bool takes_frames(const struct filter *filter)
{
	size_t i;

	for (i = 0; i < filter->kind_count; i++)
		if (kind_is_gated(filter->kinds[i]))
			return true;
	return !filter->has_kinds;
}

/* Does it ask for gated kinds and nothing else? */
static bool only_frames(const struct filter *filter)
{
	size_t i;

	for (i = 0; i < filter->kind_count; i++)
		if (!kind_is_gated(filter->kinds[i]))
			return false;
	return filter->kind_count > 0;
}

static bool has_key(const uint8_t *keys, size_t count, const uint8_t key[KEY_BYTES])
{
	size_t i;

	for (i = 0; i < count; i++)
		if (memcmp(keys + i * KEY_BYTES, key, KEY_BYTES) == 0)
			return true;
	return false;
}

/* Is every #p one of the reader's own keys, and is there one? */
static bool asks_for_own(const struct filter *filter, const uint8_t *keys,
			 size_t key_count)
{
	const struct filter_tag *p = filter_tag(filter, 'p');
	uint8_t key[KEY_BYTES];
	size_t i;

	if (!p || p->count == 0)
		return false;
	for (i = 0; i < p->count; i++)
		if (!hex_decode(p->values[i], key, sizeof(key)) ||
		    !has_key(keys, key_count, key))
			return false;
	return true;
}

static void add_keys(struct subscription *sub, const struct filter *filter)
{
	const struct filter_tag *p = filter_tag(filter, 'p');
	uint8_t key[KEY_BYTES];
	size_t i;

	for (i = 0; i < p->count; i++) {
		if (!hex_decode(p->values[i], key, sizeof(key)) ||
		    has_key(sub->keys, sub->key_count, key))
			continue;
		memcpy(sub->keys + sub->key_count * KEY_BYTES, key, KEY_BYTES);
		sub->key_count++;
	}
}

static struct body *head_create(struct slice id)
{
	struct body *head;
	struct buf buf;

	/* A control character takes six bytes as \u00xx. */
	buf_init(&buf, 6 * id.len + 2);
	(void)json_write_string(&buf, id);
	head = body_create(buf_slice(&buf));
	buf_finish(&buf);
	return head;
}

/* The number of values of the condition that the filter is found by. */
struct choice {
	enum condition condition;
	const struct filter_tag *tag;
	size_t count;
};

static void choose(struct choice *best, enum condition condition,
		   const struct filter_tag *tag, size_t count)
{
	if (best->condition == BY_NOTHING || count < best->count)
		*best = (struct choice){condition, tag, count};
}

static struct choice choice_of(const struct filter *filter)
{
	struct choice best = {BY_NOTHING, NULL, 1};
	size_t i;

	if (filter->ids.present)
		choose(&best, BY_ID, NULL, filter->ids.count);
	if (filter->authors.present)
		choose(&best, BY_AUTHOR, NULL, filter->authors.count);
	for (i = 0; i < filter->tag_count; i++)
		choose(&best, BY_TAG, &filter->tags[i], filter->tags[i].count);
	if (best.condition == BY_NOTHING && filter->has_kinds)
		choose(&best, BY_KIND, NULL, filter->kind_count);
	return best;
}

static struct slice write_key(char *out, enum condition condition, char letter,
			      struct slice value)
{
	size_t len = 0;

	out[len++] = (char)condition;
	if (condition == BY_TAG)
		out[len++] = letter;
	if (value.len > 0)
		memcpy(out + len, value.ptr, value.len);
	return (struct slice){out, len + value.len};
}

static void add_link(struct subscription *sub, enum condition condition, char letter,
		     struct slice value)
{
	char *key = arena_alloc(&sub->arena, value.len + 2);

	sub->links[sub->link_count++] = (struct route_link){
		.sub = sub, .key = write_key(key, condition, letter, value)};
	sub->bytes += LINK_BYTES + 2 * value.len;
}

static struct slice key_slice(const uint8_t key[KEY_BYTES])
{
	return (struct slice){(const char *)key, KEY_BYTES};
}

/* The two bytes of a kind, as they stand in a list's key. */
static struct slice kind_slice(uint32_t kind, char out[2])
{
	out[0] = (char)(kind >> 8);
	out[1] = (char)(kind & 0xff);
	return (struct slice){out, 2};
}

static void link_filter(struct subscription *sub, const struct filter *filter,
			const struct choice *choice)
{
	char kind[2];
	size_t i;

	for (i = 0; i < choice->count; i++) {
		switch (choice->condition) {
		case BY_NOTHING:
			add_link(sub, BY_NOTHING, 0, SLICE_EMPTY);
			break;
		case BY_ID:
			add_link(sub, BY_ID, 0, key_slice(filter->ids.keys[i]));
			break;
		case BY_AUTHOR:
			add_link(sub, BY_AUTHOR, 0, key_slice(filter->authors.keys[i]));
			break;
		case BY_KIND:
			add_link(sub, BY_KIND, 0, kind_slice(filter->kinds[i], kind));
			break;
		case BY_TAG:
			add_link(sub, BY_TAG, choice->tag->letter,
				 choice->tag->values[i]);
			break;
		case BY_FRAME:
			assert(false); /* chosen by nobody */
		}
	}
}

/* One link per list that the subscription will be in. A filter that is found twice, by
 * two equal values, does no harm. */
static void make_links(struct subscription *sub)
{
	size_t count = sub->key_count;
	size_t i;

	for (i = 0; i < sub->filter_count; i++)
		if (!only_frames(&sub->filters[i]))
			count += choice_of(&sub->filters[i]).count;
	sub->links = arena_array(&sub->arena, count, sizeof(*sub->links));
	for (i = 0; i < sub->key_count; i++)
		add_link(sub, BY_FRAME, 0, key_slice(sub->keys + i * KEY_BYTES));
	for (i = 0; i < sub->filter_count; i++) {
		struct choice choice = choice_of(&sub->filters[i]);

		if (!only_frames(&sub->filters[i]))
			link_filter(sub, &sub->filters[i], &choice);
	}
}

struct subscription *subscription_create(struct slice id, const struct slice *filters,
					 size_t filter_count, const uint8_t *keys,
					 size_t key_count, bool *gated_out,
					 struct err *err)
{
	struct subscription *sub = mem_alloc(sizeof(*sub));
	size_t i;

	*gated_out = false;
	arena_init(&sub->arena, 1024);
	sub->id = arena_dup(&sub->arena, id);
	sub->head = head_create(id);
	sub->filters = arena_array(&sub->arena, filter_count, sizeof(*sub->filters));
	sub->frame_filters =
		arena_array(&sub->arena, filter_count, sizeof(const struct filter *));
	sub->keys = arena_array(&sub->arena, key_count, KEY_BYTES);
	sub->filter_count = filter_count;
	for (i = 0; i < filter_count; i++) {
		struct filter *filter = &sub->filters[i];
		/* A filter's values may point into its text, which must live as long. */
		struct slice text = arena_dup(&sub->arena, filters[i]);

		sub->bytes += 2 * text.len;
		if (!filter_parse(text, &sub->arena, filter, err))
			goto out;
		if (takes_frames(filter) && asks_for_own(filter, keys, key_count)) {
			sub->frame_filters[sub->frame_filter_count++] = filter;
			add_keys(sub, filter);
		} else if (only_frames(filter)) {
			*gated_out = true;
			(void)err_set(err, ERR_REFUSED,
				      "kind %" PRIu32
				      " needs #p with your own authenticated key only",
				      filter->kinds[0]);
			goto out;
		}
	}
	make_links(sub);
	return sub;
out:
	subscription_destroy(sub);
	return NULL;
}

void subscription_destroy(struct subscription *sub)
{
	if (!sub)
		return;
	body_unref(sub->head);
	arena_finish(&sub->arena);
	free(sub);
}

void route_init(struct route *route)
{
	map_init(&route->lists);
	route->count = 0;
	route->round = 0;
	route->looked = 0;
}

void route_finish(struct route *route)
{
	assert(route->count == 0 && route->lists.count == 0);
	map_finish(&route->lists);
}

static void link_add(struct route *route, struct route_link *link)
{
	struct route_list *list = map_get(&route->lists, link->key);

	if (!list) {
		list = mem_alloc(sizeof(*list));
		(void)map_put(&route->lists, link->key, list);
	}
	link->list = list;
	link->prev = NULL;
	link->next = list->first;
	if (link->next)
		link->next->prev = link;
	list->first = link;
}

static void link_remove(struct route *route, struct route_link *link)
{
	if (link->next)
		link->next->prev = link->prev;
	*(link->prev ? &link->prev->next : &link->list->first) = link->next;
	if (!link->list->first)
		free(map_take(&route->lists, link->key));
}

void route_add(struct route *route, struct subscription *sub)
{
	size_t i;

	for (i = 0; i < sub->link_count; i++)
		link_add(route, &sub->links[i]);
	route->count++;
}

void route_remove(struct route *route, struct subscription *sub)
{
	size_t i;

	for (i = 0; i < sub->link_count; i++)
		link_remove(route, &sub->links[i]);
	route->count--;
}

bool subscription_takes(const struct subscription *sub, size_t i,
			const struct event *event)
{
	const struct filter *filter = &sub->filters[i];
	bool passes = !kind_is_gated(event->kind);
	size_t j;

	for (j = 0; j < sub->frame_filter_count && !passes; j++)
		passes = sub->frame_filters[j] == filter;
	return passes && filter_match(filter, event);
}

static bool matches(const struct subscription *sub, const struct event *event)
{
	size_t i;

	for (i = 0; i < sub->filter_count; i++)
		if (subscription_takes(sub, i, event))
			return true;
	return false;
}

/* One event on its way through the lists. */
struct walk {
	struct route *route;
	const struct event *event;
	void (*on_match)(void *ctx, struct subscription *sub);
	void *ctx;
};

/* Those in one list that were not looked at yet. */
static void walk_list(const struct walk *walk, struct slice key)
{
	const struct route_list *list = map_get(&walk->route->lists, key);
	struct route_link *link;

	for (link = list ? list->first : NULL; link; link = link->next) {
		struct subscription *sub = link->sub;

		if (sub->round == walk->route->round)
			continue;
		sub->round = walk->route->round;
		walk->route->looked++;
		if (matches(sub, walk->event))
			walk->on_match(walk->ctx, sub);
	}
}

static void walk_short(const struct walk *walk, enum condition condition,
		       struct slice value)
{
	char key[1 + KEY_BYTES];

	assert(value.len <= KEY_BYTES);
	walk_list(walk, write_key(key, condition, 0, value));
}

static void walk_frame(const struct walk *walk)
{
	uint8_t key[KEY_BYTES];
	size_t i;

	for (i = 0; i < walk->event->tag_count; i++)
		if (slice_eq(walk->event->tags[i].values[0], SLICE("p")) &&
		    hex_decode(tag_value(&walk->event->tags[i]), key, sizeof(key)))
			walk_short(walk, BY_FRAME, key_slice(key));
}

/* Tag values may be as long as an event: the longest key grows on the heap. */
static void walk_tags(const struct walk *walk)
{
	struct buf key;
	size_t i;

	buf_init(&key, EVENT_MAX_BYTES + 2);
	for (i = 0; i < walk->event->tag_count; i++) {
		const struct tag *tag = &walk->event->tags[i];

		if (tag->count < 2 || tag->values[0].len != 1)
			continue;
		buf_clear(&key);
		(void)buf_append_byte(&key, BY_TAG);
		(void)buf_append(&key, tag->values[0]);
		(void)buf_append(&key, tag->values[1]);
		if (buf_ok(&key))
			walk_list(walk, buf_slice(&key));
	}
	buf_finish(&key);
}

void route_event(struct route *route, const struct event *event,
		 void (*on_match)(void *ctx, struct subscription *sub), void *ctx)
{
	const struct walk walk = {route, event, on_match, ctx};
	char kind[2];

	route->round++;
	if (kind_is_gated(event->kind)) {
		walk_frame(&walk);
		return;
	}
	walk_short(&walk, BY_NOTHING, SLICE_EMPTY);
	walk_short(&walk, BY_KIND, kind_slice(event->kind, kind));
	walk_short(&walk, BY_AUTHOR, key_slice(event->pubkey));
	walk_short(&walk, BY_ID, key_slice(event->id));
	walk_tags(&walk);
}
