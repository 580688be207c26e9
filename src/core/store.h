/* The store: the model as immutable, reference-counted versions, and the open group.
 *
 * A commit reads version v and the group and writes version v+1 into a free buffer: the same memory
 * traffic as updating in place, and it gives four things for nothing. A worker computes straight
 * from the version it was handed; a pull is always one consistent version; Gap-Aware and DC-ASGD
 * find the parameters a worker started from; a checkpoint can be written while training goes on.
 *
 * If workers are handed parts of the model (policies with a grid), a result is the new values of
 * its ranges, and a commit writes those into the newest version, in place: no other worker reads or
 * writes these ranges meanwhile. Whoever wants such a model whole and unchanging copies it.
 *
 * A commit runs correct -> reduce -> optim block by block. Where a reduction goes by distances, the
 * inner products of the members are computed first, in a pass of their own. The vector is cut into
 * PL_TILES tiles; tiles may be worked on in any order, on any number of threads, with the same
 * bits: elementwise rules do not care, and sums are kept per tile and added up in tile order. */
#ifndef PL_CORE_STORE_H
#define PL_CORE_STORE_H

#include "base/range.h"
#include "core/aggregate.h"
#include "core/archive.h"
#include "core/control.h"
#include "core/progress.h"
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

/* A part of the vector that one store has, where several share it: tiles first … end - 1 of `whole`
 * elements; whole == 0: there is but one store. All of them make the same takes and commits in the
 * same order. agree() is called by all alike when a commit needs sums over the whole vector: row t,
 * of `width` numbers, is tile t's; those of the own tiles are there, the others are filled in. */
struct pl_slice {
    size_t whole;
    size_t n; /* elements of the part */
    int first, end;
    int (*allreduce)(void *ctx, double *row, size_t width); /* 0, or PL_ERUN */
    void *ctx;
};

/* Cuts the tiles that a vector of `dim` has among n shares, n at most pl_tiles(dim). Share i begins
 * at element *from and has *n_elements. */
struct pl_slice pl_slice_cut(size_t dim, int n, int i, size_t *from, size_t *n_elements);
int pl_tiles(size_t dim); /* that are not empty */

struct pl_store_conf {
    size_t dim; /* of the share */
    int n_workers;
    struct pl_choice correct, optim;
    struct pl_chain reduce;
    int k;         /* contributions in a group where nobody is missing */
    uint64_t seed; /* of chance in reductions */
    struct pl_rate rate;
    double weight_decay;                 /* added to every contribution before it is corrected */
    enum pl_sends sends;                 /* what contributions are */
    double outer;                        /* moves and models: the rate of the server's step, */
    bool sum_members;                    /* times the members of the group */
    bool measures;                       /* commits report a struct pl_measure */
    struct pl_parallel_for parallel_for; /* run == NULL: this thread alone */
    struct pl_vectors *vectors; /* where versions live; NULL: in a table of the store's own */
    struct pl_slice slice;      /* whole == 0: all of it */
};

/* One version of the model. The struct is valid while somebody holds the version. */
struct pl_version {
    uint64_t id;    /* commits before it */
    double lr;      /* in force when it was made, for workers that take steps of their own */
    pl_real *model; /* [dim] what is evaluated */
    pl_real
        *lookahead; /* [dim] what workers compute on: the model, or the optimizer's look-ahead */
    int model_vector, lookahead_vector; /* their ids in the table of vectors */
};

struct pl_store;

/* conf's pointers are borrowed for the life of the store. w0 [dim] is copied into version 0. */
int pl_store_new(const struct pl_store_conf *conf, const pl_real *w0, struct pl_store **out,
                 struct pl_why *why);
void pl_store_free(struct pl_store *s);

/* The newest version. Whoever keeps it beyond the next commit holds it. */
struct pl_version *pl_store_newest(const struct pl_store *s);
void pl_store_hold(struct pl_store *s, const struct pl_version *v);
void pl_store_release(struct pl_store *s, const struct pl_version *v); /* NULL is fine */

/* Adds a contribution to the open group. `vector` [dim] is read at the commit and must stay until
 * then; `base`, what it was computed on, is held for as long as a rule needs it. 0, PL_ENOMEM, or
 * PL_EPOLICY for a second member if the optimizer takes contributions one at a time. */
int pl_store_take(struct pl_store *s, const struct pl_member *m, const struct pl_version *base,
                  const pl_real *vector);

/* The same for the new values of ranges of the model: vector + range[i].from has those of range i.
 * Groups have contributions of one kind. */
int pl_store_take_part(struct pl_store *s, const struct pl_member *m, const struct pl_range *range,
                       int n_ranges, const pl_real *vector);

/* Group -> one step -> a new version; the group is empty afterwards. 0, PL_ENOMEM, or PL_ERUN where
 * the shares did not agree. */
int pl_store_commit(struct pl_store *s, double factor, struct pl_measure *measure);

/* Saves or restores all but the model itself, which is what the store was made with. Restoring
 * comes first, before anybody holds a version. 0, PL_ENOMEM, or PL_EDATA for what no store keeps.
 */
int pl_store_archive(struct pl_store *s, const struct pl_archive *k);

const struct pl_progress *pl_store_progress(const struct pl_store *s);
struct pl_vectors *pl_store_vectors(const struct pl_store *s); /* the table of its versions */

/* Commits in which the reduction's condition on f did not hold for the group, so that the
 * coordinate median stood in. */
uint64_t pl_store_n_medians(const struct pl_store *s);

/* The largest number of versions that were alive at one time. */
int pl_store_n_versions(const struct pl_store *s);

/* Tile t of a vector of `dim`: its first element and its length (0 for the last tiles of a short
 * vector). Cuts are multiples of 16 elements. */
void pl_tile(size_t dim, int t, size_t *from, size_t *n);

#endif
