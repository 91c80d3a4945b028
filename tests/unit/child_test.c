#include "agent/child.h"

#include <sys/wait.h>
#include <malloc.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include "agent/cgroup.h"
#include "tests/unit/support/support.h"
#include "wire/base/buf.h"

/* Real processes: /bin/sh, and what is in PATH. */

static char *const bare_environment[] = {(char[]){"PATH=/usr/bin:/bin"}, NULL};

static struct loop *loop;
static struct children *children;
static struct child *child;
static struct buf out, err_out;
static struct child_exit how;
static int ends, pauses, resumes;
static struct child *late; /* told to end while another's pause is heard of */
static bool quit_on_line;  /* end the loop once a whole line was read */
static bool quit_on_pause; /* or once one was stopped or continued */

static void on_stdout(void *ctx, struct slice bytes)
{
	(void)ctx;
	(void)buf_append(&out, bytes);
	if (quit_on_line && slice_find(bytes, '\n') < bytes.len)
		loop_quit(loop);
}

static void on_stdout_end(void *ctx)
{
	(void)ctx;
	ends++;
}

static void on_stderr(void *ctx, struct slice bytes)
{
	(void)ctx;
	(void)buf_append(&err_out, bytes);
}

static size_t not_written;

static void on_counted(void *ctx, struct slice line, enum child_written outcome)
{
	(void)ctx;
	(void)line;
	not_written += outcome != CHILD_WRITTEN;
}

static void on_pause(void *ctx, bool stopped)
{
	siginfo_t info;

	(void)ctx;
	if (stopped)
		pauses++;
	else
		resumes++;
	if (late) {
		child_write(late, SLICE("go\n"), on_counted, NULL);
		(void)waitid(P_PID, (id_t)child_pid(late), &info, WEXITED | WNOWAIT);
	}
	if (quit_on_pause)
		loop_quit(loop);
}

static void on_exit_of_child(void *ctx, const struct child_exit *exit)
{
	(void)ctx;
	how = *exit;
	child_destroy(child);
	child = NULL;
	loop_quit(loop);
}

static const struct child_events events = {
	.on_stdout = on_stdout,
	.on_stdout_end = on_stdout_end,
	.on_stderr = on_stderr,
	.on_pause = on_pause,
	.on_exit = on_exit_of_child,
};

static void setup(void)
{
	struct err err;

	loop = loop_create(&err);
	ck_assert_ptr_nonnull(loop);
	children = children_create(loop, &err);
	ck_assert_ptr_nonnull(children);
	buf_init(&out, 64u << 20);
	buf_init(&err_out, 64u << 20);
	ends = pauses = resumes = 0;
	quit_on_line = quit_on_pause = false;
	how = (struct child_exit){0};
}

static void teardown(void)
{
	child_destroy(child);
	child = NULL;
	children_destroy(children);
	loop_destroy(loop);
	buf_finish(&out);
	buf_finish(&err_out);
}

static struct child *spawn(char *const argv[], struct err *err)
{
	struct child_options options = {.argv = argv,
					.cwd = "/",
					.environment = bare_environment,
					.events = &events};

	return child_spawn(children, &options, err);
}

/* Starts a shell script. */
static void run(const char *script)
{
	char text[2048];
	char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, text, NULL};
	struct err err;

	(void)snprintf(text, sizeof(text), "%s", script);
	child = spawn(argv, &err);
	ck_assert_msg(child != NULL, "%s", err.text);
}

static void run_to_the_end(const char *script)
{
	run(script);
	loop_run(loop);
}

static void on_written(void *ctx, struct slice line, enum child_written outcome)
{
	enum child_written *to = ctx;

	(void)line;
	*to = outcome;
}

/* The number that the child has written. */
static pid_t pid_said(void)
{
	return (pid_t)strtol(buf_text(&out), NULL, 10);
}

static bool is_gone(pid_t pid)
{
	return kill(pid, 0) != 0 && errno == ESRCH;
}

/* What was killed is dead at once, but reaped when its SIGCHLD comes. */
static void wait_until_gone(pid_t pid)
{
	ck_assert_int_gt(pid, 0);
	while (!is_gone(pid))
		(void)uv_run(loop->uv, UV_RUN_ONCE);
}

START_TEST(an_exit_status_is_told_with_all_output_before_it)
{
	run_to_the_end("echo out; echo err >&2; exit 7");
	assert_slice_eq(buf_slice(&out), "out\n");
	assert_slice_eq(buf_slice(&err_out), "err\n");
	ck_assert(!how.by_signal && !how.asked);
	ck_assert_int_eq(how.code, 7);
	ck_assert_int_eq(ends, 1);
}
END_TEST

START_TEST(a_death_by_signal_is_told_by_its_number)
{
	run_to_the_end("kill -SEGV $$");
	ck_assert(how.by_signal);
	ck_assert_int_eq(how.code, SIGSEGV);
}
END_TEST

START_TEST(its_standard_streams_are_pipes_that_open_again)
{
	run_to_the_end("echo x > /dev/stderr; readlink /proc/self/fd/0 | cut -d: -f1");
	assert_slice_eq(buf_slice(&err_out), "x\n");
	assert_slice_eq(buf_slice(&out), "pipe\n");
}
END_TEST

START_TEST(it_inherits_no_other_descriptor)
{
	ck_assert_int_eq(dup2(1, 77), 77); /* without O_CLOEXEC, as a library might */
	run_to_the_end(
		"for n in 3 4 5 6 7 8 9 77; do [ ! -e /proc/$$/fd/$n ] || echo $n; done");
	(void)close(77);
	assert_slice_eq(buf_slice(&out), "");
}
END_TEST

START_TEST(it_has_its_three_streams_though_we_lack_ours)
{
	enum child_written outcome;
	int saved = dup(0);

	(void)close(0);
	run("read line; echo got $line; exit 0");
	ck_assert_int_eq(dup2(saved, 0), 0);
	(void)close(saved);
	child_write(child, SLICE("x\n"), on_written, &outcome);
	loop_run(loop);
	assert_slice_eq(buf_slice(&out), "got x\n");
}
END_TEST

START_TEST(it_leads_a_session_of_its_own)
{
	run_to_the_end("echo $$; cut -d' ' -f5,6 /proc/$$/stat");
	ck_assert_int_ne(pid_said(), 0);
	ck_assert(slice_find(buf_slice(&out), '\n') < out.len);
	char want[128];

	(void)snprintf(want, sizeof(want), "%d\n%d %d\n", pid_said(), pid_said(),
		       pid_said());
	assert_slice_eq(buf_slice(&out), want);
}
END_TEST

START_TEST(a_command_that_is_not_there_is_named)
{
	char *const argv[] = {(char[]){"no-such-agent"}, NULL};
	struct err err;

	ck_assert_ptr_null(spawn(argv, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
	ck_assert_str_eq(err.text,
			 "cannot run no-such-agent: not found in PATH; install it or "
			 "give its path");
}
END_TEST

START_TEST(a_file_that_is_no_program_is_named)
{
	char *const argv[] = {(char[]){"/etc/passwd"}, NULL};
	struct err err;

	ck_assert_ptr_null(spawn(argv, &err));
	ck_assert_str_eq(err.text, "cannot run /etc/passwd: not an executable file");
}
END_TEST

START_TEST(what_it_is_told_arrives_whole_and_in_order)
{
	struct buf big;
	enum child_written first = CHILD_NOT_WRITTEN, second = CHILD_NOT_WRITTEN;

	buf_init(&big, 4u << 20);
	for (int i = 0; i < 200000; i++) /* more than a pipe holds */
		(void)buf_lit(&big, "0123456789");
	(void)buf_lit(&big, "\n");
	run("cat");
	child_write(child, buf_slice(&big), on_written, &first);
	child_write(child, SLICE("second\n"), on_written, &second);
	ck_assert_int_eq(first, CHILD_NOT_WRITTEN); /* not yet */
	while (out.len < big.len + 7)
		(void)uv_run(loop->uv, UV_RUN_ONCE);
	ck_assert_int_eq(first, CHILD_WRITTEN);
	ck_assert_int_eq(second, CHILD_WRITTEN);
	ck_assert(slice_eq(slice_sub(buf_slice(&out), 0, big.len), buf_slice(&big)));
	ck_assert(slice_ends(buf_slice(&out), SLICE("\nsecond\n")));
	child_stop(child);
	loop_run(loop);
	ck_assert(how.asked);
	ck_assert_int_eq(how.code, 0);
	buf_finish(&big);
}
END_TEST

START_TEST(a_line_for_one_that_is_gone_is_not_written)
{
	enum child_written outcome = CHILD_WRITTEN;

	quit_on_line = true;
	run("exec 0<&-; echo closed; exec cat /dev/zero > /dev/null");
	loop_run(loop);
	child_write(child, SLICE("hello\n"), on_written, &outcome);
	ck_assert_int_eq(outcome, CHILD_NOT_WRITTEN);
}
END_TEST

START_TEST(one_that_closes_its_stdin_and_lives_on_is_ended)
{
	enum child_written outcome = CHILD_WRITTEN;

	quit_on_line = true;
	run("exec 0<&-; echo closed; exec tail -f /dev/null");
	loop_run(loop);
	child_write(child, SLICE("hello\n"), on_written, &outcome);
	loop_run(loop);
	ck_assert(how.by_signal);
	ck_assert_int_eq(how.code, SIGTERM);
}
END_TEST

START_TEST(a_line_that_waits_counts_for_more_than_its_bytes)
{
	size_t waiting = 0;

	run("exec tail -f /dev/null"); /* never reads its stdin */
	not_written = 0;
	while (!not_written && waiting < CHILD_QUEUE_MAX) {
		child_write(child, SLICE("x\n"), on_counted, NULL);
		waiting++;
	}
	ck_assert_uint_gt(not_written, 1);
	ck_assert_uint_lt(waiting, CHILD_QUEUE_MAX / 256);
}
END_TEST

START_TEST(a_line_that_was_cut_off_is_told_apart)
{
	enum child_written first = CHILD_WRITTEN, second = CHILD_WRITTEN;
	struct buf big;

	buf_init(&big, 4u << 20);
	ck_assert_ptr_nonnull(buf_extend(&big, 1u << 20));
	memset(big.ptr, 'x', big.len);
	run("exec tail -f /dev/null"); /* never reads its stdin */
	child_write(child, buf_slice(&big), on_written, &first);
	child_write(child, SLICE("never\n"), on_written, &second);
	(void)kill(child_pid(child), SIGKILL);
	loop_run(loop);
	ck_assert_int_eq(first, CHILD_CUT_OFF);
	ck_assert_int_eq(second, CHILD_NOT_WRITTEN);
	buf_finish(&big);
}
END_TEST

START_TEST(a_dead_one_that_left_a_helper_at_its_stdout_ends_nevertheless)
{
	run_to_the_end("(trap '' HUP TERM; while :; do :; done) & echo $!; exit 3");
	ck_assert_int_eq(how.code, 3);
	ck_assert_int_eq(ends, 1);
	wait_until_gone(pid_said());
}
END_TEST

START_TEST(no_descendant_survives_its_agent_whatever_it_tries)
{
	enum child_written outcome;

	/* In a session of its own, its parent gone, deaf to SIGTERM. */
	quit_on_line = true;
	run("setsid sh -c 'trap \"\" HUP TERM; (while :; do :; done) & echo $!' & read "
	    "line");
	loop_run(loop);
	child_write(child, SLICE("go\n"), on_written, &outcome);
	while (child)
		(void)uv_run(loop->uv, UV_RUN_ONCE);
	wait_until_gone(pid_said());
}
END_TEST

/* No parent, a session of its own, and no mark in its environment: while other agents
 * live only the control group tells whose it is. Where we may make none, nothing can. */
START_TEST(not_even_one_that_empties_its_environment_survives)
{
	struct cgroup *group = cgroup_create();
	struct child *other;
	pid_t helper;

	if (!group)
		return;
	cgroup_destroy(group);
	run("read x");
	other = child;
	quit_on_line = true;
	run("env -i /usr/bin/setsid /bin/sh -c '(trap \"\" HUP TERM; while :; do "
	    "/bin/sleep 1; done) >/dev/null 2>&1 & echo $!'; read line");
	loop_run(loop);
	helper = pid_said();
	ck_assert_int_eq(kill(helper, 0), 0);
	child_destroy(child);
	wait_until_gone(helper);
	ck_assert_int_eq(kill(child_pid(other), 0), 0);
	child = other;
}
END_TEST

START_TEST(one_that_heeds_the_end_of_its_stdin_is_not_killed)
{
	run("cat > /dev/null; exit 5");
	child_stop(child);
	loop_run(loop);
	ck_assert(!how.by_signal && how.asked);
	ck_assert_int_eq(how.code, 5);
}
END_TEST

START_TEST(a_stop_and_a_continue_are_told)
{
	quit_on_pause = true;
	run("exec cat");
	(void)kill(child_pid(child), SIGSTOP);
	loop_run(loop);
	ck_assert_int_eq(pauses, 1);
	(void)kill(child_pid(child), SIGCONT);
	loop_run(loop);
	ck_assert_int_eq(resumes, 1);
}
END_TEST

/* Its end is heard of before its output, and then the loop does not turn for longer than
 * is waited for a dead one's helpers. */
START_TEST(what_it_said_last_is_read_by_one_that_was_busy)
{
	struct child *first;
	int64_t busy_until_ms;

	quit_on_pause = true;
	run("exec cat");
	first = child;
	run("read x; echo out; echo err >&2; exit 7");
	late = child;
	(void)kill(child_pid(first), SIGSTOP);
	loop_run(loop);
	late = NULL;
	quit_on_pause = false;
	ck_assert_int_eq(pauses, 1);
	ck_assert_uint_eq(out.len, 0);
	busy_until_ms = loop_now_ms() + CHILD_DRAIN_MS + 10;
	while (loop_now_ms() < busy_until_ms)
		continue;
	loop_run(loop);
	child_destroy(first);
	ck_assert_int_eq(how.code, 7);
	assert_slice_eq(buf_slice(&out), "out\n");
	assert_slice_eq(buf_slice(&err_out), "err\n");
	ck_assert_int_eq(ends, 1);
}
END_TEST

START_TEST(a_destroyed_one_is_dead)
{
	pid_t pid;

	run("trap '' TERM; while :; do :; done");
	pid = child_pid(child);
	child_destroy(child);
	child = NULL;
	ck_assert(is_gone(pid));
}
END_TEST

/* --- Environment --- */

static const char *find(char **environment, const char *name)
{
	for (; *environment; environment++) {
		size_t len = strlen(name);

		if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
			return *environment + len + 1;
	}
	return NULL;
}

static char *const ours[] = {
	(char[]){"PATH=/bin"},
	(char[]){"LC_ALL=C.UTF-8"},
	(char[]){"ANTHROPIC_API_KEY=k"},
	(char[]){"PERCH_PASSPHRASE_FILE=/secret"},
	(char[]){"AWS_SECRET=s"},
	(char[]){"NODE_OPTIONS=--x"},
	NULL,
};

START_TEST(only_named_variables_reach_an_agent)
{
	struct err err;
	char **got = child_environment(ours, NULL, 0, &err);

	ck_assert_str_eq(find(got, "PATH"), "/bin");
	ck_assert_str_eq(find(got, "LC_ALL"), "C.UTF-8");
	ck_assert_str_eq(find(got, "ANTHROPIC_API_KEY"), "k");
	ck_assert_str_eq(find(got, "NODE_OPTIONS"), "--x");
	ck_assert_ptr_null(find(got, "AWS_SECRET"));
	ck_assert_ptr_null(find(got, "PERCH_PASSPHRASE_FILE"));
	child_environment_free(got);
}
END_TEST

START_TEST(env_adds_a_variable_by_name_or_value_and_replaces)
{
	static const char *const extra[] = {"AWS_SECRET", "NEW=a=b", "PATH=/opt",
					    "UNSET"};
	struct err err;
	char **got = child_environment(ours, extra, 4, &err);

	ck_assert_str_eq(find(got, "AWS_SECRET"), "s");
	ck_assert_str_eq(find(got, "NEW"), "a=b");
	ck_assert_str_eq(find(got, "PATH"), "/opt");
	ck_assert_ptr_null(find(got, "UNSET"));
	child_environment_free(got);
}
END_TEST

static const char *const bad_names[] = {"PERCH_HOME", "PERCH_X=1", "=x", ""};

START_TEST(our_own_variables_are_never_passed_on)
{
	struct err err;

	ck_assert_ptr_null(child_environment(ours, &bad_names[_i], 1, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

static size_t open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	size_t count = 0;

	while (readdir(folder))
		count++;
	(void)closedir(folder);
	return count;
}

/* More by PERCH_TEST_CYCLES, for a person who has the time. */
START_TEST(starting_and_stopping_again_and_again_leaks_nothing)
{
	const char *wanted = getenv("PERCH_TEST_CYCLES");
	const long cycles = wanted ? strtol(wanted, NULL, 10) : 50;
	size_t descriptors = 0, bytes = 0;

	for (long i = 0; i < cycles; i++) {
		buf_clear(&out);
		/* It leaves a helper behind, which ignores what it can. */
		run("(trap '' TERM HUP; exec sleep 1000) >/dev/null 2>&1 & echo up; "
		    "read x; exit 0");
		quit_on_line = true;
		loop_run(loop);
		quit_on_line = false;
		child_stop(child);
		loop_run(loop);
		ck_assert_ptr_null(child);
		ck_assert_int_eq(how.code, 0);
		/* What it killed last is ours to reap; should it live, this waits. */
		while (waitpid(-1, NULL, 0) > 0)
			continue;
		ck_assert_int_eq(errno, ECHILD);
		if (i == 4) { /* by then all that is kept for ever is there */
			descriptors = open_descriptors();
			bytes = mallinfo2().uordblks;
		}
	}
	ck_assert_uint_eq(open_descriptors(), descriptors);
	ck_assert_uint_le(mallinfo2().uordblks, bytes + 4096);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("child");
	TCase *tcase = tcase_create("process");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_exit_status_is_told_with_all_output_before_it);
	tcase_add_test(tcase, a_death_by_signal_is_told_by_its_number);
	tcase_add_test(tcase, its_standard_streams_are_pipes_that_open_again);
	tcase_add_test(tcase, it_inherits_no_other_descriptor);
	tcase_add_test(tcase, it_has_its_three_streams_though_we_lack_ours);
	tcase_add_test(tcase, it_leads_a_session_of_its_own);
	tcase_add_test(tcase, a_command_that_is_not_there_is_named);
	tcase_add_test(tcase, a_file_that_is_no_program_is_named);
	tcase_add_test(tcase, what_it_is_told_arrives_whole_and_in_order);
	tcase_add_test(tcase, a_line_for_one_that_is_gone_is_not_written);
	tcase_add_test(tcase, one_that_closes_its_stdin_and_lives_on_is_ended);
	tcase_add_test(tcase, a_line_that_waits_counts_for_more_than_its_bytes);
	tcase_add_test(tcase, a_line_that_was_cut_off_is_told_apart);
	tcase_add_test(tcase,
		       a_dead_one_that_left_a_helper_at_its_stdout_ends_nevertheless);
	tcase_add_test(tcase, no_descendant_survives_its_agent_whatever_it_tries);
	tcase_add_test(tcase, not_even_one_that_empties_its_environment_survives);
	tcase_add_test(tcase, one_that_heeds_the_end_of_its_stdin_is_not_killed);
	tcase_add_test(tcase, a_stop_and_a_continue_are_told);
	tcase_add_test(tcase, what_it_said_last_is_read_by_one_that_was_busy);
	tcase_add_test(tcase, a_destroyed_one_is_dead);
	tcase_add_test(tcase, starting_and_stopping_again_and_again_leaks_nothing);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("environment");
	tcase_add_test(tcase, only_named_variables_reach_an_agent);
	tcase_add_test(tcase, env_adds_a_variable_by_name_or_value_and_replaces);
	tcase_add_loop_test(tcase, our_own_variables_are_never_passed_on, 0,
			    sizeof(bad_names) / sizeof(*bad_names));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
