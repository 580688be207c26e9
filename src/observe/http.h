/* A small web server: one function answers every GET and HEAD, on the server's own thread. It
 * ignores request bodies, gives up on clients that make no progress for a few seconds, and closes
 * the oldest connection if there are too many: slow or hostile clients cannot keep others out.
 *
 * Built on libmicrohttpd; if the library was built without it, opening fails with PL_EMISSING. */
#ifndef PL_OBSERVE_HTTP_H
#define PL_OBSERVE_HTTP_H

#include <stdbool.h>

#include "base/status.h"

struct pl_http_answer {
    int status;       /* default 404 */
    const char *type; /* content type; default text/plain */
    char *text;       /* malloc()ed, freed by the server; NULL: a standard text */
    size_t n;
    bool strange; /* set for the callback: the client asked for a host name that is neither
                     localhost nor the one of the address. A web page whose name was made to point
                     here does. */
    bool local;   /* likewise: only programs of this machine can connect */
    bool stream;  /* not an answer: the client receives what pl_http_broadcast sends from now on */
};

/* Fills in the answer for a path such as "/metrics". Runs on the server's thread. */
typedef void pl_http_page(void *ctx, const char *path, struct pl_http_answer *out);

struct pl_http;

/* `what` completes "… address" in error messages: "metrics". `address` is HOST:PORT, [HOST]:PORT,
 * :PORT or PORT. The default host is 127.0.0.1; port 0 takes any free port. Returns PL_EUSAGE,
 * PL_EIO if the address is not available, or PL_EMISSING. */
int pl_http_open(const char *what, const char *address, pl_http_page *page, void *ctx,
                 struct pl_http **out, struct pl_why *why);
int pl_http_port(const struct pl_http *h);
const char *pl_http_host(const struct pl_http *h); /* as it was given, or the default */

/* Sends a message of at most 999 bytes to every stream, from any thread, and returns how many there
 * are. A client that is slow misses messages; the latest is sent to it when it is ready, and to a
 * new client at once. */
int pl_http_broadcast(struct pl_http *h, const char *message);

void pl_http_close(struct pl_http *h); /* waits for the current answer; NULL is allowed */

#endif
