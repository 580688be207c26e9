/* What hosts of the engine share in tests. */
#ifndef PL_TESTS_HOSTS_H
#define PL_TESTS_HOSTS_H

#include "api/setup.h"
#include "engine/engine.h"
#include "test.h"

static inline struct pl_built build(pl_setup *s) {
    struct pl_built b;
    if (pl_build(s, PL_HOST_VIRTUAL, &b)) fail_msg("%s", pl_setup_why(s));
    return b;
}

/* The task that the engine starts, on the model w. */
static inline struct pl_task_at task_of(const struct pl_start *s, const float *w) {
    struct pl_task_at at = {.worker = (uint32_t)s->worker,
                            .task = s->task,
                            .part = s->part,
                            .w = w,
                            .n_strips = s->n_strips,
                            .version = s->version,
                            .lr = s->lr};
    for (int i = 0; i < s->n_strips; i++) at.strip[i] = s->strip[i];
    return at;
}

#endif
