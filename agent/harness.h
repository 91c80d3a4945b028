#ifndef AGENT_HARNESS_H
#define AGENT_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/gate.h"
#include "agent/permissions.h"
#include "agent/setup.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"
#include "wire/nostr/crypto.h"

/* `perch agent`: its agent processes, their channels, and the feed of all. Puts the parts
 * together and decides when it is over. */
struct harness;

struct harness_options {
	const char *name;
	char *const *command; /* argv */
	char *const *environment;
	const char *cwd; /* absolute */
	int slots;       /* agent processes, 1 to 32 */
	const struct harness_channel *channels;
	size_t channel_count;        /* at least 1 */
	const struct slice *prompts; /* plain text, UTF-8; each goes to every channel */
	size_t prompt_count;
	bool stay; /* go on after the prompts */
	enum permission_policy permissions;
	struct permission_rules rules;
	const char *rules_text; /* as given; "": none */
	/* NULL: every channel begins a new session. "last": it goes on with its last one.
	 * Else the id of a session that the first channel goes on with. */
	const char *resume;
	const char *sessions_path; /* remembers the last session of every channel */
	enum control_level control;
	int64_t permission_ms, start_ms, idle_ms, turn_ms, tick_ms;
	const char *relay_url;
	const struct keypair *keypair;
	struct slice auth_tag;
	uint8_t owner[KEY_BYTES];
	const char *epoch_path;
	const char *emit_path;    /* socket for `perch emit`; NULL: none */
	const char *journal_path; /* NULL: none is kept */
	int64_t journal_bytes, journal_s;
	/* Gets "ready\n" once; closed without it when the agent fails before. -1: none */
	int ready_fd;
};

/* Everything in @options is borrowed. Starts the agents; ERR_NOT_FOUND when there is no
 * such command. */
struct harness *harness_create(struct loop *loop, const struct harness_options *options,
			       struct err *err);
void harness_destroy(struct harness *harness);
/* After the loop has ended: 0 when all went well (with prompts and without `stay`: when
 * every turn ended with end_turn), else 1. */
int harness_exit_status(const struct harness *harness);

#endif
