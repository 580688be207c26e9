/* Attacks: what hostile workers send instead of their gradient.
 *
 * The last f of the workers are hostile. An attack that a worker can make alone is made where the
 * gradient is computed, in the simulator and in a real worker alike. One that needs to know what
 * the honest ones sent is made where all of them lie side by side, in the open group just before it
 * is committed: a channel that exists for the sake of such experiments only, and lets the attacker
 * know more than a real one could. What is forged there is cut to finite numbers; what is not
 * finite when it arrives is rejected like any other.
 *
 * Sums are taken in one order, so an attack has the same bits everywhere. */
#ifndef PL_LEARN_ATTACK_H
#define PL_LEARN_ATTACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/opt.h"

extern const struct pl_family pl_attack_family;

/* Every attack's conf begins with this. */
struct pl_attack_who {
    int f; /* hostile workers */
};

/* Who, and when: names the attacker's random numbers. */
struct pl_attack_at {
    uint64_t seed, task;
    uint32_t worker;
    int n_workers;
};

struct pl_attack {
    struct pl_entry id;
    bool anybody; /* any worker's values may be hit; f counts something else */
    bool labels;  /* learns from the labels turned round: class c becomes the last minus c */
    /* What a worker makes of its own gradient v [n]. */
    void (*alone)(const void *conf, const struct pl_attack_at *at, float *v, size_t n);
    /* What all hostile ones send, given the n_honest honest gradients among n_group: elements
     * [from, from + n). */
    void (*together)(const void *conf, const float *const *honest, int n_honest, int n_group,
                     size_t from, size_t n, float *out);
};

/* A choice of the family, or entry NULL: nobody is hostile. */
bool pl_attack_hostile(const struct pl_attack *a, const void *conf, int worker, int n_workers);

/* One member of the open group. */
struct pl_group_vector {
    int worker;
    float *vector; /* [dim]; written where the worker is hostile */
};

/* Forges the hostile members of a group. 0 or PL_ENOMEM. */
int pl_attack_group(const struct pl_attack *a, const void *conf, int n_workers,
                    const struct pl_group_vector *member, int n, size_t dim);

#endif
