/* The loop every process runs on, with libwebsockets as its guest. */
#include "tests/unit/support/support.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <libwebsockets.h>
#include <uv.h>

#include "wire/host/loop.h"

static struct loop *loop;
static struct err err;

static void setup(void)
{
	loop = loop_create(&err);
	ck_assert_msg(loop != NULL, "%s", err.text);
}

static void teardown(void)
{
	loop_destroy(loop);
}

/* What the callbacks of a test did. */
struct seen {
	struct timer *timer;
	unsigned count;
	int signal;
	int64_t at_ms;
};

static void count_and_quit(void *ctx)
{
	struct seen *seen = ctx;

	seen->count++;
	seen->at_ms = loop_now_ms();
	loop_quit(loop);
}

/* LeakSanitizer is who checks: without lws's second destroy everything of it leaks. */
START_TEST(a_loop_that_never_ran_is_freed_without_a_rest)
{
	ck_assert_ptr_nonnull(loop->lws);
	ck_assert_ptr_nonnull(loop->crypto);
}
END_TEST

START_TEST(a_loop_told_to_quit_that_never_ran_is_freed_without_a_rest)
{
	loop_quit(loop); /* and the fixture destroys it */
}
END_TEST

START_TEST(destroying_no_loop_is_fine)
{
	loop_destroy(NULL);
	timer_destroy(NULL);
}
END_TEST

static int on_nothing(struct lws *wsi, enum lws_callback_reasons reason, void *user,
		      void *in, size_t len)
{
	(void)wsi;
	(void)reason;
	(void)user;
	(void)in;
	(void)len;
	return 0;
}

START_TEST(a_listening_vhost_ends_with_the_loop)
{
	static const struct lws_protocols protocols[] = {
		{"x", on_nothing, 0, 1024, 0, NULL, 0},
		{NULL, NULL, 0, 0, 0, NULL, 0},
	};
	struct lws_context_creation_info info = {
		.port = 0,
		.iface = "127.0.0.1",
		.vhost_name = "test",
		.protocols = protocols,
	};
	struct lws_vhost *vhost = lws_create_vhost(loop->lws, &info);
	struct seen seen = {0};

	ck_assert_ptr_nonnull(vhost);
	ck_assert_int_gt(lws_get_vhost_listen_port(vhost), 0);
	seen.timer = timer_create_on(loop, count_and_quit, &seen);
	timer_start(seen.timer, 0);
	loop_run(loop);
	timer_destroy(seen.timer);
	ck_assert_uint_eq(seen.count, 1);
}
END_TEST

START_TEST(a_timer_fires_once_and_never_early)
{
	struct seen seen = {0};
	int64_t start_ms = loop_now_ms();

	seen.timer = timer_create_on(loop, count_and_quit, &seen);
	ck_assert(!timer_armed(seen.timer));
	timer_start(seen.timer, 5);
	ck_assert(timer_armed(seen.timer));
	loop_run(loop);
	ck_assert_uint_eq(seen.count, 1);
	ck_assert_int_ge(seen.at_ms - start_ms, 5);
	ck_assert(!timer_armed(seen.timer));
	timer_destroy(seen.timer);
}
END_TEST

static void note_wait(void *ctx)
{
	struct seen *seen = ctx;

	seen->signal++;
}

/* Or what a turn left would wait for the next one. */
START_TEST(before_it_waits_the_loop_says_so_after_each_turn)
{
	struct seen seen = {0};

	loop_before_wait(loop, note_wait, &seen);
	seen.timer = timer_create_on(loop, count_and_quit, &seen);
	timer_start(seen.timer, 1);
	loop_run(loop);
	ck_assert_uint_eq(seen.count, 1);
	ck_assert_int_ge(seen.signal, 1);
	timer_destroy(seen.timer);
}
END_TEST

START_TEST(a_stopped_timer_does_not_fire)
{
	struct seen stopped = {0};
	struct seen other = {0};

	stopped.timer = timer_create_on(loop, count_and_quit, &stopped);
	other.timer = timer_create_on(loop, count_and_quit, &other);
	timer_start(stopped.timer, 1);
	timer_start(other.timer, 3);
	timer_stop(stopped.timer);
	loop_run(loop);
	ck_assert_uint_eq(stopped.count, 0);
	ck_assert_uint_eq(other.count, 1);
	timer_destroy(stopped.timer);
	timer_destroy(other.timer);
}
END_TEST

START_TEST(starting_a_timer_again_moves_it)
{
	struct seen moved = {0};
	struct seen other = {0};

	moved.timer = timer_create_on(loop, count_and_quit, &moved);
	other.timer = timer_create_on(loop, count_and_quit, &other);
	timer_start(moved.timer, 0);
	timer_start(moved.timer, 60000);
	timer_start(other.timer, 2);
	loop_run(loop);
	ck_assert_uint_eq(moved.count, 0);
	ck_assert(timer_armed(moved.timer));
	timer_destroy(moved.timer);
	timer_destroy(other.timer);
}
END_TEST

static void note_readable(uv_poll_t *poll, int status, int events)
{
	struct seen *seen = poll->data;

	(void)events;
	ck_assert_int_eq(status, 0);
	seen->signal = 1 + (int)seen->count; /* 1: before the timer */
	(void)uv_poll_stop(poll);
}

/* What it waits for may have come in time. */
START_TEST(a_late_timer_fires_after_what_came_until_then_was_read)
{
	struct seen seen = {0};
	uv_poll_t poll = {.data = &seen};
	int64_t busy_until_ms;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(uv_poll_init(loop->uv, &poll, ends[0]), 0);
	ck_assert_int_eq(uv_poll_start(&poll, UV_READABLE, note_readable), 0);
	seen.timer = timer_create_on(loop, count_and_quit, &seen);
	timer_start(seen.timer, 1);
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	busy_until_ms = loop_now_ms() + 100;
	while (loop_now_ms() < busy_until_ms)
		continue;
	loop_run(loop);
	ck_assert_int_eq(seen.signal, 1);
	ck_assert_uint_eq(seen.count, 1);
	timer_destroy(seen.timer);
	uv_close((uv_handle_t *)&poll, NULL);
	(void)uv_run(loop->uv, UV_RUN_NOWAIT);
	(void)close(ends[0]);
	(void)close(ends[1]);
}
END_TEST

static void destroy_own_timer(void *ctx)
{
	struct seen *seen = ctx;

	seen->count++;
	timer_destroy(seen->timer);
	loop_quit(loop);
}

START_TEST(a_timer_may_be_destroyed_inside_its_callback)
{
	struct seen seen = {0};

	seen.timer = timer_create_on(loop, destroy_own_timer, &seen);
	timer_start(seen.timer, 0);
	loop_run(loop);
	ck_assert_uint_eq(seen.count, 1);
}
END_TEST

static void on_signal(void *ctx, int number)
{
	struct seen *seen = ctx;

	seen->count++;
	seen->signal = number;
	(void)kill(getpid(), SIGINT);
}

START_TEST(the_first_signal_is_told_and_the_second_quits)
{
	struct seen seen = {0};

	loop_on_signal(loop, on_signal, &seen);
	(void)kill(getpid(), SIGTERM);
	loop_run(loop);
	ck_assert_uint_eq(seen.count, 1);
	ck_assert_int_eq(seen.signal, SIGTERM);
}
END_TEST

START_TEST(a_second_signal_may_be_told_too_and_the_third_quits)
{
	struct seen seen = {0};

	loop_on_signal(loop, on_signal, &seen);
	loop_on_second_signal(loop, on_signal);
	(void)kill(getpid(), SIGTERM);
	loop_run(loop);
	ck_assert_uint_eq(seen.count, 2);
	ck_assert_int_eq(seen.signal, SIGINT);
}
END_TEST

START_TEST(a_signal_nobody_asked_for_quits)
{
	(void)kill(getpid(), SIGTERM);
	loop_run(loop);
}
END_TEST

START_TEST(writing_to_a_closed_pipe_is_no_signal)
{
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	(void)close(ends[0]);
	ck_assert_int_lt(write(ends[1], "x", 1), 0);
	(void)close(ends[1]);
}
END_TEST

START_TEST(the_file_limit_is_raised_as_far_as_allowed)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(limit.rlim_cur == limit.rlim_max || limit.rlim_cur >= 65536);
}
END_TEST

START_TEST(clocks_tell_the_time)
{
	const int64_t first_ms = loop_now_ms();
	struct timespec before, after;
	int64_t told_ms;

	/* The same clock as the loop's: time() lags behind it by up to a tick. */
	ck_assert_int_eq(clock_gettime(CLOCK_REALTIME, &before), 0);
	told_ms = loop_unix_ms();
	ck_assert_int_eq(clock_gettime(CLOCK_REALTIME, &after), 0);
	ck_assert_int_ge(told_ms, before.tv_sec * 1000 + before.tv_nsec / 1000000);
	ck_assert_int_le(told_ms, after.tv_sec * 1000 + after.tv_nsec / 1000000);
	ck_assert_int_ge(loop_now_ms(), first_ms);
}
END_TEST

START_TEST(random_bytes_differ_each_time)
{
	uint8_t one[16];
	uint8_t two[16];

	loop_random(one, sizeof(one));
	loop_random(two, sizeof(two));
	ck_assert_mem_ne(one, two, sizeof(one));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("loop");
	TCase *tcase = tcase_create("loop");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_loop_that_never_ran_is_freed_without_a_rest);
	tcase_add_test(tcase, a_loop_told_to_quit_that_never_ran_is_freed_without_a_rest);
	tcase_add_test(tcase, destroying_no_loop_is_fine);
	tcase_add_test(tcase, a_listening_vhost_ends_with_the_loop);
	tcase_add_test(tcase, a_timer_fires_once_and_never_early);
	tcase_add_test(tcase, before_it_waits_the_loop_says_so_after_each_turn);
	tcase_add_test(tcase, a_stopped_timer_does_not_fire);
	tcase_add_test(tcase, starting_a_timer_again_moves_it);
	tcase_add_test(tcase, a_late_timer_fires_after_what_came_until_then_was_read);
	tcase_add_test(tcase, a_timer_may_be_destroyed_inside_its_callback);
	tcase_add_test(tcase, the_first_signal_is_told_and_the_second_quits);
	tcase_add_test(tcase, a_second_signal_may_be_told_too_and_the_third_quits);
	tcase_add_test(tcase, a_signal_nobody_asked_for_quits);
	tcase_add_test(tcase, writing_to_a_closed_pipe_is_no_signal);
	tcase_add_test(tcase, the_file_limit_is_raised_as_far_as_allowed);
	tcase_add_test(tcase, clocks_tell_the_time);
	tcase_add_test(tcase, random_bytes_differ_each_time);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
