/* The rules of feed_sync, feed_state and serving, by going through what can happen to
 * them, an archive's disk that refuses or breaks and a relay that refuses among it:
 * frames packed and lost on the way or only late, records that reach the disk, later or
 * never, memory that is let go, records that are dropped, a journal that cannot be opened
 * at first, a harness without one, a harness that is killed and starts anew, syncs and
 * answers that are lost, two observers, of which one is started again or killed before
 * its archive had the newest frame. Whatever happened: once it is quiet each observer has
 * every frame that is still somewhere, and had none twice, knows of the others that they
 * are gone, and asks for nothing any more. The real parts are serve, ranges and
 * journal_index (harness) and ingest with missing (observer). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/journal_index.h"
#include "agent/serve.h"
#include "observer/acp.h"
#include "observer/ingest.h"
#include "tests/unit/support/support.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"

#define OBSERVERS 2
#define EPOCHS 8
#define FRAMES 16

enum action {
	PACK, /* + 6: who gets it (none, one, both) × on disk now or later */
	KILL = PACK + 6,
	KILL_SHUT, /* and the next start cannot open the journal, until FLUSH */
	FORGET,    /* memory lets go of what it kept */
	FLUSH,     /* the disk has what waited */
	DROP,      /* the disk lets go of its oldest */
	REFUSE,    /* the disk never gets what waits */
	LATE,      /* the newest frame that one did not get arrives after all */
	RESTART_0, /* the observer knows what its archive has */
	CRASH_0,   /* and the archive lacks what came last */
	UNKEPT_0,  /* it goes on, but the disk did not take what came last */
	ANEW_0,    /* its archive was broken: it has nothing any more */
	BANNED,    /* the relay never takes the oldest frame on disk */
	SYNC_0,    /* all goes well */
	SYNC_1,
	SYNC_0_UNANSWERED, /* the feed_state is lost, what is served arrives */
	SYNC_0_UNSERVED,   /* the feed_state arrives, what is served is lost */
	ACTIONS,
};

struct observer {
	char id[9];
	struct ingest *ingest;
	bool has[EPOCHS][FRAMES + 1], gone[EPOCHS][FRAMES + 1];
	unsigned last_epoch;
	uint64_t last_number; /* what came last; 0: nothing */
};

struct world {
	bool has_journal, shut;
	struct serve serve;
	struct journal_index disk;
	struct ranges memory, waiting;
	unsigned epoch;
	uint64_t last, given[EPOCHS]; /* highest number of each */
	struct observer observers[OBSERVERS];
	int64_t now_ms;
};

static struct crypto *crypto;
static struct keypair *owner;
static const uint8_t agent[KEY_BYTES] = {7};

static const char *name_of(unsigned epoch)
{
	static char names[EPOCHS][17];

	(void)snprintf(names[epoch], sizeof(names[epoch]), "%08x00000000", epoch + 1);
	return names[epoch];
}

static unsigned epoch_of(const char *name)
{
	return (unsigned)(strtoull(name, NULL, 16) >> 32) - 1;
}

static void no_frame(void *ctx, const struct ingest_frame *frame)
{
	(void)ctx;
	(void)frame;
}

static int64_t no_stranger(void *ctx, const uint8_t *author)
{
	(void)ctx;
	(void)author;
	return 0;
}

/* What its archive remembers. */
static void on_gone(void *ctx, const uint8_t *key, const char *epoch,
		    struct gone_range gone)
{
	struct observer *observer = ctx;

	(void)key;
	for (uint64_t n = gone.range.first; n <= gone.range.last; n++) {
		if (n > FRAMES || observer->has[epoch_of(epoch)][n])
			ck_abort_msg("frame %" PRIu64 " of %s is no hole", n, epoch);
		observer->gone[epoch_of(epoch)][n] = true;
	}
}

static void observer_open(struct observer *observer)
{
	const struct ingest_options options = {.crypto = crypto,
					       .owner = owner,
					       .on_frame = no_frame,
					       .on_stranger = no_stranger,
					       .on_gone = on_gone,
					       .ctx = observer};

	observer->ingest = ingest_create(&options);
	/* It heard of the agent before. */
	(void)ingest_known(observer->ingest, agent, name_of(0), 0);
	for (unsigned epoch = 0; epoch < EPOCHS; epoch++) {
		for (uint64_t n = 1; n <= FRAMES; n++)
			if (observer->has[epoch][n])
				(void)ingest_known(observer->ingest, agent,
						   name_of(epoch), n);
		for (uint64_t n = 1; n <= FRAMES; n++)
			if (observer->gone[epoch][n])
				ingest_known_gone(observer->ingest, agent, name_of(epoch),
						  (struct gone_range){{n, n}, GONE_DISK});
	}
}

/* A frame arrives. */
static void deliver(struct observer *observer, unsigned epoch, uint64_t number)
{
	const bool is_new = ingest_known(observer->ingest, agent, name_of(epoch), number);

	if (is_new == observer->has[epoch][number])
		ck_abort_msg("frame %" PRIu64 " of epoch %u is %s", number, epoch,
			     is_new ? "new twice" : "not taken");
	observer->has[epoch][number] = true;
	observer->gone[epoch][number] = false;
	observer->last_epoch = epoch;
	observer->last_number = number;
}

static void world_init(struct world *world, bool has_journal)
{
	*world = (struct world){.has_journal = has_journal};
	for (size_t i = 0; i < OBSERVERS; i++) {
		(void)snprintf(world->observers[i].id, 9, "0000000%zu", i);
		observer_open(&world->observers[i]);
	}
}

static void world_finish(struct world *world)
{
	journal_index_finish(&world->disk);
	ranges_finish(&world->memory);
	ranges_finish(&world->waiting);
	for (size_t i = 0; i < OBSERVERS; i++)
		ingest_destroy(world->observers[i].ingest);
}

/* ---- the harness ---- */

static bool next_here(void *ctx, const char *epoch, uint64_t from, uint64_t *number)
{
	const struct world *world = ctx;
	const struct journal_epoch *at = journal_index_find(&world->disk, epoch);
	uint64_t memory = UINT64_MAX, disk = UINT64_MAX;

	if (strcmp(epoch, name_of(world->epoch)) == 0)
		(void)ranges_next(&world->memory, from, &memory);
	if (at && !world->shut)
		(void)ranges_next(&at->frames, from, &disk);
	*number = memory < disk ? memory : disk;
	return *number != UINT64_MAX;
}

static void pack(struct world *world, unsigned how)
{
	const uint64_t number = ++world->last;
	const unsigned reach = how % 3; /* how many observers get it */

	world->given[world->epoch] = number;
	ranges_add(&world->memory, number);
	if (!world->has_journal)
		; /* memory is all there is */
	else if (how < 3 && !world->shut)
		journal_index_add(&world->disk, name_of(world->epoch), number);
	else
		ranges_add(&world->waiting, number);
	for (unsigned i = 0; i < reach; i++)
		deliver(&world->observers[i], world->epoch, number);
}

static void let_go(struct ranges *ranges)
{
	ranges_finish(ranges);
}

static void flush(struct world *world)
{
	uint64_t number = 0;

	world->shut = false;
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
	world->shut = false;
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
		journal_index_let_go(&world->disk, epoch, at->frames.items[0].first,
				     name_of(world->epoch));
		return;
	}
}

/* ---- the observer ---- */

/* A frame that was held back on the way. */
static void deliver_late(struct world *world)
{
	for (size_t i = OBSERVERS; i-- > 0;)
		for (unsigned epoch = world->epoch + 1; epoch-- > 0;)
			for (uint64_t n = world->given[epoch]; n > 0; n--)
				if (!world->observers[i].has[epoch][n]) {
					deliver(&world->observers[i], epoch, n);
					return;
				}
}

static void restart(struct observer *observer, bool crash)
{
	ingest_destroy(observer->ingest);
	if (crash && observer->last_number)
		observer->has[observer->last_epoch][observer->last_number] = false;
	observer->last_number = 0;
	observer_open(observer);
}

static void unkeep(struct world *world, struct observer *observer)
{
	const uint64_t number = observer->last_number;

	if (!number)
		return;
	observer->has[observer->last_epoch][number] = false;
	observer->last_number = 0;
	ingest_unknown(observer->ingest, agent, name_of(observer->last_epoch),
		       (struct frame_range){number, number}, world->now_ms);
}

static void begin_anew(struct world *world, struct observer *observer)
{
	memset(observer->has, 0, sizeof(observer->has));
	memset(observer->gone, 0, sizeof(observer->gone));
	observer->last_number = 0;
	ingest_unknown_all(observer->ingest, world->now_ms);
}

static void ban_oldest(struct world *world)
{
	for (size_t i = 0; i < world->disk.count; i++) {
		const struct journal_epoch *at = &world->disk.epochs[i];
		const uint64_t number = at->frames.count ? at->frames.items[0].first : 0;

		if (!number)
			continue;
		if (strcmp(at->name, name_of(world->epoch)) == 0)
			ranges_remove(&world->memory, number);
		journal_index_refuse(&world->disk, at->name, number);
		return;
	}
}

static void write_state(struct world *world, struct buf *out)
{
	static const struct journal_index empty = {0};
	struct ranges held = {0};
	const struct journal_telling telling = {
		.current = name_of(world->epoch),
		.held = &held,
		.last = world->last,
		.how = !world->has_journal ? JOURNAL_TELLS_NONE
		       : world->shut       ? JOURNAL_TELLS_PART
					   : JOURNAL_TELLS_ALL,
	};
	uint64_t number = 0;

	while (ranges_next(&world->memory, number + 1, &number))
		ranges_add(&held, number);
	number = 0;
	while (ranges_next(&world->waiting, number + 1, &number))
		ranges_add(&held, number);
	number = 0;
	while (next_here(world, name_of(world->epoch), number + 1, &number))
		ranges_add(&held, number);
	(void)buf_lit(out, "{\"a\":0");
	journal_index_write(world->shut ? &empty : &world->disk, &telling, out);
	(void)buf_lit(out, "}");
	ranges_finish(&held);
}

static void sync(struct world *world, struct observer *observer, bool answered,
		 bool served)
{
	struct control_want wants[WANT_RANGES_MAX];
	struct control control = {.wants = wants};
	const struct serve_source source = {next_here, world};
	uint64_t number = 0;
	char epoch[17];
	struct buf text;
	struct err err;

	world->now_ms += INGEST_SETTLE_MS;
	control.want_count = ingest_wants(observer->ingest, agent, world->now_ms, wants,
					  WANT_RANGES_MAX);
	memcpy(control.observer, observer->id, sizeof(control.observer));
	ck_assert(serve_open(&world->serve, &control, world->now_ms, &err));
	buf_init(&text, 65536);
	write_state(world, &text);
	/* Both hear all that the relay routes. */
	for (size_t i = 0; answered && i < OBSERVERS; i++)
		ingest_feed_state(world->observers[i].ingest, agent, buf_slice(&text),
				  world->now_ms);
	while (serve_next(&world->serve, &source, epoch, &number))
		for (size_t i = 0; served && i < OBSERVERS; i++)
			if (!world->observers[i].has[epoch_of(epoch)][number])
				deliver(&world->observers[i], epoch_of(epoch), number);
	buf_finish(&text);
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
	case KILL_SHUT:
		kill_harness(world);
		world->shut = world->has_journal;
		break;
	case LATE:
		deliver_late(world);
		break;
	case RESTART_0:
		restart(&observers[0], false);
		break;
	case CRASH_0:
		restart(&observers[0], true);
		break;
	case UNKEPT_0:
		unkeep(world, &observers[0]);
		break;
	case ANEW_0:
		begin_anew(world, &observers[0]);
		break;
	case BANNED:
		ban_oldest(world);
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
	for (size_t i = 0; i < OBSERVERS; i++) {
		const struct observer *observer = &world->observers[i];

		if (ingest_missing(observer->ingest, agent))
			ck_abort_msg("observer %zu still misses something after%s", i,
				     told);
		for (unsigned epoch = 0; epoch <= world->epoch; epoch++) {
			uint64_t number = 0;

			while (next_here(world, name_of(epoch), number + 1, &number))
				if (!observer->has[epoch][number])
					ck_abort_msg(
						"observer %zu lacks frame %" PRIu64
						" of epoch %u, which is there, after%s",
						i, number, epoch, told);
		}
	}
}

static void run(const unsigned *path, size_t length, bool has_journal)
{
	struct world world;

	world_init(&world, has_journal);
	for (size_t i = 0; i < length; i++)
		act(&world, path[i]);
	check_converged(&world, path, length);
	world_finish(&world);
}

/* ---- every state that a few events lead to ---- */

#define DEPTH 4

static void digest_ranges(struct buf *out, const struct ranges *ranges)
{
	for (size_t i = 0; i < ranges->count; i++)
		(void)buf_printf(out, "%" PRIu64 "-%" PRIu64 " ", ranges->items[i].first,
				 ranges->items[i].last);
	(void)buf_lit(out, "/");
}

/* All that what comes may depend on. */
static void digest(const struct world *world, struct buf *out)
{
	(void)buf_printf(out, "%d %u %" PRIu64 "/", world->shut, world->epoch,
			 world->last);
	digest_ranges(out, &world->memory);
	digest_ranges(out, &world->waiting);
	for (size_t i = 0; i < world->disk.count; i++) {
		const struct journal_epoch *at = &world->disk.epochs[i];

		(void)buf_printf(out, "%s %" PRIu64 " %" PRIu64 ":", at->name, at->last,
				 at->let_go);
		digest_ranges(out, &at->frames);
		digest_ranges(out, &at->refused);
	}
	for (size_t i = 0; i < OBSERVERS; i++) {
		const struct observer *observer = &world->observers[i];

		(void)buf_printf(out, "%u %" PRIu64 " %" PRIu64 ":", observer->last_epoch,
				 observer->last_number,
				 ingest_missing(observer->ingest, agent));
		for (unsigned epoch = 0; epoch <= world->epoch; epoch++)
			for (uint64_t n = 1; n <= world->given[epoch]; n++)
				(void)buf_printf(out, "%d",
						 observer->has[epoch][n] |
							 observer->gone[epoch][n] << 1);
	}
}

struct state {
	unsigned path[DEPTH];
	size_t length;
};

/* Goes to where @path leads; true, and checked, if nothing led there before. */
static bool is_new_state(const struct state *state, bool has_journal, struct map *known)
{
	struct buf text;
	struct world world;
	bool is_new;

	buf_init(&text, 65536);
	world_init(&world, has_journal);
	for (size_t i = 0; i < state->length; i++)
		act(&world, state->path[i]);
	digest(&world, &text);
	is_new = !map_put(known, buf_slice(&text), known);
	if (is_new)
		check_converged(&world, state->path, state->length);
	world_finish(&world);
	buf_finish(&text);
	return is_new;
}

START_TEST(every_state_that_four_events_lead_to_converges)
{
	struct state *states = mem_array(1, sizeof(*states));
	size_t count = 1, room = 1;
	struct map known;

	map_init(&known);
	for (size_t at = 0; at < count; at++) {
		struct state next = states[at];

		if (next.length == DEPTH)
			break; /* so are all behind it */
		next.length++;
		for (unsigned action = 0; action < ACTIONS; action++) {
			next.path[next.length - 1] = action;
			if (!is_new_state(&next, _i == 0, &known))
				continue;
			if (count == room)
				states = mem_grow(states, room *= 2, sizeof(*states));
			states[count++] = next;
		}
	}
	ck_assert_uint_gt(count, 500);
	if (getenv("PERCH_TEST_COUNT"))
		printf("%zu states\n", count);
	map_finish(&known);
	free(states);
}
END_TEST

START_TEST(long_histories_converge)
{
	unsigned random = 11, path[24];

	for (int history = 0; history < 1000; history++) {
		for (size_t i = 0; i < 24; i++) {
			random = random * 1103515245u + 12345u;
			path[i] = (random >> 8) % ACTIONS;
		}
		run(path, 24, history % 4 != 0);
	}
}
END_TEST

static void setup(void)
{
	const uint8_t seed[32] = {1}, secret[KEY_BYTES] = {2};

	struct err err;

	crypto = crypto_create(seed, &err);
	ck_assert(crypto && keypair_create(crypto, secret, &owner, &err));
}

static void teardown(void)
{
	keypair_destroy(owner);
	crypto_destroy(crypto);
}

static Suite *sync_suite(void)
{
	Suite *suite = suite_create("sync");
	TCase *tcase = tcase_create("sync");

	tcase_set_timeout(tcase, 120);
	tcase_add_unchecked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, every_state_that_four_events_lead_to_converges, 0, 2);
	tcase_add_test(tcase, long_histories_converge);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(sync_suite());
}
