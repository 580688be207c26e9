#include "run/leases.h"

#include <stdlib.h>
#include <string.h>

#include "learn/replica_mean.h"
#include "run/strips.h"
#include "run/worker.h"
#include "sys/segment.h"

/* The most vectors that a replica can need: one for every term of its model, of its task's input
 * and of its inbox, and the two of its task. */
#define LEASES_REPLICA (3 * PL_TERMS + 2)
#define LEASES_MOST (1 << 20)
#define LEASES_SUSPENDED (PL_TERMS + 2) /* inputs, base and output of a task */

struct lease {
    int vector;        /* input of its latest order; PL_NO_VECTOR: none */
    uint64_t from, to; /* first and latest task that was ordered to compute on it */
    int old;           /* input of orders that were replaced, held; PL_NO_VECTOR: none */
    uint64_t old_from,
        old_to;  /* while the worker holds one of these tasks, it may be reading `old` */
    bool guest;  /* a program that the server did not start */
    float *base; /* memory of a base that was settled, which the worker still reads; or NULL */
    int suspended[LEASES_SUSPENDED]; /* vectors of the task of a worker that left and still runs,
                                        held; n_suspended of them */
    int n_suspended;
};

struct leases_spare {
    float **v;
    int n, room;
};

struct pl_leases {
    const struct pl_job *job;
    size_t dim;
    const struct pl_transport *transport;
    const struct pl_port_ops *ops;
    struct pl_port *port;
    struct pl_engine *engine;
    struct pl_strips *strips; /* of the model, if workers write to it block by block; or NULL */
    struct lease *worker;
    int n_old;                  /* workers that have an old version */
    struct leases_spare *spare; /* [1 + n_workers] memory by writer, the server first */
    int n_group,
        most_group; /* outputs in the open group, and the room that the port has for them */
    struct leases_copy {
        float *v;
        bool in_port; /* in memory of the server's that is the port's; otherwise malloc()ed */
    } * copy;         /* [n_copies] vectors of workers that were copied */
    int n_copies, room_copies;
    void (*update)(void *owner);
    void *owner;
    struct pl_input *wanted; /* [room_wanted] for fetch */
    int room_wanted;
};

static int leases_group(const struct pl_job *job) {
    return job->groups.most < LEASES_MOST ? job->groups.most : LEASES_MOST;
}

/* Whether the model is in strips that workers write. */
static bool leases_in_strips(const struct pl_job *job, const struct pl_transport *t) {
    return job->grid && t->shared;
}

void pl_leases_room(const struct pl_job *job, const struct pl_transport *t,
                    struct pl_port_conf *conf) {
    const struct pl_optim *optim = (const struct pl_optim *)job->optim.entry;
    const struct pl_correct *correct = (const struct pl_correct *)job->correct.entry;
    bool ahead = optim->looks_ahead && optim->looks_ahead(job->optim.conf);
    int n = job->n_workers;
    conf->n_workers = n;
    /* latest, old, and bases of the open group; the newest, the next, one scored, one saved */
    conf->n_versions = ((correct->id.needs & PL_NEEDS_BASE ? 3 : 2) * n + 4) * (ahead ? 2 : 1);
    conf->n_slots = n + leases_group(job);
    conf->n_own = 1 + leases_group(job); /* all of the group may be one worker's */
    if (job->grid) conf->slot_dim = pl_part_most(job);
    if (leases_in_strips(job, t)) conf->n_slots += n + pl_strips_slots(job);
    if (pl_job_peers(job)) {
        conf->n_versions = 2;
        conf->n_own = LEASES_REPLICA;
        conf->peers = true;
        conf->n_slots = n < LEASES_MOST / LEASES_REPLICA ? LEASES_REPLICA * n + 1 : LEASES_MOST;
    }
    if (conf->listen) conf->n_versions += conf->n_slots; /* results of guests may be copied */
}

int pl_leases_new(const struct pl_job *job, size_t dim, const struct pl_transport *t,
                  struct pl_port *port, struct pl_leases **out) {
    struct pl_leases *l = calloc(1, sizeof *l);
    size_t n = (size_t)job->n_workers;
    if (!l) return PL_ENOMEM;
    *l = (struct pl_leases){.job = job, .dim = dim, .transport = t, .ops = &t->port, .port = port};
    l->most_group = leases_group(job);
    l->worker = calloc(n, sizeof *l->worker);
    l->spare = calloc(n + 1, sizeof *l->spare);
    if (!l->worker || !l->spare) {
        pl_leases_free(l);
        return PL_ENOMEM;
    }
    for (size_t i = 0; i < n; i++) l->worker[i].vector = l->worker[i].old = PL_NO_VECTOR;
    *out = l;
    return PL_OK;
}

void pl_leases_free(struct pl_leases *l) {
    if (!l) return;
    for (int i = 0; l->spare && i <= l->job->n_workers; i++) free(l->spare[i].v);
    for (int i = 0; i < l->n_copies; i++)
        if (!l->copy[i].in_port) free(l->copy[i].v);
    free(l->copy);
    free(l->spare);
    free(l->worker);
    free(l->wanted);
    pl_strips_free(l->strips);
    free(l);
}

int pl_leases_engine(struct pl_leases *l, struct pl_engine *e) {
    l->engine = e;
    if (!leases_in_strips(l->job, l->transport)) return PL_OK;
    return pl_strips_new(l->job, l->ops, l->port, pl_engine_newest(e)->model,
                         l->transport->processes, &l->strips);
}

/* --- memory --------------------------------------------------------------------------------- */

/* Gives up versions whose workers have sent their results, so that their memory is used again. A
 * server that workers wait for would otherwise touch new memory for every one of them. */
static void leases_reclaim(struct pl_leases *l) {
    if (!l->engine || !l->ops->answered) return;
    for (int i = 0; i < l->job->n_workers; i++) {
        struct lease *w = &l->worker[i];
        if (w->vector == PL_NO_VECTOR || w->guest || !l->ops->answered(l->port, i)) continue;
        if (pl_engine_answered(l->engine, i)) w->vector = PL_NO_VECTOR;
    }
}

/* Prefers the worker's own memory: over MPI, only that is at its rank. */
static float *leases_get(void *ctx, int writer) {
    struct pl_leases *l = ctx;
    struct leases_spare *s = &l->spare[writer + 1];
    if (s->n == 0 && writer == PL_SERVER) leases_reclaim(l);
    if (s->n == 0) {
        float *v = l->ops->vector(l->port, writer);
        /* workers obtain the memory that they write themselves, at the same time */
        if (v && writer == PL_SERVER) pl_segment_populate(v, l->dim * sizeof *v);
        if (v || writer == PL_SERVER) return v;
    }
    for (int i = 1; s->n == 0 && i <= l->job->n_workers; i++) s = &l->spare[i];
    return s->n > 0 ? s->v[--s->n] : NULL;
}

static void leases_spare(struct pl_leases *l, int writer, float *v) {
    struct leases_spare *s = &l->spare[writer + 1];
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 4;
        float **grown = realloc(s->v, (size_t)room * sizeof *grown);
        if (!grown) return; /* it will not be used again */
        s->v = grown;
        s->room = room;
    }
    s->v[s->n++] = v;
}

static void leases_put(void *ctx, int id, int writer, float *v) {
    struct pl_leases *l = ctx;
    (void)id;
    if (!v) return;
    for (int i = 0; i < l->n_copies; i++) {
        if (l->copy[i].v != v) continue;
        if (l->copy[i].in_port)
            leases_spare(l, PL_SERVER, v);
        else
            free(v);
        l->copy[i] = l->copy[--l->n_copies];
        return;
    }
    leases_spare(l, writer, v);
}

/* Replaces the vector that the worker wrote by a copy that is the server's. Returns the memory that
 * the worker wrote to, or NULL: nothing was copied. */
static float *leases_copy(struct pl_leases *l, struct pl_vectors *table, int vector, bool in_port) {
    if (l->n_copies == l->room_copies) {
        int room = l->room_copies ? 2 * l->room_copies : 16;
        struct leases_copy *grown = realloc(l->copy, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        l->copy = grown;
        l->room_copies = room;
    }
    float *v = pl_vector_at(table, vector);
    float *copy = in_port ? leases_get(l, PL_SERVER) : malloc(l->dim * sizeof *copy);
    if (!copy) return NULL;
    memcpy(copy, v, (l->job->grid ? pl_part_most(l->job) : l->dim) * sizeof *copy);
    l->copy[l->n_copies++] = (struct leases_copy){copy, in_port};
    pl_vector_bind(table, vector, copy);
    return v;
}

/* A result that was copied and then not used: its worker writes the next one to memory of its own
 * again. */
static int leases_uncopy(struct pl_leases *l, struct pl_vectors *table, int vector) {
    float *v = vector == PL_NO_VECTOR ? NULL : pl_vector_at(table, vector);
    for (int i = 0; v && i < l->n_copies; i++) {
        if (l->copy[i].v != v) continue;
        int writer = pl_vector_writer(table, vector);
        float *own = leases_get(l, writer);
        if (!own) return PL_ENOMEM;
        pl_vector_bind(table, vector, own);
        leases_put(l, vector, writer, v);
        break;
    }
    return PL_OK;
}

/* The vector of a result joins the open group. */
static void leases_taken(void *ctx, int vector) {
    struct pl_leases *l = ctx;
    size_t n;
    struct pl_vectors *table = pl_engine_vectors(l->engine);
    if (l->strips) return; /* a worker has at most one result in the open group */
    pl_control_group(pl_engine_control(l->engine), &n);
    float *v = (int)n > l->most_group ? leases_copy(l, table, vector, false) : NULL;
    if (v) leases_put(l, vector, pl_vector_writer(table, vector), v);
}

/* --- guests ---------------------------------------------------------------------------------- */

void pl_leases_guest(struct pl_leases *l, int worker, bool guest) {
    l->worker[worker].guest = guest;
}

static bool leases_writable(void *ctx, int worker) {
    return ((struct pl_leases *)ctx)->worker[worker].guest;
}

/* The worker no longer reads its base. */
static void leases_base_over(struct pl_leases *l, int worker) {
    struct lease *w = &l->worker[worker];
    if (w->base) leases_spare(l, worker, w->base);
    w->base = NULL;
}

/* Peers of the worker may read the copy, so it is in the port's memory. */
static int leases_settle(void *ctx, int vector, bool used) {
    struct pl_leases *l = ctx;
    struct pl_vectors *table = pl_engine_vectors(l->engine);
    int writer = pl_vector_writer(table, vector);
    float *v = leases_copy(l, table, vector, true);
    if (!v) return PL_ENOMEM;
    leases_base_over(l, writer);
    if (used)
        l->worker[writer].base = v;
    else
        leases_spare(l, writer, v);
    return PL_OK;
}

/* --- workers that are suspended --------------------------------------------------------------- */

static void leases_suspend_one(struct pl_leases *l, struct lease *w, int vector) {
    if (vector == PL_NO_VECTOR) return;
    pl_vector_hold(pl_engine_vectors(l->engine), vector);
    w->suspended[w->n_suspended++] = vector;
}

void pl_leases_suspend(struct pl_leases *l, int worker) {
    struct lease *w = &l->worker[worker];
    struct pl_replicas *replicas = pl_engine_view(l->engine)->replicas;
    pl_leases_resume(l, worker);
    leases_suspend_one(l, w, pl_engine_output(l->engine, worker));
    if (!replicas) {
        leases_suspend_one(l, w, w->vector);
        return;
    }
    struct pl_replica_task t = pl_replica_task(replicas, worker);
    leases_suspend_one(l, w, t.base);
    for (int i = 0; t.input && i < t.input->n; i++)
        leases_suspend_one(l, w, t.input->term[i].vector);
}

void pl_leases_resume(struct pl_leases *l, int worker) {
    struct lease *w = &l->worker[worker];
    while (w->n_suspended > 0)
        pl_vector_release(pl_engine_vectors(l->engine), w->suspended[--w->n_suspended]);
}

/* --- versions ------------------------------------------------------------------------------- */

static void leases_forget_old(struct pl_leases *l, struct lease *w) {
    if (w->old == PL_NO_VECTOR) return;
    pl_vector_release(pl_engine_vectors(l->engine), w->old);
    w->old = PL_NO_VECTOR;
    l->n_old--;
}

static bool leases_holds_old(const struct pl_leases *l, int worker) {
    const struct lease *w = &l->worker[worker];
    uint64_t task = l->ops->holds(l->port, worker);
    return task >= w->old_from && task <= w->old_to;
}

/* Holds an input that was replaced while its worker, not having noticed, may still read it. */
static void leases_replace(struct pl_leases *l, int worker, struct lease before) {
    struct lease *w = &l->worker[worker];
    uint64_t task = l->ops->holds(l->port, worker);
    if (w->old != PL_NO_VECTOR && !leases_holds_old(l, worker)) leases_forget_old(l, w);
    if (before.vector == PL_NO_VECTOR || task < before.from || task > before.to) return;
    leases_forget_old(l, w);
    pl_vector_hold(pl_engine_vectors(l->engine), before.vector);
    w->old = before.vector;
    w->old_from = before.from;
    w->old_to = before.to;
    l->n_old++;
}

static void leases_tidy(struct pl_leases *l) {
    for (int i = 0; l->n_old > 0 && i < l->job->n_workers; i++)
        if (l->worker[i].old != PL_NO_VECTOR && !leases_holds_old(l, i))
            leases_forget_old(l, &l->worker[i]);
}

void pl_leases_gone(struct pl_leases *l, int worker) {
    struct lease *w = &l->worker[worker];
    leases_forget_old(l, w);
    leases_base_over(l, worker);
    pl_leases_resume(l, worker);
    *w = (struct lease){.vector = PL_NO_VECTOR, .old = PL_NO_VECTOR};
}

/* --- orders --------------------------------------------------------------------------------- */

/* The ranges of an order. A task on everything covers the whole slice. */
static int leases_ranges(const struct pl_leases *l, struct pl_part part, struct pl_range *range) {
    if (pl_part_is(part)) return pl_part_ranges(l->job, part, range);
    range[0] = (struct pl_range){0, l->dim};
    return 1;
}

static int leases_start(void *ctx, const struct pl_start *start) {
    struct pl_leases *l = ctx;
    struct pl_vectors *table = pl_engine_vectors(l->engine);
    struct lease *w = &l->worker[start->worker], before = *w;
    struct pl_input input[PL_TERMS];
    int n = start->input->n;
    for (int i = 0; i < n; i++) {
        int vector = start->input->term[i].vector;
        input[i] = (struct pl_input){.v = pl_vector_at(table, vector),
                                     .stamp = start->stays ? 0 : start->version + 1,
                                     .c = start->input->term[i].c,
                                     .writer = pl_vector_writer(table, vector)};
    }
    struct pl_order order = {
        .task = start->task, .n_inputs = n, .input = input, .stays = start->stays};
    order.n_ranges = leases_ranges(l, start->part, order.range);
    if (leases_uncopy(l, table, start->output) || leases_uncopy(l, table, start->base))
        return PL_ENOMEM;
    order.out = pl_vector_at(table, start->output);
    if (l->strips && order.out) {
        if (pl_strips_order(l->strips, start->part, order.out, &order)) return PL_ENOMEM;
        order.out = order.strips.out[0];
    }
    if (start->base != PL_NO_VECTOR) order.base = pl_vector_at(table, start->base);
    if (!order.out || (start->base != PL_NO_VECTOR && !order.base)) return PL_ENOMEM;
    leases_base_over(l, start->worker);
    pl_note_pack(&order, &(struct pl_run_note){.version = start->version,
                                               .lr = start->lr,
                                               .acked = start->acked,
                                               .applied = start->applied,
                                               .part = pl_part_number(start->part),
                                               .checks = start->checks});
    l->ops->tell(l->port, start->worker, &order);
    if (start->stays)
        return PL_OK; /* the replicas hold what an order reads, and none is replaced */
    w->to = start->task;
    if (start->input->term[0].vector == w->vector) return PL_OK;
    w->vector = start->input->term[0].vector;
    w->from = start->task;
    leases_replace(l, start->worker, before);
    return PL_OK;
}

static void leases_cancel(void *ctx, int worker) {
    struct pl_leases *l = ctx;
    l->ops->cancel(l->port, worker);
}

static int leases_fetch(void *ctx, const int *vector, int n) {
    struct pl_leases *l = ctx;
    struct pl_vectors *table = pl_engine_vectors(l->engine);
    if (n > l->room_wanted) {
        struct pl_input *wanted = realloc(l->wanted, (size_t)n * sizeof *wanted);
        if (!wanted) return PL_ENOMEM;
        l->wanted = wanted;
        l->room_wanted = n;
    }
    for (int i = 0; i < n; i++)
        l->wanted[i] = (struct pl_input){.v = pl_vector_at(table, vector[i]),
                                         .c = 1,
                                         .writer = pl_vector_writer(table, vector[i])};
    return l->ops->fetch(l->port, l->wanted, n);
}

static void leases_update(void *ctx) {
    struct pl_leases *l = ctx;
    if (l->update) l->update(l->owner);
    leases_tidy(l);
}

static void leases_upcoming(void *ctx, int worker) {
    struct pl_leases *l = ctx;
    if (l->ops->forward) l->ops->forward(l->port, worker);
}

static bool leases_adopt(void *ctx, const float *v) {
    return pl_strips_adopt(((struct pl_leases *)ctx)->strips, v);
}

static void leases_model(void *ctx, float *w) {
    pl_strips_model(((struct pl_leases *)ctx)->strips, w);
}

struct pl_host_ops pl_leases_host(struct pl_leases *l, void (*update)(void *owner), void *owner) {
    l->update = update;
    l->owner = owner;
    bool in_strips = leases_in_strips(l->job, l->transport);
    return (struct pl_host_ops){.ctx = l,
                                .start = leases_start,
                                .cancel = leases_cancel,
                                .taken = leases_taken,
                                .update = leases_update,
                                .upcoming = leases_upcoming,
                                .fetch = leases_fetch,
                                .writable = leases_writable,
                                .settle = leases_settle,
                                .adopt = in_strips ? leases_adopt : NULL,
                                .model = in_strips ? leases_model : NULL,
                                .memory = {leases_get, leases_put, l}};
}
