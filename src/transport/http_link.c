/* A client's end over HTTP, for servers on other machines (run/gateway.h has the other end).
 *
 * Threads: the owner's. */
#define _GNU_SOURCE
#include "transport/client_link.h"

#ifdef PL_HAVE_CURL

#include <stdio.h>
#include <string.h>

#include "transport/http_state.h"

#define HTTP_WAIT_MS 1000 /* for a version, after which a wait looks whether it was interrupted */

/* Whether the run has ended, and the final version has not come yet. The caller has the lock. */
static bool http_awaits_final(const struct pl_link *l) {
    return l->ending.how == END_OVER && l->final.wanted && !l->final.settled;
}

static int http_pull_until(struct pl_link *l, uint64_t wait_ns, struct pl_order *out) {
    struct http_vectors *v = &l->vectors;
    struct http_next *next = &l->next;
    uint64_t now = pl_now_ns(), end = pl_until(now, wait_ns);
    for (;;) {
        bool interrupted = false;
        unsigned seen = atomic_load(&l->bell);
        int rc = PL_ETIMEDOUT;
        pl_lock_enter(l->lock);
        if (l->ending.how != END_NOT) {
            if (!http_awaits_final(l)) rc = PL_ECANCELLED;
        } else if (next->state == TALK_ANSWERED) {
            *out = next->order;
            if (l->seen < next->version) l->seen = next->version;
            if (l->past && l->past->seen < l->seen) l->past->seen = l->seen;
            v->turn = !v->turn;
            l->task.id = out->task;
            l->task.result_bf16 = out->half_out != NULL;
            atomic_store(&l->task.cancelled, l->task.cancelled_id == l->task.id);
            next->state = TALK_IDLE;
            rc = PL_OK;
        } else if (next->state == TALK_IDLE) {
            next->state = TALK_ASKED;
            pl_futex_ring(&l->bell);
            seen++;
        }
        pl_lock_leave(l->lock);
        if (rc == PL_OK) {
            v->input = (struct pl_input){.v = v->in[v->turn], .c = 1, .writer = -1};
            out->input = &v->input;
            out->n_inputs = 1;
            out->out = v->out;
        }
        if (rc != PL_ETIMEDOUT || now >= end) return rc;
        now = pl_nap_on(&l->bell, seen, now, end, &interrupted);
        if (interrupted) return PL_EINTR;
    }
}

static int http_pull(struct pl_link *l, struct pl_order *out) {
    int rc;
    do rc = http_pull_until(l, UINT64_MAX, out);
    while (rc == PL_EINTR);
    return rc;
}

static const struct pl_cancel *http_cancelled(const struct pl_link *l) {
    return &l->task.cancel;
}

static int http_sleep(struct pl_link *l, uint64_t ns) {
    uint64_t now = pl_now_ns(), end = pl_until(now, ns);
    while (now < end) {
        unsigned seen = atomic_load(&l->bell);
        if (atomic_load(&l->task.cancelled)) return PL_ECANCELLED;
        now = pl_sleep_on(&l->bell, seen, now, end);
    }
    return atomic_load(&l->task.cancelled) ? PL_ECANCELLED : PL_OK;
}

static void http_push(struct pl_link *l, const struct pl_result *r) {
    if (r->is_base) return; /* the server makes it */
    struct http_next *next = &l->next;
    pl_lock_enter(l->lock);
    next->result = *r;
    if (r->n_absent > 0) memcpy(next->absent, r->absent, r->n_absent * sizeof *next->absent);
    next->result.absent = next->absent;
    next->has_result = true;
    next->state = TALK_ASKED;
    pl_lock_leave(l->lock);
    pl_futex_ring(&l->bell);
}

static bool http_lost(const struct pl_link *l) {
    pl_lock_enter(l->lock);
    bool lost = l->ending.how >= END_LOST;
    pl_lock_leave(l->lock);
    return lost;
}

static bool http_farewell(struct pl_link *l, char out[PL_WORD_MAX], bool *again) {
    pl_lock_enter(l->lock);
    bool lost = l->ending.how >= END_LOST;
    snprintf(out, PL_WORD_MAX, "%s", l->ending.farewell);
    *again = l->ending.again;
    if (l->past && l->ending.how == END_MOVED)
        memcpy(l->past->server, l->election.standby, sizeof l->past->server);
    pl_lock_leave(l->lock);
    return lost;
}

static const float *http_final(const struct pl_link *l, uint64_t note[PL_NOTE_WORDS]) {
    pl_lock_enter(l->lock);
    const float *w = l->final.w;
    memcpy(note, l->final.note, sizeof l->final.note);
    pl_lock_leave(l->lock);
    return w;
}

/* The status of a request beside the others, and the code of the link for it. */
static int http_side(struct pl_link *l, long status) {
    if (status == 200 || status == 202) return PL_OK;
    if (status == 204 || status == 429 || status == 503) return PL_ETIMEDOUT;
    if (status == 400) return PL_EUSAGE;
    if (status == 410 && l->side.over) {
        pl_http_end(l, END_OVER, false, "");
        return PL_ECANCELLED;
    }
    if (status != 0) pl_http_refused(l, &l->side, status);
    return status ? PL_ECANCELLED : PL_ETIMEDOUT;
}

static int http_say(struct pl_link *l, const char *word, uint64_t wait_ns) {
    uint64_t end = pl_until(pl_now_ns(), wait_ns);
    char answer[PL_WORD_MAX];
    for (;;) {
        if (pl_http_ended(l)) return PL_ECANCELLED;
        pl_http_way_begin(&l->side, "POST", "/word");
        pl_http_way_send(&l->side, word, strlen(word));
        l->side.body = answer;
        l->side.room = sizeof answer;
        int rc = http_side(l, pl_http_way_perform(&l->side));
        if (rc != PL_ETIMEDOUT || pl_now_ns() >= end) return rc;
        pl_http_nap(l, HTTP_BACK_OFF_NS);
    }
}

static int http_newest(struct pl_link *l, uint64_t wait_ns, float *out,
                       uint64_t note[PL_NOTE_WORDS]) {
    uint64_t end = pl_until(pl_now_ns(), wait_ns);
    struct http_way *w = &l->side;
    for (;;) {
        if (pl_http_ended(l)) return PL_ECANCELLED;
        uint64_t now = pl_now_ns(), ms = (end > now ? end - now : 0) / 1000000;
        pl_http_way_begin(w, "GET", "/newest");
        pl_http_way_add(w, PL_WIRE_WAIT, "%d", ms < HTTP_WAIT_MS ? (int)ms : HTTP_WAIT_MS);
        w->body = (char *)l->vectors.in[0];
        w->room = l->vectors.room;
        int rc = http_side(l, pl_http_way_perform(w));
        if (!rc && w->n != l->dim * sizeof(float)) rc = PL_ETIMEDOUT;
        if (!rc && out) memcpy(out, w->body, w->n);
        if (!rc && note) memcpy(note, w->order.note, sizeof w->order.note);
        if (rc != PL_ETIMEDOUT || pl_now_ns() >= end) return rc;
        if (w->error[0]) pl_http_nap(l, HTTP_BACK_OFF_NS);
    }
}

void pl_http_standby(struct pl_link *l, char url[PL_URL_MAX]) {
    pl_lock_enter(l->lock);
    memcpy(url, l->election.standby, sizeof l->election.standby);
    pl_lock_leave(l->lock);
}

const char *pl_http_server(const struct pl_link *l) {
    return l->url;
}

void pl_http_leave(struct pl_link *l) {
    pl_http_end(l, END_LEFT, false, "");
}

static const struct pl_join_ops http_join_ops = {
    pl_http_connect, http_pull_until, http_lost, http_farewell,
    http_say,        http_newest,     NULL,      http_final};

#else

static int http_connect(const struct pl_client_link_conf *conf, struct pl_link **out,
                        struct pl_welcome *welcome, struct pl_why *why) {
    (void)conf, (void)out, (void)welcome;
    return pl_fail(why, PL_EMISSING,
                   "this build cannot reach servers over HTTP: it has no libcurl; install the "
                   "Debian package libcurl4-gnutls-dev and build again");
}

static void http_detach(struct pl_link *l) {
    (void)l;
}

int pl_http_fetch(const struct pl_client_link_conf *conf, const char *path, char *out, size_t max,
                  struct pl_why *why) {
    (void)path, (void)out, (void)max;
    return http_connect(conf, NULL, NULL, why);
}

void pl_http_standby(struct pl_link *l, char url[PL_URL_MAX]) {
    (void)l;
    url[0] = '\0';
}

const char *pl_http_server(const struct pl_link *l) {
    (void)l;
    return "";
}

void pl_http_leave(struct pl_link *l) {
    (void)l;
}

#define pl_http_detach http_detach
#define http_pull NULL
#define http_cancelled NULL
#define http_sleep NULL
#define http_push NULL

static const struct pl_join_ops http_join_ops = {.connect = http_connect};

#endif

const struct pl_transport pl_http = {
    .name = "http",
    .brief = "clients on other machines",
    .link = {http_pull, http_cancelled, http_sleep, http_push, pl_http_detach},
    .join = &http_join_ops};
