#ifndef AGENT_ACP_LINE_H
#define AGENT_ACP_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/json.h"

/* Deepest nesting of a line. It is set into other JSON: four levels around the payload of
 * a batched event (batch, payload, events, event), and an agent's modes stand one level
 * deeper in feed_state than in its own answer. Deeper text would make the whole batch
 * unreadable for peers that read JSON_DEPTH_MAX levels. */
#define ACP_DEPTH_MAX (JSON_DEPTH_MAX - 5)

/* One scan of one ACP line: all that the client and the feed ask of it, as slices of the
 * line. Strings are JSON string content as sent (compare with json_is()). */
enum acp_shape {
	ACP_BLANK,
	ACP_REQUEST,      /* method and id */
	ACP_NOTIFICATION, /* method, no id */
	ACP_RESPONSE,     /* no method; id and result or error */
	ACP_ARRAY,        /* a batch: answered -32600 once, nothing of it processed */
	ACP_OBJECT,       /* an object that is no JSON-RPC message */
	ACP_BROKEN,       /* no JSON object, or one that a strict reader refuses */
};

struct acp_line {
	enum acp_shape shape;
	struct slice text;    /* first to last non-blank byte; the payload */
	struct slice id;      /* raw token ("1", "\"a\"", "null"); empty: none */
	struct slice method;  /* empty: none */
	struct slice params;  /* value text; empty: none */
	struct slice result;  /* value text */
	struct slice error;   /* value text */
	struct slice session; /* params.sessionId, else result.sessionId */
	struct slice update;  /* params.update.sessionUpdate */
	struct slice chunk;   /* params.update.content.text of a *_chunk update with text
			       * content,   between the quotes; ptr NULL: no such text */
	bool id_is_plain;     /* id is a number or a string */
	bool params_is_object;
	bool has_secrets; /* env or headers values to redact in the copy */
	bool repairable; /* ACP_BROKEN, and the first fault is a lone surrogate or invalid
			  * UTF-8: json_repair() and a second scan may help */
	struct err fault; /* ACP_BROKEN: why */
};

/* Reads one line without its LF. Never fails: what is wrong is in @out. */
void acp_line_scan(struct slice line, struct acp_line *out);

/* Longest line but for its text that is remembered; our choice. */
#define ACP_ALIKE_MAX 1024
/* The last chunk update of an agent without its text: most lines that follow are that
 * line with another text, and nothing else of them has to be read. A zeroed struct
 * remembers none. */
struct acp_alike {
	char text[ACP_ALIKE_MAX];
	struct acp_line line; /* of it; its chunk is empty; text.ptr NULL: none */
};
/* The same as acp_line_scan(), as fast as may be; @alike: of the lines before it. */
void acp_line_scan_alike(struct slice line, struct acp_alike *alike,
			 struct acp_line *out);

/* An acp_read request that makes its channel urgent: session/request_permission or
 * elicitation/create with a plain id and object params (design §5). */
bool acp_line_is_urgent(const struct acp_line *line);
/* Appends the text with every value of mcpServers[].env and headers, and of any
 * "env":[{name,value}], replaced by "…". False if it is no JSON or @out is full. With
 * @out NULL it only says whether there is anything to hide. */
bool acp_line_redact(const struct acp_line *line, struct buf *out);

#endif
