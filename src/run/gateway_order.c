/* Orders, results, and versions for an evaluator.
 *
 * Threads: the request's. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/gateway_state.h"

#define ORDER_POLL_NS (25 * GATEWAY_SECOND) /* a request for one is answered after that at last */

/* Before the body: what it must be, and where it goes. */
const char *pl_gateway_order_begin(struct request *r) {
    struct seat *s = r->seat;
    const char *length = pl_gateway_said(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (s->kind != PL_CLIENT_WORKER) return "an evaluator has no orders; ask for /newest";
    if (!pl_gateway_said_result(r)) return "a header makes no sense";
    if (!length) return "the length of the result is not known";
    bool usable = r->has_result && r->result.defect == PL_NO_DEFECT;
    size_t size = s->order.half_out ? sizeof(uint16_t) : sizeof(float);
    r->late = r->has_result && r->result.task != atomic_load(&s->task);
    r->room = usable ? s->welcome.dim * size : 0;
    if (r->late) { /* of an order that was replaced, or sent again: it is read and dropped */
        size_t n = strtoull(length, NULL, 10);
        if (n > s->welcome.dim * sizeof(float)) return "the result has the wrong length";
        r->room = n;
        return NULL;
    }
    if (strtoull(length, NULL, 10) != r->room) return "the result has the wrong length";
    r->into = (char *)s->order.out;
    return NULL;
}

static void order_push(struct request *r) {
    struct seat *s = r->seat;
    if (!r->has_result || r->late) return;
    atomic_store(&s->task, 0);
    pl_shm.link.push(s->link, &r->result);
    pl_lock_enter(r->gateway->lock);
    s->answered = r->result.task;
    pl_lock_leave(r->gateway->lock);
    pl_gateway_ring(r->gateway);
}

/* Waits in the link, for something that wait() looks for, until it is there or this request is not
 * wanted any more. */
static int order_wait(struct request *r, int (*wait)(struct seat *s, uint64_t ns)) {
    struct pl_gateway *g = r->gateway;
    struct seat *s = r->seat;
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    pl_lock_enter(g->lock);
    r->waits = true;
    bool ended = s->ended || g->over;
    pl_lock_leave(g->lock);
    bool bad = false;
    uint64_t ns = ORDER_POLL_NS, ms = pl_gateway_said_whole(r, PL_WIRE_WAIT, ns / 1000000, &bad);
    if (pl_gateway_said(r, PL_WIRE_WAIT) && !bad) ns = ms * 1000000;
    int rc = ended || atomic_load(&r->cut) ? PL_EINTR : wait(s, ns);
    if (rc == PL_OK && !pl_gateway_standby_hold(r, s->order.note)) rc = PL_EINTR;
    pl_lock_enter(g->lock);
    r->waits = false;
    ended = s->ended || g->over;
    pl_lock_leave(g->lock);
    if (ended) return PL_ECANCELLED;
    return rc == PL_OK && atomic_load(&r->cut) ? PL_EINTR : rc;
}

static int order_pull(struct seat *s, uint64_t ns) {
    return pl_client_link_pull(s->link, ns, &s->order);
}

enum MHD_Result pl_gateway_order_next(struct request *r) {
    struct seat *s = r->seat;
    if (r->n != r->room)
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST, "the result is incomplete");
    order_push(r);
    atomic_store(&s->task, 0);
    int rc = order_wait(r, order_pull);
    if (rc == PL_ECANCELLED) return pl_gateway_answer_gone(r);
    if (rc)
        return pl_gateway_answer(r, atomic_load(&r->cut) ? MHD_HTTP_CONFLICT : MHD_HTTP_NO_CONTENT,
                                 "");
    if (s->order.n_strips > 0) {
        struct pl_result none = {.task = s->order.task, .defect = PL_NOT_COMPUTED, .loss = NAN};
        pl_shm.link.push(s->link, &none);
        return pl_gateway_answer(r, MHD_HTTP_NOT_IMPLEMENTED,
                                 "blocks of matrices are not sent over HTTP");
    }
    atomic_store(&s->task, s->order.task);
    return pl_gateway_answer_order(r);
}

static int order_newest(struct seat *s, uint64_t ns) {
    return pl_client_link_newest(s->link, ns, s->room, s->order.note);
}

enum MHD_Result pl_gateway_order_newest(struct request *r) {
    struct seat *s = r->seat;
    if (s->kind != PL_CLIENT_EVALUATOR)
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST, "a worker has orders; ask for /next");
    int rc = order_wait(r, order_newest);
    if (rc == PL_ECANCELLED) return pl_gateway_answer_gone(r);
    if (rc) return pl_gateway_answer(r, MHD_HTTP_NO_CONTENT, "");
    return pl_gateway_answer_newest(r);
}
