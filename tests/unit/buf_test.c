#include <errno.h>
#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/base/err.h"

START_TEST(pieces_are_appended_in_order)
{
	struct buf buf;

	buf_init(&buf, 4096);
	ck_assert(buf_lit(&buf, "a"));
	ck_assert(buf_append_byte(&buf, 'b'));
	ck_assert(buf_printf(&buf, "%d", 42));
	ck_assert(buf_append_hex(&buf, (const uint8_t *)"\x00\xff", 2));
	ck_assert(buf_append(&buf, SLICE_EMPTY));
	memcpy(buf_extend(&buf, 2), "yz", 2);
	assert_slice_eq(buf_slice(&buf), "ab4200ffyz");
	ck_assert_str_eq(buf_text(&buf), "ab4200ffyz");
	ck_assert_uint_eq(buf.len, 10);
	buf_finish(&buf);
}
END_TEST

START_TEST(an_append_past_the_cap_appends_nothing_and_stays_failed)
{
	struct buf buf;

	buf_init(&buf, 4);
	ck_assert(buf_lit(&buf, "abc"));
	ck_assert(!buf_lit(&buf, "de"));
	ck_assert(!buf_append_byte(&buf, 'd')); /* would fit, but comes after a failure */
	ck_assert_ptr_null(buf_extend(&buf, 1));
	ck_assert(!buf_printf(&buf, "x"));
	ck_assert(!buf_ok(&buf));
	assert_slice_eq(buf_slice(&buf), "abc");
	buf_clear(&buf);
	ck_assert(buf_ok(&buf));
	ck_assert(buf_lit(&buf, "defg"));
	ck_assert(!buf_reserve(&buf, 1));
	buf_finish(&buf);
}
END_TEST

START_TEST(a_full_buffer_still_gives_its_text)
{
	struct buf buf;

	buf_init(&buf, 300);
	ck_assert_str_eq(buf_text(&buf), "");
	while (buf_append_byte(&buf, 'x'))
		continue;
	ck_assert_uint_eq(buf.len, 300);
	ck_assert_uint_eq(strlen(buf_text(&buf)), 300);
	buf_finish(&buf);
}
END_TEST

START_TEST(a_zeroed_struct_with_a_cap_is_an_empty_buffer)
{
	struct buf buf = {.max = 8};

	ck_assert(buf_ok(&buf));
	ck_assert(buf_lit(&buf, "12345678"));
	ck_assert(!buf_lit(&buf, "9"));
	buf_finish(&buf);
}
END_TEST

START_TEST(clearing_keeps_the_memory_and_wiping_does_not)
{
	struct buf buf;
	const char *where;

	buf_init(&buf, 4096);
	(void)buf_lit(&buf, "secret");
	where = buf.ptr;
	buf_clear(&buf);
	(void)buf_lit(&buf, "again");
	ck_assert_ptr_eq(buf.ptr, where);
	buf_wipe(&buf);
	ck_assert_ptr_null(buf.ptr);
	ck_assert_uint_eq(buf.len, 0);
	ck_assert(buf_lit(&buf, "usable"));
	buf_finish(&buf);
}
END_TEST

START_TEST(bytes_leave_from_the_front_or_the_back)
{
	struct buf buf;

	buf_init(&buf, 4096);
	(void)buf_lit(&buf, "abcdef");
	buf_consume(&buf, 2);
	assert_slice_eq(buf_slice(&buf), "cdef");
	buf_truncate(&buf, 3);
	assert_slice_eq(buf_slice(&buf), "cde");
	buf_truncate(&buf, 99);
	assert_slice_eq(buf_slice(&buf), "cde");
	buf_consume(&buf, 99);
	assert_slice_eq(buf_slice(&buf), "");
	buf_finish(&buf);
}
END_TEST

START_TEST(long_formatted_text_is_not_cut)
{
	char word[1001];
	struct buf buf;

	memset(word, 'w', 1000);
	word[1000] = '\0';
	buf_init(&buf, 2000);
	ck_assert(buf_printf(&buf, "<%s>", word));
	ck_assert_uint_eq(buf.len, 1002);
	ck_assert_int_eq(buf.ptr[1001], '>');
	ck_assert(!buf_printf(&buf, "<%s>", word));
	ck_assert_uint_eq(buf.len, 1002);
	buf_finish(&buf);
}
END_TEST

START_TEST(an_arena_hands_out_zeroed_memory_until_its_reset)
{
	struct arena arena;
	char *first, *second;

	arena_init(&arena, 256);
	first = arena_alloc(&arena, 10);
	memset(first, 'x', 10);
	second = arena_alloc(&arena, 10);
	ck_assert_ptr_ne(first, second);
	ck_assert_uint_eq((uintptr_t)second % _Alignof(max_align_t), 0);
	assert_slice_eq(arena_dup(&arena, SLICE("copied")), "copied");
	memset(arena_array(&arena, 1000, 7), 'y', 7000); /* larger than a block */
	ck_assert_int_eq(first[9], 'x');
	arena_reset(&arena);
	second = arena_alloc(&arena, 10);
	ck_assert_ptr_eq(first, second); /* the first block was kept */
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(second[i], 0);
	ck_assert_ptr_nonnull(arena_alloc(&arena, 0));
	arena_finish(&arena);
}
END_TEST

START_TEST(an_error_names_its_code_and_words)
{
	struct err err;

	ck_assert(!err_set(&err, ERR_REFUSED, "%d of %s", 2, "x"));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_str_eq(err.text, "2 of x");
	errno = ENOENT;
	ck_assert(!err_errno(&err, "cannot open %s", "f"));
	ck_assert_int_eq(err.code, ERR_SYSTEM);
	ck_assert_str_eq(err.text, "cannot open f: No such file or directory");
	ck_assert(!err_set(NULL, ERR_REFUSED, "nobody listens"));
	errno = ENOSPC;
	ck_assert(!err_errno(&err, "cannot write %s", "f"));
	ck_assert_ptr_nonnull(strstr(err.text, "No space left on device: make room"));
	errno = EROFS;
	ck_assert(!err_errno(&err, "cannot write %s", "f"));
	ck_assert_ptr_nonnull(strstr(err.text, "set PERCH_HOME to a folder"));
	ck_assert(!err_errno(NULL, "nobody listens"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("buf");
	TCase *tcase = tcase_create("buf");

	tcase_add_test(tcase, pieces_are_appended_in_order);
	tcase_add_test(tcase, an_append_past_the_cap_appends_nothing_and_stays_failed);
	tcase_add_test(tcase, a_full_buffer_still_gives_its_text);
	tcase_add_test(tcase, a_zeroed_struct_with_a_cap_is_an_empty_buffer);
	tcase_add_test(tcase, clearing_keeps_the_memory_and_wiping_does_not);
	tcase_add_test(tcase, bytes_leave_from_the_front_or_the_back);
	tcase_add_test(tcase, long_formatted_text_is_not_cut);
	tcase_add_test(tcase, an_arena_hands_out_zeroed_memory_until_its_reset);
	tcase_add_test(tcase, an_error_names_its_code_and_words);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
