/* A policy that says what the test puts into its mouth, a tuner likewise, and control with both. */
#ifndef PL_TESTS_PUPPET_H
#define PL_TESTS_PUPPET_H

#include "choices.h"

/* What it says next, one letter per action: t(ake) d(rop) w(ait: defer) c(ommit) s(top); A B C:
 * take what W1 W2 W3 sent before; 1 2 3: start W1 W2 W3 on the newest version; k l m: let W1 W2 W3
 * keep theirs; x y z: cancel W1 W2 W3; 9: start W10; a timer: N(ow) S(oon, in a second) P(ast)
 * O(ff). */
static const char *mouth;
static struct pl_view seen; /* what it was shown */
static struct pl_arrival seen_arrival;

static inline void puppet_say(struct pl_plan *p) {
    for (const char *c = mouth; *c; c++) {
        if (*c == 't') pl_take(p, 1);
        if (*c == 'd') pl_drop(p);
        if (*c == 'w') pl_defer(p);
        if (*c >= 'A' && *c <= 'C') pl_take_deferred(p, *c - 'A', 1);
        if (*c == 'c') pl_commit(p, 1);
        if (*c == 's') pl_stop(p);
        if (*c >= '1' && *c <= '9') pl_start(p, *c - '1' + (*c == '9'), PL_FETCH);
        if (*c >= 'k' && *c <= 'm') pl_start(p, *c - 'k', PL_KEEP);
        if (*c >= 'x' && *c <= 'z') pl_cancel(p, *c - 'x');
        if (*c == 'N') pl_timer(p, seen.now_ns);
        if (*c == 'S') pl_timer(p, seen.now_ns + 1000000000);
        if (*c == 'P') pl_timer(p, seen.now_ns - 1);
        if (*c == 'O') pl_timer(p, PL_NO_TIMER);
    }
}

static inline void puppet_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                                 struct pl_plan *p) {
    seen = *v;
    seen_arrival = *a;
    puppet_say(p);
}

static inline void puppet_move(void *state, const struct pl_view *v, int worker,
                               struct pl_plan *p) {
    seen = *v;
    puppet_say(p);
}

static int n_rung;

static inline void puppet_timer(void *state, const struct pl_view *v, struct pl_plan *p) {
    seen = *v;
    n_rung++;
    puppet_say(p);
}

static inline struct pl_knobs puppet_knobs(const void *conf) {
    return (struct pl_knobs){2, PL_NO_BOUND};
}

static const struct pl_policy puppet = {
    .id = {.name = "puppet", .brief = "", .paper = "", .opts = pl_no_opts},
    .uses = PL_USES_K | PL_USES_BOUND,
    .knobs = puppet_knobs,
    .arrive = puppet_arrive,
    .join = puppet_move,
    .leave = puppet_move,
    .timer = puppet_timer};

static struct pl_knobs wish; /* what the tuner sets, where `wishes` */
static int wishes;           /* 1 at the start, 2 at an arrival, 3 at a measurement */
static double told[8];       /* of tasks: seconds, negative where not done */
static int n_told, n_dots;

static inline void tuner_init(void *state, const struct pl_run_info *scene,
                              struct pl_knobs *knobs) {
    if (wishes == 1) *knobs = wish;
}

static inline void tuner_arrive(void *state, const struct pl_run_info *scene,
                                const struct pl_view *v, const struct pl_arrival *a,
                                struct pl_knobs *knobs) {
    if (wishes == 2) *knobs = wish;
}

static inline void tuner_task(void *state, double seconds, bool done) {
    assert_true(n_told < 8);
    told[n_told++] = done ? seconds : -seconds;
}

static inline void tuner_measure(void *state, const struct pl_run_info *scene,
                                 const struct pl_view *v, const struct pl_measure *m,
                                 struct pl_knobs *knobs) {
    n_dots += m->dot == 0.25;
    if (wishes == 3) *knobs = wish;
}

static const struct pl_tuner deaf = {
    .id = {.name = "deaf", .brief = "", .paper = "", .opts = pl_no_opts}};

static const struct pl_tuner eager = {
    .id = {.name = "eager", .brief = "", .paper = "", .opts = pl_no_opts},
    .moves = PL_USES_K | PL_USES_BOUND,
    .init = tuner_init,
    .arrive = tuner_arrive,
    .task = tuner_task,
    .measure = tuner_measure};

static struct pl_control *control;
static const struct pl_plan *plan;
static struct pl_why why;

static inline int begin_with(const struct pl_policy *policy, const struct pl_tuner *tuner,
                             int n_workers) {
    struct pl_control_conf conf = {
        .policy = policy, .tuner = tuner, .n_workers = n_workers, .seed = 1};
    n_told = n_dots = 0;
    why.text[0] = '\0';
    int rc = pl_control_new(&conf, &control, &why);
    if (!rc) own(control, free_control);
    return rc;
}

static inline int begin(const struct pl_tuner *tuner, int n_workers) {
    return begin_with(&puppet, tuner, n_workers);
}

static inline int event(double now, enum pl_event_kind kind, int worker, uint64_t task,
                        const char *say) {
    struct pl_event e = {.kind = kind,
                         .now_ns = (uint64_t)llround(now * 1e9),
                         .worker = worker - 1,
                         .task = task,
                         .loss = 0.5,
                         .samples = 4};
    e.measure.dot = 0.25;
    mouth = say;
    why.text[0] = '\0';
    return pl_control_step(control, &e, &plan, &why);
}

#endif
