/* Replays: every method's run is recorded and replayed, event by event and bit by bit, however it
 * ended; what differs is told, and what cannot be replayed is refused. */

#include "blocks.h"
#include "recorded.h"
#include "timing/recording.h"

#define MAX_METHODS 64

static void check_sentence(const pl_run *run, const char *word) {
    const char *said = pl_run_text(run, "replay");
    assert_non_null(said);
    if (!strstr(said, word)) fail_msg("\"%s\" lacks '%s'", said, word);
}

/* Records the run, replays it with other threads, and compares all there is. Frees `s`. */
static void check_replays(const char *what, pl_setup *s) {
    struct pl_recording r;
    struct pl_why why;
    size_t n;
    set(s, "record", fresh("a.rec"));
    set(s, "events", fresh("a.events"));
    pl_run *first = simulate(s);
    pl_setup *again = plain();
    set(again, "events", fresh("b.events"));
    set(again, "record", fresh("b.rec"));
    set(again, "threads", "3");
    pl_run *second = replay(again, path("a.rec"));
    if (pl_run_number(second, "replay.same") != 1)
        fail_msg("%s: %s", what, pl_run_text(second, "replay"));
    check_sentence(second, pl_run_weights(first, &n) ? "events, decisions and weights, bit for bit"
                                                     : "events and decisions, bit for bit");
    if (!same_weights(first, second)) fail_msg("%s: other weights", what);
    check_same_file(what, path("a.events"), path("b.events"));
    assert_true(pl_run_number(first, "time") == pl_run_number(second, "time"));
    assert_true(pl_run_number(first, "updates") == pl_run_number(second, "updates"));
    assert_true(pl_run_diverged(first) == pl_run_diverged(second));
    assert_int_equal(pl_recording_read(path("b.rec"), &r, &why), 0);
    assert_true((double)r.n_events == pl_run_number(second, "replay.events"));
    const float *w = pl_run_weights(first, &n);
    assert_true(r.ended && !r.cut && r.digest == pl_digest(w, n));
    pl_recording_free(&r);
}

/* ---- every method ---- */

static char methods[MAX_METHODS][64];
static size_t n_methods;

static void collect_method(void *ctx, const struct pl_item *item) {
    assert_true(n_methods < MAX_METHODS);
    snprintf(methods[n_methods++], sizeof *methods, "%s", item->name);
}

static const char *script(const char *text) {
    const char *p = fresh("script");
    spill(p, (const uint8_t *)text, strlen(text));
    return p;
}

TEST(every_method_replays) {
    const char *lines = script("3.5 leave 2\n3.5 leave 3\n7 freeze 1 2\n9.25 join 2\n12 join 3\n"
                               "12.5 leave 2\n20 join 2\n");
    assert_int_equal(pl_list("method", collect_method, NULL), 0);
    assert_true(n_methods > 20);
    for (size_t m = 0; m < n_methods; m++) {
        pl_setup *base = change(small, "method", methods[m], NULL);
        bool blocks = needs_blocks(methods[m]);
        if (blocks) set(base, "model", BLOCKS_MODEL);
        if (blocks) set(base, "data", BLOCKS_DATA);
        check_replays(methods[m], change(base, "script", lines, NULL));
        if (sanitized && m % 4 && !blocks) continue;
        if (strcmp(methods[m], "zeno++") != 0 && !blocks) /* need data */
            check_replays(methods[m],
                          change(small, "method", methods[m], "model", "quadratic:dim=50,noise=0.1",
                                 "delay", "const:t=1|const:t=2", "lr", "0.01", NULL));
        check_replays(methods[m],
                      change(small, "method", methods[m], "model", "none", "net",
                             "latency=0.1,server=1e3,bytes=100", "script", lines, NULL));
        /* what a replay records is what it replays, bit by bit */
        check_replays(methods[m], change(base, "updates", "20", NULL));
        check_same_file(methods[m], path("a.rec"), path("b.rec"));
    }
}

TEST(averages_replay) {
    static const char *const averages[] = {"tail", "tail:0.5", "ema:0.9"};
    for (size_t i = 0; i < sizeof averages / sizeof *averages; i++)
        check_replays(averages[i], change(small, "average", averages[i], NULL));
}

/* However a run came to its end, its replay ends there too. */
TEST(every_end_replays) {
    check_replays("time", change(small, "method", "async", "updates", "0", "time", "12.3456789012",
                                 "eval-every", "1.5", NULL));
    check_replays("epochs",
                  change(small, "method", "ksync:k=2", "updates", "0", "epochs", "2", NULL));
    check_replays("target", change(small, "method", "sync", "lr", "0.3", "target-loss", "2", NULL));
    check_replays("many",
                  change(small, "method", "async", "model", "none", "updates", "5000", NULL));
    check_replays("diverged", change(small, "policy", "kasync:k=1", "optim", "momentum", "lr", "10",
                                     "model", "quadratic", "updates", "100000", NULL));
    check_replays("digits", change(small, "method", "async", "lr", "0.12345678901234567",
                                   "weight-decay", "1e-4", "lr-schedule",
                                   "warmup:over=5,unit=updates+step:at=20,unit=updates", NULL));
    check_replays("stop", change(small, "method", "ringmaster", "net", "latency=0.5", NULL));
}

/* ---- functions, rejects and differences ---- */

struct fake {
    double slope;
    uint32_t bad_worker; /* this worker's task number bad_task is not finite */
    uint64_t bad_task;
};

static int fake_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                         double *loss) {
    const struct fake *f = ctx;
    g[0] = (float)(f->slope * w[0] + 0.001 * (double)(s->batch_no % 7));
    g[1] = w[1];
    *loss = g[0];
    if (s->worker == f->bad_worker && s->batch_no + 1 == f->bad_task) g[1] = NAN;
    return 0;
}

static void fake_init(void *ctx, uint64_t seed, float *w) {
    w[0] = w[1] = 1;
}

static pl_setup *with_fake(pl_setup *s, struct fake *f) {
    struct pl_function function = {
        .dim = 2, .ctx = f, .init = fake_init, .gradient = fake_gradient};
    assert_int_equal(pl_setup_function(s, &function), 0);
    return s;
}

TEST(differences_are_told) {
    struct fake good = {1, 9, 0}, bad = {1, 1, 3}, steep = {1.0000001, 9, 0}, worse = {1, 2, 4};
    struct pl_recording r;
    struct pl_why why;
    pl_run *first = simulate(with_fake(change(small, "method", "async", "model", "none", "updates",
                                              "30", "record", fresh("f.rec"), NULL),
                                       &bad));
    assert_true(pl_run_number(first, "tasks.rejected") == 1);
    assert_int_equal(pl_recording_read(path("f.rec"), &r, &why), 0);
    size_t n_events = r.n_events, n_rejects = 0;
    for (size_t i = 0; i < r.n_events; i++) n_rejects += r.event[i].kind == PL_REJECT;
    assert_int_equal(n_rejects, 1);
    pl_recording_free(&r);
    /* rejected then, rejected now, whatever is computed now */
    for (int i = 0; i < 2; i++) {
        pl_run *again = replay(with_fake(plain(), i ? &good : &bad), path("f.rec"));
        assert_true(pl_run_number(again, "replay.same") == 1);
        assert_true(pl_run_number(again, "replay.events") == (double)n_events);
        assert_true(pl_run_number(again, "tasks.rejected") == 1);
        assert_true(same_weights(first, again));
        assert_non_null(strstr(pl_run_json(again), "\"replay\":{\"events\":"));
    }
    pl_run *other = replay(with_fake(plain(), &steep), path("f.rec"));
    assert_true(pl_run_number(other, "replay.same") == 0);
    assert_true(pl_run_number(other, "replay.events") < (double)n_events);
    check_sentence(other, "differs at event 5, task 1 of worker");
    check_sentence(other, "the loss is 1.00");
    other = replay(with_fake(plain(), &worse), path("f.rec"));
    check_sentence(other,
                   "worker 3 returned a task, but in the replay it returned a task that was");
    assert_true(isnan(pl_run_number(first, "replay.same")) && !pl_run_text(first, "replay"));
    check_refused(plain(), path("f.rec"), PL_EUSAGE, "with a function of the embedding program");
    simulate(change(small, "record", fresh("g.rec"), NULL));
    check_refused(with_fake(plain(), &good), path("g.rec"), PL_EUSAGE, "without a function");
}

/* Whole and sound, and still not to be replayed; or replayed, and told to differ. */
TEST(nonsense_is_told) {
    static const struct {
        const char *text, *word;
    } row[] = {
        {"program=0\nformat=3\nworkers=2\nmodel=none\nresume=there.ckpt\n",
         "was resumed from a checkpoint"},
        {"program=0\nformat=3\nworkers=3\nmodel=none\n",
         "a recording of 2 workers cannot be replayed with 3"},
        {"program=0\nformat=3\nworkers=2\nmodel=none\nnosuch=1\n", "there is no option 'nosuch'"},
        {"program=0\nformat=3\nworkers=2\nmodel\n", "'model' is not key=value"},
        {"program=0\nformat=3\nworkers=many\n", "workers=many is not accepted"},
        {"program=0\nformat=3\nworkers=2\nmodel=none\nmethod=nosuch\n",
         "no method is called 'nosuch'"},
    };
    const struct line joins[] = {{.kind = 1, .worker = 0}, {.kind = 1, .worker = 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        pl_setup *s = plain();
        pl_run *run = NULL;
        assert_true(pl_replay(s, encoded("odd.rec", row[i].text, 2, 1, joins, 2), &run) < 0);
        if (!strstr(pl_setup_why(s), row[i].word))
            fail_msg("\"%s\" lacks '%s'", pl_setup_why(s), row[i].word);
    }
    static const struct {
        struct line line;
        const char *word;
    } odd[] = {
        {{.kind = 2, .worker = 1, .now = 9, .task = 2},
         "event 3, task 2 of worker 2: in the replay"},
        {{.kind = 3, .worker = 0, .now = 9, .task = 77}, "event 3, task 77 of worker 1"},
        {{.kind = 2, .worker = 0, .now = 9, .task = 0}, "event 3, task 0 of worker 1"},
        {{.kind = 1, .worker = 1, .now = 9},
         "event 3, worker 2: in the replay it is already present"},
        {{.kind = 6, .now = 9}, "event 3, a timer: in the replay none is due"},
        {{.kind = 7, .worker = 1, .now = 9, .task = 1},
         "event 3, worker 2: in the replay it completes no base"},
        {{.kind = 5, .now = 9, .task = 4}, "the end: 0 updates instead of 4"},
        {{.kind = 5, .now = 9, .comm = 4}, "the end: the weights differ"},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        const struct line l[] = {joins[0], joins[1], odd[i].line};
        pl_run *run =
            replay(plain(),
                   encoded("odd.rec", "program=0\nformat=3\nworkers=2\nmodel=none\nmethod=async\n",
                           2, 1, l, 3));
        check_sentence(run, odd[i].word);
        assert_true(pl_run_number(run, "replay.same") == 0);
        assert_true(pl_run_number(run, "replay.events") == 2);
    }
    /* also where there are vectors: workers have no base of their own if the model is common */
    const struct line base[] = {joins[0], joins[1], {.kind = 7, .worker = 1, .now = 9, .task = 1}};
    pl_run *common = replay(
        plain(),
        encoded("odd.rec", "program=0\nformat=3\nworkers=2\nmodel=quadratic:dim=4\nmethod=async\n",
                2, 1, base, 3));
    check_sentence(common, "event 3, worker 2: in the replay it completes no base");
    /* everybody leaves, and that was the end */
    const struct line gone[] = {joins[0],
                                {.kind = 2, .worker = 0, .now = 3, .task = 1, .loss = NAN},
                                {.kind = 4, .worker = 0, .now = 4},
                                {.kind = 5, .now = 2000000000, .task = 1}};
    pl_run *run = replay(
        plain(), encoded("odd.rec", "program=0\nformat=3\nworkers=2\nmodel=none\nmethod=async\n", 2,
                         1, gone, 4));
    check_sentence(run, "the same 3 events and decisions, bit for bit");
    assert_true(pl_run_number(run, "time") == 2 && pl_run_number(run, "updates") == 1);
}

/* ---- the same with a difference ---- */

TEST(options_come_back) {
    /* constant delays: what was recorded is the law itself, so the run is the same */
    pl_run *first = simulate(change(small, "method", "kasync:k=2", "delay", "const:t=1|const:t=2",
                                    "updates", "40", "record", fresh("a.rec"), NULL));
    pl_setup *s = plain();
    assert_int_equal(pl_setup_recorded(s, path("a.rec")), 0);
    pl_run *second = simulate(s);
    assert_true(same_weights(first, second));
    assert_true(pl_run_number(first, "time") == pl_run_number(second, "time"));
    assert_null(pl_run_text(second, "replay"));
    /* what is said stays, before or after; a method comes with its own columns */
    simulate(change(small, "policy", "kasync:k=2", "optim", "momentum", "delay",
                    "const:t=1|const:t=2", "updates", "40", "record", fresh("b.rec"), NULL));
    s = plain();
    set(s, "method", "sync");
    assert_int_equal(pl_setup_recorded(s, path("b.rec")), 0);
    set(s, "workers", "6");
    pl_run *other = simulate(s);
    assert_string_equal(pl_run_text(other, "policy"), "ksync:k=6");
    assert_string_equal(pl_run_text(other, "optim"), "sgd");
    assert_true(pl_run_number(other, "time") == 80 && pl_run_number(other, "workers") == 6);
}

static int at_once(void *ctx, const struct pl_point *p) {
    return p->updates >= 20;
}

TEST(an_interrupted_replay_says_so) {
    pl_setup *s = setup_of("method=kasync:k=2 data=blobs workers=4 updates=100");
    set(s, "record", fresh("int.rec"));
    simulate(s);
    s = plain();
    pl_setup_watch(s, NULL, at_once, NULL);
    pl_run *run = replay(s, path("int.rec"));
    const char *said = pl_run_text(run, "replay");
    if (strncmp(said, "interrupted after ", 18) != 0) fail_msg("%s", said);
}

static int teardown(void **state) {
    static const char *const names[] = {"a.rec", "b.rec", "a.events", "b.events", "script",
                                        "f.rec", "g.rec", "odd.rec",  "int.rec"};
    return recorded_end(names, sizeof names / sizeof *names);
}

/* ---- runs that clients computed ---- */

/* Their gradients are not in the recording. */
TEST(runs_of_clients_are_not_replayed) {
    struct pl_recorder *r = NULL;
    struct pl_why why = {.text = ""};
    pl_run *run = NULL;
    const char *path = fresh("recording");
    assert_int_equal(pl_recorder_open(path,
                                      "program=0\nformat=3\nmodel=external:dim=5\nworkers=2\n", 2,
                                      1, &r, &why),
                     0);
    pl_recorder_end(r, 1, 0, NULL, 0);
    assert_int_equal(pl_recorder_close(r, &why), 0);
    pl_setup *s = plain();
    assert_int_equal(pl_replay(s, path, &run), PL_EUSAGE);
    if (!strstr(pl_setup_why(s), "model 'external' is computed by clients"))
        fail_msg("%s", pl_setup_why(s));
}

ALL_TESTS_BETWEEN(recorded_begin, teardown)
