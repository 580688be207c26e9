#include "observe/http.h"

#ifdef PL_HAVE_MICROHTTPD

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "sys/address.h"
#include "sys/httpd.h"
#include "sys/lock.h"
#include "sys/numerals.h"

#define HTTP_CONNECTIONS 64
#define HTTP_CROWD 48     /* with this many, the oldest is closed to make room */
#define HTTP_STREAMS 16   /* at most this many of them are streams */
#define HTTP_TIMEOUT_S 10 /* without progress */
#define HTTP_MEMORY 16384 /* the longest request accepted, in bytes */
#define HTTP_MESSAGE 1000 /* the longest message of a stream, in bytes */

/* A connection; they are in order of age. */
struct http_client {
    struct MHD_Connection *connection;
    int fd;
    bool stream;
};

/* A connection that receives every message of pl_http_broadcast. */
struct http_stream {
    struct pl_http *http;
    struct MHD_Connection *connection; /* NULL: free */
    uint64_t seen;                     /* messages sent to it */
    bool asleep;
};

struct pl_http {
    struct pl_httpd *httpd;
    pl_http_page *page;
    void *ctx;
    char host[256];                              /* as it was given */
    struct http_client client[HTTP_CONNECTIONS]; /* of the server's thread alone, as is n_clients */
    int n_clients;
    struct pl_lock *lock; /* protects everything below */
    struct http_stream stream[HTTP_STREAMS];
    uint64_t n_messages;
    char message[HTTP_MESSAGE];
    bool over; /* streams end after the last message */
};

/* --- answers ----------------------------------------------------------------------------- */

static const char *http_words(int status) {
    switch (status) {
    case MHD_HTTP_OK: return "ok\n";
    case MHD_HTTP_NOT_FOUND: return "page not found\n";
    case MHD_HTTP_FORBIDDEN: return "this name does not belong to this server\n";
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
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (a->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result rc = MHD_queue_response(connection, (unsigned)a->status, r);
    MHD_destroy_response(r);
    return rc;
}

/* --- streams ----------------------------------------------------------------------------- */

/* The next message, or sleep until there is one. */
static ssize_t http_next(void *cls, uint64_t pos, char *buffer, size_t max) {
    struct http_stream *s = cls;
    struct pl_http *h = s->http;
    ssize_t n = 0;
    (void)pos;
    pl_lock_enter(h->lock);
    if (s->seen < h->n_messages) {
        size_t length = strlen(h->message);
        n = (ssize_t)(length < max ? length : max);
        memcpy(buffer, h->message, (size_t)n);
        s->seen = h->n_messages;
    } else if (h->over) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        s->asleep = true;
        MHD_suspend_connection(s->connection);
    }
    pl_lock_leave(h->lock);
    return n;
}

static void http_leave(void *cls) {
    struct http_stream *s = cls;
    pl_lock_enter(s->http->lock);
    s->connection = NULL;
    pl_lock_leave(s->http->lock);
}

/* A stream that is asleep makes no progress, but it is not slow: it has no time-out. One that does
 * not read what it is sent is awake, and has. */
static enum MHD_Result http_stream(struct pl_http *h, struct MHD_Connection *connection,
                                   struct pl_http_answer *a) {
    struct http_stream *s = NULL;
    pl_lock_enter(h->lock);
    for (int i = 0; i < HTTP_STREAMS && !s; i++)
        if (!h->stream[i].connection) s = &h->stream[i];
    if (s) *s = (struct http_stream){h, connection, 0, false};
    pl_lock_leave(h->lock);
    struct MHD_Response *r = NULL;
    if (s) r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1024, http_next, s, http_leave);
    if (!r) {
        if (s) http_leave(s);
        a->status = MHD_HTTP_SERVICE_UNAVAILABLE;
        return http_send(connection, a);
    }
    for (int i = 0; i < h->n_clients; i++)
        if (h->client[i].connection == connection) h->client[i].stream = true;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    enum MHD_Result rc = MHD_queue_response(connection, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return rc;
}

static void http_wake(struct pl_http *h) {
    for (int i = 0; i < HTTP_STREAMS; i++) {
        if (!h->stream[i].connection || !h->stream[i].asleep) continue;
        h->stream[i].asleep = false;
        MHD_resume_connection(h->stream[i].connection);
    }
}

int pl_http_broadcast(struct pl_http *h, const char *message) {
    int n = 0;
    pl_lock_enter(h->lock);
    h->n_messages++;
    snprintf(h->message, sizeof h->message, "%s", message);
    for (int i = 0; i < HTTP_STREAMS; i++) n += h->stream[i].connection != NULL;
    http_wake(h);
    pl_lock_leave(h->lock);
    return n;
}

/* --- requests ---------------------------------------------------------------------------- */

/* Whether the name that the client asked for is an address, localhost or the name that was given.
 */
static bool http_is_ours(struct MHD_Connection *connection, const struct pl_http *h) {
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (!host) return true;
    if (host[0] == '[') return host[1 + strspn(host + 1, "0123456789abcdefABCDEF:.")] == ']';
    size_t n = strcspn(host, ":");
    if (n == strspn(host, "0123456789.")) return true;
    return (n == 9 && strncasecmp(host, "localhost", n) == 0) ||
           (n == strlen(h->host) && strncasecmp(host, h->host, n) == 0);
}

/* Answers at the first call for a request, before a body is read. */
static enum MHD_Result http_request(void *cls, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *data_size, void **request) {
    PL_NUMERALS; /* the thread is not ours */
    struct pl_http *h = cls;
    struct pl_http_answer a = {.status = MHD_HTTP_NOT_FOUND, .type = "text/plain; charset=utf-8"};
    (void)version, (void)data, (void)data_size, (void)request;
    bool get = strcmp(method, MHD_HTTP_METHOD_GET) == 0;
    if (!get && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        a.status = MHD_HTTP_METHOD_NOT_ALLOWED;
    } else {
        a.strange = !http_is_ours(connection, h);
        a.local = pl_address_is_local(h->host);
        h->page(h->ctx, url, &a);
    }
    return a.stream && get ? http_stream(h, connection, &a) : http_send(connection, &a);
}

/* Keeps the connections in order of age. In a crowd the oldest is closed, so that clients that say
 * nothing, or little by little, cannot keep others out; streams are closed last. */
static void http_connected(void *cls, struct MHD_Connection *connection, void **context,
                           enum MHD_ConnectionNotificationCode code) {
    struct pl_http *h = cls;
    (void)context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (!info || h->n_clients == HTTP_CONNECTIONS) return;
        h->client[h->n_clients++] = (struct http_client){connection, info->connect_fd, false};
        if (h->n_clients < HTTP_CROWD) return;
        int oldest = 0;
        while (oldest < h->n_clients - 1 && h->client[oldest].stream) oldest++;
        shutdown(h->client[oldest].fd, SHUT_RDWR);
        h->client[oldest].stream = true; /* the next time it is another's turn */
        return;
    }
    for (int i = 0; i < h->n_clients; i++) {
        if (h->client[i].connection != connection) continue;
        h->n_clients--;
        memmove(h->client + i, h->client + i + 1, (size_t)(h->n_clients - i) * sizeof *h->client);
        return;
    }
}

/* --- opening and closing ----------------------------------------------------------------- */

int pl_http_open(const char *what, const char *address, pl_http_page *page, void *ctx,
                 struct pl_http **out, struct pl_why *why) {
    struct pl_address a;
    if (!pl_address_split(address, &a))
        return pl_fail(why, PL_EUSAGE,
                       "'%.200s' is not a %s address; write HOST:PORT, [HOST]:PORT "
                       "or PORT, with a port from 0 to 65535",
                       address, what);
    struct pl_http *h = calloc(1, sizeof *h);
    if (h) h->lock = pl_lock_new();
    if (!h || !h->lock) {
        free(h);
        return pl_fail(why, PL_ENOMEM, "out of memory for the %s", what);
    }
    h->page = page;
    h->ctx = ctx;
    snprintf(h->host, sizeof h->host, "%s", a.host);
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_CONNECTION_TIMEOUT, HTTP_TIMEOUT_S, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_MEMORY, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    struct pl_httpd_conf conf = {.flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME,
                                 .request = http_request,
                                 .connected = http_connected,
                                 .ctx = h,
                                 .room = HTTP_CONNECTIONS,
                                 .options = options};
    int rc = pl_httpd_start(&conf, &a, &h->httpd, why);
    if (rc) {
        pl_lock_free(h->lock);
        free(h);
        return rc;
    }
    *out = h;
    return PL_OK;
}

int pl_http_port(const struct pl_http *h) {
    return pl_httpd_port(h->httpd);
}

const char *pl_http_host(const struct pl_http *h) {
    return h->host;
}

void pl_http_close(struct pl_http *h) {
    if (!h) return;
    pl_lock_enter(h->lock);
    h->over = true;
    http_wake(h); /* a server cannot be stopped while connections are suspended */
    pl_lock_leave(h->lock);
    pl_httpd_stop(h->httpd);
    pl_lock_free(h->lock);
    free(h);
}

#else

int pl_http_open(const char *what, const char *address, pl_http_page *page, void *ctx,
                 struct pl_http **out, struct pl_why *why) {
    (void)address, (void)page, (void)ctx, (void)out;
    return pl_fail(why, PL_EMISSING,
                   "this build cannot serve %s: it has no libmicrohttpd; install "
                   "the Debian package libmicrohttpd-dev and build again",
                   what);
}

int pl_http_broadcast(struct pl_http *h, const char *message) {
    (void)h, (void)message;
    return 0;
}

int pl_http_port(const struct pl_http *h) {
    (void)h;
    return 0;
}

const char *pl_http_host(const struct pl_http *h) {
    (void)h;
    return "";
}

void pl_http_close(struct pl_http *h) {
    (void)h;
}

#endif
