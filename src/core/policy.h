/* The policy contract: when is the model updated, and who computes next?
 *
 * A policy is pure. It is handed one event and a view of the world, and it answers by writing
 * into a plan; it has no clock, thread, allocation, I/O or global. The same object file decides in
 * the simulator and in a real run.
 *
 * To write one: copy src/policy/ksync.c, fill in a struct pl_policy, add one line to
 * src/policy/table.c. Control checks every plan, so a mistake is named, not trained on. */
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
    uint64_t clock;    /* tasks it completed */
    uint64_t since_ns; /* when that task was started */
    int n_contributed; /* of its contributions, in the open group */
    bool deferred;     /* what it brought is neither taken nor dropped yet */
    int row, col;      /* part of the grid that task is on; only under a policy with a grid */
    int prev, next;    /* neighbours in the list of its state; -1 at the ends */
};

/* What a tuner may turn while the run goes on; the policy's options are the start. */
struct pl_knobs {
    int k;          /* how many contributions close a group */
    uint64_t bound; /* a lag of this or more is too stale; PL_NO_BOUND for none */
};

struct pl_replicas;

/* The world as a policy sees it, before its own plan is carried out. A worker that has just
 * arrived is idle already. */
struct pl_view {
    uint64_t now_ns;
    uint64_t version; /* of the model: number of commits so far */
    int n_workers;    /* 0 … n_workers-1 are valid indices, gone ones included */
    int n_alive, n_idle;
    int n_taken;        /* members of the open group */
    int n_contributors; /* workers that are there and have given some of them */
    struct pl_knobs knobs;
    const struct pl_worker *worker;
    int idle, busy; /* first of each list, or -1: idle in order of arrival, busy in order of start,
                       so the busy list begins with the oldest base */
    uint64_t timer_ns; /* when the policy is to be woken; PL_NO_TIMER: not */
    struct pl_rng *rng;
    struct pl_replicas
        *replicas; /* of a policy with peers: who has which model, for pl_fits; or NULL */
};

static inline int pl_n_busy(const struct pl_view *v) {
    return v->n_alive - v->n_idle;
}

/* for (int i = v->idle; i >= 0; i = pl_next(v, i)) … */
static inline int pl_next(const struct pl_view *v, int worker) {
    return v->worker[worker].next;
}

struct pl_arrival {
    int worker;
    uint64_t lag;     /* commits since its base version: the staleness */
    uint32_t samples; /* that its vector averages over */
    double loss;      /* mean over them; NAN where unknown */
};

/* What a policy may say. Actions are carried out in the order they were said. */
enum pl_from {
    PL_FETCH, /* the newest version */
    PL_KEEP   /* the version it computed on before: nothing has to be sent */
};

struct pl_plan;
void pl_take(struct pl_plan *p, double factor); /* the arrival joins the open group */
void pl_drop(struct pl_plan *p);                /* the arrival is forgotten, and counted */
void pl_defer(struct pl_plan *p); /* … is decided later; its worker is idle until then */
void pl_take_deferred(struct pl_plan *p, int worker, double factor); /* one that waits is taken */
void pl_commit(struct pl_plan *p, double factor); /* group -> one step, version + 1 */
void pl_start(struct pl_plan *p, int worker, enum pl_from from); /* an idle worker computes */
/* The same on a part of the policy's grid: a row and a column that no busy worker has. */
void pl_start_part(struct pl_plan *p, int worker, int row, int col);
void pl_cancel(struct pl_plan *p, int worker); /* a busy worker's task is void; it is idle now */
void pl_stop(struct pl_plan *p);               /* the run ends */

/* Wake me at this time, now or later. There is one timer: what is said last replaces what was set
 * before, and PL_NO_TIMER takes it back; saying nothing leaves it as it is. Once it has rung there
 * is none until it is set again. A host may ring late, but never handles anything else first that
 * came after that time. */
void pl_timer(struct pl_plan *p, uint64_t when_ns);

/* Where workers have models of their own (see `peers` below, and core/replicas.h for the
 * arithmetic). Both must be there; the newest model of a worker is meant, also while it computes on
 * an older. */
void pl_blend(struct pl_plan *p, int worker, int peer, double a, double b); /* x = a x + b x_peer */
void pl_pair(struct pl_plan *p, int worker, int peer, double a);     /* both move by a of the way */
void pl_push(struct pl_plan *p, int worker, int peer, double share); /* push-sum: to its inbox */
void pl_absorb(struct pl_plan *p, int worker); /* what is in the inbox joins its model */

/* Whether such an exchange has room in the book; one that has not is left for another time. */
bool pl_fits(const struct pl_view *v, int worker, int peer);
double pl_weight(const struct pl_view *v, int worker); /* its push-sum weight: 1 at first */

/* Starts every idle worker on the newest version. */
void pl_start_idle(struct pl_plan *p, const struct pl_view *v);

/* Cancels every busy worker and starts it again on the newest version. */
void pl_restart_busy(struct pl_plan *p, const struct pl_view *v);

/* What a policy uses, so that a tuner that would turn a knob nobody reads is refused. */
enum { PL_USES_K = 1, PL_USES_BOUND = 2 };

/* How many contributions a group has when it is committed. */
struct pl_sizes {
    int least, most;
};

enum pl_cancels { PL_CANCELS_NONE, PL_CANCELS_STALE, PL_CANCELS_ALL };

struct pl_policy {
    struct pl_entry id;
    unsigned uses; /* PL_USES_… */
    bool by_batch; /* K counts mini-batches, not workers: nobody waits, K/P of a mean time */
    /* There is no common model: every worker has its own, which only the worker itself and its
     * peers read. A start computes on the worker's own, a take moves it, a commit counts. Nothing
     * is cancelled. */
    bool peers;
    /* State lives in a zeroed block of this size that begins with a copy of the conf (so it is at
     * least conf_size); the host allocates it. No pointers inside: it is copied and saved. */
    size_t state_size;
    /* Bytes behind it, for what there is one of per worker or per part; NULL: none. */
    size_t (*room)(const void *conf, int n_workers);
    /* Where the work is cut into parts: the side of a square grid. Every start is on a part, and
     * two busy workers never share a row or a column. NULL: everybody works on everything. */
    int (*grid)(const void *conf, int n_workers);

    /* NULL, or a sentence saying what will not do. */
    const char *(*check)(const void *conf, int n_workers);
    /* The knobs the run begins with. */
    struct pl_knobs (*knobs)(const void *conf);
    /* The sizes of the groups it commits while K is k and all n_workers are there; workers that are
     * gone may make a group smaller. NULL: always one. */
    struct pl_sizes (*groups)(const void *conf, int n_workers, int k);
    /* Which busy workers a commit may cancel; NULL: none. A host that computes ahead uses it to
     * leave alone what will not be needed. */
    enum pl_cancels (*cancels)(const void *conf);

    /* A task came back: take it, drop it or let it wait, exactly once. */
    void (*arrive)(void *state, const struct pl_view *, const struct pl_arrival *,
                   struct pl_plan *);
    /* A worker is there (again), idle. NULL: it is started on the newest version. */
    void (*join)(void *state, const struct pl_view *, int worker, struct pl_plan *);
    /* A worker is gone, its task lost; the group keeps what it gave. Whoever waited for it must
     * not wait for ever. NULL where nobody ever waits. */
    void (*leave)(void *state, const struct pl_view *, int worker, struct pl_plan *);
    /* The time has come that pl_timer set. NULL where it never does. */
    void (*timer)(void *state, const struct pl_view *, struct pl_plan *);
};

extern const struct pl_family pl_policy_family;

#endif
