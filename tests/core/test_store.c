/* The store: results have the same bits in whatever order, on however many threads the tiles are
 * worked on; versions stay as they were for as long as anybody holds them, and their memory is
 * used again afterwards. */
#include "base/rng.h"
#include "choices.h"
#include "core/store_state.h"
#include "sys/pool.h"
#include "teams.h"

#define N_WORKERS 5
#define N_VECTORS 3

/* Every member of the tables as it is by default, and these as well. */
static const char *const more_corrections[] = {"distance:c=1e-4", "gap:form=scalar",
                                               "dc:form=a,lambda=2", "clip:c=0.5", NULL};
static const char *const more_optimizers[] = {"dana:form=slim", "dana:form=multi",
                                              "nesterov:form=torch", NULL};
static const char *corrections[64], *optimizers[64];
static size_t n_corrections, n_optimizers;

static size_t test_specs(const struct pl_family *family, const char *const *more,
                         const char **spec) {
    size_t n = 0;
    for (const struct pl_entry *const *e = family->table; *e; e++) spec[n++] = (*e)->name;
    for (; *more; more++) spec[n++] = *more;
    return n;
}

static struct pl_store_conf test_conf(size_t dim, const char *correct, const char *optim) {
    return rules_of(dim, N_WORKERS, correct, "mean:by=samples", optim, 0.05);
}

static float *test_vector(size_t n, struct pl_rng *rng) {
    float *v = own_room(n, sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = (float)(2 * pl_rng_unit(rng) - 1);
    return v;
}

static void test_take(struct pl_store *s, int worker, struct pl_version *base, const float *g) {
    struct pl_member m = {.worker = worker,
                          .base = base->id,
                          .lag = pl_store_newest(s)->id - base->id,
                          .samples = 1 + (uint32_t)worker,
                          .factor = 1};
    assert_int_equal(pl_store_take(s, &m, base, g, PL_FINITE_UNKNOWN), 0);
}

/* The largest number of versions that existed at one time. */
static int most_versions(const struct pl_store *s) {
    int n = 0;
    for (int i = 0; i < s->n_versions; i++) n += s->version[i] != NULL;
    return n;
}

/* ---- the same bits on any team ---- */

static void team_forwards(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    for (int i = 0; i < n; i++) job(arg, i);
}

/* Odd tiles first, then the even ones backwards. */
static void team_jumping(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    for (int i = 1; i < n; i += 2) job(arg, i);
    for (int i = (n - 1) & ~1; i >= 0; i -= 2) job(arg, i);
}

/* What a run comes to: two vectors and the dot products measured on the way. */
struct outcome {
    float *model, *lookahead;
    double dot[8];
};

static void run_commits(struct pl_store_conf *conf, const float *w0, float *const *vector,
                        int group, int n_commits, struct outcome *out) {
    struct pl_store *s = store_of(conf, w0);
    struct pl_version *held[N_WORKERS];
    for (int w = 0; w < N_WORKERS; w++) pl_store_hold(s, held[w] = pl_store_newest(s));
    for (int k = 0; k < n_commits; k++) {
        struct pl_measure measure = {NAN};
        int worker = k % N_WORKERS;
        for (int m = 0; m < group; m++)
            test_take(s, (worker + m) % N_WORKERS, held[(worker + m) % N_WORKERS],
                      vector[(k + m) % N_VECTORS]);
        assert_int_equal(pl_store_commit(s, 1, &measure), 0);
        out->dot[k] = measure.dot;
        pl_store_release(s, held[worker]);
        pl_store_hold(s, held[worker] = pl_store_newest(s));
    }
    struct pl_version *v = pl_store_newest(s);
    memcpy(out->model, v->model, conf->dim * sizeof(float));
    memcpy(out->lookahead, v->lookahead, conf->dim * sizeof(float));
}

static const struct {
    const char *name;
    void (*run)(void *ctx, int n, void (*job)(void *arg, int i), void *arg);
} teams[] = {{"alone", NULL},
             {"forwards", team_forwards},
             {"backwards", team_backwards},
             {"jumping", team_jumping},
             {"threads", team_threads}};
#define N_TEAMS (sizeof teams / sizeof *teams)

/* One correction and optimizer, one size, on every team. */
static void team_case(struct pl_pool *pool, size_t dim, const char *correct, const char *optim,
                      int group, bool measures) {
    enum { COMMITS = 4 };
    size_t n = n_owned();
    struct pl_rng rng;
    struct outcome first = {0}, other = {0};
    struct outcome *const all[] = {&first, &other};
    float *vector[N_VECTORS];
    struct pl_store_conf conf = test_conf(dim, correct, optim);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, (uint32_t)group, dim);
    float *w0 = test_vector(dim, &rng);
    for (int i = 0; i < N_VECTORS; i++) vector[i] = test_vector(dim, &rng);
    for (int i = 0; i < 2; i++) {
        all[i]->model = test_vector(dim, &rng);
        all[i]->lookahead = test_vector(dim, &rng);
    }
    conf.measures = measures;
    conf.weight_decay = group == 3 ? 0.01 : 0;
    for (size_t t = 0; t < N_TEAMS; t++) {
        conf.parallel_for = (struct pl_parallel_for){teams[t].run, pool};
        run_commits(&conf, w0, vector, group, COMMITS, t ? &other : &first);
        if (t == 0) continue;
        if (memcmp(first.model, other.model, dim * sizeof(float)) != 0 ||
            memcmp(first.lookahead, other.lookahead, dim * sizeof(float)) != 0)
            fail_msg("%s x %s: group of %d, %zu elements: other bits on the team '%s'", correct,
                     optim, group, dim, teams[t].name);
        for (int k = 0; k < COMMITS; k++) {
            assert_true(isnan(first.dot[k]) == (!measures || k == 0));
            assert_memory_equal(&first.dot[k], &other.dot[k], sizeof first.dot[k]);
        }
    }
    release_owned(n);
}

static bool takes_groups(const char *optim) {
    struct pl_choice c = choose(&pl_optim_family, optim, N_WORKERS);
    return !(c.entry->needs & PL_NEEDS_ONE_AT_A_TIME);
}

TEST(bits_do_not_depend_on_the_team) {
    static const size_t dims[] = {1, 15, 16, 17, 1000, 5000, 70000};
    struct pl_pool *pool = NULL;
    assert_int_equal(pl_pool_new(3, &pool), 0);
    for (size_t c = 0; c < n_corrections; c++)
        for (size_t o = 0; o < n_optimizers; o++)
            for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
                if (dims[d] > 5000 && c > 0 && o > 0) continue; /* each with one other */
                if (sanitized && (d + c + o) % 8 != 0) continue;
                team_case(pool, dims[d], corrections[c], optimizers[o], 1, d % 2);
                if (takes_groups(optimizers[o]))
                    team_case(pool, dims[d], corrections[c], optimizers[o], 3, true);
            }
    pl_pool_free(pool);
}

TEST(bits_of_large_groups_do_not_depend_on_threads) {
    static const int groups[] = {64, 65, 200, 1030};
    struct pl_pool *pool = NULL;
    assert_int_equal(pl_pool_new(3, &pool), 0);
    for (size_t c = 0; c < n_corrections; c++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            if (!sanitized || (c + g) % 4 == 0)
                team_case(pool, sanitized ? 300 : 2500, corrections[c], "nesterov", groups[g],
                          true);
    team_case(pool, sanitized ? 20000 : 70000, "none", "momentum", 65, true);
    team_case(pool, sanitized ? 20000 : 70000, "gap", "momentum", 65, true);
    pl_pool_free(pool);
}

/* Tiles cover a vector once, in order, at multiples of 16. */
TEST(tiles_cover_the_vector) {
    static const size_t dims[] = {0, 1, 15, 16, 17, 1000, 1023, 1024, 1025, 70000, 10000019};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
        size_t next = 0;
        for (int t = 0; t < PL_TILES; t++) {
            size_t from, n;
            pl_tile(dims[d], t, &from, &n);
            assert_int_equal(from, next);
            assert_true(from % 16 == 0 || n == 0);
            next = from + n;
        }
        assert_int_equal(next, dims[d]);
    }
}

/* ---- versions ---- */

/* Random workers fetch, contribute and leave; whatever is held keeps its bits, and there are never
 * more versions than holders and two: the newest and the one being written. */
TEST(held_versions_stay) {
    enum { HOLDERS = 12, DIM = 40 };
    for (size_t o = 0; o < n_optimizers; o++) {
        struct pl_store_conf conf = test_conf(DIM, "dc", optimizers[o]);
        struct pl_rng rng;
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 77, o);
        float *w0 = test_vector(DIM, &rng), *g = test_vector(DIM, &rng);
        float model[HOLDERS][DIM], handed[HOLDERS][DIM];
        uint64_t id[HOLDERS];
        struct pl_version *held[HOLDERS] = {NULL};
        struct pl_store *s = store_of(&conf, w0);
        int n_held = 0, most = 0;
        for (int step = 0; step < 2000; step++) {
            int h = (int)pl_rng_below(&rng, HOLDERS);
            if (held[h] && pl_rng_below(&rng, 3) == 0) {
                test_take(s, h % N_WORKERS, held[h], g);
                assert_int_equal(pl_store_commit(s, 1, NULL), 0);
            }
            if (held[h]) {
                pl_store_release(s, held[h]);
                held[h] = NULL;
                n_held--;
            } else {
                struct pl_version *v = held[h] = pl_store_newest(s);
                pl_store_hold(s, v);
                n_held++;
                id[h] = v->id;
                memcpy(model[h], v->model, sizeof model[h]);
                memcpy(handed[h], v->lookahead, sizeof handed[h]);
            }
            if (n_held > most) most = n_held;
            for (int i = 0; i < HOLDERS; i++) {
                if (!held[i]) continue;
                assert_int_equal(held[i]->id, id[i]);
                assert_memory_equal(held[i]->model, model[i], sizeof model[i]);
                assert_memory_equal(held[i]->lookahead, handed[i], sizeof handed[i]);
            }
            assert_true(most_versions(s) <= most + 2);
        }
    }
}

/* Nobody holds anything: two buffers, for ever, and the look-ahead has one of its own. */
TEST(released_versions_are_used_again) {
    for (size_t o = 0; o < n_optimizers; o++) {
        struct pl_store_conf conf = test_conf(7, "none", optimizers[o]);
        const float w0[7] = {1, 2, 3, 4, 5, 6, 7}, g[7] = {0.5f};
        struct pl_store *s = store_of(&conf, w0);
        const struct pl_optim *optim = (const struct pl_optim *)conf.optim.entry;
        bool ahead = optim->looks_ahead && optim->looks_ahead(conf.optim.conf);
        for (int k = 0; k < 50; k++) {
            struct pl_version *v = pl_store_newest(s);
            assert_int_equal(v->id, k);
            assert_true((v->model != v->lookahead) == ahead);
            test_take(s, k % N_WORKERS, v, g);
            assert_int_equal(pl_store_commit(s, 1, NULL), 0);
            assert_ptr_not_equal(pl_store_newest(s), v);
        }
        assert_int_equal(most_versions(s), 2);
    }
}

/* What takes contributions one at a time gets no second member. */
TEST(one_at_a_time_is_one) {
    for (size_t o = 0; o < n_optimizers; o++) {
        struct pl_store_conf conf = test_conf(1, "none", optimizers[o]);
        const float w0 = 1, g = 1;
        struct pl_store *s = store_of(&conf, &w0);
        struct pl_member m = {.worker = 1, .samples = 1, .factor = 1};
        for (int round = 0; round < 2; round++) {
            test_take(s, 0, pl_store_newest(s), &g);
            assert_int_equal(pl_store_take(s, &m, pl_store_newest(s), &g, PL_FINITE_UNKNOWN),
                             takes_groups(optimizers[o]) ? PL_OK : PL_EPOLICY);
            assert_int_equal(pl_store_commit(s, 1, NULL), 0);
        }
    }
}

/* A correction that reads the base keeps it until its commit, though its worker let go of it; the
 * others do not keep it at all. */
TEST(needed_bases_are_kept) {
    for (size_t c = 0; c < n_corrections; c++) {
        struct pl_store_conf conf = test_conf(3, corrections[c], "sgd");
        bool needs = conf.correct.entry->needs & PL_NEEDS_BASE;
        const float w0[3] = {1, 2, 3}, g[3] = {0.5f, -0.5f, 0.25f};
        struct pl_store *s = store_of(&conf, w0);
        struct pl_version *old = pl_store_newest(s);
        pl_store_hold(s, old);
        test_take(s, 0, old, g);
        assert_int_equal(pl_store_commit(s, 1, NULL), 0);
        test_take(s, 1, old, g);
        pl_store_release(s, old); /* the worker fetches something newer */
        test_take(s, 0, pl_store_newest(s), g);
        assert_int_equal(pl_vector_n_readers(s->vectors, old->model_vector), needs);
        assert_int_equal(pl_store_commit(s, 1, NULL), 0);
        if (needs)
            assert_ptr_not_equal(pl_store_newest(s), old); /* it was read during this commit */
        else
            assert_ptr_equal(pl_store_newest(s), old); /* its memory was free to be written */
        if (needs) assert_int_equal(pl_vector_n_readers(s->vectors, old->model_vector), 0);
        assert_int_equal(most_versions(s), needs ? 3 : 2);
    }
}

/* What a worker was handed is what its correction compares with: the look-ahead, not the model. */
TEST(bases_are_what_was_handed_out) {
    struct pl_store_conf conf = test_conf(1, "dc:lambda=1", "nesterov:beta=0.5");
    const float w0 = 0, one = 1;
    conf.rate.lr = 1;
    struct pl_store *s = store_of(&conf, &w0);
    test_take(s, 0, pl_store_newest(s), &one); /* v = 1, model -1, handed -1.5 */
    assert_int_equal(pl_store_commit(s, 1, NULL), 0);
    struct pl_version *v = pl_store_newest(s);
    assert_true(v->model[0] == -1 && v->lookahead[0] == -1.5f);
    pl_store_hold(s, v);
    test_take(s, 0, v, &one); /* 1 + 1 (-1 - -1.5) = 1.5; v = 2 */
    assert_int_equal(pl_store_commit(s, 1, NULL), 0);
    assert_true(pl_store_newest(s)->model[0] == -3);
}

/* The dot product that tuners steer by: this reduced vector with the one before. */
TEST(measures_are_dot_products) {
    struct pl_store_conf conf = test_conf(2, "none", "momentum");
    const float w0[2] = {0, 0}, g[3][2] = {{1, 2}, {3, -1}, {-2, 5}};
    static const double wanted[3] = {NAN, 1, -11};
    conf.measures = true;
    struct pl_store *s = store_of(&conf, w0);
    for (int k = 0; k < 3; k++) {
        struct pl_measure m = {-1};
        test_take(s, 0, pl_store_newest(s), g[k]);
        assert_int_equal(pl_store_commit(s, 1, &m), 0);
        assert_true(k == 0 ? isnan(m.dot) : m.dot == wanted[k]);
    }
}

/* --- keeping ----------------------------------------------------------------------------- */

struct kept {
    char name[64][64];
    size_t n;
    size_t length; /* of vectors, when restored: 0 for "there is none" */
    double number;
    int n_known; /* vectors that were asked for by a name that was kept */
};

static size_t kept_piece(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                         size_t n) {
    struct kept *k = ctx;
    for (size_t i = 0; kind == PL_NUMBERS && i < n; i++) ((double *)v)[i] = k->number;
    if (kind != PL_REALS) return n;
    assert_true(k->n < 64);
    snprintf(k->name[k->n++], sizeof k->name[0], "%s", name);
    return n;
}

static size_t asked_piece(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                          size_t n) {
    struct kept *k = ctx;
    if (kind != PL_REALS) return kept_piece(ctx, name, kind, v, n);
    for (size_t i = 0; i < k->n; i++) k->n_known += strcmp(k->name[i], name) == 0;
    return k->length;
}

/* The vectors of one rule are no other's, though both have a first and a second. */
TEST(kept_vectors_have_an_owner) {
    const float w0[4] = {0};
    for (size_t i = 0; i < n_optimizers; i++) {
        for (size_t j = 0; j < n_optimizers; j++) {
            struct pl_store_conf a = test_conf(4, "none", optimizers[i]);
            struct pl_store_conf b = test_conf(4, "none", optimizers[j]);
            struct pl_store *from = store_of(&a, w0), *to = store_of(&b, w0);
            struct kept kept = {0};
            struct pl_archive archive = {.ctx = &kept, .piece = kept_piece};
            assert_int_equal(pl_store_archive(from, &archive), 0);
            size_t own = 0;
            for (size_t n = 0; n < kept.n; n++) own += strcmp(kept.name[n], "handed") != 0;
            archive.restoring = true;
            archive.piece = asked_piece;
            assert_int_equal(pl_store_archive(to, &archive), 0);
            if (a.optim.entry == b.optim.entry)
                assert_true(kept.n_known >= (int)own);
            else
                assert_true(kept.n_known == (int)(kept.n - own) || kept.n_known == 0);
        }
    }
}

/* Vectors of another length and numbers that cannot be are refused. */
TEST(kept_nonsense_is_refused) {
    static const struct {
        size_t length;
        double number;
        int rc;
    } cases[] = {{0, 0, 0},          {4, 1, 0},         {3, 1, PL_EDATA},       {5, 1, PL_EDATA},
                 {4, NAN, PL_EDATA}, {4, -1, PL_EDATA}, {4, INFINITY, PL_EDATA}};
    const float w0[4] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pl_store_conf conf = test_conf(4, "none", "dana");
        struct pl_store *s = store_of(&conf, w0);
        struct kept kept = {.length = cases[i].length, .number = cases[i].number};
        struct pl_archive archive = {true, &kept, asked_piece};
        assert_int_equal(pl_store_archive(s, &archive), cases[i].rc);
    }
}

int main(void) {
    n_corrections = test_specs(&pl_correct_family, more_corrections, corrections);
    n_optimizers = test_specs(&pl_optim_family, more_optimizers, optimizers);
    return run_all_tests(NULL, NULL);
}
