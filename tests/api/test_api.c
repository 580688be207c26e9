/* The library as a program that embeds it sees it: paceline.h and nothing else. Whatever fails says
 * why in a sentence, copies share their data on several threads, everything is listed, planned and
 * drawn. */
#include <ctype.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "embedding.h"
#include "folder.h"

/* ---- copies ---- */

TEST(copies_share_and_differ) {
    pl_setup *a = NULL, *b = NULL, *c = NULL;
    assert_int_equal(pl_setup_new(&a), 0);
    set_all(a, "data=digits:samples=300,test=50 model=softmax updates=20 workers=3");
    assert_int_equal(pl_setup_check(a), 0);
    assert_int_equal(pl_setup_copy(a, &b), 0);
    assert_int_equal(pl_setup_copy(b, &c), 0);
    assert_int_equal(pl_setup_set(b, "seed", "99"), 0);
    pl_run *run_a = run_setup(a), *run_b = run_setup(b), *run_c;
    pl_setup_free(a); /* the data stays for the others */
    run_c = run_setup(c);
    assert_string_equal(pl_run_json(run_a), pl_run_json(run_c));
    assert_string_not_equal(pl_run_json(run_a), pl_run_json(run_b));
    assert_int_equal(pl_setup_set(c, "data", "digits:samples=200,test=50"), 0); /* lets go of it */
    pl_run *other = run_setup(c);
    assert_string_not_equal(pl_run_json(other), pl_run_json(run_c));
    pl_setup_free(b);
    pl_setup_free(c);
    pl_setup_free(NULL);
    pl_run_free(NULL);
}

static void *thread_main(void *arg) {
    pl_setup *s = arg;
    pl_run *run = NULL;
    char *json = NULL;
    if (!pl_simulate(s, &run)) json = strdup(pl_run_json(run));
    pl_run_free(run);
    return json;
}

/* Any number of setups at once, each by one thread at a time: copies are setups. */
TEST(copies_run_side_by_side) {
    enum { N = 6 };
    for (int round = 0; round < 3; round++) {
        pthread_t thread[N];
        char *json[N];
        pl_setup *a = make("data", "digits:samples=200,test=20", "model", "softmax", "updates",
                           "10", "workers", "3", "threads", "1", NULL);
        assert_int_equal(pl_setup_check(a), 0);
        for (int i = 0; i < N; i++) {
            pl_setup *copy = change(a, NULL);
            assert_int_equal(pthread_create(&thread[i], NULL, thread_main, copy), 0);
        }
        for (int i = 0; i < N; i++) {
            void *got;
            assert_int_equal(pthread_join(thread[i], &got), 0);
            json[i] = got;
            assert_non_null(json[i]);
            assert_string_equal(json[i], json[0]);
        }
        for (int i = 0; i < N; i++) free(json[i]);
    }
}

/* ---- failures ---- */

TEST(failures_have_sentences) {
    static const struct {
        const char *key, *value;
        int status;
        const char *word;
    } row[] = {
        {"workres", "3", PL_EUSAGE, "did you mean 'workers'?"},
        {"workers", "0", PL_EUSAGE, "from 1 to"},
        {"workers", "", PL_EUSAGE, "workers"},
        {"lr", "nan", PL_EUSAGE, "lr=nan"},
        {"lr", "-1", PL_EUSAGE, "lr=-1"},
        {"lr", "inf", PL_EUSAGE, "lr=inf"},
        {"seed", "1.5", PL_EUSAGE, "whole number"},
        {"sampling", "both", PL_EUSAGE, "iid|epoch"},
        {"method", "gap-awre", PL_EUSAGE, "did you mean 'gap-aware'?"},
        {"method", "kasync:q=3", PL_EUSAGE, "'q'"},
        {"policy", "ksyn", PL_EUSAGE, "did you mean 'ksync'?"},
        {"policy", "ksync:k=9", PL_EUSAGE, "number of workers"},
        {"policy", "ksync:k=", PL_EUSAGE, "k="},
        {"tuner", "adasink", PL_EUSAGE, "did you mean 'adasync'?"},
        {"correct", "gaps", PL_EUSAGE, "did you mean 'gap'?"},
        {"reduce", "median?", PL_EUSAGE, "reduce"},
        {"optim", "adma", PL_EUSAGE, "did you mean 'adam'?"},
        {"local", "step", PL_EUSAGE, "did you mean 'steps'?"},
        {"model", "lmp", PL_EUSAGE, "did you mean 'mlp'?"},
        {"model", "mlp:hidden=0", PL_EUSAGE, "hidden=0"},
        {"data", "digit", PL_EUSAGE, "did you mean 'digits'?"},
        {"data", "idx:/nowhere/at/all", PL_EIO, "/nowhere/at/all"},
        {"data", "libsvm:/nowhere", PL_EIO, "/nowhere"},
        {"partition", "labels", PL_EUSAGE, "did you mean 'label'?"},
        {"delay", "exq:mean=1", PL_EUSAGE, "did you mean 'exp'?"},
        {"delay", "exp:mean=0", PL_EUSAGE, "mean=0"},
        {"delay", "exp:mean=1,", PL_EUSAGE, "cannot end with a comma"},
        {"delay", "", PL_EUSAGE, "delay ''"},
        {"delay", "trace:/nowhere", PL_EIO, "/nowhere"},
        {"net", "latncy=1", PL_EUSAGE, "did you mean 'latency'?"},
        {"net", "latency=-1", PL_EUSAGE, "latency=-1"},
        {"lr-schedule", "stop:at=1", PL_EUSAGE, "did you mean 'step'?"},
        {"lr-schedule", "constant+", PL_EUSAGE, "spec"},
        {"script", "/nowhere", PL_EIO, "script '/nowhere'"},
        {"log", "/nowhere/log", PL_EIO, "log file '/nowhere/log'"},
        {"events", "/nowhere/log", PL_EIO, "events file '/nowhere/log'"},
        {"target-accuracy", "1.5", PL_EUSAGE, "target-accuracy=1.5"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        pl_setup *s =
            make("data", "digits:samples=100,test=10", "model", "softmax", "updates", "2", NULL);
        pl_run *run = NULL;
        assert_string_equal(pl_setup_why(s), "");
        int rc = pl_setup_set(s, row[i].key, row[i].value);
        if (!rc) rc = pl_simulate(s, &run);
        if (rc != row[i].status || !strstr(pl_setup_why(s), row[i].word))
            fail_msg("%s=%s gave %d, \"%s\"; expected %d and '%s'", row[i].key, row[i].value, rc,
                     pl_setup_why(s), row[i].status, row[i].word);
        check_sentence(pl_setup_why(s));
        assert_null(run);
    }
}

/* Options that are right one by one and do not fit together. */
TEST(misfits_have_sentences) {
    pl_setup *const misfit[] = {
        make("optim", "dana", "policy", "kasync:k=2", "model", "none", NULL),
        make("model", "none", "target-loss", "1", NULL),
        make("model", "quadratic", "target-accuracy", "0.5", NULL),
        make("model", "quadratic", "epochs", "2", NULL),
        make("model", "quadratic", "lr-schedule", "step", NULL),
        make("model", "softmax", "data", "digits:test=0", "target-accuracy", "0.5", NULL),
        make("model", "none", "policy", "ssp", "tuner", "adasync", NULL),
        make("method", "sync:k=3,k=99", "model", "none", NULL),
        make("lr-schedule", "constant+constant+constant+constant+constant", "model", "quadratic",
             NULL),
    };
    for (size_t i = 0; i < sizeof misfit / sizeof *misfit; i++) {
        pl_run *run = NULL;
        assert_int_equal(pl_setup_check(misfit[i]), PL_EUSAGE);
        check_sentence(pl_setup_why(misfit[i]));
        assert_int_equal(pl_simulate(misfit[i], &run), PL_EUSAGE);
        check_sentence(pl_setup_why(misfit[i]));
        assert_null(run);
        /* the setup is as good as before */
        assert_int_equal(pl_setup_set(misfit[i], "workers", "3"), 0);
        assert_string_equal(pl_setup_why(misfit[i]), "");
    }
}

TEST(numbers_have_names) {
    pl_setup *s = make("model", "none", "method", "ksync", "updates", "10", NULL);
    pl_run *run = run_setup(s);
    assert_true(pl_run_number(run, "updates") == 10 && pl_run_number(run, "workers") == 8);
    assert_true(pl_run_number(run, "k_final") == 4);
    assert_true(isnan(pl_run_number(run, "no such number")) && isnan(pl_run_number(run, "tasks")));
    assert_true(isnan(pl_run_number(run, "")));
    assert_ptr_equal(pl_run_json(run), pl_run_json(run));
    assert_string_equal(pl_version(), PL_VERSION);
}

/* ---- lists ---- */

struct listed {
    int n, n_family;
    char family[32], families[400], names[8000];
};

static void list_one(void *ctx, const struct pl_item *item) {
    struct listed *l = ctx;
    l->n++;
    if (strcmp(l->family, item->family) != 0) {
        size_t used = strlen(l->families);
        snprintf(l->families + used, sizeof l->families - used, "%s ", item->family);
        snprintf(l->family, sizeof l->family, "%s", item->family);
        l->n_family++;
    }
    size_t used = strlen(l->names);
    snprintf(l->names + used, sizeof l->names - used, "%s/%s ", item->family, item->name);
    assert_true(item->name[0] && item->brief[0] && item->family_brief[0] && item->paper);
    bool method = strcmp(item->family, "method") == 0;
    for (const char *c = item->name; *c; c++) /* a '+' chains members, but no methods */
        assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-' ||
                    (method && *c == '+'));
    bool option = strcmp(item->family, "option") == 0;
    bool optim = strcmp(item->family, "optim") == 0; /* its detail: --lr 0.1 */
    assert_true((item->detail[0] != '\0') == (method || option || optim));
    assert_non_null(strstr(item->facts, "\"needs\":["));
    assert_true((strstr(item->facts, "{\"method\":{\"name\":") == item->facts) == method);
    for (size_t i = 0; i < item->n_options; i++) {
        assert_true(item->option[i].name[0] && item->option[i].help[0] && item->option[i].def);
        assert_true(item->option[i].accepts[0]);
    }
}

TEST(lists_cover_everything) {
    static const char *const families[] = {"method", "policy",    "tuner",  "correct",  "reduce",
                                           "optim",  "local",     "filter", "schedule", "model",
                                           "data",   "partition", "delay",  "attack",   "option"};
    static const char *const names[] = {
        "method/abs ",   "policy/ksync ", "tuner/adasync ",  "correct/gap ",
        "reduce/mean ",  "optim/ormo ",   "local/steps ",    "schedule/cosine ",
        "model/none ",   "model/cnn ",    "data/idx ",       "partition/label ",
        "delay/hetero ", "attack/alie ",  "option/workers ", "option/target "};
    struct listed all = {0};
    int n = 0;
    assert_int_equal(pl_list(NULL, list_one, &all), 0);
    assert_int_equal(all.n_family, sizeof families / sizeof *families);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct listed one = {0};
        assert_int_equal(pl_list(families[i], list_one, &one), 0);
        assert_true(one.n >= 1 && one.n_family == 1);
        assert_non_null(strstr(all.families, families[i]));
        n += one.n;
    }
    assert_int_equal(n, all.n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strstr(all.names, names[i])) fail_msg("%s is not listed", names[i]);
    assert_int_equal(pl_list("nothing", list_one, &all), PL_EUSAGE);
}

/* Every option of a run is taken by pl_setup_set with its own default. */
static void set_default(void *ctx, const struct pl_item *item) {
    pl_setup *s = ctx;
    if (pl_setup_set(s, item->name, item->option[0].def))
        fail_msg("%s=%s: %s", item->name, item->option[0].def, pl_setup_why(s));
}

static void check_option_default(void *ctx, const struct pl_item *item) {
    pl_setup *s = make(NULL, NULL), *other = make(NULL, NULL);
    char value[512], again[512];
    if (pl_setup_get(s, item->name, value, sizeof value)) fail_msg("%s", pl_setup_why(s));
    if (strcmp(item->name, "seed") != 0 && strcmp(value, item->option[0].def) != 0)
        fail_msg("%s is '%s', and its default is '%s'", item->name, value, item->option[0].def);
    if (pl_setup_set(other, item->name, value)) fail_msg("%s", pl_setup_why(other));
    assert_int_equal(pl_setup_get(other, item->name, again, sizeof again), 0);
    assert_string_equal(value, again);
}

TEST(options_are_read_back) {
    pl_setup *s = make("method", "kasync:k=4", "lr", "1e-2", "workers", "12", "sampling", "epoch",
                       "respawn", "yes", "target-loss", "0.1", NULL);
    static const char *const want[][2] = {{"method", "kasync:k=4"}, {"lr", "0.01"},
                                          {"workers", "12"},        {"sampling", "epoch"},
                                          {"respawn", "yes"},       {"target-loss", "0.1"},
                                          {"policy", ""},           {"lr-schedule", "auto"}};
    char value[512] = "unchanged";
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(pl_setup_get(s, want[i][0], value, sizeof value), 0);
        assert_string_equal(value, want[i][1]);
        assert_string_equal(pl_setup_why(s), "");
    }
    snprintf(value, sizeof value, "unchanged");
    assert_int_equal(pl_setup_get(s, "learning-rate", value, sizeof value), PL_EUSAGE);
    check_sentence(pl_setup_why(s));
    assert_int_equal(pl_setup_get(s, "method", value, 10), PL_EUSAGE); /* with its zero it is 11 */
    check_sentence(pl_setup_why(s));
    assert_int_equal(pl_setup_get(s, "method", value, 0), PL_EUSAGE);
    assert_string_equal(value, "unchanged");
    assert_int_equal(pl_setup_get(s, "method", value, 11), 0);
    assert_string_equal(value, "kasync:k=4");
    pl_list("option", check_option_default, NULL);
}

TEST(defaults_are_accepted) {
    pl_setup *s = make(NULL);
    assert_int_equal(pl_list("option", set_default, s), 0);
    assert_int_equal(pl_setup_set(s, "model", "none"), 0);
    assert_int_equal(pl_setup_check(s), 0);
}

/* ---- plans ---- */

struct planned {
    int n, last_k, n_best[4], n_best_of_all;
    double ksync[9], kbatchasync[9], staleness[9];
};

static void plan_one(void *ctx, const struct pl_plan_row *row) {
    static const char *const names[] = {"ksync", "kbatchsync", "kasync", "kbatchasync"};
    struct planned *p = ctx;
    int v = 0;
    while (v < 4 && strcmp(names[v], row->policy) != 0) v++;
    assert_true(v < 4 && row->k >= 1 && row->k <= 8 && row->k >= p->last_k);
    p->last_k = row->k;
    p->n++;
    p->n_best[v] += row->best != 0;
    p->n_best_of_all += row->best_of_all != 0;
    assert_true(row->time_per_update > 0 && row->staleness >= 0);
    if (v == 0) p->ksync[row->k] = row->time_per_update;
    if (v == 3) p->kbatchasync[row->k] = row->time_per_update;
    if (v == 2) p->staleness[row->k] = row->staleness;
}

TEST(plans_have_rows) {
    struct planned p = {0};
    pl_setup *s = make("workers", "8", "delay", "exp:mean=1", NULL);
    assert_int_equal(pl_plan(s, plan_one, &p), 0);
    assert_int_equal(p.n, 32);
    for (int v = 0; v < 4; v++) assert_true(p.n_best[v] <= 1);
    assert_true(p.n_best_of_all <= 1);
    /* H_8 - H_(8-K), K/8, 8/K - 1 */
    assert_true(fabs(p.ksync[4] - 0.634523809523809) < 1e-9);
    assert_true(fabs(p.ksync[8] - 2.717857142857142) < 1e-9);
    assert_true(fabs(p.kbatchasync[6] - 0.75) < 1e-9);
    assert_true(fabs(p.staleness[2] - 3) < 1e-9);
    assert_int_equal(pl_setup_set(s, "delay", "exp:maen=1"), 0);
    assert_int_equal(pl_plan(s, plan_one, &p), PL_EUSAGE);
    check_sentence(pl_setup_why(s));
}

/* ---- files of a run ---- */

static long file_size(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

TEST(logs_are_written_once) {
    char log[900], events[900], line[2000];
    int n_lines = 0;
    const struct pl_point *p;
    snprintf(log, sizeof log, "%s", folder_path("log.jsonl"));
    snprintf(events, sizeof events, "%s", folder_path("events.txt"));
    pl_setup *s = make("model", "quadratic", "method", "async", "updates", "30", "log", log,
                       "events", events, NULL);
    pl_run *run = run_setup(s), *again = NULL;
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        assert_true(line[0] == '{' && strstr(line, "}\n") && strstr(line, "\"loss\":"));
        n_lines++;
    }
    fclose(f);
    assert_int_equal(n_lines, pl_run_points(run, &p));
    f = fopen(events, "r");
    assert_non_null(f);
    for (n_lines = 0; fgets(line, sizeof line, f);) n_lines++;
    fclose(f);
    assert_int_equal(n_lines, 8 + 30); /* joins and arrivals */
    long size = file_size(log);
    assert_int_equal(pl_simulate(s, &again), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "already exists and will not be overwritten"));
    assert_int_equal(file_size(log), size);
    unlink(log);
    unlink(events);
}

ALL_TESTS_BETWEEN(folder_make, folder_remove)
