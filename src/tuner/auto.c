/* Auto: the fastest policy whose noise the run can bear.
 *
 * With a fixed learning rate, an update of a group of K results with a mean staleness of tau moves
 * the model as far as any other, and its noise is about (1 + 2 tau) / K of that of one fresh
 * gradient. So, of the policies and values of K that control forecasts (core/arms.h), the one with
 * the most updates per second is the best, as long as its noise does not show. No published method
 * is followed; docs/decisions/auto.md has the experiments.
 *
 * The run begins with a policy that waits for nobody, and every arm is allowed. Three things show
 * that the run cannot bear the arm in force:
 *   - the losses of the last results are three times those of the results before;
 *   - an evaluation finds three times the lowest loss so far;
 *   - two evaluations in a row do not find a new lowest loss.
 * Then the model returns to the best one that was evaluated, and arms with more than half of the
 * noise of that arm are barred. Twice as much is allowed after a wait that is twice as long each
 * time, and at least twice the updates so far.
 * Among arms that are about equally fast the one with the least noise is chosen, and the arm in
 * force stays if it is about as good. Without losses (timing alone) nothing is ever barred. */
#include <math.h>
#include <string.h>

#include "core/tuner.h"

#define AUTO_WAIT 2     /* updates so far, times this: the wait until more noise is allowed */
#define AUTO_RESULTS 4  /* results per worker that "the last results" are, */
#define AUTO_FEW 16     /* but at least so many, */
#define AUTO_BEFORE 8   /* and times as many are "the results before" */
#define AUTO_BLOWS_UP 3 /* a loss over an earlier one */
#define AUTO_STUCK 2    /* evaluations in a row without a new lowest loss */
#define AUTO_EQUAL 1.1  /* times within this factor are equal, */
#define AUTO_CALM 1.25  /* and noise within this one */

struct auto_conf {
    char arms[PL_TEXT_MAX];
};

struct auto_state {
    struct auto_conf conf;
    double limit, level; /* of the noise, 0: none; that of the arm in force, 0: not known yet */
    double last, before; /* mean losses of results */
    double best;         /* lowest loss of an evaluation; 0: none */
    uint64_t scored;     /* version of the last evaluation */
    uint64_t n_losses;   /* results since they count */
    uint64_t wait, next; /* updates; if there is a limit, it is doubled at this version */
    int n_stuck;         /* evaluations in a row that found no lower loss */
    int barred;          /* the guard has found something since the last choice */
};

static const struct pl_opt auto_opts[] = {
    PL_OPT("arms", TEXT, struct auto_conf, arms, "ksync+kbatchsync+kasync+kbatchasync", 0, 0,
           "POLICY+POLICY", "policies to choose from, with + between them", 0),
    PL_OPT_END,
};

static const char *auto_arms(const void *conf) {
    return ((const struct auto_conf *)conf)->arms;
}

static const char *auto_check(const void *conf, const struct pl_run_info *info) {
    (void)conf;
    return info->k <= info->n_workers ? NULL : "the first K is larger; begin with k=all or less";
}

/* --- the guard ------------------------------------------------------------------------------ */

static void auto_bar(struct auto_state *s) {
    s->barred = 1;
    s->n_stuck = 0;
    s->n_losses = 0;
}

static double auto_mean(double mean, double x, uint64_t n, double most) {
    double count = (double)n < most ? (double)n : most;
    return mean + (x - mean) / count;
}

static void auto_arrive(void *state, const struct pl_run_info *info, const struct pl_view *v,
                        const struct pl_arrival *a, struct pl_knobs *knobs) {
    struct auto_state *s = state;
    double some = fmax(AUTO_FEW, AUTO_RESULTS * info->n_workers); /* the last ones */
    (void)v, (void)knobs;
    if (!isfinite(a->loss)) return;
    s->n_losses++;
    s->last = auto_mean(s->last, a->loss, s->n_losses, some);
    s->before = auto_mean(s->before, a->loss, s->n_losses, AUTO_BEFORE * some);
    if ((double)s->n_losses > some && s->last > AUTO_BLOWS_UP * s->before) auto_bar(s);
}

static void auto_score(void *state, const struct pl_run_info *info, const struct pl_view *v,
                       double loss) {
    struct auto_state *s = state;
    (void)info;
    if (!(loss > 0) || v->version == s->scored) return;
    s->scored = v->version;
    bool lower = s->best <= 0 || loss < s->best;
    bool blown = s->best > 0 && loss > AUTO_BLOWS_UP * s->best;
    if (lower) s->best = loss;
    s->n_stuck = lower ? 0 : s->n_stuck + 1;
    if (blown || s->n_stuck >= AUTO_STUCK) auto_bar(s);
}

/* --- the choice ----------------------------------------------------------------------------- */

static double auto_noise(const struct pl_arm *a) {
    return (1 + 2 * a->lag) / a->size;
}

/* Whether an arm may be used; the one with the least noise always may. */
static bool auto_may(const struct auto_state *s, const struct pl_run_info *info, int arm) {
    double noise = auto_noise(&info->arm[arm]);
    if (!isfinite(info->arm[arm].time)) return false;
    if (s->limit <= 0 || noise <= s->limit) return true;
    for (int i = 0; i < info->n_arms; i++)
        if (auto_noise(&info->arm[i]) < noise) return false;
    return true;
}

static int auto_pick(const struct auto_state *s, const struct pl_run_info *info) {
    double fastest = INFINITY, least = INFINITY;
    int best = -1, now = info->current;
    for (int i = 0; i < info->n_arms; i++)
        if (auto_may(s, info, i)) fastest = fmin(fastest, info->arm[i].time);
    for (int i = 0; i < info->n_arms; i++) {
        if (!auto_may(s, info, i) || info->arm[i].time > AUTO_EQUAL * fastest) continue;
        if (auto_noise(&info->arm[i]) >= least) continue;
        least = auto_noise(&info->arm[i]);
        best = i;
    }
    bool stays = now >= 0 && auto_may(s, info, now) &&
                 info->arm[now].time <= AUTO_EQUAL * fastest &&
                 auto_noise(&info->arm[now]) <= AUTO_CALM * least;
    return stays ? now : best;
}

static struct pl_switch auto_choose(void *state, const struct pl_run_info *info,
                                    const struct pl_view *v) {
    struct auto_state *s = state;
    struct pl_switch out = {.arm = -1};
    double noise = info->current >= 0 ? auto_noise(&info->arm[info->current]) : NAN;
    if (isfinite(noise)) s->level = noise; /* otherwise it needs workers that have left */
    if (s->level <= 0) return out;
    if (s->barred) {
        uint64_t least = AUTO_WAIT * v->version;
        s->limit = s->level / 2;
        s->wait = 2 * s->wait > least ? 2 * s->wait : least;
        s->next = v->version + s->wait;
        out.returns = true;
        s->barred = 0;
    } else if (s->limit > 0 && v->version >= s->next) {
        s->limit *= 2;
        s->next = v->version + s->wait;
    }
    out.arm = auto_pick(s, info);
    return out;
}

const struct pl_tuner pl_tuner_auto = {
    .id = {"auto", "switches to the fastest policy whose noise does not show", "", auto_opts,
           sizeof(struct auto_conf), 0},
    .moves = PL_USES_K,
    .state_size = sizeof(struct auto_state),
    .check = auto_check,
    .arrive = auto_arrive,
    .arms = auto_arms,
    .choose = auto_choose,
    .score = auto_score,
};
