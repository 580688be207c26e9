/* A worker's end of a port over shared memory: its mailbox, and how it learns that the server is
 * gone. transport.h documents the functions.
 *
 * Threads: the worker's. */
#ifndef PL_TRANSPORT_LINK_H
#define PL_TRANSPORT_LINK_H

#include "sys/segment.h"
#include "transport/shm_layout.h"
#include "transport/transport.h"

#define PL_LINK_READY 8

/* The inside, which link.c and client_link.c share. */
struct pl_link {
    struct pl_shape shape;
    char *at; /* the segment */
    struct pl_head *head;
    struct pl_mailbox *mailbox;
    struct pl_cancel cancel; /* the flag is in the mailbox */
    int worker, sock;
    unsigned owner;
    void (*left)(void *ctx, int worker);
    void *ctx;
    struct pl_segment segment; /* that a worker which connected has mapped */

    struct pl_input input[PL_TERMS]; /* of the order that was pulled */
    uint64_t task;                   /* that was pulled and not answered; 0: none */
    uint64_t answered;               /* the last that was */
    uint64_t pulled_ns;
    _Atomic uint64_t looked_ns;
    float *ready[PL_LINK_READY]; /* vectors that it wrote last, whose memory it has */
    unsigned n_ready;
    atomic_bool lost;        /* the server is gone */
    atomic_bool interrupted; /* see pl_client_link_interrupt() */
    bool client, peers;      /* it came as a client; it can read what others write */
    _Atomic uint64_t n_said; /* words of a client */
    uint64_t question;       /* an evaluator's last */
    uint64_t settled;        /* its last when it copied an answer */
    uint64_t ask_ns;         /* when it asks again; 0: all its questions are settled */
};

struct pl_link_conf {
    const struct pl_shape *shape; /* is copied */
    void *at;                     /* the segment */
    int worker;
    unsigned owner;
    bool client, peers; /* it came as a client; if so, it can read what other workers write */
    int sock;           /* of a process: the link closes it; or -1 */
    void (*left)(void *ctx, int worker); /* of a thread: called last of all; or NULL */
    void *ctx;
    struct pl_segment segment; /* that a client has mapped, which detach() frees; or {.fd = -1} */
};

/* The server learns that the worker has joined. 0 or PL_ENOMEM. */
int pl_link_open(const struct pl_link_conf *conf, struct pl_link **out);

/* Whether the server has shut down or is gone; checks the socket from time to time. */
bool pl_link_disconnected(struct pl_link *l, uint64_t now);

/* Sends PL_SAID_… over the socket, without waiting. False, with errno, if it was not sent. */
bool pl_link_send(struct pl_link *l, int what, const void *data, size_t n);

/* PL_ETIMEDOUT and PL_EINTR as well; see client_link.h. */
int pl_link_pull_until(struct pl_link *l, uint64_t end, struct pl_order *out);
int pl_link_pull(struct pl_link *l, struct pl_order *out);
const struct pl_cancel *pl_link_cancelled(const struct pl_link *l);
int pl_link_sleep(struct pl_link *l, uint64_t ns);
void pl_link_push(struct pl_link *l, const struct pl_result *r);
void pl_link_detach(struct pl_link *l);

#endif
