/* What the tests of recordings share: files in a folder of their own, a small setup to run, and the
 * bytes of a recording written once more, from docs/recording.md alone. */
#ifndef PL_TESTS_RECORDED_H
#define PL_TESTS_RECORDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "setups.h"

extern pl_setup *small; /* digits, softmax, four workers */

int recorded_begin(void **state);
int recorded_end(const char *const *names, size_t n); /* removes these files and the folder */

/* --- files ------------------------------------------------------------------------------- */

const char *path(const char *name);  /* in the test's folder */
const char *fresh(const char *name); /* the same, and there is no such file */

struct bytes {
    uint8_t *at;
    size_t n;
};
struct bytes slurp(const char *from);
void spill(const char *to, const uint8_t *at, size_t n);
void check_same_file(const char *what, const char *a, const char *b);

struct line {
    uint32_t kind, worker; /* 1 join, 2 arrive, 3 reject, 4 leave, 5 end, 6 timer */
    uint64_t now, task, began, comm;
    double loss;
    uint32_t samples;
};

/* A recording of n lines, and the same in the file `name`. */
struct bytes encode(const char *text, uint32_t workers, uint32_t steps, const struct line *line,
                    size_t n);
const char *encoded(const char *name, const char *text, uint32_t workers, uint32_t steps,
                    const struct line *line, size_t n);

/* --- runs -------------------------------------------------------------------------------- */

void check_refused(pl_setup *s, const char *file, int rc, const char *word);

#endif
