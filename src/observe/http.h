/* A small web server: one function answers every GET and HEAD, on the server's own thread. It
 * accepts a few connections at a time, each for a few seconds, and ignores request bodies.
 *
 * Built on libmicrohttpd; if the library was built without it, opening fails with PL_EMISSING. */
#ifndef PL_OBSERVE_HTTP_H
#define PL_OBSERVE_HTTP_H

#include "base/status.h"

struct pl_http_answer {
    int status;       /* default 404 */
    const char *type; /* content type; default text/plain */
    char *text;       /* malloc()ed, freed by the server; NULL: a standard text */
    size_t n;
};

/* Fills in the answer for a path such as "/metrics". Runs on the server's thread. */
typedef void pl_http_page(void *ctx, const char *path, struct pl_http_answer *out);

struct pl_http;

/* `address` is HOST:PORT, [HOST]:PORT, :PORT or PORT. The default host is 127.0.0.1; port 0 takes
 * any free port. Returns PL_EUSAGE, PL_EIO if the address is not available, or PL_EMISSING. */
int pl_http_open(const char *address, pl_http_page *page, void *ctx, struct pl_http **out,
                 struct pl_why *why);
int pl_http_port(const struct pl_http *h);
void pl_http_close(struct pl_http *h); /* waits for the current answer; NULL is allowed */

#endif
