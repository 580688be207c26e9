/* A folder for the files of a test program, made in TMPDIR. */
#ifndef PL_TESTS_FOLDER_H
#define PL_TESTS_FOLDER_H

#include <stddef.h>

extern char folder[200]; /* its path */

int folder_make(void **state);   /* the setup of a group of tests */
int folder_remove(void **state); /* its teardown; fails if a test left a file */
int folder_clear(void **state);  /* the same, but removes all that is in the folder first */
/* Removes these files, where they exist, and the folder; fails if there are others. */
int folder_end(const char *const *names, size_t n);

const char *folder_path(const char *name); /* valid for the next three calls */
void folder_write(const char *name, const void *bytes, size_t n);
size_t folder_read(const char *name, void *bytes, size_t max);

/* Of any folder: the number of entries that do not begin with a dot; removes all that is in it. */
int folder_count(const char *path);
void folder_empty(const char *path);

#endif
