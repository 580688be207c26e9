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
 * a number computed over the whole vector (a norm) declares it. The store computes the sums in a
 * first pass and adds them up over fixed tiles in a fixed order, so that they have the same bits
 * for any number of servers and threads.
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
#include "core/ranges.h"

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

/* Whether every element is finite. */
bool pl_vec_finite(const pl_real *x, size_t n);

/* Writes the weighted sum of n vectors, added in the given order, into out, and returns out.
 * Vectors of weight 0 are not read. If one of the others has an element that is not finite, neither
 * is the sum. */
const pl_real *pl_vec_weighted(int n, const pl_real *const *vector, const double *weight,
                               size_t n_elements, pl_real *out);
/* Adds it to out, or, if `first`, writes it there unless all weights are 0. Returns whether the
 * next sum is still the first. */
bool pl_vec_accumulate(int n, const pl_real *const *vector, const double *weight, size_t n_elements,
                       bool first, pl_real *out);

/* --- filter ------------------------------------------------------------------------------ */

/* One finite contribution that has just arrived; every vector has n elements. */
struct pl_filter_at {
    size_t n;
    int worker, n_workers;
    uint64_t version, base; /* of the current model, and of the one the worker computed on */
    double lr;              /* current learning rate */
    const pl_real *w, *base_w;
    const pl_real *trusted; /* the server's own gradient if the filter trusts one, or NULL */
};

/* What a filter remembers. All of it is zero at first, and part of a checkpoint. */
struct pl_filter_memory {
    pl_real *vector[PL_RULE_VECTORS]; /* the filter may swap them */
    pl_real *own[PL_FILTER_OWN];      /* those of the contributing worker */
    double *number;                   /* [n_workers] */
    uint64_t *mark;                   /* [n_workers][PL_FILTER_MARKS] */
    uint64_t *whole;                  /* [PL_FILTER_WHOLES(n_workers)] */
    double *room;                     /* [n_workers] scratch, not kept */
};
#define PL_FILTER_WHOLES(n) ((size_t)(n) + 8)

struct pl_filter_kind {
    struct pl_entry id;
    int n_vectors, n_own;
    /* Compares with a gradient of samples that the server holds; the conf begins with a struct
     * pl_filter_trust. */
    bool trusts;
    /* Returns NULL if the filter works with n_workers, otherwise a phrase for the error message.
     * If it is NULL, it works with any number. */
    const char *(*check)(const void *conf, int n_workers);
    /* Returns whether g is used; may change g in place. Called once per finite contribution, in the
     * order of arrival. If it is NULL, every contribution is used. */
    bool (*believes)(const void *conf, const struct pl_filter_at *at, struct pl_filter_memory *m,
                     pl_real *g);
};

struct pl_filter_trust {
    int64_t samples; /* number that the server holds */
    int64_t every;   /* commits between two computations of their gradient */
};
extern const struct pl_family pl_filter_family;

/* --- correct ----------------------------------------------------------------------------- */

/* What is known about the contribution as a whole. */
struct pl_correct_at {
    uint64_t lag;
    uint64_t count; /* contributions corrected so far, this one included: 1, 2, … */
    int member;     /* which of the n_members of its group it is, from 0 */
    int n_members;
    double lr;     /* learning rate of this commit; in apply() that of the range */
    double lr_max; /* largest learning rate so far; the same */
    int n_workers;
    double sum[PL_RULE_SUMS];       /* from sums(), over the whole vector */
    double number[PL_RULE_NUMBERS]; /* the rule's own, kept between calls */
};

/* One block of a contribution; every array has n elements. */
struct pl_correct_block {
    size_t n;
    const pl_real *g;                /* the contribution, with weight decay added */
    const pl_real *w;                /* the model now */
    const pl_real *base;             /* what the worker computed on, for PL_NEEDS_BASE */
    const pl_real *velocity;         /* the optimizer's momentum; NULL if it has none */
    pl_real *state[PL_RULE_VECTORS]; /* zero at first */
    pl_real *room;                   /* scratch for what the members of a group share */
    bool room_is_set;                /* it is as the member before this one left it */
};

struct pl_correct {
    struct pl_entry id;
    int n_vectors, n_sums;
    bool (*wants_sums)(const void *conf); /* NULL: whenever n_sums > 0 */
    /* Adds the sums over this block to sum[]. */
    void (*sums)(const void *conf, const struct pl_correct_block *b, double *sum);
    /* One factor for the whole vector, once per contribution; may update at->number. If it is
     * NULL, the factor is 1. */
    double (*factor)(const void *conf, struct pl_correct_at *at);
    /* Element by element, out != g. Called for the members of a group in order. If it is NULL, the
     * vector is unchanged. */
    void (*apply)(const void *conf, const struct pl_correct_at *at,
                  const struct pl_correct_block *b, pl_real *out);
};
extern const struct pl_family pl_correct_family;

/* --- reduce ------------------------------------------------------------------------------ */

/* A reduction is a chain of links, "nnm+trimmed:f=6"; most have one. A link does one of two things,
 * or both, one after the other:
 *
 *   mix     once per commit: returns the weights of its output vectors, each of which is a weighted
 *           sum of its input vectors. It reads no vector. If there is one output vector, it is the
 *           result.
 *   apply   block by block: computes the result from the input vectors, coordinate by coordinate.
 *
 * A mix decides by the matrix of inner products, which the store computes once per commit. All
 * lengths and distances follow from it, including those between weighted sums. */
struct pl_reduce_at {
    int n;                   /* input vectors of this link */
    int f;                   /* at most f of them are hostile; 0 if the rule has no f */
    int k;                   /* members of a complete group */
    const uint32_t *samples; /* [n]; NULL after another link */
    const int *worker;       /* [n] senders; NULL after another link */
    const double *gram;      /* [n+1][n+1] inner products; the last are with the previous result.
                                Not finite if a vector's square overflows */
    struct pl_rng *rng;
    double *room; /* [PL_MIX_ROOM(n)] scratch */
};
#define PL_MIX_ROOM(n) (2 * ((size_t)(n) + 1) * ((size_t)(n) + 4))
#define PL_LANES 32 /* coordinates that elementwise rules process at a time */
#define PL_ROOM(n) (((size_t)(n) + 3) * PL_LANES)

struct pl_reduce {
    struct pl_entry id;
    bool prepares;  /* has several output vectors, for the next link */
    bool geometry;  /* mix reads inner products */
    bool remembers; /* … also those with the previous commit's result, zero at first */
    /* If there is an option f: its condition in words, and the largest f it allows for n vectors
     * (negative: n is too small for any). The conf then begins with a struct pl_reduce_f. */
    const char *needs;
    int (*most)(const void *conf, int n);
    /* Number of output vectors of mix for n inputs. If it is NULL, there are n if it prepares,
     * otherwise 1. */
    int (*rows)(const void *conf, int n);
    /* Fills row[i][0 … n], zero at first: the weights of the n vectors and of the previous result.
     * Returns the number of rows, or 0 if it cannot decide. If it is NULL, the vectors are passed
     * on as they are. */
    int (*mix)(const void *conf, const struct pl_reduce_at *at, double *row);
    /* One block of n elements of the at->n output vectors of mix. `room` [PL_ROOM(at->n)] is
     * scratch. NULL if mix has one output vector or prepares. */
    void (*apply)(const void *conf, const struct pl_reduce_at *at, const pl_real *const *member,
                  size_t n, pl_real *room, pl_real *out);
};

/* How many may be hostile; PL_COUNT_AUTO: the f of another link of the chain, otherwise as many as
 * the rule's condition allows. */
struct pl_reduce_f {
    int f;
};

/* Used instead of a rule whose condition does not hold: the coordinate-wise median. */
extern const struct pl_reduce pl_reduce_median;
extern const struct pl_family pl_reduce_family;

/* --- optim ------------------------------------------------------------------------------- */

struct pl_optim_at {
    double lr;           /* of the range, as weight_decay */
    double weight_decay; /* for an optimizer that decouples it, otherwise 0 */
    uint64_t count;      /* commits so far, this one included: 1, 2, … */
    int n_workers;
    uint64_t base;                  /* version the first member was computed on */
    double number[PL_RULE_NUMBERS]; /* the rule's own, kept between calls */
};

struct pl_optim_block {
    size_t n;
    const pl_real *u;                /* the reduced vector */
    const pl_real *w;                /* the model now */
    pl_real *out;                    /* the new model */
    pl_real *ahead;                  /* what workers compute on if it looks ahead, or NULL */
    pl_real *state[PL_RULE_VECTORS]; /* zero at first */
    pl_real *own;                    /* the contributing worker's, if per_worker; zero at first */
    pl_real *direction;              /* NULL, or where to write (w - out)/lr */
};

enum pl_velocity {
    PL_VELOCITY_NONE,
    PL_VELOCITY_STATE,    /* state[0] */
    PL_VELOCITY_OWN,      /* the worker's own vector */
    PL_VELOCITY_DIRECTION /* not kept; use block->direction */
};

struct pl_optim {
    struct pl_entry id;
    int n_vectors;
    bool per_worker; /* a vector per worker, in block->own */
    bool decouples;  /* applies at->weight_decay itself; it is not added to contributions */
    enum pl_velocity velocity;
    double lr;       /* the learning rate, unless one is given */
    bool normalises; /* a gradient of another scale makes the same step */
    bool rests; /* where a gradient is 0, the model stays, whatever the gradients before were */
    bool (*looks_ahead)(const void *conf); /* NULL: never */
    /* Once per commit, before the blocks; may update at->number. May be NULL. */
    void (*begin)(const void *conf, struct pl_optim_at *at);
    void (*step)(const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b);
};
extern const struct pl_family pl_optim_family;

/* --- local ------------------------------------------------------------------------------- */

#define PL_LOCAL_VECTORS 2 /* vectors a worker may keep from task to task */

/* One task of one worker. The caller fills in everything up to `moved`; core/local.h runs it. */
struct pl_local_task {
    size_t dim;
    const pl_real *w; /* the version it was handed */
    bool again;       /* … the same one as in the task that `prev` is from */
    bool merged;      /* that task's result is part of the newest version */
    double lr, weight_decay;
    struct pl_ranges ranges; /* of the model; the rule applies their factors to its own steps */
    int n_workers;
    const pl_real *const *prev; /* kept from the previous task; NULL if there was none */
    pl_real *const *next;       /* to keep from this task; the rule writes it */
    pl_real *model, *g; /* scratch [dim] each, except for rules that send the gradient of one step
                           and keep nothing */
    pl_real *out;       /* [dim] the result */
    bool moved;         /* an optimizer of the caller moves x, and there are no gradients here */
    /* Set by begin(); begin() may also replace lr and g. */
    pl_real *x;           /* [dim] the model that the steps move */
    const pl_real *start; /* [dim] where it started, if the rule sends a delta */
    const pl_real *at;    /* [dim] where the next gradient is computed; it is written to g */
};

enum pl_sends {
    PL_SENDS_GRADIENT, /* applied at the learning rate of the run */
    PL_SENDS_DELTA,    /* its start minus its final model; includes the worker's learning rate */
    PL_SENDS_MODEL,    /* its final model; the store subtracts it from the newest version */
    PL_SENDS_RANGES    /* new values of its ranges, which replace the old ones */
};

struct pl_local {
    struct pl_entry id;
    enum pl_sends sends;
    bool applies_weight_decay;           /* applies weight decay itself, so the server must not */
    uint32_t (*steps)(const void *conf); /* mini-batches in a task */
    /* Vectors it keeps from task to task, or NULL if it keeps none. What a task wrote counts once
     * the server has acknowledged its result: tasks may be computed in advance, and some are
     * cancelled. */
    int (*n_vectors)(const void *conf);
    int model_slot; /* which of them, from 1, is the worker's own model; 0: none */
    /* Factor that the server applies to a delta. If it is NULL, the factor is 1. */
    double (*outer)(const void *conf, int n_workers);
    bool sum_members; /* the server applies the sum of the members, not their mean */
    /* Whether its steps are those of plain SGD on x, so that any optimizer may take them instead.
     * If it is NULL, they are not. */
    bool (*plain)(const void *conf);
    /* A task is begin, then for each mini-batch a gradient and step(), then end. pull() follows the
     * first step. If it is NULL, there is nothing to do. Rules that send ranges have none of these;
     * their conf is a struct pl_local_sweep. */
    void (*begin)(const void *conf, struct pl_local_task *t);
    void (*step)(const void *conf, struct pl_local_task *t, uint32_t step); /* from 0 */
    void (*pull)(const void *conf, struct pl_local_task *t);
    void (*end)(const void *conf, struct pl_local_task *t); /* out and next are complete */
};

struct pl_local_sweep {
    bool adaptive; /* every row of the matrix has a learning rate of its own */
};
extern const struct pl_family pl_local_family;

/* --- schedule ---------------------------------------------------------------------------- */

/* A factor on the learning rate, from the progress of the run, its losses so far, or both. */
struct pl_schedule {
    struct pl_entry id;
    /* `progress` is in the unit that the conf begins with. If it is NULL, the factor is 1,
     * and the conf has no unit. */
    double (*factor)(const void *conf, double progress, int n_workers);
    /* Called after every commit with the number of its samples whose loss is known, their mean loss
     * and the number of samples in an epoch. Updates number[], which is zero at first and part of a
     * checkpoint. If it is NULL, the schedule ignores losses. */
    void (*commit)(const void *conf, double samples, double loss, double epoch,
                   double number[PL_RULE_NUMBERS]);
    /* A second factor, from what commit() keeps. If it is NULL, that is 1. */
    double (*paced)(const void *conf, const double number[PL_RULE_NUMBERS]);
};
extern const struct pl_family pl_schedule_family;

/* What the conf of a schedule with a factor() begins with. */
enum pl_unit { PL_UNIT_EPOCHS, PL_UNIT_UPDATES };
struct pl_schedule_unit {
    int unit;
};

#endif
