#include "run/leases.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "learn/replica_mean.h"
#include "run/worker.h"
#include "sys/segment.h"

/* The most vectors that a replica can need: one for every term of its model, of its task's input
 * and of its inbox, and the two of its task. */
#define LEASES_REPLICA (3 * PL_TERMS + 2)
#define LEASES_MOST (1 << 20)

struct lease {
    int vector;        /* input of its latest order; PL_NO_VECTOR: none */
    uint64_t from, to; /* first and latest task that was ordered to compute on it */
    int old;           /* input of orders that were replaced, held; PL_NO_VECTOR: none */
    uint64_t old_from,
        old_to;  /* while the worker holds one of these tasks, it may be reading `old` */
    bool client; /* a program that the server did not start */
    float *base; /* memory of a base that was settled, which the worker still reads; or NULL */
};

struct leases_spare {
    float **v;
    int n;
    size_t room;
};

struct pl_leases {
    const struct pl_job *job;
    size_t dim;
    const struct pl_transport *transport;
    const struct pl_port_ops *ops;
    struct pl_port *port;
    struct pl_engine *engine;
    struct lease *worker;
    int n_old;                  /* workers that have an old version */
    struct leases_spare *spare; /* [1 + n_workers] memory by writer, the server first */
    int n_group,
        most_group; /* outputs in the open group, and the room that the port has for them */
    struct leases_copy {
        float *v;
        bool in_port; /* in memory of the server's that is the port's; otherwise malloc()ed */
    } * copy;         /* [n_copies] vectors of workers that were copied */
    int n_copies;
    size_t room_copies;
    void (*update)(void *owner);
    void (*made)(void *owner, uint64_t version);
    pl_leases_end *end;
    void *owner;
    struct pl_input *wanted; /* [room_wanted] for fetch */
    size_t room_wanted;
    uint64_t replaced; /* version whose model was replaced last, plus 1 */
};

static int leases_group(const struct pl_job *job) {
    return job->groups.most < LEASES_MOST ? job->groups.most : LEASES_MOST;
}

void pl_leases_room(const struct pl_job *job, struct pl_port_conf *conf) {
    const struct pl_optim *optim = (const struct pl_optim *)job->optim.entry;
    const struct pl_correct *correct = (const struct pl_correct *)job->correct.entry;
    bool ahead = optim->looks_ahead && optim->looks_ahead(job->optim.conf);
    int n = job->n_workers;
    conf->n_workers = n;
    /* latest, old, and bases of the open group; the newest, the next, one scored, one saved */
    conf->n_versions = ((correct->id.needs & PL_NEEDS_BASE ? 3 : 2) * n + 4) * (ahead ? 2 : 1);
    conf->n_slots = n + leases_group(job);
    conf->n_own = 1 + leases_group(job); /* all of the group may be one worker's */
    if (job->grid) { /* the model, and what a worker writes, wrote for the group and may write */
        conf->n_versions = 1;
        conf->n_slots = 3 * n + pl_part_side(job);
    }
    if (pl_job_peers(job)) {
        conf->n_versions = 2;
        conf->n_own = LEASES_REPLICA;
        conf->peers = true;
        conf->n_slots = n < LEASES_MOST / LEASES_REPLICA ? LEASES_REPLICA * n + 1 : LEASES_MOST;
    }
    if (conf->listen) conf->n_versions += conf->n_slots; /* results of clients may be copied */
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
    free(l);
}

void pl_leases_engine(struct pl_leases *l, struct pl_engine *e) {
    l->engine = e;
}

/* --- memory --------------------------------------------------------------------------------- */

/* Gives up versions whose workers have sent their results, so that their memory is used again. A
 * server that workers wait for would otherwise touch new memory for every one of them. */
static void leases_reclaim(struct pl_leases *l) {
    if (!l->engine || !l->transport->shared) return;
    for (int i = 0; i < l->job->n_workers; i++) {
        struct lease *w = &l->worker[i];
        if (w->vector == PL_NO_VECTOR || w->client || !l->transport->shared->answered(l->port, i))
            continue;
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
    if (PL_GROW(s->v, s->room, s->n + 1)) s->v[s->n++] = v; /* otherwise it is not used again */
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
    if (!PL_GROW(l->copy, l->room_copies, l->n_copies + 1)) return NULL;
    float *v = pl_vector_at(table, vector);
    float *copy = in_port ? leases_get(l, PL_SERVER) : malloc(l->dim * sizeof *copy);
    if (!copy) return NULL;
    memcpy(copy, v, l->dim * sizeof *copy);
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

/* The vector of a result joins the open group, if it is taken. */
static void leases_result(void *ctx, int worker, int vector, bool taken) {
    struct pl_leases *l = ctx;
    size_t n;
    (void)worker;
    if (!taken) return;
    struct pl_vectors *table = pl_engine_vectors(l->engine);
    pl_control_group(pl_engine_control(l->engine), &n);
    float *v = (int)n > l->most_group ? leases_copy(l, table, vector, false) : NULL;
    if (v) leases_put(l, vector, pl_vector_writer(table, vector), v);
}

/* --- clients ---------------------------------------------------------------------------------- */

void pl_leases_client(struct pl_leases *l, int worker, bool client) {
    l->worker[worker].client = client;
}

static bool leases_writable(void *ctx, int worker) {
    return ((struct pl_leases *)ctx)->worker[worker].client;
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

void pl_leases_replaced(struct pl_leases *l, uint64_t version) {
    l->replaced = version + 1;
}

void pl_leases_gone(struct pl_leases *l, int worker) {
    struct lease *w = &l->worker[worker];
    leases_forget_old(l, w);
    leases_base_over(l, worker);
    *w = (struct lease){.vector = PL_NO_VECTOR, .old = PL_NO_VECTOR};
}

/* --- orders --------------------------------------------------------------------------------- */

static int leases_start(void *ctx, const struct pl_start *start) {
    struct pl_leases *l = ctx;
    struct pl_vectors *table = pl_engine_vectors(l->engine);
    struct lease *w = &l->worker[start->worker], before = *w;
    struct pl_input input[PL_TERMS];
    int n = start->input ? start->input->n : 0;
    uint64_t stamp = start->stays || start->version + 1 == l->replaced ? 0 : start->version + 1;
    for (int i = 0; i < n; i++) {
        int vector = start->input->term[i].vector;
        input[i] = (struct pl_input){.v = pl_vector_at(table, vector),
                                     .stamp = stamp,
                                     .c = start->input->term[i].c,
                                     .writer = pl_vector_writer(table, vector)};
    }
    struct pl_order order = {.task = start->task,
                             .n_inputs = n,
                             .input = input,
                             .stays = start->stays,
                             .n_strips = start->n_strips};
    memcpy(order.strip, start->strip, sizeof order.strip);
    if (leases_uncopy(l, table, start->output) || leases_uncopy(l, table, start->base))
        return PL_ENOMEM;
    if (start->n_strips == 0) order.out = pl_vector_at(table, start->output);
    if (start->base != PL_NO_VECTOR) order.base = pl_vector_at(table, start->base);
    if ((start->n_strips == 0 && !order.out) || (start->base != PL_NO_VECTOR && !order.base))
        return PL_ENOMEM;
    leases_base_over(l, start->worker);
    if (l->made) l->made(l->owner, start->version);
    pl_note_pack(&order, &(struct pl_run_note){.version = start->version,
                                               .lr = start->lr,
                                               .acked = start->acked,
                                               .applied = start->applied,
                                               .part = pl_part_number(start->part),
                                               .checks = start->checks});
    l->ops->tell(l->port, start->worker, &order);
    if (start->stays || !start->input)
        return PL_OK; /* what an order reads is held, and none is replaced; or it is in strips */
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
    if (!PL_GROW(l->wanted, l->room_wanted, n)) return PL_ENOMEM;
    for (int i = 0; i < n; i++)
        l->wanted[i] = (struct pl_input){.v = pl_vector_at(table, vector[i]),
                                         .c = 1,
                                         .writer = pl_vector_writer(table, vector[i])};
    return l->transport->stay->fetch(l->port, l->wanted, n);
}

static void leases_update(void *ctx, const struct pl_action *after, size_t n) {
    struct pl_leases *l = ctx;
    if (l->update) l->update(l->owner);
    leases_tidy(l);
    const struct pl_stream_ops *stream = l->transport->stream;
    for (size_t i = 0; stream && i < n; i++)
        if (pl_starts_on_update(&after[i])) stream->forward(l->port, after[i].worker);
}

static enum pl_removal leases_end(void *ctx, int worker, enum pl_life_event event, bool last) {
    struct pl_leases *l = ctx;
    return l->end ? l->end(l->owner, worker, event, last) : PL_REMAINS;
}

struct pl_host_ops pl_leases_host(struct pl_leases *l, void (*update)(void *owner),
                                  void (*made)(void *owner, uint64_t version), pl_leases_end *end,
                                  void *owner) {
    l->update = update;
    l->made = made;
    l->end = end;
    l->owner = owner;
    static const struct pl_host_sharing sharing = {leases_writable, leases_settle};
    return (struct pl_host_ops){.ctx = l,
                                .start = leases_start,
                                .cancel = leases_cancel,
                                .end = leases_end,
                                .result = leases_result,
                                .update = leases_update,
                                .fetch = l->transport->stay ? leases_fetch : NULL,
                                .memory = {leases_get, leases_put, l},
                                .sharing = &sharing};
}
