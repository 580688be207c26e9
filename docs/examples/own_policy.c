/* A policy that is not part of Paceline, in a program that simulates, trains and replays with it:
 *
 *     cc own_policy.c $(pkg-config --cflags --libs paceline) -o own_policy && ./own_policy
 *
 * "patient" updates the model when K results have arrived, or `wait` seconds after the first of
 * them. Until then workers that have answered are idle. Late results are part of a later update. */
#include <paceline_policy.h>
#include <stdio.h>

struct patient { /* the options; the policy has no further state */
    int k;
    double wait;
};

static const struct pl_opt patient_opts[] = {
    PL_OPT_COUNT(struct patient, k, "all", 1, PL_MAX_WORKERS, "results an update waits for"),
    PL_OPT_SECONDS(struct patient, wait, "1", 0, 3600, "seconds to wait after the first result"),
    PL_OPT_END,
};

static const char *patient_check(const void *conf, int n_workers) {
    return ((const struct patient *)conf)->k <= n_workers ? NULL : "k is more than the workers";
}

static struct pl_knobs patient_knobs(const void *conf) {
    return (struct pl_knobs){((const struct patient *)conf)->k, PL_NO_BOUND};
}

static struct pl_sizes patient_groups(const void *conf, int n_workers, int k) {
    (void)conf, (void)n_workers;
    return (struct pl_sizes){1, k}; /* after the wait, a single result is enough */
}

static void patient_close(const struct pl_view *v, struct pl_plan *p) {
    pl_commit(p, 1);
    pl_start_idle(p, v);
    pl_timer(p, PL_NO_TIMER);
}

static void patient_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                           struct pl_plan *p) {
    const struct patient *s = state;
    (void)a; /* any worker, any lag */
    pl_take(p, 1);
    if (v->n_taken + 1 >= v->knobs.k || pl_n_busy(v) == 0)
        patient_close(v, p);
    else if (v->timer_ns == PL_NO_TIMER) /* the first of its group */
        pl_timer(p, v->now_ns + (uint64_t)(s->wait * 1e9));
}

static void patient_timer(void *state, const struct pl_view *v, struct pl_plan *p) {
    (void)state;
    patient_close(v, p); /* the timer is set while the group has a member, and only then */
}

static void patient_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)state, (void)worker;
    if (v->n_taken > 0 && pl_n_busy(v) == 0)
        patient_close(v, p); /* no worker is left to wait for */
}

static const struct pl_policy patient = {
    .id = {"patient", "wait for K, but not too long", "", patient_opts, sizeof(struct patient), 0},
    .uses = PL_USES_K,
    .state_size = sizeof(struct patient),
    .check = patient_check,
    .knobs = patient_knobs,
    .groups = patient_groups,
    .arrive = patient_arrive,
    .leave = patient_leave,
    .timer = patient_timer,
};

static void report(const char *what, pl_run *run) {
    const char *same = pl_run_text(run, "replay"); /* NULL if it is not a replay */
    printf("%-9s  %g updates, loss %.3f%s%s\n", what, pl_run_number(run, "updates"),
           pl_run_number(run, "loss"), same ? ": " : "", same ? same : "");
    pl_run_free(run);
}

int main(void) {
    const char *file = "own_policy.rec";
    pl_setup *setup;
    pl_run *run;
    remove(file); /* an old recording would not be overwritten */
    if (pl_setup_new(&setup)) return 1;
    int rc = pl_setup_policy(setup, &patient);
    if (!rc) rc = pl_setup_set(setup, "policy", "patient:k=6,wait=0.01");
    if (!rc) rc = pl_setup_set(setup, "workers", "8");
    if (!rc) rc = pl_setup_set(setup, "delay", "exp:mean=0.01");
    if (!rc) rc = pl_setup_set(setup, "data", "digits");
    if (!rc) rc = pl_setup_set(setup, "updates", "200");
    if (!rc && !(rc = pl_simulate(setup, &run))) report("simulated", run);
    if (!rc) rc = pl_setup_set(setup, "record", file);
    if (!rc && !(rc = pl_train(setup, &run))) report("trained", run);
    if (!rc) rc = pl_setup_set(setup, "record", "");
    if (!rc && !(rc = pl_replay(setup, file, &run))) report("replayed", run);
    if (rc) fprintf(stderr, "%s\n", pl_setup_why(setup));
    pl_setup_free(setup);
    return rc ? 1 : 0;
}
