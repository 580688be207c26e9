/* The book: see suite_book.h. */
#include "suite_book.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool book_refuse(struct book *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->why, sizeof b->why, fmt, ap);
    va_end(ap);
    return false;
}

int book_count(const struct book *b, enum pl_worker_state state) {
    int n = 0;
    for (int i = 0; i < b->n; i++) n += b->w[i].state == state;
    return n;
}

struct pl_sizes book_sizes(const struct book *b, int k) {
    return b->policy->groups ? b->policy->groups(b->conf, b->n, k) : (struct pl_sizes){k, k};
}

uint64_t book_slowest(const struct book *b) {
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
void book_note_event(struct book *b, const struct pl_event *e) {
    struct entry *w = &b->w[e->worker];
    b->now = e->now_ns;
    switch (e->kind) {
    case PL_JOIN:
        w->clock = book_slowest(b);
        w->joined = b->now;
        w->life++;
        w->holds = false;
        move(b, e->worker, PL_IDLE);
        break;
    case PL_LEAVE:
        b->alive += b->now - w->joined;
        if (w->deferred) { /* its time was wasted after all */
            b->fates.lost++;
            b->computed -= w->spent - w->sent;
            b->sent -= w->sent;
            b->wasted += w->spent;
        }
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
    case PL_SCORED:
    case PL_SWITCH:
    case PL_END:
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
    w->spent = spent;
    w->sent = sent;
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
    memcpy(b->closed, b->group, (size_t)b->n_group * sizeof *b->group);
    b->n_closed = b->n_group;
    b->busy_at_close = book_count(b, PL_BUSY);
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
    if (b->promises->least_used && e->kind != PL_REJECT && !check_least(b, a)) return false;
    w->row = a->row;
    w->col = a->col;
    return true;
}

bool book_note_plan(struct book *b, const struct pl_event *e, const struct pl_plan *plan) {
    int n_fates = 0;
    b->committed = b->dropped = false;
    /* it is idle from now on, whatever comes of its result; its fate books its time */
    uint64_t since = e->kind == PL_ARRIVE ? b->w[e->worker].since : 0;
    if (e->kind == PL_ARRIVE) move(b, e->worker, PL_IDLE);
    for (size_t n = 0; n < plan->n; n++) {
        const struct pl_action *a = &plan->action[n];
        int i = a->worker;
        switch (a->verb) {
        case PL_TAKE:
        case PL_DROP:
        case PL_DEFER:
            MUST(b, b->n_group < SUITE_GROUP, "a group of more than %d", SUITE_GROUP);
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
        case PL_STOP: b->stopped = true; break;
        default: break; /* exchanges between peers */
        }
    }
    MUST(b, e->kind != PL_ARRIVE || n_fates == 1, "an arrival without a fate");
    MUST(b, !plan->timed || plan->timer_ns >= b->now, "a timer in the past");
    if (plan->timed) b->timer = plan->timer_ns;
    if (book_count(b, PL_GONE) == b->n) b->timer = PL_NO_TIMER;
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
    MUST(b, n == book_count(b, state), "a list of %d for %d workers", n, book_count(b, state));
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
        MUST(b, pl_is_current(pl_control_view(b->control), i, x->task) == (x->state == PL_BUSY),
             "W%d: wrong task is current", i + 1);
    }
    MUST(b,
         v->version == b->version && v->n_taken == b->n_group && v->n_workers == b->n &&
             v->n_contributors == n_contributors && v->n_alive == b->n - book_count(b, PL_GONE) &&
             v->n_idle == book_count(b, PL_IDLE),
         "the view counts otherwise");
    MUST(b, v->timer_ns == b->timer, "the timer is not that of the book");
    MUST(b, v->n_alive == 0 || pl_n_busy(v) > 0 || b->timer != PL_NO_TIMER || b->stopped,
         "no worker is busy");
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
    x.running = (uint64_t)(book_count(b, PL_BUSY) + b->n_group);
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

bool book_check(struct book *b) {
    return check_table(b) && check_sums(b);
}
