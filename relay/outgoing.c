#include "relay/outgoing.h"

#include <string.h>

#include <libwebsockets.h>

#include "wire/frame/limits.h"
#include "wire/nostr/event.h"

/* Longest message we send: an event, and the words and subscription id around it. */
#define MESSAGE_MAX (EVENT_MAX_BYTES + 4096)
/* Most bytes written to one reader before the others get their turn; our choice. */
#define TURN_BYTES (512 * 1024)
/* Messages handled before their readers are written to: verifying so many takes about a
 * millisecond. Our choice. */
#define TURN_MESSAGES 16

void outgoing_init(struct outgoing *outgoing)
{
	memset(outgoing, 0, sizeof(*outgoing));
	buf_init(&outgoing->scratch, LWS_PRE + OUTGOING_WRITE_BYTES + MESSAGE_MAX);
}

void outgoing_finish(struct outgoing *outgoing)
{
	buf_finish(&outgoing->scratch);
}

void outgoing_add(struct outgoing *outgoing, struct outgoing_link *link)
{
	if (link->is_in_line)
		return;
	link->is_in_line = true;
	link->next = NULL;
	link->prev = outgoing->last;
	*(link->prev ? &link->prev->next : &outgoing->first) = link;
	outgoing->last = link;
}

void outgoing_remove(struct outgoing *outgoing, struct outgoing_link *link)
{
	if (!link->is_in_line)
		return;
	link->is_in_line = false;
	*(link->prev ? &link->prev->next : &outgoing->first) = link->next;
	*(link->next ? &link->next->prev : &outgoing->last) = link->prev;
}

/* One write of several frames. */
static bool write_some(struct outgoing *outgoing, struct outgoing_link *link,
		       size_t *written)
{
	struct buf *scratch = &outgoing->scratch;
	struct core *core = link->connection->core;
	size_t len;

	buf_clear(scratch);
	(void)buf_extend(scratch, LWS_PRE);
	(void)queue_take_frames(&link->connection->queue, OUTGOING_WRITE_BYTES, scratch);
	len = scratch->len - LWS_PRE;
	if (lws_write(link->wsi, (unsigned char *)scratch->ptr + LWS_PRE, len,
		      LWS_WRITE_HTTP) < 0)
		return false;
	core->counters.sent_bytes += len;
	core->counters.writes++;
	*written += len;
	connection_sent(link->connection);
	return true;
}

bool outgoing_send(struct outgoing *outgoing, struct outgoing_link *link)
{
	struct connection *connection = link->connection;
	size_t written = 0;

	outgoing_remove(outgoing, link);
	while (connection->queue.count > 0 && written < TURN_BYTES) {
		/* lws holds a rest and has asked to be called when it is gone. */
		if (lws_partial_buffered(link->wsi))
			return true;
		if (!write_some(outgoing, link, &written))
			return false;
	}
	if (connection->queue.count > 0 || connection->state == CONNECTION_CLOSING)
		(void)lws_callback_on_writable(link->wsi);
	return true;
}

void outgoing_flush(struct outgoing *outgoing)
{
	outgoing->turn_messages = 0;
	while (outgoing->first)
		(void)outgoing_send(outgoing, outgoing->first);
}

bool outgoing_count_message(struct outgoing *outgoing)
{
	return ++outgoing->turn_messages >= TURN_MESSAGES;
}
