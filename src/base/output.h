/* Files that are written as a whole: under a temporary name beside the file, which is renamed once
 * it is complete. A reader finds the old file or the new one. A file that is replaced keeps its
 * permissions. Everything that replaces a file is
 * written this way.
 *
 * The temporary file PATH.paceline-<process>-<number>.tmp is created, never opened: it follows no
 * link, and a file that has the name already stays. It is locked until its writer has ended, and
 * the next write to PATH removes those of writers that were killed. */
#ifndef PL_BASE_OUTPUT_H
#define PL_BASE_OUTPUT_H

#include <stdbool.h>

#include "base/status.h"

#define PL_OUTPUT_PATH 4096

struct pl_output {
    int fd;
    char path[PL_OUTPUT_PATH], temporary[PL_OUTPUT_PATH];
};

/* These return PL_OK, or a status and the reason, which is a phrase without the path. */
int pl_output_begin(struct pl_output *o, const char *path, struct pl_why *why);
int pl_output_put(struct pl_output *o, const void *from, size_t n, struct pl_why *why);
int pl_output_sync(struct pl_output *o, struct pl_why *why); /* to the disk */

/* Ends what pl_output_begin began: gives the file its name, if `rc` is PL_OK, or removes it.
 * Returns `rc`, or what went wrong. */
int pl_output_end(struct pl_output *o, int rc, struct pl_why *why);

/* All of that: replaces the file `path` by one with n bytes. */
int pl_output_write(const char *path, const void *from, size_t n, struct pl_why *why);

/* Fails because the folder or file `path` could not be created, as errno says. `what` is what it is
 * called. If a folder above it is missing, the message names that. */
int pl_output_no_folder(const char *what, const char *path, struct pl_why *why);

/* Whether `name` is one of a temporary file; *front is the length of the name it would get. */
bool pl_output_is_temporary(const char *name, size_t *front);

/* Removes a temporary file if its writer has been killed. */
void pl_output_sweep(const char *temporary);

#endif
