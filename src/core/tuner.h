/* The tuner contract: how do the policy's K and staleness bound move during the run?
 *
 * A tuner is pure, like a policy. It watches arrivals, finished tasks and commits, and turns the
 * knobs; the policy reads them in its view, from the very next decision on. */
#ifndef PL_CORE_TUNER_H
#define PL_CORE_TUNER_H

#include "core/policy.h"

/* What a commit told; NAN where unknown. */
struct pl_measure {
    double dot; /* inner product of the reduced vector with the one before */
};

/* What a tuner is told about the run it tunes. */
struct pl_run_info {
    int n_workers;
    bool by_batch; /* of the policy */
    int k;         /* the policy's own, to begin with */
};

struct pl_tuner {
    struct pl_entry id;
    unsigned moves;    /* PL_USES_…: the knobs it turns */
    size_t state_size; /* as in struct pl_policy: zeroed, begins with the conf, no pointers */

    const char *(*check)(const void *conf, const struct pl_run_info *); /* NULL, or a sentence */
    void (*init)(void *state, const struct pl_run_info *, struct pl_knobs *);
    /* Before the policy sees the arrival. */
    void (*arrive)(void *state, const struct pl_run_info *, const struct pl_view *,
                   const struct pl_arrival *, struct pl_knobs *);
    /* A task ran for `seconds`; done: it arrived, otherwise it was cancelled then. */
    void (*task)(void *state, double seconds, bool done);
    /* After a commit; where this is set, the host measures. */
    void (*measure)(void *state, const struct pl_run_info *, const struct pl_view *,
                    const struct pl_measure *, struct pl_knobs *);
};

extern const struct pl_family pl_tuner_family;

/* --- AdaSync's K, for tuners and for the planner ------------------------------------------------
 * Dutta, Wang, Joshi, "Slow and stale gradients can win the race", arXiv 2003.10579: at the start
 * of an interval choose the K that minimises the error bound; dividing by the same condition at
 * the start (K0, F0) removes every unknown constant. Unrounded. */

/* K-sync and K-async under (shifted) exponential delays: K^2/(P-K) = K0^2/(P-K0) F0/F; K0 < P. */
double pl_adasync_quadratic(double k0, double f0, double f, double n_workers);

/* K-batch-sync, K-batch-async: K = K0 sqrt(F0/F). */
double pl_adasync_sqrt(double k0, double f0, double f);

/* Any delay law: the smallest K with K(K+1) d_K >= K0(K0+1) d_K0 F0/F, where d_K is the time that
 * waiting for K+1 instead of K costs; K_max where there is none. (Goes beyond the paper.) */
int pl_adasync_discrete(int k0, double f0, double f, int k_max,
                        double (*step)(const void *ctx, int k), const void *ctx);

/* --- K that grows as the loss falls: shared by the tuners adasync and abs ---------------- */

enum pl_growk_rule { PL_GROWK_AUTO, PL_GROWK_QUADRATIC, PL_GROWK_SQRT, PL_GROWK_MEASURED };
#define PL_GROWK_RULES "auto|quadratic|sqrt|measured"
#define PL_GROWK_TIMES 256 /* task times remembered by the measured rule */
#define PL_GROWK_EVERY 20  /* mean task times in an interval, where nobody set one */

struct pl_growk_conf {
    int64_t k0; /* 0: the policy's k */
    double every;
    int rule;
};

struct pl_growk {
    double f0_sum, sum; /* losses at version 0, and of the interval that is running */
    uint64_t f0_n, n;
    uint64_t began_ns;
    double seconds; /* of all tasks that ended, and how many those were */
    uint64_t n_ended;
    int k0;
    float time[PL_GROWK_TIMES]; /* seconds; negative: cancelled after that long */
    uint32_t n_times;
};

const char *pl_growk_check(const struct pl_growk_conf *c, const struct pl_run_info *scene);
void pl_growk_init(struct pl_growk *g, const struct pl_growk_conf *c, struct pl_knobs *knobs);
void pl_growk_arrive(struct pl_growk *g, const struct pl_growk_conf *c,
                     const struct pl_run_info *scene, const struct pl_view *v,
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
