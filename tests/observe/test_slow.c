/* Warnings that mean something: among workers with one law, however heavy its tail, and under
 * policies that cancel, nobody is called slow; a worker that is slow, or hangs, is. Events come
 * from a small loop over random task times, through a real control. */
#include "base/rng.h"
#include "choices.h"
#include "observe/stragglers.h"
#include "test.h"

#define WORKERS 8

struct law {
    const char *name;
    double unit;  /* seconds */
    double shape; /* of Pareto; 0: exponential; below 0: constant */
};

static const struct law laws[] = {{"exponential, 0.01 s", 0.01, 0},
                                  {"exponential, 1 s", 1, 0},
                                  {"Pareto 3", 0.02, 3},
                                  {"Pareto 1.5", 0.02, 1.5},
                                  {"Pareto 1.5, 1 s", 1, 1.5},
                                  {"Pareto 1.1", 0.02, 1.1},
                                  {"constant", 0.02, -1}};

static const char *const policies[] = {"kbatchasync:k=1",
                                       "kasync:k=4",
                                       "ksync:k=4",
                                       "ksync:k=all",
                                       "ksync:k=1",
                                       "kbatchsync:k=8",
                                       "kasync:k=2,max_lag=2,stop=yes"};

struct loop {
    struct pl_control *control;
    struct pl_stragglers *slow;
    struct pl_rng rng;
    const struct law *law;
    double now, due[WORKERS]; /* when the worker's task ends; INFINITY: none */
    double factor[WORKERS];   /* of each worker */
    int n_found, last_found;
    int hangs; /* a worker that never answers from `hangs_at` on; -1: none */
    double hangs_at;
};

static double draw(struct loop *l, int worker) {
    double u = 1 - pl_rng_unit(&l->rng);
    double t = l->law->shape < 0 ? 1 : l->law->shape == 0 ? -log(u) : pow(u, -1 / l->law->shape);
    return t * l->law->unit * l->factor[worker];
}

static void begin(struct loop *l, const char *spec, const struct law *law, uint64_t seed) {
    *l = (struct loop){.law = law, .hangs = -1, .last_found = -1};
    pl_rng_init(&l->rng, seed, PL_STREAM_TEST, 0, 0);
    l->control = control_of(spec, "fixed", WORKERS, 1);
    assert_int_equal(pl_stragglers_new(WORKERS, &l->slow), 0);
    pl_control_on_event(l->control, pl_stragglers_event, l->slow);
    for (int i = 0; i < WORKERS; i++) {
        l->due[i] = (double)INFINITY;
        l->factor[i] = 1;
    }
}

static void end(struct loop *l) {
    pl_stragglers_free(l->slow);
    pl_control_free(l->control);
}

static void step(struct loop *l, enum pl_event_kind kind, int worker) {
    const struct pl_plan *plan;
    struct pl_why why = {""};
    struct pl_event e = {.kind = kind,
                         .now_ns = (uint64_t)llround(l->now * 1e9),
                         .worker = worker,
                         .task = pl_control_view(l->control)->worker[worker].task};
    if (pl_control_step(l->control, &e, &plan, &why)) fail_msg("%s", why.text);
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        if (a->verb == PL_CANCEL) l->due[a->worker] = (double)INFINITY;
        if (a->verb != PL_START) continue;
        bool hangs = a->worker == l->hangs && l->now >= l->hangs_at;
        l->due[a->worker] = hangs ? (double)INFINITY : l->now + draw(l, a->worker);
    }
}

static void look(struct loop *l) {
    struct pl_stragglers_found found;
    while (pl_stragglers_look(l->slow, pl_control_view(l->control), (uint64_t)llround(l->now * 1e9),
                              &found)) {
        l->n_found++;
        l->last_found = found.worker;
    }
}

/* Runs n tasks, and looks once a second, as the server does. */
static void run(struct loop *l, int n) {
    double second = l->now + 1;
    if (l->now == 0)
        for (int i = 0; i < WORKERS; i++) step(l, PL_JOIN, i);
    for (int task = 0; task < n;) {
        int next = 0;
        for (int i = 1; i < WORKERS; i++)
            if (l->due[i] < l->due[next]) next = i;
        if (l->due[next] > second) { /* INFINITY: the others wait for one that hangs */
            l->now = second;
            second++;
            look(l);
            if (isinf(l->due[next])) task++;
            continue;
        }
        l->now = l->due[next];
        l->due[next] = (double)INFINITY;
        step(l, PL_ARRIVE, next);
        task++;
    }
    look(l);
}

/* Nobody is slow if all have the same law. */
TEST(test_one_law) {
    int n_found = 0, n_runs = 0;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (size_t i = 0; i < sizeof laws / sizeof *laws; i++) {
            struct loop l;
            begin(&l, policies[p], &laws[i], test_seed + i);
            run(&l, 2000);
            if (l.n_found)
                print_error("%s, %s: %d warnings\n", policies[p], laws[i].name, l.n_found);
            n_found += l.n_found;
            n_runs++;
            end(&l);
        }
    /* one in a million tasks, and there are a hundred thousand */
    if (n_found > 1) fail_msg("%d warnings in %d runs", n_found, n_runs);
}

/* A worker that takes ten times as long is found, under every policy that lets it finish or cuts it
 * off late enough to know, unless the law itself is as wide. */
TEST(test_slow_worker) {
    static const struct law known[] = {
        {"constant", 0.02, -1}, {"exponential", 0.02, 0}, {"Pareto 3", 0.02, 3}};
    for (size_t p = 0; p < 4; p++)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            struct loop l;
            begin(&l, policies[p], &known[i], test_seed + i);
            l.factor[5] = 20;
            run(&l, 3000);
            bool cancels = strncmp(policies[p], "ksync:k=4", 9) == 0;
            if (!cancels && (l.n_found < 1 || l.last_found != 5))
                fail_msg("%s, %s: worker 6 was not found", policies[p], known[i].name);
            if (l.n_found && l.last_found != 5)
                fail_msg("%s, %s: worker %d was called slow", policies[p], known[i].name,
                         l.last_found + 1);
            end(&l);
        }
}

/* A worker that hangs is found under light tails. */
TEST(test_hanging) {
    static const struct law known[] = {{"constant", 0.02, -1}, {"exponential", 0.02, 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct loop l;
        begin(&l, "kbatchasync:k=1", &known[i], test_seed);
        l.hangs = 2;
        l.hangs_at = 1;
        run(&l, 20000); /* about 57 seconds */
        if (l.n_found != 1 || l.last_found != 2)
            fail_msg("%s: %d found, the last is worker %d", known[i].name, l.n_found,
                     l.last_found + 1);
        end(&l);
    }
}

/* All stand still for a minute: nobody was slow. */
TEST(test_pause) {
    for (int told = 0; told < 2; told++) {
        struct loop l;
        begin(&l, "kbatchasync:k=1", &laws[sizeof laws / sizeof *laws - 1], 1);
        run(&l, 500);
        assert_int_equal(l.n_found, 0);
        l.now += 60;
        for (int i = 0; i < WORKERS; i++) l.due[i] += 60;
        if (told) pl_stragglers_paused(l.slow, 60000000000u);
        look(&l);
        assert_int_equal(l.n_found, told ? 0 : WORKERS); /* the test would notice */
        run(&l, 500);
        if (told) assert_int_equal(l.n_found, 0);
        end(&l);
    }
}
