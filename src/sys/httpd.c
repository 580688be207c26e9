#include "sys/httpd.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/lock.h"

#define HTTPD_SECOND UINT64_C(1000000000)
#define HTTPD_STOP_NS (3 * HTTPD_SECOND) /* for all connections to end */

struct httpd_open {
    int fd;
    uint64_t since_ns; /* it has no request since then; 0: it has one */
    bool asked;        /* it has had one */
};

struct pl_httpd {
    struct pl_httpd_conf conf;
    struct MHD_Daemon *daemon;
    int port;
    atomic_uint bell; /* rung when a connection has ended */
    struct pl_lock *lock;
    struct httpd_open *open; /* [n] all connections */
    unsigned n;
};

static int httpd_socket(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

void pl_httpd_peer(struct MHD_Connection *connection, char out[PL_PEER_MAX]) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    socklen_t n =
        a && a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (!a || getnameinfo(a, n, out, PL_PEER_MAX, NULL, 0, NI_NUMERICHOST)) out[0] = '\0';
}

/* Where a connection is in the list; n if it is not. The caller has the lock. */
static unsigned httpd_find(const struct pl_httpd *h, int fd) {
    unsigned i = 0;
    while (i < h->n && h->open[i].fd != fd) i++;
    return i;
}

/* Keeps the list of connections. A socket is closed after this was called for it. */
static void httpd_connected(void *cls, struct MHD_Connection *connection, void **context,
                            enum MHD_ConnectionNotificationCode code) {
    struct pl_httpd *h = cls;
    int fd = httpd_socket(connection);
    bool silent = false;
    pl_lock_enter(h->lock);
    unsigned i = httpd_find(h, fd);
    if (code == MHD_CONNECTION_NOTIFY_STARTED && i == h->n && i < h->conf.room) {
        h->open[h->n++] = (struct httpd_open){.fd = fd, .since_ns = pl_now_ns()};
    } else if (code == MHD_CONNECTION_NOTIFY_CLOSED && i < h->n) {
        silent = !h->open[i].asked;
        h->open[i] = h->open[--h->n];
    }
    pl_lock_leave(h->lock);
    if (silent && h->conf.silent) {
        char from[PL_PEER_MAX];
        pl_httpd_peer(connection, from);
        h->conf.silent(h->conf.ctx, from);
    }
    pl_futex_ring(&h->bell);
    if (h->conf.connected) h->conf.connected(h->conf.ctx, connection, context, code);
}

static void httpd_since(struct pl_httpd *h, struct MHD_Connection *connection, uint64_t ns) {
    pl_lock_enter(h->lock);
    unsigned i = httpd_find(h, httpd_socket(connection));
    if (i < h->n) {
        h->open[i].since_ns = ns;
        h->open[i].asked = true;
    }
    pl_lock_leave(h->lock);
}

static enum MHD_Result httpd_request(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version, const char *data,
                                     size_t *size, void **context) {
    struct pl_httpd *h = cls;
    if (!*context) httpd_since(h, connection, 0);
    return h->conf.request(h->conf.ctx, connection, url, method, version, data, size, context);
}

static void httpd_done(void *cls, struct MHD_Connection *connection, void **context,
                       enum MHD_RequestTerminationCode code) {
    struct pl_httpd *h = cls;
    if (h->conf.done) h->conf.done(h->conf.ctx, connection, context, code);
    httpd_since(h, connection, pl_now_ns());
}

static void httpd_silence(void *cls, const char *fmt, va_list ap) {
    (void)cls, (void)fmt, (void)ap;
}

static int httpd_duplicate(int socket) {
    return socket > 0 ? fcntl(socket, F_DUPFD_CLOEXEC, 3) : -1;
}

static struct MHD_Daemon *httpd_try(struct pl_httpd *h, const struct addrinfo *where) {
    const struct pl_httpd_conf *c = &h->conf;
    int listens = httpd_duplicate(c->socket);
    unsigned flags = c->flags | MHD_USE_ITC | MHD_USE_ERROR_LOG;
    sigset_t all, before;
    if (where->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return NULL;
    errno = 0;
    struct MHD_Daemon *d = MHD_start_daemon(
        flags, 0, NULL, NULL, httpd_request, h, MHD_OPTION_EXTERNAL_LOGGER, httpd_silence, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, httpd_done, h, MHD_OPTION_NOTIFY_CONNECTION, httpd_connected,
        h, MHD_OPTION_SOCK_ADDR, where->ai_addr, MHD_OPTION_LISTEN_SOCKET, listens,
        MHD_OPTION_CONNECTION_LIMIT, c->room, MHD_OPTION_ARRAY, c->options, MHD_OPTION_END);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return d;
}

static int httpd_listen(struct pl_httpd *h, const struct pl_address *a, struct pl_why *why) {
    struct addrinfo *where = NULL,
                    hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    int error = getaddrinfo(a->host, a->port, &hints, &where);
    if (error)
        return pl_fail(why, PL_EIO, "unknown host '%.100s': %s", a->host, gai_strerror(error));
    for (const struct addrinfo *w = where; w && !h->daemon; w = w->ai_next)
        h->daemon = httpd_try(h, w);
    error = errno;
    freeaddrinfo(where);
    if (!h->daemon)
        return pl_fail(why, PL_EIO, "cannot listen on port %s of '%.100s': %s", a->port, a->host,
                       error                         ? strerror(error)
                       : h->conf.flags & MHD_USE_TLS ? "are the certificates sound?"
                                                     : "the server could not be started");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    h->port = info ? info->port : 0;
    return PL_OK;
}

static void httpd_free(struct pl_httpd *h) {
    pl_lock_free(h->lock);
    free(h->open);
    free(h);
}

int pl_httpd_start(const struct pl_httpd_conf *conf, const struct pl_address *where,
                   struct pl_httpd **out, struct pl_why *why) {
    struct pl_httpd *h = calloc(1, sizeof *h);
    if (!h) return pl_fail(why, PL_ENOMEM, "out of memory");
    h->conf = *conf;
    h->lock = pl_lock_new();
    h->open = calloc(conf->room, sizeof *h->open);
    int rc =
        h->lock && h->open ? httpd_listen(h, where, why) : pl_fail(why, PL_ENOMEM, "out of memory");
    if (rc)
        httpd_free(h);
    else
        *out = h;
    return rc;
}

int pl_httpd_port(const struct pl_httpd *h) {
    return h->port;
}

int pl_httpd_socket(const struct pl_httpd *h) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_LISTEN_FD);
    return info ? httpd_duplicate(info->listen_fd) : -1;
}

void pl_httpd_tidy(struct pl_httpd *h, uint64_t ns) {
    uint64_t now = pl_now_ns();
    pl_lock_enter(h->lock);
    for (unsigned i = 0; i < h->n; i++)
        if (h->open[i].since_ns > 0 && now > h->open[i].since_ns + ns)
            shutdown(h->open[i].fd, SHUT_RDWR);
    pl_lock_leave(h->lock);
}

/* libmicrohttpd 0.9.75 crashes if it is stopped while it answers a request that is no HTTP. So its
 * connections are ended first. */
void pl_httpd_stop(struct pl_httpd *h) {
    if (!h) return;
    int listens = MHD_quiesce_daemon(h->daemon);
    uint64_t start = pl_now_ns(), passed = 0;
    for (bool any = true; any && passed < HTTPD_STOP_NS; passed = pl_now_ns() - start) {
        unsigned seen = atomic_load(&h->bell);
        pl_lock_enter(h->lock);
        any = h->n > 0;
        for (unsigned i = 0; i < h->n; i++)
            shutdown(h->open[i].fd, passed < HTTPD_SECOND ? SHUT_RD : SHUT_RDWR);
        pl_lock_leave(h->lock);
        if (any) pl_futex_wait(&h->bell, seen, HTTPD_SECOND / 20);
    }
    MHD_stop_daemon(h->daemon);
    if (listens >= 0 && h->conf.socket > 0) shutdown(listens, SHUT_RDWR);
    if (listens >= 0) close(listens);
    httpd_free(h);
}
