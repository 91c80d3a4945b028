#ifndef WIRE_HOST_PORT_H
#define WIRE_HOST_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/err.h"

/* True for localhost, 127.0.0.0/8 and ::1, with or without brackets. */
bool host_is_loopback(const char *host);

#define HOST_TEXT_MAX 64
/* The address of this machine that others reach it by, as its routes say; 127.0.0.1 when
 * it has none. Sends nothing. */
void host_outward(char out[HOST_TEXT_MAX]);

/* Fills @err with why nobody can listen on @host (a numeric address) and @port: who has
 * it, as far as /proc tells, and what to do; @option ("--listen") takes another port. */
void port_explain(const char *host, uint16_t port, const char *option, struct err *err);

#endif
