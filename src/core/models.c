#include "core/models.h"

static const char *models_exchange(struct pl_replicas *r, const struct pl_action *a) {
    (void)r;
    (void)a;
    return "it mixed models, but there is only one";
}

const struct pl_models pl_models_central = {
    .plan_room = pl_plan_room, .central = true, .exchange = models_exchange};

const struct pl_models pl_models_replicas = {.plan_room = pl_plan_room_peers,
                                             .join = pl_replicas_join,
                                             .leave = pl_replicas_leave,
                                             .start = pl_replicas_start,
                                             .base_ready = pl_replicas_base_ready,
                                             .arrive = pl_replicas_arrive,
                                             .reject = pl_replicas_reject,
                                             .take = pl_replicas_take,
                                             .drop = pl_replicas_drop,
                                             .exchange = pl_replicas_exchange};
