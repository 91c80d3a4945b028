#include "agent/serve.h"

#include <string.h>

static struct serve_observer *find_place(struct serve *serve, const char *id,
					 int64_t now_ms)
{
	struct serve_observer *place = NULL;

	for (size_t i = 0; i < OBSERVERS_MAX; i++) {
		struct serve_observer *observer = &serve->observers[i];

		if (strcmp(observer->id, id) == 0)
			return observer;
		if (!place && (!observer->id[0] ||
			       observer->heard_ms + SERVE_OBSERVER_MS <= now_ms))
			place = observer;
	}
	return place;
}

bool serve_open(struct serve *serve, const struct control *control, const char epoch[17],
		int64_t now_ms, struct err *err)
{
	const size_t id_len = control->request_id.len;
	struct serve_observer *observer;

	if (!control->observer[0])
		return err_set(err, ERR_REFUSED,
			       "observer is missing, want 8 hex digits");
	observer = find_place(serve, control->observer, now_ms);
	if (!observer)
		return err_set(err, ERR_REFUSED,
			       "%d observers are served already, want fewer",
			       OBSERVERS_MAX);
	if (id_len > SERVE_REQUEST_ID_MAX)
		return err_set(err, ERR_REFUSED,
			       "requestId has %zu bytes, want at most %d", id_len,
			       SERVE_REQUEST_ID_MAX);
	*observer = (struct serve_observer){.heard_ms = now_ms, .unanswered = true};
	memcpy(observer->id, control->observer, sizeof(observer->id));
	if (id_len)
		memcpy(observer->request_id, control->request_id.ptr, id_len);
	for (size_t i = 0; i < control->want_count && i < WANT_RANGES_MAX; i++)
		if (strcmp(control->wants[i].epoch, epoch) == 0)
			observer->wants[observer->want_count++] = control->wants[i].range;
	return true;
}

struct serve_observer *serve_unanswered(struct serve *serve)
{
	for (size_t i = 0; i < OBSERVERS_MAX; i++)
		if (serve->observers[i].id[0] && serve->observers[i].unanswered)
			return &serve->observers[i];
	return NULL;
}

static void remove_range(struct serve_observer *observer, size_t at)
{
	observer->wants[at] = observer->wants[--observer->want_count];
}

/* Brings the range to the first frame that is here; false when none of it is. Frames that
 * are gone below the outbox's first cost no steps: a range may span 2^53 numbers. */
static bool advance(struct frame_range *range, const struct outbox *outbox)
{
	const uint64_t first = outbox_first(outbox), last = outbox_last(outbox);

	if (range->first < first)
		range->first = first;
	while (range->first <= range->last && range->first <= last) {
		if (outbox_get(outbox, range->first))
			return true;
		range->first++;
	}
	return false;
}

/* The newest range of all observers, by where it starts. */
static struct frame_range *newest(struct serve *serve, const struct outbox *outbox)
{
	struct frame_range *best = NULL;

	for (size_t i = 0; i < OBSERVERS_MAX; i++) {
		struct serve_observer *observer = &serve->observers[i];

		for (size_t j = observer->want_count; j-- > 0;)
			if (!advance(&observer->wants[j], outbox))
				remove_range(observer, j);
		for (size_t j = 0; j < observer->want_count; j++)
			if (!best || observer->wants[j].first > best->first)
				best = &observer->wants[j];
	}
	return best;
}

bool serve_is_wanted(struct serve *serve, const struct outbox *outbox)
{
	return newest(serve, outbox) != NULL;
}

struct outbox_frame *serve_next(struct serve *serve, const struct outbox *outbox)
{
	const struct frame_range *range = newest(serve, outbox);
	uint64_t number;

	if (!range)
		return NULL;
	number = range->first;
	for (size_t i = 0; i < OBSERVERS_MAX; i++)
		for (size_t j = 0; j < serve->observers[i].want_count; j++)
			if (serve->observers[i].wants[j].first == number)
				serve->observers[i].wants[j].first++;
	return outbox_get(outbox, number);
}
