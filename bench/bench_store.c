/* How close a commit comes to the machine's memory.
 *
 * The peer is the triad a = b - s c over as many parameters, cut into the same tiles, run by the
 * same threads and timed in turn with the commits; it moves 12 bytes per parameter. A commit's
 * bytes are those that cannot be avoided: every operand read once and every result written once,
 * with the model far larger than any cache. The ratio is bytes per second over bytes per second:
 * 1 is a commit that only waits for memory, less is one that computes, or reads something twice.
 *
 * Two sets of workers take turns, so that every contribution is one version old.
 *
 *   bench_store [ROW...]    all rows, or those whose name contains one of the arguments; a name is
 *                           correct,optim,K,threads: gap,momentum,8,1 */
#include <string.h>

#include "bench.h"
#include "core/store.h"
#include "limits.h"
#include "sys/pool.h"

#define BENCH_DIM 10000000
#define BENCH_REPEATS 11
#define BENCH_GROUP_MAX 8

struct bench_case {
    const char *correct, *optim;
    int k;
    int bytes;       /* per parameter; g is every member's */
    const char *key; /* of its rows in the summary, less ".1" and ".all"; NULL: none */
};

static const struct bench_case bench_cases[] = {
    {"none", "sgd", 1, 12, NULL},                     /* g, w; w' */
    {"none", "momentum", 1, 20, NULL},                /* g, w, v; v, w' */
    {"none", "nesterov", 1, 24, NULL},                /* g, w, v; v, w', ahead */
    {"none", "adam", 1, 28, "store.adam"},            /* g, w, m, s; m, s, w' */
    {"none", "dana", 1, 32, NULL},                    /* g, w, v_i, S; v_i, S, w', ahead */
    {"none", "ormo", 1, 20, NULL},                    /* g, w, u; u, w' */
    {"lag", "momentum", 1, 20, NULL},                 /* as momentum */
    {"clip", "sgd", 1, 16, "store.clip"},             /* g for its norm; g, w; w' */
    {"distance", "sgd", 1, 20, "store.distance"},     /* w, base for their distance; g, w; w' */
    {"dc", "sgd", 1, 16, NULL},                       /* g, w, base; w' */
    {"gap", "sgd", 1, 24, "store.gap.sgd"},           /* g, w, base, R; R, w' */
    {"gap", "momentum", 1, 32, "store.gap.momentum"}, /* g, w, base, R, v; R, v, w' */
    {"gap", "dana", 1, 44, "store.gap.dana"},  /* g, w, base, R, v_i, S; R, v_i, S, w', ahead */
    {"none", "sgd", 8, 40, "store.mean8"},     /* 8 g, w; w' */
    {"none", "momentum", 8, 48, NULL},         /* 8 g, w, v; v, w' */
    {"gap", "momentum", 8, 60, "store.gap.8"}, /* 8 g, w, base, R, v; R, v, w' */
};

/* --- the peer ---------------------------------------------------------------------------- */

struct bench_triad {
    float *a, *b, *c, s;
};

static void bench_triad_tile(void *arg, int tile, int thread) {
    const struct bench_triad *t = arg;
    size_t from, n;
    (void)thread;
    pl_tile(BENCH_DIM, tile, &from, &n);
    bench_triad(t->a + from, t->b + from, t->c + from, t->s, n);
}

/* --- a commit ---------------------------------------------------------------------------- */

static void bench_choose(const struct pl_family *family, const char *spec, struct pl_choice *out) {
    struct pl_why why;
    bench_need(!pl_spec_parse(family, spec, 1, &out->entry, &out->conf, &why), why.text);
}

/* Seconds of the commit number `round`, whose members fetched two commits ago. */
static double bench_commit(struct pl_store *s, int k, uint64_t round, struct pl_version **held,
                           float *const *g) {
    int first = round % 2 ? k : 0;
    for (int m = 0; m < k; m++) {
        struct pl_member member = {
            .worker = first + m, .base = held[first]->id, .lag = 1, .samples = 1, .factor = 1};
        bench_need(!pl_store_take(s, &member, held[first], g[m], PL_FINITE_UNKNOWN),
                   "out of memory");
    }
    double start = bench_now();
    bench_need(!pl_store_commit(s, 1, NULL), "out of memory");
    double seconds = bench_now() - start;
    pl_store_release(s, held[first]);
    held[first] = pl_store_newest(s);
    pl_store_hold(s, held[first]);
    return seconds;
}

static void bench_run(const struct bench_case *c, int n_threads, struct bench_triad *triad,
                      float *const *g) {
    struct pl_store_conf conf = {.dim = BENCH_DIM, .n_workers = 2 * c->k, .rate = {.lr = 1e-3}};
    struct pl_store *s;
    struct pl_pool *pool;
    struct pl_why why;
    struct pl_version *held[2 * BENCH_GROUP_MAX];
    bench_choose(&pl_correct_family, c->correct, &conf.correct);
    bench_choose(&pl_reduce_family, "mean", &conf.reduce.link[0]);
    conf.reduce.n = 1;
    bench_choose(&pl_optim_family, c->optim, &conf.optim);
    bench_need(!pl_pool_new(n_threads, &pool), "out of memory");
    if (n_threads > 1) conf.parallel_for = (struct pl_parallel_for){pl_pool_team, pool};
    bench_need(!pl_store_new(&conf, triad->b, &s, &why), why.text);
    held[0] = held[c->k] = pl_store_newest(s);
    pl_store_hold(s, held[0]);
    pl_store_hold(s, held[0]);

    double commit[BENCH_REPEATS], peer[BENCH_REPEATS];
    for (int i = -4; i < BENCH_REPEATS; i++) { /* the first ones touch memory for the first time */
        double start = bench_now();
        pl_pool_each(pool, PL_TILES, bench_triad_tile, triad);
        double t_peer = bench_now() - start;
        double t_commit = bench_commit(s, c->k, (uint64_t)(i + 4), held, g);
        if (i < 0) continue;
        peer[i] = t_peer;
        commit[i] = t_commit;
    }
    double t_commit = bench_median(commit, BENCH_REPEATS);
    double t_peer = bench_median(peer, BENCH_REPEATS);
    double rate = c->bytes * 1e-9 * BENCH_DIM / t_commit, limit = 12e-9 * BENCH_DIM / t_peer;
    printf("%-10s %-10s %3d %8d %8d %8.2f %8.1f %8.1f %8.2f\n", c->correct, c->optim, c->k,
           n_threads, c->bytes, t_commit * 1e3, rate, limit, rate / limit);
    fflush(stdout);
    if (c->key) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s", c->key, n_threads > 1 ? "all" : "1");
        bench_row(key, rate, "GB/s", "triad", limit, rate / limit);
    }
    pl_store_free(s);
    pl_pool_free(pool);
    free(conf.correct.conf);
    pl_chain_free(&conf.reduce);
    free(conf.optim.conf);
}

static bool bench_chosen(const struct bench_case *c, int n_threads, int argc, char **argv) {
    char name[64];
    snprintf(name, sizeof name, "%s,%s,%d,%d", c->correct, c->optim, c->k, n_threads);
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i])) return true;
    return argc < 2;
}

int main(int argc, char **argv) {
    struct bench_triad triad = {bench_floats(BENCH_DIM), bench_floats(BENCH_DIM),
                                bench_floats(BENCH_DIM), 1e-3f};
    float *g[BENCH_GROUP_MAX];
    int n_cores = pl_cores();
    bench_begin();
    for (int i = 0; i < BENCH_GROUP_MAX; i++) g[i] = bench_floats(BENCH_DIM);
    printf("commit of %d parameters, medians of %d, against the triad a = b - s c\n", BENCH_DIM,
           BENCH_REPEATS);
    printf("%-10s %-10s %3s %8s %8s %8s %8s %8s %8s\n", "correct", "optim", "K", "threads",
           "B/param", "ms", "GB/s", "triad", "ratio");
    for (size_t i = 0; i < sizeof bench_cases / sizeof *bench_cases; i++) {
        const struct bench_case *c = &bench_cases[i];
        if (bench_chosen(c, 1, argc, argv)) bench_run(c, 1, &triad, g);
        if (!bench_chosen(c, n_cores, argc, argv)) continue;
        if (n_cores > 1) {
            bench_run(c, n_cores, &triad, g);
        } else if (c->key) {
            char key[64];
            snprintf(key, sizeof key, "%s.all", c->key);
            bench_missing(key, "there is one core");
        }
    }
    for (int i = 0; i < BENCH_GROUP_MAX; i++) free(g[i]);
    free(triad.a);
    free(triad.b);
    free(triad.c);
    return 0;
}
