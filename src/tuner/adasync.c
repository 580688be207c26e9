/* AdaSync: K grows as the training loss falls, and is updated once per time interval.
 *
 * Dutta, Wang, Joshi, "Slow and stale gradients can win the race", arXiv 2003.10579: few workers at
 * first, when speed matters, and many at the end, when the error floor matters. The rules are in
 * tuner/adasync_rules.c. Differences: the loss is the mean over the mini-batches that arrived, not
 * an evaluation of the training set; K never falls; rule=measured extends the method to any delay
 * law. The rule for K-async is an option, because a derivation gives the quadratic one and a
 * third-party implementation uses sqrt. */
#include "tuner/adasync_rules.h"

struct adasync {
    struct pl_growk_conf conf;
    struct pl_growk grow;
};

static const struct pl_opt adasync_opts[] = {PL_GROWK_OPTS(struct adasync, conf), PL_OPT_END};

static const char *adasync_check(const void *conf, const struct pl_run_info *info) {
    return pl_growk_check(conf, info);
}

static void adasync_init(void *state, const struct pl_run_info *info, struct pl_knobs *knobs) {
    struct adasync *s = state;
    (void)info;
    pl_growk_init(&s->grow, &s->conf, knobs);
}

static void adasync_arrive(void *state, const struct pl_run_info *info, const struct pl_view *v,
                           const struct pl_arrival *a, struct pl_knobs *knobs) {
    struct adasync *s = state;
    pl_growk_arrive(&s->grow, &s->conf, info, v, a, knobs);
}

static void adasync_task(void *state, double seconds, bool done) {
    pl_growk_task(&((struct adasync *)state)->grow, seconds, done);
}

const struct pl_tuner pl_tuner_adasync = {
    .id = {"adasync", "K grows as the training loss falls", "Dutta, Wang, Joshi, arXiv 2003.10579",
           adasync_opts, sizeof(struct pl_growk_conf), 0},
    .moves = PL_USES_K,
    .state_size = sizeof(struct adasync),
    .check = adasync_check,
    .init = adasync_init,
    .arrive = adasync_arrive,
    .task = adasync_task,
};
