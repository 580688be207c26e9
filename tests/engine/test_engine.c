/* The engine under a host that a program could write itself, and what all hosts agree on: limits,
 * filters that believe nobody, the price of a version that a worker already has. */
#include "host.h"
#include "shelf.h"
#include "sim/sim.h"
#include "vectors.h"

/* --- the same run under the simulator and under that host ----------------------------------- */

struct tape {
    struct pl_event *event;
    size_t n, room;
};

static void tape_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan) {
    struct tape *t = ctx;
    if (pl_event_is_made(e)) return; /* the engine makes it again */
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 256;
        t->event = realloc(t->event, t->room * sizeof *t->event);
        assert_non_null(t->event);
    }
    t->event[t->n++] = *e;
}

#define SMALL "model=softmax data=digits:samples=300,test=50 batch=8 eval-samples=50 workers=5 "

TEST(hosts_agree) {
    static const char *const methods[] = {
        "sync",      "async",   "ksync",         "kbatchasync",
        "gap-aware", "dana",    "adasync-ksync", "abs",
        "fastest-k", "easgd",   "nodelay",       "downpour",
        "basgd",     "krum",    "kardam",        "centered-clipping",
        "gosgd",     "ad-psgd", "sgp",           "gossip-pull"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct host *h = host_of(setup_of(SMALL "method=%s updates=80", methods[i]));
        struct tape tape = {0};
        struct pl_outcome out;
        struct pl_sim_conf sim = {
            .job = h->job, .net = h->built.net, .events = tape_event, .events_ctx = &tape};
        if (pl_sim_run(&sim, &out, &h->why)) fail_msg("%s: %s", methods[i], h->why.text);
        host_begin(h, false, 0);
        for (size_t n = 0; n < tape.n; n++) {
            struct pl_event e = tape.event[n];
            if (e.kind == PL_REJECT) e.kind = PL_ARRIVE; /* the filter rejects it again */
            assert_false(pl_engine_ended(h->engine));
            host_event(h, e);
        }
        assert_true(pl_engine_ended(h->engine));
        size_t size = h->job->model->dim * sizeof(float);
        struct pl_model_now m;
        assert_int_equal(pl_engine_model(h->engine, own_room(1, size), &m), 0);
        assert_int_equal(h->view->version, out.updates);
        if (memcmp(m.w, out.weights, size) != 0) fail_msg("%s: the weights differ", methods[i]);
        pl_engine_let_go(h->engine, &m);
        /* versions, results and terms that nobody refers to have been used again */
        int most = h->view->replicas ? 40 * 5 : 6 * 5;
        assert_true(vectors_in_use(pl_engine_vectors(h->engine)) <= most);
        free(tape.event);
        free(out.weights);
    }
}

/* --- limits ----------------------------------------------------------------------------------- */

/* The results of tasks `from` to `to` of worker 1. */
static void answer(struct host *h, uint64_t from, uint64_t to) {
    for (uint64_t task = from; task <= to; task++)
        host_event(h, (struct pl_event){.kind = PL_ARRIVE, .now_ns = ++h->now_ns, .task = task});
}

/* A run that goes on from beyond its limit ends with the next update, for any host. */
TEST(limits_hold_beyond) {
    static const char *const methods[] = {"async", "gosgd"};
    for (size_t m = 0; m < 2; m++) {
        struct host *h = host_of(setup_of(SMALL "method=%s updates=8", methods[m]));
        struct shelf shelf = {0};
        struct pl_archive archive = shelf_archive(&shelf, false);
        host_begin(h, false, 0);
        host_event(h, (struct pl_event){.kind = PL_JOIN});
        answer(h, 1, 7);
        assert_false(pl_engine_ended(h->engine));
        answer(h, 8, 8);
        assert_true(pl_engine_ended(h->engine));
        assert_int_equal(pl_engine_archive(h->engine, &archive), 0);

        h->job->limits.updates = 5;
        host_begin(h, false, 0);
        archive = shelf_archive(&shelf, true);
        assert_int_equal(pl_engine_archive(h->engine, &archive), 0);
        assert_true(pl_engine_reached(h->engine) && !pl_engine_ended(h->engine));
        uint64_t task = h->view->worker[0].task + 1;
        host_event(h, (struct pl_event){.kind = PL_JOIN, .now_ns = ++h->now_ns});
        answer(h, task, task);
        assert_int_equal(h->view->version, 9);
        assert_true(pl_engine_ended(h->engine));
        shelf_clear(&shelf);
    }
}

/* A host that is wrong about its workers is told so, and nothing else happens. */
TEST(unknown_workers_are_refused) {
    static const enum pl_event_kind kinds[] = {PL_JOIN, PL_LEAVE, PL_ARRIVE, PL_REJECT};
    struct host *h = host_of(setup_of(SMALL "method=async updates=8"));
    host_begin(h, false, 0);
    for (size_t i = 0; i < 8; i++) {
        struct pl_event e = {.kind = kinds[i / 2], .worker = i % 2 ? -1 : 5, .task = 1};
        assert_int_equal(host_try(h, e), PL_EUSAGE);
        assert_non_null(strstr(h->why.text, "1 to 5"));
    }
    assert_int_equal(h->view->n_alive, 0);
}

/* --- filters ---------------------------------------------------------------------------------- */

/* A filter that believes nobody ends a run after as many results wherever it runs. */
TEST(stuck_filters_end_alike) {
    const char *options = "model=softmax data=digits:samples=60,test=10 batch=1 eval-samples=5 "
                          "workers=2 method=zeno++:rho=1e6,eps=-1000 updates=100000 time=3600 ";
    pl_setup *s = setup_of("%s", options);
    assert_int_equal(pl_setup_set(s, "delay", "const:t=0.001"), 0);
    pl_run *run = simulate(s);
    double rejected = pl_run_number(run, "tasks.rejected");
    assert_non_null(pl_run_text(run, "trouble"));
    assert_true(rejected > 1000);

    s = setup_of("%s", options);
    assert_int_equal(pl_setup_set(s, "spawn", "threads"), 0);
    run = train(s);
    assert_non_null(pl_run_text(run, "trouble"));
    if (pl_run_number(run, "tasks.rejected") != rejected)
        fail_msg("%g simulated, %g for real", rejected, pl_run_number(run, "tasks.rejected"));
}

/* --- transfers -------------------------------------------------------------------------------- */

/* A vector takes 0.5 s on the way, a gradient 1 s. The one worker gives three gradients to each
 * update and has the version after the first: 0.5 + 3 (1 + 0.5). */
TEST(a_version_is_sent_once) {
    pl_setup *s = setup_of("model=none workers=1 policy=kbatchasync:k=3 delay=const:t=1 updates=4 "
                           "net=bandwidth=100,bytes=50");
    pl_run *run = simulate(s);
    double time = pl_run_number(run, "time");
    if (fabs(time - 4 * 5.0) > 1e-9) fail_msg("%g s for 4 updates, not 20", time);
}

/* --- the model now ---------------------------------------------------------------------------- */

/* The whole model of a run on blocks is a copy, which later commits do not change. */
TEST(blocks_are_copied) {
    struct host *h = host_of(setup_of("model=mf:k=4 data=lowrank:users=40,items=30,ratings=900 "
                                      "workers=2 method=fdsgd updates=50"));
    size_t size = h->job->model->dim * sizeof(float);
    float *copy = own_room(1, size), *before = own_room(1, size);
    struct pl_model_now m;
    host_begin(h, false, 0);
    host_event(h, (struct pl_event){.kind = PL_JOIN});
    assert_true(pl_engine_needs_room(h->engine));
    assert_int_equal(pl_engine_model(h->engine, copy, &m), 0);
    memcpy(before, copy, size);
    answer(h, 1, 9);
    assert_memory_equal(m.w, before, size);
    pl_engine_let_go(h->engine, &m);
    assert_int_equal(pl_engine_model(h->engine, copy, &m), 0);
    assert_memory_not_equal(m.w, before, size);
    pl_engine_let_go(h->engine, &m);
}

/* --- vectors ---------------------------------------------------------------------------------- */

static int n_got, n_put;

static pl_real *count_get(void *ctx, int writer) {
    n_got++;
    return pl_vector_new(*(size_t *)ctx);
}

static void count_put(void *ctx, int id, int writer, pl_real *v) {
    n_put += v != NULL;
    free(v);
}

TEST(vectors_are_counted) {
    struct pl_vectors *t;
    size_t dim = 5;
    assert_int_equal(pl_vectors_new(&t), 0);
    pl_vectors_memory(t, dim, &(struct pl_vector_memory){count_get, count_put, &dim});
    int a = pl_vector_add(t, PL_SERVER), b = pl_vector_add(t, 3);
    assert_true(a != b && pl_vector_writer(t, b) == 3);
    assert_int_equal(n_got, 0); /* memory comes with the address */
    assert_ptr_equal(pl_vector_at(t, b), pl_vector_at(t, b));
    assert_int_equal(n_got, 1);
    pl_vector_hold(t, b);
    pl_vector_release(t, b);
    assert_true(n_put == 0 && vectors_in_use(t) == 2);
    pl_vector_release(t, b);
    assert_true(n_put == 1 && vectors_in_use(t) == 1);
    int c = pl_vector_add(t, 4);
    assert_int_equal(c, b); /* the id is used again */
    pl_vector_release(t, PL_NO_VECTOR);
    pl_vector_at(t, a);
    pl_vectors_free(t); /* what is in use is put back */
    assert_int_equal(n_got, n_put);
}
