/* A client that has lost its server asks the standby whether it has taken over. Until it has, the
 * question is a vote for it.
 *
 * Threads: the link's own two. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "transport/http_state.h"

#define VOTE_S 3L /* for an answer */

bool pl_http_vote(struct pl_link *l, struct http_way *w) {
    char url[2 * HTTP_PATH], standby[HTTP_PATH], answer[PL_WORD_MAX];
    pl_lock_enter(l->lock);
    memcpy(standby, l->standby, sizeof standby);
    uint64_t seen = l->seen;
    pl_lock_leave(l->lock);
    if (!standby[0]) return false;
    pl_http_way_begin(w, "POST", "");
    snprintf(url, sizeof url, "%s%s", standby, PL_WIRE_VOTES);
    curl_easy_setopt(w->easy, CURLOPT_URL, url);
    curl_easy_setopt(w->easy, CURLOPT_TIMEOUT, VOTE_S);
    pl_http_way_add(w, PL_WIRE_SEAT, "%s", l->key);
    pl_http_way_add(w, PL_WIRE_RUN, "%s", l->run);
    pl_http_way_add(w, PL_WIRE_EPOCH, "%" PRIu64, l->epoch);
    pl_http_way_add(w, PL_WIRE_SEEN, "%" PRIu64, seen);
    pl_http_way_send(w, NULL, 0);
    w->lines = false;
    w->body = answer;
    w->room = sizeof answer;
    if (pl_http_way_perform(w) != 200) return false;
    pl_lock_enter(l->lock);
    if (l->end == END_NOT) l->moved = true;
    pl_lock_leave(l->lock);
    pl_http_end(l, END_LOST, true, "its standby has taken over");
    return true;
}
