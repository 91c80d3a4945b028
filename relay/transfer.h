#ifndef RELAY_TRANSFER_H
#define RELAY_TRANSFER_H

/**
 * transfer_export - `perch relay export`: every stored event as a line of JSON
 * Oldest first on stdout, without those that have expired; also beside a running relay.
 * transfer_import - `perch relay import`: the reverse, from stdin
 * Each line is verified as if it were published, but needs no AUTH. Counts what was
 * taken, known already (or known in a newer version) and refused, each of these with its
 * line; the relay must not run. Return the exit status: 1 when anything was refused or
 * failed, 2 for usage. Progress goes to stderr.
 */
int transfer_export(int argc, char *argv[]);
int transfer_import(int argc, char *argv[]);

#endif
