#include "core/control.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grid_locks.h"

#define CONTROL_NO_VERSION UINT64_MAX    /* base of a worker that has not fetched since it joined */
#define CONTROL_MANY (UINT64_C(1) << 62) /* no run counts so far, or lasts so many ns */

struct pl_control {
    const struct pl_policy *policy;
    const struct pl_tuner *tuner;
    void *policy_state, *tuner_state;
    size_t policy_size;
    struct pl_run_info scene;

    struct pl_view view; /* view.worker points at `worker`, view.rng at `rng` */
    struct pl_worker *worker;
    struct pl_rng rng;
    int idle_last, busy_last;
    struct pl_grid_locks grid_locks; /* of a policy with a grid */

    struct control_group {
        struct pl_member *member;
        size_t n, room;
    } open, closed; /* the group, and the one that the last event committed */
    struct control_answer {
        uint32_t samples;
        double loss;
    } * answer; /* [n_workers] with their last answers, which may wait */
    int n_deferred;

    struct pl_plan plan;
    bool stopped;
    struct pl_replicas *replicas; /* where there are peers */

    struct pl_fates fates;
    uint64_t lag_sum, lag_max, n_fresh;
    struct pl_worker_time time;
    uint64_t max_clock;

    struct {
        pl_control_log *log;
        void *ctx;
    } listener[PL_LISTENERS];
    int n_listeners;
};

static int control_broke(const struct pl_control *c, struct pl_why *why, const char *how) {
    return pl_fail(why, PL_EPOLICY, "policy '%s' broke its contract: %s", c->policy->id.name, how);
}

/* What a tuner turned, against what it may: knobs it says it moves, to values a run can live with.
 * K beyond the workers is for policies that count mini-batches. */
static int control_tuned(const struct pl_control *c, struct pl_knobs before, struct pl_why *why) {
    struct pl_knobs now = c->view.knobs;
    unsigned moved =
        (now.k != before.k ? PL_USES_K : 0u) | (now.bound != before.bound ? PL_USES_BOUND : 0u);
    unsigned unsaid = moved & ~c->tuner->moves;
    char how[80];
    if (unsaid)
        snprintf(how, sizeof how, "it moved %s, which is not among what it says it moves",
                 unsaid & PL_USES_K ? "K" : "the bound");
    else if (moved & PL_USES_K &&
             (now.k < 1 || (now.k > c->view.n_workers && !c->policy->by_batch)))
        snprintf(how, sizeof how, "it set K to %d, with %d workers", now.k, c->view.n_workers);
    else if (moved & PL_USES_BOUND && now.bound < 1)
        snprintf(how, sizeof how, "it set a staleness bound that nothing is below");
    else
        return PL_OK;
    return pl_fail(why, PL_EPOLICY, "tuner '%s' broke its contract: %s", c->tuner->id.name, how);
}

/* --- lists of idle and busy workers ------------------------------------------------------ */

static void control_unlink(struct pl_control *c, int i) {
    struct pl_worker *w = &c->worker[i];
    bool idle = w->state == PL_IDLE;
    int *first = idle ? &c->view.idle : &c->view.busy;
    int *last = idle ? &c->idle_last : &c->busy_last;
    if (w->prev >= 0)
        c->worker[w->prev].next = w->next;
    else
        *first = w->next;
    if (w->next >= 0)
        c->worker[w->next].prev = w->prev;
    else
        *last = w->prev;
}

/* Moves a worker to another state, at the end of that state's list, and books the time it spent
 * idle; time spent busy is booked where the task's fate is known. */
static void control_move(struct pl_control *c, int i, enum pl_worker_state to, uint64_t now_ns) {
    struct pl_worker *w = &c->worker[i];
    if (w->state == PL_IDLE) {
        c->time.idle += (double)(now_ns - w->since_ns) * 1e-9;
        c->view.n_idle--;
    }
    if (w->state == PL_BUSY) pl_grid_locks_leave(&c->grid_locks, w->row, w->col);
    if (w->state != PL_GONE) control_unlink(c, i);
    w->state = to;
    w->since_ns = now_ns;
    w->prev = w->next = -1;
    if (to == PL_GONE) return;
    int *first = to == PL_IDLE ? &c->view.idle : &c->view.busy;
    int *last = to == PL_IDLE ? &c->idle_last : &c->busy_last;
    w->prev = *last;
    if (*last >= 0)
        c->worker[*last].next = i;
    else
        *first = i;
    *last = i;
    if (to == PL_IDLE) c->view.n_idle++;
}

/* --- making ------------------------------------------------------------------------------ */

static int control_check(const struct pl_policy *policy, const void *policy_conf,
                         const struct pl_tuner *tuner, const void *tuner_conf,
                         const struct pl_run_info *scene, struct pl_why *why) {
    char spec[PL_SPEC_MAX];
    const char *no = policy->check ? policy->check(policy_conf, scene->n_workers) : NULL;
    if (no) {
        pl_spec_print(&policy->id, policy_conf, spec, sizeof spec);
        return pl_fail(why, PL_EUSAGE, "policy '%.200s' with %d workers: %s", spec,
                       scene->n_workers, no);
    }
    if (tuner->moves & ~policy->uses)
        return pl_fail(
            why, PL_EUSAGE,
            "tuner '%s' moves %s, which policy '%s' does not use; choose another of them",
            tuner->id.name, tuner->moves & ~policy->uses & PL_USES_K ? "K" : "the staleness bound",
            policy->id.name);
    if (tuner->moves & PL_USES_BOUND && policy->knobs(policy_conf).bound != PL_NO_BOUND)
        return pl_fail(why, PL_EUSAGE,
                       "tuner '%s' moves the staleness bound, so the policy cannot set one too; "
                       "--tuner fixed keeps it",
                       tuner->id.name);
    no = tuner->check ? tuner->check(tuner_conf, scene) : NULL;
    if (no) {
        pl_spec_print(&tuner->id, tuner_conf, spec, sizeof spec);
        return pl_fail(why, PL_EUSAGE, "tuner '%.200s' with %d workers: %s", spec, scene->n_workers,
                       no);
    }
    return PL_OK;
}

/* What the policy says it needs behind its conf and state. */
static size_t control_policy_size(const struct pl_policy *policy, const void *conf, int n_workers) {
    return policy->state_size + (policy->room ? policy->room(conf, n_workers) : 0);
}

static void *control_state(size_t size, const void *conf, size_t conf_size) {
    void *state = calloc(1, size + 1);
    if (state && conf_size) memcpy(state, conf, conf_size);
    return state;
}

int pl_control_new(const struct pl_policy *policy, const void *policy_conf,
                   const struct pl_tuner *tuner, const void *tuner_conf, int n_workers,
                   uint64_t seed, struct pl_control **out, struct pl_why *why) {
    struct pl_knobs knobs = policy->knobs(policy_conf);
    struct pl_run_info scene = {n_workers, policy->by_batch, knobs.k};
    int rc = control_check(policy, policy_conf, tuner, tuner_conf, &scene, why);
    if (rc) return rc;
    struct pl_control *c = calloc(1, sizeof *c);
    if (!c) return pl_fail(why, PL_ENOMEM, "out of memory");
    c->policy = policy;
    c->tuner = tuner;
    c->scene = scene;
    c->policy_size = control_policy_size(policy, policy_conf, n_workers);
    c->policy_state = control_state(c->policy_size, policy_conf, policy->id.conf_size);
    c->tuner_state = control_state(tuner->state_size, tuner_conf, tuner->id.conf_size);
    c->worker = calloc((size_t)n_workers, sizeof *c->worker);
    c->answer = calloc((size_t)n_workers, sizeof *c->answer);
    c->plan.room = policy->peers ? pl_plan_room_peers(n_workers) : pl_plan_room(n_workers);
    c->plan.action = calloc(c->plan.room, sizeof *c->plan.action);
    int side = policy->grid ? policy->grid(policy_conf, n_workers) : 0;
    if (pl_grid_locks_new(side, &c->grid_locks) || !c->policy_state || !c->tuner_state ||
        !c->worker || !c->answer || !c->plan.action ||
        (policy->peers && pl_replicas_new(n_workers, &c->replicas))) {
        pl_control_free(c);
        return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", n_workers);
    }
    for (int i = 0; i < n_workers; i++) c->worker[i].prev = c->worker[i].next = -1;
    c->idle_last = c->busy_last = -1;
    pl_rng_init(&c->rng, seed, PL_STREAM_POLICY, 0, 0);
    c->view = (struct pl_view){.n_workers = n_workers,
                               .knobs = knobs,
                               .worker = c->worker,
                               .idle = -1,
                               .busy = -1,
                               .timer_ns = PL_NO_TIMER,
                               .rng = &c->rng,
                               .replicas = c->replicas};
    if (tuner->init) tuner->init(c->tuner_state, &c->scene, &c->view.knobs);
    rc = control_tuned(c, knobs, why);
    if (rc) {
        pl_control_free(c);
        return rc;
    }
    *out = c;
    return PL_OK;
}

void pl_control_free(struct pl_control *c) {
    if (!c) return;
    pl_replicas_free(c->replicas);
    free(c->policy_state);
    free(c->tuner_state);
    free(c->worker);
    free(c->plan.action);
    free(c->answer);
    free(c->open.member);
    free(c->closed.member);
    pl_grid_locks_free(&c->grid_locks);
    free(c);
}

void pl_control_on_event(struct pl_control *c, pl_control_log *log, void *ctx) {
    if (!log || c->n_listeners == PL_LISTENERS) return;
    c->listener[c->n_listeners].log = log;
    c->listener[c->n_listeners++].ctx = ctx;
}

/* --- keeping ----------------------------------------------------------------------------- */

/* The memory of a policy or tuner: what follows its conf. It fits only one of the same name and
 * size; others begin anew. True where it was restored. */
static bool control_archive_state(const struct pl_archive *k, const char *family,
                                  const struct pl_entry *id, void *state, size_t size) {
    char name[PL_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s.%s", family, id->name);
    char none = 0; /* so that the name is kept even where there is no memory */
    size_t n = size > id->conf_size ? size - id->conf_size : 0;
    void *at = n ? (char *)state + id->conf_size : &none;
    if (n == 0) n = 1;
    if (!k->restoring) return k->bytes(k->ctx, name, at, n), false;
    void *kept = malloc(n);
    bool fits = kept && k->bytes(k->ctx, name, kept, n) == n;
    if (fits) memcpy(at, kept, n);
    free(kept);
    return fits;
}

/* What the tuner had made of K and the bound, as far as it fits the workers there are now. */
static void control_restore_knobs(struct pl_control *c, uint64_t k, uint64_t bound) {
    uint64_t most = c->policy->by_batch ? INT32_MAX : (uint64_t)c->view.n_workers;
    if (c->tuner->moves & PL_USES_K && k > 0) c->view.knobs.k = (int)(k < most ? k : most);
    if (c->tuner->moves & PL_USES_BOUND && bound > 0) c->view.knobs.bound = bound;
}

static bool control_sane(const uint64_t *count, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (count[i] >= CONTROL_MANY) return false;
    return true;
}

/* Where each worker is in its data: its tasks are numbered on, and one that was running is done
 * again. */
static int control_keep_workers(struct pl_control *c, const struct pl_archive *k) {
    size_t n = (size_t)c->view.n_workers;
    uint64_t *at = malloc(2 * n * sizeof *at);
    if (!at) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        at[2 * i] = c->worker[i].task - (c->worker[i].state == PL_BUSY);
        at[2 * i + 1] = c->worker[i].clock;
    }
    k->wholes(k->ctx, "workers", at, 2 * n);
    bool sane = control_sane(at, 2 * n);
    for (size_t i = 0; k->restoring && sane && i < n; i++) {
        c->worker[i].task = at[2 * i];
        c->worker[i].clock = at[2 * i + 1];
    }
    free(at);
    return sane ? PL_OK : PL_EDATA;
}

int pl_control_archive(struct pl_control *c, const struct pl_archive *k) {
    struct pl_fates f = pl_control_fates(c);
    uint64_t counts[] = {c->view.version,
                         c->view.now_ns,
                         c->lag_sum,
                         c->lag_max,
                         c->n_fresh,
                         c->max_clock,
                         f.started,
                         f.applied,
                         f.dropped,
                         f.cancelled,
                         f.lost + f.running,
                         f.rejected,
                         (uint64_t)c->view.knobs.k,
                         c->view.knobs.bound};
    double seconds[] = {c->time.compute, c->time.communication, c->time.idle, c->time.wasted};
    uint64_t rng[] = {c->rng.key[0], c->rng.key[1], c->rng.ctr[0], c->rng.ctr[1],
                      c->rng.ctr[2], c->rng.ctr[3], c->rng.out[0], c->rng.out[1],
                      c->rng.out[2], c->rng.out[3], c->rng.left};
    size_t n_rng = sizeof rng / sizeof *rng;
    k->wholes(k->ctx, "control.counts", counts, sizeof counts / sizeof *counts);
    k->numbers(k->ctx, "control.seconds", seconds, 4);
    k->wholes(k->ctx, "control.rng", rng, n_rng);
    control_archive_state(k, "policy", &c->policy->id, c->policy_state, c->policy_size);
    bool tuned =
        control_archive_state(k, "tuner", &c->tuner->id, c->tuner_state, c->tuner->state_size);
    int rc = control_keep_workers(c, k);
    if (rc || !k->restoring) return rc;
    if (!control_sane(counts, 12)) return PL_EDATA; /* all but the knobs */
    c->view.version = counts[0];
    c->view.now_ns = counts[1];
    c->lag_sum = counts[2];
    c->lag_max = counts[3];
    c->n_fresh = counts[4];
    c->max_clock = counts[5];
    c->fates = (struct pl_fates){.started = counts[6],
                                 .applied = counts[7],
                                 .dropped = counts[8],
                                 .cancelled = counts[9],
                                 .lost = counts[10],
                                 .rejected = counts[11]};
    if (tuned) control_restore_knobs(c, counts[12], counts[13]);
    c->time = (struct pl_worker_time){seconds[0], seconds[1], seconds[2], seconds[3]};
    for (int i = 0; i < 2; i++) c->rng.key[i] = (uint32_t)rng[i];
    for (int i = 0; i < 4; i++) c->rng.ctr[i] = (uint32_t)rng[2 + i];
    for (int i = 0; i < 4; i++) c->rng.out[i] = (uint32_t)rng[6 + i];
    c->rng.left = rng[10] <= 4 ? (uint32_t)rng[10] : 0;
    return PL_OK;
}

/* --- carrying out a plan ----------------------------------------------------------------- */

/* A busy worker's task ends without use. */
static void control_waste(struct pl_control *c, int i, uint64_t now_ns, bool tell_tuner) {
    double seconds = (double)(now_ns - c->worker[i].since_ns) * 1e-9;
    c->time.wasted += seconds;
    if (tell_tuner && c->tuner->task) c->tuner->task(c->tuner_state, seconds, false);
}

/* What a worker brought joins the open group. */
static int control_join_group(struct pl_control *c, struct pl_action *a, struct pl_why *why) {
    struct control_group *g = &c->open;
    if (g->n == g->room) {
        size_t room = g->room ? 2 * g->room : 64;
        struct pl_member *grown = realloc(g->member, room * sizeof *grown);
        if (!grown) return pl_fail(why, PL_ENOMEM, "out of memory for a group of %zu", room);
        g->member = grown;
        g->room = room;
    }
    struct pl_worker *w = &c->worker[a->worker];
    a->task = w->task;
    if (c->replicas) pl_replicas_take(c->replicas, a->worker, a->factor);
    const struct control_answer *b = &c->answer[a->worker];
    g->member[g->n++] = (struct pl_member){
        a->worker, w->task, w->base, c->view.version - w->base, b->samples, a->factor, b->loss};
    c->view.n_taken++;
    if (w->n_contributed++ == 0) c->view.n_contributors++;
    return PL_OK;
}

static int control_do_take(struct pl_control *c, struct pl_action *a, struct pl_why *why) {
    if (a->worker < 0 || a->worker >= c->view.n_workers || !c->worker[a->worker].deferred)
        return control_broke(c, why, "it took or dropped what nobody brought");
    c->worker[a->worker].deferred = false;
    c->n_deferred--;
    return control_join_group(c, a, why);
}

static void control_do_commit(struct pl_control *c, struct pl_action *a) {
    struct control_group closed = c->open;
    for (size_t i = 0; i < closed.n; i++) {
        uint64_t lag = closed.member[i].lag;
        c->lag_sum += lag;
        c->n_fresh += lag == 0;
        if (lag > c->lag_max) c->lag_max = lag;
        c->worker[closed.member[i].worker].n_contributed = 0;
    }
    c->fates.applied += closed.n;
    c->view.n_taken = c->view.n_contributors = 0;
    c->open = c->closed;
    c->open.n = 0;
    c->closed = closed;
    a->version = ++c->view.version;
}

static int control_do_start(struct pl_control *c, struct pl_action *a, uint64_t now_ns,
                            struct pl_why *why) {
    if (a->worker < 0 || a->worker >= c->view.n_workers || c->worker[a->worker].state != PL_IDLE)
        return control_broke(c, why, "it started a worker that is not idle");
    struct pl_worker *w = &c->worker[a->worker];
    if (a->from == PL_KEEP && (c->replicas || w->base == CONTROL_NO_VERSION))
        return control_broke(c, why, "it let a worker keep a version it never had");
    if (w->deferred) return control_broke(c, why, "it started a worker whose answer still waits");
    if (c->replicas && pl_replicas_start(c->replicas, a->worker))
        return pl_fail(why, PL_ENOMEM, "out of memory for the models of %d workers",
                       c->view.n_workers);
    char room[128];
    const char *no = pl_grid_locks_enter(&c->grid_locks, a, c->view.n_taken, room);
    if (no) return control_broke(c, why, no);
    w->row = a->row;
    w->col = a->col;
    control_move(c, a->worker, PL_BUSY, now_ns);
    a->task = ++w->task;
    if (a->from == PL_FETCH && w->base != c->view.version) {
        w->base = c->view.version;
        w->first = a->task;
    }
    a->version = w->base;
    c->fates.started++;
    return PL_OK;
}

static int control_do_cancel(struct pl_control *c, struct pl_action *a, uint64_t now_ns,
                             struct pl_why *why) {
    if (a->worker < 0 || a->worker >= c->view.n_workers || c->worker[a->worker].state != PL_BUSY)
        return control_broke(c, why, "it cancelled a worker that is not busy");
    if (c->replicas) return control_broke(c, why, "it cancelled a task where there are peers");
    a->task = c->worker[a->worker].task;
    control_waste(c, a->worker, now_ns, true);
    control_move(c, a->worker, PL_IDLE, now_ns);
    c->fates.cancelled++;
    return PL_OK;
}

/* Takes, drops and lets wait, of the arrival where the plan does not say whose. */
static int control_decide(struct pl_control *c, const struct pl_event *e, struct pl_action *a,
                          int *n_decided, struct pl_why *why) {
    bool arrived = a->worker == PL_ARRIVED;
    if (arrived && (*n_decided)++ > 0)
        return control_broke(c, why, "it took or dropped more than the one arrival");
    if (arrived && e->kind != PL_ARRIVE)
        return control_broke(c, why, "it took or dropped what nobody brought");
    if (!arrived) return control_do_take(c, a, why);
    a->worker = e->worker;
    a->task = c->worker[e->worker].task;
    c->answer[e->worker] = (struct control_answer){e->samples, e->loss};
    switch (a->verb) {
    case PL_TAKE: return control_join_group(c, a, why);
    case PL_DROP:
        c->fates.dropped++;
        pl_replicas_drop(c->replicas, e->worker);
        return PL_OK;
    default:
        if (c->replicas)
            return control_broke(c, why, "it let an answer wait where there are peers");
        c->worker[e->worker].deferred = true;
        c->n_deferred++;
        return PL_OK;
    }
}

static int control_do_timer(struct pl_control *c, struct pl_why *why) {
    if (!c->plan.timed) return PL_OK;
    if (c->plan.timer_ns < c->view.now_ns)
        return control_broke(c, why, "it set a timer to a time that is past");
    if (!c->policy->timer && c->plan.timer_ns != PL_NO_TIMER)
        return control_broke(c, why, "it set a timer and has no call-back for it");
    c->view.timer_ns = c->plan.timer_ns;
    return PL_OK;
}

/* Carries the plan out in order. `arrived`: the event was an arrival that must be decided. */
static int control_do(struct pl_control *c, const struct pl_event *e, bool arrived,
                      struct pl_why *why) {
    if (c->plan.overflow) return control_broke(c, why, "its plan is longer than any can be");
    int n_decided = 0;
    for (size_t n = 0; n < c->plan.n; n++) {
        struct pl_action *a = &c->plan.action[n];
        int rc = PL_OK;
        const char *no = NULL;
        if (!isfinite(a->factor))
            return control_broke(c, why, "it said a factor that is not finite");
        switch (a->verb) {
        case PL_TAKE:
        case PL_DROP:
        case PL_DEFER: rc = control_decide(c, e, a, &n_decided, why); break;
        case PL_COMMIT:
            if (c->closed.n > 0) return control_broke(c, why, "it committed twice for one event");
            if (c->view.n_taken == 0) return control_broke(c, why, "it committed an empty group");
            control_do_commit(c, a);
            break;
        case PL_START: rc = control_do_start(c, a, e->now_ns, why); break;
        case PL_CANCEL: rc = control_do_cancel(c, a, e->now_ns, why); break;
        case PL_STOP: c->stopped = true; break;
        default: no = pl_replicas_exchange(c->replicas, a); break; /* an exchange */
        }
        if (no) return control_broke(c, why, no);
        if (rc) return rc;
    }
    if (arrived && n_decided == 0)
        return control_broke(c, why, "it neither took nor dropped an arrival");
    int rc = control_do_timer(c, why);
    if (rc) return rc;
    if (c->view.n_alive == 0) c->view.timer_ns = PL_NO_TIMER; /* nobody is left to wait for it */
    if (c->view.n_alive > 0 && pl_n_busy(&c->view) == 0 && c->view.timer_ns == PL_NO_TIMER &&
        !c->stopped)
        return control_broke(c, why, "it stalled: nobody is busy");
    return PL_OK;
}

/* --- events ------------------------------------------------------------------------------ */

static void control_on_join(struct pl_control *c, const struct pl_event *e) {
    struct pl_worker *w = &c->worker[e->worker];
    /* a newcomer is at the pace of the slowest, so that no barrier waits for its past */
    uint64_t slowest = c->max_clock;
    for (int i = 0; c->max_clock > 0 && i < c->view.n_workers; i++)
        if (c->worker[i].state != PL_GONE && c->worker[i].clock < slowest)
            slowest = c->worker[i].clock;
    w->clock = slowest;
    w->base = CONTROL_NO_VERSION; /* whoever comes back has lost what it held */
    c->view.n_alive++;
    control_move(c, e->worker, PL_IDLE, e->now_ns);
    if (c->replicas) pl_replicas_join(c->replicas, e->worker);
    if (c->policy->join)
        c->policy->join(c->policy_state, &c->view, e->worker, &c->plan);
    else
        pl_start(&c->plan, e->worker, PL_FETCH);
}

static void control_on_leave(struct pl_control *c, const struct pl_event *e) {
    if (c->worker[e->worker].state == PL_BUSY) {
        control_waste(c, e->worker, e->now_ns, false);
        c->fates.lost++;
    }
    struct pl_worker *w = &c->worker[e->worker];
    if (w->deferred) {
        w->deferred = false;
        c->n_deferred--;
        c->fates.lost++;
    }
    if (w->n_contributed > 0) { /* the group keeps what it gave */
        w->n_contributed = 0;
        c->view.n_contributors--;
    }
    c->view.n_alive--;
    control_move(c, e->worker, PL_GONE, e->now_ns);
    if (c->replicas) pl_replicas_leave(c->replicas, e->worker);
    if (c->policy->leave && c->view.n_alive > 0)
        c->policy->leave(c->policy_state, &c->view, e->worker, &c->plan);
}

/* The task's time is booked as useful for now; a drop moves it to wasted. */
static int control_on_arrive(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    struct pl_worker *w = &c->worker[e->worker];
    if (c->tuner->task)
        c->tuner->task(c->tuner_state, (double)(e->now_ns - w->since_ns) * 1e-9, true);
    control_move(c, e->worker, PL_IDLE, e->now_ns);
    if (c->replicas) pl_replicas_arrive(c->replicas, e->worker);
    if (++w->clock > c->max_clock) c->max_clock = w->clock;
    struct pl_arrival a = {e->worker, c->view.version - w->base, e->samples, e->loss};
    if (c->tuner->arrive) {
        struct pl_knobs before = c->view.knobs;
        c->tuner->arrive(c->tuner_state, &c->scene, &c->view, &a, &c->view.knobs);
        int rc = control_tuned(c, before, why);
        if (rc) return rc;
    }
    c->policy->arrive(c->policy_state, &c->view, &a, &c->plan);
    return PL_OK;
}

static int control_on_measured(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    if (!c->tuner->measure) return PL_OK;
    struct pl_knobs before = c->view.knobs;
    c->tuner->measure(c->tuner_state, &c->scene, &c->view, &e->measure, &c->view.knobs);
    return control_tuned(c, before, why);
}

static void control_on_reject(struct pl_control *c, const struct pl_event *e) {
    control_waste(c, e->worker, e->now_ns, false);
    control_move(c, e->worker, PL_IDLE, e->now_ns);
    if (c->replicas) pl_replicas_reject(c->replicas, e->worker);
    c->fates.rejected++;
    if (c->grid_locks.side > 0)
        pl_start_part(&c->plan, e->worker, c->worker[e->worker].row, c->worker[e->worker].col);
    else
        pl_start(&c->plan, e->worker, PL_FETCH);
}

static void control_book_arrival(struct pl_control *c, const struct pl_event *e,
                                 uint64_t spent_ns) {
    double total = (double)spent_ns * 1e-9, sent = (double)e->comm_ns * 1e-9;
    for (size_t n = 0; n < c->plan.n; n++) {
        if (c->plan.action[n].verb == PL_DROP) {
            c->time.wasted += total;
            return;
        }
    }
    if (sent > total) sent = total;
    c->time.communication += sent;
    c->time.compute += total - sent;
}

int pl_control_step(struct pl_control *c, const struct pl_event *e, const struct pl_plan **plan,
                    struct pl_why *why) {
    c->plan.n = 0;
    c->plan.overflow = c->plan.timed = false;
    c->closed.n = 0;
    c->view.now_ns = e->now_ns;
    *plan = &c->plan;
    if (pl_event_has_worker(e) && (e->worker < 0 || e->worker >= c->view.n_workers))
        return pl_fail(why, PL_EUSAGE, "there is no worker %d; there are 1 to %d", e->worker + 1,
                       c->view.n_workers);
    bool arrived = false;
    uint64_t spent_ns = 0;
    int rc = PL_OK;
    switch (e->kind) {
    case PL_JOIN:
        if (c->worker[e->worker].state != PL_GONE) return PL_OK;
        control_on_join(c, e);
        break;
    case PL_LEAVE:
        if (c->worker[e->worker].state == PL_GONE) return PL_OK;
        control_on_leave(c, e);
        break;
    case PL_ARRIVE:
    case PL_REJECT:
        if (!pl_control_is_current(c, e->worker, e->task)) return PL_OK;
        arrived = e->kind == PL_ARRIVE;
        spent_ns = e->now_ns - c->worker[e->worker].since_ns;
        if (arrived)
            rc = control_on_arrive(c, e, why);
        else
            control_on_reject(c, e);
        break;
    case PL_MEASURED: rc = control_on_measured(c, e, why); break;
    case PL_TIMER:
        if (e->now_ns < c->view.timer_ns) return PL_OK;
        c->view.timer_ns = PL_NO_TIMER;
        c->policy->timer(c->policy_state, &c->view, &c->plan);
        break;
    case PL_BASE_READY:
        if (!c->replicas || !pl_control_is_current(c, e->worker, e->task)) return PL_OK;
        pl_replicas_base_ready(c->replicas, e->worker);
        break;
    }
    if (!rc) rc = control_do(c, e, arrived, why);
    if (rc) return rc;
    if (arrived) control_book_arrival(c, e, spent_ns);
    for (int i = 0; i < c->n_listeners; i++) c->listener[i].log(c->listener[i].ctx, c, e, &c->plan);
    return PL_OK;
}

/* --- what hosts and reports read --------------------------------------------------------- */

const struct pl_view *pl_control_view(const struct pl_control *c) {
    return &c->view;
}

const struct pl_member *pl_control_group(const struct pl_control *c, size_t *n) {
    const struct control_group *g = c->closed.n > 0 ? &c->closed : &c->open;
    *n = g->n;
    return g->member;
}

static const struct pl_member *control_find(const struct control_group *g,
                                            const struct pl_action *a) {
    for (size_t i = g->n; i-- > 0;) /* it was among the last */
        if (g->member[i].worker == a->worker && g->member[i].task == a->task) return &g->member[i];
    return NULL;
}

const struct pl_member *pl_control_taken(const struct pl_control *c, const struct pl_action *a) {
    const struct pl_member *m = control_find(&c->open, a);
    return m ? m : control_find(&c->closed, a);
}

bool pl_control_is_current(const struct pl_control *c, int worker, uint64_t task) {
    return c->worker[worker].state == PL_BUSY && c->worker[worker].task == task;
}

bool pl_control_stopped(const struct pl_control *c) {
    return c->stopped;
}

bool pl_control_measures(const struct pl_control *c) {
    return c->tuner->measure != NULL;
}

struct pl_fates pl_control_fates(const struct pl_control *c) {
    struct pl_fates f = c->fates;
    f.running = (uint64_t)(pl_n_busy(&c->view) + c->view.n_taken + c->n_deferred);
    return f;
}

struct pl_staleness pl_control_staleness(const struct pl_control *c) {
    double n = (double)c->fates.applied;
    if (c->fates.applied == 0) return (struct pl_staleness){NAN, 0, NAN};
    return (struct pl_staleness){(double)c->lag_sum / n, c->lag_max, (double)c->n_fresh / n};
}

struct pl_worker_time pl_control_worker_time(const struct pl_control *c, uint64_t now_ns) {
    struct pl_worker_time t = c->time;
    for (int i = 0; i < c->view.n_workers; i++) {
        double seconds = (double)(now_ns - c->worker[i].since_ns) * 1e-9;
        if (c->worker[i].state == PL_IDLE) t.idle += seconds;
        if (c->worker[i].state == PL_BUSY) t.compute += seconds;
    }
    return t;
}
