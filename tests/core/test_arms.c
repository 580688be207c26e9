/* Forecasts of policies: closed forms for exponential tasks, cancelled tasks that tell that they
 * took longer, workers that come, go and change, and policies that cannot be switched to. */
#include "choices.h"
#include "core/arms.h"
#include "core/twin.h"

#define P 8

static struct pl_arms *arms_of(const char *names) {
    struct pl_arms *a = NULL;
    struct pl_why why = {""};
    if (pl_arms_new(names, P, test_seed, &a, &why)) fail_msg("%s", why.text);
    return own(a, (void (*)(void *))pl_arms_free);
}

static double draw(void *ctx, int worker) {
    return pl_rng_exp(ctx);
}

/* The mean of many short forecasts. */
static struct pl_forecast forecast(const char *policy) {
    struct pl_choice c = choose(&pl_policy_family, policy, P);
    struct pl_rng rng;
    struct pl_forecast sum = {0, 0, 0, 0};
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 0, 0);
    for (int i = 0; i < 50; i++) {
        struct pl_forecast f;
        struct pl_why why = {""};
        struct pl_twin_conf conf = {(const struct pl_policy *)c.entry, c.conf, P, draw, &rng};
        if (pl_twin_run(&conf, &f, &why)) fail_msg("%s", why.text);
        sum.time += f.time / 50;
        sum.lag += f.lag / 50;
        sum.size += f.size / 50;
    }
    return sum;
}

static void check_near(const char *policy, const char *what, double got, double wanted) {
    if (!(fabs(got - wanted) <= 0.07 * wanted))
        fail_msg("%s of %s: %g, not %g", what, policy, got, wanted);
}

/* Dutta et al. 2018: K-sync waits for the K-th of P, K-batch-async for K of P/mean per second; the
 * mean lag of K-async of exponential tasks is P/K - 1 in a full pipeline. */
TEST(the_twin_knows_closed_forms) {
    double h8 = 0, h4 = 0;
    for (int i = 1; i <= P; i++) h8 += 1.0 / i;
    for (int i = 1; i <= P / 2; i++) h4 += 1.0 / i;
    check_near("ksync:k=1", "time", forecast("ksync:k=1").time, 1.0 / P);
    check_near("ksync:k=4", "time", forecast("ksync:k=4").time, h8 - h4);
    check_near("ksync:k=8", "time", forecast("ksync:k=8").time, h8);
    check_near("kasync:k=1", "time", forecast("kasync:k=1").time, 1.0 / P);
    check_near("kasync:k=1", "lag", forecast("kasync:k=1").lag, P - 1);
    check_near("kbatchasync:k=4", "time", forecast("kbatchasync:k=4").time, 4.0 / P);
    check_near("kbatchsync:k=6", "time", forecast("kbatchsync:k=6").time, 6.0 / P);
    check_near("kbatchsync:k=6", "size", forecast("kbatchsync:k=6").size, 6);
    assert_true(forecast("ksync:k=4").lag == 0);
}

/* A view in which the first n workers are present. */
static struct pl_view view_of(struct pl_worker *w, int n) {
    for (int i = 0; i < P; i++) w[i].state = i < n ? PL_BUSY : PL_GONE;
    return (struct pl_view){.n_workers = P, .n_alive = n, .worker = w};
}

static double time_of(const struct pl_arms *a, const char *policy, int k) {
    int n;
    const struct pl_arm *table = pl_arms_table(a, &n);
    for (int i = 0; i < n; i++)
        if (strcmp(table[i].policy->id.name, policy) == 0 && table[i].knobs.k == k)
            return table[i].time;
    fail_msg("no arm %s:k=%d", policy, k);
    return NAN;
}

/* Only the first of eight tasks is ever completed, as under ksync:k=1: the mean of those is an
 * eighth of the truth. */
TEST(cancelled_tasks_are_censored) {
    struct pl_arms *a = arms_of("ksync");
    struct pl_worker w[P] = {{0}};
    struct pl_view v = view_of(w, P);
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (int round = 0; round < 400; round++) {
        double task[P], first = INFINITY;
        for (int i = 0; i < P; i++) first = fmin(first, task[i] = pl_rng_exp(&rng));
        for (int i = 0; i < P; i++) pl_arms_task(a, i, first, task[i] == first);
    }
    assert_int_equal(pl_arms_forecast(a, &v, NULL), 0);
    double time = time_of(a, "ksync", P); /* 2.72 if all were known; each worker has few results */
    if (!(time > 1.2 && time < 8)) fail_msg("%g", time);
}

TEST(forecasts_follow_the_workers) {
    struct pl_arms *a = arms_of("ksync+kasync");
    struct pl_worker w[P] = {{0}};
    struct pl_view v = view_of(w, P);
    assert_int_equal(pl_arms_forecast(a, &v, NULL), 0);
    assert_true(isnan(time_of(a, "ksync", 1))); /* nothing is known */
    for (int round = 0; round < 16; round++)
        for (int i = 0; i < P; i++) pl_arms_task(a, i, i == 7 ? 10 : 1, true);
    assert_int_equal(pl_arms_forecast(a, &v, NULL), 0);
    check_near("ksync:k=8", "time", time_of(a, "ksync", 8), 10);
    check_near("ksync:k=6", "time", time_of(a, "ksync", 6), 1);
    v = view_of(w, 7); /* the slow one leaves */
    pl_arms_moved(a);
    for (int i = 0; i < 7; i++) pl_arms_task(a, i, 1, true);
    assert_int_equal(pl_arms_forecast(a, &v, NULL), 0);
    assert_true(isnan(time_of(a, "ksync", 8)));
    check_near("kasync:k=1", "time", time_of(a, "kasync", 1), 1.0 / 7);
    for (int round = 0; round < 16; round++) /* all of them become slow: found without a call */
        for (int i = 0; i < 7; i++) pl_arms_task(a, i, 5, true);
    assert_int_equal(pl_arms_forecast(a, &v, NULL), 0);
    check_near("ksync:k=6", "time", time_of(a, "ksync", 6), 5);
    double mean =
        (1 + 15 * 5) / 16.0; /* of tasks before, those are forgotten that had been compared */
    check_near("kasync:k=1", "time", time_of(a, "kasync", 1), mean / 7);
}

/* Rounds of ksync:k=1 with exponential times: a worker completes one task in eight. How often there
 * are new forecasts. */
static int n_forecasts(struct pl_arms *a, int n_rounds, double slower) {
    static struct pl_rng rng;
    struct pl_worker w[P] = {{0}};
    struct pl_view v = view_of(w, P);
    int n = 0;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, 0);
    for (int round = 0; round < n_rounds; round++) {
        double task[P], first = INFINITY, known = time_of(a, "ksync", 2);
        for (int i = 0; i < P; i++) task[i] = pl_rng_exp(&rng) * (i < P / 2 ? 1 : slower);
        for (int i = 0; i < P; i++) first = fmin(first, task[i]);
        for (int i = 0; i < P; i++) pl_arms_task(a, i, first, task[i] == first);
        assert_int_equal(pl_arms_forecast(a, &v, NULL), 0);
        n += known != time_of(a, "ksync", 2) && !(isnan(known) && isnan(time_of(a, "ksync", 2)));
    }
    return n;
}

static void check_rough(double got, double wanted) {
    if (!(got > 0.6 * wanted && got < 1.7 * wanted)) fail_msg("%g, not about %g", got, wanted);
}

/* Few results per worker vary much, which is no change. */
TEST(chance_is_no_change) {
    struct pl_arms *a = arms_of("ksync");
    int n = n_forecasts(a, 2000, 1);
    if (n < 10 || n > 25) fail_msg("%d forecasts", n);
    check_rough(time_of(a, "ksync", 1), 1.0 / P);
    n = n_forecasts(a, 1000, 10); /* half of the workers become slow */
    if (n < 2 || n > 40) fail_msg("%d more forecasts", n);
    check_rough(time_of(a, "ksync", 1), 1 / (P / 2 * 1.1));
}

/* However often workers come and go, forecasts play at most 16 results per completed task, and
 * those of the first eight: 24 arms play some 10,000. */
TEST(forecasts_have_a_bounded_cost) {
    struct pl_arms *a = arms_of("ksync+kbatchsync+kasync+kbatchasync");
    struct pl_worker w[P] = {{0}};
    struct pl_view v = view_of(w, P);
    int n = 0;
    for (int round = 0; round < 3000; round++) {
        double known = time_of(a, "ksync", 1);
        for (int i = 0; i < P; i++) pl_arms_task(a, i, 1 + round, true);
        pl_arms_moved(a);
        assert_int_equal(pl_arms_forecast(a, &v, NULL), 0);
        n += known != time_of(a, "ksync", 1) && !isnan(time_of(a, "ksync", 1));
    }
    if (n < 8 || n > 8 + 60) fail_msg("%d forecasts", n);
}

TEST(policies_with_a_state_are_refused) {
    static const char *const names[] = {"ssp", "ksync+psp", "gossip", "buffers"};
    for (int i = 0; i < 4; i++) {
        struct pl_arms *a = NULL;
        struct pl_why why = {""};
        assert_int_equal(pl_arms_new(names[i], P, 1, &a, &why), PL_EUSAGE);
        assert_null(a);
        assert_non_null(strstr(why.text, "choose from others"));
    }
}
