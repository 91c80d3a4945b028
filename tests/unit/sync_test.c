/* The rules of feed_sync, feed_state and serving, by going through what can happen to
 * them: frames packed and lost on the way, records that reach the disk, later or never,
 * memory that is let go, records that are dropped, a harness that is killed and starts
 * anew, syncs and answers that are lost, two observers. Whatever happened: once it is
 * quiet each observer has every frame that is still somewhere, knows of the others that
 * they are gone, and asks for nothing any more. The real parts are serve, ranges and
 * journal_index (harness) and missing (observer). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/journal_index.h"
#include "agent/serve.h"
#include "observer/acp.h"
#include "observer/missing.h"
#include "tests/unit/support/support.h"

#define OBSERVERS 2
#define EPOCHS 8
#define FRAMES 16

enum action {
	PACK, /* + 6: who gets it (both, one, none) × on disk now or later */
	KILL = PACK + 6,
	FORGET, /* memory lets go of what it kept */
	FLUSH,  /* the disk has what waited */
	DROP,   /* the disk lets go of its oldest */
	REFUSE, /* the disk never gets what waits */
	SYNC_0, /* all goes well */
	SYNC_1,
	SYNC_0_UNANSWERED, /* the feed_state is lost, what is served arrives */
	SYNC_0_UNSERVED,   /* the feed_state arrives, what is served is lost */
	ACTIONS,
};

struct observer {
	char id[9];
	struct missing epochs[EPOCHS];
};

struct world {
	struct serve serve;
	struct journal_index disk;
	struct ranges memory, waiting;
	unsigned epoch;
	uint64_t last;
	struct observer observers[OBSERVERS];
	int64_t now_ms;
};

static const char *name_of(unsigned epoch)
{
	static char names[EPOCHS][17];

	(void)snprintf(names[epoch], sizeof(names[epoch]), "%08x00000000", epoch + 1);
	return names[epoch];
}

static void world_init(struct world *world)
{
	*world = (struct world){0};
	for (size_t i = 0; i < OBSERVERS; i++)
		(void)snprintf(world->observers[i].id, 9, "0000000%zu", i);
}

static void world_finish(struct world *world)
{
	journal_index_finish(&world->disk);
	ranges_finish(&world->memory);
	ranges_finish(&world->waiting);
	for (size_t i = 0; i < OBSERVERS; i++)
		for (size_t k = 0; k < EPOCHS; k++)
			missing_finish(&world->observers[i].epochs[k]);
}

/* ---- the harness ---- */

static bool next_here(void *ctx, const char *epoch, uint64_t from, uint64_t *number)
{
	const struct world *world = ctx;
	const struct journal_epoch *at = journal_index_find(&world->disk, epoch);
	uint64_t memory = UINT64_MAX, disk = UINT64_MAX;

	if (strcmp(epoch, name_of(world->epoch)) == 0)
		(void)ranges_next(&world->memory, from, &memory);
	if (at)
		(void)ranges_next(&at->frames, from, &disk);
	*number = memory < disk ? memory : disk;
	return *number != UINT64_MAX;
}

static void pack(struct world *world, unsigned how)
{
	const uint64_t number = ++world->last;
	const unsigned reach = how % 3; /* how many observers get it */

	ranges_add(&world->memory, number);
	if (how < 3)
		journal_index_add(&world->disk, name_of(world->epoch), number);
	else
		ranges_add(&world->waiting, number);
	for (unsigned i = 0; i < reach; i++)
		(void)missing_add(&world->observers[i].epochs[world->epoch], number);
}

static void let_go(struct ranges *ranges)
{
	ranges_finish(ranges);
}

static void flush(struct world *world)
{
	uint64_t number = 0;

	while (ranges_next(&world->waiting, number + 1, &number))
		journal_index_add(&world->disk, name_of(world->epoch), number);
	let_go(&world->waiting);
}

static void kill_harness(struct world *world)
{
	if (world->epoch + 1 == EPOCHS)
		return;
	let_go(&world->memory);
	let_go(&world->waiting);
	world->serve = (struct serve){0};
	world->epoch++;
	world->last = 0;
}

static void drop_oldest(struct world *world)
{
	char epoch[17];

	for (size_t i = 0; i < world->disk.count; i++) {
		const struct journal_epoch *at = &world->disk.epochs[i];

		if (!at->frames.count)
			continue;
		memcpy(epoch, at->name, sizeof(epoch));
		journal_index_remove(&world->disk, epoch, at->frames.items[0].first,
				     name_of(world->epoch));
		return;
	}
}

/* ---- the observer ---- */

static unsigned epoch_of(struct slice item)
{
	const struct slice name = acp_get_string(item, "epoch");
	unsigned epoch;

	ck_assert_uint_eq(name.len, 16);
	epoch = (unsigned)(strtoull(name.ptr, NULL, 16) >> 32) - 1;
	ck_assert_uint_lt(epoch, EPOCHS);
	return epoch;
}

static void give_up(struct missing *missing, struct slice range)
{
	struct slice first, last;
	struct frame_range gone;

	ck_assert(acp_next(&range, &first) && acp_next(&range, &last));
	ck_assert(slice_parse_u64(first, FRAME_NUMBER_MAX, &gone.first));
	ck_assert(slice_parse_u64(last, FRAME_NUMBER_MAX, &gone.last));
	missing_give_up(missing, gone);
}

/* As ingest does it. */
static void apply_state(struct observer *observer, struct slice state)
{
	struct slice epochs = acp_get(state, "epochs"), gone = acp_get(state, "gone");
	bool named[EPOCHS] = {false};
	struct slice item, range;

	ck_assert(acp_is_array(epochs) && acp_is_array(gone));
	while (acp_next(&epochs, &item)) {
		const unsigned epoch = epoch_of(item);
		const int64_t first = acp_get_int(item, "first", -1);
		const int64_t last = acp_get_int(item, "last", -1);

		ck_assert_int_ge(first, 0);
		ck_assert_int_ge(last, 0);
		named[epoch] = true;
		missing_extend(&observer->epochs[epoch], (uint64_t)last);
		if (first > 1)
			missing_give_up(&observer->epochs[epoch],
					(struct frame_range){1, (uint64_t)first - 1});
	}
	while (acp_next(&gone, &item)) {
		struct slice frames = acp_get(item, "frames");

		while (acp_next(&frames, &range))
			give_up(&observer->epochs[epoch_of(item)], range);
	}
	for (unsigned epoch = 0; epoch < EPOCHS; epoch++)
		if (!named[epoch])
			missing_give_up(&observer->epochs[epoch],
					(struct frame_range){1, FRAME_NUMBER_MAX});
}

static size_t wants_of(const struct observer *observer, struct control_want *wants)
{
	size_t count = 0;

	for (unsigned epoch = EPOCHS; epoch-- > 0;) {
		struct frame_range holes[WANT_RANGES_MAX];
		const size_t found = missing_holes(&observer->epochs[epoch], holes,
						   WANT_RANGES_MAX - count);

		for (size_t i = 0; i < found; i++) {
			wants[count].range = holes[i];
			memcpy(wants[count++].epoch, name_of(epoch), 17);
		}
	}
	return count;
}

static void sync(struct world *world, struct observer *observer, bool answered,
		 bool served)
{
	struct control_want wants[WANT_RANGES_MAX];
	struct control control = {.wants = wants,
				  .want_count = wants_of(observer, wants)};
	const struct serve_source source = {next_here, world};
	struct ranges held = {0};
	uint64_t number = 0;
	char epoch[17];
	struct buf text;
	struct err err;

	memcpy(control.observer, observer->id, sizeof(control.observer));
	ck_assert(serve_open(&world->serve, &control, ++world->now_ms, &err));
	while (ranges_next(&world->memory, number + 1, &number))
		ranges_add(&held, number);
	number = 0;
	while (ranges_next(&world->waiting, number + 1, &number))
		ranges_add(&held, number);
	number = 0;
	while (next_here(world, name_of(world->epoch), number + 1, &number))
		ranges_add(&held, number);
	buf_init(&text, 65536);
	(void)buf_lit(&text, "{");
	journal_index_write(&world->disk, name_of(world->epoch), &held, world->last,
			    &text);
	(void)buf_lit(&text, "}");
	if (answered)
		apply_state(observer, buf_slice(&text));
	while (serve_next(&world->serve, &source, epoch, &number)) {
		const unsigned of = (unsigned)(strtoull(epoch, NULL, 16) >> 32) - 1;

		/* Both hear all that the relay routes. */
		for (size_t i = 0; served && i < OBSERVERS; i++)
			(void)missing_add(&world->observers[i].epochs[of], number);
	}
	buf_finish(&text);
	ranges_finish(&held);
}

static void act(struct world *world, unsigned action)
{
	struct observer *observers = world->observers;

	if (action < KILL) {
		if (world->last < FRAMES)
			pack(world, action - PACK);
		return;
	}
	switch ((enum action)action) {
	case KILL:
		kill_harness(world);
		break;
	case FORGET:
		let_go(&world->memory);
		break;
	case FLUSH:
		flush(world);
		break;
	case DROP:
		drop_oldest(world);
		break;
	case REFUSE:
		let_go(&world->waiting);
		break;
	case SYNC_0:
		sync(world, &observers[0], true, true);
		break;
	case SYNC_1:
		sync(world, &observers[1], true, true);
		break;
	case SYNC_0_UNANSWERED:
		sync(world, &observers[0], false, true);
		break;
	case SYNC_0_UNSERVED:
		sync(world, &observers[0], true, false);
		break;
	case PACK:
	case ACTIONS:
		break;
	}
}

/* ---- what must hold in the end ---- */

static bool is_given_up(const struct missing *missing, uint64_t number)
{
	for (size_t i = 0; i < missing->gone_count; i++)
		if (missing->gone[i].first <= number && number <= missing->gone[i].last)
			return true;
	return false;
}

static void check_converged(struct world *world, const unsigned *path, size_t length)
{
	char told[256] = "";
	size_t at = 0;

	for (size_t i = 0; i < length && at < sizeof(told) - 4; i++)
		at += (size_t)snprintf(told + at, sizeof(told) - at, " %u", path[i]);
	for (int round = 0; round < 2; round++) {
		flush(world);
		sync(world, &world->observers[0], true, true);
		sync(world, &world->observers[1], true, true);
	}
	for (size_t i = 0; i < OBSERVERS; i++)
		for (unsigned epoch = 0; epoch <= world->epoch; epoch++) {
			const struct missing *missing =
				&world->observers[i].epochs[epoch];
			uint64_t number = 0;

			ck_assert_msg(!missing_count(missing),
				      "observer %zu still misses something of epoch %u "
				      "after%s",
				      i, epoch, told);
			while (next_here(world, name_of(epoch), number + 1, &number)) {
				ck_assert_msg(number <= missing->last &&
						      !is_given_up(missing, number),
					      "observer %zu gave up frame %" PRIu64
					      " of epoch %u, which is there, after%s",
					      i, number, epoch, told);
			}
		}
}

static void run(const unsigned *path, size_t length)
{
	struct world world;

	world_init(&world);
	for (size_t i = 0; i < length; i++)
		act(&world, path[i]);
	check_converged(&world, path, length);
	world_finish(&world);
}

#define DEPTH 4

START_TEST(every_order_of_four_events_converges)
{
	unsigned path[DEPTH] = {0};

	for (;;) {
		size_t i = 0;

		run(path, DEPTH);
		/* Before anything was packed there is nothing to lose. */
		while (i < DEPTH && ++path[i] == (i ? ACTIONS : KILL + 1))
			path[i++] = 0;
		if (i == DEPTH)
			break;
	}
}
END_TEST

START_TEST(long_histories_converge)
{
	unsigned random = 11, path[24];

	for (int history = 0; history < 1500; history++) {
		for (size_t i = 0; i < 24; i++) {
			random = random * 1103515245u + 12345u;
			path[i] = (random >> 8) % ACTIONS;
		}
		run(path, 24);
	}
}
END_TEST

static Suite *sync_suite(void)
{
	Suite *suite = suite_create("sync");
	TCase *tcase = tcase_create("sync");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, every_order_of_four_events_converges);
	tcase_add_test(tcase, long_histories_converge);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(sync_suite());
}
