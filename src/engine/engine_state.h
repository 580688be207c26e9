/* The inside of the engine, which engine.c, carry.c and model.c share. */
#ifndef PL_ENGINE_ENGINE_STATE_H
#define PL_ENGINE_ENGINE_STATE_H

#include "core/filter.h"
#include "engine/engine.h"
#include "learn/reference_gradient.h"

struct engine_worker {
    const struct pl_version *base; /* of its task, held; NULL: none, or there is no central model */
    int output;                    /* vector that it writes; PL_NO_VECTOR: none */
    struct pl_part part;
    uint64_t acked, taken, applied; /* its last task that counted, joined a group, was committed */
    uint64_t n_rejected;            /* results in a row that could not be used */
    bool warned;                    /* about such a result */
    bool doubted;                   /* the filter has rejected it since it last accepted a result */
};

struct pl_engine {
    struct pl_engine_conf conf;
    const struct pl_job *job;
    struct pl_outcome *out;
    struct pl_control *control;
    const struct pl_view *view;
    struct pl_vectors *vectors;     /* NULL: timing alone */
    bool owns_vectors;              /* otherwise they are the replicas' */
    struct pl_store *store;         /* NULL: no central model */
    struct pl_replicas *replicas;   /* NULL: no models of the workers' own */
    struct pl_progress progress;    /* of the replicas; a store has its own */
    struct pl_rate rate;            /* likewise */
    struct pl_reference *reference; /* gradient for filters that compare with one */
    struct pl_filter *filter;       /* NULL: every result is believed */
    struct engine_worker *worker;
    struct pl_group_vector *group; /* [n_group] the open group */
    int *group_id;                 /* [n_group] and the ids of its vectors */
    size_t n_group, room_group;
    uint64_t last_update_ns;
    uint64_t n_rejected; /* in a row, of all workers */
    int n_named;         /* workers named in warnings */
    uint64_t scored_ns, scored_version;
    int *needed; /* [room_needed] vectors that the mean is made of */
    int n_needed, room_needed;
    bool ended, told_median;
};

/* Ends the run, unless its events are somebody else's. */
void pl_engine_over(struct pl_engine *e);

/* Carries out a plan. *committed: it made an update, and *measure says what that told. */
int pl_engine_carry(struct pl_engine *e, const struct pl_plan *plan, bool *committed,
                    struct pl_measure *measure, struct pl_why *why);

const struct pl_progress *pl_engine_progress(const struct pl_engine *e); /* NULL: timing alone */

#endif
