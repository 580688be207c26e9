/* Blocks that might be done for ever. One that comes to nothing finite, while all others go well:
 * nobody else may change what its worker is handed, and the run says that it diverged. And empty
 * ones, while whoever has all the ratings is not done. */
#include <unistd.h>

#include "setups.h"

/* 60 users, 40 items; user 3 says 10000 and -10000 in turn, and its steps overshoot. */
static void write_ratings(const char *path) {
    FILE *f = fopen(path, "wx");
    assert_non_null(f);
    for (int i = 0; i < 3000; i++) fprintf(f, "%d %d %d\n", i % 60, i * 7 % 40, 1 + i % 5);
    for (int i = 0; i < 60; i++) fprintf(f, "3 %d %d\n", i % 4, i % 2 ? 10000 : -10000);
    assert_int_equal(fclose(f), 0);
}

/* Returns the number of updates. */
static double check(int (*go)(pl_setup *s, pl_run **run), const char *spawn, const char *updates) {
    char path[64], data[128];
    pl_run *run = NULL;
    snprintf(path, sizeof path, "wedge-%d.ratings", (int)getpid());
    snprintf(data, sizeof data, "ratings:%s,shuffle=no", path);
    write_ratings(path);
    pl_setup *s = setup_of("method=fdsgd model=mf:k=4 workers=3 lr=0.02");
    set(s, "data", data);
    set(s, "updates", updates);
    if (spawn) set(s, "spawn", spawn);
    int rc = go(s, &run);
    unlink(path);
    if (rc) fail_msg("%s", pl_setup_why(s));
    own_run(run);
    if (!pl_run_diverged(run))
        fail_msg("%g updates, %g rejected, and no word of it", pl_run_number(run, "updates"),
                 pl_run_number(run, "tasks.rejected"));
    return pl_run_number(run, "updates");
}

TEST(a_block_that_never_comes_ends_a_simulation) {
    assert_true(check(pl_simulate, NULL, "20000") > 0); /* the others did go well */
}

/* How far the others come meanwhile depends on the machine. */
TEST(a_block_that_never_comes_ends_a_real_run) {
    check(pl_train, "threads", "1000000000");
}

/* All ratings are in one row of the grid, and all blocks outside of it are empty. */
TEST(empty_blocks_take_time) {
    char path[64], data[128];
    pl_run *run = NULL;
    snprintf(path, sizeof path, "wedge-%d.ratings", (int)getpid());
    snprintf(data, sizeof data, "ratings:%s", path);
    FILE *f = fopen(path, "wx");
    assert_non_null(f);
    for (int i = 0; i < 5; i++) fprintf(f, "7 %d %d\n", i, i);
    assert_int_equal(fclose(f), 0);
    pl_setup *s = setup_of("method=fdsgd model=mf:k=4 workers=3 epochs=3 updates=5000");
    set(s, "data", data);
    int rc = pl_simulate(s, &run);
    unlink(path);
    if (rc) fail_msg("%s", pl_setup_why(s));
    own_run(run);
    if (!(pl_run_number(run, "epochs") >= 3))
        fail_msg("%g epochs in %g updates", pl_run_number(run, "epochs"),
                 pl_run_number(run, "updates"));
}
