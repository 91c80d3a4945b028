#include "tests/unit/support/support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

void test_data(const char *name, struct buf *out)
{
	char path[512];
	char piece[4096];
	size_t got;
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", PERCH_TEST_DATA, name);
	file = fopen(path, "rbe");
	ck_assert_msg(file != NULL, "cannot open %s", path);
	buf_clear(out);
	while ((got = fread(piece, 1, sizeof(piece), file)) > 0)
		ck_assert(buf_append(out, (struct slice){piece, got}));
	(void)fclose(file);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
	(void)info;
	(void)type;
	(void)at;
	return remove(path);
}

void test_remove_folder(const char *folder)
{
	ck_assert_int_eq(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

int test_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
