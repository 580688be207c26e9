/* PSP, probabilistic synchronous parallel: the SSP barrier asked of a random sample only.
 *
 * Wang, Catterall, Mortier, "Probabilistic synchronous parallel", arXiv 1709.07772. At the
 * barrier worker i looks at `sample` other workers, drawn without replacement, and may start iff
 * none of them has c_j < c_i - s. sample = 0 is asynchronous SGD, sample = P-1 is SSP. s = 0 is
 * the paper's pBSP, s > 0 its pSSP.
 *
 * A blocked worker draws a fresh sample at every later event: this is what the published figures
 * do (a blocked worker that keeps its first sample makes far less progress). The worker with the
 * smallest clock always passes, so somebody always runs. */
#include "core/policy.h"

#define PSP_SAMPLE_MAX 1024

struct psp {
    uint64_t s;
    int64_t sample;
};

static const struct pl_opt psp_opts[] = {
    {.name = "s",
     .type = PL_OPT_BOUND,
     .def = "0",
     .min = 0,
     .max = 1e15,
     .help = "steps a worker may be ahead of those it looks at",
     .offset = offsetof(struct psp, s)},
    {.name = "sample",
     .type = PL_OPT_INT,
     .def = "2",
     .min = 0,
     .max = PSP_SAMPLE_MAX,
     .help = "how many others a worker looks at; more than there are: all",
     .offset = offsetof(struct psp, sample)},
    {.name = NULL},
};

static struct pl_knobs psp_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

/* May worker i start? Samples by Floyd's method over the others 0 … n-2 (i itself left out);
 * workers that are gone hold nobody back. */
static bool psp_passes(const struct psp *s, const struct pl_view *v, int i) {
    if (s->s == PL_NO_BOUND) return true;
    uint32_t others = (uint32_t)v->n_workers - 1, drawn[PSP_SAMPLE_MAX];
    uint32_t want = (uint32_t)s->sample < others ? (uint32_t)s->sample : others, n = 0;
    for (uint32_t top = others - want; top < others; top++) {
        uint32_t pick = pl_rng_below(v->rng, top + 1);
        for (uint32_t m = 0; m < n; m++)
            if (drawn[m] == pick) {
                pick = top;
                break;
            }
        drawn[n++] = pick;
        const struct pl_worker *j = &v->worker[pick < (uint32_t)i ? pick : pick + 1];
        if (j->state != PL_GONE && j->clock + s->s < v->worker[i].clock) return false;
    }
    return true;
}

static void psp_release(const struct psp *s, const struct pl_view *v, struct pl_plan *p) {
    for (int i = v->idle; i >= 0; i = pl_next(v, i))
        if (psp_passes(s, v, i)) pl_start(p, i, PL_FETCH);
}

static void psp_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                       struct pl_plan *p) {
    (void)a;
    pl_take(p, 1);
    pl_commit(p, 1);
    psp_release(state, v, p);
}

static void psp_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    psp_release(state, v, p);
}

const struct pl_policy pl_policy_psp = {
    .id = {.name = "psp",
           .brief = "apply every gradient; nobody runs more than s steps ahead of a random sample",
           .paper = "Wang, Catterall, Mortier, arXiv 1709.07772",
           .opts = psp_opts,
           .conf_size = sizeof(struct psp)},
    .state_size = sizeof(struct psp),
    .knobs = psp_knobs,
    .arrive = psp_arrive,
    .leave = psp_leave,
};
