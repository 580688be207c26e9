/* The sweep over a block of ratings: the inner loop of factorisation, for plain steps. Adaptive
 * ones are in mf_adaptive.c.
 *
 * A step reads two rows twice, once for the sums and once to change them. Sums are kept in vectors
 * of four lanes, in a fixed order, so the bits do not depend on the compiler.
 *
 * The rows of q in a block are accessed at random, so they are prefetched some ratings ahead. For
 * common k the number of vectors is a compile-time constant of the loop.
 *
 * Ratings are sorted by user, so a step waits for the p of the previous step, and with few factors
 * there is little else to do meanwhile. The plain step then takes two ratings at a time: see
 * sweep_pair. */
#include "base/isa.h"
#include "model/mf.h"

/* Vectors are passed by value only between functions that are inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define SWEEP_LANES 4
#define SWEEP_WIDE 8    /* lanes of the loops over many factors */
#define SWEEP_AHEAD 6   /* prefetch distance in ratings */
#define SWEEP_PAIRED 4  /* at most this many vectors: ratings go in pairs */
#define SWEEP_POLL 4096 /* entries between two polls of `cancel` */
#define SWEEP_LINE 16   /* floats per prefetched cache line */

/* Unaligned, and may alias floats: rows begin at multiples of four floats from any address. */
typedef float sweep_v4
    __attribute__((vector_size(sizeof(float) * SWEEP_LANES), aligned(sizeof(float)), may_alias));

typedef float sweep_v8
    __attribute__((vector_size(sizeof(float) * SWEEP_WIDE), aligned(sizeof(float)), may_alias));

typedef int32_t sweep_i4 __attribute__((vector_size(sizeof(float) * SWEEP_LANES)));

#define SWEEP_INLINE static inline __attribute__((always_inline))

struct sweep {
    const struct pl_grid_entry *at, *end, *block_end; /* of this piece, of all */
    float *p, *q;
    size_t row, n_vectors; /* floats per row; vectors per row of factors */
    size_t user, user_ahead;
    float mean, l2, lr;
    double loss;
};

SWEEP_INLINE sweep_v4 sweep_all(float x) {
    return (sweep_v4){x, x, x, x};
}

/* The sum of the lanes, in every lane. */
SWEEP_INLINE sweep_v4 sweep_sum(sweep_v4 v) {
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
    return v + __builtin_shufflevector(v, v, 1, 0, 3, 2);
}

SWEEP_INLINE void sweep_ask(const float *row, size_t n) {
    for (size_t j = 0; j < n; j += SWEEP_LINE) __builtin_prefetch(row + j, 1, 3);
}

/* Prefetches the rows of the entry SWEEP_AHEAD further on. A short row of p is prefetched again
 * with every rating; that is cheaper than a mispredicted branch at the end of a user's ratings. */
SWEEP_INLINE void sweep_look_ahead(struct sweep *s, size_t row) {
    const struct pl_grid_entry *e = s->at + SWEEP_AHEAD;
    if (e >= s->block_end) return;
    uint32_t step = e->where >> 24, item = e->where & PL_GRID_ITEM;
    if (step == PL_GRID_FAR) {
        s->user_ahead += item;
        return;
    }
    sweep_ask(s->q + item * row, row);
    if (step == 0 && row > SWEEP_LINE) return;
    s->user_ahead += step;
    sweep_ask(s->p + s->user_ahead * row, row);
}

SWEEP_INLINE sweep_v4 sweep_low(sweep_v8 v) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3);
}

SWEEP_INLINE sweep_v4 sweep_high(sweep_v8 v) {
    return __builtin_shufflevector(v, v, 4, 5, 6, 7);
}

/* n is at least 1. Vectors j, j + 4, j + 8, … are added up first, for each j of 0 to 3, and then
 * the four sums. */
SWEEP_INLINE sweep_v4 sweep_dot(const sweep_v4 *restrict p, const sweep_v4 *restrict q, size_t n) {
    const sweep_v8 *restrict wide_p = (const sweep_v8 *)p, *restrict wide_q = (const sweep_v8 *)q;
    if (n == 1) return p[0] * q[0];
    sweep_v8 ab = wide_p[0] * wide_q[0];
    if (n == 2) return sweep_low(ab) + sweep_high(ab);
    if (n == 3) return (sweep_low(ab) + p[2] * q[2]) + sweep_high(ab);
    sweep_v8 cd = wide_p[1] * wide_q[1];
    size_t j = 2;
    for (; j + 2 <= n / 2; j += 2) {
        ab += wide_p[j] * wide_q[j];
        cd += wide_p[j + 1] * wide_q[j + 1];
    }
    bool more = j < n / 2;
    if (more) ab += wide_p[j] * wide_q[j];
    sweep_v4 a = sweep_low(ab), c = sweep_low(cd);
    if (n % 2 && more) c += p[n - 1] * q[n - 1];
    if (n % 2 && !more) a += p[n - 1] * q[n - 1];
    return (a + c) + (sweep_high(ab) + sweep_high(cd));
}

/* p = keep p + mix q and q = keep q + mix p, with the old p. */
SWEEP_INLINE void sweep_move(sweep_v4 *restrict p, sweep_v4 *restrict q, size_t n, sweep_v4 keep,
                             sweep_v4 mix) {
    sweep_v8 *restrict wide_p = (sweep_v8 *)p, *restrict wide_q = (sweep_v8 *)q;
    for (size_t j = 0; j < n / 2; j++) {
        sweep_v8 old_p = wide_p[j], old_q = wide_q[j];
        wide_p[j] = keep[0] * old_p + mix[0] * old_q;
        wide_q[j] = keep[0] * old_q + mix[0] * old_p;
    }
    if (n % 2) {
        sweep_v4 old_p = p[n - 1], old_q = q[n - 1];
        p[n - 1] = keep * old_p + mix * old_q;
        q[n - 1] = keep * old_q + mix * old_p;
    }
}

SWEEP_INLINE void sweep_plain_step(struct sweep *s, float *restrict row_p, float *restrict row_q,
                                   float rating, size_t n) {
    sweep_v4 *restrict p = (sweep_v4 *)row_p, *restrict q = (sweep_v4 *)row_q;
    float *restrict a = row_p + SWEEP_LANES * n + PL_MF_BIAS;
    float *restrict b = row_q + SWEEP_LANES * n + PL_MF_BIAS;
    sweep_v4 e = sweep_all(rating - s->mean - *a - *b) - sweep_sum(sweep_dot(p, q, n));
    sweep_v4 keep = sweep_all(1 - s->lr * s->l2), mix = sweep_all(s->lr) * e;
    sweep_move(p, q, n, keep, mix);
    *a = keep[0] * *a + mix[0];
    *b = keep[0] * *b + mix[0];
    s->loss += (double)e[0] * (double)e[0];
}

/* a where `yes` has all bits set, b where it has none */
SWEEP_INLINE sweep_v4 sweep_choose(sweep_i4 yes, sweep_v4 a, sweep_v4 b) {
    return (sweep_v4)(((sweep_i4)a & yes) | ((sweep_i4)b & ~yes));
}

/* Two plain steps, for the ratings at s->at, which have different items. If the user is the `same`,
 * the second starts from p' = keep p + lr e1 q1 and a' = keep a + lr e1, so its error is
 *
 *     e2 = rest - (a' + p'.q2) = rest - keep (a + p.q2) - e1 lr (1 + q1.q2)
 *
 * All three products use values from before the first step, and only the two errors depend on each
 * other. If the user is another, `keep` is 1 and the last term 0. This is selected without a
 * branch, because the end of a user's few ratings in a block is unpredictable. */
SWEEP_INLINE void sweep_pair(struct sweep *s, float *row_p1, float *row_q1, float *row_p2,
                             float *row_q2, size_t n, bool same_user) {
    sweep_v4 *to_p1 = (sweep_v4 *)row_p1, *to_q1 = (sweep_v4 *)row_q1;
    sweep_v4 *to_p2 = (sweep_v4 *)row_p2, *to_q2 = (sweep_v4 *)row_q2;
    sweep_v4 p1[SWEEP_PAIRED] = {{0}}, q1[SWEEP_PAIRED] = {{0}};
    sweep_v4 p2[SWEEP_PAIRED] = {{0}}, q2[SWEEP_PAIRED] = {{0}};
    size_t bias = SWEEP_LANES * n + PL_MF_BIAS;
    float a1 = row_p1[bias], b1 = row_q1[bias], a2 = row_p2[bias], b2 = row_q2[bias];
    for (size_t j = 0; j < n; j++) { /* all reads come before the first write */
        p1[j] = to_p1[j];
        q1[j] = to_q1[j];
        p2[j] = to_p2[j];
        q2[j] = to_q2[j];
    }
    int32_t bits = same_user ? -1 : 0;
    sweep_i4 same = {bits, bits, bits, bits};
    sweep_v4 lr = sweep_all(s->lr), one = sweep_all(1), keep = sweep_all(1 - s->lr * s->l2);
    sweep_v4 pq1 = sweep_sum(sweep_dot(p1, q1, n)), pq2 = sweep_sum(sweep_dot(p2, q2, n));
    sweep_v4 qq = lr * (one + sweep_sum(sweep_dot(q1, q2, n)));
    sweep_v4 rest = sweep_all(s->at[1].value - s->mean - b2) -
                    sweep_choose(same, keep, one) * (sweep_all(a2) + pq2);
    sweep_v4 e1 = sweep_all(s->at[0].value - s->mean - a1 - b1) - pq1;
    sweep_v4 e2 = rest - e1 * sweep_choose(same, qq, sweep_all(0));
    sweep_v4 mix1 = lr * e1, mix2 = lr * e2;
    sweep_move(p1, q1, n, keep, mix1);
    for (size_t j = 0; j < n; j++) p2[j] = sweep_choose(same, p1[j], p2[j]);
    sweep_move(p2, q2, n, keep, mix2);
    for (size_t j = 0; j < n; j++) {
        to_p1[j] = p1[j];
        to_q1[j] = q1[j];
        to_p2[j] = p2[j]; /* overwrites p1 if that is the same row */
        to_q2[j] = q2[j];
    }
    a1 = keep[0] * a1 + mix1[0];
    row_p1[bias] = a1;
    row_q1[bias] = keep[0] * b1 + mix1[0];
    row_p2[bias] = keep[0] * (same_user ? a1 : a2) + mix2[0];
    row_q2[bias] = keep[0] * b2 + mix2[0];
    s->loss += (double)e1[0] * (double)e1[0];
    s->loss += (double)e2[0] * (double)e2[0];
}

/* Processes the ratings at s->at and after it as a pair, if they can form one. */
SWEEP_INLINE bool sweep_paired(struct sweep *s, size_t n) {
    if (s->end - s->at < 2) return false;
    uint32_t step1 = s->at[0].where >> 24, item1 = s->at[0].where & PL_GRID_ITEM;
    uint32_t step2 = s->at[1].where >> 24, item2 = s->at[1].where & PL_GRID_ITEM;
    if (step1 == PL_GRID_FAR || step2 == PL_GRID_FAR || item1 == item2) return false;
    size_t row = SWEEP_LANES * n + PL_MF_TAIL, user = s->user + step1;
    s->user = user + step2;
    sweep_pair(s, s->p + user * row, s->q + item1 * row, s->p + s->user * row, s->q + item2 * row,
               n, step2 == 0);
    return true;
}

/* Processes s->at … s->end, with n vectors of factors per row. `pairs` is set if n is a
 * compile-time constant of at most SWEEP_PAIRED. Works on a copy: behind a pointer, every store of
 * a factor might change it. */
SWEEP_INLINE void sweep_piece(struct sweep *whole, size_t n, bool pairs) {
    size_t row = SWEEP_LANES * n + PL_MF_TAIL;
    struct sweep s = *whole;
    for (; s.at < s.end; s.at++) {
        uint32_t step = s.at->where >> 24, item = s.at->where & PL_GRID_ITEM;
        sweep_look_ahead(&s, row);
        if (pairs && sweep_paired(&s, n)) {
            s.at++;
            sweep_look_ahead(&s, row);
            continue;
        }
        if (step == PL_GRID_FAR) {
            s.user += item;
            continue;
        }
        s.user += step;
        float *p = s.p + s.user * row, *q = s.q + item * row;
        sweep_plain_step(&s, p, q, s.at->value, n);
    }
    *whole = s;
}

static PL_VARIANTS(void, sweep_sized, (struct sweep * s), (s)) {
    switch (s->n_vectors) { /* k = 8, 16, 32, 40, 64, 100, 128 */
#ifndef PL_ONE_VARIANT
    case 2: sweep_piece(s, 2, true); break;
    case 4: sweep_piece(s, 4, true); break;
    case 8: sweep_piece(s, 8, false); break;
    case 10: sweep_piece(s, 10, false); break;
    case 16: sweep_piece(s, 16, false); break;
    case 25: sweep_piece(s, 25, false); break;
    case 32: sweep_piece(s, 32, false); break;
#endif
    default: sweep_piece(s, s->n_vectors, false); break;
    }
}

static struct sweep sweep_begin(const struct pl_mf *m, const struct pl_grid_entry *entry, size_t n,
                                double lr, float *p, float *q) {
    struct sweep s = {.at = entry,
                      .end = entry,
                      .block_end = entry + n,
                      .p = p,
                      .q = q,
                      .row = m->row,
                      .n_vectors = m->width / SWEEP_LANES,
                      .mean = m->mean,
                      .l2 = m->l2,
                      .lr = (float)lr};
    /* the first rows were not prefetched; do it here */
    for (size_t i = 0; i < SWEEP_AHEAD && i < n; i++) {
        uint32_t step = entry[i].where >> 24;
        s.user_ahead += step == PL_GRID_FAR ? entry[i].where & PL_GRID_ITEM : step;
    }
    return s;
}

void pl_mf_ranges(const struct pl_model *base, int g, int row, int col, size_t from[2],
                  size_t n[2]) {
    const struct pl_mf *m = (const struct pl_mf *)base;
    uint32_t first, count;
    pl_grid_segment(m->ratings->n_users, g, row, &first, &count);
    from[0] = first * m->row;
    n[0] = count * m->row;
    pl_grid_segment(m->ratings->n_items, g, col, &first, &count);
    from[1] = ((size_t)m->ratings->n_users + first) * m->row;
    n[1] = count * m->row;
}

static int sweep_plain(const struct pl_mf *m, const struct pl_grid *grid, int row, int col,
                       double lr, float *p, float *q, double *loss,
                       const struct pl_cancel *cancel) {
    size_t n, size = pl_grid_size(grid, row, col);
    const struct pl_grid_entry *entry = pl_grid_block(grid, row, col, &n);
    struct sweep s = sweep_begin(m, entry, n, lr, p, q);
    while (s.at < s.block_end) {
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        s.end = s.block_end - s.at > SWEEP_POLL ? s.at + SWEEP_POLL : s.block_end;
        sweep_sized(&s);
    }
    *loss = size ? s.loss / (double)size : 0;
    return PL_OK;
}

int pl_mf_sweep(const struct pl_model *base, const struct pl_grid *grid, int row, int col,
                enum pl_mf_step step, double lr, bool first, float *p, float *q, double *loss,
                const struct pl_cancel *cancel) {
    const struct pl_mf *m = (const struct pl_mf *)base;
    if (step == PL_MF_PLAIN) return sweep_plain(m, grid, row, col, lr, p, q, loss, cancel);
    return pl_mf_sweep_adaptive(m, grid, row, col, lr, first, p, q, loss, cancel);
}
