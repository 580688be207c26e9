/* The statistics of a race: means with 95 % intervals, and factors between entrants.
 *
 * Two entrants are compared by seed: one is faster if the 95 % interval of the ratios of their
 * times lies above 1. Times of real runs are known to a resolution, by which each interval is wider
 * at both ends; and it is rounded outwards, to digits that are known. A run that ended without
 * reaching the target would have needed at least the time it had, and counts with that; a mean of
 * such runs is a bound, and is shown as one. Of a factor of such runs, the end of its interval that
 * still holds is shown. A run that diverged would never have arrived: its entrant has no time and
 * no factor. */
#include <fenv.h>
#include <math.h>

#include "race.h"

#define MEANS_VAGUE 100. /* a factor that is only known to be above 1/100 or below 100 */

double cli_race_t95(int degrees) {
    static const double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
    return degrees <= 15 ? t[degrees - 1] : 1.96 + 2.5 / degrees;
}

struct race_mean cli_race_mean(const double *x, int n) {
    struct race_mean m = {.half = NAN, .low = NAN, .high = NAN};
    double sum = 0, square = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        sum += x[i];
        m.n++;
    }
    m.mean = m.n ? sum / m.n : NAN;
    for (int i = 0; i < n; i++)
        if (isfinite(x[i])) square += (x[i] - m.mean) * (x[i] - m.mean);
    if (m.n < 2) return m;
    m.half = cli_race_t95(m.n - 1) * sqrt(square / (m.n - 1) / m.n);
    m.low = m.mean - m.half;
    m.high = m.mean + m.half;
    return m;
}

struct race_mean cli_race_mean_ratio(const double *x, int n) {
    double logs[RACE_SEEDS] = {0};
    for (int i = 0; i < n; i++) logs[i] = log(x[i]);
    struct race_mean m = cli_race_mean(logs, n);
    m.mean = exp(m.mean), m.low = exp(m.low), m.high = exp(m.high), m.half = NAN;
    return m;
}

double cli_race_shown(struct race_mean m) {
    double end = m.bound == RACE_AT_LEAST ? m.low : m.high;
    return m.bound != RACE_EXACT && isnan(m.half) && isfinite(end) ? end : m.mean;
}

/* snprintf rounds in the direction that is set. */
void cli_race_append(char *out, size_t max, const char *format, double x, enum race_bound bound) {
    static const int direction[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD};
    static const double known[] = {1, 1 + 1e-12, 1 - 1e-12};
    fesetround(direction[bound]);
    cli_append(out, max, format, x * known[bound]);
    fesetround(FE_TONEAREST);
}

const char *cli_race_sign(enum race_bound bound) {
    static const char *const sign[] = {"", "≥ ", "≤ "};
    return sign[bound];
}

void cli_race_digits(char *out, size_t max, int digits, double x, double within,
                     enum race_bound bound) {
    int known = within > 0 ? cli_decimals(within) : 0;
    char format[16];
    if (within > 0 && fabs(x) < pow(10, digits - known))
        snprintf(format, sizeof format, "%%.%df", known);
    else if (fabs(x) >= pow(10, digits) && fabs(x) < 1e15)
        snprintf(format, sizeof format, "%%.0f");
    else
        snprintf(format, sizeof format, "%%.%dg", digits);
    cli_race_append(out, max, format, x, bound);
}

void cli_race_put(FILE *f, int digits, double x, double within, enum race_bound bound) {
    char text[64] = "";
    cli_race_digits(text, sizeof text, digits, x, within, bound);
    fputs(text, f);
}

int cli_race_done(const struct race *r, const struct race_entrant *e) {
    int n = 0;
    for (int s = 0; s < r->n_seeds; s++) n += e->done[s];
    return n;
}

int cli_race_missing(const struct race *r) {
    int n = r->n * r->n_seeds;
    for (int i = 0; i < r->n; i++) n -= cli_race_done(r, &r->entrant[i]);
    return n;
}

int cli_race_diverged(const struct race *r, const struct race_entrant *e) {
    int n = 0;
    for (int s = 0; s < r->n_seeds; s++) n += e->diverged[s];
    return n;
}

int cli_race_reached(const struct race *r, const struct race_entrant *e) {
    return cli_race_mean(e->to_target, r->n_seeds).n;
}

/* Whether a run ended before the target, without having diverged. */
static bool race_censored(const struct race_entrant *e, int s) {
    return e->done[s] && !isfinite(e->to_target[s]) && !e->diverged[s];
}

/* Whether a run that diverged hides how long the entrant takes. */
static bool race_lost(const struct race *r, const struct race_entrant *e) {
    for (int s = 0; s < r->n_seeds; s++)
        if (e->diverged[s] && !isfinite(e->to_target[s])) return true;
    return false;
}

static double race_seconds(const struct race_entrant *e, int s) {
    return race_censored(e, s) ? e->end[s] : e->to_target[s];
}

/* By so much its time may be wrong. */
static double race_off(const struct race_entrant *e, int s) {
    return e->within[s] > 0 && !race_censored(e, s) ? e->within[s] : 0;
}

/* Rounds an interval outwards. */
static void race_round(struct race_mean *m) {
    if (!(m->within > 0)) return;
    double unit = pow(10, -cli_decimals(m->within));
    m->half = ceil(m->half / unit) * unit;
    m->low = floor(m->low / unit) * unit;
    m->high = ceil(m->high / unit) * unit;
}

double cli_race_within(const struct race *r) {
    double within = 0;
    for (int i = 0; i < r->n; i++)
        for (int s = 0; s < r->n_seeds; s++) within = fmax(within, r->entrant[i].within[s]);
    return within;
}

struct race_mean cli_race_time(const struct race *r, const struct race_entrant *e) {
    double x[RACE_SEEDS] = {0}, off[RACE_SEEDS] = {0};
    bool bound = false;
    if (race_lost(r, e) || cli_race_reached(r, e) == 0) return cli_race_mean(NULL, 0);
    for (int s = 0; s < r->n_seeds; s++) {
        x[s] = race_seconds(e, s);
        off[s] = isfinite(x[s]) ? race_off(e, s) : (double)NAN;
        bound = bound || race_censored(e, s);
    }
    struct race_mean m = cli_race_mean(x, r->n_seeds);
    double wider = cli_race_mean(off, r->n_seeds).mean;
    m.bound = bound ? RACE_AT_LEAST : RACE_EXACT;
    m.within = cli_race_within(r);
    m.half += wider, m.low -= wider, m.high += wider;
    race_round(&m);
    return m;
}

struct race_mean cli_race_factor(const struct race *r, const struct race_entrant *e,
                                 const struct race_entrant *base) {
    double x[RACE_SEEDS] = {0}, least[RACE_SEEDS] = {0}, most[RACE_SEEDS] = {0};
    double resolution = cli_race_within(r), within = 0;
    bool more = false, less = false;
    if (!base || race_lost(r, e) || race_lost(r, base)) return cli_race_mean(NULL, 0);
    for (int s = 0; s < r->n_seeds; s++) {
        double a = race_seconds(base, s), b = race_seconds(e, s);
        double a_off = race_off(base, s), b_off = race_off(e, s);
        x[s] = least[s] = most[s] = NAN;
        if (!isfinite(a) || !isfinite(b)) continue;
        bool same = e == base || (a == 0 && b == 0); /* the initial model met the target */
        if ((a == 0 || b == 0) && !same) return cli_race_mean(NULL, 0);
        x[s] = same ? 1 : a / b;
        least[s] = same ? 1 : fmax(0, a - a_off) / (b + b_off);
        most[s] = same ? 1 : (a + a_off) / fmax(0, b - b_off);
        /* of a quotient: the relative errors add up */
        if (a > 0) within = fmax(within, x[s] * resolution * (1 / a + 1 / b));
        more = more || race_censored(base, s) || most[s] > MEANS_VAGUE * x[s];
        less = less || race_censored(e, s) || least[s] < x[s] / MEANS_VAGUE;
    }
    if (more && less) return cli_race_mean(NULL, 0); /* of two times that are both unknown */
    struct race_mean m = cli_race_mean_ratio(x, r->n_seeds);
    m.bound = more ? RACE_AT_LEAST : less ? RACE_AT_MOST : RACE_EXACT;
    m.within = within;
    m.low = less ? NAN : m.low * cli_race_mean_ratio(least, r->n_seeds).mean / m.mean;
    m.high = more ? NAN : m.high * cli_race_mean_ratio(most, r->n_seeds).mean / m.mean;
    race_round(&m);
    return m;
}

struct race_mean cli_race_factor_shown(const struct race *r, const struct race_entrant *e) {
    struct race_mean m = cli_race_factor(r, e, cli_race_baseline(r));
    bool vague = (m.bound == RACE_AT_LEAST && cli_race_shown(m) < 1 / MEANS_VAGUE) ||
                 (m.bound == RACE_AT_MOST && cli_race_shown(m) > MEANS_VAGUE);
    return vague ? cli_race_mean(NULL, 0) : m;
}
