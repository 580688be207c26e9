/* Figures drawn by gnuplot: a metric of runs against time.
 *
 * Threads: any. */
#ifndef PL_OBSERVE_PLOT_H
#define PL_OBSERVE_PLOT_H

#include <stdbool.h>

#include "base/status.h"

#define PL_FIGURE_CURVES 1024 /* at most */

enum pl_metric { PL_METRIC_ACCURACY, PL_METRIC_RMSE, PL_METRIC_LOSS };

struct pl_figure_time {
    const char *name;
    double seconds; /* NAN: it has none */
};

/* Curves of the same name are runs of one method with different seeds: they become one line, their
 * mean, in a band from the smallest to the largest. */
struct pl_figure {
    const char *title;
    enum pl_metric metric;
    double target; /* of the metric; NAN: none */
    const struct pl_curve *curve;
    size_t n_curves;
    bool replace;                      /* an existing file */
    const struct pl_figure_time *time; /* to the target, of each name, as a race computed it */
    size_t n_times;                    /* 0: it is read off the curves */
};

/* The value of the metric at a point; NAN if it is unknown. */
double pl_figure_value(enum pl_metric metric, const struct pl_point *p);

/* Draws an SVG or PNG file, depending on the extension of `path`. On failure why[why_max] has a
 * message and no file is left. PL_EMISSING: there is no gnuplot. */
int pl_figure_draw(const struct pl_figure *f, const char *path, char *why, size_t why_max);

#endif
