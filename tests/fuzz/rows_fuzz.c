/* What an observer makes of events that say anything: rows, raw lines, parts and the
 * story told of them. Each line of the input is one event's JSON. Whatever comes, what is
 * written is JSON, a told line fits its terminal and moves no cursor, and the same events
 * in another order make the same rows. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/model.h"
#include "observer/part.h"
#include "observer/raw.h"
#include "observer/story.h"
#include "observer/terminal.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/json.h"

#define NOW 1796040000000
#define EVENTS_MAX 64
#define COLUMNS 40
#define ROOM (64u << 20)

static const uint8_t agent[KEY_BYTES] = {1};

/* Of two events with one number the first that comes is the one. */
static bool is_there(const struct observer_event *events, size_t count, uint64_t seq)
{
	for (size_t i = 0; i < count; i++)
		if (events[i].seq == seq)
			return true;
	return false;
}

static size_t read_events(struct slice input, struct observer_event events[EVENTS_MAX])
{
	struct slice line;
	size_t count = 0;

	while (count < EVENTS_MAX && slice_take_until(&input, '\n', &line))
		count += observer_event_parse(line, &events[count], NULL) &&
			 !is_there(events, count, events[count].seq);
	return count;
}

/* All rows of the channel of the first event. @step: 1 in order, -1 backwards. */
static void rows_of(struct observer_event *events, size_t count, int step,
		    struct buf *out)
{
	struct model *model = model_create();
	struct buf channel = {0};

	for (size_t i = 0; i < count; i++) {
		const struct model_event in = {
			.agent = agent,
			.epoch = "6a0000010000000a",
			.event = &events[step > 0 ? i : count - 1 - i],
			.received_ms = NOW,
			.live = true};

		(void)model_apply(model, &in);
	}
	model_settle(model, NOW);
	acp_set_text(&channel, events[0].channel_id, 512);
	out->max = ROOM;
	(void)buf_lit(out, "{");
	if (!model_write_rows(model, agent, buf_slice(&channel), NULL, 1000, out))
		(void)buf_lit(out, "\"rows\":[]");
	(void)buf_lit(out, "}");
	assert(buf_ok(out) && json_check(buf_slice(out), NULL, NULL));
	buf_finish(&channel);
	model_destroy(model);
}

static void tell(const struct story *story)
{
	struct buf sentence = {0}, line = {.max = 4096};

	story_say(story, &sentence);
	assert(buf_ok(&sentence));
	terminal_line(buf_slice(&sentence), COLUMNS, &line);
	assert(buf_ok(&line) && utf8_valid(buf_slice(&line)));
	assert(terminal_width(buf_slice(&line)) <= COLUMNS);
	for (size_t i = 0; i < line.len; i++)
		assert((unsigned char)line.ptr[i] >= ' ' && line.ptr[i] != 0x7f);
	buf_finish(&sentence);
	buf_finish(&line);
}

static void tell_all(struct slice json)
{
	struct slice rest = acp_get(json, "rows"), row;
	struct story story = {0};

	while (acp_next(&rest, &row)) {
		if (story_take(&story, row))
			continue;
		tell(&story);
		story_finish(&story);
		assert(story_take(&story, row));
	}
	if (story.rows)
		tell(&story);
	story_finish(&story);
}

static void look_into(const struct observer_event *event)
{
	const struct pos pos = {"6a0000010000000a", event->seq};
	struct buf out = {.max = ROOM};

	raw_write(event, &pos, NOW, 30, &out);
	assert(buf_ok(&out) && json_check(buf_slice(&out), NULL, NULL));
	for (unsigned side = PART_DIFF; side <= PART_TEXT; side++) {
		const struct part_query query = {
			.part = event->seq % 3, .side = side, .from = 1, .limit = 5};

		buf_clear(&out);
		if (part_write(event->text, &query, &out, NULL))
			assert(buf_ok(&out) && json_check(buf_slice(&out), NULL, NULL));
	}
	buf_finish(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct observer_event events[EVENTS_MAX];
	const size_t count = read_events((struct slice){(const char *)data, len}, events);
	struct buf forth = {0}, back = {0};

	if (!count)
		return 0;
	for (size_t i = 0; i < count; i++)
		look_into(&events[i]);
	rows_of(events, count, 1, &forth);
	rows_of(events, count, -1, &back);
	assert(slice_eq(buf_slice(&forth), buf_slice(&back)));
	tell_all(buf_slice(&forth));
	buf_finish(&forth);
	buf_finish(&back);
	return 0;
}
