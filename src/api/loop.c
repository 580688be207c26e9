/* pl_loop: a simulation that the program drives step by step (include/paceline_loop.h). */
#include "paceline_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/run.h"
#include "core/filter.h"
#include "sim/stepped.h"
#include "sys/numerals.h"

extern const unsigned char pl_asset_kernel[]; /* a text, from cmake/kernel.awk */

struct pl_loop {
    pl_setup *setup; /* the program's: it gets the messages */
    pl_setup *mine;  /* a copy, with a function */
    struct pl_built built;
    bool is_built;
    struct pl_run *run; /* NULL once the program has it */
    struct pl_sinks sinks;
    bool has_sinks;
    struct pl_stepped *stepped;
    bool ended, failed;
    char *kernel;
};

/* The model of the job has its size alone: nothing calls these. */
static int loop_no_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                            double *loss) {
    (void)ctx, (void)w, (void)s, (void)g, (void)loss;
    return PL_EUSAGE;
}

static void loop_no_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                          uint32_t *n_right) {
    (void)ctx, (void)w, (void)s, (void)loss, (void)n_right;
}

static int loop_refuse(struct pl_why *why, const char *what, const char *given) {
    return pl_fail(why, PL_EUSAGE,
                   "%s '%s' works only on vectors in the memory of this process (vectors 'host'); "
                   "keep them there, or use another %s",
                   what, given, what);
}

/* Refuses choices that read vectors outside of commits. */
static int loop_check(const struct pl_built *b, struct pl_why *why) {
    const struct pl_job *job = &b->job;
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    if (policy->peers || policy->grid) return loop_refuse(why, "policy", policy->id.name);
    if (!pl_local_is_gradient(&job->local))
        return loop_refuse(why, "local", b->given[PL_COLUMN_LOCAL]);
    if (pl_filter_any(&job->filter)) return loop_refuse(why, "filter", b->given[PL_COLUMN_FILTER]);
    if (job->attack.entry) return loop_refuse(why, "attack", job->attack.entry->name);
    return PL_OK;
}

static void loop_point(void *ctx, const struct pl_point *p) {
    struct pl_loop *l = ctx;
    pl_run_point(l->run, p);
    pl_sinks_point(&l->sinks, p);
    if (l->setup->point) l->setup->point(l->setup->watch_ctx, p);
}

static int loop_open(struct pl_loop *l, size_t dim) {
    struct pl_why *why = &l->setup->why;
    if (pl_setup_copy(l->setup, &l->mine)) return pl_fail(why, PL_ENOMEM, "out of memory");
    const struct pl_function f = {.dim = dim,
                                  .wants_data = pl_setup_has_rows(l->setup),
                                  .classifies = 1,
                                  .gradient = loop_no_gradient,
                                  .score = loop_no_score};
    int rc = pl_setup_function(l->mine, &f);
    if (!rc) rc = pl_build(l->mine, PL_HOST_VIRTUAL, &l->built);
    l->is_built = !rc;
    if (rc) *why = l->mine->why;
    if (!rc) rc = loop_check(&l->built, why);
    if (!rc && !(l->run = pl_run_new(&l->built))) rc = pl_fail(why, PL_ENOMEM, "out of memory");
    if (rc) return rc;
    l->has_sinks = true;
    l->sinks.conf = &l->mine->conf;
    rc = pl_run_begin(l->run, l->mine, &l->built, "simulate", NULL, NULL);
    if (!rc) rc = pl_sinks_open(&l->sinks, l->mine, &l->built, "virtual", &l->run->identity);
    if (rc) *why = l->mine->why;
    if (rc) return rc;
    pl_run_announce(l->run, l->mine);
    struct pl_sim_conf sim = {.job = &l->built.job,
                              .net = l->built.net,
                              .script = &l->built.script,
                              .watch = {loop_point, NULL, l},
                              .events = pl_sinks_log(&l->sinks),
                              .events_ctx = &l->sinks};
    return pl_stepped_new(&sim, &l->run->outcome, why, &l->stepped);
}

int pl_loop_open(pl_setup *setup, size_t dim, pl_loop **out) {
    PL_NUMERALS;
    struct pl_loop *l = calloc(1, sizeof *l);
    setup->why.text[0] = '\0';
    if (!l) return pl_fail(&setup->why, PL_ENOMEM, "out of memory");
    l->setup = setup;
    int rc = loop_open(l, dim);
    if (rc && l->has_sinks) pl_sinks_discard(&l->sinks);
    if (rc)
        pl_loop_close(l);
    else
        *out = l;
    return rc;
}

void pl_loop_close(pl_loop *l) {
    PL_NUMERALS;
    if (!l) return;
    pl_stepped_free(l->stepped);
    if (l->has_sinks) pl_sinks_close(&l->sinks, NULL);
    pl_run_free(l->run);
    if (l->is_built) pl_built_free(&l->built);
    pl_setup_free(l->mine);
    free(l->kernel);
    free(l);
}

int pl_loop_next(pl_loop *l, struct pl_loop_step *step) {
    PL_NUMERALS;
    struct pl_why *why = &l->setup->why;
    why->text[0] = '\0';
    if (l->failed) return pl_fail(why, PL_EUSAGE, "the loop has failed; close it");
    int rc = pl_stepped_next(l->stepped, step);
    if (!rc && step->what == PL_LOOP_END && !l->ended) {
        l->ended = true;
        pl_sinks_end(&l->sinks, &l->run->outcome, l->run->dim);
        rc = pl_run_complete(l->run, why);
        pl_run_end(l->run, &l->built.job, rc, why);
        pl_sinks_run(&l->sinks, &l->run->identity);
        /* a file that could not be completed must not cost the results */
        struct pl_why *trouble = &l->run->outcome.trouble;
        pl_sinks_close(&l->sinks, rc || trouble->text[0] ? NULL : trouble);
        l->has_sinks = false;
    }
    l->failed = rc != PL_OK && rc != PL_EUSAGE;
    return rc;
}

int pl_loop_give(pl_loop *l, void *address) {
    int rc = pl_stepped_give(l->stepped, address);
    return rc ? pl_fail(&l->setup->why, rc, "no memory was given") : PL_OK;
}

int pl_loop_gradient(pl_loop *l, double loss, int finite) {
    PL_NUMERALS;
    return pl_stepped_gradient(l->stepped, loss, finite != 0);
}

int pl_loop_score(pl_loop *l, double loss, double test_loss, double test_accuracy) {
    PL_NUMERALS;
    const struct pl_score score = {loss, test_loss, test_accuracy};
    return pl_stepped_score(l->stepped, &score);
}

void pl_loop_stop(pl_loop *l) {
    pl_stepped_stop(l->stepped);
}

int pl_loop_run(pl_loop *l, pl_run **out) {
    if (!l->ended || l->failed || !l->run)
        return pl_fail(&l->setup->why, PL_EUSAGE,
                       "a loop has one result, after PL_LOOP_END; call pl_loop_next until then");
    *out = l->run;
    l->run = NULL;
    return PL_OK;
}

/* The functions are called like the entries: adam_step, gap_apply. */
const char *pl_loop_kernel(pl_loop *l) {
    const struct pl_correct *correct = (const struct pl_correct *)l->built.job.correct.entry;
    size_t max = strlen((const char *)pl_asset_kernel) + 2 * PL_NAME_MAX + 64;
    if (l->kernel) return l->kernel;
    if (!(l->kernel = malloc(max))) return "";
    int n = snprintf(l->kernel, max, "#define PL_STEP %s_step\n", l->built.job.optim.entry->name);
    if (correct->apply)
        n += snprintf(l->kernel + n, max - (size_t)n, "#define PL_APPLY %s_apply\n",
                      correct->id.name);
    for (char *c = l->kernel; *c; c++)
        if (*c == '-') *c = '_';
    snprintf(l->kernel + n, max - (size_t)n, "%s", (const char *)pl_asset_kernel);
    return l->kernel;
}
