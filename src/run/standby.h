/* A standby: it has a copy of the run of another server, and takes over when that has died.
 *
 * It takes over if the server does not answer it, more than half of the server's workers have lost
 * the server and ask for the standby, and none of them has seen a newer version than the copy. A
 * standby that is cut off from a living server gets no votes. docs/decisions/standby.md says why
 * no update is lost.
 *
 * Threads: the caller's. */
#ifndef PL_RUN_STANDBY_H
#define PL_RUN_STANDBY_H

#include <stdint.h>

#include "run/gateway.h"

struct pl_saved;

struct pl_standby_conf {
    const char *first;              /* URL of the server that it follows */
    struct pl_gateway_conf gateway; /* its own address and keys */
    bool (*stop)(void *ctx);        /* asked often: whether to give up; may be NULL */
    void *ctx;
};

/* What it takes over. */
struct pl_takeover {
    struct pl_saved *saved; /* the caller frees it */
    uint64_t epoch;
    int port;   /* where its workers asked for it, */
    int socket; /* and still do: what listens there, which the caller closes; -1: none */
};

/* Follows until it is to take over: PL_OK. PL_ECANCELLED: the run has ended, and a standby is not
 * needed any more. PL_EINTR: it was told to stop. Otherwise it could not follow, and `why`. */
int pl_standby_follow(const struct pl_standby_conf *conf, struct pl_takeover *out,
                      struct pl_why *why);

#endif
