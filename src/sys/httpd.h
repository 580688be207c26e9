/* A server of libmicrohttpd: listens on an address, and stops in good order. */
#ifndef PL_SYS_HTTPD_H
#define PL_SYS_HTTPD_H

#include <microhttpd.h>
#include <stdint.h>

#include "base/status.h"
#include "sys/address.h"

#define PL_PEER_MAX 64

struct pl_httpd;

struct pl_httpd_conf {
    unsigned flags; /* MHD_USE_... */
    MHD_AccessHandlerCallback request;
    MHD_RequestCompletedCallback done;      /* may be NULL */
    MHD_NotifyConnectionCallback connected; /* may be NULL; of one thread at a time */
    /* A connection from this address has ended without a request. May be NULL. */
    void (*silent)(void *ctx, const char *from);
    void *ctx;                      /* of all */
    unsigned room;                  /* connections at most */
    int socket;                     /* that listens there already; 0: it makes one */
    struct MHD_OptionItem *options; /* further ones, up to MHD_OPTION_END */
};

/* Signals are blocked in its threads, so that existing threads keep receiving them. Errors of
 * clients are not reported. */
int pl_httpd_start(const struct pl_httpd_conf *conf, const struct pl_address *where,
                   struct pl_httpd **out, struct pl_why *why);

/* Where its client is: a number, or "" if it is not known. */
void pl_httpd_peer(struct MHD_Connection *connection, char out[PL_PEER_MAX]);

int pl_httpd_port(const struct pl_httpd *h);

/* A duplicate of the socket that it listens on, or -1, for the `socket` of the next server at this
 * address: the port stays open between them, and connections wait. The caller closes it. */
int pl_httpd_socket(const struct pl_httpd *h);

/* Ends connections without a request whose client takes more than `ns` for the next, however little
 * by little it sends. libmicrohttpd itself does that only to clients that send nothing. */
void pl_httpd_tidy(struct pl_httpd *h, uint64_t ns);

/* Nobody may be suspended. Answers under way have a second to reach their clients. A socket that it
 * was given listens no longer, also if others have it open. */
void pl_httpd_stop(struct pl_httpd *h);

#endif
