/* How fast a sweep of matrix factorisation goes, and what holds it up.
 *
 * The blocks on the diagonal of a grid, which share nothing, are swept by one thread and by two,
 * long enough for the system to give each thread a core of its own. Rates are compared with
 *
 *   the machine's memory: the triad a = b - s c by as many threads, timed in turn. A rating's bytes
 *   are its entry (8), its item's row read and written, and its user's row read and written once
 * for all the user's ratings in the block, as they are neighbours. So the assumption is that a row
 * of p stays in the cache for its run and no row of q does; where all rows of q in the block fit
 * the second-level cache (small k, fine grid), a ratio above 1 says so. the twin: the same step
 * written plainly (mf_sweep_plain), on one thread. one thread: what the second adds. */
#include <string.h>

#include "bench.h"
#include "limits.h"
#include "mf_twin.h"
#include "sys/pool.h"

#define BENCH_REPEATS 7
#define BENCH_SECONDS 0.1 /* that a measurement on one thread is to last at least */
#define BENCH_TRIAD 8000000
#define BENCH_TILES 64
#define BENCH_DATA "lowrank:users=40000,items=16000,ratings=2000000,rank=4,test=0"

typedef int bench_sweep(const struct pl_model *m, const struct pl_grid *grid, int row, int col,
                        enum pl_mf_step step, double lr, bool first, float *p, float *q,
                        double *loss, const struct pl_cancel *cancel);

struct bench_work {
    const struct pl_model *m;
    const struct pl_grid *grid;
    enum pl_mf_step step;
    bench_sweep *sweep;
    float *w;
    struct pl_pool *pool;
    int rounds;
};

/* Every other block of the diagonal, so many rounds. */
static void bench_half(void *arg, int half, int thread) {
    const struct bench_work *b = arg;
    int g = pl_grid_side(b->grid);
    double loss = 0;
    (void)thread;
    for (int round = 0; round < b->rounds; round++)
        for (int i = half; i < g; i += 2) {
            size_t from[2], n[2];
            pl_mf_ranges(b->m, g, i, i, from, n);
            b->sweep(b->m, b->grid, i, i, b->step, 0.005, false, b->w + from[0], b->w + from[1],
                     &loss, NULL);
        }
    bench_need(loss < 100, "the sweep has diverged");
}

/* Seconds of a round. */
static double bench_blocks(struct bench_work *b) {
    double start = bench_now();
    pl_pool_each(b->pool, 2, bench_half, b);
    return (bench_now() - start) / b->rounds;
}

/* --- the machine ------------------------------------------------------------------------- */

struct bench_triad {
    float *a, *b, *c;
    struct pl_pool *pool;
};

static void bench_tile(void *arg, int i, int thread) {
    const struct bench_triad *t = arg;
    size_t n = BENCH_TRIAD / BENCH_TILES, from = (size_t)i * n;
    (void)thread;
    bench_triad(t->a + from, t->b + from, t->c + from, 1e-3f, n);
}

/* --- the table --------------------------------------------------------------------------- */

/* Ratings of the diagonal, and bytes that sweeping them has to move. */
static double bench_bytes(const struct pl_mf *m, const struct pl_grid *grid, double *ratings) {
    double bytes = 0, row = 2 * sizeof(float) * (double)m->row;
    *ratings = 0;
    for (int i = 0; i < pl_grid_side(grid); i++) {
        size_t n;
        const struct pl_grid_entry *e = pl_grid_block(grid, i, i, &n);
        double size = (double)pl_grid_size(grid, i, i), users = 1;
        for (size_t j = 0; j < n; j++) users += e[j].where >> 24 != 0;
        bytes += (double)n * sizeof *e + size * row + users * row;
        *ratings += size;
    }
    return bytes;
}

static void bench_case(const struct pl_data *data, const struct pl_grid *grid, int k,
                       enum pl_mf_step step, struct pl_pool *const *pool,
                       struct bench_triad *triad) {
    struct pl_model *m;
    struct pl_why why;
    char spec[32];
    snprintf(spec, sizeof spec, "mf:k=%d", k);
    bench_need(!pl_model_open(spec, data, &m, &why), why.text);
    struct bench_work b = {.m = m, .grid = grid, .step = step, .w = bench_floats(m->dim)};
    m->kind->init(m, 1, b.w);
    double ratings, bytes = bench_bytes(pl_mf(m), grid, &ratings);
    double fast[2][BENCH_REPEATS], twin[BENCH_REPEATS], memory[2][BENCH_REPEATS];
    b.rounds = 1;
    b.pool = pool[0];
    b.sweep = pl_mf_sweep;
    bench_blocks(&b); /* touches memory for the first time */
    b.rounds = (int)(BENCH_SECONDS / bench_blocks(&b)) + 1;
    for (int i = -1; i < BENCH_REPEATS; i++)
        for (int t = 0; t < 2; t++) {
            int at = i < 0 ? 0 : i;
            b.pool = triad->pool = pool[t];
            b.sweep = pl_mf_sweep;
            fast[t][at] = bench_blocks(&b);
            double start = bench_now();
            pl_pool_each(pool[t], BENCH_TILES, bench_tile, triad);
            memory[t][at] = bench_now() - start;
            b.sweep = mf_sweep_plain;
            if (t == 0) twin[at] = bench_blocks(&b);
        }
    bool row = k == 40 && step == PL_MF_ADAPTIVE && pl_grid_side(grid) == 16; /* fpsgd's own */
    double one = bench_median(fast[0], BENCH_REPEATS), plain = bench_median(twin, BENCH_REPEATS);
    for (int t = 0; t < 2; t++) {
        double seconds = bench_median(fast[t], BENCH_REPEATS);
        double rate = bytes * 1e-9 / seconds;
        double limit = 12e-9 * BENCH_TRIAD / bench_median(memory[t], BENCH_REPEATS);
        printf("%4d %-9s %3d %8d %9.2f %9.0f %7.1f %7.1f %7.2f", k, step ? "adaptive" : "plain",
               pl_grid_side(grid), t + 1, 1e-6 * ratings / seconds, bytes / ratings, rate, limit,
               rate / limit);
        double speed = 1e-6 * ratings / seconds;
        if (row && t == 0)
            bench_row("mf.twin", speed, "M/s", "plain loop", 1e-6 * ratings / plain,
                      plain / seconds);
        if (row && t == 1)
            bench_row("mf.threads", speed, "M/s", "one thread", 1e-6 * ratings / one,
                      one / seconds);
        if (t == 0)
            printf(" %7.2f %7s\n", plain / seconds, "");
        else
            printf(" %7s %7.2f\n", "", one / seconds);
    }
    fflush(stdout);
    free(b.w);
    pl_model_close(m);
}

/* An argument is a k to measure alone. */
int main(int argc, char **argv) {
    static const int sides[] = {2, 16};
    int ks[] = {8, 16, 40, 128}, n_ks = sizeof ks / sizeof *ks;
    bench_begin();
    if (argc > 1) {
        ks[0] = (int)strtol(argv[1], NULL, 10);
        n_ks = 1;
    }
    struct pl_data *data;
    struct pl_pool *pool[2];
    struct pl_why why;
    struct bench_triad triad = {bench_floats(BENCH_TRIAD), bench_floats(BENCH_TRIAD),
                                bench_floats(BENCH_TRIAD), NULL};
    bench_need(!pl_data_open(BENCH_DATA, 1, &data, &why), why.text);
    for (int t = 0; t < 2; t++) bench_need(!pl_pool_new(t + 1, &pool[t]), "out of memory");
    printf("sweeps over the diagonal of a g x g grid, %s;\nmedians of %d, %d cores\n", BENCH_DATA,
           BENCH_REPEATS, pl_cores());
    printf("%4s %-9s %3s %8s %9s %9s %7s %7s %7s %7s %7s\n", "k", "step", "g", "threads", "M/s",
           "B/rating", "GB/s", "triad", "ratio", "/ twin", "/ one");
    for (size_t s = 0; s < 2; s++) {
        struct pl_grid *grid;
        bench_need(!pl_grid_new(data->ratings, sides[s], &grid), "out of memory");
        for (int i = 0; i < n_ks; i++)
            for (int step = PL_MF_PLAIN; step <= PL_MF_ADAPTIVE; step++)
                bench_case(data, grid, ks[i], (enum pl_mf_step)step, pool, &triad);
        pl_grid_free(grid);
    }
    for (int t = 0; t < 2; t++) pl_pool_free(pool[t]);
    pl_data_free(data);
    free(triad.a);
    free(triad.b);
    free(triad.c);
    return 0;
}
