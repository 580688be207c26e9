#include "observe/logdir.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/output.h"
#include "observe/sink.h"
#include "observe/tensorboard.h"
#include "observe/trace.h"
#include "sys/clock.h"

#define LOGDIR_PATH 1024

enum { LOGDIR_POINTS, LOGDIR_TRACE, LOGDIR_EVENTS, LOGDIR_FILES };

static const struct {
    const char *what, *name;
} logdir_file[LOGDIR_FILES] = {[LOGDIR_POINTS] = {"points", "points.jsonl"},
                               [LOGDIR_TRACE] = {"trace", "trace.json"},
                               [LOGDIR_EVENTS] = {"event log", "events.txt"}};

struct pl_logdir {
    char *dir, *method;
    bool made; /* the directory was created here */
    struct {
        char path[LOGDIR_PATH];
        FILE *f;
    } file[LOGDIR_FILES];
    struct pl_tensorboard *tensorboard;
    struct pl_trace *trace;
    double samples_then, time_then; /* at the last point */
    bool begun;                     /* there was one */
    uint64_t max;                   /* bytes of a file with a line per event */
    bool events_full, trace_full;
    bool told[LOGDIR_FILES + 1]; /* flushing has reported the file; the last is TensorBoard's */
};

/* --- opening ----------------------------------------------------------------------------- */

static int logdir_check_empty(const char *dir, struct pl_why *why) {
    DIR *d = opendir(dir);
    const struct dirent *entry;
    bool empty = true;
    if (!d)
        return pl_fail(why, PL_EIO, "log directory '%.200s' cannot be used: %s", dir,
                       strerror(errno));
    while (empty && (entry = readdir(d)))
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(d);
    if (empty) return PL_OK;
    return pl_fail(why, PL_EIO, "log directory '%.200s' is not empty; choose another name", dir);
}

static int logdir_make(struct pl_logdir *ld, struct pl_why *why) {
    if (mkdir(ld->dir, 0777) == 0) {
        ld->made = true;
        return PL_OK;
    }
    if (errno == EEXIST) return logdir_check_empty(ld->dir, why);
    return pl_output_no_folder("log directory", ld->dir, why);
}

static int logdir_open_file(struct pl_logdir *ld, int i, struct pl_why *why) {
    int n = snprintf(ld->file[i].path, LOGDIR_PATH, "%s/%s", ld->dir, logdir_file[i].name);
    if (n >= LOGDIR_PATH)
        return pl_fail(why, PL_EUSAGE, "log directory '%.100s…': the name is too long", ld->dir);
    return pl_sink_open(logdir_file[i].what, ld->file[i].path, &ld->file[i].f, why);
}

static int logdir_fill(struct pl_logdir *ld, int n_workers, struct pl_why *why) {
    int rc = PL_OK;
    for (int i = 0; !rc && i < LOGDIR_FILES; i++) rc = logdir_open_file(ld, i, why);
    if (!rc) rc = pl_tensorboard_open(ld->dir, pl_wall_seconds(), &ld->tensorboard, why);
    if (rc) return rc;
    rc = pl_trace_new(ld->file[LOGDIR_TRACE].f, ld->method, n_workers, &ld->trace);
    return rc ? pl_fail(why, rc, "out of memory for a trace of %d workers", n_workers) : PL_OK;
}

static void logdir_free(struct pl_logdir *ld) {
    free(ld->dir);
    free(ld->method);
    free(ld);
}

void pl_logdir_discard(struct pl_logdir *ld) {
    char path[LOGDIR_PATH];
    snprintf(path, sizeof path, "%s/run.json", ld->dir);
    unlink(path);
    pl_trace_end(ld->trace);
    if (ld->tensorboard) {
        unlink(pl_tensorboard_path(ld->tensorboard));
        pl_tensorboard_close(ld->tensorboard, NULL);
    }
    for (int i = 0; i < LOGDIR_FILES; i++) {
        if (!ld->file[i].f) continue;
        fclose(ld->file[i].f);
        unlink(ld->file[i].path);
    }
    if (ld->made) rmdir(ld->dir);
    logdir_free(ld);
}

int pl_logdir_open(const char *dir, const char *method, int n_workers, uint64_t max,
                   struct pl_logdir **out, struct pl_why *why) {
    struct pl_logdir *ld = calloc(1, sizeof *ld);
    if (!ld) return pl_fail(why, PL_ENOMEM, "out of memory for the log directory");
    ld->max = max;
    ld->dir = strdup(dir);
    ld->method = strdup(method);
    int rc = ld->dir && ld->method ? logdir_make(ld, why)
                                   : pl_fail(why, PL_ENOMEM, "out of memory for the log directory");
    if (rc) {
        logdir_free(ld);
        return rc;
    }
    rc = logdir_fill(ld, n_workers, why);
    if (rc) {
        pl_logdir_discard(ld);
        return rc;
    }
    *out = ld;
    return PL_OK;
}

int pl_logdir_run(const struct pl_logdir *ld, const char *json, struct pl_why *why) {
    char path[LOGDIR_PATH];
    snprintf(path, sizeof path, "%s/run.json", ld->dir); /* shorter than points.jsonl */
    return pl_sink_describe(path, json, why);
}

/* --- a run ------------------------------------------------------------------------------- */

void pl_logdir_point(struct pl_logdir *ld, const struct pl_point *p) {
    /* both of the point's moment: a point arrives after its score was computed */
    double seconds = p->time - ld->time_then, speed = NAN;
    if (ld->begun && seconds > 0) speed = (p->samples - ld->samples_then) / seconds;
    pl_sink_point(ld->file[LOGDIR_POINTS].f, ld->method, p);
    fflush(ld->file[LOGDIR_POINTS].f);
    pl_tensorboard_point(ld->tensorboard, p, speed);
    if (!ld->trace_full) pl_trace_point(ld->trace, p);
    ld->time_then = p->time;
    ld->samples_then = p->samples;
    ld->begun = true;
}

void pl_logdir_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan) {
    struct pl_logdir *ld = ctx;
    if (!ld->events_full) pl_sink_event(ld->file[LOGDIR_EVENTS].f, c, e, plan);
    if (!ld->trace_full) pl_trace_event(ld->trace, c, e, plan);
}

bool pl_logdir_is_full(const struct pl_logdir *ld) {
    return ld->events_full || ld->trace_full;
}

/* A file that has reached its limit is completed. */
static void logdir_look(struct pl_logdir *ld) {
    if (!ld->events_full && pl_sink_is_full(ld->file[LOGDIR_EVENTS].f, ld->max)) {
        fprintf(ld->file[LOGDIR_EVENTS].f, "(the event log ends here: it has reached its limit)\n");
        ld->events_full = true;
    }
    if (!ld->trace_full && pl_sink_is_full(ld->file[LOGDIR_TRACE].f, ld->max)) {
        pl_trace_end(ld->trace);
        ld->trace = NULL;
        ld->trace_full = true;
    }
}

int pl_logdir_flush(struct pl_logdir *ld, struct pl_why *why) {
    struct pl_why reason;
    int first = PL_OK;
    logdir_look(ld);
    for (int i = 0; i <= LOGDIR_FILES; i++) {
        int rc = i == LOGDIR_FILES
                     ? pl_tensorboard_flush(ld->tensorboard, &reason)
                     : pl_sink_flush(logdir_file[i].what, ld->file[i].path, ld->file[i].f, &reason);
        if (!rc || ld->told[i] || first) continue;
        ld->told[i] = true;
        *why = reason;
        first = rc;
    }
    return first;
}

/* Reports the first failure, with its reason, and which other files have failed. */
int pl_logdir_close(struct pl_logdir *ld, struct pl_why *why) {
    if (!ld) return PL_OK;
    int first = PL_OK;
    pl_trace_end(ld->trace);
    for (int i = 0; i <= LOGDIR_FILES; i++) {
        struct pl_why *reason = first ? NULL : why;
        int rc = i == LOGDIR_FILES
                     ? pl_tensorboard_close(ld->tensorboard, reason)
                     : pl_sink_close(logdir_file[i].what, ld->file[i].path, ld->file[i].f, reason);
        if (rc && first && why)
            pl_append(why->text, sizeof why->text, "; nor could %s",
                      i == LOGDIR_FILES ? "TensorBoard's file" : logdir_file[i].name);
        if (!first) first = rc;
    }
    logdir_free(ld);
    return first;
}
