/* Drafts: a version that is written before its commit. */
#include <stdlib.h>
#include <string.h>

#include "core/store_state.h"

bool pl_store_drop_draft(struct pl_store *s) {
    struct pl_version *next = s->draft.next;
    if (!next) return false;
    if (s->conf.writes) s->conf.writes(s->conf.parallel_for.ctx, NULL);
    s->draft.next = NULL;
    pl_store_release(s, next);
    return true;
}

/* Notes what a draft is made of. False: out of memory. */
static bool draft_note(struct pl_store *s, double factor) {
    struct pl_draft *d = &s->draft;
    if (s->n_members > d->room) {
        size_t room = (size_t)s->room_members;
        struct store_member *member = realloc(d->member, room * sizeof *member);
        if (member) d->member = member;
        uint32_t *samples = realloc(d->samples, room * sizeof *samples);
        if (samples) d->samples = samples;
        if (!member || !samples) return false;
        d->room = s->room_members;
    }
    d->n = s->n_members;
    memcpy(d->member, s->member, (size_t)d->n * sizeof *d->member);
    memcpy(d->samples, s->samples, (size_t)d->n * sizeof *d->samples);
    d->newest = s->newest;
    d->factor = factor;
    d->rate = pl_store_rate(s);
    d->before = pl_commit_numbers(s);
    return true;
}

void pl_store_take_back(struct pl_store *s, int n_open) {
    while (s->n_members > n_open) pl_store_release(s, s->member[--s->n_members].base);
}

int pl_store_draft(struct pl_store *s, int n_open, double factor) {
    double dot;
    bool parts = s->n_members > 0 && s->member[0].n_ranges > 0;
    int rc = pl_store_discards(s) && !parts && s->n_members > 0 ? PL_OK : PL_EUSAGE;
    pl_store_drop_draft(s);
    if (!rc && !draft_note(s, factor)) rc = PL_ENOMEM;
    struct pl_version *next = rc ? NULL : pl_store_version(s);
    if (!rc && !next) rc = PL_ENOMEM;
    if (!rc) {
        rc = pl_commit_write(s, factor, next, &dot);
        s->draft.after = pl_commit_numbers(s);
        pl_commit_go_back(s, &s->draft.before);
        s->draft.next = next;
        if (rc || pl_members_spoiled(s)) pl_store_drop_draft(s);
    }
    for (int i = 0; i < n_open; i++) s->member[i].spoiled = false; /* the commit judges them */
    pl_store_take_back(s, n_open);
    return rc;
}

static bool draft_is_same(const struct store_member *a, const struct store_member *b) {
    return a->vector == b->vector && a->base == b->base && a->worker == b->worker &&
           a->base_id == b->base_id && a->lag == b->lag && a->factor == b->factor &&
           a->n_ranges == b->n_ranges && a->guarded == b->guarded;
}

struct pl_version *pl_draft_take(struct pl_store *s, double factor) {
    struct pl_draft *d = &s->draft;
    struct pl_version *next = d->next;
    if (!next) return NULL;
    const struct pl_commit_numbers now = pl_commit_numbers(s);
    bool same = d->newest == s->newest && d->n == s->n_members && d->factor == factor &&
                d->rate == pl_store_rate(s) && memcmp(&now, &d->before, sizeof now) == 0;
    for (int i = 0; same && i < d->n; i++)
        same = draft_is_same(&d->member[i], &s->member[i]) && d->samples[i] == s->samples[i];
    if (!same) {
        pl_store_drop_draft(s);
        return NULL;
    }
    d->next = NULL;
    pl_commit_go_back(s, &d->after);
    return next;
}
