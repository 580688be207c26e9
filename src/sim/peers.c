#include "sim/peers.h"

#include <stdlib.h>
#include <string.h>

struct pl_sim_peers {
    const struct pl_job *job;
    struct pl_replicas *replicas;
    struct pl_prefetch *prefetch;
    float **vector; /* [n_vectors] of each snapshot; NULL: not written, or nobody's */
    int n_vectors;
    struct pl_prefetch_base *base; /* [n_workers] */
    float *mean;
};

static bool peers_room(struct pl_sim_peers *p, int n) {
    if (n <= p->n_vectors) return true;
    int room = p->n_vectors ? p->n_vectors : 64;
    while (room < n) room *= 2;
    float **grown = realloc(p->vector, (size_t)room * sizeof *grown);
    if (!grown) return false;
    memset(grown + p->n_vectors, 0, (size_t)(room - p->n_vectors) * sizeof *grown);
    p->vector = grown;
    p->n_vectors = room;
    return true;
}

static void peers_freed(void *ctx, int snapshot) {
    struct pl_sim_peers *p = ctx;
    if (snapshot >= p->n_vectors) return;
    pl_prefetch_give_back(p->prefetch, p->vector[snapshot]);
    p->vector[snapshot] = NULL;
}

static const float *peers_vector(void *ctx, int snapshot) {
    return ((struct pl_sim_peers *)ctx)->vector[snapshot];
}

int pl_sim_peers_new(const struct pl_job *job, struct pl_control *control,
                     struct pl_prefetch *prefetch, const float *w0, struct pl_sim_peers **out) {
    if (!pl_control_replicas(control)) return PL_OK;
    struct pl_sim_peers *p = calloc(1, sizeof *p);
    if (!p) return PL_ENOMEM;
    p->job = job;
    p->replicas = pl_control_replicas(control);
    p->prefetch = prefetch;
    p->base = calloc((size_t)job->n_workers, sizeof *p->base);
    p->mean = malloc((job->model->dim + 1) * sizeof *p->mean);
    if (p->base && p->mean && peers_room(p, 1))
        p->vector[PL_FIRST_SNAPSHOT] = pl_prefetch_vector(prefetch);
    if (!p->vector || !p->vector[PL_FIRST_SNAPSHOT]) {
        pl_sim_peers_free(p);
        return PL_ENOMEM;
    }
    if (w0)
        memcpy(p->vector[PL_FIRST_SNAPSHOT], w0, job->model->dim * sizeof *w0);
    else
        job->model->kind->init(job->model, job->seed, p->vector[PL_FIRST_SNAPSHOT]);
    pl_replicas_on_free(p->replicas, peers_freed, p);
    *out = p;
    return PL_OK;
}

void pl_sim_peers_free(struct pl_sim_peers *p) {
    if (!p) return;
    pl_replicas_on_free(p->replicas, NULL, NULL);
    for (int i = 0; i < p->n_vectors; i++) pl_prefetch_give_back(p->prefetch, p->vector[i]);
    free(p->vector);
    free(p->base);
    free(p->mean);
    free(p);
}

struct pl_prefetch_base *pl_sim_peers_base(struct pl_sim_peers *p, int worker) {
    struct pl_replica_task t = pl_replica_task(p->replicas, worker);
    struct pl_prefetch_base *b = &p->base[worker];
    struct pl_mixture m = {.n = t.row->n};
    for (int i = 0; i < t.row->n; i++) {
        m.c[i] = t.row->term[i].c;
        m.v[i] = p->vector[t.row->term[i].vector];
    }
    b->made = t.base_pending ? pl_prefetch_vector(p->prefetch) : NULL;
    b->w = t.base_pending ? b->made : m.v[0];
    if (b->made) pl_mixture_make(&m, 0, p->job->model->dim, b->made);
    return b;
}

int pl_sim_peers_base_ready(struct pl_sim_peers *p, int worker) {
    struct pl_replica_task task = pl_replica_task(p->replicas, worker);
    struct pl_prefetch_base *b = &p->base[worker];
    if (!b->made) return PL_OK;
    if (!peers_room(p, task.base + 1)) return PL_ENOMEM;
    p->vector[task.base] = b->made;
    b->made = NULL;
    return PL_OK;
}

int pl_sim_peers_answered(struct pl_sim_peers *p, int worker, struct pl_prefetch_task *t) {
    struct pl_replica_task task = pl_replica_task(p->replicas, worker);
    if (pl_sim_peers_base_ready(p, worker) || !peers_room(p, task.answer + 1)) return PL_ENOMEM;
    p->vector[task.answer] = t->vector;
    t->vector = NULL;
    return PL_OK;
}

const float *pl_sim_peers_mean(struct pl_sim_peers *p, double *consensus) {
    return pl_replica_mean(p->replicas, peers_vector, p, p->job->model->dim, p->mean, consensus)
               ? NULL
               : p->mean;
}

int pl_peers_foreign(const struct pl_replicas *b, int worker) {
    struct pl_replica_task t = pl_replica_task(b, worker);
    int n = 0;
    for (int i = 0; i < t.row->n; i++) n += pl_replicas_writer(b, t.row->term[i].vector) != worker;
    return n;
}
