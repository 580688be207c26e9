/* Control, the referee: one event in, a checked plan out.
 *
 * Control keeps the worker table and the open group, hands each event to the tuner and the
 * policy, checks what comes back, carries it out on its own books and gives the plan to the host,
 * which moves vectors and wakes workers. It knows no clock, thread or vector: the simulator and a
 * real server drive it alike, and a recorded sequence of events gives the same sequence of plans.
 *
 * What it guarantees, or else refuses with PL_EPOLICY:
 *   - one take, drop or wait per arrival, none without one; what waits is taken once, before its
 *     worker is started again;
 *   - at most one commit per event, and only of a non-empty group; factors are finite;
 *   - only idle workers are started, only busy ones cancelled;
 *   - models are mixed only where there are peers: of two different workers that are there, with
 *     finite factors, as far as the book has room; nothing is cancelled or kept there;
 *   - under a policy with a grid, every start is on a part of it, and no two busy workers share a
 *     row or a column; without one, no start is;
 *   - never a stall: as long as anyone is alive, somebody is busy, a timer is set or the run has
 *     stopped; a timer is not set before now;
 *   - a tuner turns only the knobs it says it turns, to values a run can live with.
 * An answer whose task is not its worker's current one never reaches the policy, so a cancel only
 * saves work and correctness never depends on it. */
#ifndef PL_CORE_CONTROL_H
#define PL_CORE_CONTROL_H

#include "core/archive.h"
#include "core/plan.h"
#include "core/replicas.h"
#include "core/tuner.h"

enum pl_event_kind {
    PL_JOIN,      /* a worker is there */
    PL_ARRIVE,    /* a task came back */
    PL_REJECT,    /* a task came back with a vector that will not do: it starts anew */
    PL_LEAVE,     /* a worker is gone */
    PL_MEASURED,  /* what the last commit told; only where the tuner measures */
    PL_TIMER,     /* view.timer_ns has come; before that, or where none is set, it is ignored */
    PL_BASE_READY /* peers: what a worker computes on is whole, and others may read it */
};

struct pl_event {
    enum pl_event_kind kind;
    uint64_t now_ns; /* never less than that of the event before */
    int worker;
    uint64_t task;    /* PL_ARRIVE, PL_REJECT, PL_BASE_READY */
    uint64_t comm_ns; /* PL_ARRIVE, PL_REJECT: of the task's time, what went into sending */
    uint32_t samples; /* PL_ARRIVE; PL_REJECT of a sound vector that was not believed */
    double loss;      /* PL_ARRIVE */
    struct pl_measure measure;
};

/* Whether an event is some worker's; the others have none. */
static inline bool pl_event_has_worker(const struct pl_event *e) {
    return e->kind != PL_MEASURED && e->kind != PL_TIMER;
}

/* A member of the open group. */
struct pl_member {
    int worker;
    uint64_t task, base, lag;
    uint32_t samples;
    double factor; /* from pl_take */
    double loss;   /* of the arrival; NAN where unknown */
};

/* Every task has one fate; `running` are those that have none yet: computing, waiting, or in the
 * open group. They sum to `started`. */
struct pl_fates {
    uint64_t started, applied, dropped, cancelled, lost, rejected, running;
};

/* Of the gradients that were applied. */
struct pl_staleness {
    double mean;
    uint64_t max;
    double fresh_fraction;
};

/* Where the workers' time went, in seconds summed over workers while they were there. `wasted`
 * is the whole time of tasks that were dropped, cancelled, lost or rejected. */
struct pl_worker_time {
    double compute, communication, idle, wasted;
};

struct pl_control;

/* The policy and tuner confs are copied. Checks that they suit each other and n_workers. */
int pl_control_new(const struct pl_policy *policy, const void *policy_conf,
                   const struct pl_tuner *tuner, const void *tuner_conf, int n_workers,
                   uint64_t seed, struct pl_control **out, struct pl_why *why);
void pl_control_free(struct pl_control *c);

/* Called after every event with what it led to: the event log. Up to PL_LISTENERS may listen; they
 * are called in the order in which they came. */
#define PL_LISTENERS 8
typedef void pl_control_log(void *ctx, const struct pl_control *c, const struct pl_event *e,
                            const struct pl_plan *plan);
void pl_control_on_event(struct pl_control *c, pl_control_log *log, void *ctx);

/* Saves or restores everything but the workers' presence: whoever was there has gone, what was
 * running is lost. Restoring comes before the first event and works with another number of workers;
 * the clock goes on from view.now_ns. 0, PL_ENOMEM, or PL_EDATA for counts that no run comes to. */
int pl_control_archive(struct pl_control *c, const struct pl_archive *k);

/* Handles one event. *plan is valid until the next call; its actions carry task and version. */
int pl_control_step(struct pl_control *c, const struct pl_event *e, const struct pl_plan **plan,
                    struct pl_why *why);

/* The world now; also where the host finds the current version and K. */
const struct pl_view *pl_control_view(const struct pl_control *c);

/* Who has which model, where the policy has peers; NULL otherwise. */
static inline struct pl_replicas *pl_control_replicas(const struct pl_control *c) {
    return pl_control_view(c)->replicas;
}

/* The group: open, or, right after a commit, the one that was just closed. */
const struct pl_member *pl_control_group(const struct pl_control *c, size_t *n);

/* The member that a PL_TAKE of the last plan made. */
const struct pl_member *pl_control_taken(const struct pl_control *c, const struct pl_action *a);

/* Whether `task` is what `worker` is computing right now. */
bool pl_control_is_current(const struct pl_control *c, int worker, uint64_t task);

/* PL_EPOLICY, and the sentence that names the breach. */
int pl_control_broke(const struct pl_control *c, struct pl_why *why, const char *how);

bool pl_control_stopped(const struct pl_control *c);
bool pl_control_measures(const struct pl_control *c); /* the tuner wants PL_MEASURED */

struct pl_fates pl_control_fates(const struct pl_control *c);
struct pl_staleness pl_control_staleness(const struct pl_control *c);
struct pl_worker_time pl_control_worker_time(const struct pl_control *c, uint64_t now_ns);

/* One event and its plan as a line of text, for people and for golden tests. Workers are numbered
 * from 1: "2.3 arrive W2#1: take, commit w1 <- W1@w0 W2@w0, start W1@w1, start W2@w1"; so are rows
 * and columns of a grid: "start W2@w5 block 3,7". */
size_t pl_control_print_room(const struct pl_control *c,
                             const struct pl_plan *plan); /* is enough */
void pl_control_print(const struct pl_control *c, const struct pl_event *e,
                      const struct pl_plan *plan, char *out, size_t max);

#endif
