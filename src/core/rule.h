/* The contracts of the five rule families that turn contributions into a new model:
 *
 *   filter    is a contribution believed?
 *   correct   how is one stale contribution repaired?
 *   reduce    how do the members of a group become one vector?
 *   optim     how does that vector move the model?
 *   local     what does a worker do between two contacts?
 *
 * and of learning-rate schedules. Rules are pure array functions. All but `filter` and `local` are
 * called on blocks of the vector that fit the first-level cache, one after the other: correct,
 * reduce and optim together read each operand once and write the new model once. A rule that needs
 * a number over the whole vector (a norm) says so: its sums are taken in a first pass, added up
 * over fixed tiles in fixed order, and agree bit for bit whoever cut the vector into however many
 * pieces.
 *
 * pl_real is float. Building with -DPL_REAL=double gives the same code in double precision; the
 * golden values, printed to eight digits, are checked on that build. */
#ifndef PL_CORE_RULE_H
#define PL_CORE_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/needs.h"
#include "base/rng.h"

#ifndef PL_REAL
#define PL_REAL float
#endif
typedef PL_REAL pl_real;

#define PL_RULE_VECTORS 3 /* state vectors a rule may have */
#define PL_RULE_SUMS 2    /* sums over the whole vector */
#define PL_RULE_NUMBERS 4 /* scalars kept between calls */
#define PL_FILTER_OWN 2   /* vectors a filter may have per worker */
#define PL_FILTER_MARKS 2 /* whole numbers per worker */

/* Sums over [n] in double, in an order that depends on n alone. */
double pl_vec_dot(const pl_real *a, const pl_real *b, size_t n);
double pl_vec_distance2(const pl_real *a, const pl_real *b, size_t n);

/* The sum of n vectors times their weights, added up in their order, into out, which is returned.
 * Those without weight are not read. */
const pl_real *pl_vec_weighted(int n, const pl_real *const *vector, const double *weight,
                               size_t n_elements, pl_real *out);

/* --- filter ------------------------------------------------------------------------------ */

/* One sound contribution that has just arrived, alone; every vector has n elements. */
struct pl_filter_at {
    size_t n;
    int worker, n_workers;
    uint64_t version, base; /* numbers of the model now, and of what the worker computed on */
    double lr;              /* the rate now */
    const pl_real *w, *base_w;
    const pl_real *trusted; /* the server's own gradient, where the filter trusts one, or NULL */
};

/* What a filter remembers. All of it is zero at first, and part of a checkpoint. */
struct pl_filter_memory {
    pl_real *vector[PL_RULE_VECTORS]; /* the filter may swap them */
    pl_real *own[PL_FILTER_OWN];      /* those of the worker at hand */
    double *number;                   /* [n_workers] */
    uint64_t *mark;                   /* [n_workers][PL_FILTER_MARKS] */
    uint64_t *whole;                  /* [PL_FILTER_WHOLES(n_workers)] */
    double *room;                     /* [n_workers] to work in; not kept */
};
#define PL_FILTER_WHOLES(n) ((size_t)(n) + 8)

struct pl_filter_kind {
    struct pl_entry id;
    int n_vectors, n_own;
    /* Compares with a gradient of samples that the server itself holds; the conf begins with a
     * struct pl_filter_trust. */
    bool trusts;
    /* What is wrong with so many workers, as words behind a colon, or NULL. NULL: any will do. */
    const char *(*check)(const void *conf, int n_workers);
    /* Whether g is used, which may be changed where it is. Called once for every sound
     * contribution, in the order of arrival. NULL: everything is. */
    bool (*believes)(const void *conf, const struct pl_filter_at *at, struct pl_filter_memory *m,
                     pl_real *g);
};

struct pl_filter_trust {
    int64_t samples; /* that the server holds */
    int64_t every;   /* commits between two looks at their gradient */
};
extern const struct pl_family pl_filter_family;

/* --- correct ----------------------------------------------------------------------------- */

/* What is known of the contribution as a whole. */
struct pl_correct_at {
    uint64_t lag;
    uint64_t count; /* contributions corrected so far, this one included: 1, 2, … */
    double lr;      /* the rate of this commit */
    double lr_max;  /* the largest rate so far */
    int n_workers;
    double sum[PL_RULE_SUMS];       /* what sums() gave, over the whole vector */
    double number[PL_RULE_NUMBERS]; /* the rule's own, kept between calls */
};

/* One block of it; every array has n elements. */
struct pl_correct_block {
    size_t n;
    const pl_real *g;                /* the contribution, weight decay added */
    const pl_real *w;                /* the model now */
    const pl_real *base;             /* what the worker computed on, for PL_NEEDS_BASE */
    const pl_real *velocity;         /* the optimizer's momentum; NULL where it has none */
    pl_real *state[PL_RULE_VECTORS]; /* zero at first */
};

struct pl_correct {
    struct pl_entry id;
    int n_vectors, n_sums;
    bool (*wants_sums)(const void *conf); /* NULL: whenever n_sums > 0 */
    /* Adds the block's part to sum[]. */
    void (*sums)(const void *conf, const struct pl_correct_block *b, double *sum);
    /* One factor for the whole vector, once per contribution; may update at->number. NULL: 1. */
    double (*factor)(const void *conf, struct pl_correct_at *at);
    /* Element by element, out != g. NULL: the vector stays. */
    void (*apply)(const void *conf, const struct pl_correct_at *at,
                  const struct pl_correct_block *b, pl_real *out);
};
extern const struct pl_family pl_correct_family;

/* --- reduce ------------------------------------------------------------------------------ */

/* A reduction is a chain of links, "nnm+trimmed:f=6"; most have one. A link does one of two things,
 * or both, one after the other:
 *
 *   mix     once per commit, on numbers alone: every vector that goes on is a weighted sum of those
 *           that came. It answers with the weights; vectors are not touched. Where one goes on,
 *           that is the result.
 *   apply   block by block: the vectors that came, coordinate by coordinate, become the result.
 *
 * What a mix goes by is the matrix of inner products, computed once per commit by the store: from
 * it follow all lengths and distances, also those between weighted sums. */
struct pl_reduce_at {
    int n;                   /* vectors that come to this link */
    int f;                   /* of which at most so many are hostile; 0 where the rule has no f */
    int k;                   /* vectors a group has where nobody is missing */
    const uint32_t *samples; /* [n]; NULL behind another link */
    const int *worker;       /* [n] who sent them; NULL behind another link */
    const double *gram;      /* [n+1][n+1] inner products; the last are those of the result before.
                                Not finite where a vector is too long for a pl_real */
    struct pl_rng *rng;
    double *room; /* [PL_MIX_ROOM(n)] to work in */
};
#define PL_MIX_ROOM(n) (2 * ((size_t)(n) + 1) * ((size_t)(n) + 4))
#define PL_LANES 32 /* coordinates that elementwise rules work on at a time */
#define PL_ROOM(n) (((size_t)(n) + 3) * PL_LANES)

struct pl_reduce {
    struct pl_entry id;
    bool prepares;  /* leaves several vectors, for the link behind it */
    bool geometry;  /* mix reads inner products */
    bool remembers; /* … also those with the result of the commit before, zero at first */
    /* Where there is an option f: its condition in words, the largest f it allows for n vectors
     * (negative: n is too small for any), and the conf begins with a struct pl_reduce_f. */
    const char *needs;
    int (*most)(const void *conf, int n);
    /* How many vectors mix leaves of n; NULL: 1, or all where it prepares. */
    int (*rows)(const void *conf, int n);
    /* Fills row[i][0 … n]: the weights of the n vectors and of the result before, all zero so far.
     * Returns the number of rows; 0: it cannot say. NULL: they stay as they are. */
    int (*mix)(const void *conf, const struct pl_reduce_at *at, double *row);
    /* One block of n elements of the at->n vectors that mix left. `room` [PL_ROOM(at->n)] is
     * to work in. NULL where mix leaves one vector or prepares. */
    void (*apply)(const void *conf, const struct pl_reduce_at *at, const pl_real *const *member,
                  size_t n, pl_real *room, pl_real *out);
};

/* How many may be hostile; PL_COUNT_AUTO: what another link of the chain says, or else as many as
 * the rule's condition allows. */
struct pl_reduce_f {
    int f;
};

/* What stands in for a rule whose condition does not hold: the coordinate median. */
extern const struct pl_reduce pl_reduce_median;
extern const struct pl_family pl_reduce_family;

/* --- optim ------------------------------------------------------------------------------- */

struct pl_optim_at {
    double lr;
    uint64_t count; /* commits so far, this one included: 1, 2, … */
    int n_workers;
    uint64_t base;                  /* version the first member was computed on */
    double number[PL_RULE_NUMBERS]; /* the rule's own, kept between calls */
};

struct pl_optim_block {
    size_t n;
    const pl_real *u;                /* the reduced vector */
    const pl_real *w;                /* the model now */
    pl_real *out;                    /* the new model */
    pl_real *ahead;                  /* what workers are handed, where it looks ahead; or NULL */
    pl_real *state[PL_RULE_VECTORS]; /* zero at first */
    pl_real *own;       /* of the contributing worker, where per_worker; zero at first */
    pl_real *direction; /* where not NULL: (w - out)/lr is wanted here */
};

enum pl_velocity {
    PL_VELOCITY_NONE,
    PL_VELOCITY_STATE,    /* state[0] */
    PL_VELOCITY_OWN,      /* the worker's own vector */
    PL_VELOCITY_DIRECTION /* not kept; ask for block->direction */
};

struct pl_optim {
    struct pl_entry id;
    int n_vectors;
    bool per_worker; /* a vector per worker, in block->own */
    enum pl_velocity velocity;
    bool (*looks_ahead)(const void *conf); /* NULL: never */
    /* Once per commit, before the blocks; may update at->number. NULL: nothing to do. */
    void (*begin)(const void *conf, struct pl_optim_at *at);
    void (*step)(const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b);
};
extern const struct pl_family pl_optim_family;

/* --- local ------------------------------------------------------------------------------- */

#define PL_LOCAL_VECTORS 2 /* vectors a worker may keep from task to task */

/* One task of one worker. */
struct pl_local_task {
    size_t dim;
    const pl_real *w; /* the version it was handed */
    bool again;       /* … the same one as in the task that `prev` is from */
    bool merged;      /* what that task sent is part of the newest version */
    double lr, weight_decay;
    int n_workers;
    /* Gradient of the task's mini-batch number `step` at w, into g; 0 or PL_ECANCELLED. */
    int (*gradient)(void *ctx, const pl_real *w, uint32_t step, pl_real *g, double *loss);
    /* One pass over the data of the task's part of the model, from w to new values of its ranges in
     * out; 0 or PL_ECANCELLED. NULL if the task is on the whole model. */
    int (*sweep)(void *ctx, bool adaptive, double *loss);
    void *ctx;
    const pl_real *const *prev; /* what it kept of the task before; NULL: there was none */
    pl_real *const *next;       /* what it keeps of this one, to be written */
    pl_real *model, *g; /* scratch [dim] each, but for rules that send a gradient of one step and
                           keep nothing */
    pl_real *out;       /* what is sent: [dim] */
};

enum pl_sends {
    PL_SENDS_GRADIENT, /* applied at the rate of the run */
    PL_SENDS_DELTA,    /* from the version it was handed to where it got, at the worker's rate */
    PL_SENDS_MODEL,    /* where it got: the store makes of it the move from the newest version */
    PL_SENDS_RANGES    /* new values of the ranges it was handed, which replace the old ones */
};

struct pl_local {
    struct pl_entry id;
    enum pl_sends sends;
    bool applies_weight_decay;           /* applies weight decay itself, so the server must not */
    uint32_t (*steps)(const void *conf); /* mini-batches in a task */
    /* Vectors it keeps from task to task; NULL: none. What a task has written counts once the
     * server has heard of the task: tasks are computed ahead of their time, and some are cancelled.
     */
    int (*n_vectors)(const void *conf);
    int model_slot; /* which of them, counted from 1, is a model of the worker's own; 0: none */
    /* The server's step is this times what was moved; NULL: 1. */
    double (*outer)(const void *conf, int n_workers);
    bool sum_members; /* … and times the members of the group: their sum counts, not their mean */
    /* Fills task->out and task->next; *loss is the mean over the mini-batches. */
    int (*run)(const void *conf, const struct pl_local_task *task, double *loss);
};
extern const struct pl_family pl_local_family;

/* --- schedule ---------------------------------------------------------------------------- */

/* A factor on the learning rate: of how far the run is, of what came of it so far, or of both. */
struct pl_schedule {
    struct pl_entry id;
    /* Progress comes in the unit that the schedule's conf begins with. NULL: 1, and the conf has no
     * unit. */
    double (*factor)(const void *conf, double progress, int n_workers);
    /* Called after every commit with the number of its samples whose loss is known (0: of none),
     * their mean loss and the number of samples in an epoch. Updates number[], which is zero at
     * first and part of a checkpoint. NULL: the schedule ignores what comes of the run. */
    void (*commit)(const void *conf, double samples, double loss, double epoch,
                   double number[PL_RULE_NUMBERS]);
    /* A second factor, from what commit() keeps. NULL: 1. */
    double (*paced)(const void *conf, const double number[PL_RULE_NUMBERS]);
};
extern const struct pl_family pl_schedule_family;

/* What the conf of a schedule with a factor() begins with. */
enum pl_unit { PL_UNIT_EPOCHS, PL_UNIT_UPDATES };
struct pl_schedule_unit {
    int unit;
};

#endif
