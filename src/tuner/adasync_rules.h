/* AdaSync's rules for K, which the tuners adasync and abs share.
 *
 * Dutta, Wang, Joshi, "Slow and stale gradients can win the race", arXiv 2003.10579: at the start
 * of an interval choose the K that minimises the error bound. Dividing by the same condition at the
 * start (K0, F0) removes every unknown constant. The results are not rounded. */
#ifndef PL_TUNER_ADASYNC_RULES_H
#define PL_TUNER_ADASYNC_RULES_H

#include "core/tuner.h"

/* K-sync and K-async under (shifted) exponential delays: K^2/(P-K) = K0^2/(P-K0) F0/F; K0 < P. */
double pl_adasync_quadratic(double k0, double f0, double f, double n_workers);

/* K-batch-sync, K-batch-async: K = K0 sqrt(F0/F). */
double pl_adasync_sqrt(double k0, double f0, double f);

/* Any delay law: the smallest K with K(K+1) d_K >= K0(K0+1) d_K0 F0/F, where d_K is the time that
 * waiting for K+1 instead of K costs; K_max if there is none. (Goes beyond the paper.) */
int pl_adasync_discrete(int k0, double f0, double f, int k_max,
                        double (*step)(const void *ctx, int k), const void *ctx);

/* --- K during a run: what the two tuners share --- */

enum pl_growk_rule { PL_GROWK_AUTO, PL_GROWK_QUADRATIC, PL_GROWK_SQRT, PL_GROWK_MEASURED };
#define PL_GROWK_RULES "auto|quadratic|sqrt|measured"
#define PL_GROWK_TIMES 256 /* task times remembered by the measured rule */
#define PL_GROWK_EVERY 20  /* mean task times in an interval, unless one is set */

struct pl_growk_conf {
    int64_t k0; /* 0: the policy's k */
    double every;
    int rule;
};

struct pl_growk {
    double f0_sum, sum; /* losses at version 0, and in the current interval */
    uint64_t f0_n, n;
    uint64_t began_ns;
    double seconds; /* of all tasks that ended */
    uint64_t n_ended;
    int k0;
    float time[PL_GROWK_TIMES]; /* seconds; negative: cancelled after that time */
    uint32_t n_times;
};

const char *pl_growk_check(const struct pl_growk_conf *c, const struct pl_run_info *info);
void pl_growk_init(struct pl_growk *g, const struct pl_growk_conf *c, struct pl_knobs *knobs);
void pl_growk_arrive(struct pl_growk *g, const struct pl_growk_conf *c,
                     const struct pl_run_info *info, const struct pl_view *v,
                     const struct pl_arrival *a, struct pl_knobs *knobs);
void pl_growk_task(struct pl_growk *g, double seconds, bool done);

/* The options of the struct pl_growk_conf that is the member `at` of a tuner's conf. */
#define PL_GROWK_OPTS(conf, at)                                                                    \
    PL_OPT("k0", INT, conf, at.k0, "0", 0, PL_MAX_WORKERS, NULL, "initial K (0: the policy's k)",  \
           0),                                                                                     \
        PL_OPT("every", REAL, conf, at.every, "0", 0, 1e9, NULL,                                   \
               "seconds between changes of K (0: twenty mean task times)", 0),                     \
        PL_OPT("rule", CHOICE, conf, at.rule, "auto", 0, 0, PL_GROWK_RULES,                        \
               "how K follows the loss (auto: quadratic if K counts workers, else sqrt)", 0)

#endif
