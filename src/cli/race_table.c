/* What a race prints: the leaderboard, and how the simulator's predictions compare. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "race.h"

/* --- the leaderboard --------------------------------------------------------------------- */

/* Two-sided 95 % quantile of Student's t. */
static double race_t95(int degrees) {
    static const double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
    return degrees <= 15 ? t[degrees - 1] : 1.96 + 2.5 / degrees;
}

struct race_mean {
    double mean, half; /* half: of the 95 % interval; NAN with one value */
    int n;             /* known values */
};

static struct race_mean race_mean_of(const double *x, int n) {
    struct race_mean m = {0, NAN, 0};
    double sum = 0, square = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        sum += x[i];
        m.n++;
    }
    m.mean = m.n ? sum / m.n : NAN;
    for (int i = 0; i < n; i++)
        if (isfinite(x[i])) square += (x[i] - m.mean) * (x[i] - m.mean);
    if (m.n > 1) m.half = race_t95(m.n - 1) * sqrt(square / (m.n - 1) / m.n);
    return m;
}

/* Sorts by time to target, entrants that reached it in every run first; the others by loss. */
static double race_key(const struct race_entrant *e, int n_seeds) {
    struct race_mean t = race_mean_of(e->to_target, n_seeds);
    struct race_mean l = race_mean_of(e->loss, n_seeds);
    if (t.n > 0) return t.mean + 1e12 * (n_seeds - t.n);
    return 1e18 * (l.n > 0 ? 1 + l.mean : 1e9);
}

/* Prints large numbers without an exponent or decimals. */
static void race_number(char *out, size_t max, const char *format, double x) {
    cli_append(out, max, fabs(x) >= 1000 && fabs(x) < 1e15 ? "%.0f" : format, x);
}

static void race_cell(struct race_mean m, const char *format, int width) {
    char text[64] = "";
    race_number(text, sizeof text, m.n > 0 ? format : "-", m.mean);
    if (isfinite(m.half)) {
        cli_append(text, sizeof text, " ± ");
        race_number(text, sizeof text, format, m.half);
        width++; /* ± is two bytes and one column */
    }
    printf(" %*s", width, text);
}

static void race_row(const struct race *r, const struct race_entrant *e,
                     const struct race_entrant *sync) {
    double ratio[RACE_SEEDS];
    int wide = r->n_seeds > 1 ? 16 : 11;
    for (int s = 0; s < r->n_seeds; s++)
        ratio[s] = sync ? sync->to_target[s] / e->to_target[s] : NAN;
    struct race_mean target = race_mean_of(e->to_target, r->n_seeds);
    printf("%-*s", r->name_width, e->name);
    if (r->target) {
        race_cell(target, "%.4g", wide);
        race_cell(race_mean_of(ratio, r->n_seeds), "%.2f", wide);
    } else {
        race_cell((struct race_mean){race_mean_of(e->per_update, r->n_seeds).mean, NAN, 1}, "%.4g",
                  11);
    }
    race_cell(race_mean_of(e->accuracy, r->n_seeds), "%.4f", wide);
    race_cell(race_mean_of(e->loss, r->n_seeds), "%.4f", wide);
    race_cell((struct race_mean){race_mean_of(e->staleness, r->n_seeds).mean, NAN, 1}, "%.2f", 10);
    race_cell((struct race_mean){100 * race_mean_of(e->wasted, r->n_seeds).mean, NAN, 1}, "%.1f",
              8);
    race_cell((struct race_mean){100 * race_mean_of(e->idle, r->n_seeds).mean, NAN, 1}, "%.1f", 8);
    if (target.n > 0 && target.n < r->n_seeds)
        printf("  reached in %d of %d runs", target.n, r->n_seeds);
    if (e->n_diverged) printf("  diverged in %d of %d runs", e->n_diverged, r->n_seeds);
    putchar('\n');
}

void cli_race_board(const struct race *r) {
    const struct race_entrant *order[RACE_ENTRANTS], *sync = NULL;
    int wide = r->n_seeds > 1 ? 16 : 11;
    for (int i = 0; i < r->n; i++) {
        const struct race_entrant *e = &r->entrant[i];
        if (!sync && strncmp(e->name, "sync", 4) == 0 && strchr("@:", e->name[4])) sync = e;
        int j = i;
        for (; j > 0 && race_key(e, r->n_seeds) < race_key(order[j - 1], r->n_seeds); j--)
            order[j] = order[j - 1];
        order[j] = e;
    }
    printf("%-*s", r->name_width, "method");
    if (r->target)
        printf(" %*s %*s", wide, "s to target", wide, "x vs sync");
    else
        printf(" %11s", "s/update");
    printf(" %*s %*s %10s %8s %8s\n", wide, r->rates ? "test RMSE" : "accuracy", wide, "loss",
           "staleness", "wasted %", "idle %");
    for (int i = 0; i < r->n; i++) race_row(r, order[i], sync);
}

/* --- simulated and real ------------------------------------------------------------------ */

static int race_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns -1 if the first entrant was faster, 1 if the second was, 0 if that is unknown. */
static int race_ahead(const double *x, const double *y, int n) {
    struct race_mean a = race_mean_of(x, n), b = race_mean_of(y, n);
    if (a.n == 0 || b.n == 0) return 0;
    return a.mean < b.mean ? -1 : 1;
}

/* Prints the measured value, the prediction and their ratio. */
static void race_three(double measured, double predicted, const char *format) {
    race_cell((struct race_mean){measured, NAN, isfinite(measured)}, format, 12);
    race_cell((struct race_mean){predicted, NAN, isfinite(predicted)}, format, 12);
    race_cell((struct race_mean){measured / predicted, NAN, isfinite(measured / predicted)}, "%.3f",
              8);
}

void cli_race_prediction(const struct race *r) {
    bool target = r->target;
    double off[RACE_ENTRANTS];
    int n_off = 0, n_pairs = 0, n_right = 0, n_predicted = 0;
    for (int i = 0; i < r->n; i++) n_predicted += r->entrant[i].predicts;
    if (n_predicted == 0) {
        printf("\nno prediction: the simulator needs --delay\n");
        return;
    }
    printf("\nsimulator prediction, from the injected delays alone:\n");
    printf("%-*s %12s %12s %8s", r->name_width, "method", "s/update", "predicted", "ratio");
    if (target) printf(" %12s %12s %8s", "s to target", "predicted", "ratio");
    putchar('\n');
    for (int i = 0; i < r->n; i++) {
        const struct race_entrant *e = &r->entrant[i];
        double u = race_mean_of(e->per_update, r->n_seeds).mean;
        double pu = race_mean_of(e->predicted_per_update, r->n_seeds).mean;
        double t = race_mean_of(e->to_target, r->n_seeds).mean;
        double pt = race_mean_of(e->predicted, r->n_seeds).mean;
        printf("%-*s", r->name_width, e->name);
        race_three(u, pu, "%.5f");
        if (target) race_three(t, pt, "%.3f");
        putchar('\n');
        if (isfinite(u / pu)) off[n_off++] = fabs(u / pu - 1);
        for (int j = 0; target && j < i; j++) {
            const struct race_entrant *f = &r->entrant[j];
            int real = race_ahead(e->to_target, f->to_target, r->n_seeds);
            int simulated = race_ahead(e->predicted, f->predicted, r->n_seeds);
            n_pairs += real != 0 && simulated != 0;
            n_right += real != 0 && real == simulated;
        }
    }
    if (n_off) {
        qsort(off, (size_t)n_off, sizeof *off, race_compare);
        printf("prediction error of s/update: median %.1f %%, maximum %.1f %%",
               100 * off[n_off / 2], 100 * off[n_off - 1]);
    }
    if (n_pairs) printf("; pairwise ranking correct in %d of %d cases", n_right, n_pairs);
    putchar('\n');
}
