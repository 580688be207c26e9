/* The inside of a port over MPI, which mpi_port.c (orders), mpi_news.c (messages from workers) and
 * mpi_group.c (several servers) share. They call each other in a circle: a message may make a
 * worker free, and then the order that waits for it is sent at once; what is sent is logged for the
 * other servers, which send and receive the vectors of the same orders.
 *
 * Threads: the one that owns the port, which makes all calls to MPI; any thread may wake it. */
#ifndef PL_TRANSPORT_MPI_PORT_H
#define PL_TRANSPORT_MPI_PORT_H

#include "transport/mpi_chunks.h"
#include "transport/mpi_exchange.h"
#include "transport/mpi_memory.h"
#include "transport/port.h"
#include "transport/server_group.h"

/* What the server knows about a worker. It is sent an order only when it has none, so that the
 * vector is sent to a worker that waits for it; a newer order waits here until then, and replaces
 * one that waits. */
enum pl_mpi_presence {
    PL_MPI_EXPECTED, /* its HELLO has not come */
    PL_MPI_OFFERED, /* it was offered the memory of the port, and is sent orders after its answer */
    PL_MPI_JOINED,
    PL_MPI_LEAVING, /* it was told to leave: nothing more is sent */
    PL_MPI_GONE     /* its BYE has come */
};
enum pl_mpi_work {
    PL_MPI_IDLE,
    PL_MPI_BUSY,      /* it has `sent` and has not answered */
    PL_MPI_CANCELLING /* the same, and it was told to cancel that */
};

struct pl_mpi_worker {
    enum pl_mpi_presence presence;
    enum pl_mpi_work work;
    bool shares;           /* it has the memory of the port */
    bool waiting;          /* `order` was not sent yet */
    bool upcoming;         /* its next order is on the vector that is being written */
    struct pl_order order; /* the latest; task 0: none, or it was cancelled */
    struct pl_input input; /* its only one; v NULL: it has terms instead */
    struct pl_order sent;
    uint64_t sent_ns;
    uint64_t stamp; /* of the vector that it has; 0: none that is known */
    enum pl_phase phase;
    struct pl_result result; /* whose vector is being received */
    bool speaks;             /* a client that the server listens to */
    bool tail_comes;         /* of the message that was read last */
    bool held;               /* news has its tail: nothing is read until that was taken */
};

/* What is being sent to a worker and received from it, with the requests of the port. */
struct pl_mpi_mail {
    struct pl_wire in;
    union pl_wire_tail up, down;
    struct pl_wire_terms terms; /* of the latest order */
    struct pl_outbox outbox;
    struct pl_chunks_out chunks;
    MPI_Request final; /* of the model that the run ends with */
    bool exchanges;    /* it may ask other ranks for vectors, or be asked */
};

struct pl_port {
    int n_workers;
    size_t dim;
    struct pl_port_memory memory;
    struct pl_mpi_worker *worker; /* [n_workers] */
    struct pl_mpi_mail *mail;     /* [n_workers] */
    /* [3][n_workers]: persistent, for small messages; vectors being received; vectors or terms
     * being sent */
    MPI_Request *request;
    int *which; /* what a test found */
    int n_moving;
    struct pl_cut_vector cut; /* of vectors that are sent in chunks */

    struct pl_port_queue queue;
    int shown;                /* the worker whose tail the last news has; -1: none */
    struct pl_port_conf conf; /* about NULL: workers are not clients */
    atomic_bool woken;
    atomic_uint wake_server; /* the server sleeps here */

    const float *final_w; /* the model that the run ends with; NULL: clients are not sent any */
    uint64_t final_note[PL_NOTE_WORDS];

    struct pl_exchange exchange;
    bool closed; /* all that exchange were sent CLOSE */

    bool (*over)(void *ctx); /* of the conf */
    void *over_ctx;
    int n_servers;
    struct pl_range range[PL_MAX_SERVERS];
    struct pl_log_lane *lane;  /* [n_servers] rank 0: entries being sent; NULL: no followers */
    struct pl_log_entry entry; /* a follower: the next one, */
    MPI_Request next;          /* persistent */
};

int pl_mpi_port_rank(const struct pl_port *p, int worker);

/* Between its HELLO and its BYE. */
static inline bool pl_mpi_is_here(const struct pl_mpi_worker *w) {
    return w->presence != PL_MPI_EXPECTED && w->presence != PL_MPI_GONE;
}

/* mpi_port.c */
void pl_mpi_port_send(struct pl_port *p, int worker, const struct pl_wire *w);
/* Sends the order that waits, if there is one and the worker can be sent one. */
void pl_mpi_port_send_order(struct pl_port *p, int worker);
/* Vectors of an order: the whole, or the ranges it has. */
void pl_mpi_port_send_vector(struct pl_port *p, int worker, const struct pl_order *o,
                             const float *v);
void pl_mpi_port_receive_vector(struct pl_port *p, int worker, const struct pl_order *o);
/* Tails: p->mail[worker].down, and .up. */
void pl_mpi_port_send_tail(struct pl_port *p, int worker, const struct pl_wire *w);
void pl_mpi_port_receive_tail(struct pl_port *p, int worker, const struct pl_wire *w);

/* mpi_news.c */
bool pl_mpi_port_poll(struct pl_port *p); /* reads all messages; false: there were none */
void pl_mpi_port_news(struct pl_port *p, uint64_t wait_ns, struct pl_news *out);
void pl_mpi_port_shut_worker(struct pl_port *p, int worker);
void pl_mpi_port_release(struct pl_port *p, int worker); /* its tail was taken */

/* mpi_group.c. Entries of the log that are the port's own: */
enum { ENTRY_SENT = 1, ENTRY_COMES, ENTRY_FREED, ENTRY_RESET };
void pl_group_log_own(struct pl_port *p, uint32_t kind, int worker, uint32_t flags);

/* A wait for other ranks. */
struct pl_group_wait {
    uint64_t began, asked, end;
};
struct pl_group_wait pl_group_wait_new(uint64_t grace_ns);
bool pl_group_wait_is_over(struct pl_port *p, struct pl_group_wait *w, uint64_t now);

extern const struct pl_group_ops pl_mpi_group;
int pl_group_open(struct pl_port *p);   /* 0 or PL_ENOMEM */
bool pl_group_moves(struct pl_port *p); /* whether a follower sends or receives vectors */
bool pl_group_close(struct pl_port *p); /* false: something is still being sent or received */

#endif
