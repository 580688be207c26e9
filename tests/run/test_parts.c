/* Runs on parts of the model. What came of a real run, with workers that are killed, stopped or
 * slow, is what its blocks come to when they are swept one after the other, in the order in which
 * the event log says they were applied: bit for bit.
 *
 * That no two workers share a row or a column is checked by control in every run, by the suite of
 * test_policy.c at random, and here once more, in every log that is read. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "blocks.h"
#include "core/recipe.h"
#include "learn/part.h"
#include "model/mf.h"
#include "suite_train.h"
#include "sys/fpu.h"

#define MATRIX "model=" BLOCKS_MODEL " data=" BLOCKS_DATA
#define N_WORKERS 8
#define N_VERSIONS 20000

/* --- a log, read and done again one block after the other -------------------------------- */

struct worker {
    enum { GONE, IDLE, BUSY } state;
    int row, col;
    unsigned long long task, base;
};

/* Where the log is, and what the model is there. */
struct serial {
    const struct pl_job *job;
    int side;
    struct worker worker[N_WORKERS];
    unsigned long long version;
    double lr[N_VERSIONS + 1]; /* of the versions, */
    double pace, sum, samples, last, epoch;
    float *w;
    uint64_t *used; /* [side][side] */
    int n_lost, n_rejected, n_deferred;
};

static void serial_open(struct serial *s, const struct pl_job *job, const float *from) {
    *s = (struct serial){.job = job, .side = pl_grid_side(job->grid), .pace = 1};
    size_t side = (size_t)s->side;
    s->w = malloc(job->model->dim * sizeof *s->w);
    s->used = calloc(side * side, sizeof *s->used);
    assert_true(s->w && s->used);
    if (from)
        memcpy(s->w, from, job->model->dim * sizeof *s->w);
    else
        job->model->kind->init(job->model, job->seed, s->w);
    s->epoch = job->data->n_train;
    s->lr[0] = job->rate.lr;
}

static void serial_close(struct serial *s) {
    free(s->w);
    free(s->used);
}

/* The bold driver once more: up by 5 % where the mean of an epoch fell, else half. */
static void serial_bold(struct serial *s, uint32_t samples, double loss) {
    s->sum += loss * samples;
    s->samples += samples;
    if (s->samples < s->epoch) return;
    double mean = s->sum / s->samples;
    if (s->last > 0) s->pace *= mean < s->last ? 1.05 : 0.5;
    s->last = mean;
    s->sum = s->samples = 0;
}

/* Sweeps the block that the worker brought, in place. */
static void serial_apply(struct serial *s, const struct worker *w) {
    const struct pl_job *job = s->job;
    char local[PL_SPEC_MAX];
    pl_spec_print(job->local.entry, job->local.conf, local, sizeof local);
    bool adaptive = strcmp(local, "sweep:adaptive=yes") == 0;
    size_t from[2], n[2];
    double loss;
    pl_mf_ranges(job->model, s->side, w->row, w->col, from, n);
    bool first = w->base < (unsigned long long)s->side * (unsigned long long)s->side;
    assert_int_equal(pl_mf_sweep(job->model, job->grid, w->row, w->col,
                                 adaptive ? PL_MF_ADAPTIVE : PL_MF_PLAIN, s->lr[w->base], first,
                                 s->w + from[0], s->w + from[1], &loss, NULL),
                     0);
    if (strcmp(job->rate.schedule.link[0].entry->name, "bold") == 0)
        serial_bold(s, (uint32_t)pl_grid_size(job->grid, w->row, w->col), loss);
    s->used[w->row * s->side + w->col]++;
    s->version++;
    assert_true(s->version <= N_VERSIONS);
    s->lr[s->version] = job->rate.lr * s->pace;
}

/* No free block was used less than this one; a block that is done again is what it was. */
static void serial_least(const struct serial *s, int row, int col, bool again) {
    for (int i = 0; !again && i < s->side * s->side; i++) {
        bool taken = false;
        for (int k = 0; k < N_WORKERS; k++)
            taken = taken || (s->worker[k].state == BUSY &&
                              (s->worker[k].row == i / s->side || s->worker[k].col == i % s->side));
        if (!taken && s->used[i] < s->used[row * s->side + col])
            fail_msg("block %d,%d at w%llu, and %d,%d was used less", row + 1, col + 1, s->version,
                     i / s->side + 1, i % s->side + 1);
    }
}

static void serial_start(struct serial *s, const char *at, bool again) {
    int i, row, col;
    unsigned long long base;
    if (sscanf(at, "start W%d@w%llu block %d,%d", &i, &base, &row, &col) != 4)
        fail_msg("not a start on a block: %s", at);
    struct worker *w = &s->worker[i - 1];
    assert_int_equal(w->state, IDLE);
    assert_true(base == s->version && row >= 1 && row <= s->side && col >= 1 && col <= s->side);
    for (int k = 0; k < N_WORKERS; k++)
        if (s->worker[k].state == BUSY &&
            (s->worker[k].row == row - 1 || s->worker[k].col == col - 1))
            fail_msg("W%d and W%d share a row or a column at w%llu", i, k + 1, base);
    if (strcmp(s->job->policy.entry->name, "blocks") == 0) serial_least(s, row - 1, col - 1, again);
    *w = (struct worker){BUSY, row - 1, col - 1, w->task + 1, base};
}

static void serial_line(struct serial *s, char *line) {
    char what[16];
    int i, used = 0;
    unsigned long long task = 0;
    if (sscanf(line, "%*f %15s W%d%n", what, &i, &used) != 2 || i < 1 || i > N_WORKERS)
        fail_msg("not a line of a log: %s", line);
    struct worker *w = &s->worker[i - 1];
    bool arrive = strcmp(what, "arrive") == 0, reject = strcmp(what, "reject") == 0;
    if (arrive || reject) {
        assert_int_equal(sscanf(line + used, "#%llu", &task), 1);
        assert_true(w->state == BUSY && (w->task == task || s->version == 0 || w->task < task));
        w->state = IDLE;
        if (reject) s->n_rejected++;
    } else if (strcmp(what, "leave") == 0) {
        if (w->state == BUSY) s->n_lost++;
        w->state = GONE;
    } else {
        w->state = IDLE;
    }
    char *at = strstr(line, ": ");
    for (char *next; at; at = next) {
        at += 2;
        next = strstr(at, ", ");
        if (strncmp(at, "commit", 6) == 0)
            serial_apply(s, w);
        else if (strncmp(at, "start", 5) == 0)
            serial_start(s, at, reject);
        else if (strncmp(at, "take", 4) != 0)
            fail_msg("'%s' in a log of blocks", at);
    }
    for (int k = 0; k < N_WORKERS; k++) s->n_deferred += s->worker[k].state == IDLE;
}

static void serial_read(struct serial *s, const char *path) {
    char line[1000];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    uint64_t fpu = pl_fpu_flush();
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        serial_line(s, line);
    }
    pl_fpu_restore(fpu);
    fclose(f);
}

/* What the run came to is what the log says; and the replay of its recording is the same. */
static void check_serial(pl_setup *setup, const pl_run *run, const char *log, const char *tape,
                         const float *from, struct serial *s) {
    struct pl_built built;
    size_t n;
    if (pl_build(setup, PL_HOST_REAL, &built)) fail_msg("%s", pl_setup_why(setup));
    serial_open(s, &built.job, from);
    serial_read(s, log);
    assert_true((double)s->version == number(run, "updates"));
    const float *w = pl_run_weights(run, &n);
    assert_int_equal(n, built.job.model->dim);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&w[i], &s->w[i], sizeof *w) != 0)
            fail_msg("element %zu is %.9g, and %.9g where blocks come one after the other", i,
                     (double)w[i], (double)s->w[i]);
    check_same_replay(run, plain(), tape);
    s->job = NULL;
    pl_built_free(&built);
}

struct pids {
    atomic_int pid[N_WORKERS];
    int n_done, at; /* faults so far; updates at which the first comes */
};

static void note_pid(void *ctx, int worker, int pid) {
    struct pids *p = ctx;
    atomic_store(&p->pid[worker], pid);
}

/* Trains, watched where there is somebody to watch, and compares. */
static void check_run(const char *options, int (*tick)(void *ctx, const struct pl_point *p),
                      struct pids *pids, struct serial *s) {
    int before = look_around();
    const char *log = folder_path("log"), *tape = folder_path("tape");
    unlink(log);
    unlink(tape);
    pl_setup *setup = make(MATRIX " %s", options);
    pl_setup_set(setup, "events", log);
    pl_setup_set(setup, "record", tape);
    if (tick) {
        setup->made = note_pid;
        setup->made_ctx = pids;
        pl_setup_watch(setup, NULL, tick, pids);
    }
    pl_run *run = train(setup);
    check_books(run);
    check_serial(setup, run, log, tape, NULL, s);
    check_left(before);
}

/* --- serial equivalence ------------------------------------------------------------------ */

TEST(test_as_if_one_after_the_other) {
    static const char *const schedules[] = {
        "method=fdsgd lr=0.03",
        "method=dsgd lr=0.03",
        "method=fpsgd lr=0.1",
        "policy=strata:grid=7,order=random local=sweep:adaptive=yes lr=0.1",
        "policy=blocks:grid=9 lr-schedule=bold lr=0.2", /* so fast that it is halved at times */
    };
    for (size_t i = 0; i < n_spawns(); i++)
        for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++) {
            char options[300];
            struct serial s;
            snprintf(options, sizeof options, "%s %s updates=%d %s", schedules[k], spawns[i],
                     sanitized ? 150 : 600, k % 2 ? "delay=exp:mean=0.0005" : "eval-every=0.01");
            check_run(options, NULL, NULL, &s);
            serial_close(&s);
        }
}

/* --- faults ------------------------------------------------------------------------------ */

static int strike(struct pids *p, int worker, int what) {
    int pid = atomic_load(&p->pid[worker]);
    p->n_done++;
    return pid > 0 ? kill(pid, what) : -1;
}

/* The one that is killed is what others wait for at a barrier, so it is in the middle of a block.
 */
#define SLOW_THIRD "const:t=0.01|const:t=0.01|const:t=0.05|const:t=0.01"

static int kill_one(void *ctx, const struct pl_point *p) {
    struct pids *pids = ctx;
    if (pids->n_done == 0 && p->updates > 20) strike(pids, 2, SIGKILL);
    return 0;
}

TEST(test_killed_in_a_block) {
    static const char *const options[] = {
        "method=fdsgd lr=0.03 updates=200 delay=const:t=0.02",
        "method=dsgd lr=0.03 updates=80 delay=" SLOW_THIRD,
        "method=dsgd lr=0.03 updates=80 respawn=yes delay=" SLOW_THIRD,
        "method=fpsgd lr=0.1 updates=1500 respawn=yes delay=const:t=0.1",
    };
    skip_processes();
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        uint64_t n_lost = 0;
        /* a kill may hit a worker that has just sent its block */
        for (int tries = 0; tries < 5 && n_lost == 0; tries++) {
            struct pids pids = {.n_done = 0};
            struct serial s;
            check_run(options[i], kill_one, &pids, &s);
            assert_int_equal(pids.n_done, 1);
            n_lost = (uint64_t)s.n_lost;
            serial_close(&s);
        }
        assert_int_equal(n_lost, 1); /* and swept by another, or the weights would differ */
    }
}

/* Stopped for a while: where nobody waits, the others go on; where all wait, it is what they wait
 * for, and the run goes on with it. */
static int stop_one(void *ctx, const struct pl_point *p) {
    struct pids *pids = ctx;
    if (pids->n_done == 0 && p->updates > 20) {
        strike(pids, 1, SIGSTOP);
        pids->at = (int)p->updates;
    } else if (pids->n_done > 0 && pids->n_done < 5) {
        pids->n_done++; /* ticks of a tenth of a second */
    } else if (pids->n_done == 5) {
        strike(pids, 1, SIGCONT);
        pids->at = (int)p->updates - pids->at;
    }
    return 0;
}

TEST(test_stopped_in_a_block) {
    skip_processes();
    struct pids pids = {.n_done = 0};
    struct serial s;
    check_run("method=fdsgd lr=0.03 updates=400 delay=const:t=0.01", stop_one, &pids, &s);
    assert_true(pids.n_done == 6 && pids.at > 20);
    assert_true(s.n_lost == 0 && s.n_deferred == 0);
    serial_close(&s);
    pids = (struct pids){.n_done = 0};
    check_run("method=dsgd lr=0.03 updates=100 delay=const:t=0.01", stop_one, &pids, &s);
    /* it may have sent its block of one stratum, and lack in the next */
    assert_true(pids.n_done == 6 && pids.at < 2 * N_WORKERS && s.n_lost == 0);
    serial_close(&s);
}

/* --- going on from a checkpoint ---------------------------------------------------------- */

/* A first and a second run; blocks that were used in the first count in the second: the least used
 * one is next, counting from the first on. */
static void check_resumed(const char *method) {
    const char *log = folder_path("log"), *tape = folder_path("tape");
    char dir[300];
    struct serial a, b;
    snprintf(dir, sizeof dir, "%s", folder_path(method));
    unlink(log);
    unlink(tape);
    pl_setup *s = make(MATRIX " method=%s lr=0.03 updates=37 checkpoint=%s", method, dir);
    pl_setup_set(s, "events", log);
    pl_setup_set(s, "record", tape);
    pl_run *run = train(s);
    check_serial(s, run, log, tape, NULL, &a);
    unlink(log);
    unlink(tape);
    set_all(s, "updates=90 resume=auto");
    run = train(s);
    check_books(run);
    /* the log goes on at update 37 */
    struct pl_built built;
    assert_int_equal(pl_build(s, PL_HOST_REAL, &built), 0);
    serial_open(&b, &built.job, a.w);
    b.version = a.version;
    memcpy(b.lr, a.lr, sizeof b.lr);
    b.pace = a.pace;
    b.sum = a.sum;
    b.samples = a.samples;
    b.last = a.last;
    memcpy(b.used, a.used, (size_t)a.side * (size_t)a.side * sizeof *a.used);
    serial_read(&b, log);
    size_t n;
    const float *w = pl_run_weights(run, &n);
    assert_memory_equal(w, b.w, n * sizeof *w);
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < b.side * b.side; i++) {
        least = b.used[i] < least ? b.used[i] : least;
        most = b.used[i] > most ? b.used[i] : most;
    }
    assert_true(strcmp(method, "dsgd") != 0 || most - least <= 1);
    pl_built_free(&built);
    serial_close(&a);
    serial_close(&b);
}

TEST(test_resumed) {
    check_resumed("dsgd");
    check_resumed("fdsgd");
}

/* --- time ------------------------------------------------------------------- */

static pl_run *simulate_matrix(const char *options) {
    return simulate(make(MATRIX " %s", options));
}

static double time_of(const char *options) {
    pl_run *run = simulate_matrix(options);
    double time = number(run, "time");
    return time;
}

/* A law is for a block of a grid with a row per worker: all blocks of a worker that is alone take
 * as long as all ratings, however they are cut and however uneven the blocks are. */
TEST(test_time_is_by_ratings) {
    assert_true(fabs(time_of("workers=1 policy=strata delay=const:t=3 updates=1") - 3) < 1e-7);
    assert_true(fabs(time_of("workers=1 policy=blocks delay=const:t=3 updates=4") - 3) < 1e-7);
    assert_true(
        fabs(time_of("workers=1 policy=blocks:grid=6 delay=const:t=3 updates=36 data=" BLOCKS_DATA
                     ",shuffle=no,skew=1") -
             3) < 1e-6);
    /* what is sent is what is worked on: 7680 bytes there and back, or in quarters twice half */
    const char *net = "workers=1 delay=const:t=0 net=bandwidth=7680";
    char options[200];
    double bytes = 4.0 * (8 + 4) * (90 + 70) / 7680;
    snprintf(options, sizeof options, "%s policy=strata updates=1", net);
    assert_true(fabs(time_of(options) - 2 * bytes) < 1e-7);
    snprintf(options, sizeof options, "%s policy=blocks updates=4", net);
    assert_true(fabs(time_of(options) - 4 * bytes) < 1e-7);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
