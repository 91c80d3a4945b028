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

bool serve_open(struct serve *serve, const struct control *control, int64_t now_ms,
		struct err *err)
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
		observer->wants[observer->want_count++] = control->wants[i];
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

/* Brings the range to the first frame that is here; false when none of it is. What is not
 * here costs no steps: a range may span 2^53 numbers. */
static bool advance(struct control_want *want, const struct serve_source *source)
{
	uint64_t number;

	if (want->range.first > want->range.last ||
	    !source->next(source->ctx, want->epoch, want->range.first, &number) ||
	    number > want->range.last)
		return false;
	want->range.first = number;
	return true;
}

static bool is_newer(const struct control_want *a, const struct control_want *b)
{
	const int order = strcmp(a->epoch, b->epoch);

	return order > 0 || (order == 0 && a->range.first > b->range.first);
}

/* The newest range of all observers. */
static const struct control_want *newest(struct serve *serve,
					 const struct serve_source *source)
{
	const struct control_want *best = NULL;

	for (size_t i = 0; i < OBSERVERS_MAX; i++) {
		struct serve_observer *observer = &serve->observers[i];

		for (size_t j = observer->want_count; j-- > 0;)
			if (!advance(&observer->wants[j], source))
				remove_range(observer, j);
		for (size_t j = 0; j < observer->want_count; j++)
			if (!best || is_newer(&observer->wants[j], best))
				best = &observer->wants[j];
	}
	return best;
}

/* Takes a number off a range; where that makes two of it and there is room for one, it
 * stays: the frame comes twice then. */
static void take_off(struct serve_observer *observer, size_t at, uint64_t number)
{
	struct control_want *want = &observer->wants[at];

	if (number < want->range.first || number > want->range.last)
		return;
	if (number == want->range.first) {
		want->range.first++;
	} else if (number == want->range.last) {
		want->range.last--;
	} else if (observer->want_count < WANT_RANGES_MAX) {
		struct control_want *tail = &observer->wants[observer->want_count++];

		*tail = *want;
		tail->range.first = number + 1;
		want->range.last = number - 1;
	}
}

bool serve_next(struct serve *serve, const struct serve_source *source, char epoch[17],
		uint64_t *number)
{
	const struct control_want *want = newest(serve, source);

	if (!want)
		return false;
	*number = want->range.first;
	memcpy(epoch, want->epoch, sizeof(want->epoch));
	for (size_t i = 0; i < OBSERVERS_MAX; i++) {
		struct serve_observer *observer = &serve->observers[i];

		for (size_t j = observer->want_count; j-- > 0;)
			if (strcmp(observer->wants[j].epoch, epoch) == 0)
				take_off(observer, j, *number);
	}
	return true;
}

void serve_again(struct serve *serve, const char *epoch, uint64_t number)
{
	for (size_t i = 0; i < OBSERVERS_MAX; i++) {
		struct serve_observer *observer = &serve->observers[i];
		struct control_want *want = &observer->wants[observer->want_count];

		if (!observer->id[0] || observer->want_count == WANT_RANGES_MAX)
			continue;
		observer->want_count++;
		memcpy(want->epoch, epoch, sizeof(want->epoch));
		want->range = (struct frame_range){number, number};
		return;
	}
}
