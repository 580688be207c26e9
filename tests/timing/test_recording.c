/* Recordings as files: written as documented, a flipped byte is found wherever it is, a file that
 * was cut is good up to its last whole event, and one made to deceive is refused. And the delay law
 * that draws from them. */

#include "opened.h"
#include "recorded.h"
#include "timing/recording.h"

/* ---- the format ---- */

/* What the program writes is what the encoder above writes. */
TEST(the_bytes_are_as_documented) {
    struct pl_recording r;
    struct pl_why why;
    char workers[16];
    simulate(change(small, "method", "kasync:k=2", "updates", "10", "local", "steps:u=3", "record",
                    fresh("a.rec"), NULL));
    assert_int_equal(pl_recording_read(path("a.rec"), &r, &why), 0);
    assert_int_equal(r.steps, 3);
    assert_true(pl_recording_line(r.text, "workers", workers, sizeof workers));
    assert_string_equal(workers, "4");
    assert_false(pl_recording_line(r.text, "worker", workers, sizeof workers));
    struct line *l = own_room(r.n_events + 1, sizeof *l);
    uint64_t began[4] = {0};
    for (size_t i = 0; i < r.n_events; i++) {
        const struct pl_event *e = &r.event[i];
        l[i] = (struct line){.kind = (uint32_t)e->kind + 1,
                             .worker = (uint32_t)e->worker,
                             .now = e->now_ns,
                             .task = e->task,
                             .began = r.began_ns[i],
                             .comm = e->comm_ns,
                             .loss = e->loss,
                             .samples = e->samples};
        if (e->kind == PL_JOIN) assert_true(e->task == 0 && r.began_ns[i] == 0);
        if (e->kind != PL_ARRIVE) continue;
        assert_true(r.began_ns[i] >= began[e->worker] && r.began_ns[i] < e->now_ns);
        assert_int_equal(e->samples, 3 * 16);
        began[e->worker] = e->now_ns;
    }
    l[r.n_events] =
        (struct line){.kind = 5, .now = r.end_ns, .task = r.n_updates, .comm = r.digest};
    struct bytes mine = encode(r.text, 4, 3, l, r.n_events + 1), theirs = slurp(path("a.rec"));
    assert_int_equal(mine.n, theirs.n);
    assert_memory_equal(mine.at, theirs.at, mine.n);
    free(mine.at);
    free(theirs.at);
    pl_recording_free(&r);
}

TEST(digests_tell_weights_apart) {
    float w[67], x[67];
    for (int i = 0; i < 67; i++) w[i] = (float)i / 7;
    uint64_t d = pl_digest(w, 67);
    assert_true(d == pl_digest(w, 67) && d != pl_digest(w, 66) && pl_digest(NULL, 0) == 0);
    for (size_t bit = 0; bit < 67 * 32; bit++) {
        uint32_t word;
        memcpy(x, w, sizeof w);
        memcpy(&word, &x[bit / 32], 4);
        word ^= 1u << bit % 32;
        memcpy(&x[bit / 32], &word, 4);
        assert_true(pl_digest(x, 67) != d);
    }
    for (int i = 1; i < 67; i++)
        for (int j = 0; j < i; j++) {
            memcpy(x, w, sizeof w);
            x[i] = w[j];
            x[j] = w[i];
            assert_true(pl_digest(x, 67) != d);
        }
    /* docs/recording.md, by hand: one word, and the other lanes empty */
    const uint64_t basis = 0xcbf29ce484222325u, prime = 0x100000001b3u;
    uint64_t by_hand = basis;
    float one = 1;
    by_hand = (by_hand ^ ((basis ^ 0x3f800000u) * prime)) * prime;
    for (uint64_t l = 1; l < 4; l++) by_hand = (by_hand ^ (basis + l)) * prime;
    assert_true(pl_digest(&one, 1) == (by_hand ^ 1) * prime);
}

TEST(files_are_not_written_over) {
    struct pl_recorder *r = NULL;
    struct pl_why why;
    spill(path("kept"), (const uint8_t *)"precious", 8);
    assert_int_equal(pl_recorder_open(path("kept"), "", 1, 1, &r, &why), PL_EIO);
    assert_non_null(strstr(why.text, "already exists and will not be overwritten"));
    assert_int_equal(pl_recorder_open(path("no/such"), "", 1, 1, &r, &why), PL_EIO);
    char *text = malloc(PL_RECORDING_TEXT_MAX + 2);
    memset(text, 'x', PL_RECORDING_TEXT_MAX + 1);
    text[PL_RECORDING_TEXT_MAX + 1] = '\0';
    assert_int_equal(pl_recorder_open(fresh("long"), text, 1, 1, &r, &why), PL_EUSAGE);
    free(text);
    assert_null(r);
    struct bytes b = slurp(path("kept"));
    assert_true(b.n == 8);
    free(b.at);
    pl_setup *s = change(small, "data", "digits:samples=300\n", "record", fresh("line"), NULL);
    pl_run *run = NULL;
    assert_int_equal(pl_simulate(s, &run), PL_EUSAGE);
}

/* ---- damage ---- */

/* A small recording as bytes, and the events in it. */
static struct bytes small_recording(size_t *n_events) {
    struct pl_recording r;
    struct pl_why why;
    simulate(change(small, "method", "async", "model", "quadratic:dim=3", "updates", "5", "record",
                    fresh("small.rec"), NULL));
    assert_int_equal(pl_recording_read(path("small.rec"), &r, &why), 0);
    assert_true(r.ended && r.n_updates == 5 && r.n_workers == 4 && r.steps == 1);
    *n_events = r.n_events;
    pl_recording_free(&r);
    return slurp(path("small.rec"));
}

TEST(flipped_bytes_are_found) {
    size_t n_events;
    struct bytes b = small_recording(&n_events);
    struct pl_recording r;
    struct pl_why why;
    char where[80];
    const char *file = path("flipped.rec");
    for (size_t i = 0; i < b.n; i++) {
        uint8_t was = b.at[i];
        b.at[i] = (uint8_t)(was ^ (1u << i % 8));
        spill(file, b.at, b.n);
        int rc = pl_recording_read(file, &r, &why);
        if (rc != PL_EDATA) fail_msg("byte %zu flipped: %d", i, rc);
        if (i == b.n - 56 * (n_events + 1) + 56 * 4 + 30) {
            snprintf(where, sizeof where, "is damaged at event 5: its checksum does not match");
            if (!strstr(why.text, where)) fail_msg("\"%s\" lacks \"%s\"", why.text, where);
            check_refused(plain(), file, PL_EDATA, where);
        }
        b.at[i] = was;
    }
    /* two events swapped, one left out, one twice */
    size_t head = b.n - 56 * (n_events + 1);
    struct bytes c = {malloc(b.n + 56), b.n};
    memcpy(c.at, b.at, b.n);
    memcpy(c.at + head + 56 * 4, b.at + head + 56 * 5, 56);
    memcpy(c.at + head + 56 * 5, b.at + head + 56 * 4, 56);
    spill(file, c.at, c.n);
    assert_int_equal(pl_recording_read(file, &r, &why), PL_EDATA);
    memcpy(c.at, b.at, b.n);
    memmove(c.at + head + 56 * 2, b.at + head + 56 * 3, b.n - head - 56 * 3);
    spill(file, c.at, b.n - 56);
    assert_int_equal(pl_recording_read(file, &r, &why), PL_EDATA);
    memcpy(c.at, b.at, b.n);
    memcpy(c.at + b.n, b.at + b.n - 56, 56);
    spill(file, c.at, b.n + 56);
    assert_int_equal(pl_recording_read(file, &r, &why), PL_EDATA);
    memcpy(c.at + b.n, "x", 1);
    spill(file, c.at, b.n + 1);
    assert_int_equal(pl_recording_read(file, &r, &why), PL_EDATA);
    free(c.at);
    free(b.at);
}

TEST(what_is_cut_is_good_so_far) {
    size_t n_events;
    struct bytes b = small_recording(&n_events);
    struct pl_recording whole, r;
    struct pl_why why;
    size_t head = b.n - 56 * (n_events + 1);
    const char *file = path("cut.rec");
    assert_int_equal(pl_recording_read(path("small.rec"), &whole, &why), 0);
    for (size_t n = 0; n < b.n; n++) {
        spill(file, b.at, n);
        int rc = pl_recording_read(file, &r, &why);
        if (n < head) {
            assert_int_equal(rc, PL_EDATA);
            assert_non_null(strstr(why.text, "is truncated in its header"));
            continue;
        }
        assert_int_equal(rc, 0);
        assert_true(r.cut && !r.ended && r.n_events == (n - head) / 56);
        for (size_t i = 0; i < r.n_events; i++)
            assert_true(r.event[i].kind == whole.event[i].kind &&
                        r.event[i].now_ns == whole.event[i].now_ns &&
                        r.event[i].worker == whole.event[i].worker &&
                        r.event[i].task == whole.event[i].task &&
                        r.began_ns[i] == whole.began_ns[i]);
        if ((n - head) % 56 == 17 || n == head) {
            char said[80];
            pl_run *run = replay(plain(), file);
            snprintf(said, sizeof said, "cut short after %zu events: replayed up to there",
                     r.n_events);
            assert_string_equal(pl_run_text(run, "replay"), said);
            assert_true(pl_run_number(run, "replay.same") == 1);
            assert_true(pl_run_number(run, "replay.events") == (double)r.n_events);
        }
        pl_recording_free(&r);
    }
    pl_recording_free(&whole);
    free(b.at);
}

static void check_hostile(const char *word, uint32_t workers, uint32_t steps,
                          const struct line *line, size_t n) {
    struct pl_recording r;
    struct pl_why why;
    const char *file = encoded("hostile.rec", "workers=2\n", workers, steps, line, n);
    assert_int_equal(pl_recording_read(file, &r, &why), PL_EDATA);
    if (!strstr(why.text, word)) fail_msg("\"%s\" lacks '%s'", why.text, word);
    assert_null(r.memory);
}

/* Checksums are right in all of these. */
TEST(deceit_is_refused) {
    const struct line join = {.kind = 1, .now = 5};
    struct pl_recording r;
    struct pl_why why;
    check_hostile("its header is invalid", 0, 1, &join, 1);
    check_hostile("its header is invalid", PL_MAX_WORKERS + 1, 1, &join, 1);
    check_hostile("its header is invalid", UINT32_MAX, 1, &join, 1);
    check_hostile("its header is invalid", 2, 0, &join, 1);
    struct line l[3] = {join, join, join};
    l[1].worker = 2;
    check_hostile("damaged at event 2: its worker", 2, 1, l, 3);
    l[1].worker = UINT32_MAX;
    check_hostile("damaged at event 2: its worker", 2, 1, l, 3);
    l[1] = join;
    l[2].now = 4;
    check_hostile("damaged at event 3: its time", 2, 1, l, 3);
    l[2].now = UINT64_MAX;
    check_hostile("damaged at event 3: its time", 2, 1, l, 3);
    l[2] = (struct line){.kind = 0, .now = 6};
    check_hostile("damaged at event 3: unknown kind", 2, 1, l, 3);
    l[2].kind = 9;
    check_hostile("damaged at event 3: unknown kind", 2, 1, l, 3);
    l[2] = (struct line){.kind = 2, .now = 6, .task = 1, .began = 7};
    check_hostile("damaged at event 3: its task arrived before", 2, 1, l, 3);
    l[1] = (struct line){.kind = 5, .now = 6};
    check_hostile("damaged at event 2: data follow the end", 2, 1, l, 3);
    /* lengths that no file has */
    struct bytes b = encode("workers=2\n", 2, 1, &join, 1);
    for (int i = 0; i < 4; i++) {
        memset(b.at + 20, 0, 4);
        b.at[20 + i] = 0xff;
        spill(path("hostile.rec"), b.at, b.n);
        assert_int_equal(pl_recording_read(path("hostile.rec"), &r, &why), PL_EDATA);
    }
    free(b.at);
    spill(path("hostile.rec"), (const uint8_t *)"1.5\n", 4);
    assert_int_equal(pl_recording_read(path("hostile.rec"), &r, &why), PL_EDATA);
    assert_non_null(strstr(why.text, "is not a recording"));
    assert_false(pl_recording_is(path("hostile.rec")));
    assert_true(pl_recording_is(path("small.rec")));
    assert_int_equal(pl_recording_read(path("nosuch"), &r, &why), PL_EIO);
    assert_int_equal(pl_recording_read(".", &r, &why), PL_EIO);
    assert_false(pl_recording_is(path("nosuch")));
}

/* ---- the delay law ---- */

#define S UINT64_C(1000000000)

/* Worker 1 took 1, 4 and 2 s and had a task rejected; worker 2 finished none; worker 3 took 6. */
static const char *measured(uint32_t steps) {
    static const struct line l[] = {
        {.kind = 1, .worker = 0},
        {.kind = 1, .worker = 1},
        {.kind = 1, .worker = 2},
        {.kind = 2, .worker = 0, .now = 1 * S, .task = 1, .began = 0},
        {.kind = 2, .worker = 0, .now = 5 * S, .task = 2, .began = 1 * S},
        {.kind = 3, .worker = 0, .now = 6 * S, .task = 3, .began = 5 * S},
        {.kind = 2, .worker = 2, .now = 7 * S, .task = 2, .began = 1 * S},
        {.kind = 2, .worker = 0, .now = 8 * S, .task = 4, .began = 6 * S},
        {.kind = 4, .worker = 1, .now = 9 * S},
    };
    return encoded("measured.rec", "workers=3\n", 3, steps, l, sizeof l / sizeof *l);
}

static struct pl_delay *law(const char *format, const char *file, int n_workers) {
    char spec[PL_SPEC_MAX];
    snprintf(spec, sizeof spec, format, file);
    return open_delay(spec, n_workers);
}

TEST(recorded_delays_in_order) {
    static const double first[] = {1, 4, 2, 1, 4, 2, 1};
    struct pl_delay *d = law("recording:%s", measured(1), 5);
    for (uint32_t w = 0; w < 5; w++)
        for (uint64_t task = 1; task <= 7; task++)
            assert_true(pl_delay_draw(d, 3, w, task, 1) == (w % 3 ? 6 : first[task - 1]));
    assert_true(pl_delay_draw(d, 3, 0, 2, 5) == 20);
    assert_true(fabs(pl_delay_mean(d, 0) - 7.0 / 3) < 1e-12 && pl_delay_mean(d, 4) == 6);
    assert_true(pl_delay_cdf(d, 3, 2.5) == 2.0 / 3 && pl_delay_tail(d, 0, 1) == 2.0 / 3);
    assert_true(pl_delay_quantile(d, 0, 0.5) == 2 && pl_delay_quantile(d, 1, 0.5) == 6);
    assert_false(pl_delay_alike(d));
    struct pl_delay_look look;
    pl_delay_look(d, 0, &look);
    assert_true(look.kind == PL_DELAY_TRACE && look.n_sample == 3);
    assert_true(look.sample[0] == 1 && look.sample[1] == 2 && look.sample[2] == 4);
    /* a task of two mini-batches: half for each */
    d = law("recording:file=%s,order=sequence", measured(2), 3);
    assert_true(pl_delay_draw(d, 3, 0, 2, 2) == 4 && pl_delay_draw(d, 3, 0, 2, 1) == 2);
    assert_true(pl_delay_mean(d, 1) == 3);
    d = law("hetero:power=1,recording:%s", measured(1), 3);
    assert_true(pl_delay_draw(d, 3, 2, 1, 1) == 18);
}

/* The tasks of one worker that came back: all others were cancelled. */
static int open_with_tasks(const uint64_t *task, size_t n, struct pl_why *why) {
    struct line l[8] = {{.kind = 1}};
    struct pl_delay *d;
    char spec[PL_SPEC_MAX];
    for (size_t i = 0; i < n; i++)
        l[i + 1] = (struct line){.kind = i == 0 ? 3 : 2,
                                 .now = task[i] * S,
                                 .task = task[i],
                                 .began = (task[i] - 1) * S};
    snprintf(spec, sizeof spec, "recording:%s", encoded("tasks.rec", "", 1, 1, l, n + 1));
    int rc = pl_delay_open(spec, 1, 1, &d, why);
    if (!rc) pl_delay_free(d);
    return rc;
}

TEST(delays_of_cancelled_tasks_are_unknown) {
    struct pl_why why;
    assert_int_equal(open_with_tasks((const uint64_t[]){1, 2, 6}, 3, &why), 0);
    assert_int_equal(open_with_tasks((const uint64_t[]){1, 2, 7}, 3, &why), PL_EDATA);
    assert_non_null(strstr(why.text, "no times for 57 % of its tasks"));
}

TEST(recorded_delays_at_random) {
    int n[5] = {0};
    struct pl_delay *d = law("recording:%s,order=random", measured(1), 3);
    for (uint64_t task = 1; task <= 3000; task++) {
        double x = pl_delay_draw(d, 3, 0, task, 1);
        assert_true(x == 1 || x == 2 || x == 4);
        assert_true(x == pl_delay_draw(d, 3, 0, task, 1));
        assert_true(pl_delay_draw(d, 3, 0, task, 3) == 3 * x);
        n[(int)x]++;
    }
    assert_true(n[1] > 850 && n[2] > 850 && n[4] > 850);
    struct pl_why why;
    const struct line join = {.kind = 1};
    char spec[PL_SPEC_MAX];
    snprintf(spec, sizeof spec, "recording:%s", encoded("none.rec", "", 1, 1, &join, 1));
    assert_int_equal(pl_delay_open(spec, 1, 1, &d, &why), PL_EDATA);
    assert_non_null(strstr(why.text, "has no finished task"));
    assert_int_equal(pl_delay_open("recording", 1, 1, &d, &why), PL_EUSAGE);
    assert_int_equal(pl_delay_open("recording:nosuch", 1, 1, &d, &why), PL_EIO);
}

struct planned {
    int n_rows, k;
};

static void count_row(void *ctx, const struct pl_plan_row *row) {
    struct planned *p = ctx;
    p->n_rows++;
    if (row->k > p->k) p->k = row->k;
}

TEST(plans_take_recordings) {
    struct planned p = {0};
    pl_setup *s = plain();
    set(s, "trace", measured(1));
    assert_int_equal(pl_plan(s, count_row, &p), 0);
    assert_int_equal(p.k, 3); /* as many workers as were recorded */
    set(s, "workers", "5");
    assert_int_equal(pl_plan(s, count_row, &p), 0);
    assert_int_equal(p.k, 5);
    const char *text = fresh("seconds");
    spill(text, (const uint8_t *)"1\n2\n", 4);
    s = plain();
    set(s, "trace", text);
    assert_int_equal(pl_plan(s, count_row, &p), 0);
    set(s, "trace", text); /* beside the delay that replaced the first one */
    assert_int_equal(pl_plan(s, count_row, &p), PL_EUSAGE);
}

static int teardown(void **state) {
    static const char *const names[] = {"a.rec",    "small.rec",   "kept",       "long",
                                        "line",     "cut.rec",     "seconds",    "measured.rec",
                                        "none.rec", "flipped.rec", "hostile.rec", "tasks.rec"};
    return recorded_end(names, sizeof names / sizeof *names);
}

ALL_TESTS_BETWEEN(recorded_begin, teardown)
