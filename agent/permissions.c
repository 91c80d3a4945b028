#include "agent/permissions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/lookup.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* Decided nonces that are remembered, so that a repeat is told apart from a stranger. */
#define PERMISSIONS_DECIDED 1024
/* Longest option id, bytes; our choice. */
#define PERMISSION_OPTION_BYTES 4096

void permissions_init(struct permissions *permissions)
{
	*permissions = (struct permissions){0};
	permissions->decided =
		mem_array(PERMISSIONS_DECIDED, sizeof(*permissions->decided));
}

void permissions_finish(struct permissions *permissions)
{
	struct permission *permission;

	while ((permission = permissions->first)) {
		permissions_remove(permissions, permission);
		permission_destroy(permission);
	}
	free(permissions->decided);
	permissions->decided = NULL;
}

static const char *const policy_names[] = {
	[PERMISSION_ASK] = "ask",
	[PERMISSION_ALLOW] = "allow",
	[PERMISSION_REJECT] = "reject",
};

bool permission_parse_policy(const char *text, enum permission_policy *out,
			     struct err *err)
{
	for (size_t i = 0; i < sizeof(policy_names) / sizeof(*policy_names); i++) {
		if (strcmp(text, policy_names[i]) == 0) {
			*out = (enum permission_policy)i;
			return true;
		}
	}
	return err_set(err, ERR_MALFORMED,
		       "--permissions is \"%.40s\", want ask, allow or reject", text);
}

/* --- Rules by kind --- */

static const char *const tool_kinds[TOOL_KINDS] = {
	[TOOL_READ] = "read",
	[TOOL_EDIT] = "edit",
	[TOOL_DELETE] = "delete",
	[TOOL_MOVE] = "move",
	[TOOL_SEARCH] = "search",
	[TOOL_EXECUTE] = "execute",
	[TOOL_THINK] = "think",
	[TOOL_FETCH] = "fetch",
	[TOOL_SWITCH_MODE] = "switch_mode",
	[TOOL_OTHER] = "other",
};

enum tool_kind tool_kind_parse(struct slice name)
{
	for (int i = 0; i < TOOL_KINDS; i++) {
		if (name.ptr && json_is(name, slice_of(tool_kinds[i])))
			return (enum tool_kind)i;
	}
	return TOOL_OTHER;
}

static char marks[TOOL_KINDS]; /* their addresses are all */

void *tool_kind_mark(enum tool_kind kind)
{
	return &marks[kind];
}

enum tool_kind tool_kind_of(const void *mark)
{
	return mark ? (enum tool_kind)((const char *)mark - marks) : TOOL_OTHER;
}

static struct slice trim(struct slice text)
{
	while (text.len && (text.ptr[0] == ' ' || text.ptr[0] == '\t'))
		text = slice_sub(text, 1, text.len);
	while (text.len &&
	       (text.ptr[text.len - 1] == ' ' || text.ptr[text.len - 1] == '\t'))
		text = slice_sub(text, 0, text.len - 1);
	return text;
}

static bool find_policy(struct slice word, enum permission_policy *out)
{
	for (size_t i = 0; i < sizeof(policy_names) / sizeof(*policy_names); i++) {
		if (slice_eq(word, slice_of(policy_names[i]))) {
			*out = (enum permission_policy)i;
			return true;
		}
	}
	return false;
}

/* "allow read,search" */
static bool parse_rule(struct slice rule, bool named[TOOL_KINDS],
		       struct permission_rules *out, struct err *err)
{
	struct slice word = slice_sub(rule, 0, slice_find(rule, ' '));
	struct slice kinds = trim(slice_sub(rule, word.len, rule.len)), kind;
	enum permission_policy policy;

	if (!find_policy(word, &policy) || kinds.len == 0)
		return err_set(err, ERR_MALFORMED,
			       "--permission-rules: \"%.*s\", want ask, allow or reject "
			       "and kinds of tools",
			       (int)(rule.len < 40 ? rule.len : 40), rule.ptr);
	while (slice_take_until(&kinds, ',', &kind)) {
		int at = 0;

		kind = trim(kind);
		while (at < TOOL_KINDS && !slice_eq(kind, slice_of(tool_kinds[at])))
			at++;
		if (at == TOOL_KINDS)
			return err_set(err, ERR_MALFORMED,
				       "--permission-rules: no tool kind \"%.*s\"; there "
				       "are read, edit, delete, move, search, execute, "
				       "think, fetch, switch_mode, other",
				       (int)(kind.len < 20 ? kind.len : 20), kind.ptr);
		if (named[at])
			return err_set(err, ERR_MALFORMED,
				       "--permission-rules: %s is named twice",
				       tool_kinds[at]);
		named[at] = true;
		out->by_kind[at] = policy;
	}
	return true;
}

bool permission_parse_rules(const char *text, enum permission_policy standard,
			    struct permission_rules *out, struct err *err)
{
	bool named[TOOL_KINDS] = {false};
	struct permission_rules rules;
	struct slice rest = slice_of(text), rule;

	for (int i = 0; i < TOOL_KINDS; i++)
		rules.by_kind[i] = standard;
	while (slice_take_until(&rest, ';', &rule)) {
		rule = trim(rule);
		if (rule.len > 0 && !parse_rule(rule, named, &rules, err))
			return false;
	}
	*out = rules;
	return true;
}

const char *permission_policy_name(enum permission_policy policy)
{
	return policy_names[policy];
}

const char *permission_reason_name(enum permission_reason reason)
{
	switch (reason) {
	case PERMISSION_APPLIED:
		return "applied";
	case PERMISSION_TIMED_OUT:
		return "timed_out";
	case PERMISSION_CANCELLED:
		return "cancelled";
	case PERMISSION_REJECTED:
		return "rejected";
	case PERMISSION_ALLOWED:
		return "allowed";
	case PERMISSION_ALLOW_FAILED_CLOSED:
		return "allow_failed_closed";
	case PERMISSION_UNCERTAIN:
		return "uncertain";
	}
	return "";
}

static enum permission_kind kind_of(struct slice option)
{
	static const struct slice names[] = {
		[PERMISSION_ALLOW_ONCE] = SLICE_INIT("allow_once"),
		[PERMISSION_ALLOW_ALWAYS] = SLICE_INIT("allow_always"),
		[PERMISSION_REJECT_ONCE] = SLICE_INIT("reject_once"),
		[PERMISSION_REJECT_ALWAYS] = SLICE_INIT("reject_always"),
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (lookup_is(option, SLICE("kind"), names[i]))
			return (enum permission_kind)i;
	}
	return PERMISSION_OTHER;
}

static const struct permission_option *find_option(const struct permission *permission,
						   struct slice id)
{
	for (size_t i = 0; i < permission->option_count; i++) {
		if (slice_eq(buf_slice(&permission->options[i].id), id))
			return &permission->options[i];
	}
	return NULL;
}

static bool add_option(struct permission *permission, struct slice option,
		       struct err *err)
{
	struct slice raw = lookup_string(option, SLICE("optionId"));
	struct permission_option *out;
	struct buf id;

	if (!raw.ptr)
		return err_set(err, ERR_MALFORMED, "an option has no optionId");
	if (permission->option_count == PERMISSION_OPTIONS_MAX)
		return err_set(err, ERR_MALFORMED, "more than %d options",
			       PERMISSION_OPTIONS_MAX);
	buf_init(&id, PERMISSION_OPTION_BYTES);
	if (!json_unescape(raw, &id)) {
		buf_finish(&id);
		return err_set(err, ERR_MALFORMED, "an optionId is over %d bytes",
			       PERMISSION_OPTION_BYTES);
	}
	if (find_option(permission, buf_slice(&id))) {
		buf_finish(&id);
		return err_set(err, ERR_MALFORMED, "two options have the same optionId");
	}
	out = &permission->options[permission->option_count++];
	out->id = id;
	out->kind = kind_of(option);
	return true;
}

struct permission *permission_parse(struct slice request, struct slice params,
				    const uint8_t nonce[PERMISSION_NONCE_LEN / 2],
				    struct err *err)
{
	struct permission *permission = mem_alloc(sizeof(*permission));
	struct slice option;
	struct json json;
	bool ok = false;

	buf_init(&permission->request, request.len);
	(void)buf_append(&permission->request, request);
	permission->options =
		mem_array(PERMISSION_OPTIONS_MAX, sizeof(*permission->options));
	permission->deadline_ms = INT64_MAX;
	hex_encode(nonce, PERMISSION_NONCE_LEN / 2, permission->nonce);
	buf_init(&permission->whole, AGENT_LINE_MAX);

	json_init(&json, lookup(params, SLICE("options")));
	if (json_peek(&json) != JSON_ARRAY || !json_enter_array(&json)) {
		err_set(err, ERR_MALFORMED, "options is no array");
		goto out;
	}
	while (json_element(&json)) {
		if (!json_skip(&json, &option) || !add_option(permission, option, err))
			goto out;
	}
	ok = permission->option_count > 0;
	if (!ok)
		err_set(err, ERR_MALFORMED, "options is empty");
out:
	if (!ok) {
		permission_destroy(permission);
		permission = NULL;
	}
	return permission;
}

void permission_settle(struct permission *permission)
{
	for (size_t i = 0; i < permission->option_count; i++)
		buf_finish(&permission->options[i].id);
	free(permission->options);
	permission->options = NULL;
	permission->option_count = 0;
	buf_finish(&permission->whole);
}

void permission_destroy(struct permission *permission)
{
	if (!permission)
		return;
	permission_settle(permission);
	buf_finish(&permission->request);
	free(permission);
}

static const struct permission_option *find_kind(const struct permission *permission,
						 enum permission_kind kind)
{
	for (size_t i = 0; i < permission->option_count; i++) {
		if (permission->options[i].kind == kind)
			return &permission->options[i];
	}
	return NULL;
}

struct permission_choice permission_deny(const struct permission *permission)
{
	const struct permission_option *option =
		find_kind(permission, PERMISSION_REJECT_ONCE);

	if (!option)
		option = find_kind(permission, PERMISSION_REJECT_ALWAYS);
	if (!option)
		return (struct permission_choice){0};
	return (struct permission_choice){.selected = true,
					  .option = buf_slice(&option->id)};
}

bool permission_allow(const struct permission *permission, struct permission_choice *out)
{
	const struct permission_option *option = NULL;

	for (size_t i = 0; i < permission->option_count; i++) {
		if (permission->options[i].kind != PERMISSION_ALLOW_ONCE)
			continue;
		if (option)
			return false;
		option = &permission->options[i];
	}
	if (!option)
		return false;
	*out = (struct permission_choice){.selected = true,
					  .option = buf_slice(&option->id)};
	return true;
}

bool permissions_add(struct permissions *permissions, struct permission *permission)
{
	struct permission **at = &permissions->first;

	if (permissions->count >= AGENT_PERMISSIONS_MAX)
		return false;
	while (*at)
		at = &(*at)->next;
	*at = permission;
	permissions->count++;
	return true;
}

void permissions_remove(struct permissions *permissions, struct permission *permission)
{
	struct permission **at = &permissions->first;

	while (*at && *at != permission)
		at = &(*at)->next;
	assert(*at == permission);
	*at = permission->next;
	permission->next = NULL;
	permissions->count--;
}

static struct permission *find_nonce(const struct permissions *permissions,
				     struct slice nonce)
{
	struct permission *at = permissions->first;

	while (at && !slice_eq(slice_of(at->nonce), nonce))
		at = at->next;
	return at;
}

struct permission *permissions_find_request(const struct permissions *permissions,
					    struct slice request)
{
	struct permission *at = permissions->first;

	while (at && !slice_eq(buf_slice(&at->request), request))
		at = at->next;
	return at;
}

struct permission *permissions_find_seq(const struct permissions *permissions,
					uint64_t seq)
{
	struct permission *at = permissions->first;

	while (at && at->seq != seq)
		at = at->next;
	return at;
}

size_t permissions_pending(const struct permissions *permissions, const void *channel)
{
	size_t count = 0;

	for (const struct permission *at = permissions->first; at; at = at->next) {
		if (at->channel == channel && at->state == PERMISSION_PENDING)
			count++;
	}
	return count;
}

struct permission *permissions_first(const struct permissions *permissions,
				     const void *channel)
{
	for (struct permission *at = permissions->first; at; at = at->next) {
		if (at->state == PERMISSION_PENDING &&
		    (!channel || at->channel == channel))
			return at;
	}
	return NULL;
}

int64_t permissions_next_deadline(const struct permissions *permissions)
{
	int64_t next = INT64_MAX;

	for (const struct permission *at = permissions->first; at; at = at->next) {
		if (at->state == PERMISSION_PENDING && at->deadline_ms < next)
			next = at->deadline_ms;
	}
	return next;
}

static bool was_decided(const struct permissions *permissions, struct slice nonce)
{
	for (size_t i = 0; i < PERMISSIONS_DECIDED; i++) {
		if (slice_eq(slice_of(permissions->decided[i]), nonce))
			return nonce.len > 0;
	}
	return false;
}

enum permission_verdict permissions_decide(struct permissions *permissions,
					   const void *channel, struct slice nonce,
					   struct slice option, struct permission **out,
					   struct permission_choice *choice_out)
{
	struct permission *permission = find_nonce(permissions, nonce);
	const struct permission_option *offered;

	if (was_decided(permissions, nonce))
		return VERDICT_ALREADY_DECIDED;
	if (!permission || permission->state != PERMISSION_PENDING)
		return VERDICT_NO_ACTIVE_TURN;
	if (permission->channel != channel)
		return VERDICT_OTHER_CHANNEL;
	offered = find_option(permission, option);
	if (!offered)
		return VERDICT_NOT_OFFERED;
	permission->state = PERMISSION_WRITING;
	permission->reason = PERMISSION_APPLIED;
	memcpy(permissions->decided[permissions->decided_at], permission->nonce,
	       sizeof(permission->nonce));
	permissions->decided_at = (permissions->decided_at + 1) % PERMISSIONS_DECIDED;
	*out = permission;
	*choice_out = (struct permission_choice){.selected = true,
						 .option = buf_slice(&offered->id)};
	return VERDICT_SENT;
}
