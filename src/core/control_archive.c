/* What control saves: counts, clocks, random numbers, and the state of policy and tuner.
 *
 * Prefix: archive_ */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/control_state.h"

/* The state of a policy or tuner: what follows its conf. It is restored only into one of the same
 * name and size; another starts afresh. Returns whether it was restored. */
static bool archive_state(const struct pl_archive *k, const char *family, const struct pl_entry *id,
                          void *state, size_t size) {
    char name[PL_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s.%s", family, id->name);
    char none = 0; /* so that the name is saved even if there is no state */
    size_t n = size > id->conf_size ? size - id->conf_size : 0;
    void *at = n ? (char *)state + id->conf_size : &none;
    if (n == 0) n = 1;
    if (!k->restoring) return pl_archive_bytes(k, name, at, n), false;
    void *saved = malloc(n);
    bool fits = saved && pl_archive_bytes(k, name, saved, n) == n;
    if (fits) memcpy(at, saved, n);
    free(saved);
    return fits;
}

/* Restores K and the bound as the tuner had set them, limited to the present number of workers. */
static void archive_knobs(struct pl_control *c, uint64_t k, uint64_t bound) {
    uint64_t most = c->method.policy->by_batch ? INT32_MAX : (uint64_t)c->view.n_workers;
    if (c->method.tuner->moves & PL_USES_K && k > 0) c->view.knobs.k = (int)(k < most ? k : most);
    if (c->method.tuner->moves & PL_USES_BOUND && bound > 0) c->view.knobs.bound = bound;
}

static bool archive_sane(const uint64_t *count, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (count[i] >= CONTROL_MANY) return false;
    return true;
}

/* The task and the clock of each worker. A task that was running is computed again. */
static int archive_workers(struct pl_control *c, const struct pl_archive *k) {
    size_t n = (size_t)c->view.n_workers;
    uint64_t *at = malloc(2 * n * sizeof *at);
    if (!at) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        at[2 * i] = c->crew.worker[i].task - (c->crew.worker[i].state == PL_BUSY);
        at[2 * i + 1] = c->crew.worker[i].clock;
    }
    pl_archive_wholes(k, "workers", at, 2 * n);
    bool sane = archive_sane(at, 2 * n);
    for (size_t i = 0; k->restoring && sane && i < n; i++) {
        c->crew.worker[i].task = at[2 * i];
        c->crew.worker[i].clock = at[2 * i + 1];
    }
    free(at);
    return sane ? PL_OK : PL_EDATA;
}

/* The arm in force and what was measured. */
static void archive_arms(struct pl_control *c, const struct pl_archive *k) {
    uint64_t current = (uint64_t)(c->method.info.current + 1);
    if (!c->method.arms) return;
    pl_arms_archive(c->method.arms, k);
    pl_archive_wholes(k, "control.arm", &current, 1);
    if (k->restoring && current > 0 && current <= (uint64_t)c->method.info.n_arms)
        pl_control_use_arm(c, (int)current - 1);
}

int pl_control_archive(struct pl_control *c, const struct pl_archive *k) {
    struct pl_timeline *l = &c->timeline;
    struct pl_fates f = pl_control_fates(c);
    uint64_t counts[] = {c->view.version,
                         c->view.now_ns,
                         l->lag_sum,
                         l->lag_max,
                         l->n_fresh,
                         c->crew.max_clock,
                         f.started,
                         f.applied,
                         f.dropped,
                         f.cancelled,
                         f.lost + f.running,
                         f.rejected,
                         (uint64_t)c->view.knobs.k,
                         c->view.knobs.bound};
    double seconds[] = {l->time.compute, l->time.communication, l->time.idle, l->time.wasted};
    uint64_t rng[] = {c->rng.key[0], c->rng.key[1], c->rng.ctr[0], c->rng.ctr[1],
                      c->rng.ctr[2], c->rng.ctr[3], c->rng.out[0], c->rng.out[1],
                      c->rng.out[2], c->rng.out[3], c->rng.left};
    size_t n_rng = sizeof rng / sizeof *rng;
    pl_archive_wholes(k, "control.counts", counts, sizeof counts / sizeof *counts);
    pl_archive_numbers(k, "control.seconds", seconds, 4);
    pl_archive_wholes(k, "control.rng", rng, n_rng);
    archive_state(k, "policy", &c->method.policy->id, c->method.policy_state,
                  c->method.policy_size);
    archive_arms(c, k);
    bool tuned = archive_state(k, "tuner", &c->method.tuner->id, c->method.tuner_state,
                               c->method.tuner->state_size);
    int rc = archive_workers(c, k);
    if (rc || !k->restoring) return rc;
    if (!archive_sane(counts, 12)) return PL_EDATA; /* all but the knobs */
    c->view.version = counts[0];
    c->view.now_ns = counts[1];
    l->lag_sum = counts[2];
    l->lag_max = counts[3];
    l->n_fresh = counts[4];
    c->crew.max_clock = counts[5];
    l->fates = (struct pl_fates){.started = counts[6],
                                 .applied = counts[7],
                                 .dropped = counts[8],
                                 .cancelled = counts[9],
                                 .lost = counts[10],
                                 .rejected = counts[11]};
    if (tuned) archive_knobs(c, counts[12], counts[13]);
    l->time = (struct pl_worker_time){seconds[0], seconds[1], seconds[2], seconds[3]};
    for (int i = 0; i < 2; i++) c->rng.key[i] = (uint32_t)rng[i];
    for (int i = 0; i < 4; i++) c->rng.ctr[i] = (uint32_t)rng[2 + i];
    for (int i = 0; i < 4; i++) c->rng.out[i] = (uint32_t)rng[6 + i];
    c->rng.left = rng[10] <= 4 ? (uint32_t)rng[10] : 0;
    return PL_OK;
}
