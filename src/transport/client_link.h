/* The end of a client: a process that joins a port over shared memory which it did not inherit.
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

struct pl_client_link_conf {
    const char *path;          /* of the socket */
    struct pl_newcomer client; /* what it says about itself */
    uint64_t wait_ns;          /* for a server to listen at the path */
    /* Called once if there is no server yet, before the wait. May be NULL. */
    void (*waiting)(void *ctx, const char *sentence);
    void *ctx;
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

/* After PL_ECANCELLED: the sentence with which the server hung up, and whether the client may join
 * again. Returns false if it did not hang up. */
bool pl_client_link_farewell(struct pl_link *l, char out[PL_WORD_MAX], bool *again);

/* Sends one line of text, of 1 to PL_WORD_MAX - 1 bytes without control characters. The server
 * takes a few at once and PL_WORDS_PER_SECOND in the long run; beyond that this waits. 0,
 * PL_EUSAGE, PL_ECANCELLED (the server is gone), PL_ETIMEDOUT or PL_EINTR. */
int pl_client_link_say(struct pl_link *l, const char *word, uint64_t wait_ns);
#define PL_WORDS_PER_SECOND 50

/* A evaluator's: copies the newest version to out [dim], with the note that the server added (out
 * and note may be NULL). 0, PL_EUSAGE, PL_ECANCELLED: the run has ended, PL_ETIMEDOUT or PL_EINTR.
 */
int pl_client_link_newest(struct pl_link *l, uint64_t wait_ns, float *out,
                          uint64_t note[PL_NOTE_WORDS]);

#endif
