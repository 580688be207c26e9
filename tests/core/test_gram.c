/* Inner products: every instruction set of this processor gives the bits of the plain sum in the
 * documented order, values that are not finite are noticed, and rules that go by distances treat
 * them as before. */
#include "base/isa.h"
#include "base/rng.h"
#include "core/gram.h"
#include "golden_reduce.h"

#define ROWS 23
#define SIDE (ROWS + 2)

static float twin_product(const float *a, const float *b, size_t n) {
    float lane[PL_GRAM_LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % PL_GRAM_LANES] += a[i] * b[i];
    for (int half = PL_GRAM_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

static void draw(struct pl_rng *rng, float *x, size_t n) {
    float scale = (float)pow(10, 8 * pl_rng_unit(rng) - 4);
    for (size_t i = 0; i < n; i++) x[i] = scale * (float)pl_rng_normal(rng);
}

static int restore(void **state) {
    static enum pl_isa chosen;
    static bool known;
    if (!known) chosen = pl_isa;
    known = true;
    pl_isa = chosen;
    return 0;
}

/* Rows begin anywhere, as those of tiles do. */
TEST_BETWEEN(restore, restore, sets_agree_with_the_plain_sum) {
    static const size_t widths[] = {1, 7, 15, 16, 17, 33, 127, 128, 129, 1000, PL_GRAM_BLOCK};
    static float value[ROWS * (PL_GRAM_BLOCK + 3) + PL_GRAM_BLOCK];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (int n = 1; n <= ROWS; n++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            const float *x[ROWS];
            float room[ROWS * ROWS];
            double wanted[SIDE * SIDE], got[SIDE * SIDE], before[SIDE * SIDE];
            for (int i = 0; i < n; i++) {
                float *row = value + (size_t)i * (PL_GRAM_BLOCK + 3);
                draw(&rng, row, widths[w]);
                x[i] = i >= 3 && pl_rng_below(&rng, 8) == 0 ? x[i - 3] : row; /* two may be one */
            }
            for (int i = 0; i < SIDE * SIDE; i++) before[i] = pl_rng_normal(&rng);
            memcpy(wanted, before, sizeof wanted);
            for (int i = 0; i < n; i++)
                for (int j = 0; j <= i; j++)
                    wanted[i * SIDE + j] += (double)twin_product(x[i], x[j], widths[w]);
            for (enum pl_isa isa = 0; isa < PL_N_ISAS; isa++) {
                if (!pl_isa_present(isa)) continue;
                pl_isa = isa;
                memcpy(got, before, sizeof got);
                assert_true(pl_gram_add(n, widths[w], x, isa % 2 ? widths[w] : 0, room, got, SIDE));
                if (memcmp(got, wanted, sizeof got) != 0)
                    fail_msg("%s: %d rows of %zu differ from the plain sum", pl_isa_name(isa), n,
                             widths[w]);
            }
        }
}

TEST_BETWEEN(restore, restore, squares_that_overflow_are_refused) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e20f, -3.4e38f};
    static float value[4][200];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, 0);
    for (int round = 0; round < 200; round++) {
        const float *x[] = {value[0], value[1], value[2], value[3]};
        int who = (int)pl_rng_below(&rng, 4);
        size_t where = pl_rng_below(&rng, 200);
        float room[16], large = bad[round % 5];
        double sum[16] = {0}, wanted[16] = {0};
        draw(&rng, value[0], sizeof value / sizeof **value);
        value[who][where] = large;
        for (enum pl_isa isa = 0; isa < PL_N_ISAS; isa++) {
            if (!pl_isa_present(isa)) continue;
            pl_isa = isa;
            assert_false(pl_gram_add(4, 200, x, 0, room, sum, 4));
            assert_memory_equal(sum, wanted, sizeof sum);
        }
        if (!isfinite(large)) continue;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j <= i; j++) {
                double dot = 0;
                for (int c = 0; c < 200; c++) dot += (double)value[i][c] * (double)value[j][c];
                wanted[i * 4 + j] = dot;
            }
        pl_gram_add_wide(4, 200, x, sum, 4);
        assert_memory_equal(sum, wanted, sizeof sum);
    }
}

/* What a rule makes of a group is the same on all sets, bit for bit. */
TEST_BETWEEN(restore, restore, rules_agree_on_all_sets) {
    static const char *const spec[] = {"krum",          "multikrum",    "geomedian",   "bulyan",
                                       "centered-clip", "medoid",       "nnm+trimmed", "nnm+median",
                                       "median",        "trimmed:f=30%"};
    enum { N = 21, DIM = 70001 };
    float *x = own_room(N * DIM, sizeof *x), *first = own_room(DIM, sizeof *first);
    float *got = malloc(sizeof *got * DIM);
    struct pl_rng rng;
    assert_true(got);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 3, 0);
    draw(&rng, x, (size_t)N * DIM);
    for (size_t s = 0; s < sizeof spec / sizeof *spec; s++)
        for (enum pl_isa isa = 0; isa < PL_N_ISAS; isa++) {
            if (!pl_isa_present(isa)) continue;
            pl_isa = isa;
            golden_reduce(spec[s], N, DIM, x, isa ? got : first);
            if (isa && memcmp(first, got, sizeof *got * DIM) != 0)
                fail_msg("%s: %s and %s differ", spec[s], pl_isa_name(0), pl_isa_name(isa));
        }
    free(got);
}

/* A member with a value that is not finite is left out of the inner products and of the sum. A rule
 * that remembers its last result cannot write a version again; for it the block of that value is
 * zero. With 16 elements per tile, a tile is a block. */
TEST_BETWEEN(restore, restore, members_that_are_not_finite_are_left_out) {
    static const char *const spec[] = {"krum", "multikrum", "geomedian", "centered-clip", "medoid"};
    enum { N = 9, EACH = 16, DIM = EACH * PL_TILES, REMEMBERS = 3 };
    static float x[N * DIM], zeros[N * DIM], rest[N * DIM], got[DIM], wanted[DIM];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 4, 0);
    for (int round = 0; round < 60; round++) {
        bool bad[N] = {false};
        int n_rest = 0, rule = round % (int)(sizeof spec / sizeof *spec);
        draw(&rng, x, (size_t)N * DIM);
        if (round % 3 == 0) x[round] = 3e38f; /* its square overflows */
        memcpy(zeros, x, sizeof x);
        for (int k = 0; k < 3; k++) {
            size_t who = pl_rng_below(&rng, N), tile = pl_rng_below(&rng, PL_TILES);
            size_t at = who * DIM + tile * EACH;
            x[at + pl_rng_below(&rng, EACH)] = round % 2 ? NAN : INFINITY;
            memset(zeros + at, 0, EACH * sizeof *zeros);
            bad[who] = true;
        }
        for (size_t m = 0; m < N; m++)
            if (!bad[m]) memcpy(rest + DIM * (size_t)n_rest++, x + DIM * m, sizeof got);
        golden_reduce(spec[rule], N, DIM, x, got);
        if (rule == REMEMBERS)
            golden_reduce(spec[rule], N, DIM, zeros, wanted);
        else
            golden_reduce(spec[rule], n_rest, DIM, rest, wanted);
        if (memcmp(got, wanted, sizeof got) != 0) fail_msg("%s, round %d", spec[rule], round);
    }
}
