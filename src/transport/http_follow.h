/* What a standby asks the server that it follows, over HTTP.
 *
 * Threads: one. */
#ifndef PL_TRANSPORT_HTTP_FOLLOW_H
#define PL_TRANSPORT_HTTP_FOLLOW_H

#include "transport/client_link.h"
#include "transport/http_wire.h"

struct pl_follower;

/* `keys` is the folder of the server's certificate, which the standby shows; NULL: none.
 * `address`: HOST:PORT where it listens itself. PL_EUSAGE, PL_EIO, PL_ENOMEM or PL_EMISSING. */
int pl_follower_open(const char *server, const char *keys, const char *address,
                     struct pl_follower **out, struct pl_why *why);
void pl_follower_close(struct pl_follower *f); /* NULL is fine */

enum pl_followed {
    PL_FOLLOWED_COPY, /* a newer copy */
    PL_FOLLOWED_SAME, /* the server is there, and there is none */
    PL_FOLLOWED_OVER, /* the run has ended */
    PL_FOLLOWED_GONE, /* no answer, or not a whole one */
    PL_FOLLOWED_NO    /* refused */
};

/* What the server answered. */
struct pl_copy_of_run {
    char *bytes; /* of a checkpoint, if it is a copy; valid until the next call */
    size_t n;
    uint64_t version;
    char run[PL_RUN_ID_MAX];
    uint64_t epoch;
    int workers; /* that the server has */
    char secret[PL_WIRE_KEY + 1];
    char why[PL_WORD_MAX]; /* if there is no answer, or it was refused */
};

/* Waits for seconds. `has`: the version of the copy that it has kept, of that server of that run;
 * UINT64_MAX: none. */
enum pl_followed pl_follower_next(struct pl_follower *f, uint64_t has, const char *run,
                                  uint64_t epoch, struct pl_copy_of_run *out);

#endif
