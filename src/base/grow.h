/* Arrays and texts that grow. */
#ifndef PL_BASE_GROW_H
#define PL_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Makes room for n elements in an array that has room for `room`, a size_t: at least twice as many,
 * unless they fit. Returns false if there is no memory; the array is as it was then. */
#define PL_GROW(array, room, n)                                                                    \
    ((size_t)(n) <= (room) || pl_grow(&(array), &(room), (size_t)(n), sizeof *(array)))

/* Gives the array n elements, of which those that it had are kept; false likewise. */
#define PL_RESIZE(array, n) pl_resize(&(array), (size_t)(n), sizeof *(array))

/* `array` is the address of the pointer. */
bool pl_grow(void *array, size_t *room, size_t n, size_t size) PL_COLD;
bool pl_resize(void *array, size_t n, size_t size) PL_COLD;

/* A text that grows. It ends with a zero; nothing is added after `failed` is set. */
struct pl_text {
    char *text;
    size_t n, room;
    bool failed;
};
void pl_text_put(struct pl_text *t, const void *bytes, size_t n);

#endif
