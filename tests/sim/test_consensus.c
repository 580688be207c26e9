/* How far apart the models are that simulated workers keep from task to task. */
#include "recorded.h"

static double consensus(const char *method, int n_workers) {
    pl_setup *s = setup_of("method=%s workers=%d model=softmax data=digits:samples=1000,test=200 "
                           "batch=8 lr=0.05 updates=20 delay=const:t=1",
                           method, n_workers);
    return pl_run_number(simulate(s), "consensus");
}

TEST(it_is_known_if_workers_keep_models) {
    assert_true(consensus("nodelay:u=4", 1) == 0);
    assert_true(consensus("nodelay:u=4", 4) > 0);
    assert_true(consensus("easgd:u=4", 4) > 0);
    assert_true(isnan(consensus("local-sgd:u=4", 4)));
    assert_true(isnan(consensus("async", 4)));
}

/* Noise drives workers apart, by the root of the steps between two merges, and different data by
 * as much as they take steps. */
TEST(it_grows_with_local_steps) {
    double many = consensus("nodelay:u=16", 4), few = consensus("nodelay:u=4", 4);
    if (!(many > 1.2 * few && many < 4 * few)) fail_msg("%g and %g", many, few);
}
