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
 * the newest version, times one, or the terms of a worker's own model. Its output is a vector and
 * the ranges of it that the task writes.
 *
 * Threads: all functions are called by the one thread that decides. */
#ifndef PL_ENGINE_ENGINE_H
#define PL_ENGINE_ENGINE_H

#include "learn/outcome.h"

/* A task, as a host is told to start it. Valid during the call. */
struct pl_start {
    int worker;
    uint64_t task;
    uint64_t version;                   /* number of the model it is computed on */
    double lr;                          /* in force at that version */
    const struct pl_combination *input; /* held until the task ends */
    int base;   /* vector in which the worker first stores its input; PL_NO_VECTOR: the input is one
                   vector, times one */
    int output; /* vector that the worker writes */
    bool sends; /* the worker does not have its input yet */
    bool stays; /* base and output stay with the worker, and other workers read them there */
    struct pl_part part;
    uint64_t acked;   /* the worker's last task whose result counted; 0: none */
    uint64_t applied; /* its last task that is part of the newest version; 0: none */
    bool checks; /* the worker has to look whether its result is finite: see pl_engine_judges */
};

/* What a host does for an engine. */
struct pl_host_ops {
    void *ctx;
    /* Starts a task. A cancelled worker may still be reading the input of its previous task; a host
     * that cannot exclude that holds that vector. 0 or PL_ENOMEM. */
    int (*start)(void *ctx, const struct pl_start *s);
    void (*cancel)(void *ctx, int worker); /* the worker's task is void */
    /* The result in `output` of a finished task is not used. NULL: nothing to do. */
    void (*unused)(void *ctx, int worker);
    /* A result, in `vector`, joins the open group; the host may bind it to memory of its own. NULL:
     * nothing to do. */
    void (*taken)(void *ctx, int vector);
    /* An update is about to be made. NULL: nothing to do. */
    void (*update)(void *ctx);
    /* After update(): this worker will be started on the version that the update makes, as soon as
     * it is made. NULL: nothing to do. */
    void (*upcoming)(void *ctx, int worker);
    /* Brings vectors that workers wrote to this process, so that their addresses can be read. NULL:
     * they are here. 0, PL_ENOMEM or PL_ERUN. */
    int (*fetch)(void *ctx, const int *vector, int n);
    /* Whether the worker can still write to a result that it has sent. NULL: no worker can. */
    bool (*writable)(void *ctx, int worker);
    /* Copies a vector that its worker can still write to memory where it cannot, and binds it to
     * the copy. `used`: the worker still computes with it. NULL if `writable` is. 0 or PL_ENOMEM.
     */
    int (*settle)(void *ctx, int vector, bool used);
    /* Only if tasks are on parts. What the task that wrote to v has written becomes the model's,
     * and is not copied. Returns false if it is not finite: then the model stays as it is. NULL:
     * the engine copies it into the newest version. */
    bool (*adopt)(void *ctx, const float *v);
    void (*model)(void *ctx, float *w); /* copies the model to w [dim]; NULL if `adopt` is */
    struct pl_vector_memory memory; /* where vectors live; get NULL: the engine allocates them */
    /* Carries out commits if this process cannot read the vectors; the memory is not NULL then.
     * NULL: the engine carries them out. */
    const struct pl_offload_ops *offload;
};

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
    struct pl_slice slice; /* of the vectors that this engine has; whole == 0: all of them */
    struct pl_parallel_for parallel_for;
    void (*writes)(void *ctx, const pl_real *v); /* of the store; see pl_store_conf */
};

struct pl_engine;

/* w0 [dim] is copied; NULL: the model's own first weights, or those that the offload loads. With a
 * job that has no model there are no vectors: timing alone. `out` is filled as the run goes on. */
int pl_engine_new(const struct pl_engine_conf *conf, const float *w0, struct pl_outcome *out,
                  struct pl_engine **e, struct pl_why *why);
void pl_engine_free(struct pl_engine *e); /* NULL is fine */

/* One event. A result (PL_ARRIVE) that cannot be used is rejected: `defect` says why ("that is not
 * finite"), and "" means that it is not reported. NULL: the result can be used. Its
 * vector is complete at its address, and what it claims (samples, loss, times) is in `e`.
 * A result whose task is not its worker's current one has no effect. */
int pl_engine_event(struct pl_engine *e, struct pl_event *event, const char *defect,
                    struct pl_why *why);

/* Whether commits leave out results that are not finite as if they had never come. Workers then
 * need not read their results once more to look for such values, until a commit finds the first:
 * from then on they are told to look, and what they find is rejected on arrival, before the policy
 * decides. */
bool pl_engine_judges(const struct pl_engine *e);

/* --- drafts: an update that is prepared while its last results are still on their way ---------
 *
 * A host whose results take long to arrive learns of them before they are complete. It may then
 * draft the update: the new version is written tile by tile, as far as parallel_for lets it, and
 * workers that will compute on it are upcoming(). When the results are complete and have become
 * events, in the order that was foreseen, the update is there already. If it turns out otherwise,
 * the draft is dropped and nothing has happened; writes(NULL) tells that what was written is void.
 */

bool pl_engine_drafts(const struct pl_engine *e); /* its rules and its policy allow it */
/* Tries n arrivals whose vectors are not complete yet. Returns after how many of them the first
 * update follows; 0: none does, or it cannot be drafted. */
int pl_engine_foresee(struct pl_engine *e, const struct pl_event *event, int n);
/* Drafts the update that was just foreseen. 0, or a status if there is no draft. */
int pl_engine_draft(struct pl_engine *e);
bool pl_engine_drop_draft(struct pl_engine *e); /* whether there was one */

/* The worker has sent the result of its current task, which need not have been an event yet.
 * Returns whether the engine no longer holds the task's input: nothing will read it again. */
bool pl_engine_answered(struct pl_engine *e, int worker);

/* The base learning rate from the next version on; schedules multiply it. Checkpoints keep it. */
void pl_engine_set_lr(struct pl_engine *e, double lr);

/* What has to happen to a worker whose results cannot be used, one after the other. It is
 * quarantined: it leaves, and joins again after a time that doubles. In the end it is evicted: it
 * leaves for good. The host carries this out with PL_LEAVE and PL_JOIN events, so that a recording
 * has it. Call this after every event until it returns false. */
struct pl_verdict {
    int worker;
    bool evicted;
    uint64_t until_ns; /* when it joins again, if it is not evicted */
};
bool pl_engine_verdict(struct pl_engine *e, struct pl_verdict *out);

/* When the current task of a worker is overdue, so that the worker counts as frozen; UINT64_MAX:
 * never. `since_ns` is the earliest time that counts: the server itself may have been stopped.
 * `replaced`: the host will try to restart it, so that it may be the last one. */
uint64_t pl_engine_deadline(const struct pl_engine *e, int worker, uint64_t since_ns,
                            bool replaced);
/* Reports that a worker is frozen. The host then lets it leave. */
void pl_engine_frozen(struct pl_engine *e, int worker, uint64_t now_ns, const char *what_next);

bool pl_engine_ended(const struct pl_engine *e);
void pl_engine_end(struct pl_engine *e);           /* from outside */
bool pl_engine_reached(const struct pl_engine *e); /* the limit on updates or epochs is reached */

/* --- reading -------------------------------------------------------------------------------- */

struct pl_control *pl_engine_control(const struct pl_engine *e);
const struct pl_view *pl_engine_view(const struct pl_engine *e);
struct pl_vectors *pl_engine_vectors(const struct pl_engine *e);      /* NULL: timing alone */
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
