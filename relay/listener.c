#include "relay/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uv.h>

#include "wire/base/mem.h"
#include "wire/host/port.h"

struct listener {
	uv_poll_t poll; /* first: uv_close() gives it back */
	struct timer *timer;
	int fd;
	int reserve; /* -1 when it could not be had */
	uint16_t port;
	void (*on_socket)(void *ctx, int fd);
	void (*on_starved)(void *ctx);
	void *ctx;
};

static int open_reserve(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int take_one(const struct listener *listener)
{
	return accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

enum turn {
	TURNED_AWAY,
	NOBODY_WAITS, /* accept() wants a descriptor before it looks whether anybody does
		       */
	STARVED,      /* the descriptor in reserve was not to be had either */
};

/* Closes the next in line with the descriptor in reserve. */
static enum turn turn_away(struct listener *listener)
{
	enum turn turn;
	int fd;

	if (listener->reserve < 0)
		listener->reserve = open_reserve();
	if (listener->reserve < 0)
		return STARVED;
	(void)close(listener->reserve);
	fd = take_one(listener);
	turn = fd >= 0 ? TURNED_AWAY : errno == EAGAIN ? NOBODY_WAITS : STARVED;
	if (fd >= 0)
		(void)close(fd);
	listener->reserve = open_reserve();
	return turn;
}

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_pause_over(void *ctx)
{
	struct listener *listener = ctx;

	(void)uv_poll_start(&listener->poll, UV_READABLE, on_readable);
}

static void pause_a_while(struct listener *listener)
{
	(void)uv_poll_stop(&listener->poll);
	timer_start(listener->timer, LISTENER_PAUSE_MS);
}

/* Whose fault it is that nothing can be taken; all else is that one client's, who has
 * gone already (accept(2)). */
static bool is_starved(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void hand_on(const struct listener *listener, int fd)
{
	int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	listener->on_socket(listener->ctx, fd);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct listener *listener = (struct listener *)poll;
	enum turn turn;
	int i, fd;

	(void)status;
	(void)events;
	for (i = 0; i < LISTENER_BURST; i++) {
		fd = take_one(listener);
		if (fd >= 0) {
			hand_on(listener, fd);
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (!is_starved(errno))
			continue;
		turn = turn_away(listener);
		if (turn == NOBODY_WAITS)
			return;
		listener->on_starved(listener->ctx);
		if (turn == STARVED) {
			pause_a_while(listener);
			return;
		}
	}
}

static bool read_address(const char *host, uint16_t port, struct sockaddr_storage *out)
{
	return uv_ip4_addr(host, port, (struct sockaddr_in *)out) == 0 ||
	       uv_ip6_addr(host, port, (struct sockaddr_in6 *)out) == 0;
}

/* A socket that listens; -1 with errno. Its port may be in use by connections of a
 * relay that was killed. */
static int listen_on(const struct sockaddr_storage *address)
{
	socklen_t len = address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						       : sizeof(struct sockaddr_in);
	int on = 1;
	int fd =
		socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
	    bind(fd, (const struct sockaddr *)address, len) == 0 &&
	    listen(fd, SOMAXCONN) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

static uint16_t bound_port(int fd)
{
	struct sockaddr_in6 address; /* an IPv4 address has its port at the same place */
	socklen_t len = sizeof(address);

	memset(&address, 0, sizeof(address));
	(void)getsockname(fd, (struct sockaddr *)&address, &len);
	return ntohs(address.sin6_port);
}

struct listener *listener_create(struct loop *loop, const char *host, uint16_t port,
				 const char *option, void (*on_socket)(void *ctx, int fd),
				 void (*on_starved)(void *ctx), void *ctx,
				 struct err *err)
{
	struct sockaddr_storage address = {0};
	struct listener *listener;
	int fd = -1;

	if (!read_address(host, port, &address) || (fd = listen_on(&address)) < 0) {
		port_explain(host, port, option, err);
		return NULL;
	}
	listener = mem_alloc(sizeof(*listener));
	if (uv_poll_init(loop->uv, &listener->poll, fd) != 0) {
		free(listener);
		(void)close(fd);
		(void)err_set(err, ERR_SYSTEM, "cannot watch the port %u", port);
		return NULL;
	}
	listener->fd = fd;
	listener->reserve = open_reserve();
	listener->port = bound_port(fd);
	listener->on_socket = on_socket;
	listener->on_starved = on_starved;
	listener->ctx = ctx;
	listener->timer = timer_create_on(loop, on_pause_over, listener);
	(void)uv_poll_start(&listener->poll, UV_READABLE, on_readable);
	return listener;
}

uint16_t listener_port(const struct listener *listener)
{
	return listener->port;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

void listener_destroy(struct listener *listener)
{
	if (!listener)
		return;
	timer_destroy(listener->timer);
	(void)uv_poll_stop(&listener->poll);
	uv_close((uv_handle_t *)&listener->poll, on_closed);
	(void)close(listener->fd);
	if (listener->reserve >= 0)
		(void)close(listener->reserve);
}
