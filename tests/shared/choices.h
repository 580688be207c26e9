/* Choices from the families of plug-ins, which must be valid, and what they make. The test owns all
 * of it. Header only, so that the double-precision tests, which link no helpers, have it too. */
#ifndef PL_TESTS_CHOICES_H
#define PL_TESTS_CHOICES_H

#include "base/chain.h"
#include "core/control.h"
#include "core/store.h"
#include "test.h"

static inline struct pl_choice choose(const struct pl_family *family, const char *spec,
                                      int n_workers) {
    struct pl_choice c;
    struct pl_why why = {""};
    if (pl_spec_parse(family, spec, n_workers, &c.entry, &c.conf, &why)) fail_msg("%s", why.text);
    own(c.conf, free);
    return c;
}

static inline struct pl_chain choose_chain(const struct pl_family *family, const char *spec,
                                           int n_workers) {
    struct pl_chain c;
    struct pl_why why = {""};
    if (pl_chain_parse(family, spec, n_workers, &c, &why)) fail_msg("%s", why.text);
    for (int i = 0; i < c.n; i++) own(c.link[i].conf, free);
    return c;
}

/* The rules of a store; a test may change more of them. */
static inline struct pl_store_conf rules_of(size_t dim, int n_workers, const char *correct,
                                            const char *reduce, const char *optim, double lr) {
    return (struct pl_store_conf){.dim = dim,
                                  .n_workers = n_workers,
                                  .correct = choose(&pl_correct_family, correct, n_workers),
                                  .reduce = choose_chain(&pl_reduce_family, reduce, n_workers),
                                  .optim = choose(&pl_optim_family, optim, n_workers),
                                  .rate = {.lr = lr}};
}

static inline void free_store(void *s) {
    pl_store_free(s);
}

/* w0 NULL: zeros. */
static inline struct pl_store *store_of(const struct pl_store_conf *conf, const pl_real *w0) {
    struct pl_store *s = NULL;
    struct pl_why why = {""};
    if (pl_store_new(conf, w0 ? w0 : own_room(conf->dim, sizeof *w0), &s, &why))
        fail_msg("%s", why.text);
    return own(s, free_store);
}

static inline void free_control(void *c) {
    pl_control_free(c);
}

static inline struct pl_control *control_of(const char *policy, const char *tuner, int n_workers,
                                            uint64_t seed) {
    struct pl_choice p = choose(&pl_policy_family, policy, n_workers);
    struct pl_choice t = choose(&pl_tuner_family, tuner, n_workers);
    struct pl_control *c = NULL;
    struct pl_why why = {""};
    struct pl_control_conf conf = {.policy = (const struct pl_policy *)p.entry,
                                   .tuner = (const struct pl_tuner *)t.entry,
                                   .policy_conf = p.conf,
                                   .tuner_conf = t.conf,
                                   .n_workers = n_workers,
                                   .seed = seed};
    if (pl_control_new(&conf, &c, &why)) fail_msg("%s with %s: %s", policy, tuner, why.text);
    return own(c, free_control);
}

#endif
