/* The end of a client: a process that joins a port over shared memory which it did not inherit.
 * Those over HTTP and over MPI have the same functions, in a table.
 *
 * A worker uses pl_shm.link on its link, and what is here; an evaluator only what is here and
 * pl_shm.link.detach. Both leave by detach().
 *
 * Every wait has a limit of the caller's, UINT64_MAX for none, and ends early with PL_EINTR when a
 * signal handler has run in this thread, so that a program can be interrupted.
 *
 * Threads: one at a time per link. */
#ifndef PL_TRANSPORT_CLIENT_LINK_H
#define PL_TRANSPORT_CLIENT_LINK_H

#include "transport/transport.h"

#define PL_RUN_ID_MAX 64
#define PL_URL_MAX 400

/* What a client remembers of the server that it has lost, for the next one. */
struct pl_past {
    char run[PL_RUN_ID_MAX]; /* "": it has had no server */
    uint64_t epoch;          /* of the server; one with less is refused */
    uint64_t seen;           /* the newest version that it has had an order for */
    char server[PL_URL_MAX]; /* the standby that has taken over; "": none has */
};

struct pl_client_link_conf {
    const char *path;          /* of the socket; over HTTP the URL of the server, or several
                                  with commas between them */
    struct pl_newcomer client; /* what it says about itself */
    uint64_t wait_ns;          /* for a server to listen at the path */
    /* Called once if there is no server yet, before the wait. May be NULL. */
    void (*waiting)(void *ctx, const char *sentence);
    /* Whether to give up, over HTTP, where a signal may come at any time. May be NULL. */
    bool (*stop)(void *ctx);
    void *ctx;
    const char *keys;     /* over HTTPS: folder of its certificate */
    bool wants_final;     /* over HTTP: a worker that asks for the model that the run ends with */
    struct pl_past *past; /* over HTTP: kept up to date while there is a link; NULL: forgotten */
};

/* What the server answers. */
struct pl_welcome {
    int worker; /* its number; an evaluator's is counted from n_workers on */
    int n_workers;
    size_t dim;
    unsigned half;
    bool speaks; /* the server listens to its words */
    char about[PL_ABOUT_MAX];
};

/* 0; PL_ERUN: the server refused it, and `why` has the server's sentence; PL_ETIMEDOUT, PL_EINTR:
 * there was no server up to now; PL_EUSAGE, PL_EIO: there cannot be one at this path; PL_EDATA: it
 * is not a server of this protocol. */
int pl_client_link_connect(const struct pl_client_link_conf *conf, struct pl_link **out,
                           struct pl_welcome *welcome, struct pl_why *why);
/* The same over a socket that is connected to a server, and that is closed if this fails. */
int pl_client_link_enter(const struct pl_client_link_conf *conf, int sock, struct pl_link **out,
                         struct pl_welcome *welcome, struct pl_why *why);

/* As pl_shm.link.pull, with a limit: also PL_ETIMEDOUT or PL_EINTR. The worker then has no order;
 * one that it had not answered comes again. */
int pl_client_link_pull(struct pl_link *l, uint64_t wait_ns, struct pl_order *out);

/* After PL_ECANCELLED: whether the server has gone without shutting down. */
bool pl_client_link_lost(const struct pl_link *l);
bool pl_client_link_over(const struct pl_link *l); /* the run has ended */
/* Whether the server has hung up, or is gone, whatever the client knows. From then on, the memory
 * of its order may change. */
bool pl_client_link_hung_up(const struct pl_link *l);

/* After PL_ECANCELLED: the sentence with which the server hung up, and whether the client may join
 * again. Returns false if it did not hang up. */
bool pl_client_link_farewell(struct pl_link *l, char out[PL_WORD_MAX], bool *again);

/* When the run has ended: the model that it ended with, valid until detach, and the note that the
 * server added. NULL: the server has given none. */
const float *pl_client_link_final(const struct pl_link *l, uint64_t note[PL_NOTE_WORDS]);

/* Sends one line of text, of 1 to PL_WORD_MAX - 1 bytes without control characters. The server
 * takes a few at once and PL_WORDS_PER_SECOND in the long run; beyond that this waits. 0,
 * PL_EUSAGE, PL_ECANCELLED (the server is gone), PL_ETIMEDOUT or PL_EINTR. */
int pl_client_link_say(struct pl_link *l, const char *word, uint64_t wait_ns);
#define PL_WORDS_PER_SECOND 50

/* An evaluator's: copies the newest version to out [dim], with the note that the server added (out
 * and note may be NULL). 0, PL_EUSAGE, PL_ECANCELLED (the run has ended), PL_ETIMEDOUT or
 * PL_EINTR. */
int pl_client_link_newest(struct pl_link *l, uint64_t wait_ns, float *out,
                          uint64_t note[PL_NOTE_WORDS]);

/* The same of any transport that clients can join by: connect, pull, lost, … as above. */
struct pl_join_ops {
    int (*connect)(const struct pl_client_link_conf *conf, struct pl_link **out,
                   struct pl_welcome *welcome, struct pl_why *why);
    int (*pull)(struct pl_link *l, uint64_t wait_ns, struct pl_order *out);
    bool (*lost)(const struct pl_link *l);
    bool (*farewell)(struct pl_link *l, char out[PL_WORD_MAX], bool *again);
    int (*say)(struct pl_link *l, const char *word, uint64_t wait_ns);
    int (*newest)(struct pl_link *l, uint64_t wait_ns, float *out, uint64_t note[PL_NOTE_WORDS]);
    bool (*hung_up)(const struct pl_link *l); /* NULL: the memory is the client's own */
    const float *(*final)(const struct pl_link *l, uint64_t note[PL_NOTE_WORDS]); /* NULL: none */
};

extern const struct pl_join_ops pl_shm_join;
#define PL_MPI_SERVER "mpi:"

/* Over HTTP. The text at a path of the server, which must have been told `keys` as a client is: at
 * most max - 1 bytes. Waits as connect() does. */
int pl_http_fetch(const struct pl_client_link_conf *conf, const char *path, char *out, size_t max,
                  struct pl_why *why);
/* From any thread: the URL of the server's standby; "": it has none, as far as is known. */
void pl_http_standby(struct pl_link *l, char url[PL_URL_MAX]);
const char *pl_http_server(const struct pl_link *l); /* its URL */
/* From any thread: what waits on the link, or computes for it, ends as if the run had. */
void pl_http_leave(struct pl_link *l);

/* For a process that relays a client. From any thread: a pull or newest() that waits, or else the
 * next one, returns PL_EINTR. */
void pl_client_link_interrupt(struct pl_link *l);
/* A word that changes when there may be an order, a cancel, or the end; see sys/futex.h. */
atomic_uint *pl_client_link_bell(struct pl_link *l);
/* From any thread: whether the order of this task is cancelled or replaced (0: none is meant), or
 * the server has shut down. */
enum pl_relay { PL_RELAY_NOTHING, PL_RELAY_CANCELLED, PL_RELAY_OVER };
enum pl_relay pl_client_link_watch(struct pl_link *l, uint64_t task);

#endif
