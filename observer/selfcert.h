#ifndef OBSERVER_SELFCERT_H
#define OBSERVER_SELFCERT_H

#include <stdbool.h>

#include "wire/base/err.h"

/* Browsers of phones take no certificate of a server that is valid for longer. Source:
 * Apple, "Requirements for trusted certificates in iOS 13": 825 days. */
#define SELFCERT_DAYS 824
#define SELFCERT_RENEW_DAYS 30 /* before its end it is made anew */

/**
 * selfcert_ensure - a certificate that this machine signs itself
 * @path: where it is kept with its key, PEM, 0600; made where there is none, anew, with
 *   another key, when it is about to end
 * @made: whether that was done
 *
 * It is for localhost, this machine's name (also as NAME.local) and its addresses as they
 * are when it is made. Nobody vouches for it: whoever sees it compares its fingerprint.
 */
bool selfcert_ensure(const char *path, bool *made, struct err *err);

#endif
