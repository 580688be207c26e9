/* What is sent over MPI, and how to wait for it.
 *
 * Small messages have one size and one tag per direction. A persistent request receives them and is
 * started again when the last one was read, so they are read in the order they were sent. A vector
 * is a message of its own, sent from where it lies and received where it is needed:
 *
 *   server                                     worker
 *   ORDER  task, note, ranges  [+ vector]  ──▶           sent only to a worker that has answered
 *   CANCEL task                            ──▶
 *                                          ◀──  BASE     task: its base is complete
 *                                          ◀──  RESULT   task, loss, samples  [+ vector]
 *                                          ◀──  FREE     task: it is not computed any more
 *                                          ◀──  PHASE
 *                                          ◀──  HELLO    first of all;  BYE  last of all
 *   SHUTDOWN                               ──▶           last of all, after BYE or before it
 *
 * Between the hello and the first order, a worker on the server's host is offered the memory of the
 * port, and answers whether it has it. Then vectors are not sent: both ends read and write them
 * where they are, and messages have their numbers (mpi_memory.h).
 *
 *   MEMORY where it is                     ──▶
 *                                          ◀──  MAPPED   whether it is there
 *
 * A client, which is another program, says in its hello who it is, and is answered first. Some of
 * its messages have a tail, which is a message of its own: bytes as they lie in memory.
 *
 *                                          ◀──  HELLO    [+ struct pl_newcomer]
 *   WELCOME dim [+ struct pl_welcome]      ──▶           or REFUSED [+ a sentence] and SHUTDOWN
 *   SHUTDOWN note [+ vector]               ──▶           with the model that the run ends with
 *                                          ◀──  RESULT   [+ the tensors it lacks] [+ vector]
 *                                          ◀──  WORD     [+ its text]
 *
 * An order has no vector if the worker has it already, or if terms follow instead: a list of the
 * vectors that the worker asks their writers for (mpi_exchange.h). A result has none if it cannot
 * be used, or stays with the worker.
 *
 * Both ends keep reading until the other's last message, so nothing from one run is left for the
 * next. Ranks are programs of one build on machines of one kind: numbers are sent as they lie in
 * memory.
 *
 * Threads: the thread of a rank that serves or works, which makes all calls to MPI. */
#ifndef PL_TRANSPORT_MPI_WIRE_H
#define PL_TRANSPORT_MPI_WIRE_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transport/client_link.h"

enum { /* tags */
       WIRE_DOWN = 1,
       WIRE_UP,
       WIRE_VECTOR,
       WIRE_AGREE,
       WIRE_VERDICT,
       WIRE_LOG, /* between servers: see server_group.h */
       WIRE_SLICE,
       WIRE_TABLE,
       WIRE_BYTES,
       WIRE_TERMS, /* of vectors that stay with their writers: see mpi_exchange.h */
       WIRE_ASK,
       WIRE_STAYED,
       WIRE_CHUNK, /* of a vector of the server's: see mpi_chunks.h */
       WIRE_TAIL,  /* of a small message */
       WIRE_FINAL  /* the model that the run ends with */
};

enum wire_kind {
    WIRE_HELLO, /* flags: WIRE_PROTOCOL */
    WIRE_BYE,
    WIRE_RESULT,
    WIRE_FREE,
    WIRE_PHASE, /* flags: enum pl_phase */
    WIRE_ORDER,
    WIRE_CANCEL,
    WIRE_SHUTDOWN, /* task: the number of chunks that were sent; flags, note, in: the last model */
    WIRE_CLOSE, /* after SHUTDOWN, if vectors stayed with their writers: they are not asked for any
                   more */
    WIRE_BASE,
    WIRE_MEMORY, /* see mpi_memory.h */
    WIRE_MAPPED, /* flags: 1 if the worker has the memory */
    WIRE_WELCOME,
    WIRE_REFUSED, /* flags: 1 if all ranks agree at the end (pl_mpi_agree) */
    WIRE_WORD
};

#define WIRE_PROTOCOL 11

/* flags of orders and results, and of the shutdown */
#define WIRE_WITH_VECTOR 1 /* a vector follows */
#define WIRE_WITH_TERMS 2  /* a struct pl_wire_terms follows */
#define WIRE_STAYS 4       /* base and result stay with the worker */
#define WIRE_WITH_CHUNKS                                                                           \
    16                  /* the vector comes in chunks, and perhaps came before. Together with      \
                           WIRE_WITH_VECTOR: the chunks are void, and the vector follows */
#define WIRE_SHARED 8   /* input and result are in memory that both ends have */
#define WIRE_SETS_LR 32 /* the result sets the learning rate */
#define WIRE_WAITS 64   /* the worker measured pull_wait_ns and wait_ns */

struct pl_wire {
    uint32_t kind, flags;
    uint64_t task;
    uint64_t dim;     /* of a hello or welcome: length of a vector */
    uint64_t n_tail;  /* bytes that follow */
    uint64_t took_ns; /* of a result, as are the next lines; by the worker's clock, because
                         clocks need not agree */
    uint64_t pull_wait_ns, wait_ns; /* for a core: see struct pl_result */
    double loss, lr;
    uint32_t samples, defect;
    uint64_t note[PL_NOTE_WORDS]; /* of an order, as is the rest */
    uint32_t in, out;             /* numbers of vectors in shared memory; `out` also of one that */
    uint32_t base;                /* stays with the worker, as does the base; 0: none */
    uint32_t n_strips;
    struct pl_wire_strip {
        uint64_t in, out; /* offsets in shared memory; 0: they are sent */
        uint64_t n;
    } strip[PL_STRIPS];
};

/* The longest tail, of any kind. */
union pl_wire_tail {
    struct pl_newcomer newcomer;
    struct pl_welcome welcome;
    char text[PL_WHY_MAX];
    char word[PL_WORD_MAX];
    uint64_t absent[PL_ABSENT_WORDS];
};

void pl_wire_send(const float *v, size_t n, int rank, MPI_Request *out);
void pl_wire_receive(float *v, size_t n, int rank, MPI_Request *out);
/* The inputs of strips as one message, which is received as one vector; their outputs, which were
 * sent as one vector. */
void pl_wire_send_strips(const struct pl_strip *strip, int n, int rank, MPI_Request *out);
void pl_wire_receive_strips(const struct pl_strip *strip, int n, int rank, MPI_Request *out);

/* Waits for sends to this rank that are done as far as can be known, so that a rank that freezes
 * does not hold this one: after some seconds it is given up (pl_mpi_break). Returns false then. */
bool pl_wire_finish(MPI_Request *request, int n, int rank);

/* Small messages on their way. There are never more to one rank: an order, its cancel and the
 * shutdown, or a hello, a base, two phases, a result and a bye; words are taken as they come. */
#define WIRE_ROOM 8
struct pl_outbox {
    struct pl_wire wire[WIRE_ROOM];
    MPI_Request request[WIRE_ROOM]; /* persistent */
    int rank, next;
};

void pl_outbox_new(struct pl_outbox *o, int rank, int tag);
void pl_outbox_free(struct pl_outbox *o); /* all of it was sent */
void pl_outbox_send(struct pl_outbox *o, const struct pl_wire *w);
bool pl_outbox_sent(struct pl_outbox *o); /* all of it */

/* --- the world --------------------------------------------------------------------------- */

MPI_Comm pl_mpi_comm(void); /* of all ranks, used by this library only */
int pl_mpi_rank(void);
int pl_mpi_size(void);
bool pl_mpi_near(int rank); /* it is on this host */
bool pl_mpi_broken(void);   /* MPI reported an error: nothing can be sent or received any more */
/* A rank does not answer: nothing is sent or received any more, and the job is aborted when this
 * process ends. */
void pl_mpi_break(int rank);

/* One step of a wait that has lasted for `waited_ns` and has `left_ns` to go. At first it only
 * yields; then it sleeps on `word`, for a 32nd of what it has waited, 50 µs at least and 2 ms at
 * most: this adds little to any wait, and a long wait uses no processor. While a vector is moving
 * (`moving`), which some MPI libraries do only in calls, it yields for longer. */
void pl_wire_pause(atomic_uint *word, unsigned seen, uint64_t waited_ns, uint64_t left_ns,
                   bool moving);

#endif
