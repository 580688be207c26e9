/* A port with its workers, for tests: made and ended alike whatever the transport, and checked at
 * the end for having left nothing behind. */
#ifndef PL_TESTS_SUITE_TRANSPORT_H
#define PL_TESTS_SUITE_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "test.h"
#include "transport/areas.h"
#include "transport/client_link.h"
#include "transport/greeting.h"
#include "transport/shm_layout.h"
#include "transport/transport.h"

#define CREW_MAX 8
#define CREW_VECTORS 32
#define CREW_PATIENCE_NS UINT64_C(60000000000) /* then a test has failed */

struct crew;
typedef void crew_work(struct crew *c, struct pl_link *l, int worker);

struct crew_member {
    struct crew *crew;
    int worker;
    crew_work *work;
    pid_t pid;                /* 0: none */
    struct pl_thread *thread; /* NULL: none */
};

/* Seen by everybody, also by processes. */
struct crew_notes {
    atomic_int n_wrong;
    atomic_int gate;
    atomic_int value[CREW_MAX];
    /* ranks take their work from here */
    atomic_int asked[CREW_MAX], done[CREW_MAX]; /* how often they were spawned, and have ended */
    atomic_llong work; /* where the function lies, seen from member_main() */
    atomic_llong dim;
    atomic_bool dismissed;
};

struct crew {
    const struct pl_transport *t;
    struct pl_port *p;
    int n_workers;
    size_t dim;
    float *version[CREW_VECTORS];
    float *slot[CREW_VECTORS];          /* worker 0's */
    float *own[CREW_MAX][CREW_VECTORS]; /* each worker's; the same if slots are common */
    struct crew_notes *notes;
    struct crew_member member[CREW_MAX];
    struct pl_order last;  /* for stories */
    struct pl_input input; /* of the order made last */
    char path[64];         /* where it listens, or "" */
    int n_evaluators;
    unsigned half;
    int n_files; /* open before it was */
};

void crew_open(struct crew *c, const struct pl_transport *t, int n_workers, size_t dim,
               bool listens);
/* The same with more in the conf; the number of workers and so on are filled in. */
void crew_open_with(struct crew *c, const struct pl_transport *t, int n_workers, size_t dim,
                    bool listens, struct pl_port_conf conf);
int crew_files(const char *dir); /* entries of a folder */
void crew_close(struct crew *c);
struct pl_shape crew_shape(const struct crew *c);
struct pl_mailbox *crew_mailbox(const struct crew *c, int seat);
struct pl_head *crew_head(const struct crew *c);

/* A worker's end in this very thread: attached, or come as a client. */
struct pl_link *crew_client(struct crew *c, int worker);
/* A connection to the server, and what it answers to what was sent there. */
int crew_call(const struct crew *c);
struct pl_answer crew_answer(int sock, int fd[PL_GIVEN]);
/* A worker of any dim comes as a client to where a server listens already. */
int crew_connect(const char *path, struct pl_link **l, int *worker, size_t *dim,
                 struct pl_why *why);

/* A worker of its own, thread or process. */
void crew_spawn(struct crew *c, int worker, crew_work *work);
int crew_join(struct crew *c, int worker); /* the status of a process; 0 of a thread */

/* An order on one vector w of the server's, for `out`, both whole; its stamp is the task's, and its
 * note is what crew_noted() expects. Valid until the next. */
struct pl_order crew_order(struct crew *c, uint64_t task, const float *w, float *out);
bool crew_noted(const struct crew *c, const struct pl_order *o); /* after pull(): all as it was */

/* Tells a worker a task on the version of its number, for its slot of that number. */
void crew_tell(struct crew *c, int worker, uint64_t task);
/* Work: answers every order with its input plus the number of the task. */
void crew_echo(struct crew *c, struct pl_link *l, int worker);
void crew_echoed(const struct crew *c, int worker, uint64_t task); /* it did */

/* The next news, which must be this. */
struct pl_news crew_news(struct crew *c, enum pl_news_kind kind, int worker);
/* The same, but bases and results may come first. */
void crew_until(struct crew *c, enum pl_news_kind kind, int worker);
void crew_silent(struct crew *c); /* there are none */

void crew_sleep(uint64_t ns);
bool crew_wait(const atomic_int *value, int least); /* until it is; false: patience has ended */

/* The transports that can be tested here, and those of them whose ends share memory, so that one
 * thread can be both, and write to a mailbox. */
#define CREW_KINDS 8
size_t crew_kinds(const struct pl_transport *const **kinds);
size_t crew_near(const struct pl_transport *const **kinds);
/* Over HTTP: what a worker does is known to the server later, and phases are the gateway's. */
bool crew_is_far(const struct pl_transport *t);

/* The main() of a program whose tests run with each of the transports that it sets first: those of
 * transports.h, or MPI if mpirun started it (tests/transport/mpi.sh). There a rank that is not 0
 * is the worker that rank 0 spawns, again and again. */
int crew_main(const struct pl_transport *const **kinds, size_t *n_kinds);

/* Whether processes can be made here; prints why not. */
bool crew_forks(const struct pl_transport *t);

/* Whether both ends have vectors in the same memory, so that nothing is sent. */
bool crew_in_place(const struct crew *c);

#endif
