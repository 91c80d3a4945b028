/* A whole harness, in this process, started and ended again and again. Its agent is a
 * shell script, its relay is not there. */
#include "agent/harness.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/support.h"
#include "wire/frame/limits.h"

/* Answers initialize; says by a file that session/new has come; leaves a helper behind
 * that ignores what it can. */
#define AGENT \
	"(trap '' TERM HUP; exec sleep 1000) >/dev/null 2>&1 & read x; " \
	"echo '{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":1}}'; " \
	"read x; : >\"$0\"; exec cat >/dev/null"

static char folder[] = "/tmp/perch-harness-XXXXXX";
static char seen[PATH_MAX], epoch[PATH_MAX], journal[PATH_MAX], sessions[PATH_MAX],
	emit[PATH_MAX];
static struct loop *loop;

static void look(void *ctx)
{
	struct timer **timer = ctx;

	if (access(seen, F_OK) == 0)
		loop_quit(loop);
	else
		timer_start(*timer, 1);
}

static void path(char out[PATH_MAX], const char *name)
{
	(void)snprintf(out, PATH_MAX, "%s/%s", folder, name);
}

static void one_cycle(const struct keypair *keypair)
{
	char *const environment[] = {(char[]){"PATH=/usr/bin:/bin"}, NULL};
	char *command[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){AGENT}, seen, NULL};
	const struct harness_channel channel = {"main",
						{"762b8607-fe35-5415-90eb-f9d2929150c9"}};
	struct harness_options options = {
		.name = "tested",
		.command = command,
		.environment = environment,
		.cwd = folder,
		.slots = 1,
		.channels = &channel,
		.channel_count = 1,
		.rules_text = "",
		.sessions_path = sessions,
		.permission_ms = 300000,
		.start_ms = 180000,
		.idle_ms = 900000,
		.turn_ms = 7200000,
		.tick_ms = 1000,
		.relay_url = "ws://127.0.0.1:9",
		.keypair = keypair,
		.auth_tag = SLICE("[]"),
		.epoch_path = epoch,
		.emit_path = emit,
		.journal_path = journal,
		.journal_bytes = AGENT_JOURNAL_MAX,
		.journal_s = 86400,
		.ready_fd = -1,
	};
	struct timer *timer = timer_create_on(loop, look, &timer);
	struct harness *harness;
	struct err err;

	memcpy(options.owner, keypair_public(keypair), sizeof(options.owner));
	harness = harness_create(loop, &options, &err);
	ck_assert_msg(harness, "%s", err.text);
	timer_start(timer, 1);
	loop_run(loop);
	harness_destroy(harness);
	timer_destroy(timer);
	ck_assert_int_eq(unlink(seen), 0);
}

static size_t open_descriptors(void)
{
	DIR *list = opendir("/proc/self/fd");
	size_t count = 0;

	while (readdir(list))
		count++;
	(void)closedir(list);
	return count;
}

/* More by PERCH_TEST_CYCLES, for a person who has the time. */
START_TEST(a_harness_that_comes_and_goes_leaks_nothing)
{
	const char *wanted = getenv("PERCH_TEST_CYCLES");
	const long cycles = wanted ? strtol(wanted, NULL, 10) : 30;
	const uint8_t secret[KEY_BYTES] = {[31] = 1};
	size_t descriptors = 0, bytes = 0;
	struct keypair *keypair;
	struct err err;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	path(seen, "seen");
	path(epoch, "epoch");
	path(journal, "journal.db");
	path(sessions, "sessions");
	path(emit, "emit");
	/* One loop for all: of its own making libwebsockets leaves some bytes behind. */
	loop = loop_create(&err);
	ck_assert_msg(loop, "%s", err.text);
	ck_assert(keypair_create(loop->crypto, secret, &keypair, &err));
	for (long i = 0; i < cycles; i++) {
		one_cycle(keypair);
		/* What it killed last is ours to reap; should it live, this waits. */
		while (waitpid(-1, NULL, 0) > 0)
			continue;
		ck_assert_int_eq(errno, ECHILD);
		if (i == 9) { /* by then all that is kept for ever is there */
			descriptors = open_descriptors();
			bytes = mallinfo2().uordblks;
		}
	}
	ck_assert_uint_eq(open_descriptors(), descriptors);
	ck_assert_uint_le(mallinfo2().uordblks, bytes + 65536);
	keypair_destroy(keypair);
	loop_destroy(loop);
	test_remove_folder(folder);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("harness");
	TCase *tcase = tcase_create("life");

	tcase_set_timeout(tcase, 600);
	tcase_add_test(tcase, a_harness_that_comes_and_goes_leaks_nothing);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
