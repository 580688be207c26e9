/* What robustness costs: a commit of K contributions against what the machine can do at best.
 *
 * Elementwise rules have a peer that only reads: all K vectors once, added up, cut into the same
 * tiles, run by the same threads and timed in turn. Its seconds over the commit's are the ratio: 1
 * is a commit that only waits for memory (it also reads and writes the model, which counts against
 * it), 0.25 one that takes four times as long.
 *
 * Rules that go by distances have two peers: SSYRK on the same vectors lying in one matrix, block
 * by block as in the commit, with nothing copied, corrected or written; and the same products by
 * one SGEMM per block. The ratio is the faster one's seconds over the commit's. */
#include <cblas.h>
#include <string.h>

#include "bench.h"
#include "core/gram.h"
#include "core/store.h"
#include "limits.h"
#include "sys/pool.h"

#define BENCH_DIM 10000000
#define BENCH_REPEATS 7
#define BENCH_GROUP_MAX 64
#define BENCH_FLOATS 200000000 /* all members together, at most */

struct bench_case {
    const char *reduce;
    int k;
    size_t dim;
    const char *key; /* of its row in the summary, on all cores; NULL: none */
};

static const struct bench_case bench_cases[] = {
    {"mean", 20, BENCH_DIM, NULL},
    {"median", 20, BENCH_DIM, "reduce.median.20"},
    {"trimmed:f=6", 20, BENCH_DIM, "reduce.trimmed.20"},
    {"mean-around-median:f=6", 20, BENCH_DIM, "reduce.around.20"},
    {"phocas:f=6", 20, BENCH_DIM, NULL},
    {"krum:f=6", 20, BENCH_DIM, "reduce.krum"},
    {"multikrum:f=6", 20, BENCH_DIM, NULL},
    {"geomedian:f=6", 20, BENCH_DIM, "reduce.geomedian"},
    {"centered-clip", 20, BENCH_DIM, NULL},
    {"mda:f=6", 20, BENCH_DIM, NULL},
    {"bulyan:f=4", 20, BENCH_DIM, NULL},
    {"nnm+trimmed:f=6", 20, BENCH_DIM, NULL},
    {"bucketing:s=2+krum:f=3", 20, BENCH_DIM, NULL},
    /* growth with the number of gradients … */
    {"median", 5, 3000000, NULL},
    {"median", 10, 3000000, NULL},
    {"median", 20, 3000000, NULL},
    {"median", 40, 3000000, NULL},
    {"median", 64, 3000000, "reduce.median.64"},
    {"trimmed", 64, 3000000, "reduce.trimmed.64"},
    {"mean-around-median", 64, 3000000, "reduce.around.64"},
    {"krum", 5, 3000000, NULL},
    {"krum", 10, 3000000, NULL},
    {"krum", 20, 3000000, NULL},
    {"krum", 40, 3000000, NULL},
    {"krum", 64, 3000000, NULL},
    /* … and with the model */
    {"median", 20, 10000, NULL},
    {"median", 20, 100000, NULL},
    {"median", 20, 1000000, NULL},
    {"krum", 20, 10000, NULL},
    {"krum", 20, 100000, NULL},
    {"krum", 20, 1000000, NULL},
    {"geomedian", 20, 10000, NULL},
    {"geomedian", 20, 100000, NULL},
    {"geomedian", 20, 1000000, NULL},
};

/* --- peers ------------------------------------------------------------------------------- */

struct bench_peer {
    const float *x; /* [k][dim], one behind the other */
    int k;
    size_t dim;
    double sum[PL_TILES]; /* so that nothing is optimised away */
};

static void bench_read(void *arg, int tile, int thread) {
    struct bench_peer *p = arg;
    size_t from, n;
    (void)thread;
    pl_tile(p->dim, tile, &from, &n);
    p->sum[tile] = 0;
    for (int m = 0; m < p->k; m++) p->sum[tile] += bench_sum(p->x + (size_t)m * p->dim + from, n);
}

static void bench_syrk(void *arg, int tile, int thread) {
    struct bench_peer *p = arg;
    size_t from, n;
    float out[BENCH_GROUP_MAX * BENCH_GROUP_MAX];
    (void)thread;
    pl_tile(p->dim, tile, &from, &n);
    for (size_t at = from; at < from + n; at += PL_GRAM_BLOCK) {
        int part = (int)(from + n - at < PL_GRAM_BLOCK ? from + n - at : PL_GRAM_BLOCK);
        cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, p->k, part, 1, p->x + at, (int)p->dim,
                    0, out, p->k);
        p->sum[tile] += (double)out[0];
    }
}

static void bench_gemm(void *arg, int tile, int thread) {
    struct bench_peer *p = arg;
    size_t from, n;
    float out[BENCH_GROUP_MAX * BENCH_GROUP_MAX];
    (void)thread;
    pl_tile(p->dim, tile, &from, &n);
    for (size_t at = from; at < from + n; at += PL_GRAM_BLOCK) {
        int part = (int)(from + n - at < PL_GRAM_BLOCK ? from + n - at : PL_GRAM_BLOCK);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, p->k, p->k, part, 1, p->x + at,
                    (int)p->dim, p->x + at, (int)p->dim, 0, out, p->k);
        p->sum[tile] += (double)out[0];
    }
}

static double bench_time(struct pl_pool *pool, void (*job)(void *, int, int),
                         struct bench_peer *peer) {
    double start = bench_now();
    pl_pool_each(pool, PL_TILES, job, peer);
    return bench_now() - start;
}

/* --- a commit ---------------------------------------------------------------------------- */

static double bench_commit(struct pl_store *s, const struct bench_case *c, const float *x) {
    for (int m = 0; m < c->k; m++) {
        struct pl_member member = {.worker = m, .samples = 1, .factor = 1};
        bench_need(!pl_store_take(s, &member, pl_store_newest(s), x + (size_t)m * c->dim,
                                  PL_FINITE_UNKNOWN),
                   "out of memory");
    }
    double start = bench_now();
    bench_need(!pl_store_commit(s, 1, NULL), "out of memory");
    return bench_now() - start;
}

/* Medians in seconds; syrk and gemm are 0 if the rule needs no distances. */
static void bench_tell(const struct bench_case *c, int n_threads, double commit, double read,
                       double syrk, double gemm) {
    double blas = syrk < gemm ? syrk : gemm, limit = blas > 0 ? blas : read;
    printf("%-24s %3d %9zu %3d %9.3f %9.3f", c->reduce, c->k, c->dim, n_threads, commit * 1e3,
           read * 1e3);
    if (blas > 0)
        printf(" %9.3f %9.3f %7.2f %7.2f\n", syrk * 1e3, gemm * 1e3, read / commit, blas / commit);
    else
        printf(" %9s %9s %7.2f %7s\n", "", "", read / commit, "");
    fflush(stdout);
    if (!c->key || n_threads != pl_cores()) return;
    const char *peer = blas <= 0 ? "reading once" : syrk < gemm ? "SSYRK" : "SGEMM";
    bench_row(c->key, commit * 1e3, "ms", peer, limit * 1e3, limit / commit);
}

static void bench_run(const struct bench_case *c, int n_threads, const float *x) {
    struct pl_store_conf conf = {.dim = c->dim, .n_workers = c->k, .k = c->k, .rate = {.lr = 1e-3}};
    struct bench_peer peer = {.x = x, .k = c->k, .dim = c->dim};
    struct pl_store *s;
    struct pl_pool *pool;
    struct pl_why why;
    double commit[BENCH_REPEATS], peers[3][BENCH_REPEATS];
    bench_need(!pl_spec_parse(&pl_correct_family, "none", c->k, &conf.correct.entry,
                              &conf.correct.conf, &why),
               why.text);
    bench_need(
        !pl_spec_parse(&pl_optim_family, "sgd", c->k, &conf.optim.entry, &conf.optim.conf, &why),
        why.text);
    bench_need(!pl_chain_parse(&pl_reduce_family, c->reduce, c->k, &conf.reduce, &why), why.text);
    bench_need(!pl_reduce_check(&conf.reduce, (struct pl_sizes){c->k, c->k}, &why), why.text);
    bench_need(!pl_pool_new(n_threads, &pool), "out of memory");
    if (n_threads > 1) conf.parallel_for = (struct pl_parallel_for){pl_pool_team, pool};
    bench_need(!pl_store_new(&conf, x, &s, &why), why.text);
    bool geometry = pl_reduce_geometry(&conf.reduce);
    for (int i = -2; i < BENCH_REPEATS; i++) { /* the first ones touch memory for the first time */
        int at = i < 0 ? 0 : i;
        peers[0][at] = bench_time(pool, bench_read, &peer);
        if (geometry) {
            peers[1][at] = bench_time(pool, bench_syrk, &peer);
            peers[2][at] = bench_time(pool, bench_gemm, &peer);
        }
        commit[at] = bench_commit(s, c, x);
    }
    bench_tell(c, n_threads, bench_median(commit, BENCH_REPEATS),
               bench_median(peers[0], BENCH_REPEATS),
               geometry ? bench_median(peers[1], BENCH_REPEATS) : 0,
               geometry ? bench_median(peers[2], BENCH_REPEATS) : 0);
    pl_store_free(s);
    pl_pool_free(pool);
    pl_chain_free(&conf.reduce);
    free(conf.correct.conf);
    free(conf.optim.conf);
}

/* Whether an argument chooses the case, by a part of its spec or by its key. */
static bool bench_chosen(const struct bench_case *c, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strstr(c->reduce, argv[i]) || (c->key && strcmp(c->key, argv[i]) == 0)) return true;
    return argc < 2 || (argc == 2 && strcmp(argv[1], "one") == 0);
}

/* Arguments choose cases; `one` as the first one adds runs on one thread. */
int main(int argc, char **argv) {
    float *x = NULL;
    int n_cores = pl_cores();
    bool alone = argc > 1 && strcmp(argv[1], "one") == 0;
    bench_begin();
    openblas_set_num_threads(1);
    printf("commits of K gradients, medians of %d, milliseconds\n", BENCH_REPEATS);
    printf("%-24s %3s %9s %3s %9s %9s %9s %9s %7s %7s\n", "reduce", "K", "params", "thr", "commit",
           "read", "ssyrk", "sgemm", "/read", "/blas");
    for (size_t i = 0; i < sizeof bench_cases / sizeof *bench_cases; i++) {
        const struct bench_case *c = &bench_cases[i];
        if (!bench_chosen(c, argc, argv)) continue;
        if (!x) x = bench_floats(BENCH_FLOATS);
        if (alone && n_cores > 1 && c->dim >= BENCH_DIM) bench_run(c, 1, x);
        bench_run(c, n_cores, x);
    }
    free(x);
    return 0;
}
