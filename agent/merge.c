#include "agent/merge.h"

#include <assert.h>
#include <string.h>

#include "wire/base/clock.h"
#include "wire/frame/limits.h"

#define DIGITS_MAX 20 /* of a number of 64 bits; the power beyond has no room there */
#define LEN(literal) (sizeof(literal) - 1)
#define MARK ",\"merged\":"
#define PAYLOAD ",\"payload\":"

static uint32_t digits(uint64_t n)
{
	uint64_t power = 10;
	uint32_t count = 1;

	for (; n >= power && count < DIGITS_MAX; power *= 10)
		count++;
	return count;
}

/* The part of a header that a chunk changes: seq, monotonicMs and timestamp. */
static uint32_t stamp_bytes(const struct queue_event *event)
{
	return (uint32_t)LEN("{\"seq\":,\"monotonicMs\":,\"timestamp\":\"\"") +
	       digits(event->seq) + digits((uint64_t)event->monotonic_ms) +
	       CLOCK_RFC3339_LEN;
}

static uint32_t mark_bytes(uint64_t sources)
{
	return sources > 1 ? (uint32_t)LEN(MARK) + digits(sources) : 0;
}

static char *put(char *at, struct slice bytes)
{
	if (bytes.len)
		memcpy(at, bytes.ptr, bytes.len);
	return at + bytes.len;
}

/* Writes the mark of @sources, of mark_bytes(@sources). */
static void write_mark(char *at, uint64_t sources)
{
	char *end = at + mark_bytes(sources);

	memcpy(at, MARK, LEN(MARK));
	for (; sources; sources /= 10)
		*--end = (char)('0' + sources % 10);
}

static void set_stamp(struct record *record, const struct queue_event *event,
		      uint32_t stamp)
{
	record->newer = (uint32_t)(event->seq - record->arrival);
	record->unix_ms = event->unix_ms;
	record->monotonic_ms = event->monotonic_ms;
	record->stamp_len = (uint16_t)stamp;
}

struct record *merge_push(struct fifo *fifo, const struct queue_event *event,
			  struct open_event *open)
{
	const size_t payload_at = event->header.len + event->extra.len + LEN(PAYLOAD);
	struct record *record =
		fifo_push(fifo, payload_at + event->payload.len + 1, event->urgency);
	char *at = record->text;

	assert(event->header.len <= UINT16_MAX);
	at = put(at, event->header);
	at = put(at, event->extra);
	at = put(at, SLICE(PAYLOAD));
	at = put(at, event->payload);
	*at = '}';
	record->arrival = event->seq;
	set_stamp(record, event, stamp_bytes(event));
	record->sources = 1;
	record->header_len = (uint16_t)event->header.len;
	record->kind_len = (uint16_t)(event->kind.len + 2);
	record->slot = (int16_t)event->slot;
	*open = (struct open_event){0};
	if (event->chunk.ptr) {
		open->record = record;
		open->payload_at = (uint32_t)payload_at;
		open->text_at = (uint32_t)(payload_at + (size_t)(event->chunk.ptr -
								 event->payload.ptr));
		open->text_end = open->text_at + (uint32_t)event->chunk.len;
	}
	return record;
}

/* Is the event's text from @from to @to the same as @bytes? */
static bool same(const struct record *record, uint32_t from, uint32_t to,
		 struct slice bytes)
{
	return slice_eq((struct slice){record->text + from, to - from}, bytes);
}

/* Slot, session and turn, kind and marks, and every byte of the payload outside the text.
 */
static bool belongs(const struct open_event *open, const struct queue_event *event,
		    uint32_t stamp)
{
	const struct record *record = open->record;
	const struct slice payload = event->payload;
	const size_t before = (size_t)(event->chunk.ptr - payload.ptr);

	return same(record, record->stamp_len, record->header_len,
		    slice_sub(event->header, stamp, event->header.len)) &&
	       same(record, record->header_len + mark_bytes(record->sources),
		    open->payload_at - (uint32_t)LEN(PAYLOAD), event->extra) &&
	       same(record, open->payload_at, open->text_at,
		    slice_sub(payload, 0, before)) &&
	       same(record, open->text_end, record->len - 1,
		    slice_sub(payload, before + event->chunk.len, payload.len));
}

/* Replaces @old bytes at @at by @new ones, of which the caller writes the content. */
static void resize(struct record *record, uint32_t at, uint32_t old, uint32_t new)
{
	if (old != new)
		memmove(record->text + at + new, record->text + at + old,
			record->len - at - old);
	record->len += new - old;
}

static void shift(struct open_event *open, uint32_t by)
{
	open->payload_at += by;
	open->text_at += by;
	open->text_end += by;
}

bool merge_join(struct fifo *fifo, struct open_event *open,
		const struct queue_event *event, size_t max)
{
	struct record *record = open->record;
	const uint32_t chunk = (uint32_t)event->chunk.len, stamp = stamp_bytes(event);
	uint32_t old_stamp, old_mark, mark;
	size_t len;

	if (!record || !event->chunk.ptr || event->chunk.len > max ||
	    event->seq - record->arrival >= UINT32_MAX || !belongs(open, event, stamp))
		return false;
	old_stamp = record->stamp_len;
	old_mark = mark_bytes(record->sources);
	mark = mark_bytes(record->sources + 1);
	len = (size_t)record->len + chunk + stamp - old_stamp + mark - old_mark;
	if (len > max)
		return false;
	record = open->record = fifo_grow_last(fifo, record, len);

	/* From back to front, so that every offset is still the old one. */
	resize(record, open->text_end, 0, chunk);
	(void)put(record->text + open->text_end, event->chunk);
	open->text_end += chunk;
	resize(record, record->header_len, old_mark, mark);
	write_mark(record->text + record->header_len, record->sources + 1);
	shift(open, mark - old_mark);
	resize(record, 0, old_stamp, stamp);
	(void)put(record->text, slice_sub(event->header, 0, stamp));
	shift(open, stamp - old_stamp);
	record->header_len = (uint16_t)(record->header_len + stamp - old_stamp);

	set_stamp(record, event, stamp);
	record->sources++;
	assert(record->len == len);
	return true;
}
