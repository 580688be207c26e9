/* Minimum-diameter averaging: the mean of the K-f gradients with the smallest largest distance.
 *
 * It does not try every subset. For a diameter t, the f removed vectors must cover every pair
 * further apart than t. Covers of at most f vertices are found by branching on the vertex with the
 * most such pairs: either it is removed, or all its partners are. Bisection finds the smallest t
 * with a cover. Of several covers it takes the one that leaves the smallest sum of squared
 * distances, so the order of arrival does not matter. If fewer than f vectors need to be removed,
 * the others stay. */
#include <math.h>
#include <string.h>

#include "rule/reduce.h"

#define MDA_F 16          /* covers grow like 2^f */
#define MDA_COVERS 100000 /* limit of the search; the best one found is used */

struct mda {
    int n;
    const double *d; /* [n][n] squared distances */
    double t;        /* pairs further apart than this must be covered */
    bool any;        /* stop at the first cover */
    double *gone;    /* [n] 1: in the cover */
    double *best;    /* [n] the best cover so far */
    double least;
    bool found;
    int n_looked;
};

static bool mda_far(const struct mda *m, int i, int j) {
    return m->gone[i] == 0 && m->gone[j] == 0 && m->d[i * m->n + j] > m->t;
}

static void mda_leaf(struct mda *m) {
    double sum = 0;
    for (int i = 0; i < m->n; i++)
        for (int j = 0; j < i; j++)
            if (m->gone[i] == 0 && m->gone[j] == 0) sum += m->d[i * m->n + j];
    if (m->found && !(sum < m->least)) return;
    m->found = true;
    m->least = sum;
    memcpy(m->best, m->gone, (size_t)m->n * sizeof *m->gone);
}

/* Removes at most `left` more; the recursion depth is at most f. */
static void mda_search(struct mda *m, int left) {
    int most = 0, at = -1, n_pairs = 0;
    if (m->found && (m->any || m->n_looked > MDA_COVERS)) return;
    m->n_looked++;
    for (int i = 0; i < m->n; i++) {
        int n = 0;
        for (int j = 0; j < m->n; j++) n += j != i && mda_far(m, i, j);
        n_pairs += n;
        if (n > most) {
            most = n;
            at = i;
        }
    }
    if (at < 0) {
        mda_leaf(m);
        return;
    }
    if (n_pairs / 2 > left * most) return;
    m->gone[at] = 1;
    mda_search(m, left - 1);
    m->gone[at] = 0;
    if (most > left) return;
    int partner[MDA_F], n = 0;
    for (int j = 0; j < m->n; j++)
        if (j != at && mda_far(m, at, j)) partner[n++] = j;
    for (int i = 0; i < n; i++) m->gone[partner[i]] = 1;
    mda_search(m, left - n);
    for (int i = 0; i < n; i++) m->gone[partner[i]] = 0;
}

static bool mda_covers(struct mda *m, double t, int f, bool any) {
    m->t = t;
    m->any = any;
    m->found = false;
    m->n_looked = 0;
    memset(m->gone, 0, (size_t)m->n * sizeof *m->gone);
    mda_search(m, f);
    return m->found;
}

/* Sorts in ascending order by Shell's sort. */
static void mda_sort(double *x, int n) {
    int gap = 1;
    while (gap < n / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int i = gap; i < n; i++) {
            double mine = x[i];
            int j = i;
            for (; j >= gap && x[j - gap] > mine; j -= gap) x[j] = x[j - gap];
            x[j] = mine;
        }
}

static int mda_most(const void *conf, int n) {
    int most = pl_reduce_minority(conf, n);
    return most < MDA_F ? most : MDA_F;
}

static int mda_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    int n = at->n, n_pairs = 0;
    double *d = at->room, *sorted = d + n * n;
    struct mda m = {.n = n, .d = d, .gone = sorted + n * n / 2 + 1};
    m.best = m.gone + n;
    (void)conf;
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            const double *g = at->gram;
            int s = n + 1;
            double x = g[i * s + i] + g[j * s + j] - 2 * g[i * s + j];
            x = i == j ? 0 : isfinite(x) ? (x > 0 ? x : 0) : INFINITY;
            d[i * n + j] = d[j * n + i] = x;
            if (j < i) sorted[n_pairs++] = x;
        }
    mda_sort(sorted, n_pairs);
    int low = 0, high = n_pairs - 1; /* the largest distance always works */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (mda_covers(&m, sorted[middle], at->f, true))
            high = middle;
        else
            low = middle + 1;
    }
    if (!mda_covers(&m, n_pairs > 0 ? sorted[low] : 0, at->f, false)) return 0;
    int n_stay = 0;
    for (int i = 0; i < n; i++) n_stay += m.best[i] == 0;
    for (int i = 0; i < n; i++) row[i] = m.best[i] == 0 ? 1.0 / n_stay : 0;
    return 1;
}

const struct pl_reduce pl_reduce_mda = {
    .id = {"mda", "the mean of the K-f gradients with the smallest diameter; f up to 16",
           "El Mhamdi et al., PODC 2020; Farhadkhani et al., ICML 2022", pl_reduce_f_opts,
           sizeof(struct pl_reduce_f), PL_NEEDS_SERVER},
    .geometry = true,
    .needs = "2f < K and f <= 16",
    .most = mda_most,
    .mix = mda_mix,
};
