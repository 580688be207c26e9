/* Setups for tests: options that must be accepted, and runs that must succeed. The test owns all
 * of them (test.h). */
#ifndef PL_TESTS_SETUPS_H
#define PL_TESTS_SETUPS_H

#include "paceline.h"
#include "test.h"

void set(pl_setup *s, const char *key, const char *value);
void set_all(pl_setup *s, const char *options); /* "key=value key=value …" */

pl_setup *plain(void); /* with the defaults */
/* The same after set_all, of what printf would print. */
__attribute__((format(printf, 1, 2))) pl_setup *setup_of(const char *options, ...);
pl_setup *change(const pl_setup *from, ...); /* a copy, pairs of keys and values changed; NULL */
pl_run *own_run(pl_run *run);

pl_run *simulate(pl_setup *s);
pl_run *train(pl_setup *s); /* NULL at a rank that worked for another */
pl_run *replay(pl_setup *s, const char *file);

double number(const pl_run *run, const char *key);
/* Every task has one fate, and every worker does one thing at a time. */
void check_books(const pl_run *run);
bool same_weights(const pl_run *a, const pl_run *b);

#endif
