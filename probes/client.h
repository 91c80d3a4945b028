#ifndef PROBES_CLIENT_H
#define PROBES_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* A Nostr client that costs next to nothing, so that what is measured is the relay:
 * blocking, without a library, masks of zeros. Every failure ends the probe. */
struct client {
	int fd;
	struct buf in;
	struct keypair *key; /* NULL if it has none */
	size_t index;        /* the probe's */
};

/* Connects to 127.0.0.1 and upgrades. */
void client_open(struct client *client, uint16_t port);
void client_close(struct client *client);
/* Answers the challenge by @key; @auth_tag: NIP-OA's, or empty. */
void client_authenticate(struct client *client, struct crypto *crypto, const char *url,
			 const struct keypair *key, struct slice auth_tag);
void client_say(const struct client *client, struct slice text);
/* Appends @text as one frame, to be written with others. */
void client_write_frame(struct slice text, struct buf *out);
void client_write(const struct client *client, struct slice bytes);
/* Waits for a message that begins so and forgets those before it; @out (may be NULL) gets
 * its text. */
void client_expect(struct client *client, const char *start, struct buf *out);
/* Reads what has come, without waiting. */
void client_receive(struct client *client);
/* Takes one whole message off the front of @bytes. */
bool client_take(struct slice *bytes, struct slice *text);

#endif
