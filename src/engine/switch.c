/* Switching the policy during the run, and returning to an earlier model.
 *
 * If the tuner may switch, the engine keeps a copy of the best model that was evaluated: with an
 * average, of the average. When the tuner finds that the run has blown up, that is the model again.
 * Optimizers then begin without momentum. Vectors that this process cannot read (an offload) are
 * not copied, and there is no return. */
#include <string.h>

#include "engine/engine_state.h"

int pl_switch_scored(struct pl_engine *e, double loss) {
    struct engine_best *b = &e->best;
    if (!e->store || e->conf.host.offload || !pl_control_switches(e->control)) return PL_OK;
    if (!(loss <= b->loss || !b->w)) return PL_OK;
    size_t dim = pl_store_state(e->store).dim;
    if (!b->w && !(b->w = pl_vector_new(dim))) return PL_ENOMEM;
    memcpy(b->w, pl_store_shown(e->store), dim * sizeof *b->w);
    b->loss = loss;
    return PL_OK;
}

int pl_switch_return(struct pl_engine *e) {
    if (!e->best.w || !pl_control_chosen(e->control).returns) return PL_OK;
    struct pl_store_state state = pl_store_state(e->store);
    for (int i = 0; i < state.n; i++)
        memset(state.vector[i], 0, state.dim * sizeof *state.vector[i]);
    if (e->conf.writes) e->conf.writes(e->conf.parallel_for.ctx, NULL);
    return pl_store_set_model(e->store, e->best.w);
}

int pl_switch_event(struct pl_engine *e, uint64_t now_ns, struct pl_why *why) {
    struct pl_switch s = pl_control_chosen(e->control);
    if (s.arm < 0 || e->conf.follows) return PL_OK;
    struct pl_event event = {
        .kind = PL_SWITCH, .now_ns = now_ns, .task = (uint64_t)s.arm, .samples = s.returns};
    return pl_engine_step(e, &event, why);
}
