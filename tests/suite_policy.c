/* The book, and what policies and tuners promise: see suite_policy.h. */
#include "suite_policy.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/control.h"

#define SUITE_GRID 64                 /* rows of a grid, at most */
#define N_GROUP (101 * SUITE_WORKERS) /* rounds takes a hundred each */

/* --- the book ---------------------------------------------------------------------------- */

struct entry { /* a worker */
    enum pl_worker_state state;
    uint64_t task, base, clock, since, joined, turn;
    uint64_t life;  /* who comes back is somebody else */
    bool holds;     /* a version it may keep */
    uint64_t first; /* of its tasks on that version */
    bool deferred;  /* what it brought */
    int row, col;   /* of its latest task, where there is a grid */
};

struct gift { /* a member of the group */
    int worker;
    uint64_t life, task, base, lag;
};

struct book {
    const struct pl_policy *policy;
    const struct pl_tuner *tuner;
    const void *conf, *tuner_conf;
    struct pl_control *control;
    int n, grid; /* grid 0: there is none */
    struct entry w[SUITE_WORKERS];
    uint64_t used[SUITE_GRID * SUITE_GRID]; /* blocks that were applied */
    struct gift group[N_GROUP];
    int n_group;
    uint64_t now, version, turn, max_clock, n_logged, n_steps;
    struct pl_fates fates;
    uint64_t lag_sum, lag_max, n_fresh;
    uint64_t idle, wasted, sent, computed, alive; /* ns of what has ended */
    struct pl_knobs knobs;                        /* that the decision was made by */
    uint64_t timer;                               /* that the policy set */
    bool calm;                                    /* nobody comes, goes or is rejected */
    /* of the last event */
    bool committed, dropped;
    uint64_t arrived_lag;
    struct gift closed[N_GROUP];
    int n_closed, busy_at_close;
    char why[400];
};

static bool refuse(struct book *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->why, sizeof b->why, fmt, ap);
    va_end(ap);
    return false;
}

#define MUST(b, what, ...)                                                                         \
    if (!(what)) return refuse(b, __VA_ARGS__)

static int count(const struct book *b, enum pl_worker_state state) {
    int n = 0;
    for (int i = 0; i < b->n; i++) n += b->w[i].state == state;
    return n;
}

static uint64_t slowest(const struct book *b) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state != PL_GONE && b->w[i].clock < least) least = b->w[i].clock;
    return least == UINT64_MAX ? b->max_clock : least;
}

static void move(struct book *b, int i, enum pl_worker_state to) {
    struct entry *w = &b->w[i];
    if (w->state == PL_IDLE) b->idle += b->now - w->since;
    w->state = to;
    w->since = b->now;
    w->turn = ++b->turn;
}

/* What the event itself does to a worker, before anybody decides. */
static void note_event(struct book *b, const struct pl_event *e) {
    struct entry *w = &b->w[e->worker];
    b->now = e->now_ns;
    switch (e->kind) {
    case PL_JOIN:
        w->clock = slowest(b);
        w->joined = b->now;
        w->life++;
        w->holds = false;
        move(b, e->worker, PL_IDLE);
        break;
    case PL_LEAVE:
        b->alive += b->now - w->joined;
        b->fates.lost += w->deferred;
        w->deferred = false;
        if (w->state == PL_BUSY) {
            b->fates.lost++;
            b->wasted += b->now - w->since;
        }
        move(b, e->worker, PL_GONE);
        break;
    case PL_REJECT:
        b->fates.rejected++;
        b->wasted += b->now - w->since;
        move(b, e->worker, PL_IDLE);
        break;
    case PL_ARRIVE:
        if (++w->clock > b->max_clock) b->max_clock = w->clock;
        b->arrived_lag = b->version - w->base;
        break; /* idle once its fate is known: see note_fate */
    case PL_MEASURED:
    case PL_BASE_READY: break;
    case PL_TIMER: b->timer = PL_NO_TIMER; break;
    }
}

static void note_take(struct book *b, int i) {
    struct entry *w = &b->w[i];
    b->group[b->n_group++] = (struct gift){i, w->life, w->task, w->base, b->version - w->base};
    w->deferred = false;
}

static void note_fate(struct book *b, const struct pl_event *e, enum pl_verb verb) {
    struct entry *w = &b->w[e->worker];
    uint64_t spent = b->now - w->since, sent = e->comm_ns < spent ? e->comm_ns : spent;
    w->deferred = verb == PL_DEFER;
    if (verb == PL_DROP) {
        b->wasted += spent;
        b->fates.dropped++;
        b->dropped = true;
    } else {
        b->sent += sent;
        b->computed += spent - sent;
    }
    if (verb == PL_TAKE) note_take(b, e->worker);
}

static void note_commit(struct book *b) {
    for (int i = 0; i < b->n_group; i++) {
        b->lag_sum += b->group[i].lag;
        b->n_fresh += b->group[i].lag == 0;
        if (b->group[i].lag > b->lag_max) b->lag_max = b->group[i].lag;
    }
    b->fates.applied += (uint64_t)b->n_group;
    for (int i = 0; b->grid > 0 && i < b->n_group; i++) {
        const struct entry *w = &b->w[b->group[i].worker];
        b->used[w->row * b->grid + w->col]++;
    }
    memcpy(b->closed, b->group, sizeof b->group);
    b->n_closed = b->n_group;
    b->busy_at_close = count(b, PL_BUSY);
    b->n_group = 0;
    b->version++;
    b->committed = true;
}

/* Which workers a commit may call back, as the policy declares to its host. */
static bool check_cancel(struct book *b, int i) {
    enum pl_cancels may = b->policy->cancels ? b->policy->cancels(b->conf) : PL_CANCELS_NONE;
    MUST(b, may != PL_CANCELS_NONE && b->committed, "W%d is cancelled, undeclared", i + 1);
    MUST(b, may == PL_CANCELS_ALL || b->version - b->w[i].base >= b->knobs.bound,
         "W%d is cancelled though it is not stale", i + 1);
    return true;
}

/* No block in a free row and a free column was used less than the one that is started. */
static bool check_least(struct book *b, const struct pl_action *a) {
    bool row[SUITE_GRID] = {false}, col[SUITE_GRID] = {false};
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state == PL_BUSY) row[b->w[i].row] = col[b->w[i].col] = true;
    for (int i = 0; i < b->grid; i++)
        for (int j = 0; j < b->grid; j++)
            MUST(b,
                 row[i] || col[j] || b->used[i * b->grid + j] >= b->used[a->row * b->grid + a->col],
                 "W%d is on block %d,%d, and %d,%d was used less", a->worker + 1, a->row + 1,
                 a->col + 1, i + 1, j + 1);
    return true;
}

/* Nobody is where somebody else is, and a block that will not do is done again. */
static bool check_part(struct book *b, const struct pl_event *e, const struct pl_action *a) {
    struct entry *w = &b->w[a->worker];
    if (b->grid == 0) {
        MUST(b, a->row < 0 && a->col < 0, "W%d is on a part of nothing", a->worker + 1);
        return true;
    }
    MUST(b, a->row >= 0 && a->row < b->grid && a->col >= 0 && a->col < b->grid && b->n_group == 0,
         "W%d is on block %d,%d of %d", a->worker + 1, a->row + 1, a->col + 1, b->grid);
    for (int i = 0; i < b->n; i++)
        MUST(b, b->w[i].state != PL_BUSY || (b->w[i].row != a->row && b->w[i].col != a->col),
             "W%d and W%d share a row or a column", i + 1, a->worker + 1);
    MUST(b, e->kind != PL_REJECT || (a->row == w->row && a->col == w->col), "W%d goes on elsewhere",
         a->worker + 1);
    if (strcmp(b->policy->id.name, "blocks") == 0 && e->kind != PL_REJECT && !check_least(b, a))
        return false;
    w->row = a->row;
    w->col = a->col;
    return true;
}

static bool note_plan(struct book *b, const struct pl_event *e, const struct pl_plan *plan) {
    int n_fates = 0;
    b->committed = b->dropped = false;
    /* where it arrived it is idle from now on, whatever comes of it; its time is booked by its fate
     */
    uint64_t since = e->kind == PL_ARRIVE ? b->w[e->worker].since : 0;
    if (e->kind == PL_ARRIVE) move(b, e->worker, PL_IDLE);
    for (size_t n = 0; n < plan->n; n++) {
        const struct pl_action *a = &plan->action[n];
        int i = a->worker;
        switch (a->verb) {
        case PL_TAKE:
        case PL_DROP:
        case PL_DEFER:
            MUST(b, b->n_group < N_GROUP, "a group without end");
            if (a->verb == PL_TAKE && i >= 0 && i < b->n && b->w[i].deferred) {
                MUST(b, a->task == b->w[i].task, "W%d: another task is taken", i + 1);
                note_take(b, i);
                break;
            }
            MUST(b, e->kind == PL_ARRIVE && n_fates++ == 0, "a fate for no arrival");
            MUST(b, i == e->worker && a->task == e->task, "a fate for somebody else's task");
            uint64_t idle_since = b->w[i].since;
            b->w[i].since = since;
            note_fate(b, e, a->verb);
            b->w[i].since = idle_since;
            break;
        case PL_COMMIT:
            MUST(b, b->n_group > 0 && !b->committed, "an empty or a second commit");
            note_commit(b);
            MUST(b, a->version == b->version, "commit of version %d", (int)a->version);
            break;
        case PL_START: {
            MUST(b, i >= 0 && i < b->n && b->w[i].state == PL_IDLE, "W%d cannot start", i + 1);
            struct entry *w = &b->w[i];
            MUST(b, !w->deferred, "W%d starts though its answer waits", i + 1);
            if (!w->holds || (a->from == PL_FETCH && w->base != b->version)) w->first = w->task + 1;
            MUST(b, a->from == PL_FETCH || w->holds, "W%d keeps what it has not", i + 1);
            if (a->from == PL_FETCH) w->base = b->version;
            w->holds = true;
            MUST(b, a->task == ++w->task && a->version == w->base, "W%d: wrong task", i + 1);
            if (!check_part(b, e, a)) return false;
            move(b, i, PL_BUSY);
            b->fates.started++;
            break;
        }
        case PL_CANCEL:
            MUST(b, i >= 0 && i < b->n && b->w[i].state == PL_BUSY, "W%d is not busy", i + 1);
            MUST(b, a->task == b->w[i].task, "W%d: another task is cancelled", i + 1);
            if (!check_cancel(b, i)) return false;
            b->wasted += b->now - b->w[i].since;
            b->fates.cancelled++;
            move(b, i, PL_IDLE);
            break;
        default: break; /* stops, and exchanges between peers */
        }
    }
    MUST(b, e->kind != PL_ARRIVE || n_fates == 1, "an arrival without a fate");
    MUST(b, !plan->timed || plan->timer_ns >= b->now, "a timer in the past");
    if (plan->timed) b->timer = plan->timer_ns;
    if (count(b, PL_GONE) == b->n) b->timer = PL_NO_TIMER;
    return true;
}

/* The list that begins at `first` holds the workers of that state, in order of turn. */
static bool check_list(struct book *b, const struct pl_view *v, int first,
                       enum pl_worker_state state) {
    int n = 0, prev = -1;
    for (int i = first; i >= 0; prev = i, i = pl_next(v, i)) {
        MUST(b, ++n <= b->n && b->w[i].state == state, "W%d is in the wrong list", i + 1);
        MUST(b, v->worker[i].prev == prev, "the list is broken at W%d", i + 1);
        MUST(b, prev < 0 || b->w[prev].turn < b->w[i].turn, "W%d is out of turn", i + 1);
    }
    MUST(b, n == count(b, state), "a list of %d for %d workers", n, count(b, state));
    return true;
}

static bool check_table(struct book *b) {
    const struct pl_view *v = pl_control_view(b->control);
    int n_contributors = 0;
    for (int i = 0; i < b->n; i++) {
        const struct pl_worker *w = &v->worker[i];
        const struct entry *x = &b->w[i];
        MUST(b, w->state == x->state && w->task == x->task && w->clock == x->clock,
             "W%d is not what the book says", i + 1);
        MUST(b, b->grid == 0 || x->task == 0 || (w->row == x->row && w->col == x->col),
             "W%d is in another block", i + 1);
        MUST(b,
             x->state != PL_BUSY ||
                 (w->base == x->base && w->since_ns == x->since && w->first == x->first),
             "W%d computes on another version", i + 1);
        int taken = 0;
        for (int m = 0; m < b->n_group; m++)
            taken += b->group[m].worker == i && b->group[m].life == x->life && x->state != PL_GONE;
        MUST(b, w->deferred == x->deferred && w->n_contributed == taken, "W%d gave something else",
             i + 1);
        n_contributors += taken > 0;
        MUST(b, pl_control_is_current(b->control, i, x->task) == (x->state == PL_BUSY),
             "W%d: wrong task is current", i + 1);
    }
    MUST(b,
         v->version == b->version && v->n_taken == b->n_group && v->n_workers == b->n &&
             v->n_contributors == n_contributors && v->n_alive == b->n - count(b, PL_GONE) &&
             v->n_idle == count(b, PL_IDLE),
         "the view counts otherwise");
    MUST(b, v->timer_ns == b->timer, "the timer is not that of the book");
    MUST(b, v->n_alive == 0 || pl_n_busy(v) > 0 || b->timer != PL_NO_TIMER, "nobody is busy");
    size_t n;
    const struct pl_member *m = pl_control_group(b->control, &n);
    const struct gift *g = b->committed ? b->closed : b->group;
    MUST(b, n == (size_t)(b->committed ? b->n_closed : b->n_group), "a group of another size");
    for (size_t i = 0; i < n; i++)
        MUST(b,
             m[i].worker == g[i].worker && m[i].task == g[i].task && m[i].base == g[i].base &&
                 m[i].lag == g[i].lag,
             "member %zu is another", i + 1);
    return check_list(b, v, v->idle, PL_IDLE) && check_list(b, v, v->busy, PL_BUSY);
}

static bool close_to(double a, double b) {
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

/* Every task has one fate, and every second of a worker one use. */
static bool check_sums(struct book *b) {
    struct pl_fates f = pl_control_fates(b->control), x = b->fates;
    MUST(b, f.started == f.applied + f.dropped + f.cancelled + f.lost + f.rejected + f.running,
         "fates do not sum to the tasks started");
    x.running = (uint64_t)(count(b, PL_BUSY) + b->n_group);
    for (int i = 0; i < b->n; i++) x.running += b->w[i].deferred;
    MUST(b, memcmp(&f, &x, sizeof f) == 0, "the fates are not those of the book");
    struct pl_staleness s = pl_control_staleness(b->control);
    double n = (double)f.applied;
    if (n > 0)
        MUST(b,
             s.max == b->lag_max && close_to(s.mean, (double)b->lag_sum / n) &&
                 close_to(s.fresh_fraction, (double)b->n_fresh / n),
             "staleness is not that of the book");
    uint64_t idle = b->idle, busy = b->computed, alive = b->alive;
    for (int i = 0; i < b->n; i++) {
        uint64_t since = b->now - b->w[i].since;
        if (b->w[i].state == PL_IDLE) idle += since;
        if (b->w[i].state == PL_BUSY) busy += since;
        if (b->w[i].state != PL_GONE) alive += b->now - b->w[i].joined;
    }
    struct pl_worker_time t = pl_control_worker_time(b->control, b->now);
    MUST(b,
         close_to(t.compute, (double)busy * 1e-9) && close_to(t.idle, (double)idle * 1e-9) &&
             close_to(t.communication, (double)b->sent * 1e-9) &&
             close_to(t.wasted, (double)b->wasted * 1e-9),
         "worker times are not those of the book");
    MUST(b, close_to(t.compute + t.communication + t.idle + t.wasted, (double)alive * 1e-9),
         "worker times do not sum to the time alive");
    return true;
}

/* --- promises of policies and tuners ----------------------------------------------------- */

/* The value of an option by name; `none` where there is no such option. */
static double option(const struct pl_entry *entry, const void *conf, const char *name,
                     double none) {
    for (const struct pl_opt *o = entry->opts; o->name; o++) {
        const char *at = (const char *)conf + o->offset;
        if (strcmp(o->name, name) != 0) continue;
        if (o->type == PL_OPT_BOOL) return *(const bool *)at;
        if (o->type == PL_OPT_CHOICE) return *(const int *)at;
        if (o->type == PL_OPT_COUNT) return *(const int *)at;
        if (o->type == PL_OPT_INT) return (double)*(const int64_t *)at;
        if (o->type == PL_OPT_REAL) return *(const double *)at;
        if (o->type == PL_OPT_BOUND)
            return *(const uint64_t *)at == PL_NO_BOUND ? INFINITY : (double)*(const uint64_t *)at;
    }
    return none;
}

static bool is(const struct pl_entry *entry, const char *name) {
    return strcmp(entry->name, name) == 0;
}

/* K-sync, K-async and the two that count mini-batches. */
static bool check_group(struct book *b) {
    const struct pl_entry *id = &b->policy->id;
    bool batch = b->policy->by_batch, sync = is(id, "ksync") || is(id, "kbatchsync");
    for (int i = 0; b->committed && i < b->n_closed; i++) {
        MUST(b, !sync || b->closed[i].lag == 0, "a stale gradient is applied");
        for (int j = 0; !batch && j < i; j++)
            MUST(b,
                 b->closed[i].worker != b->closed[j].worker ||
                     b->closed[i].life != b->closed[j].life,
                 "W%d is in the group twice", b->closed[i].worker + 1);
    }
    bool early = option(id, b->conf, "early", false) != 0;
    if (b->committed)
        MUST(b,
             b->n_closed == b->knobs.k ||
                 (!batch && b->n_closed < b->knobs.k && (b->busy_at_close == 0 || early)),
             "a group of %d for K = %d", b->n_closed, b->knobs.k);
    bool cancel = option(id, b->conf, "cancel", false) != 0;
    bool stop = option(id, b->conf, "stop", false) != 0;
    MUST(b, !b->dropped || (sync ? b->arrived_lag > 0 : b->arrived_lag >= b->knobs.bound),
         "a gradient is dropped that is fresh enough");
    for (int i = 0; i < b->n; i++) {
        const struct entry *w = &b->w[i];
        bool gave = false;
        for (int m = 0; m < b->n_group; m++)
            gave = gave || (b->group[m].worker == i && b->group[m].life == w->life);
        MUST(b, w->state != PL_IDLE || (!batch && gave), "W%d waits in vain", i + 1);
        MUST(b, !(b->committed && sync && cancel) || w->state != PL_BUSY || w->base == b->version,
             "W%d is left behind on an old version", i + 1);
        MUST(b,
             !(b->committed && stop) || w->state != PL_BUSY ||
                 b->version - w->base < b->knobs.bound,
             "W%d is left computing what will be too stale", i + 1);
    }
    return true;
}

/* Rounds: nobody gives twice to one update, or all have given something to it; whoever waits has
 * given already. */
static bool check_rounds(struct book *b) {
    bool any = option(&b->policy->id, b->conf, "give", 0) != 0;
    for (int i = 0; b->committed && !any && i < b->n_closed; i++)
        for (int j = 0; j < i; j++)
            MUST(b,
                 b->closed[i].worker != b->closed[j].worker ||
                     b->closed[i].life != b->closed[j].life,
                 "W%d gave twice to one update", b->closed[i].worker + 1);
    for (int i = 0; i < b->n; i++) {
        const struct entry *w = &b->w[i];
        bool gave = false, all = true;
        for (int m = 0; m < b->n_group; m++)
            gave = gave || (b->group[m].worker == i && b->group[m].life == w->life);
        int n_gave = 0;
        for (int j = 0; b->committed && j < b->n; j++) {
            bool one = false;
            for (int m = 0; m < b->n_closed; m++)
                one = one || (b->closed[m].worker == j && b->closed[m].life == b->w[j].life &&
                              b->w[j].state != PL_GONE);
            n_gave += one;
            all = all && (one || b->w[j].state == PL_GONE);
        }
        MUST(b, !b->committed || all || n_gave >= b->knobs.k, "an update is made without somebody");
        MUST(b, w->state != PL_IDLE || gave, "W%d waits in vain", i + 1);
    }
    MUST(b, !b->dropped, "something is dropped");
    return true;
}

/* How many workers that are there lag more than s behind worker i. */
static int laggards(const struct book *b, int i, double s) {
    int n = 0;
    for (int j = 0; j < b->n; j++)
        n += b->w[j].state != PL_GONE && (double)b->w[j].clock + s < (double)b->w[i].clock;
    return n;
}

/* SSP and PSP: every gradient at once, nobody more than s ahead (of those it looks at). Who polls
 * waits for a timer: for the next tick where it must pass then, for some tick where it may. */
static bool check_barrier(struct book *b) {
    const struct pl_entry *id = &b->policy->id;
    double s = option(id, b->conf, "s", NAN), least = (double)slowest(b);
    double sample = option(id, b->conf, "sample", INFINITY), poll = option(id, b->conf, "poll", 0);
    bool all = sample >= b->n - 1, polls = !all && isfinite(s) && poll > 0;
    MUST(b, polls || b->timer == PL_NO_TIMER, "a timer that nobody needs");
    MUST(b, !b->committed || b->n_closed == 1, "a group of %d", b->n_closed);
    MUST(b, !b->dropped && b->n_group == 0, "a gradient is not applied at once");
    for (int i = 0; i < b->n; i++) {
        double ahead = (double)b->w[i].clock - least;
        bool idle = b->w[i].state == PL_IDLE;
        MUST(b, !idle || ahead > s || (polls && (double)b->timer <= (double)b->now + poll * 1e9),
             "W%d waits in vain", i + 1);
        MUST(b, !idle || !polls || b->timer != PL_NO_TIMER || laggards(b, i, s) + sample > b->n - 1,
             "W%d is never to draw again", i + 1);
        MUST(b, !all || b->w[i].state != PL_BUSY || ahead <= s, "W%d runs ahead", i + 1);
    }
    return true;
}

/* Policies with a grid: every block at once. Where nobody waits, nobody is idle; where strata have
 * a barrier, all rows were used as often as each other or once more, only those that are behind are
 * worked on, whoever is idle finds none of them, and no block is used twice in an epoch. */
static bool check_blocks(struct book *b) {
    bool strata = is(&b->policy->id, "strata");
    uint64_t row[SUITE_GRID] = {0}, least = UINT64_MAX, block = UINT64_MAX;
    MUST(b, !b->committed || b->n_closed == 1, "a group of %d", b->n_closed);
    MUST(b, !b->dropped && b->n_group == 0, "a block is not applied at once");
    for (int i = 0; i < b->grid * b->grid; i++) {
        row[i / b->grid] += b->used[i];
        if (b->used[i] < block) block = b->used[i];
    }
    int n_behind = 0;
    for (int i = 0; i < b->grid; i++) least = row[i] < least ? row[i] : least;
    for (int i = 0; i < b->grid; i++) n_behind += row[i] == least;
    for (int i = 0; strata && i < b->grid * b->grid; i++)
        MUST(b, b->used[i] <= block + 1 && row[i / b->grid] <= least + 1,
             "block %d,%d runs ahead of the barrier", i / b->grid + 1, i % b->grid + 1);
    for (int i = 0; i < b->n; i++) {
        const struct entry *w = &b->w[i];
        MUST(b, w->state != PL_IDLE || (strata && n_behind == count(b, PL_BUSY)),
             "W%d waits in vain", i + 1);
        MUST(b, !strata || w->state != PL_BUSY || row[w->row] == least,
             "W%d runs ahead of the barrier", i + 1);
    }
    return true;
}

static bool check_policy(struct book *b) {
    const struct pl_entry *id = &b->policy->id;
    for (int i = 0; b->committed && i < b->n_closed; i++)
        MUST(b, b->tuner->moves & PL_USES_BOUND || b->closed[i].lag < b->knobs.bound,
             "a lag of %d is applied", (int)b->closed[i].lag);
    MUST(b, b->dropped || b->arrived_lag < b->knobs.bound, "a lag of %d is taken",
         (int)b->arrived_lag);
    struct pl_sizes size = {b->knobs.k, b->knobs.k};
    if (b->policy->groups) size = b->policy->groups(b->conf, b->n, b->knobs.k);
    if (b->calm && b->committed) /* workers that come and go change the sizes */
        MUST(b, b->n_closed >= size.least && b->n_closed <= size.most,
             "a group of %d, not of %d to %d", b->n_closed, size.least, size.most);
    if (is(id, "ksync") || is(id, "kbatchsync") || is(id, "kasync") || is(id, "kbatchasync")) {
        if (!check_group(b)) return false;
    } else if (b->grid > 0) {
        if (!check_blocks(b)) return false;
    } else if (is(id, "rounds")) {
        if (!check_rounds(b)) return false;
    } else if ((is(id, "ssp") || is(id, "psp")) && !check_barrier(b)) {
        return false;
    }
    /* ALGORITHMS 8: after U updates the staleness of what is applied, in flight or in the open
     * group sums to U(P-1) for async and K-batch-async, to U(P-K) for K-async */
    bool known = is(id, "kbatchasync") || (is(id, "kasync") && b->knobs.bound == PL_NO_BOUND);
    if (option(id, b->conf, "early", false) != 0 || option(id, b->conf, "fetch", 1) > 1)
        return true;
    if (!b->calm || !known || b->tuner->moves) return true;
    uint64_t sum = b->lag_sum;
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state == PL_BUSY) sum += b->version - b->w[i].base;
    for (int i = 0; i < b->n_group; i++) sum += b->group[i].lag;
    int k = is(id, "kasync") ? b->knobs.k : 1;
    MUST(b, sum == b->version * (uint64_t)(b->n - k), "staleness sums to %d, not U(P-%d)", (int)sum,
         k);
    return true;
}

static bool check_tuner(struct book *b, struct pl_knobs before) {
    const struct pl_knobs now = pl_control_view(b->control)->knobs;
    const struct pl_entry *id = &b->tuner->id;
    MUST(b, now.k >= before.k, "K fell from %d to %d", before.k, now.k);
    MUST(b, now.k >= 1 && now.bound >= 1, "K = %d, bound = %d", now.k, (int)now.bound);
    MUST(b, !(b->tuner->moves & PL_USES_K) || now.k <= b->n, "K = %d of %d", now.k, b->n);
    MUST(b, b->tuner->moves & PL_USES_BOUND || now.bound == before.bound, "the bound moved");
    MUST(b, b->tuner->moves & PL_USES_K || now.k == before.k, "K moved");
    if (is(id, "abs")) {
        double bound = ceil(option(id, b->tuner_conf, "scale", NAN) * b->n / now.k);
        MUST(b, (double)now.bound == fmax(1, bound), "ABS bound %d for K = %d", (int)now.bound,
             now.k);
    }
    return true;
}

/* --- random events ----------------------------------------------------------------------- */

static void count_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                        const struct pl_plan *plan) {
    (void)c, (void)e, (void)plan;
    ((struct book *)ctx)->n_logged++;
}

static bool step(struct book *b, const struct pl_event *e) {
    const struct pl_plan *plan;
    struct pl_why why = {""};
    struct pl_knobs before = pl_control_view(b->control)->knobs;
    if (pl_control_step(b->control, e, &plan, &why)) return refuse(b, "%s", why.text);
    b->knobs = e->kind == PL_MEASURED ? before : pl_control_view(b->control)->knobs;
    b->arrived_lag = 0;
    note_event(b, e);
    b->n_steps++;
    MUST(b, e->kind != PL_MEASURED || plan->n == 0, "a plan for a measurement");
    return note_plan(b, e, plan) && check_table(b) && check_sums(b) && check_policy(b) &&
           check_tuner(b, before) && (b->n_logged == b->n_steps || refuse(b, "it is not logged"));
}

/* An event that must change nothing: an answer to an old task, a second join, … */
static bool ignored(struct book *b, struct pl_event e) {
    const struct pl_plan *plan;
    struct pl_why why = {""};
    if (pl_control_step(b->control, &e, &plan, &why)) return refuse(b, "%s", why.text);
    b->committed = false;
    b->now = e.now_ns;
    MUST(b, plan->n == 0 && b->n_logged == b->n_steps, "a late answer is heard");
    return check_table(b) && check_sums(b);
}

static int pick(struct book *b, struct pl_rng *r, enum pl_worker_state state) {
    int n = count(b, state);
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
    bool alone = count(b, PL_BUSY) == 0 && pl_rng_below(r, 2);
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
    for (int i = 0; i < SUITE_EVENTS; i++)
        if (!random_event(b, &r)) return false;
    return true;
}

int suite_policy(const struct suite_setting *s, uint64_t seed, uint64_t run, struct pl_why *why) {
    static struct book b;
    b = (struct book){.policy = s->policy,
                      .tuner = s->tuner,
                      .conf = s->policy_conf,
                      .tuner_conf = s->tuner_conf,
                      .n = s->n_workers,
                      .timer = PL_NO_TIMER};
    if (s->policy->grid) b.grid = s->policy->grid(s->policy_conf, s->n_workers);
    if (b.grid > SUITE_GRID) return pl_fail(why, SUITE_BROKEN, "a grid of %d", b.grid);
    int rc = pl_control_new(s->policy, s->policy_conf, s->tuner, s->tuner_conf, s->n_workers, seed,
                            &b.control, why);
    if (rc) return rc;
    rc = drive(&b, seed, run) ? PL_OK : pl_fail(why, SUITE_BROKEN, "%s", b.why);
    pl_control_free(b.control);
    return rc;
}
