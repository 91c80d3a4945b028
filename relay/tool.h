#ifndef RELAY_TOOL_H
#define RELAY_TOOL_H

#include "relay/settings.h"

/* `perch relay owners|agents|revoke|allow`: reads and changes who is served, in the
 * database. A relay that runs on it reads it again at once. Returns the exit status. */
int tool_main(const struct settings *settings);

#endif
