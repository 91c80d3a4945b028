#include "relay/owners.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

struct binding {
	struct binding *next;
	int64_t expires; /* Unix seconds: the first one at which it no longer holds */
	uint8_t owner[KEY_BYTES];
};

struct agent_entry {
	struct binding *bindings; /* first attested first */
	size_t binding_count;
	size_t sessions; /* which proved its key */
	bool revoked;
	bool is_idle; /* stands in the list of those */
	struct agent_entry *idle_prev, *idle_next;
	uint8_t key[KEY_BYTES];
};

static struct slice key_slice(const uint8_t key[KEY_BYTES])
{
	return (struct slice){(const char *)key, KEY_BYTES};
}

static const struct agent_entry *find_agent(const struct owners *owners,
					    const uint8_t key[KEY_BYTES])
{
	return map_get(&owners->agents, key_slice(key));
}

void owners_init(struct owners *owners)
{
	memset(owners, 0, sizeof(*owners));
	map_init(&owners->agents);
	map_init(&owners->listed);
	tally_init(&owners->agents_of);
}

static void put_idle(struct owners *owners, struct agent_entry *agent)
{
	agent->idle_prev = owners->idle_last;
	agent->idle_next = NULL;
	if (owners->idle_last)
		owners->idle_last->idle_next = agent;
	else
		owners->idle_first = agent;
	owners->idle_last = agent;
}

static void take_idle(struct owners *owners, struct agent_entry *agent)
{
	if (agent->idle_prev)
		agent->idle_prev->idle_next = agent->idle_next;
	else
		owners->idle_first = agent->idle_next;
	if (agent->idle_next)
		agent->idle_next->idle_prev = agent->idle_prev;
	else
		owners->idle_last = agent->idle_prev;
}

/* After any change of its bindings or sessions. */
static void sort_idle(struct owners *owners, struct agent_entry *agent)
{
	bool is_idle = agent->bindings && agent->sessions == 0;

	if (is_idle && !agent->is_idle)
		put_idle(owners, agent);
	if (!is_idle && agent->is_idle)
		take_idle(owners, agent);
	agent->is_idle = is_idle;
}

static void drop_binding(struct owners *owners, struct agent_entry *agent,
			 struct binding **at)
{
	struct binding *binding = *at;

	*at = binding->next;
	agent->binding_count--;
	owners->count--;
	tally_remove(&owners->agents_of, key_slice(binding->owner));
	free(binding);
}

static void drop_bindings(struct owners *owners, struct agent_entry *agent)
{
	while (agent->bindings)
		drop_binding(owners, agent, &agent->bindings);
	sort_idle(owners, agent);
}

void owners_finish(struct owners *owners)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&owners->agents, entry))) {
		drop_bindings(owners, entry->value);
		free(entry->value);
	}
	map_finish(&owners->agents);
	map_finish(&owners->listed);
	tally_finish(&owners->agents_of);
}

/* An agent of whom nothing is known needs no entry. */
static void drop_if_empty(struct owners *owners, struct agent_entry *agent)
{
	if (!agent->bindings && !agent->revoked && agent->sessions == 0)
		free(map_take(&owners->agents, key_slice(agent->key)));
}

static void drop_expired_of(struct owners *owners, struct agent_entry *agent, int64_t now)
{
	struct binding **at = &agent->bindings;

	while (*at) {
		if ((*at)->expires > now)
			at = &(*at)->next;
		else
			drop_binding(owners, agent, at);
	}
	sort_idle(owners, agent);
}

static void drop_expired(struct owners *owners, int64_t now)
{
	struct map_entry *entry = map_next(&owners->agents, NULL);

	while (entry) {
		struct map_entry *next = map_next(&owners->agents, entry);

		drop_expired_of(owners, entry->value, now);
		drop_if_empty(owners, entry->value);
		entry = next;
	}
}

static struct agent_entry *make_agent(struct owners *owners, const uint8_t key[KEY_BYTES])
{
	struct agent_entry *agent = map_get(&owners->agents, key_slice(key));

	if (agent)
		return agent;
	agent = mem_alloc(sizeof(*agent));
	memcpy(agent->key, key, KEY_BYTES);
	(void)map_put(&owners->agents, key_slice(key), agent);
	return agent;
}

/* The link that points to the owner's binding, or to the end of the list. */
static struct binding **find_binding(struct agent_entry *agent,
				     const uint8_t owner[KEY_BYTES])
{
	struct binding **at = &agent->bindings;

	while (*at && memcmp((*at)->owner, owner, KEY_BYTES) != 0)
		at = &(*at)->next;
	return at;
}

/* All that binds whoever has been away longest; not @but, who asks for room. */
static void drop_idle(struct owners *owners, const struct agent_entry *but)
{
	struct agent_entry *agent = owners->idle_first;

	if (agent && agent == but)
		agent = agent->idle_next;
	if (!agent)
		return;
	if (owners->on_unbind)
		owners->on_unbind(owners->ctx, agent->key);
	drop_bindings(owners, agent);
	drop_if_empty(owners, agent);
}

/* Has one of the two as much as one may have? */
static bool is_capped(const struct owners *owners, const struct agent_entry *agent,
		      const uint8_t owner[KEY_BYTES])
{
	return agent->binding_count >= AGENT_OWNERS_MAX ||
	       tally_of(&owners->agents_of, key_slice(owner)) >= OWNERS_AGENTS_MAX;
}

/* Expired ones are looked for once a second, whatever is asked meanwhile: that takes a
 * look at all. Whoever has all one may have moves nobody else out. */
static bool make_room(struct owners *owners, const struct agent_entry *agent,
		      const uint8_t owner[KEY_BYTES], int64_t now)
{
	if (owners->count < OWNERS_MAX && !is_capped(owners, agent, owner))
		return true;
	if (now != owners->swept) {
		owners->swept = now;
		drop_expired(owners, now);
	}
	if (is_capped(owners, agent, owner))
		return false;
	if (owners->count >= OWNERS_MAX)
		drop_idle(owners, agent);
	return owners->count < OWNERS_MAX;
}

/* False when there is no room for a new one. */
static bool put_binding(struct owners *owners, const uint8_t agent[KEY_BYTES],
			const uint8_t owner[KEY_BYTES], int64_t expires, int64_t now)
{
	struct agent_entry *entry = make_agent(owners, agent);
	struct binding **at;
	bool has_room;

	/* It must not go while room is made for it. */
	entry->sessions++;
	has_room = make_room(owners, entry, owner, now);
	entry->sessions--;
	if (!has_room) {
		sort_idle(owners, entry);
		drop_if_empty(owners, entry);
		return false;
	}
	at = find_binding(entry, owner);
	*at = mem_alloc(sizeof(**at));
	(*at)->expires = expires;
	memcpy((*at)->owner, owner, KEY_BYTES);
	entry->binding_count++;
	owners->count++;
	tally_add(&owners->agents_of, key_slice(owner));
	sort_idle(owners, entry);
	return true;
}

void owners_enter(struct owners *owners, const uint8_t key[KEY_BYTES])
{
	struct agent_entry *entry = make_agent(owners, key);

	entry->sessions++;
	sort_idle(owners, entry);
}

void owners_leave(struct owners *owners, const uint8_t key[KEY_BYTES])
{
	struct agent_entry *entry = map_get(&owners->agents, key_slice(key));

	assert(entry && entry->sessions > 0);
	entry->sessions--;
	sort_idle(owners, entry);
	drop_if_empty(owners, entry);
}

bool owners_bind(struct owners *owners, const uint8_t agent[KEY_BYTES],
		 const uint8_t owner[KEY_BYTES], int64_t expires, int64_t now)
{
	struct agent_entry *entry = map_get(&owners->agents, key_slice(agent));
	struct binding *binding = entry ? *find_binding(entry, owner) : NULL;

	if (entry && entry->revoked)
		return false;
	if (!owners_listed(owners, owner))
		return true;
	if (binding && binding->expires >= expires)
		return true;
	if (binding)
		binding->expires = expires;
	else if (!put_binding(owners, agent, owner, expires, now))
		return false;
	if (owners->on_bind)
		owners->on_bind(owners->ctx, agent, owner, expires);
	return true;
}

bool owners_hold(const struct owners *owners, const uint8_t agent[KEY_BYTES],
		 const uint8_t owner[KEY_BYTES], int64_t now)
{
	const struct agent_entry *entry = find_agent(owners, agent);
	const struct binding *at;

	for (at = entry ? entry->bindings : NULL; at; at = at->next)
		if (memcmp(at->owner, owner, KEY_BYTES) == 0)
			return at->expires > now;
	return false;
}

const uint8_t *owners_of(const struct owners *owners, const uint8_t key[KEY_BYTES],
			 int64_t now)
{
	const struct agent_entry *entry = find_agent(owners, key);
	const struct binding *at;

	for (at = entry ? entry->bindings : NULL; at; at = at->next)
		if (at->expires > now)
			return at->owner;
	return key;
}

void owners_revoke(struct owners *owners, const uint8_t agent[KEY_BYTES])
{
	struct agent_entry *entry = make_agent(owners, agent);

	drop_bindings(owners, entry);
	entry->revoked = true;
}

void owners_allow(struct owners *owners, const uint8_t agent[KEY_BYTES])
{
	struct agent_entry *entry = map_get(&owners->agents, key_slice(agent));

	if (!entry)
		return;
	entry->revoked = false;
	drop_if_empty(owners, entry);
}

bool owners_revoked(const struct owners *owners, const uint8_t key[KEY_BYTES])
{
	const struct agent_entry *entry = find_agent(owners, key);

	return entry && entry->revoked;
}

void owners_list(struct owners *owners, const uint8_t owner[KEY_BYTES])
{
	(void)map_put(&owners->listed, key_slice(owner), owners);
}

bool owners_listed(const struct owners *owners, const uint8_t owner[KEY_BYTES])
{
	return !owners->by_list || map_get(&owners->listed, key_slice(owner));
}

bool owners_permit(const struct owners *owners, const uint8_t key[KEY_BYTES], int64_t now)
{
	const struct agent_entry *entry = find_agent(owners, key);
	const struct binding *at;

	if (entry && entry->revoked)
		return false;
	if (owners_listed(owners, key))
		return true;
	for (at = entry ? entry->bindings : NULL; at; at = at->next)
		if (at->expires > now && owners_listed(owners, at->owner))
			return true;
	return false;
}

void owners_forget_lists(struct owners *owners)
{
	struct map_entry *entry = map_next(&owners->agents, NULL);

	while (entry) {
		struct map_entry *next = map_next(&owners->agents, entry);

		((struct agent_entry *)entry->value)->revoked = false;
		drop_if_empty(owners, entry->value);
		entry = next;
	}
	map_finish(&owners->listed);
	map_init(&owners->listed);
}
