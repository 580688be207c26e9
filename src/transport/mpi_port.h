/* The inside of a port over MPI, which mpi_port.c and mpi_shards.c share. */
#ifndef PL_TRANSPORT_MPI_PORT_H
#define PL_TRANSPORT_MPI_PORT_H

#include "sys/segment.h"
#include "transport/mpi_peers.h"
#include "transport/mpi_wire.h"
#include "transport/server_group.h"
#include "transport/shm_layout.h"

/* What the server knows of a worker. It is told an order only when it has none, so that the vector
 * is sent to somebody who waits for it; a newer one waits here until then, and replaces what waits.
 */
struct seat {
    bool expected, here;   /* by expect(); it said hello */
    bool told_over;        /* nothing more is sent */
    bool busy;             /* it has `sent` and has not answered */
    bool waiting;          /* `order` is not sent yet */
    bool cancelling;       /* it was told to leave off `sent` */
    struct pl_order order; /* the latest; task 0: none, or it was cancelled */
    struct pl_order sent;
    uint64_t sent_ns;
    bool has; /* `version` was sent to it */
    uint64_t version;
    enum pl_phase phase;
    uint64_t based;          /* task whose base it has made */
    struct pl_result result; /* whose vector is being received */
};

struct pl_port {
    int n_workers;
    size_t dim;
    struct pl_shape shape;
    struct pl_segment memory;
    size_t n_versions, n_slots;
    struct seat *seat;
    struct pl_wire *in;       /* [n_workers] */
    struct pl_outbox *outbox; /* [n_workers] */
    /* [3][n_workers]: persistent, for small messages; vectors that come; vectors that go */
    MPI_Request *request;
    int *which; /* what a test found */
    int n_moving;

    struct pl_news *queue; /* ring of room */
    int first, n_queued, room;
    atomic_bool woken;
    atomic_uint wake_worker;

    struct pl_exchange exchange; /* of peers */
    struct pl_wire_sum *sum;     /* [n_workers] of the latest order; NULL: there are no peers */
    bool *told_sum, closed;      /* [n_workers] it had such an order; all were told CLOSE */

    int n_servers;
    struct pl_range range[PL_MAX_SERVERS];
    struct pl_log_lane *lane;  /* [n_servers] rank 0: entries on their way; NULL: no followers */
    struct pl_log_entry entry; /* a follower: what comes next, */
    MPI_Request next;          /* persistent */
};

int pl_port_rank(const struct pl_port *p, int worker);

/* Entries of the log that are the port's own. */
enum { ENTRY_SENT = 1, ENTRY_COMES, ENTRY_FREED, ENTRY_RESET };

void pl_port_log(struct pl_port *p, uint32_t kind, int worker, uint32_t flags);
void pl_port_move_out(struct pl_port *p, int worker, const float *w); /* a slice to a worker */
void pl_port_move_in(struct pl_port *p, int worker, float *out);      /* and from it */
int pl_group_open(struct pl_port *p);                                 /* 0 or PL_ENOMEM */
bool pl_group_close(struct pl_port *p); /* false: something is still under way */

#endif
