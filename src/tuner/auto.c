/* Auto: the fastest policy whose noise the run can bear.
 *
 * With a fixed learning rate, an update of a group of K results with a mean staleness of tau moves
 * the model as far as any other, and its noise is about (1 + 2 tau) / K of that of one fresh
 * gradient. So, of the policies and values of K that control forecasts (core/arms.h), the one with
 * the most updates per second is the best, as long as its noise does no harm; a little noise less
 * is worth a little time. The method of this name also shortens gradients that overshoot
 * (correction brake), so that a run can bear more noise. No published method is followed;
 * docs/decisions/auto.md has the experiments.
 *
 * The run begins calmly, because too much noise ruins some networks for good. As soon as an
 * evaluation some updates later finds a new lowest loss, the limit of the noise is doubled, or more
 * if that allows no faster arm; if no limit does, less noise is worth less time from then on. Three
 * things show that the run cannot bear the arm in force:
 *   - the losses of the last results are three times those of the results before;
 *   - an evaluation finds five times the lowest loss so far;
 *   - for a while, which is half of the time until then but some updates at least and at most,
 *     evaluations have found no new lowest loss. Noise that is new to a model often makes its loss
 *     rise before it falls.
 * Then the model returns to the best one that was evaluated, arms with more than half of the noise
 * of that arm are barred, and the limit stays for a long time. Without evaluations it is raised
 * all the same, and without losses (timing alone) nothing is ever barred. */
#include <math.h>
#include <string.h>

#include "core/tuner.h"

#define AUTO_BEGIN 0.5      /* limit of the noise at first */
#define AUTO_CARE 0.25      /* an update costs its time multiplied by its noise to this power, */
#define AUTO_LESS 0.75      /* and this times as much where a higher limit allows nothing faster, */
#define AUTO_LEAST_CARE 0.1 /* but no less than this one */
#define AUTO_SAME 1.1       /* the arm in force stays if its cost is within this factor */
#define AUTO_TENURE 6       /* fewest updates between two changes of the limit, */
#define AUTO_SHARE 0.125    /* which is also at least this share of all updates so far */
#define AUTO_WAIT 16 /* after a bar, the limit stays until the run is this many times as old */
/* A lower loss must come within this share of the time that the lowest one took, or within these
 * numbers of updates if that share is shorter or longer. */
#define AUTO_PATIENCE 0.5
#define AUTO_LEAST 24
#define AUTO_MOST 128
#define AUTO_RESULTS 4  /* per worker: how many results are the last ones, */
#define AUTO_FEW 16     /* of which there are at least this many; */
#define AUTO_BEFORE 8   /* the ones before are this many times as many */
#define AUTO_JUMP 3     /* mean loss of the last results over that of the ones before: a jump */
#define AUTO_BLOWS_UP 5 /* loss of an evaluation over the lowest one: the run blows up */

struct auto_conf {
    char arms[PL_TEXT_MAX];
};

struct auto_state {
    struct auto_conf conf;
    double limit, level; /* of the noise; that of the arm in force; 0: not known yet */
    double last, before; /* mean losses of results */
    double best, found;  /* lowest loss of an evaluation, 0: none; when the search for it began */
    double care;         /* the power of the noise in the cost */
    double next;         /* seconds; the limit is not raised before this time */
    uint64_t scored;     /* version of the last evaluation, */
    uint64_t lowest;     /* of the one with the lowest loss, */
    uint64_t since;      /* and when the limit was changed */
    uint64_t n_losses;   /* results since they count */
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
    return info->k <= info->n_workers ? NULL : "auto begins with at most k=all; use a smaller k";
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
    if ((double)s->n_losses > some && s->last > AUTO_JUMP * s->before) auto_bar(s);
}

static double auto_now(const struct pl_view *v) {
    return (double)v->now_ns * 1e-9;
}

/* How long the arm in force may find no lower loss. */
static double auto_patience(const struct auto_state *s, const struct pl_run_info *info) {
    double update = info->current >= 0 ? info->arm[info->current].time : NAN;
    if (!isfinite(update)) return AUTO_PATIENCE * s->found;
    return fmin(fmax(AUTO_PATIENCE * s->found, AUTO_LEAST * update), AUTO_MOST * update);
}

static void auto_score(void *state, const struct pl_run_info *info, const struct pl_view *v,
                       double loss) {
    struct auto_state *s = state;
    if (!(loss > 0) || v->version == s->scored) return;
    s->scored = v->version;
    if (s->best <= 0 || loss < s->best) {
        s->best = loss;
        s->found = auto_now(v);
        s->lowest = v->version;
        s->n_stuck = 0;
        return;
    }
    s->n_stuck++;
    bool late = s->n_stuck > 1 && auto_now(v) - s->found > auto_patience(s, info);
    if (late || loss > AUTO_BLOWS_UP * s->best) auto_bar(s);
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

static double auto_cost(const struct auto_state *s, const struct pl_arm *a) {
    return a->time * pow(auto_noise(a), s->care);
}

static int auto_pick(const struct auto_state *s, const struct pl_run_info *info) {
    const struct pl_arm *arm = info->arm;
    int best = -1, now = info->current;
    for (int i = 0; i < info->n_arms; i++)
        if (auto_may(s, info, i) && (best < 0 || auto_cost(s, &arm[i]) < auto_cost(s, &arm[best])))
            best = i;
    bool stays = best >= 0 && now >= 0 && auto_may(s, info, now) &&
                 auto_cost(s, &arm[now]) <= AUTO_SAME * auto_cost(s, &arm[best]);
    return stays ? now : best;
}

/* Raises the limit until it allows another arm. If there is none, noise matters less. */
static void auto_raise(struct auto_state *s, const struct pl_run_info *info) {
    double old = s->limit, most = 0;
    int was = auto_pick(s, info);
    for (int i = 0; i < info->n_arms; i++)
        if (isfinite(info->arm[i].time)) most = fmax(most, auto_noise(&info->arm[i]));
    while (s->limit < most && auto_pick(s, info) == was) s->limit = 2 * fmax(s->limit, s->level);
    if (auto_pick(s, info) != was) return;
    s->limit = old;
    s->care = fmax(AUTO_LESS * s->care, AUTO_LEAST_CARE);
}

/* Whether the run has borne the limit long enough for more. */
static bool auto_bears(const struct auto_state *s, const struct pl_view *v) {
    uint64_t until = s->best > 0 ? s->lowest : v->version;
    double least = fmax(AUTO_TENURE, AUTO_SHARE * (double)s->since);
    return auto_now(v) >= s->next && (double)until >= (double)s->since + least;
}

static struct pl_switch auto_choose(void *state, const struct pl_run_info *info,
                                    const struct pl_view *v) {
    struct auto_state *s = state;
    struct pl_switch out = {.arm = -1};
    double noise = info->current >= 0 ? auto_noise(&info->arm[info->current]) : NAN;
    if (isfinite(noise)) s->level = noise; /* otherwise it needs workers that have left */
    if (s->level <= 0 && info->current >= 0) return out;
    if (s->limit <= 0) {
        s->limit = AUTO_BEGIN;
        s->care = AUTO_CARE;
        s->since = v->version;
    } else if (s->barred) {
        s->limit = s->level / 2;
        s->care = AUTO_CARE;
        s->next = AUTO_WAIT * auto_now(v);
        s->found = auto_now(v);
        s->since = v->version;
        out.returns = true;
        s->barred = 0;
    } else if (auto_bears(s, v)) {
        auto_raise(s, info);
        s->since = v->version;
    }
    out.arm = auto_pick(s, info);
    return out;
}

const struct pl_tuner pl_tuner_auto = {
    .id = {"auto", "switches to the fastest policy whose noise does no harm", "", auto_opts,
           sizeof(struct auto_conf), 0},
    .moves = PL_USES_K,
    .state_size = sizeof(struct auto_state),
    .check = auto_check,
    .arrive = auto_arrive,
    .arms = auto_arms,
    .choose = auto_choose,
    .score = auto_score,
};
