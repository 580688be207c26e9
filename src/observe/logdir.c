#include "observe/logdir.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/sink.h"
#include "observe/tensorboard.h"
#include "observe/trace.h"
#include "sys/clock.h"

#define LOGDIR_PATH 1024
#define LOGDIR_LIMIT 268435456 /* bytes of the trace, and of the event log */

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
    long long limit;
    bool full[LOGDIR_FILES];        /* has reached the limit, and says so at its end */
    uint64_t samples, samples_then; /* in applied updates: now, and at the last point */
    double time_then;
    bool begun; /* there was at least one event */
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
    return pl_fail(why, PL_EIO, "log directory '%.200s' cannot be created: %s", ld->dir,
                   strerror(errno));
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

/* Removes what was created before the failure. */
static void logdir_undo(struct pl_logdir *ld) {
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

int pl_logdir_open(const char *dir, const char *method, int n_workers, struct pl_logdir **out,
                   struct pl_why *why) {
    struct pl_logdir *ld = calloc(1, sizeof *ld);
    if (!ld) return pl_fail(why, PL_ENOMEM, "out of memory for the log directory");
    ld->limit = LOGDIR_LIMIT;
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
        logdir_undo(ld);
        return rc;
    }
    *out = ld;
    return PL_OK;
}

/* --- a run ------------------------------------------------------------------------------- */

void pl_logdir_point(struct pl_logdir *ld, const struct pl_point *p) {
    double seconds = p->time - ld->time_then, speed = NAN;
    if (seconds > 0) speed = (double)(ld->samples - ld->samples_then) / seconds;
    pl_sink_point(ld->file[LOGDIR_POINTS].f, ld->method, p);
    fflush(ld->file[LOGDIR_POINTS].f);
    pl_tensorboard_point(ld->tensorboard, p, speed);
    if (ld->trace) pl_trace_point(ld->trace, p);
    ld->time_then = p->time;
    ld->samples_then = ld->samples;
}

static uint64_t logdir_samples(const struct pl_control *c, const struct pl_plan *plan) {
    uint64_t samples = 0;
    size_t n;
    const struct pl_member *group = pl_control_group(c, &n);
    for (size_t i = 0; i < plan->n; i++)
        for (size_t m = 0; plan->action[i].verb == PL_COMMIT && m < n; m++)
            samples += group[m].samples;
    return samples;
}

/* Whether the file is below the limit. At the limit it is ended: the event log with a line that
 * says so, the trace as at the end of a run. */
static bool logdir_has_room(struct pl_logdir *ld, int i, uint64_t now_ns) {
    if (ld->full[i]) return false;
    if (ftello(ld->file[i].f) < ld->limit) return true;
    ld->full[i] = true;
    if (i == LOGDIR_EVENTS) {
        fprintf(ld->file[i].f, "(the log ends here: it has reached its limit of %lld bytes)\n",
                ld->limit);
    } else {
        pl_trace_end(ld->trace, now_ns);
        ld->trace = NULL;
    }
    return false;
}

void pl_logdir_limit(struct pl_logdir *ld, long long bytes) {
    ld->limit = bytes;
}

void pl_logdir_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan) {
    struct pl_logdir *ld = ctx;
    if (!ld->begun) ld->time_then = (double)e->now_ns * 1e-9; /* not 0 if resumed */
    ld->begun = true;
    ld->samples += logdir_samples(c, plan);
    if (logdir_has_room(ld, LOGDIR_EVENTS, e->now_ns))
        pl_sink_event(ld->file[LOGDIR_EVENTS].f, c, e, plan);
    if (logdir_has_room(ld, LOGDIR_TRACE, e->now_ns)) pl_trace_event(ld->trace, c, e, plan);
}

int pl_logdir_flush(struct pl_logdir *ld, struct pl_why *why) {
    int rc = pl_tensorboard_flush(ld->tensorboard, why);
    for (int i = 0; i < LOGDIR_FILES; i++) {
        FILE *f = ld->file[i].f;
        errno = 0;
        if ((fflush(f) != 0 || ferror(f)) && !rc)
            rc = pl_fail(why, PL_EIO, "%s file '%.200s' cannot be written: %s", logdir_file[i].what,
                         ld->file[i].path, errno ? strerror(errno) : "write error");
    }
    return rc;
}

/* Reports the first failure, but closes everything. */
int pl_logdir_close(struct pl_logdir *ld, uint64_t now_ns, struct pl_why *why) {
    if (!ld) return PL_OK;
    pl_trace_end(ld->trace, now_ns);
    int first = PL_OK;
    for (int i = 0; i < LOGDIR_FILES; i++) {
        int rc =
            pl_sink_close(logdir_file[i].what, ld->file[i].path, ld->file[i].f, first ? NULL : why);
        if (!first) first = rc;
    }
    int rc = pl_tensorboard_close(ld->tensorboard, first ? NULL : why);
    logdir_free(ld);
    return first ? first : rc;
}
