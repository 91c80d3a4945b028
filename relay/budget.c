#include "relay/budget.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/frame/limits.h"

/* Seconds' worth that a full bucket holds: a client may come with a list to publish or a
 * page of subscriptions. Frames have their pace, so theirs hold one. Our choice. */
#define BURST_S 10
#define BURST_FRAMES_S 1

/* Longest account name: a key and what counts apart. */
#define WHO_MAX 64

/* Generous for people and agents, tight for a script: our choice. The owner's and the
 * address's frames are bound by their agents' and by bytes. */
const struct budget_option budget_options[BUDGET_OPTIONS] = {
	{BUDGET_KEY, BUDGET_EVENTS, "key-events",
	 "other events than frames that one key may publish a second, 0 for any number "
	 "(100)",
	 100},
	{BUDGET_KEY, BUDGET_FRAMES, "key-frames",
	 "frames that one agent, and its owner to it, may publish a second (100)",
	 RELAY_FRAMES_PER_S},
	{BUDGET_KEY, BUDGET_REQS, "key-reqs", "REQ and COUNT of one key a second (50)",
	 50},
	{BUDGET_KEY, BUDGET_CONNECTIONS, "key-connections",
	 "connections that one key may authenticate a second (20)", 20},
	{BUDGET_KEY, BUDGET_BYTES, "key-bytes",
	 "bytes that the connections of one key may send a second (16 MiB)", 16 << 20},
	{BUDGET_OWNER, BUDGET_EVENTS, "owner-events",
	 "the same for an owner and all agents they attested (500)", 500},
	{BUDGET_OWNER, BUDGET_FRAMES, "owner-frames", "the same for an owner (no limit)",
	 0},
	{BUDGET_OWNER, BUDGET_REQS, "owner-reqs", "the same for an owner (200)", 200},
	{BUDGET_OWNER, BUDGET_CONNECTIONS, "owner-connections",
	 "the same for an owner (100)", 100},
	{BUDGET_OWNER, BUDGET_BYTES, "owner-bytes", "the same for an owner (64 MiB)",
	 64 << 20},
	{BUDGET_ADDRESS, BUDGET_EVENTS, "address-events",
	 "the same for an address that is not loopback (500)", 500},
	{BUDGET_ADDRESS, BUDGET_FRAMES, "address-frames",
	 "the same for an address (no limit)", 0},
	{BUDGET_ADDRESS, BUDGET_REQS, "address-reqs", "the same for an address (200)",
	 200},
	{BUDGET_ADDRESS, BUDGET_CONNECTIONS, "address-connections",
	 "connections that one address may open a second (20)", 20},
	{BUDGET_ADDRESS, BUDGET_BYTES, "address-bytes",
	 "bytes that one address may send a second (64 MiB)", 64 << 20},
};

static const char *const kind_names[BUDGET_KINDS] = {"events", "frames", "REQ and COUNT",
						     "connections", "bytes"};
static const char *const scope_names[BUDGET_SCOPES] = {"key", "owner", "address"};

void budgets_init(struct budgets *budgets)
{
	size_t i;

	memset(budgets, 0, sizeof(*budgets));
	for (i = 0; i < BUDGET_SCOPES; i++)
		rate_init(&budgets->rates[i]);
	for (i = 0; i < BUDGET_OPTIONS; i++) {
		const struct budget_option *option = &budget_options[i];

		budgets->per_second[option->scope][option->kind] = option->per_second;
	}
}

void budgets_finish(struct budgets *budgets)
{
	size_t i;

	for (i = 0; i < BUDGET_SCOPES; i++)
		rate_finish(&budgets->rates[i]);
}

int64_t budgets_least(const struct budgets *budgets, enum budget_kind kind)
{
	int64_t least = 0;
	size_t i;

	for (i = 0; i < BUDGET_SCOPES; i++) {
		int64_t per_second = budgets->per_second[i][kind];

		if (per_second > 0 && (least == 0 || per_second < least))
			least = per_second;
	}
	return least;
}

static int64_t burst(enum budget_kind kind, int64_t per_second)
{
	return per_second * (kind == BUDGET_FRAMES ? BURST_FRAMES_S : BURST_S);
}

bool budgets_take(struct budgets *budgets, enum budget_scope scope, enum budget_kind kind,
		  struct slice who, char part, int64_t cost, int64_t now_ms,
		  char text[BUDGET_TEXT_MAX])
{
	int64_t per_second = budgets->per_second[scope][kind];
	const char *name = scope_names[scope];
	char account[WHO_MAX];
	int64_t wait_ms;

	if (per_second == 0)
		return true;
	assert(who.len + 2 <= sizeof(account));
	account[0] = (char)kind;
	account[1] = part;
	memcpy(account + 2, who.ptr, who.len);
	wait_ms = rate_take(&budgets->rates[scope], per_second, burst(kind, per_second),
			    (struct slice){account, who.len + 2}, cost, now_ms);
	if (wait_ms == 0)
		return true;
	if (kind == BUDGET_FRAMES && scope == BUDGET_KEY)
		name = "agent";
	(void)snprintf(text, BUDGET_TEXT_MAX,
		       "rate-limited: %s of this %s: %" PRId64 "/s, try again in %" PRId64
		       " s",
		       kind_names[kind], name, per_second, (wait_ms + 999) / 1000);
	return false;
}
