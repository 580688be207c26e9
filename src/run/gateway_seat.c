/* What a client has between its requests.
 *
 * Threads: any of the gateway; see gateway_state.h. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "run/gateway_state.h"

#define SEAT_BACK_NS (10 * GATEWAY_SECOND)  /* for one who is back to ask for its events */
#define SEAT_LEAST_NS (10 * GATEWAY_SECOND) /* without a connection, before a seat is taken, */
#define SEAT_MOST_NS (120 * GATEWAY_SECOND) /* and at most; */
#define SEAT_TOLD_NS (600 * GATEWAY_SECOND) /* if the server knows, and decides itself */

void pl_gateway_seat_free(struct seat *s) {
    pl_shm.link.detach(s->link);
    free(s->farewell);
    free(s->room);
    free(s);
}

/* Takes it out of the list if it has ended and nobody knows it. The caller has the lock, and frees
 * what is returned after it has left it. */
struct seat *pl_gateway_seat_remove(struct pl_gateway *g, struct seat *s) {
    if (s->life != SEAT_ENDED || s->n_requests > 0) return NULL;
    for (struct seat **at = &g->seats; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            return s;
        }
    return NULL;
}

/* Ends whatever waits for it. The caller has the lock. */
void pl_gateway_seat_end(struct seat *s) {
    s->life = SEAT_ENDED;
    pl_client_link_interrupt(s->link);
}

void pl_gateway_seat_told(struct seat *s) {
    if (!s->asks_final) s->told = true;
}

bool pl_gateway_seat_counts(const struct seat *s) {
    return s->kind == PL_CLIENT_WORKER && s->life == SEAT_HELD;
}

int pl_gateway_seats(const struct pl_gateway *g) {
    int n = 0;
    for (const struct seat *s = g->seats; s; s = s->next) n += pl_gateway_seat_counts(s);
    return n;
}

bool pl_gateway_seat_find(struct request *r, const char *key, size_t n) {
    struct pl_gateway *g = r->gateway;
    struct seat *found = NULL;
    if (n != PL_WIRE_KEY) return false;
    pl_lock_enter(g->lock);
    for (struct seat *s = g->seats; s && !found; s = s->next)
        if (memcmp(s->key, key, n) == 0 && strcmp(s->name, r->name) == 0 && s->life != SEAT_ENDED)
            found = s;
    if (found) {
        struct seat_presence *p = &found->presence;
        uint64_t silent = found->n_requests ? 0 : pl_now_ns() - p->seen_ns;
        if (silent > p->longest_ns) p->longest_ns = silent;
        found->n_requests++;
        r->returns = p->state == PRESENCE_AWAY && r->route != ROUTE_EVENTS;
        if (r->returns) p->back_ns = pl_now_ns() + SEAT_BACK_NS;
    }
    r->seat = found; /* the watch reads it */
    pl_lock_leave(g->lock);
    return found != NULL;
}

/* If it was away, it is until the watch has found it here. */
void pl_gateway_seat_listens(struct seat *s) {
    struct seat_presence *p = &s->presence;
    if (p->state == PRESENCE_UNKNOWN) p->state = PRESENCE_HERE;
    p->back_ns = 0;
}

/* How long it may be without a connection. */
uint64_t pl_gateway_seat_patience(const struct seat *s) {
    uint64_t ns = 3 * s->presence.longest_ns;
    if (s->presence.told_away) return SEAT_TOLD_NS;
    return ns < SEAT_LEAST_NS ? SEAT_LEAST_NS : ns > SEAT_MOST_NS ? SEAT_MOST_NS : ns;
}

/* One that waits without a thread leaves the link alone from now on. */
bool pl_gateway_seat_take(struct seat *s, struct request *r) {
    struct pl_gateway *g = s->gateway;
    pl_lock_enter(g->lock);
    struct request *earlier = s->has != r ? s->has : NULL;
    bool sent_away = earlier && earlier->order.waits;
    if (sent_away) {
        atomic_store(&earlier->cut, true);
        pl_client_link_interrupt(s->link);
    }
    bool mine = !earlier || (sent_away && earlier->park.parked);
    if (mine) s->has = r;
    pl_lock_leave(g->lock);
    if (sent_away) pl_gateway_look(g);
    return mine;
}
