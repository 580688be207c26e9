/* Inside src/data: texts, numbered in order of appearance: the classes of a target, the categories
 * of a column. */
#ifndef PL_DATA_NAMES_H
#define PL_DATA_NAMES_H

#include <stdint.h>

#include "base/status.h"

struct pl_names {
    char **name;    /* [n] */
    uint32_t *slot; /* [2 room]: the number of a name plus 1, by its hash; 0: free */
    uint64_t n, room, salt;
};

#define PL_NO_NAME UINT32_MAX

/* The number of a name; PL_NO_NAME if it is not there. */
uint32_t pl_names_find(const struct pl_names *s, const char *name);

/* The same, but adds the name if it is not there and fewer than `max` are. */
int pl_names_add(struct pl_names *s, const char *name, uint64_t max, uint32_t *number,
                 struct pl_why *why);

void pl_names_free(struct pl_names *s); /* a zeroed struct is allowed */

#endif
