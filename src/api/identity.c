/* The id and the description of a run. */
#include "api/identity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "api/command.h"
#include "base/json.h"
#include "base/output.h"
#include "observe/sink.h"
#include "sys/clock.h"
#include "sys/pool.h"

/* --- the pieces ---------------------------------------------------------------------------- */

/* "20261115-170229-7f3a9c" from "2026-11-15T17:02:29Z" */
static void identity_id(const char *started, char id[PL_ID_MAX]) {
    uint32_t random = 0;
    size_t n = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        random = (uint32_t)(pl_now_ns() ^ (uint64_t)getpid() << 16);
    for (const char *at = started; *at && n < 15; at++)
        if ((*at >= '0' && *at <= '9') || *at == 'T') id[n++] = (char)(*at == 'T' ? '-' : *at);
    snprintf(id + n, PL_ID_MAX - n, "-%06x", (unsigned)(random & 0xFFFFFF));
}

static void identity_command(struct pl_json *j) {
    char text[PL_COMMAND_MAX + 1];
    size_t n = pl_command_read(text);
    pl_json_open(j, "command", '[');
    for (size_t at = 0; at < n; at += strlen(text + at) + 1) pl_json_text(j, NULL, text + at);
    pl_json_close(j, ']');
}

static unsigned identity_reader(const char *kind) {
    return strcmp(kind, "train") == 0  ? PL_FOR_TRAIN
           : strcmp(kind, "race") == 0 ? PL_FOR_RACE
                                       : PL_FOR_SIMULATE;
}

/* The delay law in force; NULL in a real run without --delay, which injects nothing, and in a
 * replay, whose recording has the times. */
static const char *identity_delay(const struct pl_setup *s, const struct pl_built *b,
                                  const char *kind) {
    return b->job.delay && strcmp(kind, "replay") != 0 ? pl_setup_delay(s) : NULL;
}

void pl_identity_resolve(const struct pl_setup *s, const struct pl_built *b, const char *kind,
                         struct pl_setup_conf *c) {
    const struct pl_job *job = &b->job;
    const char *delay = identity_delay(s, b, kind);
    bool method = strcmp(kind, "race") != 0;
    *c = s->conf;
    for (int i = 0; method && i < PL_N_COLUMNS; i++)
        snprintf(c->column[i], sizeof c->column[i], "%.511s", b->spec[i]);
    if (method && strcmp(b->method, "custom") != 0 && !c->method[0])
        snprintf(c->method, sizeof c->method, "%s", b->method);
    snprintf(c->lr_schedule, sizeof c->lr_schedule, "%.511s", b->schedule);
    snprintf(c->average, sizeof c->average, "%.511s", b->average);
    if (delay) snprintf(c->delay, sizeof c->delay, "%s", delay);
    if (pl_command_masks(c->requests))
        snprintf(c->requests, sizeof c->requests, "%s", PL_COMMAND_MASK);
    c->updates = (int64_t)job->limits.updates;
    c->lr = job->rate.lr;
    c->eval_every = job->eval_every;
    c->threads = job->n_threads;
}

static void identity_options(struct pl_json *j, const struct pl_setup *s, const struct pl_built *b,
                             const char *kind) {
    char value[PL_SPEC_MAX];
    struct pl_setup_conf resolved;
    pl_identity_resolve(s, b, kind, &resolved);
    pl_json_open(j, "options", '{');
    for (const struct pl_opt *o = pl_setup_opts; o->name; o++) {
        if (!(o->flags & identity_reader(kind))) continue;
        pl_opt_print(o, &resolved, value, sizeof value);
        pl_json_text(j, o->name, value);
    }
    pl_json_close(j, '}');
}

static void identity_model(struct pl_json *j, const struct pl_setup *s, const struct pl_job *job) {
    if (!job->model) {
        pl_json_text(j, "model", NULL);
        return;
    }
    pl_json_open(j, "model", '{');
    pl_json_text(j, "name", s->has_function ? "function" : job->model->kind->id.name);
    pl_json_text(j, "spec", s->has_function ? "function" : s->conf.model);
    pl_json_whole(j, "parameters", job->model->dim);
    pl_json_close(j, '}');
}

static void identity_data(struct pl_json *j, const struct pl_setup *s, const struct pl_data *d) {
    char name[PL_NAME_MAX] = "";
    const char *args;
    if (!d) {
        pl_json_text(j, "data", NULL);
        return;
    }
    pl_spec_split(s->conf.data, name, &args, NULL);
    pl_json_open(j, "data", '{');
    pl_json_text(j, "name", name);
    pl_json_text(j, "spec", s->conf.data);
    pl_json_whole(j, "train", d->n_train);
    pl_json_whole(j, "test", d->n_test);
    if (d->ratings) {
        pl_json_whole(j, "users", d->ratings->n_users);
        pl_json_whole(j, "items", d->ratings->n_items);
    } else {
        pl_json_whole(j, "features", d->dim);
        pl_json_whole(j, "classes", d->n_classes);
    }
    pl_json_close(j, '}');
}

static void identity_method(struct pl_json *j, const struct pl_built *b, const char *kind) {
    if (strcmp(kind, "race") == 0) {
        pl_json_text(j, "method", NULL);
        return;
    }
    pl_json_open(j, "method", '{');
    pl_json_text(j, "name", b->method);
    for (int i = 0; i < PL_N_COLUMNS; i++) pl_json_text(j, pl_column_family[i]->name, b->spec[i]);
    pl_json_text(j, "schedule", b->schedule);
    pl_json_close(j, '}');
}

static void identity_limits(struct pl_json *j, const struct pl_limits *l) {
    pl_json_open(j, "limits", '{');
    if (l->updates)
        pl_json_whole(j, "updates", l->updates);
    else
        pl_json_text(j, "updates", NULL);
    pl_json_real(j, "epochs", l->epochs > 0 ? l->epochs : NAN);
    pl_json_real(j, "time", l->seconds > 0 ? l->seconds : NAN);
    pl_json_close(j, '}');
    pl_json_open(j, "target", '{');
    pl_json_real(j, "loss", l->target_loss);
    pl_json_real(j, "accuracy", l->target_accuracy);
    pl_json_close(j, '}');
}

static void identity_resumed(struct pl_json *j, const struct pl_resumed *r) {
    if (!r) {
        pl_json_text(j, "resumed", NULL);
        return;
    }
    pl_json_open(j, "resumed", '{');
    pl_json_text(j, "run", r->run);
    pl_json_text(j, "origin", r->origin);
    pl_json_text(j, "checkpoint", r->path);
    pl_json_whole(j, "updates", r->updates);
    pl_json_close(j, '}');
}

/* --- the header ----------------------------------------------------------------------------- */

#define IDENTITY_HEADER 8192

void pl_method_choices(const struct pl_built *b, char *out, size_t max) {
    snprintf(out, max, "%s", b->spec[PL_COLUMN_POLICY]);
    for (int i = 0; i < PL_N_COLUMNS; i++) {
        const char *first = pl_column_family[i]->table[0]->name; /* the default is not mentioned */
        size_t n = strcspn(b->spec[i], ":");
        if (i == PL_COLUMN_POLICY || (n == strlen(first) && !strncmp(b->spec[i], first, n)))
            continue;
        pl_append(out, max, ", %s %s", pl_column_family[i]->name, b->spec[i]);
    }
    if (b->job.average.kind != PL_AVERAGE_NONE && b->job.model)
        pl_append(out, max, ", average %s", b->average);
}

static void identity_print_columns(const struct pl_built *b, char *out) {
    char choices[PL_CHOICES_MAX];
    pl_method_choices(b, choices, sizeof choices);
    pl_append(out, IDENTITY_HEADER, "  method    %s: policy %s", b->method, choices);
    if (b->job.model) pl_append(out, IDENTITY_HEADER, ", lr %.3g", b->job.rate.lr);
    if (b->job.model && !b->job.model->kind->by_clients)
        pl_append(out, IDENTITY_HEADER, ", batch %u", b->job.batch);
    pl_append(out, IDENTITY_HEADER, "\n");
}

static void identity_print_data(const struct pl_setup *s, const struct pl_job *job, char *out) {
    const struct pl_data *d = job->data;
    pl_append(out, IDENTITY_HEADER, "  data      %.200s: %u training and %u test samples",
              s->conf.data, d->n_train, d->n_test);
    if (d->ratings)
        pl_append(out, IDENTITY_HEADER, ", %u users, %u items", d->ratings->n_users,
                  d->ratings->n_items);
    else if (d->has_targets)
        pl_append(out, IDENTITY_HEADER, ", %u feature%s, a number to predict", d->dim,
                  d->dim == 1 ? "" : "s");
    else
        pl_append(out, IDENTITY_HEADER, ", %u feature%s, %u classes", d->dim,
                  d->dim == 1 ? "" : "s", d->n_classes);
    pl_append(out, IDENTITY_HEADER, "%s%s\n", d->note[0] ? "; " : "", d->note);
    if (!d->ratings && job->batch > d->n_train) /* with every kind of sampling */
        pl_append(
            out, IDENTITY_HEADER,
            "            a mini-batch is larger than the training set: samples repeat in it\n");
}

static void identity_print_workers(const struct pl_setup *s, const struct pl_built *b, bool real,
                                   char *out) {
    int n = b->job.n_workers, cores = pl_cores();
    int n_local = s->conf.start > 0 ? (int)s->conf.start : n;
    if (real && pl_rank() >= 0 && s->conf.spawn == PL_SPAWN_PROCESSES) {
        pl_append(out, IDENTITY_HEADER, "  workers   %d (MPI ranks)\n", n);
        return;
    }
    if (!real) {
        pl_append(out, IDENTITY_HEADER, "  workers   %d, simulated by %d thread%s\n", n,
                  b->job.n_threads, b->job.n_threads == 1 ? "" : "s");
        return;
    }
    if (s->conf.spawn == PL_SPAWN_NONE) {
        pl_append(out, IDENTITY_HEADER, "  workers   %d (programs that join)\n", n);
        return;
    }
    pl_append(out, IDENTITY_HEADER, "  workers   %d (%s) on %d core%s%s\n", n_local,
              s->conf.spawn == PL_SPAWN_THREADS ? "threads" : "processes", cores,
              cores == 1 ? "" : "s",
              n_local > cores ? "; more workers than cores: they will wait for each other" : "");
    if (n_local < n) pl_append(out, IDENTITY_HEADER, "            %d that join\n", n - n_local);
}

static void identity_print_limits(const struct pl_limits *l, char *out) {
    const char *sep = "";
    pl_append(out, IDENTITY_HEADER, "  limits    ");
    if (l->updates) {
        pl_append(out, IDENTITY_HEADER, "%llu update%s", (unsigned long long)l->updates,
                  l->updates == 1 ? "" : "s");
        sep = ", ";
    }
    if (l->epochs > 0) {
        pl_append(out, IDENTITY_HEADER, "%s%g epoch%s", sep, l->epochs, l->epochs == 1 ? "" : "s");
        sep = ", ";
    }
    if (l->seconds > 0) pl_append(out, IDENTITY_HEADER, "%s%g s", sep, l->seconds);
    if (l->target_loss > 0)
        pl_append(out, IDENTITY_HEADER, "\n  target    training loss %g", l->target_loss);
    if (l->target_accuracy > 0)
        pl_append(out, IDENTITY_HEADER, "\n  target    test accuracy %g", l->target_accuracy);
    pl_append(out, IDENTITY_HEADER, "\n");
}

static void identity_print_saving(const struct pl_setup_conf *c, char *out) {
    if (c->checkpoint[0])
        pl_append(out, IDENTITY_HEADER, "  weights   saved to %.200s every %s%s\n", c->checkpoint,
                  c->checkpoint_every,
                  c->checkpoint_every[strspn(c->checkpoint_every, "0123456789")] ? "" : " updates");
    else
        pl_append(out, IDENTITY_HEADER, "  weights   not saved; --checkpoint DIR saves them\n");
}

static void identity_print(const struct pl_setup *s, const struct pl_built *b, const char *kind,
                           const struct pl_resumed *r, const char *id, char *out) {
    const struct pl_job *job = &b->job;
    bool real = b->host == PL_HOST_REAL;
    bool serves = real && s->conf.spawn == PL_SPAWN_NONE; /* paceline serve is this */
    pl_append(out, IDENTITY_HEADER, "paceline %s: %s, run %s\n", PL_VERSION,
              serves ? "serve" : kind, id);
    if (r)
        pl_append(out, IDENTITY_HEADER, "  resumed   from %.200s at update %llu\n", r->path,
                  (unsigned long long)r->updates);
    if (job->model)
        pl_append(out, IDENTITY_HEADER, "  model     %.200s, %zu parameters\n",
                  s->has_function ? "a function of the program" : s->conf.model, job->model->dim);
    else
        pl_append(out, IDENTITY_HEADER, "  model     none (timing alone)\n");
    if (job->data) identity_print_data(s, job, out);
    if (strcmp(kind, "race") != 0) identity_print_columns(b, out);
    identity_print_workers(s, b, real, out);
    if (s->conf.attack[0]) pl_append(out, IDENTITY_HEADER, "  attack    %.200s\n", s->conf.attack);
    const char *delay = identity_delay(s, b, kind);
    if (delay)
        pl_append(out, IDENTITY_HEADER, "  delays    %.400s%s\n", delay,
                  real ? ", added to each task" : " per mini-batch");
    identity_print_limits(&job->limits, out);
    if (strcmp(kind, "train") == 0) identity_print_saving(&s->conf, out);
}

/* --- together ------------------------------------------------------------------------------- */

static void identity_host(struct pl_json *j) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    pl_json_text(j, "host", host);
    pl_json_whole(j, "cores", (uint64_t)pl_cores());
}

/* Appends the end to the body; 0 or PL_ENOMEM, and then the old text is kept. */
static int identity_finish(struct pl_identity *id, const char *ended, const char *why,
                           const char *trouble) {
    struct pl_json j = {.comma = true};
    pl_json_text(&j, "ended", ended);
    pl_json_text(&j, "why", why);
    pl_json_text(&j, "trouble", trouble);
    pl_json_real(&j, "core_wait", id->core_wait);
    pl_json_close(&j, '}');
    size_t n = strlen(id->body);
    char *text = j.failed ? NULL : malloc(n + j.n + 1);
    if (text) {
        memcpy(text, id->body, n);
        memcpy(text + n, j.text, j.n + 1);
        pl_json_utf8(text);
        free(id->json);
        id->json = text;
    }
    free(j.text);
    return text ? PL_OK : PL_ENOMEM;
}

int pl_identity_new(const struct pl_setup *s, const struct pl_built *b, const char *kind,
                    const char *recording, const struct pl_resumed *resumed,
                    struct pl_identity *out) {
    struct pl_json j = {0};
    char started[24];
    *out = (struct pl_identity){
        .kind = kind,
        .header = calloc(1, IDENTITY_HEADER),
        .command = pl_command_new(s, kind, recording, resumed ? resumed->path : NULL),
        .core_wait = NAN};
    pl_wall_text(pl_wall_seconds(), started);
    identity_id(started, out->id);
    snprintf(out->origin, sizeof out->origin, "%s",
             resumed && resumed->origin ? resumed->origin : out->id);
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "id", out->id);
    pl_json_text(&j, "kind", kind);
    pl_json_text(&j, "version", PL_VERSION);
    identity_command(&j);
    pl_json_text(&j, "command_line", out->command);
    identity_host(&j);
    pl_json_text(&j, "started", started);
    identity_resumed(&j, resumed);
    identity_model(&j, s, &b->job);
    identity_data(&j, s, b->job.data);
    identity_method(&j, b, kind);
    pl_json_whole(&j, "workers", (uint64_t)b->job.n_workers);
    pl_json_whole(&j, "seed", b->job.seed);
    pl_json_text(&j, "delay", identity_delay(s, b, kind));
    identity_limits(&j, &b->job.limits);
    identity_options(&j, s, b, kind);
    if (j.failed || !out->header || !out->command) {
        free(j.text);
        return PL_ENOMEM;
    }
    out->body = j.text;
    identity_print(s, b, kind, resumed, out->id, out->header);
    return identity_finish(out, NULL, NULL, NULL);
}

void pl_identity_free(struct pl_identity *id) {
    free(id->body);
    free(id->json);
    free(id->header);
    free(id->command);
    *id = (struct pl_identity){.body = NULL};
}

void pl_identity_end(struct pl_identity *id, const char *why, const char *trouble,
                     double core_wait) {
    char ended[24];
    pl_wall_text(pl_wall_seconds(), ended);
    id->why = why;
    id->core_wait = core_wait;
    if (id->body) identity_finish(id, ended, why, trouble[0] ? trouble : NULL);
}

const char *pl_identity_why(const struct pl_outcome *out, const struct pl_limits *limits,
                            bool interrupted) {
    if (isfinite(out->time_to_target)) return "target";
    if (limits->updates && out->updates >= limits->updates) return "updates";
    if (limits->epochs > 0 && out->epochs >= limits->epochs) return "epochs";
    if (limits->seconds > 0 && out->time >= limits->seconds) return "time";
    if (interrupted) return "interrupted";
    return out->left_alone ? "workers" : "stopped";
}

int pl_setup_describe(pl_setup *s, const char *kind, int real, const char **header,
                      const char **json) {
    struct pl_built built;
    struct pl_identity id = {.body = NULL};
    int64_t workers = s->conf.workers;
    int rc = pl_build(s, real ? PL_HOST_REAL : PL_HOST_VIRTUAL, &built);
    if (rc) {
        s->conf.workers = workers;
        return rc;
    }
    rc = pl_identity_new(s, &built, kind, NULL, NULL, &id);
    s->conf.workers = workers;
    pl_built_free(&built);
    if (rc) {
        pl_identity_free(&id);
        return pl_fail(&s->why, rc, "out of memory");
    }
    free(s->header);
    free(s->described);
    *header = s->header = id.header;
    *json = s->described = id.json;
    id.header = id.json = NULL;
    pl_identity_free(&id);
    return PL_OK;
}

int pl_write_run(const char *path, const char *json, char *why, size_t why_max) {
    struct pl_why what = {.text = ""};
    int rc = pl_sink_describe(path, json, &what);
    if (why_max > 0) snprintf(why, why_max, "%s", what.text);
    return rc;
}

int pl_write_file(const char *path, const char *text, char *why, size_t why_max) {
    struct pl_why reason = {.text = ""};
    int rc = pl_output_write(path, text, strlen(text), &reason);
    if (why_max > 0) why[0] = '\0';
    if (rc) pl_append(why, why_max, "'%.200s' cannot be written: %s", path, reason.text);
    return rc;
}
