/* A request, from its headers to its end.
 *
 * Threads: libmicrohttpd's, which must not wait, and those of requests that do. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "run/gateway_state.h"
#include "sys/numerals.h"
#include "sys/thread.h"

#define REQUEST_TURN_NS (6 * GATEWAY_SECOND) /* for an earlier request of the same seat to end */

static enum MHD_Result request_word(struct request *r) {
    if (!r->seat->speaks) return pl_gateway_answer(r, MHD_HTTP_FORBIDDEN, GATEWAY_MUTE);
    r->text[r->body.n < sizeof r->text ? r->body.n : sizeof r->text - 1] = '\0';
    int rc = pl_client_link_say(r->seat->link, r->text, r->aside.work ? GATEWAY_SECOND : 0);
    if (rc == PL_ETIMEDOUT && !r->aside.work) return pl_gateway_aside(r, request_word);
    if (rc == PL_OK) return pl_gateway_answer(r, MHD_HTTP_ACCEPTED, "");
    if (rc == PL_EUSAGE)
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST,
                                 "a word is one line of printable characters");
    return rc == PL_ECANCELLED ? pl_gateway_answer_gone(r)
                               : pl_gateway_answer(r, MHD_HTTP_TOO_MANY_REQUESTS, "");
}

/* A result that was sent before arrives first. */
static enum MHD_Result request_leave(struct request *r) {
    struct pl_gateway *g = r->gateway;
    struct seat *s = r->seat;
    bool bad = false, waits = true;
    uint64_t task = pl_gateway_said_whole(r, PL_WIRE_TASK, UINT64_MAX, &bad), now = pl_now_ns();
    for (uint64_t end = now + GATEWAY_END_NS; task && !bad && waits && now < end;
         now = pl_now_ns()) {
        unsigned seen = atomic_load(&g->bell);
        pl_lock_enter(g->lock);
        waits = s->answered != task && s->life != SEAT_ENDED;
        pl_lock_leave(g->lock);
        if (waits) pl_futex_wait(&g->bell, seen, GATEWAY_SECOND / 20);
    }
    pl_lock_enter(g->lock);
    if (!pl_gateway_said(r, PL_WIRE_STANDBY)) pl_gateway_standby_left(s); /* it has not voted */
    pl_gateway_seat_end(s);
    pl_lock_leave(g->lock);
    return pl_gateway_answer(r, MHD_HTTP_OK, "");
}

static enum route request_route(const char *method, const char *url, const char **key, size_t *n) {
    static const struct {
        const char *method, *tail;
        enum route route;
    } table[] = {{"POST", "/next", ROUTE_NEXT},  {"GET", "/events", ROUTE_EVENTS},
                 {"POST", "/word", ROUTE_WORD},  {"GET", "/newest", ROUTE_NEWEST},
                 {"GET", "/final", ROUTE_FINAL}, {"DELETE", "", ROUTE_LEAVE}};
    size_t prefix = strlen(PL_WIRE_SEATS);
    *n = 0;
    if (strcmp(method, "GET") == 0 && strcmp(url, "/healthz") == 0) return ROUTE_HEALTH;
    if (strcmp(method, "GET") == 0 && strcmp(url, "/v1/setup") == 0) return ROUTE_SETUP;
    if (strcmp(method, "GET") == 0 && strcmp(url, PL_WIRE_COPY) == 0) return ROUTE_COPY;
    if (strcmp(method, "POST") == 0 && strcmp(url, PL_WIRE_VOTES) == 0) return ROUTE_VOTE;
    if (strcmp(method, "DELETE") == 0 && strcmp(url, PL_WIRE_VOTES) == 0) return ROUTE_RECALL;
    if (strncmp(url, PL_WIRE_SEATS, prefix) != 0) return ROUTE_NONE;
    if (!url[prefix]) return strcmp(method, "POST") == 0 ? ROUTE_JOIN : ROUTE_NONE;
    if (url[prefix] != '/') return ROUTE_NONE;
    *key = url + prefix + 1;
    *n = strcspn(*key, "/");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(method, table[i].method) == 0 && strcmp(*key + *n, table[i].tail) == 0)
            return table[i].route;
    return ROUTE_NONE;
}

/* An earlier request of the seat has ended, or was sent away. 0, or the status with which this one
 * is refused. If its turn has not come, it waits, and `turn_ns` stays. */
static unsigned request_turn(struct request *r, const char **why) {
    unsigned seen = atomic_load(&r->gateway->bell);
    *why = "another request of this client is being answered";
    if (!pl_gateway_seat_take(r->seat, r)) {
        if (pl_now_ns() >= r->turn.until_ns || atomic_load(&r->cut)) return MHD_HTTP_CONFLICT;
        pl_gateway_park(r, &r->gateway->bell, seen, GATEWAY_SECOND / 20);
        return 0;
    }
    r->turn.until_ns = 0;
    if (r->route != ROUTE_NEXT) return 0;
    r->body.into = NULL;
    *why = pl_gateway_order_begin(r);
    if (!*why) return 0;
    if (strcmp(*why, GATEWAY_MUTE) == 0) return MHD_HTTP_FORBIDDEN;
    return strstr(*why, "length") ? MHD_HTTP_CONTENT_TOO_LARGE : MHD_HTTP_BAD_REQUEST;
}

/* The headers have come. 0, or the status with which it is refused. */
static unsigned request_begin(struct request *r, const char *method, const char *url,
                              const char **why) {
    const char *key = NULL;
    size_t n;
    if ((*why = pl_gateway_stranger(r))) {
        pl_gateway_report(r, *why);
        return MHD_HTTP_FORBIDDEN;
    }
    r->route = request_route(method, url, &key, &n);
    *why = "there is nothing here";
    if (r->route == ROUTE_NONE) return MHD_HTTP_NOT_FOUND;
    *why = "this is a standby, which has not taken over";
    bool serves = r->gateway->conf.path || r->route == ROUTE_VOTE || r->route == ROUTE_RECALL ||
                  r->route == ROUTE_HEALTH;
    if (!serves) return MHD_HTTP_SERVICE_UNAVAILABLE;
    const char *length = pl_gateway_said(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    uint64_t bytes = length ? strtoull(length, NULL, 10) : 0;
    *why = "the request is too long";
    if (r->route != ROUTE_NEXT && bytes >= sizeof r->text) return MHD_HTTP_CONTENT_TOO_LARGE;
    *why = "the request must say how long it is (Content-Length)";
    if (pl_gateway_said(r, MHD_HTTP_HEADER_TRANSFER_ENCODING)) return MHD_HTTP_LENGTH_REQUIRED;
    r->body.into = r->text;
    r->body.room = (size_t)bytes;
    if (r->route == ROUTE_JOIN && pl_gateway_over(r->gateway)) return MHD_HTTP_GONE;
    if (!key) return 0;
    *why = "this seat is not known";
    if (!pl_gateway_seat_find(r, key, n))
        return pl_gateway_over(r->gateway) ? MHD_HTTP_GONE : MHD_HTTP_NOT_FOUND;
    if (r->route != ROUTE_NEXT && r->route != ROUTE_NEWEST) return 0;
    r->turn.until_ns = pl_now_ns() + REQUEST_TURN_NS;
    return request_turn(r, why);
}

static enum MHD_Result request_end(struct request *r) {
    switch (r->route) {
    case ROUTE_JOIN: return pl_gateway_aside(r, pl_gateway_join);
    case ROUTE_NEXT: return pl_gateway_order_next(r);
    case ROUTE_EVENTS: return pl_gateway_events(r);
    case ROUTE_WORD: return request_word(r);
    case ROUTE_NEWEST: return pl_gateway_aside(r, pl_gateway_order_newest);
    case ROUTE_FINAL: return pl_gateway_answer_final(r);
    case ROUTE_LEAVE: return pl_gateway_aside(r, request_leave);
    case ROUTE_SETUP:
        return r->gateway->conf.setup ? pl_gateway_answer(r, MHD_HTTP_OK, r->gateway->conf.setup)
                                      : pl_gateway_answer(r, MHD_HTTP_NOT_FOUND, "there is none");
    case ROUTE_COPY: return pl_gateway_aside(r, pl_gateway_standby);
    case ROUTE_VOTE:
    case ROUTE_RECALL: return pl_gateway_vote(r);
    case ROUTE_HEALTH: return pl_gateway_answer(r, MHD_HTTP_OK, "ok\n");
    case ROUTE_NONE: break;
    }
    return MHD_NO;
}

/* A connection that is cut is noticed 3 s after the next beat was sent, or 5 s after the last. */
static void request_watch(int fd) {
    int on = 1, idle = 2, interval = 1, count = 3, ms = 3000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static struct request *request_new(struct pl_gateway *g, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->gateway = g;
    r->connection = connection;
    r->fd = info ? info->connect_fd : -1;
    request_watch(r->fd);
    pl_lock_enter(g->lock);
    r->next = g->requests;
    if (r->next) r->next->previous = r;
    g->requests = r;
    pl_lock_leave(g->lock);
    struct epoll_event closed = {.events = EPOLLRDHUP, .data = {.fd = r->fd}};
    epoll_ctl(g->poll, EPOLL_CTL_ADD, r->fd, &closed);
    return r;
}

/* Its connection was closed in the middle of its body. */
static void request_broke_off(const struct request *r) {
    char what[100];
    snprintf(what, sizeof what, "it broke off after %zu of %zu bytes", r->body.n, r->body.room);
    pl_gateway_report_request(r, what);
}

void pl_gateway_request_done(void *cls, struct MHD_Connection *connection, void **context,
                             enum MHD_RequestTerminationCode code) {
    struct pl_gateway *g = cls;
    struct request *r = *context;
    (void)connection;
    if (!r) return;
    struct seat *s = r->seat, *over = NULL;
    pl_thread_join(r->aside.thread);
    if (r->aside.reply) MHD_destroy_response(r->aside.reply); /* nobody is there to hear it */
    if (!r->answered && r->body.n < r->body.room) request_broke_off(r);
    pl_lock_enter(g->lock);
    epoll_ctl(g->poll, EPOLL_CTL_DEL, r->fd, NULL);
    if (r->next) r->next->previous = r->previous;
    if (r->previous)
        r->previous->next = r->next;
    else
        g->requests = r->next;
    if (r->follows) pl_gateway_standby_done(r);
    if (s) {
        s->n_requests--;
        s->presence.seen_ns = pl_now_ns();
        if (r->returns && code != MHD_REQUEST_TERMINATED_COMPLETED_OK) s->presence.back_ns = 0;
        if (s->has == r) s->has = NULL;
        over = pl_gateway_seat_remove(g, s);
    }
    pl_lock_leave(g->lock);
    if (over) pl_gateway_seat_free(over);
    free(r->absent);
    free(r);
    *context = NULL;
    pl_gateway_ring(g);
}

/* A part of the body. libmicrohttpd takes no answer in the middle of one, so a client that cannot
 * be served is disconnected. */
static enum MHD_Result request_body(struct request *r, const char *data, size_t n) {
    const struct pl_gateway_conf *conf = &r->gateway->conf;
    struct request_body *b = &r->body;
    uint64_t now = pl_now_ns();
    if (!b->since_ns) b->since_ns = now;
    b->n_came += n;
    if (pl_gateway_is_slow(b->n_came, now - b->since_ns,
                           conf->slow_ns ? conf->slow_ns : PL_GATEWAY_SLOW_NS)) {
        pl_gateway_report_request(r, "it comes at less than 4 kB per second");
        return MHD_NO;
    }
    if (r->turn.refusal) return MHD_YES;
    if (n > b->room - b->n) return MHD_NO;
    if (b->into) memcpy(b->into + b->n, data, n);
    b->n += n;
    return MHD_YES;
}

enum MHD_Result pl_gateway_request(void *cls, struct MHD_Connection *connection, const char *url,
                                   const char *method, const char *version, const char *data,
                                   size_t *data_size, void **context) {
    PL_NUMERALS; /* the thread is not ours */
    struct request *r = *context;
    (void)version;
    if (!r) {
        const char *why;
        if (!(r = *context = request_new(cls, connection))) return MHD_NO;
        unsigned status = request_begin(r, method, url, &why);
        if (status == MHD_HTTP_GONE) return pl_gateway_answer_gone(r);
        return status ? pl_gateway_answer(r, status, why) : MHD_YES;
    }
    if (r->aside.reply) return pl_gateway_answer_reply(r);
    /* a server that is being stopped queues no answers, and goes on with the request */
    if (r->answered) return MHD_NO;
    struct request_turn *turn = &r->turn;
    if (turn->until_ns && (turn->refusal = request_turn(r, &turn->why))) turn->until_ns = 0;
    if (turn->until_ns) return MHD_YES;
    if (*data_size > 0) {
        size_t n = *data_size;
        *data_size = 0;
        return request_body(r, data, n);
    }
    return turn->refusal ? pl_gateway_answer(r, turn->refusal, turn->why) : request_end(r);
}
