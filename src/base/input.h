/* Files to read from: only plain ones, because a pipe or a device may never end. */
#ifndef PL_BASE_INPUT_H
#define PL_BASE_INPUT_H

#include <stdio.h>

/* Opens a plain file for reading, without waiting for whatever else has this name. Returns the
 * descriptor, or -1 and a phrase for the error message in *wrong. */
int pl_input_open(const char *path, const char **wrong);

FILE *pl_input_file(const char *path, const char **wrong); /* the same as a stream, or NULL */

#endif
