#include "model/layout.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

#define LAYOUT_FACTOR_MAX 1e6
#define LAYOUT_LINE_MAX 512

void pl_layout_free(struct pl_layout *l) {
    free(l->tensor);
    *l = (struct pl_layout){0};
}

static int layout_grow(struct pl_layout *l, struct pl_why *why) {
    if (l->n >= PL_LAYOUT_TENSORS)
        return pl_fail(why, PL_EUSAGE, "a model has at most %d tensors", PL_LAYOUT_TENSORS);
    if (PL_GROW(l->tensor, l->room, l->n + 1)) return PL_OK;
    return pl_fail(why, PL_ENOMEM, "out of memory for %zu tensors", l->n + 1);
}

static int layout_name(const char *name, struct pl_why *why) {
    size_t n = name ? strlen(name) : 0;
    if (n == 0 || n >= PL_TENSOR_NAME)
        return pl_fail(why, PL_EUSAGE, "a tensor has a name of %zu bytes; a name has 1 to %d", n,
                       PL_TENSOR_NAME - 1);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return pl_fail(why, PL_EUSAGE, "a tensor has a name with control characters");
    return PL_OK;
}

int pl_layout_add(struct pl_layout *l, const struct pl_tensor_info *info, struct pl_why *why) {
    int rc = layout_name(info->name, why);
    if (!rc) rc = layout_grow(l, why);
    if (rc) return rc;
    int type = info->dtype ? pl_dtype_find(info->dtype) : PL_F32;
    if (type < 0)
        return pl_fail(why, PL_EUSAGE, "tensor '%s' has the unknown dtype '%.20s'; use F32",
                       info->name, info->dtype);
    if (info->n_dims < 0 || info->n_dims > PL_SHAPE_MAX)
        return pl_fail(why, PL_EUSAGE, "tensor '%s' has %d dimensions; 0 to %d are possible",
                       info->name, info->n_dims, PL_SHAPE_MAX);
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->tensor[i].name, info->name) == 0)
            return pl_fail(why, PL_EUSAGE, "two tensors are called '%s'", info->name);
    struct pl_layout_tensor t = {.type = (enum pl_dtype)type,
                                 .n_dims = info->n_dims,
                                 .offset = l->dim,
                                 .n = pl_dtype_floats((enum pl_dtype)type),
                                 .lr = 1,
                                 .decay = 1};
    snprintf(t.name, sizeof t.name, "%s", info->name);
    for (int i = 0; i < t.n_dims; i++) {
        t.shape[i] = info->shape[i];
        if (__builtin_mul_overflow(t.n, t.shape[i], &t.n))
            return pl_fail(why, PL_EUSAGE, "tensor '%s' is too large for any memory", t.name);
    }
    if (t.n > SIZE_MAX / 16 - l->dim)
        return pl_fail(why, PL_EUSAGE, "tensor '%s' is too large for any memory", t.name);
    l->dim += t.n;
    l->tensor[l->n++] = t;
    return PL_OK;
}

/* --- rules ---------------------------------------------------------------------------------- */

/* One setting, "lr=0.1", for the tensors that a line names. False: it makes no sense. */
static bool layout_setting(struct pl_layout_tensor *t, const char *word) {
    char *end;
    if (strcmp(word, "buffer=yes") == 0 || strcmp(word, "buffer=no") == 0) {
        t->buffer = word[7] == 'y';
        return true;
    }
    double *factor = strncmp(word, "lr=", 3) == 0      ? &t->lr
                     : strncmp(word, "decay=", 6) == 0 ? &t->decay
                                                       : NULL;
    if (!factor) return false;
    const char *value = strchr(word, '=') + 1;
    double x = strtod(value, &end);
    if (end == value || *end || !(x >= 0) || x > LAYOUT_FACTOR_MAX) return false;
    *factor = x;
    return true;
}

/* Cuts the next word off *at; NULL: there is none. */
static char *layout_word(char **at) {
    char *word = *at + strspn(*at, " \t\r");
    if (!*word || *word == '#') return NULL;
    *at = word + strcspn(word, " \t\r");
    if (**at) *(*at)++ = '\0';
    return word;
}

static int layout_line(struct pl_layout *l, char *line, int number, struct pl_why *why) {
    char *at = line, *pattern = layout_word(&at), *word;
    size_t n = 0, n_words = 0;
    if (!pattern) return PL_OK;
    for (size_t i = 0; i < l->n; i++) n += fnmatch(pattern, l->tensor[i].name, 0) == 0;
    if (n == 0)
        return pl_fail(why, PL_EUSAGE, "layout line %d: no tensor of the model matches '%.100s'",
                       number, pattern);
    for (; (word = layout_word(&at)); n_words++)
        for (size_t i = 0; i < l->n; i++)
            if (fnmatch(pattern, l->tensor[i].name, 0) == 0 && !layout_setting(&l->tensor[i], word))
                return pl_fail(why, PL_EUSAGE,
                               "layout line %d: '%.60s' is not lr=X, decay=X (0 to %g), "
                               "buffer=yes or buffer=no",
                               number, word, LAYOUT_FACTOR_MAX);
    if (n_words == 0)
        return pl_fail(why, PL_EUSAGE,
                       "layout line %d: '%.100s' has no settings; add lr=X, decay=X or buffer=yes",
                       number, pattern);
    return PL_OK;
}

int pl_layout_rules(struct pl_layout *l, const char *text, struct pl_why *why) {
    char line[LAYOUT_LINE_MAX];
    for (int number = 1; *text; number++) {
        size_t n = strcspn(text, "\n");
        if (n >= sizeof line)
            return pl_fail(why, PL_EUSAGE, "layout line %d is longer than %zu bytes", number,
                           sizeof line - 1);
        memcpy(line, text, n);
        line[n] = '\0';
        int rc = layout_line(l, line, number, why);
        if (rc) return rc;
        text += n + (text[n] == '\n');
    }
    return PL_OK;
}

bool pl_layout_has_rules(const struct pl_layout *l) {
    for (size_t i = 0; i < l->n; i++)
        if (l->tensor[i].lr != 1 || l->tensor[i].decay != 1 || l->tensor[i].buffer) return true;
    return false;
}

/* --- fingerprint ------------------------------------------------------------------------------ */

/* FNV-1a, 64 bits. */
static void layout_hash(uint64_t *h, const void *data, size_t n) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < n; i++) *h = (*h ^ byte[i]) * UINT64_C(0x100000001b3);
}

uint64_t pl_layout_fingerprint(const struct pl_layout *l) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < l->n; i++) {
        const struct pl_layout_tensor *t = &l->tensor[i];
        const char *type = pl_dtypes[t->type].name;
        layout_hash(&h, t->name, strlen(t->name) + 1);
        layout_hash(&h, type, strlen(type) + 1);
        for (int d = 0; d < t->n_dims; d++) {
            char side[32];
            int n = snprintf(side, sizeof side, "%llu,", (unsigned long long)t->shape[d]);
            layout_hash(&h, side, (size_t)n);
        }
        layout_hash(&h, "\n", 1);
    }
    return h ? h : 1;
}
