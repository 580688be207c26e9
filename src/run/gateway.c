#define _GNU_SOURCE
#include "run/gateway.h"

#ifdef PL_HAVE_GATEWAY

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "run/gateway_state.h"
#include "sys/certificates.h"
#include "sys/thread.h"

/* A vector is encrypted at the speed of the cipher: the fastest comes first, whatever order the
 * client has. */
#define GATEWAY_TLS                                                                                \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:"      \
    "%SERVER_PRECEDENCE"
#define GATEWAY_TIMEOUT_S 10u
#define GATEWAY_PER_ADDRESS 1024u
/* Connections stay with the thread that took them, whichever that was: with several for each
 * worker, vectors that arrive at the same time seldom wait for each other. */
#define GATEWAY_SPREAD 4u
#define GATEWAY_THREADS 32u /* at most */
/* Bytes of a connection, for the headers of a request and the next part of its body: the fewer of
 * them there can be, the more each has, because large parts take fewer calls of the system. */
#define GATEWAY_ALL (32u * 1024 * 1024) /* of all that are expected together, */
#define GATEWAY_LEAST (16u * 1024)      /* but each at least, */
#define GATEWAY_MOST (512u * 1024)      /* and at most */
#define GATEWAY_PEM (64 * 1024)

void pl_gateway_look(struct pl_gateway *g) {
    uint64_t one = 1;
    if (write(g->wake, &one, sizeof one) < 0) return; /* it looks already */
}

void pl_gateway_ring(struct pl_gateway *g) {
    pl_futex_ring(&g->bell);
    pl_gateway_look(g);
}

bool pl_gateway_over(struct pl_gateway *g) {
    pl_lock_enter(g->lock);
    bool over = g->over;
    pl_lock_leave(g->lock);
    return over;
}

/* Warns, but once of what begins with the same `n` characters, and not of everybody who knocks. */
static void gateway_warn(struct pl_gateway *g, const char *what, size_t n) {
    pl_lock_enter(g->lock);
    int i = 0;
    while (i < g->n_reports && strncmp(g->report[i], what, n) != 0) i++;
    bool again = i < g->n_reports || g->n_reports == GATEWAY_REPORTS || g->over;
    if (!again) snprintf(g->report[g->n_reports++], sizeof g->report[i], "%s", what);
    pl_lock_leave(g->lock);
    if (!again)
        pl_log_warn(g->conf.log, "%s%s", what,
                    i == GATEWAY_REPORTS - 1 ? "; further ones will not be reported" : "");
}

/* "NAME at ADDRESS FATE: what". Returns the length of the part before `what`. */
static size_t gateway_sentence(const struct request *r, const char *fate, const char *what,
                               char out[GATEWAY_REPORT]) {
    char from[PL_PEER_MAX];
    pl_httpd_peer(r->connection, from);
    const char *name = r->name[0] ? r->name : "a client";
    int n = snprintf(out, GATEWAY_REPORT, "%.100s at %s %s: ", name, from, fate);
    pl_append(out, GATEWAY_REPORT, "%.200s", what);
    return (size_t)n;
}

void pl_gateway_report(const struct request *r, const char *what) {
    char text[GATEWAY_REPORT];
    gateway_sentence(r, "was refused", what, text);
    gateway_warn(r->gateway, text, strlen(text));
}

void pl_gateway_report_request(const struct request *r, const char *what) {
    char text[GATEWAY_REPORT];
    size_t same = gateway_sentence(r, "sent a request that cannot be used", what, text);
    gateway_warn(r->gateway, text, same);
}

/* The client has no TLS, or does not trust this server, or was only scanning ports. */
static void gateway_silent(void *ctx, const char *from) {
    struct pl_gateway *g = ctx;
    char what[PL_PEER_MAX + 120];
    snprintf(what, sizeof what, "a connection from %s ended before it asked for anything%s", from,
             g->conf.keys ? "; does its client have certificates of this authority?" : "");
    gateway_warn(g, what, strlen(what));
}

static int gateway_read(const char *folder, const char *name, bool secret, char **out,
                        struct pl_why *why) {
    char path[500];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (secret && pl_certificates_private(path, why)) return PL_EUSAGE;
    FILE *f = fopen(path, "r");
    if (!f) return pl_fail(why, PL_EIO, "cannot read '%.300s': %s", path, strerror(errno));
    *out = calloc(1, GATEWAY_PEM);
    size_t n = *out ? fread(*out, 1, GATEWAY_PEM - 1, f) : 0;
    fclose(f);
    if (n == GATEWAY_PEM - 1) return pl_fail(why, PL_EDATA, "'%.300s' is too long", path);
    return n > 0 ? PL_OK : pl_fail(why, PL_EDATA, "'%.300s' is empty", path);
}

/* Reads the list of names that may join. Without a list everybody may; a list that is empty or
 * cannot be read is an error, so that a mistake does not let everybody in. */
static int gateway_list(struct pl_gateway *g, struct pl_why *why) {
    char path[500];
    snprintf(path, sizeof path, "%s/allowed", g->conf.keys);
    if (access(path, F_OK) && errno == ENOENT) return PL_OK;
    return gateway_read(g->conf.keys, "allowed", false, &g->allowed, why);
}

static int gateway_keys(struct pl_gateway *g, struct pl_why *why) {
    const char *folder = g->conf.keys;
    if (!folder) return PL_OK;
    int rc = gateway_read(folder, "ca.pem", false, &g->pem[0], why);
    if (!rc) rc = gateway_read(folder, "server.pem", false, &g->pem[1], why);
    if (!rc) rc = gateway_read(folder, "server-key.pem", true, &g->pem[2], why);
    return rc ? rc : gateway_list(g, why);
}

static int gateway_start(struct pl_gateway *g, const struct pl_address *a, struct pl_why *why) {
    /* poll, because with epoll a connection that is closed during its body is not noticed; those
     * that wait are in neither */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    unsigned threads = GATEWAY_SPREAD * (unsigned)g->conf.n_clients;
    if (threads > GATEWAY_THREADS) threads = GATEWAY_THREADS;
    if (threads < GATEWAY_SPREAD) threads = GATEWAY_SPREAD;
    unsigned expected = 3 * (unsigned)g->conf.n_clients + 64;
    unsigned each = expected < GATEWAY_PER_ADDRESS ? expected : GATEWAY_PER_ADDRESS;
    unsigned room = expected + each; /* what one address cannot take is enough for all others */
    unsigned memory = GATEWAY_ALL / expected;
    if (memory < GATEWAY_LEAST) memory = GATEWAY_LEAST;
    if (memory > GATEWAY_MOST) memory = GATEWAY_MOST;
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, each, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, g->conf.timeout_s, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory, NULL},
        {MHD_OPTION_THREAD_POOL_SIZE, threads, NULL},
        {MHD_OPTION_LISTENING_ADDRESS_REUSE, 1, NULL},
        {g->conf.keys ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, g->pem[0]},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, g->pem[1]},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, g->pem[2]},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, GATEWAY_TLS},
        {MHD_OPTION_END, 0, NULL},
    };
    struct pl_httpd_conf conf = {.flags = flags | (g->conf.keys ? MHD_USE_TLS : 0u),
                                 .request = pl_gateway_request,
                                 .done = pl_gateway_request_done,
                                 .silent = gateway_silent,
                                 .ctx = g,
                                 .room = room,
                                 .socket = g->conf.socket,
                                 .options = options};
    return pl_httpd_start(&conf, a, &g->httpd, why);
}

int pl_gateway_open(const struct pl_gateway_conf *conf, struct pl_gateway **out,
                    struct pl_why *why) {
    struct pl_address a;
    if (!pl_address_split(conf->address, &a))
        return pl_fail(why, PL_EUSAGE, "'%.200s' is not an address; write HOST:PORT",
                       conf->address);
    struct pl_gateway *g = calloc(1, sizeof *g);
    if (!g) return pl_fail(why, PL_ENOMEM, "out of memory");
    g->conf = *conf;
    if (!g->conf.run) g->conf.run = "";
    if (!g->conf.timeout_s) g->conf.timeout_s = GATEWAY_TIMEOUT_S;
    g->standby.has = PL_NO_COPY;
    g->lock = pl_lock_new();
    g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    g->poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event woken = {.events = EPOLLIN, .data = {.fd = g->wake}};
    bool ready = g->lock && g->wake >= 0 && g->poll >= 0 &&
                 !epoll_ctl(g->poll, EPOLL_CTL_ADD, g->wake, &woken) &&
                 pl_gateway_secret(g->secret);
    int rc = ready ? gateway_keys(g, why) : pl_fail(why, PL_ENOMEM, "out of memory");
    if (!rc) rc = gateway_start(g, &a, why);
    if (!rc && pl_thread_start(pl_gateway_watch, g, &g->watch))
        rc = pl_fail(why, PL_ENOMEM, "cannot start a thread");
    if (rc)
        pl_gateway_close(g);
    else
        *out = g;
    return rc;
}

int pl_gateway_port(const struct pl_gateway *g) {
    return g ? pl_httpd_port(g->httpd) : 0;
}

int pl_gateway_socket(const struct pl_gateway *g) {
    return g ? pl_httpd_socket(g->httpd) : -1;
}

uint64_t pl_gateway_seen(const struct pl_gateway *g) {
    uint64_t first = 0, second = 0;
    pl_lock_enter(g->lock);
    for (const struct seat *s = g->seats; s; s = s->next) {
        if (s->kind != PL_CLIENT_WORKER || s->seen <= second) continue;
        second = s->seen < first ? s->seen : first;
        if (s->seen > first) first = s->seen;
    }
    pl_lock_leave(g->lock);
    bool plausible = first - second <= (uint64_t)g->conf.n_clients;
    return g->conf.n_clients == 1 || plausible ? first : second;
}

bool pl_gateway_moved(struct pl_gateway *g, struct pl_gateway_move *out) {
    bool found = false;
    if (!atomic_exchange(&g->moved, false)) return false;
    pl_lock_enter(g->lock);
    for (struct seat *s = g->seats; s && !found; s = s->next) {
        struct seat_presence *p = &s->presence;
        bool away = p->state == PRESENCE_AWAY;
        if (!pl_gateway_seat_counts(s) || (away == p->told_away && p->told_name)) continue;
        *out = (struct pl_gateway_move){.worker = s->worker, .away = away};
        if (!p->told_name) memcpy(out->name, s->name, sizeof out->name);
        p->told_away = away;
        p->told_name = true;
        found = true;
    }
    pl_lock_leave(g->lock);
    if (found) atomic_store(&g->moved, true); /* there may be more */
    return found;
}

void pl_gateway_told(struct pl_gateway *g) {
    pl_gateway_look(g);
}

void pl_gateway_answered(struct pl_gateway *g, int worker) {
    pl_lock_enter(g->lock);
    for (struct seat *s = g->seats; s; s = s->next)
        if (s->kind == PL_CLIENT_WORKER && s->worker == worker) s->presence.told_away = false;
    pl_lock_leave(g->lock);
    atomic_store(&g->moved, true);
}

/* Whether a client may still come and learn that the run is over. One that was here a moment ago
 * has lost its connection, or opens the next one. The caller has the lock. */
static bool gateway_busy(const struct pl_gateway *g, uint64_t now) {
    for (const struct seat *s = g->seats; s; s = s->next)
        if (!s->told && s->life != SEAT_ENDED && now < s->presence.seen_ns + GATEWAY_END_NS)
            return true;
    const struct standby *s = &g->standby; /* it asks again when it has copied the last answer */
    if (s->state != STANDBY_NONE && !s->told && now < s->seen_ns + GATEWAY_END_NS) return true;
    return g->requests != NULL;
}

/* For how long clients may take to learn that the run is over, and to get the final version. */
static uint64_t gateway_end_ns(struct pl_gateway *g) {
    uint64_t bytes = 0;
    pl_lock_enter(g->lock);
    for (const struct seat *s = g->seats; s; s = s->next)
        if (s->asks_final) bytes += s->dim * sizeof(float);
    pl_lock_leave(g->lock);
    return GATEWAY_END_NS + bytes / (GATEWAY_FINAL_RATE / 1000) * (GATEWAY_SECOND / 1000);
}

/* libmicrohttpd must not be stopped while connections are suspended. Nothing is parked any more;
 * what has a thread of its own ends soon. */
static void gateway_settle(struct pl_gateway *g) {
    if (!g->lock) return;
    pl_gateway_unpark(g);
    for (bool aside = true; aside;) {
        unsigned seen = atomic_load(&g->bell);
        aside = false;
        pl_lock_enter(g->lock);
        for (struct request *r = g->requests; r && !aside; r = r->next) aside = r->aside.runs;
        pl_lock_leave(g->lock);
        if (aside) pl_futex_wait(&g->bell, seen, GATEWAY_SECOND / 20);
    }
}

void pl_gateway_close(struct pl_gateway *g) {
    if (!g) return;
    uint64_t now = pl_now_ns(), end = g->lock ? now + gateway_end_ns(g) : now;
    bool busy = g->lock != NULL;
    while (busy && now < end) {
        unsigned seen = atomic_load(&g->bell);
        pl_lock_enter(g->lock);
        g->over = true;
        busy = gateway_busy(g, now);
        for (struct seat *s = g->seats; s; s = s->next) pl_client_link_interrupt(s->link);
        pl_lock_leave(g->lock);
        pl_gateway_look(g);
        if (busy) pl_futex_wait(&g->bell, seen, GATEWAY_SECOND / 20);
        now = pl_now_ns();
    }
    if (g->lock) {
        pl_lock_enter(g->lock);
        g->closed = true;
        for (struct request *r = g->requests; r; r = r->next) atomic_store(&r->cut, true);
        for (struct seat *s = g->seats; s; s = s->next) pl_gateway_seat_end(s);
        pl_lock_leave(g->lock);
        pl_gateway_ring(g);
    }
    pl_thread_join(g->watch);
    gateway_settle(g);
    pl_httpd_stop(g->httpd);
    while (g->seats) {
        struct seat *s = g->seats;
        g->seats = s->next;
        pl_gateway_seat_free(s);
    }
    pl_gateway_give_copy(g, NULL);
    pl_gateway_votes_free(g);
    for (int i = 0; i < 3; i++) free(g->pem[i]);
    free(g->allowed);
    if (g->wake >= 0) close(g->wake);
    if (g->poll >= 0) close(g->poll);
    pl_lock_free(g->lock);
    free(g);
}

#else

int pl_gateway_open(const struct pl_gateway_conf *conf, struct pl_gateway **out,
                    struct pl_why *why) {
    (void)conf, (void)out;
    return pl_fail(why, PL_EMISSING,
                   "this build cannot serve clients over HTTP; install the Debian packages "
                   "libmicrohttpd-dev and libgnutls28-dev and build again");
}

int pl_gateway_port(const struct pl_gateway *g) {
    (void)g;
    return 0;
}

int pl_gateway_socket(const struct pl_gateway *g) {
    (void)g;
    return -1;
}

uint64_t pl_gateway_seen(const struct pl_gateway *g) {
    (void)g;
    return 0;
}

bool pl_gateway_is_held(struct pl_gateway *g) {
    (void)g;
    return false;
}

bool pl_gateway_moved(struct pl_gateway *g, struct pl_gateway_move *out) {
    (void)g, (void)out;
    return false;
}

void pl_gateway_told(struct pl_gateway *g) {
    (void)g;
}

void pl_gateway_answered(struct pl_gateway *g, int worker) {
    (void)g, (void)worker;
}

bool pl_gateway_wants_copy(struct pl_gateway *g, uint64_t version) {
    (void)g, (void)version;
    return false;
}

void pl_gateway_give_copy(struct pl_gateway *g, struct pl_copy *copy) {
    (void)g, (void)copy;
}

void pl_gateway_follows(struct pl_gateway *g, const char *secret) {
    (void)g, (void)secret;
}

struct pl_gateway_tally pl_gateway_tally(struct pl_gateway *g, const char *run, int workers,
                                         uint64_t has) {
    (void)g, (void)run, (void)workers, (void)has;
    return (struct pl_gateway_tally){0};
}

void pl_gateway_close(struct pl_gateway *g) {
    (void)g;
}

#endif
