#ifndef AGENT_PERMISSIONS_H
#define AGENT_PERMISSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/frame/limits.h"

/* The agent's open permission requests: who may answer, with what, until when. One
 * request gets one answer. Pure; times in ms of any monotonic clock. Source: NIP-AO,
 * "Permission requests" (facts/nip-ao.md), and ACP's session/request_permission. */

#define PERMISSION_NONCE_LEN 32 /* hex digits */
#define PERMISSION_OPTIONS_MAX \
	32 /* our choice: more is no question a person can answer */

enum permission_policy {
	PERMISSION_ASK,
	PERMISSION_ALLOW,
	PERMISSION_REJECT,
};

/* What a tool call does, in ACP's words. */
enum tool_kind {
	TOOL_READ,
	TOOL_EDIT,
	TOOL_DELETE,
	TOOL_MOVE,
	TOOL_SEARCH,
	TOOL_EXECUTE,
	TOOL_THINK,
	TOOL_FETCH,
	TOOL_SWITCH_MODE,
	TOOL_OTHER, /* also: not said, or a word that we do not know */
	TOOL_KINDS,
};

/* Who answers, by what the tool call does. The kind is the agent's own word. */
struct permission_rules {
	enum permission_policy by_kind[TOOL_KINDS];
};

enum permission_reason {
	PERMISSION_APPLIED,
	PERMISSION_TIMED_OUT,
	PERMISSION_CANCELLED,
	PERMISSION_REJECTED,
	PERMISSION_ALLOWED,
	PERMISSION_ALLOW_FAILED_CLOSED,
	PERMISSION_UNCERTAIN,
};

enum permission_kind {
	PERMISSION_ALLOW_ONCE,
	PERMISSION_ALLOW_ALWAYS,
	PERMISSION_REJECT_ONCE,
	PERMISSION_REJECT_ALWAYS,
	PERMISSION_OTHER,
};

struct permission_option {
	struct buf id; /* decoded; may hold any character */
	enum permission_kind kind;
};

enum permission_state {
	PERMISSION_PENDING,
	PERMISSION_WRITING, /* decided; the answer is on its way to the agent */
};

struct permission {
	struct permission *next;
	enum permission_state state;
	char nonce[PERMISSION_NONCE_LEN + 1];
	struct buf request;                /* the JSON-RPC id as its raw token */
	struct permission_option *options; /* as they were offered; own */
	size_t option_count;
	void *channel;                 /* whose session asked; the caller's */
	enum permission_policy policy; /* what the rules say; the caller's */
	int64_t deadline_ms;           /* INT64_MAX: none */
	uint64_t seq;                  /* of the acp_read; 0 before */
	struct buf whole;              /* the untrimmed event, if it had to be trimmed */
	bool shown;                    /* the owner can see it whole; the caller's */
	enum permission_reason reason; /* once WRITING */
};

/* What is written to the agent: an offered option, or "cancelled". */
struct permission_choice {
	bool selected;
	struct slice option; /* borrowed from the permission */
};

/* Those that wait, oldest first, and the nonces that the owner has decided. */
struct permissions {
	struct permission *first;
	size_t count;
	char (*decided)[PERMISSION_NONCE_LEN + 1]; /* ring of PERMISSIONS_DECIDED */
	size_t decided_at;
};

void permissions_init(struct permissions *permissions);
void permissions_finish(struct permissions *permissions);

bool permission_parse_policy(const char *text, enum permission_policy *out,
			     struct err *err);
/**
 * permission_parse_rules - who answers which kinds of tool calls
 * @text: "allow read,search; ask edit,execute", or empty
 * @standard: for every kind that is not named
 * ERR_MALFORMED for an unknown word, or a kind named twice.
 */
bool permission_parse_rules(const char *text, enum permission_policy standard,
			    struct permission_rules *out, struct err *err);
/* @name: JSON string content; ptr NULL gives TOOL_OTHER. */
enum tool_kind tool_kind_parse(struct slice name);
/* A pointer that stands for @kind in a map, and back; NULL is TOOL_OTHER. */
void *tool_kind_mark(enum tool_kind kind);
enum tool_kind tool_kind_of(const void *mark);
const char *permission_policy_name(enum permission_policy policy);
const char *permission_reason_name(enum permission_reason reason);

/**
 * permission_parse - read what an agent asks
 * @request: raw id token
 * @params: checked JSON
 * Gives a permission that is in no list yet. ERR_MALFORMED without a non-empty list of
 * options with string ids, all different; an unknown kind is kept as PERMISSION_OTHER.
 */
struct permission *permission_parse(struct slice request, struct slice params,
				    const uint8_t nonce[PERMISSION_NONCE_LEN / 2],
				    struct err *err);
void permission_destroy(struct permission *permission);
/* It has been answered: frees what only deciding needs, as an agent that does not read
 * its answers keeps them waiting. */
void permission_settle(struct permission *permission);

/* Deny: reject_once, else reject_always, else "cancelled". Never by position. */
struct permission_choice permission_deny(const struct permission *permission);
/* Allow: the only allow_once option there is; false when there is none or a choice of
 * them. */
bool permission_allow(const struct permission *permission, struct permission_choice *out);

/* Takes ownership. False (and nothing taken) when AGENT_PERMISSIONS_MAX wait. */
bool permissions_add(struct permissions *permissions, struct permission *permission);
/* Out of the list; ownership back. */
void permissions_remove(struct permissions *permissions, struct permission *permission);
struct permission *permissions_find_request(const struct permissions *permissions,
					    struct slice request);
struct permission *permissions_find_seq(const struct permissions *permissions,
					uint64_t seq);
/* How many of @channel wait for a decision. */
size_t permissions_pending(const struct permissions *permissions, const void *channel);
/* The pending one of @channel (NULL: any) that came first, or NULL. */
struct permission *permissions_first(const struct permissions *permissions,
				     const void *channel);
/* Earliest deadline of a pending one, INT64_MAX when there is none. */
int64_t permissions_next_deadline(const struct permissions *permissions);

/* The owner's word on a nonce. */
enum permission_verdict {
	VERDICT_SENT,            /* @choice_out is to be written now; state is WRITING */
	VERDICT_ALREADY_DECIDED, /* a repeat */
	VERDICT_NO_ACTIVE_TURN,  /* unknown nonce, or it ended otherwise */
	VERDICT_NOT_OFFERED,     /* no such option: the request waits on */
	VERDICT_OTHER_CHANNEL,   /* the nonce belongs to another channel */
};
/* @nonce, @option: decoded. */
enum permission_verdict permissions_decide(struct permissions *permissions,
					   const void *channel, struct slice nonce,
					   struct slice option, struct permission **out,
					   struct permission_choice *choice_out);

#endif
