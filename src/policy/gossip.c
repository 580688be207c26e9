/* Gossip: no common model. Every worker has its own, makes its steps on it, and mixes it with that
 * of a peer now and then. Nobody waits for a peer but in sgp, and there only for one that is there.
 *
 *   pull      x_i <- x_i - lr g - (x_i - x_j)/2: the difference is taken before the step and
 *             subtracted after it; x_j stays (Jin, Yuan, Iandola, Keutzer, arXiv 1611.04581)
 *   push      x_j <- (x_j + x_i)/2 after the step of i; x_i stays (same)
 *   push-sum  GoSGD: i halves its weight and sends it with its model, j weighs both together
 *             (Blot, Picard, Cord, Thome, arXiv 1611.09726)
 *   pair      both move by `a` of the way to each other, then the step; a = 1/2 is the average
 *             (elastic gossip: Pramod, arXiv 1812.02407)
 *   ad-psgd   the same average, on a bipartite graph: W1, W3, … begin exchanges, W2, W4, … are
 *             asked, and the gradient was computed before the average (Lian, Zhang, Zhang, Liu,
 *             ICML 2018)
 *   sgp       stochastic gradient push on the one-peer exponential graph: in round k, worker i
 *             sends half of its weight to the peer 2^(k mod L) places on, L = floor(log2(n-1)) + 1,
 *             and goes on when its own in-peer has sent (Assran, Loizou, Ballas, Rabbat, ICML
 * 2019). Here it sends when that peer is in round k as well, so timing changes no number
 *
 * pull, push, push-sum, pair and ad-psgd exchange at every `every`-th task of a worker, or with
 * that probability (random=yes), with a peer drawn uniformly from those who are there.
 *
 * What differs: exchanges take effect at once, on the models' coefficients (core/replicas.h), so
 * there are no locks and no communication threads, and a graph without odd cycles is not needed
 * against deadlocks; it is kept because it is the paper's. A step of sgp is divided by the weight,
 * as z = x/w wants it; with everybody there all weights are 1.
 *
 * Who leaves takes its weight along. The ring of sgp is that of the workers who are there: whoever
 * waited for one that left goes on, and what it did not get it makes up by its weight, which is
 * smaller for a while. Who joins takes over the model of a random peer, and in sgp the round of the
 * one furthest on: nobody waits for its past. */
#include "core/policy.h"

#define GOSSIP_TRIES 64    /* draws before the gone ones are stepped over */
#define GOSSIP_LEAST 1e-12 /* a weight below it is not halved: it would come to nothing */

enum gossip_mode { PULL, PUSH, PUSH_SUM, PAIR, AD_PSGD, SGP };

struct gossip {
    int mode;
    int64_t every;
    bool random;
    double a;
};

/* Of a worker, in sgp; behind the state, begun when the worker joins. */
struct gossip_own {
    uint64_t round; /* that it is in: 0, 1, … */
    uint64_t sent;  /* rounds whose share it has sent */
    bool arrived;   /* it has answered, and waits for the next round */
    bool queued;
    int next;
};

static const struct pl_opt gossip_opts[] = {
    PL_OPT_CHOICE(struct gossip, mode, "pair", "pull|push|push-sum|pair|ad-psgd|sgp",
                  "what is exchanged, and with which peer"),
    PL_OPT_INT(struct gossip, every, "1", 1, 1e9, "tasks of a worker between exchanges"),
    PL_OPT_BOOL(struct gossip, random, "no",
                "exchange after a task with probability 1/every instead"),
    PL_OPT_REAL(struct gossip, a, "0.5", 0, 1,
                "mode pair: how far both models move towards each other (0.5: to the average)"),
    PL_OPT_END,
};

static const char *gossip_check(const void *conf, int n_workers) {
    const struct gossip *c = conf;
    (void)n_workers;
    if (c->mode == SGP && (c->every != 1 || c->random))
        return "mode sgp exchanges at every task; leave every at 1 and random at no";
    if (c->mode != PAIR && c->a != 0.5) return "a is for mode pair; the others have the middle";
    return NULL;
}

static struct pl_knobs gossip_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

static struct gossip_own *gossip_own(void *state, int worker) {
    return (struct gossip_own *)(void *)((struct gossip *)state + 1) + worker;
}

static size_t gossip_room(const void *conf, int n_workers) {
    (void)conf;
    return (size_t)n_workers * sizeof(struct gossip_own);
}

static bool gossip_here(const struct pl_view *v, int worker) {
    return v->worker[worker].state != PL_GONE;
}

/* Somebody else who is there: any worker, or where `step` is 2 any of the other parity; -1: there
 * is nobody. */
static int gossip_draw(const struct pl_view *v, int worker, int step) {
    int n = v->n_workers, first = step == 2 ? 1 - worker % 2 : 0;
    int n_other = step == 2 ? (n - first + 1) / 2 : n - 1, at = 0;
    if (n_other == 0) return -1;
    for (int i = 0; i < GOSSIP_TRIES + n_other; i++) {
        if (i < GOSSIP_TRIES)
            at = (int)pl_rng_below(v->rng, (uint32_t)n_other);
        else
            at = (at + 1) % n_other;
        int peer = step == 2 ? first + 2 * at : (worker + 1 + at) % n;
        if (gossip_here(v, peer)) return peer;
    }
    return -1;
}

/* Whether this arrival of `worker` ends in an exchange, and with whom; -1: it does not. */
static int gossip_peer(const struct gossip *s, const struct pl_view *v, int worker) {
    bool due = s->random ? pl_rng_below(v->rng, (uint32_t)s->every) == 0
                         : v->worker[worker].clock % (uint64_t)s->every == 0;
    if (s->mode == AD_PSGD && worker % 2 != 0) return -1; /* it is asked, and never asks */
    int peer = due ? gossip_draw(v, worker, s->mode == AD_PSGD ? 2 : 1) : -1;
    return peer >= 0 && pl_fits(v, worker, peer) ? peer : -1;
}

static void gossip_exchange(const struct gossip *s, const struct pl_view *v, int worker,
                            struct pl_plan *p) {
    int peer = gossip_peer(s, v, worker);
    bool first = s->mode == PULL || s->mode == PAIR || s->mode == AD_PSGD;
    if (peer >= 0 && s->mode == PULL) pl_blend(p, worker, peer, 0.5, 0.5);
    if (peer >= 0 && first && s->mode != PULL) pl_pair(p, worker, peer, s->a);
    pl_take(p, 1);
    pl_commit(p, 1);
    if (peer >= 0 && s->mode == PUSH) pl_blend(p, peer, worker, 0.5, 0.5);
    if (peer >= 0 && s->mode == PUSH_SUM && pl_weight(v, worker) > GOSSIP_LEAST) {
        pl_push(p, worker, peer, 0.5);
        pl_absorb(p, peer);
    }
    pl_start(p, worker, PL_FETCH);
}

/* --- sgp ---------------------------------------------------------------------------------
 * A worker that has answered sends its share when its out-peer has come to the same round, so that
 * nothing of a later round is mixed into an earlier one, and goes on when it has sent and its
 * in-peer has. Neither can wait for ever: whoever is in the earliest round waits for nobody but
 * workers of the same round, which compute. */

/* Places from a worker to its peer of a round, on a ring of n; 0: there is nobody. */
static int sgp_places(int n, uint64_t round) {
    int n_peers = 0;
    while (n > 1 && (n - 1) >> n_peers) n_peers++;
    return n_peers ? 1 << (round % (uint64_t)n_peers) : 0;
}

/* The peer of a round: who is sent to, or, back, who is sent from; itself where there is nobody.
 * The ring is that of those who are there. */
static int sgp_peer(const struct pl_view *v, int worker, uint64_t round, bool back) {
    int n = v->n_workers, places = sgp_places(v->n_alive, round), by = back ? n - 1 : 1;
    if (v->n_alive == n) return (worker + (back ? n - places : places)) % n;
    for (int i = 0; places > 0 && i < 2 * n; i++) {
        worker = (worker + by) % n;
        if (gossip_here(v, worker)) places--;
    }
    return worker;
}

/* Workers that something may have changed for, one after the other. */
struct sgp_queue {
    int first, last;
};

static void sgp_look_at(void *state, struct sgp_queue *q, int worker) {
    struct gossip_own *own = gossip_own(state, worker);
    if (!own->arrived || own->queued) return;
    own->queued = true;
    own->next = -1;
    if (q->first < 0)
        q->first = worker;
    else
        gossip_own(state, q->last)->next = worker;
    q->last = worker;
}

static void sgp_send(void *state, const struct pl_view *v, struct sgp_queue *q, int worker,
                     struct pl_plan *p) {
    struct gossip_own *own = gossip_own(state, worker);
    int to = sgp_peer(v, worker, own->round, false);
    if (own->sent > own->round || gossip_own(state, to)->round < own->round) return;
    if (to != worker && pl_fits(v, worker, to)) pl_push(p, worker, to, 0.5);
    own->sent = own->round + 1;
    sgp_look_at(state, q, to);
}

static void sgp_go_on(void *state, const struct pl_view *v, struct sgp_queue *q, int worker,
                      struct pl_plan *p) {
    struct gossip_own *own = gossip_own(state, worker);
    int from = sgp_peer(v, worker, own->round, true);
    if (own->sent <= own->round || gossip_own(state, from)->sent <= own->round) return;
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
        struct gossip_own *own = gossip_own(state, worker);
        q->first = own->next;
        own->queued = false;
        if (!own->arrived) continue; /* it has gone on since */
        sgp_send(state, v, q, worker, p);
        sgp_go_on(state, v, q, worker, p);
    }
}

/* The ring has moved. */
static void sgp_anew(void *state, const struct pl_view *v, struct pl_plan *p) {
    struct sgp_queue q = {-1, -1};
    for (int i = v->idle; i >= 0; i = pl_next(v, i)) sgp_look_at(state, &q, i);
    sgp_settle(state, v, &q, p);
}

static void sgp_arrive(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    struct sgp_queue q = {-1, -1};
    pl_take(p, 1 / pl_weight(v, worker));
    pl_commit(p, 1);
    gossip_own(state, worker)->arrived = true;
    sgp_look_at(state, &q, worker);
    sgp_settle(state, v, &q, p);
}

static void sgp_join(void *state, const struct pl_view *v, int worker) {
    uint64_t round = 0;
    for (int i = 0; i < v->n_workers; i++)
        if (gossip_here(v, i) && gossip_own(state, i)->round > round)
            round = gossip_own(state, i)->round;
    *gossip_own(state, worker) = (struct gossip_own){.round = round, .sent = round};
}

/* --- both -------------------------------------------------------------------------------- */

static void gossip_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    const struct gossip *s = state;
    if (s->mode == SGP)
        sgp_arrive(state, v, a->worker, p);
    else
        gossip_exchange(s, v, a->worker, p);
}

static void gossip_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    const struct gossip *s = state;
    int peer = v->n_alive > 1 ? gossip_draw(v, worker, 1) : -1;
    if (peer >= 0 && pl_fits(v, worker, peer)) pl_blend(p, worker, peer, 0, 1);
    if (s->mode == SGP) sgp_join(state, v, worker);
    pl_start(p, worker, PL_FETCH);
    if (s->mode == SGP) sgp_anew(state, v, p);
}

static void gossip_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    if (((const struct gossip *)state)->mode == SGP) sgp_anew(state, v, p);
}

const struct pl_policy pl_policy_gossip = {
    .id = {.name = "gossip",
           .brief = "no server: every worker has a model of its own and mixes it with its peers'",
           .paper = "Jin et al., arXiv 1611.04581; Lian et al., ICML 2018; Assran et al., ICML "
                    "2019",
           .opts = gossip_opts,
           .conf_size = sizeof(struct gossip)},
    .peers = true,
    .state_size = sizeof(struct gossip),
    .room = gossip_room,
    .check = gossip_check,
    .knobs = gossip_knobs,
    .arrive = gossip_arrive,
    .join = gossip_join,
    .leave = gossip_leave,
};
