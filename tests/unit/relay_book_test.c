/* Owners, bindings and revocations on disk. */
#include "relay/book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "relay/histogram.h"
#include "relay/store_schema.h"
#include "tests/unit/support/support.h"
#include "wire/host/db.h"

#define NOW INT64_C(1796000000)

static char folder[32];
static char path[64];
static struct sqlite3 *db;
static struct owners owners;
static const uint8_t agent[KEY_BYTES] = {1}, owner[KEY_BYTES] = {2},
		     other[KEY_BYTES] = {3};

static void open_db(void)
{
	struct err err;

	ck_assert_msg(db_open(path, store_migrations, &db, &err), "%s", err.text);
}

static void setup(void)
{
	(void)snprintf(folder, sizeof(folder), "/tmp/perch-book-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/relay.db", folder);
	owners_init(&owners);
	open_db();
}

static void teardown(void)
{
	static const char *const ends[] = {"", "-wal", "-shm", ".lock"};
	char name[80];
	size_t i;

	owners_finish(&owners);
	db_close(db);
	for (i = 0; i < 4; i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, ends[i]);
		(void)unlink(name);
	}
	(void)rmdir(folder);
}

static void load(int64_t now)
{
	struct err err;

	owners_finish(&owners);
	owners_init(&owners);
	ck_assert_msg(book_load(db, &owners, now, &err), "%s", err.text);
}

/* A store that owners tell what they learn, until it is closed. */
static void learn(const uint8_t its_owner[KEY_BYTES], int64_t expires)
{
	struct store *store;
	struct err err;

	db_close(db);
	store = store_open(path, &err);
	ck_assert_msg(store != NULL, "%s", err.text);
	book_keep(store, &owners);
	ck_assert(owners_bind(&owners, agent, its_owner, expires, NOW));
	store_close(store);
	open_db();
}

START_TEST(what_owners_learn_is_there_after_a_restart_until_it_expires)
{
	learn(owner, NOW + 100);
	learn(other, INT64_MAX);
	load(NOW + 99);
	ck_assert(owners_hold(&owners, agent, owner, NOW + 99));
	ck_assert(owners_hold(&owners, agent, other, NOW + 99));
	load(NOW + 100);
	ck_assert_uint_eq(owners.count, 1);
	ck_assert(owners_hold(&owners, agent, other, NOW + 100));
	load(NOW); /* gone for good, whatever the clock says later */
	ck_assert_uint_eq(owners.count, 1);
}
END_TEST

START_TEST(the_later_bound_stays_on_disk)
{
	learn(owner, NOW + 100);
	owners_finish(&owners); /* as a relay that does not know of it */
	owners_init(&owners);
	learn(owner, NOW + 50);
	load(NOW);
	ck_assert(owners_hold(&owners, agent, owner, NOW + 99));
}
END_TEST

/* The relay has not heard of the revocation yet. */
START_TEST(what_is_attested_amid_a_revocation_does_not_come_back_when_allowed)
{
	struct err err;
	bool changed;

	ck_assert(book_revoke(db, agent, NOW, &changed, &err) && changed);
	learn(owner, INT64_MAX);
	ck_assert(book_allow(db, agent, &changed, &err) && changed);
	owners_finish(&owners); /* to be told again */
	owners_init(&owners);
	learn(owner, INT64_MAX);
	load(NOW);
	ck_assert_uint_eq(owners.count, 0);
	learn(owner, INT64_MAX);
	load(NOW);
	ck_assert(owners_hold(&owners, agent, owner, NOW));
}
END_TEST

START_TEST(a_revocation_forgets_bindings_and_says_whether_it_was_new)
{
	struct err err;
	bool changed;

	learn(owner, INT64_MAX);
	ck_assert(book_revoke(db, agent, NOW, &changed, &err) && changed);
	ck_assert(book_revoke(db, agent, NOW + 1, &changed, &err) && !changed);
	load(NOW);
	ck_assert(owners_revoked(&owners, agent));
	ck_assert_uint_eq(owners.count, 0);
	ck_assert(book_allow(db, agent, &changed, &err) && changed);
	ck_assert(book_allow(db, agent, &changed, &err) && !changed);
	load(NOW);
	ck_assert(!owners_revoked(&owners, agent));
}
END_TEST

START_TEST(the_list_of_owners_is_kept)
{
	struct err err;
	bool changed;

	ck_assert(book_add_owner(db, owner, &changed, &err) && changed);
	ck_assert(book_add_owner(db, owner, &changed, &err) && !changed);
	load(NOW);
	owners.by_list = true;
	ck_assert(owners_listed(&owners, owner) && !owners_listed(&owners, other));
	ck_assert(book_remove_owner(db, owner, &changed, &err) && changed);
	ck_assert(book_remove_owner(db, owner, &changed, &err) && !changed);
}
END_TEST

static void on_reloaded(void *ctx, const struct err *err)
{
	ck_assert_ptr_null(err);
	++*(int *)ctx;
}

START_TEST(a_reload_takes_lists_from_disk_and_keeps_bindings)
{
	struct store *store;
	struct err err;
	bool changed;
	int reloaded = 0;

	learn(owner, INT64_MAX);
	ck_assert(book_add_owner(db, owner, &changed, &err));
	ck_assert(book_revoke(db, other, NOW, &changed, &err));
	db_close(db);
	store = store_open(path, &err);
	ck_assert(book_reload(store, &owners, on_reloaded, &reloaded));
	store_close(store);
	open_db();
	ck_assert_int_eq(reloaded, 1);
	owners.by_list = true;
	ck_assert(owners_listed(&owners, owner) && owners_revoked(&owners, other));
	ck_assert(owners_hold(&owners, agent, owner, NOW));
}
END_TEST

/* What @agent was, as the relay's check of its sessions sees it. */
struct seen_reload {
	bool revoked;
	int count;
};

static void on_cut(void *ctx, const struct err *err)
{
	struct seen_reload *seen = ctx;

	ck_assert_ptr_null(err);
	seen->revoked = owners_revoked(&owners, agent);
	seen->count++;
}

static void reload(struct seen_reload *seen)
{
	struct store *store;
	struct err err;

	db_close(db);
	store = store_open(path, &err);
	ck_assert_msg(store != NULL, "%s", err.text);
	book_keep(store, &owners);
	ck_assert(book_reload(store, &owners, on_cut, seen));
	store_close(store);
	open_db();
}

/* Both came before the relay looked. */
START_TEST(a_revocation_counts_also_when_it_was_taken_back_at_once)
{
	struct seen_reload seen = {0};
	struct err err;
	bool changed;

	learn(owner, INT64_MAX);
	ck_assert(book_revoke(db, agent, NOW, &changed, &err) && changed);
	ck_assert(book_allow(db, agent, &changed, &err) && changed);
	ck_assert(owners_hold(&owners, agent, owner, NOW));
	reload(&seen);
	ck_assert(seen.revoked);
	ck_assert(!owners_revoked(&owners, agent));
	ck_assert(!owners_hold(&owners, agent, owner, NOW));
	ck_assert_uint_eq(owners.count, 0);
	/* Once: what is attested from now on stays. */
	learn(owner, INT64_MAX);
	reload(&seen);
	ck_assert_int_eq(seen.count, 2);
	ck_assert(!seen.revoked);
	ck_assert(owners_hold(&owners, agent, owner, NOW));
	load(NOW);
	ck_assert(owners_hold(&owners, agent, owner, NOW));
}
END_TEST

START_TEST(a_histogram_counts_each_time_once_and_adds_up)
{
	struct histogram histogram = {0};
	struct buf out;

	buf_init(&out, 65536);
	histogram_add(&histogram, 10000); /* a bound belongs to its bucket */
	histogram_add(&histogram, 10001);
	histogram_add(&histogram, INT64_C(2500000000));
	histogram_add(&histogram, -5); /* a clock that went back */
	histogram_write(&histogram, "x", &out);
	ck_assert_ptr_nonnull(
		strstr(buf_text(&out), "x_seconds_bucket{le=\"1e-05\"} 2\n"));
	ck_assert_ptr_nonnull(
		strstr(buf_text(&out), "x_seconds_bucket{le=\"2.5e-05\"} 3\n"));
	ck_assert_ptr_nonnull(strstr(buf_text(&out), "x_seconds_bucket{le=\"1\"} 3\n"));
	ck_assert_ptr_nonnull(
		strstr(buf_text(&out), "x_seconds_bucket{le=\"+Inf\"} 4\n"));
	ck_assert_ptr_nonnull(strstr(buf_text(&out), "x_seconds_sum 2.500020001\n"));
	ck_assert_ptr_nonnull(strstr(buf_text(&out), "x_seconds_count 4\n"));
	buf_finish(&out);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/book");
	TCase *tcase = tcase_create("book");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase,
		       what_owners_learn_is_there_after_a_restart_until_it_expires);
	tcase_add_test(tcase, the_later_bound_stays_on_disk);
	tcase_add_test(
		tcase,
		what_is_attested_amid_a_revocation_does_not_come_back_when_allowed);
	tcase_add_test(tcase, a_revocation_forgets_bindings_and_says_whether_it_was_new);
	tcase_add_test(tcase, the_list_of_owners_is_kept);
	tcase_add_test(tcase, a_reload_takes_lists_from_disk_and_keeps_bindings);
	tcase_add_test(tcase, a_revocation_counts_also_when_it_was_taken_back_at_once);
	tcase_add_test(tcase, a_histogram_counts_each_time_once_and_adds_up);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
