/* SGP: stochastic gradient push, rounds of push-sum on the one-peer exponential graph.
 *
 * Assran, Loizou, Ballas, Rabbat, "Stochastic gradient push for distributed deep learning", ICML
 * 2019. Every worker has a model and a weight of its own. In round k worker i steps, then sends
 * half of both to the worker 2^(k mod L) places on, L = floor(log2(n-1)) + 1, and continues when
 * its own in-peer has sent to it.
 *
 * Differences: exchanges take effect at once, on the models' coefficients (core/replicas.h). A
 * worker sends only when its out-peer is in round k as well, so that nothing of a later round is
 * mixed into an earlier one and timing changes no number. A step is divided by the weight, as z =
 * x/w requires; while all workers are alive, all weights are 1.
 *
 * No worker waits for ever: one in the earliest round waits only for workers of the same round, and
 * those compute. The weight of a worker that leaves is lost, and the ring closes without it; a
 * worker that waited for it continues, and its smaller weight accounts for what it did not receive.
 * A worker that joins copies the model of a random peer and begins in the latest round. */
#include "paceline_policy.h"

/* Per worker; the state is an array of them. Filled in when the worker joins. */
struct sgp {
    uint64_t round; /* the round it is in: 0, 1, … */
    uint64_t sent;  /* number of rounds in which it has sent */
    bool arrived;   /* it has finished its step and waits for the next round */
    bool queued;
    int next;
};

static struct pl_knobs sgp_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

static size_t sgp_room(const void *conf, int n_workers) {
    (void)conf;
    return (size_t)n_workers * sizeof(struct sgp);
}

static struct sgp *sgp_of(void *state, int worker) {
    return (struct sgp *)state + worker;
}

/* Places from a worker to its out-peer of a round, on a ring of n workers; 0 if it is alone. */
static int sgp_places(int n, uint64_t round) {
    int n_peers = 0;
    while (n > 1 && (n - 1) >> n_peers) n_peers++;
    return n_peers ? 1 << (round % (uint64_t)n_peers) : 0;
}

/* The out-peer of a round, or, back, the in-peer; the worker itself if it is alone. The ring is
 * that of the workers that are alive. */
static int sgp_peer(const struct pl_view *v, int worker, uint64_t round, bool back) {
    int n = v->n_workers, places = sgp_places(v->n_alive, round), by = back ? n - 1 : 1;
    if (v->n_alive == n) return (worker + (back ? n - places : places)) % n;
    for (int i = 0; places > 0 && i < 2 * n; i++) {
        worker = (worker + by) % n;
        if (pl_alive(v, worker)) places--;
    }
    return worker;
}

/* Workers that may be able to send or to continue. */
struct sgp_queue {
    int first, last;
};

static void sgp_look_at(void *state, struct sgp_queue *q, int worker) {
    struct sgp *own = sgp_of(state, worker);
    if (!own->arrived || own->queued) return;
    own->queued = true;
    own->next = -1;
    if (q->first < 0)
        q->first = worker;
    else
        sgp_of(state, q->last)->next = worker;
    q->last = worker;
}

static void sgp_send(void *state, const struct pl_view *v, struct sgp_queue *q, int worker,
                     struct pl_plan *p) {
    struct sgp *own = sgp_of(state, worker);
    int to = sgp_peer(v, worker, own->round, false);
    if (own->sent > own->round || sgp_of(state, to)->round < own->round) return;
    if (to != worker && pl_fits(v, worker, to)) pl_push(p, worker, to, 0.5);
    own->sent = own->round + 1;
    sgp_look_at(state, q, to);
}

static void sgp_continue(void *state, const struct pl_view *v, struct sgp_queue *q, int worker,
                         struct pl_plan *p) {
    struct sgp *own = sgp_of(state, worker);
    int from = sgp_peer(v, worker, own->round, true);
    if (own->sent <= own->round || sgp_of(state, from)->sent <= own->round) return;
    own->round++;
    own->arrived = false;
    pl_absorb(p, worker);
    pl_start(p, worker, PL_FETCH);
    sgp_look_at(state, q, sgp_peer(v, worker, own->round, true));
}

static void sgp_settle(void *state, const struct pl_view *v, struct sgp_queue *q,
                       struct pl_plan *p) {
    while (q->first >= 0) {
        int worker = q->first;
        struct sgp *own = sgp_of(state, worker);
        q->first = own->next;
        own->queued = false;
        if (!own->arrived) continue; /* it has continued since */
        sgp_send(state, v, q, worker, p);
        sgp_continue(state, v, q, worker, p);
    }
}

/* The ring has changed: every waiting worker is looked at again. */
static void sgp_new_ring(void *state, const struct pl_view *v, struct pl_plan *p) {
    struct sgp_queue q = {-1, -1};
    for (int i = v->idle; i >= 0; i = pl_next(v, i)) sgp_look_at(state, &q, i);
    sgp_settle(state, v, &q, p);
}

static void sgp_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                       struct pl_plan *p) {
    struct sgp_queue q = {-1, -1};
    pl_take(p, 1 / pl_weight(v, a->worker));
    pl_commit(p, 1);
    sgp_of(state, a->worker)->arrived = true;
    sgp_look_at(state, &q, a->worker);
    sgp_settle(state, v, &q, p);
}

static void sgp_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    int peer = v->n_alive > 1 ? pl_draw_peer(v, worker, PL_ANY_PEER) : -1;
    uint64_t round = 0;
    if (peer >= 0 && pl_fits(v, worker, peer)) pl_blend(p, worker, peer, 0, 1);
    for (int i = 0; i < v->n_workers; i++) {
        /* each round takes an update; a later one comes from a damaged checkpoint */
        bool real = pl_alive(v, i) && sgp_of(state, i)->round <= v->version;
        if (real && sgp_of(state, i)->round > round) round = sgp_of(state, i)->round;
    }
    *sgp_of(state, worker) = (struct sgp){.round = round, .sent = round};
    pl_start(p, worker, PL_FETCH);
    sgp_new_ring(state, v, p);
}

static void sgp_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    sgp_new_ring(state, v, p);
}

static const struct pl_opt sgp_opts[] = {PL_OPT_END};

const struct pl_policy pl_policy_sgp = {
    .id = {"sgp", "no server: rounds of push-sum on the one-peer exponential graph",
           "Assran, Loizou, Ballas, Rabbat, ICML 2019", sgp_opts, 0, 0},
    .peers = true,
    .room = sgp_room,
    .knobs = sgp_knobs,
    .arrive = sgp_arrive,
    .join = sgp_join,
    .leave = sgp_leave,
};
