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

struct race_mean cli_race_mean(const double *x, int n) {
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

int cli_race_done(const struct race *r, const struct race_entrant *e) {
    int n = 0;
    for (int s = 0; s < r->n_seeds; s++) n += e->done[s];
    return n;
}

const char *cli_race_sorting(const struct race *r) {
    return r->target ? "time to target, then loss" : "loss";
}

/* Sorts by time to target, entrants that reached it in every run first; the others by loss. */
static double race_key(const struct race *r, const struct race_entrant *e) {
    struct race_mean t = cli_race_mean(e->to_target, r->n_seeds);
    struct race_mean l = cli_race_mean(e->loss, r->n_seeds);
    if (t.n > 0) return t.mean + 1e12 * (cli_race_done(r, e) - t.n);
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
    struct race_mean target = cli_race_mean(e->to_target, r->n_seeds);
    int done = cli_race_done(r, e), n_diverged = 0;
    for (int s = 0; s < r->n_seeds; s++) n_diverged += e->diverged[s];
    printf("%-*s", r->name_width, e->name);
    race_cell((struct race_mean){cli_race_mean(e->lr, r->n_seeds).mean, NAN, 1}, "%.3g", 8);
    if (r->target) {
        race_cell(target, "%.4g", wide);
        race_cell(cli_race_mean(ratio, r->n_seeds), "%.2f", wide);
    } else {
        race_cell((struct race_mean){cli_race_mean(e->per_update, r->n_seeds).mean, NAN, 1}, "%.4g",
                  11);
    }
    race_cell(cli_race_mean(e->accuracy, r->n_seeds), "%.4f", wide);
    race_cell(cli_race_mean(e->loss, r->n_seeds), "%.4f", wide);
    race_cell((struct race_mean){cli_race_mean(e->staleness, r->n_seeds).mean, NAN, 1}, "%.2f", 10);
    race_cell((struct race_mean){100 * cli_race_mean(e->wasted, r->n_seeds).mean, NAN, 1}, "%.1f",
              8);
    race_cell((struct race_mean){100 * cli_race_mean(e->idle, r->n_seeds).mean, NAN, 1}, "%.1f", 8);
    if (done < r->n_seeds) printf("  %d of %d runs", done, r->n_seeds);
    if (target.n > 0 && target.n < done) printf("  reached in %d of %d runs", target.n, done);
    if (n_diverged) printf("  diverged in %d of %d runs", n_diverged, done);
    putchar('\n');
}

/* Whether rates were taken from another race. */
static bool race_is_tuned(const struct race *r) {
    for (int i = 0; i < r->n; i++)
        if (isfinite(r->entrant[i].tuned)) return true;
    return false;
}

/* What raced, on what, and how the rows are sorted. */
static void race_caption(const struct race *r) {
    static const char *const options[] = {"data", "model", "workers", "batch", "delay", "net"};
    char value[RACE_PATH];
    printf("%s race", r->real ? "real" : "simulated");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (pl_setup_get(r->setup, options[i], value, sizeof value) == PL_OK && value[0])
            printf("%s %s %s", i ? "," : ":", options[i], value);
    if (cli_number(r->setup, "target-accuracy") > 0)
        printf("; target: test accuracy %g", cli_number(r->setup, "target-accuracy"));
    if (cli_number(r->setup, "target-loss") > 0)
        printf("; target: loss %g", cli_number(r->setup, "target-loss"));
    printf("\nsorted by %s; ", cli_race_sorting(r));
    if (r->n_seeds > 1) printf("means of %d seeds with 95 %% intervals; ", r->n_seeds);
    if (cli_number(r->setup, "lr") > 0)
        printf("one learning rate for all");
    else
        printf("each method at its own %s learning rate",
               r->tune || race_is_tuned(r) ? "best" : "default");
    printf("; accuracy and loss at the %s\n\n",
           r->target ? "evaluation that met the target" : "end");
}

void cli_race_board(const struct race *r) {
    const struct race_entrant *order[RACE_ENTRANTS], *sync = NULL;
    int wide = r->n_seeds > 1 ? 16 : 11, n = cli_race_order(r, order);
    for (int i = 0; i < r->n && !sync; i++) {
        const struct race_entrant *e = &r->entrant[i];
        if (strncmp(e->name, "sync", 4) == 0 && strchr("@:", e->name[4])) sync = e;
    }
    if (n > 0) {
        race_caption(r);
        printf("%-*s %8s", r->name_width, "method", "lr");
        if (r->target)
            printf(" %*s %*s", wide, "s to target", wide, "x vs sync");
        else
            printf(" %11s", "s/update");
        printf(" %*s %*s %10s %8s %8s\n", wide, r->rates ? "test RMSE" : "accuracy", wide, "loss",
               "staleness", "wasted %", "idle %");
    }
    for (int i = 0; i < n; i++) race_row(r, order[i], sync);
    for (int i = 0; i < r->n; i++)
        if (cli_race_done(r, &r->entrant[i]) == 0)
            printf("%-*s not run\n", r->name_width, r->entrant[i].name);
}

/* --- simulated and real ------------------------------------------------------------------ */

static int race_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns -1 if the first entrant was faster, 1 if the second was, 0 if that is unknown. */
static int race_ahead(const double *x, const double *y, int n) {
    struct race_mean a = cli_race_mean(x, n), b = cli_race_mean(y, n);
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
    for (int i = 0; i < r->n; i++)
        n_predicted += cli_race_mean(r->entrant[i].predicted_per_update, r->n_seeds).n > 0;
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
        double u = cli_race_mean(e->per_update, r->n_seeds).mean;
        double pu = cli_race_mean(e->predicted_per_update, r->n_seeds).mean;
        double t = cli_race_mean(e->to_target, r->n_seeds).mean;
        double pt = cli_race_mean(e->predicted, r->n_seeds).mean;
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
