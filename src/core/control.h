/* Control, the referee: one event in, a checked plan out.
 *
 * Control keeps the worker table and the open group. It passes each event to the tuner and the
 * policy, checks the plan that comes back, updates its tables accordingly and returns the plan to
 * the engine, which moves vectors and wakes workers. It uses no clock, thread or vector: every host
 * drives it in the same way, and a recorded sequence of events gives the same sequence of plans.
 *
 * What it guarantees, or refuses with PL_EPOLICY:
 *   - one take, drop or defer per arrival, and none without one; a deferred arrival is taken once,
 *     before its worker is started again;
 *   - at most one commit per event, and only of a non-empty group; factors are finite;
 *   - only idle workers are started, only busy ones cancelled;
 *   - exchanges happen only between two different workers with models of their own, both present,
 *     with finite factors and as far as combinations have room; such workers are never cancelled,
 *     and their results never deferred;
 *   - if the policy has a grid, every start is on a part of it, and no two busy workers share a row
 *     or a column; otherwise no start is on a part;
 *   - no stall: while a worker is alive, one is busy, a timer is set or the run has stopped; a
 *     timer is not set to the past;
 *   - a tuner changes only the knobs it declares, to valid values.
 * A result whose task is not its worker's current one never reaches the policy, so a cancel only
 * saves work and correctness never depends on it. */
#ifndef PL_CORE_CONTROL_H
#define PL_CORE_CONTROL_H

#include "core/archive.h"
#include "core/plan.h"
#include "core/replicas.h"
#include "core/timeline.h"
#include "core/tuner.h"

enum pl_event_kind {
    PL_JOIN,       /* a worker is present */
    PL_ARRIVE,     /* a result arrived */
    PL_REJECT,     /* a result arrived that cannot be used: its worker starts again */
    PL_LEAVE,      /* a worker is gone */
    PL_MEASURED,   /* what was measured at the last commit, if the tuner wants it */
    PL_TIMER,      /* the time is view.timer_ns; ignored before that, or if none is set */
    PL_BASE_READY, /* a worker's own base is complete, and its peers may read it */
    PL_SCORED,     /* the model was evaluated, if the tuner wants to know: its loss */
    PL_SWITCH,     /* the tuner has chosen another policy: see pl_control_chosen */
    PL_END         /* the last line of the log: the run has ended; see pl_control_end */
};

struct pl_event {
    enum pl_event_kind kind;
    uint64_t now_ns; /* never less than in the event before */
    int worker;
    uint64_t task;       /* PL_ARRIVE, PL_REJECT, PL_BASE_READY; PL_SWITCH: the arm */
    uint64_t comm_ns;    /* PL_ARRIVE, PL_REJECT: the part of the task's time spent sending */
    uint64_t excused_ns; /* PL_ARRIVE: the part for which its worker is not called slow: it waited
                            for a core, or the whole run stood still. Not recorded */
    uint32_t samples; /* PL_ARRIVE; PL_REJECT of a finite vector that was not believed; PL_SWITCH:
                         1 if the model has returned to an earlier one */
    double loss;      /* PL_ARRIVE, PL_SCORED */
    struct pl_measure measure;
};

/* Whether the event is about one worker. */
static inline bool pl_event_has_worker(const struct pl_event *e) {
    return e->kind < PL_MEASURED || e->kind == PL_BASE_READY;
}

/* Whether the engine makes the event itself, so that no recording needs it. */
static inline bool pl_event_is_made(const struct pl_event *e) {
    return e->kind == PL_MEASURED || e->kind == PL_SWITCH || e->kind == PL_END;
}

/* A member of the open group. */
struct pl_member {
    int worker;
    uint64_t task, base, lag;
    uint32_t samples;
    double factor;             /* from pl_take */
    double loss;               /* of the arrival; NAN if unknown */
    uint64_t took_ns, comm_ns; /* its task, and the part of that spent sending */
    bool left_out;             /* the commit could not use it */
};

/* Of the results that were applied. */
struct pl_staleness {
    double mean;
    uint64_t max;
    double fresh_fraction;
};

struct pl_control;

struct pl_control_conf {
    const struct pl_policy *policy;
    const struct pl_tuner *tuner;
    const void *policy_conf, *tuner_conf; /* copied */
    int n_workers;
    uint64_t seed;
};

/* Checks that policy, tuner and number of workers suit each other. */
int pl_control_new(const struct pl_control_conf *conf, struct pl_control **out, struct pl_why *why);
void pl_control_free(struct pl_control *c);

/* The event log: called with every event and its plan after the plan was carried out, in the order
 * in which the functions were added. 0 or PL_ENOMEM. */
typedef void pl_control_log(void *ctx, const struct pl_control *c, const struct pl_event *e,
                            const struct pl_plan *plan);
int pl_control_on_event(struct pl_control *c, pl_control_log *log, void *ctx);

/* Called with every event before its plan is carried out: engines that follow this one have to take
 * part in that. There is one such function. */
void pl_control_on_decision(struct pl_control *c, pl_control_log *log, void *ctx);

/* Saves or restores everything except which workers are present: all have left, and what was
 * running is lost. Restore before the first event; the number of workers may differ. The clock
 * continues from view.now_ns. 0, PL_ENOMEM, or PL_EDATA for counts that no run reaches. */
int pl_control_archive(struct pl_control *c, const struct pl_archive *k);

/* Decides what follows from one event. *plan is valid until the next call; its actions carry task
 * and version. */
int pl_control_decide(struct pl_control *c, const struct pl_event *e, const struct pl_plan **plan,
                      struct pl_why *why);

/* The plan of that event was carried out. Counts what only that could tell, and logs the event. */
void pl_control_log_plan(struct pl_control *c, const struct pl_event *e);
static inline void pl_control_carried_out(struct pl_control *c, const struct pl_event *e,
                                          const struct pl_plan *plan) {
    if (plan->to_log) pl_control_log_plan(c, e);
}

/* Both, if there is nothing to carry out. */
static inline int pl_control_step(struct pl_control *c, const struct pl_event *e,
                                  const struct pl_plan **plan, struct pl_why *why) {
    int rc = pl_control_decide(c, e, plan, why);
    if (!rc) pl_control_carried_out(c, e, *plan);
    return rc;
}

/* The run has ended: closes the timeline and logs PL_END, once. */
void pl_control_end(struct pl_control *c, uint64_t now_ns);

/* The current state of the run, with the current version and K. */
const struct pl_view *pl_control_view(const struct pl_control *c);

/* How many an update waits for: K, but if K counts workers, no more than are present. If none is,
 * K. */
int pl_control_k(const struct pl_control *c, int present);

/* The policy in force and its K, as "ksync:k=3", if the tuner may switch the policy; otherwise "".
 */
void pl_control_policy(const struct pl_control *c, char *out, size_t max);

/* The workers' own models if the policy has peers; otherwise NULL. */
static inline struct pl_replicas *pl_control_replicas(const struct pl_control *c) {
    return pl_control_view(c)->replicas;
}

/* The open group or, right after a commit, the one that was just closed. */
const struct pl_member *pl_control_group(const struct pl_control *c, size_t *n);

/* The member that a PL_TAKE of the last plan added. */
const struct pl_member *pl_control_taken(const struct pl_control *c, const struct pl_action *a);

/* Member i of the group that is being committed could not be used after all: it is rejected. */
void pl_control_leave_out(struct pl_control *c, size_t i);

/* Whether `worker` is computing `task` now. */
static inline bool pl_is_current(const struct pl_view *v, int worker, uint64_t task) {
    return v->worker[worker].state == PL_BUSY && v->worker[worker].task == task;
}

/* PL_EPOLICY, and the sentence that names the breach. */
int pl_control_broke(const struct pl_control *c, struct pl_why *why, const char *how) PL_COLD;

bool pl_control_measures(const struct pl_control *c); /* the tuner wants PL_MEASURED */
bool pl_control_scores(const struct pl_control *c);   /* the tuner wants PL_SCORED */
bool pl_control_switches(const struct pl_control *c); /* the tuner may switch the policy */

/* What the tuner has chosen at the last commit; arm -1: nothing else. The engine carries out a
 * return to an earlier model with the commit, and then makes the event PL_SWITCH. */
struct pl_switch pl_control_chosen(const struct pl_control *c);

/* Which busy workers a commit of the policy in force cancels. */
enum pl_cancels pl_control_cancels(const struct pl_control *c);

/* What the workers did, up to the last event that was carried out. */
const struct pl_timeline *pl_control_timeline(const struct pl_control *c);
struct pl_fates pl_control_fates(const struct pl_control *c);
struct pl_staleness pl_control_staleness(const struct pl_control *c);
struct pl_worker_time pl_control_worker_time(const struct pl_control *c, uint64_t now_ns);

/* "join", "arrive", …; "take", "drop", … */
const char *pl_event_word(enum pl_event_kind kind);
const char *pl_verb_word(enum pl_verb verb);

/* One event and its plan as a line of text, for people and for golden tests. Workers are numbered
 * from 1: "2.3 arrive W2#1: take, commit w1 <- W1@w0 W2@w0, start W1@w1, start W2@w1"; so are rows
 * and columns of a grid: "start W2@w5 block 3,7". Members that a commit left out follow it: "commit
 * w1 <- W1@w0, reject W2#1". */
size_t pl_control_print_room(const struct pl_control *c,
                             const struct pl_plan *plan); /* enough bytes */
void pl_control_print(const struct pl_control *c, const struct pl_event *e,
                      const struct pl_plan *plan, char *out, size_t max);

#endif
