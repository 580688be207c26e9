/* The network of a simulated run: every message has a latency and passes the worker's link; the
 * server's link is shared, a queue in each direction, first come first served. */
#ifndef PL_SIM_NET_H
#define PL_SIM_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"

struct pl_net_conf {
    double latency;   /* seconds, one way */
    double bandwidth; /* bytes per second of a worker's link; 0: no limit */
    double server;    /* of the server's link, each way; 0: no limit */
    double bytes;     /* of a vector; 0: four per parameter */
};
extern const struct pl_opt pl_net_opts[];

enum pl_way { PL_DOWN, PL_UP };

struct pl_net {
    struct pl_net_conf conf;
    double bytes;
    uint64_t free_ns[2]; /* when the server's link is free again, each way */
};

/* `dim`: parameters of the model, for the size of a vector. */
void pl_net_init(struct pl_net *n, const struct pl_net_conf *conf, size_t dim);

/* Whether messages take any time at all. */
bool pl_net_matters(const struct pl_net *n);

/* When a vector sent at `now_ns` is there. Calls must come in order of time, per way. */
uint64_t pl_net_send(struct pl_net *n, enum pl_way way, uint64_t now_ns);

/* The same for a share of a vector. */
uint64_t pl_net_send_part(struct pl_net *n, enum pl_way way, uint64_t now_ns, double share);

/* When `n` vectors that a worker asks its peers for at `now_ns` are there: they pass its own link,
 * and not the server's. */
uint64_t pl_net_ask(const struct pl_net *n, int n_vectors, uint64_t now_ns);

/* When a message without a vector, sent at `now_ns`, is there. */
uint64_t pl_net_tell(const struct pl_net *n, uint64_t now_ns);

#endif
