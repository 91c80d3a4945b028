#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

/**
 * relay_main - `perch relay`: route kind 24200 frames between agents and their owners
 * Runs until SIGTERM or SIGINT. Returns the exit status: 0 stopped, 1 could not start,
 * 2 usage.
 */
int relay_main(int argc, char *argv[]);

#endif
