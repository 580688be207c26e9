/* What goes over MPI, and how to wait for it.
 *
 * Small messages have one size and one tag for each direction, and are received by a persistent
 * request that is started anew once the last was read, so they are read in the order they were
 * sent. A vector is a message of its own, sent from where it lives and received where it is wanted:
 *
 *   server                               worker
 *   ORDER  task, version, lr  [+ w]  ──▶          sent only to a worker that has answered; no
 * vector where it has that version already CANCEL task                      ──▶ ◀──  RESULT  task,
 * loss, samples  [+ out]   no vector where the result will not do ◀──  FREE    task: it is not
 * being computed any more ◀──  PHASE ◀──  HELLO   first of all      BYE  last of all OVER ──▶ last
 * of all, after BYE or before it
 *
 * Both ends keep reading until the other's last message, so nothing of one run is left for the
 * next. Ranks are programs of one build on machines of one kind: numbers go as they lie in memory.
 */
#ifndef PL_TRANSPORT_MPI_WIRE_H
#define PL_TRANSPORT_MPI_WIRE_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/range.h"

enum { /* tags */
       WIRE_DOWN = 1,
       WIRE_UP,
       WIRE_VECTOR,
       WIRE_AGREE,
       WIRE_VERDICT,
       WIRE_LOG, /* these between servers: see shards.h */
       WIRE_SLICE,
       WIRE_TABLE,
       WIRE_BYTES,
       WIRE_SUM, /* these of peers: see mpi_peers.h */
       WIRE_ASK,
       WIRE_PEER
};

enum wire_kind {
    WIRE_HELLO, /* version: length of a vector; flags: WIRE_PROTOCOL */
    WIRE_BYE,
    WIRE_RESULT,
    WIRE_FREE,
    WIRE_PHASE, /* flags: enum pl_phase */
    WIRE_ORDER,
    WIRE_CANCEL,
    WIRE_OVER,
    WIRE_CLOSE, /* peers: nobody will ask any more */
    WIRE_BASE   /* peers: the base of `task` is made */
};

#define WIRE_PROTOCOL 4
#define WIRE_WITH_SUM 2    /* flag of an order: what it is computed on follows */
#define WIRE_WITH_VECTOR 1 /* flag of an order and of a result: a vector follows */

struct pl_wire {
    uint32_t kind, flags;
    uint64_t task, version, acked, applied; /* the last two: of an order */
    double number;                          /* lr of an order, loss of a result */
    uint32_t samples, defect;               /* of a result */
    uint64_t took_ns;  /* of a result, by the worker's clock: clocks need not agree */
    uint64_t part;     /* of an order, as are: */
    uint32_t n_ranges; /* 0: the vector is whole */
    struct pl_range range[PL_RANGES];
};

/* The type of a message that has these ranges of a vector, counted from its first element. It can
 * be freed as soon as the message is on its way. */
MPI_Datatype pl_wire_ranges(const struct pl_range *range, int n);

/* Small messages on their way. There are never more to one rank: an order, its cancel and the end,
 * or a hello, a phase, an answer and the end. */
#define WIRE_ROOM 8
struct pl_outbox {
    struct pl_wire wire[WIRE_ROOM];
    MPI_Request request[WIRE_ROOM];
    int next;
};

void pl_outbox_new(struct pl_outbox *o);
void pl_outbox_send(struct pl_outbox *o, int rank, int tag, const struct pl_wire *w);
bool pl_outbox_sent(struct pl_outbox *o); /* all of it */

/* One step of a wait that has lasted for `waited_ns` and has `left_ns` to go. First it only yields;
 * then it sleeps on the bell, for a 32nd of what it has waited, 50 µs at least and 2 ms at most:
 * little is added to any wait, and who waits for long uses no processor. While a vector is moving
 * (`moving`), which some MPI libraries do only in calls, it yields for longer. */
void pl_wire_pause(atomic_uint *bell, unsigned seen, uint64_t waited_ns, uint64_t left_ns,
                   bool moving);

/* --- the world --------------------------------------------------------------------------- */

MPI_Comm pl_mpi_comm(void); /* of all ranks, ours alone */
int pl_mpi_rank(void);
int pl_mpi_size(void);
bool pl_mpi_broken(void); /* MPI reported an error: nothing more will come or go */
/* A rank does not answer any more: nothing more will come or go, and the job is aborted when this
 * process ends. */
void pl_mpi_break(int rank);

#endif
