/* The engine under a host that a program could write itself, and what all hosts agree on: limits,
 * filters that believe nobody, the price of a version that a worker already has. */
#include "hosts.h"
#include "learn/replica_mean.h"
#include "setups.h"
#include "shelf.h"
#include "sim/sim.h"
#include "test.h"

#define MAX_WORKERS 8

/* --- a host in sixty lines ---------------------------------------------------------------- */

struct host {
    const struct pl_job *job;
    struct pl_engine *engine;
    struct pl_outcome out;
    struct pl_workspace *workspace;
    struct pl_local_state state[MAX_WORKERS];
    struct {
        bool busy;
        struct pl_task_at at;
        int input, base, output;
        uint64_t sent;
    } worker[MAX_WORKERS];
};

/* Nothing that a task reads is being written by another one. */
static void host_check(const struct host *h, int input) {
    assert_true(pl_vector_is_complete(pl_engine_vectors(h->engine), input));
    for (int i = 0; i < h->job->n_workers; i++)
        assert_false(h->worker[i].busy && h->worker[i].output == input);
}

static int host_start(void *ctx, const struct pl_start *s) {
    struct host *h = ctx;
    struct pl_vectors *v = pl_engine_vectors(h->engine);
    struct pl_mixture m = {.n = s->input ? s->input->n : 0};
    for (int i = 0; i < m.n; i++) {
        host_check(h, s->input->term[i].vector);
        m.c[i] = s->input->term[i].c;
        m.v[i] = pl_vector_at(v, s->input->term[i].vector);
    }
    const float *w = m.n > 0 ? m.v[0] : NULL;
    if (s->base != PL_NO_VECTOR) {
        pl_mixture_make(&m, 0, h->job->model->dim, pl_vector_at(v, s->base));
        w = pl_vector_at(v, s->base);
    } else {
        assert_true(s->n_strips > 0 || (m.n == 1 && m.c[0] == 1));
    }
    struct pl_local_state *state = &h->state[s->worker];
    uint64_t sent = h->worker[s->worker].sent;
    if (sent > 0 && sent == s->acked) pl_local_state_acked(state);
    state->applied = s->applied;
    h->worker[s->worker].sent = 0;
    h->worker[s->worker].busy = true;
    h->worker[s->worker].output = s->output;
    h->worker[s->worker].at = task_of(s, w);
    return PL_OK;
}

static void host_cancel(void *ctx, int worker) {
    ((struct host *)ctx)->worker[worker].busy = false;
}

static struct host *host_new(const struct pl_job *job) {
    struct host *h = calloc(1, sizeof *h);
    struct pl_why why = {""};
    assert_non_null(h);
    h->job = job;
    h->out = pl_outcome_none();
    assert_int_equal(pl_workspace_new(job, &h->workspace), 0);
    for (int i = 0; i < job->n_workers; i++)
        assert_int_equal(pl_local_state_new(&job->local, job->model->dim, &h->state[i]), 0);
    struct pl_engine_conf conf = {.job = job,
                                  .host = {.ctx = h, .start = host_start, .cancel = host_cancel}};
    if (pl_engine_new(&conf, NULL, &h->out, &h->engine, &why)) fail_msg("%s", why.text);
    return h;
}

static void host_free(struct host *h) {
    for (int i = 0; i < h->job->n_workers; i++) pl_local_state_free(&h->state[i]);
    pl_workspace_free(h->workspace);
    pl_engine_free(h->engine);
    free(h->out.weights);
    free(h);
}

/* One event; the gradient of an arrival is computed now. */
static void host_event(struct host *h, const struct pl_event *event) {
    struct pl_event e = *event;
    struct pl_why why = {""};
    if (e.kind == PL_ARRIVE) {
        float *out = pl_vector_at(pl_engine_vectors(h->engine), h->worker[e.worker].output);
        assert_int_equal(pl_task_run(h->job, h->workspace, &h->worker[e.worker].at,
                                     &h->state[e.worker], out, &e.loss, NULL),
                         0);
        e.samples = pl_part_samples(h->job, h->worker[e.worker].at.part);
        h->worker[e.worker].busy = false;
        h->worker[e.worker].sent = e.task;
    }
    if (e.kind == PL_LEAVE) {
        h->worker[e.worker].busy = false;
        h->worker[e.worker].sent = 0;
        pl_local_state_forget(&h->state[e.worker]);
    }
    if (pl_engine_event(h->engine, &e, NULL, &why)) fail_msg("%s", why.text);
}

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
        char options[300];
        snprintf(options, sizeof options, SMALL "method=%s updates=80", methods[i]);
        pl_setup *s = setup_of(options);
        struct pl_built b = build(s);
        struct tape tape = {0};
        struct pl_outcome out;
        struct pl_why why = {""};
        struct pl_sim_conf sim = {
            .job = &b.job, .net = b.net, .events = tape_event, .events_ctx = &tape};
        if (pl_sim_run(&sim, &out, &why)) fail_msg("%s: %s", methods[i], why.text);

        struct host *h = host_new(&b.job);
        for (size_t n = 0; n < tape.n; n++) {
            struct pl_event e = tape.event[n];
            if (e.kind == PL_REJECT) e.kind = PL_ARRIVE; /* the filter rejects it again */
            assert_false(pl_engine_ended(h->engine));
            host_event(h, &e);
        }
        assert_true(pl_engine_ended(h->engine));
        float *room = pl_vector_new(b.job.model->dim);
        struct pl_model_now m;
        assert_int_equal(pl_engine_model(h->engine, room, &m), 0);
        assert_int_equal(pl_engine_view(h->engine)->version, out.updates);
        if (memcmp(m.w, out.weights, b.job.model->dim * sizeof *m.w) != 0)
            fail_msg("%s: the weights differ", methods[i]);
        pl_engine_let_go(h->engine, &m);
        /* versions, results and terms that nobody refers to have been used again */
        int most = pl_engine_view(h->engine)->replicas ? 40 * 5 : 6 * 5;
        assert_true(pl_vectors_n_in_use(pl_engine_vectors(h->engine)) <= most);
        free(room);
        host_free(h);
        free(tape.event);
        free(out.weights);
        pl_built_free(&b);
        pl_setup_free(s);
    }
}

/* --- limits ----------------------------------------------------------------------------------- */

static void keep(struct shelf *s, struct pl_engine *e, bool restoring) {
    struct pl_archive k = shelf_archive(s, restoring);
    assert_int_equal(pl_engine_archive(e, &k), 0);
}

/* A run that goes on from beyond its limit ends with the next update, for any host. */
TEST(limits_hold_beyond) {
    static const char *const methods[] = {"async", "gosgd"};
    for (size_t m = 0; m < 2; m++) {
        char options[300];
        snprintf(options, sizeof options, SMALL "method=%s updates=8", methods[m]);
        pl_setup *s = setup_of(options);
        struct pl_built b = build(s);
        struct shelf shelf = {0};
        struct host *h = host_new(&b.job);
        struct pl_event e = {.kind = PL_JOIN};
        host_event(h, &e);
        for (uint64_t task = 1; !pl_engine_ended(h->engine); task++) {
            e = (struct pl_event){.kind = PL_ARRIVE, .now_ns = task, .task = task};
            host_event(h, &e);
            assert_true(task <= 8);
        }
        keep(&shelf, h->engine, false);
        host_free(h);

        b.job.limits.updates = 5;
        h = host_new(&b.job);
        keep(&shelf, h->engine, true);
        assert_true(pl_engine_reached(h->engine) && !pl_engine_ended(h->engine));
        uint64_t task = pl_engine_view(h->engine)->worker[0].task + 1;
        e = (struct pl_event){.kind = PL_JOIN, .now_ns = 100};
        host_event(h, &e);
        e = (struct pl_event){.kind = PL_ARRIVE, .now_ns = 101, .task = task};
        host_event(h, &e);
        assert_int_equal(pl_engine_view(h->engine)->version, 9);
        assert_true(pl_engine_ended(h->engine));
        host_free(h);
        shelf_clear(&shelf);
        pl_built_free(&b);
        pl_setup_free(s);
    }
}

/* A host that is wrong about its workers is told so, and nothing else happens. */
TEST(unknown_workers_are_refused) {
    static const enum pl_event_kind kinds[] = {PL_JOIN, PL_LEAVE, PL_ARRIVE, PL_REJECT};
    pl_setup *s = setup_of(SMALL "method=async updates=8");
    struct pl_built b = build(s);
    struct host *h = host_new(&b.job);
    for (size_t i = 0; i < 8; i++) {
        struct pl_event e = {.kind = kinds[i / 2], .worker = i % 2 ? -1 : 5, .task = 1};
        struct pl_why why = {""};
        assert_int_equal(pl_engine_event(h->engine, &e, NULL, &why), PL_EUSAGE);
        assert_non_null(strstr(why.text, "1 to 5"));
    }
    assert_int_equal(pl_engine_view(h->engine)->n_alive, 0);
    host_free(h);
    pl_built_free(&b);
    pl_setup_free(s);
}

/* --- filters ---------------------------------------------------------------------------------- */

/* A filter that believes nobody ends a run after as many results wherever it runs. */
TEST(stuck_filters_end_alike) {
    const char *options = "model=softmax data=digits:samples=60,test=10 batch=1 eval-samples=5 "
                          "workers=2 method=zeno++:rho=1e6,eps=-1000 updates=100000 time=60 ";
    pl_run *run;
    pl_setup *s = setup_of(options);
    assert_int_equal(pl_setup_set(s, "delay", "const:t=0.001"), 0);
    if (pl_simulate(s, &run)) fail_msg("%s", pl_setup_why(s));
    double rejected = pl_run_number(run, "tasks.rejected");
    assert_non_null(pl_run_text(run, "trouble"));
    assert_true(rejected > 1000);
    pl_run_free(run);
    pl_setup_free(s);

    s = setup_of(options);
    assert_int_equal(pl_setup_set(s, "spawn", "threads"), 0);
    if (pl_train(s, &run)) fail_msg("%s", pl_setup_why(s));
    assert_non_null(pl_run_text(run, "trouble"));
    if (pl_run_number(run, "tasks.rejected") != rejected)
        fail_msg("%g simulated, %g for real", rejected, pl_run_number(run, "tasks.rejected"));
    pl_run_free(run);
    pl_setup_free(s);
}

/* --- transfers -------------------------------------------------------------------------------- */

/* A vector takes 0.5 s on the way, a gradient 1 s. The one worker gives three gradients to each
 * update and has the version after the first: 0.5 + 3 (1 + 0.5). */
TEST(a_version_is_sent_once) {
    pl_run *run;
    pl_setup *s = setup_of("model=none workers=1 policy=kbatchasync:k=3 delay=const:t=1 updates=4 "
                           "net=bandwidth=100,bytes=50");
    if (pl_simulate(s, &run)) fail_msg("%s", pl_setup_why(s));
    double time = pl_run_number(run, "time");
    if (fabs(time - 4 * 5.0) > 1e-9) fail_msg("%g s for 4 updates, not 20", time);
    pl_run_free(run);
    pl_setup_free(s);
}

/* --- the model now ---------------------------------------------------------------------------- */

/* The whole model of a run on blocks is a copy, which later commits do not change. */
TEST(blocks_are_copied) {
    pl_setup *s = setup_of("model=mf:k=4 data=lowrank:users=40,items=30,ratings=900 workers=2 "
                           "method=fdsgd updates=50");
    struct pl_built b = build(s);
    struct host *h = host_new(&b.job);
    float *room = pl_vector_new(b.job.model->dim), *before = pl_vector_new(b.job.model->dim);
    struct pl_event e = {.kind = PL_JOIN};
    struct pl_model_now m;
    host_event(h, &e);
    assert_true(pl_engine_needs_room(h->engine));
    assert_int_equal(pl_engine_model(h->engine, room, &m), 0);
    memcpy(before, room, b.job.model->dim * sizeof *room);
    for (uint64_t task = 1; task <= 9; task++) {
        e = (struct pl_event){.kind = PL_ARRIVE, .now_ns = task, .task = task};
        host_event(h, &e);
    }
    assert_memory_equal(m.w, before, b.job.model->dim * sizeof *room);
    pl_engine_let_go(h->engine, &m);
    assert_int_equal(pl_engine_model(h->engine, room, &m), 0);
    assert_memory_not_equal(m.w, before, b.job.model->dim * sizeof *room);
    pl_engine_let_go(h->engine, &m);
    host_free(h);
    free(room);
    free(before);
    pl_built_free(&b);
    pl_setup_free(s);
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
    assert_true(a != b && pl_vector_writer(t, b) == 3 && !pl_vector_is_complete(t, b));
    assert_int_equal(n_got, 0); /* memory comes with the address */
    assert_ptr_equal(pl_vector_at(t, b), pl_vector_at(t, b));
    assert_int_equal(n_got, 1);
    pl_vector_hold(t, b);
    pl_vector_complete(t, b);
    pl_vector_release(t, b);
    assert_true(n_put == 0 && pl_vector_is_complete(t, b) && pl_vectors_n_in_use(t) == 2);
    pl_vector_release(t, b);
    assert_true(n_put == 1 && pl_vectors_n_in_use(t) == 1);
    int c = pl_vector_add(t, 4);
    assert_true(c == b && !pl_vector_is_complete(t, c)); /* the id is used again, and is new */
    pl_vector_release(t, PL_NO_VECTOR);
    pl_vector_at(t, a);
    pl_vectors_free(t); /* what is in use is put back */
    assert_int_equal(n_got, n_put);
}
