#include "observe/dashboard.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "observe/http.h"
#include "observe/page.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/lock.h"
#include "sys/thread.h"

#define DASHBOARD_BEAT_NS 1000000000u  /* between two messages to the pages */
#define DASHBOARD_GRACE_NS 2000000000u /* for pages to fetch the end */
#define DASHBOARD_TASKS 20000          /* of the current run */
#define DASHBOARD_TASKS_PAST 4000      /* of each run that has ended */
#define DASHBOARD_RUNS 2000            /* runs on one page */
#define DASHBOARD_BYTES (64u << 20)    /* of all that have ended; beyond that runs are left out */

struct pl_dashboard {
    struct pl_http *http;
    struct pl_thread *thread;
    char *facts;
    atomic_uint stop;     /* rung when the thread must end */
    struct pl_lock *lock; /* protects everything below */
    struct pl_history *current;
    char *past[DASHBOARD_RUNS];
    size_t length[DASHBOARD_RUNS];
    size_t n_past, past_bytes;
    uint64_t n_fetched; /* answers with all data; since the last message that the runs have ended */
    bool over;
};

/* --- answers ----------------------------------------------------------------------------- */

/* {"first":2,"runs":[…],"over":0}, without the runs before `first`, which the page has already.
 * Only the copy of the current run is made under the lock; texts of runs that have ended do not
 * change. */
static void dashboard_data(struct pl_dashboard *d, size_t first, struct pl_http_answer *out) {
    struct pl_text t = {0};
    char text[64];
    size_t n = 0;
    pl_lock_enter(d->lock);
    size_t n_past = d->n_past;
    bool over = d->over;
    struct pl_history *now = d->current ? pl_history_copy(d->current, DASHBOARD_TASKS) : NULL;
    if (over) d->n_fetched++;
    pl_lock_leave(d->lock);
    if (first > n_past) first = n_past;
    snprintf(text, sizeof text, "{\"first\":%zu,\"runs\":[", first);
    pl_text_put(&t, text, strlen(text));
    for (size_t i = first; i < n_past; i++) {
        if (i > first) pl_text_put(&t, ",", 1);
        pl_text_put(&t, d->past[i], d->length[i]);
    }
    char *current = now ? pl_history_json(now, &n) : NULL;
    if (current && n_past > first) pl_text_put(&t, ",", 1);
    if (current) pl_text_put(&t, current, n);
    snprintf(text, sizeof text, "],\"past\":%zu,\"over\":%d}", n_past, over);
    pl_text_put(&t, text, strlen(text));
    free(current);
    pl_history_free(now);
    out->status = 503;
    if (t.failed)
        free(t.text);
    else
        *out = (struct pl_http_answer){
            .status = 200, .type = "application/json", .text = t.text, .n = t.n};
}

static void dashboard_answer(void *ctx, const char *path, struct pl_http_answer *out) {
    if (out->strange) { /* what runs here is not for pages of the web */
        out->status = 403;
    } else if (strcmp(path, "/") == 0) {
        out->text = pl_page_new(((const struct pl_dashboard *)ctx)->facts, NULL, 0, &out->n);
        out->status = out->text ? 200 : 503;
        if (out->text) out->type = "text/html; charset=utf-8";
    } else if (strncmp(path, "/data/", 6) == 0) {
        dashboard_data(ctx, strtoul(path + 6, NULL, 10), out);
    } else if (strcmp(path, "/events") == 0) {
        out->stream = true;
    } else if (strcmp(path, "/healthz") == 0) {
        out->status = 200;
    }
}

/* --- news -------------------------------------------------------------------------------- */

/* A message tells that there is something to fetch; it carries only what the title shows. */
static int dashboard_tell(struct pl_dashboard *d) {
    char message[200];
    pl_lock_enter(d->lock);
    snprintf(message, sizeof message, "data: {\"runs\":%zu,\"over\":%d}\n\n",
             d->n_past + (d->current != NULL), d->over);
    pl_lock_leave(d->lock);
    return pl_http_broadcast(d->http, message);
}

static void dashboard_beat(void *arg) {
    struct pl_dashboard *d = arg;
    while (atomic_load(&d->stop) == 0) {
        dashboard_tell(d);
        pl_futex_wait(&d->stop, 0, DASHBOARD_BEAT_NS);
    }
}

/* --- opening and closing ----------------------------------------------------------------- */

int pl_dashboard_open(const char *address, char *facts, struct pl_dashboard **out,
                      struct pl_why *why) {
    struct pl_dashboard *d = calloc(1, sizeof *d);
    if (d) d->lock = pl_lock_new();
    if (!d || !d->lock || !facts) {
        if (d) pl_lock_free(d->lock);
        free(d);
        free(facts);
        return pl_fail(why, PL_ENOMEM, "out of memory for the dashboard");
    }
    d->facts = facts;
    int rc = pl_http_open("dashboard", address, dashboard_answer, d, &d->http, why);
    if (!rc && pl_thread_start(dashboard_beat, d, &d->thread))
        rc = pl_fail(why, PL_ENOMEM, "the dashboard's thread cannot be started");
    if (rc) {
        pl_http_close(d->http);
        pl_lock_free(d->lock);
        free(d->facts);
        free(d);
        return rc;
    }
    *out = d;
    return PL_OK;
}

const char *pl_dashboard_url(const struct pl_dashboard *d, char out[PL_DASHBOARD_URL]) {
    const char *host = pl_http_host(d->http);
    bool six = strchr(host, ':') != NULL;
    snprintf(out, PL_DASHBOARD_URL, "http://%s%s%s:%d/", six ? "[" : "", host, six ? "]" : "",
             pl_http_port(d->http));
    return out;
}

/* Waits until every page that is open has fetched the end. */
static void dashboard_farewell(struct pl_dashboard *d) {
    pl_lock_enter(d->lock);
    d->over = true;
    pl_lock_leave(d->lock);
    uint64_t n_pages = (uint64_t)dashboard_tell(d), end_ns = pl_now_ns() + DASHBOARD_GRACE_NS;
    for (bool done = n_pages == 0; !done && pl_now_ns() < end_ns;) {
        pl_sleep_ns(20000000);
        pl_lock_enter(d->lock);
        done = d->n_fetched >= n_pages;
        pl_lock_leave(d->lock);
    }
}

void pl_dashboard_close(struct pl_dashboard *d) {
    if (!d) return;
    dashboard_farewell(d);
    pl_futex_ring(&d->stop);
    pl_thread_join(d->thread);
    pl_http_close(d->http);
    for (size_t i = 0; i < d->n_past; i++) free(d->past[i]);
    pl_lock_free(d->lock);
    free(d->facts);
    free(d);
}

void pl_dashboard_attach(struct pl_dashboard *d, struct pl_history *h) {
    pl_lock_enter(d->lock);
    d->current = h;
    pl_lock_leave(d->lock);
}

void pl_dashboard_detach(struct pl_dashboard *d) {
    size_t n = 0;
    struct pl_history *end = d->current ? pl_history_copy(d->current, DASHBOARD_TASKS_PAST) : NULL;
    char *text = end ? pl_history_json(end, &n) : NULL;
    pl_history_free(end);
    pl_lock_enter(d->lock);
    d->current = NULL;
    if (text && d->n_past < DASHBOARD_RUNS && d->past_bytes + n <= DASHBOARD_BYTES) {
        d->past[d->n_past] = text;
        d->length[d->n_past++] = n;
        d->past_bytes += n;
        text = NULL;
    }
    pl_lock_leave(d->lock);
    free(text);
}

void pl_dashboard_enter(struct pl_dashboard *d) {
    pl_lock_enter(d->lock);
}

void pl_dashboard_leave(struct pl_dashboard *d) {
    pl_lock_leave(d->lock);
}
