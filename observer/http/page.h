#ifndef OBSERVER_HTTP_PAGE_H
#define OBSERVER_HTTP_PAGE_H

#include <stddef.h>

/* The page, built from observer/web/ and embedded in the binary (profiles/page.cmake
 * makes the table). "/" is the document; the others have their hash in their name. */
struct page_asset {
	const char *path;           /* "/" or "/app-1a2b3c4d.js" */
	const char *content_type;   /* "text/javascript; charset=utf-8" */
	const unsigned char *bytes; /* as served without compression */
	size_t len;
	const unsigned char *gzip; /* gzip form, for Accept-Encoding: gzip */
	size_t gzip_len;
};

extern const struct page_asset page_assets[];
extern const size_t page_asset_count;

/* What a file of `perch export --format html` is before and behind its data: the same
 * page in one document. Not served. */
extern const struct page_asset page_replay[2];

#endif
