#include "observer/part.h"

#include "observer/acp.h"
#include "observer/diff.h"
#include "observer/tool.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/json.h"

/* What is said of a call, or of the call that permission is asked for. */
static struct slice call_of(struct slice payload)
{
	const struct slice params = acp_get(payload, "params");
	const struct slice update = acp_get(params, "update");

	return update.ptr ? update : acp_get(params, "toolCall");
}

static struct slice item_at(struct slice content, size_t at)
{
	struct slice rest = content, item;

	while (acp_is_array(content) && acp_next(&rest, &item))
		if (at-- == 0)
			return item;
	return SLICE_EMPTY;
}

static bool is_diff(struct slice item)
{
	return json_is(acp_get_string(item, "type"), SLICE("diff"));
}

/* What the harness left out of the text, as it says in it (design §5, "Fit"); a whole
 * text may say the same of itself, and means nothing by it. */
static uint64_t elided_of(struct slice text)
{
	const struct slice before = SLICE("…[elided "), behind = SLICE(" bytes]…");
	uint64_t all = 0;

	for (size_t at = 0; at < text.len;) {
		struct slice rest = slice_sub(text, at, text.len);
		const size_t found = slice_find_slice(rest, before);
		uint64_t n = 0;
		size_t digit = found + before.len;

		if (found == rest.len)
			break;
		for (;
		     digit < rest.len && rest.ptr[digit] >= '0' && rest.ptr[digit] <= '9';
		     digit++)
			if (n <= UINT32_MAX)
				n = 10 * n + (uint64_t)(rest.ptr[digit] - '0');
		at += digit;
		rest = slice_sub(rest, digit, rest.len);
		if (rest.len >= behind.len &&
		    slice_eq(slice_sub(rest, 0, behind.len), behind))
			all += n;
	}
	return all;
}

static void write_text(const struct observer_event *event, const struct buf *text,
		       struct buf *out)
{
	const struct slice said = text->len ? buf_slice(text) : SLICE("");
	uint64_t elided = event->trimmed ? elided_of(said) : 0;

	/* The agent's own words may be like those. */
	elided = elided < event->trimmed ? elided : event->trimmed;
	(void)buf_lit(out, "{");
	json_write_member_string(out, SLICE("text"), said);
	if (elided)
		json_write_member_int(out, SLICE("elided"), (int64_t)elided);
	(void)buf_lit(out, "}");
}

static void write_side(const struct observer_event *event, struct slice raw,
		       struct buf *out)
{
	struct buf text = {0};

	acp_set_text(&text, raw, PART_TEXT_MAX);
	write_text(event, &text, out);
	buf_finish(&text);
}

/* What a call's row shows as output or answer: of its content, or else of rawOutput. */
static bool write_whole(const struct observer_event *event, struct slice call,
			size_t part, struct buf *out, struct err *err)
{
	const struct slice content = acp_get(call, "content");
	const struct slice item = item_at(content, part);
	const struct slice block = acp_get(item, "content");
	const struct slice raw =
		acp_is_array(content) || part > 0 ? SLICE_EMPTY : tool_output_text(call);
	struct buf text = {0};

	if (item.ptr && !is_diff(item))
		(void)acp_append_block(&text, block.ptr ? block : item, PART_TEXT_MAX);
	else if (raw.len)
		(void)acp_append_text(&text, raw, PART_TEXT_MAX);
	if (!text.len)
		return err_set(err, ERR_NOT_FOUND, "there is no text at this place");
	write_text(event, &text, out);
	buf_finish(&text);
	return true;
}

bool part_write(struct slice event_text, const struct part_query *query, struct buf *out,
		struct err *err)
{
	struct observer_event event;
	struct slice call, diff;
	struct buf old = {0}, new = {0};
	struct diff_size size;

	if (!observer_event_parse(event_text, &event, err))
		return false;
	call = call_of(event.payload);
	if (query->side == PART_TEXT)
		return write_whole(&event, call, query->part, out, err);
	diff = item_at(acp_get(call, "content"), query->part);
	if (!diff.ptr || !is_diff(diff))
		return err_set(err, ERR_NOT_FOUND, "there is no diff at this place");
	if (query->side != PART_DIFF) {
		write_side(&event,
			   acp_get_string(diff, query->side == PART_OLD ? "oldText"
									: "newText"),
			   out);
		return true;
	}
	(void)acp_append_text(&old, acp_get_string(diff, "oldText"), SIZE_MAX);
	(void)acp_append_text(&new, acp_get_string(diff, "newText"), SIZE_MAX);
	(void)buf_lit(out, "{");
	diff_write_lines(buf_slice(&old), buf_slice(&new), query->from, query->limit, out,
			 &size);
	(void)buf_lit(out, "}");
	buf_finish(&old);
	buf_finish(&new);
	return true;
}
