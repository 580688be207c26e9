#include "observe/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/seconds.h"
#include "observe/http.h"
#include "sys/clock.h"
#include "sys/lock.h"

#define METRICS_PATIENCE_S 30
#define METRICS_PATIENCE_MEANS 10

struct pl_metrics {
    struct pl_http *http;
    struct pl_lock *lock; /* protects everything below */
    uint64_t (*now_ns)(void);
    struct pl_metrics_now now;
    struct pl_timeline_row *row; /* [room], target of now.row */
    size_t room;
    bool published;
    uint64_t first;                /* updates at the first publish */
    uint64_t begun_ns, updated_ns; /* time of the first publish; of the last update seen */
};

/* --- the text ---------------------------------------------------------------------------- */

static void metrics_say(struct pl_text *p, const char *fmt, ...) PL_PRINTF(2, 3);

static void metrics_say(struct pl_text *p, const char *fmt, ...) {
    char line[300];
    va_list ap;
    va_start(ap, fmt);
    int length = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    p->failed |= length < 0 || (size_t)length >= sizeof line;
    pl_text_put(p, line, (size_t)length);
}

static void metrics_head(struct pl_text *p, const char *name, const char *type, const char *help) {
    metrics_say(p, "# HELP paceline_%s %s\n# TYPE paceline_%s %s\n", name, help, name, type);
}

/* One number with its labels ("" or "{…}"). */
static void metrics_value(struct pl_text *p, const char *name, const char *labels, double value) {
    if (isinf(value))
        metrics_say(p, "paceline_%s%s %s\n", name, labels, value > 0 ? "+Inf" : "-Inf");
    else if (value == trunc(value) && fabs(value) < 1e18) /* counts are not rounded */
        metrics_say(p, "paceline_%s%s %.0f\n", name, labels, value);
    else
        metrics_say(p, "paceline_%s%s %.15g\n", name, labels, value);
}

static void metrics_one(struct pl_text *p, const char *name, const char *type, const char *help,
                        double value) {
    if (isnan(value)) return;
    metrics_head(p, name, type, help);
    metrics_value(p, name, "", value);
}

static void metrics_fates(struct pl_text *p, const struct pl_fates *f) {
    const struct {
        const char *name;
        uint64_t n;
    } fate[] = {{"applied", f->applied},
                {"dropped", f->dropped},
                {"cancelled", f->cancelled},
                {"lost", f->lost},
                {"rejected", f->rejected}};
    char labels[40];
    metrics_one(p, "tasks_started_total", "counter", "Tasks assigned to workers.",
                (double)f->started);
    metrics_head(p, "tasks_total", "counter", "Tasks that ended, by fate.");
    for (size_t i = 0; i < sizeof fate / sizeof fate[0]; i++) {
        snprintf(labels, sizeof labels, "{fate=\"%s\"}", fate[i].name);
        metrics_value(p, "tasks_total", labels, (double)fate[i].n);
    }
}

static void metrics_suspended(struct pl_text *p, const struct pl_metrics_now *now) {
    metrics_head(p, "workers_suspended_total", "counter",
                 "Times that a worker was taken out of the run, by reason.");
    metrics_value(p, "workers_suspended_total", "{reason=\"quarantined\"}",
                  (double)now->quarantined);
    metrics_value(p, "workers_suspended_total", "{reason=\"evicted\"}", (double)now->evicted);
    metrics_value(p, "workers_suspended_total", "{reason=\"frozen\"}", (double)now->frozen);
}

/* Workers are numbered from 1, as in everything users see. */
static void metrics_workers(struct pl_text *p, const struct pl_timeline_row *row, int n) {
    static const char *const kinds[] = {[PL_SPAN_COMPUTE] = "compute",
                                        [PL_SPAN_COMMUNICATE] = "communication",
                                        [PL_SPAN_IDLE] = "idle",
                                        [PL_SPAN_WASTED] = "wasted"};
    char labels[60];
    if (n <= 0) return;
    metrics_head(p, "worker_seconds_total", "counter", "Where a worker's time went.");
    for (int i = 0; i < n; i++)
        for (enum pl_span_kind kind = 0; kind < 4; kind++) {
            snprintf(labels, sizeof labels, "{worker=\"%d\",kind=\"%s\"}", i + 1, kinds[kind]);
            metrics_value(p, "worker_seconds_total", labels, pl_timeline_seconds(&row[i], kind));
        }
    metrics_head(p, "worker_held_up_seconds_total", "counter",
                 "Time that others, already done, waited for this worker alone.");
    for (int i = 0; i < n; i++) {
        snprintf(labels, sizeof labels, "{worker=\"%d\"}", i + 1);
        metrics_value(p, "worker_held_up_seconds_total", labels, pl_seconds(row[i].held_up_ns));
    }
}

char *pl_metrics_text(const struct pl_metrics_now *now, size_t *n) {
    struct pl_text p = {0};
    double max = now->fates.applied ? (double)now->staleness.max : NAN;
    metrics_head(&p, "build_info", "gauge", "The version of Paceline.");
    metrics_value(&p, "build_info", "{version=\"" PL_VERSION "\"}", 1);
    metrics_one(&p, "updates_total", "counter", "Updates of the model.", (double)now->updates);
    metrics_one(&p, "samples_total", "counter", "Samples in applied updates.",
                (double)now->samples);
    metrics_fates(&p, &now->fates);
    metrics_suspended(&p, now);
    metrics_one(&p, "staleness_mean", "gauge", "Mean staleness of applied gradients.",
                now->staleness.mean);
    metrics_one(&p, "staleness_max", "gauge", "Largest staleness of an applied gradient.", max);
    metrics_one(&p, "workers", "gauge", "Workers present.", now->workers);
    metrics_one(&p, "workers_disconnected", "gauge",
                "Workers that lost their connection and may return.", now->workers_away);
    metrics_one(&p, "workers_expected", "gauge", "Workers expected.", now->workers_expected);
    metrics_one(&p, "k", "gauge", "Contributions per update.", now->k);
    metrics_one(&p, "loss", "gauge", "Loss on a fixed subset of the training set.", now->loss);
    metrics_one(&p, "test_loss", "gauge", "Loss on the test set.", now->test_loss);
    metrics_one(&p, "test_accuracy", "gauge", "Fraction of the test set classified correctly.",
                now->test_accuracy);
    metrics_one(&p, "consensus_distance", "gauge",
                "Distance of the workers' own models from their mean.", now->consensus);
    metrics_one(&p, "run_seconds", "gauge", "Time since the run began.", now->run_seconds);
    metrics_one(&p, "last_update_timestamp_seconds", "gauge",
                "Time of the last update, in seconds since 1970.", now->last_update);
    metrics_one(&p, "checkpoint_last_timestamp_seconds", "gauge",
                "Time of the last checkpoint, in seconds since 1970.", now->last_checkpoint);
    metrics_workers(&p, now->row, now->n_rows);
    if (p.failed) {
        free(p.text);
        return NULL;
    }
    *n = p.n;
    return p.text;
}

bool pl_metrics_well(double since, double mean, char *out, size_t max) {
    double patience = fmax(METRICS_PATIENCE_S, METRICS_PATIENCE_MEANS * mean);
    if (since <= patience) {
        snprintf(out, max, "ok\n");
        return true;
    }
    if (isnan(mean))
        snprintf(out, max, "no update for %.0f s\n", since);
    else
        snprintf(out, max, "no update for %.0f s (mean %.3g s per update)\n", since, mean);
    return false;
}

/* --- the server -------------------------------------------------------------------------- */

/* Builds the page from a copy, without holding the lock. */
static void metrics_page(struct pl_metrics *m, struct pl_http_answer *out) {
    struct pl_timeline_row *row = NULL;
    pl_lock_enter(m->lock);
    struct pl_metrics_now now = m->now;
    if (now.n_rows > 0) {
        row = malloc((size_t)now.n_rows * sizeof *row);
        if (row) memcpy(row, m->row, (size_t)now.n_rows * sizeof *row);
    }
    pl_lock_leave(m->lock);
    now.row = row;
    if (!row) now.n_rows = 0;
    out->status = 503;
    out->text = pl_metrics_text(&now, &out->n);
    free(row);
    if (!out->text) return;
    out->status = 200;
    out->type = "text/plain; version=0.0.4; charset=utf-8";
}

static void metrics_health(struct pl_metrics *m, struct pl_http_answer *out) {
    enum { ROOM = 160 };
    pl_lock_enter(m->lock);
    uint64_t now_ns = m->now_ns();
    double since = now_ns > m->updated_ns ? pl_seconds(now_ns - m->updated_ns) : 0;
    double took = pl_seconds(m->updated_ns - m->begun_ns);
    double n = (double)(m->now.updates - m->first);
    if (!m->published) since = 0; /* it waits for workers */
    pl_lock_leave(m->lock);
    out->status = 503;
    out->text = malloc(ROOM);
    if (!out->text) return;
    if (pl_metrics_well(since, n > 0 ? took / n : NAN, out->text, ROOM)) out->status = 200;
    out->n = strlen(out->text);
}

/* It can be joined. */
static void metrics_ready(struct pl_http_answer *out) {
    out->text = strdup("ok\n");
    out->status = out->text ? 200 : 503;
    out->n = out->text ? strlen(out->text) : 0;
}

/* Pages of the web must not reach this machine's ports; a cluster's names for it are unknown here.
 */
static void metrics_answer(void *ctx, const char *path, struct pl_http_answer *out) {
    if (out->strange && out->local) {
        out->status = 403;
        return;
    }
    if (strcmp(path, "/metrics") == 0) metrics_page(ctx, out);
    if (strcmp(path, "/healthz") == 0) metrics_health(ctx, out);
    if (strcmp(path, "/readyz") == 0) metrics_ready(out);
}

int pl_metrics_open(const char *address, uint64_t (*now_ns)(void), struct pl_metrics **out,
                    struct pl_why *why) {
    struct pl_metrics *m = calloc(1, sizeof *m);
    if (m) m->lock = pl_lock_new();
    if (!m || !m->lock) {
        free(m);
        return pl_fail(why, PL_ENOMEM, "out of memory for the metrics");
    }
    m->now_ns = now_ns;
    m->begun_ns = m->updated_ns = now_ns();
    m->now = (struct pl_metrics_now){.staleness = {NAN, 0, NAN},
                                     .loss = NAN,
                                     .test_loss = NAN,
                                     .test_accuracy = NAN,
                                     .consensus = NAN,
                                     .run_seconds = NAN,
                                     .last_update = NAN,
                                     .last_checkpoint = NAN};
    int rc = pl_http_open("metrics", address, metrics_answer, m, &m->http, why);
    if (rc) {
        pl_metrics_close(m);
        return rc;
    }
    *out = m;
    return PL_OK;
}

void pl_metrics_close(struct pl_metrics *m) {
    if (!m) return;
    pl_http_close(m->http);
    pl_lock_free(m->lock);
    free(m->row);
    free(m);
}

int pl_metrics_port(const struct pl_metrics *m) {
    return pl_http_port(m->http);
}

void pl_metrics_publish(struct pl_metrics *m, const struct pl_metrics_now *now) {
    int n = now->row && now->n_rows > 0 ? now->n_rows : 0;
    if (n > PL_METRICS_WORKERS) n = PL_METRICS_WORKERS;
    pl_lock_enter(m->lock);
    uint64_t now_ns = m->now_ns();
    if (!PL_GROW(m->row, m->room, n)) n = (int)m->room; /* out of memory: show fewer */
    if (n > 0) memcpy(m->row, now->row, (size_t)n * sizeof *m->row);
    if (!m->published) { /* a resumed run already has updates */
        m->first = now->updates;
        m->begun_ns = m->updated_ns = now_ns;
    }
    if (now->updates != m->now.updates) m->updated_ns = now_ns;
    m->now = *now;
    m->now.row = NULL;
    m->now.n_rows = n;
    m->published = true;
    pl_lock_leave(m->lock);
}
