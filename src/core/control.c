#include "core/control.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/control_state.h"

/* Checks what a tuner changed: only knobs that it declares, to valid values. K may exceed the
 * number of workers only if the policy counts mini-batches. */
static int control_tuned(const struct pl_control *c, struct pl_knobs before, struct pl_why *why) {
    struct pl_knobs now = c->view.knobs;
    unsigned moved =
        (now.k != before.k ? PL_USES_K : 0u) | (now.bound != before.bound ? PL_USES_BOUND : 0u);
    unsigned undeclared = moved & ~c->tuner->moves;
    char how[80];
    if (undeclared)
        snprintf(how, sizeof how, "it changed %s without declaring it",
                 undeclared & PL_USES_K ? "K" : "the bound");
    else if (moved & PL_USES_K &&
             (now.k < 1 || (now.k > c->view.n_workers && !c->policy->by_batch)))
        snprintf(how, sizeof how, "it set K to %d with %d workers", now.k, c->view.n_workers);
    else if (moved & PL_USES_BOUND && now.bound < 1)
        snprintf(how, sizeof how, "it set a staleness bound of 0");
    else
        return PL_OK;
    return pl_fail(why, PL_EPOLICY, "tuner '%s' broke its contract: %s", c->tuner->id.name, how);
}

/* --- creating ---------------------------------------------------------------------------- */

static int control_check(const struct pl_control_conf *conf, const struct pl_run_info *info,
                         struct pl_why *why) {
    const struct pl_policy *policy = conf->policy;
    const struct pl_tuner *tuner = conf->tuner;
    char spec[PL_SPEC_MAX];
    const char *no = policy->check ? policy->check(conf->policy_conf, info->n_workers) : NULL;
    if (no) {
        pl_spec_print(&policy->id, conf->policy_conf, spec, sizeof spec);
        return pl_fail(why, PL_EUSAGE, "policy '%.200s' with %d workers: %s", spec, info->n_workers,
                       no);
    }
    if (tuner->moves & ~policy->uses)
        return pl_fail(
            why, PL_EUSAGE,
            "tuner '%s' changes %s, which policy '%s' does not use; choose another tuner or policy",
            tuner->id.name, tuner->moves & ~policy->uses & PL_USES_K ? "K" : "the staleness bound",
            policy->id.name);
    if (tuner->moves & PL_USES_BOUND && policy->knobs(conf->policy_conf).bound != PL_NO_BOUND)
        return pl_fail(why, PL_EUSAGE,
                       "tuner '%s' sets the staleness bound itself; leave it out of the policy, or "
                       "use --tuner fixed to keep it",
                       tuner->id.name);
    no = tuner->check ? tuner->check(conf->tuner_conf, info) : NULL;
    if (no) {
        pl_spec_print(&tuner->id, conf->tuner_conf, spec, sizeof spec);
        return pl_fail(why, PL_EUSAGE, "tuner '%.200s' with %d workers: %s", spec, info->n_workers,
                       no);
    }
    return PL_OK;
}

/* The size of a policy's state, with the room that it asks for. */
static size_t control_policy_size(const struct pl_policy *policy, const void *conf, int n_workers) {
    return policy->state_size + (policy->room ? policy->room(conf, n_workers) : 0);
}

static void *control_state(size_t size, const void *conf, size_t conf_size) {
    void *state = calloc(1, size + 1);
    if (state && conf_size) memcpy(state, conf, conf_size);
    return state;
}

static int control_arms(struct pl_control *c, const struct pl_control_conf *conf,
                        struct pl_why *why) {
    c->chosen.arm = -1;
    if (!c->tuner->arms) return PL_OK;
    int rc =
        pl_arms_new(c->tuner->arms(conf->tuner_conf), conf->n_workers, conf->seed, &c->arms, why);
    if (rc) return rc;
    c->info.arm = pl_arms_table(c->arms, &c->info.n_arms);
    c->info.current = pl_arms_find(c->arms, c->policy, c->view.knobs.k);
    return PL_OK;
}

int pl_control_new(const struct pl_control_conf *conf, struct pl_control **out,
                   struct pl_why *why) {
    const struct pl_policy *policy = conf->policy;
    const struct pl_tuner *tuner = conf->tuner;
    int n_workers = conf->n_workers;
    struct pl_knobs knobs = policy->knobs(conf->policy_conf);
    struct pl_run_info info = {
        .n_workers = n_workers, .by_batch = policy->by_batch, .k = knobs.k, .current = -1};
    int rc = control_check(conf, &info, why);
    if (rc) return rc;
    struct pl_control *c = calloc(1, sizeof *c);
    if (!c) return pl_fail(why, PL_ENOMEM, "out of memory");
    c->policy = policy;
    c->tuner = tuner;
    c->info = info;
    c->policy_size = control_policy_size(policy, conf->policy_conf, n_workers);
    c->policy_state = control_state(c->policy_size, conf->policy_conf, policy->id.conf_size);
    c->tuner_state = control_state(tuner->state_size, conf->tuner_conf, tuner->id.conf_size);
    c->worker = calloc((size_t)n_workers, sizeof *c->worker);
    c->arrival = calloc((size_t)n_workers, sizeof *c->arrival);
    c->plan.room = policy->peers ? pl_plan_room_peers(n_workers) : pl_plan_room(n_workers);
    c->plan.action = calloc(c->plan.room, sizeof *c->plan.action);
    int side = policy->grid ? policy->grid(conf->policy_conf, n_workers) : 0;
    if (pl_grid_locks_new(side, &c->grid_locks) || !c->policy_state || !c->tuner_state ||
        !c->worker || !c->arrival || !c->plan.action ||
        (policy->peers && pl_replicas_new(n_workers, &c->replicas))) {
        pl_control_free(c);
        return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", n_workers);
    }
    for (int i = 0; i < n_workers; i++) c->worker[i].prev = c->worker[i].next = -1;
    c->idle_last = c->busy_last = -1;
    pl_rng_init(&c->rng, conf->seed, PL_STREAM_POLICY, 0, 0);
    c->view = (struct pl_view){.n_workers = n_workers,
                               .knobs = knobs,
                               .worker = c->worker,
                               .idle = -1,
                               .busy = -1,
                               .timer_ns = PL_NO_TIMER,
                               .rng = &c->rng,
                               .replicas = c->replicas};
    rc = control_arms(c, conf, why);
    if (!rc && tuner->init) tuner->init(c->tuner_state, &c->info, &c->view.knobs);
    if (!rc) rc = control_tuned(c, knobs, why);
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
    pl_arms_free(c->arms);
    free(c->policy_state);
    free(c->tuner_state);
    free(c->worker);
    free(c->plan.action);
    free(c->arrival);
    free(c->member);
    free(c->listener);
    pl_timeline_free(&c->timeline);
    pl_grid_locks_free(&c->grid_locks);
    free(c);
}

int pl_control_on_event(struct pl_control *c, pl_control_log *log, void *ctx) {
    struct control_listener *grown =
        realloc(c->listener, (c->n_listeners + 1) * sizeof *c->listener);
    if (grown) c->listener = grown;
    if (!grown || pl_timeline_watch(&c->timeline, c->view.n_workers)) return PL_ENOMEM;
    c->listener[c->n_listeners++] = (struct control_listener){log, ctx};
    return PL_OK;
}

void pl_control_on_decision(struct pl_control *c, pl_control_log *log, void *ctx) {
    c->decided = (struct control_listener){log, ctx};
}

/* --- events ------------------------------------------------------------------------------ */

static void control_on_join(struct pl_control *c, const struct pl_event *e) {
    struct pl_worker *w = &c->worker[e->worker];
    /* a newcomer gets the clock of the slowest worker, so that no barrier waits for its past */
    uint64_t slowest = c->max_clock;
    for (int i = 0; c->max_clock > 0 && i < c->view.n_workers; i++)
        if (c->worker[i].state != PL_GONE && c->worker[i].clock < slowest)
            slowest = c->worker[i].clock;
    w->clock = slowest;
    w->base = CONTROL_NO_VERSION; /* a worker that returns has lost its version */
    c->view.n_alive++;
    pl_arms_moved(c->arms);
    pl_control_set_idle(c, e->worker, e->now_ns);
    pl_replicas_join(c->replicas, e->worker);
    if (c->policy->join)
        c->policy->join(c->policy_state, &c->view, e->worker, &c->plan);
    else
        pl_start(&c->plan, e->worker, PL_FETCH);
}

static void control_on_leave(struct pl_control *c, const struct pl_event *e) {
    struct pl_worker *w = &c->worker[e->worker];
    if (w->state == PL_BUSY) {
        pl_timeline_wasted(&c->timeline, e->worker, w, e->now_ns, "lost");
        pl_control_end_busy(c, w);
        c->timeline.fates.lost++;
    } else {
        pl_control_end_idle(c, e->worker, e->now_ns);
    }
    if (w->deferred) {
        const struct control_arrival *a = &c->arrival[e->worker];
        pl_timeline_revise(&c->timeline, e->worker, w->task, a->took_ns, a->comm_ns, "lost");
        c->timeline.fates.lost++;
        w->deferred = false;
        c->n_deferred--;
    }
    if (w->n_contributed > 0) { /* its members stay in the group */
        w->n_contributed = 0;
        c->view.n_contributors--;
    }
    c->view.n_alive--;
    pl_arms_moved(c->arms);
    w->state = PL_GONE;
    w->since_ns = e->now_ns;
    w->prev = w->next = -1;
    pl_replicas_leave(c->replicas, e->worker);
    if (c->policy->leave && c->view.n_alive > 0)
        c->policy->leave(c->policy_state, &c->view, e->worker, &c->plan);
}

/* Calls the tuner and the policy. */
static int control_on_arrive(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    struct pl_worker *w = &c->worker[e->worker];
    if (c->tuner->task) c->tuner->task(c->tuner_state, (double)c->took_ns * 1e-9, true);
    pl_arms_task(c->arms, e->worker, (double)c->took_ns * 1e-9, true);
    pl_control_end_busy(c, w);
    pl_control_set_idle(c, e->worker, e->now_ns);
    if (c->replicas) pl_replicas_arrive(c->replicas, e->worker);
    w->clock++;
    c->max_clock = w->clock > c->max_clock ? w->clock : c->max_clock;
    struct pl_arrival a = {e->worker, c->view.version - w->base, e->samples, e->loss};
    if (c->tuner->arrive) {
        struct pl_knobs before = c->view.knobs;
        c->tuner->arrive(c->tuner_state, &c->info, &c->view, &a, &c->view.knobs);
        int rc = control_tuned(c, before, why);
        if (rc) return rc;
    }
    c->policy->arrive(c->policy_state, &c->view, &a, &c->plan);
    return PL_OK;
}

static int control_on_measured(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    if (!c->tuner->measure) return PL_OK;
    struct pl_knobs before = c->view.knobs;
    c->tuner->measure(c->tuner_state, &c->info, &c->view, &e->measure, &c->view.knobs);
    return control_tuned(c, before, why);
}

static void control_on_scored(struct pl_control *c, const struct pl_event *e) {
    if (c->tuner->score) c->tuner->score(c->tuner_state, &c->info, &c->view, e->loss);
}

/* --- switching ---------------------------------------------------------------------------- */

/* Asks the tuner which policy is to go on after a commit. */
static int control_choose(struct pl_control *c, struct pl_why *why) {
    int rc = pl_arms_forecast(c->arms, &c->view, why);
    if (rc) return rc;
    struct pl_switch s = c->tuner->choose(c->tuner_state, &c->info, &c->view);
    if (s.arm >= c->info.n_arms || s.arm < -1)
        return pl_fail(why, PL_EPOLICY, "tuner '%s' broke its contract: it chose arm %d of %d",
                       c->tuner->id.name, s.arm, c->info.n_arms);
    if (s.arm == c->info.current && !s.returns) s.arm = -1;
    c->chosen = s;
    return PL_OK;
}

int pl_control_use_arm(struct pl_control *c, int arm) {
    const struct pl_arm *a = &c->info.arm[arm];
    void *state = control_state(a->policy->state_size, a->conf, a->policy->id.conf_size);
    if (!state) return PL_ENOMEM;
    free(c->policy_state);
    c->policy_state = state;
    c->policy = a->policy;
    c->policy_size = a->policy->state_size;
    c->info.by_batch = a->policy->by_batch;
    c->info.current = arm;
    c->view.knobs = a->knobs;
    return PL_OK;
}

/* The policy of an arm takes over. What is being computed goes on, unless the model has returned to
 * an earlier one; workers that the policy before left idle would wait for nobody now. */
static int control_on_switch(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    bool returns = e->samples != 0;
    if (!c->arms || e->task >= (uint64_t)c->info.n_arms)
        return pl_fail(why, PL_EUSAGE, "there is no policy to switch to");
    if (pl_control_use_arm(c, (int)e->task)) return pl_fail(why, PL_ENOMEM, "out of memory");
    c->chosen = (struct pl_switch){.arm = -1};
    pl_start_idle(&c->plan, &c->view);
    if (returns) pl_restart_busy(&c->plan, &c->view);
    return PL_OK;
}

static void control_on_reject(struct pl_control *c, const struct pl_event *e) {
    pl_timeline_wasted(&c->timeline, e->worker, &c->worker[e->worker], e->now_ns, "rejected");
    c->timeline.fates.rejected++;
    pl_control_end_busy(c, &c->worker[e->worker]);
    pl_control_set_idle(c, e->worker, e->now_ns);
    pl_replicas_reject(c->replicas, e->worker);
    if (c->grid_locks.side > 0)
        pl_start_part(&c->plan, e->worker, c->worker[e->worker].row, c->worker[e->worker].col);
    else
        pl_start(&c->plan, e->worker, PL_FETCH);
}

/* The open group takes the place of the one that the event before this one committed. */
static inline void control_forget_closed(struct pl_control *c) {
    if (c->view.n_taken > 0)
        memmove(c->member, c->member + c->n_closed, (size_t)c->view.n_taken * sizeof *c->member);
    c->n_closed = 0;
}

int pl_control_decide(struct pl_control *c, const struct pl_event *e, const struct pl_plan **plan,
                      struct pl_why *why) {
    c->plan.n = 0;
    c->plan.overflow = c->plan.timed = false;
    if (c->n_closed > 0) control_forget_closed(c);
    c->plan.to_log = false;
    c->view.now_ns = e->now_ns;
    *plan = &c->plan;
    if (pl_event_has_worker(e) && !pl_control_knows(c, e->worker))
        return pl_fail(why, PL_EUSAGE, "there is no worker %d; workers are numbered 1 to %d",
                       e->worker + 1, c->view.n_workers);
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
        c->took_ns = e->now_ns - c->worker[e->worker].since_ns;
        if (e->kind == PL_ARRIVE)
            rc = control_on_arrive(c, e, why);
        else
            control_on_reject(c, e);
        break;
    case PL_MEASURED: rc = control_on_measured(c, e, why); break;
    case PL_SCORED: control_on_scored(c, e); break;
    case PL_SWITCH: rc = control_on_switch(c, e, why); break;
    case PL_TIMER:
        if (e->now_ns < c->view.timer_ns) return PL_OK;
        c->view.timer_ns = PL_NO_TIMER;
        c->policy->timer(c->policy_state, &c->view, &c->plan);
        break;
    case PL_BASE_READY:
        if (!c->replicas || !pl_control_is_current(c, e->worker, e->task)) return PL_OK;
        pl_replicas_base_ready(c->replicas, e->worker);
        break;
    case PL_END: return PL_OK;
    }
    if (!rc) rc = pl_referee(c, e, why);
    if (!rc && c->arms && c->n_closed > 0) rc = control_choose(c, why);
    if (rc) return rc;
    c->plan.to_log = c->timeline.watched;
    if (c->decided.log) c->decided.log(c->decided.ctx, c, e, &c->plan);
    return PL_OK;
}

static void control_log(const struct pl_control *c, const struct pl_event *e) {
    for (size_t i = 0; i < c->n_listeners; i++)
        c->listener[i].log(c->listener[i].ctx, c, e, &c->plan);
}

/* The commit has left members out. */
static void control_leave_out(struct pl_control *c) {
    struct pl_timeline *l = &c->timeline;
    c->leaves_out = false;
    l->lag_max = c->lag_max;
    for (size_t i = 0; i < c->n_closed; i++) {
        const struct pl_member *m = &c->member[i];
        if (!m->left_out) {
            if (m->lag > l->lag_max) l->lag_max = m->lag;
            continue;
        }
        pl_timeline_revise(l, m->worker, m->task, m->took_ns, m->comm_ns, "rejected");
        l->fates.applied--;
        l->fates.rejected++;
        l->lag_sum -= m->lag;
        l->n_fresh -= m->lag == 0;
    }
}

void pl_control_log_plan(struct pl_control *c, const struct pl_event *e) {
    if (c->leaves_out) control_leave_out(c);
    if (!c->timeline.watched) return;
    pl_timeline_event(&c->timeline, e, c->n_closed > 0);
    control_log(c, e);
    c->timeline.n_spans = 0;
}

void pl_control_end(struct pl_control *c, uint64_t now_ns) {
    const struct pl_event end = {.kind = PL_END, .now_ns = now_ns};
    if (c->timeline.ended) return;
    c->plan.n = 0;
    c->plan.timed = false;
    pl_timeline_end(&c->timeline, &c->view, now_ns);
    control_log(c, &end);
}

/* --- what hosts and reports read --------------------------------------------------------- */

const struct pl_view *pl_control_view(const struct pl_control *c) {
    return &c->view;
}

int pl_control_k(const struct pl_control *c, int present) {
    int k = c->view.knobs.k;
    return c->policy->by_batch || present == 0 || k < present ? k : present;
}

void pl_control_policy(const struct pl_control *c, char *out, size_t max) {
    out[0] = '\0';
    if (c->arms) snprintf(out, max, "%s:k=%d", c->policy->id.name, c->view.knobs.k);
}

const struct pl_member *pl_control_group(const struct pl_control *c, size_t *n) {
    *n = c->n_closed > 0 ? c->n_closed : (size_t)c->view.n_taken;
    return c->member;
}

const struct pl_member *pl_control_taken(const struct pl_control *c, const struct pl_action *a) {
    for (size_t i = pl_control_n_members(c); i-- > 0;) /* it was among the last */
        if (c->member[i].worker == a->worker && c->member[i].task == a->task) return &c->member[i];
    return NULL;
}

void pl_control_leave_out(struct pl_control *c, size_t i) {
    c->member[i].left_out = c->leaves_out = c->plan.to_log = true;
}

bool pl_control_is_current(const struct pl_control *c, int worker, uint64_t task) {
    return c->worker[worker].state == PL_BUSY && c->worker[worker].task == task;
}

bool pl_control_measures(const struct pl_control *c) {
    return c->tuner->measure != NULL;
}

bool pl_control_scores(const struct pl_control *c) {
    return c->tuner->score != NULL;
}

bool pl_control_switches(const struct pl_control *c) {
    return c->arms != NULL;
}

struct pl_switch pl_control_chosen(const struct pl_control *c) {
    return c->chosen;
}

enum pl_cancels pl_control_cancels(const struct pl_control *c) {
    return c->policy->cancels ? c->policy->cancels(c->policy_state) : PL_CANCELS_NONE;
}

const struct pl_timeline *pl_control_timeline(const struct pl_control *c) {
    return &c->timeline;
}

struct pl_fates pl_control_fates(const struct pl_control *c) {
    struct pl_fates f = c->timeline.fates;
    f.running = (uint64_t)(pl_n_busy(&c->view) + c->view.n_taken + c->n_deferred);
    return f;
}

struct pl_staleness pl_control_staleness(const struct pl_control *c) {
    const struct pl_timeline *l = &c->timeline;
    double n = (double)l->fates.applied;
    if (l->fates.applied == 0) return (struct pl_staleness){NAN, 0, NAN};
    return (struct pl_staleness){(double)l->lag_sum / n, l->lag_max, (double)l->n_fresh / n};
}

struct pl_worker_time pl_control_worker_time(const struct pl_control *c, uint64_t now_ns) {
    return pl_timeline_time(&c->timeline, &c->view, now_ns);
}
