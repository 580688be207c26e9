#include "data/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

/* The slot of a name, or the free one where it belongs. The hash is salted, so that a hostile file
 * cannot aim at one slot; the salt does not affect the result. */
static uint32_t *names_slot(const struct pl_names *s, const char *name) {
    uint64_t h = s->salt;
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    uint64_t at = (h ^ h >> 32) & (2 * s->room - 1);
    while (s->slot[at] && strcmp(s->name[s->slot[at] - 1], name) != 0)
        at = (at + 1) & (2 * s->room - 1);
    return &s->slot[at];
}

static int names_grow(struct pl_names *s, struct pl_why *why) {
    uint64_t room = s->room ? 2 * s->room : 16;
    uint32_t *slot = PL_RESIZE(s->name, room) ? calloc((size_t)(2 * room), sizeof *slot) : NULL;
    if (!slot) return pl_fail(why, PL_ENOMEM, "out of memory");
    free(s->slot);
    s->slot = slot;
    s->room = room;
    s->salt = (uint64_t)(uintptr_t)slot * 0xa0761d6478bd642fu;
    for (uint64_t i = 0; i < s->n; i++) *names_slot(s, s->name[i]) = (uint32_t)(i + 1);
    return PL_OK;
}

uint32_t pl_names_find(const struct pl_names *s, const char *name) {
    uint32_t at = s->room ? *names_slot(s, name) : 0;
    return at ? at - 1 : PL_NO_NAME;
}

int pl_names_add(struct pl_names *s, const char *name, uint64_t max, uint32_t *number,
                 struct pl_why *why) {
    *number = pl_names_find(s, name);
    if (*number != PL_NO_NAME || s->n >= max) return PL_OK;
    int rc = s->n == s->room ? names_grow(s, why) : PL_OK;
    if (rc) return rc;
    char *copy = strdup(name);
    if (!copy) return pl_fail(why, PL_ENOMEM, "out of memory");
    *number = (uint32_t)s->n;
    *names_slot(s, name) = *number + 1;
    s->name[s->n++] = copy;
    return PL_OK;
}

void pl_names_free(struct pl_names *s) {
    for (uint64_t i = 0; i < s->n; i++) free(s->name[i]);
    free(s->name);
    free(s->slot);
    *s = (struct pl_names){0};
}
