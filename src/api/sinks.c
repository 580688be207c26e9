#include "api/sinks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/output.h"
#include "learn/task.h"
#include "sys/clock.h"

#define SINKS_HISTORY_NS 10000000000u /* between two times that the history is written */

/* The options, and what the run is as a line of its own. */
static int sinks_record(struct pl_sinks *s, struct pl_setup *setup, const struct pl_job *job,
                        const char *run) {
    char *text;
    int rc = pl_setup_text(setup, &text);
    if (rc) return rc;
    size_t room = strlen(text) + strlen(run) + 8;
    char *whole = malloc(room);
    if (whole) {
        snprintf(whole, room, run[0] ? "%srun=%s\n" : "%s", text, run);
        rc = pl_recorder_open(setup->conf.record, whole, job->n_workers, pl_job_steps(job),
                              &s->recorder, &setup->why);
    } else {
        rc = pl_fail(&setup->why, PL_ENOMEM, "out of memory for the recording");
    }
    free(whole);
    free(text);
    return rc;
}

/* --- the history ------------------------------------------------------------------------- */

static const char *sinks_metric(const struct pl_model *model) {
    if (!model) return "";
    return model->rates ? "rmse" : "accuracy";
}

/* Leaves out the data set, which a model without data does not use. */
static void sinks_leave_out_data(char *text) {
    char *line = strstr(text, "\ndata="), *end = line ? strchr(line + 1, '\n') : NULL;
    if (end) memmove(line, end, strlen(end) + 1);
}

/* The history has the options that were used, as run.json does. */
static int sinks_begin(struct pl_sinks *s, struct pl_setup *setup, const struct pl_built *built,
                       const char *clock, const struct pl_identity *run) {
    struct pl_setup_conf used;
    char *text;
    pl_identity_resolve(setup, built, run->kind, &used);
    int rc = pl_setup_text_of(setup, &used, &text);
    if (rc) return rc;
    if (!built->job.data) sinks_leave_out_data(text);
    const struct pl_history_info info = {built->method, clock, sinks_metric(built->job.model), text,
                                         run->command};
    if (pl_history_new(&info, built->job.n_workers, &s->history))
        rc = pl_fail(&setup->why, PL_ENOMEM, "out of memory for the history of %d workers",
                     built->job.n_workers);
    free(text);
    return rc;
}

/* Serves the page, unless the setup is a copy of one that does. */
static int sinks_serve(struct pl_sinks *s, struct pl_setup *setup) {
    s->dashboard = setup->board ? setup->board->dashboard : NULL;
    if (s->dashboard) return PL_OK;
    int rc = pl_dashboard_open(setup->conf.dashboard, pl_setup_facts(), &s->dashboard, &setup->why);
    s->own_dashboard = !rc;
    if (rc) return pl_fail_in(&setup->why, rc, "dashboard");
    char url[PL_DASHBOARD_URL];
    pl_log_note(&setup->log, "the dashboard is at %s", pl_dashboard_url(s->dashboard, url));
    return PL_OK;
}

static int sinks_watch(struct pl_sinks *s, struct pl_setup *setup, const struct pl_built *built,
                       const char *clock, const struct pl_identity *run) {
    const struct pl_setup_conf *c = &setup->conf;
    bool wants = c->history[0] || c->log_dir[0] || c->dashboard[0] || setup->captured;
    int rc = wants ? sinks_begin(s, setup, built, clock, run) : PL_OK;
    if (!rc && c->history[0]) {
        FILE *f;
        rc = pl_sink_open("history", c->history, &f, &setup->why); /* overwrites no file */
        if (!rc) fclose(f);
        if (!rc) snprintf(s->history_path, sizeof s->history_path, "%s", c->history);
    }
    if (!rc && !c->history[0] && c->log_dir[0])
        snprintf(s->history_path, sizeof s->history_path, "%s/history.json", c->log_dir);
    if (!rc && c->dashboard[0]) rc = sinks_serve(s, setup);
    if (!rc && s->dashboard && s->history) pl_dashboard_attach(s->dashboard, s->history);
    s->written_ns = pl_now_ns();
    return rc;
}

static int sinks_write(struct pl_sinks *s, struct pl_why *why) {
    struct pl_why reason;
    size_t n;
    uint64_t began_ns = pl_now_ns();
    char *text = pl_history_json(s->history, &n);
    if (!text) return pl_fail(why, PL_ENOMEM, "out of memory for the history");
    int rc = pl_output_write(s->history_path, text, n, &reason);
    free(text);
    s->written_ns = pl_now_ns();
    s->write_ns = s->written_ns - began_ns;
    return rc ? pl_fail(why, rc, "history file '%.200s' could not be written: %s", s->history_path,
                        reason.text)
              : PL_OK;
}

/* Writes the history from time to time, so that a run that is killed has one; never for more than a
 * fiftieth of the time. */
static void sinks_keep(struct pl_sinks *s) {
    uint64_t rest_ns = 50 * s->write_ns > SINKS_HISTORY_NS ? 50 * s->write_ns : SINKS_HISTORY_NS;
    if (!s->history || !s->history_path[0] || pl_now_ns() - s->written_ns < rest_ns) return;
    sinks_write(s, NULL); /* closing reports what went wrong */
}

static int sinks_finish(struct pl_sinks *s, struct pl_why *why) {
    int rc = PL_OK;
    size_t n;
    if (s->history) {
        if (s->dashboard) pl_dashboard_enter(s->dashboard);
        pl_history_end(s->history, s->why, s->core_wait);
        if (s->dashboard) pl_dashboard_leave(s->dashboard);
        if (s->history_path[0]) rc = sinks_write(s, why);
        if (s->captured) *s->captured = pl_history_json(s->history, &n);
        if (s->dashboard) pl_dashboard_detach(s->dashboard);
    }
    if (s->own_dashboard) pl_dashboard_close(s->dashboard);
    pl_history_free(s->history);
    s->history = NULL;
    s->dashboard = NULL;
    s->own_dashboard = false;
    return rc;
}

/* --- all of them ------------------------------------------------------------------------- */

int pl_sinks_open(struct pl_sinks *s, struct pl_setup *setup, const struct pl_built *built,
                  const char *clock, const struct pl_identity *run) {
    const struct pl_setup_conf *c = &setup->conf;
    const char *recorded = s->recorded ? s->recorded : run->json;
    int rc = PL_OK;
    *s = (struct pl_sinks){.conf = c,
                           .method = built->method,
                           .says = &setup->log,
                           .captured = setup->captured,
                           .why = "interrupted",
                           .happenings = {.event = setup->event, .ctx = setup->event_ctx},
                           .core_wait = NAN};
    if (c->log[0]) rc = pl_sink_open_stream("log", c->log, &s->log, &setup->why);
    if (!rc && c->events[0]) rc = pl_sink_open_stream("events", c->events, &s->events, &setup->why);
    if (!rc && c->record[0]) rc = sinks_record(s, setup, &built->job, recorded);
    if (!rc && c->log_dir[0])
        rc = pl_logdir_open(c->log_dir, built->method, built->job.n_workers, PL_SINK_MAX,
                            &s->logdir, &setup->why);
    if (!rc && s->logdir) rc = pl_logdir_run(s->logdir, run->json, &setup->why);
    if (!rc) rc = sinks_watch(s, setup, built, clock, run);
    return rc;
}

/* If this fails, the folder has the description from the start of the run. */
void pl_sinks_run(struct pl_sinks *s, const struct pl_identity *run) {
    s->why = run->why;
    s->core_wait = run->core_wait;
    if (s->logdir) pl_logdir_run(s->logdir, run->json, NULL);
}

static void sinks_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                        const struct pl_plan *plan) {
    struct pl_sinks *s = ctx;
    if (e->kind != PL_END) s->began = true;
    if (s->logdir) pl_logdir_event(s->logdir, c, e, plan);
    if (s->events && !s->events_full) pl_sink_event(s->events, c, e, plan);
    if (s->recorder) pl_recorder_event(s->recorder, c, e, plan);
    if (s->happenings.event && pl_happenings_event(&s->happenings, c, e, plan)) {
        pl_log_warn(s->says, "out of memory: the program is told of no more events");
        s->happenings.event = NULL;
    }
    if (s->dashboard) pl_dashboard_enter(s->dashboard);
    if (s->history) pl_history_event(s->history, c, e, plan);
    if (s->dashboard) pl_dashboard_leave(s->dashboard);
    if (++s->n_events % PL_SINKS_EVENTS == 0) pl_sinks_flush(s);
}

pl_control_log *pl_sinks_log(const struct pl_sinks *s) {
    return s->events || s->recorder || s->logdir || s->history || s->happenings.event ? sinks_event
                                                                                      : NULL;
}

void pl_sinks_named(struct pl_sinks *s, int worker, const char *name) {
    if (s->dashboard) pl_dashboard_enter(s->dashboard);
    if (s->history) pl_history_named(s->history, worker, name);
    if (s->dashboard) pl_dashboard_leave(s->dashboard);
}

void pl_sinks_point(struct pl_sinks *s, const struct pl_point *p) {
    s->began = true;
    if (s->log) pl_sink_point(s->log, s->method, p);
    if (s->logdir) pl_logdir_point(s->logdir, p);
    if (s->dashboard) pl_dashboard_enter(s->dashboard);
    if (s->history) pl_history_point(s->history, p);
    if (s->dashboard) pl_dashboard_leave(s->dashboard);
    sinks_keep(s);
}

/* The run is worth more than its files: it goes on. */
static void sinks_tell(struct pl_sinks *s, int i, int rc, const struct pl_why *why) {
    if (!rc || s->told[i]) return;
    s->told[i] = true;
    pl_log_warn(s->says, "%s; the run continues", why->text);
}

static void sinks_look_for_limits(struct pl_sinks *s) {
    if (s->events && !s->events_full && pl_sink_is_full(s->events, PL_SINK_MAX)) {
        fprintf(s->events, "(the event log ends here: it has reached its limit)\n");
        s->events_full = true;
    }
    if (s->told_full || !(s->events_full || (s->logdir && pl_logdir_is_full(s->logdir)))) return;
    s->told_full = true;
    pl_log_warn(s->says, "a file with a line per event has reached its limit of 1 GiB and ends "
                         "here; the run continues");
}

void pl_sinks_flush(struct pl_sinks *s) {
    struct pl_why why = {.text = ""};
    sinks_keep(s);
    sinks_tell(s, 0, pl_sink_flush("log", s->conf->log, s->log, &why), &why);
    sinks_tell(s, 1, pl_sink_flush("events", s->conf->events, s->events, &why), &why);
    if (s->recorder) {
        pl_recorder_flush(s->recorder);
        sinks_tell(s, 2, pl_recorder_failed(s->recorder, &why), &why);
    }
    while (s->logdir && pl_logdir_flush(s->logdir, &why)) {
        s->told[3] = false; /* of several files */
        sinks_tell(s, 3, PL_EIO, &why);
    }
    sinks_look_for_limits(s);
}

void pl_sinks_end(const struct pl_sinks *s, const struct pl_outcome *out, size_t dim) {
    if (s->recorder)
        pl_recorder_end(s->recorder, out->time_ns, out->updates, out->weights,
                        out->weights ? dim : 0);
}

/* The first failure is the caller's to report, if it can; the others are reported here. */
static void sinks_closed(struct pl_sinks *s, int i, int rc, const struct pl_why *reason, int *first,
                         struct pl_why *why) {
    if (!rc) return;
    if (!*first && why)
        *why = *reason;
    else if (!s->told[i])
        pl_log_warn(s->says, "%s", reason->text);
    if (!*first) *first = rc;
}

/* Opening created every file that is open here. */
void pl_sinks_discard(struct pl_sinks *s) {
    const struct pl_setup_conf *c = s->conf;
    if (s->began) return;
    pl_sink_discard(c->log, s->log);
    pl_sink_discard(c->events, s->events);
    if (s->recorder) unlink(c->record);
    if (s->history_path[0] && c->history[0]) unlink(c->history);
    s->history_path[0] = '\0';
    if (s->logdir) pl_logdir_discard(s->logdir);
    s->logdir = NULL;
}

int pl_sinks_close(struct pl_sinks *s, struct pl_why *why) {
    struct pl_why reason = {.text = ""};
    int rc = PL_OK;
    sinks_closed(s, 0, pl_sink_close("log", s->conf->log, s->log, &reason), &reason, &rc, why);
    sinks_closed(s, 1, pl_sink_close("events", s->conf->events, s->events, &reason), &reason, &rc,
                 why);
    sinks_closed(s, 2, pl_recorder_close(s->recorder, &reason), &reason, &rc, why);
    sinks_closed(s, 3, pl_logdir_close(s->logdir, &reason), &reason, &rc, why);
    sinks_closed(s, 4, sinks_finish(s, &reason), &reason, &rc, why);
    s->logdir = NULL;
    s->log = s->events = NULL;
    s->recorder = NULL;
    free(s->happenings.decision);
    s->happenings = (struct pl_happenings){.event = NULL};
    return rc;
}
