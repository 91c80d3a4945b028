/* Keys on this machine: one private file each, plain or sealed under a passphrase. */
#include "tests/unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/host/keyfile.h"
#include "wire/host/paths.h"

static char folder[64];
static char path[256];
static struct crypto *crypto;
static struct keypair *keypair;
static struct keypair *loaded;
static struct err err;

static void setup(void)
{
	const uint8_t seed[32] = {1};
	uint8_t secret[KEY_BYTES] = {7};

	(void)snprintf(folder, sizeof(folder), "/tmp/perch-keyfile-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)setenv("PERCH_HOME", folder, 1);
	(void)unsetenv("PERCH_PASSPHRASE_FILE");
	crypto = crypto_create(seed, &err);
	ck_assert_msg(crypto != NULL, "%s", err.text);
	ck_assert(keypair_create(crypto, secret, &keypair, &err));
	loaded = NULL;
}

static void teardown(void)
{
	keypair_destroy(loaded);
	keypair_destroy(keypair);
	crypto_destroy(crypto);
	test_remove_folder(folder);
}

/* folder/@name */
static const char *in_folder(const char *name)
{
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_key_file(const char *text)
{
	ck_assert(paths_make(in_folder("keys"), &err));
	ck_assert(paths_write(in_folder("keys/owner"), slice_of(text), &err));
}

/* What data/keys/owner holds. */
static void read_key_file(struct buf *out)
{
	buf_init(out, 1024);
	ck_assert_msg(paths_read(in_folder("keys/owner"), out, &err), "%s", err.text);
}

static void use_passphrase(const char *passphrase)
{
	ck_assert(paths_write(in_folder("passphrase"), slice_of(passphrase), &err));
	(void)setenv("PERCH_PASSPHRASE_FILE", path, 1);
}

#define HEX64 "0700000000000000000000000000000000000000000000000000000000000000"

/* ---- Names ---- */

START_TEST(a_key_name_is_a_plain_file_name)
{
	static const struct slice good[] = {
		SLICE_INIT("owner"),
		SLICE_INIT("claude-acp.perch_2"),
		SLICE_INIT("A"),
		SLICE_INIT("0123456789012345678901234567890123456789012345678901234567890"
			   "123"),
	};
	static const struct slice bad[] = {
		SLICE_INIT(""),
		SLICE_INIT(".hidden"),
		SLICE_INIT("a/b"),
		SLICE_INIT(".."),
		SLICE_INIT("x.auth"),
		SLICE_INIT("a b"),
		SLICE_INIT("\xc3\xa4"),
		SLICE_INIT("a\0b"),
		SLICE_INIT("0123456789012345678901234567890123456789012345678901234567890"
			   "1234"),
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ck_assert_msg(keyfile_name_valid(good[i]), "%.*s", SLICE_ARG(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!keyfile_name_valid(bad[i]), "%.*s", SLICE_ARG(bad[i]));
	ck_assert(!keyfile_load(crypto, SLICE("../owner"), &loaded, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

/* ---- Plain files ---- */

START_TEST(a_saved_key_is_private_hex_and_loads_again)
{
	struct stat info;
	struct buf text;

	ck_assert_msg(keyfile_save(SLICE("owner"), keypair, &err), "%s", err.text);
	read_key_file(&text);
	assert_slice_eq(buf_slice(&text), HEX64 "\n");
	buf_finish(&text);
	ck_assert_int_eq(stat(path, &info), 0);
	ck_assert_uint_eq(info.st_mode & 07777, 0600);
	ck_assert_msg(keyfile_load(crypto, SLICE("owner"), &loaded, &err), "%s",
		      err.text);
	ck_assert_mem_eq(keypair_public(loaded), keypair_public(keypair), KEY_BYTES);
}
END_TEST

START_TEST(a_missing_key_is_not_found)
{
	ck_assert(!keyfile_load(crypto, SLICE("owner"), &loaded, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
	ck_assert(!keyfile_remove(SLICE("owner"), &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
}
END_TEST

START_TEST(a_key_that_others_can_read_is_refused_with_what_to_do)
{
	write_key_file(HEX64 "\n");
	ck_assert_int_eq(chmod(path, 0640), 0);
	ck_assert(!keyfile_load(crypto, SLICE("owner"), &loaded, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(err.text, "chmod 600"));
}
END_TEST

static const char *const broken_files[] = {
	"",
	"\n",
	"07",
	"nsec1qqqq",
	"0700000000000000000000000000000000000000000000000000000000000000ff",
	"0000000000000000000000000000000000000000000000000000000000000000",
	"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
};

START_TEST(a_file_that_holds_no_key_is_malformed_and_not_quoted)
{
	write_key_file(broken_files[_i]);
	ck_assert(!keyfile_load(crypto, SLICE("owner"), &loaded, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_ptr_null(strstr(err.text, "0700"));
}
END_TEST

START_TEST(saving_another_key_over_one_is_refused)
{
	const uint8_t secret[KEY_BYTES] = {8};
	struct keypair *other;
	struct buf text;

	ck_assert(keypair_create(crypto, secret, &other, &err));
	ck_assert(keyfile_save(SLICE("owner"), keypair, &err));
	ck_assert_msg(keyfile_save(SLICE("owner"), keypair, &err), "%s", err.text);
	ck_assert(!keyfile_save(SLICE("owner"), other, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_str_eq(err.text, "there is another key named owner: remove it first");
	read_key_file(&text);
	assert_slice_eq(buf_slice(&text), HEX64 "\n");
	buf_finish(&text);
	keypair_destroy(other);
}
END_TEST

START_TEST(a_key_is_made_once)
{
	struct keypair *first = NULL;
	bool made = false;

	ck_assert_msg(keyfile_ensure(crypto, SLICE("a"), &first, &made, &err), "%s",
		      err.text);
	ck_assert(made);
	ck_assert(keyfile_ensure(crypto, SLICE("a"), &loaded, &made, &err));
	ck_assert(!made);
	ck_assert_mem_eq(keypair_public(loaded), keypair_public(first), KEY_BYTES);
	keypair_destroy(first);
}
END_TEST

START_TEST(a_broken_key_is_not_replaced)
{
	struct buf text;

	write_key_file("broken");
	ck_assert(!keyfile_ensure(crypto, SLICE("owner"), &loaded, NULL, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	read_key_file(&text);
	assert_slice_eq(buf_slice(&text), "broken");
	buf_finish(&text);
}
END_TEST

START_TEST(processes_that_make_a_key_at_once_get_the_same)
{
	int ends[2];
	uint8_t keys[4][KEY_BYTES];

	ck_assert_int_eq(pipe(ends), 0);
	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			ssize_t put = -1;

			if (keyfile_ensure(crypto, SLICE("a"), &loaded, NULL, &err))
				put = write(ends[1], keypair_public(loaded), KEY_BYTES);
			_exit(put == KEY_BYTES ? 0 : 1);
		}
	}
	for (int i = 0; i < 4; i++) {
		int status;

		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(status, 0);
		ck_assert_int_eq(read(ends[0], keys[i], KEY_BYTES), KEY_BYTES);
		ck_assert_mem_eq(keys[i], keys[0], KEY_BYTES);
	}
	(void)close(ends[0]);
	(void)close(ends[1]);
}
END_TEST

START_TEST(a_removed_key_takes_its_attestation_along)
{
	struct buf tag;

	buf_init(&tag, 1024);
	ck_assert(keyfile_save(SLICE("a"), keypair, &err));
	ck_assert(keyfile_save_auth(SLICE("a"), SLICE("[\"auth\"]"), &err));
	ck_assert_msg(keyfile_remove(SLICE("a"), &err), "%s", err.text);
	ck_assert(!keyfile_load(crypto, SLICE("a"), &loaded, &err));
	ck_assert(!keyfile_load_auth(SLICE("a"), &tag, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
	buf_finish(&tag);
}
END_TEST

START_TEST(an_attestation_is_kept_beside_the_key)
{
	struct buf tag;

	buf_init(&tag, 1024);
	ck_assert(keyfile_save_auth(SLICE("a"), SLICE("[\"auth\",\"x\",\"\",\"y\"]"),
				    &err));
	ck_assert(keyfile_save_auth(SLICE("a"), SLICE("[\"auth\",\"z\",\"\",\"y\"]"),
				    &err));
	ck_assert(keyfile_load_auth(SLICE("a"), &tag, &err));
	assert_slice_eq(buf_slice(&tag), "[\"auth\",\"z\",\"\",\"y\"]");
	buf_finish(&tag);
}
END_TEST

/* ---- Sealed files ---- */

START_TEST(with_a_passphrase_the_file_is_sealed_and_opens_again)
{
	struct buf text;

	use_passphrase("correct horse\n");
	ck_assert_msg(keyfile_save(SLICE("owner"), keypair, &err), "%s", err.text);
	read_key_file(&text);
	ck_assert(slice_starts(buf_slice(&text), SLICE("perch-key-1 ")));
	ck_assert_uint_eq(text.len,
			  strlen("perch-key-1 ") + base64_len(32 + 24 + 48) + 1);
	ck_assert_msg(keyfile_load(crypto, SLICE("owner"), &loaded, &err), "%s",
		      err.text);
	ck_assert_mem_eq(keypair_public(loaded), keypair_public(keypair), KEY_BYTES);
	buf_finish(&text);
}
END_TEST

START_TEST(another_passphrase_does_not_open_a_sealed_key)
{
	use_passphrase("one");
	ck_assert(keyfile_save(SLICE("owner"), keypair, &err));
	use_passphrase("two");
	ck_assert(!keyfile_load(crypto, SLICE("owner"), &loaded, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	(void)unsetenv("PERCH_PASSPHRASE_FILE");
	ck_assert(!keyfile_load(crypto, SLICE("owner"), &loaded, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(err.text, "PERCH_PASSPHRASE_FILE"));
}
END_TEST

START_TEST(a_sealed_key_that_was_altered_does_not_open)
{
	struct buf text;

	use_passphrase("one");
	ck_assert(keyfile_save(SLICE("owner"), keypair, &err));
	read_key_file(&text);
	text.ptr[text.len - 10] = text.ptr[text.len - 10] == 'A' ? 'B' : 'A';
	ck_assert(paths_write(in_folder("keys/owner"), buf_slice(&text), &err));
	ck_assert(!keyfile_load(crypto, SLICE("owner"), &loaded, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	buf_finish(&text);
	write_key_file("perch-key-1 AAAA");
	ck_assert(!keyfile_load(crypto, SLICE("owner"), &loaded, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(an_empty_passphrase_or_none_to_read_is_refused)
{
	use_passphrase("\n");
	ck_assert(!keyfile_save(SLICE("owner"), keypair, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	(void)setenv("PERCH_PASSPHRASE_FILE", "/nonexistent/passphrase", 1);
	ck_assert(!keyfile_save(SLICE("owner"), keypair, &err));
	/* Not ERR_NOT_FOUND, which means that there is no key. */
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(err.text, "PERCH_PASSPHRASE_FILE"));
}
END_TEST

/* ---- Lists ---- */

static char listed[256];
static int list_limit;

static bool on_name(void *ctx, struct slice name)
{
	size_t used = strlen(listed);

	(void)ctx;
	(void)snprintf(listed + used, sizeof(listed) - used, "%.*s ", SLICE_ARG(name));
	return --list_limit > 0;
}

START_TEST(keys_are_listed_sorted_without_what_lies_beside)
{
	listed[0] = '\0';
	list_limit = 100;
	ck_assert(keyfile_list(on_name, NULL, &err));
	ck_assert_str_eq(listed, "");
	ck_assert(keyfile_save(SLICE("owner"), keypair, &err));
	ck_assert(keyfile_save(SLICE("b"), keypair, &err));
	ck_assert(keyfile_save(SLICE("a"), keypair, &err));
	ck_assert(keyfile_save_auth(SLICE("a"), SLICE("[]"), &err));
	ck_assert(keyfile_list(on_name, NULL, &err));
	ck_assert_str_eq(listed, "a b owner ");
	listed[0] = '\0';
	list_limit = 2;
	ck_assert(keyfile_list(on_name, NULL, &err));
	ck_assert_str_eq(listed, "a b ");
}
END_TEST

START_TEST(a_guarded_process_leaves_no_core_and_cannot_be_traced)
{
	struct rlimit limit;
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		keyfile_guard_process();
		_exit(prctl(PR_GET_DUMPABLE) == 0 &&
				      getrlimit(RLIMIT_CORE, &limit) == 0 &&
				      limit.rlim_cur == 0
			      ? 0
			      : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("keyfile");
	TCase *tcase = tcase_create("keyfile");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_key_name_is_a_plain_file_name);
	tcase_add_test(tcase, a_saved_key_is_private_hex_and_loads_again);
	tcase_add_test(tcase, a_missing_key_is_not_found);
	tcase_add_test(tcase, a_key_that_others_can_read_is_refused_with_what_to_do);
	tcase_add_loop_test(tcase, a_file_that_holds_no_key_is_malformed_and_not_quoted,
			    0, sizeof(broken_files) / sizeof(broken_files[0]));
	tcase_add_test(tcase, saving_another_key_over_one_is_refused);
	tcase_add_test(tcase, a_key_is_made_once);
	tcase_add_test(tcase, a_broken_key_is_not_replaced);
	tcase_add_test(tcase, processes_that_make_a_key_at_once_get_the_same);
	tcase_add_test(tcase, a_removed_key_takes_its_attestation_along);
	tcase_add_test(tcase, an_attestation_is_kept_beside_the_key);
	tcase_add_test(tcase, with_a_passphrase_the_file_is_sealed_and_opens_again);
	tcase_add_test(tcase, another_passphrase_does_not_open_a_sealed_key);
	tcase_add_test(tcase, a_sealed_key_that_was_altered_does_not_open);
	tcase_add_test(tcase, an_empty_passphrase_or_none_to_read_is_refused);
	tcase_add_test(tcase, keys_are_listed_sorted_without_what_lies_beside);
	tcase_add_test(tcase, a_guarded_process_leaves_no_core_and_cannot_be_traced);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
