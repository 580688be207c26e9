/* Filters: verdicts worked out by hand, what is kept, and runs with hostile workers. */
#include <unistd.h>

#include "core/filter.h"
#include "setups.h"
#include "shelf.h"

#define DIM 2

/* --- a filter by itself -------------------------------------------------------------------- */

struct bench {
    struct pl_choice choice;
    struct pl_filter *filter;
    int n_workers, n_trusted;
    float trusted[DIM];
};

static int bench_trusted(void *ctx, const float *w, float *out) {
    struct bench *b = ctx;
    b->n_trusted++;
    memcpy(out, b->trusted, sizeof b->trusted);
    return 0;
}

static void bench_filter(struct bench *b) {
    struct pl_filter_conf conf = {.filter = b->choice,
                                  .dim = DIM,
                                  .n_workers = b->n_workers,
                                  .trusted = bench_trusted,
                                  .ctx = b};
    assert_int_equal(pl_filter_new(&conf, &b->filter), 0);
    assert_non_null(b->filter);
}

static void bench_open(struct bench *b, const char *spec, int n_workers) {
    struct pl_why why;
    *b = (struct bench){.n_workers = n_workers};
    assert_int_equal(
        pl_spec_parse(&pl_filter_family, spec, n_workers, &b->choice.entry, &b->choice.conf, &why),
        0);
    assert_int_equal(pl_filter_check(&b->choice, n_workers, &why), 0);
    bench_filter(b);
}

static void bench_close(struct bench *b) {
    pl_filter_free(b->filter);
    free(b->choice.conf);
}

/* One arrival: worker (from 0), the newest version and the base, a gradient, the verdict. */
struct arrival {
    int worker, now, base;
    float g[DIM];
    bool believed;
};

/* Version i of the model stands at x[i]. */
static bool bench_see(struct bench *b, const float (*x)[DIM], struct arrival *a) {
    struct pl_version now = {.id = (uint64_t)a->now, .lr = 0.5, .model = (float *)x[a->now]};
    struct pl_version base = {.id = (uint64_t)a->base, .lookahead = (float *)x[a->base]};
    bool believed;
    assert_int_equal(pl_filter_see(b->filter, a->worker, &now, &base, a->g, &believed), 0);
    return believed;
}

static void bench_play(struct bench *b, const float (*x)[DIM], const struct arrival *a, size_t from,
                       size_t to) {
    for (size_t i = from; i < to; i++) {
        struct arrival one = a[i];
        if (bench_see(b, x, &one) != a[i].believed)
            fail_msg("arrival %zu of worker %d: expected %d", i, a[i].worker, a[i].believed);
    }
}

/* All of them, by a filter of their own. */
static void check_story(const char *spec, int n_workers, const float (*x)[DIM],
                        const struct arrival *a, size_t n) {
    struct bench b;
    bench_open(&b, spec, n_workers);
    bench_play(&b, x, a, 0, n);
    bench_close(&b);
}

/* --- keeping: pieces by name ---------------------------------------------------------------- */

static void keep(struct shelf *s, struct pl_filter *f, bool restoring) {
    struct pl_archive k = shelf_archive(s, restoring);
    assert_int_equal(pl_filter_archive(f, &k), 0);
}

/* The filter dies, and another goes on with what was kept. */
static void bench_reborn(struct bench *b) {
    struct shelf s = {0};
    uint64_t n = pl_filter_n(b->filter);
    keep(&s, b->filter, false);
    pl_filter_free(b->filter);
    bench_filter(b);
    keep(&s, b->filter, true);
    assert_true(pl_filter_n(b->filter) == n);
    shelf_clear(&s);
}

/* --- kardam --------------------------------------------------------------------------------- */

/* n = 5, f = 1: 4/5 quantile, and three believed in a row have three authors. */
static const float steps[][DIM] = {{0, 0}, {1, 0}, {3, 0}, {4, 0}};
static const struct arrival story[] = {
    {0, 0, 0, {1, 0}, true}, /* nothing to compare with */
    {1, 1, 0, {1, 1}, true}, /* no K_p is known */
    {0,
     2,
     1,
     {3, 0},
     false},                 /* K_0 = 2/1, K = sqrt(5)/2 <= 2, but it was the last but one itself */
    {2, 2, 2, {5, 1}, true}, /* K = 4/2 <= 2 */
    {3, 3, 2, {8, 1}, false}, /* K = 3/1 > 2 */
    {3, 3, 3, {8, 5}, false}, /* K_3 = 4/1, the quantile of {2, 4} is 4, K = 5 > 4 */
    {3, 3, 3, {8, 1}, true},  /* on the same model: K_3 = 4 over the server's step 1; K = 3 <= 4 */
    {3, 3, 3, {8, 1}, false}, /* it has just been there */
    {4, 3, 3, {8, 1}, true},  /* K = 0 */
};
#define STORY (sizeof story / sizeof *story)

TEST(test_kardam_story) {
    struct bench b;
    bench_open(&b, "kardam:f=1", 5);
    bench_play(&b, steps, story, 0, STORY);
    assert_true(pl_filter_n(b.filter) == 4);
    bench_close(&b);
}

TEST(test_kardam_is_restored) {
    for (size_t at = 0; at <= STORY; at++) {
        struct bench b;
        bench_open(&b, "kardam:f=1", 5);
        bench_play(&b, steps, story, 0, at);
        bench_reborn(&b);
        bench_play(&b, steps, story, at, STORY);
        bench_close(&b);
    }
}

/* Kept with ten workers, restored with two and four: nothing is read that is not there. */
TEST(test_kardam_restored_with_fewer) {
    static const float x[][DIM] = {{0, 0}, {1, 0}};
    for (int n = 2; n <= 8; n += 2) {
        struct bench b, fewer;
        struct shelf s = {0};
        bench_open(&b, "kardam:f=2", 10);
        for (int i = 0; i < 10; i++) {
            struct arrival a = {i, 0, 0, {1, 1}, true};
            assert_true(bench_see(&b, x, &a));
        }
        keep(&s, b.filter, false);
        bench_open(&fewer, "kardam", n);
        keep(&s, fewer.filter, true);
        for (int i = 0; i < 4 * n; i++) {
            struct arrival a = {i % n, 1, 1, {1, (float)i}, true};
            bench_see(&fewer, x, &a);
        }
        shelf_clear(&s);
        bench_close(&fewer);
        bench_close(&b);
    }
}

/* K_p of 1, 2, 3, 4 and 100: the 4/5 quantile is the fourth. */
static const struct arrival quantile[] = {
    {0, 0, 0, {0, 0}, true},  {1, 0, 0, {0, 0}, true},    {2, 0, 0, {0, 0}, true},
    {3, 0, 0, {0, 0}, true},  {4, 0, 0, {0, 0}, true},    {4, 1, 1, {100, 0}, false},
    {3, 1, 1, {4, 0}, false}, {0, 1, 1, {1, 0}, true},    {1, 1, 1, {2, 0}, true},
    {2, 1, 1, {3, 0}, true},  {4, 1, 1, {100, 3}, false}, /* K = 97 */
    {4, 1, 1, {3, 5}, false},                             /* K_4 = 97, K = 5 > 4 */
    {4, 1, 1, {3, 4}, false},                             /* K_4 = 1, K = 4 > 3 */
    {3, 1, 1, {3, 3}, true},                              /* K_3 = sqrt(10), K = 3 <= 3 */
};

TEST(test_kardam_quantile) {
    static const float x[][DIM] = {{0, 0}, {1, 0}};
    check_story("kardam:f=1", 5, x, quantile, sizeof quantile / sizeof *quantile);
}

/* f = 2: five believed in a row have five authors. The model stands still, so nothing else is
 * asked. */
TEST(test_kardam_frequency) {
    static const float x[][DIM] = {{0, 0}};
    static const struct arrival a[] = {
        {0, 0, 0, {1, 0}, true},  {1, 0, 0, {1, 0}, true},  {0, 0, 0, {1, 0}, false},
        {2, 0, 0, {1, 0}, true},  {3, 0, 0, {1, 0}, true},  {0, 0, 0, {1, 0}, false},
        {1, 0, 0, {1, 0}, false}, {4, 0, 0, {1, 0}, true},  {1, 0, 0, {1, 0}, false},
        {0, 0, 0, {1, 0}, true},  {2, 0, 0, {1, 0}, false}, {1, 0, 0, {1, 0}, true},
    };
    check_story("kardam:f=2", 8, x, a, sizeof a / sizeof *a);
}

/* One worker alone at first leaves room for the others. */
TEST(test_kardam_begins) {
    static const float x[][DIM] = {{0, 0}, {1, 0}, {2, 0}};
    static const struct arrival a[] = {
        {2, 0, 0, {1, 0}, true},
        {2, 1, 1, {1, 0}, false},
        {3, 1, 0, {1, 0}, true},
        {4, 2, 0, {1, 0}, true},
    };
    check_story("kardam:f=2", 10, x, a, sizeof a / sizeof *a);
}

/* Who is not believed for ten arrivals of every worker is believed then. */
TEST(test_kardam_forgets) {
    static const float x[][DIM] = {{0, 0}, {1, 0}};
    struct bench b;
    bench_open(&b, "kardam:f=1", 5);
    bench_play(&b, x, quantile, 0, 10);
    for (int i = 0; i <= 50; i++) {
        struct arrival a = {4, 1, 1, {3, 1000}, false};
        assert_int_equal(bench_see(&b, x, &a), i == 50);
    }
    bench_close(&b);
}

/* As the formula says: two gradients on one model are infinitely steep. With f = 1, two such
 * workers of two make it accept every gradient. */
TEST(test_kardam_infinite) {
    static const float x[][DIM] = {{0, 0}, {1, 0}};
    static const struct arrival a[] = {
        {0, 0, 0, {0, 0}, true},    {1, 0, 0, {0, 0}, true},  {2, 1, 0, {0, 0}, true},
        {3, 1, 1, {9, 9}, true},                              /* no K_p is known */
        {4, 1, 1, {0, 0}, true},    {3, 1, 1, {0, 0}, false}, /* K_3 is infinite; but W4 was the
                                                                 last but one */
        {0, 1, 1, {1e9f, 0}, true}, /* as is the quantile of {1e9, infinite} */
    };
    check_story("kardam:f=1,same=infinite", 5, x, a, sizeof a / sizeof *a);
}

/* Numbers whose squares are none: never a crash, never believed beside others. */
TEST(test_kardam_too_long) {
    static const float x[][DIM] = {{0, 0}, {1, 0}};
    struct bench b;
    bench_open(&b, "kardam:f=1", 5);
    bench_play(&b, x, quantile, 0, 10);
    for (int i = 0; i < 10; i++) {
        struct arrival a = {4, 1, 1, {i % 2 ? 3e38f : -3e38f, 3e38f}, false};
        assert_false(bench_see(&b, x, &a));
    }
    bench_close(&b);
}

/* --- zeno ----------------------------------------------------------------------------------- */

static void check_zeno(const char *spec, float x, float y, bool believed, float to_x, float to_y) {
    static const float at[][DIM] = {{0, 0}};
    struct bench b;
    struct arrival a = {0, 0, 0, {x, y}, believed};
    bench_open(&b, spec, 3);
    b.trusted[0] = 3;
    b.trusted[1] = 4;
    if (bench_see(&b, at, &a) != believed) fail_msg("%s: (%g, %g)", spec, x, y);
    if (believed) {
        assert_true(fabsf(a.g[0] - to_x) < 1e-6f);
        assert_true(fabsf(a.g[1] - to_y) < 1e-6f);
    }
    bench_close(&b);
}

/* v = (3, 4), of length 5; the rate is 1/2. */
TEST(test_zeno_verdicts) {
    check_zeno("zeno", 6, 8, true, 3, 4);           /* 12.5 - 0.05 */
    check_zeno("zeno", -1, 0, false, 0, 0);         /* -7.5 - 0.05 */
    check_zeno("zeno:rho=0.1", 4, -3, false, 0, 0); /* 0 - 2.5 < -0.05 */
    check_zeno("zeno:rho=0", 40, -30, true, 4, -3); /* 0 >= -0.05 */
    check_zeno("zeno:rho=0,eps=0", 40, -30, true, 4, -3);
    check_zeno("zeno:rho=0.6", 6, 8, false, 0, 0);      /* 12.5 - 15 < -0.05 */
    check_zeno("zeno:rho=0.6,eps=6", 6, 8, true, 3, 4); /* … >= -3 */
    check_zeno("zeno", 0, 0, true, 0, 0);
    check_zeno("zeno:eps=0", 1e38f, -1e38f, false, 0, 0);
}

/* Its own gradient is taken at the first arrival, and then when so many updates have passed. */
TEST(test_zeno_looks_now_and_then) {
    static const float x[][DIM] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}};
    static const int expected[] = {1, 1, 1, 2, 2};
    struct bench b;
    bench_open(&b, "zeno:every=3", 2);
    b.trusted[0] = 1;
    for (int v = 0; v < 5; v++)
        for (int twice = 0; twice < 2; twice++) {
            struct arrival a = {0, v, v, {1, 0}, true};
            assert_true(bench_see(&b, x, &a));
            assert_int_equal(b.n_trusted, expected[v]);
            bench_reborn(&b);
        }
    bench_close(&b);
}

/* --- what does not fit ---------------------------------------------------------------------- */

#define SMALL                                                                                      \
    "model=softmax data=digits batch=8 lr=0.05 updates=300 threads=2 eval-samples=100 "            \
    "spawn=threads eval-every=1000 "

static void refuses(const char *options, const char *words) {
    pl_setup *s = setup_of(SMALL "%s", options);
    if (pl_setup_check(s) == 0 || !strstr(pl_setup_why(s), words))
        fail_msg("%s: '%s'", options, pl_setup_why(s));
}

TEST(test_refusals) {
    refuses("method=kardam:f=3 workers=10", "more than 3f+1 workers");
    refuses("method=zeno++ model=quadratic", "has no data");
    refuses("method=zeno++ model=external:dim=3", "give --exchange DIR, where a client puts");
    refuses("method=kardam attack=alie:f=1", "made where a group is committed");
    refuses("filter=zeno++ policy=kasync", "use --method zeno++");
}

/* --- runs ----------------------------------------------------------------------------------- */

/* What the event log says of workers [from, to), counted from 1: the share not believed. */
static double unbelieved(const char *path, int from, int to) {
    FILE *f = fopen(path, "r");
    char line[1000], what[16];
    double n = 0, all = 0;
    int worker;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*s %15s W%d", what, &worker) != 2) continue;
        if (worker < from || worker >= to) continue;
        n += strcmp(what, "reject") == 0;
        all += strcmp(what, "reject") == 0 || strcmp(what, "arrive") == 0;
    }
    fclose(f);
    return all > 0 ? n / all : 0;
}

/* Three hostile workers of n: the run comes to its end, and they are believed less than others. How
 * often each worker of a real run answers depends on the machine, and with it who is believed: only
 * the account is checked. */
static void check_hostile(const char *method, int n, bool real) {
    char options[300], events[] = "events-XXXXXX";
    int fd = mkstemp(events);
    assert_true(fd >= 0);
    close(fd);
    remove(events);
    snprintf(options, sizeof options,
             "method=%s workers=%d attack=signflip:f=3,scale=-10 events=%s%s", method, n, events,
             real ? " delay=const:t=0.001" : "");
    pl_setup *s = setup_of(SMALL "%s", options);
    pl_run *run = real ? train(s) : simulate(s);
    double honest = unbelieved(events, 1, n - 2), hostile = unbelieved(events, n - 2, n + 1);
    remove(events);
    assert_true(pl_run_number(run, "filtered") <= pl_run_number(run, "tasks.rejected"));
    if (real) return;
    size_t dim;
    const float *w = pl_run_weights(run, &dim);
    for (size_t i = 0; i < dim; i++) assert_true(isfinite(w[i]));
    assert_false(pl_run_diverged(run));
    if (pl_run_text(run, "trouble")) fail_msg("%s: %s", options, pl_run_text(run, "trouble"));
    assert_true(pl_run_number(run, "updates") == 300);
    assert_true(pl_run_number(run, "filtered") == pl_run_number(run, "tasks.rejected"));
    if (!(hostile > honest + 0.1))
        fail_msg("%s: honest %g, hostile %g not believed", options, honest, hostile);
}

TEST(test_hostile_runs) {
    for (int real = 0; real < 2; real++) {
        check_hostile("kardam", 10, real);
        check_hostile("kardam:f=3", 11, real);
        check_hostile("zeno++:eps=0", 10, real);
    }
}

/* Too few are left for the frequency filter: the run says so, and ends. */
TEST(test_stuck_run_ends) {
    char path[] = "stuck-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    for (int i = 3; i <= 5; i++) fprintf(f, "5 leave %d\n", i);
    fclose(f);
    pl_setup *s = setup_of(SMALL "method=kardam:f=1 workers=5 script=%s", path);
    pl_run *run = simulate(s);
    assert_non_null(pl_run_text(run, "trouble"));
    assert_non_null(strstr(pl_run_text(run, "trouble"), "has rejected the last"));
    assert_false(pl_run_diverged(run));
    remove(path);
}

/* The server's gradient is computed again every ten updates. It used to reject every gradient of
 * these honest workers after the first few updates, and so it was never computed again. */
TEST(zeno_lets_honest_workers_train) {
    pl_run *run = NULL;
    pl_setup *s = setup_of("method=zeno++ data=fashion updates=400");
    int rc = pl_simulate(s, &run);
    if (rc == PL_EIO) {
        print_message("skipped: %s\n", pl_setup_why(s));
        skip();
    }
    if (rc) fail_msg("%s", pl_setup_why(s));
    own_run(run);
    assert_null(pl_run_text(run, "trouble"));
    assert_true(pl_run_number(run, "tasks.rejected") < 400);
    if (pl_run_number(run, "test_accuracy") < 0.55)
        fail_msg("accuracy %g", pl_run_number(run, "test_accuracy"));
}

/* --- dampening ------------------------------------------------------------------------------ */

TEST(test_exp) {
    struct pl_choice c;
    assert_int_equal(pl_spec_parse(&pl_correct_family, "exp", 4, &c.entry, &c.conf, NULL), 0);
    const struct pl_correct *rule = (const struct pl_correct *)c.entry;
    assert_true(rule->factor(c.conf, &(struct pl_correct_at){.lag = 0}) == 1);
    assert_true(fabs(rule->factor(c.conf, &(struct pl_correct_at){.lag = 5}) - 0.36787944117) <
                1e-10);
    free(c.conf);
}
