/* A copy of a run at one moment, for a standby: what a checkpoint has.
 *
 * Threads: the one that decides makes it; one other, later, packs and frees it. */
#ifndef PL_RUN_COPY_H
#define PL_RUN_COPY_H

#include "engine/engine.h"
#include "run/server.h"

struct pl_copy;

/* `room` [dim] is used if the model is not a version of this server. 0, PL_ENOMEM or PL_ERUN. */
int pl_copy_new(const struct pl_server_conf *conf, struct pl_engine *e, float *room,
                struct pl_copy **out);
void pl_copy_free(struct pl_copy *c); /* NULL is fine */

uint64_t pl_copy_version(const struct pl_copy *c);

/* The bytes of a checkpoint, malloc()ed; once. */
int pl_copy_pack(struct pl_copy *c, unsigned char **out, size_t *bytes, struct pl_why *why);

#endif
