/* Drafts: an update that is prepared while its results are still on their way has the bits of one
 * that was not, and one that turns out otherwise has had no effect.
 *
 * Seed: PL_TEST_SEED in the environment. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "choices.h"
#include "hosts.h"
#include "seed.h"
#include "setups.h"

#define N_WORKERS 4
#define DIM 5000
#define ROUNDS 8

static uint64_t test_seed;

/* --- copies of control ------------------------------------------------------------------------ */

/* One line per event, of control and of a copy that is a step ahead. */
static void check_copies(const struct pl_policy *policy, const struct pl_tuner *tuner) {
    char what[200];
    void *conf[2] = {choose(&pl_policy_family, policy->id.name, N_WORKERS).conf,
                     choose(&pl_tuner_family, tuner->id.name, N_WORKERS).conf};
    struct pl_control *c, *copy = NULL;
    struct pl_why why = {""};
    struct pl_rng rng;
    if (pl_control_new(policy, conf[0], tuner, conf[1], N_WORKERS, test_seed, &c, &why) == 0) {
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
        for (int i = 0; i < 400 && !pl_control_stopped(c); i++) {
            const struct pl_view *v = pl_control_view(c);
            const struct pl_plan *plan[2];
            char line[2][8192];
            int worker = i < N_WORKERS ? i : (int)pl_rng_below(&rng, N_WORKERS);
            struct pl_event e = {.kind = i < N_WORKERS ? PL_JOIN : PL_ARRIVE,
                                 .now_ns = v->now_ns + 1 + pl_rng_below(&rng, 1000),
                                 .worker = worker,
                                 .task = v->worker[worker].task,
                                 .samples = 8,
                                 .loss = pl_rng_unit(&rng)};
            if (v->timer_ns != PL_NO_TIMER)
                e = (struct pl_event){.kind = PL_TIMER, .now_ns = v->timer_ns};
            int rc = pl_control_copy(c, &copy);
            if (v->replicas || policy->grid) {
                assert_int_equal(rc, PL_EUSAGE);
                break;
            }
            assert_int_equal(rc, 0);
            struct pl_control *const both[] = {copy, c};
            for (int k = 0; k < 2; k++) {
                if (pl_control_step(both[k], &e, &plan[k], &why)) fail_msg("%s", why.text);
                pl_control_print(both[k], &e, plan[k], line[k], sizeof line[k]);
            }
            snprintf(what, sizeof what, "%s, %s, event %d", policy->id.name, tuner->id.name, i);
            if (strcmp(line[0], line[1]) != 0)
                fail_msg("%s: the copy has %s, control has %s", what, line[0], line[1]);
        }
        pl_control_free(c);
        pl_control_free(copy);
    }
    free(conf[0]);
    free(conf[1]);
}

static void test_copies_of_control(void **state) {
    (void)state;
    for (const struct pl_entry *const *p = pl_policy_family.table; *p; p++)
        for (const struct pl_entry *const *t = pl_tuner_family.table; *t; t++)
            check_copies((const struct pl_policy *)*p, (const struct pl_tuner *)*t);
}

/* --- a host whose results arrive tile by tile ---------------------------------------------------
 */

enum how { PLAIN, DRAFT, GIVE_UP, OTHER_ORDER, NOT_FINITE, N_HOWS };

struct host {
    const struct pl_job *job;
    struct pl_engine *engine;
    struct pl_outcome out;
    struct pl_workspace *workspace;
    struct pl_local_state state[N_WORKERS];
    struct {
        bool busy;
        struct pl_task_at at;
        int output;
        float *result; /* [dim] computed, and on its way */
    } worker[N_WORKERS];
    int awaited[N_WORKERS], n_awaited; /* by the tiles; 0: everything is here */
    bool gives_up;
    int n_tiles, n_voids, n_upcoming;
};

static int host_start(void *ctx, const struct pl_start *s) {
    struct host *h = ctx;
    const float *w = pl_vector_at(pl_engine_vectors(h->engine), s->input->term[0].vector);
    h->worker[s->worker].busy = true;
    h->worker[s->worker].output = s->output;
    h->worker[s->worker].at = task_of(s, w);
    return PL_OK;
}

static void host_cancel(void *ctx, int worker) {
    ((struct host *)ctx)->worker[worker].busy = false;
}

static void host_upcoming(void *ctx, int worker) {
    (void)worker;
    ((struct host *)ctx)->n_upcoming++;
}

static void host_writes(void *ctx, const pl_real *v) {
    ((struct host *)ctx)->n_voids += !v;
}

/* Elements from … from + n - 1 of a result arrive. */
static void host_arrives(struct host *h, int worker, size_t from, size_t n) {
    float *v = pl_vector_at(pl_engine_vectors(h->engine), h->worker[worker].output);
    memcpy(v + from, h->worker[worker].result + from, n * sizeof *v);
}

static void host_tiles(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    struct host *h = ctx;
    for (int i = 0; i < n; i++) {
        size_t from, length;
        if (h->n_awaited > 0 && h->gives_up && i == n / 2) return;
        pl_tile(h->job->model->dim, i, &from, &length);
        for (int k = 0; k < h->n_awaited; k++) host_arrives(h, h->awaited[k], from, length);
        job(arg, i);
        h->n_tiles++;
    }
}

static struct host *host_new(const struct pl_job *job) {
    struct host *h = calloc(1, sizeof *h);
    struct pl_why why = {""};
    assert_non_null(h);
    h->job = job;
    h->out = pl_outcome_none();
    assert_int_equal(pl_workspace_new(job, &h->workspace), 0);
    for (int i = 0; i < N_WORKERS; i++) {
        assert_int_equal(pl_local_state_new(job, &h->state[i]), 0);
        h->worker[i].result = calloc(job->model->dim, sizeof(float));
        assert_non_null(h->worker[i].result);
    }
    struct pl_engine_conf conf = {
        .job = job,
        .host = {.ctx = h, .start = host_start, .cancel = host_cancel, .upcoming = host_upcoming},
        .parallel_for = {host_tiles, h},
        .writes = host_writes};
    if (pl_engine_new(&conf, NULL, &h->out, &h->engine, &why)) fail_msg("%s", why.text);
    return h;
}

static void host_free(struct host *h) {
    for (int i = 0; i < N_WORKERS; i++) {
        pl_local_state_free(&h->state[i]);
        free(h->worker[i].result);
    }
    pl_workspace_free(h->workspace);
    pl_engine_free(h->engine);
    free(h->out.weights);
    free(h);
}

static void host_event(struct host *h, struct pl_event e, const char *defect) {
    struct pl_why why = {""};
    h->worker[e.worker].busy = e.kind == PL_JOIN && h->worker[e.worker].busy;
    if (pl_engine_event(h->engine, &e, defect, &why)) fail_msg("%s", why.text);
}

/* All busy workers compute; nothing of it has arrived. Returns the number of results, in the order
 * `first`, first + 1, …. */
static int host_compute(struct host *h, int first, uint64_t *now, bool bad,
                        struct pl_event *event) {
    int n = 0;
    for (int i = 0; i < N_WORKERS; i++) {
        int worker = (first + i) % N_WORKERS;
        if (!h->worker[worker].busy) continue;
        double loss;
        struct pl_event *e = &event[n++];
        *e = (struct pl_event){.kind = PL_ARRIVE,
                               .now_ns = *now += 1000,
                               .worker = worker,
                               .task = h->worker[worker].at.task};
        assert_int_equal(pl_task_run(h->job, h->workspace, &h->worker[worker].at, &h->state[worker],
                                     h->worker[worker].result, &loss, NULL),
                         0);
        e->loss = loss;
        e->samples = pl_part_samples(h->job, h->worker[worker].at.part);
        if (bad && worker == 2) h->worker[worker].result[h->job->model->dim - 1] = NAN;
        float *v = pl_vector_at(pl_engine_vectors(h->engine), h->worker[worker].output);
        for (size_t k = 0; k < h->job->model->dim; k++) v[k] = NAN; /* must not be read */
    }
    return n;
}

/* The workers' results, round by round. Returns how many updates were drafted and used. */
static int host_run(struct host *h, enum how how, bool reversed, bool bad) {
    uint64_t now = 1;
    int n_used = 0;
    for (int i = 0; i < N_WORKERS; i++)
        host_event(h, (struct pl_event){.kind = PL_JOIN, .now_ns = now, .worker = i}, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        struct pl_event event[N_WORKERS];
        bool drafted = false;
        int n = host_compute(h, round, &now, bad && round % 3 == 1, event);
        int n_first = how == PLAIN ? 0 : pl_engine_foresee(h->engine, event, n);
        assert_true(how == PLAIN || n_first > 0);
        int n_tiles = h->n_tiles;
        if (n_first > 0) {
            for (int i = 0; i < n_first; i++) h->awaited[i] = event[i].worker;
            h->n_awaited = n_first;
            h->gives_up = how == GIVE_UP;
            assert_int_equal(pl_engine_draft(h->engine), 0);
            assert_true(h->n_tiles > n_tiles && h->n_upcoming > 0);
            drafted = true;
            h->n_awaited = 0;
            if (how == GIVE_UP) assert_true(pl_engine_drop_draft(h->engine));
        }
        n_tiles = h->n_tiles;
        for (int i = 0; i < n; i++) host_arrives(h, event[i].worker, 0, h->job->model->dim);
        for (int i = 0; i < n; i++) {
            struct pl_event e = event[reversed ? n - 1 - i : i];
            e.now_ns = now += 10;
            host_event(h, e, NULL);
            if (i + 1 == n_first && h->n_tiles == n_tiles) n_used += drafted;
        }
        pl_engine_drop_draft(h->engine);
    }
    return n_used;
}

/* The same run with drafts and without has the same bits. */
static void check_run(const char *options, enum how how) {
    char text[300];
    struct host *h[2];
    int n_used = 0;
    snprintf(text, sizeof text, "workers=4 model=quadratic:dim=%d seed=%llu %s", DIM,
             (unsigned long long)test_seed, options);
    pl_setup *s = setup_of(text);
    struct pl_built b = build(s);
    for (int i = 0; i < 2; i++) {
        h[i] = host_new(&b.job);
        n_used = host_run(h[i], i ? how : PLAIN, how == OTHER_ORDER, how == NOT_FINITE);
    }
    const struct pl_version *x = pl_engine_newest(h[0]->engine),
                            *y = pl_engine_newest(h[1]->engine);
    if (x->id != y->id || memcmp(x->model, y->model, DIM * sizeof *x->model) != 0)
        fail_msg("%s, %d: the weights differ at update %llu", options, how,
                 (unsigned long long)y->id);
    struct pl_fates f[2];
    for (int i = 0; i < 2; i++) f[i] = pl_control_fates(pl_engine_control(h[i]->engine));
    assert_memory_equal(&f[0], &f[1], sizeof f[0]);
    assert_true((f[0].rejected > 0) == (how == NOT_FINITE));
    if (how == DRAFT) assert_int_equal(n_used, ROUNDS);
    if (how == GIVE_UP) assert_int_equal(n_used, 0);
    if (how == DRAFT) assert_int_equal(h[1]->n_voids, 0);
    if (how == GIVE_UP || how == NOT_FINITE) assert_true(h[1]->n_voids > 0);
    for (int i = 0; i < 2; i++) host_free(h[i]);
    pl_built_free(&b);
    pl_setup_free(s);
}

static void test_the_same_bits(void **state) {
    static const char *const options[] = {"method=sync",
                                          "method=async",
                                          "policy=kasync:k=2",
                                          "policy=ksync:k=3,cancel=yes",
                                          "policy=kbatchsync:k=3",
                                          "method=sync reduce=median",
                                          "method=sync reduce=krum:f=0",
                                          "method=async correct=clip",
                                          "method=sync weight-decay=0.01",
                                          "method=local-sgd:u=3"};
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (enum how how = DRAFT; how < N_HOWS; how++) check_run(options[i], how);
}

/* Rules that change vectors in place, and filters, have no drafts. */
static void test_no_drafts(void **state) {
    static const char *const options[] = {"method=sync optim=momentum", "method=async optim=adam",
                                          "method=dana-ga", "method=ad-psgd"};
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char text[300];
        snprintf(text, sizeof text, "workers=4 model=quadratic:dim=100 %s", options[i]);
        pl_setup *s = setup_of(text);
        struct pl_built b = build(s);
        struct host *h = host_new(&b.job);
        struct pl_event e = {.kind = PL_ARRIVE, .worker = 0, .task = 1};
        assert_false(pl_engine_drafts(h->engine));
        assert_int_equal(pl_engine_foresee(h->engine, &e, 1), 0);
        assert_true(pl_engine_draft(h->engine) != 0);
        assert_false(pl_engine_drop_draft(h->engine));
        host_free(h);
        pl_built_free(&b);
        pl_setup_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies_of_control),
                                       cmocka_unit_test(test_the_same_bits),
                                       cmocka_unit_test(test_no_drafts)};
    test_seed = seed_of_test(23);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
