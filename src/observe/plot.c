/* Curves into a picture: gnuplot reads a program from a pipe, with the points in it, and writes a
 * file beside the wanted one, which is renamed when it is complete. */
#include <errno.h>
#include <math.h>
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

static double plot_value(const struct pl_point *p, int error) {
    return error ? 1 - p->test_accuracy : p->loss;
}

static int plot_has_accuracy(const struct pl_curve *curve, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < curve[i].n_points; j++)
            if (isfinite(curve[i].point[j].test_accuracy)) return 1;
    return 0;
}

/* A name inside a gnuplot string in single quotes: the quote itself is doubled. */
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
    fprintf(g,
            " noenhanced\nset xlabel 'time (s)'\nset ylabel '%s'\nset logscale y\nset grid lc "
            "'#dddddd'\n",
            error ? "test error" : "training loss");
    fprintf(g, "set key outside right top noenhanced\nset tics nomirror\nset border 3\n");
    fprintf(g, "set format y '%%g'\nset mytics 5\n");
    fprintf(g, "plot ");
    for (size_t i = 0; i < n; i++) {
        fprintf(g, "%s'-' using 1:2 with lines lw 2 lc rgb '%s' dt %d title ", i ? ", " : "",
                colours[i % 8], i < 8 ? 1 : 2);
        plot_quote(g, curve[i].name);
    }
    fputc('\n', g);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < curve[i].n_points; j++) {
            double y = plot_value(&curve[i].point[j], error);
            if (isfinite(y) && y > 0) fprintf(g, "%.9g %.9g\n", curve[i].point[j].time, y);
        }
        fprintf(g, "e\n");
    }
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
        pl_append(why, why_max, "plot '%.200s' exists, and is left as it is; choose another name",
                  path);
        return PL_EIO;
    }
    if (system("command -v gnuplot >/dev/null 2>&1") != 0) {
        pl_append(why, why_max, "the plot needs gnuplot, which is not installed");
        return PL_EMISSING;
    }
    char part[PLOT_PATH];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *g = popen("gnuplot 2>/dev/null", "w");
    if (!g) {
        pl_append(why, why_max, "gnuplot cannot be started: %s", strerror(errno));
        return PL_EMISSING;
    }
    plot_program(g, part, svg, title, curve, n_curves);
    int status = pclose(g);
    struct stat st;
    if (status != 0 || stat(part, &st) != 0 || st.st_size == 0 || rename(part, path) != 0) {
        unlink(part);
        pl_append(why, why_max, "plot '%.200s' could not be written", path);
        return PL_EIO;
    }
    return PL_OK;
}
