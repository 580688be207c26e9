/* Whose models there are: one at the server that all workers compute on (central), or one per
 * worker (replicas). Control calls these functions when the events they are named after happen. A
 * central model needs no bookkeeping beyond version numbers: of its functions only plan_room and
 * exchange are called. */
#ifndef PL_CORE_MODELS_H
#define PL_CORE_MODELS_H

#include "core/replicas.h"

struct pl_models {
    size_t (*plan_room)(int n_workers); /* actions of the largest correct plan */
    bool central; /* tasks may be cancelled and deferred, and a worker may keep its version */
    void (*join)(struct pl_replicas *r, int worker);
    void (*leave)(struct pl_replicas *r, int worker);
    int (*start)(struct pl_replicas *r, int worker); /* 0 or PL_ENOMEM */
    void (*base_ready)(struct pl_replicas *r, int worker);
    void (*arrive)(struct pl_replicas *r, int worker);
    void (*reject)(struct pl_replicas *r, int worker);
    void (*take)(struct pl_replicas *r, int worker, double factor);
    void (*drop)(struct pl_replicas *r, int worker);
    /* Carries out a blend, pair, push or absorb. Returns NULL, or what was wrong with it. */
    const char *(*exchange)(struct pl_replicas *r, const struct pl_action *a);
};

extern const struct pl_models pl_models_central, pl_models_replicas;

#endif
