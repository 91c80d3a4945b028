#include "observer/diff.h"

#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/nostr/json.h"

struct side {
	struct slice *lines;
	size_t count;
	bool cut; /* longer than DIFF_SIDE_MAX */
};

/* One line of the script, in order. */
struct edit {
	char sign;         /* ' ', '-', '+' */
	uint32_t old, new; /* index of the line in its side */
};

struct script {
	struct edit *edits;
	size_t count, room;
};

static void side_split(struct side *side, struct slice text)
{
	size_t room = 0;

	*side = (struct side){0};
	while (text.len) {
		if (side->count == DIFF_SIDE_MAX) {
			side->cut = true;
			return;
		}
		if (side->count == room) {
			room = room ? room * 2 : 64;
			side->lines = mem_grow(side->lines, room, sizeof(*side->lines));
		}
		(void)slice_take_until(&text, '\n', &side->lines[side->count++]);
	}
}

static void push(struct script *script, char sign, size_t old, size_t new)
{
	if (script->count == script->room) {
		script->room = script->room ? script->room * 2 : 256;
		script->edits =
			mem_grow(script->edits, script->room, sizeof(*script->edits));
	}
	script->edits[script->count++] =
		(struct edit){sign, (uint32_t)old, (uint32_t) new};
}

/* What is left between the common head and the common tail. */
struct window {
	const struct side *old, *new;
	size_t from;          /* lines of the common head */
	int old_len, new_len; /* lines of the middle, each at most DIFF_SIDE_MAX */
};

static bool same(const struct window *window, int x, int y)
{
	return slice_eq(window->old->lines[window->from + (size_t)x],
			window->new->lines[window->from + (size_t)y]);
}

/* Row d of the trace holds the furthest x of diagonals -d..d, at its place in a triangle.
 */
static size_t trace_row(int d)
{
	return (size_t)d * (size_t)d;
}

static int trace_at(const int *trace, int d, int k)
{
	return trace[trace_row(d) + (size_t)(k + d)];
}

/* Where the best path to diagonal @k with @d edits comes from: k + 1 (an insertion) or k
 * - 1. */
static int came_from(const int *trace, int d, int k)
{
	if (k == -d ||
	    (k != d && trace_at(trace, d - 1, k - 1) < trace_at(trace, d - 1, k + 1)))
		return k + 1;
	return k - 1;
}

/* Fills the trace; returns the number of edits, or -1 when the budget does not do.
 * Source: Myers, "An O(ND) difference algorithm and its variations", 1986. */
static int search(const struct window *window, int *trace)
{
	for (int d = 0; d <= DIFF_EDITS_MAX; d++) {
		for (int k = -d; k <= d; k += 2) {
			int x = 0, y;

			if (d) {
				const int from = came_from(trace, d, k);

				x = trace_at(trace, d - 1, from) + (from < k);
			}
			y = x - k;
			while (x < window->old_len && y >= 0 && y < window->new_len &&
			       same(window, x, y)) {
				x++;
				y++;
			}
			trace[trace_row(d) + (size_t)(k + d)] = x;
			if (x >= window->old_len && y >= window->new_len)
				return d;
		}
	}
	return -1;
}

/* Walks the trace back and pushes the edits of the middle in order. */
static void replay(const struct window *window, const int *trace, int d,
		   struct script *script)
{
	struct script back = {0};
	int x = window->old_len, y = window->new_len;

	while (d > 0) {
		const int k = x - y, from = came_from(trace, d, k);
		const int from_x = trace_at(trace, d - 1, from), from_y = from_x - from;
		const int at_x = from_x + (from < k);

		for (; x > at_x; x--, y--)
			push(&back, ' ', (size_t)(x - 1), (size_t)(y - 1));
		push(&back, from < k ? '-' : '+', (size_t)from_x, (size_t)from_y);
		x = from_x;
		y = from_y;
		d--;
	}
	for (; x > 0; x--, y--)
		push(&back, ' ', (size_t)(x - 1), (size_t)(y - 1));
	for (size_t i = back.count; i-- > 0;)
		push(script, back.edits[i].sign, window->from + back.edits[i].old,
		     window->from + back.edits[i].new);
	free(back.edits);
}

static void middle(const struct window *window, struct script *script)
{
	int *trace = mem_array(trace_row(DIFF_EDITS_MAX + 1), sizeof(*trace));
	const int edits = search(window, trace);

	if (edits >= 0) {
		replay(window, trace, edits, script);
	} else {
		for (int i = 0; i < window->old_len; i++)
			push(script, '-', window->from + (size_t)i, window->from);
		for (int i = 0; i < window->new_len; i++)
			push(script, '+', window->from + (size_t)window->old_len,
			     window->from + (size_t)i);
	}
	free(trace);
}

static void compare(const struct side *old, const struct side *new, struct script *script)
{
	const size_t least = old->count < new->count ? old->count : new->count;
	size_t head = 0, tail = 0;
	struct window window = {.old = old, .new = new};

	while (head < least && slice_eq(old->lines[head], new->lines[head]))
		head++;
	while (tail < least - head && slice_eq(old->lines[old->count - 1 - tail],
					       new->lines[new->count - 1 - tail]))
		tail++;
	for (size_t i = 0; i < head; i++)
		push(script, ' ', i, i);
	window.from = head;
	window.old_len = (int)(old->count - head - tail);
	window.new_len = (int)(new->count - head - tail);
	if (window.old_len || window.new_len)
		middle(&window, script);
	for (size_t i = tail; i > 0; i--)
		push(script, ' ', old->count - i, new->count - i);
}

static void write_line(const struct edit *edit, const struct side *old,
		       const struct side *new, struct buf *out)
{
	const struct slice line =
		edit->sign == '+' ? new->lines[edit->new] : old->lines[edit->old];

	if (out->ptr[out->len - 1] != '[')
		(void)buf_lit(out, ",");
	(void)buf_printf(out, "\"%c", edit->sign);
	(void)json_write_chars(out,
			       slice_sub(line, 0, utf8_floor(line, DIFF_LINE_BYTES)));
	(void)buf_lit(out, "\"");
}

/* Is there a change within DIFF_CONTEXT lines of edit @at? */
static bool near_change(const struct script *script, size_t at)
{
	const size_t from = at > DIFF_CONTEXT ? at - DIFF_CONTEXT : 0;

	for (size_t i = from; i < script->count && i <= at + DIFF_CONTEXT; i++)
		if (script->edits[i].sign != ' ')
			return true;
	return false;
}

/* Which of the lines that stand near a change are written. */
struct page {
	size_t from, limit, seen;
};

/* False when there are more behind the page. */
static bool write_hunks(const struct script *script, const struct side *old,
			const struct side *new, struct page *page, struct buf *out)
{
	size_t written = 0;
	bool open = false;

	for (size_t i = 0; i < script->count; i++) {
		const struct edit *edit = &script->edits[i];
		const bool near = near_change(script, i);

		page->seen += near;
		if (!near || page->seen <= page->from || written == page->limit) {
			if (open)
				(void)buf_lit(out, "]}");
			open = false;
			continue;
		}
		if (!open)
			(void)buf_printf(out, "%s{\"old\":%u,\"new\":%u,\"lines\":[",
					 written ? "," : "", edit->old + 1,
					 edit->new + 1);
		open = true;
		write_line(edit, old, new, out);
		written++;
	}
	if (open)
		(void)buf_lit(out, "]}");
	return page->seen <= page->from + written;
}

static void write_page(struct slice old_text, struct slice new_text, struct page *page,
		       struct buf *out, struct diff_size *size_out)
{
	struct side old, new;
	struct script script = {0};
	bool whole;

	*size_out = (struct diff_size){0, 0};
	side_split(&old, old_text);
	side_split(&new, new_text);
	compare(&old, &new, &script);
	for (size_t i = 0; i < script.count; i++) {
		size_out->added += script.edits[i].sign == '+';
		size_out->removed += script.edits[i].sign == '-';
	}
	(void)buf_printf(out, "\"added\":%u,\"removed\":%u,\"hunks\":[", size_out->added,
			 size_out->removed);
	whole = write_hunks(&script, &old, &new, page, out) && !old.cut && !new.cut;
	(void)buf_printf(out, "],\"more\":%s", whole ? "false" : "true");
	free(script.edits);
	free(old.lines);
	free(new.lines);
}

void diff_write(struct slice old_text, struct slice new_text, struct buf *out,
		struct diff_size *size_out)
{
	struct page page = {.limit = DIFF_LINES_MAX};

	write_page(old_text, new_text, &page, out, size_out);
}

void diff_write_lines(struct slice old_text, struct slice new_text, size_t from,
		      size_t limit, struct buf *out, struct diff_size *size_out)
{
	struct page page = {.from = from, .limit = limit};

	write_page(old_text, new_text, &page, out, size_out);
	(void)buf_printf(out, ",\"lines\":%zu", page.seen);
}
