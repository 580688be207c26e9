/* Learning-rate schedules: a factor on --lr during the run. They chain with '+': the factors of
 * "warmup:over=5+step:at=80,120" multiply. Progress is counted in epochs (samples applied over the
 * size of the training set) or, with unit=updates, in commits. */
#include <math.h>

#include "core/rule.h"

#define SCHEDULE_UNIT                                                                              \
    PL_OPT_CHOICE(struct pl_schedule_unit, unit, "epochs", "epochs|updates", "unit of its numbers")

/* --- constant ---------------------------------------------------------------------------- */

static double constant_factor(const void *conf, double progress, int n_workers) {
    (void)conf;
    (void)progress;
    (void)n_workers;
    return 1;
}

static const struct pl_schedule schedule_constant = {
    .id = {.name = "constant",
           .brief = "constant rate",
           .paper = "",
           .opts = pl_no_opts,
           .conf_size = sizeof(struct pl_schedule_unit)},
    .factor = constant_factor,
};

/* --- warmup: linear from eta/N to eta (Goyal et al. 2017; DANA and Gap-Aware use 5 epochs)
 * -------- */

struct warmup {
    struct pl_schedule_unit unit;
    double over, from;
};

static const struct pl_opt warmup_opts[] = {
    PL_OPT_REAL(struct warmup, over, "5", 1e-9, 1e12, "duration of the warm-up"),
    PL_OPT_REAL(struct warmup, from, "0", 0, 1, "initial fraction of the rate (0: 1 / workers)"),
    SCHEDULE_UNIT,
    PL_OPT_END,
};

static double warmup_factor(const void *conf, double progress, int n_workers) {
    const struct warmup *c = conf;
    double from = c->from > 0 ? c->from : 1.0 / n_workers;
    return progress >= c->over ? 1 : from + (1 - from) * progress / c->over;
}

static const struct pl_schedule schedule_warmup = {
    .id = {.name = "warmup",
           .brief = "linear rise to the full rate",
           .paper = "Goyal et al., arXiv 1706.02677",
           .opts = warmup_opts,
           .conf_size = sizeof(struct warmup)},
    .factor = warmup_factor,
};

/* --- step -------------------------------------------------------------------------------- */

struct step {
    struct pl_schedule_unit unit;
    struct pl_list_of at;
    double by;
};

static const struct pl_opt step_opts[] = {
    PL_OPT_LIST(struct step, at, "80,120", 0, 1e12, "points at which the rate drops"),
    PL_OPT_REAL(struct step, by, "0.1", 0, 1, "factor on the rate at each point"),
    SCHEDULE_UNIT,
    PL_OPT_END,
};

static double step_factor(const void *conf, double progress, int n_workers) {
    const struct step *c = conf;
    double factor = 1;
    (void)n_workers;
    for (int i = 0; i < c->at.n; i++)
        if (progress >= c->at.at[i]) factor *= c->by;
    return factor;
}

static const struct pl_schedule schedule_step = {
    .id = {.name = "step",
           .brief = "drops at given points",
           .paper = "",
           .opts = step_opts,
           .conf_size = sizeof(struct step)},
    .factor = step_factor,
};

/* --- cosine ------------------------------------------------------------------------------ */

struct cosine {
    struct pl_schedule_unit unit;
    double over, to;
};

static const struct pl_opt cosine_opts[] = {
    PL_OPT_REAL(struct cosine, over, "100", 1e-9, 1e12, "duration of the decay"),
    PL_OPT_REAL(struct cosine, to, "0", 0, 1, "final fraction of the rate"),
    SCHEDULE_UNIT,
    PL_OPT_END,
};

static double cosine_factor(const void *conf, double progress, int n_workers) {
    const struct cosine *c = conf;
    (void)n_workers;
    double x = progress >= c->over ? 1 : progress / c->over;
    return c->to + (1 - c->to) * 0.5 * (1 + cos(3.141592653589793 * x));
}

static const struct pl_schedule schedule_cosine = {
    .id = {.name = "cosine",
           .brief = "half-cosine decay",
           .paper = "Loshchilov and Hutter, ICLR 2017",
           .opts = cosine_opts,
           .conf_size = sizeof(struct cosine)},
    .factor = cosine_factor,
};

static const struct pl_entry *const schedule_table[] = {
    &schedule_constant.id, &schedule_warmup.id, &schedule_step.id, &schedule_cosine.id, NULL};

const struct pl_family pl_schedule_family = {
    "schedule", "how does the learning rate change during the run?", schedule_table};
