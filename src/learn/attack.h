/* Attacks: what hostile workers send instead of their results.
 *
 * The last f workers are hostile. If an attack needs only the worker's own gradient, the worker
 * makes it, simulated or real. If it needs the gradients of honest workers, it is made in the open
 * group just before the commit: this exists only for experiments, and gives the attacker more
 * knowledge than a real one could have. Forged vectors are limited to finite numbers; a vector that
 * is not finite when it arrives is rejected as usual.
 *
 * Sums are always taken in the same order, so an attack has the same bits everywhere. */
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

/* Which worker and task: keys the attacker's random numbers. */
struct pl_attack_at {
    uint64_t seed, task;
    uint32_t worker;
    int n_workers;
};

struct pl_attack {
    struct pl_entry id;
    bool anybody; /* values of any worker may be changed; f counts something else */
    bool labels;  /* trains on reversed labels: class c becomes the last minus c */
    /* Changes the worker's own gradient v [n]. */
    void (*alone)(const void *conf, const struct pl_attack_at *at, float *v, size_t n);
    /* What all hostile members send, given the n_honest honest gradients among n_group: elements
     * [from, from + n). */
    void (*together)(const void *conf, const float *const *honest, int n_honest, int n_group,
                     size_t from, size_t n, float *out);
};

/* Whether the worker is hostile; none is if `a` is NULL. */
bool pl_attack_hostile(const struct pl_attack *a, const void *conf, int worker, int n_workers);

/* One member of the open group. */
struct pl_group_vector {
    int worker;
    float *vector; /* [dim]; overwritten if the worker is hostile */
};

/* Forges the hostile members of a group. 0 or PL_ENOMEM. */
int pl_attack_group(const struct pl_attack *a, const void *conf, int n_workers,
                    const struct pl_group_vector *member, int n, size_t dim);

#endif
