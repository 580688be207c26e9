/* The filter of a run: the state of its rule, and its verdict on results.
 *
 * The engine asks for a verdict on every finite result, in the order of arrival and before control
 * gets it. A result that is not believed becomes a PL_REJECT: its worker starts again on the newest
 * version, and the policy never sees it. Verdicts depend only on the vectors and their order, so a
 * replay repeats them. */
#ifndef PL_CORE_FILTER_H
#define PL_CORE_FILTER_H

#include "core/aggregate.h"
#include "core/archive.h"
#include "core/store.h"

struct pl_filter_conf {
    struct pl_choice filter; /* entry NULL: every result is believed */
    size_t dim;
    struct pl_ranges ranges; /* of the model; buffers are not judged */
    int n_workers;
    /* The gradient of the server's own samples at w, if the filter needs it. NULL: it is given from
     * outside, and nothing is believed before. */
    int (*trusted)(void *ctx, const pl_real *w, pl_real *out);
    void *ctx;
};

struct pl_filter;

/* Whether the filter can reject anything. */
bool pl_filter_any(const struct pl_choice *filter);

/* Checks that it suits the number of workers. */
int pl_filter_check(const struct pl_choice *filter, int n_workers, struct pl_why *why);

/* The number of samples that the server needs for it, or 0 if it needs none. */
uint32_t pl_filter_trusts(const struct pl_choice *filter);

/* *out is NULL if every result is believed; the functions below accept that. conf's pointers are
 * borrowed. 0 or PL_ENOMEM. */
int pl_filter_new(const struct pl_filter_conf *conf, struct pl_filter **out);
void pl_filter_free(struct pl_filter *f);

/* Gives it the gradient [dim] of the server's own samples at a version. False: it needs none. */
bool pl_filter_give(struct pl_filter *f, uint64_t version, const pl_real *g);

/* The verdict on g [dim] of `worker`, by its parameters, computed on `base` while `now` is the
 * newest version. If g is believed, it may be changed. 0, PL_ENOMEM, or what trusted() returned. */
int pl_filter_see(struct pl_filter *f, int worker, const struct pl_version *now,
                  const struct pl_version *base, pl_real *g, bool *believed);

/* The number of results that were not believed. */
uint64_t pl_filter_n(const struct pl_filter *f);

/* Whether the number of results rejected in a row says that this will not change; the message. */
bool pl_filter_stuck(const struct pl_filter *f, uint64_t times);
void pl_filter_trouble(const struct pl_filter *f, double seconds, struct pl_why *why);

/* Saves or restores its state, but not that of another rule. 0 or PL_ENOMEM. */
int pl_filter_archive(struct pl_filter *f, const struct pl_archive *k);

#endif
