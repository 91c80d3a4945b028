#include "observer/fold_part.h"

#include <stdio.h>

#include "observer/acp.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"

static struct row *lifecycle_in(struct step *step, const char *level,
				struct slice channel)
{
	struct row *row = fold_add_in(step, ROW_LIFECYCLE, "life", SLICE_EMPTY, channel);

	if (!slice_eq(channel, buf_slice(&step->fold->state->channel))) {
		/* One event, several lanes: the id says which. */
		(void)buf_lit(&row->id, ":");
		(void)buf_append(&row->id, slice_sub(channel, 0, ROW_SHORT_MAX));
	}
	fold_body_text(row, "level", level);
	return row;
}

static struct row *lifecycle(struct step *step, const char *level, const char *text)
{
	struct row *row =
		lifecycle_in(step, level, buf_slice(&step->fold->state->channel));

	if (text)
		fold_body_text(row, "text", text);
	return row;
}

/* What concerns the whole harness is shown in each of its channels. */
static void lifecycle_everywhere(struct step *step, const char *level, const char *text,
				 struct slice text_raw)
{
	struct slice rest = buf_slice(&step->fold->state->channels), item;
	unsigned count = 0;

	if (step->fold->state->channel.len) {
		struct row *row = lifecycle(step, level, text);

		fold_body_raw(row, text ? "detail" : "text", text_raw);
		return;
	}
	while (acp_next(&rest, &item) && count++ < FACTS_SLOTS_MAX) {
		struct buf channel = {0};
		struct row *row;

		acp_set_text(&channel, acp_get_string(item, "id"), ROW_SHORT_MAX);
		if (channel.len) {
			row = lifecycle_in(step, level, buf_slice(&channel));
			if (text)
				fold_body_text(row, "text", text);
			fold_body_raw(row, text ? "detail" : "text", text_raw);
		}
		buf_finish(&channel);
	}
}

static void set_fact(struct buf *out, struct slice object, const char *key)
{
	acp_set_text(out, acp_get_string(object, key), ROW_PATH_MAX);
}

static void copy_json(struct buf *out, struct slice json, size_t max)
{
	buf_clear(out);
	out->max = max;
	if (json.len <= max)
		(void)buf_append(out, json);
}

static void on_harness_started(struct step *step)
{
	const struct slice payload = step->event->payload;
	const struct slice channels = acp_get(payload, "channels");
	struct agent_facts *agent = step->facts ? step->facts->agent : NULL;

	if (acp_is_array(channels))
		copy_json(&step->fold->state->channels, channels, FRAME_PLAINTEXT_MAX);
	lifecycle_everywhere(step, "info", "Harness started", SLICE_EMPTY);
	if (!agent || !fact_wins(&agent->info_at, step->pos))
		return;
	set_fact(&agent->name, payload, "name");
	set_fact(&agent->host, payload, "host");
	set_fact(&agent->version, payload, "version");
	set_fact(&agent->mode, payload, "mode");
	copy_json(&agent->command, acp_get(payload, "command"), ROW_PATH_MAX * 4);
	copy_json(&agent->channels, channels, FRAME_PLAINTEXT_MAX);
	agent->started_ms = acp_get_int(payload, "startedAtMs", step->t);
	if (fact_wins(&agent->policy_at, step->pos)) {
		set_fact(&agent->control, payload, "control");
		set_fact(&agent->permissions, payload, "permissions");
	}
	if (!agent->name.len) { /* Buzz: agentCommand */
		set_fact(&agent->name, payload, "agentCommand");
	}
}

static void on_harness_stopping(struct step *step)
{
	struct agent_facts *agent = step->facts ? step->facts->agent : NULL;

	lifecycle_everywhere(step, "info", "Harness stopped",
			     acp_get_string(step->event->payload, "reason"));
	if (agent)
		(void)fact_wins(&agent->stopped_at, step->pos);
}

static void on_agent_panic(struct step *step)
{
	struct agent_facts *agent = step->facts ? step->facts->agent : NULL;

	lifecycle_everywhere(step, "error", "The harness crashed",
			     acp_get_string(step->event->payload, "error"));
	if (agent)
		(void)fact_wins(&agent->stopped_at, step->pos);
}

static void set_slot(struct step *step, const char *state, int64_t pid)
{
	const int64_t slot =
		acp_get_int(step->event->payload, "slot", step->event->agent_index);

	if (step->facts && step->facts->agent)
		slot_set(step->facts->agent, slot, step->pos, slice_of(state), pid);
}

static void set_paused(struct step *step, bool paused)
{
	const int64_t slot =
		acp_get_int(step->event->payload, "slot", step->event->agent_index);

	if (step->facts && step->facts->agent)
		slot_pause(step->facts->agent, slot, step->pos, paused);
}

/* A sentence about the lane's process, or "" for: it lives. */
static void set_crash(struct step *step, const char *text, bool is_failure)
{
	struct lane_facts *lane = step->facts ? step->facts->lane : NULL;

	if (!lane || !fact_wins(&lane->crash_at, step->pos))
		return;
	buf_clear(&lane->crash);
	lane->crash.max = ROW_SHORT_MAX;
	(void)buf_append(&lane->crash, slice_of(text));
	lane->crash_is_failure = is_failure;
}

static void on_agent_initialized(struct step *step)
{
	const struct slice payload = step->event->payload;
	const struct slice info = acp_get(payload, "agentInfo");
	const struct slice methods = acp_get(payload, "authMethods");
	struct agent_facts *agent = step->facts ? step->facts->agent : NULL;
	struct row *row = lifecycle(step, "info", NULL);

	(void)buf_lit(&row->body, ",\"text\":\"Agent started");
	if (acp_get_string(info, "name").ptr) {
		(void)buf_lit(&row->body, ": ");
		(void)json_write_raw(&row->body, acp_get_string(info, "name"));
	}
	if (acp_get_string(info, "version").ptr) {
		(void)buf_lit(&row->body, " ");
		(void)json_write_raw(&row->body, acp_get_string(info, "version"));
	}
	(void)buf_lit(&row->body, "\"");
	set_slot(step, "ready", acp_get_int(payload, "pid", -1));
	set_paused(step, false);
	set_crash(step, "", false);
	if (agent && acp_is_array(methods) && fact_wins(&agent->methods_at, step->pos))
		copy_json(&agent->login_methods, methods, ROW_PATH_MAX * 4);
}

static void on_agent_exited(struct step *step)
{
	const struct slice payload = step->event->payload;
	const int64_t code = acp_get_int(payload, "code", -1);
	const int64_t signal = acp_get_int(payload, "signal", -1);
	const struct slice named = acp_get_string(payload, "signal"); /* Buzz */
	const struct slice reason = acp_get_string(payload, "reason");
	const struct slice error = acp_get_string(payload, "error");
	const bool quiet = json_is(reason, SLICE("stopped")) ||
			   (json_is(reason, SLICE("exit")) && code == 0);
	const char *who = acp_is_true(acp_get(payload, "command")) ? "Command" : "Agent";
	char text[128];
	struct row *row;

	if (code >= 0)
		(void)snprintf(text, sizeof(text), "%s exited (%lld)", who,
			       (long long)code);
	else if (signal >= 0)
		(void)snprintf(text, sizeof(text), "%s killed (signal %lld)", who,
			       (long long)signal);
	else if (named.ptr && named.len <= 16)
		(void)snprintf(text, sizeof(text), "%s killed (%.*s)", who,
			       SLICE_ARG(named));
	else
		(void)snprintf(text, sizeof(text), "%s ended", who);
	row = lifecycle(step, quiet ? "info" : "error", text);
	fold_body_raw(row, "detail", error.ptr && !quiet ? error : reason);
	fold_body_raw(row, "stderr", acp_get_string(payload, "stderrTail"));
	set_slot(step, "exited", -1);
	set_paused(step, false);
	set_crash(step, text, !quiet);
}

static void on_agent_respawning(struct step *step)
{
	const int64_t delay = acp_get_int(step->event->payload, "delayMs", 0);
	const int64_t attempt = acp_get_int(step->event->payload, "attempt", 1);
	char text[96];

	(void)snprintf(text, sizeof(text), "Agent starts again in %lld s (attempt %lld)",
		       (long long)((delay + 999) / 1000), (long long)attempt);
	(void)lifecycle(step, "warn", text);
	set_slot(step, "respawning", -1);
}

static void on_circuit_open(struct step *step)
{
	const int64_t cooldown = acp_get_int(step->event->payload, "cooldownMs", 0);
	char text[96];
	struct row *row;

	(void)snprintf(text, sizeof(text),
		       "Agent crashes again and again: pausing %lld s",
		       (long long)(cooldown / 1000));
	row = lifecycle(step, "error", text);
	fold_body_raw(row, "detail", acp_get_string(step->event->payload, "error"));
	set_slot(step, "circuit_open", -1);
	set_crash(step, text, true);
}

static void on_circuit_recovered(struct step *step)
{
	(void)lifecycle(step, "info", "Agent may start again");
	set_slot(step, "starting", -1);
}

void fold_stalled(struct step *step, struct slice raw)
{
	struct lane_facts *lane = step->facts ? step->facts->lane : NULL;

	if (lane && fact_wins(&lane->stalled_at, step->pos))
		acp_set_text(&lane->stalled, raw, ROW_SHORT_MAX);
}

static void on_agent_stalled(struct step *step)
{
	const struct slice reason = acp_get_string(step->event->payload, "reason");
	const bool stopped = json_is(reason, SLICE("stopped"));

	(void)lifecycle(step, "warn",
			stopped ? "Agent process is stopped" : "Agent is silent");
	/* The process is told of in its slot's own channel, and works in any. */
	if (stopped)
		set_paused(step, true);
	else
		fold_stalled(step, reason.ptr ? reason : SLICE("silent"));
}

static void on_agent_resumed(struct step *step)
{
	const struct slice reason = acp_get_string(step->event->payload, "reason");

	(void)lifecycle(step, "info", "Agent goes on");
	if (json_is(reason, SLICE("stopped")))
		set_paused(step, false);
	else
		fold_stalled(step, SLICE_EMPTY);
}

static void on_runtime_lifecycle(struct step *step) /* Buzz */
{
	const struct slice payload = step->event->payload;
	const struct slice state = acp_get_string(payload, "state");
	struct row *row = lifecycle(step, "info", NULL);

	fold_body_raw(row, "text", state.ptr ? state : SLICE("Agent lifecycle"));
	fold_body_raw(row, "detail", acp_get_string(payload, "error"));
}

const struct kind fold_life_kinds[] = {
	{"harness_started", on_harness_started, false},
	{"harness_stopping", on_harness_stopping, false},
	{"agent_panic", on_agent_panic, false},
	{"agent_initialized", on_agent_initialized, false},
	{"agent_exited", on_agent_exited, false},
	{"agent_respawning", on_agent_respawning, false},
	{"circuit_open", on_circuit_open, false},
	{"circuit_recovered", on_circuit_recovered, false},
	{"agent_stalled", on_agent_stalled, false},
	{"agent_resumed", on_agent_resumed, false},
	{"managed_agent_runtime_lifecycle", on_runtime_lifecycle, false},
	{NULL, NULL, false},
};
