#include "core/control.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/seconds.h"
#include "core/control_state.h"

/* Checks what a tuner changed: only knobs that it declares, to valid values. K may exceed the
 * number of workers only if the policy counts mini-batches. */
static int control_tuned(const struct pl_control *c, struct pl_knobs before, struct pl_why *why) {
    struct pl_knobs now = c->view.knobs;
    unsigned moved =
        (now.k != before.k ? PL_USES_K : 0u) | (now.bound != before.bound ? PL_USES_BOUND : 0u);
    unsigned undeclared = moved & ~c->method.tuner->moves;
    char how[80];
    if (undeclared)
        snprintf(how, sizeof how, "it changed %s without declaring it",
                 undeclared & PL_USES_K ? "K" : "the bound");
    else if (moved & PL_USES_K &&
             (now.k < 1 || (now.k > c->view.n_workers && !c->method.policy->by_batch)))
        snprintf(how, sizeof how, "it set K to %d with %d workers", now.k, c->view.n_workers);
    else if (moved & PL_USES_BOUND && now.bound < 1)
        snprintf(how, sizeof how, "it set a staleness bound of 0");
    else
        return PL_OK;
    return pl_fail(why, PL_EPOLICY, "tuner '%s' broke its contract: %s", c->method.tuner->id.name,
                   how);
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
    c->method.chosen.arm = -1;
    if (!c->method.tuner->arms) return PL_OK;
    int rc = pl_arms_new(c->method.tuner->arms(conf->tuner_conf), conf->n_workers, conf->seed,
                         &c->method.arms, why);
    if (rc) return rc;
    c->method.info.arm = pl_arms_table(c->method.arms, &c->method.info.n_arms);
    c->method.info.current = pl_arms_find(c->method.arms, c->method.policy, c->view.knobs.k);
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
    c->method.policy = policy;
    c->method.tuner = tuner;
    c->method.info = info;
    c->method.policy_size = control_policy_size(policy, conf->policy_conf, n_workers);
    c->method.policy_state =
        control_state(c->method.policy_size, conf->policy_conf, policy->id.conf_size);
    c->method.tuner_state = control_state(tuner->state_size, conf->tuner_conf, tuner->id.conf_size);
    c->crew.worker = calloc((size_t)n_workers, sizeof *c->crew.worker);
    c->groups.arrival = calloc((size_t)n_workers, sizeof *c->groups.arrival);
    c->plan.room = policy->peers ? pl_plan_room_peers(n_workers) : pl_plan_room(n_workers);
    c->plan.action = calloc(c->plan.room, sizeof *c->plan.action);
    int side = policy->grid ? policy->grid(conf->policy_conf, n_workers) : 0;
    if (pl_grid_locks_new(side, &c->crew.grid_locks) || !c->method.policy_state ||
        !c->method.tuner_state || !c->crew.worker || !c->groups.arrival || !c->plan.action ||
        (policy->peers && pl_replicas_new(n_workers, &c->replicas))) {
        pl_control_free(c);
        return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", n_workers);
    }
    for (int i = 0; i < n_workers; i++) c->crew.worker[i].prev = c->crew.worker[i].next = -1;
    c->crew.idle_last = c->crew.busy_last = -1;
    pl_rng_init(&c->rng, conf->seed, PL_STREAM_POLICY, 0, 0);
    c->view = (struct pl_view){.n_workers = n_workers,
                               .knobs = knobs,
                               .worker = c->crew.worker,
                               .idle = -1,
                               .busy = -1,
                               .timer_ns = PL_NO_TIMER,
                               .rng = &c->rng,
                               .replicas = c->replicas};
    rc = control_arms(c, conf, why);
    if (!rc && tuner->init) tuner->init(c->method.tuner_state, &c->method.info, &c->view.knobs);
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
    pl_arms_free(c->method.arms);
    free(c->method.policy_state);
    free(c->method.tuner_state);
    free(c->crew.worker);
    free(c->plan.action);
    free(c->groups.arrival);
    free(c->groups.member);
    free(c->log.listener);
    pl_timeline_free(&c->timeline);
    pl_grid_locks_free(&c->crew.grid_locks);
    free(c);
}

int pl_control_on_event(struct pl_control *c, pl_control_log *log, void *ctx) {
    if (!PL_RESIZE(c->log.listener, c->log.n + 1) ||
        pl_timeline_watch(&c->timeline, c->view.n_workers))
        return PL_ENOMEM;
    c->log.listener[c->log.n++] = (struct control_listener){log, ctx};
    return PL_OK;
}

void pl_control_on_decision(struct pl_control *c, pl_control_log *log, void *ctx) {
    c->log.decided = (struct control_listener){log, ctx};
}

/* --- events ------------------------------------------------------------------------------ */

static void control_on_join(struct pl_control *c, const struct pl_event *e) {
    struct pl_worker *w = &c->crew.worker[e->worker];
    /* a newcomer gets the clock of the slowest worker, so that no barrier waits for its past */
    uint64_t slowest = c->crew.max_clock;
    for (int i = 0; c->crew.max_clock > 0 && i < c->view.n_workers; i++)
        if (c->crew.worker[i].state != PL_GONE && c->crew.worker[i].clock < slowest)
            slowest = c->crew.worker[i].clock;
    w->clock = slowest;
    w->base = CONTROL_NO_VERSION; /* a worker that returns has lost its version */
    c->view.n_alive++;
    pl_arms_moved(c->method.arms);
    pl_crew_set_idle(&c->crew, &c->view, e->worker, e->now_ns);
    pl_replicas_join(c->replicas, e->worker);
    if (c->method.policy->join)
        c->method.policy->join(c->method.policy_state, &c->view, e->worker, &c->plan);
    else
        pl_start(&c->plan, e->worker, PL_FETCH);
}

static void control_on_leave(struct pl_control *c, const struct pl_event *e) {
    struct pl_worker *w = &c->crew.worker[e->worker];
    if (w->state == PL_BUSY) {
        pl_timeline_wasted(&c->timeline, e->worker, w, e->now_ns, "lost");
        pl_crew_end_busy(&c->crew, &c->view, w);
        c->timeline.fates.lost++;
    } else {
        pl_crew_end_idle(&c->crew, &c->view, &c->timeline, e->worker, e->now_ns);
    }
    if (w->deferred) {
        const struct control_arrival *a = &c->groups.arrival[e->worker];
        pl_timeline_revise(&c->timeline, e->worker, w->task, a->took_ns, a->comm_ns, "lost");
        c->timeline.fates.lost++;
        w->deferred = false;
        c->groups.n_deferred--;
    }
    if (w->n_contributed > 0) { /* its members stay in the group */
        w->n_contributed = 0;
        c->view.n_contributors--;
    }
    c->view.n_alive--;
    pl_arms_moved(c->method.arms);
    w->state = PL_GONE;
    w->since_ns = e->now_ns;
    w->prev = w->next = -1;
    pl_replicas_leave(c->replicas, e->worker);
    if (c->method.policy->leave && c->view.n_alive > 0)
        c->method.policy->leave(c->method.policy_state, &c->view, e->worker, &c->plan);
}

/* Calls the tuner and the policy. */
static int control_on_arrive(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    struct pl_worker *w = &c->crew.worker[e->worker];
    if (c->method.tuner->task)
        c->method.tuner->task(c->method.tuner_state, pl_seconds(c->took_ns), true);
    if (c->method.arms) pl_arms_task(c->method.arms, e->worker, pl_seconds(c->took_ns), true);
    pl_crew_done(&c->crew, &c->view, e->worker, e->now_ns);
    if (c->replicas) pl_replicas_arrive(c->replicas, e->worker);
    w->clock++;
    c->crew.max_clock = w->clock > c->crew.max_clock ? w->clock : c->crew.max_clock;
    struct pl_arrival a = {e->worker, c->view.version - w->base, e->samples, e->loss};
    if (c->method.tuner->arrive) {
        struct pl_knobs before = c->view.knobs;
        c->method.tuner->arrive(c->method.tuner_state, &c->method.info, &c->view, &a,
                                &c->view.knobs);
        int rc = control_tuned(c, before, why);
        if (rc) return rc;
    }
    c->method.policy->arrive(c->method.policy_state, &c->view, &a, &c->plan);
    return PL_OK;
}

static int control_on_measured(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    if (!c->method.tuner->measure) return PL_OK;
    struct pl_knobs before = c->view.knobs;
    c->method.tuner->measure(c->method.tuner_state, &c->method.info, &c->view, &e->measure,
                             &c->view.knobs);
    return control_tuned(c, before, why);
}

static void control_on_scored(struct pl_control *c, const struct pl_event *e) {
    if (c->method.tuner->score)
        c->method.tuner->score(c->method.tuner_state, &c->method.info, &c->view, e->loss);
}

/* --- switching ---------------------------------------------------------------------------- */

/* Asks the tuner which policy is to go on after a commit. */
static int control_choose(struct pl_control *c, struct pl_why *why) {
    int rc = pl_arms_forecast(c->method.arms, &c->view, why);
    if (rc) return rc;
    struct pl_switch s = c->method.tuner->choose(c->method.tuner_state, &c->method.info, &c->view);
    if (s.arm >= c->method.info.n_arms || s.arm < -1)
        return pl_fail(why, PL_EPOLICY, "tuner '%s' broke its contract: it chose arm %d of %d",
                       c->method.tuner->id.name, s.arm, c->method.info.n_arms);
    if (s.arm == c->method.info.current && !s.returns) s.arm = -1;
    c->method.chosen = s;
    return PL_OK;
}

int pl_control_use_arm(struct pl_control *c, int arm) {
    const struct pl_arm *a = &c->method.info.arm[arm];
    void *state = control_state(a->policy->state_size, a->conf, a->policy->id.conf_size);
    if (!state) return PL_ENOMEM;
    free(c->method.policy_state);
    c->method.policy_state = state;
    c->method.policy = a->policy;
    c->method.policy_size = a->policy->state_size;
    c->method.info.by_batch = a->policy->by_batch;
    c->method.info.current = arm;
    c->view.knobs = a->knobs;
    return PL_OK;
}

/* The policy of an arm takes over. What is being computed goes on, unless the model has returned to
 * an earlier one; workers that the policy before left idle would wait for ever now. */
static int control_on_switch(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    bool returns = e->samples != 0;
    if (!c->method.arms || e->task >= (uint64_t)c->method.info.n_arms)
        return pl_fail(why, PL_EUSAGE, "there is no policy to switch to");
    if (pl_control_use_arm(c, (int)e->task)) return pl_fail(why, PL_ENOMEM, "out of memory");
    c->method.chosen = (struct pl_switch){.arm = -1};
    pl_start_idle(&c->plan, &c->view);
    if (returns) pl_restart_busy(&c->plan, &c->view);
    return PL_OK;
}

static void control_on_reject(struct pl_control *c, const struct pl_event *e) {
    pl_timeline_wasted(&c->timeline, e->worker, &c->crew.worker[e->worker], e->now_ns, "rejected");
    c->timeline.fates.rejected++;
    pl_crew_done(&c->crew, &c->view, e->worker, e->now_ns);
    pl_replicas_reject(c->replicas, e->worker);
    if (c->crew.grid_locks.side > 0)
        pl_start_part(&c->plan, e->worker, c->crew.worker[e->worker].row,
                      c->crew.worker[e->worker].col);
    else
        pl_start(&c->plan, e->worker, PL_FETCH);
}

/* The open group takes the place of the one that the event before this one committed. */
static inline void control_forget_closed(struct pl_control *c) {
    if (c->view.n_taken > 0)
        memmove(c->groups.member, c->groups.member + c->groups.n_closed,
                (size_t)c->view.n_taken * sizeof *c->groups.member);
    c->groups.n_closed = 0;
}

int pl_control_decide(struct pl_control *c, const struct pl_event *e, const struct pl_plan **plan,
                      struct pl_why *why) {
    c->plan.n = 0;
    c->plan.overflow = c->plan.timed = false;
    if (c->groups.n_closed > 0) control_forget_closed(c);
    c->plan.to_log = false;
    c->view.now_ns = e->now_ns;
    *plan = &c->plan;
    if (pl_event_has_worker(e) && !pl_control_knows(c, e->worker))
        return pl_fail(why, PL_EUSAGE, "there is no worker %d; workers are numbered 1 to %d",
                       e->worker + 1, c->view.n_workers);
    int rc = PL_OK;
    switch (e->kind) {
    case PL_JOIN:
        if (c->crew.worker[e->worker].state != PL_GONE) return PL_OK;
        control_on_join(c, e);
        break;
    case PL_LEAVE:
        if (c->crew.worker[e->worker].state == PL_GONE) return PL_OK;
        control_on_leave(c, e);
        break;
    case PL_ARRIVE:
    case PL_REJECT:
        if (!pl_is_current(&c->view, e->worker, e->task)) return PL_OK;
        c->took_ns = e->now_ns - c->crew.worker[e->worker].since_ns;
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
        c->method.policy->timer(c->method.policy_state, &c->view, &c->plan);
        break;
    case PL_BASE_READY:
        if (!c->replicas || !pl_is_current(&c->view, e->worker, e->task)) return PL_OK;
        pl_replicas_base_ready(c->replicas, e->worker);
        break;
    case PL_END: return PL_OK;
    }
    if (!rc) rc = pl_referee(c, e, why);
    if (!rc && c->method.arms && c->groups.n_closed > 0) rc = control_choose(c, why);
    if (rc) return rc;
    c->plan.to_log = c->timeline.watched;
    if (c->log.decided.log) c->log.decided.log(c->log.decided.ctx, c, e, &c->plan);
    return PL_OK;
}

static void control_log(const struct pl_control *c, const struct pl_event *e) {
    for (size_t i = 0; i < c->log.n; i++)
        c->log.listener[i].log(c->log.listener[i].ctx, c, e, &c->plan);
}

/* The commit has left members out. */
static void control_leave_out(struct pl_control *c) {
    struct pl_timeline *l = &c->timeline;
    c->groups.leaves_out = false;
    l->lag_max = c->groups.lag_max;
    for (size_t i = 0; i < c->groups.n_closed; i++) {
        const struct pl_member *m = &c->groups.member[i];
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
    if (c->groups.leaves_out) control_leave_out(c);
    if (!c->timeline.watched) return;
    pl_timeline_event(&c->timeline, e, c->groups.n_closed > 0);
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
    return c->method.policy->by_batch || present == 0 || k < present ? k : present;
}

void pl_control_policy(const struct pl_control *c, char *out, size_t max) {
    out[0] = '\0';
    if (c->method.arms) snprintf(out, max, "%s:k=%d", c->method.policy->id.name, c->view.knobs.k);
}

const struct pl_member *pl_control_group(const struct pl_control *c, size_t *n) {
    *n = c->groups.n_closed > 0 ? c->groups.n_closed : (size_t)c->view.n_taken;
    return c->groups.member;
}

const struct pl_member *pl_control_taken(const struct pl_control *c, const struct pl_action *a) {
    for (size_t i = pl_control_n_members(c); i-- > 0;) /* it was among the last */
        if (c->groups.member[i].worker == a->worker && c->groups.member[i].task == a->task)
            return &c->groups.member[i];
    return NULL;
}

void pl_control_leave_out(struct pl_control *c, size_t i) {
    c->groups.member[i].left_out = c->groups.leaves_out = c->plan.to_log = true;
}

bool pl_control_measures(const struct pl_control *c) {
    return c->method.tuner->measure != NULL;
}

bool pl_control_scores(const struct pl_control *c) {
    return c->method.tuner->score != NULL;
}

bool pl_control_switches(const struct pl_control *c) {
    return c->method.arms != NULL;
}

struct pl_switch pl_control_chosen(const struct pl_control *c) {
    return c->method.chosen;
}

enum pl_cancels pl_control_cancels(const struct pl_control *c) {
    return c->method.policy->cancels ? c->method.policy->cancels(c->method.policy_state)
                                     : PL_CANCELS_NONE;
}

const struct pl_timeline *pl_control_timeline(const struct pl_control *c) {
    return &c->timeline;
}

struct pl_fates pl_control_fates(const struct pl_control *c) {
    struct pl_fates f = c->timeline.fates;
    f.running = (uint64_t)(pl_n_busy(&c->view) + c->view.n_taken + c->groups.n_deferred);
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
