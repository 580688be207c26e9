#include "core/rate.h"

double pl_rate_now(const struct pl_rate *r, uint64_t n_commits, double epochs, int n_workers) {
    double lr = r->lr;
    for (int i = 0; i < r->schedule.n; i++) {
        const struct pl_choice *link = &r->schedule.link[i];
        const struct pl_schedule_unit *unit = link->conf;
        double progress = unit->unit == PL_UNIT_UPDATES ? (double)n_commits : epochs;
        lr *= ((const struct pl_schedule *)link->entry)->factor(link->conf, progress, n_workers);
    }
    return lr;
}
