/* Stories: whole runs as text, in tests/trace/. A story is
 *
 *   # what happens, and which paper says so
 *   # expect: 2.3 w1 <- W1@w0 W2@w0          an update: its version and its members
 *   # expect: 2.3 cancel W3@w0 -> w1         called back from w0, started again on w1
 *   # script: 1.5 leave 3                    what happens to workers (--script)
 *   # function: NaN from W2#1                a model whose gradient for that task is not finite
 *   paceline simulate --policy ksync:k=2 …   the run
 *   0 join W1: start W1@w0                   the event log, complete
 *   …
 *
 * Two things are checked. The run must give the log, letter by letter. And the log must say what
 * the `expect` lines say, which are written from the paper's rules, not from what the program
 * prints: every update, drop, cancel, reject and loss, in order, none missing. A member is W1 (any
 * version), W1@w0 (computed on version 0) or W1(d2) (two updates stale). That a log does not start
 * a busy worker or apply what nobody brought is checked in tests/policy. */
#include <dirent.h>
#include <unistd.h>

#include "base/status.h"
#include "folder.h"
#include "setups.h"
#include "story_log.h"

/* --- stories ----------------------------------------------------------------------------- */

struct story {
    char flags[1024];
    char script[1024];
    int nan_worker;
    long nan_task;
    struct facts expect;
    const char *log; /* into the text */
};

static const char *take_header(const char *line, struct story *s) {
    static struct fact f;
    if (strncmp(line, "# expect: ", 10) == 0) {
        if (s->expect.n == N_FACTS || !read_fact(line + 10, &f)) return "cannot be read";
        s->expect.at[s->expect.n++] = f;
    } else if (strncmp(line, "# script: ", 10) == 0) {
        pl_append(s->script, sizeof s->script, "%s\n", line + 10);
    } else if (strncmp(line, "# function: ", 12) == 0) {
        if (sscanf(line + 12, "NaN from W%d#%ld", &s->nan_worker, &s->nan_task) != 2)
            return "cannot be read";
    } else if (strstr(line, "expect:") || strstr(line, "script:") || strstr(line, "function:")) {
        return "is not written as '# word: '";
    }
    return NULL;
}

/* NULL, or what is wrong with the story itself. */
static const char *parse_story(const char *text, struct story *s) {
    static char line[1024], wrong[1200];
    *s = (struct story){0};
    while (*text) {
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        text += n + (text[n] == '\n');
        if (strncmp(line, "paceline simulate ", 18) == 0) {
            snprintf(s->flags, sizeof s->flags, "%s", line + 18);
            s->log = text;
            return s->expect.n ? NULL : "it expects nothing";
        }
        const char *bad = line[0] == '#' ? take_header(line, s) : "is neither remark nor run";
        if (bad) {
            snprintf(wrong, sizeof wrong, "'%s' %s", line, bad);
            return wrong;
        }
    }
    return "it has no line 'paceline simulate …'";
}

static int bowl(void *ctx, const float *w, const struct pl_samples *in, float *g, double *loss) {
    const struct story *s = ctx;
    bool bad = (int)in->worker + 1 == s->nan_worker && (long)in->batch_no + 1 == s->nan_task;
    g[0] = bad ? NAN : w[0] - 1;
    *loss = 0.5 * (w[0] - 1) * (w[0] - 1);
    return 0;
}

static void bowl_score(void *ctx, const float *w, const struct pl_samples *in, double *loss,
                       uint32_t *n_right) {
    *loss = 0.5 * (w[0] - 1) * (w[0] - 1);
    *n_right = 0;
}

/* "--key value --key 'value'" into the setup. */
static void set_flags(pl_setup *setup, const char *flags) {
    while (*flags) {
        char key[64], value[256];
        int used = 0;
        if (sscanf(flags, " --%63[a-z-] '%255[^']'%n", key, value, &used) != 2 || !used) {
            used = 0;
            if (sscanf(flags, " --%63[a-z-] %255s%n", key, value, &used) != 2 || !used)
                fail_msg("flags '%s' cannot be read", flags);
        }
        if (pl_setup_set(setup, key, value)) fail_msg("%s", pl_setup_why(setup));
        flags += used;
        flags += strspn(flags, " ");
    }
}

static char *read_file(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s cannot be read", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    assert_true(n > 0 && feof(f));
    fclose(f);
    return text;
}

/* Runs it; the event log, to be freed. */
static char *play(const struct story *s) {
    char events[300], script[300];
    snprintf(events, sizeof events, "%s/events", folder);
    snprintf(script, sizeof script, "%s/script", folder);
    pl_setup *setup = plain();
    set_flags(setup, s->flags);
    assert_int_equal(pl_setup_set(setup, "events", events), 0);
    if (s->script[0]) {
        FILE *f = fopen(script, "w");
        assert_non_null(f);
        assert_true(fputs(s->script, f) >= 0 && fclose(f) == 0);
        assert_int_equal(pl_setup_set(setup, "script", script), 0);
    }
    struct pl_function f = {
        .dim = 1, .ctx = (void *)(uintptr_t)s, .gradient = bowl, .score = bowl_score};
    if (s->nan_worker) assert_int_equal(pl_setup_function(setup, &f), 0);
    simulate(setup);
    char *log = read_file(events);
    unlink(events);
    unlink(script);
    return log;
}

/* The first line in which two texts differ; false: none does. */
static bool differ(const char *want, const char *got, char *why, size_t max) {
    for (int number = 1; *want || *got; number++) {
        size_t a = strcspn(want, "\n"), b = strcspn(got, "\n");
        bool whole = want[a] == '\n' && got[b] == '\n';
        if (a != b || strncmp(want, got, a) != 0 || !whole) {
            snprintf(why, max, "line %d of the log\n  is       %.*s\n  and not  %.*s%s", number,
                     *got ? (int)b : 6, *got ? got : "(none)", *want ? (int)a : 6,
                     *want ? want : "(none)", a == b && !whole ? "\n  at the end of the file" : "");
            return true;
        }
        want += a + 1;
        got += b + 1;
    }
    return false;
}

/* "" where all is well. */
static void check_story(const char *text, char *why, size_t max) {
    static struct story s;
    static struct facts said;
    char want[256], got[256];
    why[0] = '\0';
    const char *bad = parse_story(text, &s);
    if (bad) {
        snprintf(why, max, "%s", bad);
        return;
    }
    if (!read_log(s.log, &said, why, max)) return;
    for (int i = 0; i < said.n || i < s.expect.n; i++) {
        bool both = i < said.n && i < s.expect.n;
        if (both && same_fact(&s.expect.at[i], &said.at[i])) continue;
        snprintf(want, sizeof want, "nothing more");
        snprintf(got, sizeof got, "nothing more");
        if (i < s.expect.n) print_fact(&s.expect.at[i], want, sizeof want);
        if (i < said.n) print_fact(&said.at[i], got, sizeof got);
        snprintf(why, max, "expectation %d\n  is        %s\n  log says  %s", i + 1, want, got);
        return;
    }
    char *log = play(&s);
    differ(s.log, log, why, max);
    free(log);
}

/* --- tests ------------------------------------------------------------------------------- */

static const char *const golden[] = {
    "golden-ksync",        "golden-kbatchsync", "golden-kasync",          "golden-kbatchasync",
    "golden-async",        "golden-ringmaster", "golden-ringmaster-stop", "golden-rennala-cancel",
    "golden-rennala-drop", "golden-chen"};

static char *read_story(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/trace/%s", SOURCE_DIR, name);
    return read_file(path);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

TEST(test_stories) {
    struct dirent **entry;
    char why[2048];
    int n_stories = 0, n_bad = 0, n_golden = 0;
    int n = scandir(SOURCE_DIR "/tests/trace", &entry, NULL, by_name);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name, *end = strrchr(name, '.');
        if (end && strcmp(end, ".txt") == 0) {
            char *text = read_story(name);
            check_story(text, why, sizeof why);
            if (why[0]) print_error("tests/trace/%s: %s\n", name, why);
            n_bad += why[0] != '\0';
            n_stories++;
            for (size_t g = 0; g < sizeof golden / sizeof golden[0]; g++)
                n_golden += strlen(golden[g]) == (size_t)(end - name) &&
                            strncmp(golden[g], name, (size_t)(end - name)) == 0;
            free(text);
        }
        free(entry[i]);
    }
    free(entry);
    print_message("%d stories\n", n_stories);
    assert_int_equal(n_golden, 10);
    if (n_bad) fail_msg("%d of %d stories did not come true", n_bad, n_stories);
}

/* Replaces the n-th `from` of the text. */
static char *spoil(const char *text, const char *from, int n, const char *to) {
    const char *at = strstr(text, from);
    while (at && --n > 0) at = strstr(at + 1, from);
    if (!at) fail_msg("no '%s' to replace", from);
    size_t room = strlen(text) + strlen(to) + 1;
    char *out = calloc(1, room);
    assert_non_null(out);
    pl_append(out, room, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

/* Whatever is changed in a story, it is noticed, and by the part that should. */
TEST(test_a_wrong_story_is_noticed) {
    static const struct {
        const char *from, *to, *notice;
        int n;
    } row[] = {
        {"W1@w0", "W2@w0", "expectation 1", 1},
        {"w1 <-", "w2 <-", "expectation 1", 1},
        {"2.3 w1", "2.4 w1", "expectation 1", 1},
        {"-> w1", "-> w2", "expectation 2", 1},
        {"# expect: 2.3 cancel W3@w0 -> w1\n", "", "expectation 2", 1},
        {"paceline simulate", "# expect: 9 drop W1@w0\npaceline simulate", "expectation 7", 1},
        {"# expect: ", "#expect: ", "is not written as", 1},
        {"expect: 2.3 w1", "expect: 2.3 v1", "cannot be read", 1},
        {"paceline simulate", "paceline race", "neither remark nor run", 1},
        {"1 arrive W1#1: take", "1 arrive W1#1", "line 4 of the log\n  is", 1},
        {"1 arrive W1#1: take", "1 arrive W1#1: take, start W9@w0", "line 4 of the log cannot be",
         1},
        {"1 arrive W1#1: take", "1 arrive W1#1: take, cancel W1", "expectation 1", 1},
        {"commit w1 <- W1@w0 W2@w0", "commit w1 <- W2@w0 W1@w0", "expectation 1", 1},
        {"1 arrive W1#1: take", "1.1 arrive W1#1: take", "line 4 of the log\n  is", 1},
        {"start W1@w1, start W2@w1", "start W2@w1, start W1@w1", "line 5 of the log\n  is", 1},
        {"--updates 3", "--updates 4", "line 10 of the log\n  is       7.9", 1},
        {"k=2", "k=1", "line 4 of the log\n  is", 1},
    };
    char *good = read_story("golden-ksync.txt"), why[2048];
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char *bad = spoil(good, row[i].from, row[i].n, row[i].to);
        check_story(bad, why, sizeof why);
        if (!strstr(why, row[i].notice))
            fail_msg("'%s' for '%s': '%s' is not '%s'", row[i].to, row[i].from, why, row[i].notice);
        free(bad);
    }
    char *cut = spoil(good, "start W3@w3\n", 1, "start W3@w3");
    check_story(cut, why, sizeof why);
    assert_non_null(strstr(why, "at the end of the file"));
    free(cut);
    free(good);
}

ALL_TESTS_BETWEEN(folder_make, folder_remove)
