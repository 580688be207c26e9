/* Setups for tests: options that must be accepted, and runs that must succeed. */
#ifndef PL_TESTS_SETUPS_H
#define PL_TESTS_SETUPS_H

#include "paceline.h"

void set(pl_setup *s, const char *key, const char *value);
void set_all(pl_setup *s, const char *options); /* "key=value key=value …" */

pl_setup *plain(void);                       /* with the defaults */
pl_setup *setup_of(const char *options);     /* the same after set_all */
pl_setup *change(const pl_setup *from, ...); /* a copy, pairs of keys and values changed; NULL */

pl_run *simulate(pl_setup *s); /* frees the setup */

#endif
