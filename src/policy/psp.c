/* PSP, probabilistic synchronous parallel: the SSP barrier, checked against a random sample only.
 *
 * Wang, Catterall, Mortier, "Probabilistic synchronous parallel", arXiv 1709.07772. At the
 * barrier, worker i looks at `sample` other workers, drawn without replacement, and may start iff
 * none of them has c_j < c_i - s. sample = 0 is asynchronous SGD, sample = P-1 is SSP. s = 0 is
 * the paper's pBSP, s > 0 its pSSP.
 *
 * A blocked worker draws a new sample every `poll` seconds, whatever the others do. The published
 * figures do so: a worker that kept its first sample would make far less progress. With poll = 0 it
 * draws at every later event instead.
 *
 * Most of these draws change nothing, so they are not made. Between two events nothing changes: a
 * blocked worker with L laggards among its m others passes a tick with probability
 * C(m-L, b) / C(m, b), and the first tick at which any worker passes is geometric. The policy draws
 * that tick, sets the timer to it, and draws there which workers pass, given that one does. This
 * has the same distribution as drawing at every tick, and an event in between does not change it,
 * because ticks are independent. */
#include <math.h>

#include "paceline_policy.h"

#define PSP_SAMPLE_MAX 1024
#define PSP_WINDOW 512        /* clocks below the fastest that are counted one by one */
#define PSP_NEVER 0x1p62      /* ns: a tick that far away is never reached */
#define PSP_POLL_MAX 1000000. /* s */

struct psp {
    uint64_t s;
    int64_t sample;
    double poll;
};

struct psp_state {
    struct psp conf;
    uint64_t ticked_ns; /* every tick up to here is over */
};

static const struct pl_opt psp_opts[] = {
    PL_OPT_BOUND(struct psp, s, "0", 0, 1e15,
                 "steps a worker may be ahead of the workers it samples"),
    PL_OPT_INT(struct psp, sample, "2", 0, PSP_SAMPLE_MAX,
               "number of other workers to sample; all, if there are fewer"),
    PL_OPT_SECONDS(struct psp, poll, "0.001", 0, PSP_POLL_MAX,
                   "seconds until a blocked worker samples again (0: at every event)"),
    PL_OPT_END,
};

static struct pl_knobs psp_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

/* --- one worker -------------------------------------------------------------------------- */

static uint32_t psp_want(const struct psp *s, uint32_t others) {
    return (uint32_t)s->sample < others ? (uint32_t)s->sample : others;
}

/* May worker i start? Samples by Floyd's method over the others 0 … n-2 (i itself left out);
 * workers that are gone block no other. */
static bool psp_passes(const struct psp *s, const struct pl_view *v, int i) {
    if (s->s == PL_NO_BOUND) return true;
    uint32_t others = (uint32_t)v->n_workers - 1, drawn[PSP_SAMPLE_MAX];
    uint32_t want = psp_want(s, others), n = 0;
    for (uint32_t top = others - want; top < others; top++) {
        uint32_t pick = pl_rng_below(v->rng, top + 1);
        for (uint32_t m = 0; m < n; m++)
            if (drawn[m] == pick) {
                pick = top;
                break;
            }
        drawn[n++] = pick;
        const struct pl_worker *j = &v->worker[pick < (uint32_t)i ? pick : pick + 1];
        if (j->state != PL_GONE && j->clock + s->s < v->worker[i].clock) return false;
    }
    return true;
}

/* The probability that a sample of `want` out of m contains none of `behind`:
 * C(m - behind, want) / C(m, want), as a product over the smaller of want and behind, which are
 * interchangeable. */
static double psp_chance(uint32_t m, uint32_t want, uint32_t behind) {
    uint32_t n = want < behind ? want : behind, k = want < behind ? behind : want;
    double chance = 1;
    if (want + behind > m) return 0;
    for (uint32_t i = 0; i < n; i++) chance *= (double)(m - k - i) / (double)(m - i);
    return chance;
}

/* --- all that are blocked ---------------------------------------------------------------- */

/* The probability that a blocked worker passes a tick, and the logarithm of its complement. */
struct psp_odds {
    double pass, stay;
};

/* How many workers are how far behind the fastest, within the window, and the odds that follow. */
struct psp_field {
    const struct psp *conf;
    const struct pl_view *view;
    uint64_t fastest;
    uint32_t behind[PSP_WINDOW + 1];  /* [d] how many are more than d behind the fastest */
    struct psp_odds odds[PSP_WINDOW]; /* [d] of one that is d behind; pass < 0: not known yet */
    size_t n;                         /* entries of both that are used */
};

static void psp_count(struct psp_field *f, const struct psp *conf, const struct pl_view *v) {
    uint64_t slowest = UINT64_MAX;
    f->conf = conf;
    f->view = v;
    f->fastest = 0;
    for (int i = 0; i < v->n_workers; i++) {
        const struct pl_worker *w = &v->worker[i];
        if (w->state == PL_GONE) continue;
        if (w->clock > f->fastest) f->fastest = w->clock;
        if (w->clock < slowest) slowest = w->clock;
    }
    uint64_t spread = slowest < f->fastest ? f->fastest - slowest : 0;
    f->n = spread < PSP_WINDOW ? (size_t)spread + 1 : PSP_WINDOW;
    for (size_t d = 0; d < f->n; d++) {
        f->behind[d] = 0;
        f->odds[d].pass = -1;
    }
    f->behind[f->n] = 0;
    for (int i = 0; i < v->n_workers; i++) {
        uint64_t d = f->fastest - v->worker[i].clock;
        if (v->worker[i].state != PL_GONE) f->behind[d < f->n ? d : f->n]++;
    }
    /* from counts at d to counts beyond d */
    uint32_t beyond = f->behind[f->n];
    for (size_t d = f->n; d-- > 0;) {
        uint32_t here = f->behind[d];
        f->behind[d] = beyond;
        beyond += here;
    }
}

/* How many workers are more than s behind worker i. Beyond the window they are counted one by
 * one. */
static uint32_t psp_behind(const struct psp_field *f, int i) {
    const struct pl_view *v = f->view;
    uint64_t clock = v->worker[i].clock, d = f->fastest - clock + f->conf->s;
    if (d < f->n) return f->behind[d];
    uint32_t n = 0;
    for (int j = 0; f->behind[f->n - 1] > 0 && j < v->n_workers; j++)
        n += v->worker[j].state != PL_GONE && v->worker[j].clock + f->conf->s < clock;
    return n;
}

static struct psp_odds psp_odds(struct psp_field *f, int i) {
    uint64_t d = f->fastest - f->view->worker[i].clock;
    if (d < f->n && f->odds[d].pass >= 0) return f->odds[d];
    uint32_t others = (uint32_t)f->view->n_workers - 1;
    double pass = psp_chance(others, psp_want(f->conf, others), psp_behind(f, i));
    struct psp_odds odds = {pass, log1p(-pass)};
    if (d < f->n) f->odds[d] = odds;
    return odds;
}

/* Whether blocked workers draw by the clock: not if every sample is the same. */
static bool psp_polls(const struct psp *s, const struct pl_view *v) {
    return s->poll > 0 && s->s != PL_NO_BOUND && s->sample < v->n_workers - 1;
}

/* Ticks are the multiples of `poll`. Sets the timer to the first tick at which a worker passes;
 * `none_passes` is the logarithm of the probability that none passes a given tick. */
static void psp_set(const struct psp_state *s, const struct pl_view *v, struct pl_plan *p,
                    double none_passes) {
    uint64_t poll = (uint64_t)llround(s->conf.poll * 1e9), when = PL_NO_TIMER;
    if (poll == 0) poll = 1;
    if (none_passes < 0) {
        uint64_t from = v->now_ns > s->ticked_ns ? v->now_ns : s->ticked_ns + 1;
        uint64_t first = (from + poll - 1) / poll * poll;
        double in_vain = floor(log(1 - pl_rng_unit(v->rng)) / none_passes);
        if (in_vain * (double)poll < PSP_NEVER) when = first + (uint64_t)in_vain * poll;
    }
    if (when != v->timer_ns) pl_timer(p, when);
}

/* Sets the timer for all idle workers except `started`, which this plan starts. */
static void psp_wait(const struct psp_state *s, const struct pl_view *v, int started,
                     struct pl_plan *p) {
    struct psp_field f;
    double none_passes = 0;
    if (v->n_idle > (started >= 0 ? 1 : 0)) {
        psp_count(&f, &s->conf, v);
        for (int i = v->idle; i >= 0; i = pl_next(v, i))
            if (i != started) none_passes += psp_odds(&f, i).stay;
    }
    psp_set(s, v, p, none_passes);
}

/* A tick at which some worker passes. The first one is drawn given that one does; the workers after
 * it pass independently. */
static void psp_timer(void *state, const struct pl_view *v, struct pl_plan *p) {
    struct psp_state *s = state;
    struct psp_field f;
    double none_passes = 0, none_yet = 1, rest = 0;
    s->ticked_ns = v->now_ns;
    psp_count(&f, &s->conf, v);
    for (int i = v->idle; i >= 0; i = pl_next(v, i)) none_passes += psp_odds(&f, i).stay;
    double first = pl_rng_unit(v->rng) * -expm1(none_passes);
    for (int i = v->idle; i >= 0; i = pl_next(v, i)) {
        struct psp_odds odds = psp_odds(&f, i);
        bool passes;
        if (none_yet > 0) {
            first -= none_yet * odds.pass;
            passes = first < 0;
            none_yet = passes ? 0 : none_yet * (1 - odds.pass);
        } else {
            passes = pl_rng_unit(v->rng) < odds.pass;
        }
        if (passes)
            pl_start(p, i, PL_FETCH);
        else
            rest += odds.stay;
    }
    psp_set(s, v, p, rest);
}

/* --- events ------------------------------------------------------------------------------ */

static void psp_release(const struct psp *s, const struct pl_view *v, struct pl_plan *p) {
    for (int i = v->idle; i >= 0; i = pl_next(v, i))
        if (psp_passes(s, v, i)) pl_start(p, i, PL_FETCH);
}

static void psp_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                       struct pl_plan *p) {
    struct psp_state *s = state;
    pl_take(p, 1);
    pl_commit(p, 1);
    if (!psp_polls(&s->conf, v)) {
        psp_release(&s->conf, v, p);
        return;
    }
    bool passes = psp_passes(&s->conf, v, a->worker);
    if (passes) pl_start(p, a->worker, PL_FETCH);
    psp_wait(s, v, passes ? a->worker : -1, p);
}

static void psp_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    struct psp_state *s = state;
    pl_start(p, worker, PL_FETCH);
    if (psp_polls(&s->conf, v)) psp_wait(s, v, worker, p);
}

static void psp_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    struct psp_state *s = state;
    (void)worker;
    if (psp_polls(&s->conf, v))
        psp_wait(s, v, -1, p);
    else
        psp_release(&s->conf, v, p);
}

const struct pl_policy pl_policy_psp = {
    .id = {"psp", "apply every gradient; no worker runs more than s steps ahead of a random sample",
           "Wang, Catterall, Mortier, arXiv 1709.07772", psp_opts, sizeof(struct psp), 0},
    .state_size = sizeof(struct psp_state),
    .knobs = psp_knobs,
    .arrive = psp_arrive,
    .fetches = pl_always_fetches,
    .join = psp_join,
    .leave = psp_leave,
    .timer = psp_timer,
};
