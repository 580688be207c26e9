/* The saver: checkpoints, made while the run goes on. What changes is copied in a moment; the model
 * is written from a version that is held. */
#ifndef PL_RUN_SAVER_H
#define PL_RUN_SAVER_H

#include "core/filter.h"
#include "run/server.h"
#include "run/shards.h"

struct pl_saver;

/* `shards` is NULL where there is one server; `filter` is kept along, NULL: none. `done` is called,
 * on another thread, when a file is written. */
int pl_saver_new(const struct pl_server_conf *conf, struct pl_shards *shards,
                 struct pl_filter *filter, void (*done)(void *ctx), void *ctx,
                 struct pl_saver **out, struct pl_why *why);
/* Where there is no version to save: model() fills [dim]; 0, or it could not. */
int pl_saver_from(struct pl_saver *s, int (*model)(void *ctx, float *out), void *ctx);
void pl_saver_free(struct pl_saver *s); /* NULL is fine */

/* Whether the number of updates alone makes one due. */
bool pl_saver_due(const struct pl_saver *s, uint64_t updates);

/* Begins one where one is due and none is under way; warns where the last could not be written. */
void pl_saver_look(struct pl_saver *s, struct pl_control *control, struct pl_store *store,
                   uint64_t now_ns);

/* One last checkpoint; the sentence where it, or one before, could not be written. */
int pl_saver_finish(struct pl_saver *s, struct pl_control *control, struct pl_store *store,
                    struct pl_why *why);

#endif
