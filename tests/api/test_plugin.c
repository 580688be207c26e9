/* Policies from outside: what pl_setup_policy takes and refuses, and that a registered policy is
 * used like those of the library: simulated, trained, recorded, replayed, refereed.
 *
 * Two such policies are compiled into this file: that of docs/examples/own_policy.c, and a second
 * copy of the library's ksync. */

#define main example_main
#include "docs/examples/own_policy.c"
#undef main
#define pl_policy_ksync plugin_ksync
#include "policy/ksync.c"
#undef pl_policy_ksync

#include "core/policy.h"
#include "recorded.h"
#include "suite_policy.h"

static void expect(int got, int rc, const char *text, const char *word) {
    if (got != rc || !strstr(text, word))
        fail_msg("%d, \"%s\", not %d and '%s'", got, text, rc, word);
}

/* The small setup with a policy of this file registered and chosen. */
static pl_setup *with(const struct pl_policy *policy, const char *spec) {
    pl_setup *s = change(small, NULL);
    if (pl_setup_policy(s, policy)) fail_msg("%s", pl_setup_why(s));
    set(s, "policy", spec);
    return s;
}

/* --- registering -------------------------------------------------------------------------- */

TEST(test_names_and_options) {
    static const struct {
        const char *spec, *word;
    } row[] = {{"patient:k=2,wait=0.5", ""},
               {"patient", ""},
               {"patiemt", "did you mean 'patient'?"},
               {"patient:k=5", "policy 'patient:k=5' with 4 workers: k is more than the workers"},
               {"patient:wait=-1", "policy 'patient': wait=-1 is not accepted"},
               {"patient:weit=1", "did you mean 'wait'?"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        pl_setup *s = with(&patient, row[i].spec);
        expect(pl_setup_check(s), row[i].word[0] ? PL_EUSAGE : PL_OK, pl_setup_why(s), row[i].word);
    }
    pl_setup *first = plain(), *before = change(first, NULL);
    assert_int_equal(pl_setup_policy(first, &patient), PL_OK);
    pl_setup *after = change(first, "policy", "patient:k=1", "model", "none", NULL);
    set_all(before, "policy=patient model=none");
    expect(pl_setup_check(before), PL_EUSAGE, pl_setup_why(before), "no policy is called");
    pl_run *run = simulate(after);
    assert_string_equal(pl_run_text(run, "policy"), "patient:k=1");
}

enum { BROKEN_OPTIONS = 40 };
static struct pl_opt broken_opts[BROKEN_OPTIONS];

static struct pl_policy broken_policy(void) {
    struct pl_policy p = patient;
    memset(broken_opts, 0, sizeof broken_opts);
    memcpy(broken_opts, patient_opts, sizeof patient_opts);
    p.id.opts = broken_opts;
    return p;
}

static int broken_grid(const void *conf, int n_workers) {
    return n_workers;
}

static void broken_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    pl_start(p, worker, PL_FETCH);
}

static void refuse(const struct pl_policy *p, const char *word) {
    pl_setup *s = plain();
    expect(pl_setup_policy(s, p), PL_EUSAGE, pl_setup_why(s), word);
    set_all(s, "policy=patient model=none");
    if (p->id.name && strcmp(p->id.name, "patient") == 0)
        expect(pl_setup_check(s), PL_EUSAGE, pl_setup_why(s), "no policy is called 'patient'");
}

TEST(test_refusals) {
#define REFUSE(change_it, word)                                                                    \
    do {                                                                                           \
        struct pl_policy p = broken_policy();                                                      \
        change_it;                                                                                 \
        refuse(&p, word);                                                                          \
    } while (0)
    REFUSE(p.id.name = NULL, "a policy needs a name of at most 47 characters");
    REFUSE(p.id.name = "", "a policy needs a name");
    REFUSE(p.id.name = "two:words", "a policy needs a name");
    REFUSE(p.id.name = "a-name-that-is-very-much-longer-than-any-spec-can-name-it", "at most 47");
    REFUSE(p.id.name = "ksync", "there already is a policy 'ksync'; choose another name");
    REFUSE(p.arrive = NULL, "policy 'patient' needs the callbacks arrive and knobs");
    REFUSE(p.knobs = NULL, "policy 'patient' needs the callbacks arrive and knobs");
    REFUSE(p.id.opts = NULL, "policy 'patient' needs a table of options");
    REFUSE(p.state_size--, "policy 'patient' needs a state_size of at least conf_size");
    REFUSE(p.grid = broken_grid, "policy 'patient' has a grid and needs the callback join");
    REFUSE((p.grid = broken_grid, p.join = broken_join, p.peers = true), "both a grid and peers");
    REFUSE(broken_opts[0].name = "K", "option 1 has a name that is not made of");
    REFUSE(broken_opts[1].name = "k", "option 2 has the name of another option");
    REFUSE(broken_opts[1].type = (enum pl_opt_type)8, "option 2 has a type that does not exist");
    REFUSE(broken_opts[1].type = (enum pl_opt_type) - 1, "option 2 has a type that does not exist");
    REFUSE(broken_opts[1].def = NULL, "option 2 has no default or no help");
    REFUSE(broken_opts[1].help = NULL, "option 2 has no default or no help");
    REFUSE(broken_opts[0].type = PL_TYPE_CHOICE, "option 1 has no choices");
    REFUSE(broken_opts[1].offset = 12, "option 2 has a field beyond the end of the conf");
    REFUSE(broken_opts[1].offset = SIZE_MAX, "option 2 has a field beyond the end of the conf");
    REFUSE(broken_opts[1].type = PL_TYPE_TEXT, "option 2 has a field beyond the end of the conf");
    REFUSE(broken_opts[1].def = "soon", "a default of the policy's options: wait=soon");
    static char names[BROKEN_OPTIONS][16];
    REFUSE(
        for (int i = 0; i < BROKEN_OPTIONS; i++) {
            broken_opts[i] = patient_opts[1];
            snprintf(names[i], sizeof *names, "o%d", i);
            broken_opts[i].name = names[i];
        },
        "has more than 32 options; end the table with PL_OPT_END");
#undef REFUSE
}

TEST(test_eight_at_most) {
    static const char *const name[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    struct pl_policy p[9];
    pl_setup *s = change(small, "model", "none", NULL);
    for (int i = 0; i < 9; i++) {
        p[i] = patient;
        p[i].id.name = name[i];
        expect(pl_setup_policy(s, &p[i]), i < 8 ? PL_OK : PL_EUSAGE, pl_setup_why(s),
               i < 8 ? "" : "policy 'i' is one too many; a setup takes 8");
    }
    expect(pl_setup_policy(s, &p[3]), PL_EUSAGE, pl_setup_why(s), "there already is a policy 'd'");
    set(s, "policy", "h:k=2");
    simulate(s);
}

/* --- the same as a policy of the library -------------------------------------------------- */

static void check_twin(const char *args, const char *delay) {
    struct pl_policy twin = plugin_ksync;
    char mine[80], theirs[80];
    twin.id.name = "twin";
    snprintf(mine, sizeof mine, "twin:%s", args);
    snprintf(theirs, sizeof theirs, "ksync:%s", args);
    pl_setup *a = with(&twin, mine), *b = change(small, "policy", theirs, NULL);
    set(a, "delay", delay);
    set(b, "delay", delay);
    set(a, "events", fresh("a.events"));
    set(b, "events", fresh("b.events"));
    pl_run *x = simulate(a), *y = simulate(b);
    size_t n, m;
    const float *wx = pl_run_weights(x, &n), *wy = pl_run_weights(y, &m);
    assert_int_equal(n, m);
    assert_true(n > 0 && memcmp(wx, wy, n * sizeof *wx) == 0);
    assert_true(pl_run_number(x, "time") == pl_run_number(y, "time"));
    assert_true(pl_run_number(x, "tasks.cancelled") == pl_run_number(y, "tasks.cancelled"));
    check_same_file(args, path("a.events"), path("b.events"));
}

TEST(test_twin_of_ksync) {
    assert_ptr_not_equal(&plugin_ksync, pl_policy_family.table[0]);
    check_twin("k=all", "exp:mean=1");
    check_twin("k=2", "pareto:shape=2,scale=1");
    check_twin("k=75%,cancel=no", "exp:mean=1|exp:mean=4");
}

/* --- recordings and real runs ------------------------------------------------------------- */

static void check_replay(pl_setup *s, const char *file) {
    pl_run *run = replay(s, file);
    if (pl_run_number(run, "replay.same") != 1) fail_msg("%s", pl_run_text(run, "replay"));
    assert_string_equal(pl_run_text(run, "policy"), "patient:k=3,wait=0.002");
}

TEST(test_replay) {
    const char *file = fresh("a.rec");
    pl_setup *s = with(&patient, "patient:k=3,wait=0.002");
    set(s, "delay", "exp:mean=0.004");
    set(s, "record", file);
    pl_run *run = simulate(s);
    assert_true(pl_run_number(run, "staleness.mean") > 0); /* the wait was too short for some */
    s = plain();
    assert_int_equal(pl_setup_policy(s, &patient), PL_OK);
    check_replay(s, file);
    const char *no = "the run has policy 'patient', which is not registered here; use the program";
    check_refused(plain(), file, PL_EUSAGE, no);
    s = plain();
    expect(pl_setup_recorded(s, file), PL_EUSAGE, pl_setup_why(s), no);
    s = plain(); /* the same times with another policy need no registration */
    set(s, "policy", "kasync:k=2");
    assert_int_equal(pl_setup_recorded(s, file), PL_OK);
    simulate(s);
}

TEST(test_train) {
    static const char *const spawn[] = {"threads", "processes"};
    for (int i = 0; i < 2; i++) {
        const char *file = fresh("a.rec");
        pl_setup *s = with(&patient, "patient:k=3,wait=0.002");
        set(s, "spawn", spawn[i]);
        set(s, "delay", "exp:mean=0.004");
        set(s, "record", file);
        pl_run *run = train(s);
        assert_true(pl_run_number(run, "updates") == (sanitized ? 30 : 80));
        assert_null(pl_run_text(run, "trouble"));
        set(s, "record", "");
        check_replay(s, file);
    }
}

/* --- the referee -------------------------------------------------------------------------- */

static void bad_silent(void *state, const struct pl_view *v, const struct pl_arrival *a,
                       struct pl_plan *p) {
    pl_start(p, a->worker, PL_FETCH);
}

static void bad_twice(void *state, const struct pl_view *v, const struct pl_arrival *a,
                      struct pl_plan *p) {
    pl_take(p, 1);
    pl_commit(p, 1);
    pl_commit(p, 1);
}

static void bad_asleep(void *state, const struct pl_view *v, const struct pl_arrival *a,
                       struct pl_plan *p) {
    pl_take(p, 1);
}

static void bad_past(void *state, const struct pl_view *v, const struct pl_arrival *a,
                     struct pl_plan *p) {
    bad_silent(state, v, a, p);
    pl_drop(p);
    if (v->now_ns > 0) pl_timer(p, v->now_ns - 1);
}

static struct pl_knobs bad_knobs(const void *conf) {
    return (struct pl_knobs){0, PL_NO_BOUND};
}

static void check_broken(const struct pl_policy *p, const char *how) {
    char word[200];
    snprintf(word, sizeof word, "policy 'patient' broke its contract: %s", how);
    for (int real = 0; real < 2; real++) {
        pl_run *run = NULL;
        pl_setup *s = with(p, "patient");
        set(s, "spawn", "threads");
        int rc = real ? pl_train(s, &run) : pl_simulate(s, &run);
        expect(rc, PL_EPOLICY, pl_setup_why(s), word);
        assert_null(run);
    }
}

TEST(test_bad_policies_are_named) {
    struct pl_policy p = patient;
    p.arrive = bad_silent;
    check_broken(&p, "it neither took, dropped nor deferred an arrival");
    p.arrive = bad_twice;
    check_broken(&p, "it committed twice for one event");
    p.arrive = bad_asleep;
    check_broken(&p, "it stalled: no worker is busy");
    p.arrive = bad_past;
    check_broken(&p, "it set a timer to a time in the past");
    p = patient;
    p.timer = NULL;
    check_broken(&p, "it set a timer but has no timer function");
    p = patient;
    p.groups = NULL;
    p.knobs = bad_knobs;
    check_broken(&p, "it declares groups of 0 to 0 members");
}

/* --- the suite ---------------------------------------------------------------------------- */

/* The first breach of the suite, or PL_OK after all of them. Mutants get all runs: some are found
 * late. */
static int try(const struct pl_policy *policy, const char *args, struct pl_why *why) {
    const struct pl_tuner *fixed = (const struct pl_tuner *)pl_tuner_family.table[0];
    struct patient conf;
    int rc = PL_OK;
    for (int n = 1; n <= SUITE_WORKERS && !rc; n++)
        for (uint64_t run = 0; run < (sanitized && policy == &patient ? 2 : 20) && !rc; run++) {
            if (pl_opt_parse(patient_opts, &conf, args, n, why)) fail_msg("%s", why->text);
            struct suite_setting s = {policy, fixed, &conf, NULL, n};
            rc = suite_policy(&s, test_seed, run, why);
        }
    return rc;
}

/* Commits by the clock alone, and sets it for the first result of a group: when all workers have
 * left, control clears the timer, and the group is never empty again. */
static void lost_timer_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                              struct pl_plan *p) {
    pl_take(p, 1);
    pl_start(p, a->worker, PL_FETCH);
    if (v->n_taken == 0) pl_timer(p, v->now_ns + (uint64_t)(((struct patient *)state)->wait * 1e9));
}

/* The same, and the timer is seen to. */
static void kept_timer_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                              struct pl_plan *p) {
    pl_take(p, 1);
    pl_start(p, a->worker, PL_FETCH);
    if (v->timer_ns == PL_NO_TIMER)
        pl_timer(p, v->now_ns + (uint64_t)(((struct patient *)state)->wait * 1e9));
}

static void clock_timer(void *state, const struct pl_view *v, struct pl_plan *p) {
    pl_commit(p, 1);
}

static struct pl_sizes clock_groups(const void *conf, int n_workers, int k) {
    return (struct pl_sizes){1, 100};
}

/* Only results of the first version are good enough. */
static void picky_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                         struct pl_plan *p) {
    if (v->version == 0) {
        patient_arrive(state, v, a, p);
        return;
    }
    pl_drop(p);
    pl_start(p, a->worker, PL_FETCH);
}

static void deaf_timer(void *state, const struct pl_view *v, struct pl_plan *p) {}

TEST(test_suite) {
    static const char *const good[] = {"",         "k=1", "k=50%", "wait=0", "k=75%,wait=0.001",
                                       "wait=3000"};
    struct pl_why why = {""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (try(&patient, good[i], &why)) fail_msg("%s: %s", good[i], why.text);
    struct pl_policy p = patient;
    p.arrive = kept_timer_arrive;
    p.timer = clock_timer;
    p.groups = clock_groups;
    p.leave = NULL;
    if (try(&p, "wait=1", &why)) fail_msg("%s", why.text);
    p.arrive = lost_timer_arrive;
    expect(try(&p, "wait=1", &why), SUITE_BROKEN, why.text, "no update is ever made");
    p = patient;
    p.arrive = picky_arrive;
    expect(try(&p, "", &why), SUITE_BROKEN, why.text, "no update is ever made");
    p = patient;
    p.timer = deaf_timer;
    p.leave = NULL;
    expect(try(&p, "", &why), SUITE_BROKEN, why.text, "it stalled: no worker is busy");
}

static int teardown(void **state) {
    return recorded_end((const char *const[]){"a.rec", "a.events", "b.events"}, 3);
}

ALL_TESTS_BETWEEN(recorded_begin, teardown)
