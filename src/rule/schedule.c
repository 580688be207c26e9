/* Learning-rate schedules: a factor on --lr as the run goes on. They chain with '+': the factors
 * of "warmup:over=5+step:at=80,120" multiply. Progress is counted in epochs (samples applied over
 * the size of the training set) or, with unit=updates, in commits. */
#include <math.h>

#include "core/rule.h"

#define SCHEDULE_UNIT                                                                              \
    {                                                                                              \
        .name = "unit", .type = PL_OPT_CHOICE, .def = "epochs", .choices = "epochs|updates",       \
        .help = "what its numbers count", .offset = offsetof(struct pl_schedule_unit, unit)        \
    }

/* --- constant ---------------------------------------------------------------------------- */

static const struct pl_schedule schedule_constant = {
    .id = {.name = "constant", .brief = "the rate stays", .paper = "", .opts = pl_no_opts},
};

/* --- warmup: linear from eta/N to eta (Goyal et al. 2017; DANA and Gap-Aware use 5 epochs)
 * -------- */

struct warmup {
    struct pl_schedule_unit unit;
    double over, from;
};

static const struct pl_opt warmup_opts[] = {
    {.name = "over",
     .type = PL_OPT_REAL,
     .def = "5",
     .min = 1e-9,
     .max = 1e12,
     .help = "how long the rate rises",
     .offset = offsetof(struct warmup, over)},
    {.name = "from",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1,
     .help = "share of the rate at the start; 0: one over the number of workers",
     .offset = offsetof(struct warmup, from)},
    SCHEDULE_UNIT,
    {.name = NULL},
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
    {.name = "at",
     .type = PL_OPT_LIST,
     .def = "80,120",
     .min = 0,
     .max = 1e12,
     .help = "when the rate falls",
     .offset = offsetof(struct step, at)},
    {.name = "by",
     .type = PL_OPT_REAL,
     .def = "0.1",
     .min = 0,
     .max = 1,
     .help = "what it is multiplied by each time",
     .offset = offsetof(struct step, by)},
    SCHEDULE_UNIT,
    {.name = NULL},
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
           .brief = "the rate falls at given points",
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
    {.name = "over",
     .type = PL_OPT_REAL,
     .def = "100",
     .min = 1e-9,
     .max = 1e12,
     .help = "how long the rate falls",
     .offset = offsetof(struct cosine, over)},
    {.name = "to",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1,
     .help = "share of the rate at the end",
     .offset = offsetof(struct cosine, to)},
    SCHEDULE_UNIT,
    {.name = NULL},
};

static double cosine_factor(const void *conf, double progress, int n_workers) {
    const struct cosine *c = conf;
    (void)n_workers;
    double x = progress >= c->over ? 1 : progress / c->over;
    return c->to + (1 - c->to) * 0.5 * (1 + cos(3.141592653589793 * x));
}

static const struct pl_schedule schedule_cosine = {
    .id = {.name = "cosine",
           .brief = "half a cosine down",
           .paper = "Loshchilov and Hutter, ICLR 2017",
           .opts = cosine_opts,
           .conf_size = sizeof(struct cosine)},
    .factor = cosine_factor,
};

/* --- bold ----------------------------------------------------------------------------------------
 * The bold driver, as DSGD uses it (Gemulla, Nijkamp, Haas, Sismanis, KDD 2011): after an epoch the
 * rate grows by 5 % if the loss fell and is halved if it rose. The loss of an epoch is the mean of
 * the losses that workers report, each sample's before its step. */

enum {
    BOLD_PACE,
    BOLD_SUM,
    BOLD_SAMPLES,
    BOLD_LAST
}; /* a pace of 0 is 1, a last of 0 is unknown */

struct bold {
    double up, down;
};

static const struct pl_opt bold_opts[] = {
    {.name = "up",
     .type = PL_OPT_REAL,
     .def = "1.05",
     .min = 1,
     .max = 100,
     .help = "factor on the rate after an epoch in which the loss fell",
     .offset = offsetof(struct bold, up)},
    {.name = "down",
     .type = PL_OPT_REAL,
     .def = "0.5",
     .min = 1e-9,
     .max = 1,
     .help = "factor on the rate after an epoch in which the loss rose",
     .offset = offsetof(struct bold, down)},
    {.name = NULL},
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
    .id = {.name = "bold",
           .brief = "the rate grows while the mean loss of an epoch falls, and is halved otherwise",
           .paper = "Gemulla, Nijkamp, Haas, Sismanis, KDD 2011 (bold driver)",
           .opts = bold_opts,
           .conf_size = sizeof(struct bold),
           .needs = PL_NEEDS_DATA},
    .commit = bold_commit,
    .paced = bold_paced,
};

static const struct pl_entry *const schedule_table[] = {&schedule_constant.id, &schedule_warmup.id,
                                                        &schedule_step.id,     &schedule_cosine.id,
                                                        &schedule_bold.id,     NULL};

const struct pl_family pl_schedule_family = {
    .name = "schedule",
    .brief = "how does the learning rate move during the run?",
    .table = schedule_table,
};
