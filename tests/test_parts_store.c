/* Parts of the model without a run: a commit touches its ranges and nothing else, rates change by
 * the losses of blocks, and a policy survives whatever a checkpoint says about its blocks.
 *
 * Seed: PL_TEST_SEED in the environment. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "choices.h"
#include "core/recipe.h"
#include "learn/part.h"
#include "seed.h"
#include "suite_train.h"

/* --- going on from a checkpoint ---------------------------------------------------------- */

/* What a checkpoint holds is not believed: whatever the memory of a policy was, it goes on and
 * keeps to the rules, which control checks. */
static struct pl_rng kept_rng;

static size_t kept_bytes(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                         size_t n) {
    (void)ctx, (void)name;
    if (kind != PL_BYTES) return 0;
    uint32_t how = pl_rng_below(&kept_rng, 3);
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)v)[i] = how == 0   ? (uint8_t)pl_rng_u32(&kept_rng)
                            : how == 1 ? 0xff
                                       : (uint8_t)pl_rng_below(&kept_rng, 2);
    return n;
}

static void test_kept_nonsense(void **state) {
    static const char *const policies[] = {"blocks", "blocks:grid=9", "strata",
                                           "strata:grid=7,order=random"};
    const struct pl_archive archive = {.restoring = true, .piece = kept_bytes};
    (void)state;
    for (uint64_t round = 0; round < 400; round++) {
        struct pl_why why = {""};
        const struct pl_plan *plan;
        pl_rng_init(&kept_rng, test_seed, PL_STREAM_TEST, 9, round);
        struct pl_control *c = control_of(policies[round % 4], "fixed", 5, round);
        assert_int_equal(pl_control_archive(c, &archive), 0);
        const struct pl_view *v = pl_control_view(c);
        for (int i = 0; i < 300; i++) {
            int w = i < 5 ? i : (int)pl_rng_below(&kept_rng, 5);
            bool here = v->worker[w].state != PL_GONE;
            struct pl_event e = {.kind = !here                              ? PL_JOIN
                                         : pl_rng_below(&kept_rng, 10) == 0 ? PL_LEAVE
                                                                            : PL_ARRIVE,
                                 .worker = w,
                                 .task = v->worker[w].task,
                                 .samples = 1};
            if (pl_control_step(c, &e, &plan, &why))
                fail_msg("%s, round %d: %s", policies[round % 4], (int)round, why.text);
        }
        pl_control_free(c);
    }
}

/* --- the store --------------------------------------------------------------------------- */

#define PAGE 4096
#define STORE_DIM (16 * PAGE / sizeof(float))
static char *pages[4];
static pl_real *unused[4];
static int n_pages, n_unused;

static pl_real *page_get(void *ctx, int writer) {
    (void)ctx;
    (void)writer;
    if (n_unused > 0) return unused[--n_unused];
    if (n_pages == 4) return NULL;
    char *at = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    pages[n_pages++] = at;
    return (pl_real *)(void *)at;
}

static void page_put(void *ctx, int id, int writer, pl_real *v) {
    (void)ctx;
    (void)id;
    (void)writer;
    if (v) unused[n_unused++] = v;
}

/* All pages of the i-th vector except `a` and `b`: touching them ends the test. */
static void guard(int i, int a, int b, int how) {
    for (int k = 0; k < 16; k++)
        if (k != a && k != b) assert_int_equal(mprotect(pages[i] + k * PAGE, PAGE, how), 0);
}

static struct pl_store *open_store(const char *schedule, double epoch, struct pl_store_conf *conf) {
    struct pl_why why = {""};
    struct pl_store *s = NULL;
    static pl_real w0[STORE_DIM];
    *conf = (struct pl_store_conf){.dim = STORE_DIM,
                                   .n_workers = 2,
                                   .rate = {.lr = 0.1, .epoch_samples = epoch},
                                   .vectors = NULL};
    n_pages = n_unused = 0;
    assert_int_equal(pl_vectors_new(&conf->vectors), 0);
    pl_vectors_memory(conf->vectors, STORE_DIM,
                      &(struct pl_vector_memory){page_get, page_put, NULL});
    if (pl_chain_parse(&pl_schedule_family, schedule, 2, &conf->rate.schedule, &why) ||
        pl_spec_parse(&pl_optim_family, "sgd", 2, &conf->optim.entry, &conf->optim.conf, &why) ||
        pl_spec_parse(&pl_correct_family, "none", 2, &conf->correct.entry, &conf->correct.conf,
                      &why) ||
        pl_chain_parse(&pl_reduce_family, "mean", 2, &conf->reduce, &why) ||
        pl_store_new(conf, w0, &s, &why))
        fail_msg("%s", why.text);
    return s;
}

static void close_store(struct pl_store *s, struct pl_store_conf *conf) {
    pl_store_free(s);
    pl_vectors_free(conf->vectors);
    for (int i = 0; i < n_pages; i++) munmap(pages[i], 16 * PAGE);
    pl_chain_free(&conf->reduce);
    pl_chain_free(&conf->rate.schedule);
    free(conf->optim.conf);
    free(conf->correct.conf);
}

static void test_a_commit_touches_its_ranges(void **state) {
    (void)state;
    struct pl_store_conf conf;
    struct pl_store *s = open_store("constant", 100, &conf);
    static pl_real vector[STORE_DIM];
    const size_t page = PAGE / sizeof(float);
    const struct pl_range range[PL_RANGES] = {{3 * page + 5, 100}, {9 * page, page}};
    for (size_t i = 0; i < STORE_DIM; i++) vector[i] = (pl_real)(i + 1);
    struct pl_version *v = pl_store_newest(s);
    pl_store_hold(s, v); /* as a worker does */
    for (int round = 1; round <= 3; round++) {
        struct pl_member m = {.samples = 50, .factor = 1, .loss = 1};
        assert_int_equal(pl_store_take_part(s, &m, range, 2, vector), 0);
        guard(0, 3, 9, PROT_NONE);
        assert_int_equal(pl_store_commit(s, 1, NULL), 0);
        guard(0, 3, 9, PROT_READ | PROT_WRITE);
        assert_ptr_equal(pl_store_newest(s), v);
        assert_true(v->id == (uint64_t)round &&
                    pl_progress_epochs(pl_store_progress(s)) == round / 2.0);
        for (size_t i = 0; i < STORE_DIM; i++) {
            bool in = (i - range[0].from < range[0].n) || (i - range[1].from < range[1].n);
            size_t at =
                i - range[0].from < range[0].n ? i - range[0].from : range[0].n + i - range[1].from;
            assert_true(v->model[i] == (in ? vector[at] : 0));
        }
        for (size_t i = 0; i < STORE_DIM; i++) vector[i] += 1;
    }
    assert_int_equal(pl_store_n_versions(s), 1);
    pl_store_release(s, v);
    close_store(s, &conf);
}

/* The rate goes with the mean loss of epochs of 100 samples, for whole gradients as for parts. */
static void test_bold(void **state) {
    static const double loss[] = {4, 2, 3, 3, 1}; /* of the epochs */
    static const double lr[] = {0.1, 0.1, 0.105, 0.0525, 0.0525, 0.055125};
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        struct pl_store_conf conf;
        struct pl_store *s = open_store("bold", 100, &conf);
        static pl_real vector[STORE_DIM];
        const struct pl_range range[PL_RANGES] = {{0, 10}, {100, 10}};
        memset(vector, 0, sizeof vector);
        for (int i = 0; i < 5; i++) {
            assert_true(fabs(pl_store_newest(s)->lr - lr[i]) < 1e-12);
            for (int half = 0; half < 2; half++) {
                /* one has no loss to tell, and counts for nothing */
                struct pl_member none = {.samples = 70, .factor = 1, .loss = NAN};
                struct pl_member m = {.samples = 50, .factor = 1, .loss = loss[i] + half - 0.5};
                int rc = parts ? pl_store_take_part(s, &none, range, 2, vector)
                               : pl_store_take(s, &none, pl_store_newest(s), vector);
                if (!rc) rc = pl_store_commit(s, 1, NULL);
                if (!rc)
                    rc = parts ? pl_store_take_part(s, &m, range, 2, vector)
                               : pl_store_take(s, &m, pl_store_newest(s), vector);
                if (!rc) rc = pl_store_commit(s, 1, NULL);
                assert_int_equal(rc, 0);
            }
        }
        assert_true(fabs(pl_store_newest(s)->lr - lr[5]) < 1e-12);
        close_store(s, &conf);
    }
}

int main(void) {
    if (suite_begin(seed_of_test(1))) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_commit_touches_its_ranges),
        cmocka_unit_test(test_bold),
        cmocka_unit_test(test_kept_nonsense),
    };
    return suite_end(cmocka_run_group_tests(tests, NULL, NULL));
}
