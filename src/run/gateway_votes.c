/* Workers that have lost their server ask its standby whether it has taken over. Until it has,
 * each question is a vote for it. A worker whose server is back, and wants to go on without the
 * standby, first takes its vote back; so no worker counts for both.
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
    g->n_votes = 0;
    pl_lock_leave(g->lock);
}

struct pl_gateway_tally pl_gateway_tally(struct pl_gateway *g, const char *run, int workers,
                                         uint64_t has) {
    struct pl_gateway_tally t = {0};
    uint64_t now = pl_now_ns();
    int n_content = 0;
    pl_lock_enter(g->lock);
    for (int i = 0; i < g->n_votes; i++) {
        const struct vote *v = &g->vote[i];
        if (strcmp(v->run, run) != 0 || now - v->when_ns > VOTES_FRESH_NS) continue;
        t.n++;
        n_content += v->seen <= has;
        if (v->seen > t.seen) t.seen = v->seen;
    }
    t.most = 2 * t.n > workers;
    t.elected = g->elected = 2 * n_content > workers;
    pl_lock_leave(g->lock);
    return t;
}

/* What a request says. 0, or the status with which it is answered. */
static unsigned votes_read(struct request *r, struct vote *v, const char **why) {
    struct pl_gateway *g = r->gateway;
    char key[PL_WIRE_KEY + 1];
    bool bad = false;
    uint64_t epoch = pl_gateway_said_whole(r, PL_WIRE_EPOCH, UINT64_MAX, &bad);
    v->seen = pl_gateway_said_whole(r, PL_WIRE_SEEN, UINT64_MAX, &bad);
    v->when_ns = pl_now_ns();
    if (bad || !pl_gateway_said_text(r, PL_WIRE_SEAT, key, sizeof key) ||
        !pl_gateway_said_text(r, PL_WIRE_RUN, v->run, sizeof v->run) || !key[0] || !v->run[0]) {
        *why = "a header makes no sense";
        return MHD_HTTP_BAD_REQUEST;
    }
    if (g->conf.path) {
        bool mine = strcmp(v->run, g->conf.run) == 0 && epoch <= g->conf.epoch;
        *why = mine ? "join here\n" : "this server has another run";
        return mine ? MHD_HTTP_OK : MHD_HTTP_FORBIDDEN;
    }
    pl_lock_enter(g->lock);
    v->worker = pl_gateway_key_worker(g->first, key);
    pl_lock_leave(g->lock);
    if (v->worker >= 0) return 0;
    pl_gateway_report(r, "it has no key of the server that this standby follows");
    *why = "this key is not of that server";
    return MHD_HTTP_FORBIDDEN;
}

/* The caller has the lock. */
static void votes_remove(struct pl_gateway *g, int worker) {
    int i = 0;
    while (i < g->n_votes && g->vote[i].worker != worker) i++;
    if (i < g->n_votes) g->vote[i] = g->vote[--g->n_votes];
}

enum MHD_Result pl_gateway_vote(struct request *r) {
    struct pl_gateway *g = r->gateway;
    struct vote v;
    const char *why;
    bool recalls = r->route == ROUTE_RECALL;
    unsigned status = votes_read(r, &v, &why);
    if (status) return pl_gateway_answer(r, status, why);
    pl_lock_enter(g->lock);
    bool late = g->elected;
    if (!recalls) votes_add(g, &v);
    if (recalls && !late) votes_remove(g, v.worker);
    pl_lock_leave(g->lock);
    if (recalls && !late) return pl_gateway_answer(r, MHD_HTTP_NO_CONTENT, "");
    return pl_gateway_answer(r, MHD_HTTP_SERVICE_UNAVAILABLE,
                             "this is a standby, which has not taken over");
}

void pl_gateway_votes_free(struct pl_gateway *g) {
    free(g->vote);
}
