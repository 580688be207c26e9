/* What a client must hear at once: that its task is cancelled, and that the run has ended. Beats in
 * between tell both ends that the other is there.
 *
 * Threads: the request's. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>

#include "run/gateway_state.h"

/* News of the standby: where it is, or that it is to be forgotten. Returns the length of the line;
 * 0: there are none. */
static ssize_t events_standby(struct request *r, char *buffer, size_t max) {
    char url[GATEWAY_URL];
    bool losing;
    unsigned change = pl_gateway_standby_where(r->gateway, url, &losing);
    if (change == r->events.standby) return 0;
    r->events.standby = change;
    return snprintf(buffer, max, losing ? "forget %s\n" : "standby %s\n", url);
}

/* The next line: a cancel, the end, or a beat. 0: it waits for one. */
static ssize_t events_next(void *ctx, uint64_t pos, char *buffer, size_t max) {
    struct request *r = ctx;
    struct seat *s = r->seat;
    struct pl_gateway *g = r->gateway;
    (void)pos;
    atomic_uint *word = pl_client_link_bell(s->link);
    unsigned seen = atomic_load(word);
    uint64_t task = atomic_load(&s->task), now = pl_now_ns();
    pl_lock_enter(g->lock);
    bool over = g->over, ended = s->life == SEAT_ENDED;
    pl_lock_leave(g->lock);
    if (atomic_load(&r->cut)) return MHD_CONTENT_READER_END_OF_STREAM;
    if (!over && ended) return MHD_CONTENT_READER_END_OF_STREAM;
    ssize_t standby = over ? 0 : events_standby(r, buffer, max);
    if (standby > 0) return standby;
    enum pl_relay what = PL_RELAY_OVER;
    if (!over) what = pl_client_link_watch(s->link, task != r->events.told ? task : 0);
    if (what == PL_RELAY_OVER) {
        if (r->events.told == UINT64_MAX) return MHD_CONTENT_READER_END_OF_STREAM;
        r->events.told = UINT64_MAX;
        pl_lock_enter(g->lock);
        pl_gateway_seat_told(s);
        pl_lock_leave(g->lock);
        return snprintf(buffer, max, "over\n");
    }
    if (what == PL_RELAY_CANCELLED && atomic_load(&s->task) == task) {
        r->events.told = task;
        return snprintf(buffer, max, "cancel %" PRIu64 "\n", task);
    }
    if (r->events.beat_ns <= now) {
        r->events.beat_ns = GATEWAY_TOGETHER(now + r->events.beat_s * GATEWAY_SECOND);
        return snprintf(buffer, max, "beat\n");
    }
    pl_gateway_park(r, word, seen, r->events.beat_ns - now);
    return 0;
}

enum MHD_Result pl_gateway_events(struct request *r) {
    r->answered = true;
    struct MHD_Response *a =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1024, events_next, r, NULL);
    if (!a) return MHD_NO;
    MHD_add_response_header(a, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain");
    bool knows = pl_gateway_said(r, PL_WIRE_STANDBY) != NULL;
    pl_lock_enter(r->gateway->lock);
    r->events.beat_s = knows ? PL_WIRE_BEAT_S : pl_gateway_beat_s(&r->gateway->conf);
    pl_gateway_seat_listens(r->seat);
    r->seat->asks_final = pl_gateway_said(r, PL_WIRE_FINAL) != NULL;
    pl_gateway_standby_heard(r->seat, knows);
    pl_lock_leave(r->gateway->lock);
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    enum MHD_Result rc = MHD_queue_response(r->connection, MHD_HTTP_OK, a);
    MHD_destroy_response(a);
    return rc;
}
