/* Attacks: what each one sends, against values worked out by hand; who is hostile; the same in a
 * simulated and in a real run; nothing that is not finite ever reaches a model. */
#include <float.h>
#include <unistd.h>

#include "learn/attack.h"
#include "setups.h"

#define DIM 3000

struct chosen {
    const struct pl_attack *a;
    void *conf;
};

static struct chosen choose(const char *spec, int n_workers) {
    struct chosen c;
    const struct pl_entry *entry;
    struct pl_why why;
    if (pl_spec_parse(&pl_attack_family, spec, n_workers, &entry, &c.conf, &why))
        fail_msg("%s", why.text);
    c.a = (const struct pl_attack *)entry;
    return c;
}

static void alone(const char *spec, uint32_t worker, int n_workers, uint64_t task, float *v,
                  size_t n) {
    struct chosen c = choose(spec, n_workers);
    struct pl_attack_at at = {test_seed, task, worker, n_workers};
    c.a->alone(c.conf, &at, v, n);
    free(c.conf);
}

/* Xie, Koyejo, Gupta, arXiv 1802.10116: four bits of the pattern are inverted. The reference values
 * were computed independently. */
TEST(test_bitflip) {
    float v[4] = {0.01f, -0.5f, 1.0f, 1e-4f};
    static const double flipped[4] = {-2.56525e17, 1.38351e19, -2.76701e19, -1.28172e15};
    alone("bitflip:f=1", 0, 1, 1, v, 4); /* one worker: hit in every coordinate */
    for (int i = 0; i < 4; i++) assert_true(fabs(v[i] / flipped[i] - 1) < 4e-6);
    /* of five workers, two are hit in each coordinate, and everybody somewhere */
    int hit[DIM] = {0};
    for (uint32_t w = 0; w < 5; w++) {
        float g[DIM];
        int mine = 0;
        for (int i = 0; i < DIM; i++) g[i] = 1;
        alone("bitflip:f=2,coordinates=1000", w, 5, 1, g, DIM);
        for (int i = 0; i < DIM; i++) {
            hit[i] += g[i] != 1;
            mine += g[i] != 1;
        }
        assert_int_equal(mine, 400);
    }
    for (int i = 0; i < DIM; i++) assert_int_equal(hit[i], i < 1000 ? 2 : 0);
}

TEST(test_alone) {
    static float v[DIM], w[DIM];
    double sum = 0, square = 0;
    alone("gaussian", 1, 4, 7, v, DIM);
    alone("gaussian", 1, 4, 7, w, DIM);
    assert_memory_equal(v, w, sizeof v); /* named by seed, worker and task */
    for (int i = 0; i < DIM; i++) {
        sum += v[i];
        square += (double)v[i] * v[i];
    }
    assert_true(fabs(sum / DIM) < 5 * 200 / sqrt(DIM));
    assert_true(fabs(sqrt(square / DIM) / 200 - 1) < 0.1);
    for (int i = 0; i < DIM; i++) v[i] = (float)i;
    alone("signflip:scale=-10", 1, 4, 1, v, DIM);
    for (int i = 0; i < DIM; i++) assert_true(v[i] == -10.0f * (float)i);
    /* one part in twenty, half of its values, over many tasks */
    int n_hit = 0, outside = 0;
    for (uint64_t task = 1; task <= 50; task++) {
        for (int i = 0; i < DIM; i++) v[i] = 1;
        alone("gambler:p=0.5", 2, 4, task, v, DIM);
        for (int i = 0; i < DIM; i++) {
            n_hit += v[i] != 1;
            outside += i >= DIM / 20 && v[i] != 1;
            assert_true(v[i] == 1 || v[i] == -1e20f);
        }
    }
    assert_int_equal(outside, 0);
    assert_true(abs(n_hit - 50 * DIM / 40) < 6 * (int)sqrt(50 * DIM / 80));
    alone("inf", 0, 1, 1, v, DIM);
    assert_true(isinf(v[DIM - 1]));
    alone("nan", 0, 1, 1, v, DIM);
    assert_true(isnan(v[0]));
}

TEST(test_who) {
    struct chosen c = choose("signflip:f=25%", 8);
    for (int i = 0; i < 8; i++) assert_int_equal(pl_attack_hostile(c.a, c.conf, i, 8), i >= 6);
    assert_false(pl_attack_hostile(NULL, NULL, 3, 8));
    free(c.conf);
    c = choose("bitflip:f=1", 8);
    assert_true(pl_attack_hostile(c.a, c.conf, 0, 8));
    free(c.conf);
}

/* Four workers, the last hostile, in a group whose order is not that of the numbers. */
static void forge(const char *spec, float out[4][DIM]) {
    struct chosen c = choose(spec, 4);
    static float v[4][DIM];
    for (int m = 0; m < 4; m++)
        for (int i = 0; i < DIM; i++) v[m][i] = (float)(m + 1) * (i % 2 ? 1.0f : -1.0f);
    struct pl_group_vector member[4] = {{2, v[2]}, {3, v[3]}, {0, v[0]}, {1, v[1]}};
    assert_int_equal(pl_attack_group(c.a, c.conf, 4, member, 4, DIM), 0);
    memcpy(out, v, sizeof v);
    free(c.conf);
}

TEST(test_together) {
    static float v[4][DIM];
    /* the honest ones sent 1, 2, 3: sum 6, mean 2, variance 2/3 */
    forge("omniscient", v);
    for (int i = 0; i < DIM; i++) assert_true(v[3][i] == (i % 2 ? -6e20f : 6e20f));
    for (int m = 0; m < 3; m++) assert_true(v[m][1] == (float)(m + 1)); /* nobody else's */
    forge("omniscient:scale=1e30", v);
    assert_true(isfinite(v[3][0]));
    forge("ipm:eps=0.5", v);
    assert_true(v[3][1] == -1 && v[3][2] == 1);
    forge("mimic", v);
    assert_true(v[3][1] == 3); /* the first honest one of the group is worker 3 */
    forge("alie:z=1.5", v);
    assert_true(fabs(v[3][1] - (2 - 1.5 * sqrt(2.0 / 3))) < 1e-6);
    /* n = 4, f = 1: s = 2, z = quantile of (3 - 2)/3 */
    forge("alie", v);
    assert_true(fabs(v[3][1] - (2 + 0.4307272992954576 * sqrt(2.0 / 3))) < 1e-6);
}

/* --- in runs ------------------------------------------------------------------------------- */

static pl_setup *make(const char *attack, const char *spawn) {
    pl_setup *s =
        setup_of("model=softmax data=digits workers=6 method=ksync:k=4 updates=25 batch=8 "
                 "eval-every=10 eval-samples=100 attack=%s",
                 attack);
    if (spawn) assert_int_equal(pl_setup_set(s, "spawn", spawn), 0);
    return s;
}

TEST(test_every_attack_runs) {
    char tape[] = "/tmp/paceline-attack-XXXXXX";
    int fd = mkstemp(tape);
    assert_true(fd >= 0);
    close(fd);
    for (const struct pl_entry *const *e = pl_attack_family.table; *e; e++) {
        char spec[64];
        bool spoilt = strcmp((*e)->name, "inf") == 0 || strcmp((*e)->name, "nan") == 0;
        snprintf(spec, sizeof spec, "%s:f=2", (*e)->name);
        pl_setup *s = make(spec, "threads");
        size_t n;
        unlink(tape);
        pl_setup_set(s, "record", tape);
        pl_run *real = train(s);
        assert_true(pl_run_number(replay(plain(), tape), "replay.same") == 1);
        pl_run *virtual = simulate(make(spec, NULL));
        for (int i = 0; i < 2; i++) {
            const float *w = pl_run_weights(i ? virtual : real, &n);
            for (size_t j = 0; j < n; j++)
                if (!isfinite(w[j])) fail_msg("%s reached the model", spec);
            /* in a real run the attackers may be too slow for every commit */
            double rejected = pl_run_number(i ? virtual : real, "tasks.rejected");
            if (spoilt ? i == 1 && rejected == 0 : rejected > 0)
                fail_msg("%s: %g rejected", spec, rejected);
        }
    }
    unlink(tape);
}

/* Waiting for 7 of 10, delays without a variance, two liars, and honest workers that leave and come
 * back: trimming learns, the mean does not. */
TEST(test_with_stragglers_and_leavers) {
    char script[] = "/tmp/paceline-script-XXXXXX";
    int fd = mkstemp(script);
    static const char lines[] = "5 leave 1\n8 leave 2\n30 join 1\n40 join 2\n45 freeze 3 20\n";
    assert_true(fd >= 0);
    assert_int_equal(write(fd, lines, sizeof lines - 1), (int)sizeof lines - 1);
    close(fd);
    double accuracy[2];
    for (int i = 0; i < 2; i++) {
        pl_setup *s = make("signflip:f=2,scale=-10", NULL);
        set_all(s, "method= policy=ksync:k=7 workers=10 updates=150 lr=0.1 "
                   "delay=pareto:shape=1.5,scale=0.3");
        pl_setup_set(s, "script", script);
        pl_setup_set(s, "reduce", i ? "trimmed:f=2" : "mean");
        pl_run *run = simulate(s);
        accuracy[i] = pl_run_number(run, "test_accuracy");
        assert_true(pl_run_number(run, "tasks.lost") > 0);
    }
    unlink(script);
    print_message("mean %.3f, trimmed %.3f\n", accuracy[0], accuracy[1]);
    assert_true(accuracy[1] > 0.45 && accuracy[0] < 0.3);
}

TEST(test_refused) {
    static const char *const bad[][2] = {
        {"signflip:f=7", "f=7 hostile workers, but only 6 workers"},
        {"signflop", "signflip"},
        {"alie:f=-1", "f"},
        {"gambler:p=2", "p"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_setup *s = make(bad[i][0], NULL);
        assert_int_equal(pl_setup_check(s), PL_EUSAGE);
        if (!strstr(pl_setup_why(s), bad[i][1])) fail_msg("%s: %s", bad[i][0], pl_setup_why(s));
    }
}

ALL_TESTS_FROM_SEED(5, NULL, NULL)
