/* pl_setup_events: a program is told what the option "events" writes. Each event and its decisions,
 * written as a line, are the lines of that file, for all words that it can have. */
#include <math.h>
#include <unistd.h>

#include "embedding.h"
#include "folder.h"

static struct {
    FILE *lines;
    bool ended;
} told;

static void write_time(uint64_t ns) {
    char text[40];
    int n = snprintf(text, sizeof text, "%llu.%09llu", (unsigned long long)(ns / 1000000000u),
                     (unsigned long long)(ns % 1000000000u));
    while (text[n - 1] == '0') n--;
    if (text[n - 1] == '.') n--;
    fprintf(told.lines, "%.*s", n, text);
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static void write_decision(const struct pl_happening *h, const struct pl_decision *d) {
    bool exchange = is(d->what, "blend") || is(d->what, "pair") || is(d->what, "push");
    bool of_task = is(d->what, "take") || is(d->what, "drop") || is(d->what, "defer") ||
                   is(d->what, "start") || is(d->what, "cancel") || is(d->what, "reject");
    fprintf(told.lines, "%s", d->what);
    assert_int_equal(d->worker >= 0, !is(d->what, "commit") && !is(d->what, "stop"));
    assert_int_equal(d->peer >= 0, exchange);
    assert_int_equal(d->task > 0, of_task);
    if (is(d->what, "take") && (!is(h->what, "arrive") || h->worker != d->worker))
        fprintf(told.lines, " W%d", d->worker + 1);
    if (is(d->what, "take") && is(h->what, "arrive") && h->worker == d->worker)
        assert_int_equal(d->task, h->task);
    if (is(d->what, "blend")) fprintf(told.lines, " W%d <- W%d", d->worker + 1, d->peer + 1);
    if (is(d->what, "pair")) fprintf(told.lines, " W%d W%d", d->worker + 1, d->peer + 1);
    if (is(d->what, "push")) fprintf(told.lines, " W%d -> W%d", d->worker + 1, d->peer + 1);
    if (is(d->what, "absorb") || is(d->what, "cancel")) fprintf(told.lines, " W%d", d->worker + 1);
    if (is(d->what, "reject")) fprintf(told.lines, " W%d#%lld", d->worker + 1, (long long)d->task);
    if (is(d->what, "start"))
        fprintf(told.lines, " W%d@w%lld", d->worker + 1, (long long)d->version);
    if (is(d->what, "start") && d->row >= 0)
        fprintf(told.lines, " block %d,%d", d->row + 1, d->col + 1);
    if (is(d->what, "commit")) fprintf(told.lines, " w%lld <-", (long long)d->version);
}

static void tell(void *ctx, const struct pl_happening *h) {
    assert_ptr_equal(ctx, &told);
    assert_false(told.ended);
    told.ended = is(h->what, "end");
    if (told.ended) return; /* the file has no line for it */
    write_time(h->time_ns);
    fprintf(told.lines, " %s", h->what);
    if (h->worker >= 0) fprintf(told.lines, " W%d", h->worker + 1);
    if (h->task >= 0) fprintf(told.lines, "#%lld", (long long)h->task);
    if (is(h->what, "scored")) fprintf(told.lines, " loss %.17g", h->loss);
    assert_int_equal(h->policy != NULL, is(h->what, "switch"));
    if (h->policy)
        fprintf(told.lines, " to %s%s", h->policy, h->returned ? ", back to an earlier model" : "");
    for (size_t i = 0; i < h->n_decisions; i++) {
        fprintf(told.lines, i == 0 ? ": " : ", ");
        write_decision(h, &h->decision[i]);
    }
    fputc('\n', told.lines);
}

/* The events as the file has them, without what a program can add up itself: the members of a
 * commit, whose tasks were taken, and timers. */
static void read_events(const char *path, FILE *out) {
    char line[4096];
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
        char *to = line;
        bool members = false;
        for (const char *from = line; *from; from++) {
            if (strncmp(from, ", timer ", 8) == 0 || strncmp(from, ": timer ", 8) == 0 ||
                strncmp(from, ", no timer", 10) == 0 || strncmp(from, ": no timer", 10) == 0)
                from += strcspn(from, "\n");
            if (strncmp(from, " <- W", 5) == 0 && to - line > 4 && strstr(line, "commit") &&
                !strstr(line, "blend")) {
                memcpy(to, " <-", 3);
                to += 3;
                members = true;
            }
            if (*from == ',' || *from == '\n') members = false;
            if (!members) *to++ = *from;
        }
        *to = '\0';
        fputs(line, out);
    }
    fclose(in);
}

static void same_as_the_file(const char *options, const char *words) {
    static char expected[1 << 20], got[1 << 20];
    pl_setup *s = setup_of("%s", options);
    if (strstr(words, "leave")) set(s, "script", folder_path("script"));
    const char *events = folder_path("events");
    set(s, "events", events);
    memset(&told, 0, sizeof told);
    told.lines = fmemopen(got, sizeof got, "w");
    pl_setup_events(s, tell, &told);
    run_setup(s);
    fclose(told.lines);
    FILE *out = fmemopen(expected, sizeof expected, "w");
    read_events(events, out);
    fclose(out);
    unlink(events);
    assert_true(told.ended);
    assert_string_equal(got, expected);
    char all[200];
    snprintf(all, sizeof all, "%s", words);
    for (char *rest, *word = strtok_r(all, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!strstr(got, word)) fail_msg("%s: no '%s' happened", options, word);
}

TEST(events_are_those_of_the_file) {
    const struct {
        const char *options, *words;
    } run[] = {
        {"model=quadratic method=ksync:k=2 workers=4 updates=40", "join arrive take cancel start"},
        {"model=quadratic method=kasync:k=2 workers=4 updates=40", "leave commit"},
        {"model=quadratic policy=rounds workers=4 updates=40", "defer"},
        {"model=quadratic method=ad-psgd workers=4 updates=40", "base pair blend"},
        {"model=quadratic method=gosgd workers=4 updates=60", "push absorb"},
        {"model=quadratic method=auto workers=4 updates=200", "scored switch cancel"},
        {"model=quadratic method=async workers=7 updates=60 filter=kardam:f=1 attack=bitflip",
         "reject"},
    };
    folder_write("script", "3 leave 2\n", 10);
    for (size_t i = 0; i < sizeof run / sizeof *run; i++)
        same_as_the_file(run[i].options, run[i].words);
    unlink(folder_path("script"));
}

/* A copy of a setup tells the same program; a replay tells what its recording has. */
TEST(copies_and_replays_tell) {
    pl_setup *s = setup_of("model=quadratic method=async workers=3 updates=10 record=%s",
                           folder_path("run.rec"));
    char got[1 << 14];
    memset(&told, 0, sizeof told);
    told.lines = fmemopen(got, sizeof got, "w");
    pl_setup_events(s, tell, &told);
    run_setup(change(s, NULL));
    fclose(told.lines);
    assert_true(told.ended);
    char again[1 << 14];
    memset(&told, 0, sizeof told);
    told.lines = fmemopen(again, sizeof again, "w");
    pl_setup *r = plain();
    pl_setup_events(r, tell, &told);
    replay(r, folder_path("run.rec"));
    fclose(told.lines);
    unlink(folder_path("run.rec"));
    assert_string_equal(got, again);
}

ALL_TESTS_BETWEEN(folder_make, folder_remove)
