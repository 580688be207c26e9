/* Which workers and evaluators that are processes are still alive, and what they say.
 *
 * Between the server and every worker or evaluator there is a socket. When either end dies, for
 * whatever reason, the kernel closes its end and the other one sees it: the server in a thread that
 * watches all sockets, a worker whenever it checks. Processes that a client forks do not inherit
 * its end (sys/private_fd.h). What clients are and what they send is in greeting.h; after its
 * answer the server sends nothing but the sentence with which it hangs up.
 *
 * Requests are kept here until the owner of the port takes them. They are limited per seat:
 * PL_LIVENESS_WORDS that wait, and PL_WORDS_PER_SECOND. Beyond that they stay in the client's
 * socket, and only that client blocks. Other messages have higher limits.
 *
 * Threads: the watching thread calls the functions of the conf; the owner of the port calls
 * everything else. Between expect() and made() no client is admitted, so that a process forked in
 * between knows every descriptor that it must close. */
#ifndef PL_TRANSPORT_LIVENESS_H
#define PL_TRANSPORT_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/areas.h"
#include "transport/greeting.h"

struct pl_why;
struct pl_liveness;

#define PL_LIVENESS_WORDS 8 /* that wait per seat */

struct pl_liveness_conf {
    int n_seats;
    const char *listen; /* NULL: no clients */
    /* Gives a client a seat: fills in the rest of the answer and the descriptors. -1: it is
     * refused, and answer->text says why. */
    int (*admit)(void *ctx, const struct pl_newcomer *client, struct pl_answer *answer,
                 int fd[PL_GIVEN]);
    /* A descriptor of another seat's memory, for answer->n_more seats from 0 on except its own. */
    int (*reader)(void *ctx, int seat);
    void (*gone)(void *ctx, int seat);
    /* PL_SAID_…: of a word, that there is one; number: of ASK and DONE. Returns false for a READY
     * without anything new, or the same number again. */
    bool (*said)(void *ctx, int seat, int what, uint64_t number);
    void *ctx;
};

int pl_liveness_open(const struct pl_liveness_conf *conf, struct pl_liveness **out,
                     struct pl_why *why);
void pl_liveness_close(struct pl_liveness *l); /* NULL is fine */

int pl_liveness_expect(struct pl_liveness *l, int seat, struct pl_why *why);
void pl_liveness_made(struct pl_liveness *l, int seat);

unsigned pl_liveness_words(struct pl_liveness *l, int seat); /* how many wait */
uint64_t pl_liveness_heard(struct pl_liveness *l, int seat); /* how many there have been */
bool pl_liveness_word(struct pl_liveness *l, int seat, char out[PL_WORD_MAX]); /* takes one */
void pl_liveness_deaf(struct pl_liveness *l);            /* from now on, words are dropped */
void pl_liveness_clear(struct pl_liveness *l, int seat); /* the next in this seat starts afresh */
/* Sends a client this sentence and closes the connection; gone() follows. */
void pl_liveness_hang_up(struct pl_liveness *l, int seat, bool again, const char *sentence);

/* In the forked process: closes what belongs to the server or to other workers, and returns the
 * socket of `seat`. Nothing else may be called there. */
int pl_liveness_close_in_child(struct pl_liveness *l, int seat);

bool pl_liveness_lost(int sock); /* at a worker's end: the server is gone */

#endif
