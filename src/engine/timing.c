/* Timing alone: no vectors and no models, only who computes when. */
#include "engine/engine_state.h"

static int timing_start(struct pl_engine *e, const struct pl_action *a, struct pl_start *start) {
    (void)a;
    return e->conf.host.start(e->conf.host.ctx, start);
}

static int timing_take(struct pl_engine *e, const struct pl_action *a, struct pl_why *why) {
    (void)e;
    (void)a;
    (void)why;
    return PL_OK;
}

static int timing_commit(struct pl_engine *e, const struct pl_action *a, struct pl_measure *measure,
                         struct pl_why *why) {
    (void)measure;
    return timing_take(e, a, why);
}

static void timing_forget(struct pl_engine *e, int worker) {
    (void)e;
    (void)worker;
}

static const struct pl_progress *timing_progress(const struct pl_engine *e) {
    (void)e;
    return NULL;
}

static int timing_archive(struct pl_engine *e, const struct pl_archive *k) {
    (void)e;
    (void)k;
    return PL_OK;
}

const struct pl_engine_models pl_engine_timing = {.start = timing_start,
                                                  .take = timing_take,
                                                  .commit = timing_commit,
                                                  .forget = timing_forget,
                                                  .progress = timing_progress,
                                                  .archive = timing_archive};
