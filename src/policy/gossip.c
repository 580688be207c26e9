/* Gossip: no common model. Every worker has its own, steps on it, and mixes it with a peer's model
 * now and then. No worker waits for another.
 *
 *   pull      x_i <- x_i - lr g - (x_i - x_j)/2: the difference is taken before the step and
 *             subtracted after it; x_j stays (Jin, Yuan, Iandola, Keutzer, arXiv 1611.04581)
 *   push      x_j <- (x_j + x_i)/2 after the step of i; x_i stays (same)
 *   push-sum  GoSGD: i halves its weight and sends it with its model; j combines both by weight
 *             (Blot, Picard, Cord, Thome, arXiv 1611.09726)
 *   pair      both move by `a` of the way to each other, then the step; a = 1/2 is the average
 *             (elastic gossip: Pramod, arXiv 1812.02407)
 *   ad-psgd   the same average, on a bipartite graph: W1, W3, … start exchanges with W2, W4, …,
 *             and the gradient was computed before the average (Lian, Zhang, Zhang, Liu, ICML 2018)
 *
 * A worker exchanges after every `every`-th task, or after each with probability 1/every
 * (random=yes), with a peer drawn uniformly from the workers that are alive.
 *
 * Differences: exchanges take effect at once, on the models' coefficients (core/replicas.h), so
 * there are no locks and no communication threads. A bipartite graph is not needed to prevent
 * deadlocks; ad-psgd uses it because the paper does.
 *
 * The weight of a worker that leaves is lost; a worker that joins copies the model of a random
 * peer. */
#include "paceline_policy.h"

#define GOSSIP_LEAST 1e-12 /* a smaller weight is not halved */

enum gossip_mode { PULL, PUSH, PUSH_SUM, PAIR, AD_PSGD };

struct gossip {
    int mode;
    int64_t every;
    bool random;
    double a;
};

static const struct pl_opt gossip_opts[] = {
    PL_OPT_CHOICE(struct gossip, mode, "pair", "pull|push|push-sum|pair|ad-psgd",
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
    if (c->mode != PAIR && c->a != 0.5) return "a is for mode pair; the other modes average";
    return NULL;
}

static struct pl_knobs gossip_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

/* The peer that `worker` exchanges with after this arrival, or -1. */
static int gossip_peer(const struct gossip *s, const struct pl_view *v, int worker) {
    bool due = s->random ? pl_rng_below(v->rng, (uint32_t)s->every) == 0
                         : v->worker[worker].clock % (uint64_t)s->every == 0;
    bool bipartite = s->mode == AD_PSGD;
    if (bipartite && worker % 2 != 0) return -1; /* it never starts an exchange */
    int peer = due ? pl_draw_peer(v, worker, bipartite ? PL_OTHER_HALF : PL_ANY_PEER) : -1;
    return peer >= 0 && pl_fits(v, worker, peer) ? peer : -1;
}

static void gossip_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    const struct gossip *s = state;
    int worker = a->worker, peer = gossip_peer(s, v, worker);
    bool pair = s->mode == PAIR || s->mode == AD_PSGD;
    if (peer >= 0 && s->mode == PULL) pl_blend(p, worker, peer, 0.5, 0.5);
    if (peer >= 0 && pair) pl_pair(p, worker, peer, s->a);
    pl_take(p, 1);
    pl_commit(p, 1);
    if (peer >= 0 && s->mode == PUSH) pl_blend(p, peer, worker, 0.5, 0.5);
    if (peer >= 0 && s->mode == PUSH_SUM && pl_weight(v, worker) > GOSSIP_LEAST) {
        pl_push(p, worker, peer, 0.5);
        pl_absorb(p, peer);
    }
    pl_start(p, worker, PL_FETCH);
}

static void gossip_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)state;
    int peer = v->n_alive > 1 ? pl_draw_peer(v, worker, PL_ANY_PEER) : -1;
    if (peer >= 0 && pl_fits(v, worker, peer)) pl_blend(p, worker, peer, 0, 1);
    pl_start(p, worker, PL_FETCH);
}

const struct pl_policy pl_policy_gossip = {
    .id = {"gossip",
           "no server: every worker has its own model and mixes it with those of its peers",
           "Jin et al., arXiv 1611.04581; Lian et al., ICML 2018", gossip_opts,
           sizeof(struct gossip), 0},
    .peers = true,
    .state_size = sizeof(struct gossip),
    .check = gossip_check,
    .knobs = gossip_knobs,
    .arrive = gossip_arrive,
    .join = gossip_join,
};
