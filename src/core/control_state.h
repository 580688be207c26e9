/* The inside of control, which control.c, referee.c and control_archive.c share: what decides, the
 * workers (crew.h), the results that were taken, and who is told. */
#ifndef PL_CORE_CONTROL_STATE_H
#define PL_CORE_CONTROL_STATE_H

#include "core/arms.h"
#include "core/control.h"
#include "core/crew.h"
#include "core/replicas.h"

#define CONTROL_NO_VERSION UINT64_MAX    /* base of a worker that has not fetched since it joined */
#define CONTROL_MANY (UINT64_C(1) << 62) /* no run counts this far or lasts this many ns */

/* What decides: the policy and the tuner. */
struct control_method {
    const struct pl_policy *policy;
    const struct pl_tuner *tuner;
    void *policy_state, *tuner_state;
    size_t policy_size;
    struct pl_run_info info;
    struct pl_arms *arms;    /* NULL: the policy stays */
    struct pl_switch chosen; /* at the last commit */
};

/* The results that were taken. */
struct control_groups {
    /* the group that the last event committed, and behind it the open one, of view.n_taken */
    struct pl_member *member;
    size_t n_closed, room;
    struct control_arrival {
        uint32_t samples;
        double loss;
        uint64_t took_ns, comm_ns;
    } * arrival; /* [n_workers] their deferred arrivals */
    int n_deferred;
    bool leaves_out;  /* its commit left a member out */
    uint64_t lag_max; /* of all groups before the one that was committed last */
};

/* Who is told about events. */
struct control_log {
    struct control_listener {
        pl_control_log *log;
        void *ctx;
    } decided, *listener; /* [n] */
    size_t n;
};

struct pl_control {
    struct control_method method;
    struct pl_view view; /* view.worker points at crew.worker, view.rng at `rng` */
    struct pl_crew crew;
    struct control_groups groups;
    uint64_t took_ns; /* the task that has just arrived */
    struct pl_plan plan;
    bool stopped;
    struct pl_replicas *replicas; /* NULL if there is one model at the server */
    struct pl_timeline timeline;
    struct control_log log;
    struct pl_rng rng;
};

/* Whether there is such a worker; a negative number becomes a large one. */
static inline bool pl_control_knows(const struct pl_control *c, int worker) {
    return (unsigned)worker < (unsigned)c->view.n_workers;
}

/* Members of the closed and of the open group. */
static inline size_t pl_control_n_members(const struct pl_control *c) {
    return c->groups.n_closed + (size_t)c->view.n_taken;
}

/* Makes the policy of an arm the one in force. 0 or PL_ENOMEM. */
int pl_control_use_arm(struct pl_control *c, int arm);

/* Checks the plan and carries it out in order. */
int pl_referee(struct pl_control *c, const struct pl_event *e, struct pl_why *why);

#endif
