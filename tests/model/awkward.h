/* Ratings that are hard to sweep in pairs. */
#ifndef PL_TESTS_AWKWARD_H
#define PL_TESTS_AWKWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "data/data.h"

/* Runs of 1 to 7 ratings; few items, so that the two halves of a block often have the same one;
 * items that end one user's run and begin the next one's; hundreds of users in a row without a
 * rating among the first items (a step that takes an entry of its own); and more entries than a
 * sweep's piece has. With `twice`, users also rate an item twice. */
struct pl_data *awkward_ratings(bool twice, uint64_t seed);

#endif
