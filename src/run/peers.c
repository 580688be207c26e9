#include "run/peers.h"

#include <stdlib.h>
#include <string.h>

/* Slots per worker at their most: every term of its row, of its task and of its inbox a snapshot
 * that nobody else refers to, and the task's own two. Memory is used when they are first asked for.
 */
#define PEERS_SLOTS (3 * PL_TERMS + 2)
#define PEERS_MOST (1 << 20)

struct pl_peers {
    const struct pl_job *job;
    const struct pl_transport *t;
    struct pl_port *port;
    struct pl_replicas *replicas;
    int *slot_of; /* [n_snapshots] slot of each snapshot; -1: none */
    int n_snapshots;
    float **slot; /* [most] */
    int *next;    /* [most] that is spare as well; -1: none */
    int n_slots, most;
    int *spare; /* [1 + n_workers] first of each one's spare slots; of the first model's: [0] */
    struct pl_input *wanted; /* [room_wanted] what the mean needs */
    size_t n_wanted, room_wanted;
    bool *needs; /* [n_snapshots] is in wanted */
};

static int peers_most(const struct pl_job *job) {
    int most = PEERS_MOST / PEERS_SLOTS;
    return job->n_workers < most ? PEERS_SLOTS * job->n_workers + 1 : PEERS_MOST;
}

void pl_peers_room(const struct pl_job *job, struct pl_port_conf *conf) {
    conf->n_workers = job->n_workers;
    conf->n_versions = 1;
    conf->n_slots = peers_most(job);
}

static void peers_freed(void *ctx, int snapshot) {
    struct pl_peers *p = ctx;
    int slot = snapshot < p->n_snapshots ? p->slot_of[snapshot] : -1;
    if (slot < 0) return;
    int *first = &p->spare[pl_replicas_writer(p->replicas, snapshot) + 1];
    p->next[slot] = *first;
    *first = slot;
    p->slot_of[snapshot] = -1;
}

static bool peers_grow(struct pl_peers *p, int snapshot) {
    if (snapshot < p->n_snapshots) return true;
    int room = p->n_snapshots ? p->n_snapshots : 64;
    while (room <= snapshot) room *= 2;
    int *slot_of = realloc(p->slot_of, (size_t)room * sizeof *slot_of);
    if (slot_of) p->slot_of = slot_of;
    bool *needs = realloc(p->needs, (size_t)room * sizeof *needs);
    if (needs) p->needs = needs;
    if (!slot_of || !needs) return false;
    for (int i = p->n_snapshots; i < room; i++) slot_of[i] = -1;
    p->n_snapshots = room;
    return true;
}

/* A worker's own slots come first: at a rank, nobody else's are its memory. */
static int peers_spare(struct pl_peers *p, int worker) {
    int *first = &p->spare[worker + 1];
    if (*first < 0 && p->n_slots < p->most) {
        float *slot = p->t->port.vector(p->port, worker);
        if (slot) {
            p->slot[p->n_slots] = slot;
            return p->n_slots++;
        }
    }
    for (int i = 1; *first < 0 && i <= p->job->n_workers; i++) first = &p->spare[i];
    int slot = *first;
    if (slot >= 0) *first = p->next[slot];
    return slot;
}

/* The slot that `worker` is to write a snapshot into; NULL: there is none. */
static float *peers_slot(struct pl_peers *p, int worker, int snapshot) {
    if (!peers_grow(p, snapshot)) return NULL;
    int slot = peers_spare(p, worker);
    if (slot < 0) return NULL;
    p->slot_of[snapshot] = slot;
    return p->slot[slot];
}

static const float *peers_vector(void *ctx, int snapshot) {
    const struct pl_peers *p = ctx;
    return p->slot[p->slot_of[snapshot]];
}

int pl_peers_new(const struct pl_job *job, const struct pl_transport *t, struct pl_port *port,
                 struct pl_replicas *replicas, const float *w0, struct pl_peers **out) {
    struct pl_peers *p = calloc(1, sizeof *p);
    size_t n = (size_t)job->n_workers;
    if (!p) return PL_ENOMEM;
    *p = (struct pl_peers){.job = job, .t = t, .port = port, .replicas = replicas};
    p->most = peers_most(job);
    p->slot = calloc((size_t)p->most, sizeof(*p->slot));
    p->next = calloc((size_t)p->most, sizeof *p->next);
    p->spare = malloc((n + 1) * sizeof *p->spare);
    for (size_t i = 0; p->spare && i <= n; i++) p->spare[i] = -1;
    bool ok = p->slot && p->next && p->spare;
    float *first = ok ? peers_slot(p, -1, PL_FIRST_SNAPSHOT) : NULL;
    if (!first) {
        pl_peers_free(p);
        return PL_ENOMEM;
    }
    memcpy(first, w0, job->model->dim * sizeof *w0);
    pl_replicas_on_free(replicas, peers_freed, p);
    *out = p;
    return PL_OK;
}

void pl_peers_free(struct pl_peers *p) {
    if (!p) return;
    pl_replicas_on_free(p->replicas, NULL, NULL);
    free(p->slot_of);
    free(p->slot);
    free(p->next);
    free(p->spare);
    free(p->wanted);
    free(p->needs);
    free(p);
}

int pl_peers_start(struct pl_peers *p, int worker, struct pl_order *o) {
    struct pl_replica_task task = pl_replica_task(p->replicas, worker);
    struct pl_input input[PL_TERMS];
    for (int i = 0; i < task.row->n; i++) {
        int snapshot = task.row->term[i].vector;
        input[i] = (struct pl_input){.v = peers_vector(p, snapshot),
                                     .c = task.row->term[i].c,
                                     .writer = pl_replicas_writer(p->replicas, snapshot)};
    }
    o->input = input;
    o->n_inputs = task.row->n;
    o->stays = true;
    o->n_ranges = 1;
    o->range[0] = (struct pl_range){0, p->job->model->dim};
    o->base = task.base_pending ? peers_slot(p, worker, task.base) : NULL;
    o->out = peers_slot(p, worker, task.answer);
    if (!o->out || (task.base_pending && !o->base)) return PL_ENOMEM;
    p->t->port.tell(p->port, worker, o);
    return PL_OK;
}

/* --- the mean ---------------------------------------------------------------------------- */

static void peers_need(void *ctx, int snapshot) {
    struct pl_peers *p = ctx;
    int writer = pl_replicas_writer(p->replicas, snapshot);
    if (p->needs[snapshot] || writer < 0 || p->n_wanted == p->room_wanted) return;
    p->needs[snapshot] = true;
    p->wanted[p->n_wanted++] = (struct pl_input){.v = peers_vector(p, snapshot), .writer = writer};
}

/* Vectors that stay with workers are fetched first. */
static int peers_fetch(struct pl_peers *p) {
    size_t room = (size_t)pl_replicas_n_vectors(p->replicas);
    if (room > p->room_wanted) {
        struct pl_input *wanted = realloc(p->wanted, room * sizeof *wanted);
        if (!wanted) return PL_ENOMEM;
        p->wanted = wanted;
        p->room_wanted = room;
    }
    memset(p->needs, 0, (size_t)p->n_snapshots * sizeof *p->needs);
    p->n_wanted = 0;
    pl_replica_mean_needs(p->replicas, peers_need, p);
    return p->t->port.fetch(p->port, p->wanted, (int)p->n_wanted);
}

int pl_peers_mean(struct pl_peers *p, float *mean, double *consensus) {
    int rc = peers_fetch(p);
    return rc ? rc
              : pl_replica_mean(p->replicas, peers_vector, p, p->job->model->dim, mean, consensus);
}
