/* Runs without a server: every worker has a model of its own. This file keeps the arithmetic, in
 * scalars.
 *
 * A model is a short linear combination of vectors (core/vectors.h). Workers write two kinds of
 * vectors: the base that a task is computed on, and its result, the worker's model after its own
 * steps. An exchange between peers is arithmetic on coefficients: it takes no time, never
 * waits and cannot be interrupted. Vectors move when a worker starts a task: it reads the terms
 * of its model where they lie, adds them up into its base, and computes on that. If a worker dies,
 * the results it delivered stay in the models that contain them.
 *
 *   start    the worker adds its model up into a vector, its base; if the model is one vector,
 *            times one, that vector is the base
 *   take     x_i += factor (result - base)
 *   blend    x_i = a x_i + b x_j
 *   pair     x_i, x_j = (1-a) x_i + a x_j, (1-a) x_j + a x_i, at once
 *   push     push-sum: worker i sends a share of its weight, with its model, to the inbox of j
 *   absorb   the inbox joins the model, in proportion to the weights
 *
 * A base is pending until its worker has reported it or has delivered the result. Until then only
 * the worker's own model refers to it; exchanges with others use the sum it is being made of.
 *
 * A model has at most PL_TERMS terms. An exchange that would need more is refused; policies ask
 * first (pl_fits). */
#ifndef PL_CORE_REPLICAS_H
#define PL_CORE_REPLICAS_H

#include "base/combination.h"
#include "core/plan.h"
#include "core/vectors.h"

#define PL_FIRST_VECTOR 0 /* the model that the run begins with; no worker writes it */

struct pl_replicas;

int pl_replicas_new(int n_workers, struct pl_replicas **out); /* 0 or PL_ENOMEM */
void pl_replicas_free(struct pl_replicas *b);

/* The vectors that combinations refer to: bases and results, each written by its worker. */
struct pl_vectors *pl_replicas_vectors(const struct pl_replicas *b);

/* --- called by control ------------------------------------------------------------------ */

/* Those that are not called for every task take NULL as well: if there is one model at the server,
 * there is nothing to do, and an exchange is wrong. */

/* A worker that joins has weight 1 and the model that the last worker left behind; at the start of
 * a run, the initial model. */
void pl_replicas_join(struct pl_replicas *b, int worker);
void pl_replicas_leave(struct pl_replicas *b, int worker);

int pl_replicas_start(struct pl_replicas *b, int worker);       /* 0 or PL_ENOMEM */
void pl_replicas_base_ready(struct pl_replicas *b, int worker); /* its base is complete */
void pl_replicas_arrive(struct pl_replicas *b, int worker);     /* base and result are complete */
void pl_replicas_reject(struct pl_replicas *b, int worker);     /* what it wrote is never read */
void pl_replicas_take(struct pl_replicas *b, int worker, double factor);
void pl_replicas_drop(struct pl_replicas *b, int worker);

/* Carries out a PL_BLEND, PL_PAIR, PL_PUSH or PL_ABSORB. Returns NULL, or what is wrong with it. */
const char *pl_replicas_exchange(struct pl_replicas *b, const struct pl_action *a);

/* --- what hosts and policies read -------------------------------------------------------- */

/* The task that a worker computes. */
struct pl_replica_task {
    const struct pl_combination *input; /* what its base is made of */
    int base, answer;                   /* vectors: its base and its result */
    bool base_pending;
};
struct pl_replica_task pl_replica_task(const struct pl_replicas *b, int worker);

bool pl_replicas_fits(const struct pl_replicas *b, int worker, int peer);

/* The current model, in vectors that are complete. Returns its weight, 0 if the worker is gone. */
double pl_replicas_model(const struct pl_replicas *b, int worker, struct pl_combination *out);
/* The contents of the inbox, likewise. */
double pl_replicas_inbox(const struct pl_replicas *b, int worker, struct pl_combination *out);

/* The model of the run while no worker is present. */
const struct pl_combination *pl_replicas_last_model(const struct pl_replicas *b);

int pl_replicas_n_workers(const struct pl_replicas *b);

#endif
