#include "agent/emit_server.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <uv.h>

#include "agent/emit_event.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/host/paths.h"

#define BACKLOG 16

struct client {
	struct emit_server *server; /* NULL: being closed */
	uv_poll_t poll;
	struct timer *timer;
	int fd;
};

/* Fills by @per_s; in thousandths. */
struct bucket {
	int64_t tokens, filled_ms;
	int64_t per_s, burst;
};

struct emit_server {
	struct loop *loop;
	uv_poll_t *poll; /* freed by its close */
	int fd;
	char *path, *name;
	emit_on_event *on_event;
	void *ctx;
	struct emit_spans spans;
	struct client *clients[EMIT_CLIENTS_MAX];
	struct bucket messages, bytes;
};

/* --- Paths --- */

static bool path_of(const char *file, struct buf *out, struct err *err)
{
	struct sockaddr_un address;

	if (!paths_run(slice_of(file), out, err))
		return false;
	if (out->len < sizeof(address.sun_path))
		return true;
	return err_set(err, ERR_TOO_LARGE,
		       "a socket's path takes at most %zu bytes: %.80s",
		       sizeof(address.sun_path) - 1, buf_text(out));
}

bool emit_path_of_name(struct slice name, struct buf *out, struct err *err)
{
	char file[NAME_MAX];

	(void)snprintf(file, sizeof(file), "%.*s.emit", SLICE_ARG(name));
	return path_of(file, out, err);
}

bool emit_path_of_pid(long pid, struct buf *out, struct err *err)
{
	char file[64];

	(void)snprintf(file, sizeof(file), "%ld.emit", pid);
	return path_of(file, out, err);
}

/* --- Clients --- */

static struct bucket bucket_full(int64_t per_s, int64_t burst)
{
	return (struct bucket){burst * 1000, loop_now_ms(), per_s, burst};
}

static bool bucket_take(struct bucket *bucket, int64_t cost, int64_t now_ms)
{
	const int64_t passed_ms = now_ms - bucket->filled_ms;

	if (passed_ms > 0) {
		const int64_t most_ms = bucket->burst * 1000 / bucket->per_s + 1;

		bucket->tokens +=
			(passed_ms < most_ms ? passed_ms : most_ms) * bucket->per_s;
		if (bucket->tokens > bucket->burst * 1000)
			bucket->tokens = bucket->burst * 1000;
		bucket->filled_ms = now_ms;
	}
	if (bucket->tokens < cost * 1000)
		return false;
	bucket->tokens -= cost * 1000;
	return true;
}

static void on_client_closed(uv_handle_t *handle)
{
	struct client *client = handle->data;

	(void)close(client->fd);
	free(client);
}

static void client_close(struct client *client)
{
	struct emit_server *server = client->server;

	if (!server)
		return;
	for (size_t i = 0; i < EMIT_CLIENTS_MAX; i++)
		if (server->clients[i] == client)
			server->clients[i] = NULL;
	client->server = NULL;
	timer_destroy(client->timer);
	uv_close((uv_handle_t *)&client->poll, on_client_closed);
}

static void on_client_silent(void *ctx)
{
	client_close(ctx);
}

static void answer(const struct client *client, struct slice text)
{
	(void)send(client->fd, text.ptr, text.len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_message(struct client *client, struct slice message)
{
	struct emit_server *server = client->server;
	const int64_t now_ms = loop_now_ms();
	struct emit_event event;
	struct err err;

	if (!bucket_take(&server->messages, 1, now_ms) ||
	    !bucket_take(&server->bytes, (int64_t)message.len, now_ms)) {
		answer(client, SLICE("too many events: at most 20 a second"));
		return;
	}
	if (emit_event_read(&server->spans, message, &event, &err)) {
		server->on_event(server->ctx, event.kind, buf_slice(&event.payload));
		answer(client, SLICE("ok"));
	} else {
		answer(client, slice_of(err.text));
	}
	emit_event_finish(&event);
}

static void on_client(uv_poll_t *poll, int status, int events)
{
	struct client *client = poll->data;
	char message[EMIT_MESSAGE_MAX + 1]; /* one more shows what was too long */
	ssize_t len;

	(void)events;
	if (status < 0) {
		client_close(client);
		return;
	}
	len = recv(client->fd, message, sizeof(message), MSG_DONTWAIT);
	if (len > 0) {
		timer_start(client->timer, EMIT_CLIENT_MS);
		take_message(client, (struct slice){message, (size_t)len});
	} else if (len == 0 || (errno != EAGAIN && errno != EINTR)) {
		client_close(client);
	}
}

static bool is_own_user(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
	       peer.uid == geteuid();
}

static void add_client(struct emit_server *server, size_t at, int fd)
{
	struct client *client = mem_alloc(sizeof(*client));

	client->server = server;
	client->fd = fd;
	client->poll.data = client;
	client->timer = timer_create_on(server->loop, on_client_silent, client);
	server->clients[at] = client;
	(void)uv_poll_init(server->loop->uv, &client->poll, fd);
	(void)uv_poll_start(&client->poll, UV_READABLE, on_client);
	timer_start(client->timer, EMIT_CLIENT_MS);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct emit_server *server = poll->data;
	size_t at = 0;
	int fd;

	(void)events;
	if (status < 0)
		return;
	fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	while (at < EMIT_CLIENTS_MAX && server->clients[at])
		at++;
	if (at == EMIT_CLIENTS_MAX || !is_own_user(fd)) {
		(void)close(fd);
		return;
	}
	add_client(server, at, fd);
}

/* --- Life --- */

static int listen_at(const char *path, struct err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t mask;
	int fd, bound;

	if (strlen(path) >= sizeof(address.sun_path)) {
		(void)err_set(err, ERR_TOO_LARGE,
			      "a socket's path takes at most %zu bytes: %.80s",
			      sizeof(address.sun_path) - 1, path);
		return -1;
	}
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		(void)err_errno(err, "cannot make a socket");
		return -1;
	}
	(void)unlink(path);
	mask = umask(0177);
	bound = bind(fd, (struct sockaddr *)&address, sizeof(address));
	(void)umask(mask);
	if (bound == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	(void)err_errno(err, "cannot listen at %s", path);
	(void)close(fd);
	return -1;
}

static void on_server_closed(uv_handle_t *handle)
{
	free(handle);
}

struct emit_server *emit_server_create(struct loop *loop, const char *path,
				       const char *name, emit_on_event *on_event,
				       void *ctx, struct err *err)
{
	const int fd = listen_at(path, err);
	struct emit_server *server;

	if (fd < 0)
		return NULL;
	server = mem_alloc(sizeof(*server));
	*server = (struct emit_server){
		.loop = loop,
		.fd = fd,
		.on_event = on_event,
		.ctx = ctx,
		.messages = bucket_full(EMIT_PER_S, EMIT_BURST),
		.bytes = bucket_full(EMIT_BYTES_PER_S, EMIT_BYTES_BURST),
	};
	server->path = mem_dup(slice_of(path));
	emit_spans_init(&server->spans);
	server->poll = mem_alloc(sizeof(*server->poll));
	server->poll->data = server;
	(void)uv_poll_init(loop->uv, server->poll, fd);
	(void)uv_poll_start(server->poll, UV_READABLE, on_connection);
	if (name) {
		(void)unlink(name);
		if (symlink(path, name) == 0)
			server->name = mem_dup(slice_of(name));
		else
			log_warn("emit", "cannot make %s: %s", name, strerror(errno));
	}
	return server;
}

void emit_server_destroy(struct emit_server *server)
{
	if (!server)
		return;
	(void)unlink(server->path);
	if (server->name)
		(void)unlink(server->name);
	for (size_t i = 0; i < EMIT_CLIENTS_MAX; i++)
		if (server->clients[i])
			client_close(server->clients[i]);
	(void)uv_poll_stop(server->poll);
	(void)close(server->fd);
	uv_close((uv_handle_t *)server->poll, on_server_closed);
	emit_spans_finish(&server->spans);
	free(server->path);
	free(server->name);
	free(server);
}
