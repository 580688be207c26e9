/* Averages of the model: what they contain, and that they go on after a restart of the process. */
#include "base/rng.h"
#include "choices.h"
#include "shelf.h"

#define DIM 5

static struct pl_average average_of(const char *spec) {
    struct pl_average a = {.dim = DIM};
    struct pl_why why = {""};
    if (pl_average_parse(spec, &a.conf, &why)) fail_msg("%s", why.text);
    for (int i = 0; i < pl_average_vectors(&a.conf); i++)
        a.vector[i] = own_room(DIM, sizeof(pl_real));
    return a;
}

/* Version n of a model that moves and trembles. */
static void version(uint64_t n, pl_real *w) {
    struct pl_rng rng;
    pl_rng_init(&rng, 1, PL_STREAM_POLICY, (uint32_t)n, 0);
    for (int i = 0; i < DIM; i++) w[i] = (pl_real)(1.0 / (double)n + pl_rng_unit(&rng));
}

static void check_mean(const struct pl_average *a, const pl_real *shown, uint64_t n) {
    uint64_t length = a->n_recent + a->n_older;
    double mean[DIM] = {0};
    pl_real w[DIM];
    for (uint64_t v = n - length + 1; v <= n; v++) {
        version(v, w);
        for (int i = 0; i < DIM; i++) mean[i] += (double)w[i] / (double)length;
    }
    for (int i = 0; i < DIM; i++) assert_true(fabs((double)shown[i] - mean[i]) < 1e-5);
}

/* The mean of the last L versions, and L is as long as average.h says. */
TEST(a_tail_is_the_mean_of_the_last_versions) {
    static const double share[] = {0.01, 0.1, 0.3, 1};
    for (int s = 0; s < 4; s++) {
        char spec[32];
        snprintf(spec, sizeof spec, "tail:%g", share[s]);
        struct pl_average a = average_of(spec);
        assert_null(pl_average_shown(&a));
        for (uint64_t n = 1; n <= 1000; n++) {
            pl_real w[DIM];
            version(n, w);
            pl_average_add(&a, w, n);
            double length = (double)(a.n_recent + a.n_older), all = (double)n, f = share[s];
            assert_true(length <= all && length >= f * all);
            assert_true(length < (2 * f - f * f) * all + 3);
            if (n < 20 || n % 37 == 0) check_mean(&a, pl_average_shown(&a), n);
        }
    }
}

TEST(an_ema_has_weights_that_fall) {
    struct pl_average a = average_of("ema:0.9");
    double sum[DIM] = {0}, weight = 0;
    for (uint64_t n = 1; n <= 300; n++) {
        pl_real w[DIM];
        version(n, w);
        pl_average_add(&a, w, n);
        weight = 0.9 * weight + 0.1;
        for (int i = 0; i < DIM; i++) {
            sum[i] = 0.9 * sum[i] + 0.1 * (double)w[i];
            assert_true(fabs((double)pl_average_shown(&a)[i] - sum[i] / weight) < 1e-5);
        }
    }
}

TEST(specs_are_checked) {
    static const char *const wrong[] = {"",          "tails",   "tail:",  "tail:0", "tail:1.1",
                                        "ema",       "ema:1",   "ema:0",  "ema:x",  "none:1",
                                        "tail:0.1x", "tail:-1", "ema:nan"};
    struct pl_average_conf conf;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct pl_why why = {""};
        assert_int_equal(pl_average_parse(wrong[i], &conf, &why), PL_EUSAGE);
        assert_non_null(strstr(why.text, "use none, tail"));
    }
    assert_int_equal(pl_average_parse("tail", &conf, NULL), 0);
    assert_true(conf.kind == PL_AVERAGE_TAIL && conf.number == 0.1);
    assert_int_equal(pl_average_parse("none", &conf, NULL), 0);
    assert_int_equal(conf.kind, PL_AVERAGE_NONE);
}

/* --- in a store ---------------------------------------------------------------------------- */

static struct pl_store_conf conf_of(const char *spec) {
    struct pl_store_conf conf = rules_of(DIM, 1, "none", "mean", "momentum", 0.05);
    assert_int_equal(pl_average_parse(spec, &conf.average, NULL), 0);
    return conf;
}

static void commit(struct pl_store *s) {
    pl_real g[DIM];
    const struct pl_version *v = pl_store_newest(s);
    struct pl_member m = {.base = v->id, .samples = 1, .factor = 1};
    version(v->id + 1, g);
    for (int i = 0; i < DIM; i++) g[i] += v->model[i];
    assert_int_equal(pl_store_take(s, &m, v, g, PL_FINITE_YES), 0);
    assert_int_equal(pl_store_commit(s, 1, NULL), 0);
}

/* What is saved as the model is the average; the newest version and the windows come back from the
 * archive, and the run goes on bit by bit. */
TEST(a_store_resumes_raw_weights_and_average) {
    static const char *const specs[] = {"tail", "tail:0.5", "ema:0.8"};
    for (int i = 0; i < 3; i++) {
        struct pl_store_conf conf = conf_of(specs[i]);
        struct pl_store *a = store_of(&conf, NULL), *b;
        struct shelf shelf = {.n = 0};
        struct pl_archive save = shelf_archive(&shelf, false);
        assert_ptr_equal(pl_store_shown(a), pl_store_newest(a)->model);
        for (int n = 0; n < 47; n++) commit(a);
        assert_memory_not_equal(pl_store_shown(a), pl_store_newest(a)->model, DIM * 4);
        assert_int_equal(pl_store_archive(a, &save), 0);
        b = store_of(&conf, pl_store_shown(a));
        struct pl_archive restore = shelf_archive(&shelf, true);
        assert_int_equal(pl_store_archive(b, &restore), 0);
        for (int n = 0; n < 50; n++) {
            assert_memory_equal(pl_store_newest(a)->model, pl_store_newest(b)->model, DIM * 4);
            assert_memory_equal(pl_store_shown(a), pl_store_shown(b), DIM * 4);
            commit(a);
            commit(b);
        }
        /* without an average, or with another kind, it continues from the newest version as well */
        struct pl_store_conf other = conf_of(i == 2 ? "tail" : "none");
        b = store_of(&other, pl_store_shown(a));
        assert_int_equal(pl_store_archive(b, &restore), 0);
        commit(b);
        assert_true(pl_store_newest(b)->id == 48);
        shelf_clear(&shelf);
    }
}

TEST(a_replaced_model_begins_again) {
    struct pl_store_conf conf = conf_of("tail:0.5");
    struct pl_store *s = store_of(&conf, NULL);
    const pl_real w[DIM] = {1, 2, 3, 4, 5};
    for (int n = 0; n < 10; n++) commit(s);
    assert_int_equal(pl_store_set_model(s, w), 0);
    assert_memory_equal(pl_store_shown(s), w, sizeof w);
    commit(s);
    assert_memory_equal(pl_store_shown(s), pl_store_newest(s)->model, sizeof w);
}
