/* Random events, and a fair schedule under which updates must be made: see suite_policy.h. */
#include "suite_policy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite_book.h"

/* --- random events ----------------------------------------------------------------------- */

static void count_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                        const struct pl_plan *plan) {
    ((struct book *)ctx)->n_logged++;
}

static bool step(struct book *b, const struct pl_event *e) {
    const struct pl_plan *plan;
    struct pl_why why = {""};
    struct pl_knobs before = pl_control_view(b->control)->knobs;
    if (pl_control_step(b->control, e, &plan, &why)) return book_refuse(b, "%s", why.text);
    b->knobs = e->kind == PL_MEASURED ? before : pl_control_view(b->control)->knobs;
    b->arrived_lag = 0;
    book_note_event(b, e);
    b->n_steps++;
    MUST(b, e->kind != PL_MEASURED || plan->n == 0, "a plan for a measurement");
    return book_note_plan(b, e, plan) && book_check(b) && promises_check_policy(b) &&
           promises_check_tuner(b, before) &&
           (b->n_logged == b->n_steps || book_refuse(b, "it is not logged"));
}

/* An event that must change nothing: an answer to an old task, a second join, … */
static bool ignored(struct book *b, struct pl_event e) {
    const struct pl_plan *plan;
    struct pl_why why = {""};
    if (pl_control_step(b->control, &e, &plan, &why)) return book_refuse(b, "%s", why.text);
    b->committed = false;
    b->now = e.now_ns;
    MUST(b, plan->n == 0 && b->n_logged == b->n_steps, "a late answer is heard");
    return book_check(b);
}

static int pick(struct book *b, struct pl_rng *r, enum pl_worker_state state) {
    int n = book_count(b, state);
    if (n == 0) return -1;
    int nth = (int)pl_rng_below(r, (uint32_t)n);
    /* two tries, the lower number wins: some workers are slow */
    int other = (int)pl_rng_below(r, (uint32_t)n);
    if (other < nth && pl_rng_below(r, 4)) nth = other;
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state == state && nth-- == 0) return i;
    return -1;
}

static bool arrive(struct book *b, struct pl_rng *r, int i, enum pl_event_kind kind) {
    struct pl_event e = {.kind = kind,
                         .now_ns = b->now,
                         .worker = i,
                         .task = b->w[i].task,
                         .comm_ns = pl_rng_below(r, 1u << 28),
                         .samples = 1 + pl_rng_below(r, 64),
                         .loss = pl_rng_below(r, 8) ? 3 * pl_rng_unit(r) : NAN};
    if (!step(b, &e)) return false;
    if (!b->committed || !pl_control_measures(b->control)) return true;
    struct pl_event m = {.kind = PL_MEASURED, .now_ns = b->now};
    m.measure.dot = pl_rng_below(r, 8) ? pl_rng_unit(r) - 0.6 : NAN;
    return step(b, &m);
}

/* Rings the timer where it comes before anything else, at its time or late. */
static bool ring(struct book *b, struct pl_rng *r, uint64_t late) {
    struct pl_event e = {.kind = PL_TIMER, .now_ns = b->timer};
    if (pl_rng_below(r, 2) && late > e.now_ns) e.now_ns = late;
    if (e.now_ns < b->now) e.now_ns = b->now;
    return step(b, &e);
}

static bool random_event(struct book *b, struct pl_rng *r) {
    uint64_t then = b->now + (pl_rng_below(r, 5) ? pl_rng_below(r, 1u << 30) : 0);
    bool alone = book_count(b, PL_BUSY) == 0 && pl_rng_below(r, 2);
    if (b->timer != PL_NO_TIMER && (alone || b->timer <= then)) return ring(b, r, then);
    b->now = then;
    uint32_t dice = pl_rng_below(r, 100);
    int gone = pick(b, r, PL_GONE), busy = pick(b, r, PL_BUSY);
    int any = (int)pl_rng_below(r, (uint32_t)b->n);
    const struct entry *w = &b->w[any];
    struct pl_event e = {.now_ns = b->now, .worker = any};
    if (dice < 10 || (b->calm && busy < 0)) {                             /* late, or nobody's */
        e.kind = dice == 0 ? PL_TIMER : dice % 2 ? PL_ARRIVE : PL_REJECT; /* none so early */
        e.task = w->state == PL_BUSY ? w->task + 1 - 2 * pl_rng_below(r, 2) : w->task;
        return ignored(b, e);
    }
    if (!b->calm && dice < 25 && gone >= 0) {
        e.kind = PL_JOIN;
        e.worker = gone;
        return step(b, &e);
    }
    if (!b->calm && dice < 32) {
        e.kind = PL_LEAVE;
        return w->state == PL_GONE ? ignored(b, e) : step(b, &e);
    }
    if (!b->calm && dice < 34 && w->state != PL_GONE) {
        e.kind = PL_JOIN;
        return ignored(b, e);
    }
    if (busy < 0) return true;
    return arrive(b, r, busy, !b->calm && dice < 40 ? PL_REJECT : PL_ARRIVE);
}

/* --- a fair schedule ---------------------------------------------------------------------- */

/* Every task that is running comes back, in random order. Returns how many did before there was an
 * update, or -1. */
static int turn(struct book *b, struct pl_rng *r) {
    struct {
        int worker;
        uint64_t task;
    } due[SUITE_WORKERS], other;
    int n = 0, n_back = 0;
    for (int i = 0; i < b->n; i++) {
        if (b->w[i].state != PL_BUSY) continue;
        int at = (int)pl_rng_below(r, (uint32_t)++n);
        other.worker = i;
        other.task = b->w[i].task;
        due[n - 1] = due[at];
        due[at] = other;
    }
    for (int m = 0; m < n; m++) {
        const struct entry *w = &b->w[due[m].worker];
        if (w->state != PL_BUSY || w->task != due[m].task) continue; /* it was cancelled */
        uint64_t version = b->version;
        b->now += pl_rng_below(r, 1u << 30);
        if (b->timer <= b->now && !ring(b, r, b->now)) return -1;
        if (b->stopped || b->version != version) break;
        if (w->state != PL_BUSY || w->task != due[m].task) continue;
        n_back++;
        if (!arrive(b, r, due[m].worker, PL_ARRIVE)) return -1;
        if (b->stopped || b->version != version) break;
    }
    return n_back;
}

/* Time passes: `pause` seconds, or all it takes if nobody computes. */
static bool rest(struct book *b, struct pl_rng *r, double pause) {
    b->now += (uint64_t)(pause * 1e9);
    if (b->timer == PL_NO_TIMER || b->stopped) return true;
    return b->timer > b->now && book_count(b, PL_BUSY) > 0 ? true : ring(b, r, b->now);
}

/* Two updates, because the first may have been under way. */
static bool settle(struct book *b, struct pl_rng *r) {
    for (int i = 0; i < 2; i++) {
        uint64_t version = b->version;
        int n_back = 0, n_turns = 0;
        double pause = 1;
        while (b->version == version && !b->stopped) {
            int most = book_sizes(b, pl_control_view(b->control)->knobs.k).most;
            MUST(b, n_back + n_turns < SUITE_PATIENCE(b->n, most),
                 "no update is ever made: %d of %d workers are there, %d results came back since "
                 "the last one, and K is %d",
                 b->n - book_count(b, PL_GONE), b->n, n_back, b->knobs.k);
            int n = turn(b, r);
            if (n < 0 || (b->version == version && !rest(b, r, pause))) return false;
            n_back += n;
            n_turns += n == 0;
            if (pause < 1e6) pause *= 10;
        }
    }
    return true;
}

/* Everybody but one leaves, and comes back. */
static bool settle_alone(struct book *b, struct pl_rng *r) {
    int last = (int)pl_rng_below(r, (uint32_t)b->n);
    struct pl_event e = {.kind = PL_JOIN, .now_ns = b->now, .worker = last};
    if (b->w[last].state == PL_GONE && !step(b, &e)) return false;
    for (int i = 0; i < b->n && !b->stopped; i++) {
        e = (struct pl_event){.kind = PL_LEAVE, .now_ns = b->now, .worker = i};
        if (i != last && b->w[i].state != PL_GONE && !step(b, &e)) return false;
    }
    if (!settle(b, r)) return false;
    for (int i = 0; i < b->n && !b->stopped; i++) {
        e = (struct pl_event){.kind = PL_JOIN, .now_ns = b->now, .worker = i};
        if (b->w[i].state == PL_GONE && !step(b, &e)) return false;
    }
    return settle(b, r);
}

static bool drive(struct book *b, uint64_t seed, uint64_t run) {
    struct pl_rng r;
    pl_rng_init(&r, seed, PL_STREAM_TEST, 1, run);
    b->calm = pl_rng_below(&r, 3) == 0;
    pl_control_on_event(b->control, count_event, b);
    b->knobs = pl_control_view(b->control)->knobs;
    for (int i = 0; i < b->n; i++) {
        struct pl_event e = {.kind = PL_JOIN, .worker = i};
        if ((b->calm || pl_rng_below(&r, 4)) && !step(b, &e)) return false;
    }
    for (int i = 0; i < SUITE_EVENTS && !b->stopped; i++)
        if (!random_event(b, &r)) return false;
    bool alive = book_count(b, PL_GONE) < b->n;
    return (!alive || settle(b, &r)) && (b->calm || settle_alone(b, &r));
}

int suite_policy(const struct suite_setting *s, uint64_t seed, uint64_t run, struct pl_why *why) {
    static struct book b;
    b = (struct book){.policy = s->policy,
                      .tuner = s->tuner,
                      .promises = promises_of_policy(s->policy->id.name),
                      .tuner_promises = promises_of_tuner(s->tuner->id.name),
                      .conf = s->policy_conf,
                      .tuner_conf = s->tuner_conf,
                      .n = s->n_workers,
                      .timer = PL_NO_TIMER};
    if (s->policy->grid) b.grid = s->policy->grid(s->policy_conf, s->n_workers);
    if (b.grid > SUITE_GRID) return pl_fail(why, SUITE_BROKEN, "a grid of %d", b.grid);
    struct pl_control_conf conf = {.policy = s->policy,
                                   .tuner = s->tuner,
                                   .policy_conf = s->policy_conf,
                                   .tuner_conf = s->tuner_conf,
                                   .n_workers = s->n_workers,
                                   .seed = seed};
    int rc = pl_control_new(&conf, &b.control, why);
    if (rc) return rc;
    rc = drive(&b, seed, run) ? PL_OK : pl_fail(why, SUITE_BROKEN, "%s", b.why);
    pl_control_free(b.control);
    return rc;
}
