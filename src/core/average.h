/* Averages of the model over its last updates.
 *
 * Training continues from the newest version, whatever is averaged. What is evaluated, compared
 * with targets and saved for use is the average. After a large learning rate or much noise it is
 * closer to the minimum than any single version (Polyak and Juditsky, SIAM J. Control Optim. 1992;
 * Rakhlin, Shamir, Sridharan, ICML 2012 for the tail; Izmailov et al., UAI 2018).
 *
 * tail:F is the mean of about the last F of all n updates. Versions are not stored. There are two
 * windows: `older` is the mean of a finished window, `recent` that of the window behind it, which
 * grows by one version per update. As soon as `recent` has F n versions, it becomes `older`, and an
 * empty window begins. The average is that of both windows. It contains the last L updates without
 * a gap, each with the same weight, and after every update
 *
 *     min(n, F n) <= L < (2 F - F^2) n + 3:
 *
 * `older` had at least F m versions when it was finished at update m, and n - m have come since;
 * for the other side, no window grows beyond F times the updates at its end, plus one.
 *
 * ema:B is the mean with weights that fall by B per update: recent += (1 - B) / (1 - B^t) (w -
 * recent) at the t-th update, so that the weights sum to one from the first update on.
 *
 * If the model is replaced from outside, the average begins again. */
#ifndef PL_CORE_AVERAGE_H
#define PL_CORE_AVERAGE_H

#include "base/status.h"
#include "core/archive.h"
#include "core/average_at.h"

enum pl_average_kind { PL_AVERAGE_NONE, PL_AVERAGE_TAIL, PL_AVERAGE_EMA };

struct pl_average_conf {
    enum pl_average_kind kind;
    double number; /* F of the tail, B of the EMA */
};

/* Reads none, tail, tail:F or ema:B. */
int pl_average_parse(const char *spec, struct pl_average_conf *out, struct pl_why *why);

/* Vectors that an average keeps. */
static inline int pl_average_vectors(const struct pl_average_conf *c) {
    return c->kind == PL_AVERAGE_TAIL ? 3 : c->kind == PL_AVERAGE_EMA ? 1 : 0;
}

struct pl_average {
    struct pl_average_conf conf;
    size_t dim;
    pl_real *vector[3];         /* owned by the store */
    uint64_t n_recent, n_older; /* versions in each window; the EMA has one window */
    double weight;              /* 1 - B^n_recent */
    bool is_shown;              /* vector[2] is that of now */
};

/* The next version, the n-th, joins: counts it, and tells how. If `shows`, what is shown is written
 * at once. */
struct pl_average_at pl_average_next(struct pl_average *a, uint64_t n, bool shows);

/* The same for a version w [dim] that this process can read. */
void pl_average_add(struct pl_average *a, const pl_real *w, uint64_t n);

/* The average [dim], valid until the next version joins; NULL if there is none yet. */
const pl_real *pl_average_shown(struct pl_average *a);

void pl_average_restart(struct pl_average *a);

/* Saves or restores the average. One of another kind is not restored: it begins again. 0 or
 * PL_EDATA. */
int pl_average_archive(struct pl_average *a, const struct pl_archive *k);

#endif
