/* Auto: the fastest policy whose noise the run can bear.
 *
 * With a fixed learning rate, an update of a group of K results with a mean staleness of tau moves
 * the model as far as any other, and its noise is about (1 + 2 tau) / K of that of one fresh
 * gradient. So, of the policies and values of K that control forecasts (core/arms.h), the one with
 * the most updates per second is the best, as long as its noise does not show. No published method
 * is followed; docs/decisions/auto.md has the experiments.
 *
 * The arms in force have a noise of at most `limit`. It begins with that of the first policy and is
 * doubled every `wait` updates. Three things halve it from that of the arm in force, and make the
 * wait twice as long and at least half of the updates so far:
 *   - the losses of the last results are three times those of the results before: the run blows up,
 *     and the model returns to the best one that was evaluated;
 *   - an evaluation finds three times the lowest loss so far: likewise;
 *   - three evaluations in a row find a loss above the lowest: the noise keeps the model from
 *     learning.
 * Among arms that are about equally fast the one with the least noise is chosen, and the arm in
 * force stays if it is about as good. Without losses (timing alone) nothing is ever barred. */
#include <math.h>
#include <string.h>

#include "core/tuner.h"

#define AUTO_WAIT 8     /* updates before the limit is doubled, at first */
#define AUTO_RESULTS 4  /* results per worker that "the last results" are, */
#define AUTO_FEW 16     /* but at least so many, */
#define AUTO_BEFORE 8   /* and times as many are "the results before" */
#define AUTO_BLOWS_UP 3 /* losses of the last results over those before */
#define AUTO_WORSE 3    /* an evaluated loss over the best so far */
#define AUTO_STUCK 3    /* evaluations in a row that find a loss above the best */
#define AUTO_ABOVE 1.1  /* by this factor; */
#define AUTO_FAR 1.5    /* and the last by this one, if it is not worth going on from */
#define AUTO_EQUAL 1.1  /* times within this factor are equal, */
#define AUTO_CALM 1.25  /* and noise within this one */

struct auto_conf {
    char arms[PL_TEXT_MAX];
};

struct auto_state {
    struct auto_conf conf;
    double limit, level; /* of the noise; that of the arm in force; 0: not known yet */
    double last, before; /* mean losses of results */
    double best;         /* lowest loss of an evaluation; 0: none */
    uint64_t n_losses;   /* results since they count */
    uint64_t wait, next; /* updates; the limit is doubled at this version */
    int n_stuck;         /* evaluations in a row that found a higher loss */
    int barred, returns; /* the guard has found something since the last choice */
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

static void auto_bar(struct auto_state *s, bool returns) {
    s->barred = 1;
    s->returns |= returns;
    s->n_stuck = 0;
    s->n_losses = 0;
}

static double auto_mean(double mean, double x, uint64_t n, double most) {
    double count = (double)n < most ? (double)n : most;
    return mean + (x - mean) / count;
}

/* How many results the last ones are. */
static double auto_some(const struct pl_run_info *info) {
    return fmax(AUTO_FEW, AUTO_RESULTS * info->n_workers);
}

static void auto_arrive(void *state, const struct pl_run_info *info, const struct pl_view *v,
                        const struct pl_arrival *a, struct pl_knobs *knobs) {
    struct auto_state *s = state;
    double some = auto_some(info);
    (void)v, (void)knobs;
    if (!isfinite(a->loss)) return;
    s->n_losses++;
    s->last = auto_mean(s->last, a->loss, s->n_losses, some);
    s->before = auto_mean(s->before, a->loss, s->n_losses, AUTO_BEFORE * some);
    if ((double)s->n_losses > some && s->last > AUTO_BLOWS_UP * s->before) auto_bar(s, true);
}

static void auto_score(void *state, const struct pl_run_info *info, const struct pl_view *v,
                       double loss) {
    struct auto_state *s = state;
    (void)v;
    if (isnan(loss)) return;
    bool settled = (double)s->n_losses > auto_some(info);
    if (s->best > 0 && settled && !(loss <= AUTO_WORSE * s->best)) {
        auto_bar(s, true);
        return;
    }
    if (!(loss > 0)) return;
    if (s->best <= 0 || loss < s->best) s->best = loss;
    s->n_stuck = loss > AUTO_ABOVE * s->best ? s->n_stuck + 1 : 0;
    if (s->n_stuck >= AUTO_STUCK && settled) auto_bar(s, loss > AUTO_FAR * s->best);
}

/* --- the choice ----------------------------------------------------------------------------- */

static double auto_noise(const struct pl_arm *a) {
    return (1 + 2 * a->lag) / a->size;
}

/* Whether an arm may be used; the one with the least noise always may. */
static bool auto_may(const struct auto_state *s, const struct pl_run_info *info, int arm) {
    double noise = auto_noise(&info->arm[arm]);
    if (!isfinite(info->arm[arm].time)) return false;
    if (noise <= s->limit) return true;
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
    if (s->limit <= 0) {
        s->limit = s->level;
        s->wait = AUTO_WAIT;
        s->next = v->version + s->wait;
    }
    if (s->barred) {
        s->limit = s->level / 2;
        s->wait = v->version / 2 > 2 * s->wait ? v->version / 2 : 2 * s->wait;
        s->next = v->version + s->wait;
        out.returns = s->returns != 0;
        s->barred = s->returns = 0;
    } else if (v->version >= s->next) {
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
