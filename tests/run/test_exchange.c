/* The state of the optimizer, saved and loaded by a client: src/run/exchange.c. A request is
 * carried out before the client's next result, so what it did is there after the next task. */
#include <sys/stat.h>

#include "client.h"
#include "run/exchange.h"

struct file {
    uint64_t dim, version, tensors, weights, vectors, reference;
    uint64_t steps[2];
    float real[2 * DIM];
};

static FILE *named(const char *name, const char *mode) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder_path("exchange"), name);
    return fopen(path, mode);
}

static void offer(const struct file *f, size_t bytes) {
    FILE *to = named("load", "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(f, 1, bytes, to), bytes);
    assert_int_equal(fclose(to), 0);
}

/* One task: its weights, perhaps a request, and a gradient that is g everywhere. */
static void task(pl_client *c, float g, float *w, int (*request)(pl_client *)) {
    struct pl_client_task t;
    assert_int_equal(pl_client_pull(c, 120, &t), PL_OK);
    memcpy(w, t.w, DIM * sizeof *w);
    if (request) assert_int_equal(request(c), PL_OK);
    for (int i = 0; i < DIM; i++) t.out[i] = g;
    assert_int_equal(pl_client_push(c, DIM, 1, 0), PL_OK);
}

/* Whether a request to load is refused so; the file is removed, unless it is of somebody else. */
static bool refused(pl_client *c, const char *sentence, bool stays) {
    char text[300] = "";
    float w[DIM];
    task(c, 0, w, pl_client_load);
    task(c, 0, w, NULL);
    FILE *f = named("refused", "r"), *left = named("load", "r");
    if (left) fclose(left);
    if (!f) return false;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return strstr(text, sentence) && stays == (left != NULL);
}

static struct server begin(const char *method, const char *optim) {
    char options[300];
    mkdir(folder_path("exchange"), 0700);
    snprintf(options, sizeof options,
             "model=external workers=1 method=%s lr=1 optim=%s exchange=%s updates=100", method,
             optim, folder_path("exchange"));
    return serve_with(options, true);
}

static void end(const struct server *s, pl_client *c) {
    assert_int_equal(pl_client_end(c), PL_OK);
    pl_client_close(c);
    struct served r = served(s);
    if (!r.ok) fail_msg("%s", r.text);
}

TEST(what_was_saved_and_what_is_loaded) {
    struct server s = begin("sync", "momentum:beta=0.5");
    pl_client *c = join(&s, (struct pl_client_conf){0});
    struct file f = {.dim = 0};
    float w[DIM];
    task(c, 1, w, NULL);
    task(c, 1, w, NULL); /* v = 1.5 */
    assert_true(w[0] == -1);
    task(c, 0, w, pl_client_save);
    task(c, 0, w, NULL);
    FILE *from = named("saved", "rb");
    assert_non_null(from);
    size_t got = fread(&f, 1, sizeof f, from);
    fclose(from);
    assert_int_equal(got, sizeof f - DIM * sizeof(float));
    assert_int_equal(f.dim, DIM);
    assert_int_equal(f.version, 2);
    assert_int_equal(f.steps[1], 2);
    assert_true(f.weights == 0 && f.vectors == 1 && f.real[4] == 1.5f);

    f.weights = 1;
    for (int i = 0; i < DIM; i++) f.real[i] = 7, f.real[DIM + i] = 2;
    offer(&f, sizeof f);
    task(c, 0, w, pl_client_load);
    task(c, 0, w, NULL);
    assert_true(w[0] == 6 && w[4] == 6); /* 7 - 0.5 * 2 */
    assert_null(named("load", "r"));
    end(&s, c);
}

/* A tensor that has taken 1000 steps of Adam is not corrected as if it had taken one. */
TEST(steps_are_those_of_each_tensor) {
    struct server s = begin("sync", "adam:beta1=0.5,beta2=0.5,eps=0");
    pl_client *c = join(&s, (struct pl_client_conf){0});
    struct file f = {.dim = DIM, .tensors = 2, .steps = {1000, 0}};
    float w[DIM];
    offer(&f, sizeof f - sizeof f.real);
    task(c, 1, w, pl_client_load);
    task(c, 0, w, NULL);
    /* m = s = 0.5: corrected by 2 after one step, and not after a thousand */
    assert_true(fabsf(w[0] + 0.5f / sqrtf(0.5f)) < 1e-6f);
    assert_true(fabsf(w[4] + 1) < 1e-6f);
    end(&s, c);
}

/* The filter believes nothing before it has a gradient to compare with. */
TEST(filter_compares_with_what_a_client_gives) {
    struct server s = begin("zeno++", "sgd");
    pl_client *c = join(&s, (struct pl_client_conf){0});
    struct file f = {.dim = DIM, .reference = 1};
    float w[DIM];
    for (int i = 0; i < DIM; i++) f.real[i] = 1;
    memmove((char *)&f + offsetof(struct file, steps), f.real, DIM * sizeof *f.real);
    task(c, 1, w, NULL);
    offer(&f, offsetof(struct file, steps) + DIM * sizeof *f.real);
    task(c, 1, w, pl_client_load);
    assert_true(w[0] == 0);
    task(c, -1, w, NULL);
    assert_true(w[0] == -1 && w[4] == -1);
    task(c, 0.5f, w, NULL);
    assert_true(w[0] == -1);
    task(c, 0, w, NULL);
    assert_true(w[0] == -1.5f);
    end(&s, c);
}

TEST(what_does_not_fit_is_refused) {
    struct server s = begin("sync", "momentum");
    pl_client *c = join(&s, (struct pl_client_conf){0});
    struct file f = {.dim = DIM, .vectors = 1};
    assert_true(refused(c, "cannot be read", false));
    offer(&f, sizeof f);
    assert_true(refused(c, "another length", false));
    f.dim = DIM + 1;
    offer(&f, sizeof f);
    assert_true(refused(c, "another model", true));
    f.dim = DIM;
    f.vectors = 0;
    f.reference = 1;
    offer(&f, offsetof(struct file, steps) + DIM * sizeof *f.real);
    assert_true(refused(c, "the filter needs none", false));
    f.vectors = 1;
    f.reference = 0;
    f.real[0] = NAN;
    memmove((char *)&f + offsetof(struct file, steps), f.real, DIM * sizeof *f.real);
    offer(&f, offsetof(struct file, steps) + DIM * sizeof *f.real);
    assert_true(refused(c, "not finite", false));
    end(&s, c);
}

/* A folder has what earlier runs saved and refused, but nothing else of these names. */
TEST(what_no_run_has_written_is_in_the_way) {
    static const char *const name[] = {"saved", "refused"};
    char path[300];
    struct pl_why why;
    snprintf(path, sizeof path, "%s", folder_path("exchange"));
    assert_int_equal(pl_exchange_check(path, &why), PL_OK);
    for (int i = 0; i < 2; i++) {
        FILE *f = named(name[i], "ab"); /* whatever it has, and more */
        assert_non_null(f);
        fputs("mine", f);
        fclose(f);
        if (i == 0) assert_int_equal(pl_exchange_check(path, &why), PL_EUSAGE);
        f = named(name[i], "wb");
        fputs("this file is mine", f);
        fclose(f);
        assert_int_equal(pl_exchange_check(path, &why), PL_EUSAGE);
        assert_non_null(strstr(why.text, "in the way"));
        assert_non_null(strstr(why.text, name[i]));
        char own[300];
        snprintf(own, sizeof own, "exchange/%s", name[i]);
        assert_int_equal(unlink(folder_path(own)), 0);
        assert_int_equal(symlink("nowhere", folder_path(own)), 0);
        assert_int_equal(pl_exchange_check(path, &why), PL_EUSAGE);
        assert_int_equal(unlink(folder_path(own)), 0);
    }
    assert_int_equal(pl_exchange_check(path, &why), PL_OK);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
