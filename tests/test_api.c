/* The library as a program that embeds it sees it: paceline.h and nothing else. A model of one's
 * own trains, whatever fails says why in a sentence, copies share their data on several threads,
 * everything is listed, planned and drawn.
 *
 * Seed: PL_TEST_SEED in the environment. */
#include <ctype.h>
#include <math.h>
#include <paceline.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "seed.h"

static uint64_t test_seed;
static bool slow; /* under a sanitizer: smaller */

/* Pairs of keys and values; ends with NULL. */
static pl_setup *make(const char *key, ...) {
    pl_setup *s = NULL;
    va_list ap;
    char seed[32];
    assert_int_equal(pl_setup_new(&s), 0);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)test_seed);
    assert_int_equal(pl_setup_set(s, "seed", seed), 0);
    va_start(ap, key);
    for (; key; key = va_arg(ap, const char *))
        if (pl_setup_set(s, key, va_arg(ap, const char *))) fail_msg("%s", pl_setup_why(s));
    va_end(ap);
    return s;
}

static pl_run *run_setup(pl_setup *s) {
    pl_run *run = NULL;
    if (pl_simulate(s, &run)) fail_msg("%s", pl_setup_why(s));
    assert_string_equal(pl_setup_why(s), "");
    return run;
}

/* One sentence: something in it, one line, no full stop, no leftovers of a format. */
static void check_sentence(const char *why) {
    size_t n = strlen(why);
    if (n < 10 || strchr(why, '\n') || why[n - 1] == '.' || why[n - 1] == ' ' ||
        strstr(why, "%s") || strstr(why, "(null)"))
        fail_msg("\"%s\" is not a sentence", why);
}

/* ---- a function of one's own ---- */

#define LS_DIM 8
#define LS_ROWS 200

/* Least squares: rows a_i, targets b_i = a_i . x; mini-batches of `n` rows named by the sample. */
struct least_squares {
    double a[LS_ROWS][LS_DIM], b[LS_ROWS], x[LS_DIM];
    atomic_int n_gradients, n_scores, n_cancelled;
    int fail_after; /* gradients; 0: never */
    int status;
};

static uint64_t ls_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static double ls_unit(uint64_t x) {
    return (double)(ls_mix(x) >> 11) * 0x1p-52 - 1;
}

static void ls_make(struct least_squares *ls) {
    memset(ls, 0, sizeof *ls);
    for (int k = 0; k < LS_DIM; k++) ls->x[k] = 3 * ls_unit(test_seed * 1000 + (uint64_t)k);
    for (int i = 0; i < LS_ROWS; i++)
        for (int k = 0; k < LS_DIM; k++) {
            ls->a[i][k] = ls_unit(test_seed * 999983 + (uint64_t)(i * LS_DIM + k));
            ls->b[i] += ls->a[i][k] * ls->x[k];
        }
}

static double ls_row(const struct least_squares *ls, const float *w, int i, float *g,
                     double scale) {
    double error = -ls->b[i];
    for (int k = 0; k < LS_DIM; k++) error += ls->a[i][k] * w[k];
    for (int k = 0; g && k < LS_DIM; k++) g[k] += (float)(scale * error * ls->a[i][k]);
    return error * error / 2;
}

static int ls_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                       double *loss) {
    struct least_squares *ls = ctx;
    int n = atomic_fetch_add(&ls->n_gradients, 1);
    if (ls->fail_after && n >= ls->fail_after) return ls->status;
    if (s->x || s->label || s->dim != 0) return PL_EDATA; /* wants_data is 0 */
    memset(g, 0, LS_DIM * sizeof *g);
    *loss = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->cancelled(s->token)) {
            ls->n_cancelled++;
            return PL_ECANCELLED;
        }
        uint64_t key = s->seed ^ (s->batch_no << 20) ^ ((uint64_t)s->worker << 50) ^ i;
        *loss += ls_row(ls, w, (int)(ls_mix(key) % LS_ROWS), g, 1.0 / s->n) / s->n;
    }
    return PL_OK;
}

static void ls_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                     uint32_t *n_right) {
    struct least_squares *ls = ctx;
    ls->n_scores++;
    *n_right = 0;
    *loss = 0;
    for (int i = 0; i < LS_ROWS; i++) *loss += ls_row(ls, w, i, NULL, 0) / LS_ROWS * s->n;
}

static void ls_init(void *ctx, uint64_t seed, float *w) {
    (void)ctx;
    for (int k = 0; k < LS_DIM; k++) w[k] = (float)ls_unit(seed + (uint64_t)k);
}

static void functions_train(void **state) {
    static const char *const methods[] = {"sync", "async", "ksync", "abs", "gap-aware", "dana"};
    struct least_squares ls;
    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        float first[LS_DIM];
        for (int threads = 1; threads <= 3; threads += 2) {
            size_t n;
            const struct pl_point *p;
            ls_make(&ls);
            pl_setup *s = make("method", methods[m], "workers", "4", "batch", "16", "lr",
                               m < 4 ? "0.2" : "0.02", "updates", slow ? "300" : "1000", "threads",
                               threads == 1 ? "1" : "3", NULL);
            const struct pl_function f = {.dim = LS_DIM,
                                          .ctx = &ls,
                                          .init = ls_init,
                                          .gradient = ls_gradient,
                                          .score = ls_score};
            assert_int_equal(pl_setup_function(s, &f), 0);
            pl_run *run = run_setup(s);
            const float *w = pl_run_weights(run, &n);
            assert_int_equal(n, LS_DIM);
            size_t n_points = pl_run_points(run, &p);
            assert_int_equal(ls.n_scores, n_points);
            if (!(p[n_points - 1].loss < 0.05 * p[0].loss))
                fail_msg("%s: %g to %g", methods[m], p[0].loss, p[n_points - 1].loss);
            assert_true(isnan(pl_run_number(run, "test_accuracy")));
            if (threads == 1)
                memcpy(first, w, sizeof first);
            else
                assert_memory_equal(first, w, sizeof first);
            pl_run_free(run);
            pl_setup_free(s);
        }
    }
}

/* Without score() the loss is that of gradient(); without init() the start is zero. */
static void functions_need_little(void **state) {
    struct least_squares ls;
    const struct pl_point *p;
    (void)state;
    ls_make(&ls);
    pl_setup *s = make("method", "sync", "workers", "2", "updates", "100", "batch", "32", NULL);
    const struct pl_function f = {.dim = LS_DIM, .ctx = &ls, .gradient = ls_gradient};
    assert_int_equal(pl_setup_function(s, &f), 0);
    pl_run *run = run_setup(s);
    assert_int_equal(ls.n_scores, 0);
    size_t n = pl_run_points(run, &p);
    assert_true(n > 1 && isfinite(p[0].loss) && p[n - 1].loss < p[0].loss);
    pl_run_free(run);
    pl_setup_free(s);
}

/* A gradient that fails ends the run with its status and a sentence about itself. */
static void functions_may_fail(void **state) {
    static const int statuses[] = {PL_EDATA, PL_EIO, PL_ENOMEM, PL_ECANCELLED, 7};
    (void)state;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        for (int threads = 1; threads <= 2; threads++) {
            struct least_squares ls;
            pl_run *run = NULL;
            ls_make(&ls);
            ls.fail_after = 20;
            ls.status = statuses[i];
            pl_setup *s = make("method", "async", "threads", threads == 1 ? "1" : "2", NULL);
            const struct pl_function f = {
                .dim = LS_DIM, .ctx = &ls, .gradient = ls_gradient, .score = ls_score};
            assert_int_equal(pl_setup_function(s, &f), 0);
            int rc = pl_simulate(s, &run);
            assert_int_equal(rc, statuses[i] < 0 ? statuses[i] : PL_EUSAGE);
            check_sentence(pl_setup_why(s));
            if (rc != PL_ENOMEM) assert_non_null(strstr(pl_setup_why(s), "the gradient of worker"));
            assert_null(run);
            pl_setup_free(s);
        }
    pl_setup *s = make(NULL);
    struct pl_function none = {.dim = 0, .gradient = ls_gradient};
    assert_int_equal(pl_setup_function(s, &none), PL_EUSAGE);
    check_sentence(pl_setup_why(s));
    none = (struct pl_function){.dim = 3};
    assert_int_equal(pl_setup_function(s, &none), PL_EUSAGE);
    check_sentence(pl_setup_why(s));
    pl_setup_free(s);
}

/* A nearest-mean classifier on the setup's data: rows and labels come as they should. */
static int means_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                          double *loss) {
    atomic_int *n_bad = ctx;
    if (s->dim != 64 || !s->x || !s->label) ++*n_bad;
    memset(g, 0, 640 * sizeof *g);
    *loss = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->label[i] >= 10) ++*n_bad;
        for (uint32_t k = 0; k < 64; k++) {
            double x = s->x[i * 64 + k], d = w[s->label[i] * 64u + k] - x;
            if (!(x >= 0 && x <= 1)) ++*n_bad;
            g[s->label[i] * 64u + k] += (float)(d / s->n);
            *loss += d * d / 2 / s->n;
        }
    }
    return PL_OK;
}

static void means_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                        uint32_t *n_right) {
    (void)ctx;
    *loss = 0;
    *n_right = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        double least = INFINITY;
        uint32_t best = 0;
        for (uint32_t c = 0; c < 10; c++) {
            double d2 = 0;
            for (uint32_t k = 0; k < 64; k++) {
                double d = w[c * 64 + k] - s->x[i * 64 + k];
                d2 += d * d;
            }
            if (d2 < least) {
                least = d2;
                best = c;
            }
            if (c == s->label[i]) *loss += d2 / 2;
        }
        *n_right += best == s->label[i];
    }
}

static void functions_on_data(void **state) {
    atomic_int n_bad = 0;
    (void)state;
    pl_setup *s = make("method", "sync", "workers", "3", "lr", "1", "updates", "60", "data",
                       "digits:samples=500,test=100,side=8", NULL);
    const struct pl_function f = {.dim = 640,
                                  .wants_data = 1,
                                  .classifies = 1,
                                  .ctx = &n_bad,
                                  .gradient = means_gradient,
                                  .score = means_score};
    assert_int_equal(pl_setup_function(s, &f), 0);
    pl_run *run = run_setup(s);
    assert_int_equal(n_bad, 0);
    assert_true(pl_run_number(run, "test_accuracy") > 0.3); /* a guess has 0.1 */
    pl_run_free(run);
    pl_setup_free(s);
}

/* ---- copies ---- */

static void copies_share_and_differ(void **state) {
    (void)state;
    pl_setup *a = make("data", "digits:samples=300,test=50", "model", "softmax", "updates", "20",
                       "workers", "3", NULL);
    assert_int_equal(pl_setup_check(a), 0);
    pl_setup *b = NULL, *c = NULL;
    assert_int_equal(pl_setup_copy(a, &b), 0);
    assert_int_equal(pl_setup_copy(b, &c), 0);
    assert_int_equal(pl_setup_set(b, "seed", "99"), 0);
    pl_run *run_a = run_setup(a), *run_b = run_setup(b), *run_c;
    pl_setup_free(a); /* the data stays for the others */
    pl_setup_free(b);
    run_c = run_setup(c);
    assert_string_equal(pl_run_json(run_a), pl_run_json(run_c));
    assert_string_not_equal(pl_run_json(run_a), pl_run_json(run_b));
    assert_int_equal(pl_setup_set(c, "data", "digits:samples=200,test=50"), 0); /* lets go of it */
    pl_run *other = run_setup(c);
    assert_string_not_equal(pl_run_json(other), pl_run_json(run_c));
    pl_run_free(run_a);
    pl_run_free(run_b);
    pl_run_free(run_c);
    pl_run_free(other);
    pl_setup_free(c);
    pl_setup_free(NULL);
    pl_run_free(NULL);
}

static void *thread_main(void *arg) {
    pl_setup *s = arg;
    pl_run *run = NULL;
    char *json = NULL;
    if (!pl_simulate(s, &run)) json = strdup(pl_run_json(run));
    pl_run_free(run);
    pl_setup_free(s);
    return json;
}

/* Any number of setups at once, each by one thread at a time: copies are setups. */
static void copies_run_side_by_side(void **state) {
    enum { N = 6 };
    (void)state;
    for (int round = 0; round < 3; round++) {
        pthread_t thread[N];
        char *json[N];
        pl_setup *a = make("data", "digits:samples=200,test=20", "model", "softmax", "updates",
                           "10", "workers", "3", "threads", "1", NULL);
        assert_int_equal(pl_setup_check(a), 0);
        for (int i = 0; i < N; i++) {
            pl_setup *copy = NULL;
            assert_int_equal(pl_setup_copy(a, &copy), 0);
            assert_int_equal(pthread_create(&thread[i], NULL, thread_main, copy), 0);
        }
        pl_setup_free(a);
        for (int i = 0; i < N; i++) {
            void *got;
            assert_int_equal(pthread_join(thread[i], &got), 0);
            json[i] = got;
            assert_non_null(json[i]);
            assert_string_equal(json[i], json[0]);
        }
        for (int i = 0; i < N; i++) free(json[i]);
    }
}

/* ---- failures ---- */

static void failures_have_sentences(void **state) {
    static const struct {
        const char *key, *value;
        int status;
        const char *word;
    } row[] = {
        {"workres", "3", PL_EUSAGE, "did you mean 'workers'?"},
        {"workers", "0", PL_EUSAGE, "from 1 to"},
        {"workers", "", PL_EUSAGE, "workers"},
        {"lr", "nan", PL_EUSAGE, "lr=nan"},
        {"lr", "-1", PL_EUSAGE, "lr=-1"},
        {"lr", "inf", PL_EUSAGE, "lr=inf"},
        {"seed", "1.5", PL_EUSAGE, "whole number"},
        {"sampling", "both", PL_EUSAGE, "iid|epoch"},
        {"method", "gap-awre", PL_EUSAGE, "did you mean 'gap-aware'?"},
        {"method", "kasync:q=3", PL_EUSAGE, "'q'"},
        {"policy", "ksyn", PL_EUSAGE, "did you mean 'ksync'?"},
        {"policy", "ksync:k=9", PL_EUSAGE, "number of workers"},
        {"policy", "ksync:k=", PL_EUSAGE, "k="},
        {"tuner", "adasink", PL_EUSAGE, "did you mean 'adasync'?"},
        {"correct", "gaps", PL_EUSAGE, "did you mean 'gap'?"},
        {"reduce", "median?", PL_EUSAGE, "reduce"},
        {"optim", "adma", PL_EUSAGE, "did you mean 'adam'?"},
        {"local", "step", PL_EUSAGE, "did you mean 'steps'?"},
        {"model", "lmp", PL_EUSAGE, "did you mean 'mlp'?"},
        {"model", "mlp:hidden=0", PL_EUSAGE, "hidden=0"},
        {"data", "digit", PL_EUSAGE, "did you mean 'digits'?"},
        {"data", "idx:/nowhere/at/all", PL_EIO, "/nowhere/at/all"},
        {"data", "libsvm:/nowhere", PL_EIO, "/nowhere"},
        {"partition", "labels", PL_EUSAGE, "did you mean 'label'?"},
        {"delay", "exq:mean=1", PL_EUSAGE, "did you mean 'exp'?"},
        {"delay", "exp:mean=0", PL_EUSAGE, "mean=0"},
        {"delay", "exp:mean=1,", PL_EUSAGE, "cannot end with a comma"},
        {"delay", "", PL_EUSAGE, "delay ''"},
        {"delay", "trace:/nowhere", PL_EIO, "/nowhere"},
        {"net", "latncy=1", PL_EUSAGE, "did you mean 'latency'?"},
        {"net", "latency=-1", PL_EUSAGE, "latency=-1"},
        {"lr-schedule", "stop:at=1", PL_EUSAGE, "did you mean 'step'?"},
        {"lr-schedule", "constant+", PL_EUSAGE, "spec"},
        {"script", "/nowhere", PL_EIO, "script '/nowhere'"},
        {"log", "/nowhere/log", PL_EIO, "log file '/nowhere/log'"},
        {"events", "/nowhere/log", PL_EIO, "events file '/nowhere/log'"},
        {"target-accuracy", "1.5", PL_EUSAGE, "target-accuracy=1.5"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        pl_setup *s =
            make("data", "digits:samples=100,test=10", "model", "softmax", "updates", "2", NULL);
        pl_run *run = NULL;
        assert_string_equal(pl_setup_why(s), "");
        int rc = pl_setup_set(s, row[i].key, row[i].value);
        if (!rc) rc = pl_simulate(s, &run);
        if (rc != row[i].status || !strstr(pl_setup_why(s), row[i].word))
            fail_msg("%s=%s gave %d, \"%s\"; expected %d and '%s'", row[i].key, row[i].value, rc,
                     pl_setup_why(s), row[i].status, row[i].word);
        check_sentence(pl_setup_why(s));
        assert_null(run);
        pl_setup_free(s);
    }
}

/* Options that are right one by one and do not fit together. */
static void misfits_have_sentences(void **state) {
    (void)state;
    pl_setup *const misfit[] = {
        make("optim", "dana", "policy", "kasync:k=2", "model", "none", NULL),
        make("model", "none", "target-loss", "1", NULL),
        make("model", "quadratic", "target-accuracy", "0.5", NULL),
        make("model", "quadratic", "epochs", "2", NULL),
        make("model", "quadratic", "lr-schedule", "step", NULL),
        make("model", "softmax", "data", "digits:test=0", "target-accuracy", "0.5", NULL),
        make("model", "none", "policy", "ssp", "tuner", "adasync", NULL),
        make("method", "sync:k=3,k=99", "model", "none", NULL),
        make("lr-schedule", "constant+constant+constant+constant+constant", "model", "quadratic",
             NULL),
    };
    for (size_t i = 0; i < sizeof misfit / sizeof *misfit; i++) {
        pl_run *run = NULL;
        assert_int_equal(pl_setup_check(misfit[i]), PL_EUSAGE);
        check_sentence(pl_setup_why(misfit[i]));
        assert_int_equal(pl_simulate(misfit[i], &run), PL_EUSAGE);
        check_sentence(pl_setup_why(misfit[i]));
        assert_null(run);
        /* the setup is as good as before */
        assert_int_equal(pl_setup_set(misfit[i], "workers", "3"), 0);
        assert_string_equal(pl_setup_why(misfit[i]), "");
        pl_setup_free(misfit[i]);
    }
}

static void numbers_have_names(void **state) {
    (void)state;
    pl_setup *s = make("model", "none", "method", "ksync", "updates", "10", NULL);
    pl_run *run = run_setup(s);
    assert_true(pl_run_number(run, "updates") == 10 && pl_run_number(run, "workers") == 8);
    assert_true(pl_run_number(run, "k_final") == 4);
    assert_true(isnan(pl_run_number(run, "no such number")) && isnan(pl_run_number(run, "tasks")));
    assert_true(isnan(pl_run_number(run, "")));
    assert_ptr_equal(pl_run_json(run), pl_run_json(run));
    assert_string_equal(pl_version(), PL_VERSION);
    pl_run_free(run);
    pl_setup_free(s);
}

/* ---- lists ---- */

struct listed {
    int n, n_family;
    char family[32], families[400], names[8000];
};

static void list_one(void *ctx, const struct pl_item *item) {
    struct listed *l = ctx;
    l->n++;
    if (strcmp(l->family, item->family) != 0) {
        size_t used = strlen(l->families);
        snprintf(l->families + used, sizeof l->families - used, "%s ", item->family);
        snprintf(l->family, sizeof l->family, "%s", item->family);
        l->n_family++;
    }
    size_t used = strlen(l->names);
    snprintf(l->names + used, sizeof l->names - used, "%s/%s ", item->family, item->name);
    assert_true(item->name[0] && item->brief[0] && item->family_brief[0] && item->paper);
    bool method = strcmp(item->family, "method") == 0;
    for (const char *c = item->name; *c; c++) /* a '+' chains members, but no methods */
        assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-' ||
                    (method && *c == '+'));
    bool option = strcmp(item->family, "option") == 0;
    bool optim = strcmp(item->family, "optim") == 0; /* its detail: --lr 0.1 */
    assert_true((item->detail[0] != '\0') == (method || option || optim));
    for (size_t i = 0; i < item->n_options; i++) {
        assert_true(item->option[i].name[0] && item->option[i].help[0] && item->option[i].def);
        assert_true(item->option[i].accepts[0]);
    }
}

static void lists_cover_everything(void **state) {
    static const char *const families[] = {"method", "policy",    "tuner",  "correct",  "reduce",
                                           "optim",  "local",     "filter", "schedule", "model",
                                           "data",   "partition", "delay",  "attack",   "option"};
    static const char *const names[] = {
        "method/abs ",   "policy/ksync ", "tuner/adasync ",  "correct/gap ",
        "reduce/mean ",  "optim/ormo ",   "local/steps ",    "schedule/cosine ",
        "model/none ",   "model/cnn ",    "data/idx ",       "partition/label ",
        "delay/hetero ", "attack/alie ",  "option/workers ", "option/target "};
    struct listed all = {0};
    int n = 0;
    (void)state;
    assert_int_equal(pl_list(NULL, list_one, &all), 0);
    assert_int_equal(all.n_family, sizeof families / sizeof *families);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct listed one = {0};
        assert_int_equal(pl_list(families[i], list_one, &one), 0);
        assert_true(one.n >= 1 && one.n_family == 1);
        assert_non_null(strstr(all.families, families[i]));
        n += one.n;
    }
    assert_int_equal(n, all.n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strstr(all.names, names[i])) fail_msg("%s is not listed", names[i]);
    assert_int_equal(pl_list("nothing", list_one, &all), PL_EUSAGE);
}

/* Every option of a run is taken by pl_setup_set with its own default. */
static void set_default(void *ctx, const struct pl_item *item) {
    pl_setup *s = ctx;
    if (pl_setup_set(s, item->name, item->option[0].def))
        fail_msg("%s=%s: %s", item->name, item->option[0].def, pl_setup_why(s));
}

static void check_option_default(void *ctx, const struct pl_item *item) {
    pl_setup *s = make(NULL, NULL), *other = make(NULL, NULL);
    char value[512], again[512];
    (void)ctx;
    if (pl_setup_get(s, item->name, value, sizeof value)) fail_msg("%s", pl_setup_why(s));
    if (strcmp(item->name, "seed") != 0 && strcmp(value, item->option[0].def) != 0)
        fail_msg("%s is '%s', and its default is '%s'", item->name, value, item->option[0].def);
    if (pl_setup_set(other, item->name, value)) fail_msg("%s", pl_setup_why(other));
    assert_int_equal(pl_setup_get(other, item->name, again, sizeof again), 0);
    assert_string_equal(value, again);
    pl_setup_free(s);
    pl_setup_free(other);
}

static void options_are_read_back(void **state) {
    (void)state;
    pl_setup *s = make("method", "kasync:k=4", "lr", "1e-2", "workers", "12", "sampling", "epoch",
                       "spread", "yes", "target-loss", "0.1", NULL);
    static const char *const want[][2] = {{"method", "kasync:k=4"}, {"lr", "0.01"},
                                          {"workers", "12"},        {"sampling", "epoch"},
                                          {"spread", "yes"},        {"target-loss", "0.1"},
                                          {"policy", ""},           {"lr-schedule", "auto"}};
    char value[512] = "unchanged";
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(pl_setup_get(s, want[i][0], value, sizeof value), 0);
        assert_string_equal(value, want[i][1]);
        assert_string_equal(pl_setup_why(s), "");
    }
    snprintf(value, sizeof value, "unchanged");
    assert_int_equal(pl_setup_get(s, "learning-rate", value, sizeof value), PL_EUSAGE);
    check_sentence(pl_setup_why(s));
    assert_int_equal(pl_setup_get(s, "method", value, 10), PL_EUSAGE); /* with its zero it is 11 */
    check_sentence(pl_setup_why(s));
    assert_int_equal(pl_setup_get(s, "method", value, 0), PL_EUSAGE);
    assert_string_equal(value, "unchanged");
    assert_int_equal(pl_setup_get(s, "method", value, 11), 0);
    assert_string_equal(value, "kasync:k=4");
    pl_setup_free(s);
    pl_list("option", check_option_default, NULL);
}

static void defaults_are_accepted(void **state) {
    (void)state;
    pl_setup *s = make(NULL);
    assert_int_equal(pl_list("option", set_default, s), 0);
    assert_int_equal(pl_setup_set(s, "model", "none"), 0);
    assert_int_equal(pl_setup_check(s), 0);
    pl_setup_free(s);
}

/* ---- plans ---- */

struct planned {
    int n, last_k, n_best[4], n_best_of_all;
    double ksync[9], kbatchasync[9], staleness[9];
};

static void plan_one(void *ctx, const struct pl_plan_row *row) {
    static const char *const names[] = {"ksync", "kbatchsync", "kasync", "kbatchasync"};
    struct planned *p = ctx;
    int v = 0;
    while (v < 4 && strcmp(names[v], row->policy) != 0) v++;
    assert_true(v < 4 && row->k >= 1 && row->k <= 8 && row->k >= p->last_k);
    p->last_k = row->k;
    p->n++;
    p->n_best[v] += row->best != 0;
    p->n_best_of_all += row->best_of_all != 0;
    assert_true(row->time_per_update > 0 && row->staleness >= 0);
    if (v == 0) p->ksync[row->k] = row->time_per_update;
    if (v == 3) p->kbatchasync[row->k] = row->time_per_update;
    if (v == 2) p->staleness[row->k] = row->staleness;
}

static void plans_have_rows(void **state) {
    struct planned p = {0};
    (void)state;
    pl_setup *s = make("workers", "8", "delay", "exp:mean=1", NULL);
    assert_int_equal(pl_plan(s, plan_one, &p), 0);
    assert_int_equal(p.n, 32);
    for (int v = 0; v < 4; v++) assert_true(p.n_best[v] <= 1);
    assert_true(p.n_best_of_all <= 1);
    /* H_8 - H_(8-K), K/8, 8/K - 1 */
    assert_true(fabs(p.ksync[4] - 0.634523809523809) < 1e-9);
    assert_true(fabs(p.ksync[8] - 2.717857142857142) < 1e-9);
    assert_true(fabs(p.kbatchasync[6] - 0.75) < 1e-9);
    assert_true(fabs(p.staleness[2] - 3) < 1e-9);
    assert_int_equal(pl_setup_set(s, "delay", "exp:maen=1"), 0);
    assert_int_equal(pl_plan(s, plan_one, &p), PL_EUSAGE);
    check_sentence(pl_setup_why(s));
    pl_setup_free(s);
}

/* ---- pictures ---- */

static long file_size(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

static void plots_are_drawn_once(void **state) {
    static const struct pl_point point[] = {
        {.time = 0, .loss = 2, .test_loss = NAN, .test_accuracy = 0.1},
        {.time = 1, .loss = 1, .test_loss = NAN, .test_accuracy = 0.5},
        {.time = 2, .loss = 0.5, .test_loss = NAN, .test_accuracy = 0.8}};
    const struct pl_curve curve[] = {{"it's \"one\"", point, 3}, {"two", point, 2}};
    char why[300], path[900];
    (void)state;
    snprintf(path, sizeof path, "%s", folder_path("a plot's.svg"));
    int rc = pl_plot(path, "title 'quoted'", curve, 2, why, sizeof why);
    if (rc == PL_EMISSING) {
        printf("skipped: %s\n", why);
        check_sentence(why);
        skip();
    }
    if (rc) fail_msg("%s", why);
    long size = file_size(path);
    assert_true(size > 1000);
    FILE *f = fopen(path, "r");
    char text[400] = "";
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    assert_non_null(strstr(text, "<svg"));
    assert_int_equal(pl_plot(path, "again", curve, 1, why, sizeof why), PL_EIO);
    check_sentence(why);
    assert_non_null(strstr(why, "exists"));
    assert_int_equal(file_size(path), size);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pl_plot(folder_path("plot.txt"), "t", curve, 1, why, sizeof why), PL_EUSAGE);
    check_sentence(why);
    assert_int_equal(pl_plot(folder_path("no/where.svg"), "t", curve, 1, why, sizeof why), PL_EIO);
    check_sentence(why);
}

/* ---- files of a run ---- */

static void logs_are_written_once(void **state) {
    char log[900], events[900], line[2000];
    int n_lines = 0;
    const struct pl_point *p;
    (void)state;
    snprintf(log, sizeof log, "%s", folder_path("log.jsonl"));
    snprintf(events, sizeof events, "%s", folder_path("events.txt"));
    pl_setup *s = make("model", "quadratic", "method", "async", "updates", "30", "log", log,
                       "events", events, NULL);
    pl_run *run = run_setup(s), *again = NULL;
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        assert_true(line[0] == '{' && strstr(line, "}\n") && strstr(line, "\"loss\":"));
        n_lines++;
    }
    fclose(f);
    assert_int_equal(n_lines, pl_run_points(run, &p));
    f = fopen(events, "r");
    assert_non_null(f);
    for (n_lines = 0; fgets(line, sizeof line, f);) n_lines++;
    fclose(f);
    assert_int_equal(n_lines, 8 + 30); /* joins and arrivals */
    long size = file_size(log);
    assert_int_equal(pl_simulate(s, &again), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "already exists and will not be overwritten"));
    assert_int_equal(file_size(log), size);
    pl_run_free(run);
    pl_setup_free(s);
    unlink(log);
    unlink(events);
}

int main(void) {
    test_seed = seed_of_test(1);
    slow = seed_sanitized();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_train),         cmocka_unit_test(functions_need_little),
        cmocka_unit_test(functions_may_fail),      cmocka_unit_test(functions_on_data),
        cmocka_unit_test(copies_share_and_differ), cmocka_unit_test(copies_run_side_by_side),
        cmocka_unit_test(failures_have_sentences), cmocka_unit_test(misfits_have_sentences),
        cmocka_unit_test(numbers_have_names),      cmocka_unit_test(lists_cover_everything),
        cmocka_unit_test(defaults_are_accepted),   cmocka_unit_test(options_are_read_back),
        cmocka_unit_test(plans_have_rows),         cmocka_unit_test(plots_are_drawn_once),
        cmocka_unit_test(logs_are_written_once)};
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
