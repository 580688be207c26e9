/* The saver: writes checkpoints while the run continues. It copies the state, which takes a moment,
 * and writes the model from a version that it holds.
 *
 * Threads: all functions are called by the thread that decides; files are written by a thread of
 * the saver's own. */
#ifndef PL_RUN_SAVER_H
#define PL_RUN_SAVER_H

#include "engine/engine.h"
#include "run/server.h"
#include "run/shards.h"

struct pl_saver;

/* Where the saver gets the model from. */
struct pl_saver_model {
    int (*get)(void *ctx, float *room, struct pl_model_now *out); /* not 0: unavailable */
    void *ctx;
    bool needs_room;
};

/* `shards` is NULL if there is one server. `done` is called, on another thread, when a file is
 * written. */
int pl_saver_new(const struct pl_server_conf *conf, struct pl_shards *shards,
                 const struct pl_saver_model *model, void (*done)(void *ctx), void *ctx,
                 struct pl_saver **out, struct pl_why *why);
void pl_saver_free(struct pl_saver *s); /* NULL is fine */

/* Adds to a snapshot what every file says about the run. */
void pl_saver_notes(const struct pl_save_conf *c, struct pl_snapshot *to);

/* Whether the number of updates alone makes a checkpoint due. */
bool pl_saver_due(const struct pl_saver *s, uint64_t updates);

/* Begins a checkpoint if one is due and none is being written; warns if the last could not be
 * written. */
void pl_saver_poll(struct pl_saver *s, struct pl_engine *e, uint64_t now_ns);

/* A checkpoint is due at once, or as soon as the one being written is complete. */
void pl_saver_ask(struct pl_saver *s);

/* A model w [dim] was scored after `updates` updates. If its test metric is the best so far, it is
 * copied, and written with the next checkpoint. */
void pl_saver_scored(struct pl_saver *s, const float *w, const struct pl_score *score,
                     uint64_t updates);

/* Writes one last checkpoint. A model that is not finite is not saved: PL_ERUN. The run's log says
 * that, once, unless the caller reports it. */
int pl_saver_finish(struct pl_saver *s, struct pl_engine *e, bool reports, struct pl_why *why);

/* Writes the best model if it is not on the disk yet. */
int pl_saver_finish_best(struct pl_saver *s, struct pl_why *why);

#endif
