/* Plots curves: writes a gnuplot program with the points next to the target file, lets gnuplot draw
 * into a temporary file and renames that when it is complete. No shell, no pipe. */
#define _GNU_SOURCE
#include "observe/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/output.h"
#include "sys/numerals.h"

#define PLOT_PATH 1024
#define PLOT_GRID 240 /* points of a mean */
#define PLOT_DECADES                                                                               \
    30              /* an axis is logarithmic if the data spans this factor; that of time only */
#define PLOT_ENDS 5 /* if the ends of the curves span this one as well */
#define PLOT_LABEL 0.052 /* height of a label, as a part of the figure's */
#define PLOT_NAME 64     /* longest label */

/* Those of the page: --c0 to --c7 of page/page.css in its light colours. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#00875f", "#b0568f",
                                      "#967000", "#2b8cbe", "#333333", "#7f7f7f"};

/* Curves of one name. */
struct plot_group {
    const char *name;
    const struct pl_curve *curve[PL_FIGURE_CURVES];
    size_t n;
    double reached; /* mean time to the target; NAN if a run did not reach it */
    double final;   /* mean of the last values */
    double end;     /* the last time */
    double label;   /* where its label is, as a part of the figure's height */
};

struct plot {
    const struct pl_figure *figure;
    struct plot_group *group;
    size_t n;
    double x0, x1, y0, y1; /* of the data */
    bool log_x, log_y, seeds;
};

/* --- values ------------------------------------------------------------------------------ */

double pl_figure_value(enum pl_metric metric, const struct pl_point *p) {
    if (metric == PL_METRIC_ACCURACY) return p->test_accuracy;
    return metric == PL_METRIC_RMSE ? sqrt(p->test_loss) : p->loss;
}

static bool plot_known(const struct pl_figure *f, const struct pl_point *p) {
    return p->time >= 0 && isfinite(p->time) && isfinite(pl_figure_value(f->metric, p));
}

/* The value at a time: between two points on the line through them, after the last point the last
 * value, because the run has ended. NAN before the first. */
static double plot_at(const struct pl_figure *f, const struct pl_curve *c, double time) {
    const struct pl_point *before = NULL;
    for (size_t i = 0; i < c->n_points; i++) {
        const struct pl_point *p = &c->point[i];
        if (!plot_known(f, p)) continue;
        if (p->time > time) {
            if (!before) return NAN;
            double a = pl_figure_value(f->metric, before), b = pl_figure_value(f->metric, p);
            return a + (b - a) * (time - before->time) / (p->time - before->time);
        }
        before = p;
    }
    return before ? pl_figure_value(f->metric, before) : NAN;
}

static bool plot_meets(const struct pl_figure *f, double value) {
    return f->metric == PL_METRIC_ACCURACY ? value >= f->target : value <= f->target;
}

/* When the curve meets the target: in the middle between two evaluations; NAN: never. */
static double plot_reached(const struct pl_figure *f, const struct pl_curve *c) {
    const struct pl_point *before = NULL;
    for (size_t i = 0; i < c->n_points && isfinite(f->target); i++) {
        const struct pl_point *p = &c->point[i];
        if (!plot_known(f, p)) continue;
        if (plot_meets(f, pl_figure_value(f->metric, p)))
            return before ? (before->time + p->time) / 2 : p->time;
        before = p;
    }
    return NAN;
}

/* --- groups ------------------------------------------------------------------------------ */

static void plot_curve(struct plot *p, const struct pl_curve *c) {
    const struct pl_figure *f = p->figure;
    struct plot_group *g = NULL;
    double last = NAN, end = 0;
    for (size_t i = 0; i < c->n_points; i++) {
        if (!plot_known(f, &c->point[i])) continue;
        last = pl_figure_value(f->metric, &c->point[i]);
        end = c->point[i].time;
        if (end > 0) p->x0 = fmin(p->x0, end);
        p->x1 = fmax(p->x1, end);
        p->y0 = fmin(p->y0, last);
        p->y1 = fmax(p->y1, last);
    }
    if (isnan(last) || !(end > 0)) return;
    for (size_t i = 0; i < p->n && !g; i++)
        if (strcmp(p->group[i].name, c->name) == 0) g = &p->group[i];
    if (!g) {
        g = &p->group[p->n++];
        g->name = c->name;
    }
    double reached = plot_reached(f, c), n = (double)g->n;
    g->reached = g->n ? (g->reached * n + reached) / (n + 1) : reached;
    for (size_t i = 0; i < f->n_times; i++)
        if (strcmp(f->time[i].name, c->name) == 0) g->reached = f->time[i].seconds;
    g->final = (g->final * n + last) / (n + 1);
    g->end = fmax(g->end, end);
    g->curve[g->n++] = c;
    p->seeds = p->seeds || g->n > 1;
}

/* The order of a ranking: those that reached the target first, by time; the others by their value.
 */
static int plot_rank(const struct pl_figure *f, const struct plot_group *a,
                     const struct plot_group *b) {
    if (isfinite(a->reached) != isfinite(b->reached)) return isfinite(a->reached) ? -1 : 1;
    if (isfinite(a->reached)) return (a->reached > b->reached) - (a->reached < b->reached);
    int more = (a->final < b->final) - (a->final > b->final);
    return f->metric == PL_METRIC_ACCURACY ? more : -more;
}

static double plot_height(const struct plot *p, double y) {
    double y0 = p->log_y ? log(p->y0) : p->y0, y1 = p->log_y ? log(p->y1) : p->y1;
    return y1 > y0 ? ((p->log_y ? log(y) : y) - y0) / (y1 - y0) : 0.5;
}

/* Sorts the groups, and gives each label the height at which its curve ends, but not that of
 * another. */
static void plot_labels(struct plot *p) {
    for (size_t i = 1; i < p->n; i++)
        for (size_t j = i; j > 0 && plot_rank(p->figure, &p->group[j], &p->group[j - 1]) < 0; j--) {
            struct plot_group other = p->group[j];
            p->group[j] = p->group[j - 1];
            p->group[j - 1] = other;
        }
    double above = 1 + PLOT_LABEL / 2;
    bool down = p->figure->metric == PL_METRIC_ACCURACY; /* the best is on top */
    for (size_t k = 0; k < p->n; k++) {
        struct plot_group *g = &p->group[down ? k : p->n - 1 - k];
        g->label = fmin(plot_height(p, g->final), above - PLOT_LABEL);
        above = g->label;
    }
    double low = 0.02;
    for (size_t k = p->n; k-- > 0;) { /* push up what fell off the bottom */
        struct plot_group *g = &p->group[down ? k : p->n - 1 - k];
        g->label = fmax(g->label, low);
        low = g->label + PLOT_LABEL;
    }
}

/* --- the program ------------------------------------------------------------------------- */

/* Writes a name for a single-quoted gnuplot string: quotes are doubled. */
static void plot_quote(FILE *g, const char *s) {
    fputc('\'', g);
    for (int n = 0; *s && n < 4 * PLOT_NAME; s++, n++) {
        if (*s == '\'') fputc('\'', g);
        if ((unsigned char)*s >= 0x20) fputc(*s, g);
    }
    fputc('\'', g);
}

static const char *plot_axis(enum pl_metric metric) {
    if (metric == PL_METRIC_ACCURACY) return "test accuracy";
    return metric == PL_METRIC_RMSE ? "test RMSE" : "training loss";
}

static void plot_text(char *out, size_t max, const struct plot_group *g, const char *unit) {
    snprintf(out, max, "%.40s%s", g->name, strlen(g->name) > 40 ? "…" : "");
    if (isfinite(g->reached))
        pl_append(out, max, g->reached >= 1000 ? "  %.0f%s" : "  %.3g%s", g->reached, unit);
}

static void plot_head(FILE *g, const struct plot *p, bool svg) {
    const struct pl_figure *f = p->figure;
    size_t wide = 8;
    char text[PLOT_NAME * 2];
    fprintf(g, svg ? "set terminal svg size 960,560 enhanced font 'sans,14' background '#ffffff'\n"
                   : "set terminal pngcairo size 1920,1120 font 'sans,26' background '#ffffff'\n");
    fprintf(g, "set encoding utf8\nset title ");
    plot_quote(g, f->title);
    fprintf(g, " noenhanced\nset xlabel 'time (s)'\nset ylabel '%s'\n", plot_axis(f->metric));
    fprintf(g, "set grid lc rgb '#e4e4e4' lt 1\nunset key\nset tics nomirror\nset border 3\n");
    fprintf(g, "set format '%%g'\nset style fill transparent solid 0.18 noborder\n");
    if (p->log_x) fprintf(g, "set logscale x\n");
    if (p->log_y) fprintf(g, "set logscale y\n");
    fprintf(g, "set xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\n", p->x0, p->x1, p->y0, p->y1);
    for (size_t i = 0; i < p->n; i++) {
        plot_text(text, sizeof text, &p->group[i], " s");
        if (strlen(text) > wide) wide = strlen(text);
        fprintf(g, "set label %zu ", i + 1);
        plot_quote(g, text);
        fprintf(g, " at graph 1.012,%.4f left noenhanced tc rgb '%s'\n", p->group[i].label,
                colours[i % 8]);
    }
    fprintf(g, "set rmargin %zu\n", wide * 9 / 10 + 3);
    if (isfinite(f->target)) {
        fprintf(g,
                "set arrow from graph 0,first %.9g to graph 1,first %.9g nohead dt 2 "
                "lc rgb '#555555'\nset label 2000 'target %.4g' at graph 0.01,first %.9g "
                "offset 0,0.5 left tc rgb '#555555'\n",
                f->target, f->target, f->target, f->target);
    }
    if (p->seeds)
        fprintf(g, "set label 2001 'line: mean over seeds; band: smallest to largest' at graph "
                   "1,screen 0.02 right font ',11' tc rgb '#777777'\n");
}

/* The mean and the band of a group, or the curve itself if there is one. */
static void plot_group_data(FILE *g, const struct plot *p, const struct plot_group *group) {
    const struct pl_figure *f = p->figure;
    if (group->n == 1) {
        const struct pl_curve *c = group->curve[0];
        for (size_t i = 0; i < c->n_points; i++)
            if (plot_known(f, &c->point[i]) && c->point[i].time >= p->x0)
                fprintf(g, "%.9g %.9g\n", c->point[i].time,
                        pl_figure_value(f->metric, &c->point[i]));
        fprintf(g, "e\n");
        return;
    }
    for (int i = 0; i <= PLOT_GRID; i++) {
        double part = (double)i / PLOT_GRID, low = INFINITY, high = -INFINITY, sum = 0;
        double t =
            p->log_x ? p->x0 * pow(group->end / p->x0, part) : p->x0 + (group->end - p->x0) * part;
        for (size_t k = 0; k < group->n; k++) {
            double y = plot_at(f, group->curve[k], t);
            low = fmin(low, y), high = fmax(high, y), sum += y;
        }
        if (isfinite(sum))
            fprintf(g, "%.9g %.9g %.9g %.9g\n", t, sum / (double)group->n, low, high);
    }
    fprintf(g, "e\n");
}

static void plot_program(FILE *g, const struct plot *p, bool svg) {
    plot_head(g, p, svg);
    fprintf(g, "plot ");
    for (size_t i = 0; i < p->n; i++) /* bands first, so that they cover no line */
        if (p->group[i].n > 1)
            fprintf(g, "'-' using 1:3:4 with filledcurves lc rgb '%s', ", colours[i % 8]);
    for (size_t i = 0; i < p->n; i++) {
        fprintf(g, "%s'-' using 1:2 with lines lw 2 lc rgb '%s' dt %d title ", i ? ", " : "",
                colours[i % 8], i < 8 ? 1 : 2);
        plot_quote(g, p->group[i].name);
    }
    fputc('\n', g);
    for (size_t i = 0; i < p->n; i++)
        if (p->group[i].n > 1) plot_group_data(g, p, &p->group[i]);
    for (size_t i = 0; i < p->n; i++) plot_group_data(g, p, &p->group[i]);
}

/* --- drawing ----------------------------------------------------------------------------- */

/* Runs gnuplot on a program, which writes its picture to `out`. Returns 0, or PL_EMISSING if it is
 * not installed. */
static int plot_run(int program, int out, struct pl_why *why) {
    posix_spawn_file_actions_t files;
    char *const argv[] = {"gnuplot", NULL};
    pid_t child;
    int status = 0;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, program, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    int error = posix_spawnp(&child, "gnuplot", &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (error == ENOENT) return PL_EMISSING;
    if (error) return pl_fail(why, PL_EIO, "gnuplot cannot be started: %s", strerror(error));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return pl_fail(why, PL_EIO, "%s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return PL_EMISSING;
    return status == 0 ? PL_OK : pl_fail(why, PL_EIO, "gnuplot failed");
}

/* Writes the program, runs gnuplot and replaces the picture. */
static int plot_make(const struct plot *p, const char *path, bool svg, struct pl_why *why) {
    struct pl_output picture;
    struct stat st;
    FILE *program = tmpfile();
    if (!program)
        return pl_fail(why, PL_EIO, "no temporary file can be created: %s", strerror(errno));
    plot_program(program, p, svg);
    int rc = fflush(program) || ferror(program)
                 ? pl_fail(why, PL_EIO, "the program for gnuplot: %s", strerror(errno))
                 : pl_output_begin(&picture, path, why);
    if (!rc) {
        rewind(program);
        rc = plot_run(fileno(program), picture.fd, why);
        if (!rc && (fstat(picture.fd, &st) || st.st_size == 0))
            rc = pl_fail(why, PL_EIO, "gnuplot drew nothing");
        rc = pl_output_end(&picture, rc, why);
    }
    fclose(program);
    return rc;
}

/* Fits the axes to the data and the target. */
static void plot_fit(struct plot *p) {
    if (isfinite(p->figure->target)) {
        p->y0 = fmin(p->y0, p->figure->target);
        p->y1 = fmax(p->y1, p->figure->target);
    }
    double first = p->x1;
    for (size_t i = 0; i < p->n; i++) first = fmin(first, p->group[i].end);
    p->log_x = p->x1 >= PLOT_DECADES * p->x0 && p->x1 >= PLOT_ENDS * first;
    if (!p->log_x) p->x0 = 0;
    p->log_y = p->y0 > 0 && p->y1 >= PLOT_DECADES * p->y0;
    double room = p->y1 > p->y0 ? 0.03 * (p->y1 - p->y0) : 0.01 * (fabs(p->y1) + 1e-9);
    if (p->log_y) {
        p->y0 /= 1.1, p->y1 *= 1.1;
    } else {
        p->y0 -= room, p->y1 += room;
    }
}

int pl_figure_draw(const struct pl_figure *f, const char *path, char *why, size_t why_max) {
    size_t len = strlen(path);
    bool svg = len > 4 && strcmp(path + len - 4, ".svg") == 0;
    bool png = len > 4 && strcmp(path + len - 4, ".png") == 0;
    if (why_max > 0) why[0] = '\0';
    if ((!svg && !png) || len + 8 > PLOT_PATH) {
        pl_append(why, why_max, "plot '%.200s' must end in .svg or .png", path);
        return PL_EUSAGE;
    }
    if (!f->replace && access(path, F_OK) == 0) {
        pl_append(why, why_max, "plot '%.200s' already exists; choose another name", path);
        return PL_EIO;
    }
    struct plot p = {.figure = f, .x0 = INFINITY, .y0 = INFINITY, .y1 = -INFINITY};
    p.group = calloc(f->n_curves + 1, sizeof *p.group);
    if (!p.group) {
        pl_append(why, why_max, "out of memory for the plot");
        return PL_ENOMEM;
    }
    for (size_t i = 0; i < f->n_curves && i < PL_FIGURE_CURVES; i++) plot_curve(&p, &f->curve[i]);
    int rc = PL_EUSAGE;
    if (p.n == 0) {
        pl_append(why, why_max, "nothing to plot: no curve has a point after time 0");
    } else {
        plot_fit(&p);
        plot_labels(&p);
        struct pl_why reason = {""};
        rc = plot_make(&p, path, svg, &reason);
        if (rc == PL_EMISSING)
            pl_append(why, why_max, "gnuplot is not installed");
        else if (rc)
            pl_append(why, why_max, "plot '%.200s' could not be written: %s", path, reason.text);
    }
    free(p.group);
    return rc;
}

int pl_plot(const char *path, const char *title, const struct pl_curve *curve, size_t n_curves,
            char *why, size_t why_max) {
    PL_NUMERALS;
    struct pl_figure f = {.title = title,
                          .metric = PL_METRIC_LOSS,
                          .target = NAN,
                          .curve = curve,
                          .n_curves = n_curves};
    for (size_t i = 0; i < n_curves; i++)
        for (size_t j = 0; j < curve[i].n_points; j++)
            if (isfinite(curve[i].point[j].test_accuracy)) f.metric = PL_METRIC_ACCURACY;
    return pl_figure_draw(&f, path, why, why_max);
}
