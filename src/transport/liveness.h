/* Which workers that are processes are still alive.
 *
 * Between the server and every worker there is a socket. Nothing is sent over it except a greeting
 * to a guest, which is a worker that the server did not start. When either end dies, for whatever
 * reason, the kernel closes its end and the other one sees it: the server in a thread that watches
 * all sockets, a worker whenever it checks.
 *
 * Threads: the watching thread calls admit() and gone() of the conf; the owner of the port calls
 * everything else. Between expect() and made() no guest is admitted, so that a process forked in
 * between knows every descriptor that it must close. */
#ifndef PL_TRANSPORT_LIVENESS_H
#define PL_TRANSPORT_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/shm_layout.h"

struct pl_why;
struct pl_liveness;

struct pl_liveness_conf {
    int n_workers;
    const char *listen;    /* NULL: no guests */
    int segment;           /* descriptor that guests are sent */
    struct pl_shape shape; /* of the segment */
    /* Takes the lowest free number, and tells the owner's number; -1: there is none. */
    int (*admit)(void *ctx, unsigned *owner);
    void (*gone)(void *ctx, int worker);
    void *ctx;
};

int pl_liveness_open(const struct pl_liveness_conf *conf, struct pl_liveness **out,
                     struct pl_why *why);
void pl_liveness_close(struct pl_liveness *l); /* NULL is fine */

int pl_liveness_expect(struct pl_liveness *l, int worker, struct pl_why *why);
void pl_liveness_made(struct pl_liveness *l, int worker);

/* In the forked process: closes what belongs to the server or to other workers, and returns the
 * socket of `worker`. Nothing else may be called there. */
int pl_liveness_keep(struct pl_liveness *l, int worker);

/* --- a worker's end: a socket ------------------------------------------------------------ */

bool pl_liveness_lost(int sock); /* the server is gone */

struct pl_greeting {
    int sock, segment; /* the caller closes both */
    int worker;
    unsigned owner;
    struct pl_shape shape;
};
int pl_liveness_dial(const char *path, struct pl_greeting *out, struct pl_why *why);

#endif
