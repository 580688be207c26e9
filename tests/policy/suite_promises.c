/* What each policy and tuner promises, in two tables: see suite_book.h. */
#include <math.h>
#include <string.h>

#include "suite_book.h"

#define SUITE_DEPTH 8 /* results in a buffer, on average, before any is dropped */

#define MISSING                                                                                    \
    "%s '%s' has no row in the table of promises; add one to tests/policy/suite_promises.c, "      \
    "with a check or without"
#define GONE                                                                                       \
    "%s '%s' is in the table of promises and nowhere else; remove its row from "                   \
    "tests/policy/suite_promises.c"

/* The value of an option by name; `none` where there is no such option. */
static double option(const struct pl_entry *entry, const void *conf, const char *name,
                     double none) {
    for (const struct pl_opt *o = entry->opts; o->name; o++) {
        const char *at = (const char *)conf + o->offset;
        if (strcmp(o->name, name) != 0) continue;
        if (o->type == PL_TYPE_BOOL) return *(const bool *)at;
        if (o->type == PL_TYPE_CHOICE) return *(const int *)at;
        if (o->type == PL_TYPE_COUNT) return *(const int *)at;
        if (o->type == PL_TYPE_INT) return (double)*(const int64_t *)at;
        if (o->type == PL_TYPE_REAL) return *(const double *)at;
        if (o->type == PL_TYPE_BOUND)
            return *(const uint64_t *)at == PL_NO_BOUND ? INFINITY : (double)*(const uint64_t *)at;
    }
    return none;
}

/* K-sync, K-async and the two that count mini-batches. */
static bool check_group(struct book *b) {
    const struct pl_entry *id = &b->policy->id;
    bool batch = b->policy->by_batch, sync = b->promises->fresh;
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
    double s = option(id, b->conf, "s", NAN), least = (double)book_slowest(b);
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
    bool strata = b->promises->barrier;
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
        MUST(b, w->state != PL_IDLE || (strata && n_behind == book_count(b, PL_BUSY)),
             "W%d waits in vain", i + 1);
        MUST(b, !strata || w->state != PL_BUSY || row[w->row] == least,
             "W%d runs ahead of the barrier", i + 1);
    }
    return true;
}

/* Every result at once, by itself. */
static bool check_at_once(struct book *b) {
    MUST(b, !b->committed || b->n_closed == 1, "a group of %d", b->n_closed);
    MUST(b, !b->dropped && b->n_group == 0, "a result is not applied at once");
    return true;
}

/* Buffers: nobody waits, and an update has something from every buffer that can be filled. */
static bool check_buffers(struct book *b) {
    int n_buffers = (int)option(&b->policy->id, b->conf, "b", NAN);
    for (int i = 0; i < b->n; i++) {
        bool gave = b->w[i].state == PL_GONE || !b->committed;
        for (int m = 0; m < b->n_closed && !gave; m++)
            gave = b->closed[m].worker % n_buffers == i % n_buffers;
        MUST(b, gave, "an update is made without the buffer of W%d", i + 1);
        MUST(b, b->w[i].state != PL_IDLE, "W%d waits in vain", i + 1);
    }
    MUST(b, !b->dropped || b->n_group >= SUITE_DEPTH * n_buffers,
         "a result is dropped though there is room");
    return true;
}

static const struct policy_promises policy_table[] = {
    {.name = "ksync", .check = check_group, .fresh = true},
    {.name = "kbatchsync", .check = check_group, .fresh = true},
    {.name = "kasync", .check = check_group, .lag_law = LAG_LAW_K},
    {.name = "kbatchasync", .check = check_group, .lag_law = LAG_LAW_ONE},
    {.name = "ssp", .check = check_barrier},
    {.name = "psp", .check = check_barrier},
    {.name = "buffers", .check = check_buffers},
    {.name = "rounds", .check = check_rounds},
    {.name = "blocks", .check = check_blocks, .least_used = true},
    {.name = "strata", .check = check_blocks, .barrier = true},
    {.name = "gossip", .check = check_at_once},
    {.name = "sgp", .check = check_at_once},
    {.name = NULL},
};

const struct policy_promises *promises_of_policy(const char *name) {
    const struct policy_promises *p = policy_table;
    while (p->name && strcmp(p->name, name) != 0) p++;
    return p;
}

/* The law of lags, where it holds. */
static bool check_lags(struct book *b) {
    const struct pl_entry *id = &b->policy->id;
    if (b->promises->lag_law == LAG_LAW_NONE || b->knobs.bound != PL_NO_BOUND) return true;
    if (option(id, b->conf, "early", false) != 0 || option(id, b->conf, "fetch", 1) > 1)
        return true;
    if (!b->calm || b->tuner->moves) return true;
    uint64_t sum = b->lag_sum;
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state == PL_BUSY) sum += b->version - b->w[i].base;
    for (int i = 0; i < b->n_group; i++) sum += b->group[i].lag;
    int k = b->promises->lag_law == LAG_LAW_K ? b->knobs.k : 1;
    MUST(b, sum == b->version * (uint64_t)(b->n - k), "staleness sums to %d, not U(P-%d)", (int)sum,
         k);
    return true;
}

bool promises_check_policy(struct book *b) {
    for (int i = 0; b->committed && i < b->n_closed; i++)
        MUST(b, b->tuner->moves & PL_USES_BOUND || b->closed[i].lag < b->knobs.bound,
             "a lag of %d is applied", (int)b->closed[i].lag);
    MUST(b, b->dropped || b->arrived_lag < b->knobs.bound, "a lag of %d is taken",
         (int)b->arrived_lag);
    struct pl_sizes size = book_sizes(b, b->knobs.k);
    if (b->calm && b->committed) /* workers that come and go change the sizes */
        MUST(b, b->n_closed >= size.least && b->n_closed <= size.most,
             "a group of %d, not of %d to %d", b->n_closed, size.least, size.most);
    return (!b->promises->check || b->promises->check(b)) && check_lags(b);
}

/* --- tuners ------------------------------------------------------------------------------ */

static bool check_abs(struct book *b, struct pl_knobs now) {
    double bound = ceil(option(&b->tuner->id, b->tuner_conf, "scale", NAN) * b->n / now.k);
    MUST(b, (double)now.bound == fmax(1, bound), "ABS bound %d for K = %d", (int)now.bound, now.k);
    return true;
}

/* A row without a check: what every tuner promises is all there is to see. */
static const struct tuner_promises tuner_table[] = {
    {"fixed", NULL},         {"adasync", NULL}, {"abs", check_abs}, {"fastestk", NULL},
    {"growing-bound", NULL}, {"auto", NULL},    {NULL, NULL},
};

const struct tuner_promises *promises_of_tuner(const char *name) {
    const struct tuner_promises *t = tuner_table;
    while (t->name && strcmp(t->name, name) != 0) t++;
    return t;
}

bool promises_check_tuner(struct book *b, struct pl_knobs before) {
    const struct pl_knobs now = pl_control_view(b->control)->knobs;
    MUST(b, now.k >= before.k, "K fell from %d to %d", before.k, now.k);
    MUST(b, now.k >= 1 && now.bound >= 1, "K = %d, bound = %d", now.k, (int)now.bound);
    MUST(b, !(b->tuner->moves & PL_USES_K) || now.k <= b->n, "K = %d of %d", now.k, b->n);
    MUST(b, b->tuner->moves & PL_USES_BOUND || now.bound == before.bound, "the bound moved");
    MUST(b, b->tuner->moves & PL_USES_K || now.k == before.k, "K moved");
    return !b->tuner_promises->check || b->tuner_promises->check(b, now);
}

/* --- the tables are complete ------------------------------------------------------------- */

static bool is_in(const struct pl_family *family, const char *name) {
    const struct pl_entry *const *e = family->table;
    while (*e && strcmp((*e)->name, name) != 0) e++;
    return *e != NULL;
}

int suite_promises(const struct pl_family *policies, const struct pl_family *tuners,
                   struct pl_why *why) {
    for (const struct pl_entry *const *e = policies->table; *e; e++)
        if (!promises_of_policy((*e)->name)->name)
            return pl_fail(why, SUITE_BROKEN, MISSING, "policy", (*e)->name);
    for (const struct pl_entry *const *e = tuners->table; *e; e++)
        if (!promises_of_tuner((*e)->name)->name)
            return pl_fail(why, SUITE_BROKEN, MISSING, "tuner", (*e)->name);
    for (const struct policy_promises *p = policy_table; p->name; p++)
        if (!is_in(policies, p->name)) return pl_fail(why, SUITE_BROKEN, GONE, "policy", p->name);
    for (const struct tuner_promises *t = tuner_table; t->name; t++)
        if (!is_in(tuners, t->name)) return pl_fail(why, SUITE_BROKEN, GONE, "tuner", t->name);
    return PL_OK;
}
