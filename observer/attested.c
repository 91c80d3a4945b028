#include "observer/attested.h"

#include <dirent.h>
#include <string.h>

#include "wire/base/buf.h"
#include "wire/host/paths.h"
#include "wire/nostr/nipoa.h"

#define TAG_MAX 4096

static bool path_of(const uint8_t *agent, struct buf *out, struct err *err)
{
	char name[sizeof("attested/") + 2 * KEY_BYTES] = "attested/";

	out->max = 4096;
	hex_encode(agent, KEY_BYTES, name + strlen("attested/"));
	return paths_data((struct slice){name, strlen("attested/") + 2 * KEY_BYTES}, out,
			  err);
}

bool attested_save(const uint8_t *agent, struct slice tag_json, struct err *err)
{
	struct buf path = {0}, folder = {.max = 4096};
	const bool ok = paths_data(SLICE("attested"), &folder, err) &&
			paths_make(buf_text(&folder), err) &&
			path_of(agent, &path, err) &&
			paths_write(buf_text(&path), tag_json, err);

	buf_finish(&path);
	buf_finish(&folder);
	return ok;
}

int64_t attested_until(struct crypto *crypto, const struct keypair *owner,
		       const uint8_t *agent)
{
	struct buf path = {0}, tag = {.max = TAG_MAX};
	uint8_t found[KEY_BYTES];
	int64_t expires = 0;

	if (!path_of(agent, &path, NULL) || !paths_read(buf_text(&path), &tag, NULL) ||
	    !nipoa_parse(crypto, slice_trim(buf_slice(&tag)), agent, found, &expires,
			 NULL) ||
	    memcmp(found, keypair_public(owner), KEY_BYTES) != 0)
		expires = 0;
	buf_finish(&path);
	buf_finish(&tag);
	return expires;
}

void attested_each(bool (*each)(void *ctx, const uint8_t *agent), void *ctx)
{
	struct buf path = {.max = 4096};
	struct dirent *entry;
	bool more = true;
	DIR *dir = NULL;

	if (paths_data(SLICE("attested"), &path, NULL))
		dir = opendir(buf_text(&path));
	while (dir && more && (entry = readdir(dir)) != NULL) {
		uint8_t agent[KEY_BYTES];

		if (hex_decode(slice_of(entry->d_name), agent, sizeof(agent)))
			more = each(ctx, agent);
	}
	if (dir)
		(void)closedir(dir);
	buf_finish(&path);
}
