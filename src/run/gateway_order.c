/* Orders, results, and versions for an evaluator.
 *
 * Threads: libmicrohttpd's, which must not wait; for an evaluator the request's own. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/gateway_state.h"

#define ORDER_POLL_NS (25 * GATEWAY_SECOND) /* a request for one is answered after that at last */
#define ORDER_LOOK_NS (5 * GATEWAY_SECOND)  /* in case that nobody has rung */

/* Before the body: what it must be, and where it goes. */
const char *pl_gateway_order_begin(struct request *r) {
    struct seat *s = r->seat;
    const char *length = pl_gateway_said(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (s->kind != PL_CLIENT_WORKER) return "an evaluator has no orders; ask for /newest";
    if (!pl_gateway_said_result(r)) return "a header makes no sense";
    if (r->result.sets_lr && !s->speaks) return GATEWAY_MUTE;
    if (!length) return "the length of the result is not known";
    bool usable = r->brings != RESULT_NONE && r->result.defect == PL_NO_DEFECT;
    size_t size = s->order.half_out ? sizeof(uint16_t) : sizeof(float);
    if (r->brings == RESULT_NEW && r->result.task != atomic_load(&s->task)) r->brings = RESULT_LATE;
    r->body.room = usable ? s->dim * size : 0;
    if (r->brings == RESULT_LATE) {
        size_t n = strtoull(length, NULL, 10);
        if (n > s->dim * sizeof(float)) return "the result has the wrong length";
        r->body.room = n;
        return NULL;
    }
    if (strtoull(length, NULL, 10) != r->body.room) return "the result has the wrong length";
    r->body.into = (char *)s->order.out;
    return NULL;
}

static void order_push(struct request *r) {
    struct seat *s = r->seat;
    if (r->brings != RESULT_NEW) return;
    atomic_store(&s->task, 0);
    pl_shm.link.push(s->link, &r->result);
    pl_lock_enter(r->gateway->lock);
    s->answered = r->result.task;
    pl_lock_leave(r->gateway->lock);
    pl_gateway_ring(r->gateway);
}

/* For how long a request waits for what it asks for. */
static uint64_t order_patience(struct request *r) {
    bool bad = false;
    uint64_t ms = pl_gateway_said_whole(r, PL_WIRE_WAIT, ORDER_POLL_NS / 1000000, &bad);
    return pl_gateway_said(r, PL_WIRE_WAIT) && !bad ? ms * 1000000 : ORDER_POLL_NS;
}

/* Whether the request is not wanted any more: PL_ECANCELLED, its seat has ended; PL_EINTR, it was
 * cut; or else PL_OK. From the first time on it can be sent away. */
static int order_wanted(struct request *r) {
    struct pl_gateway *g = r->gateway;
    pl_lock_enter(g->lock);
    r->order.waits = true;
    bool ended = r->seat->life == SEAT_ENDED || g->over;
    pl_lock_leave(g->lock);
    return ended ? PL_ECANCELLED : atomic_load(&r->cut) ? PL_EINTR : PL_OK;
}

/* It waits no more. */
static void order_settled(struct request *r) {
    pl_lock_enter(r->gateway->lock);
    r->order.waits = false;
    pl_lock_leave(r->gateway->lock);
}

/* Pulls an order, unless the request already has one. PL_ETIMEDOUT if no order has come yet. */
static int order_pull(struct request *r) {
    int rc = order_wanted(r);
    if (rc || r->order.pulled) return rc;
    do rc = pl_client_link_pull(r->seat->link, 0, &r->seat->order); /* does not wait */
    while (rc == PL_EINTR);
    r->order.pulled = rc == PL_OK;
    return rc ? rc : order_wanted(r);
}

/* The first time: what came with the request. */
static void order_arrived(struct request *r) {
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    r->order.end_ns = pl_now_ns() + order_patience(r);
    order_push(r);
    atomic_store(&r->seat->task, 0);
}

enum MHD_Result pl_gateway_order_next(struct request *r) {
    struct seat *s = r->seat;
    if (r->body.n != r->body.room)
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST, "the result is incomplete");
    if (r->order.end_ns == 0) order_arrived(r);
    atomic_uint *link = pl_client_link_bell(s->link), *bell = &r->gateway->bell;
    unsigned seen = atomic_load(link), rung = atomic_load(bell);
    uint64_t now = pl_now_ns();
    int rc = order_pull(r);
    if (rc == PL_OK && pl_gateway_standby_holds(r, s->order.note))
        return pl_gateway_park(r, bell, rung, ORDER_LOOK_NS);
    if (rc == PL_ETIMEDOUT && now < r->order.end_ns) {
        uint64_t left = r->order.end_ns - now;
        return pl_gateway_park(r, link, seen, left < ORDER_LOOK_NS ? left : ORDER_LOOK_NS);
    }
    order_settled(r);
    if (rc == PL_ECANCELLED) return pl_gateway_answer_gone(r);
    if (rc)
        return pl_gateway_answer(r, rc == PL_EINTR ? MHD_HTTP_CONFLICT : MHD_HTTP_NO_CONTENT, "");
    if (s->order.n_strips > 0) {
        struct pl_result none = {.task = s->order.task, .defect = PL_NOT_COMPUTED, .loss = NAN};
        pl_shm.link.push(s->link, &none);
        return pl_gateway_answer(r, MHD_HTTP_NOT_IMPLEMENTED,
                                 "blocks of matrices are not sent over HTTP");
    }
    atomic_store(&s->task, s->order.task);
    return pl_gateway_answer_order(r);
}

/* Waits until the standby has the version that an evaluator is about to see. One that must not wait
 * so long asks again, and sees the version then. */
static int order_shared(struct request *r, uint64_t end_ns) {
    atomic_uint *bell = &r->gateway->bell;
    unsigned seen = atomic_load(bell);
    int rc = order_wanted(r);
    while (!rc && pl_gateway_standby_holds(r, r->seat->order.note)) {
        uint64_t now = pl_now_ns();
        if (now >= end_ns) return PL_ETIMEDOUT;
        pl_futex_wait(bell, seen, end_ns - now < ORDER_LOOK_NS ? end_ns - now : ORDER_LOOK_NS);
        seen = atomic_load(bell);
        rc = order_wanted(r);
    }
    return rc;
}

enum MHD_Result pl_gateway_order_newest(struct request *r) {
    struct seat *s = r->seat;
    if (s->kind != PL_CLIENT_EVALUATOR)
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST, "a worker has orders; ask for /next");
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    uint64_t ns = order_patience(r), end_ns = pl_now_ns() + ns;
    int rc = order_wanted(r);
    if (!rc) rc = pl_client_link_newest(s->link, ns, s->room, s->order.note);
    if (!rc) rc = order_shared(r, end_ns);
    order_settled(r);
    if (rc == PL_ECANCELLED) return pl_gateway_answer_gone(r);
    if (rc) return pl_gateway_answer(r, MHD_HTTP_NO_CONTENT, "");
    return pl_gateway_answer_newest(r);
}
