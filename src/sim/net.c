#include "sim/net.h"

#include <math.h>

#include "base/seconds.h"

const struct pl_opt pl_net_opts[] = {
    PL_OPT_SECONDS(struct pl_net_conf, latency, "0", 0, 1e6, "seconds per message"),
    PL_OPT_REAL(struct pl_net_conf, bandwidth, "0", 0, 1e18,
                "bytes per second of a worker's link (0: unlimited)"),
    PL_OPT_REAL(struct pl_net_conf, server, "0", 0, 1e18,
                "bytes per second of the server's link, queued in each direction (0: unlimited)"),
    PL_OPT_REAL(struct pl_net_conf, bytes, "0", 0, 1e15,
                "bytes per vector (0: four per parameter)"),
    PL_OPT_END,
};

void pl_net_init(struct pl_net *n, const struct pl_net_conf *conf, size_t dim) {
    *n = (struct pl_net){.conf = *conf, .bytes = conf->bytes > 0 ? conf->bytes : 4.0 * (double)dim};
}

bool pl_net_matters(const struct pl_net *n) {
    return n->conf.latency > 0 || (n->bytes > 0 && (n->conf.bandwidth > 0 || n->conf.server > 0));
}

static uint64_t net_ns(double seconds) {
    return seconds < 1e9 ? pl_ns(seconds) : (uint64_t)1e18;
}

/* Saturates: a queue that never empties must not wrap around into the past. */
static uint64_t net_sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t pl_net_send_part(struct pl_net *n, enum pl_way way, uint64_t now_ns, double share) {
    double bytes = n->bytes * share;
    uint64_t at = now_ns;
    if (n->conf.server > 0) {
        if (n->free_ns[way] > at) at = n->free_ns[way];
        at = net_sum(at, net_ns(bytes / n->conf.server));
        n->free_ns[way] = at;
    }
    double rest = n->conf.latency;
    if (n->conf.bandwidth > 0) rest += bytes / n->conf.bandwidth;
    return net_sum(at, net_ns(rest));
}

uint64_t pl_net_tell(const struct pl_net *n, uint64_t now_ns) {
    return net_sum(now_ns, net_ns(n->conf.latency));
}

uint64_t pl_net_ask(const struct pl_net *n, int n_vectors, uint64_t now_ns) {
    if (n_vectors == 0) return now_ns;
    double rest = 2 * n->conf.latency; /* request and reply; all are requested at once */
    if (n->conf.bandwidth > 0) rest += n_vectors * n->bytes / n->conf.bandwidth;
    return net_sum(now_ns, net_ns(rest));
}
