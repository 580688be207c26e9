/* What a race prints: the leaderboard, and how the simulator's predictions compare. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "race.h"

/* --- the leaderboard --------------------------------------------------------------------- */

#define RACE_FACTOR 20 /* columns of a factor with its interval */

/* Prints large numbers without an exponent or decimals. */
static void race_number(char *out, size_t max, const char *format, double x,
                        enum race_bound bound) {
    bool large = fabs(x) >= 1000 && fabs(x) < 1e15;
    cli_race_append(out, max, large ? "%.0f" : format, x, bound);
}

/* Decimals as in the format, or as many as are known. */
static void race_cell(struct race_mean m, const char *format, int width) {
    char text[64] = "", known[16];
    snprintf(known, sizeof known, "%%.%df", m.within > 0 ? cli_decimals(m.within) : 0);
    if (m.within > 0 && (!strchr(format, 'f') || strcmp(known, format) < 0)) format = known;
    if (m.n > 0) cli_append(text, sizeof text, "%s", cli_race_sign(m.bound));
    race_number(text, sizeof text, m.n > 0 ? format : "-", cli_race_shown(m), m.bound);
    if (m.bound == RACE_EXACT && isfinite(m.half)) {
        cli_append(text, sizeof text, " ± ");
        race_number(text, sizeof text, format, m.half, RACE_EXACT);
    } else if (m.bound == RACE_EXACT && m.low < m.high) {
        cli_append(text, sizeof text, " (");
        race_number(text, sizeof text, format, m.low, RACE_EXACT);
        cli_append(text, sizeof text, " to ");
        race_number(text, sizeof text, format, m.high, RACE_EXACT);
        cli_append(text, sizeof text, ")");
    }
    for (const char *c = cli_signs(text); *c; c++) width += (*c & 0xc0) == 0x80; /* no column */
    printf(" %*s", width, text);
}

/* A number without an interval. */
static struct race_mean race_plain(double x) {
    return (struct race_mean){.mean = x, .half = NAN, .n = isfinite(x)};
}

/* The column of factors has a width of its own: `wider`. */
static void race_row(const struct race *r, const struct race_entrant *e, int wider) {
    int wide = r->n_seeds > 1 ? 16 : 11, done = cli_race_done(r, e);
    int n_reached = cli_race_reached(r, e), n_diverged = cli_race_diverged(r, e);
    printf("%-*s", r->name_width, e->name);
    race_cell(race_plain(cli_race_mean(e->lr, r->n_seeds).mean), "%.3g", 8);
    if (r->target) {
        race_cell(cli_race_time(r, e), "%.4g", wide);
        race_cell(cli_race_factor_shown(r, e), "%.2f", wider);
    } else {
        race_cell(race_plain(cli_race_mean(e->per_update, r->n_seeds).mean), "%.4g", 11);
    }
    race_cell(cli_race_mean(e->accuracy, r->n_seeds), "%.4f", wide);
    race_cell(cli_race_mean(e->loss, r->n_seeds), "%.4f", wide);
    race_cell(race_plain(cli_race_mean(e->staleness, r->n_seeds).mean), "%.2f", 10);
    race_cell(race_plain(100 * cli_race_mean(e->wasted, r->n_seeds).mean), "%.1f", 8);
    race_cell(race_plain(100 * cli_race_mean(e->idle, r->n_seeds).mean), "%.1f", 8);
    if (done < r->n_seeds) printf("  %d of %d runs", done, r->n_seeds);
    if (n_reached > 0 && n_reached < done) printf("  reached in %d of %d runs", n_reached, done);
    if (n_diverged) printf("  diverged in %d of %d runs", n_diverged, done);
    putchar('\n');
}

/* The rates that were tried, a line per entrant. */
static void race_tried(FILE *f, const struct race *r) {
    bool any = false, timed = false;
    for (int i = 0; i < r->n; i++)
        for (int j = 0; j < r->entrant[i].n_tried; j++) {
            any = true;
            timed = timed || isfinite(r->entrant[i].tried[j].seconds);
        }
    if (!any) return;
    fprintf(f, "\nlearning rates tried, and %s in simulated runs with other seeds:\n",
            timed       ? "seconds to target (-: longer than the best before it, or never)"
            : r->target ? "the error at the end"
                        : "the training loss at the end");
    for (int i = 0; i < r->n; i++) {
        const struct race_entrant *e = &r->entrant[i];
        if (e->n_tried == 0) continue;
        fprintf(f, "%-*s", r->name_width, e->name);
        for (int j = 0; j < e->n_tried; j++) {
            double x = timed ? e->tried[j].seconds : e->tried[j].error;
            char text[32] = "-";
            if (isfinite(x)) snprintf(text, sizeof text, x < 1000 ? "%.3g" : "%.0f", x);
            fprintf(f, "  %.3g: %s", e->tried[j].lr, text);
        }
        fputc('\n', f);
    }
}

/* How well times to the target are known. */
static void race_resolution(FILE *f, const struct race *r) {
    double within = cli_race_within(r);
    if (within > 0)
        fprintf(f, "times to target known to %s %.1g s; ", cli_signs((char[]){"±"}), within);
    else if (cli_race_arrived(r) != RACE_NONE)
        fprintf(f,
                "times to target of the first evaluation that meets it, refined to the update; ");
}

/* The delay that --delay auto stands for. */
static const char *race_law(const struct race *r, const char *value) {
    return strcmp(value, "auto") != 0 ? value : r->real ? "none" : "exp:mean=1";
}

/* Whether an entrant has its own value of an option. */
static bool race_varies(const struct race *r, const char *option) {
    char text[40];
    snprintf(text, sizeof text, "@%s=", option);
    for (int i = 0; i < r->n; i++)
        if (strstr(r->entrant[i].name, text)) return true;
    return false;
}

char *cli_race_workload(const struct race *r) {
    static const char *const options[] = {"data", "model", "workers", "batch", "delay", "net"};
    char value[RACE_PATH], *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    fprintf(f, "%s race", r->real ? "real" : "simulated");
    const char *sep = ":";
    /* a race that was described says whether its model needs data */
    bool none = r->described && strstr(r->described, "\"data\":null");
    for (size_t i = none ? 1 : 0; i < sizeof options / sizeof *options; i++) {
        if (pl_setup_get(r->setup, options[i], value, sizeof value) || !value[0] ||
            race_varies(r, options[i]))
            continue;
        fprintf(f, "%s %s %s", sep, options[i], race_law(r, value));
        sep = ",";
    }
    return fclose(f) == 0 ? text : NULL;
}

/* When accuracy and loss were measured; the RMSE of ratings always is at the end. */
static const char *race_scored(const struct race *r) {
    enum race_arrived arrived = r->rates ? RACE_NONE : cli_race_arrived(r);
    return arrived == RACE_NONE  ? "at the end"
           : arrived == RACE_ALL ? "at the evaluation that met the target"
                                 : "at the evaluation that met the target, or at the end of a run "
                                   "that missed it";
}

/* What raced, on what, and how the rows are sorted. */
static void race_caption(FILE *f, const struct race *r) {
    char *workload = cli_race_workload(r);
    fputs(workload ? workload : "race", f);
    free(workload);
    if (cli_number(r->setup, "target-accuracy") > 0)
        fprintf(f, "; target: test accuracy %g", cli_number(r->setup, "target-accuracy"));
    if (cli_number(r->setup, "target-loss") > 0)
        fprintf(f, "; target: loss %g", cli_number(r->setup, "target-loss"));
    fprintf(f, "\nsorted by %s; ", cli_race_sorting(r));
    race_resolution(f, r);
    if (r->n_seeds > 1)
        fprintf(f, "means of %d seeds with 95 %% intervals; ", r->n_seeds);
    else
        fputs("one seed, so no intervals; ", f);
    if (!cli_race_scores(r->setup)) {
        fputs("there is no model to evaluate\n\n", f);
        return;
    }
    const char *rates;
    cli_race_rates_are(r, &rates);
    fprintf(f, "%s; %s and training loss %s\n\n", rates, r->rates ? "test RMSE" : "test accuracy",
            race_scored(r));
}

/* Prints what `tell` writes, in lines that fit a terminal. */
static void race_say(void (*tell)(FILE *, const struct race *), const struct race *r, int indent) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (f) tell(f, r);
    if (f && fclose(f) == 0) cli_put_lines(stdout, indent, text);
    free(text);
}

void cli_race_board(const struct race *r) {
    const struct race_entrant *order[RACE_ENTRANTS], *base = cli_race_baseline(r);
    int wide = r->n_seeds > 1 ? 16 : 11, n = cli_race_order(r, order);
    int wider = r->n_seeds > 1 ? RACE_FACTOR : wide;
    char against[RACE_PATH + 8] = "factor";
    if (base) snprintf(against, sizeof against, "x vs %s", base->name);
    if ((int)strlen(against) > wider) wider = (int)strlen(against);
    if (n > 0) {
        race_say(race_caption, r, 2);
        printf("%-*s %8s", r->name_width, "method", "lr");
        if (r->target)
            printf(" %*s %*s", wide, "s to target", wider, against);
        else
            printf(" %11s", "s/update");
        printf(" %*s %*s %10s %8s %8s\n", wide, r->rates ? "test RMSE" : "accuracy", wide, "loss",
               "staleness", "wasted %", "idle %");
    }
    for (int i = 0; i < n; i++) race_row(r, order[i], wider);
    for (int i = 0; i < r->n; i++)
        if (cli_race_done(r, &r->entrant[i]) == 0)
            printf("%-*s not run\n", r->name_width, r->entrant[i].name);
    char *verdict = cli_race_verdict(r);
    if (verdict && *verdict) putchar('\n');
    if (verdict) cli_put_lines(stdout, 2, verdict);
    free(verdict);
    race_say(race_tried, r, r->name_width + 2);
}

/* --- simulated and real ------------------------------------------------------------------ */

static int race_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns -1 if the first entrant was faster, 1 if the second was, 0 if that is unknown. */
static int race_ahead(struct race_mean a, struct race_mean b) {
    if (a.n == 0 || b.n == 0 || a.bound != RACE_EXACT || b.bound != RACE_EXACT) return 0;
    return a.mean < b.mean ? -1 : 1;
}

/* The predicted time to the target, unknown if a simulated run did not reach it. */
static struct race_mean race_predicted(const struct race *r, const struct race_entrant *e) {
    struct race_mean m = cli_race_mean(e->predicted, r->n_seeds);
    return m.n == cli_race_done(r, e) ? race_plain(m.mean) : race_plain(NAN);
}

/* Prints the measured value, the prediction and their ratio, which a bound does not have. */
static void race_three(struct race_mean real, struct race_mean predicted, const char *format) {
    bool exact = real.bound == RACE_EXACT;
    struct race_mean ratio = race_plain(exact ? real.mean / predicted.mean : (double)NAN);
    real.half = real.high = NAN;
    real.low = exact ? (double)NAN : real.mean; /* over the seeds of the prediction */
    ratio.within = real.within / predicted.mean;
    race_cell(real, format, 12);
    race_cell(predicted, format, 12);
    race_cell(ratio, "%.3f", 8);
}

static double race_median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, race_compare);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
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
        printf("%-*s", r->name_width, e->name);
        race_three(race_plain(u), race_plain(pu), "%.5f");
        if (target) race_three(cli_race_time(r, e), race_predicted(r, e), "%.3f");
        putchar('\n');
        if (isfinite(u / pu)) off[n_off++] = fabs(u / pu - 1);
        for (int j = 0; target && j < i; j++) {
            const struct race_entrant *f = &r->entrant[j];
            int real = race_ahead(cli_race_time(r, e), cli_race_time(r, f));
            int simulated = race_ahead(race_predicted(r, e), race_predicted(r, f));
            n_pairs += real != 0 && simulated != 0;
            n_right += real != 0 && real == simulated;
        }
    }
    char text[160] = "";
    if (n_off) {
        double median = race_median(off, n_off); /* sorts */
        cli_append(text, sizeof text,
                   "prediction error of s/update: median %.1f %%, maximum %.1f %%", 100 * median,
                   100 * off[n_off - 1]);
    }
    if (n_pairs)
        cli_append(text, sizeof text, "; pairwise ranking correct in %d of %d cases", n_right,
                   n_pairs);
    cli_put(stdout, 2, text);
    putchar('\n');
}
