#include "core/local.h"

#include <stdlib.h>

#include "core/vectors.h"

int pl_local_state_new(const struct pl_choice *local, size_t dim, struct pl_local_state *out) {
    const struct pl_local *rule = (const struct pl_local *)local->entry;
    bool ok = true;
    *out = (struct pl_local_state){.n = rule->n_vectors ? rule->n_vectors(local->conf) : 0};
    for (int i = 0; i < out->n; i++) {
        out->prev[i] = pl_vector_new(dim);
        out->next[i] = pl_vector_new(dim);
        ok = ok && out->prev[i] && out->next[i];
    }
    return ok ? PL_OK : PL_ENOMEM;
}

void pl_local_state_free(struct pl_local_state *m) {
    for (int i = 0; i < m->n; i++) {
        free(m->prev[i]);
        free(m->next[i]);
    }
    *m = (struct pl_local_state){0};
}

void pl_local_state_forget(struct pl_local_state *m) {
    m->any = false;
}

void pl_local_state_acked(struct pl_local_state *m) {
    for (int i = 0; i < m->n; i++) {
        pl_real *prev = m->next[i];
        m->next[i] = m->prev[i];
        m->prev[i] = prev;
    }
    m->prev_version = m->next_version;
    m->prev_task = m->next_task;
    m->any = true;
}

bool pl_local_is_gradient(const struct pl_choice *local) {
    const struct pl_local *rule = (const struct pl_local *)local->entry;
    bool keeps = rule->n_vectors && rule->n_vectors(local->conf) > 0;
    return rule->sends == PL_SENDS_GRADIENT && !keeps && rule->steps(local->conf) == 1;
}

/* A rule sees an optimizer of the caller before it starts, after the first step if the rule pulls
 * then, and at the end. */
static uint32_t local_wanted(const struct pl_local_steps *s) {
    bool stops = s->rule->pull && s->done == 0;
    return s->task.moved && !stops ? s->n - s->done : 1;
}

void pl_local_begin(const struct pl_choice *local, const struct pl_local_task *t,
                    struct pl_local_state *state, uint64_t task, uint64_t version,
                    struct pl_local_steps *out) {
    const struct pl_local *rule = (const struct pl_local *)local->entry;
    *out = (struct pl_local_steps){
        .rule = rule, .conf = local->conf, .task = *t, .n = rule->steps(local->conf)};
    out->task.again = state->any && state->prev_version == version;
    out->task.merged = state->any && state->prev_task <= state->applied;
    out->task.prev = state->any ? (const pl_real *const *)state->prev : NULL;
    out->task.next = state->next;
    state->next_version = version;
    state->next_task = task;
    rule->begin(local->conf, &out->task);
    out->wanted = local_wanted(out);
}

bool pl_local_next(struct pl_local_steps *s, double loss) {
    const struct pl_local *rule = s->rule;
    bool first = s->done == 0;
    if (!s->task.moved) rule->step(s->conf, &s->task, s->done);
    s->loss += loss * s->wanted;
    s->done += s->wanted;
    if (first && rule->pull) rule->pull(s->conf, &s->task);
    if (s->done < s->n) {
        s->wanted = local_wanted(s);
        return true;
    }
    if (rule->end) rule->end(s->conf, &s->task);
    s->loss /= s->n;
    return false;
}
