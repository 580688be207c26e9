#include "base/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GROW_FIRST 16 /* elements of an array that was empty */

bool pl_resize(void *array, size_t n, size_t size) {
    void *at;
    memcpy(&at, array, sizeof at); /* the caller's pointer has another type */
    void *grown = n <= SIZE_MAX / size ? realloc(at, n * size) : NULL;
    if (!grown) return false;
    memcpy(array, &grown, sizeof grown);
    return true;
}

bool pl_grow(void *array, size_t *room, size_t n, size_t size) {
    size_t more = *room ? 2 * *room : GROW_FIRST;
    if (more < n) more = n;
    if (!pl_resize(array, more, size)) return false;
    *room = more;
    return true;
}

void pl_text_put(struct pl_text *t, const void *bytes, size_t n) {
    if (t->failed || !PL_GROW(t->text, t->room, t->n + n + 1)) {
        t->failed = true;
        return;
    }
    memcpy(t->text + t->n, bytes, n);
    t->n += n;
    t->text[t->n] = '\0';
}
