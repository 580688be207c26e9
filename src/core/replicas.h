/* The book of a run without a server: who has which model, in scalars.
 *
 * Every worker has a model of its own. Vectors that anybody can refer to are written once, by one
 * worker, and are whole before anybody else hears of them: what a worker computed on (its base)
 * and what it brought (its model after its own steps). They are called snapshots. A worker's
 * current model is a row: a short sum of snapshots times coefficients. An exchange between peers
 * is arithmetic on rows, so it takes no time, waits for nobody and cannot be interrupted; vectors
 * move when a worker starts, makes its row into one vector by reading the snapshots of others
 * where they lie, and computes on that. Whoever dies leaves what it brought.
 *
 *   start    the worker makes its row into a vector, its base; where the row is one snapshot times
 *            one, that is the base, and nothing has to be made
 *   take     row += factor (brought - base)
 *   blend    row_i = a row_i + b row_j
 *   pair     row_i, row_j = (1-a) row_i + a row_j, (1-a) row_j + a row_i: both at once
 *   give     push-sum: i sends a share of its weight, with its row, to the inbox of j
 *   receive  what is in the inbox joins the row, each in proportion to its weight
 *
 * A base is on its way until its worker has said that it is made, or has answered. Only its own
 * worker's row refers to it till then: whoever else mixes that row gets the sum that it is made of.
 *
 * Rows have at most PL_TERMS terms; an exchange that would not fit is refused, and policies ask
 * first. Snapshots are counted, and their numbers used again when nobody refers to them: rows,
 * inboxes, tasks that are being computed, and whoever holds one. */
#ifndef PL_CORE_REPLICAS_H
#define PL_CORE_REPLICAS_H

#include "base/combination.h"
#include "core/plan.h"

#define PL_FIRST_SNAPSHOT 0 /* the model that the run begins with; nobody's */

struct pl_replicas;

int pl_replicas_new(int n_workers, struct pl_replicas **out); /* 0 or PL_ENOMEM */
void pl_replicas_free(struct pl_replicas *b);

/* Called when nobody refers to a snapshot any more; its number may come again. */
void pl_replicas_on_free(struct pl_replicas *b, void (*freed)(void *ctx, int snapshot), void *ctx);
void pl_replicas_hold(struct pl_replicas *b, int snapshot);
void pl_replicas_release(struct pl_replicas *b, int snapshot);

/* --- what control tells ------------------------------------------------------------------ */

/* It has the model of the last that left when nobody else was there, and at first the run's; its
 * weight is 1. */
void pl_replicas_join(struct pl_replicas *b, int worker);
void pl_replicas_leave(struct pl_replicas *b, int worker);

int pl_replicas_start(struct pl_replicas *b, int worker);       /* 0 or PL_ENOMEM */
void pl_replicas_base_ready(struct pl_replicas *b, int worker); /* its base is whole */
void pl_replicas_arrive(struct pl_replicas *b,
                        int worker); /* a sound answer; its base is whole as well */
void pl_replicas_reject(struct pl_replicas *b, int worker); /* nothing that it wrote is ever read */
void pl_replicas_take(struct pl_replicas *b, int worker, double factor);
void pl_replicas_drop(struct pl_replicas *b, int worker); /* NULL is fine */

/* Carries out a PL_BLEND, PL_PAIR, PL_PUSH or PL_ABSORB. NULL, or what was wrong with it. */
const char *pl_replicas_exchange(struct pl_replicas *b, const struct pl_action *a);

/* --- what hosts and policies read -------------------------------------------------------- */

/* The task that a worker computes. */
struct pl_replica_task {
    const struct pl_combination *row; /* what its base is made of */
    int base, answer; /* snapshots; a base that is the row's only one was there before */
    bool base_pending;
};
struct pl_replica_task pl_replica_task(const struct pl_replicas *b, int worker);

bool pl_replicas_fits(const struct pl_replicas *b, int worker, int peer);

/* The current model, in snapshots that are whole; its weight, 0 where nobody is there. */
double pl_replicas_model(const struct pl_replicas *b, int worker, struct pl_combination *out);
/* What is in the inbox, likewise. */
double pl_replicas_inbox(const struct pl_replicas *b, int worker, struct pl_combination *out);

/* The model of the run where nobody is there. */
const struct pl_combination *pl_replicas_last_model(const struct pl_replicas *b);

int pl_replicas_n_workers(const struct pl_replicas *b);
int pl_replicas_n_vectors(const struct pl_replicas *b);            /* numbers are below this */
int pl_replicas_writer(const struct pl_replicas *b, int snapshot); /* worker, or -1: nobody */

#endif
