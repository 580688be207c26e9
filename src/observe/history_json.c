/* A history as JSON. Tasks are columns of whole numbers, in order of their end: times are multiples
 * of "unit" seconds, and "to" is the difference from the task before. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/seconds.h"
#include "observe/history_state.h"
#include "observe/stragglers.h"

/* The lines "key=value" of the setup as an object. */
static void history_options(struct pl_json *j, const char *text) {
    char key[64], value[600];
    pl_json_open(j, "options", '{');
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n"), k = strcspn(line, "=\n");
        if (k < n && k < sizeof key && n - k - 1 < sizeof value) {
            memcpy(key, line, k);
            key[k] = '\0';
            memcpy(value, line + k + 1, n - k - 1);
            value[n - k - 1] = '\0';
            pl_json_text(j, key, value);
        }
        line += n + (line[n] == '\n');
    }
    pl_json_close(j, '}');
}

static void history_fates(struct pl_json *j, const struct pl_fates *f) {
    pl_json_open(j, "fates", '{');
    pl_json_whole(j, "started", f->started);
    pl_json_whole(j, "applied", f->applied);
    pl_json_whole(j, "dropped", f->dropped);
    pl_json_whole(j, "cancelled", f->cancelled);
    pl_json_whole(j, "lost", f->lost);
    pl_json_whole(j, "rejected", f->rejected);
    pl_json_whole(j, "running", f->running);
    pl_json_close(j, '}');
}

static double history_round(double x) {
    return isfinite(x) && fabs(x) < 1e12 ? round(x * 1e9) / 1e9 : x;
}

static void history_names(struct pl_json *j, const struct pl_history *h) {
    if (!h->name) return;
    pl_json_open(j, "names", '[');
    for (int i = 0; i < h->n_shown; i++) pl_json_text(j, NULL, h->name[i]);
    pl_json_close(j, ']');
}

static void history_rows(struct pl_json *j, const struct pl_history *h) {
    static const char *const pace[] = {"unknown", "usual", "slow", "stuck"};
    struct pl_usual usual = pl_stragglers_usual(h->row, h->n_shown);
    pl_json_open(j, "rows", '[');
    for (int i = 0; i < h->n_shown; i++) {
        const struct pl_timeline_row *r = &h->row[i];
        pl_json_open(j, NULL, '[');
        for (enum pl_span_kind kind = 0; kind < 4; kind++)
            pl_json_real(j, NULL, history_round(pl_timeline_seconds(r, kind)));
        pl_json_whole(j, NULL, r->n_used);
        pl_json_whole(j, NULL, r->n_wasted);
        pl_json_real(j, NULL, history_round(pl_seconds(r->held_up_ns)));
        pl_json_whole(j, NULL, r->n_last);
        pl_json_real(j, NULL, history_round(pl_stragglers_task(r)));
        pl_json_real(j, NULL, history_round(pl_seconds(r->unfinished_ns)));
        pl_json_text(j, NULL, pace[pl_stragglers_pace(r, &usual)]);
        pl_json_close(j, ']');
    }
    pl_json_close(j, ']');
}

/* [holder, waiter, seconds], workers from 0. */
static void history_pairs(struct pl_json *j, const struct pl_history *h) {
    pl_json_open(j, "held", '[');
    for (int i = 0; h->pairs && i < h->n_workers * h->n_workers; i++) {
        if (!(h->pairs[i] > 0)) continue;
        pl_json_open(j, NULL, '[');
        pl_json_whole(j, NULL, (uint64_t)(i / h->n_workers));
        pl_json_whole(j, NULL, (uint64_t)(i % h->n_workers));
        pl_json_real(j, NULL, history_round((double)h->pairs[i]));
        pl_json_close(j, ']');
    }
    pl_json_close(j, ']');
}

static void history_knobs(struct pl_json *j, const struct pl_history *h) {
    pl_json_open(j, "knobs", '[');
    for (size_t i = 0; i < h->n_knobs; i++) {
        const struct history_knobs *k = &h->knobs[i];
        pl_json_open(j, NULL, '[');
        pl_json_real(j, NULL, k->time);
        pl_json_whole(j, NULL, (uint64_t)k->knobs.k);
        if (k->knobs.bound == PL_NO_BOUND)
            pl_json_real(j, NULL, NAN);
        else
            pl_json_whole(j, NULL, k->knobs.bound);
        pl_json_close(j, ']');
    }
    pl_json_close(j, ']');
}

/* [smallest lag of the bin, how many results]. */
static void history_staleness(struct pl_json *j, const struct pl_history *h) {
    pl_json_open(j, "staleness", '{');
    pl_json_real(j, "mean", h->staleness.mean);
    pl_json_whole(j, "max", h->staleness.max);
    pl_json_open(j, "bins", '[');
    for (size_t i = 0; i < HISTORY_BINS; i++) {
        if (h->bin[i] == 0) continue;
        pl_json_open(j, NULL, '[');
        pl_json_whole(j, NULL, i < HISTORY_LAGS ? i : (uint64_t)HISTORY_LAGS << (i - HISTORY_LAGS));
        pl_json_whole(j, NULL, h->bin[i]);
        pl_json_close(j, ']');
    }
    pl_json_close(j, ']');
    pl_json_close(j, '}');
}

static void history_points(struct pl_json *j, const struct pl_history *h) {
    pl_json_open(j, "points", '[');
    for (size_t i = 0; i < h->n_points; i++) {
        const struct pl_point *p = &h->point[i];
        pl_json_open(j, NULL, '{');
        pl_json_real(j, "time", p->time);
        pl_json_whole(j, "updates", p->updates);
        pl_json_real(j, "epochs", p->epochs);
        pl_json_real(j, "loss", p->loss);
        pl_json_real(j, "test_loss", p->test_loss);
        pl_json_real(j, "test_accuracy", p->test_accuracy);
        pl_json_close(j, '}');
    }
    pl_json_close(j, ']');
}

static void history_column(struct pl_json *j, const char *name, const struct pl_history *h,
                           uint64_t unit_ns) {
    uint64_t before = 0;
    pl_json_open(j, name, '[');
    for (uint64_t i = h->first_task; i < h->n_tasks; i++) {
        const struct history_task *t = &h->task[i % h->room];
        uint64_t from = t->from_ns / unit_ns, to = t->to_ns / unit_ns, value = t->task;
        switch (name[0]) {
        case 'w': value = (uint64_t)t->worker; break;
        case 'd': value = to - from; break; /* duration */
        case 's': value = t->sent_ns / unit_ns; break;
        case 'l': value = t->lag; break;
        case 'e': /* end */
            value = to > before ? to - before : 0;
            before = to > before ? to : before;
            break;
        }
        pl_json_whole(j, NULL, value);
    }
    pl_json_close(j, ']');
}

static void history_tasks(struct pl_json *j, const struct pl_history *h) {
    uint64_t unit_ns = 1, n = h->n_tasks - h->first_task;
    char *fates = malloc((size_t)n + 1);
    if (!fates) {
        j->failed = true;
        return;
    }
    while (h->now_ns / unit_ns > UINT32_MAX / 2) unit_ns *= 10;
    for (uint64_t i = 0; i < n; i++) fates[i] = h->task[(h->first_task + i) % h->room].fate;
    fates[n] = '\0';
    pl_json_open(j, "tasks", '{');
    pl_json_whole(j, "all", h->n_tasks);
    pl_json_real(j, "unit", pl_seconds(unit_ns));
    pl_json_text(j, "fate", fates);
    history_column(j, "worker", h, unit_ns);
    history_column(j, "end", h, unit_ns);
    history_column(j, "duration", h, unit_ns);
    history_column(j, "sent", h, unit_ns);
    history_column(j, "lag", h, unit_ns);
    history_column(j, "number", h, unit_ns);
    pl_json_close(j, '}');
    free(fates);
}

/* One character per number, from '0' for nothing to 'o' for the whole column. */
static void history_cells(struct pl_json *j, const struct pl_history *h) {
    size_t n = (size_t)h->n_columns * 4;
    double width = pl_seconds(h->width_ns);
    char text[HISTORY_COLUMNS * 4 + 1];
    pl_json_open(j, "cells", '{');
    pl_json_real(j, "width", width);
    pl_json_open(j, "rows", '[');
    for (int i = 0; i < h->n_shown; i++) {
        for (size_t k = 0; k < n; k++) {
            double part = width > 0 ? (double)h->cell[(size_t)i * n + k] / width : 0;
            int level = part >= 1 ? 63 : (int)(part * 63 + 0.5);
            text[k] = (char)('0' + (level == '\\' - '0' ? level + 1 : level));
        }
        size_t end = n;
        while (end > 4 && memcmp(text + end - 4, "0000", 4) == 0) end -= 4;
        text[end] = '\0';
        pl_json_text(j, NULL, text);
    }
    pl_json_close(j, ']');
    pl_json_close(j, '}');
}

static void history_events(struct pl_json *j, const struct pl_history *h) {
    uint64_t n = h->n_events, first = n < HISTORY_FIRST ? n : HISTORY_FIRST, rest = n - first;
    pl_json_open(j, "events", '{');
    pl_json_whole(j, "all", n);
    pl_json_open(j, "first", '[');
    for (uint64_t i = 0; i < first; i++) pl_json_text(j, NULL, h->line[i]);
    pl_json_close(j, ']');
    pl_json_open(j, "last", '[');
    for (uint64_t i = rest > HISTORY_LAST ? rest - HISTORY_LAST : 0; i < rest; i++)
        pl_json_text(j, NULL, h->line[HISTORY_FIRST + i % HISTORY_LAST]);
    pl_json_close(j, ']');
    pl_json_close(j, '}');
}

char *pl_history_json(const struct pl_history *h, size_t *n) {
    struct pl_json j = {0};
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "format", "paceline history 1");
    pl_json_text(&j, "method", h->method);
    pl_json_text(&j, "clock", h->clock);
    pl_json_text(&j, "metric", h->metric);
    history_options(&j, h->options);
    pl_json_text(&j, "command_line", h->command);
    pl_json_whole(&j, "workers", (uint64_t)h->n_workers);
    pl_json_real(&j, "time", pl_seconds(h->now_ns));
    pl_json_whole(&j, "updates", h->version);
    pl_json_whole(&j, "ended", h->ended);
    pl_json_text(&j, "why", h->why[0] ? h->why : NULL);
    pl_json_real(&j, "core_wait", h->core_wait);
    history_fates(&j, &h->fates);
    history_names(&j, h);
    history_rows(&j, h);
    history_pairs(&j, h);
    history_knobs(&j, h);
    history_staleness(&j, h);
    history_points(&j, h);
    history_tasks(&j, h);
    history_cells(&j, h);
    history_events(&j, h);
    pl_json_close(&j, '}');
    if (j.failed) {
        free(j.text);
        return NULL;
    }
    *n = j.n;
    return j.text;
}
