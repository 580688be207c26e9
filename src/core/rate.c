#include "core/rate.h"

#include <math.h>
#include <stdio.h>

void pl_tally_add(struct pl_tally *t, double samples, double loss) {
    t->samples += samples;
    if (isnan(loss)) return;
    t->known += samples;
    t->loss += samples * loss;
}

void pl_rate_commit(struct pl_rate *r, struct pl_progress *p, const struct pl_tally *t) {
    double mean = t->known > 0 ? t->loss / t->known : NAN;
    p->samples += t->samples;
    for (int i = 0; i < r->schedule.n; i++) {
        const struct pl_choice *link = &r->schedule.link[i];
        const struct pl_schedule *s = (const struct pl_schedule *)link->entry;
        if (s->commit) s->commit(link->conf, t->known, mean, p->epoch, r->number[i]);
    }
}

void pl_rate_set(struct pl_rate *r, double lr) {
    r->lr = lr;
    r->replaced = true;
}

double pl_rate_now(const struct pl_rate *r, const struct pl_progress *p, int n_workers) {
    double lr = r->lr;
    for (int i = 0; i < r->schedule.n; i++) {
        const struct pl_choice *link = &r->schedule.link[i];
        const struct pl_schedule *s = (const struct pl_schedule *)link->entry;
        if (s->factor) {
            const struct pl_schedule_unit *unit = link->conf;
            double at =
                unit->unit == PL_UNIT_UPDATES ? (double)p->n_commits : pl_progress_epochs(p);
            lr *= s->factor(link->conf, at, n_workers);
        }
        if (s->paced) lr *= s->paced(link->conf, r->number[i]);
    }
    return lr;
}

void pl_rate_archive(struct pl_rate *r, const struct pl_archive *k) {
    double lr = r->lr;
    if ((k->restoring || r->replaced) && pl_archive_numbers(k, "store.lr", &lr, 1) == 1 &&
        lr >= 0 && lr <= 1e6)
        pl_rate_set(r, lr);
    for (int i = 0; i < r->schedule.n; i++) {
        const struct pl_entry *id = r->schedule.link[i].entry;
        char name[PL_NAME_MAX + 32];
        if (!((const struct pl_schedule *)id)->commit) continue;
        snprintf(name, sizeof name, "store.schedule.%s", id->name);
        pl_archive_numbers(k, name, r->number[i], PL_RULE_NUMBERS);
    }
}
