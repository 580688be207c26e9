/* Transports move orders down and results up. They know tasks and vectors, and nothing of training.
 *
 * The server has one port; every worker has a link to it. Versions of the model, which workers only
 * read, and slots, where their results are, lie in memory that came from the port. Where that
 * memory is shared nothing is copied on the way; where it is not, a version is sent from where it
 * lies into the worker's own memory, and a result from there into its slot.
 *
 *   server                                        worker
 *   tell(worker, order)   ── task, version, slot ──▶   pull() -> order
 *   cancel(worker)        ── never mind ───────────▶   cancelled(), between layers
 *   news() -> RESULT      ◀── task, loss, samples ──   push(result)
 *   news() -> HERE, GONE  ◀── it came, it went away
 *
 * A worker has at most one order at a time. An order that is told before the last one was answered
 * replaces it; a result that crosses it on the way is delivered like any other, and whoever reads
 * it sees by its task that it is late. What a worker may still be reading (its version) or writing
 * (its slot) is told by holds().
 *
 * Nobody believes what lies in shared memory: a worker that writes nonsense has its results
 * refused, and one that dies half-way through anything is gone and no more.
 *
 * Threads: the port belongs to one thread, but for wake(); a link belongs to one thread. */
#ifndef PL_TRANSPORT_TRANSPORT_H
#define PL_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/combination.h"
#include "base/range.h"
#include "base/status.h"

struct pl_port; /* the server's end */
struct pl_link; /* a worker's end */

/* One term of what a worker computes on, where peers have models of their own. */
struct pl_summand {
    const float *v; /* [dim] a slot; where slots are not shared, it lies with its writer */
    double c;       /* times this */
    int writer;     /* worker; -1: the server */
};

/* Where n_summands is not 0 there is no version: the worker computes on the sum of the summands,
 * which it makes at `base`, or, where that is NULL, on the only one there is. Such an order is not
 * replaced and not cancelled, and its result is left where it lies. */
struct pl_order {
    uint64_t task;    /* 1, 2, 3, … of this worker, never the same twice */
    uint64_t version; /* of the model: the same number is the same vector, and is not sent twice */
    double lr;        /* in force at that version */
    uint64_t acked;   /* the last task of this worker whose answer counted; 0: none */
    uint64_t applied; /* the last one whose answer is part of the newest version; 0: none */
    const float *w;   /* [dim] that version; came from version() */
    float *out;       /* [dim] the slot for the result; came from slot() */
    /* Of both vectors only these ranges are read, written and sent, at the addresses they have in
     * the whole; the number of the version then says nothing about what is there. n_ranges 0: all
     * of it. Workers need not be told: `part` is theirs, and is passed on as it is. */
    int n_ranges;
    struct pl_range range[PL_RANGES];
    uint64_t part;
    int n_summands;
    const struct pl_summand
        *summand; /* [n_summands] read by tell(); after pull(), until the next pull() */
    float *base;  /* [dim] a slot */
};

/* Why a result will not do; PL_NO_DEFECT where it will. */
enum pl_defect { PL_NO_DEFECT, PL_NOT_FINITE, PL_WRONG_SIZE, PL_NOT_COMPUTED };

struct pl_result {
    uint64_t task;
    enum pl_defect defect;
    uint32_t samples;
    double loss;
    uint64_t pulled_ns, pushed_ns; /* when the worker took the order, and when it answered: push()
                                      fills them in; pulled <= pushed <= now, by the server's
                                      pl_now_ns() */
};

enum pl_news_kind { PL_NEWS_NONE, PL_NEWS_JOINED, PL_NEWS_RESULT, PL_NEWS_GONE };

/* A worker's HERE comes before its results, and its GONE after the last that was whole. A worker
 * that was expected and died before it came has a GONE alone. From GONE on, its number is free. */
struct pl_news {
    enum pl_news_kind kind;
    int worker;              /* -1 with PL_NEWS_NONE */
    struct pl_result result; /* PL_NEWS_RESULT; checked for plausible values, not for its task: what
                                cannot be is PL_NOT_COMPUTED, with no samples */
};

/* What a worker was doing when it was last heard of. */
enum pl_phase { PL_PHASE_AWAY, PL_PHASE_WAITING, PL_PHASE_SLEEPING, PL_PHASE_COMPUTING };

struct pl_port_conf {
    int n_workers;
    size_t dim; /* of what this port moves: the whole vector, or this server's range of it */
    const struct pl_range *range; /* [n_servers]; see shards.h. NULL: there is one server */
    int n_servers;
    int n_versions, n_slots; /* at most; memory is used when they are first asked for */
    /* Path of a socket where workers that nobody here made can come, each to the lowest number that
     * is free; must not exist, and is gone after close(). NULL: no. */
    const char *listen;
};

/* The server's end. */
struct pl_port_ops {
    int (*open)(const struct pl_port_conf *conf, struct pl_port **out, struct pl_why *why);
    /* Cancels everything, tells all workers that the run is over, and waits for them for at most
     * `wait_ns`. Links of threads must have been closed before the port is freed. */
    void (*shutdown)(struct pl_port *p, uint64_t wait_ns);
    void (*close)(struct pl_port *p);

    float *(*version)(struct pl_port *p); /* memory for one more; NULL: there is no more */
    float *(*slot)(struct pl_port *p);

    /* To a worker that is expected or here; for others nothing happens. */
    void (*tell)(struct pl_port *p, int worker, const struct pl_order *o);
    void (*cancel)(struct pl_port *p, int worker);
    /* The task whose base the worker has made, of orders with summands; 0: none. */
    uint64_t (*based)(const struct pl_port *p, int worker);
    /* Fills slots of the port with what their writers have in them. NULL where slots are shared. 0,
     * or PL_ERUN where one did not come. */
    int (*bring)(struct pl_port *p, const struct pl_summand *what, int n);
    /* The task of an earlier order than its latest whose version and slot the worker may still
     * touch; 0: none. After a cancel the latest is none. It holds an order that it has pulled (or,
     * where versions are sent, that is on its way) until it pulls again, pushes or is gone; never
     * one that was replaced before that. Once it
     * does not hold an earlier order, that is free for good. What a broken worker says it holds may
     * be a task that never was. */
    uint64_t (*holds)(const struct pl_port *p, int worker);
    enum pl_phase (*phase)(struct pl_port *p, int worker);

    /* The next news, in the order in which things happened; waits for at most `wait_ns`. */
    void (*news)(struct pl_port *p, uint64_t wait_ns, struct pl_news *out);
    /* From any thread, or a signal handler: the next news(), or the one that waits, returns
     * PL_NEWS_NONE. */
    void (*wake)(struct pl_port *p);

    /* --- making a worker: before, in the new thread or process, after (in the parent) ---
     * A new process calls attach() and nothing else on the port; it is killed when the thread that
     * forked it ends. made() is due also where no process could be made: PL_NEWS_GONE follows. */
    int (*expect)(struct pl_port *p, int worker, struct pl_why *why);
    int (*attach)(struct pl_port *p, int worker, struct pl_link **out);
    void (*made)(struct pl_port *p, int worker);
};

/* A worker's end. */
struct pl_link_ops {
    /* The next order; waits until there is one. One that was neither answered, replaced nor
     * cancelled comes again. 0, or PL_ECANCELLED: the run is over or the server is gone. */
    int (*pull)(struct pl_link *l, struct pl_order *out);
    const struct pl_cancel *(*cancelled)(
        const struct pl_link *l);    /* of the order that was pulled */
    void (*base)(struct pl_link *l); /* the base of the order that was pulled is made */
    /* Sleeps; 0, or PL_ECANCELLED as soon as the order is cancelled or the server is gone. */
    int (*sleep)(struct pl_link *l, uint64_t ns);
    void (*push)(struct pl_link *l, const struct pl_result *r); /* nothing of the order is touched
                                                                   from here on */
    void (*detach)(struct pl_link *l);
};

struct pl_transport {
    const char *name, *brief;
    bool processes; /* its workers are processes: they can be killed, and share no other memory */
    bool shared; /* versions and slots are the same memory at both ends; otherwise they are sent */
    struct pl_port_ops port;
    struct pl_link_ops link;
};

extern const struct pl_transport pl_inproc, pl_shm;

/* Comes to a port that listens at `path`; *worker is the number it was given and *dim the length of
 * the vectors. For workers that the server did not make. */
int pl_shm_connect(const char *path, struct pl_link **out, int *worker, size_t *dim,
                   struct pl_why *why);

#endif
