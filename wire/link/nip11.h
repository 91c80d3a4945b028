#ifndef WIRE_LINK_NIP11_H
#define WIRE_LINK_NIP11_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/slice.h"

#define NIP11_BYTES_MAX (64 * 1024) /* of the document; our choice */
#define NIP11_WAIT_MS 3000 /* a relay that does not answer is none that has limits */

struct link_info;

/* Takes what concerns us from a relay's information document, and sets known; a document
 * that is none, or has another shape, leaves @info as it was. Source: NIP-11. */
void nip11_parse(struct slice document, struct link_info *info);
/* Reads an HTTP Date, "Mon, 30 Nov 2026 08:00:00 GMT", as the middle of its second. */
bool nip11_parse_date(struct slice text, int64_t *unix_ms);

#endif
