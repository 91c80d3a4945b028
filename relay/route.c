#include "relay/route.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"
#include "wire/nostr/message.h"

/* A subscription's place in the list of one key. */
struct route_link {
	struct subscription *sub;
	struct route_list *list;
	struct route_link *next, *prev;
};

struct route_list {
	struct route_link *first;
};

bool kind_is_gated(uint32_t kind)
{
	return kind == FRAME_KIND;
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

		sub->bytes += text.len;
		if (!filter_parse(text, &sub->arena, filter, err))
			goto out;
		if (takes_frames(filter) && asks_for_own(filter, keys, key_count)) {
			sub->frame_filters[sub->frame_filter_count++] = filter;
			add_keys(sub, filter);
		} else if (only_frames(filter)) {
			*gated_out = true;
			(void)err_set(
				err, ERR_REFUSED,
				"kind %d needs #p with your own authenticated key only",
				FRAME_KIND);
			goto out;
		}
	}
	sub->links = arena_array(&sub->arena, sub->key_count, sizeof(*sub->links));
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

static struct slice key_slice(const uint8_t key[KEY_BYTES])
{
	return (struct slice){(const char *)key, KEY_BYTES};
}

static struct slice sub_key(const struct subscription *sub, size_t i)
{
	return key_slice(sub->keys + i * KEY_BYTES);
}

void route_init(struct route *route)
{
	map_init(&route->by_key);
	route->all = NULL;
	route->count = 0;
}

void route_finish(struct route *route)
{
	assert(route->count == 0 && route->by_key.count == 0);
	map_finish(&route->by_key);
}

void route_add(struct route *route, struct subscription *sub)
{
	size_t i;

	for (i = 0; i < sub->key_count; i++) {
		struct route_link *link = &sub->links[i];
		struct route_list *list = map_get(&route->by_key, sub_key(sub, i));

		if (!list) {
			list = mem_alloc(sizeof(*list));
			(void)map_put(&route->by_key, sub_key(sub, i), list);
		}
		link->sub = sub;
		link->list = list;
		link->prev = NULL;
		link->next = list->first;
		if (link->next)
			link->next->prev = link;
		list->first = link;
	}
	sub->prev = NULL;
	sub->next = route->all;
	if (sub->next)
		sub->next->prev = sub;
	route->all = sub;
	route->count++;
}

void route_remove(struct route *route, struct subscription *sub)
{
	size_t i;

	for (i = 0; i < sub->key_count; i++) {
		struct route_link *link = &sub->links[i];

		if (link->next)
			link->next->prev = link->prev;
		*(link->prev ? &link->prev->next : &link->list->first) = link->next;
		if (!link->list->first)
			free(map_take(&route->by_key, sub_key(sub, i)));
	}
	if (sub->next)
		sub->next->prev = sub->prev;
	*(sub->prev ? &sub->prev->next : &route->all) = sub->next;
	route->count--;
}

static bool matches_frame(const struct subscription *sub, const struct event *event)
{
	size_t i;

	for (i = 0; i < sub->frame_filter_count; i++)
		if (filter_match(sub->frame_filters[i], event))
			return true;
	return false;
}

static bool matches(const struct subscription *sub, const struct event *event)
{
	size_t i;

	for (i = 0; i < sub->filter_count; i++)
		if (filter_match(&sub->filters[i], event))
			return true;
	return false;
}

static void route_frame(struct route *route, const struct event *event,
			void (*on_match)(void *ctx, struct subscription *sub), void *ctx)
{
	const struct tag *p = event_tag(event, SLICE("p"));
	const struct route_list *list;
	struct route_link *link;
	uint8_t key[KEY_BYTES];

	if (!p || !hex_decode(tag_value(p), key, sizeof(key)))
		return;
	list = map_get(&route->by_key, key_slice(key));
	for (link = list ? list->first : NULL; link; link = link->next)
		if (matches_frame(link->sub, event))
			on_match(ctx, link->sub);
}

void route_event(struct route *route, const struct event *event,
		 void (*on_match)(void *ctx, struct subscription *sub), void *ctx)
{
	struct subscription *sub;

	if (kind_is_gated(event->kind)) {
		route_frame(route, event, on_match, ctx);
		return;
	}
	for (sub = route->all; sub; sub = sub->next)
		if (matches(sub, event))
			on_match(ctx, sub);
}
