/* The store: the model as immutable, reference-counted versions, and the open group.
 *
 * A commit reads version v and the group and writes version v+1 into a free buffer: the same memory
 * traffic as updating in place, with four advantages at no cost. A worker computes directly on the
 * version it was handed; a pull is always one consistent version; Gap-Aware and DC-ASGD find the
 * parameters a worker started from; a checkpoint can be written while training continues.
 *
 * A commit runs correct -> reduce -> optim block by block. If a reduction depends on distances, a
 * separate pass computes the inner products of the members first. The vector is cut into PL_TILES
 * tiles. They may be processed in any order, on any number of threads, with the same bits, because
 * elementwise rules do not depend on the order and sums are added up in tile order. */
#ifndef PL_CORE_STORE_H
#define PL_CORE_STORE_H

#include "core/aggregate.h"
#include "core/archive.h"
#include "core/average.h"
#include "core/control.h"
#include "core/progress.h"
#include "core/ranges.h"
#include "core/rate.h"
#include "core/vectors.h"

#define PL_TILES 64
#define PL_BLOCK 1024        /* elements; a dozen such blocks fit a first-level cache */
#define PL_GROUP_BLOCK 16384 /* elements of all members of a group together, in one block */

/* Runs job(arg, 0) … job(arg, n-1), in any order, perhaps in parallel; returns when all are done.
 */
struct pl_parallel_for {
    void (*run)(void *ctx, int n, void (*job)(void *arg, int i), void *arg);
    void *ctx;
};

/* Where commits are carried out if this process cannot read the vectors: their addresses mean
 * something to the caller alone (core/offload.h). NULL members are not allowed. */
struct pl_offload;
struct pl_offload_ops {
    void *ctx;
    pl_real *(*zeros)(void *ctx); /* a vector of zeros for as long as the store lives, or NULL */
    /* The first version is wanted here, and here as well if `lookahead` is another vector. */
    void (*load)(void *ctx, pl_real *model, pl_real *lookahead);
    int (*commit)(void *ctx, const struct pl_offload *o); /* o is copied; 0 or PL_ENOMEM */
};

/* The part of the vector that one store has if several share it: tiles first … end - 1 of a vector
 * of `whole` elements; if whole is 0, there is only one store. All of them make the same takes and
 * commits in the same order, and call allreduce() when a commit needs sums over the whole vector.
 * Row t, of `width` numbers, is tile t's: it fills in the rows of the other stores' tiles. */
struct pl_slice {
    size_t whole;
    size_t n; /* elements of the part */
    int first, end;
    int (*allreduce)(void *ctx, double *row, size_t width); /* 0, or PL_ERUN */
    void *ctx;
};

/* Divides the tiles of a vector of `dim` among n slices, n at most pl_tiles(dim). Slice i begins at
 * element *from and has *n_elements. */
struct pl_slice pl_slice_cut(size_t dim, int n, int i, size_t *from, size_t *n_elements);
int pl_tiles(size_t dim); /* that are not empty */

struct pl_store_conf {
    size_t dim; /* of the slice */
    int n_workers;
    struct pl_choice correct, optim;
    struct pl_chain reduce;
    int k;         /* members of a complete group */
    uint64_t seed; /* for random choices of reductions */
    struct pl_rate rate;
    struct pl_ranges ranges;         /* of the whole model, whatever the slice is */
    struct pl_model_tensors tensors; /* n == 0, or the slice is the whole vector */
    double weight_decay;             /* added to every contribution before it is corrected */
    double max_norm; /* the reduced vector is clipped to it, and weight decay is added afterwards;
                        0: neither */
    enum pl_sends sends;                 /* what members are */
    double outer;                        /* factor on deltas and models, */
    bool sum_members;                    /* multiplied by the number of members */
    bool measures;                       /* commits report a struct pl_measure */
    struct pl_average_conf average;      /* of the versions; see pl_store_shown */
    struct pl_parallel_for parallel_for; /* run == NULL: this thread alone */
    /* With parallel_for.ctx: the jobs of the next run() write v, which is what workers compute on
     * of the next version, tile i in job i. If v is NULL, what was written last is void, and is
     * written again. May itself be NULL. */
    void (*writes)(void *ctx, const pl_real *v);
    struct pl_vectors *vectors; /* table that holds the versions; NULL: the store makes one */
    struct pl_slice slice;      /* whole == 0: the whole vector */
    const struct pl_offload_ops *offload; /* NULL: this process computes commits */
};

/* One version of the model. The struct is valid while the version is held. */
struct pl_version {
    uint64_t id;        /* commits before it */
    double lr;          /* learning rate when it was made, for workers that take local steps */
    pl_real *model;     /* [dim] what is evaluated */
    pl_real *lookahead; /* [dim] what workers compute on: the model, or a look-ahead of it */
    int model_vector, lookahead_vector; /* their ids in the table of vectors */
};

struct pl_store;

/* conf's pointers are borrowed for the life of the store. w0 [dim] is copied into version 0; it is
 * not read if there is an offload. */
int pl_store_new(const struct pl_store_conf *conf, const pl_real *w0, struct pl_store **out,
                 struct pl_why *why);
void pl_store_free(struct pl_store *s);

/* The newest version. A caller that needs it beyond the next commit must hold it. */
struct pl_version *pl_store_newest(const struct pl_store *s);
void pl_store_hold(struct pl_store *s, const struct pl_version *v);
void pl_store_release(struct pl_store *s, const struct pl_version *v); /* NULL is fine */

/* What is evaluated and saved for use [dim]: the average, if there is one, otherwise the newest
 * version. Valid until the next commit. */
const pl_real *pl_store_shown(struct pl_store *s);
bool pl_store_averages(const struct pl_store *s);

/* Whether the values of a result are finite: docs/decisions/finite.md. */
enum pl_finite {
    PL_FINITE_UNKNOWN,  /* a commit that reads it judges what it reads */
    PL_FINITE_WRITABLE, /* likewise, in a copy: its worker can still write to it */
    PL_FINITE_YES,      /* all of them are */
    PL_FINITE_NO        /* at least one is not */
};

/* Adds a member to the open group. `vector` [dim] is read at the commit and must stay valid until
 * then. `base`, the version it was computed on, is held for as long as a rule needs it. 0,
 * PL_ENOMEM, or PL_EPOLICY for a second member if the optimizer takes one at a time. */
int pl_store_take(struct pl_store *s, const struct pl_member *m, const struct pl_version *base,
                  const pl_real *vector, enum pl_finite finite);

/* The member that was added last does not have the tensors whose bits are set in absent[n], which
 * is copied; bits beyond the last tensor mean nothing. 0 or PL_ENOMEM. */
int pl_store_lacks(struct pl_store *s, const uint64_t *absent, size_t n);

/* Whether rules read the members of a group more than once. Of a vector that can still be written
 * they might see different values. */
bool pl_store_reads_twice(const struct pl_store *s);

/* Makes a new version from the group, which is empty afterwards. Values of members that are not
 * finite are not used: pl_store_is_spoiled() then tells, until the next member is added, whether
 * member `i` of that group had any. 0, PL_ENOMEM, or PL_ERUN if allreduce() failed. */
int pl_store_commit(struct pl_store *s, double factor, struct pl_measure *measure);
bool pl_store_is_spoiled(const struct pl_store *s, int i);
/* Whether the new version is what it would be without its spoiled members. Otherwise a rule changes
 * vectors in place, and only the blocks that are not finite contribute nothing. */
bool pl_store_can_leave_out(const struct pl_store *s);

/* Saves or restores everything except the model, which is given to pl_store_new. If there is an
 * average, that is what callers save as the model, and the newest version is restored from here.
 * Restore before any version is held. 0, PL_ENOMEM, or PL_EDATA if the values are impossible. */
int pl_store_archive(struct pl_store *s, const struct pl_archive *k);

/* Replaces the base learning rate, from the next version on. */
void pl_store_set_lr(struct pl_store *s, double lr);

/* Replaces the model: the newest version is w [dim] from now on, under the same number. Results
 * that are under way are applied to it. 0 or PL_ENOMEM. */
int pl_store_set_model(struct pl_store *s, const pl_real *w);

/* What the optimizer keeps, to be read or replaced between two commits: `n` vectors [dim] at
 * vector[], and for each of the n_tensors tensors the number of steps that it has taken. */
struct pl_store_state {
    size_t dim;
    int n, n_tensors;
    pl_real *const *vector;
};
struct pl_store_state pl_store_state(const struct pl_store *s);
uint64_t pl_store_steps(const struct pl_store *s, int tensor);
int pl_store_set_steps(struct pl_store *s, const uint64_t *steps); /* [n_tensors]; 0, PL_ENOMEM */

const struct pl_progress *pl_store_progress(const struct pl_store *s);

/* How often the median stood in for the reduction: see pl_mixer_n_medians. */
uint64_t pl_store_n_medians(const struct pl_store *s);

/* Tile t of a vector of `dim`: its first element and its length (0 for the last tiles of a short
 * vector). Tiles begin at multiples of 16 elements. */
void pl_tile(size_t dim, int t, size_t *from, size_t *n);

#endif
