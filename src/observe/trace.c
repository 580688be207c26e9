#include "observe/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/seconds.h"

#define TRACE_SERVER 0 /* row; worker i is row i + 1 */

struct pl_trace {
    FILE *f;
    int n_workers;
    bool *named; /* [n_workers] whether its row has a name */
    bool begun;  /* the next event needs a comma before it */
    int k;
};

/* Writes nanoseconds as microseconds, exactly. */
static void trace_time(FILE *f, const char *key, uint64_t ns) {
    fprintf(f, ",\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

/* Writes an event up to its time; the caller writes the rest and the closing brace. */
static void trace_open(struct pl_trace *t, const char *name, char phase, int row) {
    fprintf(t->f, "%s\n{\"name\":\"%s\",\"ph\":\"%c\",\"pid\":1,\"tid\":%d", t->begun ? "," : "",
            name, phase, row);
    t->begun = true;
}

/* Writes the name and position of a row; the server's comes first. */
static void trace_row(struct pl_trace *t, int row) {
    trace_open(t, "thread_name", 'M', row);
    if (row == TRACE_SERVER)
        fprintf(t->f, ",\"args\":{\"name\":\"server\"}}");
    else
        fprintf(t->f, ",\"args\":{\"name\":\"worker %d\"}}", row);
    trace_open(t, "thread_sort_index", 'M', row);
    fprintf(t->f, ",\"args\":{\"sort_index\":%d}}", row);
}

static void trace_worker(struct pl_trace *t, int i) {
    if (i < 0 || i >= t->n_workers || t->named[i]) return;
    t->named[i] = true;
    trace_row(t, i + 1);
}

static void trace_span(struct pl_trace *t, const struct pl_span *s) {
    static const struct {
        const char *name, *colour;
    } kinds[] = {[PL_SPAN_COMPUTE] = {"compute", ""},
                 [PL_SPAN_COMMUNICATE] = {"communicate", ""},
                 [PL_SPAN_IDLE] = {"idle", ",\"cname\":\"grey\""},
                 [PL_SPAN_WASTED] = {"wasted", ",\"cname\":\"terrible\""}};
    trace_worker(t, s->worker);
    trace_open(t, kinds[s->kind].name, 'X', s->worker + 1);
    trace_time(t->f, "ts", s->from_ns);
    trace_time(t->f, "dur", s->to_ns - s->from_ns);
    fprintf(t->f, "%s", kinds[s->kind].colour);
    if (s->kind != PL_SPAN_IDLE) {
        fprintf(t->f, ",\"args\":{\"task\":%" PRIu64 ",\"base\":%" PRIu64, s->task, s->base);
        if (s->why[0]) fprintf(t->f, ",\"reason\":\"%s\"", s->why);
        fputc('}', t->f);
    }
    fputc('}', t->f);
}

/* A task that was written as one that is used, and turned out not to be. */
static void trace_again(struct pl_trace *t, const struct pl_span *s, uint64_t now_ns) {
    trace_open(t, s->why, 'i', s->worker + 1);
    trace_time(t->f, "ts", now_ns);
    fprintf(t->f, ",\"s\":\"t\",\"args\":{\"task\":%" PRIu64 "}}", s->task);
}

/* Writes a counter, unless the value is unknown. */
static void trace_count(struct pl_trace *t, const char *name, uint64_t ns, double value) {
    if (!isfinite(value)) return;
    trace_open(t, name, 'C', TRACE_SERVER);
    trace_time(t->f, "ts", ns);
    fprintf(t->f, ",\"args\":{\"%s\":%.9g}}", name, value);
}

/* Writes the name of the run, which may be any text. */
static int trace_name(struct pl_trace *t, const char *name) {
    struct pl_json j = {0};
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "name", name);
    pl_json_close(&j, '}');
    if (!j.failed) {
        trace_open(t, "process_name", 'M', TRACE_SERVER);
        fprintf(t->f, ",\"args\":%s}", j.text);
    }
    free(j.text);
    return j.failed ? PL_ENOMEM : PL_OK;
}

static void trace_free(struct pl_trace *t) {
    free(t->named);
    free(t);
}

int pl_trace_new(FILE *f, const char *name, int n_workers, struct pl_trace **out) {
    struct pl_trace *t = calloc(1, sizeof *t);
    if (!t) return PL_ENOMEM;
    t->f = f;
    t->n_workers = n_workers;
    t->named = calloc((size_t)n_workers, sizeof *t->named);
    if (!t->named) {
        trace_free(t);
        return PL_ENOMEM;
    }
    fputc('[', f);
    if (trace_name(t, name)) {
        trace_free(t);
        return PL_ENOMEM;
    }
    trace_row(t, TRACE_SERVER);
    *out = t;
    return PL_OK;
}

static void trace_commit(struct pl_trace *t, const struct pl_control *c, uint64_t now_ns,
                         uint64_t version) {
    size_t n, n_used = 0;
    const struct pl_member *group = pl_control_group(c, &n);
    for (size_t i = 0; i < n; i++) n_used += !group[i].left_out;
    trace_open(t, "commit", 'i', TRACE_SERVER);
    trace_time(t->f, "ts", now_ns);
    fprintf(t->f, ",\"s\":\"t\",\"args\":{\"version\":%" PRIu64 ",\"group\":%zu}}", version,
            n_used);
}

void pl_trace_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                    const struct pl_plan *plan) {
    struct pl_trace *t = ctx;
    int k = pl_control_view(c)->knobs.k;
    if (e->kind == PL_JOIN) trace_worker(t, e->worker);
    const struct pl_timeline *l = pl_control_timeline(c);
    for (size_t i = 0; i < l->n_spans; i++) {
        if (l->span[i].again)
            trace_again(t, &l->span[i], e->now_ns);
        else
            trace_span(t, &l->span[i]);
    }
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        if (a->verb == PL_COMMIT) trace_commit(t, c, e->now_ns, a->version);
        if (a->verb != PL_CANCEL) continue;
        trace_open(t, "cancel", 'i', a->worker + 1);
        trace_time(t->f, "ts", e->now_ns);
        fprintf(t->f, ",\"s\":\"t\",\"args\":{\"task\":%" PRIu64 "}}", a->task);
    }
    if (k != t->k) trace_count(t, "k", e->now_ns, k);
    t->k = k;
}

void pl_trace_point(struct pl_trace *t, const struct pl_point *p) {
    if (!(p->time >= 0 && p->time < 1e10)) return; /* about 300 years */
    uint64_t ns = pl_ns(p->time);
    trace_count(t, "loss", ns, p->loss);
    trace_count(t, "test_loss", ns, p->test_loss);
    trace_count(t, "test_accuracy", ns, p->test_accuracy);
}

void pl_trace_end(struct pl_trace *t) {
    if (!t) return;
    fprintf(t->f, "\n]\n");
    trace_free(t);
}
