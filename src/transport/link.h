/* A worker's end of a port over shared memory: its mailbox, and how it learns that the server is
 * gone. transport.h documents the functions.
 *
 * Threads: the worker's. */
#ifndef PL_TRANSPORT_LINK_H
#define PL_TRANSPORT_LINK_H

#include "sys/segment.h"
#include "transport/shm_layout.h"
#include "transport/transport.h"

struct pl_link_conf {
    const struct pl_shape *shape; /* is copied */
    void *at;                     /* the segment */
    int worker;
    unsigned owner;
    int sock;                            /* of a process: the link closes it; or -1 */
    void (*left)(void *ctx, int worker); /* of a thread: called last of all; or NULL */
    void *ctx;
    struct pl_segment segment; /* that a guest has mapped, which detach() frees; or {.fd = -1} */
};

/* The server learns that the worker has joined. 0 or PL_ENOMEM. */
int pl_link_open(const struct pl_link_conf *conf, struct pl_link **out);

/* PL_ETIMEDOUT and PL_EINTR as well; see guest.h. */
int pl_link_pull_until(struct pl_link *l, uint64_t end, struct pl_order *out);
int pl_link_pull(struct pl_link *l, struct pl_order *out);
const struct pl_cancel *pl_link_cancelled(const struct pl_link *l);
int pl_link_sleep(struct pl_link *l, uint64_t ns);
void pl_link_push(struct pl_link *l, const struct pl_result *r);
void pl_link_detach(struct pl_link *l);

#endif
