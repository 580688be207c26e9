/* plot.svg of a race: accuracy or loss of every entrant against time, as the mean over its seeds in
 * a band of its 95 % interval, which is cut at the smallest and the largest value of all. The
 * legend has the order of the table, and the colours are those of the page: PLOT_COLOURS comes from
 * page.css. Time always begins at 0: a logarithmic axis of it shows log(time + first time). */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "race.h"

#define PLOT_GRID 240 /* parts of a line */
#define PLOT_TICKS 10 /* an axis has fewer */
#define PLOT_DECADES                                                                               \
    30               /* an axis is logarithmic if its data spans this factor; that of time only */
#define PLOT_ENDS 5  /* if the ends of the entrants span this one as well */
#define PLOT_NAME 60 /* longest name in the legend, in bytes */

struct plot_line {
    struct plot_at {
        double time, value;
    } * at;
    size_t n;
};

struct plot_axis {
    double lo, hi, shift; /* a logarithmic axis shows log(x + shift) */
    bool log;
    double from, to; /* pixels */
};

struct plot {
    const struct race *race;
    const struct race_entrant *order[RACE_ENTRANTS];
    struct plot_line *line; /* [entrant of the order][seed] */
    int n, n_seeds;
    const char *key, *metric; /* in the files of curves, and in words */
    double target;            /* NAN: the metric has none */
    double lo, hi;            /* of all values */
    struct plot_axis x, y;
    FILE *f;
};

/* --- curves ------------------------------------------------------------------------------ */

/* Reads the curve of one run; points that cannot be drawn are left out. */
static void plot_read(const struct plot *p, int i, int seed, struct plot_line *line) {
    char path[RACE_PATH + 64], *text = NULL;
    size_t room = 0;
    cli_race_curve(p->race, (int)(p->order[i] - p->race->entrant), seed, path, sizeof path);
    FILE *f = fopen(path, "r");
    while (f && getline(&text, &room, f) > 0) {
        struct plot_at at = {NAN, NAN}, *more = line->at;
        json_t *object = json_loads(text, 0, NULL);
        json_unpack(object, "{s:F, s:F}", "time", &at.time, p->key, &at.value);
        json_decref(object);
        if (p->race->rates) at.value = sqrt(at.value); /* the root of the squared error */
        if (!(at.time >= 0 && at.time < 1e300 && fabs(at.value) < 1e300)) continue;
        if ((line->n & (line->n - 1)) == 0) /* a power of two is full */
            more = realloc(line->at, (2 * line->n + 1) * sizeof *more);
        if (!more) break;
        line->at = more;
        line->at[line->n++] = at;
    }
    if (f) fclose(f);
    free(text);
}

/* The value at a time: between two points on the line through them, after the last point the last
 * value, because the run has ended. NAN before the first. */
static double plot_value(const struct plot_line *line, double time) {
    size_t i = 0;
    while (i < line->n && line->at[i].time <= time) i++;
    if (i == 0 || i == line->n) return i ? line->at[i - 1].value : (double)NAN;
    struct plot_at a = line->at[i - 1], b = line->at[i];
    return a.value + (b.value - a.value) * (time - a.time) / (b.time - a.time);
}

/* When the entrant's last run ended; 0 if it has no curve. */
static double plot_end(const struct plot *p, int i) {
    double end = 0;
    for (const struct plot_line *l = &p->line[i * p->n_seeds], *e = l + p->n_seeds; l < e; l++)
        if (l->n > 0) end = fmax(end, l->at[l->n - 1].time);
    return end;
}

/* --- axes -------------------------------------------------------------------------------- */

/* Fits the axes to the curves and the target. Returns false if there is nothing to draw. */
static bool plot_fit(struct plot *p) {
    double first = INFINITY, soonest = INFINITY, lo = INFINITY, hi = -INFINITY;
    for (const struct plot_line *l = p->line; l < p->line + p->n * p->n_seeds; l++)
        for (const struct plot_at *at = l->at; at < l->at + l->n; at++) {
            if (at->time > 0) first = fmin(first, at->time);
            lo = fmin(lo, at->value), hi = fmax(hi, at->value);
        }
    p->lo = lo, p->hi = hi;
    lo = fmin(lo, p->target), hi = fmax(hi, p->target);
    for (int i = 0; i < p->n; i++) {
        double end = plot_end(p, i);
        if (end > 0) soonest = fmin(soonest, end);
        p->x.hi = fmax(p->x.hi, end);
    }
    p->x.shift = first;
    p->x.log = p->x.hi >= PLOT_DECADES * first && p->x.hi >= PLOT_ENDS * soonest;
    p->y.log = lo > 0 && hi >= PLOT_DECADES * lo;
    double room = hi > lo ? 0.03 * (hi - lo) : 0.01 * (fabs(hi) + 1e-9);
    p->y.lo = p->y.log ? lo / 1.1 : lo - room;
    p->y.hi = p->y.log ? hi * 1.1 : hi + room;
    return p->x.hi > 0;
}

static double plot_place(const struct plot_axis *a, double x) {
    double part = a->log ? log((x + a->shift) / (a->lo + a->shift)) /
                               log((a->hi + a->shift) / (a->lo + a->shift))
                         : (x - a->lo) / (a->hi - a->lo);
    return a->from + part * (a->to - a->from);
}

/* 1, 2 and 5 times powers of ten. If these are too many on a logarithmic axis: the powers alone,
 * every second of them, and so on. */
static int plot_ticks(const struct plot_axis *a, double tick[PLOT_TICKS]) {
    static const double digit[] = {1, 2, 5, 10};
    double raw = (a->hi - a->lo) / (PLOT_TICKS - 3), power = pow(10, floor(log10(raw)));
    double least = a->lo + a->shift;
    int n = 0, m = 0;
    while (m < 3 && digit[m] * power < raw) m++;
    double step = digit[m] * power;
    for (double i = ceil(a->lo / step); !a->log && n < PLOT_TICKS && i * step <= a->hi; i++)
        tick[n++] = i * step;
    for (int by = 0; a->log && (by == 0 || n == PLOT_TICKS); by++) {
        double e = floor(log10(least) / (by + !by)) * (by + !by);
        n = 0;
        if (a->lo == 0) tick[n++] = 0;
        for (; pow(10, e) <= a->hi; e += by + !by)
            for (m = 0; m < (by ? 1 : 3) && n < PLOT_TICKS; m++)
                if (digit[m] * pow(10, e) >= least && digit[m] * pow(10, e) <= a->hi)
                    tick[n++] = digit[m] * pow(10, e);
    }
    return n;
}

/* --- SVG --------------------------------------------------------------------------------- */

static void plot_text(FILE *f, const char *s, int max) {
    for (int n = 0; *s && (n < max || (*s & 0xc0) == 0x80); s++, n++) /* cuts no character */
        if (strchr("&<>", *s))
            fprintf(f, "&#%d;", *s);
        else if ((unsigned char)*s >= 0x20)
            fputc(*s, f);
    if (*s) fputs("…", f);
}

static void plot_axes(const struct plot *p) {
    double tick[PLOT_TICKS], x0 = p->x.from, x1 = p->x.to, y0 = p->y.from, y1 = p->y.to;
    for (int i = plot_ticks(&p->x, tick); i-- > 0;)
        fprintf(p->f,
                "<g transform='translate(%.1f %.1f)'><path class='g' d='M0 0V%.1f'/>"
                "<text y='20' text-anchor='middle'>%g</text></g>\n",
                plot_place(&p->x, tick[i]), y0, y1 - y0, tick[i]);
    for (int i = plot_ticks(&p->y, tick); i-- > 0;)
        fprintf(p->f,
                "<g transform='translate(%.1f %.1f)'><path class='g' d='M0 0H%.1f'/>"
                "<text x='-8' y='4' text-anchor='end'>%g</text></g>\n",
                x0, plot_place(&p->y, tick[i]), x1 - x0, tick[i]);
    fprintf(p->f,
            "<path d='M%.1f %.1fV%.1fH%.1f' fill='none' stroke='#5c6670'/>\n"
            "<text x='%.1f' y='%.1f' text-anchor='middle'>time (s)%s</text>\n"
            "<text transform='translate(18 %.1f)rotate(-90)' text-anchor='middle'>%s</text>\n",
            x0, y1, y0, x1, (x0 + x1) / 2, y0 + 42,
            p->n_seeds > 1 ? "; means over seeds with 95 % intervals" : "", (y0 + y1) / 2,
            p->metric);
}

/* The colour of entrant i: six digits. */
static const char *plot_colour(int i) {
    return &PLOT_COLOURS[7 * (i % 8)];
}

/* The line of an entrant, and its band. */
static void plot_entrant(const struct plot *p, int i) {
    double end = plot_end(p, i), x[PLOT_GRID + 1], y[3][PLOT_GRID + 1]; /* mean, low, high */
    int n = 0;
    for (int k = 0; k <= PLOT_GRID; k++) {
        double part = (double)k / PLOT_GRID, v[RACE_SEEDS];
        double t = p->x.log ? p->x.shift * (pow(end / p->x.shift + 1, part) - 1) : end * part;
        int n_curves = 0;
        for (int s = 0; s < p->n_seeds; s++)
            if (p->line[i * p->n_seeds + s].n > 0)
                v[n_curves++] = plot_value(&p->line[i * p->n_seeds + s], t);
        struct race_mean m = cli_race_mean(v, n_curves);
        if (m.n == 0 || m.n < n_curves) continue; /* a curve has not begun */
        x[n] = plot_place(&p->x, t);
        y[0][n] = plot_place(&p->y, m.mean);
        y[1][n] = plot_place(&p->y, m.n > 1 ? fmax(m.low, p->lo) : m.mean);
        y[2][n++] = plot_place(&p->y, m.n > 1 ? fmin(m.high, p->hi) : m.mean);
    }
    fprintf(p->f, "<polygon fill='#%.6s' opacity='.18' points='", plot_colour(i));
    for (int k = 0; k < n && p->n_seeds > 1; k++) fprintf(p->f, "%.1f,%.1f ", x[k], y[1][k]);
    for (int k = n; k-- > 0 && p->n_seeds > 1;) fprintf(p->f, "%.1f,%.1f ", x[k], y[2][k]);
    fprintf(p->f, "'/>\n<polyline class='l%d' stroke='#%.6s' points='", i > 7, plot_colour(i));
    for (int k = 0; k < n; k++) fprintf(p->f, "%.1f,%.1f ", x[k], y[0][k]);
    fputs("'/>\n", p->f);
}

/* Names in the order of the table, with the time to the target. */
static void plot_legend(const struct plot *p) {
    for (int i = 0; i < p->n; i++) {
        struct race_mean time = cli_race_time(p->race, p->order[i]);
        fprintf(p->f,
                "<g transform='translate(%.1f %.1f)'><path class='l%d' stroke='#%.6s' d='M0 0h22'/>"
                "<text x='28' y='4'>",
                p->x.to + 16, p->y.to + 8 + 20 * i, i > 7, plot_colour(i));
        plot_text(p->f, p->order[i]->name, PLOT_NAME);
        if (time.n > 0) {
            fprintf(p->f, " – %s", cli_race_sign(time.bound));
            cli_race_put(p->f, 3, time.mean, time.within, time.bound);
            fputs(" s", p->f);
        }
        fputs("</text></g>\n", p->f);
    }
}

static void plot_draw(struct plot *p) {
    int wide = p->race->name_width < PLOT_NAME ? p->race->name_width : PLOT_NAME;
    p->x.from = 76, p->x.to = 716;
    p->y.to = 44, p->y.from = 44 + fmax(400, 20 * p->n);
    double width = p->x.to + 60 + 7.5 * (wide + 9), height = p->y.from + 56;
    fprintf(p->f,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
            "font-family='sans-serif' font-size='13' fill='#1c2126'>\n"
            "<style>.g{stroke:#dde1e5}.l0,.l1{fill:none;stroke-width:2}"
            ".l1,.t{stroke-dasharray:6 4}</style>\n"
            "<rect width='100%%' height='100%%' fill='#fff'/>\n<text x='%.1f' y='24'>",
            width, height, p->x.from);
    char *title = cli_race_workload(p->race);
    if (title) plot_text(p->f, title, (int)(width / 7.5));
    free(title);
    fputs("</text>\n", p->f);
    plot_axes(p);
    for (int i = p->n; i-- > 0;) plot_entrant(p, i); /* the first on top */
    if (isfinite(p->target))
        fprintf(p->f,
                "<g transform='translate(%.1f %.1f)'><path class='t' stroke='#5c6670' "
                "d='M0 0H%.1f'/><text x='6' y='-5'>target %g</text></g>\n",
                p->x.from, plot_place(&p->y, p->target), p->x.to - p->x.from, p->target);
    plot_legend(p);
    fputs("</svg>\n", p->f);
}

int cli_race_plot(const struct race *r, bool *drawn) {
    struct plot p = {
        .race = r, .n_seeds = r->n_seeds, .key = "loss", .metric = "training loss", .target = NAN};
    double accuracy = cli_number(r->setup, "target-accuracy");
    double loss = cli_number(r->setup, "target-loss");
    char path[RACE_PATH + 32], why[600], *text = NULL;
    size_t size;
    p.n = cli_race_order(r, p.order);
    if (r->rates) {
        p.key = "test_loss", p.metric = "test RMSE";
    } else if (loss > 0) {
        p.target = loss;
    } else if (p.n > 0 && cli_race_mean(p.order[0]->accuracy, r->n_seeds).n > 0) {
        p.key = "test_accuracy", p.metric = "test accuracy";
        if (accuracy > 0) p.target = accuracy;
    }
    p.line = calloc((size_t)(p.n * p.n_seeds) + 1, sizeof *p.line);
    p.f = p.line ? open_memstream(&text, &size) : NULL;
    for (int i = 0; p.f && i < p.n * p.n_seeds; i++)
        plot_read(&p, i / p.n_seeds, i % p.n_seeds, &p.line[i]);
    *drawn = p.f && plot_fit(&p);
    if (*drawn) plot_draw(&p);
    bool bad = !p.f || fclose(p.f) != 0;
    snprintf(path, sizeof path, "%.480s/plot.svg", r->out);
    snprintf(why, sizeof why, "out of memory for '%.200s'", path);
    if (*drawn && !bad) bad = pl_write_file(path, text, why, sizeof why) != 0;
    for (int i = 0; p.line && i < p.n * p.n_seeds; i++) free(p.line[i].at);
    free(p.line);
    free(text);
    return bad ? cli_fail(CLI_FAILED, "%s", why) : CLI_OK;
}
