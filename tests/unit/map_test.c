#include <stdio.h>

#include "tests/unit/support/support.h"
#include "wire/base/map.h"

static int one = 1, two = 2;

START_TEST(what_was_put_is_found_replaced_and_taken)
{
	struct map map;

	map_init(&map);
	ck_assert_ptr_null(map_get(&map, SLICE("a")));
	ck_assert_ptr_null(map_take(&map, SLICE("a")));
	ck_assert_ptr_null(map_put(&map, SLICE("a"), &one));
	ck_assert_ptr_eq(map_get(&map, SLICE("a")), &one);
	ck_assert_ptr_eq(map_put(&map, SLICE("a"), &two), &one);
	ck_assert_uint_eq(map.count, 1);
	ck_assert_ptr_eq(map_take(&map, SLICE("a")), &two);
	ck_assert_ptr_null(map_get(&map, SLICE("a")));
	ck_assert_uint_eq(map.count, 0);
	map_finish(&map);
}
END_TEST

START_TEST(keys_are_bytes_and_are_copied)
{
	char key[] = "a\0b";
	struct map map;

	map_init(&map);
	(void)map_put(&map, (struct slice){key, 3}, &one);
	(void)map_put(&map, SLICE_EMPTY, &two);
	key[2] = 'c';
	ck_assert_ptr_eq(map_get(&map, SLICE("a\0b")), &one);
	ck_assert_ptr_null(map_get(&map, SLICE("a\0c")));
	ck_assert_ptr_eq(map_get(&map, SLICE_EMPTY), &two);
	map_finish(&map);
}
END_TEST

static struct slice key_of(int i, char text[16])
{
	(void)snprintf(text, 16, "key %d", i);
	return slice_of(text);
}

START_TEST(many_entries_are_kept_apart_while_it_grows)
{
	static int values[5000];
	char text[16];
	struct map map;

	map_init(&map);
	for (int i = 0; i < 5000; i++)
		ck_assert_ptr_null(map_put(&map, key_of(i, text), &values[i]));
	for (int i = 0; i < 5000; i += 2)
		ck_assert_ptr_eq(map_take(&map, key_of(i, text)), &values[i]);
	for (int i = 0; i < 5000; i++)
		ck_assert_ptr_eq(map_get(&map, key_of(i, text)),
				 i % 2 ? &values[i] : NULL);
	ck_assert_uint_eq(map.count, 2500);
	map_finish(&map);
}
END_TEST

START_TEST(a_walk_meets_every_entry_once)
{
	int seen[100] = {0};
	char text[16];
	struct map map;

	map_init(&map);
	ck_assert_ptr_null(map_next(&map, NULL));
	for (int i = 0; i < 100; i++)
		(void)map_put(&map, key_of(i, text), &seen[i]);
	for (struct map_entry *at = map_next(&map, NULL); at; at = map_next(&map, at))
		++*(int *)at->value;
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(seen[i], 1);
	map_finish(&map);
}
END_TEST

START_TEST(a_walk_may_take_out_the_entry_it_stands_on)
{
	int seen[100] = {0};
	char text[16];
	struct map map;

	map_init(&map);
	for (int i = 0; i < 100; i++)
		(void)map_put(&map, key_of(i, text), &seen[i]);
	for (struct map_entry *at = map_next(&map, NULL); at; at = map_next(&map, at)) {
		++*(int *)at->value;
		ck_assert_ptr_eq(map_take(&map, map_key(at)), at->value);
	}
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(seen[i], 1);
	ck_assert_uint_eq(map.count, 0);
	map_finish(&map);
}
END_TEST

START_TEST(a_map_can_be_used_after_finish)
{
	struct map map;

	map_init(&map);
	(void)map_put(&map, SLICE("a"), &one);
	map_finish(&map);
	ck_assert_ptr_null(map_get(&map, SLICE("a")));
	(void)map_put(&map, SLICE("b"), &two);
	ck_assert_ptr_eq(map_get(&map, SLICE("b")), &two);
	map_finish(&map);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map");
	TCase *tcase = tcase_create("map");

	tcase_add_test(tcase, what_was_put_is_found_replaced_and_taken);
	tcase_add_test(tcase, keys_are_bytes_and_are_copied);
	tcase_add_test(tcase, many_entries_are_kept_apart_while_it_grows);
	tcase_add_test(tcase, a_walk_meets_every_entry_once);
	tcase_add_test(tcase, a_walk_may_take_out_the_entry_it_stands_on);
	tcase_add_test(tcase, a_map_can_be_used_after_finish);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
