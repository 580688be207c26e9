/* Versions that no task needs any more: given up as soon as their workers have answered, unless a
 * rule or the policy may come back to them; and nothing else changes by that. */
#include "hosts.h"
#include "setups.h"
#include "test.h"

#define N_WORKERS 8
#define N_UPDATES 60
#define MAX_DIM 4096

/* Workers that compute as soon as they are started, so that all results wait for the server. */
struct host {
    const struct pl_job *job;
    struct pl_engine *engine;
    struct pl_outcome out;
    struct pl_workspace *workspace;
    struct pl_local_state state[N_WORKERS];
    double loss[N_WORKERS];
    bool busy[N_WORKERS];
    uint64_t task[N_WORKERS];
};

static int host_start(void *ctx, const struct pl_start *s) {
    struct host *h = ctx;
    struct pl_vectors *v = pl_engine_vectors(h->engine);
    struct pl_task_at at = task_of(s, pl_vector_at(v, s->input->term[0].vector));
    h->busy[s->worker] = true;
    h->task[s->worker] = s->task;
    return pl_task_run(h->job, h->workspace, &at, &h->state[s->worker], pl_vector_at(v, s->output),
                       &h->loss[s->worker], NULL);
}

static void host_cancel(void *ctx, int worker) {
    ((struct host *)ctx)->busy[worker] = false;
}

/* Runs, and returns the largest number of vectors in use; *gave_up counts versions. */
static int run(const char *method, bool reclaims, float *w, int *gave_up) {
    pl_setup *setup = setup_of("workers=8 model=quadratic:dim=64");
    set(setup, "method", method);
    struct pl_built b = build(setup);
    struct host h = {.job = &b.job, .out = pl_outcome_none()};
    struct pl_why why = {""};
    int most = 0;
    struct pl_engine_conf conf = {.job = &b.job,
                                  .host = {.ctx = &h, .start = host_start, .cancel = host_cancel}};
    assert_int_equal(pl_workspace_new(&b.job, &h.workspace), 0);
    for (int i = 0; i < N_WORKERS; i++)
        assert_int_equal(pl_local_state_new(&b.job.local, b.job.model->dim, &h.state[i]), 0);
    if (pl_engine_new(&conf, NULL, &h.out, &h.engine, &why)) fail_msg("%s", why.text);
    *gave_up = 0;
    for (int i = 0; i < N_WORKERS; i++) {
        struct pl_event e = {.kind = PL_JOIN, .worker = i, .now_ns = (uint64_t)i + 1};
        assert_int_equal(pl_engine_event(h.engine, &e, NULL, &why), 0);
    }
    for (int t = 0; t < N_UPDATES; t++) {
        for (int i = 0; reclaims && i < N_WORKERS; i++)
            if (h.busy[i]) *gave_up += pl_engine_answered(h.engine, i);
        int i = t % N_WORKERS;
        if (!h.busy[i]) continue;
        h.busy[i] = false;
        struct pl_event e = {.kind = PL_ARRIVE,
                             .worker = i,
                             .now_ns = (uint64_t)t + N_WORKERS + 1,
                             .task = h.task[i],
                             .samples = b.job.batch,
                             .loss = h.loss[i]};
        if (pl_engine_event(h.engine, &e, NULL, &why)) fail_msg("%s: %s", method, why.text);
        int n = pl_vectors_n_in_use(pl_engine_vectors(h.engine));
        if (n > most) most = n;
    }
    assert_true(b.job.model->dim <= MAX_DIM);
    memcpy(w, pl_engine_newest(h.engine)->model, b.job.model->dim * sizeof *w);
    for (int i = 0; i < N_WORKERS; i++) pl_local_state_free(&h.state[i]);
    pl_engine_free(h.engine);
    pl_workspace_free(h.workspace);
    free(h.out.weights);
    pl_built_free(&b);
    pl_setup_free(setup);
    return most;
}

static float without[MAX_DIM], with[MAX_DIM];

TEST(test_given_up) {
    static const char *const methods[] = {"async", "kasync:k=3", "ringmaster", "kbatchasync"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        int none, some;
        int before = run(methods[i], false, without, &none);
        int after = run(methods[i], true, with, &some);
        assert_true(none == 0 && some > N_UPDATES / 4);
        /* a result per worker, the newest version, and what was just started or is in the group */
        if (after > N_WORKERS + 6 || after >= before)
            fail_msg("%s: %d vectors, and %d without", methods[i], after, before);
        assert_memory_equal(without, with, sizeof with);
    }
}

TEST(test_held) {
    static const char *const methods[] = {"gap-aware", "kasync:fetch=3", "kbatchsync", "sync"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        int none, some;
        run(methods[i], false, without, &none);
        run(methods[i], true, with, &some);
        if (some != 0) fail_msg("%s: %d versions were given up", methods[i], some);
        assert_memory_equal(without, with, sizeof with);
    }
}
