/* Choices from the families of plug-ins, which must be valid. Header only, so that the
 * double-precision tests, which link no helpers, have it too. */
#ifndef PL_TESTS_CHOICES_H
#define PL_TESTS_CHOICES_H

#include "base/chain.h"
#include "core/control.h"
#include "test.h"

/* The caller frees its conf, or hands it on. */
static inline struct pl_choice choose(const struct pl_family *family, const char *spec,
                                      int n_workers) {
    struct pl_choice c;
    struct pl_why why = {""};
    if (pl_spec_parse(family, spec, n_workers, &c.entry, &c.conf, &why)) fail_msg("%s", why.text);
    return c;
}

static inline struct pl_control *control_of(const char *policy, const char *tuner, int n_workers,
                                            uint64_t seed) {
    struct pl_choice p = choose(&pl_policy_family, policy, n_workers);
    struct pl_choice t = choose(&pl_tuner_family, tuner, n_workers);
    struct pl_control *c = NULL;
    struct pl_why why = {""};
    if (pl_control_new((const struct pl_policy *)p.entry, p.conf, (const struct pl_tuner *)t.entry,
                       t.conf, n_workers, seed, &c, &why))
        fail_msg("%s with %s: %s", policy, tuner, why.text);
    free(p.conf);
    free(t.conf);
    return c;
}

#endif
