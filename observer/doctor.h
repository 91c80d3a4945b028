#ifndef OBSERVER_DOCTOR_H
#define OBSERVER_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/base/buf.h"
#include "wire/nostr/crypto.h"

/* `perch doctor`: one line for each thing that the way from an agent to its owner needs.
 * Lines come as they are found; every check has a deadline. */

enum doctor_verdict { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_FAILED };

struct doctor {
	bool json;
	const char *relay; /* NULL: not known yet */
	struct buf relay_text;
	struct crypto *crypto;
	struct keypair *owner; /* NULL: there is none that can be read */
	size_t failed, warnings, count;
	struct buf out; /* the JSON so far */
};

/* What was found about @name, and what to do where it is not well. */
void doctor_tell(struct doctor *doctor, enum doctor_verdict verdict, const char *name,
		 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Relay, clock, and whether the agents that we know answer: doctor_relay.c. */
void doctor_check_relay(struct doctor *doctor);

#endif
