/* Reading the members of a group: what is judged is what is used. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "core/store_state.h"

const pl_real pl_member_zeros[PL_BLOCK];

/* Tiles run on several threads. */
static void member_spoil(struct store_member *m) {
    __atomic_store_n(&m->finite, PL_FINITE_NO, __ATOMIC_RELAXED);
}

const pl_real *pl_member_judge(struct store_member *m, const pl_real *v, size_t n,
                               const pl_real *instead) {
    if (__atomic_load_n(&m->finite, __ATOMIC_RELAXED) == PL_FINITE_YES || pl_vec_finite(v, n))
        return v;
    member_spoil(m);
    return instead;
}

/* A block of a member, judged. What its worker can still write to is first copied to copy [n], so
 * that what is judged is what is used. */
static const pl_real *member_read(struct store_member *m, size_t at, size_t n,
                                  const pl_real *instead, pl_real *copy) {
    const pl_real *v = m->vector + at;
    enum pl_finite finite = __atomic_load_n(&m->finite, __ATOMIC_RELAXED);
    /* one that is spoiled may be writable as well */
    if (finite == PL_FINITE_WRITABLE || finite == PL_FINITE_NO) v = memcpy(copy, v, n * sizeof *v);
    return pl_member_judge(m, v, n, instead);
}

int pl_members_agree(struct pl_store *s) {
    const struct pl_slice *slice = &s->conf.slice;
    size_t n = (size_t)s->group.n;
    if (!slice->allreduce || n == 0) return PL_OK;
    double *row = calloc(PL_TILES * n, sizeof *row);
    if (!row) return PL_ENOMEM;
    for (size_t m = 0; m < n && slice->first < slice->end; m++)
        row[(size_t)slice->first * n + m] = s->group.member[m].finite == PL_FINITE_NO;
    int rc = slice->allreduce(slice->ctx, row, n);
    for (size_t i = 0; !rc && i < PL_TILES * n; i++)
        if (row[i] != 0) s->group.member[i % n].finite = PL_FINITE_NO;
    free(row);
    return rc;
}

void pl_members_find_absent(struct pl_store *s) {
    for (int t = 0; s->skip && t < s->conf.tensors.n; t++) {
        s->skip[t] = s->group.n > 0;
        for (int m = 0; m < s->group.n && s->skip[t]; m++) {
            const struct store_member *x = &s->group.member[m];
            s->skip[t] =
                x->finite == PL_FINITE_NO || (x->absent && x->absent[t / 64] >> t % 64 & 1);
        }
    }
}

void pl_members_count_absent(struct pl_store *s) {
    for (int t = 0; s->skip && t < s->conf.tensors.n; t++) s->n_skipped[t] += s->skip[t];
}

void pl_member_keep(const struct pl_store *s, const struct pl_version *next, size_t at, size_t n) {
    memcpy(next->model + at, s->newest->model + at, n * sizeof(pl_real));
    if (s->looks_ahead)
        memcpy(next->lookahead + at, s->newest->lookahead + at, n * sizeof(pl_real));
}

bool pl_member_tensor(const struct pl_store *s, size_t at, struct pl_piece *p, uint64_t *count) {
    const struct pl_model_tensors *all = &s->conf.tensors;
    int t = s->skip ? pl_model_tensors_find(all, at) : all->n;
    if (t == all->n) return true;
    if (p->n > all->end[t] - at) p->n = all->end[t] - at;
    *count -= s->n_skipped[t];
    return !s->skip[t];
}

bool pl_members_keep(struct pl_store *s) {
    struct store_work *w = &s->work;
    if (s->group.n <= w->n_kept) return true;
    if (!PL_RESIZE(w->kept, s->group.n)) return false;
    while (w->n_kept < s->group.n)
        if (!(w->kept[w->n_kept++] = pl_vector_new(s->conf.dim))) return w->n_kept--, false;
    return true;
}

/* One value of a member, judged. */
static pl_real member_value(struct store_member *m, size_t at, pl_real instead) {
    pl_real v = *(const volatile pl_real *)&m->vector[at]; /* read once */
    if (isfinite(v)) return v;
    member_spoil(m);
    return instead;
}

static const pl_real *member_velocity(const struct pl_store *s, int worker, size_t at) {
    switch (s->optim->velocity) {
    case PL_VELOCITY_STATE: return s->optim_state[0] + at;
    case PL_VELOCITY_OWN: return s->own[worker] + at;
    case PL_VELOCITY_DIRECTION: return s->direction ? s->direction + at : NULL;
    default: return NULL;
    }
}

void pl_member_decay(const struct pl_store *s, size_t at, size_t n, const pl_real *g,
                     pl_real *out) {
    const pl_real *restrict w = s->newest->model + at;
    for (size_t i = 0; i < n;) {
        struct pl_piece p = pl_member_piece(s, at, i, n);
        pl_real decay = (pl_real)(s->conf.weight_decay * p.decay_factor);
        for (size_t end = i + p.n; i < end; i++) out[i] = g[i] + decay * w[i];
    }
}

struct pl_piece pl_member_piece(const struct pl_store *s, size_t at, size_t i, size_t n) {
    struct pl_piece p = pl_ranges_piece(&s->conf.ranges, s->from + at + i, s->from + at + n);
    if (s->conf.sends != PL_SENDS_GRADIENT) p.lr_factor = 1;
    return p;
}

struct pl_correct_block pl_member_block(const struct pl_store *s, const struct store_member *m,
                                        size_t at, size_t n, const pl_real *g, pl_real *tmp) {
    struct pl_correct_block b = {.n = n,
                                 .g = g,
                                 .w = s->newest->model + at,
                                 .base = m->base ? m->base->lookahead + at : NULL,
                                 .velocity = member_velocity(s, m->worker, at)};
    for (int i = 0; i < s->correct->n_vectors; i++) b.state[i] = s->correct_state[i] + at;
    if (s->conf.sends == PL_SENDS_MODEL) {
        for (size_t i = 0; i < n; i++) tmp[i] = b.w[i] - b.g[i];
        b.g = tmp;
    } else if (s->decays) {
        pl_member_decay(s, at, n, b.g, tmp);
        b.g = tmp;
    }
    return b;
}

struct pl_correct_block pl_member_judged(const struct pl_store *s, struct store_member *m,
                                         size_t at, size_t n, pl_real *tmp) {
    const pl_real *nothing =
        s->conf.sends == PL_SENDS_MODEL ? s->newest->model + at : pl_member_zeros;
    return pl_member_block(s, m, at, n, member_read(m, at, n, nothing, tmp), tmp);
}

/* Piece by piece: each range has its own learning rate. */
static void member_apply(const struct pl_store *s, const struct store_member *m, size_t at,
                         const struct pl_correct_block *b, pl_real *out) {
    for (size_t i = 0; i < b->n;) {
        struct pl_piece p = pl_member_piece(s, at, i, b->n);
        struct pl_correct_at rate = m->at;
        struct pl_correct_block part = {.n = p.n,
                                        .g = b->g + i,
                                        .w = b->w + i,
                                        .base = b->base ? b->base + i : NULL,
                                        .velocity = b->velocity ? b->velocity + i : NULL,
                                        .room = b->room + i,
                                        .room_is_set = b->room_is_set};
        for (int v = 0; v < s->correct->n_vectors; v++) part.state[v] = b->state[v] + i;
        rate.lr *= p.lr_factor;
        rate.lr_max *= p.lr_factor;
        s->correct->apply(s->conf.correct.conf, &rate, &part, out + i);
        i += p.n;
    }
}

void pl_member_correct(const struct pl_store *s, int m, size_t at, size_t n, pl_real *room,
                       pl_real *out) {
    pl_real tmp[PL_BLOCK];
    struct pl_correct_block b = pl_member_judged(s, &s->group.member[m], at, n, tmp);
    b.room = room;
    b.room_is_set = m > 0;
    if (s->correct->apply)
        member_apply(s, &s->group.member[m], at, &b, out);
    else
        memcpy(out, b.g, n * sizeof *out);
}

/* The member that is the last result of the first worker; NULL if none is. */
static struct store_member *member_first(const struct pl_store *s) {
    for (int m = s->group.n - 1; m >= 0; m--)
        if (s->group.member[m].worker == 0) return &s->group.member[m];
    return NULL;
}

/* Whole numbers have no mean. Those of the first worker count, so that one of them never goes back
 * because a slower worker began with an older one. */
static pl_real member_whole(const struct pl_store *s, size_t i) {
    struct store_member *first = member_first(s);
    pl_real now = s->newest->model[i];
    return first ? member_value(first, i, now) : now;
}

static pl_real member_mean(const struct pl_store *s, size_t i) {
    double sum = 0;
    for (int m = 0; m < s->group.n; m++)
        sum += (double)member_value(&s->group.member[m], i, s->newest->model[i]);
    return (pl_real)(sum / s->group.n);
}

void pl_members_buffers(const struct pl_store *s, const struct pl_version *next, size_t from,
                        size_t n) {
    for (size_t i = from; i < from + n;) {
        struct pl_piece p = pl_member_piece(s, i, 0, from + n - i);
        for (size_t end = i + p.n; i < end; i++)
            next->model[i] = next->lookahead[i] = p.whole ? member_whole(s, i) : member_mean(s, i);
    }
}
