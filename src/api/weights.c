/* Weights with names: given by a file or a program, and what applies to some of them only. */
#include "api/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/input.h"

#define WEIGHTS_RULES_MAX (16 << 20) /* bytes of a layout */

int pl_setup_tensors(pl_setup *s, const struct pl_tensor_info *tensor, size_t n) {
    struct pl_initial *initial;
    s->why.text[0] = '\0';
    int rc = pl_initial_tensors(tensor, n, &initial, &s->why);
    if (rc) return rc;
    pl_initial_release(s->initial);
    s->initial = initial;
    return PL_OK;
}

int pl_setup_layout(pl_setup *s, const char *lines) {
    s->why.text[0] = '\0';
    char *copy = strlen(lines) < WEIGHTS_RULES_MAX ? strdup(lines) : NULL;
    if (!copy) return pl_fail(&s->why, PL_ENOMEM, "out of memory for a layout");
    free(s->rules);
    s->rules = copy;
    return PL_OK;
}

int pl_save_tensors(const char *path, const struct pl_tensor_info *tensor, size_t n,
                    const char *layout, char *why, size_t why_max) {
    struct pl_why sentence = {.text = ""};
    int rc = pl_initial_write(path, tensor, n, layout, &sentence);
    if (why_max > 0) snprintf(why, why_max, "%s", sentence.text);
    return rc;
}

uint64_t pl_fingerprint(const struct pl_tensor_info *tensor, size_t n) {
    struct pl_layout layout = {0};
    uint64_t print = 0;
    int rc = PL_OK;
    for (size_t i = 0; !rc && i < n; i++) rc = pl_layout_add(&layout, &tensor[i], NULL);
    if (!rc) print = pl_layout_fingerprint(&layout);
    pl_layout_free(&layout);
    return print;
}

/* --- building ------------------------------------------------------------------------------- */

/* The full path, for recordings. */
static void weights_whole(char path[PL_TEXT_MAX]) {
    char *whole = realpath(path, NULL);
    if (whole && strlen(whole) < PL_TEXT_MAX) snprintf(path, PL_TEXT_MAX, "%s", whole);
    free(whole);
}

/* The weights to begin with, which the caller releases; NULL: the model's own. */
static int weights_initial(struct pl_setup *s, struct pl_initial **out) {
    struct pl_saved *file;
    *out = NULL;
    if (s->initial && s->conf.init[0])
        return pl_fail(&s->why, PL_EUSAGE,
                       "the program gives weights, and so does init '%.200s'; leave out one",
                       s->conf.init);
    if (!s->conf.init[0]) {
        *out = pl_initial_hold(s->initial);
        return PL_OK;
    }
    int rc = pl_checkpoint_read(s->conf.init, &file, &s->why);
    if (rc) {
        pl_fail_in(&s->why, rc, "init");
        return rc;
    }
    rc = pl_initial_saved(file, out, &s->why);
    pl_saved_free(file);
    if (rc)
        pl_fail_in(&s->why, rc, s->conf.init);
    else
        weights_whole(s->conf.init);
    return rc;
}

/* A copy of the layout of the model's vector: as given, or as its kind describes it. */
static int weights_layout(const struct pl_model *m, struct pl_layout *out, struct pl_why *why) {
    struct pl_model_tensor part;
    int rc = PL_OK;
    for (int i = 0; !rc && pl_model_tensor(m, i, &part); i++) {
        struct pl_tensor_info info = {
            .name = part.name, .dtype = pl_dtypes[part.type].name, .n_dims = part.n_dims};
        memcpy(info.shape, part.shape, sizeof info.shape);
        rc = pl_layout_add(out, &info, why);
    }
    return rc;
}

static int weights_by_clients(struct pl_setup *s, const struct pl_initial *initial,
                              struct pl_model *m) {
    if (!initial && m->dim == 0)
        return pl_fail(&s->why, PL_EUSAGE,
                       "model 'external' needs the number of its parameters; use external:dim=N "
                       "or --init FILE.safetensors");
    if (initial && m->dim > 0 && m->dim != initial->layout.dim)
        return pl_fail(&s->why, PL_EUSAGE,
                       "model '%.60s' has %zu parameters, but the weights to begin with have %zu; "
                       "use --model external",
                       s->conf.model, m->dim, initial->layout.dim);
    if (!initial) return PL_OK;
    m->dim = initial->layout.dim;
    m->layout = &initial->layout;
    return PL_OK;
}

/* Reads a file of lines; the caller frees *out. */
static int weights_read(const char *path, char **out, struct pl_why *why) {
    const char *wrong = "";
    FILE *f = pl_input_file(path, &wrong);
    if (!f) return pl_fail(why, PL_EIO, "layout '%.200s' cannot be opened: %s", path, wrong);
    size_t n = 0, room = 4096, got = 0;
    char *text = malloc(room);
    while (text && (got = fread(text + n, 1, room - n - 1, f)) > 0) {
        n += got;
        if (room - n > 1) continue;
        char *grown = room < WEIGHTS_RULES_MAX ? realloc(text, 2 * room) : NULL;
        if (!grown) free(text);
        text = grown;
        room *= 2;
    }
    int bad = ferror(f);
    fclose(f);
    if (!text) return pl_fail(why, PL_ENOMEM, "layout '%.200s' is too large", path);
    text[n] = '\0';
    if (bad || strlen(text) != n) {
        free(text);
        return pl_fail(why, PL_EDATA, "layout '%.200s' is not a text file", path);
    }
    *out = text;
    return PL_OK;
}

/* The lines of the program, of the file, or of the weights. */
static int weights_rules(struct pl_setup *s, const struct pl_initial *initial, struct pl_built *b) {
    const char *given = s->rules ? s->rules : initial ? initial->rules : NULL;
    if (s->conf.layout[0] && s->rules)
        return pl_fail(&s->why, PL_EUSAGE,
                       "the program gives a layout, and so does layout '%.200s'; leave out one",
                       s->conf.layout);
    if (s->conf.layout[0]) {
        int rc = weights_read(s->conf.layout, &b->rules, &s->why);
        if (rc) return rc;
        weights_whole(s->conf.layout);
    } else if (given && !(b->rules = strdup(given))) {
        return pl_fail(&s->why, PL_ENOMEM, "out of memory");
    }
    return b->rules ? pl_layout_rules(&b->layout, b->rules, &s->why) : PL_OK;
}

static enum pl_range_kind weights_kind(const struct pl_layout_tensor *t) {
    if (!t->buffer) return PL_RANGE_PARAMETERS;
    return pl_dtype_is_whole(t->type) ? PL_RANGE_WHOLE_BUFFERS : PL_RANGE_BUFFERS;
}

static bool weights_alike(const struct pl_layout_tensor *a, const struct pl_layout_tensor *b) {
    return weights_kind(a) == weights_kind(b) &&
           (a->buffer || (a->lr == b->lr && a->decay == b->decay));
}

/* The ranges that follow from the rules; neighbours that are treated alike are one. */
static int weights_ranges(struct pl_setup *s, struct pl_built *b) {
    const struct pl_layout *l = &b->layout;
    const struct pl_layout_tensor *last = NULL;
    int n = 0;
    if (!pl_layout_has_rules(l)) return PL_OK;
    if (!(b->range = calloc(l->n, sizeof *b->range)))
        return pl_fail(&s->why, PL_ENOMEM, "out of memory");
    for (size_t i = 0; i < l->n; i++) {
        const struct pl_layout_tensor *t = &l->tensor[i];
        if (t->n == 0) continue;
        if (last && last->buffer && !t->buffer)
            return pl_fail(&s->why, PL_EUSAGE,
                           "buffer '%.100s' comes before parameter '%.100s' in the vector; put "
                           "all buffers at the end",
                           last->name, t->name);
        if (last && weights_alike(last, t))
            b->range[n - 1].end += t->n;
        else
            b->range[n++] = (struct pl_model_range){.begin = t->offset,
                                                    .end = t->offset + t->n,
                                                    .lr_factor = t->buffer ? 1 : t->lr,
                                                    .decay_factor = t->buffer ? 1 : t->decay,
                                                    .kind = weights_kind(t)};
        last = t;
    }
    b->job.ranges = (struct pl_ranges){b->range, n};
    return pl_ranges_check(&b->job.ranges, b->job.model->dim, &s->why);
}

/* Where the tensors of the parameters end; an empty one has no bit. */
static int weights_tensors(struct pl_setup *s, struct pl_built *b) {
    const struct pl_layout *l = &b->layout;
    int n = 0;
    if (l->n == 0) return PL_OK;
    if (!(b->tensor_end = calloc(l->n, sizeof *b->tensor_end)))
        return pl_fail(&s->why, PL_ENOMEM, "out of memory");
    for (size_t i = 0; i < l->n; i++)
        if (!l->tensor[i].buffer && l->tensor[i].n > 0)
            b->tensor_end[n++] = l->tensor[i].offset + l->tensor[i].n;
    b->job.tensors = (struct pl_model_tensors){b->tensor_end, n};
    return PL_OK;
}

int pl_weights_build(struct pl_setup *s, struct pl_built *b) {
    struct pl_model *m = b->job.model;
    struct pl_initial *initial;
    char what[PL_TEXT_MAX + 16];
    int rc = weights_initial(s, &initial);
    if (!rc && m->kind->by_clients) rc = weights_by_clients(s, initial, m);
    if (!rc) rc = weights_layout(m, &b->layout, &s->why);
    if (!rc && initial && !(b->w0 = malloc(m->dim * sizeof *b->w0)))
        rc = pl_fail(&s->why, PL_ENOMEM, "out of memory for the weights");
    snprintf(what, sizeof what, s->conf.init[0] ? "init '%.200s'" : "the given weights",
             s->conf.init);
    if (!rc && initial) rc = pl_initial_fit(initial, what, m, b->w0, &s->why);
    if (!rc) rc = weights_rules(s, initial, b);
    if (!rc) rc = weights_ranges(s, b);
    if (!rc && m->kind->by_clients) rc = weights_tensors(s, b);
    if (m->layout) m->layout = &b->layout;
    b->job.initial = b->w0;
    pl_initial_release(initial);
    return rc;
}
