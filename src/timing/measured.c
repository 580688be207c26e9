#include "timing/measured.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/input.h"
#include "base/seconds.h"
#include "timing/delay.h"
#include "timing/recording.h"

#define TRACE_VALUES_MAX 4000000  /* measurements in a text file */
#define TRACE_WORKERS_MAX 1000000 /* workers in a text file */
#define TRACE_LINE_MAX 256        /* characters per line, including the final zero */

struct pl_measured {
    struct pl_sample *of; /* [n_workers] */
    size_t n_workers;
    double *value; /* storage of the samples: in order, then ascending */
};

/* The measurements in the order of the file. */
struct measured {
    uint32_t worker; /* from 1; always 1 if the file has one column */
    double seconds;
};

struct measured_list {
    struct measured *at;
    size_t n, room;
    int columns;
    uint32_t n_workers;
};

/* --- from a list to samples -------------------------------------------------------------- */

static int measured_compare(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

void pl_measured_free(struct pl_measured *m) {
    if (!m) return;
    free(m->of);
    free(m->value);
    free(m);
}

size_t pl_measured_workers(const struct pl_measured *m) {
    return m->n_workers;
}

struct pl_sample pl_measured_of(const struct pl_measured *m, uint32_t worker) {
    return m->of[worker % m->n_workers];
}

/* Fills in every worker's part of the list, in order and ascending; n is 0 if it has none. */
static void measured_fill(struct pl_measured *m, const struct measured_list *list) {
    double *in_order = m->value, *ascending = m->value + list->n;
    for (size_t i = 0; i < list->n; i++) m->of[list->at[i].worker - 1].n++;
    size_t from = 0;
    for (size_t w = 0; w < m->n_workers; w++) {
        struct pl_sample *s = &m->of[w];
        s->in_order = in_order + from;
        s->ascending = ascending + from;
        from += s->n;
        s->n = 0;
    }
    for (size_t i = 0; i < list->n; i++) {
        struct pl_sample *s = &m->of[list->at[i].worker - 1];
        in_order[(size_t)(s->in_order - in_order) + s->n++] = list->at[i].seconds;
    }
    for (size_t w = 0; w < m->n_workers; w++) {
        struct pl_sample *s = &m->of[w];
        double *sorted = ascending + (s->ascending - ascending);
        memcpy(sorted, s->in_order, s->n * sizeof *sorted);
        qsort(sorted, s->n, sizeof *sorted, measured_compare);
        for (size_t i = 0; i < s->n; i++) s->mean += (sorted[i] - s->mean) / (double)(i + 1);
    }
}

static int measured_build(const char *file, const struct measured_list *list,
                          struct pl_measured **out, struct pl_why *why) {
    struct pl_measured *m = calloc(1, sizeof *m);
    if (m) {
        m->n_workers = list->n_workers;
        m->of = calloc(m->n_workers, sizeof *m->of);
        m->value = malloc(2 * list->n * sizeof *m->value);
    }
    if (!m || !m->of || !m->value) {
        pl_measured_free(m);
        return pl_fail(why, PL_ENOMEM, "out of memory for the delays in '%.200s'", file);
    }
    measured_fill(m, list);
    *out = m;
    return PL_OK;
}

/* --- a text file ------------------------------------------------------------------------- */

/* Adds the numbers of one line, if any. Returns a phrase for the error message, or NULL. */
static const char *measured_trace_line(struct measured_list *m, char *line) {
    line[strcspn(line, "#\r\n")] = '\0';
    double x[2] = {0, 0};
    int n = 0;
    for (char *p = line + strspn(line, " \t"); *p; p += strspn(p, " \t")) {
        char *end;
        if (n == 2) return "has more than two columns";
        x[n] = strtod(p, &end);
        if (end == p || !strchr(" \t", *end)) return "is not a number of seconds";
        n++;
        p = end;
    }
    if (n == 0) return NULL;
    if (m->columns == 0) m->columns = n;
    if (n != m->columns) return "has a different number of columns than the lines before it";
    double seconds = x[n - 1];
    if (!(seconds >= 0.0 && seconds <= PL_DELAY_MAX)) return "is not between 0 and 1e9 seconds";
    if (n == 2 && !(x[0] >= 1.0 && x[0] <= TRACE_WORKERS_MAX && x[0] == floor(x[0])))
        return "does not begin with a worker number of at least 1";
    if (m->n == TRACE_VALUES_MAX) return "exceeds the limit of 4000000 measurements";
    if (!PL_GROW(m->at, m->room, m->n + 1)) return "does not fit into memory";
    m->at[m->n] = (struct measured){n == 2 ? (uint32_t)x[0] : 1u, seconds};
    if (m->at[m->n].worker > m->n_workers) m->n_workers = m->at[m->n].worker;
    m->n++;
    return NULL;
}

static int measured_trace_read(const char *file, struct measured_list *m, struct pl_why *why) {
    if (!file[0])
        return pl_fail(why, PL_EUSAGE,
                       "delay 'trace' needs a file of measured seconds: trace:FILE");
    const char *unreadable;
    FILE *in = pl_input_file(file, &unreadable);
    if (!in) return pl_fail(why, PL_EIO, "delay trace '%s': %s", file, unreadable);
    char line[TRACE_LINE_MAX];
    const char *wrong = NULL;
    unsigned long number = 0;
    while (!wrong && fgets(line, sizeof line, in)) {
        number++;
        if (!strchr(line, '\n') && !feof(in))
            wrong = "is longer than 255 characters or not text";
        else
            wrong = measured_trace_line(m, line);
    }
    int failed = ferror(in) ? errno : 0;
    fclose(in);
    if (failed) return pl_fail(why, PL_EIO, "delay trace '%s': %s", file, strerror(failed));
    if (wrong)
        return pl_fail(why, PL_EDATA,
                       "delay trace '%s': line %lu %s; write SECONDS or WORKER SECONDS", file,
                       number, wrong);
    if (m->n == 0)
        return pl_fail(why, PL_EDATA,
                       "delay trace '%s' has no measurements; write SECONDS per line", file);
    return PL_OK;
}

int pl_measured_trace(const char *file, struct pl_measured **out, struct pl_why *why) {
    struct measured_list list = {0};
    struct pl_measured *m = NULL;
    int rc = measured_trace_read(file, &list, why);
    if (!rc) rc = measured_build(file, &list, &m, why);
    free(list.at);
    if (rc) return rc;
    for (size_t w = 0; w < m->n_workers; w++) {
        if (m->of[w].n > 0) continue;
        rc = pl_fail(
            why, PL_EDATA,
            "delay trace '%s' has no line for worker %zu; each of its %zu workers needs one", file,
            w + 1, m->n_workers);
        pl_measured_free(m);
        return rc;
    }
    *out = m;
    return PL_OK;
}

/* --- a recording ------------------------------------------------------------------------- */

static int measured_recorded_list(const char *file, const struct pl_recording *r,
                                  struct measured_list *list, struct pl_why *why) {
    list->n_workers = (uint32_t)r->n_workers;
    list->at = malloc((r->n_events + 1) * sizeof *list->at);
    if (!list->at) return pl_fail(why, PL_ENOMEM, "out of memory for recording '%.200s'", file);
    for (size_t i = 0; i < r->n_events; i++) {
        const struct pl_event *e = &r->event[i];
        if (e->kind != PL_ARRIVE) continue;
        double seconds = pl_seconds(e->now_ns - r->began_ns[i]) / r->steps;
        list->at[list->n++] =
            (struct measured){(uint32_t)e->worker + 1, fmin(seconds, PL_DELAY_MAX)};
    }
    double missing = pl_recording_missing(r);
    if (missing > PL_MEASURED_MISSING)
        return pl_fail(why, PL_EDATA,
                       "recording '%.200s' has no times for %.0f %% of its tasks, which were "
                       "cancelled or lost because they were slow; record a run that cancels none, "
                       "as with --method async or sync, or give --delay",
                       file, 100 * missing);
    if (list->n > 0) return PL_OK;
    return pl_fail(why, PL_EDATA,
                   "recording '%.200s' has no finished task, so it has no delays to draw from",
                   file);
}

/* Workers without measurements share those of the next worker that has some. */
static void measured_recorded_share(struct pl_measured *m) {
    struct pl_sample next = {0};
    for (size_t i = 2 * m->n_workers; i-- > 0;) { /* two rounds */
        struct pl_sample *s = &m->of[i % m->n_workers];
        if (s->n > 0)
            next = *s;
        else if (next.n > 0)
            *s = next;
    }
}

int pl_measured_recording(const char *file, struct pl_measured **out, struct pl_why *why) {
    if (!file[0])
        return pl_fail(why, PL_EUSAGE,
                       "delay 'recording' needs a recording of a run: recording:FILE");
    struct pl_recording r;
    struct measured_list list = {0};
    int rc = pl_recording_read(file, &r, why);
    if (rc) return rc;
    rc = measured_recorded_list(file, &r, &list, why);
    if (!rc) rc = measured_build(file, &list, out, why);
    if (!rc) measured_recorded_share(*out);
    free(list.at);
    pl_recording_free(&r);
    return rc;
}
