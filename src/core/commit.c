/* The arithmetic of a commit: correct -> reduce -> optim, from version v and the open group to
 * version v + 1. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/gram.h"
#include "core/store_state.h"

/* Scratch for the members of a group, in all tiles together, in elements. */
struct commit_plan {
    size_t pointers, corrected, mixture, lanes;
};

/* Where the second pass finds the blocks of a member. */
enum commit_from {
    COMMIT_CORRECTED, /* in scratch: rules change them */
    COMMIT_COPIED,    /* in scratch: workers can still write to them. A sum over members reads them
                         where they are, because the sum itself is judged */
    COMMIT_IN_PLACE,  /* where the worker wrote them */
    COMMIT_KEPT       /* where the pass before this one has kept them, corrected */
};

struct commit_job {
    struct pl_store *s;
    struct pl_version *next;
    struct pl_optim_at at;
    size_t block; /* elements processed at a time; fewer for large groups */
    enum commit_from from;
    struct pl_mixed mixed;
    struct commit_plan plan;
    double (*sum)[PL_RULE_SUMS]; /* [PL_TILES * n_members] in the first pass */
    double dot[PL_TILES];
    double clip; /* factor on the reduced vector, if that is kept */
};

/* The parameters of a tile, relative to the first element of the slice. Returns the number of
 * buffers, which follow them. */
static size_t commit_tile(const struct pl_store *s, int tile, size_t *from, size_t *n) {
    pl_tile(s->conf.slice.whole, tile, from, n);
    *from -= s->from;
    size_t all = *n, most = *from < s->n_parameters ? s->n_parameters - *from : 0;
    if (all > most) *n = most;
    return all - *n;
}

/* Adds the sums of a block. They are not finite if what they are taken over is not; only then it is
 * judged here. */
static void commit_add_sums(const struct pl_store *s, int m, size_t at, size_t n, double *sum) {
    pl_real tmp[PL_BLOCK];
    double add[PL_RULE_SUMS] = {0};
    struct store_member *member = &s->group.member[m];
    struct pl_correct_block b = pl_member_block(s, member, at, n, member->vector + at, tmp);
    s->correct->sums(s->conf.correct.conf, &b, add);
    bool finite = true;
    for (int i = 0; i < PL_RULE_SUMS; i++) finite = finite && isfinite(add[i]);
    if (!finite) {
        memset(add, 0, sizeof add);
        b = pl_member_judged(s, member, at, n, tmp);
        s->correct->sums(s->conf.correct.conf, &b, add);
    }
    for (int i = 0; i < PL_RULE_SUMS; i++) sum[i] += add[i];
}

/* First pass: the sums that corrections need. */
static void commit_sums(void *arg, int tile) {
    struct commit_job *job = arg;
    struct pl_store *s = job->s;
    size_t from, n_tile;
    commit_tile(s, tile, &from, &n_tile);
    for (int m = 0; m < s->group.n; m++) {
        double *sum = job->sum[tile * s->group.n + m];
        for (size_t at = from; at < from + n_tile; at += PL_BLOCK) {
            size_t n = from + n_tile - at < PL_BLOCK ? from + n_tile - at : PL_BLOCK;
            commit_add_sums(s, m, at, n, sum);
        }
    }
}

/* One corrected block of a member; written into mine [n] unless it exists already. */
static const pl_real *commit_corrected(const struct commit_job *job, int m, size_t at, size_t n,
                                       pl_real *room, pl_real *mine) {
    const struct pl_store *s = job->s;
    struct store_member *x = &s->group.member[m];
    if (job->from == COMMIT_IN_PLACE) return pl_member_judge(x, x->vector + at, n, pl_member_zeros);
    if (job->from == COMMIT_KEPT) return s->work.kept[m] + at;
    pl_member_correct(s, m, at, n, room, mine);
    return mine;
}

/* The pass between: inner products of all members and, last, of the previous result. Members that
 * are used as they are need no pass for the finite check: the square of one that fails is not
 * finite, and only then each is judged. */
static void commit_gram(void *arg, int tile) {
    struct commit_job *job = arg;
    struct pl_store *s = job->s;
    const struct store_work *w = &s->work;
    const pl_real *x[PL_GRAM_MAX + 1];
    size_t side = (size_t)s->group.n + 1, from, n_tile;
    double *sum = w->gram + (size_t)tile * side * side;
    pl_real *block = w->scratch + (size_t)tile * w->room_scratch;
    pl_real *room = block + side * PL_GRAM_BLOCK, shared[PL_BLOCK];
    int n_rows = s->group.n + pl_reduce_remembers(&s->conf.reduce);
    bool in_place = job->from == COMMIT_IN_PLACE;
    commit_tile(s, tile, &from, &n_tile);
    for (size_t at = from, left = n_tile; left > 0;) {
        size_t n = left < PL_GRAM_BLOCK ? left : PL_GRAM_BLOCK;
        left -= n;
        for (int m = 0; m < s->group.n; m++)
            x[m] = in_place ? s->group.member[m].vector + at
                            : commit_corrected(job, m, at, n, shared,
                                               w->n_kept > 0 ? w->kept[m] + at
                                                             : block + (size_t)m * PL_GRAM_BLOCK);
        if (n_rows > s->group.n) x[s->group.n] = s->last + at;
        bool added = pl_gram_add(n_rows, n, x, in_place ? left : 0, room, sum, side);
        if (!added && in_place) {
            for (int m = 0; m < s->group.n; m++) x[m] = commit_corrected(job, m, at, n, NULL, NULL);
            added = pl_gram_add(n_rows, n, x, 0, room, sum, side);
        }
        if (!added) pl_gram_add_wide(n_rows, n, x, sum, side);
        at += n;
    }
}

/* The only vector with a weight, if that is 1; -1 if there is no such vector. */
static int commit_only(const double *weight, int n) {
    int one = -1;
    for (int m = 0; m < n; m++)
        if (weight[m] != 0) one = one < 0 && weight[m] == 1 ? m : n;
    return one < n ? one : -1;
}

/* A weighted sum, or the member itself if the weights select one. */
static const pl_real *commit_mixed(const struct commit_job *job, const pl_real *const *member,
                                   const double *weight, size_t n, pl_real *out) {
    int one = commit_only(weight, job->mixed.width);
    if (one >= 0) return member[one];
    return pl_vec_weighted(job->mixed.width, member, weight, n, out);
}

/* What a tile needs besides its blocks: pointers to members and to their weighted sums. */
struct commit_workspace {
    const pl_real **member, **mixed;
    pl_real *corrected, *mixture, *lanes;
};

static struct commit_workspace commit_workspace(const struct commit_job *job, int tile) {
    const struct pl_store *s = job->s;
    struct commit_plan p = job->plan;
    pl_real *at = s->work.scratch + (size_t)tile * s->work.room_scratch;
    struct commit_workspace d = {.member = (const pl_real **)(void *)at};
    d.mixed = d.member + s->group.n + 1;
    d.corrected = at + p.pointers;
    d.mixture = d.corrected + p.corrected;
    d.lanes = d.mixture + p.mixture;
    return d;
}

/* The weighted sum of members that no rule changes, each of which is read once, several at a time.
 * The sum is not finite if one of them is not; then it is not used: returns NULL. */
static const pl_real *commit_sum_plain(const struct commit_job *job,
                                       const struct commit_workspace *d, size_t at, size_t n,
                                       pl_real *out) {
    struct pl_store *s = job->s;
    const double *weight = job->mixed.row;
    for (int m = 0; m < s->group.n; m++) {
        d->member[m] = s->group.member[m].vector + at;
        if ((pl_real)weight[m] == 0) pl_member_judge(&s->group.member[m], d->member[m], n, NULL);
    }
    d->member[s->group.n] = s->last ? s->last + at : NULL;
    int one = commit_only(weight, job->mixed.width);
    if (one == s->group.n) return d->member[one];
    if (one >= 0 && job->from == COMMIT_IN_PLACE)
        return commit_corrected(job, one, at, n, NULL, NULL);
    pl_vec_weighted(job->mixed.width, d->member, weight, n, out);
    return pl_vec_finite(out, n) ? out : NULL;
}

/* The same in general: each member is corrected and added while it is in the cache. */
static const pl_real *commit_sum(const struct commit_job *job, const struct commit_workspace *d,
                                 size_t at, size_t n, pl_real *out) {
    struct pl_store *s = job->s;
    const struct pl_mixed *mixed = &job->mixed;
    bool plain = job->from == COMMIT_IN_PLACE || job->from == COMMIT_COPIED;
    const pl_real *v = plain ? commit_sum_plain(job, d, at, n, out) : NULL;
    if (v) return v;
    pl_real room[PL_BLOCK];
    const pl_real *selected = NULL;
    int one = commit_only(mixed->row, mixed->width);
    bool first = true;
    for (int m = 0; m < s->group.n; m++) {
        if (s->group.member[m].finite == PL_FINITE_YES && mixed->row[m] == 0) continue;
        v = commit_corrected(job, m, at, n, room, m == one ? out : d->corrected);
        if (m == one)
            selected = v;
        else
            first = pl_vec_accumulate(1, &v, mixed->row + m, n, first, out);
    }
    if (selected) return selected;
    if (mixed->width > s->group.n) {
        v = s->last + at;
        first = pl_vec_accumulate(1, &v, mixed->row + s->group.n, n, first, out);
    }
    if (first) memset(out, 0, n * sizeof *out);
    return out;
}

static const pl_real *commit_reduce(struct commit_job *job, const struct commit_workspace *d,
                                    size_t at, size_t n, pl_real *out) {
    struct pl_store *s = job->s;
    const struct pl_mixed *mixed = &job->mixed;
    if (!mixed->rule) return commit_sum(job, d, at, n, out);
    pl_real room[PL_BLOCK];
    for (int m = 0; m < s->group.n; m++)
        d->member[m] = commit_corrected(job, m, at, n, room, d->corrected + (size_t)m * job->block);
    d->member[s->group.n] = s->last ? s->last + at : NULL;
    for (int i = 0; i < mixed->at.n; i++) {
        pl_real *to = d->mixture + (size_t)i * job->block;
        if (mixed->row)
            d->mixed[i] =
                commit_mixed(job, d->member, mixed->row + (size_t)i * (size_t)mixed->width, n, to);
        else
            d->mixed[i] = mixed->factor[i] == 1
                              ? d->member[i]
                              : pl_vec_weighted(1, d->member + i, mixed->factor + i, n, to);
    }
    mixed->rule->apply(mixed->conf, &mixed->at, d->mixed, n, d->lanes, out);
    return out;
}

/* One block of the new version, piece by piece. */
static void commit_optim(const struct commit_job *job, size_t at, size_t n, const pl_real *u) {
    struct pl_store *s = job->s;
    for (size_t end = at + n; at < end;) {
        struct pl_piece p = pl_member_piece(s, at, 0, end - at);
        struct pl_optim_at rate = job->at;
        bool has = pl_member_tensor(s, at, &p, &rate.count);
        struct pl_optim_block b = {.n = p.n,
                                   .u = u,
                                   .w = s->newest->model + at,
                                   .out = job->next->model + at,
                                   .ahead = s->looks_ahead ? job->next->lookahead + at : NULL,
                                   .own = s->own ? s->own[s->group.member[0].worker] + at : NULL,
                                   .direction = s->direction ? s->direction + at : NULL};
        for (int i = 0; i < s->optim->n_vectors; i++) b.state[i] = s->optim_state[i] + at;
        rate.lr *= p.lr_factor;
        if (s->optim->decouples) rate.weight_decay = s->conf.weight_decay * p.decay_factor;
        if (has)
            s->optim->step(s->conf.optim.conf, &rate, &b);
        else
            pl_member_keep(s, job->next, at, p.n);
        at += p.n;
        u += p.n;
    }
}

struct commit_tiles {
    void (*job)(void *arg, int tile);
    void *arg;
    int first;
};

static void commit_one(void *arg, int i) {
    const struct commit_tiles *t = arg;
    t->job(t->arg, t->first + i);
}

static void commit_tiles(struct pl_store *s, void (*job)(void *, int), void *arg) {
    const struct pl_slice *slice = &s->conf.slice;
    struct commit_tiles tiles = {job, arg, slice->first};
    int n = slice->end - slice->first;
    if (s->conf.parallel_for.run)
        s->conf.parallel_for.run(s->conf.parallel_for.ctx, n, commit_one, &tiles);
    else
        for (int i = 0; i < n; i++) commit_one(&tiles, i);
}

static int commit_allreduce(const struct pl_store *s, double *row, size_t width) {
    const struct pl_slice *slice = &s->conf.slice;
    return slice->allreduce ? slice->allreduce(slice->ctx, row, width) : PL_OK;
}

/* If the reduced vector is clipped: computes and keeps it, and its squared norm. */
static void commit_norm(void *arg, int tile) {
    struct commit_job *job = arg;
    struct pl_store *s = job->s;
    pl_real room[PL_BLOCK];
    size_t from, n_tile;
    commit_tile(s, tile, &from, &n_tile);
    struct commit_workspace workspace = commit_workspace(job, tile);
    double sum = 0;
    for (size_t at = from; at < from + n_tile; at += job->block) {
        size_t n = from + n_tile - at < job->block ? from + n_tile - at : job->block;
        const pl_real *u = commit_reduce(job, &workspace, at, n, room);
        sum += pl_vec_dot(u, u, n);
        memcpy(s->reduced + at, u, n * sizeof *u);
    }
    job->dot[tile] = sum;
}

/* As torch.nn.utils.clip_grad_norm_ does. */
static int commit_clip(struct pl_store *s, struct commit_job *job) {
    if (!s->reduced) return PL_OK;
    commit_tiles(s, commit_norm, job);
    if (commit_allreduce(s, job->dot, 1)) return PL_ERUN;
    double sum = 0;
    for (int t = 0; t < PL_TILES; t++) sum += job->dot[t];
    job->clip = s->conf.max_norm / (sqrt(sum) + 1e-6);
    if (!(job->clip < 1)) job->clip = 1;
    return PL_OK;
}

/* The reduced vector, or what is left of it after clipping, and weight decay. */
static const pl_real *commit_direction(struct commit_job *job, const struct commit_workspace *d,
                                       size_t at, size_t n, pl_real *out) {
    const struct pl_store *s = job->s;
    if (!s->reduced) return commit_reduce(job, d, at, n, out);
    pl_real clip = (pl_real)job->clip;
    for (size_t i = 0; i < n; i++) out[i] = clip * s->reduced[at + i];
    if (s->conf.weight_decay != 0 && !s->optim->decouples) pl_member_decay(s, at, n, out, out);
    return out;
}

/* Second pass: everything elementwise. */
static void commit_step(void *arg, int tile) {
    struct commit_job *job = arg;
    struct pl_store *s = job->s;
    pl_real reduced[PL_BLOCK];
    size_t from, n_tile, n_buffers = commit_tile(s, tile, &from, &n_tile);
    struct commit_workspace workspace = commit_workspace(job, tile);
    double dot = 0;
    for (size_t at = from; at < from + n_tile; at += job->block) {
        size_t n = from + n_tile - at < job->block ? from + n_tile - at : job->block;
        const pl_real *u = commit_direction(job, &workspace, at, n, reduced);
        commit_optim(job, at, n, u);
        if (s->last) {
            dot += pl_vec_dot(u, s->last + at, n);
            memcpy(s->last + at, u, n * sizeof *u);
        }
    }
    job->dot[tile] = dot;
    pl_members_buffers(s, job->next, from + n_tile, n_buffers);
}

/* Room for n sums of the first pass, which are 0. */
static bool commit_room_sums(struct store_work *w, size_t n) {
    if (n > w->room_sums) {
        free(w->sums);
        w->room_sums = (w->sums = malloc(n * sizeof *w->sums)) ? n : 0;
    }
    if (w->sums) memset(w->sums, 0, n * sizeof *w->sums);
    return w->sums != NULL;
}

/* Factors of corrections and takes. */
static int commit_correct(struct pl_store *s, struct commit_job *job, double lr) {
    struct store_group *g = &s->group;
    const struct pl_correct *c = s->correct;
    size_t n = (size_t)PL_TILES * (size_t)g->n;
    bool sums = pl_correct_sums(&s->conf.correct);
    if (sums) {
        if (!commit_room_sums(&s->work, n)) return PL_ENOMEM;
        job->sum = s->work.sums;
        commit_tiles(s, commit_sums, job);
        if (commit_allreduce(s, job->sum[0], (size_t)g->n * PL_RULE_SUMS)) return PL_ERUN;
    }
    for (int m = 0; m < g->n; m++) {
        struct pl_correct_at *at = &g->member[m].at;
        *at = (struct pl_correct_at){.lag = g->member[m].lag,
                                     .count = ++s->n_corrected,
                                     .member = m,
                                     .n_members = g->n,
                                     .lr = lr,
                                     .lr_max = s->lr_max,
                                     .n_workers = s->conf.n_workers};
        memcpy(at->number, s->correct_number, sizeof at->number);
        for (int t = 0; sums && t < PL_TILES; t++)
            for (int i = 0; i < c->n_sums; i++) at->sum[i] += job->sum[t * g->n + m][i];
        g->factor[m] = g->member[m].factor;
        if (c->factor) g->factor[m] *= c->factor(s->conf.correct.conf, at);
        memcpy(s->correct_number, at->number, sizeof at->number);
    }
    return PL_OK;
}

/* Blocks are shorter if every member has one in scratch: if a rule reads all of them at once. */
static struct commit_plan commit_plan(struct commit_job *job) {
    const struct pl_store *s = job->s;
    const struct pl_mixed *mixed = &job->mixed;
    size_t n = (size_t)s->group.n;
    bool mixes = mixed->row != NULL;
    bool scratch = job->from == COMMIT_CORRECTED || job->from == COMMIT_COPIED;
    for (int m = 0; m < s->group.n; m++) mixes |= mixed->factor[m] != 1;
    mixes &= mixed->rule != NULL;
    job->block = PL_GROUP_BLOCK / n & ~(size_t)15;
    if (job->block > PL_BLOCK || !mixed->rule || (!scratch && !mixes)) job->block = PL_BLOCK;
    if (job->block < 16) job->block = 16;
    return (struct commit_plan){.pointers = ((2 * n + 2) * sizeof(void *) / sizeof(pl_real) + 15) &
                                            ~(size_t)15,
                                .corrected = scratch ? (mixed->rule ? n : 1) * job->block : 0,
                                .mixture = mixes ? n * job->block : 0,
                                .lanes = mixed->rule ? PL_ROOM(n) : 0};
}

static bool commit_room_scratch(struct store_work *w, size_t room) {
    if (room <= w->room_scratch) return true;
    free(w->scratch);
    w->room_scratch = (room + 15) & ~(size_t)15;
    w->scratch = pl_vector_new(w->room_scratch * PL_TILES);
    if (!w->scratch) w->room_scratch = 0;
    return w->scratch != NULL;
}

/* Room for matrices of inner products, of which those of the tiles are 0. */
static bool commit_room_gram(struct store_work *w, size_t square) {
    size_t room = (PL_TILES + 1) * square;
    if (room > w->room_gram) {
        free(w->gram);
        w->room_gram = (w->gram = malloc(room * sizeof *w->gram)) ? room : 0;
    }
    if (w->gram) memset(w->gram, 0, PL_TILES * square * sizeof *w->gram);
    return w->gram != NULL;
}

/* The weights of the members, after the inner products that they may depend on. */
static int commit_mix(struct pl_store *s, struct commit_job *job) {
    struct store_group *g = &s->group;
    struct pl_rng rng;
    size_t side = (size_t)g->n + 1, square = side * side;
    struct pl_reduce_at at = {
        .n = g->n, .k = s->conf.k, .samples = g->samples, .worker = g->worker, .rng = &rng};
    pl_rng_init(&rng, s->conf.seed, PL_STREAM_REDUCE, 0, s->progress.n_commits);
    if (s->geometry && g->n <= PL_GRAM_MAX) {
        if (!commit_room_gram(&s->work, square) ||
            !commit_room_scratch(&s->work, side * (PL_GRAM_BLOCK + side)))
            return PL_ENOMEM;
        if (s->correct->apply && !pl_members_keep(s)) return PL_ENOMEM;
        commit_tiles(s, commit_gram, job);
        if (commit_allreduce(s, s->work.gram, square)) return PL_ERUN;
        if (s->correct->apply) job->from = COMMIT_KEPT;
        for (int m = 0; m < g->n; m++) /* every value was read */
            if (g->member[m].finite == PL_FINITE_UNKNOWN) g->member[m].finite = PL_FINITE_YES;
        double *sum = s->work.gram + PL_TILES * square;
        memset(sum, 0, square * sizeof *sum);
        for (size_t t = 0; t < PL_TILES; t++)
            for (size_t i = 0; i < square; i++) sum[i] += s->work.gram[t * square + i];
        for (size_t i = 0; i < side; i++)
            for (size_t j = 0; j < i; j++) sum[j * side + i] = sum[i * side + j];
        at.gram = sum;
    }
    int rc = pl_mix(s->mixer, &s->conf.reduce, &at, g->factor, &job->mixed);
    if (rc) return rc;
    job->plan = commit_plan(job);
    struct commit_plan *p = &job->plan;
    size_t room = p->pointers + p->corrected + p->mixture + p->lanes;
    return commit_room_scratch(&s->work, room) ? PL_OK : PL_ENOMEM;
}

struct pl_optim_at pl_commit_begin(struct pl_store *s, double lr) {
    struct pl_optim_at at = {.lr = lr,
                             .count = ++s->progress.n_commits,
                             .n_workers = s->conf.n_workers,
                             .base = s->group.member[0].base_id};
    memcpy(at.number, s->optim_number, sizeof at.number);
    if (s->optim->begin) s->optim->begin(s->conf.optim.conf, &at);
    memcpy(s->optim_number, at.number, sizeof at.number);
    return at;
}

/* Where blocks are read unless a pass keeps them. */
static enum commit_from commit_from(const struct pl_store *s) {
    if (s->correct->apply || s->decays || s->conf.sends == PL_SENDS_MODEL) return COMMIT_CORRECTED;
    for (int m = 0; m < s->group.n; m++)
        if (s->group.member[m].finite == PL_FINITE_WRITABLE) return COMMIT_COPIED;
    return COMMIT_IN_PLACE;
}

int pl_commit_write(struct pl_store *s, double factor, struct pl_version *next, double *dot) {
    bool moved = s->conf.sends != PL_SENDS_GRADIENT;
    bool by_k = s->conf.rate.by_k || (moved && s->conf.sum_members);
    double lr = (moved ? s->conf.outer : pl_store_rate(s)) * factor * (by_k ? s->group.n : 1);
    if (lr > s->lr_max) s->lr_max = lr;
    struct commit_job job = {.s = s, .next = next, .from = commit_from(s)};
    int rc = commit_correct(s, &job, lr);
    if (!rc) rc = commit_mix(s, &job);
    if (!rc) rc = commit_clip(s, &job);
    if (rc) return rc;
    job.at = pl_commit_begin(s, lr);
    pl_members_find_absent(s);
    if (s->conf.offload) return pl_store_offload(s, &job.at, job.mixed.row, job.next);
    if (s->conf.writes) s->conf.writes(s->conf.parallel_for.ctx, job.next->lookahead);
    commit_tiles(s, commit_step, &job);
    if (s->last && commit_allreduce(s, job.dot, 1)) return PL_ERUN;
    if ((rc = pl_members_agree(s)) != PL_OK) return rc;
    *dot = 0;
    for (int t = 0; t < PL_TILES; t++) *dot += job.dot[t];
    return PL_OK;
}
