#include "observer/token.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "wire/base/buf.h"
#include "wire/host/loop.h"
#include "wire/host/paths.h"

static_assert(sodium_base64_ENCODED_LEN(32, sodium_base64_VARIANT_URLSAFE_NO_PADDING) ==
		      TOKEN_LEN + 1,
	      "32 bytes are 43 characters");

static bool is_token(struct slice text)
{
	uint8_t bytes[32];
	size_t len;

	return text.len == TOKEN_LEN &&
	       sodium_base642bin(bytes, sizeof(bytes), text.ptr, text.len, NULL, &len,
				 NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0 &&
	       len == sizeof(bytes);
}

bool token_rotate(char out[TOKEN_LEN + 1], struct err *err)
{
	struct buf path = {.max = 4096};
	char token[TOKEN_LEN + 1];
	uint8_t bytes[32];
	bool ok;

	loop_random(bytes, sizeof(bytes));
	(void)sodium_bin2base64(token, sizeof(token), bytes, sizeof(bytes),
				sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	ok = paths_data(SLICE("token"), &path, err) &&
	     paths_write(buf_text(&path), (struct slice){token, TOKEN_LEN}, err);
	if (ok)
		memcpy(out, token, sizeof(token));
	sodium_memzero(bytes, sizeof(bytes));
	sodium_memzero(token, sizeof(token));
	buf_finish(&path);
	return ok;
}

bool token_ensure(char out[TOKEN_LEN + 1], struct err *err)
{
	struct buf path = {.max = 4096}, text = {.max = 256};
	bool ok = paths_data(SLICE("token"), &path, err);
	bool found = ok && paths_read(buf_text(&path), &text, NULL) &&
		     is_token(slice_trim(buf_slice(&text)));

	if (found) {
		memcpy(out, slice_trim(buf_slice(&text)).ptr, TOKEN_LEN);
		out[TOKEN_LEN] = '\0';
	}
	buf_finish(&path);
	buf_wipe(&text);
	return ok && (found || token_rotate(out, err));
}
