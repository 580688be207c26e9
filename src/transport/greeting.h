/* What a client and the server send each other over the client's socket. Both are on one machine,
 * and of the same user.
 *
 *   client                                          server
 *   pl_hello          ───────────────────────▶     judges it
 *                     ◀───────────────────────     pl_answer, with descriptors if it is welcome
 *                     ◀───────────────────────     pl_more: descriptors of the other areas
 *   a byte PL_SAID_…, and text or a number ──▶     for as long as it stays
 *                     ◀───────────────────────     a sentence, if the server hangs up on it
 *
 * Threads: any. */
#ifndef PL_TRANSPORT_GREETING_H
#define PL_TRANSPORT_GREETING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "transport/shm_layout.h"

#define PL_GREETING_MAGIC UINT64_C(0x656e696c65636170) /* "paceline" */
#define PL_GREETING_VERSION 8

struct pl_hello {
    uint64_t magic;
    uint32_t version, kind;
    uint64_t dim, can, seat;
    char fingerprint[PL_FINGERPRINT_MAX];
    char token[PL_TOKEN_MAX];
    char job[PL_JOB_MAX];
};

enum { PL_ANSWER_WELCOME, PL_ANSWER_REFUSED };

struct pl_answer {
    uint64_t magic;
    uint32_t version, code, seat, owner;
    uint64_t speaks; /* whether what it says will be heard */
    uint64_t n_workers, n_evaluators, dim, n_versions, n_slots, n_own, half, size;
    uint64_t n_more;         /* descriptors that follow */
    char text[PL_ABOUT_MAX]; /* about the run, or why it is refused */
};

#define PL_MORE_FILES 64 /* descriptors per message */
struct pl_more {
    uint64_t magic, n;
    uint32_t seat[PL_MORE_FILES];
};

/* The first byte of what a client sends later. */
enum {
    PL_SAID_READY = 1, /* look at my mailbox */
    PL_SAID_WORD,      /* and the text */
    PL_SAID_ASK,       /* and a number: show me the newest version */
    PL_SAID_DONE       /* and the number of my last question: I have copied what you showed me */
};

/* The first byte of the sentence with which the server hangs up: whether the client may join again.
 */
enum { PL_FAREWELL = '-', PL_FAREWELL_AGAIN = '+' };

/* What a client said. */
struct pl_said {
    int what;
    uint64_t number;
    const char *word; /* of PL_SAID_WORD: printable, and not terminated */
    size_t n;         /* its length, below PL_WORD_MAX; 0: none */
};

/* One line that can be printed, and that is not longer than a word. */
bool pl_greeting_printable(const char *text, size_t n);

/* Reads a message of n bytes; returns false if it makes no sense. */
bool pl_greeting_said(const char *data, size_t n, struct pl_said *out);

/* One message, with descriptors. Returns false if it cannot be sent without waiting. */
bool pl_greeting_send(int sock, const void *data, size_t n, const int *fd, int n_fds);

/* Waits `ms` for a message of n bytes and at most `room` descriptors; *n_fds is how many came. 0,
 * PL_ETIMEDOUT, PL_EINTR, or PL_EDATA: the message is of another size, or the other end is gone. */
int pl_greeting_receive(int sock, void *data, size_t n, int *fd, int room, int *n_fds, int ms);

bool pl_greeting_kin(int sock); /* the process at the other end belongs to the same user */

/* PL_EUSAGE if the path cannot be that of a socket. */
int pl_greeting_address(const char *path, struct sockaddr_un *a, struct pl_why *why);

#endif
