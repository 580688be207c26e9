/* The engine: all of a run except where it runs. Each event goes through one call, which carries
 * out everything that follows from it.
 *
 *   event -> filter -> control (tuner, policy, referee) -> checked plan -> carried out -> event log
 *
 * The engine owns control, the store (or, without a server, the replicas), the filter, the open
 * group with its attackers, the limits, the counts of rejected results with their warnings, what a
 * commit measured, evaluations, and what outlives the process (archive). A host turns what happens
 * into events, and does the few things of struct pl_host_ops. The simulator, the real server and
 * the servers that follow it are hosts; so is any program that computes gradients itself.
 *
 * Vectors are ids of one table (core/vectors.h). A task's input is a short combination of vectors:
 * the newest version, times one, or the terms of a worker's own model. Its output is a vector. A
 * task on a block of the model reads and writes strips instead.
 *
 * Threads: all functions are called by the one thread that decides. */
#ifndef PL_ENGINE_ENGINE_H
#define PL_ENGINE_ENGINE_H

#include "base/strip.h"
#include "engine/life.h"
#include "learn/outcome.h"

/* A task, as a host is told to start it. Valid during the call. */
struct pl_start {
    int worker;
    uint64_t task;
    uint64_t version;                   /* number of the model it is computed on */
    double lr;                          /* in force at that version */
    const struct pl_combination *input; /* held until the task ends; NULL: it is in strips */
    int base;   /* vector in which the worker first stores its input; PL_NO_VECTOR: the input is one
                   vector, times one */
    int output; /* vector that the worker writes */
    bool sends; /* the worker does not have its input yet */
    bool stays; /* base and output stay with the worker, and other workers read them there */
    struct pl_part part;
    int n_strips; /* of a task on a part: where it reads and writes; otherwise 0 */
    struct pl_strip strip[PL_STRIPS];
    uint64_t acked;   /* the worker's last task whose result counted; 0: none */
    uint64_t applied; /* its last task that is part of the newest version; 0: none */
    bool checks;      /* the worker has to look whether its result is finite, and tell */
};

/* What became of a worker that a host was to end. */
enum pl_removal {
    PL_REMAINS,  /* it cannot be ended, or need not be: it goes on with its task */
    PL_RESTARTS, /* it is ended, and another one will be started in its place */
    PL_FREED     /* it is ended, and its place is free */
};

/* For hosts whose workers share memory with them. */
struct pl_host_sharing {
    /* Whether the worker can still write to a result that it has sent. */
    bool (*writable)(void *ctx, int worker);
    /* Copies a vector that its worker can still write to memory where it cannot, and binds it to
     * the copy. `used`: the worker still computes with it. 0 or PL_ENOMEM. */
    int (*settle)(void *ctx, int vector, bool used);
};

/* What a host does for an engine: six operations, of which start and cancel are required, and
 * extensions for what some hosts can do. */
struct pl_host_ops {
    void *ctx;
    /* Starts a task. A cancelled worker may still be reading the input of its previous task; a host
     * that cannot exclude that holds that vector. 0 or PL_ENOMEM. */
    int (*start)(void *ctx, const struct pl_start *s);
    void (*cancel)(void *ctx, int worker); /* the worker's task is void */
    /* A worker leaves because of `event`: it freezes, is quarantined or evicted, or does not return
     * (expires, or disconnects while it is suspended). A host may end it, except if it is only
     * quarantined. `last`: it is the last worker that is present, and stays so unless it is
     * replaced. If it is NULL, all workers remain. */
    enum pl_removal (*end)(void *ctx, int worker, enum pl_life_event event, bool last);
    /* The result of a finished task, in `vector`, joins the open group, and the host may bind it to
     * memory of its own; or, if it is not taken, it is not used. May be NULL. */
    void (*result)(void *ctx, int worker, int vector, bool taken);
    /* An update is about to be made. The n actions after it tell who will be started on the version
     * that it makes (pl_starts_on_update). May be NULL. */
    void (*update)(void *ctx, const struct pl_action *after, size_t n);
    /* Brings vectors that workers wrote to this process, so that their addresses can be read. NULL:
     * they are here. 0, PL_ENOMEM or PL_ERUN. */
    int (*fetch)(void *ctx, const int *vector, int n);
    struct pl_vector_memory memory; /* where vectors live; get NULL: the engine allocates them */
    const struct pl_host_sharing *sharing; /* NULL: no worker can write to what it has sent */
    /* Carries out commits if this process cannot read the vectors; the memory is not NULL then.
     * If it is NULL, the engine carries them out. */
    const struct pl_offload_ops *offload;
};

/* Whether an action after an update starts a worker on the version that the update makes. */
static inline bool pl_starts_on_update(const struct pl_action *a) {
    return a->verb == PL_START && a->from == PL_FETCH;
}

struct pl_engine_conf {
    const struct pl_job *job;
    struct pl_host_ops host;
    struct pl_watch watch;
    /* Limits and targets do not end the run, and the filter is asked again: the events are those of
     * a recording. */
    bool replays;
    /* The events are those of another engine, which has judged them: no filter, no limits, and
     * what a commit measured comes as an event. */
    bool follows;
    bool gathers; /* workers connect before the run begins: see pl_engine_begin */
    /* Workers are threads of this process: what they say about a result is not checked again where
     * that would cost another read. */
    bool trusts_workers;
    /* The host calls pl_engine_time at least this often unless it is stopped, and every worker may
     * freeze. 0: its clock is virtual, and it tells which workers may: pl_engine_suspect. */
    uint64_t beat_ns;
    struct pl_slice slice; /* of the vectors that this engine has; whole == 0: all of them */
    struct pl_parallel_for parallel_for;
    void (*writes)(void *ctx, const pl_real *v); /* of the store; see pl_store_conf */
};

struct pl_engine;

/* w0 [dim] is copied. If it is NULL, the run begins with the model's own first weights, or those
 * that the offload loads. With a job that has no model there are no vectors: timing alone. `out` is
 * filled as the run goes on. */
int pl_engine_new(const struct pl_engine_conf *conf, const float *w0, struct pl_outcome *out,
                  struct pl_engine **e, struct pl_why *why);
void pl_engine_free(struct pl_engine *e); /* NULL is fine */

/* One event. A result (PL_ARRIVE) that cannot be used is rejected: `defect` says why ("sent a
 * gradient that is not finite"), and "" means that it is not reported. NULL means that the result
 * can be used. Its vector is complete at its address, and what it claims (samples, loss, times) is
 * in `e`. A result whose task is not its worker's current one has no effect. */
int pl_engine_event(struct pl_engine *e, struct pl_event *event, const char *defect,
                    struct pl_why *why);

/* What its worker says about the result that comes next: it does not have the tensors whose bits
 * are set in absent[n], which is copied; if this is not called, it has all. 0 or PL_ENOMEM. */
int pl_engine_lacks(struct pl_engine *e, int worker, const uint64_t *absent, uint32_t n);

/* --- the life of workers ---------------------------------------------------------------------
 *
 * A host reports what it sees: that a worker connected (PL_JOIN) or is gone (PL_LEAVE), with
 * pl_engine_event; its results, the same way; and the rest with the functions below. Everything
 * else follows: see life.c. A result of a task that is not the worker's current one tells the
 * engine that a suspended worker is alive. */

void pl_engine_starting(struct pl_engine *e, int worker); /* one is expected */
/* Its connection is lost, and it may return; then it connects. */
int pl_engine_disconnected(struct pl_engine *e, int worker, uint64_t now_ns, struct pl_why *why);
/* The worker says that it leaves its task alone, or that it continues. */
void pl_engine_pause(struct pl_engine *e, int worker, bool yes, uint64_t now_ns);
/* The worker may not answer its current task. */
void pl_engine_suspect(struct pl_engine *e, int worker, uint64_t now_ns);
/* If conf.gathers: the workers that have connected so far join. */
int pl_engine_begin(struct pl_engine *e, uint64_t now_ns, struct pl_why *why);

enum pl_life pl_engine_life(const struct pl_engine *e, int worker);
int pl_engine_n(const struct pl_engine *e, enum pl_life life); /* workers in that state */
/* Whether this task, numbered from 1, is the one that its worker had when it left and has not
 * answered yet: the result shows that the worker is alive. */
bool pl_engine_awaits(const struct pl_engine *e, int worker, uint64_t task);
/* Time that does not count for any worker: in which the host did not listen, or, as it tells, could
 * not serve. */
uint64_t pl_engine_lost_ns(const struct pl_engine *e);
void pl_engine_lose(struct pl_engine *e, uint64_t ns);

/* What is due by the clock, and when. The engine keeps it up to date; UINT64_MAX means never. When
 * the policy's timer is due, is in the view. */
struct pl_due {
    uint64_t end_ns;   /* the time limit ends the run */
    uint64_t score_ns; /* the model is evaluated: see pl_engine_score_due */
    uint64_t next_ns;  /* the earliest time at which pl_engine_time has something to do */
};
const struct pl_due *pl_engine_due(const struct pl_engine *e);

/* The time: does what is due. Hosts call it when next_ns or the policy's timer has come. */
int pl_engine_time(struct pl_engine *e, uint64_t now_ns, struct pl_why *why);

/* The worker has sent the result of its current task, which need not have been an event yet.
 * Returns whether the engine no longer holds the task's input: nothing will read it again. */
bool pl_engine_answered(struct pl_engine *e, int worker);

/* The base learning rate from the next version on; schedules multiply it. Checkpoints keep it. */
void pl_engine_set_lr(struct pl_engine *e, double lr);

bool pl_engine_ended(const struct pl_engine *e);
void pl_engine_end(struct pl_engine *e);           /* from outside */
bool pl_engine_reached(const struct pl_engine *e); /* the limit on updates or epochs is reached */

/* The gradient [dim] of the server's own samples at the newest version, which the filter compares
 * with if clients compute the model. False: it compares with none. */
bool pl_engine_give_reference(struct pl_engine *e, const float *g);

/* --- reading -------------------------------------------------------------------------------- */

struct pl_control *pl_engine_control(const struct pl_engine *e);
const struct pl_view *pl_engine_view(const struct pl_engine *e);
struct pl_vectors *pl_engine_vectors(const struct pl_engine *e);      /* NULL: timing alone */
struct pl_store *pl_engine_store(const struct pl_engine *e);          /* NULL: no central model */
const struct pl_version *pl_engine_newest(const struct pl_engine *e); /* NULL: no central model */
const struct pl_version *pl_engine_base(const struct pl_engine *e, int worker); /* of its task */
int pl_engine_output(const struct pl_engine *e, int worker); /* vector of its task */
struct pl_point pl_engine_point(const struct pl_engine *e, uint64_t now_ns);

/* The current model, which does not change until pl_engine_let_go: the newest version, held, or a
 * copy in `room` [dim] if there is no such version. */
struct pl_model_now {
    const float *w;
    const struct pl_version *held;
    double consensus; /* distance of the replicas from their mean; NAN: one model */
};
int pl_engine_model(struct pl_engine *e, float *room, struct pl_model_now *out);
void pl_engine_let_go(struct pl_engine *e, struct pl_model_now *m);
bool pl_engine_needs_room(const struct pl_engine *e); /* `room` is used */

/* --- evaluation ------------------------------------------------------------------------------ */

/* Whether an evaluation is due. If so, the next one is due one interval from now. */
bool pl_engine_score_due(struct pl_engine *e, uint64_t now_ns);
/* Nothing happens before `quiet_ns`: if that is many intervals, the next evaluation is the last one
 * before it. */
void pl_engine_score_quiet(struct pl_engine *e, uint64_t now_ns, uint64_t quiet_ns);
void pl_engine_score_later(struct pl_engine *e, uint64_t at_ns); /* the next one, not before */

/* Whether the model has been evaluated at this version and time. */
bool pl_engine_is_scored(const struct pl_engine *e, uint64_t now_ns);
bool pl_engine_has_score(const struct pl_engine *e); /* of the newest version, at any time */
/* If the newest version has a score, records the same score for now and returns true. */
bool pl_engine_score_again(struct pl_engine *e, uint64_t now_ns);
/* Records the score of the model at *p, calls the watch, and ends the run at a target. */
void pl_engine_scored(struct pl_engine *e, const struct pl_score *score, struct pl_point *p);

/* --- the end --------------------------------------------------------------------------------- */

/* Saves or restores what outlives the process; restore before the first event. */
int pl_engine_archive(struct pl_engine *e, const struct pl_archive *archive);

/* Fills in the outcome; w [dim] is the model at the end, NULL for timing alone. 0 or PL_ENOMEM. */
int pl_engine_finish(struct pl_engine *e, const float *w, uint64_t now_ns);

#endif
