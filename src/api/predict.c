/* pl_predict: predicts new rows by the weights of a checkpoint, as CSV. The checkpoint says what
 * its model and its data were: names of classes, columns, categories and scaling. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/run.h"
#include "run/checkpoint.h"
#include "sys/numerals.h"

#define PREDICT_BATCH 256 /* rows at a time */
#define PREDICT_SEED 1    /* of generated data, as in training */

struct predict {
    const struct pl_data *data;
    const struct pl_model *model;
    float *w;           /* [model->dim] */
    float *x, *scratch; /* of a batch */
    float *out;         /* [PREDICT_BATCH][n_out] */
    size_t n_out;
    int (*line)(void *ctx, const char *line);
    void *ctx;
};

/* A name as a field of CSV: in quotes if it has a separator, a quote or blanks around it. */
static void predict_name(FILE *to, const char *name) {
    size_t n = strlen(name);
    bool quoted = n == 0 || strpbrk(name, ",;\"\t\r") || name[0] == ' ' || name[n - 1] == ' ';
    if (!quoted) {
        fputs(name, to);
        return;
    }
    fputc('"', to);
    for (; *name; name++) fputs(*name == '"' ? "\"\"" : (const char[]){*name, '\0'}, to);
    fputc('"', to);
}

/* One line: what the model says about row `row`. */
static int predict_line(struct predict *p, uint32_t row, const float *out, struct pl_why *why) {
    const struct pl_data *d = p->data;
    char *text = NULL, number[12];
    size_t n = 0, best = 0;
    FILE *to = open_memstream(&text, &n);
    if (!to) return pl_fail(why, PL_ENOMEM, "out of memory");
    if (d->ratings) {
        const struct pl_rating *r = &d->ratings->rating[d->n_train + row];
        const uint64_t *id = d->ratings->id ? d->ratings->id + 2 * (size_t)row : NULL;
        fprintf(to, "%" PRIu64 ",%" PRIu64 ",", id ? id[0] : r->user, id ? id[1] : r->item);
    }
    if (d->n_classes > 0) {
        for (size_t j = 1; j < p->n_out; j++) best = out[j] > out[best] ? j : best;
        predict_name(to, pl_data_class(d, (uint32_t)best, number));
        fprintf(to, ",%.6g", (double)out[best]);
    } else {
        fprintf(to, "%.9g", pl_data_unscaled(d, (double)out[0]));
    }
    bool failed = ferror(to);
    failed |= fclose(to) != 0;
    int rc = failed ? pl_fail(why, PL_ENOMEM, "out of memory") : PL_OK;
    if (!rc && p->line(p->ctx, text))
        rc = pl_fail(why, PL_EIO, "the predictions cannot be written");
    free(text);
    return rc;
}

static int predict_rows(struct predict *p, struct pl_why *why) {
    const char *head = p->data->ratings         ? "user,item,prediction"
                       : p->data->n_classes > 0 ? "prediction,probability"
                                                : "prediction";
    if (p->line(p->ctx, head)) return pl_fail(why, PL_EIO, "the predictions cannot be written");
    for (uint32_t from = 0; from < p->data->n_test; from += PREDICT_BATCH) {
        uint32_t index[PREDICT_BATCH], n = p->data->n_test - from;
        uint16_t label[PREDICT_BATCH];
        if (n > PREDICT_BATCH) n = PREDICT_BATCH;
        for (uint32_t i = 0; i < n; i++) index[i] = from + i;
        pl_data_rows(p->data, true, index, n, p->x, label);
        const struct pl_batch batch = {.n = n, .x = p->x, .row = index, .test = true};
        p->model->kind->predict(p->model, p->w, &batch, p->scratch, p->out);
        for (uint32_t i = 0; i < n; i++) {
            const float *out = p->out + i * p->n_out;
            for (size_t j = 0; j < p->n_out; j++)
                if (!isfinite(out[j]))
                    return pl_fail(
                        why, PL_EDATA,
                        "the prediction of row %lu is not finite; the model has diverged",
                        (unsigned long)(from + i + 1));
            int rc = predict_line(p, from + i, out, why);
            if (rc) return rc;
        }
    }
    return PL_OK;
}

/* With rows and weights: memory for a batch, then everything. */
static int predict_all(struct predict *p, const struct pl_saved *from, struct pl_why *why) {
    const struct pl_model *m = p->model;
    p->n_out = p->data->n_classes > 0 ? p->data->n_classes : 1;
    p->w = malloc(m->dim * sizeof *p->w);
    p->x = malloc((size_t)PREDICT_BATCH * p->data->dim * sizeof *p->x);
    p->scratch = malloc((m->kind->scratch(m, PREDICT_BATCH) + 1) * sizeof *p->scratch);
    p->out = malloc(PREDICT_BATCH * p->n_out * sizeof *p->out);
    int rc = p->w && p->x && p->scratch && p->out
                 ? pl_saved_weights(from, m, p->w, why)
                 : pl_fail(why, PL_ENOMEM, "out of memory for the model");
    if (!rc) rc = predict_rows(p, why);
    free(p->w);
    free(p->x);
    free(p->scratch);
    free(p->out);
    return rc;
}

static int predict_from(struct pl_setup *s, const struct pl_saved *from, void *ctx) {
    struct predict *p = ctx;
    const char *text = pl_saved_text(from, "setup"), *schema = pl_saved_text(from, "schema");
    struct pl_data *data = NULL;
    struct pl_model *model = NULL;
    int rc = text ? pl_setup_lines(s, text) : PL_OK;
    if (rc) return rc;
    const struct pl_model_kind *kind = pl_setup_kind(s);
    if (kind && kind->by_clients)
        return pl_eval_by_clients(s, from, pl_saved_text(from, "updates"));
    if (kind && !kind->predict)
        return pl_fail(&s->why, PL_EUSAGE, "model '%.100s' has nothing to predict", s->conf.model);
    if (!pl_setup_is_set(s, "data"))
        return pl_fail(&s->why, PL_EUSAGE,
                       "predict needs the rows to predict: paceline predict CHECKPOINT --data "
                       "csv:FILE");
    if (!text || !schema)
        return pl_fail(&s->why, PL_EDATA,
                       "checkpoint '%.200s' does not say what its data were (columns, scaling, "
                       "classes, ids): %s; continue its run with --resume to write one that does, "
                       "or use paceline eval with the training file",
                       pl_saved_path(from),
                       text ? "it would be too long" : "another program wrote it");
    rc = pl_data_open_as(s->conf.data, PREDICT_SEED, schema, &data, &s->why);
    if (!rc) rc = pl_model_open(s->conf.model, data, &model, &s->why);
    p->data = data;
    p->model = model;
    if (!rc) rc = predict_all(p, from, &s->why);
    pl_model_close(model);
    pl_data_free(data);
    return rc;
}

int pl_predict(pl_setup *setup, const char *path, int (*line)(void *ctx, const char *line),
               void *ctx) {
    PL_NUMERALS;
    struct predict p = {.line = line, .ctx = ctx};
    return pl_with_checkpoint(setup, path, predict_from, &p);
}
