/* Elementwise robust rules against the plain definition, one column at a time, bit for bit, on
 * every instruction set of this processor. */
#include "base/isa.h"
#include "base/rng.h"
#include "core/rule.h"
#include "test.h"

#define MOST 100
#define WIDTH 130

/* -0 is below +0. */
static int column_order(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    if (x != y) return x < y ? -1 : 1;
    return !signbit(x) - !signbit(y);
}

static float plain_mean(const float *x, int from, int to) {
    float sum = 0, share = (float)(1.0 / (to - from));
    for (int i = from; i < to; i++) sum += share * x[i];
    return sum;
}

static float plain_median(const float *x, int n) {
    if (n % 2) return x[n / 2];
    return 0.5f * x[n / 2 - 1] + 0.5f * x[n / 2];
}

/* One of every residue class modulo keep: the next value as long as it is closer. */
static float plain_closest(const float *x, int n, int keep, float centre) {
    float sum = 0, share = (float)(1.0 / keep);
    for (int i = 0; i < keep; i++) {
        float best = x[i];
        for (int j = i + keep; j < n; j += keep)
            if (x[j] - centre < centre - best) best = x[j];
        sum += share * best;
    }
    return sum;
}

static float plain(const char *rule, float *x, int n, int f) {
    qsort(x, (size_t)n, sizeof *x, column_order);
    float median = plain_median(x, n), mean = plain_mean(x, f, n - f);
    if (strcmp(rule, "median") == 0) return median;
    if (strcmp(rule, "trimmed") == 0) return mean;
    return plain_closest(x, n, n - f, strcmp(rule, "phocas") == 0 ? mean : median);
}

static float draw(struct pl_rng *rng, int kind) {
    static const float some[] = {0.0f, -0.0f, 1, -1, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f};
    return kind == 0 ? some[pl_rng_below(rng, 8)] : (float)pl_rng_normal(rng);
}

static void check(const struct pl_reduce *rule, struct pl_rng *rng, int n, int f, size_t width) {
    static float x[MOST][WIDTH], room[PL_ROOM(MOST)];
    const float *member[MOST];
    float wanted[WIDTH], got[WIDTH + 1];
    struct pl_reduce_f conf = {f};
    struct pl_reduce_at at = {.n = n, .f = f, .k = n};
    int kind = (int)pl_rng_below(rng, 4);
    for (int m = 0; m < n; m++) {
        member[m] = x[m];
        for (size_t i = 0; i < width; i++) x[m][i] = draw(rng, kind);
    }
    for (size_t i = 0; i < width; i++) {
        float column[MOST];
        for (int m = 0; m < n; m++) column[m] = x[m][i];
        wanted[i] = plain(rule->id.name, column, n, f);
    }
    for (enum pl_isa isa = 0; isa < PL_N_ISAS; isa++) {
        if (!pl_isa_present(isa)) continue;
        pl_isa = isa;
        got[width] = 77;
        rule->apply(&conf, &at, member, width, room, got);
        assert_true(got[width] == 77);
        if (memcmp(got, wanted, width * sizeof *got) != 0)
            fail_msg("%s of %d, f=%d, %zu columns, %s", rule->id.name, n, f, width,
                     pl_isa_name(isa));
    }
}

TEST(sets_agree_with_the_plain_column) {
    static const char *const names[] = {"median", "trimmed", "mean-around-median", "phocas"};
    enum pl_isa chosen = pl_isa;
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (size_t r = 0; r < sizeof names / sizeof *names; r++) {
        const struct pl_entry *e;
        struct pl_why why;
        if (pl_entry_find(&pl_reduce_family, names[r], &e, &why)) fail_msg("%s", why.text);
        for (int n = 1; n <= MOST; n++)
            for (int round = 0; round < 3; round++) {
                int f = r == 0 ? 0 : (int)pl_rng_below(&rng, (uint32_t)(n - 1) / 2 + 1);
                check((const struct pl_reduce *)e, &rng, n, f, 1 + pl_rng_below(&rng, WIDTH));
            }
    }
    pl_isa = chosen;
}
