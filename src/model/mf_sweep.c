/* The sweep over a block of ratings: the inner loop of factorisation.
 *
 * A step reads two rows twice, once for the sums and once to change them. Sums are kept in vectors
 * of four lanes, in a fixed order, so the bits do not depend on the compiler.
 *
 * LIBMF's G needs the mean square of a gradient l2 p - e q. The first pass already gives the sums
 * p.q, p.p and q.q, so the gradient itself is never formed:
 *
 *     p' = p - c (l2 p - e q) = (1 - c l2) p + (c e) q,       c = lr / sqrt(G)
 *     |l2 p - e q|^2 = l2^2 p.p - 2 l2 e p.q + e^2 q.q
 *
 * The rows of q in a block are accessed at random, so they are prefetched some ratings ahead. For
 * common k the number of vectors is a compile-time constant of the loop.
 *
 * Ratings are sorted by user, so a step waits for the p of the previous step, and with few factors
 * there is little else to do meanwhile. The plain step then takes two ratings at a time: see
 * sweep_pair. */
#include <math.h>
#include <string.h>

#include "model/mf.h"

#define SWEEP_LANES 4
#define SWEEP_SLOW (PL_MF_SLOW / SWEEP_LANES) /* vectors of slow factors */
#define SWEEP_AHEAD 6                         /* prefetch distance in ratings */
#define SWEEP_PAIRED 4                        /* at most this many vectors: ratings go in pairs */
#define SWEEP_POLL 4096                       /* entries between two polls of `cancel` */
#define SWEEP_LINE 16                         /* floats per prefetched cache line */

/* Unaligned, and may alias floats: rows begin at multiples of four floats from any address. */
typedef float sweep_v4
    __attribute__((vector_size(sizeof(float) * SWEEP_LANES), aligned(sizeof(float)), may_alias));

typedef int32_t sweep_i4 __attribute__((vector_size(sizeof(float) * SWEEP_LANES)));

#define SWEEP_INLINE static inline __attribute__((always_inline))

struct sweep {
    const struct pl_grid_entry *at, *end, *block_end; /* of this piece, of all */
    float *p, *q;
    size_t row, n_vectors; /* floats per row; vectors per row of factors */
    size_t user, user_ahead;
    float mean, l2, lr;
    float slow_share, fast_share; /* 1 / number of factors of each kind */
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

/* n is at least 1 */
SWEEP_INLINE sweep_v4 sweep_dot(const sweep_v4 *restrict p, const sweep_v4 *restrict q, size_t n) {
    sweep_v4 a = p[0] * q[0];
    size_t j = 4;
    if (n == 1) return a;
    sweep_v4 b = p[1] * q[1];
    if (n == 2) return a + b;
    sweep_v4 c = p[2] * q[2];
    if (n == 3) return (a + c) + b;
    sweep_v4 d = p[3] * q[3];
    for (; j + 4 <= n; j += 4) {
        a += p[j] * q[j];
        b += p[j + 1] * q[j + 1];
        c += p[j + 2] * q[j + 2];
        d += p[j + 3] * q[j + 3];
    }
    if (j < n) a += p[j] * q[j];
    if (j + 1 < n) b += p[j + 1] * q[j + 1];
    if (j + 2 < n) c += p[j + 2] * q[j + 2];
    return (a + c) + (b + d);
}

/* p.q, p.p and q.q of n vectors, in every lane. */
struct sweep_sums {
    sweep_v4 pq, pp, qq;
};

SWEEP_INLINE struct sweep_sums sweep_sums(const sweep_v4 *restrict p, const sweep_v4 *restrict q,
                                          size_t n) {
    sweep_v4 pq = p[0] * q[0], pp = p[0] * p[0], qq = q[0] * q[0];
    if (n == 1) return (struct sweep_sums){sweep_sum(pq), sweep_sum(pp), sweep_sum(qq)};
    sweep_v4 pq2 = p[1] * q[1], pp2 = p[1] * p[1], qq2 = q[1] * q[1];
    size_t j = 2;
    for (; j + 2 <= n; j += 2) {
        pq += p[j] * q[j];
        pp += p[j] * p[j];
        qq += q[j] * q[j];
        pq2 += p[j + 1] * q[j + 1];
        pp2 += p[j + 1] * p[j + 1];
        qq2 += q[j + 1] * q[j + 1];
    }
    if (j < n) {
        pq += p[j] * q[j];
        pp += p[j] * p[j];
        qq += q[j] * q[j];
    }
    return (struct sweep_sums){sweep_sum(pq + pq2), sweep_sum(pp + pp2), sweep_sum(qq + qq2)};
}

/* p = keep_p p + mix_p q and q = keep_q q + mix_q p, with the old p. */
SWEEP_INLINE void sweep_move(sweep_v4 *restrict p, sweep_v4 *restrict q, size_t n, sweep_v4 keep_p,
                             sweep_v4 mix_p, sweep_v4 keep_q, sweep_v4 mix_q) {
    for (size_t j = 0; j < n; j++) {
        sweep_v4 old_p = p[j], old_q = q[j];
        p[j] = keep_p * old_p + mix_p * old_q;
        q[j] = keep_q * old_q + mix_q * old_p;
    }
}

SWEEP_INLINE void sweep_plain_step(struct sweep *s, float *restrict row_p, float *restrict row_q,
                                   float rating, size_t n) {
    sweep_v4 *restrict p = (sweep_v4 *)row_p, *restrict q = (sweep_v4 *)row_q;
    float *restrict a = row_p + SWEEP_LANES * n + PL_MF_BIAS;
    float *restrict b = row_q + SWEEP_LANES * n + PL_MF_BIAS;
    sweep_v4 e = sweep_all(rating - s->mean - *a - *b) - sweep_sum(sweep_dot(p, q, n));
    sweep_v4 keep = sweep_all(1 - s->lr * s->l2), mix = sweep_all(s->lr) * e;
    sweep_move(p, q, n, keep, mix, keep, mix);
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
    sweep_move(p1, q1, n, keep, mix1, keep, mix1);
    for (size_t j = 0; j < n; j++) p2[j] = sweep_choose(same, p1[j], p2[j]);
    sweep_move(p2, q2, n, keep, mix2, keep, mix2);
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

/* One kind of factors; rate_p and rate_q are lr / sqrt(G). Returns the growth of G for p and q. */
SWEEP_INLINE void sweep_adaptive_part(const struct sweep *s, const struct sweep_sums *sums,
                                      sweep_v4 *restrict p, sweep_v4 *restrict q, size_t n,
                                      sweep_v4 rate_p, sweep_v4 rate_q, sweep_v4 e, float share,
                                      float *grow_p, float *grow_q) {
    sweep_v4 l2 = sweep_all(s->l2), one = sweep_all(1), by = sweep_all(share);
    sweep_v4 both = (l2 + l2) * e * sums->pq;
    sweep_move(p, q, n, one - rate_p * l2, rate_p * e, one - rate_q * l2, rate_q * e);
    *grow_p = (by * (l2 * l2 * sums->pp - both + e * e * sums->qq))[0];
    *grow_q = (by * (l2 * l2 * sums->qq - both + e * e * sums->pp))[0];
}

/* lr / sqrt(x) of each lane. gcc and clang turn a loop over floats into one vector square root;
 * vector types have no operator for it. */
SWEEP_INLINE sweep_v4 sweep_rate(sweep_v4 x, sweep_v4 lr) {
    float lane[SWEEP_LANES];
    memcpy(lane, &x, sizeof lane);
    for (size_t j = 0; j < SWEEP_LANES; j++) lane[j] = sqrtf(lane[j]);
    memcpy(&x, lane, sizeof lane);
    return lr / x;
}

/* tail: bias, G_slow, G_fast, G_bias. lr / sqrt of each G; the lane of the bias is unused. */
SWEEP_INLINE sweep_v4 sweep_rates(sweep_v4 tail, float lr) {
    return sweep_rate(__builtin_shufflevector(tail, tail, 1, 1, 2, 3), sweep_all(lr));
}

/* The tail after a step; G_slow and G_fast grow by the given amounts. */
SWEEP_INLINE sweep_v4 sweep_tail(sweep_v4 tail, sweep_v4 rate, float l2, float e, float grow_slow,
                                 float grow_fast) {
    float slope = l2 * tail[PL_MF_BIAS] - e;
    return tail + (sweep_v4){-rate[PL_MF_G_BIAS] * slope, grow_slow, grow_fast, slope * slope};
}

SWEEP_INLINE void sweep_adaptive_step(struct sweep *s, float *restrict row_p, float *restrict row_q,
                                      float rating, size_t n, bool first) {
    sweep_v4 *restrict p = (sweep_v4 *)row_p, *restrict q = (sweep_v4 *)row_q;
    sweep_v4 tail_p = p[n], tail_q = q[n]; /* read whole: partial reads would stall */
    size_t n_slow = n < SWEEP_SLOW ? n : SWEEP_SLOW, n_fast = n - n_slow;
    sweep_v4 rate_p = sweep_rates(tail_p, s->lr), rate_q = sweep_rates(tail_q, s->lr);
    float grow_p[2] = {0, 0}, grow_q[2] = {0, 0};
    struct sweep_sums slow = sweep_sums(p, q, n_slow), fast = {{0}, {0}, {0}};
    if (first && n_fast)
        fast.pq = sweep_sum(sweep_dot(p + n_slow, q + n_slow, n_fast));
    else if (n_fast)
        fast = sweep_sums(p + n_slow, q + n_slow, n_fast);
    sweep_v4 e =
        sweep_all(rating - s->mean - tail_p[PL_MF_BIAS] - tail_q[PL_MF_BIAS]) - (slow.pq + fast.pq);
    sweep_adaptive_part(s, &slow, p, q, n_slow, sweep_all(rate_p[PL_MF_G_SLOW]),
                        sweep_all(rate_q[PL_MF_G_SLOW]), e, s->slow_share, &grow_p[0], &grow_q[0]);
    if (n_fast && !first)
        sweep_adaptive_part(s, &fast, p + n_slow, q + n_slow, n_fast,
                            sweep_all(rate_p[PL_MF_G_FAST]), sweep_all(rate_q[PL_MF_G_FAST]), e,
                            s->fast_share, &grow_p[1], &grow_q[1]);
    p[n] = sweep_tail(tail_p, rate_p, s->l2, e[0], grow_p[0], grow_p[1]);
    q[n] = sweep_tail(tail_q, rate_q, s->l2, e[0], grow_q[0], grow_q[1]);
    s->loss += (double)e[0] * (double)e[0];
}

enum sweep_mode { SWEEP_PLAIN, SWEEP_ADAPTIVE, SWEEP_FIRST };

/* Processes s->at … s->end, with n vectors of factors per row. `pairs` is set if n is a
 * compile-time constant of at most SWEEP_PAIRED. Works on a copy: behind a pointer, every store of
 * a factor might change it. */
SWEEP_INLINE void sweep_piece(struct sweep *whole, size_t n, enum sweep_mode mode, bool pairs) {
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
        if (mode == SWEEP_PLAIN)
            sweep_plain_step(&s, p, q, s.at->value, n);
        else
            sweep_adaptive_step(&s, p, q, s.at->value, n, mode == SWEEP_FIRST);
    }
    *whole = s;
}

SWEEP_INLINE void sweep_sized(struct sweep *s, enum sweep_mode mode) {
    switch (s->n_vectors) { /* k = 8, 16, 32, 40, 64, 100, 128 */
    case 2: sweep_piece(s, 2, mode, mode == SWEEP_PLAIN); break;
    case 4: sweep_piece(s, 4, mode, mode == SWEEP_PLAIN); break;
    case 8: sweep_piece(s, 8, mode, false); break;
    case 10: sweep_piece(s, 10, mode, false); break;
    case 16: sweep_piece(s, 16, mode, false); break;
    case 25: sweep_piece(s, 25, mode, false); break;
    case 32: sweep_piece(s, 32, mode, false); break;
    default: sweep_piece(s, s->n_vectors, mode, false); break;
    }
}

static void sweep_plain(struct sweep *s) {
    sweep_sized(s, SWEEP_PLAIN);
}

static void sweep_adaptive(struct sweep *s) {
    sweep_sized(s, SWEEP_ADAPTIVE);
}

static void sweep_first(struct sweep *s) {
    sweep_sized(s, SWEEP_FIRST);
}

static struct sweep sweep_begin(const struct pl_mf *m, const struct pl_grid_entry *entry, size_t n,
                                double lr, float *p, float *q) {
    size_t n_slow = m->k < PL_MF_SLOW ? m->k : PL_MF_SLOW, n_fast = m->k - n_slow;
    struct sweep s = {.at = entry,
                      .end = entry,
                      .block_end = entry + n,
                      .p = p,
                      .q = q,
                      .row = m->row,
                      .n_vectors = m->width / SWEEP_LANES,
                      .mean = m->mean,
                      .l2 = m->l2,
                      .lr = (float)lr,
                      .slow_share = 1 / (float)n_slow,
                      .fast_share = n_fast ? 1 / (float)n_fast : 0};
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

int pl_mf_sweep(const struct pl_model *base, const struct pl_grid *grid, int row, int col,
                enum pl_mf_step step, double lr, bool first, float *p, float *q, double *loss,
                const struct pl_cancel *cancel) {
    size_t n, size = pl_grid_size(grid, row, col);
    const struct pl_grid_entry *entry = pl_grid_block(grid, row, col, &n);
    struct sweep s = sweep_begin((const struct pl_mf *)base, entry, n, lr, p, q);
    while (s.at < s.block_end) {
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        s.end = s.block_end - s.at > SWEEP_POLL ? s.at + SWEEP_POLL : s.block_end;
        if (step == PL_MF_PLAIN)
            sweep_plain(&s);
        else if (first)
            sweep_first(&s);
        else
            sweep_adaptive(&s);
    }
    *loss = size ? s.loss / (double)size : 0;
    return PL_OK;
}

/* --- the reference ------------------------------------------------------------------------- */

static void sweep_twin_plain(float *p, float *q, size_t n, float lr, float l2, float e) {
    for (size_t j = 0; j < n; j++) {
        float old = p[j];
        p[j] += lr * (e * q[j] - l2 * p[j]);
        q[j] += lr * (e * old - l2 * q[j]);
    }
}

/* LIBMF's step on n coordinates that share their G. */
static void sweep_twin_adaptive(float *p, float *q, size_t n, float lr, float l2, float e,
                                float *g_p, float *g_q) {
    float rate_p = lr / sqrtf(*g_p), rate_q = lr / sqrtf(*g_q), sum_p = 0, sum_q = 0;
    for (size_t j = 0; j < n; j++) {
        float slope_p = l2 * p[j] - e * q[j], slope_q = l2 * q[j] - e * p[j];
        p[j] -= rate_p * slope_p;
        q[j] -= rate_q * slope_q;
        sum_p += slope_p * slope_p;
        sum_q += slope_q * slope_q;
    }
    if (n) *g_p += sum_p / (float)n;
    if (n) *g_q += sum_q / (float)n;
}

static void sweep_twin_adaptive_bias(float *tail, float lr, float l2, float e) {
    float slope = l2 * tail[PL_MF_BIAS] - e;
    tail[PL_MF_BIAS] -= lr / sqrtf(tail[PL_MF_G_BIAS]) * slope;
    tail[PL_MF_G_BIAS] += slope * slope;
}

static float sweep_twin_step(const struct pl_mf *m, enum pl_mf_step step, float lr, bool first,
                             float *p, float *q, float rating) {
    float *tail_p = p + m->width, *tail_q = q + m->width, sum = 0;
    size_t n_slow = m->k < PL_MF_SLOW ? m->k : PL_MF_SLOW;
    for (size_t j = 0; j < m->k; j++) sum += p[j] * q[j];
    float e = rating - (m->mean + tail_p[PL_MF_BIAS] + tail_q[PL_MF_BIAS] + sum);
    if (step == PL_MF_PLAIN) {
        sweep_twin_plain(p, q, m->k, lr, m->l2, e);
        tail_p[PL_MF_BIAS] += lr * (e - m->l2 * tail_p[PL_MF_BIAS]);
        tail_q[PL_MF_BIAS] += lr * (e - m->l2 * tail_q[PL_MF_BIAS]);
        return e;
    }
    sweep_twin_adaptive(p, q, n_slow, lr, m->l2, e, tail_p + PL_MF_G_SLOW, tail_q + PL_MF_G_SLOW);
    if (!first)
        sweep_twin_adaptive(p + n_slow, q + n_slow, m->k - n_slow, lr, m->l2, e,
                            tail_p + PL_MF_G_FAST, tail_q + PL_MF_G_FAST);
    sweep_twin_adaptive_bias(tail_p, lr, m->l2, e);
    sweep_twin_adaptive_bias(tail_q, lr, m->l2, e);
    return e;
}

int pl_mf_sweep_plain(const struct pl_model *base, const struct pl_grid *grid, int row, int col,
                      enum pl_mf_step step, double lr, bool first, float *p, float *q, double *loss,
                      const struct pl_cancel *cancel) {
    const struct pl_mf *m = (const struct pl_mf *)base;
    size_t n, user = 0, size = pl_grid_size(grid, row, col);
    const struct pl_grid_entry *entry = pl_grid_block(grid, row, col, &n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t by = entry[i].where >> 24, item = entry[i].where & PL_GRID_ITEM;
        if (i % SWEEP_POLL == 0 && pl_cancelled(cancel)) return PL_ECANCELLED;
        user += by == PL_GRID_FAR ? item : by;
        if (by == PL_GRID_FAR) continue;
        float e = sweep_twin_step(m, step, (float)lr, first, p + user * m->row, q + item * m->row,
                                  entry[i].value);
        sum += (double)e * (double)e;
    }
    *loss = size ? sum / (double)size : 0;
    return PL_OK;
}
