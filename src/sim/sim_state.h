/* The inside of the simulator, which sim.c, workers.c and stepped.c share. They call each other in
 * a circle: the loop (sim.c) brings results (workers.c), which in a stepped simulation come from
 * the program, and the program's answer resumes the loop (stepped.c).
 *
 * Threads: all of it is the simulating thread's. */
#ifndef PL_SIM_SIM_STATE_H
#define PL_SIM_SIM_STATE_H

#include "base/heap.h"
#include "engine/engine.h"
#include "sim/prefetch.h"
#include "sim/sim.h"
#include "timing/ahead.h"

#define SIM_END_NS 9000000000000000000u /* the clock stops here: 285 years */

enum sim_what {
    SIM_ARRIVE,
    SIM_COMPUTED,
    SIM_EVAL,
    SIM_SCRIPT,
    SIM_RECORDED,
    SIM_TIME, /* the engine wants to know the time */
    SIM_BASE_READY
};

struct sim_worker {
    uint64_t frozen_until_ns;     /* it does nothing until then */
    uint64_t late_ns;             /* by how much its task was delayed since it was scheduled */
    uint64_t comm_ns;             /* its task's time on the network so far */
    bool checks;                  /* a real worker would look whether its result is finite */
    bool stays;                   /* its result stays with it, for its peers */
    double size, work;            /* of its task: fraction of the vector sent, relative duration */
    struct pl_prefetch_task *now; /* NULL without a model */
};

struct pl_stepped;

/* The clock, and what is to happen. */
struct sim_clock {
    struct pl_heap heap;
    uint64_t now_ns, n_events;
    uint64_t n_still;       /* events at this time so far, */
    uint64_t still_version; /* and the version when they were last too many */
};

/* How long tasks and messages take. */
struct sim_delays {
    struct pl_net net;
    bool net_matters;
    struct pl_ahead ahead; /* of tasks */
};

/* The server, which is busy for a while with each update. */
struct sim_server {
    uint64_t update_ns; /* duration of an update */
    uint64_t ready_ns;  /* when it has finished the last one */
};

/* A recording that is fed in. */
struct sim_recording {
    struct pl_replay *replay;    /* NULL: not a replay */
    const struct pl_event *next; /* the event that is queued */
};

struct sim {
    const struct pl_sim_conf *conf;
    const struct pl_job *job;
    struct pl_why *why;
    struct pl_outcome *out;
    struct pl_engine *engine;
    const struct pl_view *view;
    const struct pl_due *due;
    struct sim_worker *worker;
    struct sim_clock clock;
    struct sim_delays delays;
    struct sim_server server;
    struct pl_prefetch *prefetch; /* NULL: no model, only timing, or a stepped simulation */
    struct pl_stepped *stepped;   /* NULL: the simulator computes gradients itself */
    float *room;                  /* [dim] for a model that is not a version */
    struct sim_recording recording;
    struct pl_crossing *crossing; /* NULL: no target, or a stepped simulation */
    size_t n_script;              /* lines of the script that are still to come */
    uint64_t ticked_ns;           /* when the watch was last called, by the real clock */
    bool interrupted;             /* the watch ended the run */
    bool unscored;                /* and the model at the end was not evaluated in time */
};

static inline int pl_sim_push(struct sim *s, uint64_t when_ns, enum sim_what what, int who,
                              uint64_t task) {
    if (pl_heap_push(&s->clock.heap, when_ns, (int32_t)what, who, task))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the event queue");
    return PL_OK;
}

/* What the engine needs from its host; ctx is the simulation. */
struct pl_host_ops pl_sim_host(struct sim *s);

/* Whether a commit cancels all tasks. */
static inline bool pl_sim_cancels(const struct sim *s) {
    return pl_control_cancels(pl_engine_control(s->engine)) == PL_CANCELS_ALL;
}

/* Tasks that will certainly arrive: if a commit cancels all others, what the group still needs. */
int pl_sim_sure(const struct sim *s);

/* A task is computed, or its result arrives. */
int pl_sim_arrive(struct sim *s, const struct pl_timed *t);
/* The result of a task arrives; `e` says which. */
int pl_sim_bring(struct sim *s, struct pl_event *e);
int pl_sim_base_ready(struct sim *s, int worker, uint64_t task);
int pl_sim_move(struct sim *s, enum pl_event_kind kind, int worker); /* joins or leaves */
int pl_sim_script(struct sim *s, const struct pl_script_line *line);

/* --- the course of a simulation ------------------------------------------------------------- */

int pl_sim_open(struct sim *s);
/* Continues until the run ends or, if it is stepped, something has to be computed. */
int pl_sim_loop(struct sim *s);
int pl_sim_after(struct sim *s);     /* called after every event */
void pl_sim_evaluate(struct sim *s); /* unless the model has been evaluated at this time */
void pl_sim_close(struct sim *s);    /* frees everything but the sim itself */

/* --- targets (crossing.c) ----------------------------------------------------------------------
 */

int pl_crossing_new(const struct pl_job *job, struct pl_crossing **out, struct pl_why *why);
void pl_crossing_free(struct pl_crossing *c); /* NULL is fine */
/* After every event, and once more when the run has ended: looks whether the target is met. */
int pl_crossing_check(struct sim *s, bool last);

/* --- stepped simulations (stepped.c) --------------------------------------------------------- */

bool pl_stepped_waits(const struct pl_stepped *x); /* a gradient or a score is missing */
void pl_stepped_evaluate(struct pl_stepped *x);
int pl_stepped_bring(struct sim *s, const struct pl_event *e);
void pl_stepped_put(void *ctx, int id, int writer, pl_real *v);
struct pl_vector_memory pl_stepped_memory(struct pl_stepped *x);
const struct pl_offload_ops *pl_stepped_offload(const struct pl_stepped *x);

#endif
