/* The standby that follows this server. It asks for a copy of the run with every request, and says
 * which version it has: no order for a newer one leaves the server before that. So whatever
 * anybody has seen, the standby has.
 *
 * If the standby is silent, workers are asked to forget it, and the run goes on without it when
 * more than half of them have said that they did. The others may have gone to the standby, and this
 * server must not make updates beside it.
 *
 * Threads: the request's, the watch, and the server's for copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/copy.h"
#include "run/gateway_state.h"
#include "run/worker.h"
#include "sys/address.h"
#include "sys/certificates.h"

#define STANDBY_POLL_NS (2 * GATEWAY_SECOND)   /* a request is answered after that at last */
#define STANDBY_SILENT_NS (5 * GATEWAY_SECOND) /* without a request, before it is forgotten */
#define STANDBY_LONG_NS (5 * GATEWAY_SECOND)   /* until workers have done so */
#define STANDBY_LOOK_NS (GATEWAY_SECOND / 10)

/* --- who follows ----------------------------------------------------------------------------- */

/* Where workers reach it: as it says, or if it listens on all its addresses, where it comes from.
 */
static bool standby_url(struct request *r, char *out, size_t max) {
    struct pl_address a;
    char said[GATEWAY_URL], from[PL_PEER_MAX] = "";
    if (!pl_gateway_said_text(r, PL_WIRE_ADDRESS, said, sizeof said) || !pl_address_split(said, &a))
        return false;
    bool any = strcmp(a.host, "0.0.0.0") == 0 || strcmp(a.host, "::") == 0;
    if (any) pl_httpd_peer(r->connection, from);
    const char *host = any ? from : a.host;
    bool colons = strchr(host, ':') != NULL;
    int n = snprintf(out, max, "%s://%s%s%s:%s", r->gateway->conf.keys ? "https" : "http",
                     colons ? "[" : "", host, colons ? "]" : "", a.port);
    return n > 0 && (size_t)n < max;
}

/* A request of the standby begins: it has this version, or PL_NO_COPY. False: another one is here.
 */
static bool standby_enter(struct request *r, const char *url, uint64_t has) {
    struct pl_gateway *g = r->gateway;
    struct standby *s = &g->standby;
    pl_lock_enter(g->lock);
    bool here = s->state != STANDBY_NONE;
    bool other = (here || s->n_requests > 0) && strcmp(s->url, url) != 0;
    bool comes = !other && !here && has != PL_NO_COPY;
    if (!other) {
        if (!here) snprintf(s->url, sizeof s->url, "%s", url);
        s->has = has;
        s->change += comes || s->state == STANDBY_LOSING;
        if (here || comes) s->state = STANDBY_HERE;
        s->n_requests++;
        r->follows = true;
    }
    pl_lock_leave(g->lock);
    if (comes) pl_log_note(g->conf.log, "a standby follows at %s", url);
    pl_gateway_ring(g);
    return !other;
}

void pl_gateway_standby_done(struct request *r) {
    struct standby *s = &r->gateway->standby;
    s->n_requests--;
    s->seen_ns = pl_now_ns();
}

unsigned pl_gateway_standby_where(struct pl_gateway *g, char url[GATEWAY_URL], bool *losing) {
    pl_lock_enter(g->lock);
    snprintf(url, GATEWAY_URL, "%s", g->standby.state == STANDBY_NONE ? "" : g->standby.url);
    *losing = g->standby.state == STANDBY_LOSING;
    unsigned change = g->standby.change;
    pl_lock_leave(g->lock);
    return change;
}

int pl_gateway_standby_told(struct pl_gateway *g) {
    struct standby *s = &g->standby;
    s->workers = s->electors = pl_gateway_seats(g);
    for (struct seat *i = g->seats; i; i = i->next)
        i->elector = pl_gateway_seat_counts(i) ? ELECTOR_COUNTS : ELECTOR_NOT;
    return s->workers;
}

void pl_gateway_standby_left(struct seat *s) {
    s->gateway->standby.electors -= s->elector != ELECTOR_NOT;
    s->elector = ELECTOR_NOT;
}

/* What it said before it was asked does not count. */
void pl_gateway_standby_heard(struct seat *s, bool knows) {
    if (s->elector == ELECTOR_NOT) return;
    bool asked = s->gateway->standby.state == STANDBY_LOSING;
    s->elector = asked && !knows ? ELECTOR_FORGOT : ELECTOR_COUNTS;
}

/* Whether more than half of those who could elect the standby will not, because they said so or
 * never heard of it. Newcomers do not count: the standby does not know them. The caller has the
 * lock. */
static bool standby_forgotten(const struct pl_gateway *g) {
    int n = g->standby.electors, forgot = 0;
    for (const struct seat *s = g->seats; s; s = s->next)
        forgot += s->elector == ELECTOR_FORGOT ||
                  (s->elector == ELECTOR_COUNTS && s->presence.state == PRESENCE_UNKNOWN);
    return n == 0 || 2 * forgot > n;
}

/* It is silent. Returns what is to be said about it, or NULL. The caller has the lock. */
static const char *standby_lose(struct pl_gateway *g, uint64_t now) {
    struct standby *s = &g->standby;
    if (s->state == STANDBY_HERE) {
        s->state = STANDBY_LOSING;
        s->told_losing = false;
        s->losing_ns = now;
        s->change++;
        for (struct seat *i = g->seats; i; i = i->next)
            if (i->elector == ELECTOR_FORGOT) i->elector = ELECTOR_COUNTS;
    }
    if (standby_forgotten(g)) {
        s->state = STANDBY_NONE;
        s->url[0] = '\0';
        s->change++;
        return "is lost; until it returns, updates exist once";
    }
    if (s->told_losing || now < s->losing_ns + STANDBY_LONG_NS) return NULL;
    s->told_losing = true;
    return "does not answer, and most workers may have gone to it: no orders leave until it or "
           "they return";
}

uint64_t pl_gateway_standby_look(struct pl_gateway *g, uint64_t now) {
    struct standby *s = &g->standby;
    char url[GATEWAY_URL];
    pl_lock_enter(g->lock);
    bool silent = s->state != STANDBY_NONE && s->n_requests == 0;
    unsigned change = s->change;
    bool loses = silent && now > s->seen_ns + STANDBY_SILENT_NS;
    memcpy(url, s->url, sizeof url);
    const char *said = loses ? standby_lose(g, now) : NULL;
    bool news = s->change != change;
    silent = silent && s->state != STANDBY_NONE;
    pl_lock_leave(g->lock);
    if (said) pl_log_warn(g->conf.log, "the standby at %s %s", url, said);
    if (news) pl_gateway_ring(g);
    return silent ? STANDBY_LOOK_NS : UINT64_MAX;
}

bool pl_gateway_is_held(struct pl_gateway *g) {
    pl_lock_enter(g->lock);
    const struct standby *s = &g->standby;
    bool held =
        s->state != STANDBY_NONE && s->n_requests == 0 && pl_now_ns() > s->seen_ns + GATEWAY_SECOND;
    pl_lock_leave(g->lock);
    return held;
}

/* --- copies ---------------------------------------------------------------------------------- */

bool pl_gateway_wants_copy(struct pl_gateway *g, uint64_t version) {
    struct standby *s = &g->standby;
    if (!atomic_load(&s->waits)) return false;
    pl_lock_enter(g->lock);
    bool wants = atomic_load(&s->waits) && !s->copy && s->has != version;
    pl_lock_leave(g->lock);
    return wants;
}

void pl_gateway_give_copy(struct pl_gateway *g, struct pl_copy *copy) {
    struct standby *s = &g->standby;
    pl_lock_enter(g->lock);
    struct pl_copy *old = s->copy;
    s->copy = copy;
    pl_lock_leave(g->lock);
    pl_copy_free(old);
    pl_gateway_ring(g);
}

/* Waits for a copy, which the caller frees. NULL: there is none yet, or the run is over, or the
 * standby must hear at once how many workers there are. */
static struct pl_copy *standby_wait(struct request *r) {
    struct pl_gateway *g = r->gateway;
    struct standby *s = &g->standby;
    struct pl_copy *copy = NULL;
    uint64_t now = pl_now_ns(), end = now + STANDBY_POLL_NS;
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    atomic_store(&s->waits, true);
    if (g->conf.moved) g->conf.moved(g->conf.moved_ctx);
    for (bool news = false; !copy && !news && now < end && !atomic_load(&r->cut);) {
        unsigned seen = atomic_load(&g->bell);
        pl_lock_enter(g->lock);
        news = g->over || pl_gateway_seats(g) != s->workers;
        copy = s->copy;
        s->copy = NULL;
        pl_lock_leave(g->lock);
        if (!copy && !news) pl_futex_wait(&g->bell, seen, end - now);
        now = pl_now_ns();
    }
    atomic_store(&s->waits, false);
    return copy;
}

enum MHD_Result pl_gateway_standby(struct request *r) {
    struct pl_gateway *g = r->gateway;
    char url[GATEWAY_URL];
    bool bad = false, first = !pl_gateway_said(r, PL_WIRE_SEEN);
    uint64_t has = pl_gateway_said_whole(r, PL_WIRE_SEEN, PL_NO_COPY - 1, &bad);
    char run[PL_RUN_ID_MAX];
    uint64_t epoch = pl_gateway_said_whole(r, PL_WIRE_EPOCH, UINT64_MAX, &bad);
    if (!pl_gateway_said_text(r, PL_WIRE_RUN, run, sizeof run)) bad = true;
    bool other = strcmp(run, g->conf.run) != 0 || epoch != g->conf.epoch;
    if (g->conf.local)
        return pl_gateway_answer(r, MHD_HTTP_CONFLICT,
                                 "workers of this server do not come over the network, and a "
                                 "standby could not stand in for them; use paceline serve");
    if (g->conf.keys && strcmp(r->name, PL_CERTIFICATES_SERVER) != 0)
        return pl_gateway_answer(r, MHD_HTTP_FORBIDDEN, "a standby needs the server's certificate");
    if (bad || !standby_url(r, url, sizeof url))
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST, "a header makes no sense");
    if (!standby_enter(r, url, first || other ? PL_NO_COPY : has))
        return pl_gateway_answer(r, MHD_HTTP_CONFLICT, "another standby follows this server");
    struct pl_copy *copy = standby_wait(r);
    struct pl_why why = {""};
    unsigned char *bytes = NULL;
    size_t n = 0;
    if (copy && pl_copy_pack(copy, &bytes, &n, &why)) {
        pl_copy_free(copy);
        return pl_gateway_answer(r, MHD_HTTP_SERVICE_UNAVAILABLE, why.text);
    }
    uint64_t version = copy ? pl_copy_version(copy) : 0;
    pl_copy_free(copy);
    return pl_gateway_answer_copy(r, bytes, n, version);
}

/* --- orders ---------------------------------------------------------------------------------- */

bool pl_gateway_standby_holds(struct request *r, const uint64_t note[PL_NOTE_WORDS]) {
    struct pl_gateway *g = r->gateway;
    struct pl_order o = {0};
    memcpy(o.note, note, sizeof o.note);
    const struct pl_run_note n = pl_note_unpack(&o);
    pl_lock_enter(g->lock);
    const struct standby *s = &g->standby;
    bool lacks = s->state != STANDBY_NONE && (s->has == PL_NO_COPY || s->has < n.version);
    pl_lock_leave(g->lock);
    return lacks;
}
