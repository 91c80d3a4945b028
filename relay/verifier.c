#include "relay/verifier.h"

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <uv.h>

#include "wire/base/mem.h"
#include "wire/host/loop.h"

/* Whose a place is. ASKED becomes TAKEN by whoever is first, who then owns what is in it
 * until it is KNOWN; all else is the loop's. */
enum state {
	STATE_FREE,
	STATE_ASKED,
	STATE_TAKEN,
	STATE_KNOWN,
};

struct place {
	_Atomic(enum state) state;
	uint8_t pubkey[KEY_BYTES];
	uint8_t id[32];
	uint8_t sig[SIG_BYTES];
	bool is_true;
	int64_t took_ns;
	bool is_asked; /* the loop's: not so when the thread still holds an older one */
};

struct verifier {
	struct place places[VERIFIER_MAX];
	struct crypto *crypto; /* the thread's */
	int64_t wait_ns;
	uv_thread_t thread;
	bool started;
	uv_mutex_t mutex;
	uv_cond_t more;
	bool is_woken, is_ending; /* under the mutex */
};

static bool check(struct crypto *crypto, const uint8_t pubkey[KEY_BYTES],
		  const uint8_t id[32], const uint8_t sig[SIG_BYTES], int64_t *took_ns)
{
	const int64_t begin = loop_now_ns();
	const bool is_true =
		schnorr_verify(crypto, pubkey, (struct slice){(const char *)id, 32}, sig);

	*took_ns = loop_now_ns() - begin;
	return is_true;
}

/* Checks one that nobody has taken; false when it is none. */
static bool take(struct place *place, struct crypto *crypto)
{
	enum state asked = STATE_ASKED;

	if (!atomic_compare_exchange_strong(&place->state, &asked, STATE_TAKEN))
		return false;
	place->is_true =
		check(crypto, place->pubkey, place->id, place->sig, &place->took_ns);
	atomic_store(&place->state, STATE_KNOWN);
	return true;
}

static bool take_any(struct verifier *verifier, struct crypto *crypto)
{
	size_t i;

	for (i = 0; i < VERIFIER_MAX; i++)
		if (take(&verifier->places[i], crypto))
			return true;
	return false;
}

static void thread_main(void *arg)
{
	struct verifier *verifier = arg;
	bool is_ending = false;

	while (!is_ending) {
		uv_mutex_lock(&verifier->mutex);
		while (!verifier->is_woken && !verifier->is_ending)
			uv_cond_wait(&verifier->more, &verifier->mutex);
		verifier->is_woken = false;
		is_ending = verifier->is_ending;
		uv_mutex_unlock(&verifier->mutex);
		while (!is_ending && take_any(verifier, verifier->crypto))
			;
	}
}

static void wake(struct verifier *verifier, bool is_ending)
{
	uv_mutex_lock(&verifier->mutex);
	verifier->is_woken = true;
	verifier->is_ending = is_ending;
	uv_cond_signal(&verifier->more);
	uv_mutex_unlock(&verifier->mutex);
}

static bool start(struct verifier *verifier, struct err *err)
{
	verifier->crypto = loop_new_crypto(err);
	if (!verifier->crypto)
		return false;
	if (uv_thread_create(&verifier->thread, thread_main, verifier) != 0)
		return err_set(err, ERR_SYSTEM, "cannot start a thread for signatures");
	verifier->started = true;
	return true;
}

struct verifier *verifier_create(unsigned threads, int64_t wait_ns, struct err *err)
{
	struct verifier *verifier = mem_alloc(sizeof(*verifier));

	verifier->wait_ns = wait_ns;
	(void)uv_mutex_init(&verifier->mutex);
	(void)uv_cond_init(&verifier->more);
	if (threads == 0 || start(verifier, err))
		return verifier;
	verifier_destroy(verifier);
	return NULL;
}

void verifier_destroy(struct verifier *verifier)
{
	if (!verifier)
		return;
	if (verifier->started) {
		wake(verifier, true);
		(void)uv_thread_join(&verifier->thread);
	}
	crypto_destroy(verifier->crypto);
	uv_cond_destroy(&verifier->more);
	uv_mutex_destroy(&verifier->mutex);
	free(verifier);
}

void verifier_ask(struct verifier *verifier, size_t i, const struct event *event)
{
	struct place *place = &verifier->places[i];

	assert(i < VERIFIER_MAX);
	place->is_asked = atomic_load(&place->state) != STATE_TAKEN;
	if (!place->is_asked)
		return;
	memcpy(place->pubkey, event->pubkey, sizeof(place->pubkey));
	memcpy(place->id, event->id, sizeof(place->id));
	memcpy(place->sig, event->sig, sizeof(place->sig));
	atomic_store(&place->state, STATE_ASKED);
	/* A single one is checked by the loop before the thread is awake. */
	if (verifier->started && i > 0)
		wake(verifier, false);
}

/* Is it known by now? The loop takes it, or others while the thread has it. */
static bool is_known(struct verifier *verifier, struct place *place,
		     struct crypto *crypto)
{
	int64_t until = 0;

	for (;;) {
		if (take(place, crypto) || atomic_load(&place->state) == STATE_KNOWN)
			return true;
		if (take_any(verifier, crypto))
			continue;
		if (until == 0)
			until = loop_now_ns() + verifier->wait_ns;
		else if (loop_now_ns() > until)
			return false;
		/* The thread may stand behind us on a machine that is busy. */
		(void)sched_yield();
	}
}

bool verifier_answer(struct verifier *verifier, size_t i, struct crypto *crypto,
		     const struct event *event, int64_t *took_ns)
{
	struct place *place = &verifier->places[i];

	assert(i < VERIFIER_MAX);
	/* What it is of no use to wait for stays the thread's, and nobody looks at it. */
	if (!place->is_asked || !is_known(verifier, place, crypto))
		return check(crypto, event->pubkey, event->id, event->sig, took_ns);
	*took_ns = place->took_ns;
	return place->is_true;
}
