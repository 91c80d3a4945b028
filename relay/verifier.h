#ifndef RELAY_VERIFIER_H
#define RELAY_VERIFIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/nostr/event.h"

/* Signatures of several events, checked by two threads. The loop asks for each as it is
 * read and wants the answers afterwards, in order; meanwhile a thread of its own has
 * begun with them, and the loop does what that has not taken. Neither waits for the
 * other for long: one that takes too long is checked twice. Measured by probes/fanout: a
 * signature is three quarters of what an event costs. */
struct verifier;

/* Most that are asked for at one time: more gains little and holds up the first. */
#define VERIFIER_MAX 16
/* So long the loop waits for a signature that the thread has begun, about two of them;
 * our choice. */
#define VERIFIER_WAIT_NS 100000

/* @threads: 1, or 0 for tests that want no chance. @wait_ns: VERIFIER_WAIT_NS. */
struct verifier *verifier_create(unsigned threads, int64_t wait_ns, struct err *err);
/* NULL is fine. */
void verifier_destroy(struct verifier *verifier);

/* Have the signature of @event checked, whose id is true, at place @i below VERIFIER_MAX.
 * What was asked for there before must have been answered. Takes a copy of what it needs.
 */
void verifier_ask(struct verifier *verifier, size_t i, const struct event *event);
/**
 * verifier_answer - is the signature asked for at place @i true?
 * @crypto: the loop's
 * @event: the same as asked for
 * @took_ns: what it took, whoever did it
 */
bool verifier_answer(struct verifier *verifier, size_t i, struct crypto *crypto,
		     const struct event *event, int64_t *took_ns);

#endif
