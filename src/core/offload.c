/* Describes commits for another device; see offload.h. */
#include "core/offload.h"

#include <string.h>

#include "core/store_state.h"

static int offload_refuse(struct pl_why *why, const char *family, const char *name) {
    return pl_fail(why, PL_EUSAGE,
                   "%s '%s' works only on vectors in the memory of this process (vectors 'host'); "
                   "keep them there, or use another %s",
                   family, name, family);
}

int pl_offload_check(const struct pl_store_conf *conf, struct pl_why *why) {
    const struct pl_correct *correct = (const struct pl_correct *)conf->correct.entry;
    const struct pl_optim *optim = (const struct pl_optim *)conf->optim.entry;
    if (pl_correct_sums(&conf->correct) || correct->id.conf_size > PL_OFFLOAD_CONF)
        return offload_refuse(why, "correct", correct->id.name);
    if (optim->id.conf_size > PL_OFFLOAD_CONF) return offload_refuse(why, "optim", optim->id.name);
    /* a single weighted sum whose weights depend on no vector and whose condition always holds */
    for (int i = 0; i < conf->reduce.n; i++) {
        const struct pl_reduce *link = (const struct pl_reduce *)conf->reduce.link[i].entry;
        if (!link->mix || link->prepares || link->geometry || link->remembers || link->most)
            return offload_refuse(why, "reduce", link->id.name);
    }
    if (conf->max_norm > 0)
        return pl_fail(
            why, PL_EUSAGE,
            "max-norm needs vectors in the memory of this process (vectors 'host'); keep them "
            "there");
    if (conf->ranges.n > 0)
        return pl_fail(why, PL_EUSAGE,
                       "ranges of the model with their own factors, and buffers, need vectors in "
                       "the memory of this process (vectors 'host'); keep them there");
    if (conf->measures)
        return pl_fail(why, PL_EUSAGE,
                       "the tuner compares updates, which works only on vectors in the memory of "
                       "this process (vectors 'host'); keep them there, or use another tuner");
    return PL_OK;
}

static const pl_real *offload_velocity(const struct pl_store *s, int worker) {
    switch (s->optim->velocity) {
    case PL_VELOCITY_STATE: return s->optim_state[0];
    case PL_VELOCITY_OWN: return s->own[worker];
    case PL_VELOCITY_DIRECTION: return s->direction;
    default: return NULL;
    }
}

/* All of the commit except its members. */
static struct pl_offload offload_commit(const struct pl_store *s, const struct pl_optim_at *at,
                                        const struct pl_version *next) {
    const struct pl_store_conf *c = &s->conf;
    int worker = s->group.member[0].worker;
    struct pl_offload o = {.dim = c->dim,
                           .models = c->sends == PL_SENDS_MODEL,
                           .weight_decay = s->optim->decouples ? 0 : c->weight_decay,
                           .velocity = offload_velocity(s, worker),
                           .at = *at,
                           .block = {.n = c->dim,
                                     .w = s->newest->model,
                                     .out = next->model,
                                     .ahead = s->looks_ahead ? next->lookahead : NULL,
                                     .own = s->own ? s->own[worker] : NULL,
                                     .direction = s->direction}};
    if (s->optim->decouples) o.at.weight_decay = c->weight_decay;
    memcpy(o.correct_state, s->correct_state, sizeof o.correct_state);
    memcpy(o.block.state, s->optim_state, sizeof o.block.state);
    if (c->correct.conf) memcpy(o.correct_conf, c->correct.conf, s->correct->id.conf_size);
    if (c->optim.conf) memcpy(o.optim_conf, c->optim.conf, s->optim->id.conf_size);
    return o;
}

int pl_store_offload(struct pl_store *s, const struct pl_optim_at *at, const double *weight,
                     const struct pl_version *next) {
    const struct pl_offload_ops *ops = s->conf.offload;
    struct pl_offload o = offload_commit(s, at, next);
    bool several = s->group.n > PL_OFFLOAD_MEMBERS;
    if (several && !s->partial && !(s->partial = ops->zeros(ops->ctx))) return PL_ENOMEM;
    o.reduced = several ? s->partial : NULL;
    for (int m = 0; m < s->group.n; m += PL_OFFLOAD_MEMBERS) {
        int n = s->group.n - m;
        o.first = m == 0;
        o.last = n <= PL_OFFLOAD_MEMBERS;
        o.n_members = o.last ? n : PL_OFFLOAD_MEMBERS;
        if (o.last) o.average = pl_average_next(&s->average, s->newest->id + 1, true);
        for (int i = 0; i < o.n_members; i++) {
            const struct store_member *x = &s->group.member[m + i];
            o.member[i] = (struct pl_offload_member){.vector = x->vector,
                                                     .base = x->base ? x->base->lookahead : NULL,
                                                     .weight = weight[m + i],
                                                     .at = x->at};
        }
        int rc = ops->commit(ops->ctx, &o);
        if (rc) return rc;
    }
    return PL_OK;
}
