/* Replay: the simulator driven by a recording. Workers join, leave and return results exactly when
 * they did; control, store and gradients work as always. The events that control handles are
 * compared with the recording, and so are the weights at the end.
 *
 * Threads: one. */
#ifndef PL_SIM_REPLAY_H
#define PL_SIM_REPLAY_H

#include "timing/recording.h"

/* How a replay compares with its recording. */
struct pl_replay_check {
    size_t n_same; /* events that are the same, from the start */
    bool differs;
    bool interrupted; /* before the end: the rest was not compared */
    char how[160];    /* the first difference, or "" */
};

struct pl_replay;

/* `r` is borrowed; `check` is filled during the run. */
int pl_replay_new(const struct pl_recording *r, int n_workers, struct pl_replay_check *check,
                  struct pl_replay **out, struct pl_why *why);
void pl_replay_free(struct pl_replay *p); /* NULL is fine */

/* The next event of the recording, which the simulator must make happen; NULL after the last. */
const struct pl_event *pl_replay_next(struct pl_replay *p);

/* When the result of the task arrived that `worker` starts now, or UINT64_MAX for never. The tasks
 * of a worker must be asked for in ascending order. */
uint64_t pl_replay_finish(struct pl_replay *p, int worker, uint64_t task);

/* When the replay ends: with the run, or with the last event if the recording was cut short. */
uint64_t pl_replay_until(const struct pl_replay *p);

/* A pl_control_log; ctx is the replay. Compares the event with the last from pl_replay_next. */
void pl_replay_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan);

/* Instead of pl_replay_end, if the caller ended the replay. */
void pl_replay_interrupt(struct pl_replay *p);

/* After the last event: the number of updates and the weights (NULL if there are none). */
void pl_replay_end(struct pl_replay *p, uint64_t n_updates, const float *weights, size_t dim);

#endif
