#include "relay/owners.h"

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
	bool revoked;
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
}

static void drop_bindings(struct owners *owners, struct agent_entry *agent)
{
	struct binding *binding;

	while ((binding = agent->bindings)) {
		agent->bindings = binding->next;
		owners->count--;
		free(binding);
	}
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
}

/* An agent of whom nothing is known needs no entry. */
static void drop_if_empty(struct owners *owners, struct map_entry *entry)
{
	const struct agent_entry *agent = entry->value;

	if (!agent->bindings && !agent->revoked)
		free(map_take(&owners->agents, map_key(entry)));
}

static void drop_expired_of(struct owners *owners, struct agent_entry *agent, int64_t now)
{
	struct binding **at = &agent->bindings;
	struct binding *binding;

	while ((binding = *at)) {
		if (binding->expires > now) {
			at = &binding->next;
			continue;
		}
		*at = binding->next;
		owners->count--;
		free(binding);
	}
}

static void drop_expired(struct owners *owners, int64_t now)
{
	struct map_entry *entry = map_next(&owners->agents, NULL);

	while (entry) {
		struct map_entry *next = map_next(&owners->agents, entry);

		drop_expired_of(owners, entry->value, now);
		drop_if_empty(owners, entry);
		entry = next;
	}
}

static struct agent_entry *make_agent(struct owners *owners, const uint8_t key[KEY_BYTES])
{
	struct agent_entry *agent = map_get(&owners->agents, key_slice(key));

	if (agent)
		return agent;
	agent = mem_alloc(sizeof(*agent));
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

/* False when there is no room for a new one. */
static bool put_binding(struct owners *owners, const uint8_t agent[KEY_BYTES],
			const uint8_t owner[KEY_BYTES], int64_t expires, int64_t now)
{
	struct binding **at;

	if (owners->count >= OWNERS_MAX)
		drop_expired(owners, now);
	if (owners->count >= OWNERS_MAX)
		return false;
	at = find_binding(make_agent(owners, agent), owner);
	*at = mem_alloc(sizeof(**at));
	(*at)->expires = expires;
	memcpy((*at)->owner, owner, KEY_BYTES);
	owners->count++;
	return true;
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
	if (!entry->bindings)
		free(map_take(&owners->agents, key_slice(agent)));
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
		drop_if_empty(owners, entry);
		entry = next;
	}
	map_finish(&owners->listed);
	map_init(&owners->listed);
}
