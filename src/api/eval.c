/* pl_eval: evaluates the weights of a checkpoint on a data set. */
#include <math.h>
#include <stdlib.h>

#include "api/run.h"
#include "run/checkpoint.h"
#include "run/initial.h"
#include "run/scorer.h"
#include "sys/numerals.h"

static struct pl_score eval_one(struct pl_scorer *scorer, const float *w) {
    pl_scorer_send(scorer, w);
    return pl_scorer_wait(scorer);
}

/* `judges`: the run began with the model's own initial weights, on the same data, so that the loss
 * at its start is known, and whether it diverged. */
static int eval_score(struct pl_setup *s, const struct pl_saved *from, bool judges,
                      struct pl_run *run, const struct pl_job *job) {
    struct pl_scorer *scorer = NULL;
    float *w = malloc(job->model->dim * sizeof *w);
    if (!w || pl_scorer_new(job, NULL, NULL, &scorer)) {
        free(w);
        return pl_fail(&s->why, PL_ENOMEM, "out of memory for the model");
    }
    if (judges) {
        pl_job_first(job, w);
        pl_run_point(run, &(struct pl_point){.loss = eval_one(scorer, w).loss});
    }
    int rc = pl_saved_weights(from, job->model, w, &s->why);
    if (!rc) {
        run->outcome.score = eval_one(scorer, w);
        run->outcome.weights = w;
        w = NULL;
        pl_run_end(run, job, PL_OK, &s->why);
    }
    pl_scorer_free(scorer);
    free(w);
    return rc;
}

int pl_eval_by_clients(struct pl_setup *s, const struct pl_saved *from, const char *updates) {
    struct pl_initial *has;
    int rc = pl_initial_saved(from, &has, &s->why);
    if (rc) return rc;
    rc = pl_fail(&s->why, PL_EUSAGE,
                 "model 'external' is evaluated by the program it comes from; this checkpoint has "
                 "%zu parameters in %zu tensors ('%.100s', …) after %s updates, and any reader of "
                 "safetensors files opens it",
                 has->layout.dim, has->layout.n, has->layout.tensor[0].name,
                 updates ? updates : "an unknown number of");
    pl_initial_release(has);
    return rc;
}

static int eval_run(struct pl_setup *s, const struct pl_saved *from, void *ctx) {
    pl_run **out = ctx;
    struct pl_built built;
    const char *text = pl_saved_text(from, "setup"), *updates = pl_saved_text(from, "updates");
    bool judges = text && !pl_setup_is_set(s, "data");
    int rc = text ? pl_setup_lines(s, text) : PL_OK; /* NULL: only weights, from another program */
    const struct pl_model_kind *kind = pl_setup_kind(s);
    if (!rc && kind && kind->by_clients) return pl_eval_by_clients(s, from, updates);
    judges = judges && !s->conf.init[0];
    s->conf.init[0] = s->conf.layout[0] = '\0'; /* the weights are those of the checkpoint */
    if (!rc) rc = pl_build(s, PL_HOST_VIRTUAL, &built);
    if (rc) return rc;
    struct pl_run *run = pl_run_new(&built);
    if (!run)
        rc = pl_fail(&s->why, PL_ENOMEM, "out of memory");
    else if (!built.job.model)
        rc = pl_fail(&s->why, PL_EUSAGE, "--model none has nothing to evaluate");
    else
        rc = eval_score(s, from, judges, run, &built.job);
    if (!rc && updates) run->outcome.updates = strtoull(updates, NULL, 10);
    pl_built_free(&built);
    if (rc)
        pl_run_free(run);
    else
        *out = run;
    return rc;
}

int pl_with_checkpoint(struct pl_setup *setup, const char *path, pl_use_checkpoint *use,
                       void *ctx) {
    struct pl_setup *s = NULL;
    struct pl_saved *from = NULL;
    char file[PL_TEXT_MAX + 64];
    setup->why.text[0] = '\0';
    if (pl_setup_copy(setup, &s)) return pl_fail(&setup->why, PL_ENOMEM, "out of memory");
    int rc = pl_checkpoint_find(path, file, sizeof file, &s->why);
    if (!rc) rc = pl_checkpoint_read(file, &from, &s->why);
    if (!rc) rc = use(s, from, ctx);
    setup->why = s->why;
    pl_saved_free(from);
    pl_setup_free(s);
    return rc;
}

int pl_eval(pl_setup *setup, const char *path, pl_run **out) {
    PL_NUMERALS;
    return pl_with_checkpoint(setup, path, eval_run, out);
}
