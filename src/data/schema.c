#include "data/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "data/rows.h"

int pl_schema_columns(struct pl_schema *s, uint64_t n, struct pl_why *why) {
    if (s->n_columns + n > PL_DATA_DIM_MAX || !PL_RESIZE(s->column, s->n_columns + n))
        return pl_fail(why, PL_ENOMEM, "out of memory for the columns");
    for (uint64_t i = 0; i < n; i++)
        s->column[s->n_columns + i] = (struct pl_schema_column){.field = s->n_columns + i, .by = 1};
    s->n_columns += n;
    return PL_OK;
}

int pl_schema_texts(struct pl_schema_column *c, struct pl_why *why) {
    c->texts = calloc(1, sizeof *c->texts);
    if (!c->texts) return pl_fail(why, PL_ENOMEM, "out of memory");
    c->kind = PL_COLUMN_TEXTS;
    return PL_OK;
}

uint64_t pl_schema_width(const struct pl_schema *s) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < s->n_columns; i++) n += s->column[i].texts ? s->column[i].texts->n : 1;
    return n;
}

int pl_schema_class(struct pl_schema *s, const char *name, struct pl_why *why) {
    if ((s->n_classes & (s->n_classes - 1)) == 0) { /* a power of 2, or 0 */
        size_t room = s->n_classes ? 2 * (size_t)s->n_classes : 1;
        if (!PL_RESIZE(s->class, room)) return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    s->class[s->n_classes] = strdup(name);
    if (!s->class[s->n_classes]) return pl_fail(why, PL_ENOMEM, "out of memory");
    s->n_classes++;
    return PL_OK;
}

void pl_schema_free(struct pl_schema *s) {
    if (!s) return;
    for (uint64_t i = 0; i < s->n_columns; i++) {
        free(s->column[i].name);
        if (s->column[i].texts) pl_names_free(s->column[i].texts);
        free(s->column[i].texts);
    }
    for (uint64_t i = 0; i < s->n_classes; i++) free(s->class[i]);
    free(s->column);
    free(s->class);
    free(s->user);
    free(s->item);
    free(s);
}
