/* One model at the server under attack: what hostile workers send together is made from the honest
 * results of a group, just before it is committed (learn/attack.h). Their workers judge results
 * before that, because forging reads them. */
#include "engine/engine_state.h"

static int forged_first(struct pl_engine *e, const float *w0, size_t dim, struct pl_why *why) {
    int rc = pl_engine_central.first(e, w0, dim, why);
    e->workers_check = true;
    return rc;
}

static int forged_commit(struct pl_engine *e, const struct pl_action *a, struct pl_measure *measure,
                         struct pl_why *why) {
    if (pl_task_forge(e->job, e->open.group, (int)e->open.n_group))
        return pl_engine_memory(e, "what hostile workers send", why);
    return pl_engine_central.commit(e, a, measure, why);
}

struct pl_engine_models pl_engine_forged(void) {
    struct pl_engine_models m = pl_engine_central;
    m.first = forged_first;
    m.commit = forged_commit;
    return m;
}
