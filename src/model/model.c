/* Opening and closing models. */
#include "model/model.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

/* Callers compute several gradients at once, one per thread. A BLAS with threads of its own would
 * compete with them for the cores, and its order of summation would depend on the number of
 * threads. The setting applies to the whole process. */
static void model_one_thread(void) {
    if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

/* Whether the model can learn what the data has. */
static int model_fits(const struct pl_model_kind *kind, const struct pl_data *data,
                      struct pl_why *why) {
    const char *name = kind->id.name;
    if (!kind->wants_data) return PL_OK;
    if (!data) return pl_fail(why, PL_EUSAGE, "model '%s' needs a data set; give --data", name);
    if (data->has_targets && kind->classifies && !kind->regresses)
        return pl_fail(why, PL_EUSAGE,
                       "model '%s' needs classes, but this data set has numbers to predict; use "
                       "model linear or mlp",
                       name);
    if (!data->has_targets && kind->regresses && !kind->classifies)
        return pl_fail(why, PL_EUSAGE,
                       "model '%s' predicts numbers, but this data set has %s; use model %s, or "
                       "task=regress of csv and npy",
                       name, data->ratings ? "ratings" : "classes",
                       data->ratings ? "mf" : "softmax");
    if (kind->classifies && data->n_classes == 0 && !data->has_targets)
        return pl_fail(why, PL_EUSAGE,
                       "model '%s' needs classes, but this data set has ratings without classes; "
                       "use model mf",
                       name);
    return PL_OK;
}

int pl_model_open(const char *spec, const struct pl_data *data, struct pl_model **out,
                  struct pl_why *why) {
    const struct pl_entry *entry;
    void *conf;
    int rc = pl_spec_parse(&pl_model_family, spec, 1, &entry, &conf, why);
    if (rc) return rc;
    /* every kind begins with its entry */
    const struct pl_model_kind *kind = (const struct pl_model_kind *)(const void *)entry;
    struct pl_model *m = NULL;
    model_one_thread();
    if (!kind->wants_data) data = NULL;
    rc = model_fits(kind, data, why);
    if (!rc) rc = kind->open(conf, data, &m, why);
    free(conf);
    if (rc) return rc;
    m->kind = kind;
    m->classifies = kind->classifies && (!data || data->n_classes > 0);
    m->rates = kind->rates || (kind->regresses && data->has_targets);
    *out = m;
    return PL_OK;
}

void pl_model_close(struct pl_model *m) {
    if (m && m->kind->close)
        m->kind->close(m);
    else
        free(m);
}

bool pl_model_tensor(const struct pl_model *m, int i, struct pl_model_tensor *out) {
    if (m->layout) {
        if (i < 0 || (size_t)i >= m->layout->n) return false;
        const struct pl_layout_tensor *t = &m->layout->tensor[i];
        *out = (struct pl_model_tensor){.offset = t->offset, .n_dims = t->n_dims, .type = t->type};
        memcpy(out->name, t->name, sizeof out->name);
        memcpy(out->shape, t->shape, sizeof out->shape);
        return true;
    }
    if (m->kind->tensor) return m->kind->tensor(m, i, out);
    if (i != 0) return false;
    *out = (struct pl_model_tensor){.name = "weights", .n_dims = 1, .shape = {m->dim}};
    return true;
}
