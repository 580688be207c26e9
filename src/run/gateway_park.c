/* Requests that wait. Their connections are suspended meanwhile, so a worker that waits has no
 * thread. What takes its time in another way, such as joining, has one until it is done.
 *
 * Threads: any of the gateway; see gateway_state.h. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "run/gateway_state.h"
#include "sys/thread.h"

/* Events go on if there is news of the standby, too. The caller has the lock. */
static bool park_over(const struct request *r, uint64_t now) {
    bool news = r->route == ROUTE_EVENTS && r->events.standby != r->gateway->standby.change;
    const struct request_park *p = &r->park;
    return news || r->gateway->closed || now >= p->until_ns || atomic_load(p->word) != p->seen;
}

enum MHD_Result pl_gateway_park(struct request *r, atomic_uint *word, unsigned seen, uint64_t ns) {
    struct pl_gateway *g = r->gateway;
    struct request_park *p = &r->park;
    uint64_t now = pl_now_ns();
    MHD_suspend_connection(r->connection);
    pl_lock_enter(g->lock);
    p->word = word;
    p->seen = seen;
    p->until_ns = now + ns;
    if (ns >= GATEWAY_SECOND) p->until_ns = GATEWAY_TOGETHER(p->until_ns);
    p->parked = !park_over(r, now);
    bool stays = p->parked, sooner = p->until_ns < g->look_ns;
    pl_lock_leave(g->lock);
    /* from here on another thread may have the request, if it stays */
    if (!stays)
        MHD_resume_connection(r->connection);
    else if (sooner)
        pl_gateway_look(g);
    return MHD_YES;
}

uint64_t pl_gateway_unpark(struct pl_gateway *g) {
    struct request *woken = NULL;
    uint64_t now = pl_now_ns(), next = UINT64_MAX;
    pl_lock_enter(g->lock);
    for (struct request *r = g->requests; r; r = r->next) {
        struct request_park *p = &r->park;
        if (!p->parked) continue;
        p->parked = !park_over(r, now);
        if (p->parked) {
            next = p->until_ns < next ? p->until_ns : next;
        } else {
            p->woken = woken;
            woken = r;
        }
    }
    pl_lock_leave(g->lock);
    while (woken) { /* none of them ends before it was resumed */
        struct request *r = woken;
        woken = r->park.woken;
        MHD_resume_connection(r->connection);
    }
    return next == UINT64_MAX ? next : next - now;
}

static void park_mark(struct request *r, bool aside) {
    pl_lock_enter(r->gateway->lock);
    r->aside.runs = aside;
    pl_lock_leave(r->gateway->lock);
}

static void park_aside(void *arg) {
    struct request *r = arg;
    r->aside.work(r);
    MHD_resume_connection(r->connection);
    park_mark(r, false); /* its end waits for this thread */
}

enum MHD_Result pl_gateway_aside(struct request *r, enum MHD_Result (*work)(struct request *r)) {
    r->aside.work = work;
    park_mark(r, true);
    MHD_suspend_connection(r->connection);
    if (!pl_thread_start(park_aside, r, &r->aside.thread)) return MHD_YES;
    MHD_resume_connection(r->connection);
    park_mark(r, false);
    r->aside.work = NULL;
    return pl_gateway_answer(r, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}
