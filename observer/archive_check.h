#ifndef OBSERVER_ARCHIVE_CHECK_H
#define OBSERVER_ARCHIVE_CHECK_H

/* Reads an archive that is too large to be read on opening, once, from a thread and by a
 * connection of its own, beside whoever writes it. */
struct archive_check;

/* @on_broken: called on that thread, at most once, with what is wrong. NULL if there is
 * no thread to be had, which only means that damage shows when it is met. */
struct archive_check *archive_check_start(const char *path,
					  void (*on_broken)(void *ctx, const char *why),
					  void *ctx);
/* Ends it at once. NULL is fine. */
void archive_check_stop(struct archive_check *check);

#endif
