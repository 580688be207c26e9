/* The first evaluation of a real run is that of the weights it starts from, however early the first
 * result arrives: whether a run diverged is judged against it. */
#define pl_policy_kasync first_kasync
#include "policy/kasync.c"
#undef pl_policy_kasync

#include <stdatomic.h>

#include "suite_train.h"

struct first {
    atomic_int n_gradients;
    int n_points;
    struct pl_point point;
};
static struct first first;

static int counted(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss) {
    int rc = quadratic(ctx, w, b, g, loss);
    atomic_fetch_add(&first.n_gradients, 1);
    return rc;
}

/* The second worker joins when the first has sent a result, so that this is the first news of the
 * run. (After the gradient, sending takes much less than the nap; if it should not, the run is
 * merely an ordinary one.) */
static void late_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    if (worker > 0) {
        while (atomic_load(&first.n_gradients) == 0) nap(1);
        nap(50);
    }
    pl_start(p, worker, PL_FETCH);
}

static void note_point(void *ctx, const struct pl_point *p) {
    if (first.n_points++ == 0) first.point = *p;
}

static void check_first(const char *options, double loss) {
    static struct pl_policy late;
    const struct pl_function f = {.dim = 5, .gradient = counted};
    late = first_kasync;
    late.id.name = "late";
    late.join = late_join;
    first = (struct first){.n_points = 0};
    pl_setup *s = make("workers=2 spawn=threads lr=0.1 updates=20 eval-every=0.001");
    pl_setup_function(s, &f);
    if (pl_setup_policy(s, &late)) fail_msg("%s", pl_setup_why(s));
    set_all(s, options);
    pl_setup_watch(s, note_point, NULL, NULL);
    train(s);
    if (first.n_points == 0 || first.point.updates != 0 || first.point.loss != loss)
        fail_msg("%s: %d evaluations, the first after %llu updates: loss %g", options,
                 first.n_points, (unsigned long long)first.point.updates, first.point.loss);
}

TEST(first_score_is_that_of_the_initial_weights) {
    check_first("policy=late", 15); /* half of 0 + 1 + 4 + 9 + 16 */
    check_first("policy=late average=ema:0.9", 15);
    check_first("policy=late:k=2", 15);
}
