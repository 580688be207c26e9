#include "run/about.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const char *const about_wants[] = {"gradients", "deltas", "models", "ranges"};
#define ABOUT_WANTS ((int)(sizeof about_wants / sizeof *about_wants))

/* All options of a choice, "key=value,…"; and the number in option `key`, or `otherwise`. */
static void about_options(const struct pl_choice *c, char *out, size_t max) {
    char value[PL_SPEC_MAX];
    out[0] = '\0';
    for (const struct pl_opt *o = c->entry->opts; o && o->name; o++) {
        pl_opt_print(o, c->conf, value, sizeof value);
        pl_append(out, max, "%s%s=%s", out[0] ? "," : "", o->name, value);
    }
}

static double about_option(const struct pl_choice *c, const char *key) {
    char value[PL_SPEC_MAX];
    for (const struct pl_opt *o = c->entry->opts; o && o->name; o++) {
        if (strcmp(o->name, key) != 0) continue;
        pl_opt_print(o, c->conf, value, sizeof value);
        return strtod(value, NULL);
    }
    return 0;
}

void pl_about_job(const struct pl_job *job, const char *model, uint64_t fingerprint, bool half,
                  struct pl_about *out) {
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    *out =
        (struct pl_about){.sends = (int)local->sends,
                          .steps = pl_job_steps(job),
                          .local_lr = about_option(&job->local, "lr"),
                          .decay = local->applies_weight_decay ? job->weight_decay : 0,
                          .outer = local->outer ? local->outer(job->local.conf, job->n_workers) : 1,
                          .own_decay = local->applies_weight_decay ? 0 : job->weight_decay,
                          .dim = job->model->dim,
                          .workers = job->n_workers,
                          .lr = job->rate.lr,
                          .batch = job->batch,
                          .seed = job->seed,
                          .groups = job->ranges.n > 0,
                          .peers = ((const struct pl_policy *)job->policy.entry)->peers,
                          .keeps = local->n_vectors && local->n_vectors(job->local.conf) > 0,
                          .half = half,
                          .outside = job->model->kind->outside};
    snprintf(out->version, sizeof out->version, "%s", PL_VERSION);
    snprintf(out->model, sizeof out->model, "%s", model);
    snprintf(out->method, sizeof out->method, "%s", job->method);
    snprintf(out->fingerprint, sizeof out->fingerprint, "%016llx", (unsigned long long)fingerprint);
    snprintf(out->rule, sizeof out->rule, "%s", local->id.name);
    about_options(&job->local, out->options, sizeof out->options);
}

int pl_about_write(const struct pl_about *a, char out[PL_ABOUT_MAX]) {
    struct pl_json j = {0};
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "paceline", a->version);
    pl_json_text(&j, "model", a->model);
    pl_json_whole(&j, "dim", a->dim);
    pl_json_text(&j, "fingerprint", a->fingerprint);
    pl_json_text(&j, "method", a->method);
    pl_json_text(&j, "rule", a->rule);
    pl_json_text(&j, "options", a->options);
    pl_json_text(&j, "wants", about_wants[a->sends]);
    pl_json_whole(&j, "batches_per_task", a->steps);
    pl_json_whole(&j, "workers", (uint64_t)a->workers);
    pl_json_real(&j, "lr", a->lr);
    pl_json_real(&j, "local_lr", a->local_lr);
    pl_json_real(&j, "local_decay", a->decay);
    pl_json_real(&j, "outer", a->outer);
    pl_json_real(&j, "own_decay", a->own_decay);
    pl_json_whole(&j, "batch", a->batch);
    pl_json_whole(&j, "seed", a->seed);
    pl_json_whole(&j, "keeps", a->keeps);
    pl_json_whole(&j, "groups", a->groups);
    pl_json_text(&j, "wire", a->half ? "bf16" : "f32");
    pl_json_whole(&j, "evaluator", a->outside);
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
    char wants[PL_ABOUT_NAME] = "", wire[PL_ABOUT_NAME] = "";
    double dim = 0, steps = 0, workers = 0, batch = 0, seed = 0, keeps = 0, seat = 0;
    *a = (struct pl_about){0};
    bool ok =
        json_is_object(root) && about_text(root, "paceline", a->version, PL_ABOUT_NAME) &&
        about_text(root, "model", a->model, PL_ABOUT_NAME) &&
        about_text(root, "fingerprint", a->fingerprint, PL_ABOUT_NAME) &&
        about_text(root, "method", a->method, PL_ABOUT_NAME) &&
        about_text(root, "rule", a->rule, PL_ABOUT_NAME) &&
        about_text(root, "options", a->options, PL_SPEC_MAX) &&
        about_text(root, "wants", wants, PL_ABOUT_NAME) &&
        about_text(root, "wire", wire, PL_ABOUT_NAME) && about_number(root, "dim", 1, 1e15, &dim) &&
        about_number(root, "batches_per_task", 1, 1e9, &steps) &&
        about_number(root, "workers", 1, 1e9, &workers) &&
        about_number(root, "lr", 0, 1e300, &a->lr) &&
        about_number(root, "local_lr", 0, 1e300, &a->local_lr) &&
        about_number(root, "local_decay", 0, 1e300, &a->decay) &&
        about_number(root, "outer", 0, 1e300, &a->outer) &&
        about_number(root, "own_decay", 0, 1e300, &a->own_decay) &&
        about_number(root, "batch", 1, 1e9, &batch) && about_number(root, "seed", 0, 1e18, &seed) &&
        about_number(root, "keeps", 0, 1, &keeps) && about_number(root, "evaluator", 0, 1, &seat);
    json_decref(root);
    while (ok && a->sends < ABOUT_WANTS && strcmp(about_wants[a->sends], wants) != 0) a->sends++;
    if (!ok || a->sends == ABOUT_WANTS) return PL_EDATA;
    a->dim = (size_t)dim;
    a->steps = (uint32_t)steps;
    a->workers = (int)workers;
    a->batch = (uint32_t)batch;
    a->seed = (uint64_t)seed;
    a->keeps = keeps > 0;
    a->outside = seat > 0;
    a->half = strcmp(wire, "bf16") == 0;
    return PL_OK;
}

const char *pl_about_gradient(void) {
    return pl_local_family.table[0]->name;
}

uint64_t pl_about_rule(const char *name, size_t n) {
    for (int i = 0; pl_local_family.table[i]; i++)
        if (strlen(pl_local_family.table[i]->name) == n &&
            memcmp(pl_local_family.table[i]->name, name, n) == 0)
            return UINT64_C(1) << i;
    return 0;
}

/* A guest does not know the param groups, which local steps would need. */
bool pl_about_from_gradients(const struct pl_about *a) {
    return a->sends != PL_SENDS_RANGES && !a->groups;
}

bool pl_about_admits(void *about, const struct pl_guest *guest, struct pl_why *why) {
    const struct pl_about *a = about;
    if (guest->fingerprint[0] && strcmp(guest->fingerprint, a->fingerprint) != 0) {
        pl_fail(why, PL_ERUN,
                "the model of this program has other tensors (fingerprint %.40s) than the run's "
                "model '%s' (%s): names, types, shapes and their order must be the same",
                guest->fingerprint, a->model, a->fingerprint);
        return false;
    }
    if (guest->kind == PL_GUEST_WATCHER && !a->outside) {
        pl_fail(why, PL_ERUN,
                "the server evaluates model '%s' itself and has no seat for an evaluator",
                a->model);
        return false;
    }
    uint64_t can = pl_about_rule(a->rule, strlen(a->rule));
    if (guest->kind == PL_GUEST_WORKER && a->groups && a->peers) {
        pl_fail(why, PL_ERUN,
                "method '%s' gives every worker a model of its own, and the run has param groups "
                "or buffers, which this library cannot apply there; use a method with a server",
                a->method);
        return false;
    }
    if (pl_about_from_gradients(a)) can |= PL_ABOUT_GRADIENT;
    if (guest->kind == PL_GUEST_WORKER && !(guest->can & can)) {
        pl_fail(why, PL_ERUN,
                "method '%s' needs workers that compute local rule '%s'%s, and this worker does "
                "not; use another method, or give the worker that rule",
                a->method, a->rule,
                a->groups && can != PL_ABOUT_GRADIENT
                    ? " themselves, because the run has param groups or buffers"
                    : " or gradients");
        return false;
    }
    return true;
}
