/* Workers that have lost their server ask its standby whether it has taken over. Until it has,
 * each question is a vote for it.
 *
 * Threads: the request's; the standby's own counts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/gateway_state.h"

#define VOTES_FRESH_NS (10 * GATEWAY_SECOND) /* workers ask every two seconds */

struct vote {
    int worker;
    char run[PL_RUN_ID_MAX];
    uint64_t seen, when_ns;
};

/* The caller has the lock. */
static void votes_add(struct pl_gateway *g, const struct vote *v) {
    int i = 0;
    while (i < g->n_votes && g->vote[i].worker != v->worker) i++;
    if (i == g->n_votes) {
        struct vote *more = realloc(g->vote, (size_t)(i + 1) * sizeof *more);
        if (!more) return;
        g->vote = more;
        g->n_votes++;
    }
    g->vote[i] = *v;
}

void pl_gateway_follows(struct pl_gateway *g, const char *secret) {
    pl_lock_enter(g->lock);
    snprintf(g->first, sizeof g->first, "%s", secret);
    pl_lock_leave(g->lock);
}

struct pl_gateway_tally pl_gateway_tally(struct pl_gateway *g, const char *run) {
    struct pl_gateway_tally t = {0};
    uint64_t now = pl_now_ns();
    pl_lock_enter(g->lock);
    for (int i = 0; i < g->n_votes; i++) {
        const struct vote *v = &g->vote[i];
        if (strcmp(v->run, run) != 0 || now - v->when_ns > VOTES_FRESH_NS) continue;
        t.n++;
        if (v->seen > t.seen) t.seen = v->seen;
    }
    pl_lock_leave(g->lock);
    return t;
}

enum MHD_Result pl_gateway_vote(struct request *r) {
    struct pl_gateway *g = r->gateway;
    struct vote v = {.when_ns = pl_now_ns()};
    char key[PL_WIRE_KEY + 1];
    bool bad = false;
    uint64_t epoch = pl_gateway_said_whole(r, PL_WIRE_EPOCH, UINT64_MAX, &bad);
    v.seen = pl_gateway_said_whole(r, PL_WIRE_SEEN, UINT64_MAX, &bad);
    if (bad || !pl_gateway_said_text(r, PL_WIRE_SEAT, key, sizeof key) ||
        !pl_gateway_said_text(r, PL_WIRE_RUN, v.run, sizeof v.run) || !key[0] || !v.run[0])
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST, "a header makes no sense");
    if (g->conf.path) {
        bool mine = strcmp(v.run, g->conf.run) == 0 && epoch <= g->conf.epoch;
        return pl_gateway_answer(r, mine ? MHD_HTTP_OK : MHD_HTTP_FORBIDDEN,
                                 mine ? "join here\n" : "this server has another run");
    }
    pl_lock_enter(g->lock);
    v.worker = pl_gateway_key_worker(g->first, key);
    if (v.worker >= 0) votes_add(g, &v);
    pl_lock_leave(g->lock);
    if (v.worker < 0) {
        pl_gateway_report(g, r->name, "it has no key of the server that this standby follows");
        return pl_gateway_answer(r, MHD_HTTP_FORBIDDEN, "this key is not of that server");
    }
    return pl_gateway_answer(r, MHD_HTTP_SERVICE_UNAVAILABLE,
                             "this is a standby, which has not taken over");
}

void pl_gateway_votes_free(struct pl_gateway *g) {
    free(g->vote);
}
