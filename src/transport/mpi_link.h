/* The inside of a worker's end of a port over MPI, which mpi_link.c and mpi_client.c share;
 * transport.h documents the functions.
 *
 * Threads: the worker's, which makes all calls to MPI of its rank. */
#ifndef PL_TRANSPORT_MPI_LINK_H
#define PL_TRANSPORT_MPI_LINK_H

#include "transport/mpi_chunks.h"
#include "transport/mpi_exchange.h"
#include "transport/mpi_memory.h"
#include "transport/server_group.h"

struct pl_link {
    struct pl_segment w, out;     /* [dim] the server's vector, and the result for it, if sent */
    struct pl_port_memory memory; /* of the server; segment.at NULL: none */
    struct pl_wire in;
    struct pl_outbox outbox;
    int n_servers;
    struct pl_range range[PL_MAX_SERVERS];
    MPI_Request request;                 /* persistent, for small messages */
    MPI_Request receive[PL_MAX_SERVERS]; /* each server's range of the vector, or the terms */
    MPI_Request send[PL_MAX_SERVERS];    /* each server's range of the result */

    struct pl_chunks_in chunks; /* of the vector, if it comes in chunks */
    uint64_t n_chunks;          /* that the server has sent, from its last message */
    bool after_chunks;          /* these are void, and the vector is received after them */

    struct pl_exchange exchange;
    struct pl_wire_terms terms; /* of the order */
    struct pl_input input[PL_TERMS];
    float *foreign[PL_TERMS]; /* [dim] for vectors that others wrote */
    float **own;              /* [n_own] vectors that stay here, by number; NULL: none */
    uint32_t n_own;
    bool asked, closed; /* the order's inputs were asked for; the server has said CLOSE */

    struct pl_wire order; /* the latest; `fresh`: it was not pulled yet */
    bool fresh, shutdown;
    bool unwanted; /* the latest was cancelled; its vector may still be on its way */
    uint64_t task; /* that was pulled and not answered; 0: none */
    uint64_t pulled_ns;
    atomic_bool flag;
    struct pl_cancel cancel;
    atomic_uint never; /* this thread sleeps here; nothing wakes it early */

    struct pl_wire last;        /* the server's last message */
    float *final_w;             /* [dim] the model that came with it, if that was sent */
    MPI_Request final;          /* of which */
    bool left;                  /* both last messages were sent and received */
    uint64_t grace_ns;          /* within which the server must send its last message */
    union pl_wire_tail *say;    /* of a client: what it sends, */
    union pl_wire_tail *answer; /* and the server's answer to its hello */
    uint32_t answered;          /* WIRE_WELCOME or WIRE_REFUSED; 0: not yet */
    bool agrees;                /* of a refusal: all ranks agree at the end */
    MPI_Request saying;
};

int pl_mpi_pull(struct pl_link *l, struct pl_order *out);
const struct pl_cancel *pl_mpi_cancelled(const struct pl_link *l);
int pl_mpi_sleep(struct pl_link *l, uint64_t ns);
void pl_mpi_push(struct pl_link *l, const struct pl_result *r);
void pl_mpi_detach(struct pl_link *l);

/* For mpi_client.c. A client's link, which has said hello, and whether it was answered. */
int pl_mpi_hello(const struct pl_newcomer *client, struct pl_link **out, struct pl_why *why);
bool pl_mpi_answered(struct pl_link *l);
/* As pl_mpi_pull, with a limit: also PL_ETIMEDOUT. */
int pl_mpi_pull_until(struct pl_link *l, uint64_t wait_ns, struct pl_order *out);
/* Sends a message with a tail. */
void pl_mpi_say(struct pl_link *l, struct pl_wire *w, const void *tail, size_t n);
/* Reads until the server's last message. The memory of the link stays until it is detached. */
void pl_mpi_leave(struct pl_link *l);

extern const struct pl_join_ops pl_mpi_join;

#endif
