/* The views of the event log: timeline and trace, by hand and over random runs of every method.
 * PL_TEST_SEED moves every random choice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "choices.h"
#include "core/recipe.h"
#include "observe/timeline.h"
#include "observe/trace.h"
#include "seed.h"

#define N_WORKERS 9 /* at most */

static uint64_t seed;
static struct pl_why why;

/* --- runs -------------------------------------------------------------------------------- */

static void step(struct pl_control *c, struct pl_event e) {
    const struct pl_plan *plan;
    if (pl_control_step(c, &e, &plan, &why)) fail_msg("%s", why.text);
}

/* Worker numbers from 1 and seconds, for stories. */
static void at(struct pl_control *c, double now, enum pl_event_kind kind, int worker, double comm) {
    step(c, (struct pl_event){.kind = kind,
                              .now_ns = (uint64_t)llround(now * 1e9),
                              .worker = worker - 1,
                              .task = pl_control_view(c)->worker[worker - 1].task,
                              .comm_ns = (uint64_t)llround(comm * 1e9),
                              .samples = 8,
                              .loss = 0.5});
}

/* Anything that can happen next; returns its time. */
static uint64_t random_event(struct pl_control *c, struct pl_rng *r, uint64_t now_ns) {
    const struct pl_view *v = pl_control_view(c);
    if (pl_rng_below(r, 4)) now_ns += pl_rng_below(r, 1u << 30);
    struct pl_event e = {.now_ns = now_ns, .worker = (int)pl_rng_below(r, (uint32_t)v->n_workers)};
    const struct pl_worker *w = &v->worker[e.worker];
    e.task = w->task;
    e.comm_ns = pl_rng_below(r, 1u << 29);
    e.samples = 1 + pl_rng_below(r, 9);
    e.loss = 2 * pl_rng_unit(r);
    uint32_t dice = pl_rng_below(r, 20);
    e.kind = dice == 0 ? PL_LEAVE : dice == 1 ? PL_REJECT : PL_ARRIVE;
    if (w->state == PL_GONE) e.kind = dice < 10 ? PL_JOIN : PL_ARRIVE;
    uint64_t version = v->version;
    step(c, e);
    if (pl_control_measures(c) && v->version != version)
        step(c, (struct pl_event){.kind = PL_MEASURED, .now_ns = now_ns, .measure = {.dot = 0.1}});
    return now_ns;
}

/* Calls `run` with a new control for every method, a few times each. */
static void for_every_method(void (*run)(struct pl_control *c, int n, struct pl_rng *r)) {
    uint64_t nth = 0;
    for (const struct pl_entry *const *e = pl_recipe_family.table; *e; e++)
        for (int round = 0; round < (seed_sanitized() ? 3 : 20); round++) {
            const struct pl_recipe *recipe;
            char spec[PL_N_COLUMNS][PL_SPEC_MAX];
            struct pl_rng r;
            pl_rng_init(&r, seed, PL_STREAM_TEST, 7, nth++);
            int n = 1 + (int)pl_rng_below(&r, N_WORKERS);
            assert_int_equal(pl_recipe_resolve((*e)->name, &recipe, spec, &why), 0);
            struct pl_control *c =
                control_of(spec[PL_COLUMN_POLICY], spec[PL_COLUMN_TUNER], n, seed);
            run(c, n, &r);
            pl_control_free(c);
        }
}

/* --- the ledger -------------------------------------------------------------------------- */

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want)))) fail_msg("%.12g is not %.12g", got, want);
}

static char story[2000];

static void tell(void *ctx, const struct pl_span *s) {
    static const char *const kinds[] = {"compute", "communicate", "idle", "wasted"};
    (void)ctx;
    pl_append(story, sizeof story, "%d %s %g-%g #%d@%d %s\n", s->worker + 1, kinds[s->kind],
              (double)s->from_ns * 1e-9, (double)s->to_ns * 1e-9, (int)s->task, (int)s->base,
              s->why);
}

static struct pl_timeline *ledger_on(struct pl_control *c, int n) {
    struct pl_timeline *l;
    assert_int_equal(pl_timeline_new(n, &l), 0);
    story[0] = '\0';
    pl_timeline_on_span(l, tell, NULL);
    pl_control_on_event(c, pl_timeline_event, l);
    return l;
}

static void test_ledger_story(void **state) {
    (void)state;
    struct pl_control *c = control_of("ksync:k=2,cancel=yes", "fixed", 3, seed);
    struct pl_timeline *l = ledger_on(c, 3);
    for (int i = 1; i <= 3; i++) at(c, 0, PL_JOIN, i, 0);
    at(c, 1, PL_ARRIVE, 1, 0.25);
    at(c, 3, PL_ARRIVE, 3, 5); /* sent for longer than it took: all of it */
    at(c, 4, PL_REJECT, 2, 0);
    at(c, 5, PL_LEAVE, 3, 0);
    at(c, 6, PL_ARRIVE, 1, 0);
    at(c, 7, PL_LEAVE, 1, 0);
    at(c, 8, PL_JOIN, 3, 0);
    pl_timeline_end(l, 10000000000u);
    pl_timeline_end(l, 11000000000u); /* once is enough */
    assert_string_equal(story, "1 compute 0-0.75 #1@0 \n"
                               "1 communicate 0.75-1 #1@0 \n"
                               "3 communicate 0-3 #1@0 \n"
                               "1 idle 1-3 #0@0 \n"
                               "2 wasted 0-3 #1@0 cancelled\n"
                               "2 wasted 3-4 #2@1 rejected\n"
                               "3 wasted 3-5 #2@1 lost\n"
                               "1 compute 3-6 #2@1 \n"
                               "1 idle 6-7 #0@0 \n"
                               "2 compute 4-10 #3@1 unfinished\n"
                               "3 compute 8-10 #3@1 unfinished\n");
    const struct pl_timeline_row *row = pl_timeline_rows(l);
    near(row[0].seconds[PL_SPAN_COMPUTE], 3.75);
    near(row[0].seconds[PL_SPAN_COMMUNICATE], 0.25);
    near(row[0].seconds[PL_SPAN_IDLE], 3);
    near(row[1].seconds[PL_SPAN_WASTED], 4);
    assert_int_equal(row[0].n_arrived, 2);
    assert_int_equal(row[0].n_timed, 2);
    near(row[0].arrived, 4);
    assert_int_equal(row[1].n_wasted, 2);
    assert_int_equal(row[2].n_wasted, 1);
    assert_int_equal(row[2].n_last, 1); /* W1 waited from 1 to 3 */
    near(row[2].held_up, 2);
    pl_timeline_free(l);
    pl_control_free(c);
}

/* Who the others waited for. */
static void test_ledger_last(void **state) {
    (void)state;
    static const struct {
        const char *policy;
        int n_last; /* of W3, over two updates of which it is the last */
        double held_up;
    } row[] = {
        {"ksync:k=all", 2, 3 + 0},      /* the second time W2 and W3 come together */
        {"ksync:k=1,cancel=yes", 0, 0}, /* others are cancelled: they did not wait */
        {"kbatchasync:k=3", 0, 0},      /* no worker waits */
        {"kasync:k=all", 2, 3},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct pl_control *c = control_of(row[i].policy, "fixed", 3, seed);
        struct pl_timeline *l = ledger_on(c, 3);
        for (int w = 1; w <= 3; w++) at(c, 0, PL_JOIN, w, 0);
        at(c, 1, PL_ARRIVE, 1, 0);
        at(c, 2, PL_ARRIVE, 2, 0);
        at(c, 5, PL_ARRIVE, 3, 0);
        at(c, 6, PL_ARRIVE, 1, 0);
        at(c, 7, PL_ARRIVE, 2, 0);
        at(c, 7, PL_ARRIVE, 3, 0);
        const struct pl_timeline_row *w = pl_timeline_rows(l);
        if ((int)w[2].n_last != row[i].n_last) fail_msg("%s: %d", row[i].policy, (int)w[2].n_last);
        near(w[2].held_up, row[i].held_up);
        assert_int_equal(w[0].n_last + w[1].n_last, 0);
        pl_timeline_free(l);
        pl_control_free(c);
    }
    /* a group of one whose commit lets another go: nothing to measure from, but it was the last */
    struct pl_control *c = control_of("ssp:s=0", "fixed", 2, seed);
    struct pl_timeline *l = ledger_on(c, 2);
    at(c, 0, PL_JOIN, 1, 0);
    at(c, 0, PL_JOIN, 2, 0);
    at(c, 1, PL_ARRIVE, 1, 0);
    at(c, 4, PL_ARRIVE, 2, 0);
    assert_int_equal(pl_timeline_rows(l)[1].n_last, 1);
    near(pl_timeline_rows(l)[1].held_up, 0);
    pl_timeline_free(l);
    pl_control_free(c);
}

/* Spans of one worker follow each other without a gap while it is there. */
struct cover {
    bool there[N_WORKERS];
    uint64_t since_ns[N_WORKERS], to_ns[N_WORKERS];
    struct pl_timeline *ledger;
};

static void cover_span(void *ctx, const struct pl_span *s) {
    struct cover *k = ctx;
    assert_true(k->there[s->worker]);
    assert_true(s->from_ns == k->to_ns[s->worker] && s->to_ns > s->from_ns);
    assert_int_equal(s->why[0] != '\0',
                     s->kind == PL_SPAN_WASTED || strcmp(s->why, "unfinished") == 0);
    assert_int_equal(s->task != 0, s->kind != PL_SPAN_IDLE);
    k->to_ns[s->worker] = s->to_ns;
}

static void cover_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                        const struct pl_plan *plan) {
    struct cover *k = ctx;
    if (e->kind == PL_JOIN) {
        k->there[e->worker] = true;
        k->to_ns[e->worker] = e->now_ns;
    }
    pl_timeline_event(k->ledger, c, e, plan);
    if (e->kind != PL_LEAVE) return;
    assert_true(k->to_ns[e->worker] == e->now_ns);
    k->there[e->worker] = false;
}

static void ledger_run(struct pl_control *c, int n, struct pl_rng *r) {
    struct cover k = {0};
    uint64_t now_ns = 0, n_events = pl_rng_below(r, 300);
    assert_int_equal(pl_timeline_new(n, &k.ledger), 0);
    pl_timeline_on_span(k.ledger, cover_span, &k);
    pl_control_on_event(c, cover_event, &k);
    for (uint64_t i = 0; i < n_events; i++) now_ns = random_event(c, r, now_ns);
    now_ns += pl_rng_below(r, 1u << 30);
    pl_timeline_end(k.ledger, now_ns);
    struct pl_worker_time t = pl_control_worker_time(c, now_ns);
    struct pl_fates f = pl_control_fates(c);
    double sum[4] = {0};
    uint64_t n_arrived = 0, n_wasted = 0;
    for (int i = 0; i < n; i++) {
        const struct pl_timeline_row *row = &pl_timeline_rows(k.ledger)[i];
        for (int kind = 0; kind < 4; kind++) sum[kind] += row->seconds[kind];
        n_arrived += row->n_arrived;
        n_wasted += row->n_wasted;
        assert_true(!k.there[i] || k.to_ns[i] == now_ns);
        assert_true(row->held_up >= 0 && row->n_timed >= row->n_arrived);
    }
    near(sum[PL_SPAN_COMPUTE], t.compute);
    near(sum[PL_SPAN_COMMUNICATE], t.communication);
    near(sum[PL_SPAN_IDLE], t.idle);
    near(sum[PL_SPAN_WASTED], t.wasted);
    uint64_t n_open = (uint64_t)pl_control_view(c)->n_taken;
    for (int i = 0; i < n; i++) n_open += pl_control_view(c)->worker[i].deferred;
    assert_int_equal(n_arrived, f.applied + n_open);
    assert_int_equal(n_wasted, f.dropped + f.cancelled + f.lost + f.rejected);
    pl_timeline_free(k.ledger);
}

static void test_ledger_runs(void **state) {
    (void)state;
    for_every_method(ledger_run);
}

/* --- the trace --------------------------------------------------------------------------- */

/* The end of a JSON value, or NULL where it is none. */
static const char *json_end(const char *s) {
    static const char *const words[] = {"null", "true", "false"};
    s += strspn(s, " \n\t\r");
    for (int i = 0; i < 3; i++)
        if (strncmp(s, words[i], strlen(words[i])) == 0) return s + strlen(words[i]);
    if (*s == '"') {
        for (s++; *s && *s != '"'; s++)
            if ((unsigned char)*s < 0x20 || (*s == '\\' && !*++s)) return NULL;
        return *s ? s + 1 : NULL;
    }
    if (*s == '{' || *s == '[') {
        char close = *s == '{' ? '}' : ']';
        s++;
        s += strspn(s, " \n\t\r");
        if (*s == close) return s + 1;
        for (;; s++) {
            s += strspn(s, " \n\t\r");
            if (close == '}') {
                if (*s != '"' || !(s = json_end(s)) || *s++ != ':') return NULL;
            }
            if (!(s = json_end(s))) return NULL;
            s += strspn(s, " \n\t\r");
            if (*s == close) return s + 1;
            if (*s != ',') return NULL;
        }
    }
    char *end;
    if (!strchr("-0123456789", *s) || !*s || !isfinite(strtod(s, &end)) || end == s) return NULL;
    return end;
}

static double field(const char *line, const char *key) {
    char mark[40];
    snprintf(mark, sizeof mark, "\"%s\":", key);
    const char *found = strstr(line, mark);
    return found ? strtod(found + strlen(mark), NULL) : NAN;
}

static bool says(const char *line, const char *part) {
    return strstr(line, part) != NULL;
}

/* What a trace must have been told. */
struct facts {
    uint64_t alive_ns; /* all workers, while they were there */
    uint64_t joined_ns[N_WORKERS];
    bool there[N_WORKERS];
    int n_commits, n_cancels;
};

static void note_facts(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan) {
    struct facts *f = ctx;
    (void)c;
    if (e->kind == PL_JOIN) {
        f->there[e->worker] = true;
        f->joined_ns[e->worker] = e->now_ns;
    }
    if (e->kind == PL_LEAVE) {
        f->there[e->worker] = false;
        f->alive_ns += e->now_ns - f->joined_ns[e->worker];
    }
    for (size_t i = 0; i < plan->n; i++) {
        f->n_commits += plan->action[i].verb == PL_COMMIT;
        f->n_cancels += plan->action[i].verb == PL_CANCEL;
    }
}

/* Every event is one line; spans of a row do not overlap, and together they are the time that
 * workers were there. */
static void check_trace(char *text, const struct facts *f) {
    double to[N_WORKERS + 1] = {0}, total = 0;
    bool named[N_WORKERS + 1] = {false};
    int n_commits = 0, n_cancels = 0, n_k = 0;
    const char *end = json_end(text);
    assert_non_null(end);
    assert_string_equal(end, "\n");
    assert_int_equal(text[0], '[');
    for (char *line = text + 2, *next; *line != ']'; line = next) {
        next = strchr(line, '\n');
        assert_non_null(next);
        *next++ = '\0';
        double ts = field(line, "ts"), dur = field(line, "dur");
        int row = (int)field(line, "tid");
        assert_true(row >= 0 && row <= N_WORKERS && field(line, "pid") == 1);
        if (says(line, "\"ph\":\"M\"")) {
            named[row] = true;
            continue;
        }
        assert_true(ts >= 0 && named[row]);
        n_commits += says(line, "\"commit\"") && says(line, "\"s\":\"t\"") && row == 0;
        n_cancels += says(line, "\"cancel\"") && row > 0;
        n_k += says(line, "\"k\"");
        if (!says(line, "\"ph\":\"X\"")) continue;
        assert_true(dur > 0 && row > 0);
        assert_true(ts >= to[row] - 1e-6);
        assert_int_equal(says(line, "\"idle\""), !says(line, "\"task\""));
        assert_int_equal(says(line, "\"wasted\""), says(line, "\"cname\":\"terrible\""));
        to[row] = ts + dur;
        total += dur;
    }
    near(total * 1e-6, (double)f->alive_ns * 1e-9);
    assert_int_equal(n_commits, f->n_commits);
    assert_int_equal(n_cancels, f->n_cancels);
    assert_true(n_k > 0 || f->n_commits == 0);
}

/* A file that was cut short: all lines but the last are whole events. */
static void check_cut(char *text, size_t n) {
    text[n] = '\0';
    char *last = strrchr(text, '\n');
    if (!last || last == text + 1) return;
    last[last[-1] == ',' ? -1 : 0] = '\0';
    if (text[1] == '\0') return;
    char *whole = malloc(n + 3);
    assert_non_null(whole);
    snprintf(whole, n + 3, "%s]", text);
    const char *end = json_end(whole);
    assert_true(end && *end == '\0');
    free(whole);
}

static void trace_run(struct pl_control *c, int n, struct pl_rng *r) {
    struct facts f = {0};
    struct pl_trace *t;
    char *text;
    size_t size;
    uint64_t now_ns = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    assert_int_equal(pl_trace_new(file, "a \"name\" \\ of\nanything", n, &t), 0);
    pl_control_on_event(c, pl_trace_event, t);
    pl_control_on_event(c, note_facts, &f);
    for (uint64_t i = pl_rng_below(r, 200); i > 0; i--) {
        now_ns = random_event(c, r, now_ns);
        struct pl_point p = {.time = (double)now_ns * 1e-9,
                             .loss = pl_rng_unit(r),
                             .test_loss = NAN,
                             .test_accuracy = i % 2 ? 0.5 : INFINITY};
        if (pl_rng_below(r, 10) == 0) pl_trace_point(t, &p);
    }
    pl_trace_end(t, now_ns);
    fclose(file);
    for (int i = 0; i < n; i++)
        if (f.there[i]) f.alive_ns += now_ns - f.joined_ns[i];
    char *copy = strdup(text);
    check_trace(copy, &f);
    free(copy);
    check_cut(text, pl_rng_below(r, (uint32_t)size + 1));
    free(text);
}

static void test_trace_runs(void **state) {
    (void)state;
    for_every_method(trace_run);
}

static void test_trace_story(void **state) {
    (void)state;
    struct pl_control *c = control_of("ksync:k=1,cancel=yes", "fixed", 2, seed);
    struct pl_trace *t;
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_int_equal(pl_trace_new(f, "ksync", 2, &t), 0);
    pl_control_on_event(c, pl_trace_event, t);
    at(c, 0, PL_JOIN, 1, 0);
    at(c, 0, PL_JOIN, 2, 0);
    at(c, 1.5, PL_ARRIVE, 2, 0.000000001);
    struct pl_point p = {.time = 1.5, .loss = 0.25, .test_loss = NAN, .test_accuracy = 0.875};
    pl_trace_point(t, &p);
    p.time = NAN;
    pl_trace_point(t, &p);
    pl_trace_end(t, 2000000000u);
    fclose(f);
    static const char *const lines[] = {
        "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,"
        "\"args\":{\"name\":\"ksync\"}},\n",
        "\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,"
        "\"args\":{\"name\":\"server\"}},\n",
        "\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":2,"
        "\"args\":{\"name\":\"worker 2\"}},\n",
        "\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":2,"
        "\"args\":{\"sort_index\":2}},\n",
        "\n{\"name\":\"compute\",\"ph\":\"X\",\"pid\":1,\"tid\":2,\"ts\":0.000,"
        "\"dur\":1499999.999,\"args\":{\"task\":1,\"base\":0}},\n",
        "\n{\"name\":\"communicate\",\"ph\":\"X\",\"pid\":1,\"tid\":2,\"ts\":1499999.999,"
        "\"dur\":0.001,\"args\":{\"task\":1,\"base\":0}},\n",
        "\n{\"name\":\"wasted\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":0.000,"
        "\"dur\":1500000.000,\"cname\":\"terrible\","
        "\"args\":{\"task\":1,\"base\":0,\"reason\":\"cancelled\"}},\n",
        "\n{\"name\":\"cancel\",\"ph\":\"i\",\"pid\":1,\"tid\":1,\"ts\":1500000.000,\"s\":\"t\","
        "\"args\":{\"task\":1}},\n",
        "\n{\"name\":\"commit\",\"ph\":\"i\",\"pid\":1,\"tid\":0,\"ts\":1500000.000,\"s\":\"t\","
        "\"args\":{\"version\":1,\"group\":1}},\n",
        "\n{\"name\":\"k\",\"ph\":\"C\",\"pid\":1,\"tid\":0,\"ts\":0.000,\"args\":{\"k\":1}},\n",
        "\n{\"name\":\"loss\",\"ph\":\"C\",\"pid\":1,\"tid\":0,\"ts\":1500000.000,"
        "\"args\":{\"loss\":0.25}},\n",
        "\n{\"name\":\"compute\",\"ph\":\"X\",\"pid\":1,\"tid\":2,\"ts\":1500000.000,"
        "\"dur\":500000.000,\"args\":{\"task\":2,\"base\":1,\"reason\":\"unfinished\"}}\n]\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!strstr(text, lines[i])) fail_msg("no '%s' in\n%s", lines[i], text);
    assert_null(strstr(text, "test_loss"));
    free(text);
    pl_control_free(c);
}

/* --- main -------------------------------------------------------------------------------- */

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ledger_story), cmocka_unit_test(test_ledger_last),
        cmocka_unit_test(test_ledger_runs),  cmocka_unit_test(test_trace_story),
        cmocka_unit_test(test_trace_runs),
    };
    seed = seed_of_test(20240229);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
