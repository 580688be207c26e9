#include "run/leases.h"

#include <stdlib.h>
#include <string.h>

struct leases_worker {
    struct pl_version *assigned; /* of its latest order */
    uint64_t assigned_from;      /* first task that was told to compute on it, */
    uint64_t assigned_to;        /* and the latest */
    struct pl_version *old;      /* of orders that were replaced; it may still be reading it, */
    uint64_t old_from, old_to;   /* for as long as it holds one of these tasks */
    float *slot;
    struct pl_part part; /* of its latest order */
    uint64_t acked, taken,
        applied; /* its last tasks that counted, joined a group, were committed */
};

struct pl_leases {
    const struct pl_job *job;
    size_t dim;
    const struct pl_transport *t;
    struct pl_port *port;
    struct pl_store *store;
    struct leases_worker *worker;
    float **spare; /* slots nobody has */
    size_t n_spare, n_slots;
    struct pl_group_vector *group; /* the open one: slots, and from most_slots on copies */
    size_t n_group, room_group, most_slots;
    int n_old;              /* workers that have an old version */
    struct pl_peers *peers; /* of workers that have models of their own; or NULL */
};

static size_t leases_group(const struct pl_job *job) {
    int k = ((const struct pl_policy *)job->policy.entry)->knobs(job->policy.conf).k;
    return (size_t)(k > job->n_workers ? k : job->n_workers);
}

void pl_leases_room(const struct pl_job *job, struct pl_port_conf *conf) {
    const struct pl_optim *optim = (const struct pl_optim *)job->optim.entry;
    const struct pl_correct *correct = (const struct pl_correct *)job->correct.entry;
    bool ahead = optim->looks_ahead && optim->looks_ahead(job->optim.conf);
    /* told, old, and bases of the open group; the newest, the next, one scored, one saved */
    int versions = (correct->id.needs & PL_NEEDS_BASE ? 3 : 2) * job->n_workers + 4;
    conf->n_workers = job->n_workers;
    conf->n_versions = versions * (ahead ? 2 : 1);
    conf->n_slots = job->n_workers + (int)leases_group(job);
    if (pl_job_peers(job)) pl_peers_room(job, conf);
}

int pl_leases_new(const struct pl_job *job, size_t dim, const struct pl_transport *t,
                  struct pl_port *port, struct pl_store *store, struct pl_leases **out) {
    struct pl_leases *c = calloc(1, sizeof *c);
    if (!c) return PL_ENOMEM;
    c->job = job;
    c->dim = dim;
    c->t = t;
    c->port = port;
    c->store = store;
    c->most_slots = c->room_group = leases_group(job);
    c->n_slots = (size_t)job->n_workers + c->most_slots;
    c->worker = calloc((size_t)job->n_workers, sizeof *c->worker);
    c->spare = malloc(c->n_slots * sizeof(*c->spare));
    c->group = malloc(c->room_group * sizeof *c->group);
    if (!c->worker || !c->spare || !c->group) {
        pl_leases_free(c);
        return PL_ENOMEM;
    }
    *out = c;
    return PL_OK;
}

void pl_leases_free(struct pl_leases *c) {
    if (!c) return;
    for (int i = 0; c->worker && i < c->job->n_workers; i++) pl_leases_gone(c, i);
    for (size_t i = c->most_slots; i < c->n_group; i++) free(c->group[i].vector);
    free(c->worker);
    free(c->spare);
    free(c->group);
    free(c);
}

void pl_leases_peers(struct pl_leases *c, struct pl_peers *peers) {
    c->peers = peers;
}

/* --- versions ---------------------------------------------------------------------------- */

static void leases_forget_old(struct pl_leases *c, struct leases_worker *w) {
    if (!w->old) return;
    pl_store_release(c->store, w->old);
    w->old = NULL;
    c->n_old--;
}

static bool leases_holds_old(const struct pl_leases *c, int worker) {
    const struct leases_worker *w = &c->worker[worker];
    uint64_t task = c->t->holds(c->port, worker);
    return task >= w->old_from && task <= w->old_to;
}

/* A version was replaced by a newer one; a worker that has not noticed may still be reading it. */
static void leases_replace(struct pl_leases *c, int worker, struct leases_worker before) {
    struct leases_worker *w = &c->worker[worker];
    uint64_t task = c->t->holds(c->port, worker);
    if (w->old && !leases_holds_old(c, worker)) leases_forget_old(c, w);
    if (!before.assigned) return;
    if (task < before.assigned_from || task > before.assigned_to) {
        pl_store_release(c->store, before.assigned);
        return;
    }
    leases_forget_old(c, w);
    w->old = before.assigned;
    w->old_from = before.assigned_from;
    w->old_to = before.assigned_to;
    c->n_old++;
}

/* Who has moved on since. */
static void leases_tidy(struct pl_leases *c) {
    for (int i = 0; c->n_old > 0 && i < c->job->n_workers; i++)
        if (c->worker[i].old && !leases_holds_old(c, i)) leases_forget_old(c, &c->worker[i]);
}

/* --- slots ------------------------------------------------------------------------------- */

static float *leases_slot(struct pl_leases *c) {
    return c->n_spare > 0 ? c->spare[--c->n_spare] : c->t->slot(c->port);
}

/* --- carrying out ------------------------------------------------------------------------ */

static int leases_start_own(struct pl_leases *c, int worker, uint64_t task) {
    const struct pl_version *newest = pl_store_newest(c->store);
    return pl_peers_start(c->peers, worker,
                          &(struct pl_order){.task = task,
                                             .version = newest->id,
                                             .lr = newest->lr,
                                             .acked = c->worker[worker].acked});
}

int pl_leases_start(struct pl_leases *c, int worker, uint64_t task, enum pl_from from,
                    struct pl_part part) {
    struct leases_worker *w = &c->worker[worker], before = *w;
    if (c->peers) return leases_start_own(c, worker, task);
    if (!w->slot && !(w->slot = leases_slot(c))) return PL_ENOMEM;
    if (from == PL_FETCH) {
        w->assigned = pl_store_newest(c->store);
        pl_store_hold(w->assigned);
        w->assigned_from = task;
    }
    w->assigned_to = task;
    w->part = part;
    struct pl_order order = {.task = task,
                             .version = w->assigned->id,
                             .lr = w->assigned->lr,
                             .acked = w->acked,
                             .applied = w->applied,
                             .w = w->assigned->lookahead,
                             .out = w->slot,
                             .part = pl_part_number(part)};
    if (pl_part_is(part)) order.n_ranges = pl_part_ranges(c->job, part, order.range);
    c->t->tell(c->port, worker, &order);
    if (from == PL_FETCH) leases_replace(c, worker, before);
    return PL_OK;
}

void pl_leases_acked(struct pl_leases *c, int worker, uint64_t task) {
    c->worker[worker].acked = task;
}

float *pl_leases_answer(const struct pl_leases *c, int worker, const struct pl_version **base) {
    *base = c->worker[worker].assigned;
    return c->worker[worker].slot;
}

/* A copy of what the worker wrote, for a group that has all the slots it can have. */
static float *leases_copy(struct pl_leases *c, int worker) {
    size_t bytes = c->dim * sizeof(float);
    if (c->n_group == c->room_group) {
        size_t room = 2 * c->room_group;
        struct pl_group_vector *grown = realloc(c->group, room * sizeof *grown);
        if (!grown) return NULL;
        c->group = grown;
        c->room_group = room;
    }
    float *copy = malloc(bytes);
    if (copy) memcpy(copy, c->worker[worker].slot, bytes);
    return copy;
}

int pl_leases_take(struct pl_leases *c, const struct pl_member *m) {
    struct leases_worker *w = &c->worker[m->worker];
    struct pl_version *newest = pl_store_newest(c->store);
    if (c->peers) return pl_store_take(c->store, m, newest, newest->model); /* it is counted */
    bool full = c->n_group >= c->most_slots;
    float *vector = full ? leases_copy(c, m->worker) : w->slot;
    if (!vector) return PL_ENOMEM;
    c->group[c->n_group++] = (struct pl_group_vector){m->worker, vector};
    if (!full) w->slot = NULL;
    w->taken = m->task;
    struct pl_range range[PL_RANGES];
    int n = pl_part_ranges(c->job, w->part, range);
    return pl_part_is(w->part) ? pl_store_take_part(c->store, m, range, n, vector)
                               : pl_store_take(c->store, m, w->assigned, vector);
}

int pl_leases_commit(struct pl_leases *c, double factor, struct pl_measure *measure) {
    int rc = pl_task_forge(c->job, c->group, (int)c->n_group);
    if (!rc) rc = pl_store_commit(c->store, factor, measure);
    while (c->n_group > 0) {
        struct leases_worker *w = &c->worker[c->group[--c->n_group].worker];
        float *vector = c->group[c->n_group].vector;
        w->applied = w->taken;
        if (c->n_group >= c->most_slots)
            free(vector);
        else
            c->spare[c->n_spare++] = vector;
    }
    leases_tidy(c);
    return rc;
}

void pl_leases_gone(struct pl_leases *c, int worker) {
    struct leases_worker *w = &c->worker[worker];
    leases_forget_old(c, w);
    pl_store_release(c->store, w->assigned);
    if (w->slot) c->spare[c->n_spare++] = w->slot;
    *w = (struct leases_worker){0};
}
