/* PSP by the clock. Its short cut, drawing the first tick that matters instead of every tick,
 * against the law itself, against a simulation that makes every draw, and against the published
 * figures; and that blocked workers go on whatever a straggler does, simulated, recorded, real. */

#include "core/plan.h"
#include "suite_train.h"
#include "timing/recording.h"

/* --- the law of a tick ------------------------------------------------------------------- */

#define N_SEATS 8
#define N_IDLE 4

struct field {
    const char *spec;
    uint64_t s;
    int sample;
    uint64_t clock[N_SEATS]; /* the first four are idle, the sixth is gone */
};

static const struct field fields[] = {
    {"psp:s=0,sample=2,poll=0.01", 0, 2, {5, 5, 4, 3, 3, 0, 2, 2}},
    {"psp:s=1,sample=3,poll=0.01", 1, 3, {7, 7, 5, 4, 9, 0, 3, 5}},
    {"psp:s=0,sample=1,poll=0.01", 0, 1, {1, 1, 1, 1, 0, 0, 0, 0}},
    /* farther behind the fastest than is counted one by one */
    {"psp:s=0,sample=2,poll=0.01", 0, 2, {9000, 8999, 900, 901, 8999, 0, 100, 100}},
    {"psp:s=100,sample=1,poll=0.01", 100, 1, {9000, 500, 900, 400, 8000, 0, 450, 300}},
};

static void seat(const struct field *f, struct pl_worker *w) {
    for (int i = 0; i < N_SEATS; i++) {
        enum pl_worker_state state = i < N_IDLE ? PL_IDLE : i == 5 ? PL_GONE : PL_BUSY;
        bool last = i == N_IDLE - 1 || i >= N_IDLE;
        w[i] = (struct pl_worker){
            .state = state, .clock = f->clock[i], .prev = -1, .next = last ? -1 : i + 1};
    }
}

/* That i passes a tick: by trying all samples. */
static double passes(const struct field *f, int i) {
    int n = 0, n_pass = 0;
    for (unsigned set = 0; set < 1u << N_SEATS; set++) {
        if (set >> i & 1 || __builtin_popcount(set) != f->sample) continue;
        bool pass = true;
        for (int j = 0; j < N_SEATS; j++)
            if (set >> j & 1 && j != 5 && f->clock[j] + f->s < f->clock[i]) pass = false;
        n++;
        n_pass += pass;
    }
    return (double)n_pass / n;
}

static void check_share(const char *what, int of, int count, int n, double p) {
    double want = n * p, sigma = sqrt(n * p * (1 - p));
    if (fabs(count - want) > 5 * sigma + 1e-9)
        fail_msg("field %d: %s: %d of %d, and %.1f +- %.1f are expected", of, what, count, n, want,
                 sigma);
}

static void check_field(int of, int n_tries) {
    const struct field *f = &fields[of];
    const struct pl_entry *entry;
    void *conf;
    struct pl_worker worker[N_SEATS];
    struct pl_action action[2 * N_SEATS + 3];
    struct pl_why why;
    struct pl_rng rng;
    int at_once[N_IDLE] = {0}, in_vain[4] = {0}, let_go[1 << N_IDLE] = {0};
    assert_int_equal(pl_spec_parse(&pl_policy_family, f->spec, N_SEATS, &entry, &conf, &why), 0);
    const struct pl_policy *psp = (const struct pl_policy *)entry;
    char *state = calloc(1, psp->state_size);
    assert_non_null(state);
    memcpy(state, conf, psp->id.conf_size);
    seat(f, worker);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 3, (uint64_t)of);
    for (int t = 0; t < n_tries; t++) {
        struct pl_view v = {.now_ns = 1000000000u + 1234567u,
                            .n_workers = N_SEATS,
                            .n_alive = N_SEATS - 1,
                            .n_idle = N_IDLE,
                            .worker = worker,
                            .idle = 0,
                            .busy = -1,
                            .timer_ns = PL_NO_TIMER,
                            .rng = &rng};
        struct pl_plan p = {.action = action, .room = 2 * N_SEATS + 3};
        /* it draws when it arrives, for itself alone */
        struct pl_arrival a = {.worker = t % N_IDLE};
        psp->arrive(state, &v, &a, &p);
        assert_true(p.n == 2 || (p.n == 3 && p.action[2].worker == a.worker));
        at_once[a.worker] += p.n == 3;
        p.n = 0;
        p.timed = false;
        memset(state + psp->id.conf_size, 0, psp->state_size - psp->id.conf_size);
        psp->leave(state, &v, 5, &p);
        assert_true(p.timed && p.n == 0);
        uint64_t tick = p.timer_ns / 10000000;
        assert_true(tick * 10000000 == p.timer_ns && tick >= 101);
        in_vain[tick - 101 < 3 ? tick - 101 : 3]++;
        v.now_ns = p.timer_ns;
        p.timed = false;
        psp->timer(state, &v, &p);
        unsigned who = 0;
        for (size_t i = 0; i < p.n; i++) who |= 1u << p.action[i].worker;
        let_go[who]++;
        assert_true(!p.timed || p.timer_ns > v.now_ns);
    }
    double pass[N_IDLE], nobody = 1;
    for (int i = 0; i < N_IDLE; i++) nobody *= 1 - (pass[i] = passes(f, i));
    for (int i = 0; i < N_IDLE; i++)
        check_share("passes at once", of, at_once[i], n_tries / N_IDLE, pass[i]);
    for (int k = 0; k < 3; k++)
        check_share("ticks in vain", of, in_vain[k], n_tries, pow(nobody, k) * (1 - nobody));
    for (unsigned who = 0; who < 1u << N_IDLE; who++) {
        double p = who ? 1 / (1 - nobody) : 0;
        for (int i = 0; i < N_IDLE; i++) p *= who >> i & 1 ? pass[i] : 1 - pass[i];
        check_share("who is let go", of, let_go[who], n_tries, p);
    }
    free(state);
    free(conf);
}

TEST(test_law_of_a_tick) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        check_field((int)i, sanitized ? 5000 : 50000);
}

/* --- every draw made --------------------------------------------------------------------- */

#define CROWD 200

struct crowd {
    struct pl_rng rng;
    uint64_t clock[CROWD];
    double done[CROWD]; /* INFINITY: blocked */
    uint64_t s;
    int sample;
    double mean;
};

static bool draws(struct crowd *c, int i) {
    bool drawn[CROWD] = {false};
    for (int n = 0; n < c->sample;) {
        int j = (int)pl_rng_below(&c->rng, CROWD);
        if (j == i || drawn[j]) continue;
        drawn[j] = true;
        n++;
        if (c->clock[j] + c->s < c->clock[i]) return false;
    }
    return true;
}

static void tries(struct crowd *c, int i, double now) {
    c->done[i] = draws(c, i) ? now + c->mean * pl_rng_exp(&c->rng) : INFINITY;
}

static int compare(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* min, median and max of the steps after `seconds`, every blocked worker drawing at every tick. */
static void by_hand(uint64_t s, int sample, double poll, double seconds, double *out) {
    static struct crowd c;
    c = (struct crowd){.s = s, .sample = sample, .mean = 0.1};
    pl_rng_init(&c.rng, test_seed, PL_STREAM_TEST, 4, (uint64_t)sample);
    for (int i = 0; i < CROWD; i++) c.done[i] = c.mean * pl_rng_exp(&c.rng);
    for (long tick = 1;;) {
        int next = 0;
        for (int i = 1; i < CROWD; i++)
            if (c.done[i] < c.done[next]) next = i;
        double now = fmin(c.done[next], (double)tick * poll);
        if (now > seconds) break;
        if (c.done[next] == now) {
            c.clock[next]++;
            tries(&c, next, now);
            continue;
        }
        for (int i = 0; i < CROWD; i++)
            if (isinf(c.done[i])) tries(&c, i, now);
        tick++;
    }
    qsort(c.clock, CROWD, sizeof *c.clock, compare);
    out[0] = (double)c.clock[0];
    out[1] = (double)c.clock[(CROWD - 1) / 2];
    out[2] = (double)c.clock[CROWD - 1];
}

static pl_run *simulated(const char *policy, int workers, double seconds, const char *delay) {
    char text[32];
    pl_setup *s = plain();
    assert_int_equal(pl_setup_set(s, "policy", policy), 0);
    assert_int_equal(pl_setup_set(s, "delay", delay), 0);
    assert_int_equal(pl_setup_set(s, "model", "none"), 0);
    snprintf(text, sizeof text, "%d", workers);
    assert_int_equal(pl_setup_set(s, "workers", text), 0);
    snprintf(text, sizeof text, "%g", seconds);
    assert_int_equal(pl_setup_set(s, "time", text), 0);
    snprintf(text, sizeof text, "%llu", (unsigned long long)test_seed);
    assert_int_equal(pl_setup_set(s, "seed", text), 0);
    pl_run *run = simulate(s);
    return run;
}

static const char *const keys[] = {"steps.min", "steps.median", "steps.max"};

TEST(test_as_by_hand) {
    static const struct {
        uint64_t s;
        int sample;
        double poll;
    } row[] = {{0, 1, 0.0005}, {0, 4, 0.002}, {0, 4, 0.05}, {0, 20, 0.001}, {3, 8, 0.005}};
    double seconds = sanitized ? 3 : 10;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char policy[80];
        double want[3];
        snprintf(policy, sizeof policy, "psp:s=%d,sample=%d,poll=%g", (int)row[i].s, row[i].sample,
                 row[i].poll);
        by_hand(row[i].s, row[i].sample, row[i].poll, seconds, want);
        pl_run *run = simulated(policy, CROWD, seconds, "exp:mean=0.1");
        for (int k = 1; k < 3; k++) { /* the slowest is chance for the most part */
            double got = pl_run_number(run, keys[k]);
            if (!(fabs(got - want[k]) <= 0.05 * want[k] + 1))
                fail_msg("%s: %s is %g, by hand %g", policy, keys[k], got, want[k]);
        }
        assert_true(pl_run_number(run, keys[0]) <= pl_run_number(run, keys[1]));
    }
}

/* --- the published figures --------------------------------------------------------------- */

/* The step-progress experiment of Wang, Catterall, Mortier, arXiv 1709.07772, simulated again: 1000
 * workers, 40 s, tasks of 0.1 s on average; 0 if there is no maximum. SSP with s = 4 is compared
 * for s = 4 and s = 5. */
TEST(test_published_steps) {
    static const struct {
        const char *policy;
        double median, max, slack; /* steps that are chance, for one run of it */
        bool quick;
    } row[] = {
        {"kasync:k=1", 401, 476, 12, true},
        {"ksync:k=all", 54, 0, 2, true},
        {"ssp:s=4", 205, 0, 0, true},
        {"ssp:s=5", 222, 0, 0, false},
        {"psp:s=0,sample=1,poll=0.0001", 399, 429, 0, false},
        {"psp:s=0,sample=4,poll=0.0001", 344, 347, 0, false},
        {"psp:s=0,sample=64,poll=0.0003", 138, 0, 0, false},
        {"psp:s=4,sample=10,poll=0.0001", 370, 375, 0, false},
        {"psp:s=0,sample=8,poll=0.01", 190, 0, 0, true}, /* looking again is what counts */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (sanitized && !row[i].quick) continue;
        pl_run *run = simulated(row[i].policy, 1000, 40, "exp:mean=0.1");
        double median = pl_run_number(run, "steps.median"), max = pl_run_number(run, "steps.max");
        if (!(fabs(median - row[i].median) <= 0.05 * row[i].median + row[i].slack))
            fail_msg("%s: a median of %g, and %g was published", row[i].policy, median,
                     row[i].median);
        if (row[i].max > 0 && !(fabs(max - row[i].max) <= 0.05 * row[i].max + row[i].slack))
            fail_msg("%s: a maximum of %g, and %g was published", row[i].policy, max, row[i].max);
    }
}

/* --- a straggler ------------------------------------------------------------------------- */

/* Two are quick and one never comes back. Whoever draws it is blocked; once both are, nothing
 * happens any more, and only the clock can let them draw again. */
TEST(test_straggler) {
    static const char delay[] = "exp:mean=1|exp:mean=1|const:t=1e7";
    pl_run *polled = simulated("psp:s=0,sample=1,poll=0.01", 3, 2000, delay);
    pl_run *still = simulated("psp:s=0,sample=1,poll=0", 3, 2000, delay);
    assert_true(pl_run_number(polled, "updates") > 1000);
    assert_true(pl_run_number(still, "updates") < 200);
    assert_true(pl_run_number(polled, "steps.min") == 0);
    assert_true(fabs(pl_run_number(polled, "time") - 2000) < 1e-6);
}

static size_t n_timers(const char *file) {
    struct pl_recording r;
    struct pl_why why;
    size_t n = 0;
    if (pl_recording_read(file, &r, &why)) fail_msg("%s", why.text);
    for (size_t i = 0; i < r.n_events; i++) n += r.event[i].kind == PL_TIMER;
    pl_recording_free(&r);
    return n;
}

/* A real run goes on, and its recording gives the same decisions, logs and weights. */
TEST(test_real_straggler) {
    static const char *const runs[] = {
        "method=pbsp:sample=1,poll=0.002 workers=3 delay=2*const:t=0.002|const:t=1000",
        "method=pbsp:sample=2,poll=0.0003 workers=5 delay=4*exp:mean=0.002|const:t=1000",
        "method=pssp:s=1,sample=1,poll=0.001 workers=4 delay=3*exp:mean=0.001|const:t=1000",
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (size_t k = 0; k < n_spawns(); k++) {
            check_replay("%s %s updates=%d", runs[i], spawns[k], sanitized ? 40 : 150);
            assert_true(n_timers(folder_path("tape")) > 0);
        }
}

/* A timer that is set when a checkpoint is made is not kept: all workers join again, which sets it.
 */
TEST(test_goes_on) {
    for (int i = 0; i < 2; i++) {
        pl_setup *s =
            make("method=pbsp:sample=1,poll=0.001 workers=3 delay=2*const:t=0.002|const:t=1000 "
                 "spawn=threads updates=%d checkpoint=%s resume=auto",
                 40 * (i + 1), folder_path("kept"));
        pl_run *run = train(s);
        assert_true(number(run, "updates") == 40 * (i + 1));
        check_books(run);
    }
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
