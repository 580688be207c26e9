/* What the results of races show of a claim.
 *
 * A requirement is about the mean over seeds of a number: a figure of a run, or the ratio or the
 * difference of two, paired by seed. The mean of ratios is the geometric one, as in a race. It is
 * shown if the 95 % interval of that mean lies inside the range, not shown if it lies outside, and
 * cannot be told if it crosses an end. A run that ended before its target would have needed at
 * least the time it had, so its time is known between two ends; a run that diverged never arrives.
 * If the best of several learning rates is the lowest or the highest of them, a rate that was not
 * tried may be better: what that could change cannot be told. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reproduce.h"

/* The numbers of one entrant by seed, each known between two ends. */
struct verdict_numbers {
    double low[RACE_SEEDS], high[RACE_SEEDS];
    bool known[RACE_SEEDS];
};

/* --- numbers of runs --------------------------------------------------------------------- */

static bool verdict_higher_is_better(const char *figure) {
    return strstr(figure, "accuracy") != NULL;
}

/* A member of an object, as in "staleness.mean". */
static double verdict_member(const json_t *object, const char *path) {
    char key[64];
    size_t n = strcspn(path, ".");
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    const json_t *value = json_object_get(object, key);
    if (path[n]) return verdict_member(value, path + n + 1);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void verdict_number(const json_t *line, const char *figure, double *low, double *high) {
    const json_t *run = json_object_get(line, "result");
    bool time = strcmp(figure, "time_to_target") == 0;
    double x = verdict_member(run, figure);
    if (isnan(x) && json_is_true(json_object_get(line, "diverged")))
        x = verdict_higher_is_better(figure) ? 0 : (double)INFINITY;
    bool late = isnan(x) && time;
    *low = late ? verdict_member(run, "time") : x;
    *high = late ? (double)INFINITY : x;
}

static void verdict_numbers(const json_t *lines, const char *entrant, const char *figure,
                            struct verdict_numbers *out) {
    size_t i;
    json_t *line;
    *out = (struct verdict_numbers){.known = {false}};
    double first = (double)INFINITY;
    json_array_foreach((json_t *)lines, i, line) first =
        fmin(first, json_number_value(json_object_get(line, "seed")));
    json_array_foreach((json_t *)lines, i, line) {
        double seed = json_number_value(json_object_get(line, "seed")) - first;
        if (strcmp(json_string_value(json_object_get(line, "entrant")), entrant) != 0) continue;
        if (!(seed >= 0 && seed < RACE_SEEDS)) continue;
        int s = (int)seed;
        verdict_number(line, figure, &out->low[s], &out->high[s]);
        out->known[s] = !isnan(out->low[s]);
    }
}

/* --- means ------------------------------------------------------------------------------- */

static int verdict_known(const bool *known) {
    int n = 0;
    for (int s = 0; s < RACE_SEEDS; s++) n += known[s];
    return n;
}

/* A mean that is 0 or infinite. */
static struct race_mean verdict_end(double mean, int n) {
    return (struct race_mean){.mean = mean, .half = 0, .low = mean, .high = mean, .n = n};
}

/* The mean of numbers from below: infinite ones count as the largest that is finite. */
static struct race_mean verdict_mean(const double *x, const bool *known, bool ratios) {
    double finite[RACE_SEEDS], most = -(double)INFINITY;
    for (int s = 0; s < RACE_SEEDS; s++)
        if (known[s] && isfinite(x[s])) most = fmax(most, x[s]);
    for (int s = 0; s < RACE_SEEDS; s++) {
        finite[s] = !known[s] ? (double)NAN : isfinite(x[s]) ? x[s] : most;
        if (ratios && finite[s] == 0) return verdict_end(0, verdict_known(known));
    }
    struct race_mean m =
        ratios ? cli_race_mean_ratio(finite, RACE_SEEDS) : cli_race_mean(finite, RACE_SEEDS);
    int n = verdict_known(known);
    return m.n == 0 && n > 0 ? verdict_end((double)INFINITY, n) : m;
}

static bool verdict_any_infinite(const struct verdict_numbers *x) {
    for (int s = 0; s < RACE_SEEDS; s++)
        if (x->known[s] && isinf(x->high[s])) return true;
    return false;
}

/* How good an entrant is, smaller being better. Not all of its runs may have arrived. */
static double verdict_rank(const struct verdict_numbers *x, const char *figure) {
    double mean = verdict_mean(x->low, x->known, false).mean;
    if (verdict_higher_is_better(figure)) return -mean;
    return verdict_any_infinite(x) ? mean + 1e12 : mean;
}

/* The best of the entrants that match the pattern. False: there is none with results. */
static bool verdict_best(const struct reproduce *p, const char *run, const char *figure,
                         struct verdict_numbers *out, char *name, size_t max) {
    const struct claim_setting *setting = cli_claims_setting(&p->claims, run);
    const json_t *lines = p->results[setting - p->claims.setting];
    const char *pattern = strchr(run, '/') + 1;
    double best = (double)NAN;
    size_t i;
    json_t *line;
    json_array_foreach((json_t *)lines, i, line) {
        const char *entrant = json_string_value(json_object_get(line, "entrant"));
        struct verdict_numbers one;
        if (fnmatch(pattern, entrant, 0) != 0 || strcmp(entrant, name) == 0) continue;
        verdict_numbers(lines, entrant, figure, &one);
        double rank = verdict_rank(&one, figure);
        if (isnan(rank) || rank >= best) continue;
        best = rank;
        *out = one;
        snprintf(name, max, "%s", entrant);
    }
    return !isnan(best);
}

/* x over y or minus y, by seed; every seed must be known of both. */
static void verdict_pair(struct verdict_numbers *x, const struct verdict_numbers *y,
                         enum claim_how how) {
    for (int s = 0; s < RACE_SEEDS; s++) {
        double low = x->low[s], high = x->high[s];
        x->known[s] = x->known[s] && y->known[s];
        if (!x->known[s]) continue;
        x->low[s] = how == CLAIM_OVER ? low / y->high[s] : low - y->high[s];
        x->high[s] = how == CLAIM_OVER ? high / y->low[s] : high - y->low[s];
        x->known[s] = !isnan(x->low[s]) && !isnan(x->high[s]);
    }
}

/* --- verdicts ---------------------------------------------------------------------------- */

static enum verdict verdict_judge(const struct verdict_numbers *x, const struct claim_required *q,
                                  struct race_mean *ours) {
    bool open = verdict_any_infinite(x);
    bool ratios = q->how == CLAIM_OVER;
    struct race_mean low = verdict_mean(x->low, x->known, ratios);
    struct race_mean high = verdict_mean(x->high, x->known, ratios);
    double least = low.low, most = open ? (double)INFINITY : high.high;
    *ours = low;
    for (int s = 0; s < RACE_SEEDS; s++)
        if (x->known[s] && x->low[s] < x->high[s])
            ours->bound = open ? RACE_AT_LEAST : RACE_AT_MOST;
    if (ours->bound == RACE_AT_LEAST) ours->high = NAN;
    if (ours->bound == RACE_AT_MOST) {
        ours->mean = high.mean, ours->half = high.half;
        ours->low = NAN, ours->high = high.high;
    }
    if (low.n < 2 || isnan(least) || isnan(most)) return VERDICT_OPEN;
    if (least >= q->least && most <= q->most) return VERDICT_SHOWN;
    return most < q->least || least > q->most ? VERDICT_NOT : VERDICT_OPEN;
}

/* The learning rate in an entrant's name; NAN if there is none. */
static double verdict_rate(const char *entrant) {
    const char *at = strstr(entrant, "@lr=");
    return at ? strtod(at + strlen("@lr="), NULL) : (double)NAN;
}

/* The numbers at the best rate of all, if `name` is the best of the entrants that match the
 * pattern: an accuracy up to 1, or almost no time or loss, if its rate is at the edge. An entrant
 * whose name has no rate was not tuned. */
static struct verdict_numbers verdict_limit(const struct reproduce *p, const char *run,
                                            const char *name, const char *figure,
                                            const struct verdict_numbers *x) {
    const struct claim_setting *setting = cli_claims_setting(&p->claims, run);
    double rate = verdict_rate(name), least = rate, most = rate;
    struct verdict_numbers best = *x;
    size_t i;
    json_t *line;
    json_array_foreach(p->results[setting - p->claims.setting], i, line) {
        const char *entrant = json_string_value(json_object_get(line, "entrant"));
        if (fnmatch(strchr(run, '/') + 1, entrant, 0) != 0) continue;
        least = fmin(least, verdict_rate(entrant));
        most = fmax(most, verdict_rate(entrant));
    }
    if (isnan(rate) || !(least < most) || (least < rate && rate < most)) return best;
    for (int s = 0; s < RACE_SEEDS; s++)
        *(verdict_higher_is_better(figure) ? &best.high[s] : &best.low[s]) =
            verdict_higher_is_better(figure) ? 1 : 1e-9 * x->low[s];
    return best;
}

struct shown cli_shown(const struct reproduce *p, const struct claim_required *q) {
    struct shown shown = {.verdict = VERDICT_NONE};
    struct verdict_numbers x, y, best;
    struct race_mean ignored;
    if (!verdict_best(p, q->run, q->figure, &x, shown.run, sizeof shown.run)) return shown;
    best = verdict_limit(p, q->run, shown.run, q->figure, &x);
    if (q->other) {
        if (!verdict_best(p, q->other, q->figure, &y, shown.other, sizeof shown.other))
            return shown;
        verdict_pair(&x, &y, q->how);
        y = verdict_limit(p, q->other, shown.other, q->figure, &y);
        verdict_pair(&best, &y, q->how);
    }
    shown.verdict = verdict_judge(&x, q, &shown.ours);
    if (verdict_judge(&best, q, &ignored) != shown.verdict) shown.verdict = VERDICT_EDGE;
    return shown;
}

enum verdict cli_claim_verdict(const struct reproduce *p, const struct claim *claim, int *seeds) {
    enum verdict all = VERDICT_SHOWN;
    *seeds = RACE_SEEDS;
    for (int i = 0; i < claim->n_required; i++) {
        struct shown one = cli_shown(p, &claim->required[i]);
        if (one.verdict > all) all = one.verdict;
        if (one.ours.n < *seeds) *seeds = one.ours.n;
    }
    return all;
}

bool cli_claim_fails(const struct reproduce *p, const struct claim *claim) {
    int seeds;
    return claim->expected[p->form] && !cli_claim_missing(p, claim) &&
           cli_claim_verdict(p, claim, &seeds) != VERDICT_SHOWN;
}

void cli_verdict_words(enum verdict verdict, int seeds, char *out, size_t max) {
    static const char *const words[] = {
        "shown", "cannot be told: the best rate is the lowest or the highest of those tried",
        "cannot be told", "not shown", "no results"};
    snprintf(out, max, "%s", words[verdict]);
    if (verdict == VERDICT_OPEN)
        cli_append(out, max, " with %d seed%s", seeds, seeds == 1 ? "" : "s");
}

void cli_shown_words(struct race_mean m, char *out, size_t max) {
    snprintf(out, max, "%s", m.n > 0 && isinf(m.mean) ? "infinite" : "-");
    if (m.n == 0 || !isfinite(m.mean)) return;
    snprintf(out, max, "%s", cli_race_sign(m.bound));
    cli_race_append(out, max, "%.4g", cli_race_shown(m), m.bound);
    if (m.bound != RACE_EXACT) return;
    double least = 1e-9 * fabs(m.mean); /* less is rounding */
    if (isfinite(m.half) && m.half > least)
        cli_append(out, max, " ± %.2g", m.half);
    else if (!isfinite(m.half) && m.high - m.low > least)
        cli_append(out, max, " (%.4g to %.4g)", m.low, m.high);
}
