/* Adaptive fastest-k: K grows when successive gradients begin to point in opposite directions.
 *
 * Kas Hanna, Bitar, Parag, Dasari, El Rouayheb, "Adaptive distributed stochastic gradient descent
 * for minimizing delay in the presence of stragglers", ICASSP 2020 (arXiv 2002.11005) and
 * arXiv 2208.03134. A counter goes up when <g_j, g_{j-1}> < 0 and down otherwise. When it exceeds
 * `thresh`, and `burnin` updates have passed since the last change, K grows by `step`. No loss
 * value is needed. Difference: the counter never falls below zero, so a long steady phase does not
 * delay the next change. */
#include "core/tuner.h"

struct fastestk_conf {
    int64_t k0, step, thresh, burnin;
};

struct fastestk {
    struct fastestk_conf conf;
    int64_t counter;
    uint64_t changed; /* the version at the last change of K */
};

static const struct pl_opt fastestk_opts[] = {
    PL_OPT_INT(struct fastestk_conf, k0, "0", 0, PL_MAX_WORKERS, "initial K (0: the policy's k)"),
    PL_OPT_INT(struct fastestk_conf, step, "1", 1, PL_MAX_WORKERS, "increment of K"),
    PL_OPT_INT(struct fastestk_conf, thresh, "10", 0, 1e9, "net sign changes before K grows"),
    PL_OPT_INT(struct fastestk_conf, burnin, "100", 0, 1e12,
               "minimum updates between increments of K"),
    PL_OPT_END,
};

static const char *fastestk_check(const void *conf, const struct pl_run_info *info) {
    const struct fastestk_conf *c = conf;
    int64_t k0 = c->k0 > 0 ? c->k0 : info->k;
    return k0 < info->n_workers || k0 == 1
               ? NULL
               : "K cannot grow because it starts at the number of workers; set a smaller k0 or k";
}

static void fastestk_init(void *state, const struct pl_run_info *info, struct pl_knobs *knobs) {
    const struct fastestk *s = state;
    (void)info;
    if (s->conf.k0 > 0) knobs->k = (int)s->conf.k0;
}

static void fastestk_measure(void *state, const struct pl_run_info *info, const struct pl_view *v,
                             const struct pl_measure *m, struct pl_knobs *knobs) {
    struct fastestk *s = state;
    if (m->dot < 0)
        s->counter++;
    else if (m->dot >= 0 && s->counter > 0)
        s->counter--;
    if (s->counter > s->conf.thresh && v->version - s->changed > (uint64_t)s->conf.burnin &&
        knobs->k + s->conf.step <= info->n_workers) {
        knobs->k += (int)s->conf.step;
        s->counter = 0;
        s->changed = v->version;
    }
}

const struct pl_tuner pl_tuner_fastestk = {
    .id = {"fastestk", "K grows when successive gradients disagree in direction",
           "Kas Hanna et al., arXiv 2002.11005, 2208.03134", fastestk_opts,
           sizeof(struct fastestk_conf), PL_NEEDS_SERVER},
    .moves = PL_USES_K,
    .state_size = sizeof(struct fastestk),
    .check = fastestk_check,
    .init = fastestk_init,
    .measure = fastestk_measure,
};
