/* Replay: the simulator fed with a recording. Workers come, go and bring their tasks back exactly
 * when they did; control, store and gradients do what they always do. What control sees is compared
 * with what was recorded, and so are the weights at the end.
 *
 * Threads: one. */
#ifndef PL_SIM_REPLAY_H
#define PL_SIM_REPLAY_H

#include "timing/recording.h"

/* How a replay compares with its recording. */
struct pl_replay_check {
    size_t n_same; /* events from the start on that are the same */
    bool differs;
    char how[160]; /* what differed first; "" where nothing did */
};

struct pl_replay;

/* `r` is borrowed, `check` is filled as the run goes on. */
int pl_replay_new(const struct pl_recording *r, int n_workers, struct pl_replay_check *check,
                  struct pl_replay **out, struct pl_why *why);
void pl_replay_free(struct pl_replay *p); /* NULL is fine */

/* The next event of the recording, to be made to happen; NULL after the last. */
const struct pl_event *pl_replay_next(struct pl_replay *p);

/* When the task came back that `worker` starts now; UINT64_MAX: never. A worker's tasks must be
 * asked for in ascending order. */
uint64_t pl_replay_finish(struct pl_replay *p, int worker, uint64_t task);

/* When the replay ends: with the run, or with the last event where the recording was cut. */
uint64_t pl_replay_until(const struct pl_replay *p);

/* A pl_control_log; ctx is the replay. Compares the event with the one that pl_replay_next gave. */
void pl_replay_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan);

/* After the last event: the number of updates and the weights (NULL: none). */
void pl_replay_end(struct pl_replay *p, uint64_t n_updates, const float *weights, size_t dim);

#endif
