#include "api/fit.h"

#include <stdio.h>
#include <string.h>

#include "base/needs.h"
#include "core/filter.h"
#include "core/tuner.h"

#define FIT_PARTIES 28 /* is more than there are */

struct fit {
    const struct pl_setup *setup;
    const struct pl_built *built;
    struct pl_party party[FIT_PARTIES];
    int n;
    char groups[64], servers[32], decay[32], norm[32], ranges[32]; /* words that parties refer to */
};

unsigned pl_policy_lacks(const struct pl_policy *policy) {
    return (policy->peers ? PL_NEEDS_SERVER_MODEL | PL_NEEDS_BASE : 0) |
           (policy->grid ? PL_NEEDS_WHOLE_VECTORS | PL_NEEDS_BASE : PL_NEEDS_PARTS);
}

static struct pl_party *fit_add(struct fit *f, struct pl_party party) {
    f->party[f->n] = party;
    return &f->party[f->n++];
}

/* Adds the entry that a spec names. A spec that cannot be parsed is skipped here: the code that
 * parses it reports the error. */
static struct pl_party *fit_add_spec(struct fit *f, const struct pl_family *family,
                                     const char *what, const char *spec) {
    char name[PL_NAME_MAX];
    const char *args;
    const struct pl_entry *entry;
    if (pl_spec_split(spec, name, &args, NULL) || pl_entry_find(family, name, &entry, NULL))
        return NULL;
    return fit_add(
        f, (struct pl_party){.what = what, .given = spec, .needs = entry->needs, .family = family});
}

static unsigned fit_chain_needs(const struct pl_chain *c) {
    unsigned needs = 0;
    for (int i = 0; i < c->n; i++) needs |= c->link[i].entry->needs;
    return needs;
}

void pl_fit_needs(const struct pl_job *job, unsigned needs[PL_N_COLUMNS]) {
    const struct pl_choice *const one[PL_N_COLUMNS] = {
        &job->policy, &job->tuner, &job->correct, NULL, &job->optim, &job->local, &job->filter};
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    for (int i = 0; i < PL_N_COLUMNS; i++)
        needs[i] = one[i] ? one[i]->entry->needs : fit_chain_needs(&job->reduce);
    if (policy->peers || policy->grid) needs[PL_COLUMN_POLICY] |= PL_NEEDS_ONE_SERVER;
    if (policy->grid) needs[PL_COLUMN_POLICY] |= PL_NEEDS_MATRIX;
}

static void fit_columns(struct fit *f) {
    const struct pl_job *job = &f->built->job;
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    bool tuned = ((const struct pl_tuner *)job->tuner.entry)->moves & PL_USES_K;
    struct pl_sizes size = job->groups;
    unsigned needs[PL_N_COLUMNS];
    pl_fit_needs(job, needs);
    struct pl_party *column[PL_N_COLUMNS];
    for (int i = 0; i < PL_N_COLUMNS; i++)
        column[i] = fit_add(f, (struct pl_party){.what = pl_column_family[i]->name,
                                                 .given = f->built->given[i],
                                                 .needs = needs[i],
                                                 .family = pl_column_family[i]});
    column[PL_COLUMN_POLICY]->lacks = pl_policy_lacks(policy);
    if (pl_filter_any(&job->filter)) column[PL_COLUMN_FILTER]->lacks = PL_NEEDS_NO_FILTER;
    if (size.most == 1) return;
    struct pl_party grouping = *column[tuned ? PL_COLUMN_TUNER : PL_COLUMN_POLICY];
    if (tuned)
        snprintf(f->groups, sizeof f->groups, "lets K grow to %d", size.most);
    else if (size.least < size.most)
        snprintf(f->groups, sizeof f->groups, "makes groups of %d to %d", size.least, size.most);
    else
        snprintf(f->groups, sizeof f->groups, "makes groups of %d", size.most);
    grouping.needs = 0;
    grouping.lacks = PL_NEEDS_ONE_AT_A_TIME;
    grouping.how = f->groups;
    if (tuned) grouping.instead = "use --tuner fixed and a policy with k=1";
    fit_add(f, grouping);
}

/* Options that are not entries, for runs that compute something. */
static void fit_options(struct fit *f) {
    const struct pl_setup_conf *c = &f->setup->conf;
    const struct {
        bool set;
        struct pl_party party;
    } option[] = {
        {c->weight_decay != 0,
         {.what = "weight-decay",
          .given = f->decay,
          .needs = PL_NEEDS_WHOLE_VECTORS,
          .instead = "use l2 of the model"}},
        {c->max_norm > 0,
         {.what = "max-norm",
          .given = f->norm,
          .needs = PL_NEEDS_WHOLE_VECTORS | PL_NEEDS_SERVER_MODEL,
          .instead = "leave out max-norm"}},
        {f->built->job.average.kind != PL_AVERAGE_NONE,
         {.what = "average",
          .given = f->built->average,
          .needs = PL_NEEDS_SERVER,
          .instead = "use --average none"}},
        {f->built->job.ranges.n > 0,
         {.what = "param-groups",
          .given = f->ranges,
          .needs = PL_NEEDS_WHOLE_VECTORS,
          .instead = "use a model without param-groups"}},
        {c->net[0] != '\0', {.what = "net", .given = c->net, .needs = PL_NEEDS_SIMULATION}},
        {c->script[0] != '\0',
         {.what = "script", .given = c->script, .needs = PL_NEEDS_SIMULATION}},
        {c->respawn, {.what = "respawn", .given = "yes", .needs = PL_NEEDS_PROCESSES}},
        {c->listen[0] != '\0',
         {.what = "listen",
          .given = c->listen,
          .needs = PL_NEEDS_WHOLE_VECTORS,
          .lacks = PL_NEEDS_OUR_WORKERS,
          .instead = "let the server start its workers"}},
        {c->listen[0] != '\0',
         {.what = "listen", .given = c->listen, .needs = PL_NEEDS_PROCESSES}}};
    snprintf(f->decay, sizeof f->decay, "%g", c->weight_decay);
    snprintf(f->norm, sizeof f->norm, "%g", c->max_norm);
    int n_ranges = f->built->job.ranges.n;
    snprintf(f->ranges, sizeof f->ranges, "%d range%s", n_ranges, n_ranges == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        if (option[i].set) fit_add(f, option[i].party);
    fit_add_spec(f, &pl_partition_family, "partition", c->partition);
}

/* What a real run and its workers lack. */
static void fit_host(struct fit *f, enum pl_host host) {
    if (host == PL_HOST_VIRTUAL) return;
    fit_add(f, (struct pl_party){.what = "a real run", .lacks = PL_NEEDS_SIMULATION});
    if (f->setup->conf.spawn == PL_SPAWN_THREADS)
        fit_add(
            f, (struct pl_party){.what = "spawn", .given = "threads", .lacks = PL_NEEDS_PROCESSES});
}

/* Whether a client gives the server a gradient to compare with. */
static bool fit_given_reference(const struct pl_setup *s, const struct pl_model_kind *kind) {
    return kind && kind->by_clients && s->conf.exchange[0];
}

/* The model and the data: what their kinds declare, and what the data has once it is open. */
static void fit_model(struct fit *f) {
    const struct pl_setup *s = f->setup;
    const struct pl_setup_conf *c = &s->conf;
    const struct pl_data *data = f->built->job.data;
    if (pl_setup_timing_alone(s)) {
        fit_add(f, (struct pl_party){.what = "model", .given = c->model, .lacks = PL_NEEDS_MODEL});
        return;
    }
    fit_options(f);
    struct pl_party *model =
        s->has_function ? fit_add(f, (struct pl_party){.what = "model", .given = "function"})
                        : fit_add_spec(f, &pl_model_family, "model", c->model);
    if (!model) return;
    const struct pl_model_kind *kind = pl_setup_kind(s);
    bool wants_data = kind ? kind->wants_data : s->function.wants_data != 0;
    if (!kind || kind->by_clients)
        fit_add(f, (struct pl_party){.what = "model",
                                     .given = model->given,
                                     .lacks = PL_NEEDS_MATRIX,
                                     .how = "is your program's, which has none",
                                     .instead = "use another method (the library's own model mf "
                                                "has blocks: docs/factorisation.md)"});
    else if (!kind->parts)
        model->lacks |= PL_NEEDS_MATRIX;
    unsigned none = wants_data ? 0
                               : PL_NEEDS_DATA | PL_NEEDS_LABELS | PL_NEEDS_RATINGS |
                                     (fit_given_reference(s, kind) ? 0 : PL_NEEDS_REFERENCE);
    bool waits = pl_filter_trusts(&f->built->job.filter) > 0 && !fit_given_reference(s, kind);
    if (kind && kind->by_clients)
        fit_add(f, (struct pl_party){
                       .what = "model",
                       .given = c->model,
                       .lacks = none,
                       .how = "is computed by clients, which have its data; the server has none",
                       .instead = waits ? "give --exchange DIR, where a client puts that gradient"
                                        : "use another method"});
    else
        model->lacks |= none;
    if (!data) return;
    unsigned lacks =
        (data->n_classes == 0 ? PL_NEEDS_LABELS : 0) | (data->ratings ? 0 : PL_NEEDS_RATINGS);
    fit_add(f, (struct pl_party){.what = "data", .given = c->data, .lacks = lacks});
}

/* The links of the learning-rate schedule: those that count epochs need data. */
static void fit_schedule(struct fit *f) {
    const struct pl_chain *chain = &f->built->job.rate.schedule;
    unsigned needs = fit_chain_needs(chain);
    bool counts = false;
    for (int i = 0; i < chain->n; i++) {
        const struct pl_schedule_unit *unit = chain->link[i].conf;
        counts |= ((const struct pl_schedule *)chain->link[i].entry)->factor &&
                  unit->unit == PL_UNIT_EPOCHS;
    }
    fit_add(f, (struct pl_party){.what = "lr-schedule",
                                 .given = f->built->schedule,
                                 .needs = needs | (counts ? PL_NEEDS_DATA : 0),
                                 .instead = counts ? "add unit=updates" : NULL});
}

int pl_fit(struct pl_setup *s, const struct pl_built *b, enum pl_host host, int n_servers) {
    struct fit f = {.setup = s, .built = b};
    const struct pl_local *local = (const struct pl_local *)b->job.local.entry;
    if (s->conf.max_norm > 0 && local->sends != PL_SENDS_GRADIENT)
        return pl_fail(&s->why, PL_EUSAGE,
                       "max-norm clips the mean of gradients, but workers with local '%s' send "
                       "models or changes of them; leave it out, and clip in the workers",
                       local->id.name);
    fit_columns(&f);
    if (s->conf.attack[0]) fit_add_spec(&f, &pl_attack_family, "attack", s->conf.attack);
    fit_schedule(&f);
    fit_model(&f);
    fit_host(&f, host);
    snprintf(f.servers, sizeof f.servers, "%d", n_servers);
    if (n_servers > 1)
        fit_add(&f, (struct pl_party){
                        .what = "servers", .given = f.servers, .lacks = PL_NEEDS_ONE_SERVER});
    return pl_needs_check(f.party, f.n, &s->why);
}
