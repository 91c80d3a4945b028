#include "up.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cJSON.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/mem.h"
#include "wire/base/slice.h"
#include "wire/host/log.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"

/* How long a child may take before we say that we wait for it, and before `ready` is
 * printed without the agent: its own start-up (npx, a login) may take minutes and shows
 * in the page. */
#define UP_SAY_AFTER_MS 2000
#define UP_AGENT_WAIT_MS 20000
#define UP_START_WAIT_MS 15000
/* A part that ends closes its ready descriptor first: so long its exit is waited for. */
#define UP_END_WAIT_MS 500
/* A harness closes its agent within 5 s and drains for 3 s (design §5, §6). */
#define UP_STOP_WAIT_MS 12000
#define UP_RESTART_MS 500
#define UP_RESTARTS_MAX \
	5 /* in a minute; then something is wrong that a restart won't mend */
#define UP_RESTART_SPAN_MS 60000

enum part { PART_RELAY, PART_OBSERVER, PART_AGENT, PART_COUNT };

static const char *const part_names[PART_COUNT] = {"relay", "observer", "agent"};

/* One child of `perch up`: a perch subcommand with the same executable. */
struct part_state {
	pid_t pid;    /* 0: not running */
	int ready_fd; /* its --ready-fd, read end; -1: said already, or never will */
	bool ready;
	int restarts;
	int64_t first_restart_ms;
	int64_t restart_at_ms; /* 0: none due */
	char answer[1024];     /* what it wrote to its ready descriptor, without LF */
};

struct up {
	/* options */
	bool demo;
	const char *listen, *relay_listen, *name, *cwd, *permissions, *log_level;
	const char *tls, *tls_cert, *tls_key; /* NULL: none */
	struct option_list channels, env, prompts;
	char **command; /* the agent's own argv, or NULL */
	int command_count;
	/* state */
	struct part_state parts[PART_COUNT];
	int signal_fd, lock_fd;
	char self[4096]; /* this executable */
	char relay_address[128], relay_url[160], observer_address[128], page_url[512];
	char tls_address[128]; /* empty: none */
	char tls_url[512], fingerprint[128];
	bool attached;     /* to another `perch up`: here runs only an agent */
	bool agent_failed; /* it ended before it was ready */
	bool stopping;
	bool interrupted_twice;
};

static int64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* argv of one child, NULL-terminated. */
struct arguments {
	const char **values;
	size_t count;
};

static void add(struct arguments *arguments, const char *value)
{
	arguments->values =
		mem_grow(arguments->values, arguments->count + 2, sizeof(char *));
	arguments->values[arguments->count++] = value;
	arguments->values[arguments->count] = NULL;
}

static void add_list(struct arguments *arguments, const char *option,
		     const struct option_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		add(arguments, option);
		add(arguments, list->values[i]);
	}
}

static bool has_agent(const struct up *up)
{
	return up->demo || up->command_count > 0;
}

static void agent_arguments(const struct up *up, struct arguments *arguments)
{
	static const char *channels[] = {"api-server", "web"};
	static const char *prompts[] = {"demo"};
	const struct option_list demo_channels = {channels, 2};
	const struct option_list demo_prompts = {prompts, 1};

	add(arguments, "--relay");
	add(arguments, up->relay_url);
	add(arguments, "--control");
	add(arguments, "full");
	add(arguments, "--stay");
	if (up->permissions) {
		add(arguments, "--permissions");
		add(arguments, up->permissions);
	}
	if (up->cwd) {
		add(arguments, "--cwd");
		add(arguments, up->cwd);
	}
	if (up->name || up->demo) {
		add(arguments, "--name");
		add(arguments, up->name ? up->name : "demo");
	}
	add_list(arguments, "--channel",
		 up->demo && up->channels.count == 0 ? &demo_channels : &up->channels);
	add_list(arguments, "--env", &up->env);
	add_list(arguments, "--prompt",
		 up->demo && up->prompts.count == 0 ? &demo_prompts : &up->prompts);
	add(arguments, "--");
	if (up->demo) {
		add(arguments, up->self);
		add(arguments, "demo-agent");
	}
	for (int i = 0; i < up->command_count; i++)
		add(arguments, up->command[i]);
}

static void tls_arguments(const struct up *up, struct arguments *arguments)
{
	if (*up->tls_address) {
		add(arguments, "--tls");
		add(arguments, up->tls_address);
	}
	if (up->tls_cert) {
		add(arguments, "--tls-cert");
		add(arguments, up->tls_cert);
	}
	if (up->tls_key) {
		add(arguments, "--tls-key");
		add(arguments, up->tls_key);
	}
}

/* In the child: dies with its parent, has a group of its own (so that Ctrl-C reaches only
 * us and the order of stopping is ours), and no signal blocked. */
static void become(const struct up *up, pid_t parent, int ready_fd, const char *argv[])
{
	sigset_t none;

	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* it died before prctl */
		_exit(1);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)fcntl(ready_fd, F_SETFD, 0);
	/* execv takes char *const[] for history's sake and changes nothing. */
	(void)execv(up->self, (char *const *)(uintptr_t)argv);
	_exit(127);
}

static bool part_start(struct up *up, enum part part, struct err *err)
{
	struct part_state *state = &up->parts[part];
	struct arguments arguments = {NULL, 0};
	char ready_text[16];
	int ready[2];
	pid_t parent = getpid();
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return err_errno(err, "cannot make a pipe");
	(void)snprintf(ready_text, sizeof(ready_text), "%d", ready[1]);
	add(&arguments, "perch");
	add(&arguments, part_names[part]);
	add(&arguments, "--log-level");
	add(&arguments, up->log_level);
	add(&arguments, "--ready-fd");
	add(&arguments, ready_text);
	switch (part) {
	case PART_RELAY:
		add(&arguments, "--listen");
		add(&arguments, up->relay_address);
		break;
	case PART_OBSERVER:
		add(&arguments, "--listen");
		add(&arguments, up->observer_address);
		add(&arguments, "--relay");
		add(&arguments, up->relay_url);
		tls_arguments(up, &arguments);
		break;
	case PART_AGENT:
		agent_arguments(up, &arguments);
		break;
	case PART_COUNT:
		break;
	}
	pid = fork();
	if (pid == 0)
		become(up, parent, ready[1], arguments.values);
	free(arguments.values);
	if (pid < 0) {
		(void)close(ready[0]);
		(void)close(ready[1]);
		return err_errno(err, "cannot start the %s", part_names[part]);
	}
	(void)close(ready[1]);
	if (state->ready_fd >= 0)
		(void)close(state->ready_fd);
	state->pid = pid;
	state->ready_fd = ready[0];
	state->ready = false;
	state->restart_at_ms = 0;
	return true;
}

/* The child wrote its ready line, or closed the descriptor without one. */
static void on_ready(struct up *up, enum part part)
{
	struct part_state *state = &up->parts[part];
	ssize_t got = read(state->ready_fd, state->answer, sizeof(state->answer) - 1);

	if (got < 0 && errno == EINTR)
		return;
	(void)close(state->ready_fd);
	state->ready_fd = -1;
	if (got <= 0)
		return;
	state->answer[got] = '\0';
	state->answer[strcspn(state->answer, "\n")] = '\0';
	state->ready = true;
}

static void say_exit(enum part part, int status, const char *what_now)
{
	if (WIFSIGNALED(status))
		log_warn("up", "%s was killed by signal %d%s", part_names[part],
			 WTERMSIG(status), what_now);
	else
		log_warn("up", "%s exited with status %d%s", part_names[part],
			 WEXITSTATUS(status), what_now);
}

/* Relay and observer come back by themselves, a few times a minute. */
static bool may_restart(struct part_state *state)
{
	int64_t now = now_ms();

	if (now - state->first_restart_ms > UP_RESTART_SPAN_MS) {
		state->first_restart_ms = now;
		state->restarts = 0;
	}
	return ++state->restarts <= UP_RESTARTS_MAX;
}

static void on_child_exit(struct up *up, enum part part, int status)
{
	struct part_state *state = &up->parts[part];
	bool was_ready = state->ready;

	state->pid = 0;
	state->ready = false;
	if (up->stopping)
		return;
	if (part == PART_AGENT) {
		up->agent_failed = !was_ready;
		say_exit(part, status,
			 up->attached ? "" : "; the page stays, Ctrl-C ends it");
		return;
	}
	if (!was_ready)
		return; /* never came up: part_wait() says so */
	if (!may_restart(state)) {
		say_exit(part, status, " again and again; stopping");
		up->stopping = true;
		return;
	}
	say_exit(part, status, "; starting it again");
	state->restart_at_ms = now_ms() + UP_RESTART_MS;
}

static void reap(struct up *up)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int part = 0; part < PART_COUNT; part++)
			if (up->parts[part].pid == pid)
				on_child_exit(up, (enum part)part, status);
}

/* Waits for one thing to happen, at most @timeout_ms: a ready line, an exit, a signal. */
static void turn(struct up *up, int timeout_ms)
{
	struct pollfd polls[1 + PART_COUNT];
	enum part parts[1 + PART_COUNT];
	nfds_t count = 1;

	polls[0] = (struct pollfd){.fd = up->signal_fd, .events = POLLIN};
	for (int part = 0; part < PART_COUNT; part++) {
		if (up->parts[part].ready_fd < 0)
			continue;
		parts[count] = (enum part)part;
		polls[count++] =
			(struct pollfd){.fd = up->parts[part].ready_fd, .events = POLLIN};
	}
	if (poll(polls, count, timeout_ms) <= 0)
		return;
	for (nfds_t i = 1; i < count; i++)
		if (polls[i].revents)
			on_ready(up, parts[i]);
	if (polls[0].revents) {
		struct signalfd_siginfo info;

		if (read(up->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
			return;
		if (info.ssi_signo == SIGCHLD) {
			reap(up);
		} else {
			/* Kernel and shell may both tell that the terminal goes. */
			if (info.ssi_signo != SIGHUP)
				up->interrupted_twice = up->stopping;
			up->stopping = true;
		}
	}
}

/* Waits until a part is ready; says so when that takes long. False if it exits, if it
 * closes its ready descriptor without a word and lives on (its agent failed, and is tried
 * again), if we are to stop, or after @wait_ms. */
static bool part_wait(struct up *up, enum part part, int64_t wait_ms)
{
	struct part_state *state = &up->parts[part];
	int64_t start = now_ms(), end = start + wait_ms;
	bool said = false, closed = false;

	while (!state->ready && state->pid != 0 && !up->stopping) {
		int64_t now = now_ms();

		if (state->ready_fd < 0 && !closed) {
			closed = true;
			end = now + UP_END_WAIT_MS;
		}
		if (now >= end)
			return false;
		if (now - start >= UP_SAY_AFTER_MS && !said) {
			said = true;
			(void)fprintf(stderr, "perch: waiting for the %s to start…\n",
				      part_names[part]);
		}
		turn(up,
		     (int)(said || closed ? end - now : start + UP_SAY_AFTER_MS - now));
	}
	return state->ready;
}

static void part_stop(struct up *up, enum part part)
{
	struct part_state *state = &up->parts[part];
	int64_t start = now_ms();
	int64_t deadline = start + UP_STOP_WAIT_MS;
	bool said = false;

	up->stopping = true;
	if (state->pid != 0)
		(void)kill(state->pid, SIGTERM);
	while (state->pid != 0 && now_ms() < deadline && !up->interrupted_twice) {
		if (now_ms() - start >= UP_SAY_AFTER_MS && !said) {
			said = true;
			(void)fprintf(stderr,
				      "perch: waiting for the %s to stop… (Ctrl-C kills "
				      "it)\n",
				      part_names[part]);
		}
		turn(up, (int)((said ? deadline : start + UP_SAY_AFTER_MS) - now_ms()));
	}
	if (state->pid != 0) {
		log_warn("up", "%s did not stop; killing it", part_names[part]);
		(void)kill(state->pid, SIGKILL);
		while (state->pid != 0)
			turn(up, 1000);
	}
	if (state->ready_fd >= 0)
		(void)close(state->ready_fd);
	state->ready_fd = -1;
}

/* What a second `perch up` needs to attach: run/up.json. */
static bool save_state(const struct up *up, const char *path, struct err *err)
{
	cJSON *state = cJSON_CreateObject();
	char *text;
	bool ok;

	(void)cJSON_AddStringToObject(state, "relay", up->relay_url);
	(void)cJSON_AddStringToObject(state, "page", up->page_url);
	(void)cJSON_AddStringToObject(state, "tls", up->tls_url);
	(void)cJSON_AddStringToObject(state, "fingerprint", up->fingerprint);
	text = cJSON_PrintUnformatted(state);
	cJSON_Delete(state);
	if (!text)
		return err_set(err, ERR_SYSTEM, "out of memory");
	ok = paths_write(path, slice_of(text), err);
	cJSON_free(text);
	return ok;
}

static bool load_text(const cJSON *state, const char *name, char *out, size_t size)
{
	const char *text =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(state, name));

	return text && (size_t)snprintf(out, size, "%s", text) < size;
}

static bool load_state(struct up *up, const char *path, struct err *err)
{
	struct buf text;
	cJSON *state = NULL;
	bool ok = false;

	buf_init(&text, 4096);
	if (!paths_read(path, &text, err))
		goto out;
	state = cJSON_ParseWithLength(text.ptr, text.len);
	ok = (load_text(state, "relay", up->relay_url, sizeof(up->relay_url)) &&
	      load_text(state, "page", up->page_url, sizeof(up->page_url))) ||
	     err_set(err, ERR_MALFORMED, "%s is broken", path);
	(void)load_text(state, "tls", up->tls_url, sizeof(up->tls_url));
	(void)load_text(state, "fingerprint", up->fingerprint, sizeof(up->fingerprint));
out:
	cJSON_Delete(state);
	buf_wipe(&text);
	return ok;
}

static void print_ready(const struct up *up)
{
	(void)printf("perch: ready %s\n", up->page_url);
	if (*up->tls_url)
		(void)printf("perch: from a phone or another machine %s\n"
			     "perch: its certificate is SHA-256 %s\n",
			     up->tls_url, up->fingerprint);
	(void)fflush(stdout);
}

static bool start_agent(struct up *up, struct err *err)
{
	if (!part_start(up, PART_AGENT, err))
		return false;
	if (!part_wait(up, PART_AGENT, UP_AGENT_WAIT_MS) && !up->stopping &&
	    up->parts[PART_AGENT].pid != 0)
		(void)fprintf(
			stderr,
			up->parts[PART_AGENT].ready_fd < 0
				? "perch: the agent failed to start (see above); it "
				  "is tried again, the page shows how that goes\n"
				: "perch: the agent is not ready yet; the page "
				  "shows how far it is\n");
	return true;
}

/* What follows the token, if anything does: URL FINGERPRINT. Cuts it off. From now on
 * the observer keeps that port, also over a restart. */
static bool read_tls(struct up *up, char *token, struct err *err)
{
	char *url = strchr(token, ' '), *fingerprint, *colon, host[64];
	uint16_t port;

	if (!url)
		return true;
	*url++ = '\0';
	fingerprint = strchr(url, ' ');
	if (!fingerprint)
		return false;
	*fingerprint++ = '\0';
	colon = strrchr(url, ':');
	if (!colon || !options_host_port(up->tls, host, &port, err))
		return false;
	(void)snprintf(up->tls_address, sizeof(up->tls_address),
		       strchr(host, ':') ? "[%s]:%lu" : "%s:%lu", host,
		       strtoul(colon + 1, NULL, 10));
	(void)snprintf(up->tls_url, sizeof(up->tls_url), "%s#%s", url, token);
	(void)snprintf(up->fingerprint, sizeof(up->fingerprint), "%s", fingerprint);
	return true;
}

/* Relay, observer, agent, in this order: each needs the one before. */
static bool start_all(struct up *up, const char *state_path, struct err *err)
{
	char host[64];
	uint16_t port;
	unsigned long got;
	char *token;

	if (!options_host_port(up->relay_listen, host, &port, err) ||
	    !options_host_port(up->listen, host, &port, err) ||
	    (up->tls && !options_host_port(up->tls, host, &port, err)))
		return false;
	(void)snprintf(up->tls_address, sizeof(up->tls_address), "%s",
		       up->tls ? up->tls : "");
	(void)snprintf(up->relay_address, sizeof(up->relay_address), "%s",
		       up->relay_listen);
	(void)snprintf(up->observer_address, sizeof(up->observer_address), "%s",
		       up->listen);
	if (!part_start(up, PART_RELAY, err))
		return false;
	if (!part_wait(up, PART_RELAY, UP_START_WAIT_MS))
		return up->stopping ||
		       err_set(err, ERR_SYSTEM,
			       "the relay did not start: its reason is above "
			       "(--relay-listen HOST:PORT moves it)");
	if (!options_host_port(up->relay_listen, host, &port, err))
		return false;
	got = strtoul(up->parts[PART_RELAY].answer, NULL, 10);
	/* From now on it keeps the port it has, also over a restart. */
	(void)snprintf(up->relay_address, sizeof(up->relay_address),
		       strchr(host, ':') ? "[%s]:%lu" : "%s:%lu", host, got);
	(void)snprintf(up->relay_url, sizeof(up->relay_url), "ws://%s",
		       up->relay_address);

	if (!part_start(up, PART_OBSERVER, err))
		return false;
	if (!part_wait(up, PART_OBSERVER, UP_START_WAIT_MS))
		return up->stopping ||
		       err_set(err, ERR_SYSTEM,
			       "the observer did not start: its reason is above "
			       "(--listen HOST:PORT moves it)");
	got = strtoul(up->parts[PART_OBSERVER].answer, &token, 10);
	if (got == 0 || *token++ != ' ' || !read_tls(up, token, err))
		return err_set(err, ERR_SYSTEM,
			       "the observer's ready line is not PORT TOKEN");
	if (!options_host_port(up->listen, host, &port, err))
		return false;
	(void)snprintf(up->observer_address, sizeof(up->observer_address),
		       strchr(host, ':') ? "[%s]:%lu" : "%s:%lu", host, got);
	(void)snprintf(up->page_url, sizeof(up->page_url), "http://%s/#%s",
		       up->observer_address, token);
	if (!save_state(up, state_path, err))
		return false;
	if (has_agent(up) && !start_agent(up, err))
		return false;
	if (!up->stopping)
		print_ready(up);
	return true;
}

static void restart_due(struct up *up)
{
	struct err err;

	for (int part = 0; part < PART_COUNT; part++) {
		struct part_state *state = &up->parts[part];

		if (state->restart_at_ms == 0 || now_ms() < state->restart_at_ms)
			continue;
		if (!part_start(up, (enum part)part, &err)) {
			log_error("up", "%s", err.text);
			up->stopping = true;
		}
	}
}

/* Until Ctrl-C. An attached `up` ends with its agent. */
static void supervise(struct up *up)
{
	while (!up->stopping && !(up->attached && up->parts[PART_AGENT].pid == 0)) {
		int64_t next = -1;

		for (int part = 0; part < PART_COUNT; part++)
			if (up->parts[part].restart_at_ms != 0)
				next = UP_RESTART_MS;
		turn(up, (int)next);
		restart_due(up);
	}
}

static bool attach(struct up *up, long holder, const char *state_path, struct err *err)
{
	if (!load_state(up, state_path, err))
		return err_set(
			err, ERR_REFUSED,
			"another `perch up` (pid %ld) is starting here; try again in a "
			"moment",
			holder);
	(void)fprintf(stderr,
		      "perch: attached to the `perch up` that runs here (pid %ld)\n",
		      holder);
	up->attached = true;
	if (has_agent(up) && !start_agent(up, err))
		return false;
	if (up->agent_failed)
		return err_set(err, ERR_REFUSED,
			       "the agent did not start: its reason is above");
	if (!up->stopping)
		print_ready(up);
	supervise(up);
	return true;
}

/* A signal that is blocked is kept for us even where it is ignored: SIGHUP is left to
 * nohup. */
static bool watch_signals(struct up *up, struct err *err)
{
	struct sigaction action;
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGTERM);
	if (sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
		(void)sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_errno(err, "cannot block signals");
	up->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	return up->signal_fd >= 0 || err_errno(err, "cannot watch signals");
}

static bool find_self(struct up *up, struct err *err)
{
	ssize_t len = readlink("/proc/self/exe", up->self, sizeof(up->self) - 1);

	if (len < 0)
		return err_errno(err, "cannot read /proc/self/exe");
	up->self[len] = '\0';
	return true;
}

static bool run(struct up *up, struct err *err)
{
	struct buf lock_path, state_path;
	long holder = 0;
	bool ok = false;

	buf_init(&lock_path, 4096);
	buf_init(&state_path, 4096);
	if (!find_self(up, err) || !watch_signals(up, err) ||
	    !paths_run(SLICE(""), &lock_path, err) ||
	    !paths_make(buf_text(&lock_path), err) ||
	    !paths_run(SLICE("up.lock"), &lock_path, err) ||
	    !paths_run(SLICE("up.json"), &state_path, err))
		goto out;
	up->lock_fd = paths_lock(buf_text(&lock_path), &holder, err);
	if (up->lock_fd < 0) {
		ok = err->code == ERR_REFUSED &&
		     attach(up, holder, buf_text(&state_path), err);
		part_stop(up, PART_AGENT);
		goto out;
	}
	(void)unlink(buf_text(&state_path)); /* of an earlier one that was killed */
	ok = start_all(up, buf_text(&state_path), err);
	if (ok)
		supervise(up);
	part_stop(up, PART_AGENT);
	part_stop(up, PART_OBSERVER);
	part_stop(up, PART_RELAY);
	(void)unlink(buf_text(&state_path));
out:
	buf_finish(&lock_path);
	buf_finish(&state_path);
	return ok;
}

int up_main(int argc, char *argv[])
{
	struct up up = {
		.listen = "127.0.0.1:7777",
		.relay_listen = "127.0.0.1:7447",
		.log_level = "warn",
		.signal_fd = -1,
		.lock_fd = -1,
	};
	const struct option_spec specs[] = {
		{"demo", OPTION_FLAG, &up.demo, 0, 0, NULL,
		 "play a scripted agent; needs no account", true},
		{"listen", OPTION_TEXT, &up.listen, 0, 0, "HOST:PORT",
		 "where the page is served (127.0.0.1:7777)", false},
		{"relay-listen", OPTION_TEXT, &up.relay_listen, 0, 0, "HOST:PORT",
		 "where the relay listens (127.0.0.1:7447)", false},
		{"tls", OPTION_TEXT, &up.tls, 0, 0, "HOST:PORT",
		 "serve the page over TLS too, for a phone or another machine: "
		 "0.0.0.0:7778",
		 false},
		{"tls-cert", OPTION_TEXT, &up.tls_cert, 0, 0, "FILE",
		 "with this certificate, PEM (default: one that is made here)", false},
		{"tls-key", OPTION_TEXT, &up.tls_key, 0, 0, "FILE",
		 "and this key, PEM, without a passphrase", false},
		{"name", OPTION_TEXT, &up.name, 0, 0, "NAME",
		 "the agent's name and key (default: command and folder)", false},
		{"channel", OPTION_LIST, &up.channels, 0, 0, "NAME|UUID",
		 "the agent's channel, repeatable (default: the folder's name)", false},
		{"cwd", OPTION_TEXT, &up.cwd, 0, 0, "DIR",
		 "where the agent works (default: here)", false},
		{"prompt", OPTION_LIST, &up.prompts, 0, 0, "TEXT",
		 "what to ask the agent first, repeatable", true},
		{"permissions", OPTION_TEXT, &up.permissions, 0, 0, "ask|allow|reject",
		 "what to do with permission requests (ask)", false},
		{"env", OPTION_LIST, &up.env, 0, 0, "NAME[=VALUE]",
		 "pass one more variable to the agent, repeatable", false},
		{"log-level", OPTION_TEXT, &up.log_level, 0, 0, "LEVEL",
		 "error, warn, info or debug (warn)", false},
		{0},
	};
	const struct options_spec spec = {
		.command = "perch up",
		.usage = "[OPTIONS] [-- COMMAND [ARGUMENT…]]",
		.summary = "Starts a relay, an observer and, if a command is given, an "
			   "agent on "
			   "this machine, prints the page's address when all are "
			   "healthy, and "
			   "stops them on Ctrl-C. A second `perch up` attaches to the "
			   "first.",
		.example = "  perch up --demo\n"
			   "  perch up --name claude -- claude-agent-acp",
		.options = specs,
		.min_args = 0,
		.max_args = -1,
		.command_after_dashes = true,
	};
	struct options *options = NULL;
	enum log_level level;
	struct err err = {0};
	int status = EXIT_FAILURE;

	for (int part = 0; part < PART_COUNT; part++)
		up.parts[part].ready_fd = -1;
	switch (options_parse(&spec, argc, argv, &options, &up.command,
			      &up.command_count)) {
	case OPTIONS_OK:
		break;
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	}
	if (up.demo && up.command_count > 0)
		(void)err_set(&err, ERR_REFUSED,
			      "--demo plays its own agent; leave out \"-- %s\"",
			      up.command[0]);
	else if (log_parse_level(up.log_level, &level, &err)) {
		log_set_level(level);
		if (run(&up, &err))
			status = EXIT_SUCCESS;
	}
	if (status != EXIT_SUCCESS)
		(void)fprintf(stderr, "perch up: %s\n", err.text);
	if (up.signal_fd >= 0)
		(void)close(up.signal_fd);
	if (up.lock_fd >= 0)
		(void)close(up.lock_fd);
	options_destroy(options);
	return status;
}
