/* Command lines: how the process was started, and how to run the same experiment again. */
#ifndef PL_API_COMMAND_H
#define PL_API_COMMAND_H

#include "api/setup.h"

#define PL_COMMAND_MAX 16384 /* bytes of the arguments of the process that are read */

/* What is shown and stored instead of a value of --requests that is a token. */
#define PL_COMMAND_MASK "***"
bool pl_command_masks(const char *requests);

/* The arguments of this process, as the system has them, also those of an embedding program: each
 * ends with a zero, and instead of the token of --requests there is PL_COMMAND_MASK. Returns the
 * number of bytes. */
size_t pl_command_read(char text[PL_COMMAND_MAX + 1]);

/* A command line for a shell that runs the same experiment and writes no files, malloc()ed; NULL:
 * out of memory. `kind` is that of pl_identity_new; `recording` is the file of a replay,
 * `checkpoint` the one that the run continues from, and both may be NULL. A race, and a run that
 * only an embedding program can set up, have the arguments of the process. */
char *pl_command_new(const struct pl_setup *s, const char *kind, const char *recording,
                     const char *checkpoint);

#endif
