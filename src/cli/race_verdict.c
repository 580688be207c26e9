/* What a race shows: the order of its entrants, and sentences about who was faster. The table, the
 * JSON object, race.json and the page print these, and compute none of their own. race_means.c has
 * the statistics. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "race.h"

#define VERDICT_MORE 1000 /* most seeds that a sentence asks for */

/* --- the order --------------------------------------------------------------------------- */

enum race_arrived cli_race_arrived(const struct race *r) {
    int done = 0, reached = 0;
    for (int i = 0; i < r->n; i++) {
        done += cli_race_done(r, &r->entrant[i]);
        reached += cli_race_reached(r, &r->entrant[i]);
    }
    return reached == done ? RACE_ALL : reached == 0 ? RACE_NONE : RACE_SOME;
}

const char *cli_race_sorting(const struct race *r) {
    if (!cli_race_scores(r->setup)) return "the order in which they were given";
    if (!r->target) return "training loss";
    switch (cli_race_arrived(r)) {
    case RACE_NONE: return "training loss, because no method reached the target";
    case RACE_SOME: return "time to target, then training loss";
    default: return "time to target";
    }
}

/* Whether the entrant is not ranked by its loss: a run that diverged has no meaningful one. */
static bool race_only_diverged(const struct race *r, const struct race_entrant *e) {
    return cli_race_reached(r, e) == 0 && cli_race_diverged(r, e) > 0;
}

/* Entrants that reached the target in every run are first, by time; then those that missed it in
 * some runs, fewest first; then the others by loss, and last those that diverged in some runs. */
static double race_key(const struct race *r, const struct race_entrant *e) {
    struct race_mean t = cli_race_time(r, e), some = cli_race_mean(e->to_target, r->n_seeds);
    struct race_mean l = cli_race_mean(e->loss, r->n_seeds);
    if (some.n > 0) return (t.n > 0 ? t : some).mean + 1e12 * (cli_race_done(r, e) - some.n);
    if (race_only_diverged(r, e)) return 1e30 * cli_race_diverged(r, e);
    return 1e18 * (l.n > 0 ? 1 + l.mean : 1e9);
}

int cli_race_order(const struct race *r, const struct race_entrant *order[RACE_ENTRANTS]) {
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        const struct race_entrant *e = &r->entrant[i];
        if (cli_race_done(r, e) == 0) continue;
        int j = n++;
        for (; j > 0 && race_key(r, e) < race_key(r, order[j - 1]); j--) order[j] = order[j - 1];
        order[j] = e;
    }
    return n;
}

const struct race_entrant *cli_race_baseline(const struct race *r) {
    const struct race_entrant *order[RACE_ENTRANTS];
    int n = cli_race_order(r, order);
    for (int i = 0; i < n; i++)
        if (order[i]->synchronous) return order[i];
    return NULL;
}

/* --- learning rates ---------------------------------------------------------------------- */

bool cli_race_rates_are(const struct race *r, const char **how) {
    int n_best = 0, n_given = 0, n = 0;
    for (int i = 0; i < r->n; i++) {
        const struct race_entrant *e = &r->entrant[i];
        if (cli_race_done(r, e) == 0) continue; /* it may have no rate yet */
        n++;
        n_given += cli_race_has_rate(e);
        n_best += isfinite(e->tuned);
    }
    bool one = cli_number(r->setup, "lr") > 0, all = n_best + n_given == n;
    *how = n_given == n            ? "learning rates as given"
           : one && n_given == 0   ? "one learning rate for all"
           : one                   ? "one learning rate for all that have none of their own"
           : n_best == n           ? "each method at its own best learning rate"
           : all                   ? "each method at its own best learning rate, or that of its @lr"
           : n_best + n_given == 0 ? "each method at its own default learning rate"
                                   : "some methods at their default learning rates";
    return all;
}

/* Whether learning rates may be the reason for what the race shows. */
static bool race_untuned(const struct race *r) {
    const struct race_entrant *order[RACE_ENTRANTS];
    const char *how;
    return cli_race_order(r, order) > 1 && cli_race_scores(r->setup) &&
           !cli_race_rates_are(r, &how);
}

static void race_say_rates(FILE *f, const struct race *r) {
    char delay[RACE_PATH] = "";
    pl_setup_get(r->setup, "delay", delay, sizeof delay);
    bool unknown = r->real && strcmp(delay, "auto") == 0; /* nothing can be simulated */
    fprintf(f,
            "This compares learning rates as much as methods: at other rates the order %smay "
            "differ. %s\n",
            cli_race_arrived(r) == RACE_NONE ? "" : "and the factors ",
            unknown ? "To tune, give --delay, or --rates of a simulated race."
                    : "To tune, leave out --tune no and --lr.");
}

/* --- sentences --------------------------------------------------------------------------- */

/* How far b is behind a, by seed; there is no difference at `none`. */
struct race_lead {
    struct race_mean gap;
    double none;
};

static struct race_lead race_lead(const struct race *r, const struct race_entrant *a,
                                  const struct race_entrant *b) {
    double x[RACE_SEEDS] = {0};
    if (cli_race_reached(r, a) > 0) return (struct race_lead){cli_race_factor(r, a, b), 1};
    for (int s = 0; s < r->n_seeds; s++) x[s] = b->loss[s] - a->loss[s];
    return (struct race_lead){cli_race_mean(x, r->n_seeds), 0};
}

static bool race_is_clear(struct race_lead l) {
    return l.gap.n > 1 && l.gap.low > l.none;
}

/* How many more seeds would make the difference clear if they were like those so far. */
static int race_more_seeds(struct race_lead l) {
    if (l.gap.n < 2 || !(l.gap.mean > l.none)) return VERDICT_MORE;
    bool factor = l.none > 0;
    double gap = factor ? log(l.gap.mean) : l.gap.mean, low = factor ? log(l.gap.low) : l.gap.low;
    double deviation = (gap - low) * sqrt(l.gap.n) / cli_race_t95(l.gap.n - 1);
    int n = l.gap.n;
    while (n < VERDICT_MORE && !(cli_race_t95(n - 1) * deviation / sqrt(n) < gap)) n++;
    return n < VERDICT_MORE ? n - l.gap.n : VERDICT_MORE;
}

static void race_put_mean(FILE *f, struct race_mean m) {
    fputs(m.bound == RACE_AT_LEAST ? "at least " : m.bound == RACE_AT_MOST ? "at most " : "", f);
    cli_race_put(f, 3, cli_race_shown(m), m.within, m.bound);
    if (m.bound == RACE_EXACT && isfinite(m.half)) {
        fputs(" ± ", f);
        cli_race_put(f, 2, m.half, m.within, RACE_EXACT);
    }
}

/* Names as in "a, b and c". */
static void race_put_name(FILE *f, const char *name, int i, int n) {
    fprintf(f, "%s%s", i == 0 ? "" : i == n - 1 ? " and " : ", ", name);
}

static const char *race_metric(const struct race *r) {
    return cli_number(r->setup, "target-accuracy") > 0 ? "test accuracy" : "training loss";
}

static double race_goal(const struct race *r) {
    double accuracy = cli_number(r->setup, "target-accuracy");
    return accuracy > 0 ? accuracy : cli_number(r->setup, "target-loss");
}

/* An entrant with its time to the target, or its loss at the end, as one of n. */
static void race_put_result(FILE *f, const struct race *r, const struct race_entrant *e, int i,
                            int n) {
    bool reached = cli_race_reached(r, e) > 0;
    struct race_mean m = reached ? cli_race_time(r, e) : cli_race_mean(e->loss, r->n_seeds);
    race_put_name(f, e->name, i, n);
    if (m.n == 0) return;
    fputs(" (", f);
    race_put_mean(f, m);
    fputs(!reached ? ")" : m.bound == RACE_EXACT ? " s)" : " s on average)", f);
}

/* How many times as fast one entrant was as another, before the other's name. */
static void race_put_factor(FILE *f, struct race_mean m) {
    race_put_mean(f, m);
    fputs(" times", f);
    if (m.bound == RACE_EXACT && m.low < m.high) {
        fputs(" (95 % interval ", f);
        cli_race_put(f, 3, m.low, m.within, RACE_EXACT);
        fputs(" to ", f);
        cli_race_put(f, 3, m.high, m.within, RACE_EXACT);
        fputs(")", f);
    }
    fputs(" as fast as ", f);
}

/* Begins a sentence by a word, or by what follows if that is "". The first sentence of all, which
 * a page prints in bold, says that rates were not tuned. */
static void race_begin(FILE *f, const struct race *r, const char *word) {
    bool qualified = ftell(f) == 0 && race_untuned(r);
    if (qualified) fputs("With learning rates that were not tuned, ", f);
    if (*word) fprintf(f, "%c%s", qualified ? tolower(*word) : *word, word + 1);
}

/* Entrants from the first on that cannot be told apart from it. */
static void race_say_level(FILE *f, const struct race *r, const struct race_entrant *const *order,
                           int level) {
    int seeds = cli_race_done(r, order[0]),
        more = race_more_seeds(race_lead(r, order[0], order[1]));
    race_begin(f, r, "The");
    if (cli_race_reached(r, order[0]) > 0)
        fprintf(f, " earliest to reach a %s of %g were ", race_metric(r), race_goal(r));
    else
        fputs(" lowest training losses at the end were those of ", f);
    for (int i = 0; i < level; i++) race_put_result(f, r, order[i], i, level);
    fprintf(f, ", which cannot be told apart with %d seed%s; ", seeds, seeds > 1 ? "s" : "");
    if (more < VERDICT_MORE)
        fprintf(f, "about %d more would be needed%s.\n", more,
                level > 2 ? " to tell the first two apart" : "");
    else
        fputs(seeds > 1 ? "more would hardly help.\n" : "run more with --seeds.\n", f);
}

/* What is known of one entrant. It is the only one that has a result, or has arrived, or nothing is
 * known of how far the others are behind it. */
static void race_say_alone(FILE *f, const struct race *r, const struct race_entrant *e) {
    race_begin(f, r, "");
    struct race_mean time = cli_race_time(r, e), loss = cli_race_mean(e->loss, r->n_seeds);
    int seeds = cli_race_done(r, e);
    if (cli_race_reached(r, e) > 0) {
        fprintf(f, "%s reached a %s of %g", e->name, race_metric(r), race_goal(r));
        if (time.n > 0) {
            fputs(" after ", f);
            race_put_mean(f, time);
            fputs(" s", f);
        }
    } else {
        fprintf(f, "%s had a training loss of ", e->name);
        race_put_mean(f, loss);
        fputs(" at the end", f);
    }
    fprintf(f, ", with %d seed%s.\n", seeds, seeds > 1 ? "s" : "");
}

/* The leader, or all that cannot be told apart from it; returns how many these are. */
static int race_say_first(FILE *f, const struct race *r, const struct race_entrant *const *order,
                          int n) {
    bool timed = cli_race_reached(r, order[0]) > 0;
    int level = 1;
    while (!timed && n > 1 && race_only_diverged(r, order[n - 1])) n--;
    while (timed && cli_race_reached(r, order[n - 1]) == 0) n--;
    while (level < n && race_lead(r, order[0], order[level]).gap.n > 0 &&
           !race_is_clear(race_lead(r, order[0], order[level])))
        level++;
    if (level > 1) {
        race_say_level(f, r, order, level);
        return level;
    }
    if (n == 1 || race_lead(r, order[0], order[1]).gap.n == 0) {
        race_say_alone(f, r, order[0]);
        return 1;
    }
    race_begin(f, r, "");
    race_put_result(f, r, order[0], 0, 1);
    if (timed)
        fprintf(f, " was the first to reach a %s of %g", race_metric(r), race_goal(r));
    else
        fputs(" had the lowest training loss at the end", f);
    if (timed) {
        fputs(", ", f);
        race_put_factor(f, race_lead(r, order[0], order[1]).gap);
        race_put_result(f, r, order[1], 0, 1);
    }
    int seeds = cli_race_done(r, order[0]);
    fprintf(f, ", with %d seed%s.\n", seeds, seeds > 1 ? "s" : "");
    return level;
}

/* The leader against the best synchronous entrant, if that was not said yet. */
static void race_say_baseline(FILE *f, const struct race *r,
                              const struct race_entrant *const *order, int said) {
    const struct race_entrant *base = cli_race_baseline(r);
    for (int i = 0; i < said; i++)
        if (order[i] == base) return;
    if (!base || cli_race_reached(r, order[0]) == 0) return;
    struct race_lead l = race_lead(r, order[0], base);
    if (!race_is_clear(l)) return;
    fprintf(f, "%s was ", order[0]->name);
    race_put_factor(f, l.gap);
    if (cli_race_reached(r, base) > 0)
        race_put_result(f, r, base, 0, 1);
    else
        fputs(base->name, f);
    fputs(".\n", f);
}

/* Lists the entrants that `which` chooses: "a, b and c <words>". */
static void race_say_all(FILE *f, const struct race *r, const struct race_entrant *const *order,
                         int n, bool (*which)(const struct race *, const struct race_entrant *),
                         const char *words) {
    const struct race_entrant *chosen[RACE_ENTRANTS];
    int m = 0;
    for (int i = 0; i < n; i++)
        if (which(r, order[i])) chosen[m++] = order[i];
    for (int i = 0; i < m; i++) race_put_name(f, chosen[i]->name, i, m);
    if (m) fprintf(f, " %s\n", words);
}

static bool race_never_came(const struct race *r, const struct race_entrant *e) {
    return cli_race_reached(r, e) == 0 && cli_race_diverged(r, e) == 0;
}

static bool race_always_diverged(const struct race *r, const struct race_entrant *e) {
    return cli_race_diverged(r, e) == cli_race_done(r, e);
}

static bool race_did_not_run(const struct race *r, const struct race_entrant *e) {
    return cli_race_done(r, e) == 0;
}

/* They are not in the order. */
static void race_say_absent(FILE *f, const struct race *r) {
    const struct race_entrant *all[RACE_ENTRANTS];
    for (int i = 0; i < r->n; i++) all[i] = &r->entrant[i];
    race_say_all(f, r, all, r->n, race_did_not_run, "did not run.");
}

static void race_say_missed(FILE *f, const struct race *r, const struct race_entrant *const *order,
                            int n) {
    if (n == 1)
        fprintf(f, "%s did not reach", order[0]->name);
    else
        race_begin(f, r, "No method reached");
    fprintf(f, " a %s of %g.\n", race_metric(r), race_goal(r));
}

char *cli_race_verdict(const struct race *r) {
    const struct race_entrant *order[RACE_ENTRANTS];
    int n = cli_race_order(r, order), said = 0;
    char *text = NULL;
    size_t size;
    FILE *f = n > 0 ? open_memstream(&text, &size) : NULL;
    if (!f) return NULL;
    bool reached = cli_race_reached(r, order[0]) > 0;
    if (r->target && !reached) race_say_missed(f, r, order, n);
    if (race_only_diverged(r, order[0]))
        ; /* all entrants diverged: a lowest loss says nothing */
    else if (reached || cli_race_mean(order[0]->loss, r->n_seeds).n > 0)
        said = race_say_first(f, r, order, n);
    if (reached) race_say_baseline(f, r, order, said > 1 ? said : 2);
    for (int i = 0; i < n; i++) {
        int here = cli_race_reached(r, order[i]), done = cli_race_done(r, order[i]);
        int lost = cli_race_diverged(r, order[i]);
        if (here > 0 && here < done)
            fprintf(f, "%s reached the target in %d of %d runs.\n", order[i]->name, here, done);
        if (lost > 0 && lost < done)
            fprintf(f, "%s diverged in %d of %d runs.\n", order[i]->name, lost, done);
    }
    if (reached) race_say_all(f, r, order, n, race_never_came, "did not reach the target.");
    race_say_all(f, r, order, n, race_always_diverged, "diverged.");
    race_say_absent(f, r);
    if (race_untuned(r)) race_say_rates(f, r);
    return fclose(f) == 0 ? text : NULL;
}
