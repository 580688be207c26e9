/* The inside of the engine, which the files of this folder share. They call each other in a circle,
 * because what follows from an event may be another event: engine.c takes one in, carry.c carries
 * its plan out, standing.c and life.c find that a worker must leave, and its leave is stepped like
 * any other event; due.c does the same when a time has come. The three kinds of model are called by
 * all of them and call none but helpers. */
#ifndef PL_ENGINE_ENGINE_STATE_H
#define PL_ENGINE_ENGINE_STATE_H

#include "core/filter.h"
#include "engine/blocks.h"
#include "engine/engine.h"
#include "learn/reference_gradient.h"

struct engine_worker {
    const struct pl_version *base; /* of its task, held; NULL: none, it was given up after the task
                                      was done, or there is no central model */
    uint64_t base_id;              /* its number */
    int output;                    /* vector that it writes; PL_NO_VECTOR: none */
    struct pl_part part;
    uint64_t acked, taken, applied; /* its last task that counted, joined a group, was committed */
    enum pl_finite finite;          /* of the result of its task; NO as well if its base is not */
    uint64_t *absent; /* [n_absent] bits of the tensors that its result does not have, owned */
    uint32_t n_absent;
    size_t room_absent;
    bool doubted; /* the filter has rejected it since it last accepted a result */
};

/* How far a worker can be trusted. It outlives a quarantine. */
struct engine_standing {
    uint64_t n_failed;       /* results in a row that it could not compute, or that were judged on
                                arrival, */
    uint64_t failed_version; /* the last of them on this version */
    uint64_t n_strikes;      /* the same, with those that were judged by a commit, */
    uint64_t failed_ns;      /* and how long they took together */
    uint64_t until_ns;       /* end of its next quarantine; UINT64_MAX: it is evicted */
    int n_pauses;            /* quarantines since its last result that could be used */
    bool due;                /* a verdict */
    bool warned;             /* about a result that cannot be used */
    bool told;               /* about a quarantine */
};

/* See life.c. */
struct engine_life {
    enum pl_life state;
    bool suspect;        /* it may be frozen, or is disconnected */
    bool was_away;       /* it was disconnected during its task */
    uint64_t order;      /* task of a worker that has left and not answered yet; 0: none */
    uint64_t since_ns;   /* when it disconnected; if it is suspended, until when */
    uint64_t lost_ns;    /* what the engine had lost when its task started */
    uint64_t excused_ns; /* time that does not count for its task */
    uint64_t paused_ns;  /* since when it leaves its task alone; 0: it does not */
    int *held;           /* [n_held] vectors of `order` */
    int n_held;
};

/* Where models are kept: one at the server (central.c), one per worker (own.c), one in blocks that
 * workers write (blocks.c), or none at all, because only the timing is simulated: all members are
 * NULL then, and there is nothing to do. */
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
    /* The worker leaves in the middle of its task: lists the vectors that it goes on reading and
     * writing, PL_NO_VECTOR among them; returns how many there are. */
    int (*touches)(const struct pl_engine *e, int worker, int vector[PL_TERMS + 2]);
    const struct pl_progress *(*progress)(const struct pl_engine *e); /* NULL: timing alone */
    int (*model)(struct pl_engine *e, float *room, struct pl_model_now *out);
    bool needs_room; /* model() copies it */
    int (*archive)(struct pl_engine *e, const struct pl_archive *k);
};
extern const struct pl_engine_models pl_engine_central, pl_engine_own, pl_engine_blocks;
struct pl_engine_models pl_engine_forged(void); /* the first, if workers are hostile */

/* The lives of all workers: life.c. */
struct engine_lives {
    struct engine_life *life; /* [n_workers] */
    int n_life[PL_LIVES];     /* workers in each state */
    int n_suspects;
    bool gathers;              /* no worker joins before pl_engine_begin */
    uint64_t life_ns;          /* when to look at workers again */
    uint64_t time_ns, lost_ns; /* when the host last said the time; time that it lost */
    uint64_t longest_ns;       /* the longest task with a result so far */
};

/* How far they can be trusted: standing.c. */
struct engine_trust {
    struct engine_standing *standing; /* [n_workers] */
    int n_due;                        /* workers with a verdict */
    uint64_t n_checked;               /* version that was found to be in range last, plus 1 */
    int n_named;                      /* workers named in warnings */
};

/* Evaluations, past and due: model.c, due.c. */
struct engine_scores {
    uint64_t scored_ns, scored_version;
    struct pl_due due;
    double score_every; /* seconds between evaluations now */
};

/* The open group of a central model: central.c. */
struct engine_open {
    struct pl_group_vector *group; /* [n_group] */
    int *group_id;                 /* [n_group] and the ids of its vectors */
    size_t n_group, room_group;
};

/* Vectors that the mean of models is made of: own.c. */
struct engine_mean {
    int *needed; /* [n_needed] */
    int n_needed;
    size_t room_needed;
};

struct pl_engine {
    struct pl_engine_conf conf;
    struct pl_engine_models models;
    const struct pl_job *job;
    struct pl_outcome *out;
    struct pl_control *control;
    const struct pl_view *view;
    struct pl_vectors *vectors;     /* NULL: timing alone */
    bool owns_vectors;              /* otherwise they are the replicas' */
    struct pl_store *store;         /* NULL: no central model */
    struct pl_blocks *blocks;       /* NULL: the model is not in blocks */
    struct pl_replicas *replicas;   /* NULL: workers have no models of their own */
    struct pl_progress progress;    /* of replicas and blocks; a store has its own */
    struct pl_rate rate;            /* likewise */
    struct pl_reference *reference; /* gradient for filters that compare with one */
    struct pl_filter *filter;       /* NULL: every result is believed */
    struct engine_worker *worker;
    struct engine_lives lives;
    struct engine_trust trust;
    struct engine_scores scores;
    struct engine_open open;
    struct engine_mean mean;
    struct engine_best {
        float *w; /* [dim of the slice]; NULL: none yet */
        double loss;
    } best; /* model that was evaluated, for a return; see switch.c */
    uint64_t last_update_ns;
    uint64_t last_version; /* the run ends with it; UINT64_MAX: no limit on updates */
    struct pl_start start; /* the task that starts; what is the same for all is set once */
    bool ended, told_median;
    bool measures;         /* what a commit measured is an event */
    bool frees_base_early; /* see pl_engine_answered */
    /* Where results are judged: docs/decisions/finite.md. */
    bool workers_check;     /* by their own workers, before they are sent */
    bool judges_on_arrival; /* by the server before the policy decides, if they are writable */
};

/* After the clock of the run is known: at the beginning, and when an archive was restored. */
void pl_due_begin(struct pl_engine *e);

/* After an evaluation at p; the one before had the score `before`, `from` seconds into the run. A
 * real run that nears its target is evaluated more often. */
void pl_due_scored(struct pl_engine *e, const struct pl_score *before, double from,
                   const struct pl_point *p);

/* Ends the run, unless its events come from a recording or another engine. */
void pl_engine_limit_reached(struct pl_engine *e);

void pl_due_next(struct pl_engine *e); /* after life_ns has changed */

int pl_life_new(struct pl_engine *e); /* 0 or PL_ENOMEM */
void pl_life_free(struct pl_engine *e);
/* PL_JOIN: it connected; PL_LEAVE: it is gone. */
int pl_life_moved(struct pl_engine *e, const struct pl_event *event, struct pl_why *why);
/* A result came, of its current task or of the one that it had when it left. */
void pl_life_seen(struct pl_engine *e, int worker, uint64_t now_ns);
int pl_life_answered(struct pl_engine *e, const struct pl_event *event, struct pl_why *why);
void pl_life_check_by(struct pl_engine *e, uint64_t at_ns); /* all workers, at the latest then */
void pl_life_started(struct pl_engine *e, int worker);      /* on a task */
uint64_t pl_life_spent(const struct pl_engine *e, int worker, uint64_t spent_ns); /* what counts */
/* Carries out the verdicts on workers whose results cannot be used. */
int pl_life_verdicts(struct pl_engine *e, uint64_t now_ns, struct pl_why *why);
int pl_life_time(struct pl_engine *e, uint64_t now_ns, struct pl_why *why);

/* Tells the host whether the result of a worker's finished task is used. */
void pl_engine_result_used(struct pl_engine *e, int worker, bool taken);

/* Releases what the engine holds for a worker that has left. */
void pl_engine_forget(struct pl_engine *e, int worker);

/* A result could not be used (`defect` says why, see pl_engine_event); one arrived that the worker
 * calls good; it was good; the worker, or its successor, starts from the beginning. */
void pl_standing_failed(struct pl_engine *e, const struct pl_event *event, const char *defect);
void pl_standing_arrived(struct pl_engine *e, int worker);
void pl_standing_good(struct pl_engine *e, int worker);
void pl_standing_reset(struct pl_engine *e, int worker);
/* The next worker that is quarantined until *until_ns or, if that is UINT64_MAX, evicted. */
bool pl_standing_verdict(struct pl_engine *e, int *worker, uint64_t *until_ns);

/* Hands an event to control and carries out the plan. */
int pl_engine_step(struct pl_engine *e, const struct pl_event *event, struct pl_why *why);

/* For models that are not in a store: a table of vectors of `dim`, 0 or PL_ENOMEM; the counts; the
 * counts and the learning rate in an archive, under the names that a store has for its own. */
int pl_engine_own_vectors(struct pl_engine *e, size_t dim);
const struct pl_progress *pl_engine_own_progress(const struct pl_engine *e);
int pl_engine_archive_progress(struct pl_engine *e, const struct pl_archive *k);

/* Copies the model if this is the lowest loss so far (0 or PL_ENOMEM); returns to that if the tuner
 * has chosen so (likewise); switches if it has chosen another policy. */
int pl_switch_scored(struct pl_engine *e, double loss);
int pl_switch_return(struct pl_engine *e);
int pl_switch_event(struct pl_engine *e, uint64_t now_ns, struct pl_why *why);

/* What a commit found out about member i of the group that it read. */
void pl_engine_judged(struct pl_engine *e, size_t i, bool finite);

/* NULL in a run of timing alone. */
static inline const struct pl_progress *pl_engine_progress(const struct pl_engine *e) {
    return e->models.progress ? e->models.progress(e) : NULL;
}

int pl_engine_memory(const struct pl_engine *e, const char *what, struct pl_why *why);

#endif
