#include "relay/verifier.h"

#include "tests/unit/support/relay_fixture.h"
#include "tests/unit/support/support.h"

/* Signatures checked by two threads: every answer is that of its own event. */

#define ROUNDS 300

static struct fixture fixture;
static struct event *events; /* twice VERIFIER_MAX; the odd ones are forged */

static void setup(void)
{
	size_t i;

	fixture_init(&fixture);
	events = arena_array(&fixture.arena, 2 * VERIFIER_MAX, sizeof(*events));
	for (i = 0; i < 2 * VERIFIER_MAX; i++) {
		events[i] = fixture_event(
			&fixture, (struct recipe){.created_at = NOW + (int64_t)i});
		events[i].sig[i] ^= (uint8_t)(i % 2);
	}
}

static void teardown(void)
{
	fixture_finish(&fixture);
}

static struct verifier *a_verifier(unsigned threads, int64_t wait_ns)
{
	struct verifier *verifier;
	struct err err;

	verifier = verifier_create(threads, wait_ns, &err);
	ck_assert_ptr_nonnull(verifier);
	return verifier;
}

/* Asks for @count of them from @first on, then for the answers. */
static void assert_round(struct verifier *verifier, size_t first, size_t count)
{
	int64_t took_ns;
	bool is_true;
	size_t i;

	for (i = 0; i < count; i++)
		verifier_ask(verifier, i, &events[first + i]);
	for (i = 0; i < count; i++) {
		took_ns = -1;
		is_true = verifier_answer(verifier, i, fixture.crypto, &events[first + i],
					  &took_ns);
		if (is_true != ((first + i) % 2 == 0))
			ck_abort_msg("event %zu of %zu at place %zu", first + i, count,
				     i);
		if (took_ns <= 0)
			ck_abort_msg("it took %ld ns", (long)took_ns);
	}
}

/* Of every number, and at every place another event than before. */
static void assert_rounds(struct verifier *verifier)
{
	size_t i;

	for (i = 0; i < ROUNDS; i++)
		assert_round(verifier, i % (VERIFIER_MAX + 1), 1 + i % VERIFIER_MAX);
	verifier_destroy(verifier);
}

START_TEST(the_loop_alone_answers_all)
{
	assert_rounds(a_verifier(0, VERIFIER_WAIT_NS));
}
END_TEST

START_TEST(with_a_thread_the_answers_are_the_same)
{
	assert_rounds(a_verifier(1, VERIFIER_WAIT_NS));
}
END_TEST

START_TEST(a_loop_that_waits_for_nothing_checks_itself_what_the_thread_has_begun)
{
	assert_rounds(a_verifier(1, 0));
}
END_TEST

START_TEST(it_ends_with_signatures_nobody_wants_any_more)
{
	struct verifier *verifier = a_verifier(1, VERIFIER_WAIT_NS);
	size_t i;

	for (i = 0; i < VERIFIER_MAX; i++)
		verifier_ask(verifier, i, &events[i]);
	verifier_destroy(verifier);
	verifier_destroy(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/verifier");
	TCase *tcase = tcase_create("verifier");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_loop_alone_answers_all);
	tcase_add_test(tcase, with_a_thread_the_answers_are_the_same);
	tcase_add_test(
		tcase,
		a_loop_that_waits_for_nothing_checks_itself_what_the_thread_has_begun);
	tcase_add_test(tcase, it_ends_with_signatures_nobody_wants_any_more);
	tcase_set_timeout(tcase, 100);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
