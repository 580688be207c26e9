/* Watches the connections of requests that wait, and the seats of clients that have none.
 *
 * Threads: its own, pl_gateway_watch(). */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "run/gateway_state.h"

#define WATCH_EVENTS 64
#define WATCH_REOPENS_NS (GATEWAY_SECOND / 50) /* for a new connection in place of the old one */

/* Until when a client without a connection is not away. The caller has the lock. */
static uint64_t watch_until(const struct seat *s) {
    const struct seat_presence *p = &s->presence;
    uint64_t reopens = p->seen_ns + WATCH_REOPENS_NS;
    return p->back_ns > reopens ? p->back_ns : reopens;
}

/* Notes whether the client of a seat has a connection, if it asks for its events. Returns whether
 * that has changed. The caller has the lock. */
static bool watch_moved(const struct pl_gateway *g, struct seat *s, uint64_t now) {
    if (s->presence.state == PRESENCE_UNKNOWN) return false;
    bool away = s->n_requests == 0 && s->life == SEAT_HELD && !g->over && now >= watch_until(s);
    enum presence before = s->presence.state;
    s->presence.state = away ? PRESENCE_AWAY : PRESENCE_HERE;
    return s->presence.state != before;
}

/* Marks the requests whose connections were closed, and ends the seats of clients that have been
 * away for too long. Those that the server gave up wait for a client that may never ask: of more
 * than there are places, the oldest end. Returns when to look again. */
static uint64_t watch_seats(struct pl_gateway *g, struct seat **away) {
    uint64_t now = pl_now_ns(), until = now + 10 * GATEWAY_SECOND;
    pl_lock_enter(g->lock);
    struct seat *next = NULL;
    bool moved = false, fewer = false;
    int n_given_up = 0; /* the newest come first */
    for (struct seat *s = g->seats; s; s = next) {
        next = s->next;
        moved |= watch_moved(g, s, now);
        if (s->n_requests > 0) continue;
        if (s->life == SEAT_HELD && !g->over && pl_client_link_hung_up(s->link)) {
            s->life = SEAT_GIVEN_UP;
            fewer = true;
        }
        uint64_t sure = watch_until(s), end = s->presence.seen_ns + pl_gateway_seat_patience(s);
        if (s->presence.state != PRESENCE_UNKNOWN && sure > now && sure < until) until = sure;
        if (s->life == SEAT_GIVEN_UP && ++n_given_up > g->conf.n_clients) end = now;
        if (end <= now) s->life = SEAT_ENDED;
        struct seat *gone = pl_gateway_seat_remove(g, s);
        if (gone) {
            gone->next = *away;
            *away = gone;
        } else if (end < until) {
            until = end;
        }
    }
    pl_lock_leave(g->lock);
    if (fewer) pl_gateway_ring(g);
    if (moved) atomic_store(&g->moved, true);
    if (moved && g->conf.moved) g->conf.moved(g->conf.moved_ctx);
    return until - now;
}

/* A connection was closed; its number may be another one's by now. */
static void watch_cut(struct pl_gateway *g, int fd) {
    struct pollfd now = {.fd = fd, .events = POLLRDHUP};
    pl_lock_enter(g->lock);
    for (struct request *r = g->requests; r; r = r->next) {
        if (r->fd != fd || poll(&now, 1, 0) <= 0) continue;
        epoll_ctl(g->poll, EPOLL_CTL_DEL, fd, NULL);
        atomic_store(&r->cut, true);
        if (r->returns && r->order.waits)
            r->seat->presence.back_ns = 0; /* it came after its client had gone */
        if (r->seat) pl_client_link_interrupt(r->seat->link);
    }
    pl_lock_leave(g->lock);
}

/* Ends the seats of those who have been away for too long, and connections without requests.
 * Returns after how long to do so again. */
static uint64_t watch_tidy(struct pl_gateway *g) {
    struct seat *away = NULL;
    uint64_t ns = watch_seats(g, &away), now = pl_now_ns(), soon = pl_gateway_standby_look(g, now);
    if (now >= g->tidy_ns) {
        pl_httpd_tidy(g->httpd, 2 * g->conf.timeout_s * GATEWAY_SECOND);
        g->tidy_ns = now + GATEWAY_SECOND;
    }
    bool over = pl_gateway_over(g);
    while (away) {
        struct seat *next = away->next;
        if (!away->told && !over)
            pl_log_detail(g->conf.log, "worker %d has been away for too long", /* or evaluator */
                          away->worker + 1);
        pl_gateway_seat_free(away);
        away = next;
    }
    return soon < ns ? soon : ns;
}

/* When it looks again. Returns whether the gateway is closed. */
static bool watch_looks(struct pl_gateway *g, uint64_t when_ns) {
    pl_lock_enter(g->lock);
    g->look_ns = when_ns;
    bool closed = g->closed;
    pl_lock_leave(g->lock);
    return closed;
}

void pl_gateway_watch(void *arg) {
    struct pl_gateway *g = arg;
    struct epoll_event event[WATCH_EVENTS];
    uint64_t count;
    for (bool closed = false; !closed;) {
        watch_looks(g, UINT64_MAX); /* a request that parks from now on rings */
        uint64_t soon = pl_gateway_unpark(g), ns = watch_tidy(g);
        if (soon < ns) ns = soon;
        closed = watch_looks(g, pl_now_ns() + ns);
        int n = closed ? 0 : epoll_wait(g->poll, event, WATCH_EVENTS, (int)(ns / 1000000) + 1);
        for (int i = 0; i < n; i++)
            if (event[i].data.fd != g->wake)
                watch_cut(g, event[i].data.fd);
            else if (read(g->wake, &count, sizeof count) < 0)
                count = 0; /* another look has taken it */
    }
}
