#include "host.h"

#include "learn/replica_mean.h"

static int host_run(struct host *h, int worker) {
    const struct pl_start *s = &h->worker[worker].start;
    return pl_task_run(h->job, h->workspace, &h->worker[worker].at, &h->state[worker],
                       pl_vector_at(pl_engine_vectors(h->engine), s->output),
                       &h->worker[worker].loss, NULL);
}

/* Whether the worker is writing to the vector: to its result, or to the base that it computes on.
 */
static bool host_writes(const struct host *h, int worker, int id) {
    const struct pl_start *s = &h->worker[worker].start;
    if (!h->worker[worker].busy) return false;
    return s->output == id || (s->base == id && !h->worker[worker].base_ready);
}

/* The model of a task. Nothing of it is being written by another one. */
static const float *host_input(struct host *h, const struct pl_start *s) {
    struct pl_vectors *v = pl_engine_vectors(h->engine);
    struct pl_mixture m = {.n = s->input ? s->input->n : 0};
    for (int i = 0; i < m.n; i++) {
        int id = s->input->term[i].vector;
        for (int k = 0; k < h->job->n_workers; k++) assert_false(host_writes(h, k, id));
        m.c[i] = s->input->term[i].c;
        m.v[i] = pl_vector_at(v, id);
    }
    if (s->base == PL_NO_VECTOR) {
        assert_true(s->n_strips > 0 || (m.n == 1 && m.c[0] == 1));
        return m.n > 0 ? m.v[0] : NULL;
    }
    pl_mixture_make(&m, 0, h->job->model->dim, pl_vector_at(v, s->base));
    return pl_vector_at(v, s->base);
}

static int host_start(void *ctx, const struct pl_start *s) {
    struct host *h = ctx;
    struct pl_local_state *state = &h->state[s->worker];
    uint64_t sent = h->worker[s->worker].sent;
    struct pl_task_at at = {.worker = (uint32_t)s->worker,
                            .task = s->task,
                            .part = s->part,
                            .n_strips = s->n_strips,
                            .version = s->version,
                            .lr = s->lr};
    if (pl_engine_vectors(h->engine)) at.w = host_input(h, s);
    memcpy(at.strip, s->strip, sizeof at.strip);
    if (sent > 0 && sent == s->acked) pl_local_state_acked(state);
    state->applied = s->applied;
    h->worker[s->worker].sent = 0;
    h->worker[s->worker].busy = true;
    h->worker[s->worker].base_ready = false;
    h->worker[s->worker].start = *s;
    h->worker[s->worker].at = at;
    return h->results == HOST_COMPUTES_AT_ONCE ? host_run(h, s->worker) : PL_OK;
}

static void host_cancel(void *ctx, int worker) {
    ((struct host *)ctx)->worker[worker].busy = false;
}

static enum pl_removal host_end(void *ctx, int worker, enum pl_life_event event, bool last) {
    struct host *h = ctx;
    if (!last) h->ended[worker] = event;
    return h->removal;
}

static void host_clear(struct host *h) {
    for (int i = 0; i < h->job->n_workers; i++) pl_local_state_free(&h->state[i]);
    pl_workspace_free(h->workspace);
    pl_engine_free(h->engine);
    free(h->out.weights);
    memset(h->state, 0, sizeof h->state);
    h->workspace = NULL;
}

static void host_free(void *host) {
    struct host *h = host;
    host_clear(h);
    pl_built_free(&h->built);
    free(h);
}

struct host *host_of(pl_setup *s) {
    struct host *h = calloc(1, sizeof *h);
    assert_non_null(h);
    if (pl_build(s, PL_HOST_VIRTUAL, &h->built)) fail_msg("%s", pl_setup_why(s));
    h->job = &h->built.job;
    h->out = pl_outcome_none();
    assert_true(h->job->n_workers <= HOST_WORKERS);
    return own(h, host_free);
}

void host_begin(struct host *h, bool gathers, uint64_t beat_ns) {
    struct pl_engine_conf conf = {
        .job = h->job,
        .host = {.ctx = h, .start = host_start, .cancel = host_cancel, .end = host_end},
        .gathers = gathers,
        .beat_ns = beat_ns};
    host_clear(h);
    h->out = pl_outcome_none();
    memset(h->worker, 0, sizeof h->worker);
    if (h->job->model) {
        assert_int_equal(pl_workspace_new(h->job, &h->workspace), 0);
        for (int i = 0; i < h->job->n_workers; i++)
            assert_int_equal(pl_local_state_new(&h->job->local, h->job->model->dim, &h->state[i]),
                             0);
    }
    if (pl_engine_new(&conf, NULL, &h->out, &h->engine, &h->why)) fail_msg("%s", h->why.text);
    h->view = pl_engine_view(h->engine);
}

/* The result, which is zeros if nothing is computed; those come with the base that they need. */
static int host_result(struct host *h, struct pl_event *e) {
    const struct pl_start *s = &h->worker[e->worker].start;
    struct pl_vectors *v = pl_engine_vectors(h->engine);
    if (v && h->results == HOST_SENDS_ZEROS) {
        memset(pl_vector_at(v, s->output), 0, h->job->model->dim * sizeof(float));
        if (s->base != PL_NO_VECTOR) {
            struct pl_event ready = *e;
            ready.kind = PL_BASE_READY;
            if (host_try(h, ready)) return PL_ERUN;
        }
    } else if (v) {
        if (h->results == HOST_COMPUTES) assert_int_equal(host_run(h, e->worker), 0);
        e->samples = pl_part_samples(h->job, h->worker[e->worker].at.part);
        e->loss = h->worker[e->worker].loss;
    }
    h->worker[e->worker].busy = false;
    h->worker[e->worker].sent = e->task;
    return PL_OK;
}

int host_try(struct host *h, struct pl_event e) {
    bool known = e.worker >= 0 && e.worker < h->job->n_workers;
    int rc = known && e.kind == PL_ARRIVE ? host_result(h, &e) : PL_OK;
    if (known && e.kind == PL_BASE_READY) h->worker[e.worker].base_ready = true;
    if (known && e.kind == PL_LEAVE) {
        h->worker[e.worker].busy = false;
        h->worker[e.worker].sent = 0;
        pl_local_state_forget(&h->state[e.worker]);
    }
    return rc ? rc : pl_engine_event(h->engine, &e, NULL, &h->why);
}

void host_event(struct host *h, struct pl_event e) {
    if (host_try(h, e)) fail_msg("%s", h->why.text);
}
