/* Turns options into a job: looks up names, parses specs, opens files, and rejects choices that
 * do not go together before anything runs. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/fit.h"
#include "api/listen.h"
#include "api/weights.h"
#include "base/isa.h"
#include "base/needs.h"
#include "core/arms.h"
#include "core/filter.h"
#include "core/groups.h"
#include "learn/task.h"
#include "model/callback.h"
#include "sys/memory.h"
#include "sys/numerals.h"
#include "sys/pool.h"
#include "transport/transport.h"

#define DEFAULT_METHOD "auto"
#define PARTS_METHOD "kasync" /* if parts are given, or too many workers for auto */
#define REAL_EVAL 1           /* seconds between evaluations of a real run of unknown length */
#define DEFAULT_UPDATES 1000
#define TARGET_UPDATES 100000 /* if only a target would end the run */
#define DATA_SEED 1           /* of generated data: the same set for every seed of a run */
#define EVALUATIONS 50        /* in a run of known length */
#define BLAS_BUFFER ((size_t)208 << 20) /* per thread: 128 MiB, its stack and its heap */
#define EVALUATE_TASKS 20               /* typical tasks between evaluations, otherwise */

static int build_choice(const struct pl_family *family, const char *spec, int n_workers,
                        struct pl_choice *out, struct pl_why *why) {
    return pl_spec_parse(family, spec, n_workers, &out->entry, &out->conf, why);
}

/* Says where a name belongs that is not of this family, but of another. */
static int build_misplaced(const struct pl_family *family, const char *spec, int rc,
                           struct pl_why *why) {
    const struct pl_family *other = pl_column_meant(family, spec);
    if (!other) return rc;
    return pl_fail(why, rc, "no %s is called '%.*s'; use --%s %.60s", family->name,
                   (int)strcspn(spec, ":"), spec, other->name, spec);
}

/* The method of a setup that names none. */
static const char *build_usual(const struct pl_setup *s) {
    const struct pl_model_kind *kind = pl_setup_kind(s);
    if (kind && kind->method) return kind->method;
    for (int i = 0; i < PL_N_COLUMNS; i++)
        if (s->conf.column[i][0]) return PARTS_METHOD;
    return s->conf.workers > PL_ARMS_WORKERS ? PARTS_METHOD : DEFAULT_METHOD;
}

/* The default of a column: the first entry of its family that goes with the policy. */
static const char *build_default(int column, const struct pl_choice *policy) {
    unsigned lacks = policy->entry ? pl_policy_lacks((const struct pl_policy *)policy->entry) : 0;
    return pl_needs_first(pl_column_family[column], lacks)->name;
}

int pl_build_columns(const struct pl_setup *s, struct pl_built *b, struct pl_why *why) {
    const struct pl_setup_conf *c = &s->conf;
    struct pl_job *job = &b->job;
    bool method = c->method[0] || !c->column[PL_COLUMN_POLICY][0];
    char spec[PL_N_COLUMNS][PL_SPEC_MAX];
    snprintf(b->method, sizeof b->method, "custom");
    if (method) {
        const struct pl_recipe *recipe;
        const char *name = c->method[0] ? c->method : build_usual(s);
        int rc = pl_recipe_resolve(name, &recipe, spec, why);
        if (rc) return build_misplaced(&pl_recipe_family, name, rc, why);
        snprintf(b->method, sizeof b->method, "%s", recipe->id.name);
        if (recipe->schedule) b->schedule = recipe->schedule;
        if (recipe->average) b->average = recipe->average;
        job->rate.lr = recipe->lr;
    }
    struct pl_choice *const choice[PL_N_COLUMNS] = {&job->policy, &job->tuner, &job->correct, NULL,
                                                    &job->optim,  &job->local, &job->filter};
    const struct pl_family policies = pl_setup_policies(s);
    for (int i = 0; i < PL_N_COLUMNS; i++) {
        const char *given = c->column[i][0] ? c->column[i]
                            : method        ? spec[i]
                                            : build_default(i, &job->policy);
        const struct pl_family *family = i == PL_COLUMN_POLICY ? &policies : pl_column_family[i];
        int rc = choice[i] ? build_choice(family, given, job->n_workers, choice[i], why)
                           : pl_chain_parse(family, given, job->n_workers, &job->reduce, why);
        if (rc) return build_misplaced(family, given, rc, why);
        pl_append(b->given[i], sizeof b->given[i], "%s", given);
        if (choice[i])
            pl_spec_print(choice[i]->entry, choice[i]->conf, b->spec[i], sizeof b->spec[i]);
    }
    return PL_OK;
}

/* Printed after the check, because that gives links the f of other links. */
static int build_reduce(struct pl_built *b, struct pl_why *why) {
    int rc = pl_reduce_check(&b->job.reduce, b->job.groups, why);
    pl_chain_print(&b->job.reduce, b->spec[PL_COLUMN_REDUCE], PL_SPEC_MAX);
    return rc;
}

static int build_attack(const struct pl_setup_conf *c, struct pl_job *job, struct pl_why *why) {
    if (!c->attack[0]) return PL_OK;
    int rc = build_choice(&pl_attack_family, c->attack, job->n_workers, &job->attack, why);
    if (rc) return rc;
    const struct pl_attack *a = (const struct pl_attack *)job->attack.entry;
    int f = ((const struct pl_attack_who *)job->attack.conf)->f;
    if (!a->anybody && f > job->n_workers)
        return pl_fail(
            why, PL_EUSAGE,
            "attack '%s' has f=%d hostile workers, but only %d workers exist; use f=%d or less",
            a->id.name, f, job->n_workers, job->n_workers);
    return PL_OK;
}

static int build_schedule(struct pl_setup *s, struct pl_built *b) {
    const struct pl_setup_conf *c = &s->conf;
    struct pl_rate *rate = &b->job.rate;
    if (c->lr > 0)
        rate->lr = c->lr;
    else if (!(rate->lr > 0))
        rate->lr = ((const struct pl_optim *)b->job.optim.entry)->lr;
    rate->by_k = c->lr_scale == 1;
    if (strcmp(c->lr_schedule, "auto") != 0) b->schedule = c->lr_schedule;
    return pl_chain_parse(&pl_schedule_family, b->schedule, b->job.n_workers, &rate->schedule,
                          &s->why);
}

static int build_data(struct pl_setup *s, struct pl_built *b) {
    const struct pl_setup_conf *c = &s->conf;
    struct pl_shared_data *d = s->data;
    if (d && strcmp(d->spec, c->data) != 0) {
        pl_setup_let_go(s);
        d = NULL;
    }
    if (!d) {
        d = calloc(1, sizeof *d);
        if (!d) return pl_fail(&s->why, PL_ENOMEM, "out of memory");
        int rc = pl_data_open(c->data, DATA_SEED, &d->data, &s->why);
        if (rc) {
            free(d);
            return rc;
        }
        snprintf(d->spec, sizeof d->spec, "%s", c->data);
        d->n_holders = 1;
        s->data = d;
    }
    b->job.data = d->data;
    return pl_partition_open(c->partition, d->data, (int)c->workers, (uint64_t)c->seed,
                             &b->job.partition, &s->why);
}

/* The data first, if the model needs any: it is checked before the model reads it. */
static int build_model(struct pl_setup *s, enum pl_host host, struct pl_built *b) {
    if (pl_setup_timing_alone(s)) return PL_OK;
    const struct pl_model_kind *kind = pl_setup_kind(s);
    if (kind && kind->by_clients && host == PL_HOST_VIRTUAL)
        return pl_fail(&s->why, PL_EUSAGE,
                       "model 'external' is computed by clients, so a run of it can be "
                       "neither simulated nor replayed: a recording has no gradients; use paceline "
                       "train --model external --listen PATH");
    if (kind ? kind->wants_data : s->function.wants_data) {
        int rc = build_data(s, b);
        if (!rc) rc = pl_fit(s, b, host, 1);
        if (rc) return rc;
        b->job.rate.epoch_samples = b->job.data->n_train;
    }
    int rc = s->has_function ? pl_callback_open(&s->function, b->job.data, &b->job.model, &s->why)
                             : pl_model_open(s->conf.model, b->job.data, &b->job.model, &s->why);
    if (!rc) rc = pl_weights_build(s, b);
    return rc || b->job.ranges.n == 0 ? rc : pl_fit(s, b, host, 1);
}

/* The default learning rate is that of the optimizer and of classes: numbers may need another. */
static void build_rate(const struct pl_setup *s, struct pl_job *job) {
    const struct pl_model_kind *kind = pl_setup_kind(s);
    bool normalises = ((const struct pl_optim *)job->optim.entry)->normalises;
    if (s->conf.lr > 0 || normalises || !job->data || !job->data->has_targets) return;
    if (kind && kind->target_lr > 0) job->rate.lr *= kind->target_lr;
}

/* The ratings in blocks, if the policy hands out blocks. */
static int build_grid(struct pl_job *job, struct pl_why *why) {
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    if (!policy->grid || !job->model) return PL_OK;
    const char *no = policy->check ? policy->check(job->policy.conf, job->n_workers) : NULL;
    if (no)
        return pl_fail(why, PL_EUSAGE, "policy '%s' with %d workers: %s", policy->id.name,
                       job->n_workers, no);
    int side = policy->grid(job->policy.conf, job->n_workers);
    int rc = pl_grid_new(job->data->ratings, side, &job->grid);
    return rc ? pl_fail(why, rc, "out of memory for ratings in %d x %d blocks", side, side) : PL_OK;
}

/* Time of a typical task: the median of the middle worker, times its mini-batches. */
static double build_typical(const struct pl_job *job) {
    return pl_delay_quantile(job->delay, (uint32_t)job->n_workers / 2, 0.5) * pl_job_steps(job);
}

/* Seconds between evaluations, unless --eval-every is given. */
static double build_eval_every(const struct pl_setup_conf *c, const struct pl_job *job,
                               enum pl_host host) {
    if (c->eval_every > 0) return c->eval_every;
    if (c->time > 0) return c->time / EVALUATIONS;
    if (host == PL_HOST_REAL) return REAL_EVAL;
    double typical = EVALUATE_TASKS * build_typical(job);
    return typical > 0 ? typical : 1;
}

static int build_limits(const struct pl_setup_conf *c, struct pl_built *b, enum pl_host host,
                        struct pl_why *why) {
    struct pl_limits *l = &b->job.limits;
    *l = (struct pl_limits){.updates = (uint64_t)c->updates,
                            .epochs = c->epochs,
                            .seconds = c->time,
                            .target_loss = c->target_loss > 0 ? c->target_loss : NAN,
                            .target_accuracy = c->target_accuracy > 0 ? c->target_accuracy : NAN};
    bool target = c->target_loss > 0 || c->target_accuracy > 0;
    if (target && !b->job.model)
        return pl_fail(
            why, PL_EUSAGE,
            "a target needs a model, but --model none simulates timing alone; use a model");
    if (c->log[0] && !b->job.model)
        return pl_fail(
            why, PL_EUSAGE,
            "log has a line per evaluation, but --model none evaluates nothing; use events");
    bool by_clients = b->job.model && b->job.model->kind->by_clients; /* an evaluator says it */
    if (c->target_accuracy > 0 && !by_clients && !(b->job.model->classifies && b->job.data))
        return pl_fail(why, PL_EUSAGE,
                       "target-accuracy needs a model that classifies; use target-loss");
    if (c->target_accuracy > 0 && !by_clients && b->job.data->n_test == 0)
        return pl_fail(why, PL_EUSAGE,
                       "target-accuracy needs a test set, but the data has none; use target-loss");
    if (c->epochs > 0 && !b->job.data)
        return pl_fail(
            why, PL_EUSAGE,
            "epochs needs training samples, but the model has no data; use updates or time");
    if (!l->updates && !(l->epochs > 0) && !(l->seconds > 0))
        l->updates = target ? TARGET_UPDATES : DEFAULT_UPDATES;
    b->job.eval_every = build_eval_every(c, &b->job, host);
    return PL_OK;
}

/* Compares the most vectors that the run can need with the machine's memory. */
static int build_size(const struct pl_job *job, struct pl_why *why) {
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    const struct pl_optim *optim = (const struct pl_optim *)job->optim.entry;
    double k = job->groups.most, p = job->n_workers;
    double vectors = (optim->looks_ahead ? 2 : 1) * (p + 2) + k + 8 + (optim->per_worker ? p : 0);
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    if (local->n_vectors) vectors += 2 * p * local->n_vectors(job->local.conf);
    const struct pl_filter_kind *filter = (const struct pl_filter_kind *)job->filter.entry;
    vectors += filter->n_vectors + filter->trusts + filter->n_own * p;
    vectors += pl_average_vectors(&job->average);
    if (policy->peers) vectors += 4 * p; /* two per task, and those that other models refer to */
    double bytes = 4.0 * (double)job->model->dim * vectors, there = pl_memory();
    if ((double)job->batch * pl_job_steps(job) > UINT32_MAX)
        return pl_fail(why, PL_EUSAGE,
                       "a task of %u samples times %u steps is too large; use a smaller batch",
                       job->batch, pl_job_steps(job));
    if (bytes < there) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "%d workers on a model of %zu parameters may need %.3g GB, but the machine has "
                   "%.3g GB; use fewer workers or a smaller model",
                   job->n_workers, job->model->dim, bytes * 1e-9, there * 1e-9);
}

/* OpenBLAS maps a buffer for every thread that calls it at the same time. If it cannot, it tries
 * for ever, so the run must not get that far. */
static int build_blas(const struct pl_setup_conf *c, const struct pl_job *job, enum pl_host host,
                      struct pl_why *why) {
    bool threads = host == PL_HOST_REAL && c->spawn == PL_SPAWN_THREADS;
    int n = job->n_threads > 1 ? job->n_threads + 1 : 1;
    if (host == PL_HOST_REAL) n += threads ? job->n_workers + 1 : 1;
    if (!job->model || !job->data || pl_memory_fits(n + 1, BLAS_BUFFER)) return PL_OK;
    return pl_fail(why, PL_ENOMEM,
                   "out of memory: %d threads of linear algebra need %.3g GB of address space; "
                   "raise the limit (ulimit -v), or use fewer --threads",
                   n, (n + 1) * (double)BLAS_BUFFER * 1e-9);
}

/* Who starts how many workers. */
static int build_places(struct pl_setup *s) {
    const struct pl_setup_conf *c = &s->conf;
    bool spawns = pl_setup_spawns(s);
    long long most = c->start > c->min_workers ? c->start : c->min_workers;
    if (most > c->workers)
        return pl_fail(&s->why, PL_EUSAGE, "--%s %lld is more than --workers %lld",
                       most == c->start ? "start" : "min-workers", most, (long long)c->workers);
    if (c->start > 0 && !(spawns && c->listen[0]))
        return pl_fail(&s->why, PL_EUSAGE,
                       "--start is for train --listen, where others can join besides");
    if (c->min_workers > 0 && spawns)
        return pl_fail(&s->why, PL_EUSAGE,
                       "--min-workers is for paceline serve; train begins with the workers that it "
                       "starts");
    if (c->respawn && !spawns && !s->ranks && pl_setup_is_set(s, "respawn"))
        return pl_fail(&s->why, PL_EUSAGE,
                       "--respawn restarts workers that the server starts, but here clients "
                       "are the workers; leave out --respawn");
    return PL_OK;
}

/* A model that clients compute. */
static int build_for_clients(struct pl_setup *s) {
    const struct pl_setup_conf *c = &s->conf;
    if (!c->listen[0] && !s->ranks)
        return pl_fail(
            &s->why, PL_EUSAGE,
            "model 'external' needs clients that compute it; use --listen PATH or HOST:PORT");
    if (pl_setup_is_set(s, "spawn") && c->spawn != PL_SPAWN_NONE)
        return pl_fail(&s->why, PL_EUSAGE,
                       "model 'external' cannot be computed by workers that the server starts; "
                       "use --spawn none");
    if (c->attack[0] || strcmp(c->delay, "auto") != 0)
        return pl_fail(&s->why, PL_EUSAGE,
                       "%s is simulated by workers of this library, but model 'external' has "
                       "clients for workers; leave out --%s",
                       c->attack[0] ? "attack" : "delay", c->attack[0] ? "attack" : "delay");
    return PL_OK;
}

static int build_word(const char *key, const char *text, const char *takes, int max,
                      struct pl_why *why) {
    int n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("_.-", text[n]))) n++;
    if (n > 0 && n < max && !text[n]) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "%s '%.80s' is not accepted; %s takes %s of 1 to %d letters, digits, _ . and -",
                   key, text, key, takes, max - 1);
}

/* Options about programs that join. */
static int build_joiners(struct pl_setup *s) {
    static const char *const name[] = {"wait", "exchange", "job", "requests"};
    for (int i = 0; i < (s->ranks ? 3 : 4); i++) /* ranks of MPI may send requests */
        if (pl_setup_is_set(s, name[i]) && !s->conf.listen[0])
            return pl_fail(&s->why, PL_EUSAGE,
                           "%s is for programs that join; use it with --listen PATH or HOST:PORT",
                           name[i]);
    return s->conf.job[0] ? build_word("job", s->conf.job, "a name", PL_JOB_MAX, &s->why) : PL_OK;
}

/* What only one of the two hosts supports. */
static int build_host(struct pl_setup *s, const struct pl_job *job, enum pl_host host) {
    const struct pl_setup_conf *c = &s->conf;
    struct pl_why *why = &s->why;
    struct pl_listen listen;
    int rc = host == PL_HOST_REAL ? pl_listen_check(c, &listen, why) : PL_OK;
    if (!rc && host == PL_HOST_REAL) rc = build_joiners(s);
    if (!rc) rc = build_word("requests", c->requests, "none, any, or a token", PL_TOKEN_MAX, why);
    if (rc) return rc;
    if (c->wire == 1 && !c->listen[0])
        return pl_fail(why, PL_EUSAGE, "wire bf16 is for clients; use it with --listen PATH");
    if (host == PL_HOST_REAL && build_places(s)) return PL_EUSAGE;
    if (job->model && job->model->kind->by_clients) return build_for_clients(s);
    if (host == PL_HOST_VIRTUAL) return PL_OK;
    if (!job->model)
        return pl_fail(why, PL_EUSAGE,
                       "a real run needs something to compute; use a model, for example quadratic");
    if (c->spawn == PL_SPAWN_NONE && !c->listen[0])
        return pl_fail(why, PL_EUSAGE, "spawn none waits for clients; set listen to their socket");
    return PL_OK;
}

static int build_delay(struct pl_setup *s, struct pl_job *job, enum pl_host host) {
    const char *law = pl_setup_delay(s);
    if (host == PL_HOST_REAL && law != s->conf.delay) return PL_OK; /* nothing is injected */
    return pl_delay_open(law, job->n_workers, job->seed, &job->delay, &s->why);
}

static int build_evict(const struct pl_setup_conf *c, struct pl_job *job, struct pl_why *why) {
    bool number = isdigit((unsigned char)c->evict[0]) || c->evict[0] == '.';
    job->evict = strcmp(c->evict, "off") == 0 ? 0 : -1;
    if (job->evict == 0 || strcmp(c->evict, "auto") == 0) return PL_OK;
    if (number && pl_opt_seconds(c->evict, 0.01, 1e9, &job->evict)) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "evict '%.100s' is not a time; use auto, off, or from 0.01 to 1e9 seconds, like "
                   "90, 500ms or 30m",
                   c->evict);
}

/* Control checks that policy, tuner and number of workers go together. */
static int build_control(const struct pl_job *job, struct pl_why *why) {
    struct pl_control *control = NULL;
    struct pl_control_conf conf = pl_job_control(job);
    int rc = pl_control_new(&conf, &control, why);
    pl_control_free(control);
    return rc;
}

static int build_all(struct pl_setup *s, enum pl_host host, struct pl_built *b) {
    const struct pl_setup_conf *c = &s->conf;
    struct pl_job *job = &b->job;
    *job = (struct pl_job){.method = b->method,
                           .weight_decay = c->weight_decay,
                           .max_norm = c->max_norm,
                           .n_workers = (int)c->workers,
                           .batch = (uint32_t)c->batch,
                           .seed = (uint64_t)c->seed,
                           .sampling = (enum pl_sampling)c->sampling,
                           .eval_samples = (uint32_t)c->eval_samples,
                           .update_time = c->update_time,
                           .n_threads = c->threads > 0 ? (int)c->threads : pl_cores(),
                           .log = {s->log.say, s->log.ctx, c->worker_names == 1, NULL}};
    int rc = pl_isa_check(&s->why);
    if (!rc && c->keys[0] &&
        !(job->log.names = calloc((size_t)job->n_workers, sizeof *job->log.names)))
        rc = pl_fail(&s->why, PL_ENOMEM, "out of memory");
    if (!rc) rc = pl_build_columns(s, b, &s->why);
    if (!rc && (rc = pl_groups(&job->policy, &job->tuner, job->n_workers, &job->groups)))
        pl_fail(&s->why, rc, "out of memory");
    if (!rc && (job->groups.least < 1 || job->groups.most < job->groups.least))
        rc = pl_fail(&s->why, PL_EPOLICY,
                     "policy '%s' broke its contract: it declares groups of %d to %d members",
                     job->policy.entry->name, job->groups.least, job->groups.most);
    if (!rc) rc = build_control(job, &s->why);
    if (!rc) rc = build_schedule(s, b);
    if (strcmp(c->average, "auto") != 0) b->average = c->average;
    if (!rc) rc = pl_average_parse(b->average, &job->average, &s->why);
    if (!rc) rc = build_evict(c, job, &s->why);
    if (!rc) rc = build_attack(c, job, &s->why);
    if (!rc) rc = pl_fit(s, b, host, 1);
    if (!rc) rc = build_reduce(b, &s->why);
    if (!rc) rc = pl_filter_check(&job->filter, job->n_workers, &s->why);
    if (!rc) rc = build_delay(s, job, host);
    if (!rc && (rc = pl_opt_parse(pl_net_opts, &b->net, c->net, job->n_workers, &s->why)))
        pl_fail_in(&s->why, rc, "net");
    if (!rc && c->script[0]) rc = pl_script_read(c->script, job->n_workers, &b->script, &s->why);
    if (!rc) rc = build_model(s, host, b);
    if (!rc) build_rate(s, job);
    if (!rc) rc = build_grid(job, &s->why);
    if (!rc) rc = build_host(s, job, host);
    if (!rc) rc = build_limits(c, b, host, &s->why);
    if (!rc && job->model) rc = build_size(job, &s->why);
    if (!rc) rc = build_blas(c, job, host, &s->why);
    return rc;
}

int pl_build(struct pl_setup *s, enum pl_host host, struct pl_built *out) {
    s->why.text[0] = '\0';
    pl_setup_resolve(s, host);
    *out = (struct pl_built){.host = host, .schedule = "constant", .average = "none"};
    int rc = build_all(s, host, out);
    if (rc) pl_built_free(out);
    return rc;
}

void pl_built_free(struct pl_built *b) {
    struct pl_job *job = &b->job;
    free(job->log.names);
    pl_grid_free(job->grid);
    pl_model_close(job->model);
    pl_layout_free(&b->layout);
    free(b->rules);
    free(b->w0);
    free(b->range);
    free(b->tensor_end);
    pl_partition_free(job->partition);
    pl_delay_free(job->delay);
    pl_script_free(&b->script);
    pl_chain_free(&job->rate.schedule);
    pl_chain_free(&job->reduce);
    free(job->policy.conf);
    free(job->tuner.conf);
    free(job->correct.conf);
    free(job->optim.conf);
    free(job->local.conf);
    free(job->filter.conf);
    free(job->attack.conf);
    *b = (struct pl_built){0};
}

int pl_setup_check(pl_setup *s) {
    PL_NUMERALS;
    struct pl_built built;
    int64_t workers = s->conf.workers;
    int rc = pl_build(s, PL_HOST_VIRTUAL, &built);
    s->conf.workers = workers;
    if (!rc) pl_built_free(&built);
    return rc;
}
