/* Sweeps of matrix factorisation: every instruction set that this processor has gives the bits of
 * the baseline; adaptive steps in pairs agree with the plain twin, number by number, on ratings
 * that cannot all be paired; and the halves of a block share no user. */
#include "awkward.h"
#include "base/isa.h"
#include "learn/part.h"
#include "mf_twin.h"
#include "opened.h"

typedef int sweep(const struct pl_model *m, const struct pl_grid *grid, int row, int col,
                  enum pl_mf_step step, double lr, bool first, float *p, float *q, double *loss,
                  const struct pl_cancel *cancel);

/* Two passes over all blocks, of which the first is the adaptive step's first. */
static double passes(const struct pl_model *m, const struct pl_grid *grid, enum pl_mf_step step,
                     float *w, sweep *run) {
    int g = pl_grid_side(grid);
    double loss, sum = 0;
    m->kind->init(m, test_seed, w);
    for (int b = 0; b < 2 * g * g; b++) {
        size_t from[2], n[2];
        int row = b / g % g, col = b % g;
        pl_mf_ranges(m, g, row, col, from, n);
        assert_int_equal(run(m, grid, row, col, step, step == PL_MF_PLAIN ? 0.02 : 0.1, b < g * g,
                             w + from[0], w + from[1], &loss, NULL),
                         PL_OK);
        sum += loss * (double)pl_grid_size(grid, row, col);
    }
    return sum;
}

static void one_model(struct pl_data *d, int k, int g) {
    char spec[32];
    enum pl_isa before = pl_isa;
    snprintf(spec, sizeof spec, "mf:k=%d", k);
    struct pl_grid *grid = open_grid(d, g);
    struct pl_model *m = open_model(spec, d);
    float *w = own_room(m->dim, sizeof *w), *v = own_room(m->dim, sizeof *v);
    for (int step = PL_MF_PLAIN; step <= PL_MF_ADAPTIVE; step++) {
        pl_isa = PL_ISA_BASELINE;
        double loss = passes(m, grid, (enum pl_mf_step)step, w, pl_mf_sweep);
        double twin = passes(m, grid, (enum pl_mf_step)step, v, mf_sweep_plain);
        assert_true(fabs(loss / twin - 1) < 1e-5);
        for (size_t j = 0; j < m->dim; j++)
            if (!(fabsf(w[j] - v[j]) < 1e-4f * (1 + fabsf(v[j]))))
                fail_msg("%s, step %d: number %zu is %g, the twin's %g", spec, step, j,
                         (double)w[j], (double)v[j]);
        for (int isa = PL_ISA_BASELINE + 1; isa < PL_N_ISAS; isa++) {
            if (!pl_isa_present((enum pl_isa)isa)) continue;
            pl_isa = (enum pl_isa)isa;
            assert_true(passes(m, grid, (enum pl_mf_step)step, v, pl_mf_sweep) == loss);
            assert_memory_equal(w, v, m->dim * sizeof *w);
        }
    }
    pl_isa = before;
}

TEST(all_instruction_sets_give_the_same_bits) {
    static const int ks[] = {1, 4, 5, 8, 12, 16, 20, 32, 40, 64, 100, 128, 130};
    struct pl_data *d = awkward_ratings(false, test_seed);
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
        for (int g = 1; g <= 2; g++) one_model(d, ks[i], g);
}

/* The last user of the first half is before the first of the second. */
TEST(halves_share_no_user) {
    struct pl_data *d = awkward_ratings(false, test_seed);
    for (int g = 1; g <= 40; g += 3) {
        struct pl_grid *grid = open_grid(d, g);
        for (int b = 0; b < g * g; b++) {
            size_t n, user = 0, last = 0;
            uint32_t steps;
            size_t half = pl_grid_half(grid, b / g, b % g, &steps);
            const struct pl_grid_entry *e = pl_grid_block(grid, b / g, b % g, &n);
            assert_true(half <= n && 2 * half >= n - n % 2);
            for (size_t i = 0; i < n; i++) {
                uint32_t step = e[i].where >> 24;
                if (i == half) assert_int_equal(steps, user);
                user += step == PL_GRID_FAR ? e[i].where & PL_GRID_ITEM : step;
                if (step == PL_GRID_FAR) continue;
                if (i < half) last = user;
                if (half > 0 && i >= half) assert_true(user > last);
            }
        }
    }
}

/* A slot has room for the longest block, and no more. */
TEST(slots_have_the_length_of_a_block) {
    struct pl_data *d = awkward_ratings(false, test_seed);
    struct pl_model *m = open_model("mf:k=6", d);
    struct pl_grid *grid = open_grid(d, 7);
    struct pl_job job = {.model = m, .data = d, .grid = grid, .n_workers = 3};
    size_t most = 0;
    for (int b = 0; b < 49; b++) {
        struct pl_range range[PL_STRIPS];
        int n = pl_part_ranges(&job, (struct pl_part){b / 7, b % 7}, range);
        size_t total = 0;
        for (int i = 0; i < n; i++) total += range[i].n;
        if (total > most) most = total;
    }
    assert_int_equal(pl_part_most(&job), most);
    assert_true(7 * most < m->dim + 14 * pl_mf(m)->row);
    job.grid = NULL;
    assert_int_equal(pl_part_most(&job), m->dim);
}
