/* What a client that may send requests saves and loads in the folder of --exchange: the weights,
 * what the server's optimizer keeps (momentum, moments) with the number of its steps, and the
 * gradient that a filter compares with. The server answers "save" with the file `saved`, and takes
 * what is in the file `load`, which it removes. If it cannot, the file `refused` has a sentence.
 * Files `saved` and `refused` of earlier runs are replaced.
 * docs/workers.md has the format of both files.
 *
 * Threads: the deciding one. */
#ifndef PL_RUN_EXCHANGE_H
#define PL_RUN_EXCHANGE_H

#include "base/status.h"

struct server;

/* Fails if the folder has a file `saved` or `refused` that no run has written. */
int pl_exchange_check(const char *dir, struct pl_why *why);

void pl_exchange_save(struct server *s);
void pl_exchange_load(struct server *s);

#endif
