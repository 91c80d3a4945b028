#ifndef AGENT_LOGIN_H
#define AGENT_LOGIN_H

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/**
 * login_hint - what to do when an agent wants a login (-32000)
 * @command: the agent's argv
 * @auth_methods: its authMethods array text, or empty
 * Appends one or two sentences: the ways it offers, and what to run in a terminal.
 */
void login_hint(char *const *command, struct slice auth_methods, struct buf *out);

#endif
