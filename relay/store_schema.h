#ifndef RELAY_STORE_SCHEMA_H
#define RELAY_STORE_SCHEMA_H

/* The scripts that make the relay's database, for db_open(): one that was released never
 * changes, what is new goes behind the last. */
extern const char *const store_migrations[];

#endif
