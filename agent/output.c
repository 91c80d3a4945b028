#include "agent/output.h"

#include <string.h>

#include "agent/lookup.h"
#include "wire/nostr/json.h"

void output_init_stream(struct output *output, const char *stream, int64_t per_s,
			int64_t burst)
{
	*output = (struct output){
		.stream = stream, .per_s = per_s, .burst = burst, .tokens = burst};
	buf_init(&output->line, OUTPUT_LINE_BYTES);
	buf_init(&output->text, OUTPUT_EVENT_BYTES + OUTPUT_LINE_BYTES + 1);
}

void output_init(struct output *output)
{
	output_init_stream(output, "stderr", OUTPUT_PER_S, OUTPUT_BURST);
}

void output_finish(struct output *output)
{
	buf_finish(&output->line);
	buf_finish(&output->text);
}

static void keep_tail(struct output *output, struct slice bytes)
{
	size_t old;

	if (bytes.len > OUTPUT_TAIL_BYTES)
		bytes = slice_sub(bytes, bytes.len - OUTPUT_TAIL_BYTES, bytes.len);
	old = OUTPUT_TAIL_BYTES - bytes.len;
	if (old < output->tail_len) {
		memmove(output->tail, output->tail + output->tail_len - old, old);
		output->tail_len = old;
	}
	if (bytes.len)
		memcpy(output->tail + output->tail_len, bytes.ptr, bytes.len);
	output->tail_len += bytes.len;
}

static void say(struct output *output, bool partial, output_emit *emit, void *ctx)
{
	struct buf payload, clean;
	bool binary;

	if (output->text.len == 0 && output->suppressed == 0)
		return;
	buf_init(&clean, 3 * output->text.max);
	buf_init(&payload, 6 * clean.max + 128);
	binary = text_clean(buf_slice(&output->text), &clean);
	(void)buf_lit(&payload, "{");
	(void)json_write_member_string(&payload, SLICE("stream"),
				       slice_of(output->stream));
	(void)json_write_key(&payload, SLICE("text"));
	(void)json_write_string(&payload, buf_slice(&clean));
	if (partial)
		(void)json_write_member_bool(&payload, SLICE("partial"), true);
	if (binary)
		(void)json_write_member_bool(&payload, SLICE("binary"), true);
	if (output->suppressed > 0)
		(void)json_write_member_int(&payload, SLICE("suppressed"),
					    (int64_t)output->suppressed);
	(void)buf_lit(&payload, "}");
	output->suppressed = 0;
	buf_clear(&output->text);
	emit(ctx, buf_slice(&payload));
	buf_finish(&payload);
	buf_finish(&clean);
}

static void refill(struct output *output, int64_t now_ms)
{
	int64_t passed_ms = now_ms - output->filled_ms;

	if (passed_ms <= 0)
		return;
	output->filled_ms = now_ms;
	if (passed_ms > output->burst * 1000 / output->per_s)
		output->tokens = output->burst;
	else
		output->tokens += passed_ms * output->per_s / 1000;
	if (output->tokens > output->burst)
		output->tokens = output->burst;
}

/* How many bytes at its end begin a character and do not end it. */
static size_t begun(struct slice text)
{
	for (size_t n = 1; n <= 3 && n <= text.len; n++) {
		const uint8_t byte = (uint8_t)text.ptr[text.len - n];
		const size_t whole = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;

		if ((byte & 0xc0) != 0x80)
			return byte >= 0xc0 && whole > n ? n : 0;
	}
	return 0;
}

static void take_line(struct output *output, bool partial, output_emit *emit, void *ctx);

/* The line so far, without the character that has only begun at its end: its rest comes
 * with the next bytes. */
static void take_part(struct output *output, output_emit *emit, void *ctx)
{
	const size_t rest = begun(buf_slice(&output->line));
	char kept[3];

	if (rest == output->line.len)
		return;
	memcpy(kept, output->line.ptr + output->line.len - rest, rest);
	buf_truncate(&output->line, output->line.len - rest);
	take_line(output, true, emit, ctx);
	(void)buf_append(&output->line, (struct slice){kept, rest});
}

/* output->line is done, or a part of it (@partial). */
static void take_line(struct output *output, bool partial, output_emit *emit, void *ctx)
{
	int64_t cost = (int64_t)output->line.len + 1;

	if (cost > output->tokens) {
		/* What was let through before goes out first: `suppressed` is said by the
		 * event that follows the dropped lines. */
		if (output->suppressed == 0)
			say(output, false, emit, ctx);
		output->suppressed++;
	} else {
		output->tokens -= cost;
		(void)buf_append(&output->text, buf_slice(&output->line));
		if (!partial)
			(void)buf_append_byte(&output->text, '\n');
		if (partial || output->text.len >= OUTPUT_EVENT_BYTES)
			say(output, partial, emit, ctx);
	}
	buf_clear(&output->line);
}

void output_feed(struct output *output, struct slice bytes, int64_t now_ms,
		 output_emit *emit, void *ctx)
{
	struct slice part;
	size_t room, end;

	keep_tail(output, bytes);
	refill(output, now_ms);
	while (bytes.len > 0) {
		room = OUTPUT_LINE_BYTES - output->line.len;
		end = slice_find(bytes, '\n');
		part = slice_sub(bytes, 0, end < room ? end : room);
		(void)buf_append(&output->line, part);
		bytes = slice_sub(bytes, part.len, bytes.len);
		if (bytes.len > 0 && bytes.ptr[0] == '\n') {
			bytes = slice_sub(bytes, 1, bytes.len);
			take_line(output, false, emit, ctx);
		} else if (output->line.len == OUTPUT_LINE_BYTES) {
			take_part(output, emit, ctx);
		}
	}
	/* Lines wait for nobody; a count of dropped ones alone waits for output_flush().
	 */
	if (output->text.len > 0)
		say(output, false, emit, ctx);
}

bool output_is_waiting(const struct output *output)
{
	return output->line.len > 0 || output->suppressed > 0;
}

bool output_spend(struct output *output, size_t bytes, int64_t now_ms)
{
	refill(output, now_ms);
	if ((int64_t)bytes > output->tokens) {
		output->suppressed++;
		return false;
	}
	output->tokens -= (int64_t)bytes;
	return true;
}

void output_pause(struct output *output, int64_t now_ms, output_emit *emit, void *ctx)
{
	refill(output, now_ms);
	if (output->line.len > 0)
		take_part(output, emit, ctx);
	say(output, false, emit, ctx);
}

void output_flush(struct output *output, int64_t now_ms, output_emit *emit, void *ctx)
{
	refill(output, now_ms);
	if (output->line.len > 0)
		take_line(output, true, emit, ctx);
	say(output, false, emit, ctx);
}

void output_tail(const struct output *output, struct buf *out)
{
	(void)text_clean((struct slice){output->tail, output->tail_len}, out);
}
