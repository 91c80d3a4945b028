#include "probes/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "probes/probe.h"
#include "wire/nostr/message.h"
#include "wire/nostr/nip42.h"

#define IN_MAX (64u << 20)

void client_write(const struct client *client, struct slice bytes)
{
	while (bytes.len > 0) {
		ssize_t written = send(client->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);

		if (written <= 0)
			probe_fail("the relay closed a connection");
		bytes = slice_sub(bytes, (size_t)written, bytes.len);
	}
}

void client_write_frame(struct slice text, struct buf *out)
{
	int shift;

	(void)buf_append_byte(out, (char)0x81);
	if (text.len < 126) {
		(void)buf_append_byte(out, (char)(0x80 | text.len));
	} else {
		(void)buf_append_byte(out, (char)(text.len < 65536 ? 0xfe : 0xff));
		for (shift = text.len < 65536 ? 8 : 56; shift >= 0; shift -= 8)
			(void)buf_append_byte(out, (char)(text.len >> shift & 0xff));
	}
	/* A mask of zeros is a mask: the text goes out as it is. */
	(void)buf_append(out, (struct slice){"\0\0\0", 4});
	(void)buf_append(out, text);
}

void client_say(const struct client *client, struct slice text)
{
	struct buf out;

	buf_init(&out, text.len + 16);
	client_write_frame(text, &out);
	client_write(client, buf_slice(&out));
	buf_finish(&out);
}

/* One whole frame off the front of @bytes. */
static bool take_frame(struct slice *bytes, struct slice *payload, uint8_t *opcode)
{
	const uint8_t *at = (const uint8_t *)bytes->ptr;
	size_t head = 2, len, i;

	if (bytes->len < 2)
		return false;
	*opcode = at[0] & 0x0f;
	len = at[1] & 0x7f;
	if (len >= 126) {
		head = len == 126 ? 4 : 10;
		if (bytes->len < head)
			return false;
		for (len = 0, i = 2; i < head; i++)
			len = len << 8 | at[i];
	}
	if (bytes->len - head < len)
		return false;
	*payload = slice_sub(*bytes, head, head + len);
	*bytes = slice_sub(*bytes, head + len, bytes->len);
	return true;
}

/* A ping may go unanswered: no arm takes as long as the relay waits for that. */
bool client_take(struct slice *bytes, struct slice *text)
{
	uint8_t opcode;

	while (take_frame(bytes, text, &opcode))
		if (opcode == 1)
			return true;
	return false;
}

static void receive(struct client *client, int flags)
{
	ssize_t got;

	if (!buf_reserve(&client->in, 4096))
		probe_fail("a reader's memory is full");
	got = recv(client->fd, client->in.ptr + client->in.len,
		   client->in.cap - client->in.len, flags);
	if (got > 0)
		client->in.len += (size_t)got;
	else if (got == 0 || (errno != EAGAIN && errno != EINTR))
		probe_fail("the relay closed a connection");
}

void client_receive(struct client *client)
{
	receive(client, MSG_DONTWAIT);
}

void client_expect(struct client *client, const char *start, struct buf *out)
{
	struct slice bytes, text;

	for (;;) {
		bytes = buf_slice(&client->in);
		while (client_take(&bytes, &text)) {
			bool found = slice_starts(text, slice_of(start));

			if (found && out)
				(void)buf_append(out, text);
			buf_consume(&client->in, client->in.len - bytes.len);
			bytes = buf_slice(&client->in);
			if (found)
				return;
		}
		receive(client, 0);
	}
}

void client_open(struct client *client, uint16_t port)
{
	static const char request[] =
		"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int on = 1;
	size_t end;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	buf_init(&client->in, IN_MAX);
	client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client->fd < 0 ||
	    connect(client->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		probe_fail("cannot connect: raise the number of open files");
	(void)setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	client_write(client, (struct slice){request, sizeof(request) - 1});
	do {
		receive(client, 0);
		end = slice_find_slice(buf_slice(&client->in), SLICE("\r\n\r\n"));
	} while (end == client->in.len);
	buf_consume(&client->in, end + 4);
}

void client_close(struct client *client)
{
	(void)close(client->fd);
	buf_finish(&client->in);
	keypair_destroy(client->key);
}

void client_authenticate(struct client *client, struct crypto *crypto, const char *url,
			 const struct keypair *key, struct slice auth_tag)
{
	static const uint8_t aux[32];
	struct buf message, event;
	struct arena arena;
	struct relay_message challenge;
	struct err err;

	arena_init(&arena, 4096);
	buf_init(&message, 65536);
	buf_init(&event, 65536);
	client_expect(client, "[\"AUTH\"", &message);
	if (!relay_message_parse(buf_slice(&message), &arena, &challenge, &err) ||
	    !nip42_sign(crypto, key, slice_of(url), challenge.text, auth_tag, time(NULL),
			aux, &event, &err))
		probe_fail(err.text);
	buf_clear(&message);
	(void)message_write_auth(&message, buf_slice(&event));
	client_say(client, buf_slice(&message));
	client_expect(client, "[\"OK\"", NULL);
	buf_finish(&message);
	buf_finish(&event);
	arena_finish(&arena);
}
