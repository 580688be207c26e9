/* The suite of policies can fail: mutants, policies and tuners that are wrong in one way each, are
 * caught for the right reason. PL_TEST_SEED moves every random choice. */
#include "choices.h"
#include "core/plan.h"
#include "core/recipe.h"
#include "suite_policy.h"

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
        struct pl_choice c = choose(&pl_policy_family, spec, 6);
        struct suite_setting s = {&policy, &tuner, c.conf, NULL, 6};
        if (suite_policy(&s, test_seed, run, &why)) *last = why;
        if (strstr(last->text, found)) return true;
    }
    return false;
}

TEST(test_mutants_are_found) {
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
