/* The life of a worker.
 *
 * A host knows who connects, who answers and who is gone. What that means is decided here, for all
 * hosts: who takes part in the run, whose silence has lasted too long, whose results are no longer
 * wanted, who may come back. Each worker is in one state, and the table below has every transition.
 * It also says whether control hears of a transition. For a policy a worker is present or it is
 * not; it does not know why.
 *
 * A worker that is disconnected keeps its place: for control it is still at work. If it returns
 * before its deadline, nothing has happened, and the result of its task counts. The deadline is
 * learnt as below, and never later than --evict says. After it the worker has left, its task is
 * lost, and if it comes all the same, it joins as a new one.
 *
 * A worker that is suspended has left, but its process is still there and may be in the middle of
 * its task: it was frozen or is quarantined. Its order is not cancelled, because its answer shows
 * that it is alive. Until then, the vectors of that task are held, so that the worker disturbs
 * no other when it wakes up. It joins again when it has answered and its quarantine is over. The
 * same holds for a worker that is evicted, except that it does not join again.
 *
 * Overdue. The patience with a worker is --evict, or learnt: ten times the longest task of any
 * worker so far, and at least ten seconds. A delay that was injected into its task is added. Time
 * in which the server itself did not listen does not count: it was stopped (Ctrl-Z, a paused
 * machine), or busy. A host with a real clock promises to say what time it is at least once per
 * beat, so whatever is longer than a beat was lost; e->lives.lost_ns is the sum, and each worker
 * remembers its value when its task started. Time in which a worker alone is excused is excused_ns:
 * while it was disconnected, and while it paused, because a client has said that it evaluates
 * between two results. A pause that lasts half an hour is overdue all the same. With a virtual
 * clock nothing is lost, and only workers that the host suspects can be overdue. */
#include "engine/life.h"

#include <math.h>
#include <stdlib.h>

#include "base/seconds.h"
#include "engine/engine_state.h"

#define LIFE_LONGEST 10            /* a task is overdue after this many times the longest */
#define LIFE_LEAST_NS 10000000000u /* and not before this */
#define LIFE_PAUSE_NS 1800e9     /* after which a worker that pauses is overdue, or --evict later */
#define LIFE_LOOK_NS 1000000000u /* between two looks at workers that may all be frozen */

/* --- the table ------------------------------------------------------------------------------- */

/* An event that has no row does not change the state. */
static const struct {
    enum pl_life from;
    enum pl_life_event event;
    struct pl_life_step step;
} life_table[] = {
    {PL_ABSENT, PL_LIFE_STARTS, {PL_STARTING, PL_LIFE_NO_MOVE}},
    {PL_ABSENT, PL_LIFE_CONNECTS, {PL_PRESENT, PL_LIFE_JOINS}},
    {PL_STARTING, PL_LIFE_CONNECTS, {PL_PRESENT, PL_LIFE_JOINS}},
    {PL_STARTING, PL_LIFE_GOES, {PL_ABSENT, PL_LIFE_NO_MOVE}},
    {PL_PRESENT, PL_LIFE_DISCONNECTS, {PL_DISCONNECTED, PL_LIFE_NO_MOVE}},
    {PL_PRESENT, PL_LIFE_GOES, {PL_ABSENT, PL_LIFE_LEAVES}},
    {PL_PRESENT, PL_LIFE_FREEZES, {PL_SUSPENDED, PL_LIFE_LEAVES}},
    {PL_PRESENT, PL_LIFE_QUARANTINES, {PL_SUSPENDED, PL_LIFE_LEAVES}},
    {PL_PRESENT, PL_LIFE_EVICTS, {PL_EVICTED, PL_LIFE_LEAVES}},
    {PL_DISCONNECTED, PL_LIFE_CONNECTS, {PL_PRESENT, PL_LIFE_NO_MOVE}},
    {PL_DISCONNECTED, PL_LIFE_ANSWERS, {PL_PRESENT, PL_LIFE_NO_MOVE}},
    {PL_DISCONNECTED, PL_LIFE_GOES, {PL_ABSENT, PL_LIFE_LEAVES}},
    {PL_DISCONNECTED, PL_LIFE_EXPIRES, {PL_ABSENT, PL_LIFE_LEAVES}},
    {PL_DISCONNECTED, PL_LIFE_QUARANTINES, {PL_ABSENT, PL_LIFE_LEAVES}},
    {PL_DISCONNECTED, PL_LIFE_EVICTS, {PL_ABSENT, PL_LIFE_LEAVES}},
    {PL_SUSPENDED, PL_LIFE_RETURNS, {PL_PRESENT, PL_LIFE_JOINS}},
    {PL_SUSPENDED, PL_LIFE_DISCONNECTS, {PL_ABSENT, PL_LIFE_NO_MOVE}},
    {PL_SUSPENDED, PL_LIFE_GOES, {PL_ABSENT, PL_LIFE_NO_MOVE}},
    {PL_EVICTED, PL_LIFE_DISCONNECTS, {PL_ABSENT, PL_LIFE_NO_MOVE}},
    {PL_EVICTED, PL_LIFE_GOES, {PL_ABSENT, PL_LIFE_NO_MOVE}},
};

struct pl_life_step pl_life_next(enum pl_life from, enum pl_life_event event) {
    for (size_t i = 0; i < sizeof life_table / sizeof *life_table; i++)
        if (life_table[i].from == from && life_table[i].event == event) return life_table[i].step;
    return (struct pl_life_step){from, PL_LIFE_NO_MOVE};
}

/* --- transitions ------------------------------------------------------------------------------ */

int pl_life_new(struct pl_engine *e) {
    e->lives.life = calloc((size_t)e->job->n_workers, sizeof *e->lives.life);
    e->lives.n_life[PL_ABSENT] = e->job->n_workers;
    e->lives.life_ns = e->conf.beat_ns > 0 && e->job->evict != 0 ? 0 : UINT64_MAX;
    return e->lives.life ? PL_OK : PL_ENOMEM;
}

void pl_life_free(struct pl_engine *e) {
    for (int i = 0; e->lives.life && i < e->job->n_workers; i++) free(e->lives.life[i].held);
    free(e->lives.life);
}

void pl_life_check_by(struct pl_engine *e, uint64_t at_ns) {
    if (at_ns < e->lives.life_ns) e->lives.life_ns = at_ns;
    pl_due_next(e);
}

/* Holds the vectors of its task. */
static int life_hold(struct pl_engine *e, int worker) {
    struct engine_life *l = &e->lives.life[worker];
    int vector[PL_TERMS + 2];
    int n = e->models.touches ? e->models.touches(e, worker, vector) : 0;
    if (n > 0 && !(l->held = malloc((size_t)n * sizeof *l->held))) return PL_ENOMEM;
    for (int i = 0; i < n; i++) {
        if (vector[i] == PL_NO_VECTOR) continue;
        pl_vector_hold(e->vectors, vector[i]);
        l->held[l->n_held++] = vector[i];
    }
    return PL_OK;
}

static void life_release(struct pl_engine *e, int worker) {
    struct engine_life *l = &e->lives.life[worker];
    while (l->n_held > 0) pl_vector_release(e->vectors, l->held[--l->n_held]);
    free(l->held);
    l->held = NULL;
}

void pl_engine_suspect(struct pl_engine *e, int worker, uint64_t now_ns) {
    if (!e->lives.life[worker].suspect) e->lives.n_suspects++;
    e->lives.life[worker].suspect = true;
    pl_life_check_by(e, now_ns);
}

static void life_clear(struct pl_engine *e, int worker) {
    if (e->lives.life[worker].suspect) e->lives.n_suspects--;
    e->lives.life[worker].suspect = false;
}

/* The place is empty, or a worker begins in it. */
static void life_begin(struct pl_engine *e, int worker) {
    life_release(e, worker);
    life_clear(e, worker);
    e->lives.life[worker].order = 0;
}

/* With a real clock no two events have the same time, so that times give their order. */
static uint64_t life_stamp(const struct pl_engine *e, uint64_t now_ns) {
    return e->conf.beat_ns > 0 && now_ns <= e->view->now_ns ? e->view->now_ns + 1 : now_ns;
}

/* It leaves. Unless it is gone, it may still be in the middle of its task. */
static int life_leave(struct pl_engine *e, int worker, uint64_t now_ns, struct pl_why *why) {
    struct engine_life *l = &e->lives.life[worker];
    const struct pl_worker *w = &e->view->worker[worker];
    bool stays = l->state == PL_SUSPENDED || l->state == PL_EVICTED || e->conf.follows;
    if (stays && w->state == PL_BUSY) {
        l->order = w->task;
        if (life_hold(e, worker)) return pl_engine_memory(e, "a suspended worker", why);
    }
    struct pl_event leave = {.kind = PL_LEAVE, .now_ns = life_stamp(e, now_ns), .worker = worker};
    int rc = pl_engine_step(e, &leave, why);
    pl_engine_forget(e, worker);
    return rc;
}

static int life_join(struct pl_engine *e, int worker, uint64_t now_ns, struct pl_why *why) {
    if (e->lives.n_suspects > 0) pl_life_check_by(e, now_ns); /* one of them may have been alone */
    struct pl_event join = {.kind = PL_JOIN, .now_ns = life_stamp(e, now_ns), .worker = worker};
    return pl_engine_step(e, &join, why);
}

/* What the host does about a worker that the engine has decided about. */
static enum pl_removal life_end(const struct pl_engine *e, int worker, enum pl_life_event event,
                                bool last) {
    const struct pl_host_ops *h = &e->conf.host;
    return h->end ? h->end(h->ctx, worker, event, last) : PL_REMAINS;
}

static int life_happens(struct pl_engine *e, int worker, enum pl_life_event event, uint64_t now_ns,
                        struct pl_why *why) {
    struct engine_life *l = &e->lives.life[worker];
    struct pl_life_step step = pl_life_next(l->state, event);
    if (step.to == l->state) return PL_OK;
    e->lives.n_life[l->state]--;
    e->lives.n_life[step.to]++;
    e->out->n_disconnected = e->lives.n_life[PL_DISCONNECTED];
    l->state = step.to;
    life_begin(e, worker);
    bool ends = step.move == PL_LIFE_LEAVES || step.to == PL_ABSENT;
    if (e->trust.standing && ends && event != PL_LIFE_QUARANTINES) pl_standing_reset(e, worker);
    if (step.move == PL_LIFE_NO_MOVE || e->lives.gathers) return PL_OK;
    return step.move == PL_LIFE_JOINS ? life_join(e, worker, now_ns, why)
                                      : life_leave(e, worker, now_ns, why);
}

/* --- what hosts report ------------------------------------------------------------------------ */

/* Time up to now that does not count for the worker's task: what the host lost, and `ns` more. */
static void life_excuse(struct pl_engine *e, int worker, uint64_t ns) {
    struct engine_life *l = &e->lives.life[worker];
    l->excused_ns += ns + e->lives.lost_ns - l->lost_ns;
    l->lost_ns = e->lives.lost_ns;
}

void pl_engine_lose(struct pl_engine *e, uint64_t ns) {
    e->lives.lost_ns += ns;
}

uint64_t pl_engine_lost_ns(const struct pl_engine *e) {
    return e->lives.lost_ns;
}

enum pl_life pl_engine_life(const struct pl_engine *e, int worker) {
    return e->lives.life[worker].state;
}

int pl_engine_n(const struct pl_engine *e, enum pl_life life) {
    return e->lives.n_life[life];
}

bool pl_engine_awaits(const struct pl_engine *e, int worker, uint64_t task) {
    return e->lives.life[worker].order == task;
}

void pl_engine_starting(struct pl_engine *e, int worker) {
    life_happens(e, worker, PL_LIFE_STARTS, e->view->now_ns, NULL); /* control is not told */
}

int pl_engine_begin(struct pl_engine *e, uint64_t now_ns, struct pl_why *why) {
    int rc = PL_OK;
    e->lives.gathers = false;
    e->lives.time_ns = now_ns;
    for (int i = 0; !rc && i < e->job->n_workers; i++)
        if (e->lives.life[i].state == PL_PRESENT) rc = life_join(e, i, now_ns, why);
    return rc;
}

/* Nanoseconds, learnt from the times of all tasks so far. */
static double life_learnt(const struct pl_engine *e) {
    double wait = LIFE_LONGEST * (double)e->lives.longest_ns;
    return wait < LIFE_LEAST_NS ? LIFE_LEAST_NS : wait;
}

/* How long after its connection was lost a worker may return. A lost connection says more than
 * silence, with which --evict may have to be patient. */
static double life_return_ns(const struct pl_engine *e) {
    double evict = e->job->evict * 1e9, learnt = life_learnt(e);
    return evict > 0 && evict < learnt ? evict : learnt;
}

int pl_engine_disconnected(struct pl_engine *e, int worker, uint64_t now_ns, struct pl_why *why) {
    struct engine_life *l = &e->lives.life[worker];
    bool was_present = l->state == PL_PRESENT;
    bool left = l->state == PL_SUSPENDED || l->state == PL_EVICTED;
    if (left) life_end(e, worker, PL_LIFE_DISCONNECTS, false);
    int rc = life_happens(e, worker, PL_LIFE_DISCONNECTS, now_ns, why);
    if (!was_present) return rc;
    l->since_ns = now_ns;
    l->was_away = true;
    life_excuse(e, worker, 0);
    pl_engine_suspect(e, worker, now_ns);
    pl_log_warn(&e->job->log, "%s lost its connection; it keeps its place for %.3g s",
                PL_WHO(&e->job->log, worker), life_return_ns(e) * 1e-9);
    return rc;
}

/* It is there; if it was disconnected, it is no longer. */
static void life_back(struct pl_engine *e, int worker, uint64_t now_ns) {
    const struct engine_life *l = &e->lives.life[worker];
    if (l->state != PL_DISCONNECTED) return;
    life_excuse(e, worker, now_ns - l->since_ns);
    life_happens(e, worker, PL_LIFE_ANSWERS, now_ns, NULL); /* control is not told */
    pl_log_note(&e->job->log, "%s is back after %.3g s", PL_WHO(&e->job->log, worker),
                pl_seconds(now_ns - l->since_ns));
}

/* When its pause began, or its task if that came later. */
static uint64_t life_paused_since(const struct pl_engine *e, int worker) {
    uint64_t paused_ns = e->lives.life[worker].paused_ns, began = e->view->worker[worker].since_ns;
    return paused_ns > began ? paused_ns : began;
}

void pl_engine_pause(struct pl_engine *e, int worker, bool yes, uint64_t now_ns) {
    struct engine_life *l = &e->lives.life[worker];
    uint64_t since_ns = life_paused_since(e, worker);
    if (!yes && l->paused_ns > 0 && now_ns > since_ns) l->excused_ns += now_ns - since_ns;
    l->paused_ns = !yes ? 0 : l->paused_ns > 0 ? l->paused_ns : now_ns;
}

int pl_life_moved(struct pl_engine *e, const struct pl_event *event, struct pl_why *why) {
    e->lives.life[event->worker].paused_ns = 0; /* it begins */
    if (event->kind == PL_LEAVE)
        return life_happens(e, event->worker, PL_LIFE_GOES, event->now_ns, why);
    life_back(e, event->worker, event->now_ns);
    return life_happens(e, event->worker, PL_LIFE_CONNECTS, event->now_ns, why);
}

void pl_life_seen(struct pl_engine *e, int worker, uint64_t now_ns) {
    life_back(e, worker, now_ns);
    life_clear(e, worker);
}

void pl_life_started(struct pl_engine *e, int worker) {
    e->lives.life[worker].lost_ns = e->lives.lost_ns;
    e->lives.life[worker].excused_ns = 0;
    e->lives.life[worker].was_away = false;
}

uint64_t pl_life_spent(const struct pl_engine *e, int worker, uint64_t spent_ns) {
    const struct engine_life *l = &e->lives.life[worker];
    uint64_t excused_ns = l->excused_ns + e->lives.lost_ns - l->lost_ns;
    if (l->was_away) return 0; /* it was silent before that was known */
    return spent_ns > excused_ns ? spent_ns - excused_ns : 0;
}

/* A suspended worker that has answered joins again, at the end of its quarantine. */
static int life_return(struct pl_engine *e, int worker, uint64_t now_ns, struct pl_why *why) {
    const struct engine_life *l = &e->lives.life[worker];
    if (l->order > 0 || l->state != PL_SUSPENDED) return PL_OK;
    if (now_ns >= l->since_ns) return life_happens(e, worker, PL_LIFE_RETURNS, now_ns, why);
    pl_life_check_by(e, l->since_ns);
    return PL_OK;
}

int pl_life_answered(struct pl_engine *e, const struct pl_event *event, struct pl_why *why) {
    struct engine_life *l = &e->lives.life[event->worker];
    if (l->order == 0 || l->order != event->task) return PL_OK;
    l->order = 0;
    life_release(e, event->worker);
    if (l->state == PL_SUSPENDED && event->now_ns >= l->since_ns)
        pl_log_note(&e->job->log, "%s is back after %.3g s", PL_WHO(&e->job->log, event->worker),
                    pl_seconds(event->now_ns - e->view->worker[event->worker].since_ns));
    return life_return(e, event->worker, event->now_ns, why);
}

/* --- workers whose results cannot be used ----------------------------------------------------- */

int pl_life_verdicts(struct pl_engine *e, uint64_t now_ns, struct pl_why *why) {
    int rc = PL_OK, worker;
    uint64_t until_ns;
    while (!rc && pl_standing_verdict(e, &worker, &until_ns)) {
        bool evicted = until_ns == UINT64_MAX;
        enum pl_life_event event = evicted ? PL_LIFE_EVICTS : PL_LIFE_QUARANTINES;
        life_end(e, worker, event, false);
        rc = life_happens(e, worker, event, now_ns, why);
        e->lives.life[worker].since_ns = until_ns;
        if (!rc) rc = life_return(e, worker, now_ns, why);
    }
    return rc;
}

/* --- workers that do not answer --------------------------------------------------------------- */

/* The delay that was injected into a worker's current task is no reason to wait less. */
static double life_delay(const struct pl_engine *e, int worker) {
    const struct pl_job *job = e->job;
    const struct pl_worker *w = &e->view->worker[worker];
    if (!job->delay) return 0;
    double seconds =
        pl_delay_draw(job->delay, job->seed, (uint32_t)worker, w->task, pl_job_steps(job));
    return seconds * pl_part_work(job, (struct pl_part){w->row, w->col});
}

/* `from` and that long after it, in which the host must have listened. */
static uint64_t life_after(const struct pl_engine *e, int worker, uint64_t from, double wait) {
    wait += (double)(e->lives.lost_ns - e->lives.life[worker].lost_ns);
    return wait < 9e18 - (double)from ? from + (uint64_t)llround(wait) : UINT64_MAX;
}

/* When the task of a worker is overdue; UINT64_MAX: never, as far as is known now. */
static uint64_t life_overdue(const struct pl_engine *e, int worker) {
    const struct pl_worker *w = &e->view->worker[worker];
    double evict = e->job->evict;
    bool known = evict > 0 || (evict < 0 && e->lives.longest_ns > 0);
    bool may = e->conf.beat_ns > 0 || e->lives.life[worker].suspect;
    if (w->state != PL_BUSY || !known || !may) return UINT64_MAX;
    double wait = evict > 0 ? evict * 1e9 : life_learnt(e);
    wait += life_delay(e, worker) * 1e9 + (double)e->lives.life[worker].excused_ns;
    if (e->lives.life[worker].paused_ns == 0) return life_after(e, worker, w->since_ns, wait);
    return life_after(e, worker, life_paused_since(e, worker), wait + LIFE_PAUSE_NS);
}

static int life_freeze(struct pl_engine *e, int worker, uint64_t now_ns, struct pl_why *why) {
    static const char *const then[] = {[PL_REMAINS] =
                                           "; the run continues without it until it does",
                                       [PL_RESTARTS] = "; it is ended and will be restarted",
                                       [PL_FREED] = "; its place is free"};
    /* without the last worker nothing would happen at all, unless it is replaced */
    bool last = e->view->n_alive < 2;
    enum pl_removal removal = life_end(e, worker, PL_LIFE_FREEZES, last);
    if (last && removal == PL_REMAINS) return PL_OK;
    e->out->n_frozen++;
    pl_log_warn(&e->job->log, "%s does not answer: its task has run for %.3g s%s",
                PL_WHO(&e->job->log, worker), pl_seconds(now_ns - e->view->worker[worker].since_ns),
                then[removal]);
    int rc = life_happens(e, worker, PL_LIFE_FREEZES, now_ns, why);
    e->lives.life[worker].since_ns = now_ns;
    return rc;
}

static int life_expire(struct pl_engine *e, int worker, uint64_t now_ns, struct pl_why *why) {
    e->out->n_frozen++;
    pl_log_warn(&e->job->log,
                "%s lost its connection %.3g s ago and did not return; the run continues "
                "without it",
                PL_WHO(&e->job->log, worker), pl_seconds(now_ns - e->lives.life[worker].since_ns));
    life_end(e, worker, PL_LIFE_EXPIRES, false);
    return life_happens(e, worker, PL_LIFE_EXPIRES, now_ns, why);
}

/* Does what is due about a worker, and returns when something will be. */
static int life_look(struct pl_engine *e, int worker, uint64_t now_ns, uint64_t *next_ns,
                     struct pl_why *why) {
    const struct engine_life *l = &e->lives.life[worker];
    *next_ns = UINT64_MAX;
    switch (l->state) {
    case PL_PRESENT:
        if ((*next_ns = life_overdue(e, worker)) > now_ns) return PL_OK;
        *next_ns = UINT64_MAX;
        return life_freeze(e, worker, now_ns, why);
    case PL_DISCONNECTED:
        *next_ns = life_after(e, worker, l->since_ns, life_return_ns(e));
        return *next_ns > now_ns ? PL_OK : life_expire(e, worker, now_ns, why);
    case PL_SUSPENDED:
        if (l->order == 0 && now_ns < l->since_ns) *next_ns = l->since_ns;
        return life_return(e, worker, now_ns, why);
    default: return PL_OK;
    }
}

int pl_life_time(struct pl_engine *e, uint64_t now_ns, struct pl_why *why) {
    int rc = PL_OK;
    uint64_t next_ns = UINT64_MAX, at_ns, beat_ns = e->conf.beat_ns;
    if (beat_ns > 0 && now_ns > e->lives.time_ns + beat_ns)
        e->lives.lost_ns += now_ns - e->lives.time_ns - beat_ns;
    e->lives.time_ns = now_ns;
    if (now_ns < e->lives.life_ns) return PL_OK;
    e->lives.life_ns = UINT64_MAX;
    for (int i = 0; !rc && i < e->job->n_workers; i++) {
        rc = life_look(e, i, now_ns, &at_ns, why);
        if (at_ns < next_ns) next_ns = at_ns;
    }
    if (e->conf.beat_ns > 0 && e->job->evict != 0 && now_ns + LIFE_LOOK_NS < next_ns)
        next_ns = now_ns + LIFE_LOOK_NS; /* tasks that start meanwhile */
    pl_life_check_by(e, next_ns);
    return rc;
}
