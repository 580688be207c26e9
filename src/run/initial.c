#include "run/initial.h"

#include <stdlib.h>
#include <string.h>

#include "run/checkpoint_state.h"

#define INITIAL_RULES "layout" /* key of the metadata */

void pl_initial_release(struct pl_initial *i) {
    if (!i || --i->n_holders > 0) return;
    pl_layout_free(&i->layout);
    free(i->w);
    free(i->rules);
    free(i);
}

struct pl_initial *pl_initial_hold(struct pl_initial *i) {
    if (i) i->n_holders++;
    return i;
}

static int initial_new(struct pl_initial **out, struct pl_why *why) {
    *out = calloc(1, sizeof **out);
    if (!*out) return pl_fail(why, PL_ENOMEM, "out of memory");
    (*out)->n_holders = 1;
    return PL_OK;
}

/* Memory for the weights, once the layout is complete. */
static int initial_room(struct pl_initial *i, struct pl_why *why) {
    if (i->layout.dim == 0) return pl_fail(why, PL_EUSAGE, "there are no weights in it");
    i->w = calloc(i->layout.dim, sizeof *i->w);
    return i->w ? PL_OK
                : pl_fail(why, PL_ENOMEM, "out of memory for %zu parameters", i->layout.dim);
}

/* Keeps *i if rc is 0, otherwise frees it. */
static int initial_end(struct pl_initial *i, int rc, struct pl_initial **out) {
    if (rc)
        pl_initial_release(i);
    else
        *out = i;
    return rc;
}

int pl_initial_tensors(const struct pl_tensor_info *tensor, size_t n, struct pl_initial **out,
                       struct pl_why *why) {
    struct pl_initial *i;
    int rc = initial_new(&i, why);
    if (rc) return rc;
    for (size_t k = 0; !rc && k < n; k++) rc = pl_layout_add(&i->layout, &tensor[k], why);
    if (!rc) rc = initial_room(i, why);
    for (size_t k = 0; !rc && k < n; k++) {
        const struct pl_layout_tensor *t = &i->layout.tensor[k];
        if (tensor[k].data)
            pl_dtype_widen(t->type, tensor[k].data, pl_layout_elements(t), i->w + t->offset);
    }
    return initial_end(i, rc, out);
}

static bool initial_is_state(const struct pl_tensor *t) {
    return strncmp(t->name, PL_RUN_STATE, sizeof PL_RUN_STATE - 1) == 0;
}

static int initial_add(struct pl_initial *i, const struct pl_tensor *t, struct pl_why *why) {
    struct pl_tensor_info info = {
        .name = t->name, .dtype = pl_dtypes[t->type].name, .n_dims = t->n_dims};
    memcpy(info.shape, t->shape, sizeof info.shape);
    return initial_is_state(t) ? PL_OK : pl_layout_add(&i->layout, &info, why);
}

int pl_initial_saved(const struct pl_saved *from, struct pl_initial **out, struct pl_why *why) {
    struct pl_initial *i;
    const char *rules = pl_saved_text(from, INITIAL_RULES);
    int rc = initial_new(&i, why);
    if (rc) return rc;
    for (size_t k = 0; !rc && k < pl_tensors_count(from->tensors); k++)
        rc = initial_add(i, pl_tensors_at(from->tensors, k), why);
    if (!rc) rc = initial_room(i, why);
    if (!rc && rules && !(i->rules = strdup(rules))) rc = pl_fail(why, PL_ENOMEM, "out of memory");
    if (rc) return initial_end(i, rc, out);
    const struct pl_tensor *all = pl_tensors_find(from->tensors, PL_RUN_STATE PL_MASTER);
    if (all && all->type == PL_F32 && all->bytes == i->layout.dim * sizeof *i->w) {
        memcpy(i->w, all->data, all->bytes);
        return initial_end(i, rc, out);
    }
    for (size_t k = 0, at = 0; k < pl_tensors_count(from->tensors); k++) {
        const struct pl_tensor *t = pl_tensors_at(from->tensors, k);
        if (initial_is_state(t)) continue;
        const struct pl_layout_tensor *to = &i->layout.tensor[at++];
        pl_dtype_widen(t->type, t->data, pl_layout_elements(to), i->w + to->offset);
    }
    return initial_end(i, rc, out);
}

static void initial_shape(int n_dims, const uint64_t *shape, char out[128]) {
    out[0] = '\0';
    for (int d = 0; d < n_dims; d++)
        pl_append(out, 128, "%s%llu", d ? "," : "", (unsigned long long)shape[d]);
}

/* The tensor that a part of the model begins with, or NULL. */
static const struct pl_layout_tensor *initial_find(const struct pl_initial *i,
                                                   const struct pl_model_tensor *part) {
    for (size_t k = 0; k < i->layout.n; k++)
        if (strcmp(i->layout.tensor[k].name, part->name) == 0) return &i->layout.tensor[k];
    return NULL;
}

int pl_initial_fit(const struct pl_initial *i, const char *what, const struct pl_model *m, float *w,
                   struct pl_why *why) {
    struct pl_model_tensor part;
    size_t n = 0;
    for (; pl_model_tensor(m, (int)n, &part); n++) {
        const struct pl_layout_tensor *t = initial_find(i, &part);
        if (!t)
            return pl_fail(why, PL_EUSAGE,
                           "%s does not fit model '%s': it has no tensor '%s'; use weights of this "
                           "model, or another model",
                           what, m->kind->id.name, part.name);
        if (t->n_dims != part.n_dims ||
            memcmp(t->shape, part.shape, (size_t)t->n_dims * sizeof *t->shape) != 0) {
            char is[128], wanted[128];
            initial_shape(t->n_dims, t->shape, is);
            initial_shape(part.n_dims, part.shape, wanted);
            return pl_fail(why, PL_EUSAGE,
                           "%s does not fit model '%s': its '%s' has shape [%s], the model's has "
                           "[%s]; use weights of this model, or another model",
                           what, m->kind->id.name, part.name, is, wanted);
        }
        if (pl_dtype_floats(t->type) != pl_dtype_floats(part.type))
            return pl_fail(why, PL_EUSAGE,
                           "%s does not fit model '%s': its '%s' is of type %s, the model's is of "
                           "type %s; use weights of this model, or another model",
                           what, m->kind->id.name, part.name, pl_dtypes[t->type].name,
                           pl_dtypes[part.type].name);
        memcpy(w + part.offset, i->w + t->offset, t->n * sizeof *w);
    }
    if (n != i->layout.n)
        return pl_fail(why, PL_EUSAGE,
                       "%s does not fit model '%s': it has %zu tensors, the model has %zu; use "
                       "weights of this model, or another model",
                       what, m->kind->id.name, i->layout.n, n);
    return PL_OK;
}

int pl_initial_write(const char *path, const struct pl_tensor_info *tensor, size_t n,
                     const char *rules, struct pl_why *why) {
    struct pl_layout layout = {0};
    struct pl_tensor *list = calloc(n + 1, sizeof *list);
    char *zeros = NULL;
    size_t most = 1;
    int rc = list ? PL_OK : pl_fail(why, PL_ENOMEM, "out of memory");
    for (size_t k = 0; !rc && k < n; k++) rc = pl_layout_add(&layout, &tensor[k], why);
    if (!rc && rules) rc = pl_layout_rules(&layout, rules, why);
    for (size_t k = 0; !rc && k < n; k++) {
        const struct pl_layout_tensor *t = &layout.tensor[k];
        list[k] = (struct pl_tensor){.name = t->name, .type = t->type, .n_dims = t->n_dims};
        memcpy(list[k].shape, t->shape, sizeof list[k].shape);
        list[k].data = tensor[k].data;
        list[k].bytes = pl_layout_elements(t) * pl_dtypes[t->type].size;
        if (!list[k].data && list[k].bytes > most) most = list[k].bytes;
    }
    if (!rc && !(zeros = calloc(most, 1))) rc = pl_fail(why, PL_ENOMEM, "out of memory");
    for (size_t k = 0; !rc && k < n; k++)
        if (!list[k].data) list[k].data = zeros;
    const struct pl_meta meta = {INITIAL_RULES, rules};
    if (!rc) rc = pl_tensors_write(path, list, n, &meta, rules != NULL, why);
    free(zeros);
    free(list);
    pl_layout_free(&layout);
    return rc;
}
