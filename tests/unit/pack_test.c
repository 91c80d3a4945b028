#include <string.h>

#include "agent/pack.h"
#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/frame/observer_event.h"

static struct buf out;

static void setup(void)
{
	buf_init(&out, FRAME_PACK_MAX);
}

static void teardown(void)
{
	buf_finish(&out);
}

#define HEADER(seq, kind, tail) \
	"{\"seq\":" seq ",\"monotonicMs\":5,\"timestamp\":\"2026-11-30T08:00:00.123Z\"," \
	"\"kind\":\"" kind \
	"\",\"agentIndex\":0,\"channelId\":\"c\",\"sessionId\":\"s\"," \
	"\"turnId\":null" tail

static struct pack_item item_of(const char *text, const char *kind, const char *header)
{
	const struct slice all = slice_of(text);

	return (struct pack_item){
		.text = all,
		.kind_at = (uint32_t)slice_find_slice(all, SLICE("\"kind\":")) + 7,
		.kind_len = (uint32_t)strlen(kind) + 2,
		.header_len = (uint32_t)strlen(header),
	};
}

#define FIRST HEADER("41", "acp_read", "") ",\"merged\":3,\"payload\":{\"a\":1}}"
#define SECOND \
	HEADER("42", "x", ",\"startedAt\":\"t\"") \
	",\"authorization\":{},\"payload\":{}" \
	"}"

static struct pack_item first_item(void)
{
	return item_of(FIRST, "acp_read", HEADER("41", "acp_read", ""));
}

static struct pack_item second_item(void)
{
	return item_of(SECOND, "x", HEADER("42", "x", ",\"startedAt\":\"t\""));
}

START_TEST(single_event_travels_unwrapped)
{
	const struct pack_item item = first_item();

	ck_assert(pack_write(&item, 1, &out));
	assert_slice_eq(buf_slice(&out), FIRST);
	ck_assert_uint_eq(pack_bytes(&item, 1, item.text.len), strlen(FIRST));
}
END_TEST

START_TEST(batch_has_the_header_of_its_last_event_without_authorization_and_marks)
{
	const struct pack_item items[] = {first_item(), second_item()};

	ck_assert(pack_write(items, 2, &out));
	assert_slice_eq(buf_slice(&out),
			HEADER("42", "batch",
			       ",\"startedAt\":\"t\"") ",\"payload\":{\"events\":[" FIRST
						       "," SECOND "]}}");
}
END_TEST

START_TEST(size_of_a_batch_is_arithmetic)
{
	const struct pack_item items[] = {first_item(), second_item(), first_item()};

	ck_assert(pack_write(items, 3, &out));
	ck_assert_uint_eq(pack_bytes(&items[2], 3, 2 * strlen(FIRST) + strlen(SECOND)),
			  out.len);
}
END_TEST

START_TEST(frame_reads_back_as_its_events)
{
	const struct pack_item items[] = {first_item(), second_item()};
	struct arena arena;
	struct frame frame;

	arena_init(&arena, 4096);
	ck_assert(pack_write(items, 2, &out));
	ck_assert(frame_write_suffix(&out, "0123456789abcdef", 9, false));
	ck_assert(frame_parse(buf_slice(&out), &arena, &frame, NULL));
	ck_assert(frame.batch);
	ck_assert_uint_eq(frame.number, 9);
	ck_assert_uint_eq(frame.event_count, 2);
	assert_slice_eq(frame.events[0].text, FIRST);
	assert_slice_eq(frame.events[1].text, SECOND);
	arena_finish(&arena);
}
END_TEST

START_TEST(frame_that_passes_the_room_is_not_written)
{
	const struct pack_item items[] = {first_item(), second_item()};
	struct buf small;

	buf_init(&small, pack_bytes(&items[1], 2, strlen(FIRST) + strlen(SECOND)) - 1);
	ck_assert(!pack_write(items, 2, &small));
	ck_assert_uint_eq(small.len, 0);
	buf_finish(&small);
}
END_TEST

static Suite *pack_suite(void)
{
	Suite *suite = suite_create("pack");
	TCase *tcase = tcase_create("pack");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, single_event_travels_unwrapped);
	tcase_add_test(
		tcase,
		batch_has_the_header_of_its_last_event_without_authorization_and_marks);
	tcase_add_test(tcase, size_of_a_batch_is_arithmetic);
	tcase_add_test(tcase, frame_reads_back_as_its_events);
	tcase_add_test(tcase, frame_that_passes_the_room_is_not_written);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(pack_suite());
}
