/* Ways to carry out the pieces of a commit, for struct pl_parallel_for: the result must not depend
 * on them. */
#ifndef PL_TESTS_TEAMS_H
#define PL_TESTS_TEAMS_H

#include "sys/pool.h"

struct team_call {
    void (*job)(void *arg, int i);
    void *arg;
};

static inline void team_one(void *arg, int i, int thread) {
    struct team_call *c = arg;
    c->job(c->arg, i);
}

/* The threads of a pool, which is ctx. */
static inline void team_threads(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    struct team_call call = {job, arg};
    pl_pool_each(ctx, n, team_one, &call);
}

static inline void team_backwards(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    for (int i = n; i-- > 0;) job(arg, i);
}

#endif
