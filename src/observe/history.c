#include "observe/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/seconds.h"
#include "observe/history_state.h"

/* --- opening and closing ----------------------------------------------------------------- */

static bool history_alloc(struct pl_history *h) {
    size_t n = (size_t)h->n_shown, cells = n * (size_t)h->n_columns * 4;
    bool pairs = h->n_workers <= HISTORY_PAIRS;
    h->row = calloc(n, sizeof *h->row);
    h->cell = calloc(cells, sizeof *h->cell);
    h->line = calloc(HISTORY_FIRST + HISTORY_LAST, sizeof *h->line);
    if (pairs) h->pairs = calloc(n * n, sizeof *h->pairs);
    return h->row && h->cell && h->line && (h->pairs || !pairs);
}

static bool history_name(struct pl_history *h, const struct pl_history_info *info) {
    h->method = strdup(info->method);
    h->clock = strdup(info->clock);
    h->metric = strdup(info->metric);
    h->options = strdup(info->options);
    h->command = strdup(info->command);
    return h->method && h->clock && h->metric && h->options && h->command;
}

int pl_history_new(const struct pl_history_info *info, int n_workers, struct pl_history **out) {
    struct pl_history *h = calloc(1, sizeof *h);
    if (!h) return PL_ENOMEM;
    h->n_workers = n_workers;
    h->core_wait = NAN;
    h->n_shown = n_workers < PL_HISTORY_WORKERS ? n_workers : PL_HISTORY_WORKERS;
    h->n_columns = HISTORY_CELLS / h->n_shown;
    if (h->n_columns > HISTORY_COLUMNS) h->n_columns = HISTORY_COLUMNS;
    if (!history_name(h, info) || !history_alloc(h)) {
        pl_history_free(h);
        return PL_ENOMEM;
    }
    *out = h;
    return PL_OK;
}

void pl_history_free(struct pl_history *h) {
    if (!h) return;
    free(h->method);
    free(h->clock);
    free(h->metric);
    free(h->options);
    free(h->command);
    free(h->name);
    free(h->row);
    free(h->task);
    free(h->pairs);
    free(h->cell);
    free(h->line);
    free(h);
}

/* --- tasks ------------------------------------------------------------------------------- */

/* Grows the ring up to its limit. Without memory the ring stays as it is and forgets earlier. */
static void history_grow(struct pl_history *h) {
    size_t room = h->room ? 2 * h->room : 1024;
    if (room > PL_HISTORY_TASKS) room = PL_HISTORY_TASKS;
    if (h->n_tasks - h->first_task < h->room || room == h->room) return;
    struct history_task *grown = malloc(room * sizeof *grown);
    if (!grown) return;
    for (uint64_t i = h->first_task; i < h->n_tasks; i++) grown[i % room] = h->task[i % h->room];
    free(h->task);
    h->task = grown;
    h->room = room;
}

static void history_task(struct pl_history *h, const struct history_task *t) {
    history_grow(h);
    if (h->room == 0) return;
    h->task[h->n_tasks++ % h->room] = *t;
    if (h->n_tasks - h->first_task > h->room) h->first_task = h->n_tasks - h->room;
}

/* The part of a task that sends is a span of its own and follows the computing. */
static void history_sent(struct pl_history *h, const struct pl_span *s) {
    struct history_task *last = h->n_tasks ? &h->task[(h->n_tasks - 1) % h->room] : NULL;
    uint64_t ns = s->to_ns - s->from_ns;
    struct history_task t = {s->from_ns, s->to_ns, s->task, 0, 0, s->worker, HISTORY_APPLIED};
    t.sent_ns = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    t.lag = h->version > s->base ? (uint32_t)(h->version - s->base) : 0;
    if (last && last->worker == s->worker && last->task == s->task) {
        last->to_ns = s->to_ns;
        last->sent_ns = t.sent_ns;
    } else {
        history_task(h, &t);
    }
}

static char history_fate(const char *why) {
    switch (why[0]) {
    case 'd': return HISTORY_DROPPED;
    case 'c': return HISTORY_CANCELLED;
    case 'l': return HISTORY_LOST;
    case 'r': return HISTORY_REJECTED;
    case 'u': return HISTORY_UNFINISHED;
    default: return HISTORY_APPLIED;
    }
}

/* --- cells ------------------------------------------------------------------------------- */

/* Doubles the width of the columns until the time is inside. */
static void history_widen(struct pl_history *h, uint64_t to_ns) {
    size_t n = (size_t)h->n_columns;
    if (h->width_ns == 0) h->width_ns = to_ns / n + 1;
    while (to_ns > h->width_ns * n) {
        for (int i = 0; i < h->n_shown; i++) {
            float *row = h->cell + (size_t)i * n * 4;
            for (size_t j = 0; j < n; j++)
                for (size_t kind = 0; kind < 4; kind++) {
                    size_t a = 8 * j + kind, b = a + 4;
                    row[4 * j + kind] = (a < 4 * n ? row[a] : 0) + (b < 4 * n ? row[b] : 0);
                }
        }
        h->width_ns *= 2;
    }
}

/* Adds the time, or takes it away. */
static void history_cells(struct pl_history *h, int worker, enum pl_span_kind kind,
                          uint64_t from_ns, uint64_t to_ns, float sign) {
    history_widen(h, to_ns);
    float *row = h->cell + (size_t)worker * (size_t)h->n_columns * 4;
    for (uint64_t at = from_ns; at < to_ns;) {
        uint64_t column = at / h->width_ns, end = (column + 1) * h->width_ns;
        if (column >= (uint64_t)h->n_columns) break;
        if (end > to_ns) end = to_ns;
        row[4 * column + kind] += sign * (float)(pl_seconds(end - at));
        at = end;
    }
}

/* A task that was told as one that is used turned out to be wasted. */
static void history_again(struct pl_history *h, const struct pl_span *s) {
    for (uint64_t i = h->n_tasks; i-- > h->first_task;) {
        struct history_task *t = &h->task[i % h->room];
        if (t->worker != s->worker || t->task != s->task) continue;
        uint64_t done_ns = t->to_ns - t->sent_ns;
        t->fate = history_fate(s->why);
        history_cells(h, t->worker, PL_SPAN_COMPUTE, t->from_ns, done_ns, -1);
        history_cells(h, t->worker, PL_SPAN_COMMUNICATE, done_ns, t->to_ns, -1);
        history_cells(h, t->worker, PL_SPAN_WASTED, t->from_ns, t->to_ns, 1);
        return;
    }
}

static void history_span(struct pl_history *h, const struct pl_span *s) {
    if (s->worker >= h->n_shown) return;
    if (s->again) {
        history_again(h, s);
        return;
    }
    history_cells(h, s->worker, s->kind, s->from_ns, s->to_ns, 1);
    if (s->kind == PL_SPAN_COMMUNICATE) {
        history_sent(h, s);
    } else if (s->kind != PL_SPAN_IDLE) {
        uint64_t lag = h->version > s->base ? h->version - s->base : 0;
        struct history_task t = {s->from_ns,          s->to_ns, s->task, 0, 0, s->worker,
                                 history_fate(s->why)};
        t.lag = lag < UINT32_MAX ? (uint32_t)lag : UINT32_MAX;
        history_task(h, &t);
    }
}

/* --- events ------------------------------------------------------------------------------ */

static size_t history_bin(uint64_t lag) {
    size_t bin = HISTORY_LAGS;
    if (lag < HISTORY_LAGS) return (size_t)lag;
    for (lag /= 2 * (uint64_t)HISTORY_LAGS; lag > 0; lag /= 2) bin++;
    return bin;
}

/* Attributes the time that a worker waited to the one whose result it waited for last: since the
 * result before that one. */
static void history_pair(struct pl_history *h, const struct pl_timeline *l,
                         const struct pl_event *e, const struct pl_span *idle) {
    if (!h->pairs || l->waited_ns == PL_NO_TIMER || idle->worker == e->worker) return;
    uint64_t since = idle->from_ns > l->waited_ns ? idle->from_ns : l->waited_ns;
    h->pairs[e->worker * h->n_workers + idle->worker] += (float)(pl_seconds(e->now_ns - since));
}

static void history_row(struct pl_history *h, const struct pl_timeline *l, int worker) {
    if (worker >= 0 && worker < h->n_shown) h->row[worker] = l->row[worker];
}

static void history_rows(struct pl_history *h, const struct pl_timeline *l,
                         const struct pl_event *e, const struct pl_plan *plan) {
    if (pl_event_has_worker(e)) history_row(h, l, e->worker);
    for (size_t i = 0; i < plan->n; i++) history_row(h, l, plan->action[i].worker);
    for (size_t i = 0; i < l->n_spans; i++) history_row(h, l, l->span[i].worker);
}

static void history_knob(struct pl_history *h, const struct pl_knobs *k, uint64_t now_ns) {
    const struct pl_knobs *last = h->n_knobs ? &h->knobs[h->n_knobs - 1].knobs : NULL;
    if (last && last->k == k->k && last->bound == k->bound) return;
    if (h->n_knobs == HISTORY_KNOBS) {
        for (size_t i = 0; i < HISTORY_KNOBS / 2; i++) h->knobs[i] = h->knobs[2 * i + 1];
        h->n_knobs = HISTORY_KNOBS / 2;
    }
    h->knobs[h->n_knobs++] = (struct history_knobs){pl_seconds(now_ns), *k};
}

static void history_line(struct pl_history *h, const struct pl_control *c, const struct pl_event *e,
                         const struct pl_plan *plan) {
    uint64_t i = h->n_events++;
    if (i >= HISTORY_FIRST) i = HISTORY_FIRST + (i - HISTORY_FIRST) % HISTORY_LAST;
    pl_control_print(c, e, plan, h->line[i], HISTORY_LINE);
}

void pl_history_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                      const struct pl_plan *plan) {
    struct pl_history *h = ctx;
    size_t n;
    const struct pl_member *group = pl_control_group(c, &n);
    const struct pl_timeline *l = pl_control_timeline(c);
    h->now_ns = e->now_ns;
    for (size_t i = 0; i < l->n_spans; i++) {
        history_span(h, &l->span[i]);
        if (l->span[i].kind == PL_SPAN_IDLE) history_pair(h, l, e, &l->span[i]);
    }
    history_rows(h, l, e, plan);
    for (size_t i = 0; i < plan->n; i++)
        for (size_t m = 0; plan->action[i].verb == PL_COMMIT && m < n; m++)
            h->bin[history_bin(group[m].lag)] += !group[m].left_out;
    h->version = pl_control_view(c)->version;
    h->fates = pl_control_fates(c);
    h->staleness = pl_control_staleness(c);
    history_knob(h, &pl_control_view(c)->knobs, e->now_ns);
    if (e->kind == PL_END)
        h->ended = true;
    else
        history_line(h, c, e, plan);
}

void pl_history_point(struct pl_history *h, const struct pl_point *p) {
    if (h->n_points == HISTORY_POINTS) {
        for (size_t i = 0; i < HISTORY_POINTS / 2; i++) h->point[i] = h->point[2 * i + 1];
        h->n_points = HISTORY_POINTS / 2;
    }
    h->point[h->n_points++] = *p;
}

void pl_history_end(struct pl_history *h, const char *why, double core_wait) {
    h->ended = true;
    h->core_wait = core_wait;
    snprintf(h->why, sizeof h->why, "%s", why);
}

void pl_history_named(struct pl_history *h, int worker, const char *name) {
    if (worker >= h->n_shown) return;
    if (!h->name) h->name = calloc((size_t)h->n_shown, sizeof *h->name);
    if (h->name) snprintf(h->name[worker], sizeof h->name[worker], "%s", name);
}

/* --- copying ----------------------------------------------------------------------------- */

static void *history_dup(const void *from, size_t n, size_t size) {
    void *to = from ? malloc(n * size + 1) : NULL;
    if (to) memcpy(to, from, n * size);
    return to;
}

static bool history_tasks(struct pl_history *to, const struct pl_history *h, size_t max) {
    uint64_t n = h->n_tasks - h->first_task;
    to->room = n < max ? (size_t)n : max;
    to->first_task = h->n_tasks - to->room;
    to->task = malloc((to->room + 1) * sizeof *to->task);
    for (uint64_t i = to->first_task; to->task && i < h->n_tasks; i++)
        to->task[i % to->room] = h->task[i % h->room];
    return to->task != NULL;
}

struct pl_history *pl_history_copy(const struct pl_history *h, size_t max_tasks) {
    size_t n = (size_t)h->n_shown;
    struct pl_history *to = history_dup(h, 1, sizeof *h);
    if (!to) return NULL;
    const struct pl_history_info info = {h->method, h->clock, h->metric, h->options, h->command};
    bool complete = history_name(to, &info);
    to->name = history_dup(h->name, n, sizeof *h->name);
    to->row = history_dup(h->row, n, sizeof *to->row);
    to->pairs = history_dup(h->pairs, n * n, sizeof *h->pairs);
    to->cell = history_dup(h->cell, n * (size_t)h->n_columns * 4, sizeof *h->cell);
    to->line = history_dup(h->line, HISTORY_FIRST + HISTORY_LAST, sizeof *h->line);
    complete = history_tasks(to, h, max_tasks) && complete;
    complete = complete && (to->name || !h->name) && (to->pairs || !h->pairs);
    if (complete && to->row && to->cell && to->line) return to;
    pl_history_free(to);
    return NULL;
}
