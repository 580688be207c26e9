/* The reductions for the table in reduce.c, and code that they share. */
#ifndef PL_RULE_REDUCE_H
#define PL_RULE_REDUCE_H

#include "core/rule.h"

extern const struct pl_reduce pl_reduce_trimmed, pl_reduce_mean_around_median, pl_reduce_phocas;
extern const struct pl_reduce pl_reduce_geomedian, pl_reduce_krum, pl_reduce_multikrum;
extern const struct pl_reduce pl_reduce_bulyan, pl_reduce_mda, pl_reduce_medoid;
extern const struct pl_reduce pl_reduce_centered_clip;
extern const struct pl_reduce pl_reduce_nnm, pl_reduce_bucketing, pl_reduce_clipping;
extern const struct pl_reduce pl_reduce_buffers;

extern const struct pl_opt pl_reduce_f_opts[]; /* for a conf that is a struct pl_reduce_f */

/* The option f itself, for longer tables. */
#define PL_REDUCE_F                                                                                \
    PL_OPT_COUNT(                                                                                  \
        struct pl_reduce_f, f, "auto", 0, 1000000,                                                 \
        "hostile gradients to tolerate (auto: that of another link, or the most K allows)")

/* The largest f with 2f < n. */
int pl_reduce_minority(const void *conf, int n);

/* The mean of the n-drop values closest to the coordinate median, for n >= 1 members. */
void pl_column_around_median(int n_members, int drop, const pl_real *const *member, size_t n,
                             pl_real *room, pl_real *out);

#endif
