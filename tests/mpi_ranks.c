/* Real runs on the ranks of a job: the tests of every real run, and what is refused or fails at one
 * rank. tests/mpi.sh starts this with mpirun -n 5; alone it has nothing to test.
 *
 * Seed: PL_TEST_SEED in the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "suite_train.h"

static void test_shapes(void **state) {
    (void)state;
    check_replay("policy=kbatchsync:k=19 updates=6");
    check_replay("policy=kbatchasync:k=19 updates=6 correct=gap optim=momentum");
    check_replay("model=mlp:hidden=1000 updates=10 method=ssp");
    check_replay("method=dana-ga updates=60");
    check_replay("method=local-sgd:u=3 updates=10");
    check_replay("model=quadratic:dim=7 updates=300 method=abs");
}

/* Over MPI: refused at all ranks alike, told at rank 0; and the next run is none the worse. */
static void test_refusals_of_ranks(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"workers=3", "5 ranks are 1 of servers and 4 of workers"},
        {"spawn=threads", "spawn is for workers on this machine"},
        {"model=none", "needs something to compute"},
        {"model=mlp:hidden=x", "hidden"},
        {"events=/proc/nowhere/at/all", "events"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_setup *s = make("transport=mpi");
        pl_run *run = NULL;
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(bad[i][0], "="), bad[i][0]);
        pl_setup_set(s, key, strchr(bad[i][0], '=') + 1);
        assert_true(pl_train(s, &run) < 0);
        if (pl_rank() > 0)
            assert_true(pl_setup_why(s)[0] == '\0');
        else if (!strstr(pl_setup_why(s), bad[i][1]))
            fail_msg("%s: %s", bad[i][0], pl_setup_why(s));
        pl_setup_free(s);
    }
    check_replay("method=async transport=mpi");
}

/* What one rank alone cannot do is told by rank 0, by name. */
static void test_a_rank_that_fails(void **state) {
    (void)state;
    pl_setup *s = make("transport=mpi");
    pl_run *run = NULL;
    const struct pl_function f = {.dim = 3, .gradient = bad_gradient};
    if (pl_rank() == 2) pl_setup_function(s, &f); /* is not what rank 0 has */
    assert_true(pl_train(s, &run) < 0);
    if (pl_rank() == 0 && !strstr(pl_setup_why(s), "rank 2: "))
        fail_msg("not named: %s", pl_setup_why(s));
    pl_setup_free(s);
    check_replay("method=sync transport=mpi");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_method_as_simulated),
        cmocka_unit_test(test_twenty_asynchronous_runs),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_rejected),
        cmocka_unit_test(test_refusals_of_ranks),
        cmocka_unit_test(test_a_rank_that_fails),
    };
    if (pl_rank() < 0) {
        printf("skipped: mpirun did not start this; tests/mpi.sh does\n");
        return 77;
    }
    if (pl_rank() > 0 && !freopen("/dev/null", "w", stdout)) return 1; /* rank 0 tells */
    if (suite_begin(11)) return 1;
    return suite_end(cmocka_run_group_tests(tests, NULL, NULL));
}
