/* suite_policy over the tables: every policy with every tuner, with random options, and every
 * recipe. That the suite can fail is shown by mutants: policies and tuners that are wrong in one
 * way each, and must be caught for the right reason. PL_TEST_SEED moves every random choice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan.h"
#include "core/recipe.h"
#include "seed.h"
#include "suite_policy.h"

static uint64_t seed;
static int n_rounds = 500; /* settings per pair of policy and tuner */

/* --- everything with everything ---------------------------------------------------------- */

/* "key=value,…" with values of every kind an option has. */
static void random_args(struct pl_rng *r, const struct pl_opt *o, char *out, size_t max) {
    static const char *const counts[] = {"1", "2", "50%", "75%", "all", "23"};
    static const char *const reals[] = {"0.3", "1", "2.5", "20"};
    out[0] = '\0';
    for (; o->name; o++) {
        const char *sep = out[0] ? "," : "";
        uint32_t small = pl_rng_below(r, 6), i = 0;
        if (pl_rng_below(r, 3) == 0) continue; /* the default */
        switch (o->type) {
        case PL_TYPE_INT: pl_append(out, max, "%s%s=%.0f", sep, o->name, o->min + small); break;
        case PL_TYPE_REAL:
            while (o->max > 0 && strtod(reals[small % 4], NULL) > o->max) small = (small + 1) % 4;
            pl_append(out, max, "%s%s=%s", sep, o->name, reals[small % 4]);
            break;
        case PL_TYPE_BOOL:
            pl_append(out, max, "%s%s=%s", sep, o->name, small % 2 ? "yes" : "no");
            break;
        case PL_TYPE_COUNT: pl_append(out, max, "%s%s=%s", sep, o->name, counts[small]); break;
        case PL_TYPE_BOUND:
            if (small == 5)
                pl_append(out, max, "%s%s=inf", sep, o->name);
            else
                pl_append(out, max, "%s%s=%.0f", sep, o->name, o->min + small);
            break;
        case PL_TYPE_CHOICE: {
            const char *c = o->choices, *next;
            for (i = small; i > 0 && (next = strchr(c, '|')); i--) c = next + 1;
            pl_append(out, max, "%s%s=%.*s", sep, o->name, (int)strcspn(c, "|"), c);
            break;
        }
        case PL_TYPE_TEXT:
        case PL_TYPE_LIST: break;
        }
    }
}

struct choice {
    const struct pl_entry *entry;
    void *conf;
    char spec[PL_SPEC_MAX];
};

static struct choice choose(const struct pl_family *family, const char *spec, int n) {
    struct choice c;
    struct pl_why why = {""};
    snprintf(c.spec, sizeof c.spec, "%s", spec);
    if (pl_spec_parse(family, spec, n, &c.entry, &c.conf, &why)) fail_msg("%s", why.text);
    return c;
}

/* Tries one setting: 1 it held, 0 it does not suit. Fails the test where it broke. */
static int try(const struct choice *p, const struct choice *t, int n, uint64_t run) {
    struct suite_setting s = {(const struct pl_policy *)p->entry, (const struct pl_tuner *)t->entry,
                              p->conf, t->conf, n};
    struct pl_why why = {""};
    int rc = suite_policy(&s, seed, run, &why);
    /* what does not suit is refused, by name */
    bool named = strstr(why.text, p->entry->name) || strstr(why.text, t->entry->name);
    if (rc == PL_EUSAGE && named) return 0;
    if (rc)
        fail_msg("%s with %s, %d workers, run %d of PL_TEST_SEED=%llu: %s", p->spec, t->spec, n,
                 (int)run, (unsigned long long)seed, why.text);
    return 1;
}

static int try_random(const struct pl_entry *p, const struct pl_entry *t, uint64_t run) {
    struct pl_rng r;
    char args[400], spec[500];
    struct choice c[2];
    pl_rng_init(&r, seed, PL_STREAM_TEST, 2, run);
    int n = 1 + (int)pl_rng_below(&r, SUITE_WORKERS);
    random_args(&r, p->opts, args, sizeof args);
    snprintf(spec, sizeof spec, "%s:%s", p->name, args);
    c[0] = choose(&pl_policy_family, spec, n);
    random_args(&r, t->opts, args, sizeof args);
    snprintf(spec, sizeof spec, "%s:%s", t->name, args);
    c[1] = choose(&pl_tuner_family, spec, n);
    int held = try(&c[0], &c[1], n, run);
    free(c[0].conf);
    free(c[1].conf);
    return held;
}

static void test_policies_with_tuners(void **state) {
    (void)state;
    uint64_t run = 0;
    for (const struct pl_entry *const *p = pl_policy_family.table; *p; p++)
        for (const struct pl_entry *const *t = pl_tuner_family.table; *t; t++) {
            unsigned moves = ((const struct pl_tuner *)*t)->moves;
            bool suits = (moves & ~((const struct pl_policy *)*p)->uses) == 0;
            int n_held = 0;
            for (int i = 0; i < n_rounds; i++) n_held += try_random(*p, *t, run++);
            if (suits != (n_held > 0))
                fail_msg("%s with %s held %d", (*p)->name, (*t)->name, n_held);
        }
}

static void test_recipes(void **state) {
    (void)state;
    uint64_t run = 1000000;
    for (const struct pl_entry *const *e = pl_recipe_family.table; *e; e++)
        for (int n = 1; n <= SUITE_WORKERS; n++) {
            const struct pl_recipe *recipe;
            char spec[PL_N_COLUMNS][PL_SPEC_MAX];
            assert_int_equal(pl_recipe_resolve((*e)->name, &recipe, spec, NULL), 0);
            struct choice p = choose(&pl_policy_family, spec[PL_COLUMN_POLICY], n);
            struct choice t = choose(&pl_tuner_family, spec[PL_COLUMN_TUNER], n);
            if (!try(&p, &t, n, run++)) fail_msg("%s does not suit %d workers", (*e)->name, n);
            free(p.conf);
            free(t.conf);
        }
}

/* --- mutants ----------------------------------------------------------------------------- */

/* X(name, base, options, what must be found) */
#define MUTANTS(X)                                                                                 \
    X(COMMITS_EMPTY, "ksync", "k=2", "committed an empty group")                                   \
    X(TAKES_TWICE, "ksync", "k=2", "took or dropped more than the one arrival")                    \
    X(FORGETS_ARRIVAL, "kasync", "k=2", "neither took, dropped nor deferred")                      \
    X(STARTS_BUSY, "kbatchasync", "k=2", "started a worker that is not idle")                      \
    X(STARTS_GONE, "kbatchasync", "k=2", "started a worker that is not idle")                      \
    X(STARTS_NOBODY, "kbatchasync", "k=2", "started a worker that is not idle")                    \
    X(CANCELS_IDLE, "kasync", "k=all", "cancelled a worker that is not busy")                      \
    X(CANCELS_UNDECLARED, "kbatchasync", "k=2", "is cancelled, undeclared")                        \
    X(CANCELS_FRESH, "kasync", "k=1,max_lag=9,stop=yes", "cancelled though it is not stale")       \
    X(STALLS_ON_LEAVE, "ksync", "k=all", "stalled: no worker is busy")                             \
    X(OVERFLOWS, "ksync", "k=2", "longer than any correct plan")                                   \
    X(KEEPS_NOTHING, "kbatchsync", "k=2", "keep a version it never had")                           \
    X(KEEPS_AFTER_REJOIN, "kbatchsync", "k=2", "keep a version it never had")                      \
    X(COMMITS_TWICE, "kasync", "k=1", "committed twice")                                           \
    X(TAKES_NOBODYS, "kbatchasync", "k=2", "took or dropped a result that did not arrive")         \
    X(STARTS_WAITING, "rounds", "", "started a worker whose result is still deferred")             \
    X(GIVES_TWICE, "rounds", "", "gave twice to one update")                                       \
    X(FORGETS_ROUND, "rounds", "", "waits in vain")                                                \
    X(TAKES_ON_LEAVE, "ssp", "s=2", "took or dropped a result that did not arrive")                \
    X(IGNORES_BOUND, "kasync", "k=1,max_lag=2", "a lag of 2 is applied")                           \
    X(DROPS_FRESH, "kasync", "k=1,max_lag=2", "dropped that is fresh enough")                      \
    X(RUNS_AHEAD, "ssp", "s=1", "runs ahead")                                                      \
    X(HOLDS_BACK, "ssp", "s=1", "waits in vain")                                                   \
    X(TAKES_STALE, "ksync", "k=2,cancel=no", "a stale gradient is applied")                        \
    X(FORGETS_WAITING, "kasync", "k=3", "waits in vain")                                           \
    X(CLOSES_EARLY, "kbatchasync", "k=4", "for K = 4")                                             \
    X(LEAVES_BEHIND, "ksync", "k=2", "left behind on an old version")                              \
    X(NEVER_STOPS, "kasync", "k=1,max_lag=3,stop=yes", "left computing what will be too stale")    \
    X(SAME_TWICE, "ksync", "k=3", "is in the group twice")                                         \
    X(SHARES_ROW, "blocks", "", "busy in the same row")                                            \
    X(SHARES_COLUMN, "blocks", "", "busy in the same column")                                      \
    X(STARTS_WHOLE, "blocks", "", "started a worker without a part")                               \
    X(STARTS_OUTSIDE, "strata", "", "on a part outside its grid")                                  \
    X(STARTS_EARLY, "blocks", "", "before it committed what it took")                              \
    X(STARTS_PART, "kasync", "k=1", "on a part but has no grid")                                   \
    X(TAKES_ANY, "blocks", "", "was used less")                                                    \
    X(WAITS_FOR_NOBODY, "strata", "", "ahead of the barrier")                                      \
    X(FORGETS_ROW, "strata", "grid=7", "waits in vain")                                            \
    X(SETS_PAST, "psp", "s=0,sample=1", "set a timer to a time in the past")                       \
    X(SETS_UNHEARD, "ksync", "k=2", "set a timer but has no timer function")                       \
    X(IGNORES_TIMER, "psp", "s=0,sample=4,poll=20", "stalled: no worker is busy")                  \
    X(SLEEPS_LONG, "psp", "s=0,sample=1", "waits in vain")                                         \
    X(NEVER_WAKES, "psp", "s=0,sample=1", "is never to draw again")                                \
    X(TAKES_FOREVER, "kbatchasync", "k=2", "no update is ever made: ")                             \
    X(DROPS_FOREVER, "kbatchasync", "k=2", "no update is ever made: ")                             \
    X(COMMITS_ON_REJOIN, "kbatchasync", "k=2", "no update is ever made: ")                         \
    X(TICKS_FOREVER, "psp", "", "no update is ever made: ")                                        \
    X(ZERO_K, "fixed", "", "tuner 'mutant' broke its contract: it set K to 0")                     \
    X(K_BEYOND, "fixed", "", "tuner 'mutant' broke its contract: it set K to")                     \
    X(ZERO_BOUND, "fixed", "", "it set a staleness bound of 0")                                    \
    X(MOVES_UNSAID, "fixed", "", "it changed the bound without")                                   \
    X(K_FALLS, "fixed", "", "K fell from 3 to 2")

enum wrong {
#define X(name, base, args, found) name,
    MUTANTS(X)
#undef X
};

static enum wrong wrong;
static const struct pl_policy *base;

/* Wrong in what the suite asks of everybody: found without the promises of a policy's name. */
static bool is_outside(void) {
    return wrong >= TAKES_FOREVER && wrong <= TICKS_FOREVER;
}

/* A grid of 7 rows, of which six workers may have six. */
static void mutant_part(const struct pl_view *v, const struct pl_arrival *a, struct pl_plan *p) {
    const struct pl_worker *w = &v->worker[a->worker];
    const struct pl_worker *other = v->busy >= 0 ? &v->worker[v->busy] : w;
    pl_take(p, 1);
    if (wrong == STARTS_EARLY) pl_start_part(p, a->worker, w->row, w->col);
    pl_commit(p, 1);
    switch (wrong) {
    case SHARES_ROW: pl_start_part(p, a->worker, other->row, w->col); break;
    case SHARES_COLUMN: pl_start_part(p, a->worker, w->row, other->col); break;
    case STARTS_WHOLE: pl_start(p, a->worker, PL_FETCH); break;
    case STARTS_OUTSIDE: pl_start_part(p, a->worker, 6, 0); break;
    case FORGETS_ROW:
        if (pl_n_busy(v) == 0) pl_start_part(p, a->worker, w->row, w->col);
        break;
    default: pl_start_part(p, a->worker, w->row, w->col); break;
    }
}

static void mutant_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    struct pl_arrival seen = *a;
    struct pl_view other = *v;
    switch (wrong) {
    case COMMITS_EMPTY: pl_commit(p, 1); break;
    case TAKES_TWICE: pl_take(p, 1); break;
    case STARTS_BUSY: pl_start(p, v->busy, PL_FETCH); break;
    case STARTS_NOBODY: pl_start(p, v->n_workers, PL_FETCH); break;
    case CANCELS_IDLE: pl_cancel(p, a->worker); break;
    case OVERFLOWS:
        for (int i = 0; i < 2 * v->n_workers + 4; i++) pl_drop(p);
        break;
    case TAKES_NOBODYS:
        if (v->idle >= 0) pl_take_deferred(p, v->idle, 1);
        break;
    case GIVES_TWICE:
        pl_take(p, 1);
        if (v->n_contributors + !v->worker[a->worker].n_contributed == v->n_alive) pl_commit(p, 1);
        pl_start(p, a->worker, PL_FETCH);
        return;
    case FORGETS_ROUND:
        if (v->n_contributors + 1 < v->n_alive || v->worker[a->worker].n_contributed) break;
        pl_take(p, 1);
        pl_start(p, a->worker, PL_FETCH);
        pl_commit(p, 1);
        return;
    case FORGETS_ARRIVAL: pl_start(p, a->worker, PL_FETCH); return;
    case IGNORES_BOUND:
    case TAKES_STALE: seen.lag = 0; break;
    case DROPS_FRESH: seen.lag = 7; break;
    case RUNS_AHEAD:
    case HOLDS_BACK:
        pl_take(p, 1);
        pl_commit(p, 1);
        if (wrong == RUNS_AHEAD || pl_n_busy(v) == 0) pl_start_idle(p, v);
        return;
    case FORGETS_WAITING:
        if (v->n_taken + 1 < v->knobs.k) break;
        pl_take(p, 1);
        pl_commit(p, 1);
        pl_start(p, a->worker, PL_FETCH);
        return;
    case CLOSES_EARLY: other.knobs.k--; break;
    case LEAVES_BEHIND: other.busy = v->busy >= 0 ? pl_next(v, v->busy) : -1; break;
    case NEVER_STOPS: other.busy = -1; break;
    case CANCELS_FRESH: other.knobs.bound = 1; break;
    case STARTS_PART:
        pl_take(p, 1);
        pl_commit(p, 1);
        pl_start_part(p, a->worker, 0, 0);
        return;
    case TAKES_FOREVER:
        pl_take(p, 1);
        pl_start(p, a->worker, PL_FETCH);
        return;
    case DROPS_FOREVER:
        pl_drop(p);
        pl_start(p, a->worker, PL_FETCH);
        return;
    case COMMITS_ON_REJOIN:
        pl_take(p, 1);
        if (v->n_alive == v->n_workers) pl_commit(p, 1);
        pl_start(p, a->worker, PL_FETCH);
        return;
    case TICKS_FOREVER:
        pl_take(p, 1);
        pl_commit(p, 1);
        pl_timer(p, v->now_ns + 1000000000);
        return;
    case SHARES_ROW:
    case SHARES_COLUMN:
    case STARTS_WHOLE:
    case STARTS_OUTSIDE:
    case STARTS_EARLY:
    case TAKES_ANY:
    case WAITS_FOR_NOBODY:
    case FORGETS_ROW: mutant_part(v, a, p); return;
    default: break;
    }
    base->arrive(state, &other, &seen, p);
    if (wrong == COMMITS_TWICE) pl_commit(p, 1);
    if (wrong == STARTS_WAITING && p->n == 1) pl_start(p, a->worker, PL_FETCH);
    if (wrong == SETS_PAST) pl_timer(p, v->now_ns - 1);
    if (wrong == SETS_UNHEARD) pl_timer(p, v->now_ns + 1);
    if (wrong == SLEEPS_LONG && v->timer_ns != PL_NO_TIMER) pl_timer(p, v->timer_ns + 1000000000);
    if (wrong == NEVER_WAKES && pl_n_busy(v) > 0) pl_timer(p, PL_NO_TIMER);
    if (wrong == SAME_TWICE && p->n == 1) pl_start(p, a->worker, PL_KEEP);
    if (wrong == CANCELS_UNDECLARED && v->busy >= 0) {
        pl_cancel(p, v->busy);
        pl_start(p, v->busy, PL_FETCH);
    }
}

static void mutant_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    if (base->grid) {
        base->join(state, v, worker, p);
        return;
    }
    if (wrong == COMMITS_ON_REJOIN && v->worker[worker].task > 0 && v->n_taken > 0) pl_commit(p, 1);
    bool keeps = wrong == KEEPS_NOTHING || (wrong == KEEPS_AFTER_REJOIN && v->worker[worker].task);
    pl_start(p, worker, keeps ? PL_KEEP : PL_FETCH);
}

static void mutant_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    if (wrong == STALLS_ON_LEAVE) return;
    if (wrong == TAKES_ON_LEAVE) pl_take(p, 1);
    if (wrong == STARTS_GONE) pl_start(p, worker, PL_FETCH);
    if (base->leave) base->leave(state, v, worker, p);
}

static void mutant_timer(void *state, const struct pl_view *v, struct pl_plan *p) {
    if (wrong == TICKS_FOREVER)
        pl_timer(p, v->now_ns + 1000000000);
    else if (wrong != IGNORES_TIMER || pl_n_busy(v) > 0)
        base->timer(state, v, p);
}

static void mutant_tune(void *state, const struct pl_run_info *scene, const struct pl_view *v,
                        const struct pl_arrival *a, struct pl_knobs *knobs) {
    (void)state, (void)v, (void)a;
    if (wrong == ZERO_K) knobs->k = 0;
    if (wrong == K_BEYOND) knobs->k = scene->n_workers + 1;
    if (wrong == ZERO_BOUND) knobs->bound = 0;
    if (wrong == MOVES_UNSAID) knobs->bound = 5;
    if (wrong == K_FALLS) knobs->k = 2;
}

/* Whether the suite finds it, in some run, for the reason it should; else the last reason. */
static bool is_found(const char *args, const char *found, struct pl_why *last) {
    struct pl_policy policy = *base;
    struct pl_tuner tuner = *(const struct pl_tuner *)pl_tuner_family.table[0];
    if (is_outside()) policy.id.name = "outside";
    policy.arrive = mutant_arrive;
    policy.join = mutant_join;
    policy.leave = mutant_leave;
    if (base->timer) policy.timer = mutant_timer;
    if (wrong >= ZERO_K) {
        tuner.id.name = "mutant";
        tuner.moves = wrong == MOVES_UNSAID ? PL_USES_K : PL_USES_K | PL_USES_BOUND;
        tuner.arrive = mutant_tune;
    }
    *last = (struct pl_why){"nothing"};
    for (uint64_t run = 0; run < 50; run++) {
        char spec[100];
        struct pl_why why = {""};
        snprintf(spec, sizeof spec, "%s:%s", base->id.name, args);
        struct choice c = choose(&pl_policy_family, spec, 6);
        struct suite_setting s = {&policy, &tuner, c.conf, NULL, 6};
        if (suite_policy(&s, seed, run, &why)) *last = why;
        free(c.conf);
        if (strstr(last->text, found)) return true;
    }
    return false;
}

static void test_mutants_are_found(void **state) {
    (void)state;
    static const struct {
        const char *name, *base, *args, *found;
    } row[] = {
#define X(name, base, args, found) {#name, base, args, found},
        MUTANTS(X)
#undef X
    };
    struct pl_why last;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        wrong = (enum wrong)i;
        bool tuner = wrong >= ZERO_K;
        const struct pl_entry *entry;
        assert_int_equal(
            pl_entry_find(&pl_policy_family, tuner ? "kasync" : row[i].base, &entry, NULL), 0);
        base = (const struct pl_policy *)entry;
        if (!is_found(tuner ? "k=3" : row[i].args, row[i].found, &last))
            fail_msg("the suite does not find '%s' in %s, but: %s", row[i].found, row[i].name,
                     last.text);
    }
}

/* --- policies from outside ---------------------------------------------------------------- */

/* An update every 1000 s, however many results there are by then. */
static void window_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    (void)state;
    pl_take(p, 1);
    pl_start(p, a->worker, PL_FETCH);
    if (v->timer_ns == PL_NO_TIMER) pl_timer(p, v->now_ns + 1000000000000);
}

static void window_timer(void *state, const struct pl_view *v, struct pl_plan *p) {
    (void)state, (void)v;
    pl_commit(p, 1);
}

static struct pl_sizes window_groups(const void *conf, int n_workers, int k) {
    (void)conf, (void)n_workers, (void)k;
    return (struct pl_sizes){1, 1000};
}

/* Updates of a thousand results, whatever K is. */
static void thousand_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                            struct pl_plan *p) {
    (void)state;
    pl_take(p, 1);
    if (v->n_taken + 1 == 1000) pl_commit(p, 1);
    pl_start(p, a->worker, PL_FETCH);
}

static struct pl_sizes thousand_groups(const void *conf, int n_workers, int k) {
    (void)conf, (void)n_workers, (void)k;
    return (struct pl_sizes){1000, 1000};
}

static int try_outside(const struct pl_policy *base_of, const char *args, struct pl_policy policy,
                       struct pl_why *why) {
    char spec[100];
    int rc = PL_OK;
    snprintf(spec, sizeof spec, "%s:%s", base_of->id.name, args);
    policy.id.name = "outside";
    for (int n = 1; n <= SUITE_WORKERS && !rc; n++) {
        struct choice c = choose(&pl_policy_family, spec, n);
        struct suite_setting s = {&policy, (const struct pl_tuner *)pl_tuner_family.table[0],
                                  c.conf, NULL, n};
        rc = suite_policy(&s, seed, 2000000 + (uint64_t)n, why);
        free(c.conf);
    }
    return rc;
}

/* A policy that nobody here knows passes if it is right, also one that commits by the clock, and
 * one that needs more results than its K says if it declares that. */
static void test_policies_from_outside(void **state) {
    (void)state;
    const struct pl_entry *entry;
    struct pl_why why = {""};
    for (const struct pl_entry *const *p = pl_policy_family.table; *p; p++) {
        const struct pl_policy *policy = (const struct pl_policy *)*p;
        if (try_outside(policy, "", *policy, &why)) fail_msg("%s: %s", (*p)->name, why.text);
    }
    assert_int_equal(pl_entry_find(&pl_policy_family, "kbatchasync", &entry, NULL), 0);
    const struct pl_policy *kbatchasync = (const struct pl_policy *)entry;
    struct pl_policy own = *kbatchasync;
    own.arrive = window_arrive;
    own.timer = window_timer;
    own.groups = window_groups;
    if (try_outside(kbatchasync, "k=1", own, &why)) fail_msg("window: %s", why.text);
    own = *kbatchasync;
    own.arrive = thousand_arrive;
    own.groups = thousand_groups;
    if (try_outside(kbatchasync, "k=1", own, &why)) fail_msg("thousand: %s", why.text);
    own.groups = NULL;
    assert_int_equal(try_outside(kbatchasync, "k=1", own, &why), SUITE_BROKEN);
    assert_non_null(strstr(why.text, "no update is ever made: 1 of 1 workers are there"));
}

/* Every policy and tuner has its row of promises; that one is missing, or is one too many, is
 * seen. */
static void test_promises_are_complete(void **state) {
    (void)state;
    struct pl_why why = {""};
    if (suite_promises(&pl_policy_family, &pl_tuner_family, &why)) fail_msg("%s", why.text);
    static const struct pl_entry unknown = {.name = "unknown", .opts = pl_no_opts};
    static const struct pl_entry *const one[] = {&unknown, NULL}, *const none[] = {NULL};
    struct pl_family other = pl_policy_family;
    other.table = one;
    assert_int_equal(suite_promises(&other, &pl_tuner_family, &why), SUITE_BROKEN);
    assert_non_null(strstr(why.text, "policy 'unknown' has no row in the table of promises"));
    assert_int_equal(suite_promises(&pl_policy_family, &other, &why), SUITE_BROKEN);
    assert_non_null(strstr(why.text, "tuner 'unknown' has no row in the table of promises"));
    other.table = none;
    assert_int_equal(suite_promises(&other, &pl_tuner_family, &why), SUITE_BROKEN);
    assert_non_null(strstr(why.text, "policy 'ksync' is in the table of promises and nowhere"));
    assert_int_equal(suite_promises(&pl_policy_family, &other, &why), SUITE_BROKEN);
    assert_non_null(strstr(why.text, "tuner 'fixed' is in the table of promises and nowhere"));
}

int main(void) {
    seed = seed_of_test(1);
    if (seed_sanitized()) n_rounds /= 10;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies_with_tuners), cmocka_unit_test(test_recipes),
        cmocka_unit_test(test_policies_from_outside), cmocka_unit_test(test_promises_are_complete),
        cmocka_unit_test(test_mutants_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
