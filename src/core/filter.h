/* The filter of a run: what its rule remembers, and its verdict on what arrives.
 *
 * A host asks for it once for every sound contribution, in the order of arrival and before control
 * hears of it. What is not believed becomes a PL_REJECT: its worker starts anew on the newest
 * version, and no policy ever sees it. Verdicts depend on the vectors and their order alone, so a
 * replay has the same ones. */
#ifndef PL_CORE_FILTER_H
#define PL_CORE_FILTER_H

#include "core/aggregate.h"
#include "core/archive.h"
#include "core/store.h"

struct pl_filter_conf {
    struct pl_choice filter; /* entry NULL: everybody is believed */
    size_t dim;
    int n_workers;
    /* The gradient of the server's own samples at w; only where the filter trusts. */
    int (*trusted)(void *ctx, const pl_real *w, pl_real *out);
    void *ctx;
};

struct pl_filter;

/* Whether there is anything to ask. */
bool pl_filter_any(const struct pl_choice *filter);

/* Whether it suits so many workers. */
int pl_filter_check(const struct pl_choice *filter, int n_workers, struct pl_why *why);

/* How many samples of its own the server needs for it; 0: none. */
uint32_t pl_filter_trusts(const struct pl_choice *filter);

/* *out is NULL where everybody is believed; the functions below take that, and believe. conf's
 * pointers are borrowed. 0 or PL_ENOMEM. */
int pl_filter_new(const struct pl_filter_conf *conf, struct pl_filter **out);
void pl_filter_free(struct pl_filter *f);

/* The verdict on g [dim] of `worker`, computed on `base` while `now` is the newest version; g may
 * be changed where it is believed. 0, PL_ENOMEM, or what trusted() returned. */
int pl_filter_see(struct pl_filter *f, int worker, const struct pl_version *now,
                  const struct pl_version *base, pl_real *g, bool *believed);

/* Contributions that were not believed. */
uint64_t pl_filter_n(const struct pl_filter *f);

/* So many in a row that nobody will be believed any more; and the sentence that says so. */
bool pl_filter_stuck(const struct pl_filter *f, uint64_t times);
void pl_filter_trouble(const struct pl_filter *f, double seconds, struct pl_why *why);

/* Saves or restores what it remembers; of another rule's memory it takes nothing. 0 or PL_ENOMEM.
 */
int pl_filter_archive(struct pl_filter *f, const struct pl_archive *k);

#endif
