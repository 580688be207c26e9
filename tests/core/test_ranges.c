/* Ranges of the model: a range's factors do what the same factors on the whole run would do to it,
 * buffers are the mean of what members have there, and neither touches the rest. */
#include "base/rng.h"
#include "choices.h"
#include "core/recipe.h"
#include "ranges.h"
#include "suite_train.h"

#define N_WORKERS 4
#define N_COMMITS 5
#define MOST 12 /* ranges */

/* ---- the table ---- */

static struct pl_model_range parameters(size_t begin, size_t end, double lr, double decay) {
    return (struct pl_model_range){begin, end, lr, decay, PL_RANGE_PARAMETERS};
}

static struct pl_model_range buffers(size_t begin, size_t end) {
    return (struct pl_model_range){begin, end, 0, 0, PL_RANGE_BUFFERS};
}

static void refuses(const struct pl_model_range *range, int n, const char *words) {
    struct pl_why why = {""};
    struct pl_ranges r = {range, n};
    assert_int_equal(pl_ranges_check(&r, 100, &why), PL_EUSAGE);
    if (!strstr(why.text, words)) fail_msg("'%s' is not in: %s", words, why.text);
}

TEST(bad_tables_are_refused) {
    refuses((struct pl_model_range[]){parameters(5, 5, 1, 1)}, 1, "must not be empty");
    refuses((struct pl_model_range[]){parameters(0, 101, 1, 1)}, 1, "model's 100 elements");
    refuses((struct pl_model_range[]){parameters(9, 3, 1, 1)}, 1, "must not be empty");
    refuses((struct pl_model_range[]){parameters(0, 9, 1, 1), parameters(8, 20, 1, 1)}, 2,
            "range 2 of the model");
    refuses((struct pl_model_range[]){parameters(0, 9, -1, 1)}, 1, "lr_factor -1");
    refuses((struct pl_model_range[]){parameters(0, 9, NAN, 1)}, 1, "lr_factor nan");
    refuses((struct pl_model_range[]){parameters(0, 9, 1, INFINITY)}, 1, "decay_factor inf");
    refuses((struct pl_model_range[]){{0, 9, 1, 1, (enum pl_range_kind)7}}, 1, "unknown kind");
    refuses((struct pl_model_range[]){buffers(90, 99)}, 1, "put the buffers last");
    refuses((struct pl_model_range[]){buffers(80, 90), parameters(90, 100, 1, 1)}, 2,
            "put the buffers last");
    refuses((struct pl_model_range[]){buffers(80, 90), buffers(91, 100)}, 2,
            "put the buffers last");
    refuses((struct pl_model_range[]){buffers(0, 100)}, 1, "give it parameters");
    struct pl_model_range good[] = {parameters(3, 9, 0, 2), parameters(9, 10, 1, 0),
                                    buffers(80, 90), buffers(90, 100)};
    struct pl_ranges r = {good, 4}, none = {NULL, 0};
    assert_int_equal(pl_ranges_check(&r, 100, NULL), 0);
    assert_int_equal(pl_ranges_check(&none, 100, NULL), 0);
    assert_int_equal(pl_ranges_parameters(&r, 100), 80);
    assert_int_equal(pl_ranges_parameters(&none, 100), 100);
}

/* A random table for `dim` elements; factors are powers of two, so that products are exact. */
static struct pl_ranges random_table(struct pl_rng *rng, size_t dim, bool with_buffers,
                                     struct pl_model_range *range) {
    static const double factor[] = {0.25, 0.5, 1, 2};
    size_t at = 0, end = with_buffers ? dim - dim / 4 : dim;
    struct pl_ranges r = {range, 0};
    while (r.n < MOST - 2 && at < end) {
        size_t begin = at + pl_rng_below(rng, (uint32_t)(dim / 8 + 1));
        size_t n = 1 + pl_rng_below(rng, (uint32_t)(dim / 4 + 1));
        if (begin + n > end) break;
        range[r.n++] = parameters(begin, begin + n, factor[pl_rng_below(rng, 4)],
                                  factor[pl_rng_below(rng, 4)]);
        at = begin + n;
    }
    if (with_buffers && end < dim) {
        size_t middle = end + (dim - end) / 2;
        if (middle > end) range[r.n++] = buffers(end, middle);
        range[r.n++] = buffers(middle, dim);
    }
    assert_int_equal(pl_ranges_check(&r, dim, NULL), 0);
    return r;
}

/* Element by element, by looking at every range. */
static struct pl_piece piece_of(const struct pl_ranges *r, size_t i) {
    for (int k = 0; k < r->n; k++)
        if (i >= r->range[k].begin && i < r->range[k].end)
            return r->range[k].kind == PL_RANGE_BUFFERS
                       ? (struct pl_piece){1, 1, 1, true, false}
                       : (struct pl_piece){1, r->range[k].lr_factor, r->range[k].decay_factor,
                                           false, false};
    return (struct pl_piece){1, 1, 1, false, false};
}

TEST(pieces_are_the_table) {
    struct pl_model_range range[MOST];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (int round = 0; round < 200; round++) {
        size_t dim = 2 + pl_rng_below(&rng, 300), at = pl_rng_below(&rng, (uint32_t)dim);
        struct pl_ranges r = random_table(&rng, dim, round % 2, range);
        while (at < dim) {
            struct pl_piece p = pl_ranges_piece(&r, at, dim);
            assert_true(p.n > 0 && at + p.n <= dim);
            for (size_t i = at; i < at + p.n; i++) {
                struct pl_piece one = piece_of(&r, i);
                assert_true(one.lr_factor == p.lr_factor && one.decay_factor == p.decay_factor &&
                            one.buffers == p.buffers);
            }
            at += p.n;
        }
    }
}

/* ---- commits ---- */

static struct pl_store_conf conf_of(size_t dim, const char *correct, const char *reduce,
                                    const char *optim) {
    struct pl_store_conf c = rules_of(dim, N_WORKERS, correct, reduce, optim, 0.0625);
    c.weight_decay = 0.125;
    c.outer = 1;
    return c;
}

static float *vector_of(size_t n, struct pl_rng *rng) {
    float *v = own_room(n + 1, sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = (float)(2 * pl_rng_unit(rng) - 1);
    return v;
}

struct versions {
    float *model, *lookahead;
};

/* Commits groups of `group` members, each on a version that is some commits old; vector[k][m] has
 * them. Elements from … from + conf->dim - 1 of every vector are this store's. */
static void commits(const struct pl_store_conf *conf, const float *w0, float *(*vector)[N_WORKERS],
                    int group, size_t from, struct versions *out) {
    struct pl_version *held[N_WORKERS];
    struct pl_store *s = store_of(conf, w0 + from);
    for (int w = 0; w < N_WORKERS; w++) pl_store_hold(s, held[w] = pl_store_newest(s));
    for (int k = 0; k < N_COMMITS; k++) {
        for (int m = 0; m < group; m++) {
            int w = (k + m) % N_WORKERS;
            struct pl_member member = {.worker = w,
                                       .base = held[w]->id,
                                       .lag = pl_store_newest(s)->id - held[w]->id,
                                       .samples = 1 + (uint32_t)w,
                                       .factor = 1};
            assert_int_equal(
                pl_store_take(s, &member, held[w], vector[k][m] + from, PL_FINITE_UNKNOWN), 0);
        }
        assert_int_equal(pl_store_commit(s, 1, NULL), 0);
        int w = k % N_WORKERS;
        pl_store_release(s, held[w]);
        pl_store_hold(s, held[w] = pl_store_newest(s));
    }
    memcpy(out->model + from, pl_store_newest(s)->model, conf->dim * sizeof(float));
    memcpy(out->lookahead + from, pl_store_newest(s)->lookahead, conf->dim * sizeof(float));
    for (int w = 0; w < N_WORKERS; w++) pl_store_release(s, held[w]);
}

struct input {
    size_t dim;
    float *w0, *vector[N_COMMITS][N_WORKERS];
    struct versions out, expected;
};

static struct input input_of(size_t dim, struct pl_rng *rng) {
    struct input in = {.dim = dim, .w0 = vector_of(dim, rng)};
    for (int k = 0; k < N_COMMITS; k++)
        for (int m = 0; m < N_WORKERS; m++) in.vector[k][m] = vector_of(dim, rng);
    in.out = (struct versions){vector_of(dim, rng), vector_of(dim, rng)};
    in.expected = (struct versions){vector_of(dim, rng), vector_of(dim, rng)};
    return in;
}

static void check_same(const struct input *in, size_t from, size_t to, const char *optim,
                       const char *correct) {
    for (size_t i = from; i < to; i++)
        if (in->out.model[i] != in->expected.model[i] ||
            in->out.lookahead[i] != in->expected.lookahead[i])
            fail_msg("%s, %s: element %zu of %zu is %.9g, not %.9g (look-ahead %.9g, not %.9g)",
                     correct, optim, i, in->dim, (double)in->out.model[i],
                     (double)in->expected.model[i], (double)in->out.lookahead[i],
                     (double)in->expected.lookahead[i]);
}

static const char *const corrections[] = {"none", "gap", "dc", "dc:form=a,lambda=2", "lag", NULL};

/* Every range has the bits of a run whose learning rate and weight decay are multiplied by its
 * factors. */
static void one_optimizer(const char *optim, const char *correct, size_t dim, bool with_buffers,
                          struct pl_rng *rng) {
    struct pl_model_range range[MOST];
    struct pl_ranges r = random_table(rng, dim, with_buffers, range);
    struct pl_store_conf conf = conf_of(dim, correct, "mean", optim);
    struct input in = input_of(dim, rng);
    int group = conf.optim.entry->needs & PL_NEEDS_ONE_AT_A_TIME ? 1 : 3;
    struct pl_store_conf plain = conf;
    conf.ranges = r;
    commits(&conf, in.w0, in.vector, group, 0, &in.out);
    for (int k = -1; k < r.n; k++) {
        struct pl_piece p =
            k < 0 ? (struct pl_piece){0, 1, 1, false, false} : piece_of(&r, range[k].begin);
        plain.rate.lr = conf.rate.lr * p.lr_factor;
        plain.weight_decay = conf.weight_decay * p.decay_factor;
        commits(&plain, in.w0, in.vector, group, 0, &in.expected);
        for (size_t i = 0; k < 0 && i < dim; i++) { /* elements in no range */
            bool covered = false;
            for (int j = 0; j < r.n; j++) covered |= i >= range[j].begin && i < range[j].end;
            if (!covered) check_same(&in, i, i + 1, optim, correct);
        }
        if (k >= 0 && !p.buffers) check_same(&in, range[k].begin, range[k].end, optim, correct);
    }
    for (size_t i = pl_ranges_parameters(&r, dim); i < dim; i++) {
        double sum = 0;
        for (int m = 0; m < group; m++) sum += (double)in.vector[N_COMMITS - 1][m][i];
        in.expected.model[i] = in.expected.lookahead[i] = (float)(sum / group);
        check_same(&in, i, i + 1, optim, correct);
    }
}

TEST(factors_and_means) {
    static const size_t dims[] = {2, 17, 1500, 70000};
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, 0);
    for (const struct pl_entry *const *o = pl_optim_family.table; *o; o++)
        for (int c = 0; corrections[c]; c++)
            for (size_t d = 0; d < (sanitized ? 3 : 4); d++)
                if (d < 3 || c < 2)
                    one_optimizer((*o)->name, corrections[c], dims[d], (d + (size_t)c) % 2, &rng);
}

/* A range that does not move while workers send gradients; deltas and models have their factors. */
TEST(only_gradients_have_factors) {
    struct pl_rng rng;
    struct pl_model_range frozen = parameters(10, 50, 0, 1);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 3, 0);
    for (int sends = PL_SENDS_GRADIENT; sends <= PL_SENDS_MODEL; sends++) {
        struct pl_store_conf conf = conf_of(60, "none", "mean", "momentum");
        struct input in = input_of(60, &rng);
        conf.sends = (enum pl_sends)sends;
        if (sends != PL_SENDS_GRADIENT) conf.weight_decay = 0; /* the workers' own */
        commits(&conf, in.w0, in.vector, 3, 0, &in.expected);
        conf.ranges = (struct pl_ranges){&frozen, 1};
        commits(&conf, in.w0, in.vector, 3, 0, &in.out);
        if (sends == PL_SENDS_GRADIENT)
            memcpy(in.expected.model + 10, in.w0 + 10, 40 * sizeof(float));
        for (size_t i = 0; i < 60; i++) in.expected.lookahead[i] = in.expected.model[i];
        check_same(&in, 0, 60, "momentum", "none");
    }
}

/* Rules that look at the whole vector do not see buffers: whatever is there, parameters come out
 * the same, and buffers of any size do not overflow them. */
TEST(sums_do_not_see_buffers) {
    static const char *const specs[][3] = {
        {"clip:c=0.5", "mean", "sgd"},       {"distance:c=1e-4", "mean", "sgd"},
        {"gap:form=scalar", "mean", "adam"}, {"none", "krum", "sgd"},
        {"none", "geomedian", "momentum"},   {"none", "nnm+median", "sgd"},
        {"none", "centered-clip", "sgd"},    {"gap", "trimmed", "adam"}};
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 4, 0);
    for (size_t c = 0; c < sizeof specs / sizeof *specs; c++) {
        enum { DIM = 3000, PARAMETERS = 2100 };
        struct pl_model_range tail = buffers(PARAMETERS, DIM);
        struct pl_store_conf conf = conf_of(DIM, specs[c][0], specs[c][1], specs[c][2]);
        struct input in = input_of(DIM, &rng);
        conf.ranges = (struct pl_ranges){&tail, 1};
        conf.measures = true;
        commits(&conf, in.w0, in.vector, 4, 0, &in.expected);
        for (int k = 0; k < N_COMMITS; k++)
            for (int m = 0; m < N_WORKERS; m++)
                for (size_t i = PARAMETERS; i < DIM; i++) in.vector[k][m][i] *= 1e30F;
        commits(&conf, in.w0, in.vector, 4, 0, &in.out);
        check_same(&in, 0, PARAMETERS, specs[c][2], specs[c][1]);
        for (size_t i = PARAMETERS; i < DIM; i++) assert_true(fabs(in.out.model[i]) > 1e25);
    }
}

/* The same bits if the vector is divided among stores, wherever ranges begin and end. */
TEST(slices_have_the_same_bits) {
    struct pl_model_range range[MOST];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 5, 0);
    for (int n = 2; n <= 7; n++) {
        size_t dim = 900 + pl_rng_below(&rng, 5000);
        struct pl_store_conf conf = conf_of(dim, "gap", "median", n % 2 ? "nesterov" : "adam");
        struct input in = input_of(dim, &rng);
        conf.ranges = random_table(&rng, dim, true, range);
        commits(&conf, in.w0, in.vector, 4, 0, &in.expected);
        for (int i = 0; i < n; i++) {
            size_t from;
            conf.slice = pl_slice_cut(dim, n, i, &from, &conf.dim);
            commits(&conf, in.w0, in.vector, 4, from, &in.out);
        }
        check_same(&in, 0, dim, "sliced", "sliced");
    }
}

/* ---- whole runs ---- */

enum { FREE = 10, FROZEN = 20, FAST = 30, DIM = 40 };

static void start_at_half(void *ctx, uint64_t seed, float *w) {
    for (size_t i = 0; i < DIM; i++) w[i] = i < FAST ? 0.5F : 0;
}

/* A bowl; the buffers count the steps. */
static int bowl(void *ctx, const float *w, const struct pl_samples *s, float *g, double *loss) {
    size_t n = ctx ? FAST : DIM; /* ctx: there are buffers */
    *loss = 0;
    for (size_t i = 0; i < n; i++) {
        g[i] = w[i] + 0.01F * (float)((s->worker + s->batch_no) % 3);
        *loss += 0.5 * (double)w[i] * (double)w[i];
    }
    for (size_t i = n; i < DIM; i++) g[i] = w[i] + 1;
    return 0;
}

static pl_run *run_of(const char *options, const struct pl_model_range *range, int n, bool real) {
    static int with_buffers;
    pl_setup *s = make("%s", options);
    struct pl_function f = {.dim = DIM,
                            .ctx = n > 0 && range[n - 1].kind == PL_RANGE_BUFFERS ? &with_buffers
                                                                                  : NULL,
                            .init = start_at_half,
                            .gradient = bowl};
    assert_int_equal(pl_setup_function(s, &f), 0);
    set_ranges(range, n);
    return real ? train(s) : simulate(s);
}

static const struct pl_model_range table[] = {
    {0, FREE, 1, 1, PL_RANGE_PARAMETERS},
    {FREE, FROZEN, 0, 1, PL_RANGE_PARAMETERS},
    {FROZEN, FAST, 2, 0, PL_RANGE_PARAMETERS},
    {FAST, DIM, 0, 0, PL_RANGE_BUFFERS},
};

/* Whatever the method: what is frozen stays, faster is faster, and buffers count. */
static void check_table(const char *options, pl_run *run, double most) {
    size_t n;
    const float *w = pl_run_weights(run, &n);
    assert_int_equal(n, DIM);
    for (size_t i = 0; i < DIM; i++) {
        double x = (double)w[i];
        if (i < FREE && !(x < 0.4999)) fail_msg("'%s' did not move: %g", options, x);
        if (i >= FREE && i < FROZEN && fabs(x - 0.5) > 1e-6)
            fail_msg("'%s' moved frozen parameters: %g", options, x);
        if (i >= FROZEN && i < FAST && !(x < (double)w[0]))
            fail_msg("'%s': factor 2 is not faster: %g, %g", options, x, (double)w[0]);
        if (i >= FAST && !(x > 0.1 && x <= most * (1 + 1e-6)))
            fail_msg("'%s': a buffer that counts at most %g steps has %g", options, most, x);
    }
}

TEST(every_method_has_ranges) {
    enum { UPDATES = 24, MOST_STEPS = 50 };
    struct pl_model_range ones[] = {parameters(0, 7, 1, 1), parameters(7, DIM, 1, 1)};
    int n_methods = 0;
    for (const struct pl_entry *const *m = pl_recipe_family.table; *m; m++) {
        char options[400];
        const struct pl_recipe *recipe;
        char spec[PL_N_COLUMNS][PL_SPEC_MAX];
        assert_int_equal(pl_recipe_resolve((*m)->name, &recipe, spec, NULL), 0);
        if (strstr(spec[PL_COLUMN_LOCAL], "sweep")) continue;
        snprintf(options, sizeof options,
                 "method=%s workers=6 delay=exp:mean=1 updates=%d lr=0.01 weight-decay=0.01 "
                 "eval-every=1000",
                 (*m)->name, UPDATES);
        if (strstr(spec[PL_COLUMN_FILTER], "zeno")) continue; /* needs data */
        check_table(options, run_of(options, table, 4, false), UPDATES * MOST_STEPS);
        pl_run *plain = run_of(options, NULL, 0, false), *same = run_of(options, ones, 2, false);
        check_same_weights(plain, same);
        n_methods++;
    }
    assert_true(n_methods > 20);
}

/* In lock step every worker adds one, and so does the mean. */
TEST(buffers_count_rounds) {
    for (int real = 0; real < 2; real++) {
        pl_run *run =
            run_of("method=sync workers=3 updates=17 lr=0.01 spawn=threads", table, 4, real);
        size_t n;
        assert_true(pl_run_weights(run, &n)[DIM - 1] == 17);
        check_table("sync", run, 17);
    }
    check_table("processes", run_of("method=async workers=3 updates=40 lr=0.01", table, 4, true),
                40);
}

TEST(tables_are_checked) {
    struct pl_model_range beyond = buffers(DIM - 1, DIM + 1);
    struct pl_function f = {.dim = DIM, .gradient = bowl};
    pl_run *run = NULL;
    pl_setup *s = make("method=sync updates=3");
    assert_int_equal(pl_setup_function(s, &f), 0);
    set_ranges(&beyond, 1);
    assert_int_equal(pl_simulate(s, &run), PL_EUSAGE);
    assert_non_null(strstr(pl_setup_why(s), "within the model's 40 elements"));
    set_ranges(NULL, 0);
    simulate(s);
    s = make("method=dsgd model=mf data=lowrank:ratings=4000");
    set_ranges(&table[0], 1);
    assert_int_equal(pl_simulate(s, &run), PL_EUSAGE);
    assert_non_null(strstr(pl_setup_why(s), "param-groups '1 range' needs the whole model"));
}

ALL_TESTS_FROM_SEED(20260401, folder_make, folder_clear)
