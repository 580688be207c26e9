/* Reductions: how the members of a group become one vector. */
#include <string.h>

#include "core/rule.h"

enum { MEAN_COUNT, MEAN_SAMPLES };

struct mean {
    int by;
};

static const struct pl_opt mean_opts[] = {
    {.name = "by",
     .type = PL_OPT_CHOICE,
     .def = "count",
     .choices = "count|samples",
     .help = "every contribution alike, or weighted by its samples",
     .offset = offsetof(struct mean, by)},
    {.name = NULL},
};

static void mean_weigh(const void *conf, int n_members, const uint32_t *samples, double *weight) {
    double total = 0;
    for (int i = 0; i < n_members; i++) total += samples[i];
    bool by_samples = ((const struct mean *)conf)->by == MEAN_SAMPLES && total > 0;
    for (int i = 0; i < n_members; i++)
        weight[i] = by_samples ? samples[i] / total : 1.0 / n_members;
}

static const pl_real *mean_apply(const void *conf, int n_members, const pl_real *const *member,
                                 const double *weight, size_t n, pl_real *restrict out) {
    (void)conf;
    if (n_members == 1 && weight[0] == 1) return member[0];
    pl_real c = (pl_real)weight[0];
    const pl_real *restrict x = member[0];
    for (size_t i = 0; i < n; i++) out[i] = c * x[i];
    for (int m = 1; m < n_members; m++) {
        c = (pl_real)weight[m];
        x = member[m];
        for (size_t i = 0; i < n; i++) out[i] += c * x[i];
    }
    return out;
}

static const struct pl_reduce reduce_mean = {
    .id = {.name = "mean",
           .brief = "the average",
           .paper = "",
           .opts = mean_opts,
           .conf_size = sizeof(struct mean)},
    .weigh = mean_weigh,
    .apply = mean_apply,
};

static const struct pl_entry *const reduce_table[] = {&reduce_mean.id, NULL};

const struct pl_family pl_reduce_family = {
    "reduce", "how do the members of a group become one vector?", reduce_table};
