/* Who is there, of workers that are processes.
 *
 * Between the server and every worker there is a socket over which nothing is sent but the greeting
 * of a guest, a worker that the server did not make. When either end dies, however it dies, the
 * kernel closes its end and the other one sees it: the server by a thread that watches all sockets,
 * a worker whenever it looks.
 *
 * Threads: seat() and gone() of the conf are called by the watching thread; all else by the owner
 * of the line. Between expect() and made() no guest comes in, so that a process forked in between
 * knows every descriptor that it must close. */
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
    /* The lowest number that is free, taken from now on, and its owner's; -1: there is none. */
    int (*seat)(void *ctx, unsigned *owner);
    void (*gone)(void *ctx, int worker);
    void *ctx;
};

int pl_liveness_open(const struct pl_liveness_conf *conf, struct pl_liveness **out,
                     struct pl_why *why);
void pl_liveness_close(struct pl_liveness *l); /* NULL is fine */

int pl_liveness_expect(struct pl_liveness *l, int worker, struct pl_why *why);
void pl_liveness_made(struct pl_liveness *l, int worker);

/* In the forked process: closes what is the server's or another worker's, and returns the socket of
 * `worker`. The line is of no other use there. */
int pl_liveness_keep(struct pl_liveness *l, int worker);

/* --- a worker's end: a socket ------------------------------------------------------------ */

bool pl_liveness_lost(int sock); /* the server is gone */

struct pl_greeting {
    int sock, segment; /* both are the caller's */
    int worker;
    unsigned owner;
    struct pl_shape shape;
};
int pl_liveness_dial(const char *path, struct pl_greeting *out, struct pl_why *why);

#endif
