/* Commits on vectors that this process cannot read: they are in the memory of another device.
 *
 * The store decides everything about a commit that does not depend on vectors (rates, factors,
 * weights, counts) and describes the rest in one or more struct pl_offload, which are carried out
 * in order, elsewhere. pl_offload_element computes one coordinate. It calls the step of the
 * optimizer and the apply of the correction, the same functions that commit.c calls on blocks, on a
 * block of one element.
 *
 * The text of this header, of rule.h and of the two rule files becomes the source that
 * pl_loop_kernel returns (cmake/kernel.awk): a C file for a test, a CUDA file for a GPU. There
 * PL_STEP is the name of the optimizer's function, and PL_APPLY, if it is defined, that of the
 * correction. */
#ifndef PL_CORE_OFFLOAD_H
#define PL_CORE_OFFLOAD_H

#include "core/average_at.h"

#define PL_OFFLOAD_MEMBERS                                                                         \
    16                     /* in one struct, so that it fits into the 4 KB of a kernel's argument */
#define PL_OFFLOAD_CONF 64 /* bytes of a rule's conf */

struct pl_offload_member {
    const pl_real *vector;
    const pl_real *base; /* NULL: no rule needs it */
    double weight;       /* in the reduced vector */
    struct pl_correct_at at;
};

struct pl_offload {
    size_t dim;
    int n_members;    /* of this piece of the group */
    bool first, last; /* piece of the group */
    bool models;      /* members are models, to be subtracted from the newest version */
    double weight_decay;
    pl_real *reduced; /* the reduced vector between two pieces; NULL: there is one piece */
    const pl_real *velocity;
    pl_real *correct_state[PL_RULE_VECTORS];
    struct pl_optim_at at;
    struct pl_optim_block block;  /* u is not used */
    struct pl_average_at average; /* of the last piece */
    unsigned char correct_conf[PL_OFFLOAD_CONF], optim_conf[PL_OFFLOAD_CONF];
    struct pl_offload_member member[PL_OFFLOAD_MEMBERS];
};

#ifdef PL_STEP
/* One element of a member: as a gradient, and corrected. */
static inline pl_real pl_offload_corrected(const struct pl_offload *o, int m, size_t i,
                                           pl_real *room) {
    const struct pl_offload_member *x = &o->member[m];
    const pl_real *w = o->block.w + i;
    pl_real g = x->vector[i];
    if (o->models)
        g = *w - g;
    else if (o->weight_decay != 0)
        g = g + (pl_real)o->weight_decay * *w;
#ifdef PL_APPLY
    struct pl_correct_block b;
    pl_real out;
    b.n = 1;
    b.g = &g;
    b.w = w;
    b.base = x->base ? x->base + i : NULL;
    b.velocity = o->velocity ? o->velocity + i : NULL;
    for (int s = 0; s < PL_RULE_VECTORS; s++)
        b.state[s] = o->correct_state[s] ? o->correct_state[s] + i : NULL;
    b.room = room;
    b.room_is_set = m > 0;
    PL_APPLY(o->correct_conf, &x->at, &b, &out);
    g = out;
#else
    (void)room;
#endif
    return g;
}

/* Element i: correct, reduce, optim. The members are added in the order of the group. */
static inline void pl_offload_element(const struct pl_offload *o, size_t i) {
    pl_real u = o->first ? 0 : o->reduced[i], room = 0;
    bool any = !o->first;
    for (int m = 0; m < o->n_members; m++) {
        pl_real g = pl_offload_corrected(o, m, i, &room), c = (pl_real)o->member[m].weight;
        if (c == 0) continue;
        u = any ? u + c * g : c * g;
        any = true;
    }
    if (!o->last) {
        o->reduced[i] = u;
        return;
    }
    struct pl_optim_block b = o->block;
    b.n = 1;
    b.u = &u;
    b.w += i;
    b.out += i;
    if (b.ahead) b.ahead += i;
    if (b.own) b.own += i;
    if (b.direction) b.direction += i;
    for (int s = 0; s < PL_RULE_VECTORS; s++)
        if (b.state[s]) b.state[s] += i;
    PL_STEP(o->optim_conf, &o->at, &b);
    if (o->average.recent) pl_average_element(&o->average, *b.out, i);
}
#endif

#endif
