#ifndef AGENT_SETUP_H
#define AGENT_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/join.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/frame/uuid.h"
#include "wire/host/options.h"
#include "wire/nostr/crypto.h"

/* Who a harness is: its name and folder, its channels, its key with the owner's
 * attestation, and the lock that makes it the only one of that key. The same for every
 * command that feeds an owner (agent, proxy, run). */

#define SETUP_RELAY_URL "ws://127.0.0.1:7447"
#define CHANNELS_MAX 32      /* our choice */
#define CHANNEL_NAME_MAX 200 /* bytes; our choice */

struct harness_channel {
	const char *name;
	struct uuid uuid;
};

/* What the command line says of it; borrowed. */
struct setup_options {
	const char *name;    /* NULL: of command and folder */
	const char *cwd;     /* any path */
	const char *command; /* argv[0] of what is run */
	const struct option_list *channels;
	const char *relay;  /* NULL: the invitation's, that of the key, or our own */
	const char *invite; /* NULL: PERCH_INVITE, if that is set; see join_read() */
};

/* What it comes to; all own memory, but the channels' names. */
struct setup {
	char *cwd, *name, *relay;
	struct harness_channel *channels;
	size_t channel_count; /* at least 1 */
	struct keypair *keypair;
	struct buf auth_tag, epoch_path, sessions_path; /* files of this agent key */
	struct buf journal_path; /* of the key's journal, in a folder that is there */
	uint8_t owner[KEY_BYTES];
	int lock_fd;
	struct join join;
};

void setup_init(struct setup *setup);
/* After any failure too. The lock goes with it. */
void setup_finish(struct setup *setup);

/* Name, folder, channels, invitation. What fails here is how we were called. */
bool setup_names(struct setup *setup, const struct setup_options *options,
		 struct crypto *crypto, struct err *err);

/* What to do when a harness of that name runs already. */
enum setup_taken {
	SETUP_REFUSE, /* ERR_REFUSED, with its pid */
	/* Take the first free one of NAME-2, NAME-3… An editor starts as many agents as
	 * it likes, and nobody is there to choose names. */
	SETUP_NEXT_NAME,
};

/**
 * setup_identity - lock the name, load the key, or make it, and its attestation
 * Where the owner's key is on this machine a missing attestation is signed on the spot;
 * else ERR_NOT_FOUND says what to run where. An invitation brings key, attestation and
 * relay, and never takes another name.
 */
bool setup_identity(struct setup *setup, enum setup_taken taken, struct crypto *crypto,
		    struct err *err);

#endif
