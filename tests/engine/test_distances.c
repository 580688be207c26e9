/* How far apart the models are that workers compute on: close with no-delay averaging, however many
 * workers there are; farther the more there are with plain asynchronous SGD. */
#include "core/rule.h"
#include "host.h"

struct distances {
    double pair, move;            /* the largest between two workers; the longest result */
    double from_mean, from_model; /* the means over all looks */
};

/* The model that a worker computes on. */
static const float *model_of(const struct host *h, int worker) {
    const struct pl_local *local = (const struct pl_local *)h->job->local.entry;
    const struct pl_local_state *state = &h->state[worker];
    if (local->model_slot > 0 && state->any) return state->prev[local->model_slot - 1];
    const struct pl_version *base = pl_engine_base(h->engine, worker);
    return base ? base->lookahead : NULL;
}

static void look(const struct host *h, struct distances *d) {
    const float *model[HOST_WORKERS], *newest = pl_engine_newest(h->engine)->model;
    double weight[HOST_WORKERS];
    size_t dim = h->job->model->dim;
    float *mean = own_room(dim, sizeof *mean);
    int n = 0;
    for (int i = 0; i < h->job->n_workers; i++)
        if ((model[n] = model_of(h, i))) weight[n++] = 1;
    for (int i = 0; i < n; i++) weight[i] = 1.0 / n;
    pl_vec_weighted(n, model, weight, dim, mean);
    for (int i = 0; i < n; i++) {
        d->from_mean += sqrt(pl_vec_distance2(model[i], mean, dim)) / n;
        d->from_model += sqrt(pl_vec_distance2(model[i], newest, dim)) / n;
        for (int j = 0; j < i; j++)
            d->pair = fmax(d->pair, sqrt(pl_vec_distance2(model[i], model[j], dim)));
    }
}

/* Workers that answer in turn, this many times each. */
static struct distances distances_of(const char *method, int n_workers, int n_tasks) {
    struct distances d = {0};
    struct host *h = host_of(setup_of("model=softmax data=digits:samples=1000,test=200 batch=8 "
                                      "lr=0.05 workers=%d method=%s",
                                      n_workers, method));
    h->results = HOST_COMPUTES_AT_ONCE;
    host_begin(h, false, 0);
    for (int i = 0; i < n_workers; i++)
        host_event(h, (struct pl_event){.kind = PL_JOIN, .worker = i});
    for (int task = 0; task < n_tasks; task++) {
        for (int i = 0; i < n_workers; i++) {
            if (!h->worker[i].busy) continue;
            const struct pl_start *s = &h->worker[i].start;
            const float *sent = pl_vector_at(pl_engine_vectors(h->engine), s->output);
            d.move = fmax(d.move, sqrt(pl_vec_dot(sent, sent, h->job->model->dim)));
            host_event(h,
                       (struct pl_event){
                           .kind = PL_ARRIVE, .now_ns = ++h->now_ns, .worker = i, .task = s->task});
        }
        look(h, &d);
    }
    d.from_mean /= n_tasks;
    d.from_model /= n_tasks;
    return d;
}

/* The lemma behind no-delay averaging: after a model is put below what was moved since, no two
 * workers are farther apart than two moves are long, however many there are. */
TEST(pairs_stay_close) {
    static const int workers[] = {2, 4, 8, 16, 32};
    double first = 0, last = 0;
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        struct distances d = distances_of("nodelay:u=4", workers[i], sanitized ? 15 : 60);
        assert_true(d.pair > 0);
        if (d.pair > 2 * d.move * (1 + 1e-5))
            fail_msg("%d workers: %g > 2 * %g", workers[i], d.pair, d.move);
        last = d.from_mean;
        if (i == 0) first = last;
    }
    /* of n models the mean is as close as sqrt((n-1)/n) says: 1.4 from 2 to 32 */
    if (last > 2 * first) fail_msg("the distance grows with the workers: %g, %g", first, last);
}

/* … while with plain asynchronous SGD it grows as there are more of them. */
TEST(delayed_models_drift_apart) {
    double few = distances_of("async", 4, 30).from_model;
    double many = distances_of("async", 32, 30).from_model;
    if (many < 3 * few) fail_msg("%g with 4 workers, %g with 32", few, many);
}
