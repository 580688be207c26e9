/* suite_policy over the tables: every policy with every tuner, with random options, every recipe,
 * and policies of other programs. That the suite can fail is shown in test_mutants.c. PL_TEST_SEED
 * moves every random choice. */
#include "core/plan.h"
#include "core/recipe.h"
#include "suite_policy.h"
#include "test.h"

#define N_ROUNDS (sanitized ? 50 : 200) /* settings per pair of policy and tuner */

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
    own(c.conf, free);
    return c;
}

/* Tries one setting: 1 it held, 0 it does not suit. Fails the test where it broke. */
static int try(const struct choice *p, const struct choice *t, int n, uint64_t run) {
    struct suite_setting s = {(const struct pl_policy *)p->entry, (const struct pl_tuner *)t->entry,
                              p->conf, t->conf, n};
    struct pl_why why = {""};
    int rc = suite_policy(&s, test_seed, run, &why);
    /* what does not suit is refused, by name */
    bool named = strstr(why.text, p->entry->name) || strstr(why.text, t->entry->name);
    if (rc == PL_EUSAGE && named) return 0;
    if (rc)
        fail_msg("%s with %s, %d workers, run %d of PL_TEST_SEED=%llu: %s", p->spec, t->spec, n,
                 (int)run, (unsigned long long)test_seed, why.text);
    return 1;
}

static int try_random(const struct pl_entry *p, const struct pl_entry *t, uint64_t run) {
    struct pl_rng r;
    char args[400], spec[500];
    struct choice c[2];
    pl_rng_init(&r, test_seed, PL_STREAM_TEST, 2, run);
    int n = 1 + (int)pl_rng_below(&r, SUITE_WORKERS);
    random_args(&r, p->opts, args, sizeof args);
    snprintf(spec, sizeof spec, "%s:%s", p->name, args);
    c[0] = choose(&pl_policy_family, spec, n);
    random_args(&r, t->opts, args, sizeof args);
    snprintf(spec, sizeof spec, "%s:%s", t->name, args);
    c[1] = choose(&pl_tuner_family, spec, n);
    int held = try(&c[0], &c[1], n, run);
    return held;
}

TEST(test_policies_with_tuners) {
    uint64_t run = 0;
    for (const struct pl_entry *const *p = pl_policy_family.table; *p; p++)
        for (const struct pl_entry *const *t = pl_tuner_family.table; *t; t++) {
            unsigned moves = ((const struct pl_tuner *)*t)->moves;
            bool suits = (moves & ~((const struct pl_policy *)*p)->uses) == 0;
            int n_held = 0;
            /* a tuner with arms runs all of them at every forecast */
            int n_rounds = ((const struct pl_tuner *)*t)->arms ? N_ROUNDS / 10 : N_ROUNDS;
            for (int i = 0; i < n_rounds; i++) n_held += try_random(*p, *t, run++);
            if (suits != (n_held > 0))
                fail_msg("%s with %s held %d", (*p)->name, (*t)->name, n_held);
        }
}

TEST(test_recipes) {
    uint64_t run = 1000000;
    for (const struct pl_entry *const *e = pl_recipe_family.table; *e; e++)
        for (int n = 1; n <= SUITE_WORKERS; n++) {
            const struct pl_recipe *recipe;
            char spec[PL_N_COLUMNS][PL_SPEC_MAX];
            assert_int_equal(pl_recipe_resolve((*e)->name, &recipe, spec, NULL), 0);
            struct choice p = choose(&pl_policy_family, spec[PL_COLUMN_POLICY], n);
            struct choice t = choose(&pl_tuner_family, spec[PL_COLUMN_TUNER], n);
            if (!try(&p, &t, n, run++)) fail_msg("%s does not suit %d workers", (*e)->name, n);
        }
}

/* --- policies from outside ---------------------------------------------------------------- */

/* An update every 1000 s, however many results there are by then. */
static void window_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    pl_take(p, 1);
    pl_start(p, a->worker, PL_FETCH);
    if (v->timer_ns == PL_NO_TIMER) pl_timer(p, v->now_ns + 1000000000000);
}

static void window_timer(void *state, const struct pl_view *v, struct pl_plan *p) {
    pl_commit(p, 1);
}

static struct pl_sizes window_groups(const void *conf, int n_workers, int k) {
    return (struct pl_sizes){1, 1000};
}

/* Updates of a thousand results, whatever K is. */
static void thousand_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                            struct pl_plan *p) {
    pl_take(p, 1);
    if (v->n_taken + 1 == 1000) pl_commit(p, 1);
    pl_start(p, a->worker, PL_FETCH);
}

static struct pl_sizes thousand_groups(const void *conf, int n_workers, int k) {
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
        rc = suite_policy(&s, test_seed, 2000000 + (uint64_t)n, why);
    }
    return rc;
}

/* A policy that nobody here knows passes if it is right, also one that commits by the clock, and
 * one that needs more results than its K says if it declares that. */
TEST(test_policies_from_outside) {
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
TEST(test_promises_are_complete) {
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
