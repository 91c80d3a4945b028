#include "observer/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "observer/acp.h"
#include "wire/host/log.h"
#include "wire/host/paths.h"
#include "wire/nostr/crypto.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip19.h"

#define ANSWER_MAX (64u << 20) /* the broker's largest answer */
#define PATIENCE_S 20          /* with an observer that says nothing; our choice */
#define WORDS_MAX 400 /* bytes of a text that may be shown on one line; our choice */

static int dial(struct err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct buf path = {.max = 4096};
	int fd = -1;

	if (!paths_run(SLICE("observer.sock"), &path, err))
		goto out;
	if (path.len >= sizeof(address.sun_path)) {
		(void)err_set(err, ERR_TOO_LARGE,
			      "the path of the socket is too long: %s", buf_text(&path));
		goto out;
	}
	memcpy(address.sun_path, path.ptr, path.len);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		goto out;
	if (errno == ENOENT || errno == ECONNREFUSED)
		(void)err_set(
			err, ERR_NOT_FOUND,
			"no observer runs here: start `perch up` or `perch observer`");
	else
		(void)err_errno(err, "cannot reach the observer at %s", buf_text(&path));
	if (fd >= 0)
		(void)close(fd);
	fd = -1;
out:
	buf_finish(&path);
	return fd;
}

/* A stopped observer is told from a slow one. */
static void be_patient(int fd)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

static bool send_all(int fd, struct slice bytes, struct err *err)
{
	while (bytes.len) {
		const ssize_t sent = send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return err_errno(err, "the observer hung up");
		bytes = slice_sub(bytes, (size_t)sent, bytes.len);
	}
	return true;
}

/* Appends what comes next; false at the end. */
static bool receive(int fd, struct buf *in, struct err *err)
{
	char piece[65536];
	ssize_t got;

	do {
		got = recv(fd, piece, sizeof(piece), 0);
	} while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		return err_set(err, ERR_SYSTEM,
			       "the observer says nothing for %d s: is it stopped?",
			       PATIENCE_S);
	if (got < 0)
		return err_errno(err, "reading from the observer failed");
	if (!got)
		return err_set(err, ERR_SYSTEM, "the observer went away");
	return buf_append(in, (struct slice){piece, (size_t)got}) ||
	       err_set(err, ERR_TOO_LARGE, "the observer's answer is too large");
}

static bool send_request(int fd, const char *path, struct slice body, struct err *err)
{
	struct buf out = {.max = ANSWER_MAX};
	bool ok;

	(void)buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\n",
			 body.ptr ? "POST" : "GET", path);
	if (body.ptr)
		(void)buf_printf(
			&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
			body.len);
	(void)buf_lit(&out, "Connection: close\r\n\r\n");
	(void)buf_append(&out, body);
	ok = send_all(fd, buf_slice(&out), err);
	buf_finish(&out);
	return ok;
}

/* Reads up to the blank line; what came behind it stays in @in. */
static bool read_head(int fd, struct buf *in, unsigned *status, uint64_t *length,
		      struct err *err)
{
	struct slice head, line, rest;
	size_t end;
	uint64_t code;

	for (;;) {
		end = slice_find_slice(buf_slice(in), SLICE("\r\n\r\n"));
		if (end < in->len)
			break;
		if (!receive(fd, in, err))
			return false;
	}
	head = rest = slice_sub(buf_slice(in), 0, end);
	(void)slice_take_until(&rest, '\n', &line);
	if (!slice_starts(head, SLICE("HTTP/1.1 ")) ||
	    !slice_parse_u64(slice_sub(line, 9, 12), 999, &code))
		return err_set(err, ERR_MALFORMED, "this is no answer of an observer");
	*status = (unsigned)code;
	*length = 0;
	while (slice_take_until(&rest, '\n', &line)) {
		struct slice value = line, name;

		(void)slice_take_until(&value, ':', &name);
		if (name.len == 14 && strncasecmp(name.ptr, "content-length", 14) == 0 &&
		    !slice_parse_u64(slice_trim(value), ANSWER_MAX, length))
			return err_set(err, ERR_MALFORMED,
				       "the observer's answer is broken");
	}
	buf_consume(in, end + 4);
	return true;
}

static bool refused(struct slice body, unsigned status, struct err *err)
{
	struct buf words = {0};

	acp_set_text(&words, acp_get_string(body, "error"), sizeof(err->text) - 1);
	if (words.len)
		(void)err_set(err, ERR_REFUSED, "%s", buf_text(&words));
	else
		(void)err_set(err, ERR_REFUSED, "the observer answered %u", status);
	buf_finish(&words);
	return false;
}

bool client_escape(struct slice text, struct buf *out)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789-._~";

	for (size_t i = 0; i < text.len; i++) {
		if (text.ptr[i] && strchr(plain, text.ptr[i]))
			(void)buf_append_byte(out, text.ptr[i]);
		else
			(void)buf_printf(out, "%%%02X", (unsigned char)text.ptr[i]);
	}
	return buf_ok(out);
}

bool client_ask(const char *path, struct slice body, struct buf *out, struct err *err)
{
	const int fd = dial(err);
	unsigned status = 0;
	uint64_t length = 0;
	bool ok;

	if (fd < 0)
		return false;
	be_patient(fd);
	buf_clear(out);
	out->max = ANSWER_MAX;
	ok = send_request(fd, path, body, err) &&
	     read_head(fd, out, &status, &length, err);
	while (ok && out->len < length)
		ok = receive(fd, out, err);
	(void)close(fd);
	if (ok &&
	    (status < 200 || status > 299 || !json_check(buf_slice(out), NULL, NULL)))
		return refused(buf_slice(out), status, err);
	return ok;
}

/* Takes one whole chunk off the front of @in into @out; false when it is not whole yet.
 */
static bool take_chunk(struct buf *in, struct buf *out)
{
	const size_t line = slice_find_slice(buf_slice(in), SLICE("\r\n"));
	size_t len = 0;

	if (line == in->len || line > 8)
		return false;
	for (size_t i = 0; i < line; i++) {
		const char digit = (char)(in->ptr[i] | 0x20);

		len = len << 4 | (size_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
	}
	if (in->len < line + 2 + len + 2)
		return false;
	(void)buf_append(out, slice_sub(buf_slice(in), line + 2, line + 2 + len));
	buf_consume(in, line + 2 + len + 2);
	return true;
}

/* Nothing came for as long as a line may wait for another like it. */
static bool is_quiet(int fd)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	return poll(&wait, 1, CLIENT_QUIET_MS) == 0;
}

bool client_follow(bool (*on_message)(void *ctx, struct slice message), void *ctx,
		   struct err *err)
{
	struct buf in = {.max = ANSWER_MAX * 2}, text = {.max = ANSWER_MAX};
	const int fd = dial(err);
	unsigned status;
	uint64_t length;
	bool more, ok = false;

	if (fd < 0)
		return false;
	more = send_request(fd, "/api/stream", SLICE_EMPTY, err) &&
	       read_head(fd, &in, &status, &length, err);
	while (more) {
		buf_clear(&text);
		while (more && take_chunk(&in, &text)) {
			struct slice line = slice_trim(buf_slice(&text));

			if (line.len && json_check(line, NULL, NULL) &&
			    !on_message(ctx, line)) {
				ok = true;
				more = false;
			}
			buf_clear(&text);
		}
		if (more && is_quiet(fd) && !on_message(ctx, SLICE_EMPTY)) {
			ok = true;
			more = false;
		}
		more = more && receive(fd, &in, err);
	}
	(void)close(fd);
	buf_finish(&in);
	buf_finish(&text);
	return ok;
}

/* ---- lanes ---- */

struct slice client_agent(struct slice fleet, struct slice id)
{
	struct slice rest = acp_get(fleet, "agents"), agent;

	while (acp_next(&rest, &agent))
		if (slice_eq(acp_get_string(agent, "id"), id))
			return agent;
	return SLICE_EMPTY;
}

struct slice client_lane(struct slice fleet, struct slice id)
{
	struct slice rest = acp_get(fleet, "lanes"), lane;

	while (acp_next(&rest, &lane))
		if (slice_eq(acp_get_string(lane, "id"), id))
			return lane;
	return SLICE_EMPTY;
}

static bool is_this_host(struct slice host)
{
	char name[256] = "";

	return gethostname(name, sizeof(name) - 1) == 0 && json_is(host, slice_of(name));
}

const char *client_agent_words(struct slice agent, char out[CLIENT_AGENT_BYTES])
{
	const struct slice host = acp_get_string(agent, "host");
	const struct slice npub = acp_get_string(agent, "npub");
	struct slice name = acp_get_string(agent, "name");
	char named[LOG_QUOTE_BYTES], hosted[LOG_QUOTE_BYTES];

	if (!name.len)
		name = slice_sub(npub, 0, 12);
	(void)client_words(name, named);
	if (host.len && !is_this_host(host))
		(void)snprintf(out, CLIENT_AGENT_BYTES, "%s@%s", named,
			       client_words(host, hosted));
	else
		(void)snprintf(out, CLIENT_AGENT_BYTES, "%s", named);
	return out;
}

static void lane_of(struct slice lane, struct client_lane *out)
{
	out->agent = acp_get_string(lane, "agent");
	out->channel = acp_get_string(lane, "channel");
	out->channel_name = acp_get_string(lane, "channelName");
	out->id = acp_get_string(lane, "id");
	out->json = lane;
}

bool client_is_agent(struct slice agent, struct slice name)
{
	uint8_t key[KEY_BYTES], want[KEY_BYTES];
	char called[CLIENT_AGENT_BYTES];

	if (json_is(acp_get_string(agent, "name"), name) ||
	    slice_eq(slice_of(client_agent_words(agent, called)), name))
		return true;
	return nip19_parse_pubkey(name, want, NULL) &&
	       hex_decode(acp_get_string(agent, "id"), key, KEY_BYTES) &&
	       memcmp(key, want, KEY_BYTES) == 0;
}

bool client_find_lane(struct slice fleet, struct slice name, struct client_lane *out,
		      struct err *err)
{
	struct slice rest = acp_get(fleet, "lanes"), lane, channel = name, agent;
	unsigned found = 0;
	char quoted[LOG_QUOTE_BYTES];

	(void)slice_take_until(&channel, '/', &agent);
	while (acp_next(&rest, &lane)) {
		struct client_lane at;

		lane_of(lane, &at);
		if (!client_is_agent(client_agent(fleet, at.agent), agent) ||
		    (channel.len && !json_is(at.channel_name, channel) &&
		     !json_is(at.channel, channel)))
			continue;
		*out = at;
		found++;
	}
	if (found == 1)
		return true;
	if (!found)
		return err_set(err, ERR_NOT_FOUND,
			       "no agent or channel is called %s: see `perch ls`",
			       log_quote(name, quoted));
	return err_set(err, ERR_REFUSED,
		       "%s is in %u channels: name one as AGENT/CHANNEL",
		       log_quote(name, quoted), found);
}

const char *client_words(struct slice raw, char out[LOG_QUOTE_BYTES])
{
	struct buf text = {0};
	struct slice rest, line = SLICE_EMPTY;

	acp_set_text(&text, raw, WORDS_MAX);
	rest = buf_slice(&text);
	while (!line.len && slice_take_until(&rest, '\n', &line))
		line = slice_trim(line);
	if (slice_trim(rest).len) {
		struct buf cut = {.max = WORDS_MAX + 8};

		(void)buf_append(&cut, line);
		(void)buf_lit(&cut, " \xe2\x80\xa6");
		(void)log_quote(buf_slice(&cut), out);
		buf_finish(&cut);
	} else {
		(void)log_quote(line, out);
	}
	buf_finish(&text);
	return out;
}

const char *client_lane_words(struct slice lane, char out[LOG_QUOTE_BYTES])
{
	const struct slice name = acp_get_string(lane, "channelName");

	return client_words(
		name.len ? name : slice_sub(acp_get_string(lane, "channel"), 0, 8), out);
}

void client_age(int64_t ms, char out[16])
{
	const int64_t s = ms > 0 ? ms / 1000 : 0;

	if (s < 600)
		(void)snprintf(out, 16, "%d:%02d", (int)(s / 60), (int)(s % 60));
	else if (s < 3600)
		(void)snprintf(out, 16, "%d min", (int)(s / 60));
	else if (s < 86400)
		(void)snprintf(out, 16, "%d h", (int)(s / 3600));
	else
		(void)snprintf(out, 16, "%d d", (int)(s / 86400 % 100000));
}

/* ---- waiting ---- */

struct wait {
	struct slice request_id;
	struct buf *out;
};

static bool look_for_control(void *ctx, struct slice message)
{
	const struct wait *wait = ctx;
	struct slice rest = acp_get(message, "controls"), control;

	while (acp_next(&rest, &control)) {
		const struct slice state = acp_get_string(control, "state");

		if (!slice_eq(acp_get_string(control, "requestId"), wait->request_id) ||
		    (!json_is(state, SLICE("answered")) &&
		     !json_is(state, SLICE("expired"))))
			continue;
		buf_clear(wait->out);
		(void)buf_append(wait->out, control);
		return false;
	}
	return true;
}

bool client_wait(struct slice request_id, struct buf *out, struct err *err)
{
	struct wait wait = {request_id, out};

	out->max = ANSWER_MAX;
	return client_follow(look_for_control, &wait, err);
}

int client_fail(const char *command, const struct err *err)
{
	(void)fprintf(stderr, "perch %s: %s\n", command, err->text);
	return EXIT_FAILURE;
}
