/* The history of a run against what the run itself reports, its limits, and the files made from it.
 */
#include <jansson.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"
#include "observe/history_state.h"
#include "setups.h"

/* A simulated run with that history, as JSON; the caller frees both. */
static json_t *history_of(const char *options, const char *file, pl_run **run) {
    json_error_t error;
    pl_setup *s = plain();
    set_all(s, options);
    assert_int_equal(pl_setup_set(s, "history", folder_path(file)), 0);
    *run = simulate(s);
    json_t *h = json_load_file(folder_path(file), 0, &error);
    if (!h) fail_msg("%s", error.text);
    return h;
}

static json_int_t whole(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static double row_sum(const json_t *h, size_t column) {
    double sum = 0;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(h, "rows"), i, row) sum +=
        json_number_value(json_array_get(row, column));
    return sum;
}

/* A gradient of a simple loss, in every tenth of which there is a NAN that the loss does not show.
 */
static int spoiled_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                            double *loss) {
    atomic_int *n = ctx; /* simulated workers compute in several threads */
    *loss = 0.5 * (double)(w[0] * w[0] + w[1] * w[1]);
    for (int i = 0; i < 2; i++) g[i] = w[i];
    if (atomic_fetch_add(n, 1) % 10 == 9) g[1] = NAN;
    return 0;
}

/* Members that a commit leaves out are in the log, and everything that counts says the same. */
TEST(left_out_members_are_counted_once) {
    static const char *const fate[] = {"applied", "rejected"};
    static const char letter[] = "AR";
    atomic_int n_gradients = 0;
    char line[400];
    pl_setup *s = plain();
    static const char options[] =
        "method=ksync:k=2 workers=2 updates=200 lr=0.01 spawn=threads evict=off";
    set_all(s, options);
    assert_int_equal(pl_setup_set(s, "history", folder_path("left.json")), 0);
    assert_int_equal(pl_setup_set(s, "events", folder_path("left.txt")), 0);
    const struct pl_function f = {.dim = 2, .ctx = &n_gradients, .gradient = spoiled_gradient};
    assert_int_equal(pl_setup_function(s, &f), 0);
    pl_run *run = train(s);
    json_t *h = json_load_file(folder_path("left.json"), 0, NULL);
    const char *letters = json_string_value(json_object_get(json_object_get(h, "tasks"), "fate"));
    json_int_t rejected = whole(json_object_get(h, "fates"), "rejected");
    assert_true(rejected > 10);
    for (int i = 0; i < 2; i++) {
        json_int_t count = 0;
        for (const char *at = letters; *at; at++) count += *at == letter[i];
        json_int_t said = whole(json_object_get(h, "fates"), fate[i]);
        snprintf(line, sizeof line, "tasks.%s", fate[i]);
        assert_int_equal(said, (json_int_t)pl_run_number(run, line));
        /* a result in the group that the end leaves open is not applied */
        assert_true(count >= said && count <= said + (i == 0));
    }
    FILE *log = fopen(folder_path("left.txt"), "r");
    for (assert_non_null(log); fgets(line, sizeof line, log);)
        for (const char *at = line; (at = strstr(at, "reject W")); at++) rejected--;
    fclose(log);
    assert_int_equal(rejected, 0);
    json_decref(h);
}

TEST(it_agrees_with_the_run) {
    static const char options[] = "policy=ksync:k=3 model=none workers=5 updates=400";
    static const char *const fate[] = {"applied", "dropped", "cancelled", "lost", "rejected"};
    static const char letter[] = "ADCLR";
    pl_run *run;
    json_t *h = history_of(options, "agrees.json", &run), *fates = json_object_get(h, "fates");
    json_t *tasks = json_object_get(h, "tasks");
    const char *letters = json_string_value(json_object_get(tasks, "fate"));
    size_t n = strlen(letters), started = 0;
    for (int f = 0; f < 5; f++) {
        char key[40];
        json_int_t count = 0;
        snprintf(key, sizeof key, "tasks.%s", fate[f]);
        for (size_t i = 0; i < n; i++) count += letters[i] == letter[f];
        assert_int_equal(whole(fates, fate[f]), (json_int_t)pl_run_number(run, key));
        /* what is taken into the group that the end leaves open is not applied */
        assert_true(llabs(count - whole(fates, fate[f])) <= 3);
        started += (size_t)count;
    }
    assert_true(started > 1000 && n >= started);
    assert_int_equal(whole(tasks, "all"), (json_int_t)n);
    static const char *const columns[] = {"worker", "end", "duration", "sent", "lag", "number"};
    for (int i = 0; i < 6; i++)
        assert_int_equal(json_array_size(json_object_get(tasks, columns[i])), n);
    /* the shares of the time are those of the run */
    double all = row_sum(h, 0) + row_sum(h, 1) + row_sum(h, 2) + row_sum(h, 3);
    assert_true(fabs(row_sum(h, 3) / all - pl_run_number(run, "worker_time.wasted")) < 0.01);
    assert_true(fabs(row_sum(h, 2) / all - pl_run_number(run, "worker_time.idle")) < 0.01);
    /* so is the staleness */
    json_int_t binned = 0;
    size_t i;
    json_t *bin;
    json_array_foreach(json_object_get(json_object_get(h, "staleness"), "bins"), i, bin) binned +=
        json_integer_value(json_array_get(bin, 1));
    assert_int_equal(binned, whole(fates, "applied"));
    json_decref(h);
}

/* Waiting times by pair: nobody waits for itself, and nobody waited longer than it was idle. */
TEST(waits_are_attributed) {
    static const char options[] =
        "policy=ksync:k=all model=none workers=4 delay=3*const:t=1|const:t=5 updates=20";
    pl_run *run;
    double waited = 0;
    size_t i;
    json_t *pair;
    json_t *h = history_of(options, "waits.json", &run);
    json_array_foreach(json_object_get(h, "held"), i, pair) {
        assert_int_equal(json_integer_value(json_array_get(pair, 0)), 3);
        assert_true(json_integer_value(json_array_get(pair, 1)) < 3);
        waited += json_number_value(json_array_get(pair, 2));
    }
    assert_true(fabs(waited - 3 * 20 * 4) < 1e-3); /* three workers, 20 updates, 4 s each */
    assert_true(fabs(row_sum(h, 6) - 20 * 4) < 1e-3);
    json_decref(h);
}

TEST(it_is_bounded) {
    static const char options[] = "policy=kasync:k=1 model=none workers=16 updates=130000";
    pl_run *run;
    size_t i;
    json_t *row;
    json_t *h = history_of(options, "bounded.json", &run), *tasks = json_object_get(h, "tasks");
    assert_int_equal(strlen(json_string_value(json_object_get(tasks, "fate"))), PL_HISTORY_TASKS);
    assert_true(whole(tasks, "all") > 130000);
    json_t *events = json_object_get(h, "events");
    assert_int_equal(json_array_size(json_object_get(events, "first")), HISTORY_FIRST);
    assert_int_equal(json_array_size(json_object_get(events, "last")), HISTORY_LAST);
    /* the cells cover the whole run: workers that never wait are computing throughout */
    json_t *cells = json_object_get(h, "cells");
    double width = json_number_value(json_object_get(cells, "width"));
    double time = json_number_value(json_object_get(h, "time"));
    json_array_foreach(json_object_get(cells, "rows"), i, row) {
        const char *text = json_string_value(row);
        size_t columns = strlen(text) / 4;
        assert_true(fabs((double)columns * width - time) <= 2 * width);
        for (size_t k = 0; k + 1 < columns; k++) assert_true(text[4 * k] >= '0' + 61);
    }
    json_decref(h);
    struct stat st;
    assert_int_equal(stat(folder_path("bounded.json"), &st), 0);
    assert_true(st.st_size < 8 << 20);
}

TEST(many_workers_are_cut) {
    static const char options[] = "policy=kasync:k=1 model=none workers=20000 updates=2000";
    pl_run *run;
    json_t *h = history_of(options, "many.json", &run);
    assert_int_equal(json_array_size(json_object_get(h, "rows")), PL_HISTORY_WORKERS);
    assert_int_equal(whole(h, "workers"), 20000);
    json_decref(h);
}

TEST(reports_replace_only_reports) {
    static const char options[] = "policy=kasync:k=1 model=none";
    pl_run *run;
    struct stat st;
    json_decref(history_of(options, "report.json", &run));
    pl_setup *s = plain();
    const char *path[] = {folder_path("report.json")};
    char page[300], other[300];
    snprintf(page, sizeof page, "%s", folder_path("report.html"));
    snprintf(other, sizeof other, "%s", folder_path("other.html"));
    if (pl_report(s, path, 1, page)) fail_msg("%s", pl_setup_why(s));
    assert_int_equal(stat(page, &st), 0);
    assert_true(st.st_size > 60000);
    assert_int_equal(pl_report(s, path, 1, page), 0);
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    fputs("<!doctype html>\n<p>mine", f);
    fclose(f);
    assert_int_equal(pl_report(s, path, 1, other), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "not a report"));
    path[0] = other;
    assert_int_equal(pl_report(s, path, 1, page), PL_EUSAGE);
    path[0] = folder_path("nowhere");
    assert_int_equal(pl_report(s, path, 1, page), PL_EIO);
    path[0] = folder; /* has neither a run nor a race */
    unlink(folder_path("report.json"));
    assert_int_equal(pl_report(s, path, 0, page), PL_EUSAGE);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
