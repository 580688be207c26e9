#include "api/sinks.h"

#include <stdlib.h>
#include <string.h>

#include "learn/task.h"

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

int pl_sinks_open(struct pl_sinks *s, struct pl_setup *setup, const struct pl_built *built,
                  const char *run) {
    const struct pl_setup_conf *c = &setup->conf;
    const char *recorded = s->recorded ? s->recorded : run;
    int rc = PL_OK;
    *s = (struct pl_sinks){.conf = c, .method = built->method, .says = &setup->log};
    if (c->log[0]) rc = pl_sink_open("log", c->log, &s->log, &setup->why);
    if (!rc && c->events[0]) rc = pl_sink_open("events", c->events, &s->events, &setup->why);
    if (!rc && c->record[0]) rc = sinks_record(s, setup, &built->job, recorded);
    if (!rc && c->log_dir[0] &&
        (rc = pl_logdir_open(c->log_dir, built->method, built->job.n_workers, &s->logdir,
                             &setup->why)))
        pl_fail_in(&setup->why, rc, "log-dir");
    if (!rc && s->logdir) rc = pl_logdir_run(s->logdir, run, &setup->why);
    return rc;
}

/* If this fails, the folder has the description from the start of the run. */
void pl_sinks_run(const struct pl_sinks *s, const char *run) {
    if (s->logdir) pl_logdir_run(s->logdir, run, NULL);
}

static void sinks_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                        const struct pl_plan *plan) {
    struct pl_sinks *s = ctx;
    s->last_ns = e->now_ns;
    if (s->logdir) pl_logdir_event(s->logdir, c, e, plan);
    if (s->events && !s->events_full) pl_sink_event(s->events, c, e, plan);
    if (s->recorder) pl_recorder_event(s->recorder, c, e, plan);
    if (++s->n_events % PL_SINKS_EVENTS == 0) pl_sinks_flush(s);
}

pl_control_log *pl_sinks_log(const struct pl_sinks *s) {
    return s->events || s->recorder || s->logdir ? sinks_event : NULL;
}

void pl_sinks_point(const struct pl_sinks *s, const struct pl_point *p) {
    if (s->log) pl_sink_point(s->log, s->method, p);
    if (s->logdir) pl_logdir_point(s->logdir, p);
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
    sinks_tell(s, 0, pl_sink_flush("log", s->conf->log, s->log, &why), &why);
    sinks_tell(s, 1, pl_sink_flush("events", s->conf->events, s->events, &why), &why);
    if (s->recorder) {
        pl_recorder_flush(s->recorder);
        sinks_tell(s, 2, pl_recorder_failed(s->recorder, &why), &why);
    }
    if (s->logdir) sinks_tell(s, 3, pl_logdir_flush(s->logdir, &why), &why);
    sinks_look_for_limits(s);
}

void pl_sinks_end(const struct pl_sinks *s, const struct pl_outcome *out, size_t dim) {
    if (s->recorder)
        pl_recorder_end(s->recorder, out->time_ns, out->updates, out->weights,
                        out->weights ? dim : 0);
}

int pl_sinks_close(struct pl_sinks *s, struct pl_why *why) {
    int rc = pl_sink_close("log", s->conf->log, s->log, why), next;
    next = pl_sink_close("events", s->conf->events, s->events, rc ? NULL : why);
    if (!rc) rc = next;
    next = pl_recorder_close(s->recorder, rc ? NULL : why);
    if (!rc) rc = next;
    next = pl_logdir_close(s->logdir, s->last_ns, rc ? NULL : why);
    if (!rc) rc = next;
    s->logdir = NULL;
    s->log = s->events = NULL;
    s->recorder = NULL;
    return rc;
}
