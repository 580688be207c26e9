#include "observe/http.h"

#ifdef PL_HAVE_MICROHTTPD

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HTTP_CONNECTIONS 32
#define HTTP_TIMEOUT_S 10
#define HTTP_MEMORY 16384 /* the longest request accepted, in bytes */

struct pl_http {
    struct MHD_Daemon *daemon;
    pl_http_page *page;
    void *ctx;
    int port;
};

/* --- the address ------------------------------------------------------------------------- */

struct http_address {
    char host[256], port[6];
};

static bool http_is_port(const char *s) {
    size_t n = strspn(s, "0123456789");
    return n > 0 && n < 6 && s[n] == '\0' && strtol(s, NULL, 10) <= 65535;
}

/* Splits HOST:PORT, [HOST]:PORT, :PORT or PORT; returns false if it is none of them. */
static bool http_split(const char *address, struct http_address *out) {
    const char *host = address, *port = address;
    size_t n = 0;
    if (address[0] == '[') {
        const char *end = strchr(address, ']');
        if (!end || end[1] != ':' || end == address + 1) return false;
        host = address + 1;
        n = (size_t)(end - host);
        port = end + 2;
    } else {
        const char *colon = strchr(address, ':');
        n = colon ? (size_t)(colon - address) : 0;
        port = colon ? colon + 1 : address;
    }
    if (!http_is_port(port) || n >= sizeof out->host) return false;
    snprintf(out->host, sizeof out->host, "%.*s", (int)n, host);
    if (n == 0) snprintf(out->host, sizeof out->host, "127.0.0.1");
    snprintf(out->port, sizeof out->port, "%s", port);
    return true;
}

/* --- answers ----------------------------------------------------------------------------- */

static const char *http_words(int status) {
    switch (status) {
    case MHD_HTTP_OK: return "ok\n";
    case MHD_HTTP_NOT_FOUND: return "page not found\n";
    case MHD_HTTP_METHOD_NOT_ALLOWED: return "only GET and HEAD are supported\n";
    default: return "not available now\n";
    }
}

static enum MHD_Result http_send(struct MHD_Connection *connection,
                                 const struct pl_http_answer *a) {
    const char *words = http_words(a->status);
    struct MHD_Response *r =
        a->text ? MHD_create_response_from_buffer(a->n, a->text, MHD_RESPMEM_MUST_FREE)
                : MHD_create_response_from_buffer(strlen(words), (void *)(uintptr_t)words,
                                                  MHD_RESPMEM_PERSISTENT);
    if (!r) {
        free(a->text);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, a->type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (a->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result rc = MHD_queue_response(connection, (unsigned)a->status, r);
    MHD_destroy_response(r);
    return rc;
}

/* Answers at the first call for a request, before a body is read. */
static enum MHD_Result http_request(void *cls, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *data_size, void **request) {
    const struct pl_http *h = cls;
    struct pl_http_answer a = {MHD_HTTP_NOT_FOUND, "text/plain; charset=utf-8", NULL, 0};
    (void)version, (void)data, (void)data_size, (void)request;
    if (strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0)
        h->page(h->ctx, url, &a);
    else
        a.status = MHD_HTTP_METHOD_NOT_ALLOWED;
    return http_send(connection, &a);
}

/* Errors of clients are not reported. */
static void http_silence(void *cls, const char *fmt, va_list ap) {
    (void)cls, (void)fmt, (void)ap;
}

/* --- opening and closing ----------------------------------------------------------------- */

/* Blocks signals in the server's threads, so existing threads keep receiving them. */
static struct MHD_Daemon *http_start(struct pl_http *h, const struct addrinfo *where) {
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ERROR_LOG;
    sigset_t all, before;
    if (where->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return NULL;
    errno = 0;
    struct MHD_Daemon *d = MHD_start_daemon(
        flags, 0, NULL, NULL, http_request, h, MHD_OPTION_EXTERNAL_LOGGER, http_silence, NULL,
        MHD_OPTION_SOCK_ADDR, where->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_MEMORY, MHD_OPTION_END);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return d;
}

static int http_listen(struct pl_http *h, const struct http_address *a, struct pl_why *why) {
    struct addrinfo *where = NULL,
                    hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    int error = getaddrinfo(a->host, a->port, &hints, &where);
    if (error)
        return pl_fail(why, PL_EIO, "metrics: unknown host '%.100s': %s", a->host,
                       gai_strerror(error));
    for (const struct addrinfo *w = where; w && !h->daemon; w = w->ai_next)
        h->daemon = http_start(h, w);
    error = errno;
    freeaddrinfo(where);
    if (!h->daemon)
        return pl_fail(why, PL_EIO, "metrics: cannot listen on port %s of '%.100s': %s", a->port,
                       a->host, error ? strerror(error) : "the server could not be started");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    h->port = info ? info->port : 0;
    return PL_OK;
}

int pl_http_open(const char *address, pl_http_page *page, void *ctx, struct pl_http **out,
                 struct pl_why *why) {
    struct http_address a;
    if (!http_split(address, &a))
        return pl_fail(why, PL_EUSAGE,
                       "'%.200s' is not a metrics address; write HOST:PORT, [HOST]:PORT "
                       "or PORT, with a port from 0 to 65535",
                       address);
    struct pl_http *h = calloc(1, sizeof *h);
    if (!h) return pl_fail(why, PL_ENOMEM, "out of memory for the metrics");
    h->page = page;
    h->ctx = ctx;
    int rc = http_listen(h, &a, why);
    if (rc) {
        free(h);
        return rc;
    }
    *out = h;
    return PL_OK;
}

int pl_http_port(const struct pl_http *h) {
    return h->port;
}

void pl_http_close(struct pl_http *h) {
    if (!h) return;
    MHD_stop_daemon(h->daemon);
    free(h);
}

#else

int pl_http_open(const char *address, pl_http_page *page, void *ctx, struct pl_http **out,
                 struct pl_why *why) {
    (void)address, (void)page, (void)ctx, (void)out;
    return pl_fail(why, PL_EMISSING,
                   "this build cannot serve metrics: it has no libmicrohttpd; install "
                   "the Debian package libmicrohttpd-dev and build again");
}

int pl_http_port(const struct pl_http *h) {
    (void)h;
    return 0;
}

void pl_http_close(struct pl_http *h) {
    (void)h;
}

#endif
