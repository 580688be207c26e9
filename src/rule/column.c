/* Elementwise robust rules: each coordinate is computed from the sorted values of the members.
 *
 * A sorting network sorts PL_LANES coordinates side by side: it compares and swaps whole rows of
 * lanes without a branch. Rows are first sorted by fours in registers. Sorted fours are then merged
 * in pairs, the lower half into one and the upper half into the other, again in registers. The
 * pairs are those of Batcher's odd-even merge sort, because a network that sorts numbers also sorts
 * sorted blocks. Blocks of four move half as often between registers and cache as single rows.
 *
 * A mean is a sum of terms x/m, not a sum divided by m, so that values near the limit of a pl_real
 * do not overflow before a mean that does not. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/isa.h"
#include "rule/reduce.h"

#define COLUMN_ROWS 4  /* rows per block */
#define COLUMN_MOST 24 /* the most rows sorted in registers */

/* Numbers are compared as integers of the same size and order, because every processor has an
 * integer minimum instruction that compilers use. -0 is below +0. */
typedef __typeof__(_Generic((pl_real)0, float : (int32_t)0, double : (int64_t)0)) column_key;

#define COLUMN_MAX (sizeof(column_key) == 4 ? (column_key)INT32_MAX : (column_key)INT64_MAX)

PL_ISA_BODY column_key column_flip(column_key k) {
    return k < 0 ? k ^ COLUMN_MAX : k;
}

PL_ISA_BODY pl_real column_to(column_key k) {
    pl_real x;
    k = column_flip(k);
    memcpy(&x, &k, sizeof x);
    return x;
}

PL_ISA_BODY void column_swap(column_key *low, column_key *high) {
    column_key a = *low, b = *high;
    *low = a < b ? a : b;
    *high = a > b ? a : b;
}

/* Sorts four rows. */
PL_ISA_BODY void column_order4(column_key *v) {
    column_swap(&v[0], &v[1]);
    column_swap(&v[2], &v[3]);
    column_swap(&v[0], &v[2]);
    column_swap(&v[1], &v[3]);
    column_swap(&v[1], &v[2]);
}

/* Merges two sorted fours into eight. */
PL_ISA_BODY void column_order8(column_key *v) {
    column_swap(&v[0], &v[4]);
    column_swap(&v[1], &v[5]);
    column_swap(&v[2], &v[6]);
    column_swap(&v[3], &v[7]);
    column_swap(&v[2], &v[4]);
    column_swap(&v[3], &v[5]);
    column_swap(&v[1], &v[2]);
    column_swap(&v[3], &v[4]);
    column_swap(&v[5], &v[6]);
}

/* Merges two sorted eights into sixteen. */
PL_ISA_BODY void column_order16(column_key *v) {
    for (int i = 0; i < 8; i++) column_swap(&v[i], &v[i + 8]);
    for (int i = 4; i < 8; i++) column_swap(&v[i], &v[i + 4]);
    for (int i = 2; i < 14; i += 4) {
        column_swap(&v[i], &v[i + 2]);
        column_swap(&v[i + 1], &v[i + 3]);
    }
    for (int i = 1; i < 15; i += 2) column_swap(&v[i], &v[i + 1]);
}

/* Merges two sorted sixteens into thirty-two. */
PL_ISA_BODY void column_order32(column_key *v) {
    for (int i = 0; i < 16; i++) column_swap(&v[i], &v[i + 16]);
    for (int i = 8; i < 16; i++) column_swap(&v[i], &v[i + 8]);
    for (int i = 0; i < 4; i++) column_swap(&v[i + 4], &v[i + 8]);
    for (int i = 0; i < 4; i++) column_swap(&v[i + 12], &v[i + 16]);
    for (int i = 0; i < 4; i++) column_swap(&v[i + 20], &v[i + 24]);
    for (int i = 2; i < 30; i += 4) {
        column_swap(&v[i], &v[i + 2]);
        column_swap(&v[i + 1], &v[i + 3]);
    }
    for (int i = 1; i < 31; i += 2) column_swap(&v[i], &v[i + 1]);
}

/* Sorts n rows; n is a compile-time constant. Missing numbers are the largest, and the compiler
 * removes the operations on them. */
PL_ISA_BODY void column_order(const size_t n, column_key *row) {
    for (size_t l = 0; l < PL_LANES; l++) {
        column_key v[32];
        /* by sixteen: longer loops are not unrolled, and v would not stay in registers */
        for (size_t i = 0; i < 16; i++)
            v[i] = i < n ? column_flip(row[i * PL_LANES + l]) : COLUMN_MAX;
        for (size_t i = 16; i < 32; i++)
            v[i] = i < n ? column_flip(row[i * PL_LANES + l]) : COLUMN_MAX;
        column_order4(v);
        if (n > 4) column_order4(v + 4);
        if (n > 8) column_order4(v + 8);
        if (n > 12) column_order4(v + 12);
        if (n > 16) column_order4(v + 16);
        if (n > 20) column_order4(v + 20);
        if (n > 4) column_order8(v);
        if (n > 12) column_order8(v + 8);
        if (n > 20) column_order8(v + 16);
        if (n > 8) column_order16(v);
        if (n > 16) column_order32(v);
        for (size_t i = 0; i < 16; i++)
            if (i < n) row[i * PL_LANES + l] = v[i];
        for (size_t i = 16; i < 32; i++)
            if (i < n) row[i * PL_LANES + l] = v[i];
    }
}

/* Splits two sorted fours: the four smallest go to low and the four largest to high, sorted. */
PL_ISA_BODY void column_merge4(column_key *restrict low, column_key *restrict high) {
    for (size_t l = 0; l < PL_LANES; l++) {
        column_key v[8];
        for (size_t i = 0; i < 4; i++) v[i] = low[i * PL_LANES + l];
        for (size_t i = 0; i < 4; i++) v[i + 4] = high[i * PL_LANES + l];
        column_order8(v);
        for (size_t i = 0; i < 4; i++) low[i * PL_LANES + l] = v[i];
        for (size_t i = 0; i < 4; i++) high[i * PL_LANES + l] = v[i + 4];
    }
}

/* Merges sorted sixteens, of which the last may be shorter: fours are the elements of Batcher's
 * odd-even merge sort, whose first rounds made the sixteens. */
PL_ISA_BODY void column_merge(int n_rows, column_key *row) {
    size_t size = (size_t)n_rows / COLUMN_ROWS, block = COLUMN_ROWS * PL_LANES;
    for (size_t p = 4; p < size; p *= 2)
        for (size_t k = p; k > 0; k /= 2)
            for (size_t j = k % p; j + k < size; j += 2 * k)
                for (size_t i = j; i < j + k && i + k < size; i++)
                    if (i / (2 * p) == (i + k) / (2 * p))
                        column_merge4(row + i * block, row + (i + k) * block);
}

/* Copies n lanes of all members, from `at` on, to row [n_members][PL_LANES], as bits: column_order
 * makes keys of them. Missing lanes are 0. Pads with the largest value to a multiple of COLUMN_ROWS
 * rows and returns their number. */
PL_ISA_BODY int column_load(int n_members, const pl_real *const *member, size_t at, size_t n,
                            column_key *restrict row) {
    int n_rows = n_members;
    if (n < PL_LANES) memset(row, 0, (size_t)n_members * PL_LANES * sizeof *row);
    for (int m = 0; m < n_members; m++, row += PL_LANES)
        if (n == PL_LANES)
            memcpy(row, member[m] + at, PL_LANES * sizeof *row);
        else
            memcpy(row, member[m] + at, n * sizeof *row);
    for (; n_rows % COLUMN_ROWS; n_rows++, row += PL_LANES)
        for (int l = 0; l < PL_LANES; l++) row[l] = COLUMN_MAX;
    return n_rows;
}

/* Sorts rows [n][PL_LANES], n a multiple of COLUMN_ROWS and at most COLUMN_MOST. */
PL_ISA_BODY void column_few(int n, column_key *row) {
    switch (n / COLUMN_ROWS) {
    case 1: column_order(4, row); break;
    case 2: column_order(8, row); break;
    case 3: column_order(12, row); break;
    case 4: column_order(16, row); break;
    case 5: column_order(20, row); break;
    default: column_order(24, row);
    }
}

/* Sorts rows [n][PL_LANES], n a multiple of COLUMN_ROWS. */
PL_ISA_BODY void column_sort(int n, column_key *row) {
    int most = n <= COLUMN_MOST ? COLUMN_MOST : 16;
    for (int i = 0; i < n; i += most)
        column_few(n - i < most ? n - i : most, row + (size_t)i * PL_LANES);
    if (n > most) column_merge(n, row);
}

PL_ISA_BODY void column_median(int n, const column_key *restrict row, pl_real *restrict out) {
    const column_key *a = row + (n - 1) / 2 * PL_LANES, *b = row + n / 2 * PL_LANES;
    const pl_real half = (pl_real)0.5;
    if (a == b)
        for (int l = 0; l < PL_LANES; l++) out[l] = column_to(a[l]);
    else
        for (int l = 0; l < PL_LANES; l++) out[l] = half * column_to(a[l]) + half * column_to(b[l]);
}

/* The mean of sorted rows from … to-1. */
PL_ISA_BODY void column_mean(int from, int to, const column_key *restrict row,
                             pl_real *restrict out) {
    pl_real share = (pl_real)(1.0 / (to - from)), sum[PL_LANES] = {0};
    for (int i = from; i < to; i++)
        for (int l = 0; l < PL_LANES; l++)
            sum[l] += share * column_to(row[(size_t)i * PL_LANES + (size_t)l]);
    memcpy(out, sum, sizeof sum);
}

/* The value closer to the centre; the lower one if both are equally close. */
PL_ISA_BODY pl_real column_closer(pl_real low, pl_real high, pl_real centre) {
    return high - centre < centre - low ? high : low;
}

/* The mean of the `keep` values closest to centre; of two equally close values the smaller. They
 * are adjacent among the sorted values, and a window of that length has one value of every residue
 * class. Within a class, move up as long as the next value is closer. */
PL_ISA_BODY void column_closest(int n, int keep, const column_key *restrict row,
                                const pl_real *restrict centre, pl_real *restrict out) {
    pl_real share = (pl_real)(1.0 / keep), sum[PL_LANES] = {0};
    for (int i = 0; i < keep; i++) {
        const column_key *mine = row + i * PL_LANES, *next = mine + keep * PL_LANES;
        if (i + keep >= n) { /* the only one in its class */
            for (int l = 0; l < PL_LANES; l++) sum[l] += share * column_to(mine[l]);
        } else if (i + 2 * keep >= n) {
            for (int l = 0; l < PL_LANES; l++)
                sum[l] += share * column_closer(column_to(mine[l]), column_to(next[l]), centre[l]);
        } else {
            pl_real best[PL_LANES];
            for (int l = 0; l < PL_LANES; l++) best[l] = column_to(mine[l]);
            for (int j = i + keep; j < n; j += keep)
                for (int l = 0; l < PL_LANES; l++)
                    best[l] = column_closer(best[l], column_to(row[j * PL_LANES + l]), centre[l]);
            for (int l = 0; l < PL_LANES; l++) sum[l] += share * best[l];
        }
    }
    memcpy(out, sum, sizeof sum);
}

enum column_rule { COLUMN_MEDIAN, COLUMN_TRIMMED, COLUMN_MEDIAN_CLOSEST, COLUMN_TRIMMED_CLOSEST };

/* Drops `drop` values: at each end if trimmed, in total if the closest are kept. */
static PL_VARIANTS(void, column_reduce,
                   (enum column_rule rule, int n_members, int drop, const pl_real *const *member,
                    size_t n, pl_real *room, pl_real *out),
                   (rule, n_members, drop, member, n, room, out)) {
    column_key *row = (column_key *)(void *)room;
    for (size_t at = 0; at < n; at += PL_LANES) {
        pl_real centre[PL_LANES], result[PL_LANES];
        size_t part = n - at < PL_LANES ? n - at : PL_LANES;
        column_sort(column_load(n_members, member, at, part, row), row);
        bool trimmed = rule == COLUMN_TRIMMED || rule == COLUMN_TRIMMED_CLOSEST;
        if (trimmed)
            column_mean(drop, n_members - drop, row, centre);
        else
            column_median(n_members, row, centre);
        if (rule == COLUMN_MEDIAN || rule == COLUMN_TRIMMED)
            memcpy(result, centre, sizeof result);
        else
            column_closest(n_members, n_members - drop, row, centre, result);
        memcpy(out + at, result, part * sizeof *out);
    }
}

void pl_column_around_median(int n_members, int drop, const pl_real *const *member, size_t n,
                             pl_real *room, pl_real *out) {
    column_reduce(COLUMN_MEDIAN_CLOSEST, n_members, drop, member, n, room, out);
}

/* --- the rules --------------------------------------------------------------------------- */

int pl_reduce_minority(const void *conf, int n) {
    (void)conf;
    return (n - 1) / 2;
}

const struct pl_opt pl_reduce_f_opts[] = {PL_REDUCE_F, PL_OPT_END};

static void median_apply(const void *conf, const struct pl_reduce_at *at,
                         const pl_real *const *member, size_t n, pl_real *room, pl_real *out) {
    (void)conf;
    column_reduce(COLUMN_MEDIAN, at->n, 0, member, n, room, out);
}

static void trimmed_apply(const void *conf, const struct pl_reduce_at *at,
                          const pl_real *const *member, size_t n, pl_real *room, pl_real *out) {
    (void)conf;
    column_reduce(COLUMN_TRIMMED, at->n, at->f, member, n, room, out);
}

static void mean_around_median_apply(const void *conf, const struct pl_reduce_at *at,
                                     const pl_real *const *member, size_t n, pl_real *room,
                                     pl_real *out) {
    (void)conf;
    column_reduce(COLUMN_MEDIAN_CLOSEST, at->n, at->f, member, n, room, out);
}

static void phocas_apply(const void *conf, const struct pl_reduce_at *at,
                         const pl_real *const *member, size_t n, pl_real *room, pl_real *out) {
    (void)conf;
    column_reduce(COLUMN_TRIMMED_CLOSEST, at->n, at->f, member, n, room, out);
}

const struct pl_reduce pl_reduce_median = {
    .id = {"median", "coordinate-wise median; for an even number, the mean of the middle two",
           "Yin, Chen, Ramchandran, Bartlett, ICML 2018; Xie, Koyejo, Gupta, arXiv "
           "1802.10116",
           pl_no_opts, 0, PL_NEEDS_SERVER},
    .apply = median_apply,
};

const struct pl_reduce pl_reduce_trimmed = {
    .id = {"trimmed", "coordinate-wise mean without the f largest and f smallest values",
           "Yin, Chen, Ramchandran, Bartlett, ICML 2018", pl_reduce_f_opts,
           sizeof(struct pl_reduce_f), PL_NEEDS_SERVER},
    .needs = "2f < K",
    .most = pl_reduce_minority,
    .apply = trimmed_apply,
};

const struct pl_reduce pl_reduce_mean_around_median = {
    .id = {"mean-around-median", "coordinate-wise mean of the K-f values closest to the median",
           "Xie, Koyejo, Gupta, arXiv 1802.10116", pl_reduce_f_opts, sizeof(struct pl_reduce_f),
           PL_NEEDS_SERVER},
    .needs = "2f < K",
    .most = pl_reduce_minority,
    .apply = mean_around_median_apply,
};

const struct pl_reduce pl_reduce_phocas = {
    .id = {"phocas", "coordinate-wise mean of the K-f values closest to the trimmed mean",
           "Xie, Koyejo, Gupta, arXiv 1805.09682", pl_reduce_f_opts, sizeof(struct pl_reduce_f),
           PL_NEEDS_SERVER},
    .needs = "2f < K",
    .most = pl_reduce_minority,
    .apply = phocas_apply,
};
