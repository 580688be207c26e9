/* Exchanges between models without a server, on numbers: by hand, and what each of them conserves.
 * That the policy keeps its promises whatever happens is in the suites. */
#include "choices.h"
#include "core/replicas.h"
#include "replica_numbers.h"

#define MAX_WORKERS 40

/* --- what each exchange conserves --------------------------------------------------------- */

struct seen { /* a run of control on numbers */
    struct pl_control *control;
    struct numbers *x;
    struct pl_rng rng;
    int n;
    uint64_t now;
    double moved; /* sum over workers of weight times step */
};

static struct seen look_at(const char *spec, int n, uint64_t seed) {
    struct seen s = {.n = n, .control = control_of(spec, "fixed", n, seed)};
    s.x = numbers_of(pl_control_replicas(s.control));
    pl_rng_init(&s.rng, seed, PL_STREAM_TEST, 4, 0);
    return s;
}

static void seen_done(struct seen *s) {
    free(s->x);
}

static void happens(struct seen *s, enum pl_event_kind kind, int worker, char *line, size_t max) {
    struct pl_event e = {.kind = kind,
                         .now_ns = s->now += 1000000000u,
                         .worker = worker,
                         .task = pl_control_view(s->control)->worker[worker].task,
                         .samples = 1};
    const struct pl_plan *plan;
    struct pl_why why = {""};
    if (pl_control_step(s->control, &e, &plan, &why)) fail_msg("%s", why.text);
    if (line) pl_control_print(s->control, &e, plan, line, max);
}

static void arrives(struct seen *s, int worker, double step, char *line, size_t max) {
    bring(s->x, worker, step);
    happens(s, PL_ARRIVE, worker, line, max);
}

/* The mean over the workers, by weight, of what they have and of what is on its way to them. */
static double mean(const struct seen *s) {
    struct pl_combination row;
    double all = 0, total = 0;
    for (int i = 0; i < s->n; i++) {
        double weight = pl_replicas_model(s->x->replicas, i, &row);
        total += weight > 0 ? weight * sum(s->x, &row) : 0;
        all += weight;
        weight = pl_replicas_inbox(s->x->replicas, i, &row);
        total += weight > 0 ? weight * sum(s->x, &row) : 0;
        all += weight;
    }
    return total / all;
}

/* Steps of all sizes at all times: the mean moves by gradients alone, each by the share of the
 * worker that made it. */
static void check_mean(const char *spec, int n, bool conserves) {
    struct seen s = look_at(spec, n, test_seed);
    double worst = 0;
    for (int i = 0; i < n; i++) happens(&s, PL_JOIN, i, NULL, 0);
    for (int k = 0; k < 600; k++) {
        const struct pl_view *v = pl_control_view(s.control);
        int busy = v->busy;
        for (uint32_t skip = pl_rng_below(&s.rng, 5); skip > 0 && pl_next(v, busy) >= 0; skip--)
            busy = pl_next(v, busy);
        struct pl_combination row;
        double step = pl_rng_unit(&s.rng) - 0.4, before = mean(&s), total = 0;
        for (int i = 0; i < n; i++)
            total += pl_replicas_model(s.x->replicas, i, &row) +
                     pl_replicas_inbox(s.x->replicas, i, &row);
        double weight = pl_replicas_model(s.x->replicas, busy, &row);
        bool divided = strstr(spec, "sgp") != NULL; /* x -= step, z = x/w */
        if (pl_rng_below(&s.rng, 2)) {
            make(s.x, v->busy);
            happens(&s, PL_BASE_READY, v->busy, NULL, 0);
        }
        arrives(&s, busy, step, NULL, 0);
        double off = fabs(mean(&s) - before - step * (divided ? 1 : weight) / total);
        worst = off > worst ? off : worst;
        assert_true(fabs(total - n) < 1e-9); /* mass is neither made nor lost */
    }
    if (conserves != (worst < 1e-9)) fail_msg("%s with %d workers: off by %g", spec, n, worst);
    seen_done(&s);
}

TEST(test_the_mean_moves_by_gradients_alone) {
    static const char *const conserve[] = {
        "gossip:mode=pair",     "gossip:mode=pair,a=0.2,every=3",          "gossip:mode=ad-psgd",
        "gossip:mode=push-sum", "gossip:mode=push-sum,every=4,random=yes", "sgp",
        "gossip:mode=pair,a=1"};
    for (size_t i = 0; i < sizeof conserve / sizeof *conserve; i++)
        for (int n = 1; n <= 13; n += 3) check_mean(conserve[i], n, true);
    /* and the others do not, as they should not */
    check_mean("gossip:mode=pull", 7, false);
    check_mean("gossip:mode=push", 7, false);
}

/* --- sgp ---------------------------------------------------------------------------------- */

/* After L rounds without steps everybody has the exact mean, in whatever order they answer. */
static void check_sgp(int n, int n_rounds, bool exact) {
    struct seen s = look_at("sgp", n, test_seed + (unsigned)n);
    const struct pl_view *v = pl_control_view(s.control);
    for (int i = 0; i < n; i++) happens(&s, PL_JOIN, i, NULL, 0);
    for (int k = 0; k < n * n_rounds; k++) {
        int pick = (int)pl_rng_below(&s.rng, (uint32_t)n); /* it, or the next that can */
        while (v->worker[pick].state != PL_BUSY || v->worker[pick].task > (uint64_t)n_rounds)
            pick = (pick + 1) % n;
        arrives(&s, pick, v->worker[pick].task == 1 ? pick * pick : 0, NULL, 0);
    }
    double far = 0;
    for (int i = 0; i < n; i++) far = fmax(far, fabs(model(s.x, i) - mean(&s)));
    if (exact != (far < 1e-12 * n * n)) fail_msg("sgp of %d: off by %g", n, far);
    seen_done(&s);
}

/* The same by hand: x is mixed with the peer 2^k places back, k = 0, 1, …, L - 1. */
static double by_hand(int n, int n_rounds) {
    double x[MAX_WORKERS], y[MAX_WORKERS], far = 0, middle = 0;
    for (int i = 0; i < n; i++) middle += (x[i] = i * i) / n;
    for (int k = 0; k < n_rounds; k++) {
        for (int i = 0; i < n; i++) y[i] = 0.5 * x[i] + 0.5 * x[(i + n - (1 << k) % n) % n];
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < n; i++) far = fmax(far, fabs(x[i] - middle));
    return far;
}

TEST(test_sgp_averages_exactly) {
    assert_true(by_hand(8, 3) < 1e-12 && by_hand(8, 2) > 0.1);
    assert_true(by_hand(32, 5) < 1e-12 && by_hand(32, 4) > 0.1);
    check_sgp(8, 3, true);
    check_sgp(8, 2, false);
    check_sgp(32, 5, true);
    check_sgp(32, 4, false);
    check_sgp(2, 1, true);
    check_sgp(16, 4, true);
}

/* Rounds, one after the other: the models of round k are those of the paper to the last digit. */
TEST(test_sgp_by_rounds) {
    enum { N = 8 };
    double x[N] = {0}, y[N];
    struct seen s = look_at("sgp", N, test_seed);
    for (int i = 0; i < N; i++) happens(&s, PL_JOIN, i, NULL, 0);
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < N; i++) x[i] += (double)((i * 7 + round * 3) % 11) / 8;
        for (int i = 0; i < N; i++) {
            int w = round % 2 ? N - 1 - i : i; /* in either order */
            arrives(&s, w, (double)((w * 7 + round * 3) % 11) / 8, NULL, 0);
        }
        for (int i = 0; i < N; i++) y[i] = 0.5 * (x[i] + x[(i + N - (1 << round % 3)) % N]);
        memcpy(x, y, sizeof x);
        for (int i = 0; i < N; i++)
            if (fabs(model(s.x, i) - x[i]) > 1e-12)
                fail_msg("round %d, worker %d: %g, not %g", round, i, model(s.x, i), x[i]);
    }
    seen_done(&s);
}

/* A worker that waits for one that leaves continues; no worker waits for tasks from before another
 * joined. */
TEST(test_sgp_goes_on) {
    struct seen s = look_at("sgp", 5, test_seed);
    for (int i = 0; i < 5; i++) happens(&s, PL_JOIN, i, NULL, 0);
    for (int i = 1; i < 5; i++) arrives(&s, i, 1, NULL, 0);
    const struct pl_view *v = pl_control_view(s.control);
    assert_int_equal(v->worker[1].state, PL_IDLE); /* waits for worker 0 */
    happens(&s, PL_LEAVE, 0, NULL, 0);
    assert_int_equal(v->worker[1].state, PL_BUSY);
    assert_int_equal(v->n_idle, 0);
    for (int k = 0; k < 40; k++) arrives(&s, v->busy, 0.25, NULL, 0);
    happens(&s, PL_JOIN, 0, NULL, 0);
    assert_int_equal(v->worker[0].state, PL_BUSY);
    for (int k = 0; k < 400; k++) arrives(&s, v->busy, 0, NULL, 0);
    for (int i = 0; i < 5; i++) assert_true(fabs(model(s.x, i) - mean(&s)) < 1e-6);
    seen_done(&s);
}

/* One is fast and nobody else ever answers: it halves its weight again and again, and still has
 * some; and who joins then has the model of a peer, however much that has been moved. */
TEST(test_one_is_fast) {
    static const char *const specs[] = {"gossip:mode=push-sum", "gossip:mode=push",
                                        "gossip:mode=pair"};
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        struct seen s = look_at(specs[k], MAX_WORKERS, test_seed);
        for (int i = 0; i < MAX_WORKERS; i++) happens(&s, PL_JOIN, i, NULL, 0);
        for (int i = 0; i < 3000; i++) arrives(&s, 0, 1, NULL, 0);
        struct pl_combination row;
        assert_true(pl_replicas_model(s.x->replicas, 0, &row) > 0);
        for (int i = 2; i < MAX_WORKERS; i++) happens(&s, PL_LEAVE, i, NULL, 0);
        happens(&s, PL_LEAVE, 0, NULL, 0);
        happens(&s, PL_JOIN, 0, NULL, 0);
        if (k > 0) assert_true(model(s.x, 1) > 0);
        assert_true(fabs(model(s.x, 0) - model(s.x, 1)) < 1e-12);
        seen_done(&s);
    }
}

/* --- by hand ------------------------------------------------------------------------------ */

/* Two workers leave no choice of a peer. W1 steps by 1 and W2 by 4, in turn. */
static void check_golden(const char *spec, const char *line, const double *want) {
    char got[400];
    struct seen s = look_at(spec, 2, test_seed);
    happens(&s, PL_JOIN, 0, NULL, 0);
    happens(&s, PL_JOIN, 1, NULL, 0);
    for (int k = 0; k < 4; k++) {
        arrives(&s, k % 2, k % 2 ? 4 : 1, got, sizeof got);
        if (k == 2) assert_string_equal(got, line);
        for (int i = 0; i < 2; i++)
            if (fabs(model(s.x, i) - want[2 * k + i]) > 1e-12)
                fail_msg("%s, step %d: worker %d is at %.17g", spec, k + 1, i + 1, model(s.x, i));
    }
    seen_done(&s);
}

TEST(test_golden_traces) {
    /* x1 <- (x1 + x2)/2 + 1, then x2 <- (x1 + x2)/2 + 4, … */
    check_golden("gossip:mode=pull",
                 "5 arrive W1#2: blend W1 <- W2, take, commit w3 <- W1@w1, start W1@w3",
                 (const double[]){1, 0, 1, 4.5, 3.75, 4.5, 3.75, 8.125});
    /* x1 += 1, x2 <- (x1 + x2)/2; then x2 += 4, x1 <- (x1 + x2)/2; … */
    check_golden("gossip:mode=push",
                 "5 arrive W1#2: take, commit w3 <- W1@w1, blend W2 <- W1, start W1@w3",
                 (const double[]){1, 0.5, 2.75, 4.5, 3.75, 4.125, 5.9375, 8.125});
    /* weights 1,1 -> 1/2,3/2 -> 5/4,3/4 -> 5/8,11/8 -> 21/16,11/16 */
    check_golden(
        "gossip:mode=push-sum",
        "5 arrive W1#2: take, commit w3 <- W1@w1, push W1 -> W2, absorb W2, start W1@w3",
        (const double[]){1, 1.0 / 3, 3, 13.0 / 3, 4, 46.0 / 11, 6.190476190476190, 90.0 / 11});
    /* both to the middle, then the step of the one that arrived */
    check_golden("gossip:mode=pair",
                 "5 arrive W1#2: pair W1 W2, take, commit w3 <- W1@w1, start W1@w3",
                 (const double[]){1, 0, 0.5, 4.5, 3.5, 2.5, 3, 7});
    /* W1 begins, W2 is asked */
    check_golden("gossip:mode=ad-psgd",
                 "5 arrive W1#2: pair W1 W2, take, commit w3 <- W1@w1, start W1@w3",
                 (const double[]){1, 0, 1, 4, 3.5, 2.5, 3.5, 6.5});
    /* rounds: (1, 4) -> 5/2 each; (7/2, 13/2) -> 5 each */
    check_golden("sgp", "5 arrive W1#2: take, commit w3 <- W1@w2, push W1 -> W2",
                 (const double[]){1, 0, 2.5, 2.5, 3.5, 2.5, 5, 5});
}

/* A pair may move a worker that computes: its step then goes on top, computed on the old model. */
TEST(test_the_model_moves_meanwhile) {
    struct seen s = look_at("gossip:mode=ad-psgd", 2, test_seed);
    happens(&s, PL_JOIN, 0, NULL, 0);
    happens(&s, PL_JOIN, 1, NULL, 0);
    arrives(&s, 0, 8, NULL, 0); /* 8, 0 */
    arrives(&s, 0, 0, NULL, 0); /* 4, 4: W2 still computes on 0 */
    assert_true(model(s.x, 0) == 4 && model(s.x, 1) == 4);
    assert_true(sum(s.x, pl_replica_task(s.x->replicas, 1).input) == 0);
    arrives(&s, 1, 1, NULL, 0);
    assert_true(model(s.x, 1) == 5);
    seen_done(&s);
}
