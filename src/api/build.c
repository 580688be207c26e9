/* From options to a job: names are looked up, specs parsed, files opened, and everything that does
 * not fit together is refused before anything runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/parts.h"
#include "core/filter.h"
#include "core/groups.h"
#include "learn/drift.h"
#include "learn/task.h"
#include "model/callback.h"
#include "sys/pool.h"

#define DEFAULT_METHOD "abs"
#define REAL_EVAL 1 /* seconds between evaluations of a real run of unknown length */
#define DEFAULT_UPDATES 1000
#define TARGET_UPDATES 100000 /* where only a target would end the run */
#define DATA_SEED 1           /* of generated data: the same set whatever the run's seed */
#define EVALUATIONS 50        /* in a run of known length */
#define EVALUATE_TASKS 20     /* typical tasks between evaluations, otherwise */

static int build_choice(const struct pl_family *family, const char *spec, int n_workers,
                        struct pl_choice *out, struct pl_why *why) {
    return pl_spec_parse(family, spec, n_workers, &out->entry, &out->conf, why);
}

/* The seven columns: the method's, or those of a plain run, each replaced by what was said. */
static int build_columns(const struct pl_setup *s, struct pl_built *b, struct pl_why *why) {
    const char *plain[PL_N_COLUMNS] = {NULL, "fixed", "none", "mean", "sgd", "gradient", "none"};
    const struct pl_setup_conf *c = &s->conf;
    bool method = c->method[0] || !c->column[PL_COLUMN_POLICY][0];
    char spec[PL_N_COLUMNS][PL_SPEC_MAX];
    if (method) {
        const struct pl_recipe *recipe;
        int rc = pl_recipe_resolve(c->method[0] ? c->method : DEFAULT_METHOD, &recipe, spec, why);
        if (rc) return rc;
        snprintf(b->method, sizeof b->method, "%s", recipe->id.name);
        if (recipe->schedule) b->schedule = recipe->schedule;
    } else {
        snprintf(b->method, sizeof b->method, "custom");
    }
    struct pl_choice *const choice[PL_N_COLUMNS] = {&b->job.policy, &b->job.tuner, &b->job.correct,
                                                    NULL,           &b->job.optim, &b->job.local,
                                                    &b->job.filter};
    for (int i = 0; i < PL_N_COLUMNS; i++) {
        const char *said = c->column[i][0] ? c->column[i] : method ? spec[i] : plain[i];
        int rc =
            choice[i]
                ? build_choice(pl_column_family[i], said, (int)c->workers, choice[i], why)
                : pl_chain_parse(pl_column_family[i], said, (int)c->workers, &b->job.reduce, why);
        if (rc) return rc;
        if (i == PL_COLUMN_POLICY && ((const struct pl_policy *)b->job.policy.entry)->grid)
            plain[PL_COLUMN_LOCAL] = "sweep";
        if (choice[i])
            pl_spec_print(choice[i]->entry, choice[i]->conf, b->spec[i], sizeof b->spec[i]);
    }
    return PL_OK;
}

/* Optimizers with a memory per worker take contributions one at a time. */
static int build_check_optim(const struct pl_job *job, struct pl_why *why) {
    const struct pl_optim *optim = (const struct pl_optim *)job->optim.entry;
    if (!optim->one_at_a_time || job->groups.most == 1) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "optim '%s' takes gradients one at a time; use a policy with k=1 and a tuner "
                   "that leaves K alone",
                   optim->id.name);
}

/* Printed behind the check, which tells links the f of their neighbours. */
static int build_check_reduce(struct pl_built *b, struct pl_why *why) {
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
        return pl_fail(why, PL_EUSAGE, "attack '%s' has f=%d hostile workers, and there are %d",
                       a->id.name, f, job->n_workers);
    if (!job->model)
        return pl_fail(why, PL_EUSAGE,
                       "an attack needs a model; with --model none nothing is sent");
    if (a->labels && !job->data)
        return pl_fail(why, PL_EUSAGE, "attack '%s' turns labels, and the model has no data",
                       a->id.name);
    if (a->labels && job->data->n_classes == 0)
        return pl_fail(why, PL_EUSAGE, "attack '%s' turns labels, and ratings have none",
                       a->id.name);
    return PL_OK;
}

/* Behind the attack and the model. Attacks that are made in the open group come after a filter has
 * seen what arrived: it would be asked about gradients that nobody sends. */
static int build_check_filter(const struct pl_job *job, struct pl_why *why) {
    const struct pl_attack *attack = (const struct pl_attack *)job->attack.entry;
    int rc = pl_filter_check(&job->filter, job->n_workers, why);
    if (rc || !job->model || !pl_filter_any(&job->filter)) return rc;
    if (pl_filter_trusts(&job->filter) && !job->data)
        return pl_fail(why, PL_EUSAGE,
                       "filter '%s' compares with training samples that the server holds, and the "
                       "model has no data; use a model with data, or filter kardam",
                       job->filter.entry->name);
    if (attack && attack->together)
        return pl_fail(
            why, PL_EUSAGE,
            "attack '%s' is made where a group is committed, and filter '%s' sees "
            "gradients before that; use an attack that a worker makes alone, as signflip",
            attack->id.name, job->filter.entry->name);
    return PL_OK;
}

/* Without a server nobody sees more than one model at a time: there is nothing to correct, reduce
 * or disbelieve, and the step is the worker's own. */
static int build_check_peers(const struct pl_job *job, struct pl_why *why) {
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    const struct {
        const char *family, *has, *needs;
    } column[] = {{"correct", job->correct.entry->name, "none"},
                  {"reduce", job->reduce.link[0].entry->name, "mean"},
                  {"optim", job->optim.entry->name, "sgd"},
                  {"filter", job->filter.entry->name, "none"}};
    if (!policy->peers) return PL_OK;
    for (size_t i = 0; i < sizeof column / sizeof *column; i++)
        if (strcmp(column[i].has, column[i].needs) != 0 || job->reduce.n != 1)
            return pl_fail(why, PL_EUSAGE,
                           "policy '%s' has no server that could apply %s '%s'; use %s",
                           policy->id.name, column[i].family, column[i].has, column[i].needs);
    if (((const struct pl_local *)job->local.entry)->model_slot > 0)
        return pl_fail(why, PL_EUSAGE,
                       "local '%s' keeps a model beside the one that policy '%s' mixes; use own",
                       job->local.entry->name, policy->id.name);
    if (job->attack.entry)
        return pl_fail(why, PL_EUSAGE,
                       "policy '%s' has no server that an attack could be sent to; attacks are for "
                       "policies with one",
                       policy->id.name);
    return PL_OK;
}

static int build_schedule(const struct pl_setup_conf *c, struct pl_built *b, struct pl_why *why) {
    struct pl_rate *rate = &b->job.rate;
    rate->lr = c->lr;
    rate->by_k = c->lr_scale == 1;
    rate->epoch_samples = b->job.data ? b->job.data->n_train : 0;
    const char *spec = strcmp(c->lr_schedule, "auto") != 0 ? c->lr_schedule : b->schedule;
    int rc = pl_chain_parse(&pl_schedule_family, spec, (int)c->workers, &rate->schedule, why);
    for (int i = 0; !rc && i < rate->schedule.n; i++) {
        const struct pl_choice *link = &rate->schedule.link[i];
        const struct pl_schedule *schedule = (const struct pl_schedule *)link->entry;
        const struct pl_schedule_unit *unit = link->conf;
        if (schedule->commit && rate->epoch_samples == 0 && b->job.model)
            return pl_fail(why, PL_EUSAGE,
                           "lr-schedule '%s' goes by epochs, but there is no data to count; use "
                           "lr-schedule constant",
                           link->entry->name);
        if (schedule->factor && unit->unit == PL_UNIT_EPOCHS && rate->epoch_samples == 0)
            return pl_fail(why, PL_EUSAGE,
                           "lr-schedule '%s' counts epochs, and there is no data to count; add "
                           "unit=updates",
                           link->entry->name);
    }
    return rc;
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

static int build_model(struct pl_setup *s, struct pl_built *b) {
    const struct pl_setup_conf *c = &s->conf;
    if (!s->has_function && strcmp(c->model, "none") == 0) return PL_OK;
    bool wants = s->function.wants_data != 0;
    if (!s->has_function) {
        char name[PL_NAME_MAX];
        const char *args;
        const struct pl_entry *entry = NULL;
        int rc = pl_spec_split(c->model, name, &args, &s->why);
        if (rc) return pl_fail_in(&s->why, rc, "model");
        rc = pl_entry_find(&pl_model_family, name, &entry, &s->why);
        if (rc) return rc;
        wants = ((const struct pl_model_kind *)entry)->wants_data;
    }
    int rc = wants ? build_data(s, b) : PL_OK;
    if (rc) return rc;
    return s->has_function ? pl_callback_open(&s->function, b->job.data, &b->job.model, &s->why)
                           : pl_model_open(c->model, b->job.data, &b->job.model, &s->why);
}

/* A typical task: the median on the middle worker, times its mini-batches. */
static double build_typical(const struct pl_job *job) {
    return pl_delay_quantile(job->delay, (uint32_t)job->n_workers / 2, 0.5) * pl_job_steps(job);
}

/* Seconds between evaluations where nobody said. */
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
        return pl_fail(why, PL_EUSAGE, "a target needs a model; with --model none nothing learns");
    if (c->log[0] && !b->job.model)
        return pl_fail(why, PL_EUSAGE,
                       "log has a line per evaluation; with model none there is none");
    if (c->target_accuracy > 0 && !(b->job.model->kind->classifies && b->job.data))
        return pl_fail(why, PL_EUSAGE,
                       "target-accuracy needs a model that classifies; use target-loss");
    if (c->target_accuracy > 0 && b->job.data->n_test == 0)
        return pl_fail(why, PL_EUSAGE, "target-accuracy needs a test set, and the data has none");
    if (c->epochs > 0 && !b->job.data)
        return pl_fail(why, PL_EUSAGE, "epochs need data to count; use updates or time");
    if (!l->updates && !(l->epochs > 0) && !(l->seconds > 0))
        l->updates = target ? TARGET_UPDATES : DEFAULT_UPDATES;
    b->job.eval_every = build_eval_every(c, &b->job, host);
    return PL_OK;
}

/* Versions, contributions and optimizer state at their most, against the machine's memory. */
static int build_size(const struct pl_job *job, struct pl_why *why) {
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    const struct pl_optim *optim = (const struct pl_optim *)job->optim.entry;
    double k = job->groups.most, p = job->n_workers;
    double vectors = (optim->looks_ahead ? 2 : 1) * (p + 2) + k + 8 + (optim->per_worker ? p : 0);
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    if (local->n_vectors) vectors += 2 * p * local->n_vectors(job->local.conf);
    const struct pl_filter_kind *filter = (const struct pl_filter_kind *)job->filter.entry;
    vectors += filter->n_vectors + filter->trusts + filter->n_own * p;
    if (policy->peers) vectors += 4 * p; /* two of a task, and what others' models refer to */
    double bytes = 4.0 * (double)job->model->dim * vectors, there = pl_memory();
    if ((double)job->batch * pl_job_steps(job) > UINT32_MAX)
        return pl_fail(why, PL_EUSAGE, "a task of %u samples times %u steps is too large",
                       job->batch, pl_job_steps(job));
    if (bytes < there) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "%d workers on a model of %zu parameters may need %.1f GB, and the machine has "
                   "%.1f; use fewer workers or a smaller model",
                   job->n_workers, job->model->dim, bytes * 1e-9, there * 1e-9);
}

/* What only one of the two hosts can do. */
static int build_host(const struct pl_setup_conf *c, const struct pl_job *job, enum pl_host host,
                      struct pl_why *why) {
    if (c->spread && (!job->model || job->n_workers > PL_DRIFT_MAX))
        return pl_fail(why, PL_EUSAGE, "spread is for at most %d workers that have a model",
                       PL_DRIFT_MAX);
    if (host == PL_HOST_VIRTUAL) return PL_OK;
    if (!job->model)
        return pl_fail(why, PL_EUSAGE,
                       "a real run needs something to compute; model quadratic is the smallest");
    if (c->net[0] || c->script[0])
        return pl_fail(why, PL_EUSAGE,
                       "%s is for simulated runs; a real one has real networks and real faults",
                       c->net[0] ? "net" : "script");
    if (c->spread)
        return pl_fail(why, PL_EUSAGE,
                       "spread is for simulated runs; in a real one workers keep their models to "
                       "themselves");
    if (c->spawn == PL_SPAWN_NONE && !c->listen[0])
        return pl_fail(why, PL_EUSAGE,
                       "spawn none means that workers come by themselves; say where with listen");
    if (c->spawn == PL_SPAWN_THREADS && (c->listen[0] || c->respawn))
        return pl_fail(why, PL_EUSAGE,
                       "%s is for workers that are processes; threads are here to "
                       "stay",
                       c->listen[0] ? "listen" : "respawn");
    return PL_OK;
}

static int build_delay(struct pl_setup *s, struct pl_job *job, enum pl_host host) {
    const char *law = pl_setup_delay(s);
    if (host == PL_HOST_REAL && law != s->conf.delay) return PL_OK; /* nothing is injected */
    return pl_delay_open(law, job->n_workers, job->seed, &job->delay, &s->why);
}

static int build_all(struct pl_setup *s, enum pl_host host, struct pl_built *b) {
    const struct pl_setup_conf *c = &s->conf;
    struct pl_job *job = &b->job;
    *job = (struct pl_job){.method = b->method,
                           .weight_decay = c->weight_decay,
                           .n_workers = (int)c->workers,
                           .batch = (uint32_t)c->batch,
                           .seed = (uint64_t)c->seed,
                           .sampling = (enum pl_sampling)c->sampling,
                           .eval_samples = (uint32_t)c->eval_samples,
                           .update_time = c->update_time,
                           .spread = c->spread,
                           .n_threads = c->threads > 0 ? (int)c->threads : pl_cores(),
                           .log = s->log};
    int rc = build_columns(s, b, &s->why);
    if (!rc && (rc = pl_groups(&job->policy, &job->tuner, job->n_workers, &job->groups)))
        pl_fail(&s->why, rc, "out of memory");
    if (!rc) rc = build_check_optim(job, &s->why);
    if (!rc) rc = build_check_reduce(b, &s->why);
    if (!rc) rc = build_delay(s, job, host);
    if (!rc && (rc = pl_opt_parse(pl_net_opts, &b->net, c->net, job->n_workers, &s->why)))
        pl_fail_in(&s->why, rc, "net");
    if (!rc && c->script[0]) rc = pl_script_read(c->script, job->n_workers, &b->script, &s->why);
    if (!rc) rc = pl_parts_suit(s, job, &s->why);
    if (!rc) rc = build_model(s, b);
    if (!rc) rc = build_attack(c, job, &s->why);
    if (!rc) rc = build_check_filter(job, &s->why);
    if (!rc) rc = build_check_peers(job, &s->why);
    if (!rc) rc = pl_parts_open(s, job, &s->why);
    if (!rc) rc = build_schedule(c, b, &s->why);
    if (!rc) rc = build_host(c, job, host, &s->why);
    if (!rc) rc = build_limits(c, b, host, &s->why);
    if (!rc && job->model) rc = build_size(job, &s->why);
    return rc;
}

int pl_build(struct pl_setup *s, enum pl_host host, struct pl_built *out) {
    s->why.text[0] = '\0';
    *out = (struct pl_built){.schedule = "constant"};
    int rc = build_all(s, host, out);
    if (rc) pl_built_free(out);
    return rc;
}

void pl_built_free(struct pl_built *b) {
    struct pl_job *job = &b->job;
    pl_grid_free(job->grid);
    pl_model_close(job->model);
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
    struct pl_built built;
    int rc = pl_build(s, PL_HOST_VIRTUAL, &built);
    if (rc) return rc;
    /* whether policy, tuner and workers suit each other is control's to say */
    const struct pl_job *job = &built.job;
    struct pl_control *control = NULL;
    rc = pl_control_new((const struct pl_policy *)job->policy.entry, job->policy.conf,
                        (const struct pl_tuner *)job->tuner.entry, job->tuner.conf, job->n_workers,
                        job->seed, &control, &s->why);
    pl_control_free(control);
    pl_built_free(&built);
    return rc;
}
