/* A client that has lost its server asks the standby whether it has taken over. Until it has, the
 * question is a vote for it. If the server is there, and wants to go on without the standby, the
 * vote is taken back before the server hears that the standby is forgotten: no client counts for
 * both.
 *
 * Threads: the link's own two. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "transport/http_state.h"

#define VOTE_S 3L /* for an answer */

/* A question to the standby. Returns the status. If it has taken over, the link has ended. */
static long vote_ask(struct pl_link *l, struct http_way *w, const char *method) {
    char url[2 * HTTP_PATH], answer[PL_WORD_MAX];
    pl_http_way_begin(w, method, "");
    pl_lock_enter(l->lock);
    snprintf(url, sizeof url, "%s%s", l->election.standby, PL_WIRE_VOTES);
    uint64_t seen = l->seen;
    pl_lock_leave(l->lock);
    curl_easy_setopt(w->easy, CURLOPT_URL, url);
    curl_easy_setopt(w->easy, CURLOPT_TIMEOUT, VOTE_S);
    pl_http_way_add(w, PL_WIRE_SEAT, "%s", l->key);
    pl_http_way_add(w, PL_WIRE_RUN, "%s", l->known.run);
    pl_http_way_add(w, PL_WIRE_EPOCH, "%" PRIu64, l->known.epoch);
    pl_http_way_add(w, PL_WIRE_SEEN, "%" PRIu64, seen);
    pl_http_way_send(w, NULL, 0);
    w->body = answer;
    w->room = sizeof answer;
    long status = pl_http_way_perform(w);
    if (status == 200) pl_http_end(l, END_MOVED, true, "its standby has taken over");
    return status;
}

bool pl_http_vote(struct pl_link *l, struct http_way *w) {
    struct http_election *e = &l->election;
    pl_lock_enter(l->lock);
    bool may = e->standby[0] && !e->forgets;
    e->n_voting += may;
    e->voted = e->voted || may; /* it may arrive although there is no answer */
    pl_lock_leave(l->lock);
    if (!may) return false;
    long status = vote_ask(l, w, "POST");
    pl_lock_enter(l->lock);
    e->n_voting--;
    pl_lock_leave(l->lock);
    return status == 200;
}

/* It may also ask if there was no vote: others may have elected the standby. */
bool pl_http_recall(struct pl_link *l, struct http_way *w) {
    struct http_election *e = &l->election;
    pl_lock_enter(l->lock);
    bool asks = e->forgets && e->n_voting == 0 && (e->voted || e->asks);
    pl_lock_leave(l->lock);
    if (!asks) return false;
    long status = vote_ask(l, w, "DELETE");
    pl_lock_enter(l->lock);
    if (status == 204 || status == 403 || status == 404) e->voted = false;
    pl_lock_leave(l->lock);
    return status == 200;
}

bool pl_http_knows(struct pl_link *l, struct http_way *w) {
    const struct http_election *e = &l->election;
    char standby[HTTP_PATH];
    pl_lock_enter(l->lock);
    bool forgot = e->forgets && !e->voted && e->n_voting == 0;
    snprintf(standby, sizeof standby, "%s", forgot ? "" : e->standby);
    pl_lock_leave(l->lock);
    if (standby[0]) pl_http_way_add(w, PL_WIRE_STANDBY, "%s", standby);
    return standby[0] != '\0';
}
