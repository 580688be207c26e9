/* Transports move orders to workers and results to the server. They know tasks and vectors, and
 * nothing about training: what else a host wants a worker to know travels as an opaque note.
 *
 * The server has one port; every worker has a link to it. All vectors come from the port, each for
 * one writer: the server, or a worker. If memory is shared, nothing is copied on the way.
 * Otherwise the server's vectors are sent into the worker's own memory, and results from there to
 * the server; vectors that stay with their writers are sent to the workers that need them.
 *
 *   server                                                worker
 *   tell(worker, order)    ── task, inputs, output ──▶    pull() -> order
 *   cancel(worker)         ── forget it ─────────────▶    cancelled(), between layers
 *   news() -> BASE         ◀── the base is complete ──    push(base)
 *   news() -> RESULT       ◀── task, loss, samples ───    push(result)
 *   news() -> JOINED, GONE ◀── it connected, it left
 *   news() -> WORD         ◀── a line of text ────────    pl_client_link_say()
 *
 * A worker has at most one order at a time. An order that is told before the last one was answered
 * replaces it. A result that crosses a new order on the way is delivered like any other; the host
 * sees by its task that it is late. holds() tells which vectors a worker may still be reading or
 * writing.
 *
 * Every transport has the operations of struct pl_link_ops, and all but pl_http, which is a
 * worker's end alone, those of struct pl_port_ops. What only some can do is in extensions, one
 * struct each: start workers, share memory, send a vector while it is written, leave vectors with
 * their writers, let clients join, serve with several servers.
 *
 * A client is a worker that the server did not start, or an evaluator, which only reads versions
 * and talks. client_link.h has its end. Clients join through a socket where the server listens:
 * each says what it is, and is told about the run or refused with a sentence. A client can read
 * versions, and can write nothing but its own mailbox and its own vectors.
 *
 * The server does not trust what lies in shared memory: a worker that writes nonsense has its
 * results rejected, and one that dies half-way through anything is gone, and that is all.
 *
 * Threads: the port belongs to one thread, except for wake(); a link belongs to one thread. */
#ifndef PL_TRANSPORT_TRANSPORT_H
#define PL_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/combination.h"
#include "base/range.h"
#include "base/status.h"
#include "base/strip.h"

struct pl_port; /* the server's end */
struct pl_link; /* a worker's end */

/* One term of a task's input: a vector, times c. */
struct pl_input {
    const float *v; /* [dim]; came from vector() */
    uint64_t stamp; /* same stamp, same content: a transport that copies need not send it twice; 0:
                       always send */
    double c;
    int writer; /* worker that wrote it; -1: the server */
};

#define PL_ABSENT_WORDS 512 /* of 64 tensors each */
#define PL_NOTE_WORDS 6     /* what the host adds to an order */

struct pl_order {
    uint64_t task;                /* 1, 2, 3, … of this worker, never the same twice */
    int n_inputs;                 /* 1 … PL_TERMS; 0: the order is on strips */
    const struct pl_input *input; /* [n_inputs] read by tell(); after pull() they have v and c, and
                                     are valid until the next pull() */
    float *base;  /* [dim] where the worker writes the sum of its inputs before it computes; NULL:
                     there is one input, times 1, and the worker reads it where it lies */
    float *out;   /* [dim] for the result; came from vector(worker), as did base */
    bool stays;   /* base and result stay with the worker that wrote them, and others read them
                     there; the order is neither replaced nor cancelled. Otherwise the result is
                     brought to the server with its news. If there are several servers, orders do
                     not stay and have one input of the server's */
    int n_strips; /* 0 … PL_STRIPS. If there are any, the task reads and writes these parts of
                     vectors that workers write, and none of the members above but the task */
    struct pl_strip strip[PL_STRIPS];
    uint64_t note[PL_NOTE_WORDS]; /* arrives unchanged */
    /* After pull(), for a client of a port that has conf.half; otherwise NULL. */
    const uint16_t *half_in; /* [dim] the only input as bfloat16; input[0] is there as well */
    uint16_t *half_out;      /* [dim] the result is written here as bfloat16, and not to out, which
                                is the same memory; the server finds floats */
};

/* Why a result cannot be used. */
enum pl_defect { PL_NO_DEFECT, PL_NOT_FINITE, PL_WRONG_SIZE, PL_NOT_COMPUTED };

/* What a worker pushes: first its base, if the order has one; then the result. */
struct pl_result {
    uint64_t task;
    bool is_base; /* the base is complete, and others may read it; everything below is unset */
    enum pl_defect defect;
    uint32_t samples;
    double loss;
    bool sets_lr; /* the worker sets the learning rate, from this result on, to lr: any number */
    double lr;
    const uint64_t *absent; /* [n_absent] bits of the tensors that a client's result does not have;
                               after news(), valid until the next one */
    uint32_t n_absent;      /* 0 … PL_ABSENT_WORDS; 0: it has all */
    bool tells_waits;       /* the worker measured how long it was ready to run but had no core: */
    uint64_t pull_wait_ns;  /* before it took the order, */
    uint64_t wait_ns;       /* and from then on until it answered */
    uint64_t pulled_ns, pushed_ns; /* when the worker took the order, and when it answered: push()
                                      fills them in; pulled <= pushed <= now, by the server's
                                      pl_now_ns() */
};

enum pl_news_kind {
    PL_NEWS_NONE,
    PL_NEWS_JOINED,
    PL_NEWS_BASE,
    PL_NEWS_RESULT,
    PL_NEWS_WORD, /* a worker or evaluator said something */
    PL_NEWS_DONE, /* what was shown to the evaluator is not read any more: it has copied it, is
                     gone, or was too slow */
    PL_NEWS_ASK,  /* an evaluator wants the newest version: answer with show() */
    PL_NEWS_GONE
};

/* A worker's JOINED comes before its results, and its GONE after the last that was complete. A
 * worker that was expected and died before it connected has only a GONE. From GONE on, its number
 * is free. A BASE comes before the RESULT of the same task. It need not wake the server, which
 * finds it when it looks next; that of an order that was replaced may be missing.
 *
 * Evaluators are numbered from n_workers on. They have WORD, ASK and DONE, and neither JOINED nor
 * GONE. A worker's words come after its JOINED and before its GONE. */
struct pl_news {
    enum pl_news_kind kind;
    int worker;              /* or evaluator; -1 with PL_NEWS_NONE */
    struct pl_result result; /* of BASE only the task, of RESULT everything. Values are checked for
                                being plausible, the task is not: an implausible result is
                                PL_NOT_COMPUTED, with no samples */
    const char *word;        /* of WORD: one line of printable UTF-8 or ASCII, neither empty nor
                                longer than PL_WORD_MAX - 1; valid until the next news() */
};

/* What a worker was doing according to its last message. */
enum pl_phase { PL_PHASE_AWAY, PL_PHASE_WAITING, PL_PHASE_SLEEPING, PL_PHASE_COMPUTING };

/* --- clients ------------------------------------------------------------------------------ */

#define PL_WORD_MAX 512        /* bytes of a word, with the final 0 */
#define PL_ABOUT_MAX 4096      /* of what clients are told about the run */
#define PL_FINGERPRINT_MAX 128 /* of a client's model */
#define PL_TOKEN_MAX 64        /* that a client shows */
#define PL_JOB_MAX 128         /* name of the job that it belongs to */
#define PL_SHOW_NS UINT64_C(10000000000)
#define PL_JOIN_NS UINT64_C(10000000000)

enum pl_client_kind { PL_CLIENT_WORKER, PL_CLIENT_EVALUATOR };

/* What a client says about itself. */
struct pl_newcomer {
    enum pl_client_kind kind;
    size_t dim;                           /* length of its model; 0: it takes any */
    uint64_t can;                         /* what it can compute; transports do not read it */
    char fingerprint[PL_FINGERPRINT_MAX]; /* of its model; "": it has none to compare */
    char token[PL_TOKEN_MAX];             /* "": none */
    char job[PL_JOB_MAX];                 /* that it belongs to; "": it joins any run */
    uint64_t seat; /* number of the worker that it would like to be, from 1; 0: any */
};

/* The judgement on a client. What others say, and the learning rates in their results, is dropped.
 */
enum pl_admission { PL_REFUSED, PL_ADMITTED, PL_MAY_SPEAK };

/* What clients exchange as bfloat16, which is half as long. The server has floats throughout. Only
 * orders for the whole vector that do not stay are changed. */
enum { PL_HALF_RESULT = 1, PL_HALF_MODEL = 2 };

struct pl_port_conf {
    int n_workers;
    size_t dim; /* of what this port moves: the whole vector, or this server's range of it */
    const struct pl_range *range; /* [n_servers]; see server_group.h. NULL: there is one server */
    int n_servers;
    /* Vectors that the server writes, and vectors that workers write, at most; memory is used when
     * they are first asked for. */
    int n_versions, n_slots;
    /* The vectors that one worker writes, at most; 0: n_slots. A port that listens has room for as
     * many of each worker, in memory of its own. */
    int n_own;
    bool peers; /* orders have inputs that other workers wrote */
    /* Path of a socket where clients connect, each worker as the lowest number that is free. It
     * must not exist, and is removed by close(). It is NULL if no clients can join. */
    const char *listen;
    /* The server starts this many workers of its own, the first ones: a client gets the number of
     * one of them only after offer(). The others are open to clients from the beginning. */
    int starts;
    int n_evaluators;  /* at most, at a time; each can hold one version */
    uint64_t show_ns;  /* for how long an evaluator may hold it; 0: PL_SHOW_NS */
    uint64_t join_ns;  /* for how long a client may have a place without joining; 0: PL_JOIN_NS */
    unsigned half;     /* PL_HALF_… */
    const char *about; /* describes the run to clients, up to PL_ABOUT_MAX - 1 bytes; NULL: "" */
    /* Whether this client may join; if not, `why` is the sentence that it gets. A dim that is not
     * the port's was refused before. Called by a thread of the port's: must be quick, and use what
     * does not change. If it is NULL, every client may join and speak. */
    enum pl_admission (*admit)(void *ctx, const struct pl_newcomer *client, struct pl_why *why);
    void *admit_ctx;
    /* Called by the server's thread after a client was told, shown or spared something. May be
     * NULL. */
    void (*told)(void *ctx);
    void *told_ctx;
    /* Asked ten times per second while the port waits for another rank: whether the run is to end.
     * From then on it does not wait for long. If it is NULL, the answer is no. */
    bool (*over)(void *ctx);
    void *over_ctx;
};

/* The server's end: what every port has. */
struct pl_port_ops {
    int (*open)(const struct pl_port_conf *conf, struct pl_port **out, struct pl_why *why);
    /* Cancels everything, tells all workers to leave, and waits for them for at most `wait_ns`.
     * Links of threads must have been closed before the port is freed. */
    void (*shutdown)(struct pl_port *p, uint64_t wait_ns);
    void (*close)(struct pl_port *p); /* NULL is fine */

    /* Memory for one more vector, zeroed. Writer -1: the server, and workers can only read it.
     * Returns NULL if there is no more. */
    float *(*vector)(struct pl_port *p, int writer);

    /* For a worker that is expected or has joined; for others these do nothing. */
    void (*tell)(struct pl_port *p, int worker, const struct pl_order *o);
    void (*cancel)(struct pl_port *p, int worker);
    /* The task of an earlier order than its latest whose vectors the worker may still touch; 0 if
     * there is none. After a cancel there is no latest. It holds an order that it has pulled (or,
     * if vectors are sent, that is on its way) until it pulls again, pushes its result or is gone;
     * never one that was replaced before that. Once it does not hold an earlier order, that is free
     * for good. A broken worker may claim to hold a task that never was. */
    uint64_t (*holds)(const struct pl_port *p, int worker);
    enum pl_phase (*phase)(struct pl_port *p, int worker);

    /* The next news, in the order in which things happened; waits for at most `wait_ns`. */
    void (*news)(struct pl_port *p, uint64_t wait_ns, struct pl_news *out);
    /* From any thread, or a signal handler: the next news(), or the one that waits, returns
     * PL_NEWS_NONE. */
    void (*wake)(struct pl_port *p);
};

/* --- extensions: what some transports can do besides -------------------------------------------
 */

/* The server starts workers: before, in the new thread or process, after (in the parent). A new
 * process calls attach() and nothing else on the port; it is killed when the thread that forked it
 * ends, and of what it inherited only the standard streams and its own socket stay open. Call
 * made() also if no process could be started: PL_NEWS_GONE follows. */
struct pl_start_ops {
    bool processes; /* its workers are processes: they can be killed, and share no other memory */
    int (*expect)(struct pl_port *p, int worker, struct pl_why *why);
    int (*attach)(struct pl_port *p, int worker, struct pl_link **out);
    void (*made)(struct pl_port *p, int worker);
};

/* Vectors are the same memory at both ends, and are not sent. */
struct pl_shared_ops {
    /* Whether the worker has sent the result of its latest order, which news() need not have
     * returned yet; it does not touch the input any more. */
    bool (*answered)(struct pl_port *p, int worker);
};

/* Vectors are sent by the thread that owns the port, also while it has other work. */
struct pl_stream_ops {
    /* The worker's next order will be a plain one on the vector that the server writes next, and is
     * told before anything else happens to it. While the vector is written, written() tells that
     * its first n elements are complete, so that they can be sent. If v is NULL, what was written
     * is void, and is written again. */
    void (*forward)(struct pl_port *p, int worker);
    void (*written)(struct pl_port *p, const float *v, size_t n);
    /* Sends and receives what it can without waiting; news stays for news(). Called between two
     * pieces of other work. Returns whether a vector is on its way. */
    bool (*progress)(struct pl_port *p);
};

/* Vectors that are not in shared memory can stay with the workers that wrote them. */
struct pl_stay_ops {
    /* Brings such vectors to the server's memory, at what[i].v. 0, PL_ENOMEM, or PL_ERUN if a
     * writer does not answer. */
    int (*fetch)(struct pl_port *p, const struct pl_input *what, int n);
};

/* Clients can join. */
struct pl_client_ops {
    /* A client may have this worker's number when it is free, until expect() takes it again. */
    void (*offer)(struct pl_port *p, int worker);
    /* It is a client, which can write its results also after it has pushed them. A host that judges
     * them must use a copy, or judge and use each element in one read. */
    bool (*is_client)(const struct pl_port *p, int worker);
    /* Answers PL_NEWS_ASK: the evaluator may read this version, and nothing writes to it before
     * PL_NEWS_DONE, which comes after conf.show_ns at the latest. For others than an evaluator that
     * asked, this does nothing, and returns false. */
    bool (*show)(struct pl_port *p, int evaluator, const float *version,
                 const uint64_t note[PL_NOTE_WORDS]);
    /* Closes the socket of a worker that is a client, after a sentence that tells it why, and
     * whether it may join `again`; a PL_NEWS_GONE follows, and its number is free. What it still
     * writes is not read. Returns false if it is no client, or if others read what it writes, so
     * that it must not be replaced before it has left. */
    bool (*hang_up)(struct pl_port *p, int worker, bool again, const char *sentence);
    /* Before shutdown(): clients that find that the run has ended find this version, to which the
     * server does not write any more. Returns false if it is no version of this port. May be NULL:
     * they find none. */
    bool (*final)(struct pl_port *p, const float *version, const uint64_t note[PL_NOTE_WORDS]);
};

struct pl_group_ops; /* several servers: server_group.h */

/* A worker's end. */
struct pl_link_ops {
    /* The next order; waits until there is one. One that was neither answered, replaced nor
     * cancelled comes again. 0, or PL_ECANCELLED: the server has shut down or is gone. */
    int (*pull)(struct pl_link *l, struct pl_order *out);
    const struct pl_cancel *(*cancelled)(const struct pl_link *l); /* of the order pulled last */
    /* 0, or PL_ECANCELLED as soon as the order is cancelled or the server is gone. */
    int (*sleep)(struct pl_link *l, uint64_t ns);
    /* After the result, the worker touches nothing of the order any more. */
    void (*push)(struct pl_link *l, const struct pl_result *r);
    void (*detach)(struct pl_link *l); /* NULL is fine */
};

/* A transport has an extension if its pointer is not NULL. */
struct pl_transport {
    const char *name, *brief;
    struct pl_port_ops port;
    struct pl_link_ops link;
    const struct pl_start_ops *start;
    const struct pl_shared_ops *shared;
    const struct pl_stream_ops *stream;
    const struct pl_stay_ops *stay;
    const struct pl_client_ops *clients;
    const struct pl_join_ops *join; /* a client's end: client_link.h */
    const struct pl_group_ops *group;
};

/* pl_http has the worker's end alone: its server is one over shared memory with a gateway. The
 * transport of MPI is in a module of its own (mpi.h). */
extern const struct pl_transport pl_inproc, pl_shm, pl_http;

/* Whether the transport can do what this port needs: PL_OK, or PL_EUSAGE. */
int pl_transport_check(const struct pl_transport *t, const struct pl_port_conf *conf,
                       struct pl_why *why);

/* Whether the worker computes on the order's only input as it is: nothing has to be summed. */
static inline bool pl_order_is_plain(const struct pl_order *o) {
    return o->n_inputs == 1 && !o->base;
}

#endif
