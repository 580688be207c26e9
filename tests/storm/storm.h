/* A whole system in one thread, on a virtual clock: the real server and the real workers, on a
 * transport that delays, loses and repeats what a seed decides.
 *
 * Workers are coroutines. They stop in the functions of their link (pull, sleep, push, and before
 * they compute), and the world decides when they go on, so that a seed gives the same events every
 * time. The world runs while the server waits for news. What the server calls of src/sys is
 * replaced when the test is linked (system.c): the clock, processes, background threads. */
#ifndef PL_TESTS_STORM_H
#define PL_TESTS_STORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

#include "base/rng.h"
#include "core/control.h"
#include "transport/transport.h"

#define STORM_WORKERS 8
#define STORM_NEWS 32
#define STORM_NEVER UINT64_MAX
#define STORM_TASKS 8192 /* of a worker, at most, whose fates are compared */

/* What a worker may touch from now on; checked after every event. */
struct storm_held {
    uint64_t task;
    struct pl_order order;
    struct pl_input input[PL_TERMS];
    uint64_t hash;   /* of its inputs when it pulled the order */
    bool base_ready; /* from then on it reads the base */
    uint64_t base_hash;
};

struct storm_message {
    struct pl_news news;
    uint64_t at_ns;
};

struct pl_link {
    int worker;
};

struct storm_worker {
    struct pl_link link;
    ucontext_t context;
    char *stack;
    int (*run)(void *arg);
    void *arg;
    int pid;            /* 0: none, or a client */
    bool made;          /* the coroutine exists and has not returned */
    bool dead;          /* it was killed: its functions return at once */
    bool failed_start;  /* there is no process for it */
    bool client, liar;  /* a program that the server did not start; that lies */
    bool offered;       /* a client may have this place */
    bool attached;      /* it has a link */
    bool waits;         /* for an order */
    uint64_t wake_ns;   /* when the coroutine goes on */
    uint64_t frozen_ns; /* until when it is stopped; 0: it is not */
    uint64_t slow;      /* factor of its times, in percent */
    atomic_bool cancel;
    struct pl_cancel token;
    struct pl_order order; /* the latest; task 0: none */
    struct pl_input input[PL_TERMS];
    struct pl_order *given; /* the worker's own copy of the order that it pulled */
    struct storm_held held; /* task 0: nothing */
    uint64_t answered, pulled_ns;
    struct pl_result last; /* that it pushed */
    float *wrote;          /* by a liar, which may still write there */
    struct storm_message message[STORM_NEWS];
    int first, n;
    uint64_t last_at_ns;   /* when its last message arrives */
    bool expected, joined; /* as the server was told */
    bool gone;             /* PL_NEWS_GONE is on its way */
};

enum storm_kind { STORM_KILL, STORM_FREEZE, STORM_REPEAT, STORM_NO_START, STORM_NET, STORM_FAULTS };

struct storm_counts {
    uint64_t events, kills, freezes, lies, repeats, bursts, words, hung_up, failed_starts, updates,
        servers;
};

struct storm {
    uint64_t seed;
    bool verbose;
    struct pl_rng rng; /* of the world; workers draw from it too, in the order of events */
    uint64_t now_ns;
    struct storm_worker worker[STORM_WORKERS];
    int n_workers;
    size_t dim;
    float **memory; /* [n_memory] all vectors */
    int *writer;
    int n_memory, n_versions, n_slots;
    int n_own;  /* vectors that one worker writes, at most; 0: any number */
    bool peers; /* workers read what others write */
    bool open, shutdown, woken;
    uint64_t opened_ns;
    uint64_t fault_ns, mean_fault_ns, calm_ns; /* the next; between two; none from then on */
    uint64_t task_ns, news_ns;                 /* typical times */
    int leaving;                               /* worker whose PL_NEWS_GONE is being handled */
    int expecting;                             /* worker for which a process is being started */
    bool faults[STORM_FAULTS];                 /* which happen */
    uint32_t samples;                          /* of a task */
    bool mixed;                                /* clients take places that are offered */
    bool clients;                              /* workers are programs of others, */
    int n_liars;                               /* and the first of them lie */
    uint64_t burst_ns;                         /* until when messages take long */
    uint64_t stop_ns;                          /* when the server is killed; STORM_NEVER: not */
    bool stopped;

    /* the background threads */
    struct pl_background {
        void (*run)(void *arg);
        void *arg;
        void (*done)(void *ctx);
        void *ctx;
        uint64_t at_ns;
        bool used;
    } background[4];

    /* invariants */
    const struct pl_control *control;
    uint64_t version, event_ns, alive_since[STORM_WORKERS], n_events, n_idle_news;
    bool alive[STORM_WORKERS];
    bool huge;          /* values may be finite and so large that the model overflows */
    uint64_t commit_ns; /* when the last update was made */
    double present;     /* worker seconds of those that left */
    uint8_t committed[STORM_WORKERS][STORM_TASKS / 8];
    bool one_model;              /* a version has one content, whoever is given it */
    uint64_t version_hash[4096]; /* of weights that workers were given; 0: unknown */
    struct storm_counts counts;
};

extern struct storm storm;

void storm_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void storm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t storm_draw_ns(uint64_t mean_ns); /* about the mean, sometimes ten times that */
bool storm_chance(double p);

/* coroutines.c */
void storm_begin_worker(int worker, int (*run)(void *arg), void *arg);
void storm_resume(struct storm_worker *w);
/* From inside a worker: returns after `ns`, or when it is woken or dead. */
void storm_leave(struct storm_worker *w, uint64_t ns);
void storm_unwind(int worker); /* the coroutine returns */
uint64_t storm_hash(const float *v, size_t n);

/* port.c */
void storm_word(int worker, const char *word); /* a client says something */
void storm_kill(int worker);                   /* at this moment; PL_NEWS_GONE follows */
void storm_run_until(uint64_t ns);             /* the world without the server */

/* faults.c */
void storm_fault(void);
void storm_client(int worker); /* a client begins */

/* invariants.c */
void storm_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                 const struct pl_plan *plan);
void storm_told(int worker, const struct pl_order *o);
uint64_t storm_hash_inputs(const struct storm_held *h);
void storm_check_held(const char *when);

#endif
