#include "core/rate.h"

void pl_rate_commit(struct pl_rate *r, double samples, double loss) {
    for (int i = 0; i < r->schedule.n; i++) {
        const struct pl_choice *link = &r->schedule.link[i];
        const struct pl_schedule *s = (const struct pl_schedule *)link->entry;
        if (s->commit) s->commit(link->conf, samples, loss, r->epoch_samples, r->number[i]);
    }
}

double pl_rate_now(const struct pl_rate *r, uint64_t n_commits, double epochs, int n_workers) {
    double lr = r->lr;
    for (int i = 0; i < r->schedule.n; i++) {
        const struct pl_choice *link = &r->schedule.link[i];
        const struct pl_schedule *s = (const struct pl_schedule *)link->entry;
        if (s->factor) {
            const struct pl_schedule_unit *unit = link->conf;
            double progress = unit->unit == PL_UNIT_UPDATES ? (double)n_commits : epochs;
            lr *= s->factor(link->conf, progress, n_workers);
        }
        if (s->paced) lr *= s->paced(link->conf, r->number[i]);
    }
    return lr;
}
