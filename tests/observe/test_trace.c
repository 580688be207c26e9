/* The trace, by hand and over random runs of every method. PL_TEST_SEED moves every random choice.
 */
#include "log_runs.h"
#include "observe/trace.h"

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
    pl_control_end(c, now_ns);
    pl_trace_end(t);
    fclose(file);
    for (int i = 0; i < n; i++)
        if (f.there[i]) f.alive_ns += now_ns - f.joined_ns[i];
    char *copy = strdup(text);
    check_trace(copy, &f);
    free(copy);
    check_cut(text, pl_rng_below(r, (uint32_t)size + 1));
    free(text);
}

TEST(test_trace_runs) {
    for_every_method(trace_run);
}

TEST(test_trace_story) {
    struct pl_control *c = control_of("ksync:k=1,cancel=yes", "fixed", 2, test_seed);
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
    pl_control_end(c, 2000000000u);
    pl_trace_end(t);
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
}

/* --- main -------------------------------------------------------------------------------- */

ALL_TESTS_FROM_SEED(20240229, NULL, NULL)
