/* The host of the engine in its tests: workers of this thread, whose results the test announces.
 * What a host has to do is all here. */
#ifndef PL_TESTS_HOST_H
#define PL_TESTS_HOST_H

#include "api/setup.h"
#include "engine/engine.h"
#include "setups.h"

#define HOST_WORKERS 32 /* at most */

struct host {
    struct pl_built built;
    struct pl_job *job; /* of `built`; a test may change it before host_begin */
    struct pl_engine *engine;
    const struct pl_view *view;
    struct pl_outcome out;
    struct pl_workspace *workspace;
    struct pl_local_state state[HOST_WORKERS];
    struct {
        bool busy, base_ready; /* the engine has been told that its base is complete */
        struct pl_start start; /* of the last task */
        struct pl_task_at at;
        double loss;
        uint64_t sent; /* the task whose result was sent last */
    } worker[HOST_WORKERS];
    /* When a result is computed: as it arrives; as the task is started; never, it is zeros. */
    enum { HOST_COMPUTES, HOST_COMPUTES_AT_ONCE, HOST_SENDS_ZEROS } results;
    uint64_t now_ns;
    enum pl_life_event ended[HOST_WORKERS]; /* why it was to be ended; PL_LIFE_STARTS: never */
    enum pl_removal removal;                /* what the host answers then */
    struct pl_why why;
};

struct host *host_of(pl_setup *s); /* without an engine; the test owns it */
/* A new engine, without what an old one had. `gathers` and `beat_ns`: see pl_engine_conf. */
void host_begin(struct host *h, bool gathers, uint64_t beat_ns);

/* One event; a result is made now, unless it was before. The status of pl_engine_event. */
int host_try(struct host *h, struct pl_event e);
void host_event(struct host *h, struct pl_event e); /* which must succeed */

#endif
