#include "wire/host/port.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/base/slice.h"
#include "wire/host/log.h"

#define TCP_LISTEN_STATE 0x0a /* Linux, include/net/tcp_states.h */

bool host_is_loopback(const char *host)
{
	struct in_addr v4;

	if (strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
	    strcmp(host, "[::1]") == 0)
		return true;
	return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

void host_outward(char out[HOST_TEXT_MAX])
{
	/* RFC 5737: nobody's address. Connecting UDP only chooses the way there. */
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
	socklen_t len = sizeof(address);
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && inet_pton(AF_INET, "192.0.2.1", &address.sin_addr) == 1 &&
		  connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		  getsockname(fd, (struct sockaddr *)&address, &len) == 0;

	if (!ok || !inet_ntop(AF_INET, &address.sin_addr, out, HOST_TEXT_MAX))
		(void)snprintf(out, HOST_TEXT_MAX, "127.0.0.1");
	if (fd >= 0)
		(void)close(fd);
}

/* Field @n of a line of /proc/net/tcp: fields are divided by spaces, the first is 0. */
static const char *field(const char *line, int n)
{
	for (;;) {
		line += strspn(line, " ");
		if (n-- == 0)
			return line;
		line += strcspn(line, " ");
	}
}

/* The inode of the socket that listens on @port, from one table of /proc/net; 0 for none.
 * The fields are those of proc(5): local address and port in hex, state, ..., inode. */
static uint64_t listener_in(const char *table, uint16_t port)
{
	FILE *file = fopen(table, "re");
	uint64_t found = 0;
	char line[512];

	if (!file)
		return 0;
	while (!found && fgets(line, sizeof(line), file)) {
		const char *colon = strchr(field(line, 1), ':');

		if (colon && strtoul(colon + 1, NULL, 16) == port &&
		    strtoul(field(line, 3), NULL, 16) == TCP_LISTEN_STATE)
			found = strtoull(field(line, 9), NULL, 10);
	}
	(void)fclose(file);
	return found;
}

/* Does process @pid (its name in /proc) have that socket open? */
static bool has_socket(const char *pid, uint64_t inode)
{
	char path[300], want[64], link[64];
	struct dirent *entry;
	bool found = false;
	DIR *folder;

	(void)snprintf(want, sizeof(want), "socket:[%" PRIu64 "]", inode);
	(void)snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	folder = opendir(path);
	if (!folder)
		return false; /* another user's */
	while (!found && (entry = readdir(folder))) {
		ssize_t len =
			readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1);

		link[len > 0 ? len : 0] = '\0';
		found = strcmp(link, want) == 0;
	}
	(void)closedir(folder);
	return found;
}

/* The first words of a command line, for one line of text. */
static void read_command(const char *pid, char *out, size_t size)
{
	char path[300], raw[64], quoted[LOG_QUOTE_BYTES];
	size_t len, i;
	FILE *file;

	out[0] = '\0';
	(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
	file = fopen(path, "re");
	if (!file)
		return;
	len = fread(raw, 1, sizeof(raw), file);
	(void)fclose(file);
	for (i = 0; i < len; i++)
		if (raw[i] == '\0')
			raw[i] = ' ';
	(void)snprintf(out, size, "%.64s",
		       log_quote(slice_trim((struct slice){raw, len}), quoted));
}

static bool find_holder(uint16_t port, char *out, size_t size)
{
	uint64_t inode = listener_in("/proc/net/tcp", port);
	struct dirent *entry;
	char command[80];
	bool found = false;
	DIR *proc;

	if (inode == 0)
		inode = listener_in("/proc/net/tcp6", port);
	proc = inode == 0 ? NULL : opendir("/proc");
	if (!proc)
		return false;
	while (!found && (entry = readdir(proc))) {
		uint64_t pid;

		if (!slice_parse_u64(slice_of(entry->d_name), UINT32_MAX, &pid) ||
		    !has_socket(entry->d_name, inode))
			continue;
		read_command(entry->d_name, command, sizeof(command));
		(void)snprintf(out, size, "process %" PRIu64 " (%s)", pid, command);
		found = true;
	}
	(void)closedir(proc);
	return found;
}

/* The errno of binding there; 0 when it works. */
static int try_bind(const char *host, uint16_t port)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	bool is_v6 = inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;
	int on = 1;
	int error = 0;
	int fd;

	if (!is_v6 && inet_pton(AF_INET, host, &v4.sin_addr) != 1)
		return EADDRNOTAVAIL;
	fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if ((is_v6 ? bind(fd, (struct sockaddr *)&v6, sizeof(v6))
		   : bind(fd, (struct sockaddr *)&v4, sizeof(v4))) < 0)
		error = errno;
	(void)close(fd);
	return error;
}

void port_explain(const char *host, uint16_t port, const char *option, struct err *err)
{
	char holder[128];
	int error = try_bind(host, port);

	if (error != EADDRINUSE) {
		(void)err_set(err, ERR_SYSTEM, "cannot listen on %s port %u: %s", host,
			      port, error ? strerror(error) : "there is no reason");
		return;
	}
	if (!find_holder(port, holder, sizeof(holder)))
		(void)snprintf(holder, sizeof(holder), "another process");
	(void)err_set(err, ERR_SYSTEM,
		      "port %u is taken by %s: stop it, or choose another port with "
		      "%s HOST:PORT",
		      port, holder, option);
}
