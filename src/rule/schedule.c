/* Learning-rate schedules: a factor on --lr during the run. They chain with '+': the factors of
 * "warmup:over=5+step:at=80,120" multiply. Progress is counted in epochs (samples applied over the
 * size of the training set) or, with unit=updates, in commits. */
#include <math.h>

#include "core/rule.h"

#define SCHEDULE_UNIT                                                                              \
    PL_OPT_CHOICE(struct pl_schedule_unit, unit, "epochs", "epochs|updates", "unit of its numbers")

/* --- constant ---------------------------------------------------------------------------- */

static const struct pl_schedule schedule_constant = {
    .id = {"constant", "constant rate", "", pl_no_opts, 0, 0},
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
    .id = {"warmup", "linear rise to the full rate", "Goyal et al., arXiv 1706.02677", warmup_opts,
           sizeof(struct warmup), 0},
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
    .id = {"step", "drops at given points", "", step_opts, sizeof(struct step), 0},
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
    .id = {"cosine", "half-cosine decay", "Loshchilov and Hutter, ICLR 2017", cosine_opts,
           sizeof(struct cosine), 0},
    .factor = cosine_factor,
};

/* --- bold ----------------------------------------------------------------------------------------
 * The bold driver, as DSGD uses it (Gemulla, Nijkamp, Haas, Sismanis, KDD 2011): after an epoch the
 * rate grows by 5 % if the loss fell and is halved if it rose. The loss of an epoch is the mean of
 * the losses that workers report, each sample's before its step. */

/* a pace of 0 is 1, a last of 0 is unknown */
enum { BOLD_PACE, BOLD_SUM, BOLD_SAMPLES, BOLD_LAST };

struct bold {
    double up, down;
};

static const struct pl_opt bold_opts[] = {
    PL_OPT_REAL(struct bold, up, "1.05", 1, 100,
                "factor on the rate after an epoch in which the loss fell"),
    PL_OPT_REAL(struct bold, down, "0.5", 1e-9, 1,
                "factor on the rate after an epoch in which the loss rose"),
    PL_OPT_END,
};

static double bold_paced(const void *conf, const double number[PL_RULE_NUMBERS]) {
    (void)conf;
    return number[BOLD_PACE] > 0 ? number[BOLD_PACE] : 1;
}

static void bold_commit(const void *conf, double samples, double loss, double epoch,
                        double n[PL_RULE_NUMBERS]) {
    const struct bold *c = conf;
    if (!(samples > 0)) return;
    n[BOLD_SUM] += samples * loss;
    n[BOLD_SAMPLES] += samples;
    if (!(epoch > 0) || n[BOLD_SAMPLES] < epoch) return;
    double mean = n[BOLD_SUM] / n[BOLD_SAMPLES], last = n[BOLD_LAST];
    double turn = last == 0 || mean == last ? 1 : mean < last ? c->up : c->down;
    n[BOLD_PACE] = bold_paced(conf, n) * turn;
    n[BOLD_LAST] = mean;
    n[BOLD_SUM] = n[BOLD_SAMPLES] = 0;
}

static const struct pl_schedule schedule_bold = {
    .id = {"bold", "the rate grows while the mean loss of an epoch falls, and is halved otherwise",
           "Gemulla, Nijkamp, Haas, Sismanis, KDD 2011 (bold driver)", bold_opts,
           sizeof(struct bold), PL_NEEDS_DATA},
    .commit = bold_commit,
    .paced = bold_paced,
};

static const struct pl_entry *const schedule_table[] = {&schedule_constant.id, &schedule_warmup.id,
                                                        &schedule_step.id,     &schedule_cosine.id,
                                                        &schedule_bold.id,     NULL};

const struct pl_family pl_schedule_family = {
    "schedule", "how does the learning rate change during the run?", schedule_table};
