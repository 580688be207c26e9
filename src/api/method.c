/* pl_setup_method: what a setup's method consists of and needs, for programs that have to know. */
#include <stdlib.h>
#include <string.h>

#include "api/fit.h"
#include "base/json.h"
#include "base/needs.h"
#include "core/filter.h"
#include "core/groups.h"
#include "sys/numerals.h"

static bool method_has_default(const struct pl_built *b, int column) {
    return strcmp(b->given[column], pl_column_default[column]) == 0;
}

/* Whether every update waits for all workers. */
static bool method_waits_for_all(const struct pl_job *job) {
    const struct pl_policy *p = (const struct pl_policy *)job->policy.entry;
    struct pl_sizes sizes;
    return !p->by_batch && !p->peers &&
           pl_groups(&job->policy, &job->tuner, job->n_workers, &sizes) == PL_OK &&
           sizes.least == job->n_workers;
}

/* And is the mean of their gradients. */
static bool method_is_synchronous(const struct pl_built *b) {
    for (int i = 0; i < PL_N_COLUMNS; i++)
        if (i != PL_COLUMN_POLICY && i != PL_COLUMN_OPTIM && !method_has_default(b, i))
            return false;
    return method_waits_for_all(&b->job);
}

/* Whether every update waits for all workers, and adds the mean of their changes to the model. */
static bool method_averages(const struct pl_built *b) {
    const struct pl_choice *c = &b->job.local;
    const struct pl_local *local = (const struct pl_local *)c->entry;
    bool whole = !local->outer || local->outer(c->conf, b->job.n_workers) == 1;
    return local->sends == PL_SENDS_DELTA && whole && method_has_default(b, PL_COLUMN_OPTIM) &&
           method_waits_for_all(&b->job);
}

/* Whether an update may change parameters whose gradients are 0. It does not if a worker sends one
 * gradient, remembers nothing but its own model, and the server's optimizer stays as well. */
static bool method_keeps_moving(const struct pl_job *job) {
    const void *conf = job->local.conf;
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    int n_kept = local->n_vectors ? local->n_vectors(conf) : 0;
    bool plain = local->sends == PL_SENDS_GRADIENT && local->steps(conf) == 1 &&
                 n_kept == (local->model_slot > 0);
    return !plain || !((const struct pl_optim *)job->optim.entry)->rests;
}

/* The number of updates after which its filter needs another gradient of the server's own; 0:
 * never. */
static uint64_t method_reference_every(const struct pl_choice *filter) {
    if (pl_filter_trusts(filter) == 0) return 0;
    return (uint64_t)((const struct pl_filter_trust *)filter->conf)->every;
}

/* The names in the columns: several where a spec is a chain. */
static void method_print_parts(const struct pl_job *job, struct pl_json *j) {
    const struct pl_choice *const one[PL_N_COLUMNS] = {
        &job->policy, &job->tuner, &job->correct, NULL, &job->optim, &job->local, &job->filter};
    pl_json_open(j, "parts", '{');
    for (int i = 0; i < PL_N_COLUMNS; i++) {
        pl_json_open(j, pl_column_family[i]->name, '[');
        for (int n = 0; n < (one[i] ? 1 : job->reduce.n); n++)
            pl_json_text(j, NULL, (one[i] ? one[i] : &job->reduce.link[n])->entry->name);
        pl_json_close(j, ']');
    }
    pl_json_close(j, '}');
}

static void method_print(const struct pl_built *b, struct pl_json *j, const char *key) {
    static const char *const sends[] = {"gradients", "deltas", "models", "ranges"};
    const struct pl_local *local = (const struct pl_local *)b->job.local.entry;
    const struct pl_entry *optim = b->job.optim.entry;
    unsigned needs[PL_N_COLUMNS], all = 0;
    pl_json_open(j, key, '{');
    pl_json_text(j, "name", b->method);
    for (int i = 0; i < PL_N_COLUMNS; i++) pl_json_text(j, pl_column_family[i]->name, b->given[i]);
    method_print_parts(&b->job, j);
    pl_fit_needs(&b->job, needs);
    for (int i = 0; i < PL_N_COLUMNS; i++) all |= needs[i];
    pl_needs_print(all, j);
    pl_json_text(j, "sends", sends[local->sends]);
    pl_json_whole(j, "local_steps", local->applies_weight_decay);
    pl_json_whole(j, "any_optimizer", local->plain && local->plain(b->job.local.conf));
    pl_json_whole(j, "keeps_moving", method_keeps_moving(&b->job));
    pl_json_whole(j, "fixed_optim", (optim->needs & PL_NEEDS_ONE_AT_A_TIME) != 0);
    pl_json_whole(j, "reference_every", method_reference_every(&b->job.filter));
    pl_json_whole(j, "synchronous", method_is_synchronous(b));
    pl_json_whole(j, "averages", method_averages(b));
    pl_json_close(j, '}');
    if (key) pl_needs_print(all, j); /* as every item of pl_list */
}

int pl_method_print(pl_setup *s, struct pl_json *j, const char *key) {
    struct pl_built built = {.schedule = "constant", .average = "none"};
    int64_t workers = pl_setup_resolve(s, PL_HOST_VIRTUAL);
    built.job.n_workers = (int)s->conf.workers;
    s->conf.workers = workers;
    s->why.text[0] = '\0';
    int rc = pl_build_columns(s, &built, &s->why);
    if (!rc) method_print(&built, j, key);
    pl_built_free(&built);
    if (!rc && j->failed) rc = pl_fail(&s->why, PL_ENOMEM, "out of memory");
    return rc;
}

int pl_setup_method(pl_setup *s, const char **json) {
    PL_NUMERALS;
    struct pl_json j = {0};
    int rc = pl_method_print(s, &j, NULL);
    if (rc) {
        free(j.text);
        return rc;
    }
    free(s->method);
    s->method = j.text;
    *json = j.text;
    return PL_OK;
}
