/* The inside of the engine, which the files of this folder share. */
#ifndef PL_ENGINE_ENGINE_STATE_H
#define PL_ENGINE_ENGINE_STATE_H

#include "core/filter.h"
#include "engine/engine.h"
#include "learn/reference_gradient.h"

struct engine_worker {
    const struct pl_version *base; /* of its task, held; NULL: none, it was given up after the task
                                      was done, or there is no central model */
    uint64_t base_id;              /* its number */
    int output;                    /* vector that it writes; PL_NO_VECTOR: none */
    struct pl_part part;
    uint64_t acked, taken, applied; /* its last task that counted, joined a group, was committed */
    uint64_t bad_base;              /* task whose base cannot be used; 0: none */
    bool doubted;                   /* the filter has rejected it since it last accepted a result */
};

/* How far a worker can be trusted. It outlives a quarantine. */
struct engine_standing {
    uint64_t n_failed;       /* results in a row that it could not compute, or that were judged on
                                arrival, */
    uint64_t failed_version; /* the last of them on this version */
    uint64_t n_strikes;      /* the same, with those that were judged by a commit, */
    uint64_t failed_ns;      /* and how long they took together */
    uint64_t until_ns;       /* end of its quarantine */
    int n_pauses;            /* quarantines since its last result that could be used */
    bool due;                /* a verdict for the host */
    bool away;               /* quarantined or evicted */
    bool warned;             /* about a result that cannot be used */
    bool told;               /* about a quarantine */
};

/* Where models are kept: one at the server (central.c), one per worker (own.c), or none at all,
 * because only the timing is simulated: all members are NULL then, and there is nothing to do. */
struct pl_engine_models {
    /* The model that the run begins with, w0 [dim] of this engine's slice. */
    int (*first)(struct pl_engine *e, const float *w0, size_t dim, struct pl_why *why);
    int (*start)(struct pl_engine *e, const struct pl_action *a, struct pl_start *start);
    /* NULL, here and below, if nothing has to be done. */
    int (*take)(struct pl_engine *e, const struct pl_action *a, struct pl_why *why);
    int (*commit)(struct pl_engine *e, const struct pl_action *a, struct pl_measure *measure,
                  struct pl_why *why);
    void (*forget)(struct pl_engine *e, int worker); /* gives up what is held for a worker */
    int (*output)(const struct pl_engine *e, int worker);
    const struct pl_progress *(*progress)(const struct pl_engine *e); /* NULL: timing alone */
    int (*model)(struct pl_engine *e, float *room, struct pl_model_now *out);
    bool (*needs_room)(const struct pl_engine *e);
    int (*archive)(struct pl_engine *e, const struct pl_archive *k);
};
extern const struct pl_engine_models pl_engine_central, pl_engine_own;

struct pl_engine {
    struct pl_engine_conf conf;
    const struct pl_engine_models *models;
    const struct pl_job *job;
    struct pl_outcome *out;
    struct pl_control *control;
    const struct pl_view *view;
    struct pl_vectors *vectors;     /* NULL: timing alone */
    bool owns_vectors;              /* otherwise they are the replicas' */
    struct pl_store *store;         /* NULL: no central model */
    struct pl_replicas *replicas;   /* NULL: workers have no models of their own */
    struct pl_progress progress;    /* of the replicas; a store has its own */
    struct pl_rate rate;            /* likewise */
    struct pl_reference *reference; /* gradient for filters that compare with one */
    struct pl_filter *filter;       /* NULL: every result is believed */
    struct engine_worker *worker;
    struct pl_group_vector *group; /* [n_group] the open group */
    int *group_id;                 /* [n_group] and the ids of its vectors */
    size_t n_group, room_group;
    uint64_t last_update_ns;
    uint64_t last_version; /* the run ends with it; UINT64_MAX: no limit on updates */
    struct pl_start start; /* the task that starts; what is the same for all is set once */
    struct engine_standing *standing; /* [n_workers] */
    int n_due;                        /* workers with a verdict for the host */
    int n_named;                      /* workers named in warnings */
    uint64_t longest_ns;              /* the longest task with a result so far */
    uint64_t scored_ns, scored_version;
    int *needed; /* [room_needed] vectors that the mean is made of */
    int n_needed, room_needed;
    bool ended, told_median;
    bool measures;                  /* what a commit measured is an event */
    struct pl_control *copy;        /* on which events were tried; NULL: none yet */
    const struct pl_plan *foreseen; /* its last plan, with a commit; NULL: none */
    bool rewrites; /* a commit can be written again, and nothing else reads results before it */
    bool judges;   /* see pl_engine_judges */
    bool gives_up; /* see pl_engine_answered */
    bool spoiled;  /* a commit has left a member out */
};

/* Ends the run, unless its events come from a recording or another engine. */
void pl_engine_over(struct pl_engine *e);

/* Whether results that their workers can still write to are judged when they arrive, in a copy.
 * Otherwise a commit judges what it reads. */
static inline bool pl_engine_settles(const struct pl_engine *e) {
    return e->filter || e->replicas || pl_store_rereads(e->store);
}

/* Whether the worker can write to what it has sent. */
static inline bool pl_engine_writable(const struct pl_engine *e, int worker) {
    return e->conf.host.writable && e->conf.host.writable(e->conf.host.ctx, worker);
}

/* A result could not be used (`defect` says why, see pl_engine_event); one arrived that the worker
 * calls good; it was good; the worker left. */
void pl_standing_failed(struct pl_engine *e, const struct pl_event *event, const char *defect);
void pl_standing_arrived(struct pl_engine *e, int worker);
void pl_standing_good(struct pl_engine *e, int worker);
void pl_standing_left(struct pl_engine *e, int worker);

/* Hands an event to control and carries out the plan. */
int pl_engine_step(struct pl_engine *e, const struct pl_event *event, struct pl_why *why);

/* NULL: timing alone. */
static inline const struct pl_progress *pl_engine_progress(const struct pl_engine *e) {
    return e->models->progress ? e->models->progress(e) : NULL;
}

/* What a worker claims about its result is compared with what it was asked for. Returns NULL if the
 * claim is possible. Programs with a model of their own choose their mini-batches; a loss of NAN is
 * unknown. */
const char *pl_engine_claim(const struct pl_engine *e, const struct pl_event *event);

/* Names the workers that the rest of the plan starts on the version that its commit makes. */
void pl_engine_upcoming(const struct pl_engine *e, const struct pl_action *commit,
                        const struct pl_action *end);

int pl_engine_memory(const struct pl_engine *e, const char *what, struct pl_why *why);

#endif
