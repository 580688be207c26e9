/* A simulation in a program's own loop: vectors that the library never reads, and the kernel that
 * it hands out, give the weights and the event log of pl_simulate. */
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "paceline_loop.h"
#include "setups.h"

/* The kernel of these two rules, from the text in the library. */
#define PL_STEP momentum_step
#define PL_APPLY gap_apply
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include KERNEL
#pragma GCC diagnostic pop

/* What the rest of the rule files calls, and this kernel does not. */
double pl_vec_dot(const pl_real *a, const pl_real *b, size_t n);
double pl_vec_distance2(const pl_real *a, const pl_real *b, size_t n);

#define DIM 37
#define ROWS 50
#define OPTIONS                                                                                    \
    "policy=kasync:k=2 workers=5 optim=momentum correct=gap updates=60 batch=4 lr=0.05 "           \
    "average=tail weight-decay=0.01 net=latency=0.1 eval-samples=50 seed=3"

static pl_setup *loop_setup(const char *options, const char *events) {
    pl_setup *s = setup_of("%s", options);
    uint16_t label[ROWS];
    for (int i = 0; i < ROWS; i++) label[i] = (uint16_t)(i % 3);
    set(s, "events", events);
    assert_int_equal(pl_setup_rows(s, ROWS, 10, label), 0);
    return s;
}

/* Half the squared distance to a point that depends on the sample. */
static double target(uint32_t row, size_t i) {
    return sin((double)row + 0.3 * (double)i);
}

static void gradient_of(const float *w, const uint32_t *row, uint32_t n, float *g, double *loss) {
    *loss = 0;
    memset(g, 0, DIM * sizeof *g);
    for (uint32_t r = 0; r < n; r++)
        for (size_t i = 0; i < DIM; i++) {
            double d = w[i] - target(row[r], i);
            *loss += d * d / 2 / n;
            g[i] += (float)(d / n);
        }
}

static void score_of(const float *w, const uint32_t *row, uint32_t n, double *loss) {
    float g[DIM];
    double mean;
    for (uint32_t r = 0; r < n; r++) {
        gradient_of(w, row + r, 1, g, &mean);
        *loss += mean;
    }
}

static int my_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                       double *loss) {
    assert_true(s->dim == 0 && s->row != NULL && !s->test);
    gradient_of(w, s->row, s->n, g, loss);
    return 0;
}

static void my_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                     uint32_t *n_right) {
    for (uint32_t i = 0; i < s->n; i++) assert_true(s->row[i] < (s->test ? 10u : ROWS));
    score_of(w, s->row, s->n, loss);
    *n_right = 0;
}

static void my_init(void *ctx, uint64_t seed, float *w) {
    for (size_t i = 0; i < DIM; i++) w[i] = (float)i * 0.1f;
}

/* Everything that a program does. Vectors are on the heap, so a sanitizer sees a wrong address. */
static pl_run *drive(pl_setup *s, float *weights) {
    static float *given[4096];
    int n_given = 0;
    pl_loop *loop;
    struct pl_loop_step step;
    pl_run *run;
    if (pl_loop_open(s, DIM, &loop)) fail_msg("%s", pl_setup_why(s));
    assert_non_null(strstr(pl_loop_kernel(loop), "#define PL_STEP momentum_step\n"));
    assert_non_null(strstr(pl_loop_kernel(loop), "#define PL_APPLY gap_apply\n"));
    do {
        double loss = 0, test_loss = 0;
        uint32_t rows[ROWS];
        if (pl_loop_next(loop, &step)) fail_msg("%s", pl_setup_why(s));
        switch (step.what) {
        case PL_LOOP_MEMORY:
            for (uint32_t i = 0; i < step.n; i++) {
                given[n_given] = calloc(DIM, sizeof(float));
                assert_int_equal(pl_loop_give(loop, given[n_given++]), 0);
            }
            break;
        case PL_LOOP_LOAD:
            my_init(NULL, 0, step.w);
            if (step.out) my_init(NULL, 0, step.out);
            break;
        case PL_LOOP_GRADIENT:
            gradient_of(step.w, step.row, step.n, step.out, &loss);
            assert_int_equal(pl_loop_gradient(loop, loss, 1), 0);
            break;
        case PL_LOOP_COMMIT:
            assert_int_equal(step.argument_size, sizeof(struct pl_offload));
            pl_kernel(step.argument);
            break;
        case PL_LOOP_SCORE:
            for (uint32_t i = 0; i < ROWS; i++) rows[i] = i;
            score_of(step.w, rows, ROWS, &loss);
            score_of(step.w, rows, 10, &test_loss);
            assert_int_equal(pl_loop_score(loop, loss / ROWS, test_loss / 10, 0), 0);
            break;
        default: memcpy(weights, step.w, DIM * sizeof *weights);
        }
    } while (step.what != PL_LOOP_END);
    assert_int_equal(pl_loop_run(loop, &run), 0);
    pl_loop_close(loop);
    for (int i = 0; i < n_given; i++) free(given[i]);
    assert_true(n_given < 40); /* vectors that are not needed any more are used again */
    return own_run(run);
}

static char *text_of(const char *path) {
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 500);
    fclose(f);
    unlink(path);
    return text;
}

TEST(loops_are_simulations) {
    char events[2][40] = {"loop-a.XXXXXX", "loop-b.XXXXXX"};
    float weights[DIM];
    pl_run *a, *b;
    size_t n;
    for (int i = 0; i < 2; i++) {
        close(mkstemp(events[i]));
        unlink(events[i]);
    }
    pl_setup *s = loop_setup(OPTIONS, events[0]);
    struct pl_function f = {.dim = DIM,
                            .wants_data = 1,
                            .classifies = 1,
                            .init = my_init,
                            .gradient = my_gradient,
                            .score = my_score};
    assert_int_equal(pl_setup_function(s, &f), 0);
    a = simulate(s);

    s = loop_setup(OPTIONS, events[1]);
    b = drive(s, weights);
    char *log[2] = {text_of(events[0]), text_of(events[1])};
    assert_string_equal(log[0], log[1]);
    assert_string_equal(pl_run_json(a), pl_run_json(b));
    assert_memory_equal(pl_run_weights(a, &n), weights, sizeof weights);
    assert_null(pl_run_weights(b, &n));
    assert_true(pl_run_number(a, "epochs") == 60.0 * 2 * 4 / ROWS);
    free(log[0]);
    free(log[1]);
}

/* A file that cannot be written does not cost the results. */
TEST(results_outlive_files) {
    char events[] = "loop-c.XXXXXX";
    float weights[DIM];
    struct rlimit size, short_files;
    close(mkstemp(events));
    unlink(events);
    pl_setup *s = loop_setup(OPTIONS, events);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &size), 0);
    short_files = (struct rlimit){500, size.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &short_files), 0);
    signal(SIGXFSZ, SIG_IGN);
    pl_run *run = drive(s, weights);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &size), 0);
    unlink(events);
    assert_true(pl_run_number(run, "updates") == 60);
    const char *trouble = pl_run_text(run, "trouble");
    if (!trouble || !strstr(trouble, events)) fail_msg("%s", trouble ? trouble : "no trouble");
}

/* What needs to see vectors is refused, by name. */
TEST(a_loop_that_cannot_begin_leaves_no_file) {
    char events[] = "loop-d.XXXXXX";
    pl_loop *loop = NULL;
    close(mkstemp(events));
    unlink(events);
    pl_setup *s = loop_setup("policy=ksync:k=4 workers=5 updates=3", events);
    set(s, "dashboard", "192.0.2.1:1"); /* no address of a machine */
    assert_int_equal(pl_loop_open(s, DIM, &loop), PL_EIO);
    assert_int_equal(access(events, F_OK), -1);
}

TEST(rules_that_look_are_refused) {
    static const char *const options[][2] = {
        {"reduce", "median"},       {"reduce", "krum"},   {"correct", "clip"},  {"local", "steps"},
        {"attack", "signflip:f=1"}, {"filter", "kardam"}, {"tuner", "fastestk"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        pl_setup *s = loop_setup("policy=ksync:k=4 workers=5 updates=3", "");
        pl_loop *loop = NULL;
        struct pl_loop_step step;
        char word[600];
        set(s, options[i][0], options[i][1]);
        int rc = pl_loop_open(s, DIM, &loop);
        static float room[8][DIM];
        for (int n = 0; !rc && !(rc = pl_loop_next(loop, &step)); n++) {
            assert_int_equal(step.what, PL_LOOP_MEMORY);
            for (uint32_t k = 0; k < step.n; k++) pl_loop_give(loop, room[k % 8]);
        }
        assert_int_equal(rc, PL_EUSAGE);
        snprintf(word, sizeof word, "%s", pl_setup_why(s));
        pl_loop_close(loop);
        if (!strstr(word, options[i][0]) || !strstr(word, "this process"))
            fail_msg("%s=%s: %s", options[i][0], options[i][1], word);
    }
}

TEST(bad_rows_are_refused) {
    pl_setup *s = plain();
    assert_int_equal(pl_setup_rows(s, 0, 3, NULL), PL_EUSAGE);
    assert_non_null(strstr(pl_setup_why(s), "at least one"));
    assert_int_equal(pl_setup_rows(s, 5, 0, NULL), 0);
    assert_int_equal(pl_setup_set(s, "model", "mlp"), 0);
    assert_int_not_equal(pl_setup_check(s), 0); /* a model of the library has nothing to read */
}
