/* Matrix factorisation: steps checked by hand, against the plain twin and against a slope; sweeps
 * that give the same bits on every thread; and serial runs that come close to the noise. */
#include <unistd.h>

#include "awkward.h"
#include "mf_twin.h"
#include "opened.h"
#include "paceline.h"
#include "sys/pool.h"

#define SMALL "lowrank:users=300,items=200,ratings=9000"

static float *test_start(const struct pl_model *m, uint64_t seed) {
    float *w = own_room(m->dim, sizeof *w);
    m->kind->init(m, seed, w);
    return w;
}

/* The ranges of a row of blocks are one; all together are the vector, each number once. */
TEST(ranges_cut_the_vector) {
    static const int sides[] = {1, 3, 8, 20};
    struct pl_data *d = open_data("lowrank:users=13,items=6,ratings=30", test_seed);
    struct pl_model *m = open_model("mf:k=6", d);
    assert_int_equal(pl_mf(m)->row, 12);
    for (size_t s = 0; s < 4; s++) {
        size_t at[2] = {0, 13 * pl_mf(m)->row}, from[2], n[2];
        for (int i = 0; i < sides[s]; i++) {
            pl_mf_ranges(m, sides[s], i, i, from, n);
            assert_int_equal(from[0], at[0]);
            assert_int_equal(from[1], at[1]);
            at[0] += n[0];
            at[1] += n[1];
        }
        assert_int_equal(at[0], 13 * pl_mf(m)->row);
        assert_int_equal(at[1], m->dim);
    }
}

/* ---- steps ---- */

/* One rating of 3 in a set whose mean is 3 (there is no other), and numbers that single precision
 * holds exactly, so that every order of operations gives the same bits. */
struct golden {
    struct pl_data *data;
    struct pl_model *m;
    struct pl_grid *grid;
    float p[64], q[64];
};

static void golden_open(struct golden *h, const char *model) {
    const char *tmp = getenv("TMPDIR");
    char spec[400], *path = spec + sizeof "ratings:" - 1;
    snprintf(spec, sizeof spec, "ratings:%s/paceline-mf-XXXXXX", tmp ? tmp : "/tmp");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "1 1 3\n", 6) == 6 && close(fd) == 0);
    h->data = open_data(spec, 1);
    assert_int_equal(unlink(path), 0);
    assert_true(h->data->n_train == 1 && h->data->ratings->mean == 3);
    h->m = open_model(model, h->data);
    h->grid = open_grid(h->data, 1);
    memset(h->p, 0, sizeof h->p);
    memset(h->q, 0, sizeof h->q);
    for (size_t j = PL_MF_G_SLOW; j < PL_MF_TAIL; j++)
        h->p[pl_mf(h->m)->width + j] = h->q[pl_mf(h->m)->width + j] = 1;
}

/* The sweep, or its twin. */
typedef int sweep(const struct pl_model *m, const struct pl_grid *grid, int row, int col,
                  enum pl_mf_step step, double lr, bool first, float *p, float *q, double *loss,
                  const struct pl_cancel *cancel);
static sweep *const sweeps[] = {pl_mf_sweep, mf_sweep_plain};

/* p = (1, 1/2), q = (1/2, -1), a = 1/4, b = 1/4: p.q = 0, e = 3 - 3 - 1/2 = -1/2. With lr = 1/4 and
 * l2 = 1/2: p1 += 1/4 (-1/2 1/2 - 1/2 1) = -3/16, and so on by hand. */
TEST(plain_step_by_hand) {
    for (size_t i = 0; i < 2; i++) {
        struct golden h;
        double loss = NAN;
        golden_open(&h, "mf:k=2,l2=0.5");
        float *tail_p = h.p + 4, *tail_q = h.q + 4;
        memcpy(h.p, (float[]){1, 0.5f}, 2 * sizeof(float));
        memcpy(h.q, (float[]){0.5f, -1}, 2 * sizeof(float));
        tail_p[PL_MF_BIAS] = tail_q[PL_MF_BIAS] = 0.25f;
        sweeps[i](h.m, h.grid, 0, 0, PL_MF_PLAIN, 0.25, false, h.p, h.q, &loss, NULL);
        assert_true(loss == 0.25);
        assert_true(h.p[0] == 1 - 0.1875f && h.p[1] == 0.5f + 0.0625f);
        assert_true(h.q[0] == 0.5f - 0.1875f && h.q[1] == -1 + 0.0625f);
        assert_true(tail_p[PL_MF_BIAS] == 0.25f - 0.15625f);
        assert_true(tail_q[PL_MF_BIAS] == 0.25f - 0.15625f);
        assert_true(tail_p[PL_MF_G_SLOW] == 1 && tail_q[PL_MF_G_FAST] == 1);
    }
}

/* k = 10: eight slow factors and two fast ones. p = 1 everywhere, q = 1/2 in the slow half and -2
 * in the fast one: p.q = 4 - 4 = 0, a = 1, b = 0, so e = -1. l2 = 1/2, lr = 1/4.
 *   slow: gp = 1/2 + 1/2 = 1,    gq = 1/4 + 1 = 5/4;   Gp = 4 at first, so p -= 1/4 1/2 1
 *   fast: gp = 1/2 - 2 = -3/2,   gq = -1 + 1 = 0;      Gp = 1
 *   bias: ga = 1/2 + 1 = 3/2,    gb = 1;               Gb of the item 16 at first */
TEST(adaptive_step_by_hand) {
    for (size_t i = 0; i < 4; i++) {
        struct golden h;
        double loss = NAN;
        bool first = i >= 2;
        golden_open(&h, "mf:k=10,l2=0.5");
        float *tail_p = h.p + 12, *tail_q = h.q + 12;
        for (size_t j = 0; j < 10; j++) h.p[j] = 1;
        for (size_t j = 0; j < 10; j++) h.q[j] = j < 8 ? 0.5f : -2;
        tail_p[PL_MF_BIAS] = 1;
        tail_p[PL_MF_G_SLOW] = 4;
        tail_q[PL_MF_G_BIAS] = 16;
        sweeps[i % 2](h.m, h.grid, 0, 0, PL_MF_ADAPTIVE, 0.25, first, h.p, h.q, &loss, NULL);
        assert_true(loss == 1);
        for (size_t j = 0; j < 8; j++) assert_true(h.p[j] == 1 - 0.125f);
        for (size_t j = 0; j < 8; j++) assert_true(h.q[j] == 0.5f - 0.3125f);
        assert_true(tail_p[PL_MF_G_SLOW] == 5 && tail_q[PL_MF_G_SLOW] == 1 + 1.5625f);
        for (size_t j = 8; j < 10; j++) assert_true(h.p[j] == (first ? 1 : 1 + 0.375f));
        for (size_t j = 8; j < 10; j++) assert_true(h.q[j] == -2);
        assert_true(tail_p[PL_MF_G_FAST] == (first ? 1 : 1 + 2.25f) && tail_q[PL_MF_G_FAST] == 1);
        assert_true(tail_p[PL_MF_BIAS] == 1 - 0.375f && tail_p[PL_MF_G_BIAS] == 1 + 2.25f);
        assert_true(tail_q[PL_MF_BIAS] == -0.0625f && tail_q[PL_MF_G_BIAS] == 17);
        assert_true(h.p[10] == 0 && h.p[11] == 0 && h.q[10] == 0 && h.q[11] == 0);
    }
}

TEST(start_is_as_it_should_be) {
    struct pl_data *d = open_data(SMALL, test_seed);
    struct pl_model *m = open_model("mf:k=10", d);
    float *w = test_start(m, test_seed);
    double sum = 0;
    for (size_t r = 0; r < 500; r++) {
        const float *row = w + r * pl_mf(m)->row;
        for (size_t j = 0; j < 10; j++) {
            assert_true(row[j] >= 0 && row[j] < 0.31622780f);
            sum += (double)row[j];
        }
        assert_true(row[10] == 0 && row[11] == 0 && row[12] == 0);
        assert_true(row[13] == 1 && row[14] == 1 && row[15] == 1);
    }
    assert_true(fabs(sum / 5000 - 0.5 / sqrt(10)) < 0.01);
}

/* The objective, penalty and all, in double precision, of the first n training ratings. */
static double objective(const struct pl_data *d, const struct pl_mf *m, const double *w,
                        uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_rating *r = &d->ratings->rating[i];
        const double *p = w + r->user * m->row, *q = w + (d->ratings->n_users + r->item) * m->row;
        double guess = d->ratings->mean + p[m->width] + q[m->width], size = 0;
        for (size_t j = 0; j < m->k; j++) guess += p[j] * q[j];
        for (size_t j = 0; j < m->k; j++) size += p[j] * p[j] + q[j] * q[j];
        size += p[m->width] * p[m->width] + q[m->width] * q[m->width];
        sum += (r->value - guess) * (r->value - guess) + 0.3 * size;
    }
    return sum / n;
}

TEST(gradient_is_the_slope_with_penalty) {
    enum { N = 25 };
    struct pl_data *d = open_data("lowrank:users=6,items=5,ratings=40,test=0", test_seed);
    struct pl_model *m = open_model("mf:k=5,l2=0.3", d);
    float *w = test_start(m, test_seed), *g = own_room(m->dim, sizeof *g), x[3 * N];
    double *at = own_room(m->dim, sizeof *at), loss;
    uint16_t label[N];
    uint32_t index[N];
    for (uint32_t i = 0; i < N; i++) index[i] = i;
    pl_data_rows(d, false, index, N, x, label);
    struct pl_batch batch = {.n = N, .x = x, .label = label};
    assert_int_equal(m->kind->gradient(m, w, &batch, g, &loss, NULL, NULL), PL_OK);
    for (size_t j = 0; j < m->dim; j++) at[j] = (double)w[j];
    for (size_t j = 0; j < m->dim; j++) {
        at[j] = (double)w[j] + 1e-4;
        double up = objective(d, pl_mf(m), at, N);
        at[j] = (double)w[j] - 1e-4;
        double slope = (up - objective(d, pl_mf(m), at, N)) / 2e-4;
        at[j] = (double)w[j];
        if (!(fabs(slope - (double)g[j]) < 1e-5))
            fail_msg("number %zu: %g, the slope is %g", j, (double)g[j], slope);
        size_t in_row = j % pl_mf(m)->row; /* zeros and sums do not move */
        if ((in_row >= 5 && in_row < 8) || in_row > 8) assert_true(g[j] == 0);
    }
}

/* Three passes over all blocks of a grid, with either. */
static double passes(const struct pl_model *m, const struct pl_grid *grid, enum pl_mf_step step,
                     double lr, int n, float *w, sweep *run) {
    int g = pl_grid_side(grid);
    double loss, last = 0;
    for (int pass = 0; pass < n; pass++) {
        last = 0;
        for (int b = 0; b < g * g; b++) {
            size_t from[2], count[2];
            pl_mf_ranges(m, g, b / g, b % g, from, count);
            assert_int_equal(run(m, grid, b / g, b % g, step, lr, pass == 0, w + from[0],
                                 w + from[1], &loss, NULL),
                             PL_OK);
            last += loss * (double)pl_grid_size(grid, b / g, b % g);
        }
    }
    return last;
}

/* Rounding differs, and is carried on by every later step: 1e-4 of the vector is generous for three
 * passes and far below what any slip in a formula gives. */
TEST(sweep_agrees_with_its_twin) {
    static const int ks[] = {1, 3, 4, 7, 8, 9, 12, 16, 20, 31, 32, 40, 64, 100, 128, 130};
    struct pl_data *d = open_data(SMALL, test_seed);
    struct pl_grid *grid = open_grid(d, 3);
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
        for (int step = PL_MF_PLAIN; step <= PL_MF_ADAPTIVE; step++) {
            char spec[32];
            snprintf(spec, sizeof spec, "mf:k=%d", ks[i]);
            struct pl_model *m = open_model(spec, d);
            float *w = test_start(m, test_seed), *v = test_start(m, test_seed);
            double lr = step == PL_MF_PLAIN ? 0.02 : 0.1, off = 0, size = 0;
            double loss = passes(m, grid, (enum pl_mf_step)step, lr, 3, w, pl_mf_sweep);
            double twin = passes(m, grid, (enum pl_mf_step)step, lr, 3, v, mf_sweep_plain);
            for (size_t j = 0; j < m->dim; j++) {
                double by = (double)w[j] - (double)v[j];
                off += by * by;
                size += (double)v[j] * (double)v[j];
            }
            if (!(sqrt(off / size) < 1e-4 && fabs(loss / twin - 1) < 1e-4))
                fail_msg("k=%d step %d: off by %g, loss %g and %g", ks[i], step, sqrt(off / size),
                         loss, twin);
        }
}

/* Pairs of ratings are for few factors and the plain step. Every number is compared: a rating that
 * is wrongly paired shows in its rows alone. */
TEST(awkward_pairs_agree_with_the_twin) {
    static const int ks[] = {4, 8, 16};
    struct pl_data *d = awkward_ratings(true, test_seed);
    for (size_t i = 0; i < 6; i++) {
        char spec[32];
        snprintf(spec, sizeof spec, "mf:k=%d", ks[i / 2]);
        struct pl_grid *grid = open_grid(d, 1 + (int)(i % 2));
        struct pl_model *m = open_model(spec, d);
        float *w = test_start(m, test_seed), *v = test_start(m, test_seed);
        double loss = passes(m, grid, PL_MF_PLAIN, 0.02, 1, w, pl_mf_sweep);
        double twin = passes(m, grid, PL_MF_PLAIN, 0.02, 1, v, mf_sweep_plain);
        assert_true(fabs(loss / twin - 1) < 1e-5);
        for (size_t j = 0; j < m->dim; j++)
            if (!(fabsf(w[j] - v[j]) < 3e-5f))
                fail_msg("%s: number %zu is %g, the twin's %g", spec, j, (double)w[j],
                         (double)v[j]);
        m->kind->init(m, test_seed, v);
        assert_true(passes(m, grid, PL_MF_PLAIN, 0.02, 1, v, pl_mf_sweep) == loss);
        assert_memory_equal(w, v, m->dim * sizeof *w);
    }
}

struct stratum {
    const struct pl_model *m;
    const struct pl_grid *grid;
    float *w;
    int shift;
};

/* Block (i, i + shift) of a grid. */
static void stratum_block(void *arg, int i, int thread) {
    const struct stratum *s = arg;
    size_t from[2], n[2];
    double loss;
    int g = pl_grid_side(s->grid), col = (i + s->shift) % g;
    pl_mf_ranges(s->m, g, i, col, from, n);
    pl_mf_sweep(s->m, s->grid, i, col, PL_MF_ADAPTIVE, 0.1, false, s->w + from[0], s->w + from[1],
                &loss, NULL);
}

/* The same bits again, and blocks that share nothing may be swept by any thread in any order. */
TEST(sweeps_repeat_to_the_bit) {
    enum { G = 4 };
    struct pl_data *d = open_data(SMALL, test_seed);
    struct pl_model *m = open_model("mf:k=12", d);
    struct pl_grid *grid = open_grid(d, G);
    struct pl_pool *pool;
    float *w = test_start(m, 3), *v = test_start(m, 3);
    assert_int_equal(pl_pool_new(3, &pool), PL_OK);
    for (int shift = 0; shift < G; shift++) {
        struct stratum one = {m, grid, w, shift}, all = {m, grid, v, shift};
        for (int i = G - 1; i >= 0; i--) stratum_block(&one, i, 0);
        pl_pool_each(pool, G, stratum_block, &all);
    }
    pl_pool_free(pool);
    assert_memory_equal(w, v, m->dim * sizeof *w);
    passes(m, grid, PL_MF_PLAIN, 0.01, 2, w, pl_mf_sweep);
    passes(m, grid, PL_MF_PLAIN, 0.01, 2, v, pl_mf_sweep);
    assert_memory_equal(w, v, m->dim * sizeof *w);
}

static void count_looks(void *ctx) {
    ++*(int *)ctx;
}

TEST(sweeps_can_be_cancelled) {
    struct pl_data *d = open_data("lowrank:users=500,items=500,ratings=20000,test=0", test_seed);
    struct pl_model *m = open_model("mf:k=4", d);
    struct pl_grid *grid = open_grid(d, 1);
    float *w = test_start(m, 3);
    double loss;
    atomic_bool flag = true;
    int looks = 0;
    struct pl_cancel cancel = {.flag = &flag, .look = count_looks, .ctx = &looks};
    for (size_t i = 0; i < 2; i++) {
        float *q = w + 500 * pl_mf(m)->row;
        flag = true;
        assert_int_equal(sweeps[i](m, grid, 0, 0, PL_MF_PLAIN, 0.01, false, w, q, &loss, &cancel),
                         PL_ECANCELLED);
        flag = false;
        looks = 0;
        assert_int_equal(sweeps[i](m, grid, 0, 0, PL_MF_PLAIN, 0.01, false, w, q, &loss, &cancel),
                         PL_OK);
        assert_true(looks >= 4 && looks < 20);
    }
}

/* ---- learning ---- */

static double test_rmse(const struct pl_data *d, const struct pl_model *m, const float *w) {
    double loss = 0;
    for (uint32_t i = 0; i < d->n_test; i++) {
        float x[3];
        uint16_t label;
        uint32_t n_right = 0;
        pl_data_rows(d, true, &i, 1, x, &label);
        struct pl_batch batch = {.n = 1, .x = x, .label = &label};
        m->kind->score(m, w, &batch, NULL, &loss, &n_right, NULL);
        assert_int_equal(n_right, 0);
    }
    return sqrt(loss / d->n_test);
}

TEST(sweeps_learn) {
    static const struct {
        enum pl_mf_step step;
        double lr;
    } cases[] = {{PL_MF_PLAIN, 0.03}, {PL_MF_ADAPTIVE, 0.1}};
    struct pl_data *d = open_data("lowrank:users=1500,items=1000,ratings=200000,rank=4", test_seed);
    struct pl_grid *grid = open_grid(d, 4);
    for (size_t i = 0; i < 2; i++) {
        struct pl_model *m = open_model("mf:k=8,l2=0.02", d);
        float *w = test_start(m, test_seed);
        double before = test_rmse(d, m, w);
        passes(m, grid, cases[i].step, cases[i].lr, 25, w, pl_mf_sweep);
        double after = test_rmse(d, m, w);
        print_message("%s: RMSE %.4f, then %.4f; the noise is 0.3\n", i ? "adaptive" : "plain",
                      before, after);
        assert_true(before > 0.7 && after < 0.36);
    }
}
