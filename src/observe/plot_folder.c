/* pl_plot_folder: reads the curves of a race or a run back from its folder, and draws them. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sys/numerals.h"

#include "observe/plot.h"

#define FOLDER_PATH 1200
#define FOLDER_LINE 65536
#define FOLDER_NAMES 128
#define FOLDER_POINTS 1000000
#define FOLDER_BYTES (64u << 20) /* longest file of options */

struct folder {
    const char *path;
    char *name[FOLDER_NAMES]; /* of a race: the entrants, in order */
    size_t n_names;
    struct pl_figure_time time[FOLDER_NAMES]; /* of a race: what it computed */
    size_t n_times;
    struct pl_curve curve[PL_FIGURE_CURVES];
    size_t n_curves;
    char title[400];
    enum pl_metric metric;
    double target_accuracy, target_loss;
};

/* --- lines ------------------------------------------------------------------------------- */

/* Calls each() with every line of a file that is a JSON object; other lines are left out. Returns
 * false if there is no such file. */
static bool folder_lines(const struct folder *d, const char *name,
                         void (*each)(void *ctx, const json_t *line), void *ctx) {
    char path[FOLDER_PATH], *line = malloc(FOLDER_LINE);
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    FILE *f = line && stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "r") : NULL;
    while (f && fgets(line, FOLDER_LINE, f)) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_is_object(object)) each(ctx, object);
        json_decref(object);
    }
    if (f) fclose(f);
    free(line);
    return f != NULL;
}

static double folder_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void folder_name(struct folder *d, const char *name) {
    if (!name || d->n_names == FOLDER_NAMES) return;
    for (size_t i = 0; i < d->n_names; i++)
        if (strcmp(d->name[i], name) == 0) return;
    d->name[d->n_names] = strdup(name);
    if (d->name[d->n_names]) d->n_names++;
}

static void folder_entrant(void *ctx, const json_t *line) {
    folder_name(ctx, json_string_value(json_object_get(line, "entrant")));
}

struct folder_curve {
    struct pl_point *point;
    size_t n, room;
    char method[64];
};

static void folder_point(void *ctx, const json_t *line) {
    struct folder_curve *c = ctx;
    if (c->n == c->room && c->n < FOLDER_POINTS) {
        size_t room = c->room ? 2 * c->room : 256;
        struct pl_point *grown = realloc(c->point, room * sizeof *grown);
        if (!grown) return;
        c->point = grown;
        c->room = room;
    }
    if (c->n == c->room) return;
    const char *method = json_string_value(json_object_get(line, "method"));
    if (method) snprintf(c->method, sizeof c->method, "%s", method);
    c->point[c->n++] = (struct pl_point){.time = folder_number(line, "time"),
                                         .loss = folder_number(line, "loss"),
                                         .test_loss = folder_number(line, "test_loss"),
                                         .test_accuracy = folder_number(line, "test_accuracy")};
}

static void folder_curve(struct folder *d, const char *file, const char *name) {
    struct folder_curve c = {0};
    if (d->n_curves == PL_FIGURE_CURVES) return;
    folder_lines(d, file, folder_point, &c);
    char *label = strdup(name ? name : c.method[0] ? c.method : "run");
    if (label && c.n > 0) {
        d->curve[d->n_curves++] = (struct pl_curve){label, c.point, c.n};
        return;
    }
    free(label);
    free(c.point);
}

/* --- what was run ----------------------------------------------------------------------------- */

static const char *folder_option(const json_t *options, const char *key) {
    const json_t *value = json_object_get(options, key);
    const char *text = json_string_value(value);
    return text ? text : "";
}

/* Entrants, and their times to the target if all runs reached it. */
static void folder_race(struct folder *d, const json_t *root) {
    size_t i, j;
    json_t *entrant, *row;
    json_array_foreach(json_object_get(root, "entrants"), i, entrant)
        folder_name(d, json_string_value(json_object_get(entrant, "name")));
    json_array_foreach(json_object_get(root, "ranking"), i, row) {
        const char *name = json_string_value(json_object_get(row, "method"));
        const json_t *time = json_object_get(row, "time_to_target");
        bool exact = !json_is_string(json_object_get(time, "bound"));
        for (j = 0; name && j < d->n_names && d->n_times < FOLDER_NAMES; j++)
            if (strcmp(d->name[j], name) == 0)
                d->time[d->n_times++] = (struct pl_figure_time){
                    d->name[j], exact ? folder_number(time, "mean") : (double)NAN};
    }
}

static bool folder_describe(struct folder *d, const char *name) {
    char path[FOLDER_PATH];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > FOLDER_BYTES) return false;
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *o = json_object_get(root, "options");
    const char *metric = json_string_value(json_object_get(root, "metric"));
    if (json_is_object(o)) {
        const char *delay = folder_option(o, "delay");
        bool none = strcmp(delay, "auto") == 0 || !delay[0];
        snprintf(d->title, sizeof d->title, "%.100s, %.60s, %.10s workers%s%.100s",
                 folder_option(o, "data"), folder_option(o, "model"), folder_option(o, "workers"),
                 none ? "" : ", delay ", none ? "" : delay);
        d->target_accuracy = strtod(folder_option(o, "target-accuracy"), NULL);
        d->target_loss = strtod(folder_option(o, "target-loss"), NULL);
    }
    if (metric && strcmp(metric, "rmse") == 0) d->metric = PL_METRIC_RMSE;
    folder_race(d, root);
    bool found = json_is_object(o);
    json_decref(root);
    return found;
}

/* --- the folder -------------------------------------------------------------------------- */

static int folder_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int folder_read(struct folder *d, char *why, size_t why_max) {
    char *file[PL_FIGURE_CURVES];
    size_t n = 0;
    bool known = folder_describe(d, "race.json");        /* has the entrants in order, */
    folder_lines(d, "results.jsonl", folder_entrant, d); /* earlier races only those with results */
    DIR *dir = opendir(d->path);
    if (!dir) {
        pl_append(why, why_max, "'%.200s' cannot be read: %s", d->path, strerror(errno));
        return PL_EIO;
    }
    for (const struct dirent *e; n < PL_FIGURE_CURVES && (e = readdir(dir));)
        if (strncmp(e->d_name, "points", 6) == 0 && (file[n] = strdup(e->d_name))) n++;
    closedir(dir);
    qsort(file, n, sizeof *file, folder_order);
    for (size_t i = 0; i < n; i++) {
        size_t entrant = 0;
        char name[40];
        if (sscanf(file[i], "points-%zu-seed", &entrant) == 1 && entrant >= 1 &&
            entrant <= d->n_names) {
            folder_curve(d, file[i], d->name[entrant - 1]);
            snprintf(name, sizeof name, "history-%02zu.json", entrant);
            if (d->metric == PL_METRIC_LOSS && folder_describe(d, name)) known = true;
        } else if (strcmp(file[i], "points.jsonl") == 0) {
            folder_curve(d, file[i], NULL);
        }
        free(file[i]);
    }
    if (!known && !folder_describe(d, "history.json")) folder_describe(d, "run.json");
    return PL_OK;
}

static void folder_figure(const struct folder *d, struct pl_figure *f) {
    bool accuracy = false;
    for (size_t i = 0; i < d->n_curves; i++)
        for (size_t j = 0; j < d->curve[i].n_points; j++)
            accuracy = accuracy || isfinite(d->curve[i].point[j].test_accuracy);
    if (f->metric == PL_METRIC_LOSS && accuracy && !(d->target_loss > 0))
        f->metric = PL_METRIC_ACCURACY;
    if (f->metric == PL_METRIC_ACCURACY && d->target_accuracy > 0) f->target = d->target_accuracy;
    if (f->metric == PL_METRIC_LOSS && d->target_loss > 0) f->target = d->target_loss;
}

int pl_plot_folder(const char *folder, const char *path, char *why, size_t why_max) {
    PL_NUMERALS;
    char own[FOLDER_PATH];
    struct folder *d = calloc(1, sizeof *d);
    if (why_max > 0) why[0] = '\0';
    if (!d) return PL_ENOMEM;
    d->path = folder;
    d->metric = PL_METRIC_LOSS;
    snprintf(d->title, sizeof d->title, "%.200s", folder);
    int n = snprintf(own, sizeof own, "%s/plot.svg", folder);
    int rc = n < FOLDER_PATH ? folder_read(d, why, why_max) : PL_EUSAGE;
    if (!rc && d->n_curves == 0) {
        pl_append(why, why_max, "'%.200s' has no curves: give a folder of a race or of --log-dir",
                  folder);
        rc = PL_EUSAGE;
    }
    if (!rc) {
        struct pl_figure f = {d->title,    d->metric,    NAN,     d->curve,
                              d->n_curves, path == NULL, d->time, d->n_times};
        folder_figure(d, &f);
        rc = pl_figure_draw(&f, path ? path : own, why, why_max);
    }
    for (size_t i = 0; i < d->n_curves; i++) {
        free((char *)(uintptr_t)d->curve[i].name);
        free((struct pl_point *)(uintptr_t)d->curve[i].point);
    }
    for (size_t i = 0; i < d->n_names; i++) free(d->name[i]);
    free(d);
    return rc;
}
