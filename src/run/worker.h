/* A worker: pulls orders, computes, and pushes results until the server shuts down.
 *
 * Threads: the worker's thread, or the only one of its process, executes everything here. */
#ifndef PL_RUN_WORKER_H
#define PL_RUN_WORKER_H

#include <string.h>

#include "learn/task.h"
#include "sys/core_wait.h"
#include "transport/transport.h"

/* The note of an order. */
struct pl_run_note {
    uint64_t version; /* that the task is computed on */
    double lr;        /* in force at that version */
    uint64_t acked;   /* the worker's last task whose result was accepted; 0: none */
    uint64_t applied; /* its last task whose result is in the newest version; 0: none */
    uint64_t part;    /* the number of its part */
    uint64_t checks; /* whether the worker looks if its result is finite; otherwise a commit does */
};
_Static_assert(sizeof(struct pl_run_note) <= PL_NOTE_WORDS * sizeof(uint64_t), "an order has room");

static inline void pl_note_pack(struct pl_order *o, const struct pl_run_note *note) {
    memcpy(o->note, note, sizeof *note);
}

static inline struct pl_run_note pl_note_unpack(const struct pl_order *o) {
    struct pl_run_note note;
    memcpy(&note, o->note, sizeof note);
    return note;
}

/* Computes until there are no more orders, and keeps `waited` up to date unless it is NULL. 0 or
 * PL_ENOMEM. */
int pl_worker_loop(const struct pl_job *job, const struct pl_transport *t, struct pl_link *link,
                   int worker, struct pl_core_waited *waited);

/* The vector [dim] that an order is computed on: its only input, or the sum of its inputs, which is
 * written to its base and announced to the server. NULL if the order is on strips. */
const float *pl_worker_input(const struct pl_transport *t, struct pl_link *link,
                             const struct pl_order *o, size_t dim);

#endif
