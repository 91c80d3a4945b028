#include "relay/http.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire/base/mem.h"
#include "wire/host/loop.h"

#define REFUSAL_TEXT_MAX 256

bool http_header(struct lws *wsi, enum lws_token_indexes token, char *out, int size)
{
	return lws_hdr_copy(wsi, out, size, token) > 0;
}

/* RFC 9110, 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT", in English whatever the locale. */
static void format_date(char *out, size_t size)
{
	static const char *const days[] = {"Sun", "Mon", "Tue", "Wed",
					   "Thu", "Fri", "Sat"};
	static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
					     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	time_t now = (time_t)(loop_unix_ms() / 1000);
	struct tm tm;

	(void)gmtime_r(&now, &tm);
	(void)snprintf(out, size, "%s, %02d %s %d %02d:%02d:%02d GMT", days[tm.tm_wday],
		       tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour,
		       tm.tm_min, tm.tm_sec);
}

static bool add_header(struct lws *wsi, const char *name, const char *value,
		       unsigned char **at, unsigned char *end)
{
	return lws_add_http_header_by_name(wsi, (const unsigned char *)name,
					   (const unsigned char *)value,
					   (int)strlen(value), at, end) == 0;
}

bool http_add_date(struct lws *wsi, unsigned char **at, unsigned char *end)
{
	char date[64];

	format_date(date, sizeof(date));
	return add_header(wsi, "date:", date, at, end);
}

/* NIP-11: "Relays MUST accept CORS requests by sending Access-Control-Allow-Origin,
 * Access-Control-Allow-Headers, and Access-Control-Allow-Methods headers." */
static bool write_headers(struct lws *wsi, unsigned status, const char *type, size_t len)
{
	unsigned char memory[LWS_PRE + 1024];
	unsigned char *start = memory + LWS_PRE;
	unsigned char *at = start;
	unsigned char *end = memory + sizeof(memory) - 1;

	return lws_add_http_common_headers(wsi, status, type, len, &at, end) == 0 &&
	       http_add_date(wsi, &at, end) &&
	       add_header(wsi, "access-control-allow-origin:", "*", &at, end) &&
	       add_header(wsi, "access-control-allow-headers:", "*", &at, end) &&
	       add_header(wsi, "access-control-allow-methods:", "GET, HEAD, OPTIONS", &at,
			  end) &&
	       add_header(wsi, "x-content-type-options:", "nosniff", &at, end) &&
	       lws_finalize_write_http_header(wsi, start, &at, end) == 0;
}

void http_forget(struct http_answer *answer)
{
	free(answer->memory);
	answer->memory = NULL;
}

int http_respond(struct lws *wsi, struct http_answer *answer, unsigned status,
		 const char *type, struct slice body)
{
	bool is_head = lws_hdr_total_length(wsi, WSI_TOKEN_HEAD_URI) > 0;

	if (!write_headers(wsi, status, type, body.len))
		return -1;
	if (body.len == 0 || is_head)
		return lws_http_transaction_completed(wsi) ? -1 : 0;
	http_forget(answer);
	answer->memory = mem_alloc(LWS_PRE + body.len);
	memcpy(answer->memory + LWS_PRE, body.ptr, body.len);
	answer->len = body.len;
	(void)lws_callback_on_writable(wsi);
	return 0;
}

int http_respond_text(struct lws *wsi, struct http_answer *answer, unsigned status,
		      const char *text)
{
	return http_respond(wsi, answer, status, "text/plain; charset=utf-8",
			    slice_of(text));
}

int http_send(struct lws *wsi, struct http_answer *answer)
{
	int written;

	if (!answer->memory)
		return 0;
	written = lws_write(wsi, answer->memory + LWS_PRE, answer->len,
			    LWS_WRITE_HTTP_FINAL);
	http_forget(answer);
	return written < 0 || lws_http_transaction_completed(wsi) ? -1 : 0;
}

int http_refuse(struct lws *wsi, unsigned status, struct slice text)
{
	unsigned char memory[LWS_PRE + REFUSAL_TEXT_MAX];

	assert(text.len <= REFUSAL_TEXT_MAX);
	if (write_headers(wsi, status, "text/plain; charset=utf-8", text.len)) {
		memcpy(memory + LWS_PRE, text.ptr, text.len);
		(void)lws_write(wsi, memory + LWS_PRE, text.len, LWS_WRITE_HTTP_FINAL);
	}
	return -1;
}
