#include "observer/terminal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_has_colour(int fd)
{
	const char *no = getenv("NO_COLOR");

	return isatty(fd) && (!no || !*no);
}

size_t terminal_columns(int fd)
{
	struct winsize size;

	return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

struct range {
	uint32_t from, to;
};

static bool is_in(uint32_t code, const struct range *ranges, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (code >= ranges[i].from && code <= ranges[i].to)
			return true;
	return false;
}
#define IS_IN(code, ranges) is_in(code, ranges, sizeof(ranges) / sizeof(*(ranges)))

/* Wide in a terminal. Source: UAX #11, the W and F blocks, and emoji; coarse. */
static const struct range wide[] = {
	{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xa960, 0xa97c},
	{0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
	{0xffe0, 0xffe6},   {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff},
	{0x20000, 0x3fffd},
};
/* Drawn over what is before them. */
static const struct range combining[] = {
	{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
	{0x64b, 0x65f},   {0x93c, 0x93c},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
	{0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
};
/* Controls, zero width, bidi, tags: what would hide, or turn the text around it. */
static const struct range unseen[] = {
	{0x0, 0x1f},      {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
	{0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
	{0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}, {0xe0100, 0xe01ef},
};

static uint32_t decode(struct slice text, int len)
{
	const unsigned char *at = (const unsigned char *)text.ptr;

	if (len == 1)
		return at[0];
	if (len == 2)
		return (uint32_t)(at[0] & 0x1f) << 6 | (at[1] & 0x3f);
	if (len == 3)
		return (uint32_t)(at[0] & 0x0f) << 12 | (uint32_t)(at[1] & 0x3f) << 6 |
		       (at[2] & 0x3f);
	return (uint32_t)(at[0] & 0x07) << 18 | (uint32_t)(at[1] & 0x3f) << 12 |
	       (uint32_t)(at[2] & 0x3f) << 6 | (at[3] & 0x3f);
}

static size_t width_of(uint32_t code)
{
	if (IS_IN(code, combining))
		return 0;
	return IS_IN(code, wide) ? 2 : 1;
}

/* Takes one character off the front of @text as it is to be written; its columns. */
static size_t take(struct slice *text, char out[16], struct slice *written)
{
	const int len = utf8_front(*text);
	const size_t used = (size_t)(len < 0 ? -len : len);
	const uint32_t code = len < 0 ? 0xfffd : decode(*text, len);

	*written = len < 0 ? SLICE("\xef\xbf\xbd") : slice_sub(*text, 0, used);
	*text = slice_sub(*text, used, text->len);
	if (code == '\n' || code == '\t' || code == '\r') {
		*written = SLICE(" ");
	} else if (IS_IN(code, unseen)) {
		(void)snprintf(out, 16, "<U+%04X>", code);
		*written = slice_of(out);
		return written->len;
	}
	return width_of(code);
}

size_t terminal_width(struct slice text)
{
	struct slice written;
	size_t columns = 0;
	char room[16];

	while (text.len)
		columns += take(&text, room, &written);
	return columns;
}

void terminal_line(struct slice text, size_t columns, struct buf *out)
{
	const bool cuts = columns && terminal_width(text) > columns;
	const size_t most = cuts ? columns - 1 : SIZE_MAX;
	size_t used = 0;

	while (text.len) {
		struct slice written;
		char room[16];
		const size_t width = take(&text, room, &written);

		if (used + width > most)
			break;
		used += width;
		(void)buf_append(out, written);
	}
	if (cuts)
		(void)buf_lit(out, "\xe2\x80\xa6");
}
