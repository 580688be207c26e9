/* The inside of a pl_run: the outcome of a run, whatever its host. */
#ifndef PL_API_RUN_H
#define PL_API_RUN_H

#include "api/identity.h"
#include "api/sinks.h"
#include "run/server.h"
#include "sim/replay.h"

struct pl_run {
    struct pl_identity identity;
    struct pl_outcome outcome;
    char method[PL_NAME_MAX];
    char spec[PL_N_COLUMNS][PL_SPEC_MAX];
    char choices[PL_CHOICES_MAX];
    bool has_k; /* its policy has a K */
    int n_workers;
    uint64_t seed;
    double lr; /* the learning rate before its schedule */
    double batch;
    size_t dim;
    double rmse_scale; /* the losses are squared errors in this unit; 0: they are not */
    struct pl_point *point;
    size_t n_points, room;
    bool lost_points;  /* out of memory for one */
    bool interrupted;  /* the watcher ended the run */
    char diverged[80]; /* how it diverged, as a phrase; "": it did not */
    char *json;
    double worker_seconds;           /* of all workers together */
    struct pl_worker_report *worker; /* [n_workers]; NULL: unknown */
    struct pl_last_save last_save;
    char folder[PL_TEXT_MAX]; /* of its checkpoints; "": none was written */
    bool replayed;
    struct pl_replay_check check;
    char replay[240]; /* how the replay compares, as a sentence */
};

struct pl_saved;

/* Calls `use` with the checkpoint at `path`, a file or a folder, and a copy of the setup, because
 * the options of the checkpoint are for this call only. */
typedef int pl_use_checkpoint(struct pl_setup *s, const struct pl_saved *from, void *ctx);
int pl_with_checkpoint(struct pl_setup *setup, const char *path, pl_use_checkpoint *use, void *ctx);

/* Says what a checkpoint has that only clients can evaluate. `updates` may be NULL. */
int pl_eval_by_clients(struct pl_setup *s, const struct pl_saved *from, const char *updates);

struct pl_run *pl_run_new(const struct pl_built *built); /* NULL: out of memory */

/* Gives the run its identity: see pl_identity_new. */
int pl_run_begin(struct pl_run *r, struct pl_setup *s, const struct pl_built *built,
                 const char *kind, const char *recording, const struct pl_resumed *resumed);

/* Tells the embedding program that the run begins. */
void pl_run_announce(const struct pl_run *r, const struct pl_setup *s);

/* Adds the end to its identity. `rc` and `why`: its status, and the message if it failed. */
void pl_run_end(struct pl_run *r, const struct pl_job *job, int rc, const struct pl_why *why);

/* Call it after every evaluation. pl_run_complete fails if there was no memory for one. */
void pl_run_point(struct pl_run *r, const struct pl_point *p);
int pl_run_complete(struct pl_run *r, struct pl_why *why);

/* What the workers did. 0 or PL_ENOMEM. */
int pl_run_report(struct pl_run *r, const struct pl_timeline *timeline);

#endif
