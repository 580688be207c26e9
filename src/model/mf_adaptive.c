/* The adaptive step of factorisation, LIBMF's: the inner loop of a sweep that divides by sums of
 * squares.
 *
 * LIBMF's G needs the mean square of a gradient l2 p - e q. The sums p.q, p.p and q.q give it, so
 * the gradient itself is never formed:
 *
 *     p' = p - c (l2 p - e q) = (1 - c l2) p + (c e) q,       c = lr / sqrt(G)
 *     |l2 p - e q|^2 = l2^2 p.p - 2 l2 e p.q + e^2 q.q
 *
 * The ratings of a user follow each other, so each step waits for the one before it. Therefore the
 * two halves of a block, which have no user in common, are swept in turn: a rating of the first, a
 * rating of the second. Two such ratings, if their items differ, share no row, and their steps are
 * taken together. They give the same bits as one step after the other. Everything that is not done
 * for every factor has four lanes then: slow and fast factors of one rating and of the other.
 *
 * Sums over factors have eight lanes and a fixed order, so the bits depend neither on the compiler
 * nor on the instruction set. For common k the number of vectors is a compile-time constant of the
 * loop.
 *
 * The rows of q are accessed at random, so they are prefetched some ratings ahead. The rows of p
 * follow each other, and the processor prefetches them; to do it here would take a branch at the
 * end of each user's ratings, which cannot be predicted. */
#include <math.h>
#include <string.h>

#include "base/isa.h"
#include "model/mf.h"

/* Vectors are passed by value only between functions that are inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define ADAPTIVE_LANES 4
#define ADAPTIVE_WIDE 8       /* lanes of sums; also the number of slow factors */
#define ADAPTIVE_AHEAD 6      /* prefetch distance in entries of each half */
#define ADAPTIVE_POLL 2048    /* entries of each half between two polls of `cancel` */
#define ADAPTIVE_LINE 16      /* floats per prefetched cache line */
#define ADAPTIVE_ROW_MAX 1032 /* floats per row, at most */

/* Unaligned, and may alias floats: rows begin at multiples of four floats from any address. */
typedef float adaptive_v4
    __attribute__((vector_size(sizeof(float) * ADAPTIVE_LANES), aligned(sizeof(float)), may_alias));
typedef float adaptive_v8
    __attribute__((vector_size(sizeof(float) * ADAPTIVE_WIDE), aligned(sizeof(float)), may_alias));

#define ADAPTIVE_INLINE static inline __attribute__((always_inline))

/* One half of the block. */
struct adaptive_half {
    const struct pl_grid_entry *at;
    size_t user;
    double loss;
};

struct adaptive {
    struct adaptive_half half[2];
    size_t n; /* entries of this piece, of each half */
    const struct pl_grid_entry *block_end;
    float *p, *q;
    size_t n_vectors; /* of four factors, per row */
    float mean, l2, lr;
    float slow_share, fast_share; /* 1 / number of factors of each kind; 0: they do not change */
    bool alone;                   /* the entries of half[0] have no partner in half[1] */
    float *blank;                 /* two rows of zeros */
};

/* A rating, and its rows. */
struct adaptive_rating {
    float *p, *q;
    float value;
};

ADAPTIVE_INLINE adaptive_v4 adaptive_all(float x) {
    return (adaptive_v4){x, x, x, x};
}

ADAPTIVE_INLINE adaptive_v4 adaptive_fold(adaptive_v8 v) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}

/* The sums of the lanes of a, b, c and d. */
ADAPTIVE_INLINE adaptive_v4 adaptive_sums(adaptive_v4 a, adaptive_v4 b, adaptive_v4 c,
                                          adaptive_v4 d) {
    adaptive_v4 ab =
        __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    adaptive_v4 cd =
        __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
           __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* lr / sqrt(x) of each lane. gcc and clang turn a loop over floats into one vector square root;
 * vector types have no operator for it. */
ADAPTIVE_INLINE adaptive_v4 adaptive_rate(adaptive_v4 x, float lr) {
    float lane[ADAPTIVE_LANES];
    memcpy(lane, &x, sizeof lane);
    for (size_t j = 0; j < ADAPTIVE_LANES; j++) lane[j] = sqrtf(lane[j]);
    memcpy(&x, lane, sizeof lane);
    return adaptive_all(lr) / x;
}

/* Products p.q, p.p and q.q of n vectors; their lanes are still to be added. */
struct adaptive_dots {
    adaptive_v4 pq, pp, qq;
};

ADAPTIVE_INLINE struct adaptive_dots adaptive_dots(const float *restrict p, const float *restrict q,
                                                   size_t n) {
    struct adaptive_dots dots = {{0}, {0}, {0}};
    if (n >= 2) {
        const adaptive_v8 *wide_p = (const adaptive_v8 *)p, *wide_q = (const adaptive_v8 *)q;
        adaptive_v8 pq = wide_p[0] * wide_q[0];
        adaptive_v8 pp = wide_p[0] * wide_p[0], qq = wide_q[0] * wide_q[0];
        for (size_t j = 1; j < n / 2; j++) {
            pq += wide_p[j] * wide_q[j];
            pp += wide_p[j] * wide_p[j];
            qq += wide_q[j] * wide_q[j];
        }
        dots = (struct adaptive_dots){adaptive_fold(pq), adaptive_fold(pp), adaptive_fold(qq)};
    }
    if (n % 2) {
        adaptive_v4 last_p = ((const adaptive_v4 *)p)[n - 1];
        adaptive_v4 last_q = ((const adaptive_v4 *)q)[n - 1];
        dots.pq += last_p * last_q;
        dots.pp += last_p * last_p;
        dots.qq += last_q * last_q;
    }
    return dots;
}

/* p = keep_p p + mix_p q and q = keep_q q + mix_q p, with the old p. */
ADAPTIVE_INLINE void adaptive_move(float *restrict p, float *restrict q, size_t n, float keep_p,
                                   float mix_p, float keep_q, float mix_q) {
    adaptive_v8 *restrict wide_p = (adaptive_v8 *)p, *restrict wide_q = (adaptive_v8 *)q;
    for (size_t j = 0; j < n / 2; j++) {
        adaptive_v8 old_p = wide_p[j], old_q = wide_q[j];
        wide_p[j] = keep_p * old_p + mix_p * old_q;
        wide_q[j] = keep_q * old_q + mix_q * old_p;
    }
    if (n % 2) {
        adaptive_v4 *last_p = (adaptive_v4 *)p + n - 1, *last_q = (adaptive_v4 *)q + n - 1;
        adaptive_v4 old_p = *last_p, old_q = *last_q;
        *last_p = keep_p * old_p + mix_p * old_q;
        *last_q = keep_q * old_q + mix_q * old_p;
    }
}

/* Both steps at once. The lanes of pq, pp, qq, g_p, g_q, e and what is made from them: slow factors
 * and fast factors of x, slow and fast factors of y. The lanes of `bias` and g_bias: user and item
 * of x, user and item of y. x and y share no row. Adds the squared errors to loss[0] and loss[1].
 */
ADAPTIVE_INLINE void adaptive_pair(const struct adaptive *s, const struct adaptive_rating *x,
                                   const struct adaptive_rating *y, size_t n, bool first,
                                   double loss[2]) {
    size_t slow = n < 2 ? n : 2, fast = n - slow, end = ADAPTIVE_LANES * n;
    float *restrict px = x->p, *restrict qx = x->q, *restrict py = y->p, *restrict qy = y->q;
    struct adaptive_dots xs = adaptive_dots(px, qx, slow), ys = adaptive_dots(py, qy, slow);
    struct adaptive_dots xf = adaptive_dots(px + ADAPTIVE_WIDE, qx + ADAPTIVE_WIDE, fast);
    struct adaptive_dots yf = adaptive_dots(py + ADAPTIVE_WIDE, qy + ADAPTIVE_WIDE, fast);
    adaptive_v4 pq = adaptive_sums(xs.pq, xf.pq, ys.pq, yf.pq);
    adaptive_v4 pp = adaptive_sums(xs.pp, xf.pp, ys.pp, yf.pp);
    adaptive_v4 qq = adaptive_sums(xs.qq, xf.qq, ys.qq, yf.qq);

    /* a tail is bias, G_slow, G_fast, G_bias; read whole, as partial reads would stall */
    adaptive_v4 tail_px = *(adaptive_v4 *)(px + end), tail_qx = *(adaptive_v4 *)(qx + end);
    adaptive_v4 tail_py = *(adaptive_v4 *)(py + end), tail_qy = *(adaptive_v4 *)(qy + end);
    adaptive_v4 g_p = __builtin_shufflevector(tail_px, tail_py, 1, 2, 5, 6);
    adaptive_v4 g_q = __builtin_shufflevector(tail_qx, tail_qy, 1, 2, 5, 6);
    adaptive_v4 ends_x = __builtin_shufflevector(tail_px, tail_qx, 0, 4, 3, 7);
    adaptive_v4 ends_y = __builtin_shufflevector(tail_py, tail_qy, 0, 4, 3, 7);
    adaptive_v4 bias = __builtin_shufflevector(ends_x, ends_y, 0, 1, 4, 5);
    adaptive_v4 g_bias = __builtin_shufflevector(ends_x, ends_y, 2, 3, 6, 7);

    adaptive_v4 value = {x->value, x->value, y->value, y->value};
    adaptive_v4 known = (bias + __builtin_shufflevector(bias, bias, 1, 0, 3, 2)) +
                        (pq + __builtin_shufflevector(pq, pq, 1, 0, 3, 2));
    adaptive_v4 e = (value - adaptive_all(s->mean)) - known;

    adaptive_v4 l2 = adaptive_all(s->l2), one = adaptive_all(1);
    adaptive_v4 rate_p = adaptive_rate(g_p, s->lr), rate_q = adaptive_rate(g_q, s->lr);
    adaptive_v4 keep_p = one - rate_p * l2, mix_p = rate_p * e;
    adaptive_v4 keep_q = one - rate_q * l2, mix_q = rate_q * e;
    adaptive_move(px, qx, slow, keep_p[0], mix_p[0], keep_q[0], mix_q[0]);
    adaptive_move(py, qy, slow, keep_p[2], mix_p[2], keep_q[2], mix_q[2]);
    if (!first) {
        adaptive_move(px + ADAPTIVE_WIDE, qx + ADAPTIVE_WIDE, fast, keep_p[1], mix_p[1], keep_q[1],
                      mix_q[1]);
        adaptive_move(py + ADAPTIVE_WIDE, qy + ADAPTIVE_WIDE, fast, keep_p[3], mix_p[3], keep_q[3],
                      mix_q[3]);
    }

    adaptive_v4 share = {s->slow_share, s->fast_share, s->slow_share, s->fast_share};
    adaptive_v4 both = (l2 + l2) * e * pq, e2 = e * e;
    g_p += share * (l2 * l2 * pp - both + e2 * qq);
    g_q += share * (l2 * l2 * qq - both + e2 * pp);
    adaptive_v4 slope = l2 * bias - e;
    bias -= adaptive_rate(g_bias, s->lr) * slope;
    g_bias += slope * slope;
    ends_x = __builtin_shufflevector(bias, g_bias, 0, 4, 1, 5);
    ends_y = __builtin_shufflevector(bias, g_bias, 2, 6, 3, 7);
    *(adaptive_v4 *)(px + end) = __builtin_shufflevector(ends_x, g_p, 0, 4, 5, 1);
    *(adaptive_v4 *)(qx + end) = __builtin_shufflevector(ends_x, g_q, 2, 4, 5, 3);
    *(adaptive_v4 *)(py + end) = __builtin_shufflevector(ends_y, g_p, 0, 6, 7, 1);
    *(adaptive_v4 *)(qy + end) = __builtin_shufflevector(ends_y, g_q, 2, 6, 7, 3);
    loss[0] += (double)e[0] * (double)e[0];
    loss[1] += (double)e[2] * (double)e[2];
}

/* One step, as a pair whose second half is a dummy rating on rows of zeros. */
ADAPTIVE_INLINE void adaptive_single(const struct adaptive *s, const struct adaptive_rating *x,
                                     size_t n, bool first, double *loss) {
    size_t row = ADAPTIVE_LANES * n + PL_MF_TAIL;
    const struct adaptive_rating none = {s->blank, s->blank + row, s->mean};
    double both[2] = {*loss, 0};
    adaptive_pair(s, x, &none, n, first, both);
    *loss = both[0];
}

ADAPTIVE_INLINE void adaptive_ask(const float *row, size_t n) {
    for (size_t j = 0; j < n; j += ADAPTIVE_LINE) __builtin_prefetch(row + j, 1, 3);
}

/* Prefetches the item's row of the entry ADAPTIVE_AHEAD further on. */
ADAPTIVE_INLINE void adaptive_look_ahead(const struct adaptive *s, const struct adaptive_half *h,
                                         size_t row) {
    const struct pl_grid_entry *e = h->at + ADAPTIVE_AHEAD;
    if (e < s->block_end && e->where >> 24 != PL_GRID_FAR)
        adaptive_ask(s->q + (e->where & PL_GRID_ITEM) * row, row);
}

/* Advances to the user of the next entry. Returns false if the entry is not a rating. */
ADAPTIVE_INLINE bool adaptive_next(const struct adaptive *s, struct adaptive_half *h, size_t row,
                                   struct adaptive_rating *x) {
    const struct pl_grid_entry *e = h->at++;
    uint32_t step = e->where >> 24, item = e->where & PL_GRID_ITEM;
    bool far = step == PL_GRID_FAR;
    h->user += far ? item : step;
    *x = (struct adaptive_rating){s->p + h->user * row, s->q + item * row, e->value};
    return !far;
}

/* Works on a copy: behind a pointer, every store of a factor might change it. */
ADAPTIVE_INLINE void adaptive_piece(struct adaptive *whole, size_t n, bool first) {
    struct adaptive s = *whole;
    struct adaptive_half a = s.half[0], b = s.half[1];
    size_t row = ADAPTIVE_LANES * n + PL_MF_TAIL;
    double loss[2] = {a.loss, b.loss};
    for (size_t i = 0; i < s.n; i++) {
        struct adaptive_rating x, y = {0};
        adaptive_look_ahead(&s, &a, row);
        bool is_x = adaptive_next(&s, &a, row, &x), is_y = false;
        if (!s.alone) {
            adaptive_look_ahead(&s, &b, row);
            is_y = adaptive_next(&s, &b, row, &y);
        }
        if (is_x && is_y && x.q != y.q) {
            adaptive_pair(&s, &x, &y, n, first, loss);
            continue;
        }
        if (is_x) adaptive_single(&s, &x, n, first, &loss[0]);
        if (is_y) adaptive_single(&s, &y, n, first, &loss[1]);
    }
    a.loss = loss[0];
    b.loss = loss[1];
    whole->half[0] = a;
    whole->half[1] = b;
}

ADAPTIVE_INLINE void adaptive_sized(struct adaptive *s, bool first) {
    switch (s->n_vectors) { /* k = 8, 16, 32, 40, 64, 100, 128 */
#ifndef PL_ONE_VARIANT
    case 2: adaptive_piece(s, 2, first); break;
    case 4: adaptive_piece(s, 4, first); break;
    case 8: adaptive_piece(s, 8, first); break;
    case 10: adaptive_piece(s, 10, first); break;
    case 16: adaptive_piece(s, 16, first); break;
    case 25: adaptive_piece(s, 25, first); break;
    case 32: adaptive_piece(s, 32, first); break;
#endif
    default: adaptive_piece(s, s->n_vectors, first); break;
    }
}

static PL_VARIANTS(void, adaptive_later, (struct adaptive * s), (s)) {
    adaptive_sized(s, false);
}

static PL_VARIANTS(void, adaptive_first, (struct adaptive * s), (s)) {
    adaptive_sized(s, true);
}

/* Sweeps n entries, of each half or of half[0] alone, in pieces. */
static int adaptive_entries(struct adaptive *s, size_t n, bool first,
                            const struct pl_cancel *cancel) {
    for (size_t done = 0; done < n; done += s->n) {
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        s->n = n - done < ADAPTIVE_POLL ? n - done : ADAPTIVE_POLL;
        if (first)
            adaptive_first(s);
        else
            adaptive_later(s);
    }
    return PL_OK;
}

int pl_mf_sweep_adaptive(const struct pl_mf *m, const struct pl_grid *grid, int row, int col,
                         double lr, bool first, float *p, float *q, double *loss,
                         const struct pl_cancel *cancel) {
    float blank[2 * ADAPTIVE_ROW_MAX] = {0};
    uint32_t user;
    size_t n, size = pl_grid_size(grid, row, col), half = pl_grid_half(grid, row, col, &user);
    const struct pl_grid_entry *entry = pl_grid_block(grid, row, col, &n);
    size_t n_slow = m->k < PL_MF_SLOW ? m->k : PL_MF_SLOW, n_fast = m->k - n_slow;
    size_t most = half > n - half ? half : n - half, least = n - most;
    struct adaptive s = {.half = {{.at = entry}, {.at = entry + half, .user = user}},
                         .block_end = entry + n,
                         .p = p,
                         .q = q,
                         .n_vectors = m->width / ADAPTIVE_LANES,
                         .mean = m->mean,
                         .l2 = m->l2,
                         .lr = (float)lr,
                         .slow_share = 1 / (float)n_slow,
                         .fast_share = n_fast && !first ? 1 / (float)n_fast : 0,
                         .blank = blank};
    for (size_t i = 0; i < 2; i++)
        for (size_t j = PL_MF_G_SLOW; j < PL_MF_TAIL; j++) blank[i * m->row + m->width + j] = 1;
    int rc = adaptive_entries(&s, least, first, cancel);
    double paired = 0;
    if (half < most) { /* the rest is in the second half */
        paired = s.half[0].loss;
        s.half[0] = s.half[1];
    } else {
        paired = s.half[1].loss;
    }
    s.alone = true;
    if (!rc) rc = adaptive_entries(&s, most - least, first, cancel);
    *loss = size ? (paired + s.half[0].loss) / (double)size : 0;
    return rc;
}
