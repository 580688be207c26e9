/* Matrix factorisation in runs: methods for dense models learn too, and what does not fit is
 * refused. */
#include "setups.h"

#define SMALL "lowrank:users=300,items=200,ratings=9000"

static pl_setup *test_setup(const char *model, const char *data, const char *key,
                            const char *value) {
    pl_setup *s = plain();
    assert_int_equal(pl_setup_set(s, "model", model), PL_OK);
    assert_int_equal(pl_setup_set(s, "data", data), PL_OK);
    set_all(s, "method=sync updates=60");
    if (key) assert_int_equal(pl_setup_set(s, key, value), PL_OK);
    return s;
}

TEST(dense_methods_learn_too) {
    pl_setup *s = test_setup("mf:k=4", SMALL, "lr", "8");
    pl_run *run = simulate(s);
    const struct pl_point *p;
    size_t n = pl_run_points(run, &p);
    assert_true(n > 1 && p[n - 1].loss < 0.8 * p[0].loss);
    double rmse = pl_run_number(run, "test_rmse"), loss = pl_run_number(run, "test_loss");
    assert_true(fabs(rmse - sqrt(loss)) < 1e-12 && rmse > 0.3 && rmse < 2);
    assert_true(isnan(pl_run_number(run, "test_accuracy")));
    assert_non_null(strstr(pl_run_json(run), "\"test_accuracy\":null,\"test_rmse\":0."));
    s = test_setup("softmax", "blobs:samples=50,test=20", NULL, NULL);
    run = simulate(s);
    assert_true(isnan(pl_run_number(run, "test_rmse")));
    assert_non_null(strstr(pl_run_json(run), "\"test_rmse\":null"));
}

TEST(what_does_not_fit_is_refused) {
    static const struct {
        const char *model, *data, *key, *value, *word;
    } cases[] = {
        {"mf", "digits:samples=20", NULL, NULL, "needs ratings"},
        {"softmax", SMALL, NULL, NULL, "ratings without classes"},
        {"mlp", SMALL, NULL, NULL, "ratings without classes"},
        {"cnn", SMALL, NULL, NULL, "ratings without classes"},
        {"mf", SMALL, "partition", "label", "classes"},
        {"mf", SMALL, "attack", "labelflip:f=1", "has none"},
        {"mf", SMALL, "target-accuracy", "0.5", "classifies"},
        {"mf:k=0", SMALL, NULL, NULL, "k=0"},
        {"mf:k=1024", "lowrank:users=3000000,items=1,ratings=10,rank=1", NULL, NULL, "smaller k"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_setup *s = test_setup(cases[i].model, cases[i].data, cases[i].key, cases[i].value);
        int rc = pl_setup_check(s);
        if (rc != PL_EUSAGE || !strstr(pl_setup_why(s), cases[i].word))
            fail_msg("%s on %s: %d, \"%s\"", cases[i].model, cases[i].data, rc, pl_setup_why(s));
    }
}
