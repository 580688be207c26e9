/* ABS: adaptive bounded staleness. K grows, and workers that are too stale are restarted.
 *
 * After Tan, Zhu, Zhang, "ABS: adaptive bounded staleness converges faster and communicates less",
 * arXiv 2301.08895. RECONSTRUCTED without the paper's formulas for K^t and tau_max^t: it is certain
 * that K^t grows and that workers with high staleness start a new round under a dynamic threshold.
 * Here K follows AdaSync's rule (tuner/adasync_rules.c), and the bound is tau_max = max(1,
 * ceil(scale P/K)): the mean staleness of K-async is exactly P/K - 1, so the bound falls with it
 * and reaches 1 at K = P. A gradient with lag >= tau_max is never applied; the policy restarts its
 * worker (kasync with stop=yes). */
#include <math.h>

#include "tuner/adasync_rules.h"

struct abs_conf {
    struct pl_growk_conf grow;
    double scale;
};

struct abs_state {
    struct abs_conf conf;
    struct pl_growk grow;
};

static const struct pl_opt abs_opts[] = {
    PL_GROWK_OPTS(struct abs_conf, grow),
    PL_OPT_REAL(struct abs_conf, scale, "1", 1e-6, 1e6,
                "the staleness bound is scale x P/K, rounded up"),
    PL_OPT_END,
};

static void abs_bound(const struct abs_state *s, int n_workers, struct pl_knobs *knobs) {
    double bound = ceil(s->conf.scale * n_workers / knobs->k);
    knobs->bound = bound < 1 ? 1 : (uint64_t)bound;
}

static const char *abs_check(const void *conf, const struct pl_run_info *info) {
    return pl_growk_check(&((const struct abs_conf *)conf)->grow, info);
}

static void abs_init(void *state, const struct pl_run_info *info, struct pl_knobs *knobs) {
    struct abs_state *s = state;
    pl_growk_init(&s->grow, &s->conf.grow, knobs);
    abs_bound(s, info->n_workers, knobs);
}

static void abs_arrive(void *state, const struct pl_run_info *info, const struct pl_view *v,
                       const struct pl_arrival *a, struct pl_knobs *knobs) {
    struct abs_state *s = state;
    pl_growk_arrive(&s->grow, &s->conf.grow, info, v, a, knobs);
    abs_bound(s, info->n_workers, knobs);
}

static void abs_task(void *state, double seconds, bool done) {
    pl_growk_task(&((struct abs_state *)state)->grow, seconds, done);
}

const struct pl_tuner pl_tuner_abs = {
    .id = {"abs", "K grows as in AdaSync and the staleness bound shrinks with it (reconstructed)",
           "after Tan, Zhu, Zhang, arXiv 2301.08895", abs_opts, sizeof(struct abs_conf), 0},
    .moves = PL_USES_K | PL_USES_BOUND,
    .state_size = sizeof(struct abs_state),
    .check = abs_check,
    .init = abs_init,
    .arrive = abs_arrive,
    .task = abs_task,
};
