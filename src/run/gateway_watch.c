/* Watches the connections of requests that wait, and the seats of clients that have none.
 *
 * Threads: its own, pl_gateway_watch(). */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "run/gateway_state.h"
#include "sys/httpd.h"

/* Notes whether the client of a seat has a connection. One that never asked for its events has none
 * while it computes. The caller has the lock. */
static bool watch_moved(const struct pl_gateway *g, struct seat *s) {
    bool away = s->listened && s->n_requests == 0 && !s->ended && !g->over;
    bool moved = away != s->away;
    s->away = away;
    return moved;
}

/* Marks the requests whose connections were closed, and ends the seats of clients that have been
 * away for too long. Returns when to look again. */
static uint64_t watch_seats(struct pl_gateway *g, struct seat **away) {
    uint64_t now = pl_now_ns(), until = now + 10 * GATEWAY_SECOND;
    pl_lock_enter(g->lock);
    struct seat *next = NULL;
    bool moved = false;
    for (struct seat *s = g->seats; s; s = next) {
        next = s->next;
        moved |= watch_moved(g, s);
        if (s->n_requests > 0) continue;
        uint64_t end = s->seen_ns + pl_gateway_seat_patience(s);
        if (end <= now) s->ended = true;
        struct seat *gone = pl_gateway_seat_remove(g, s);
        if (gone) {
            gone->next = *away;
            *away = gone;
        } else if (end < until) {
            until = end;
        }
    }
    pl_lock_leave(g->lock);
    if (moved) atomic_store(&g->moved, true);
    if (moved && g->conf.moved) g->conf.moved(g->conf.moved_ctx);
    return until - now;
}

/* Fills in what to poll; grows the array. */
static nfds_t watch_gather(struct pl_gateway *g, struct pollfd **polled, size_t *room) {
    nfds_t n = 1;
    pl_lock_enter(g->lock);
    for (struct request *r = g->requests; r; r = r->next) {
        if (n == *room) {
            struct pollfd *more = realloc(*polled, 2 * *room * sizeof *more);
            if (!more) break;
            *polled = more;
            *room *= 2;
        }
        if (r->fd >= 0 && !atomic_load(&r->cut))
            (*polled)[n++] = (struct pollfd){.fd = r->fd, .events = POLLRDHUP};
    }
    pl_lock_leave(g->lock);
    return n;
}

/* A connection was closed; its number may be another one's by now. */
static void watch_cut(struct pl_gateway *g, int fd) {
    struct pollfd now = {.fd = fd, .events = POLLRDHUP};
    pl_lock_enter(g->lock);
    for (struct request *r = g->requests; r; r = r->next) {
        if (r->fd != fd || poll(&now, 1, 0) <= 0) continue;
        atomic_store(&r->cut, true);
        if (r->seat) pl_client_link_interrupt(r->seat->link);
    }
    pl_lock_leave(g->lock);
}

void pl_gateway_watch(void *arg) {
    struct pl_gateway *g = arg;
    size_t room = 64;
    uint64_t tidy_ns = 0;
    struct pollfd *polled = calloc(room, sizeof *polled);
    for (bool closed = !polled; !closed;) {
        struct seat *away = NULL;
        uint64_t ns = watch_seats(g, &away), count, soon = pl_gateway_standby_look(g, pl_now_ns());
        if (soon < ns) ns = soon;
        if (pl_now_ns() >= tidy_ns) {
            pl_httpd_tidy(g->httpd, 2 * GATEWAY_TIMEOUT_S * GATEWAY_SECOND);
            tidy_ns = pl_now_ns() + GATEWAY_SECOND;
        }
        while (away) {
            struct seat *next = away->next;
            pl_log_detail(g->conf.log, "worker %d has been away for too long", /* or evaluator */
                          away->welcome.worker + 1);
            pl_gateway_seat_free(away);
            away = next;
        }
        polled[0] = (struct pollfd){.fd = g->wake, .events = POLLIN};
        nfds_t n = watch_gather(g, &polled, &room);
        if (poll(polled, n, (int)(ns / 1000000) + 1) > 0) {
            if (polled[0].revents && read(g->wake, &count, sizeof count) < 0) count = 0;
            for (nfds_t i = 1; i < n; i++)
                if (polled[i].revents) watch_cut(g, polled[i].fd);
        }
        pl_lock_enter(g->lock);
        closed = g->closed;
        pl_lock_leave(g->lock);
    }
    free(polled);
}
