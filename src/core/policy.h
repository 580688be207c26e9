/* The policy contract: when is the model updated, and who computes next?
 *
 * A policy is pure: no clock, thread, allocation, I/O or global variable. Control calls it with one
 * event and a view of the run, and the policy answers by writing actions into a plan. The same
 * object file decides in the simulator and in a real run.
 *
 * To write one: copy src/policy/ksync.c, fill in a struct pl_policy and add one line to
 * src/policy/table.c. Control checks every plan and ends the run with a sentence if a plan breaks
 * one of the rules below.
 *
 * When a callback runs
 *   - The event is already in the view. A worker that arrived is idle (last in the idle list) and
 *     its clock counts the task; one that joined is idle and its clock is that of the slowest
 *     worker; one that left is PL_GONE. The tuner has already moved the knobs.
 *   - The plan is not in the view: version, n_taken, n_contributors and the workers are as they
 * were before it, and stay so until the callback returns. Control then carries out the actions in
 *     the order in which they were written.
 *   - A result that is not finite, or that the filter rejects, never reaches the policy: control
 *     restarts its worker on the newest version, or on the same part.
 *
 * Groups and commits
 *   - Every arrival is taken, dropped or deferred, exactly once, in the call that reports it.
 *   - At most one commit per event, and only of a group that has a member. Any callback may commit.
 *   - A worker may be in a group several times. Control sets no limit to a group; every member
 *     holds a vector until the commit, so the policy must. It declares the sizes in `groups`.
 *   - A deferred arrival keeps its worker idle: the worker cannot be started until
 *     pl_take_deferred has put the arrival into a group, with the lag that it has by then. Deferred
 *     arrivals are not part of a commit, cannot be dropped, and are lost if their worker leaves.
 *
 * Starting workers
 *   - Only idle workers are started, and only busy ones are cancelled; a cancelled worker is idle
 *     and may be started again by the same plan.
 *   - PL_FETCH hands out the newest version. If that is the version the worker has already, nothing
 *     is sent and it costs nothing, in the simulator and in a real run.
 *   - PL_KEEP needs a version that the worker fetched after it joined.
 *   - If workers are there, none is busy and no timer is set, the run can never go on: that breaks
 *     the contract too, unless the plan stops the run.
 *
 * Workers that come and go
 *   - A run begins with a join event for every worker, one after the other, so join() is the first
 *     callback of every policy that has one. It may start the worker or leave it idle, and may do
 *     whatever else a plan can, except decide on an arrival: there is none.
 *   - leave() may commit, start and take deferred arrivals so that nobody waits for the worker that
 *     left. Contributions of that worker stay in the group and in n_taken, but it no longer counts
 *     in n_contributors. leave() is not called when the last worker leaves.
 *
 * The timer
 *   - There is one, and it is not set when a run begins. Any callback sets it with pl_timer; a
 *     policy that needs it from the beginning sets it in join().
 *   - It is cleared before timer() is called, and when the last worker leaves: the next join() has
 *     to set it again. */
#ifndef PL_CORE_POLICY_H
#define PL_CORE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/needs.h"
#include "base/rng.h"

#define PL_MAX_WORKERS 1000000
#define PL_NO_TIMER UINT64_MAX

enum pl_worker_state { PL_GONE, PL_IDLE, PL_BUSY };

struct pl_worker {
    enum pl_worker_state state;
    uint64_t task;     /* number of its current or last task: 1, 2, 3, … */
    uint64_t base;     /* version that task is computed on */
    uint64_t first;    /* the first of its tasks on that version */
    uint64_t clock;    /* tasks it has completed */
    uint64_t since_ns; /* when it entered its state: for a busy worker, when the task began */
    int n_contributed; /* its contributions in the open group */
    bool deferred;     /* its last arrival is neither taken nor dropped yet */
    int row, col;      /* the part that task is on, if the policy has a grid */
    int prev, next;    /* neighbours in the list of its state; -1 at the ends */
};

/* What a tuner may change during the run; it begins with the policy's options. */
struct pl_knobs {
    int k;          /* how many contributions close a group */
    uint64_t bound; /* a lag of this or more is too stale; PL_NO_BOUND: none is */
};

struct pl_replicas;

/* The run as a policy sees it; see above for what is already in it. */
struct pl_view {
    uint64_t now_ns;
    uint64_t version; /* of the model: the number of commits so far */
    int n_workers;    /* 0 … n_workers-1 are valid indices, including workers that are gone */
    int n_alive, n_idle;
    int n_taken;        /* members of the open group */
    int n_contributors; /* workers that are there and have contributed to it */
    struct pl_knobs knobs;
    const struct pl_worker *worker;
    int idle, busy; /* first of each list, or -1: idle in order of arrival, busy in order of start,
                       so the busy list begins with the oldest base */
    uint64_t timer_ns; /* when timer() will be called; PL_NO_TIMER: never */
    struct pl_rng *rng;
    struct pl_replicas *replicas; /* for pl_fits and pl_weight, if the policy has peers; or NULL */
};

static inline int pl_n_busy(const struct pl_view *v) {
    return v->n_alive - v->n_idle;
}

static inline bool pl_alive(const struct pl_view *v, int worker) {
    return v->worker[worker].state != PL_GONE;
}

/* for (int i = v->idle; i >= 0; i = pl_next(v, i)) … */
static inline int pl_next(const struct pl_view *v, int worker) {
    return v->worker[worker].next;
}

struct pl_arrival {
    int worker;
    uint64_t lag;     /* commits since its base version: the staleness */
    uint32_t samples; /* that its vector averages over */
    double loss;      /* their mean loss; NAN if unknown */
};

/* The actions of a plan. */
enum pl_from {
    PL_FETCH, /* the newest version */
    PL_KEEP   /* the version it computed on before: nothing has to be sent */
};

struct pl_plan;
void pl_take(struct pl_plan *p, double factor); /* the arrival joins the open group */
void pl_drop(struct pl_plan *p);                /* the arrival is not used; it is counted */
void pl_defer(struct pl_plan *p);               /* the arrival is decided on later */
void pl_take_deferred(struct pl_plan *p, int worker, double factor); /* … now */
void pl_commit(struct pl_plan *p, double factor); /* group -> one step, version + 1 */
void pl_start(struct pl_plan *p, int worker, enum pl_from from);
/* The same on a part of the policy's grid: in a row and a column where nobody is busy. The open
 * group must be empty. */
void pl_start_part(struct pl_plan *p, int worker, int row, int col);
void pl_cancel(struct pl_plan *p, int worker); /* the task is void; its worker is idle */
void pl_stop(struct pl_plan *p);               /* the run ends */

/* Sets the timer to a time that is not before now. The last call counts, PL_NO_TIMER clears the
 * timer, and a plan without a call leaves it as it is. A host may be late, but it handles no event
 * first that happened after that time. */
void pl_timer(struct pl_plan *p, uint64_t when_ns);

/* For workers with models of their own (`peers` below; core/replicas.h has the arithmetic). Both
 * workers must be there. Meant is the newest model of a worker, even while it computes on an older
 * one. */
void pl_blend(struct pl_plan *p, int worker, int peer, double a, double b); /* x = a x + b x_peer */
void pl_pair(struct pl_plan *p, int worker, int peer, double a);     /* both move by a of the way */
void pl_push(struct pl_plan *p, int worker, int peer, double share); /* push-sum: to its inbox */
void pl_absorb(struct pl_plan *p, int worker); /* what is in the inbox joins its model */

/* Whether there is room for an exchange; if not, the policy leaves it for another time. */
bool pl_fits(const struct pl_view *v, int worker, int peer);
double pl_weight(const struct pl_view *v, int worker); /* its push-sum weight: 1 at first */

/* A random peer of `worker` that is alive: any other worker, or one whose index is odd if this
 * one's is even and the reverse. -1 if there is none. */
enum pl_draw { PL_ANY_PEER, PL_OTHER_HALF };
int pl_draw_peer(const struct pl_view *v, int worker, enum pl_draw among);

/* Starts every idle worker on the newest version. */
void pl_start_idle(struct pl_plan *p, const struct pl_view *v);

/* Cancels every busy worker and starts it again on the newest version. */
void pl_restart_busy(struct pl_plan *p, const struct pl_view *v);

/* The knobs that a policy reads; a tuner that moves another one is refused. */
enum { PL_USES_K = 1, PL_USES_BOUND = 2 };

/* How many contributions a group has when it is committed. */
struct pl_sizes {
    int least, most;
};

enum pl_cancels { PL_CANCELS_NONE, PL_CANCELS_STALE, PL_CANCELS_ALL };

struct pl_policy {
    struct pl_entry id;
    unsigned uses; /* PL_USES_… */
    bool by_batch; /* K counts mini-batches, not workers, and may exceed their number */
    /* There is no common model: every worker has its own, which only that worker and its peers
     * read. A start computes on the worker's own model, a take changes it, a commit only counts.
     * Nothing is cancelled, deferred or kept. */
    bool peers;
    /* The state is a zeroed block of this size, which the host allocates. It begins with a copy of
     * the conf, so it is at least conf_size, and has no pointers inside: it is copied and saved. */
    size_t state_size;
    /* Further bytes behind the state, for arrays by worker or by part; NULL: none. */
    size_t (*room)(const void *conf, int n_workers);
    /* The side of the square grid that the model is divided into. Every start is then on a part
     * (pl_start_part), two busy workers never share a row or a column, and join() is not NULL.
     * NULL: every task is on the whole model. */
    int (*grid)(const void *conf, int n_workers);

    /* Returns NULL if the options are valid for n_workers, otherwise a phrase for the error
     * message. NULL: they always are. */
    const char *(*check)(const void *conf, int n_workers);
    /* The knobs that the run begins with. */
    struct pl_knobs (*knobs)(const void *conf);
    /* The sizes of the groups it commits while K is k and all n_workers are there; workers that are
     * gone may make a group smaller. NULL: always k. */
    struct pl_sizes (*groups)(const void *conf, int n_workers, int k);
    /* Which busy workers a commit may cancel; NULL: none. A host that computes tasks ahead of time
     * skips those that will be cancelled. */
    enum pl_cancels (*cancels)(const void *conf);

    /* A task came back: take it, drop it or defer it. */
    void (*arrive)(void *state, const struct pl_view *, const struct pl_arrival *,
                   struct pl_plan *);
    /* A worker joined, for the first time or again. NULL: it is started on the newest version. */
    void (*join)(void *state, const struct pl_view *, int worker, struct pl_plan *);
    /* A worker left; its task is lost. NULL if no worker ever waits for another. */
    void (*leave)(void *state, const struct pl_view *, int worker, struct pl_plan *);
    /* The timer has expired. NULL if the policy never sets one. */
    void (*timer)(void *state, const struct pl_view *, struct pl_plan *);
};

extern const struct pl_family pl_policy_family;

#endif
