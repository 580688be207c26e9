/* The network of a simulated run: every message has a latency and passes the worker's network link.
 * All workers share the server's link, which has a first-come-first-served queue per direction. */
#ifndef PL_SIM_NET_H
#define PL_SIM_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"

struct pl_net_conf {
    double latency;   /* seconds, one way */
    double bandwidth; /* bytes per second of a worker's link; 0: no limit */
    double server;    /* the same of the server's link, each way; 0: no limit */
    double bytes;     /* per vector; 0: four per parameter */
};
extern const struct pl_opt pl_net_opts[];

enum pl_way { PL_DOWN, PL_UP };

struct pl_net {
    struct pl_net_conf conf;
    double bytes;
    uint64_t free_ns[2]; /* when the server's link is free again, each way */
};

/* `dim`: number of parameters, for the size of a vector. */
void pl_net_init(struct pl_net *n, const struct pl_net_conf *conf, size_t dim);

/* Whether messages take any time. */
bool pl_net_matters(const struct pl_net *n);

/* When a share of a vector that is sent at `now_ns` arrives; 1 is all of it. Calls must be in order
 * of time, per direction. */
uint64_t pl_net_send_part(struct pl_net *n, enum pl_way way, uint64_t now_ns, double share);

/* When `n` vectors that a worker requests from its peers at `now_ns` arrive: they pass its own link
 * and not the server's. */
uint64_t pl_net_ask(const struct pl_net *n, int n_vectors, uint64_t now_ns);

/* When a message without a vector, sent at `now_ns`, arrives. */
uint64_t pl_net_tell(const struct pl_net *n, uint64_t now_ns);

#endif
