#include "run/about.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "core/local.h"

static const char *const about_wants[] = {"gradients", "deltas", "models", "ranges"};
#define ABOUT_NUMBER 1e100 /* no number is larger; a loss that has no bound is infinite */

/* All options of a choice, "key=value,…". */
static void about_options(const struct pl_choice *c, char *out, size_t max) {
    char value[PL_SPEC_MAX];
    out[0] = '\0';
    for (const struct pl_opt *o = c->entry->opts; o && o->name; o++) {
        pl_opt_print(o, c->conf, value, sizeof value);
        pl_append(out, max, "%s%s=%s", out[0] ? "," : "", o->name, value);
    }
}

static bool about_groups(const struct pl_job *job) {
    for (int i = 0; i < job->ranges.n; i++) {
        const struct pl_model_range *x = &job->ranges.range[i];
        if (!pl_range_is_buffers(x) && (x->lr_factor != 1 || x->decay_factor != 1)) return true;
    }
    return false;
}

/* Tensors that a result may lack. */
static size_t about_tensors(const struct pl_job *job) {
    return pl_local_is_gradient(&job->local) ? (size_t)job->tensors.n : 0;
}

void pl_about_job(const struct pl_job *job, const char *model, uint64_t fingerprint, bool half,
                  struct pl_about *out) {
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    *out = (struct pl_about){.sends = (int)local->sends,
                             .steps = pl_job_steps(job),
                             .weight_decay = job->weight_decay,
                             .dim = job->model->dim,
                             .parameters = pl_ranges_parameters(&job->ranges, job->model->dim),
                             .tensors = about_tensors(job),
                             .workers = job->n_workers,
                             .lr = job->rate.lr,
                             .batch = job->batch,
                             .seed = job->seed,
                             .half = half,
                             .needs_evaluator = job->model->kind->by_clients,
                             .ranks = job->log.ranks,
                             .groups = about_groups(job),
                             .peers = ((const struct pl_policy *)job->policy.entry)->peers,
                             .moves = local->applies_weight_decay,
                             .any_steps = local->plain && local->plain(job->local.conf)};
    snprintf(out->version, sizeof out->version, "%s", PL_VERSION);
    snprintf(out->model, sizeof out->model, "%s", model);
    snprintf(out->method, sizeof out->method, "%s", job->method);
    snprintf(out->fingerprint, sizeof out->fingerprint, "%016llx", (unsigned long long)fingerprint);
    snprintf(out->rule, sizeof out->rule, "%s", local->id.name);
    about_options(&job->local, out->options, sizeof out->options);
}

/* Whose requests are carried out, without the token. */
static const char *about_requests(const struct pl_about *a) {
    if (strcmp(a->requests, "none") == 0) return "none";
    return a->ranks ? "rank 0" : strcmp(a->requests, "any") == 0 ? "any" : "token";
}

int pl_about_write(const struct pl_about *a, char out[PL_ABOUT_MAX]) {
    struct pl_json j = {0};
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "paceline", a->version);
    pl_json_text(&j, "model", a->model);
    pl_json_whole(&j, "dim", a->dim);
    pl_json_whole(&j, "parameters", a->parameters);
    pl_json_whole(&j, "tensors", a->tensors);
    pl_json_text(&j, "fingerprint", a->fingerprint);
    pl_json_text(&j, "method", a->method);
    pl_json_text(&j, "rule", a->rule);
    pl_json_text(&j, "options", a->options);
    pl_json_text(&j, "wants", about_wants[a->sends]);
    pl_json_whole(&j, "batches_per_task", a->steps);
    pl_json_whole(&j, "workers", (uint64_t)a->workers);
    pl_json_real(&j, "lr", a->lr);
    pl_json_real(&j, "weight_decay", a->weight_decay);
    pl_json_whole(&j, "batch", a->batch);
    pl_json_whole(&j, "seed", a->seed);
    pl_json_text(&j, "wire", a->half ? "bf16" : "f32");
    pl_json_whole(&j, "evaluator", a->needs_evaluator);
    pl_json_text(&j, "requests", about_requests(a));
    pl_json_close(&j, '}');
    bool fits = !j.failed && strlen(j.text) < PL_ABOUT_MAX;
    if (fits) snprintf(out, PL_ABOUT_MAX, "%s", j.text);
    free(j.text);
    return fits ? PL_OK : PL_ENOMEM;
}

static bool about_text(json_t *root, const char *key, char *out, size_t max) {
    const char *text = json_string_value(json_object_get(root, key));
    return text && (size_t)snprintf(out, max, "%s", text) < max;
}

static bool about_number(json_t *root, const char *key, double least, double most, double *out) {
    json_t *value = json_object_get(root, key);
    *out = json_number_value(value);
    return json_is_number(value) && *out >= least && *out <= most;
}

int pl_about_read(const char *text, struct pl_about *a) {
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    char wire[PL_ABOUT_NAME] = "";
    double dim = 0, parameters = 0, tensors = 0, workers = 0, batch = 0, seed = 0, seat = 0;
    *a = (struct pl_about){0};
    bool ok =
        json_is_object(root) && about_text(root, "paceline", a->version, PL_ABOUT_NAME) &&
        about_text(root, "model", a->model, PL_ABOUT_NAME) &&
        about_text(root, "fingerprint", a->fingerprint, PL_ABOUT_NAME) &&
        about_text(root, "method", a->method, PL_ABOUT_NAME) &&
        about_text(root, "rule", a->rule, PL_ABOUT_NAME) &&
        about_text(root, "options", a->options, PL_SPEC_MAX) &&
        about_text(root, "wire", wire, PL_ABOUT_NAME) && about_number(root, "dim", 1, 1e15, &dim) &&
        about_number(root, "parameters", 0, dim, &parameters) &&
        about_number(root, "tensors", 0, 64 * PL_ABSENT_WORDS, &tensors) &&
        about_number(root, "workers", 1, 1e9, &workers) &&
        about_number(root, "lr", 0, 1e300, &a->lr) &&
        about_number(root, "weight_decay", 0, 1e300, &a->weight_decay) &&
        about_number(root, "batch", 1, 1e9, &batch) && about_number(root, "seed", 0, 1e18, &seed) &&
        about_number(root, "evaluator", 0, 1, &seat);
    json_decref(root);
    if (!ok) return PL_EDATA;
    a->dim = (size_t)dim;
    a->parameters = (size_t)parameters;
    a->tensors = (size_t)tensors;
    a->workers = (int)workers;
    a->batch = (uint32_t)batch;
    a->seed = (uint64_t)seed;
    a->needs_evaluator = seat > 0;
    a->half = strcmp(wire, "bf16") == 0;
    return PL_OK;
}

bool pl_about_can_be(const char *name, size_t n, double value) {
    static const char accuracy[] = "test_accuracy";
    if (!isfinite(value)) return true;
    if (n == sizeof accuracy - 1 && memcmp(name, accuracy, n) == 0) return value >= 0 && value <= 1;
    return fabs(value) <= ABOUT_NUMBER;
}

/* Whether its requests are carried out. */
static bool about_speaks(const struct pl_about *a, const struct pl_newcomer *client) {
    if (strcmp(a->requests, "none") == 0) return false;
    return strcmp(a->requests, "any") == 0 || strcmp(a->requests, client->token) == 0;
}

/* A token that is not the run's is refused, because its owner means another run. */
static bool about_refuses(const struct pl_about *a, const struct pl_newcomer *client, bool speaks,
                          struct pl_why *why) {
    if (speaks || (!client->token[0] && client->kind == PL_CLIENT_WORKER)) return false;
    if (client->token[0])
        pl_fail(why, PL_ERUN, "this program has a token that is not the run's");
    else
        pl_fail(
            why, PL_ERUN,
            "the run %s, and an evaluator decides when it ends; start the server with "
            "--requests any, or with --requests TOKEN and give the evaluator the same token (in "
            "Python: PACELINE_TOKEN)",
            strcmp(a->requests, "none") == 0 ? "takes no requests"
                                             : "takes requests only with a token");
    return true;
}

enum pl_admission pl_about_admits(void *about, const struct pl_newcomer *client,
                                  struct pl_why *why) {
    const struct pl_about *a = about;
    bool speaks = about_speaks(a, client);
    if (client->job[0] && strcmp(client->job, a->job) != 0) {
        pl_fail(why, PL_ERUN,
                "this run belongs to %s%.100s, and this program to job %.100s; give each job a "
                "port of its own (MASTER_PORT, or PACELINE_PORT on several machines)",
                a->job[0] ? "job " : "no job", a->job, client->job);
        return PL_REFUSED;
    }
    if (client->fingerprint[0] && strcmp(client->fingerprint, a->fingerprint) != 0) {
        pl_fail(why, PL_ERUN,
                "the model of this program has other tensors (fingerprint %.40s) than the run's "
                "model '%s' (%s): names, types, shapes and their order must be the same",
                client->fingerprint, a->model, a->fingerprint);
        return PL_REFUSED;
    }
    if (client->kind == PL_CLIENT_EVALUATOR && !a->needs_evaluator) {
        pl_fail(why, PL_ERUN,
                "the server evaluates model '%s' itself and has no seat for an evaluator",
                a->model);
        return PL_REFUSED;
    }
    /* A client is not told the param groups, which the library's local steps would need. */
    bool steps = a->any_steps && client->can & PL_ABOUT_STEPS;
    bool own = steps && a->sends == PL_SENDS_MODEL; /* all of the model is the client's work */
    bool parts = a->groups || a->parameters < a->dim;
    if (client->kind == PL_CLIENT_WORKER && parts && a->peers && !own) {
        pl_fail(why, PL_ERUN,
                "method '%s' gives every worker a model of its own, and the run has param groups "
                "or buffers, which need workers that take their steps with an optimizer of their "
                "own; set `steps` in its pl_client_conf, or use a method with a server",
                a->method);
        return PL_REFUSED;
    }
    if (client->kind == PL_CLIENT_WORKER && a->groups && a->moves && !steps) {
        pl_fail(why, PL_ERUN, "the run has param groups, and method '%s' %s; %s", a->method,
                a->any_steps ? "needs workers that take its local steps with an optimizer of their "
                               "own, which this worker does not"
                             : "takes local steps that know nothing of them",
                a->any_steps ? "set `steps` in its pl_client_conf, or use another method"
                             : "use another method");
        return PL_REFUSED;
    }
    if (about_refuses(a, client, speaks, why)) return PL_REFUSED;
    return speaks ? PL_MAY_SPEAK : PL_ADMITTED;
}
