#include "setups.h"

void set(pl_setup *s, const char *key, const char *value) {
    if (pl_setup_set(s, key, value)) fail_msg("%s: %s", key, pl_setup_why(s));
}

void set_all(pl_setup *s, const char *options) {
    char text[1200];
    assert_true(snprintf(text, sizeof text, "%s", options) < (int)sizeof text);
    for (char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        char *next = at + strcspn(at, " "), *value = strchr(at, '=');
        if (!value || value > next) fail_msg("'%s' has a word without '='", options);
        if (*next) *next++ = '\0';
        *value = '\0';
        set(s, at, value + 1);
        at = next;
    }
}

static void free_setup(void *s) {
    pl_setup_free(s);
}

static void free_run(void *run) {
    pl_run_free(run);
}

pl_run *own_run(pl_run *run) {
    return own(run, free_run);
}

pl_setup *plain(void) {
    pl_setup *s = NULL;
    assert_int_equal(pl_setup_new(&s), 0);
    return own(s, free_setup);
}

pl_setup *setup_of(const char *options, ...) {
    pl_setup *s = plain();
    char text[1200];
    va_list ap;
    va_start(ap, options);
    assert_true(vsnprintf(text, sizeof text, options, ap) < (int)sizeof text);
    va_end(ap);
    set_all(s, text);
    return s;
}

pl_setup *change(const pl_setup *from, ...) {
    pl_setup *s = NULL;
    va_list ap;
    assert_int_equal(pl_setup_copy(from, &s), 0);
    own(s, free_setup);
    va_start(ap, from);
    for (const char *key; (key = va_arg(ap, const char *));) set(s, key, va_arg(ap, const char *));
    va_end(ap);
    return s;
}

static pl_run *run_of(int rc, const pl_setup *s, pl_run *run) {
    if (rc) fail_msg("%s", pl_setup_why(s));
    return own_run(run);
}

pl_run *simulate(pl_setup *s) {
    pl_run *run = NULL;
    int rc = pl_simulate(s, &run);
    return run_of(rc, s, run);
}

pl_run *train(pl_setup *s) {
    pl_run *run = NULL;
    int rc = pl_train(s, &run);
    assert_true(rc || run || pl_rank() > 0); /* over MPI, rank 0 alone has the run */
    return run_of(rc, s, run);
}

pl_run *replay(pl_setup *s, const char *file) {
    pl_run *run = NULL;
    int rc = pl_replay(s, file, &run);
    return run_of(rc, s, run);
}

double number(const pl_run *run, const char *key) {
    return pl_run_number(run, key);
}

void check_books(const pl_run *run) {
    static const char *const fates[] = {"tasks.applied", "tasks.dropped",  "tasks.cancelled",
                                        "tasks.lost",    "tasks.rejected", "tasks.running"};
    static const char *const shares[] = {"worker_time.compute", "worker_time.communication",
                                         "worker_time.idle", "worker_time.wasted"};
    const char *what = pl_run_text(run, "policy");
    double tasks = 0, time = 0;
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        assert_true(number(run, fates[i]) >= 0);
        tasks += number(run, fates[i]);
    }
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        assert_true(number(run, shares[i]) >= 0);
        time += number(run, shares[i]);
    }
    if (tasks != number(run, "tasks.started"))
        fail_msg("%s: fates sum to %g of %g tasks", what, tasks, number(run, "tasks.started"));
    if (!(fabs(time - 1) <= 1e-9)) fail_msg("%s: the workers' time sums to %.12g", what, time);
}

bool same_weights(const pl_run *a, const pl_run *b) {
    size_t na, nb;
    const float *wa = pl_run_weights(a, &na), *wb = pl_run_weights(b, &nb);
    return na == nb && (na == 0 || memcmp(wa, wb, na * sizeof *wa) == 0);
}
