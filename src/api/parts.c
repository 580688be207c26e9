#include "api/parts.h"

#include <string.h>

#include "core/filter.h"
#include "model/mf.h"

static const struct pl_policy *parts_policy(const struct pl_job *job) {
    return (const struct pl_policy *)job->policy.entry;
}

int pl_parts_suit(const struct pl_setup *s, const struct pl_job *job, struct pl_why *why) {
    const struct pl_policy *policy = parts_policy(job);
    const char *model = s->conf.model, *args;
    char name[PL_NAME_MAX];
    const struct pl_entry *entry;
    if (!policy->grid || (!s->has_function && strcmp(model, "none") == 0)) return PL_OK;
    if (s->has_function)
        return pl_fail(why, PL_EUSAGE,
                       "policy '%s' hands out blocks of a matrix, and a function of the embedding "
                       "program has none; use model mf with data ratings:FILE",
                       policy->id.name);
    /* what is no model at all is told by whoever opens it */
    if (pl_spec_split(model, name, &args, NULL) ||
        pl_entry_find(&pl_model_family, name, &entry, NULL))
        return PL_OK;
    if (((const struct pl_model_kind *)entry)->parts) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "policy '%s' hands out blocks of a matrix, and model '%s' has none; use --model "
                   "mf --data ratings:FILE, or --data lowrank to try it",
                   policy->id.name, entry->name);
}

static bool parts_corrects(const struct pl_job *job) {
    const struct pl_correct *c = (const struct pl_correct *)job->correct.entry;
    return c->apply || c->factor || c->n_vectors > 0 || c->needs_base;
}

/* What does not go with parts, and what does. */
static int parts_check(const struct pl_setup *s, const struct pl_job *job, struct pl_why *why) {
    const struct pl_setup_conf *c = &s->conf;
    const struct pl_optim *optim = (const struct pl_optim *)job->optim.entry;
    const struct {
        bool wrong;
        const char *family, *name, *right;
    } row[] = {
        {parts_corrects(job), "correct", job->correct.entry->name, "correct none"},
        {job->reduce.n > 1 || strcmp(job->reduce.link[0].entry->name, "mean") != 0, "reduce",
         job->reduce.link[0].entry->name, "reduce mean"},
        {optim->n_vectors > 0, "optim", optim->id.name, "optim sgd"},
        {((const struct pl_local *)job->local.entry)->sends != PL_SENDS_RANGES, "local",
         job->local.entry->name, "local sweep"},
        {pl_filter_any(&job->filter), "filter", job->filter.entry->name, "filter none"},
        {job->attack.entry != NULL, "attack", c->attack, "none"},
        {job->weight_decay != 0, "weight-decay", "", "l2 of model mf"},
        {strcmp(c->partition, "whole") != 0, "partition", c->partition, "partition whole"},
        {c->spread != 0, "spread", "", "spread no"},
        {c->listen[0] != '\0', "listen", "", "workers that the server makes"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].wrong)
            return pl_fail(why, PL_EUSAGE,
                           "policy '%s' hands out blocks of the model, and %s%s%.60s%s goes by all "
                           "of it; use %s",
                           job->policy.entry->name, row[i].family, row[i].name[0] ? " '" : "",
                           row[i].name, row[i].name[0] ? "'" : "", row[i].right);
    return PL_OK;
}

int pl_parts_open(const struct pl_setup *s, struct pl_job *job, struct pl_why *why) {
    const struct pl_policy *policy = parts_policy(job);
    if (!job->model) return PL_OK;
    if (!policy->grid && ((const struct pl_local *)job->local.entry)->sends == PL_SENDS_RANGES)
        return pl_fail(
            why, PL_EUSAGE,
            "local '%s' works on blocks of a matrix, but policy '%s' hands out the whole "
            "model; use policy blocks or strata with model mf, as method fpsgd does",
            job->local.entry->name, policy->id.name);
    if (!policy->grid) return PL_OK;
    int rc = parts_check(s, job, why);
    if (rc) return rc;
    const char *no = policy->check ? policy->check(job->policy.conf, job->n_workers) : NULL;
    if (no)
        return pl_fail(why, PL_EUSAGE, "policy '%s' with %d workers: %s", policy->id.name,
                       job->n_workers, no);
    int side = policy->grid(job->policy.conf, job->n_workers);
    rc = pl_grid_new(job->data->ratings, side, &job->grid);
    return rc ? pl_fail(why, rc, "out of memory for ratings in %d x %d blocks", side, side) : PL_OK;
}
