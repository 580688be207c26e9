/* A very small web server: one function answers every GET and HEAD, on a thread of the server's
 * own. Few connections at a time, each for a few seconds; nothing is read but the request.
 *
 * Built on libmicrohttpd; where the library was built without it, opening says so. */
#ifndef PL_OBSERVE_HTTP_H
#define PL_OBSERVE_HTTP_H

#include "base/status.h"

struct pl_http_answer {
    int status;       /* 404 where the function leaves it */
    const char *type; /* of the content; text/plain where the function leaves it */
    char *text;       /* malloc()ed; freed by the server; NULL: a few words about the status */
    size_t n;
};

/* Fills in an answer for a path such as "/metrics". Runs on the server's thread. */
typedef void pl_http_page(void *ctx, const char *path, struct pl_http_answer *out);

struct pl_http;

/* `address` is HOST:PORT, :PORT or PORT; the host is a name, a number or [a number] with colons,
 * and 127.0.0.1 where there is none; port 0 takes any that is free. PL_EUSAGE, PL_EIO where the
 * address cannot be had, PL_EMISSING. */
int pl_http_open(const char *address, pl_http_page *page, void *ctx, struct pl_http **out,
                 struct pl_why *why);
int pl_http_port(const struct pl_http *h);
void pl_http_close(struct pl_http *h); /* waits for the answer in progress; NULL is fine */

#endif
