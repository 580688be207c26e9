/* The policy contract: when is the model updated, and which workers compute next?
 *
 * A policy is a struct pl_policy: a name, a table of options, and callbacks. Control calls a
 * callback with one event and a view of the run, and the policy answers by writing actions into a
 * plan. The same code decides in the simulator, in a real run and in a replay.
 *
 * A program registers a policy of its own and then uses it by name:
 *
 *     pl_setup_policy(setup, &patient);
 *     pl_setup_set(setup, "policy", "patient:k=6,wait=0.5");
 *
 * docs/policies.md shows how to write one; docs/examples/own_policy.c is a complete program. The
 * policies of the library (src/policy/) use this header alone; ksync.c is the smallest.
 *
 * A policy is pure: no clock (use view->now_ns), no random source but view->rng, no thread, I/O or
 * variable of its own beside its state. Otherwise a replay differs from its recording, and several
 * servers disagree. Control checks every plan and ends the run with PL_EPOLICY and a sentence if a
 * plan breaks one of the rules below.
 *
 * When a callback runs
 *   - The event is already in the view. A worker that arrived is idle (last in the idle list) and
 *     its clock counts the task; one that joined is idle and its clock is that of the slowest
 *     worker; one that left is PL_GONE. The tuner has already moved the knobs.
 *   - The plan is not in the view: version, n_taken, n_contributors, the workers and their lists
 *     are as they were before it, and stay so until the callback returns. In arrive(), n_taken and
 *     n_contributors do not count the arrival that is about to be taken. Control then carries out
 *     the actions in the order in which they were written: a start after a commit hands out the new
 *     version.
 *   - The view is valid until the callback returns.
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
 *   - Control does not enforce the staleness bound: the policy drops what is too stale.
 *
 * Starting workers
 *   - A worker stays idle until the policy starts it, also after pl_drop. The worker that arrived
 *     is in the idle list, so pl_start_idle starts it too: a second start breaks the contract, and
 *     so does pl_start_idle while an arrival is deferred.
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
 *   - leave() may commit, start and take deferred arrivals so that no worker waits for the one that
 *     left. Contributions of that worker stay in the group and in n_taken, but it no longer counts
 *     in n_contributors. leave() is not called when the last worker leaves; the group is then as it
 *     was when others join.
 *   - A run that resumes from a checkpoint begins with joins too. Time, versions and the policy's
 *     state go on; the open group is empty and the timer is not set.
 *
 * The timer
 *   - There is one, and it is not set when a run begins. Any callback sets it with pl_timer; a
 *     policy that needs it from the beginning sets it in join().
 *   - It is cleared before timer() is called, and when the last worker leaves: the next join() has
 *     to set it again. */
#ifndef PACELINE_POLICY_H
#define PACELINE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- options ------------------------------------------------------------------------------ */

#define PL_NAME_MAX 48  /* name of a policy or an option, including the final zero */
#define PL_TEXT_MAX 512 /* a text option */
#define PL_LIST_MAX 16  /* entries of a list option */
#define PL_NO_BOUND UINT64_MAX
#define PL_COUNT_AUTO (-1)

enum pl_opt_type {
    PL_TYPE_INT,    /* int64_t */
    PL_TYPE_REAL,   /* double */
    PL_TYPE_BOOL,   /* bool: yes|no */
    PL_TYPE_CHOICE, /* int: index into `choices`, "a|b|c" */
    PL_TYPE_COUNT,  /* int: a number, "all" (workers) or a percentage of them ("75%"); also "auto"
                       (PL_COUNT_AUTO) if that is the default */
    PL_TYPE_BOUND,  /* uint64_t: a number, or "inf" = PL_NO_BOUND */
    PL_TYPE_TEXT,   /* char[PL_TEXT_MAX] */
    PL_TYPE_LIST    /* struct pl_list_of */
};

struct pl_list_of {
    int n;
    double at[PL_LIST_MAX];
};

struct pl_opt {
    const char *name;
    enum pl_opt_type type;
    const char *def; /* as a user would type it; "" only for texts and lists */
    const char *help;
    double min, max;     /* inclusive; ignored for texts and if both are 0 */
    const char *choices; /* of PL_TYPE_CHOICE; of a text or a number, the word for its value in
                            help: SECONDS may have a unit (5m), a SHARE may be in per cent, a
                            RATE is above 0 unless it is left out */
    size_t offset;       /* of the field in the conf */
    unsigned flags;      /* for the owner of the table; 0 in plug-ins */
};

/* A table has one line per option and ends with PL_OPT_END:
 *
 *     static const struct pl_opt ksync_opts[] = {
 *         PL_OPT_COUNT(struct ksync, k, "all", 1, PL_MAX_WORKERS, "workers an update waits for"),
 *         PL_OPT_BOOL(struct ksync, cancel, "yes", "restart the other workers at an update"),
 *         PL_OPT_END,
 *     };
 *
 * Columns: the conf struct, the field, which is also the option's name, the default as a user would
 * write it, the range or the choices, and the help. A field of the wrong type does not compile. */
#define PL_OPT_INT(conf, field, def, min, max, help)                                               \
    PL_OPT(#field, INT, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_REAL(conf, field, def, min, max, help)                                              \
    PL_OPT(#field, REAL, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_SECONDS(conf, field, def, min, max, help)                                           \
    PL_OPT(#field, REAL, conf, field, def, min, max, "SECONDS", help, 0)
#define PL_OPT_COUNT(conf, field, def, min, max, help)                                             \
    PL_OPT(#field, COUNT, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_BOUND(conf, field, def, min, max, help)                                             \
    PL_OPT(#field, BOUND, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_LIST(conf, field, def, min, max, help)                                              \
    PL_OPT(#field, LIST, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_CHOICE(conf, field, def, choices, help)                                             \
    PL_OPT(#field, CHOICE, conf, field, def, 0, 0, choices, help, 0)
#define PL_OPT_BOOL(conf, field, def, help)                                                        \
    PL_OPT(#field, BOOL, conf, field, def, 0, 0, NULL, help, 0)
#define PL_OPT_TEXT(conf, field, def, help)                                                        \
    PL_OPT(#field, TEXT, conf, field, def, 0, 0, NULL, help, 0)
#define PL_OPT_END                                                                                 \
    { NULL, PL_TYPE_INT, NULL, NULL, 0, 0, NULL, 0, 0 }

/* The same with all columns, for an option that is not called like its field or has flags. */
#define PL_OPT(name_, TYPE, conf, field, def_, min_, max_, choices_, help_, flags_)                \
    {                                                                                              \
        (name_), PL_TYPE_##TYPE, (def_), (help_), (min_), (max_), (choices_),                      \
            offsetof(conf, field) + PL_FIELD_IS(&((conf *)0)->field, PL_FIELD_##TYPE), (flags_)    \
    }

/* 0 if the address of a field has that type; otherwise an error of the compiler (in C99 a warning).
 */
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define PL_FIELD_IS(address, type) _Generic(address, type : 0)
#else
#define PL_FIELD_IS(address, type) 0 * sizeof((address) == (type)0)
#endif
#define PL_FIELD_INT int64_t *
#define PL_FIELD_REAL double *
#define PL_FIELD_BOOL bool *
#define PL_FIELD_CHOICE int *
#define PL_FIELD_COUNT int *
#define PL_FIELD_BOUND uint64_t *
#define PL_FIELD_TEXT char(*)[PL_TEXT_MAX]
#define PL_FIELD_LIST struct pl_list_of *

/* What an entry needs of a run. A run that cannot offer it is refused before it begins, with a
 * sentence that names both sides. Most policies need nothing: 0. */
enum {
    PL_NEEDS_MODEL = 1 << 0,         /* tasks that compute something, not timing alone */
    PL_NEEDS_MATRIX = 1 << 1,        /* a model that can be worked on in blocks of a matrix */
    PL_NEEDS_DATA = 1 << 2,          /* training samples */
    PL_NEEDS_LABELS = 1 << 3,        /* … with classes */
    PL_NEEDS_RATINGS = 1 << 4,       /* … that are ratings */
    PL_NEEDS_SERVER_MODEL = 1 << 5,  /* one model, which contributions change at a server */
    PL_NEEDS_WHOLE_VECTORS = 1 << 6, /* tasks on the whole model */
    PL_NEEDS_PARTS = 1 << 7,         /* tasks on parts of the model */
    PL_NEEDS_BASE = 1 << 8,          /* the version that a contribution was computed on */
    PL_NEEDS_ONE_AT_A_TIME = 1 << 9, /* groups of one contribution */
    PL_NEEDS_ONE_SERVER = 1 << 10,   /* whole vectors at one server */
    PL_NEEDS_NO_FILTER = 1 << 11,    /* contributions that change after their arrival */
    PL_NEEDS_SIMULATION = 1 << 12,   /* virtual time, faults and networks */
    PL_NEEDS_PROCESSES = 1 << 13,    /* workers that are processes */
    PL_NEEDS_OUR_WORKERS = 1 << 14,  /* workers that run this library's local rules */
    PL_NEEDS_REFERENCE = 1 << 15,    /* a gradient of the server's own */
    /* what rules that work on whole contributions at a server need */
    PL_NEEDS_SERVER = PL_NEEDS_SERVER_MODEL | PL_NEEDS_WHOLE_VECTORS
};

/* Every policy, and every other part that a spec can name, begins with this struct. */
struct pl_entry {
    const char *name, *brief;  /* the name: lower-case letters, digits, '-' and '_' */
    const char *paper;         /* citation, or "" */
    const struct pl_opt *opts; /* never NULL; PL_OPT_END alone: no options */
    size_t conf_size;          /* of the struct that the options fill; 0 if there are none */
    unsigned needs;            /* PL_NEEDS_… */
};

/* --- what a policy sees ------------------------------------------------------------------- */

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

/* What a tuner may change during the run; it begins with the policy's options. Decide by the knobs
 * in the view, not by the options in the state. */
struct pl_knobs {
    int k;          /* how many contributions close a group */
    uint64_t bound; /* a lag of this or more is too stale; PL_NO_BOUND: none is */
};

/* A `knobs` callback for a conf that begins with a struct pl_knobs: its k, at least 1, and its
 * bound, if that is not 0. */
PL_API struct pl_knobs pl_knobs_first(const void *conf);

struct pl_replicas;

/* The run as a policy sees it; see above for what is already in it. */
struct pl_view {
    uint64_t now_ns;  /* nanoseconds since the run began; virtual if simulated */
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

/* Random numbers on view->rng. A run with the same seed and events draws the same ones. */
struct pl_rng;
PL_API uint32_t pl_rng_below(struct pl_rng *r, uint32_t n); /* uniform in [0, n); n is not 0 */
PL_API double pl_rng_unit(struct pl_rng *r); /* uniform in [0, 1) with 53 bits; never 1 */

/* --- what a policy may plan --------------------------------------------------------------- */

struct pl_plan; /* paceline.h has a function of that name; in C++ write `struct pl_plan` */

/* Each arrival is decided on with one of these. The vector of an arrival that is taken is
 * multiplied by `factor`: 1 unless the policy weighs its contributions. */
PL_API void pl_take(struct pl_plan *p, double factor); /* it joins the open group */
PL_API void pl_drop(struct pl_plan *p);                /* it is not used, and counted as dropped */
PL_API void pl_defer(struct pl_plan *p);               /* it is taken later, by … */
PL_API void pl_take_deferred(struct pl_plan *p, int worker, double factor); /* … this */

/* The open group is reduced to one vector (by default the mean), the optimizer makes one step with
 * it, and the version grows by 1. The learning rate is multiplied by `factor`, usually 1. */
PL_API void pl_commit(struct pl_plan *p, double factor);

enum pl_from {
    PL_FETCH, /* the newest version */
    PL_KEEP   /* the version it computed on before: nothing has to be sent */
};
PL_API void pl_start(struct pl_plan *p, int worker, enum pl_from from); /* its next task */
/* The same on a part of the policy's grid: in a row and a column where no worker is busy. The open
 * group must be empty. */
PL_API void pl_start_part(struct pl_plan *p, int worker, int row, int col);
PL_API void pl_start_idle(struct pl_plan *p, const struct pl_view *v); /* each; PL_FETCH */
PL_API void pl_cancel(struct pl_plan *p, int worker); /* the task is void; its worker is idle */
/* Cancels every busy worker and starts it again on the newest version. */
PL_API void pl_restart_busy(struct pl_plan *p, const struct pl_view *v);
PL_API void pl_stop(struct pl_plan *p); /* the run ends */

/* Sets the timer to a time that is not before now. The last call counts, PL_NO_TIMER clears the
 * timer, and a plan without a call leaves it as it is. A host may be late, but it handles no event
 * first that happened after that time. */
PL_API void pl_timer(struct pl_plan *p, uint64_t when_ns);

/* For workers with models of their own (`peers` below; docs/gossip.md has the arithmetic). Both
 * workers must be there. Meant is the newest model of a worker, even while it computes on an older
 * one. */
PL_API void pl_blend(struct pl_plan *p, int worker, int peer, double a,
                     double b); /* x = a x + b x_peer */
PL_API void pl_pair(struct pl_plan *p, int worker, int peer,
                    double a); /* both move by a of the way */
PL_API void pl_push(struct pl_plan *p, int worker, int peer,
                    double share);                    /* push-sum: to the inbox of the peer */
PL_API void pl_absorb(struct pl_plan *p, int worker); /* what is in the inbox joins its model */

/* Whether there is room for an exchange; if not, the policy leaves it for another time. */
PL_API bool pl_fits(const struct pl_view *v, int worker, int peer);
PL_API double pl_weight(const struct pl_view *v, int worker); /* its push-sum weight: 1 at first */

/* A random peer of `worker` that is alive: any other worker, or one whose index is odd if this
 * one's is even and the reverse. -1 if there is none. */
enum pl_draw { PL_ANY_PEER, PL_OTHER_HALF };
PL_API int pl_draw_peer(const struct pl_view *v, int worker, enum pl_draw among);

/* --- what a policy is --------------------------------------------------------------------- */

/* The knobs that a policy reads; a tuner that moves another one is refused. */
enum { PL_USES_K = 1, PL_USES_BOUND = 2 };

/* How many contributions a group has when it is committed. */
struct pl_sizes {
    int least, most;
};

enum pl_cancels {
    PL_CANCELS_NONE,
    PL_CANCELS_STALE, /* those that the commit makes too stale for the bound */
    PL_CANCELS_ALL
};

struct pl_policy {
    struct pl_entry id;
    unsigned uses; /* PL_USES_… */
    bool by_batch; /* K counts mini-batches, not workers, and may exceed their number */
    /* There is no common model: every worker has its own, which only that worker and its peers
     * read. A start computes on the worker's own model, a take changes it, a commit only counts.
     * Nothing is cancelled, deferred or kept. */
    bool peers;
    /* The state is a zeroed block of this size, which the library allocates. It begins with a copy
     * of the conf, so it is at least conf_size. What lies behind the first conf_size bytes is saved
     * in checkpoints: write a struct whose first member is the conf, and no pointers. */
    size_t state_size;
    /* Further bytes at (char *)state + state_size, for arrays by worker or by part, zeroed and
     * saved as well. They are aligned if state_size is a multiple of 8. It is NULL if there are
     * none. */
    size_t (*room)(const void *conf, int n_workers);
    /* The side of the square grid that the model is divided into. Every start is then on a part
     * (pl_start_part), two busy workers never share a row or a column, and join() is not NULL.
     * If it is NULL, every task is on the whole model. */
    int (*grid)(const void *conf, int n_workers);

    /* Returns NULL if the options are valid for n_workers, otherwise a phrase that completes the
     * message "policy 'patient:k=9' with 8 workers: …". If it is NULL, they always are. */
    const char *(*check)(const void *conf, int n_workers);
    /* The knobs that the run begins with: k is at least 1, also if the policy does not use it. */
    struct pl_knobs (*knobs)(const void *conf);
    /* The sizes of the groups it commits while K is k and all n_workers are there; workers that are
     * gone may make a group smaller. If it is NULL, the size is always k. */
    struct pl_sizes (*groups)(const void *conf, int n_workers, int k);
    /* Which busy workers a commit may cancel, or NULL if it cancels none. A host that computes
     * tasks ahead of time skips those that will be cancelled. */
    enum pl_cancels (*cancels)(const void *conf);

    /* A task came back: take it, drop it or defer it. */
    void (*arrive)(void *state, const struct pl_view *, const struct pl_arrival *,
                   struct pl_plan *);
    /* A worker joined, for the first time or again. If this is NULL, the worker is started on the
     * newest version. */
    void (*join)(void *state, const struct pl_view *, int worker, struct pl_plan *);
    /* A worker left; its task is lost. NULL if no worker ever waits for another. */
    void (*leave)(void *state, const struct pl_view *, int worker, struct pl_plan *);
    /* The timer has expired. NULL if the policy never sets one. */
    void (*timer)(void *state, const struct pl_view *, struct pl_plan *);
    /* Whether every start is PL_FETCH, so that the version of a task can be given up as soon as the
     * task is done. If this is NULL, some may be PL_KEEP. */
    bool (*fetches)(const void *conf);
};

/* For policies that never use PL_KEEP. */
static inline bool pl_always_fetches(const void *conf) {
    (void)conf;
    return true;
}

#ifdef __cplusplus
}
#endif
#endif
