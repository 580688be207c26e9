/* Where clients on other machines join: an HTTP server in front of a port over shared memory.
 *
 * For each of them the gateway has a seat, which is a client of the port in this process. It pulls
 * the orders of that client and sends them, with the vectors from where they lie; it writes results
 * into the client's own memory while they arrive, and pushes them. To the port, the engine and the
 * policies such a client is like any other. docs/decisions/network.md says why.
 *
 * A request that waits has no thread, only its connection, which is suspended. One thread watches
 * them all: if one is closed, the request ends; if there is something for it, it goes on. A client
 * without a connection keeps its seat for a while, which depends on how long it has been silent
 * before.
 *
 * With keys, every client must have a certificate of the authority in that folder. Without, anybody
 * can join who can reach the address.
 *
 * Built on libmicrohttpd and GnuTLS; without them, opening fails with PL_EMISSING.
 *
 * Threads: one opens and closes; the rest is the gateway's. */
#ifndef PL_RUN_GATEWAY_H
#define PL_RUN_GATEWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

struct pl_gateway;

struct pl_gateway_conf {
    const char *address; /* HOST:PORT, see sys/address.h */
    int socket;          /* that listens there already; 0: none */
    /* The socket of the port, whose told() must call pl_gateway_told(); NULL: a standby's, which
     * collects votes. */
    const char *path;
    const char *keys;  /* folder with ca.pem, server.pem, server-key.pem; NULL: no encryption */
    int n_clients;     /* at most, about */
    const char *run;   /* its id, which it keeps when it is resumed; at most 63 bytes; NULL: "" */
    uint64_t epoch;    /* of this server; each server of the same run has more than the last */
    bool returns;      /* it can be resumed if it dies */
    bool local;        /* it may have workers that do not come through the gateway */
    const char *setup; /* what GET /v1/setup tells a worker of this library; NULL: nothing */
    uint64_t slow_ns;  /* see pl_gateway_is_slow(); 0: PL_GATEWAY_SLOW_NS */
    /* without progress, after which a handshake or a slow sender is cut off; 0: 10 seconds */
    unsigned timeout_s;
    /* Called by a thread of the gateway when there is news for pl_gateway_moved(). May be NULL. */
    void (*moved)(void *ctx);
    void *moved_ctx;
    const struct pl_log *log;
};

/* Whether a client is disconnected because it has sent only these bytes of a body within `ns`: it
 * holds a seat, and could do so for ever. A body may come at any speed for `slow_ns`; after that,
 * the average since its first bytes counts. */
#define PL_GATEWAY_SLOW_NS UINT64_C(60000000000)
#define PL_GATEWAY_SLOW_RATE 4096 /* bytes per second */
static inline bool pl_gateway_is_slow(uint64_t bytes, uint64_t ns, uint64_t slow_ns) {
    return ns > slow_ns && bytes < ns / (UINT64_C(1000000000) / PL_GATEWAY_SLOW_RATE);
}

/* PL_EUSAGE, PL_EIO, PL_EMISSING or PL_ENOMEM. */
int pl_gateway_open(const struct pl_gateway_conf *conf, struct pl_gateway **out,
                    struct pl_why *why);
int pl_gateway_port(const struct pl_gateway *g);
/* What the `socket` of the next gateway at this address can be, or -1. The caller closes it. */
int pl_gateway_socket(const struct pl_gateway *g);
/* The newest version of this run that workers had before they came to this server; 0: none. What
 * one says alone can be any number: it is believed if that is at most an update per worker more
 * than another says, or if the run has no other worker. */
uint64_t pl_gateway_seen(const struct pl_gateway *g);
/* The standby is silent: orders may wait for it, and nobody is to blame that they are not done. */
bool pl_gateway_is_held(struct pl_gateway *g);

/* A worker has lost all its connections, and keeps its seat; or one that had is back; or one has
 * come with a name. Returns false if there is no more news. */
struct pl_gateway_move {
    int worker;
    bool away;
    char name[PL_WORKER_NAME]; /* of its certificate, the first time; "": none */
};
bool pl_gateway_moved(struct pl_gateway *g, struct pl_gateway_move *out);
/* The port has something for its clients: an order, a cancel, the newest version. */
void pl_gateway_told(struct pl_gateway *g);
/* A result that this worker had sent before was handled since: if it is away, that is told again.
 */
void pl_gateway_answered(struct pl_gateway *g, int worker);

/* For a standby of this server (run/standby.h). Whether it waits for a copy of this version; and a
 * copy for it, which the gateway frees. */
struct pl_copy;
bool pl_gateway_wants_copy(struct pl_gateway *g, uint64_t version);
void pl_gateway_give_copy(struct pl_gateway *g, struct pl_copy *copy);

/* At a standby, which the server has answered: the secret by which votes of its workers are known.
 * Earlier votes do not count any more. */
void pl_gateway_follows(struct pl_gateway *g, const char *secret);

/* At a standby: how many workers of the run have lost their server and ask for this one, and the
 * newest version that one of them says it has seen. It is elected if more than half of `workers`
 * ask and have seen no more than `has`; then no vote can be taken back any more. A server without
 * its standby needs more than half of them, too, to show anything newer. */
struct pl_gateway_tally {
    int n;
    uint64_t seen;
    bool most, elected;
};
struct pl_gateway_tally pl_gateway_tally(struct pl_gateway *g, const char *run, int workers,
                                         uint64_t has);

/* Tells all clients that the run has ended, and takes their seats; NULL is fine. */
void pl_gateway_close(struct pl_gateway *g);

#endif
