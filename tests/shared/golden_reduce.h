/* The golden values of section 17.7, through the store, for both precisions: pl_real is what the
 * file that includes this is compiled with. */
#ifndef TESTS_GOLDEN_REDUCE_H
#define TESTS_GOLDEN_REDUCE_H

#include "choices.h"

#define GOLDEN_MEMBERS 64

/* The rules of a store whose model is minus the sum of its reduced vectors. */
static inline struct pl_store_conf golden_rules(const char *reduce, size_t dim, int n_workers) {
    struct pl_why why = {""};
    struct pl_store_conf conf = rules_of(dim, n_workers, "none", reduce, "sgd", 1);
    conf.k = n_workers;
    conf.seed = 7;
    if (pl_reduce_check(&conf.reduce, (struct pl_sizes){n_workers, n_workers}, &why))
        fail_msg("%s: %s", reduce, why.text);
    return conf;
}

/* One commit of rows [n][dim]. */
static inline void golden_commit(struct pl_store *s, int n, size_t dim, const pl_real *row) {
    for (int i = 0; i < n; i++) {
        struct pl_member m = {.worker = i, .samples = 1, .factor = 1};
        assert_int_equal(
            pl_store_take(s, &m, pl_store_newest(s), row + (size_t)i * dim, PL_FINITE_UNKNOWN), 0);
    }
    assert_int_equal(pl_store_commit(s, 1, NULL), 0);
}

/* What one commit of rows [n][dim] is reduced to; the number of medians that stood in. */
static inline int golden_reduce(const char *reduce, int n, size_t dim, const pl_real *row,
                                pl_real *out) {
    size_t owned = n_owned();
    struct pl_store_conf conf = golden_rules(reduce, dim, n);
    struct pl_store *s = store_of(&conf, NULL);
    golden_commit(s, n, dim, row);
    for (size_t i = 0; i < dim; i++) out[i] = -pl_store_newest(s)->model[i];
    int n_medians = (int)pl_store_n_medians(s);
    release_owned(owned);
    return n_medians;
}

static inline void golden_expect(const char *what, const pl_real *got, const double *wanted,
                                 size_t dim, double tolerance) {
    for (size_t i = 0; i < dim; i++)
        if (!(fabs((double)got[i] - wanted[i]) <= tolerance))
            fail_msg("%s: coordinate %zu is %.10g, not %.10g", what, i, (double)got[i], wanted[i]);
}

/* A rule's mix on its own, its condition aside: rows of weights of n vectors x [n][dim]. */
static inline int golden_mix(const char *reduce, int n, int f, size_t dim, const double *x,
                             double *row) {
    size_t owned = n_owned();
    struct pl_chain c = choose_chain(&pl_reduce_family, reduce, n);
    struct pl_rng rng;
    double gram[(GOLDEN_MEMBERS + 1) * (GOLDEN_MEMBERS + 1)] = {0};
    double *room = own_room(PL_MIX_ROOM(n), sizeof *room);
    int side = n + 1;
    assert_true(n <= GOLDEN_MEMBERS);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (size_t k = 0; k < dim; k++)
                gram[i * side + j] += x[(size_t)i * dim + k] * x[(size_t)j * dim + k];
    pl_rng_init(&rng, 1, PL_STREAM_TEST, 0, 0);
    struct pl_reduce_at at = {.n = n, .f = f, .k = n, .gram = gram, .rng = &rng, .room = room};
    memset(row, 0, (size_t)(n * side) * sizeof *row);
    int n_rows = ((const struct pl_reduce *)c.link[0].entry)->mix(c.link[0].conf, &at, row);
    release_owned(owned);
    return n_rows;
}

/* (a): three vectors, f=1 */
static inline void golden_a(double scale) {
    static const double x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const struct {
        const char *reduce;
        double wanted[3], tolerance;
    } row[] = {
        {"mean", {4, 5, 6}, 1e-12},
        {"median", {4, 5, 6}, 1e-12},
        {"trimmed:f=1", {4, 5, 6}, 1e-12},
        {"mean-around-median:f=1", {2.5, 3.5, 4.5}, 1e-12},
        {"geomedian:f=1,nu=0.1,steps=3", {3.78788764, 4.78788764, 5.78788764}, 0.5000001e-8},
        {"centered-clip:tau=100,rounds=1", {4, 5, 6}, 1e-12},
    };
    pl_real mine[9], got[3];
    for (int i = 0; i < 9; i++) mine[i] = (pl_real)x[i];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        golden_reduce(row[i].reduce, 3, 3, mine, got);
        golden_expect(row[i].reduce, got, row[i].wanted, 3, fmax(row[i].tolerance, scale));
    }
    /* three are too few for Krum: its choice aside from that, ties to the lower index */
    double weight[12];
    assert_int_equal(golden_mix("krum", 3, 1, 3, x, weight), 1);
    assert_true(weight[0] == 1 && weight[1] == 0 && weight[2] == 0);
    assert_int_equal(golden_mix("multikrum:m=2", 3, 1, 3, x, weight), 1);
    assert_true(weight[0] == 0.5 && weight[1] == 0.5 && weight[2] == 0);
    assert_int_equal(golden_mix("nnm", 3, 1, 3, x, weight), 3);
    static const double nnm[12] = {0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0, 0, 0.5, 0.5, 0};
    assert_memory_equal(weight, nnm, sizeof nnm);
}

/* (b): Krum on nine numbers, three of them hostile */
static inline void golden_b(void) {
    static const double x[9] = {-0.1, -0.1, -0.1, 0, .02, .14, .26, .38, .5};
    pl_real mine[9], got;
    for (int i = 0; i < 9; i++) mine[i] = (pl_real)x[i];
    assert_int_equal(golden_reduce("krum:f=3", 9, 1, mine, &got), 0);
    assert_true(got == (pl_real)-0.1);
}

/* (c): eleven vectors, the last two hostile */
static const double golden_rows[11][4] = {
    {1, 2, -1, .5},     {1.2, 1.8, -.9, .4},      {.8, 2.1, -1.1, .7},    {1.1, 1.9, -1, .6},
    {.9, 2.2, -.8, .3}, {1.05, 2.05, -1.05, .55}, {.95, 1.95, -.95, .45}, {1.3, 1.7, -1.2, .8},
    {.7, 2.3, -.7, .2}, {-10, 20, 5, -3},         {-10, 20, 5, -3}};

static const struct golden_row {
    const char *reduce;
    double wanted[4];
} golden_c_table[] = {
    {"mean", {-1.0, 5.272727, 0.118182, -0.136364}},
    {"median", {0.95, 2.05, -0.95, 0.45}},
    {"trimmed:f=2", {0.928571, 2.071429, -0.914286, 0.428571}},
    {"mean-around-median:f=2", {1.0, 2.0, -0.966667, 0.5}},
    {"phocas:f=2", {1.0, 2.0, -0.966667, 0.5}},
    {"mda:f=2", {1.0, 2.0, -0.966667, 0.5}},
    {"krum:f=2", {1, 2, -1, .5}},
    {"multikrum:f=2,m=7", {1.0, 2.0, -0.971429, 0.5}},
    {"multikrum:f=2", {1.0, 2.0, -0.971429, 0.5}},
    {"bulyan:f=2", {1.0, 2.0, -0.95, 0.45}},
    {"bulyan:f=2,theta=code", {1.0, 2.0, -1.0, 0.5}},
    {"nnm+trimmed:f=2", {1.0, 2.0, -0.966667, 0.5}},
    {"nnm:f=2+trimmed", {1.0, 2.0, -0.966667, 0.5}},
    {"centered-clip:tau=1,rounds=1", {0.247996, 0.809686, -0.275581, 0.138802}},
    {"centered-clip:tau=1,rounds=5", {0.887925, 2.176759, -0.905074, 0.463935}},
    {"geomedian:f=2,nu=0.1,steps=3", {0.933353, 2.097133, -0.9215, 0.451155}},
    {"geomedian:f=2,nu=1e-9,steps=3000", {0.987373, 2.019473, -0.980594, 0.498175}},
};

static inline void golden_c(double scale) {
    pl_real mine[44], got[4];
    double weight[11 * 12], nnm[2][4] = {{0}};
    for (int i = 0; i < 44; i++) mine[i] = (pl_real)golden_rows[i / 4][i % 4];
    for (size_t i = 0; i < sizeof golden_c_table / sizeof *golden_c_table; i++) {
        const struct golden_row *r = &golden_c_table[i];
        /* three values at the same distance from the median: rounding chooses two of them */
        if (sizeof(pl_real) == 4 && strcmp(r->reduce, "bulyan:f=2") == 0) continue;
        assert_int_equal(golden_reduce(r->reduce, 11, 4, mine, got), 0);
        golden_expect(r->reduce, got, r->wanted, 4, fmax(0.5000001e-6, scale));
    }
    assert_int_equal(golden_mix("nnm", 11, 2, 4, golden_rows[0], weight), 11);
    for (int k = 0; k < 4; k++)
        for (int j = 0; j < 11; j++) {
            nnm[0][k] += weight[j] * golden_rows[j][k];
            nnm[1][k] += weight[9 * 12 + j] * golden_rows[j][k];
        }
    static const double first[4] = {1.0, 2.0, -0.966667, 0.5};
    static const double ninth[4] = {-1.5, 6.055556, 0.377778, -0.3};
    for (int k = 0; k < 4; k++) {
        assert_true(fabs(nnm[0][k] - first[k]) <= 0.5000001e-6);
        assert_true(fabs(nnm[1][k] - ninth[k]) <= 0.5000001e-6);
    }
    /* whom Bulyan and Multi-Krum choose, in order */
    static const int paper[7] = {0, 3, 6, 5, 4, 1, 9}, best[7] = {0, 5, 6, 3, 4, 1, 2};
    assert_int_equal(golden_mix("bulyan", 11, 2, 4, golden_rows[0], weight), 7);
    for (int i = 0; i < 7; i++) assert_true(weight[i * 12 + paper[i]] == 1);
    assert_int_equal(golden_mix("bulyan:theta=code", 11, 2, 4, golden_rows[0], weight), 5);
    for (int i = 0; i < 5; i++) assert_true(weight[i * 12 + paper[i]] == 1);
    for (int m = 1; m <= 7; m++) {
        char spec[32];
        snprintf(spec, sizeof spec, "multikrum:m=%d", m);
        assert_int_equal(golden_mix(spec, 11, 2, 4, golden_rows[0], weight), 1);
        for (int i = 0; i < m; i++) assert_true(weight[best[i]] == 1.0 / m);
    }
}

#endif
