/* Reductions: how the members of a group become one vector. */
#include "rule/reduce.h"

enum { MEAN_COUNT, MEAN_SAMPLES };

struct mean {
    int by;
};

static const struct pl_opt mean_opts[] = {
    PL_OPT_CHOICE(struct mean, by, "count", "count|samples",
                  "weight contributions equally, or by their number of samples"),
    PL_OPT_END,
};

/* Weighs by samples only if no mixing came before: mixed members have no samples. */
static int mean_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    double total = 0;
    for (int i = 0; at->samples && i < at->n; i++) total += at->samples[i];
    bool by_samples = ((const struct mean *)conf)->by == MEAN_SAMPLES && total > 0;
    for (int i = 0; i < at->n; i++) row[i] = by_samples ? at->samples[i] / total : 1.0 / at->n;
    return 1;
}

static const struct pl_reduce reduce_mean = {
    .id = {"mean", "average", "", mean_opts, sizeof(struct mean), 0},
    .mix = mean_mix,
};

static const struct pl_entry *const reduce_table[] = {&reduce_mean.id,
                                                      &pl_reduce_median.id,
                                                      &pl_reduce_trimmed.id,
                                                      &pl_reduce_mean_around_median.id,
                                                      &pl_reduce_phocas.id,
                                                      &pl_reduce_geomedian.id,
                                                      &pl_reduce_medoid.id,
                                                      &pl_reduce_krum.id,
                                                      &pl_reduce_multikrum.id,
                                                      &pl_reduce_bulyan.id,
                                                      &pl_reduce_mda.id,
                                                      &pl_reduce_centered_clip.id,
                                                      &pl_reduce_nnm.id,
                                                      &pl_reduce_bucketing.id,
                                                      &pl_reduce_clipping.id,
                                                      &pl_reduce_buffers.id,
                                                      NULL};

const struct pl_family pl_reduce_family = {
    "reduce", "how do the members of a group become one vector?", reduce_table};
