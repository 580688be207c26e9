/* The inside of the store, which the files of its commits share. */
#ifndef PL_CORE_STORE_STATE_H
#define PL_CORE_STORE_STATE_H

#include "core/store.h"

struct store_member {
    const struct pl_version *base; /* NULL if no rule needs it */
    const pl_real *vector;
    int worker;
    uint64_t base_id, lag;
    double factor; /* of the take */
    double loss;
    struct pl_correct_at at;
    enum pl_finite finite;
    uint64_t *absent; /* a bit per tensor that it does not have, owned; NULL: it has all */
};

/* The results of the next commit. */
struct store_group {
    struct store_member *member; /* [n], as the others */
    uint32_t *samples;
    int *worker;
    double *factor; /* of takes and corrections */
    int n, room;
};

/* Memory of a commit, which the next one uses again. */
struct store_work {
    double *gram; /* [PL_TILES + 1] matrices of inner products: one per tile, and their sum */
    size_t room_gram;
    pl_real **kept; /* [n_kept][dim] corrected members, if they are needed twice */
    int n_kept;
    pl_real *scratch; /* [PL_TILES slots][room_scratch] blocks for corrected members */
    size_t room_scratch;
    double (*sums)[PL_RULE_SUMS]; /* [PL_TILES * members] of the first pass, kept for the next */
    size_t room_sums;
};

struct pl_store {
    struct pl_store_conf conf;
    const struct pl_correct *correct;
    const struct pl_optim *optim;
    bool looks_ahead;
    size_t from;         /* first element of the slice, in the whole vector */
    size_t n_parameters; /* elements of the slice before the buffers */

    struct pl_vectors *vectors;
    bool owns_vectors;
    struct pl_version **version; /* [n_versions] by the id of their model's vector; or NULL */
    int n_versions;
    struct pl_version *newest;

    struct store_group group;
    struct store_work work;

    bool *skip;          /* [tensors] the commit skips them; NULL: no tensor was ever absent */
    uint64_t *n_skipped; /* [tensors] commits that did; modulo 2^64, less than none if a program has
                            set more steps than there were commits */

    struct pl_mixer *mixer;
    bool geometry;

    pl_real *correct_state[PL_RULE_VECTORS], *optim_state[PL_RULE_VECTORS];
    pl_real **own; /* [n_workers], filled in when a worker first contributes */
    pl_real *direction;
    pl_real *reduced; /* vector of this commit, before it is clipped; NULL: it is not */
    bool decays;      /* weight decay is part of the gradient, and is added to every member */
    pl_real *last;    /* reduced vector of the previous commit; NULL if not needed */
    pl_real *partial; /* for an offload: the reduced vector of a part of a group; or NULL */

    struct pl_average average;
    double lr_max;
    uint64_t n_corrected;
    struct pl_progress progress;
    double correct_number[PL_RULE_NUMBERS], optim_number[PL_RULE_NUMBERS];
};

/* Judges a block v [n] of a member while it is in the cache. Values that are not finite are never
 * used: `instead` [n] is, so that the block contributes nothing, and the member is spoiled. What
 * was found finite and cannot change is not judged again. */
const pl_real *pl_member_judge(struct store_member *m, const pl_real *v, size_t n,
                               const pl_real *instead);
extern const pl_real pl_member_zeros[PL_BLOCK];

/* The piece of a block that begins at element i of the n elements at `at` of the slice. The
 * learning rate is the workers' own unless they send gradients. */
struct pl_piece pl_member_piece(const struct pl_store *s, size_t at, size_t i, size_t n);
/* Adds weight decay to g [n], into out, which may be the same. */
void pl_member_decay(const struct pl_store *s, size_t at, size_t n, const pl_real *g, pl_real *out);
/* One block of a member as a gradient; g [n] is what was read of it. A model is subtracted from the
 * newest version, and weight decay is added; both use tmp [n]. */
struct pl_correct_block pl_member_block(const struct pl_store *s, const struct store_member *m,
                                        size_t at, size_t n, const pl_real *g, pl_real *tmp);
/* The same for what the member has there, judged. What its worker can still write to is copied
 * first, so that what is judged is what is used. */
struct pl_correct_block pl_member_judged(const struct pl_store *s, struct store_member *m,
                                         size_t at, size_t n, pl_real *tmp);
/* One block of member m, judged and corrected, into out [n]. `room` [n] is kept from the first
 * member of the group to the last, which are corrected in order. */
void pl_member_correct(const struct pl_store *s, int m, size_t at, size_t n, pl_real *room,
                       pl_real *out);

/* n buffers from element `from` on: they become the mean of the members' values or, if they are
 * whole numbers, the values of the first worker, if it is among them. */
void pl_members_buffers(const struct pl_store *s, const struct pl_version *next, size_t from,
                        size_t n);

/* With several servers: a member is spoiled if one of them found it so in its slice. 0, PL_ENOMEM
 * or PL_ERUN if allreduce() failed. */
int pl_members_agree(struct pl_store *s);

/* Finds the tensors that no member has, except those that are spoiled; counts them afterwards. */
void pl_members_find_absent(struct pl_store *s);
void pl_members_count_absent(struct pl_store *s);

/* Cuts a piece that begins at `at` at the end of its tensor. Returns false if the commit skips
 * that; *count, the number of the commit, becomes that of the tensor's own. */
bool pl_member_tensor(const struct pl_store *s, size_t at, struct pl_piece *p, uint64_t *count);
/* A piece of which no member has a gradient is in `next` what it was. */
void pl_member_keep(const struct pl_store *s, const struct pl_version *next, size_t at, size_t n);
/* Corrections with state are applied once, and their results are kept for the second pass: makes
 * room for them. False: out of memory. */
bool pl_members_keep(struct pl_store *s);

/* A version that only the caller holds. It is NULL if there is no memory. */
struct pl_version *pl_store_version(struct pl_store *s);

double pl_store_rate(const struct pl_store *s); /* the learning rate now */

/* Writes version `next` from the members of the group; *dot is the inner product of its reduced
 * vector and the previous one, if that is kept. 0, PL_ENOMEM or PL_ERUN. */
int pl_commit_write(struct pl_store *s, double factor, struct pl_version *next, double *dot);
/* Tells the optimizer about a commit, and stores its numbers. */
struct pl_optim_at pl_commit_begin(struct pl_store *s, double lr);

/* Whether the rules can be carried out elsewhere. */
int pl_offload_check(const struct pl_store_conf *conf, struct pl_why *why);

/* The commit of the group with these weights into `next`, for the offload. 0 or PL_ENOMEM. */
int pl_store_offload(struct pl_store *s, const struct pl_optim_at *at, const double *weight,
                     const struct pl_version *next);

/* Whether the correction needs sums over the whole vector. */
static inline bool pl_correct_sums(const struct pl_choice *correct) {
    const struct pl_correct *c = (const struct pl_correct *)correct->entry;
    return c->n_sums > 0 && (!c->wants_sums || c->wants_sums(correct->conf));
}

#endif
