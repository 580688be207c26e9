/* Plots curves: writes a gnuplot program with the points next to the target file, lets gnuplot draw
 * into a temporary file and renames that when it is complete. No shell, no pipe. */
#define _GNU_SOURCE
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

#include "base/status.h"

#define PLOT_PATH 1024

static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#000000", "#999999"};

/* Writes a point if both its numbers have a logarithm; returns whether it did. */
static int plot_point(FILE *g, const struct pl_point *p, int error) {
    double y = error ? 1 - p->test_accuracy : p->loss;
    if (!isfinite(y) || y <= 0 || p->time <= 0) return 0;
    fprintf(g, "%.9g %.9g\n", p->time, y);
    return 1;
}

static int plot_has_accuracy(const struct pl_curve *curve, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < curve[i].n_points; j++)
            if (isfinite(curve[i].point[j].test_accuracy)) return 1;
    return 0;
}

/* Tells whether there is anything to draw. */
static int plot_any(const struct pl_curve *curve, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < curve[i].n_points; j++)
            if (curve[i].point[j].time > 0) return 1;
    return 0;
}

/* Writes a name for a single-quoted gnuplot string: quotes are doubled. */
static void plot_quote(FILE *g, const char *s) {
    fputc('\'', g);
    for (; *s; s++) {
        if (*s == '\'') fputc('\'', g);
        if ((unsigned char)*s >= 0x20) fputc(*s, g);
    }
    fputc('\'', g);
}

static void plot_program(FILE *g, const char *part, int svg, const char *title,
                         const struct pl_curve *curve, size_t n) {
    int error = plot_has_accuracy(curve, n);
    fprintf(g, svg ? "set terminal svg size 900,560 enhanced font 'sans,14' background '#ffffff'\n"
                   : "set terminal pngcairo size 1800,1120 font 'sans,26' background '#ffffff'\n");
    fprintf(g, "set encoding utf8\nset output ");
    plot_quote(g, part);
    fprintf(g, "\nset title ");
    plot_quote(g, title);
    fprintf(g, " noenhanced\nset xlabel 'time (s)'\nset ylabel '%s'\n",
            error ? "test error" : "training loss");
    fprintf(g, "set logscale xy\nset grid lc '#dddddd'\nset key top right noenhanced\n");
    fprintf(g, "set tics nomirror\nset border 3\nset format '%%g'\n");
    if (error) fprintf(g, "set ytics (0.01,0.02,0.03,0.05,0.07,0.1,0.15,0.2,0.3,0.5,0.7,1)\n");
    fprintf(g, "plot ");
    for (size_t i = 0; i < n; i++) {
        fprintf(g, "%s'-' using 1:2 with lines lw 2 lc rgb '%s' dt %d title ", i ? ", " : "",
                colours[i % 8], i < 8 ? 1 : 2);
        plot_quote(g, curve[i].name);
        /* mark the end of the curve */
        fprintf(g, ", '-' using 1:2 with points pt 7 ps 0.8 lc rgb '%s' notitle", colours[i % 8]);
    }
    fputc('\n', g);
    for (size_t i = 0; i < n; i++) {
        const struct pl_point *last = NULL;
        for (size_t j = 0; j < curve[i].n_points; j++)
            if (plot_point(g, &curve[i].point[j], error)) last = &curve[i].point[j];
        fprintf(g, "e\n");
        if (last) plot_point(g, last, error);
        fprintf(g, "e\n");
    }
}

/* Runs gnuplot on a program, silently. Returns 0, PL_EMISSING if it is not installed, or PL_EIO. */
static int plot_draw(const char *program) {
    posix_spawn_file_actions_t files;
    char *const argv[] = {"gnuplot", (char *)program, NULL};
    pid_t child;
    int status = 0;
    posix_spawn_file_actions_init(&files);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&files, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
    int error = posix_spawnp(&child, "gnuplot", &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (error) return error == ENOENT ? PL_EMISSING : PL_EIO;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return PL_EIO;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return PL_EMISSING;
    return status == 0 ? PL_OK : PL_EIO;
}

/* Writes the program, runs gnuplot and renames the picture. */
static int plot_make(const char *path, int svg, const char *title, const struct pl_curve *curve,
                     size_t n) {
    char program[PLOT_PATH], part[PLOT_PATH];
    snprintf(program, sizeof program, "%s.gp", path);
    snprintf(part, sizeof part, "%s.part", path);
    FILE *g = fopen(program, "wx");
    if (!g) return PL_EIO;
    plot_program(g, part, svg, title, curve, n);
    int bad = ferror(g), rc = PL_EIO;
    if (fclose(g) == 0 && !bad) rc = plot_draw(program);
    struct stat st;
    if (!rc && (stat(part, &st) != 0 || st.st_size == 0 || rename(part, path) != 0)) rc = PL_EIO;
    unlink(part);
    unlink(program);
    return rc;
}

int pl_plot(const char *path, const char *title, const struct pl_curve *curve, size_t n_curves,
            char *why, size_t why_max) {
    size_t len = strlen(path);
    int svg = len > 4 && strcmp(path + len - 4, ".svg") == 0;
    int png = len > 4 && strcmp(path + len - 4, ".png") == 0;
    if (why_max > 0) why[0] = '\0';
    if ((!svg && !png) || len + 8 > PLOT_PATH) {
        pl_append(why, why_max, "plot '%.200s' must end in .svg or .png", path);
        return PL_EUSAGE;
    }
    if (access(path, F_OK) == 0) {
        pl_append(why, why_max, "plot '%.200s' already exists; choose another name", path);
        return PL_EIO;
    }
    if (!plot_any(curve, n_curves)) {
        pl_append(why, why_max, "nothing to plot: no curve has a point after time 0");
        return PL_EUSAGE;
    }
    int rc = plot_make(path, svg, title, curve, n_curves);
    if (rc == PL_EMISSING)
        pl_append(why, why_max, "gnuplot is not installed");
    else if (rc)
        pl_append(why, why_max, "plot '%.200s' could not be written", path);
    return rc;
}
