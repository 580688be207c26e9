/* The twin of a store with its rules: the papers' formulas in double precision, one element after
 * the other. For test_rule.c. */
#ifndef PL_TESTS_RULE_TWIN_H
#define PL_TESTS_RULE_TWIN_H

#include "core/store.h"
#include "test.h"

#define N_WORKERS 6
#define LR 0.05

struct twin {
    size_t dim;
    double lr, lr_max, decay;
    double *w, *handed;
    double *mean_square, mean_number, lowest; /* of corrections */
    double *v, *second;                       /* of optimizers */
    double *own[N_WORKERS], bucket;
    enum pl_velocity kind;  /* what Gap-Aware goes by: */
    const double *velocity; /* NULL: the gradient itself */
    double *direction;
    uint64_t n_corrected, n_commits;
    int n_group, n_left; /* members of the group, and those not yet corrected, this one included */
};

struct twin_member {
    const double *g, *base; /* [dim] weight decay added; what it was computed on */
    uint64_t base_id, lag;
    int worker;
    uint32_t samples;
};

typedef void twin_correct(struct twin *t, const struct twin_member *m, double *out);
typedef void twin_optim(struct twin *t, const double *u, const struct twin_member *first);

static double twin_dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static double twin_distance(const struct twin *t, const double *base) {
    double sum = 0;
    for (size_t i = 0; i < t->dim; i++) sum += (t->w[i] - base[i]) * (t->w[i] - base[i]);
    return sqrt(sum);
}

static void twin_scale(const struct twin *t, const double *g, double factor, double *out) {
    for (size_t i = 0; i < t->dim; i++) out[i] = factor * g[i];
}

static void none(struct twin *t, const struct twin_member *m, double *out) {
    twin_scale(t, m->g, 1, out);
}

static void lag(struct twin *t, const struct twin_member *m, double *out) {
    twin_scale(t, m->g, m->lag > 1 ? 1.0 / (double)m->lag : 1, out);
}

static void dampen(struct twin *t, const struct twin_member *m, double *out) {
    twin_scale(t, m->g, 1 / pow(exp(0.3), (double)m->lag), out);
}

static void distance(struct twin *t, const struct twin_member *m, double *out) {
    double d = twin_distance(t, m->base), eta = d > 0 ? fmin(0.005 / d / d, t->lr) : t->lr;
    twin_scale(t, m->g, eta / t->lr, out);
}

/* With momentum, the statistics of all members of a group are updated before the first penalty. */
static void gap(struct twin *t, const struct twin_member *m, double *out) {
    const double *v = t->velocity ? t->velocity : m->g;
    int n_updates = !t->velocity ? 1 : t->n_left == t->n_group ? t->n_group : 0;
    double n = (double)t->n_corrected + (t->velocity ? t->n_left - 1 : 0);
    for (size_t i = 0; i < t->dim; i++) {
        for (int k = 0; k < n_updates; k++)
            t->mean_square[i] = 0.999 * t->mean_square[i] + 0.001 * v[i] * v[i];
        double r = t->mean_square[i] / (1 - pow(0.999, n));
        double moved = fabs(t->w[i] - m->base[i]), c = t->lr_max * (sqrt(r) + 1e-8);
        out[i] = m->g[i] / (1 + moved / c);
    }
}

static void gap_scalar(struct twin *t, const struct twin_member *m, double *out) {
    const double *v = t->velocity ? t->velocity : m->g;
    t->mean_number = 0.999 * t->mean_number + 0.001 * twin_dot(v, v, t->dim);
    double r = t->mean_number / (1 - pow(0.999, (double)t->n_corrected));
    double c = t->lr_max * (sqrt(r) + 1e-8);
    twin_scale(t, m->g, 1 / (1 + twin_distance(t, m->base) / c), out);
}

static void dc(struct twin *t, const struct twin_member *m, double *out) {
    for (size_t i = 0; i < t->dim; i++)
        out[i] = m->g[i] + 0.04 * m->g[i] * m->g[i] * (t->w[i] - m->base[i]);
}

static void dc_a(struct twin *t, const struct twin_member *m, double *out) {
    for (size_t i = 0; i < t->dim; i++) {
        double g = m->g[i];
        t->mean_square[i] = 0.95 * t->mean_square[i] + 0.05 * g * g;
        out[i] = g + 2 / sqrt(t->mean_square[i] + 1e-7) * g * g * (t->w[i] - m->base[i]);
    }
}

static void inverse(struct twin *t, const struct twin_member *m, double *out) {
    twin_scale(t, m->g, N_WORKERS / fmax(N_WORKERS, (double)m->lag), out);
}

static void threshold(struct twin *t, const struct twin_member *m, double *out) {
    twin_scale(t, m->g, m->lag <= N_WORKERS ? 1 : 1.0 / (double)m->lag, out);
}

static void clip(struct twin *t, const struct twin_member *m, double *out) {
    twin_scale(t, m->g, fmin(1, 0.7 / sqrt(twin_dot(m->g, m->g, t->dim))), out);
}

static void brake(struct twin *t, const struct twin_member *m, double *out) {
    double norm = sqrt(twin_dot(m->g, m->g, t->dim)), n = (double)t->n_corrected;
    double new = n < 10 ? 1 / n : 0.1;
    t->mean_number = (1 - new) * t->mean_number + new *norm;
    double least = fmax(t->lowest * 1.01, t->mean_number / 10);
    t->lowest = n == 1 || t->mean_number < least ? t->mean_number : least;
    twin_scale(t, m->g, fmin(1, 0.8 * t->lowest / norm), out);
}

/* The first row of a rule is its default. */
static const struct {
    const char *spec;
    twin_correct *apply;
} correct_twin[] = {
    {"none", none},
    {"lag", lag},
    {"exp:a=0.3", dampen},
    {"distance", distance},
    {"gap", gap},
    {"gap:form=scalar", gap_scalar},
    {"dc", dc},
    {"dc:form=a,lambda=2", dc_a},
    {"delay-adaptive", inverse},
    {"delay-adaptive:rule=threshold", threshold},
    {"clip:c=0.7", clip},
    {"brake:b=0.8,decay=0.9,rise=0.01", brake},
};
#define N_CORRECT (sizeof correct_twin / sizeof *correct_twin)

static void sgd(struct twin *t, const double *u, const struct twin_member *m) {
    for (size_t i = 0; i < t->dim; i++) t->w[i] -= t->lr * u[i];
    memcpy(t->handed, t->w, t->dim * sizeof *t->w);
}

static void momentum(struct twin *t, const double *u, const struct twin_member *m) {
    for (size_t i = 0; i < t->dim; i++) t->v[i] = 0.9 * t->v[i] + u[i];
    sgd(t, t->v, m);
}

static void nesterov(struct twin *t, const double *u, const struct twin_member *m) {
    momentum(t, u, m);
    for (size_t i = 0; i < t->dim; i++) t->handed[i] -= t->lr * 0.9 * t->v[i];
}

static void dampened(struct twin *t, const double *u, const struct twin_member *m) {
    for (size_t i = 0; i < t->dim; i++)
        t->v[i] = t->n_commits == 1 ? u[i] : 0.9 * t->v[i] + (1 - 0.25) * u[i];
    sgd(t, t->v, m);
}

static void nesterov_torch(struct twin *t, const double *u, const struct twin_member *m) {
    for (size_t i = 0; i < t->dim; i++) {
        t->v[i] = 0.9 * t->v[i] + u[i];
        t->direction[i] = u[i] + 0.9 * t->v[i];
    }
    sgd(t, t->direction, m);
}

/* Adam's direction, and decay times the weights. */
static void adam_toward(struct twin *t, const double *u, const struct twin_member *m,
                        double decay) {
    double n = (double)t->n_commits;
    for (size_t i = 0; i < t->dim; i++) {
        t->v[i] = 0.9 * t->v[i] + 0.1 * u[i];
        t->second[i] = 0.999 * t->second[i] + 0.001 * u[i] * u[i];
        t->direction[i] =
            t->v[i] / (1 - pow(0.9, n)) / (sqrt(t->second[i] / (1 - pow(0.999, n))) + 1e-8) +
            decay * t->w[i];
    }
    sgd(t, t->direction, m);
}

static void adam(struct twin *t, const double *u, const struct twin_member *m) {
    adam_toward(t, u, m, 0);
}

static void adamw(struct twin *t, const double *u, const struct twin_member *m) {
    adam_toward(t, u, m, t->decay);
}

static void adagrad(struct twin *t, const double *u, const struct twin_member *m) {
    for (size_t i = 0; i < t->dim; i++) {
        t->second[i] += u[i] * u[i];
        t->direction[i] = u[i] / (sqrt(t->second[i]) + 1e-8);
    }
    sgd(t, t->direction, m);
}

static void multi(struct twin *t, const double *u, const struct twin_member *m) {
    double *v = t->own[m->worker];
    for (size_t i = 0; i < t->dim; i++) v[i] = 0.9 * v[i] + u[i];
    sgd(t, v, m);
}

static void dana(struct twin *t, const double *u, const struct twin_member *m) {
    multi(t, u, m);
    for (int k = 0; k < N_WORKERS; k++)
        for (size_t i = 0; i < t->dim; i++) t->handed[i] -= t->lr * 0.9 * t->own[k][i];
}

static void slim(struct twin *t, const double *u, const struct twin_member *m) {
    double *v = t->own[m->worker];
    for (size_t i = 0; i < t->dim; i++) {
        v[i] = 0.9 * v[i] + u[i];
        t->direction[i] = 0.9 * v[i] + u[i];
    }
    sgd(t, t->direction, m);
}

static void ormo(struct twin *t, const double *u, const struct twin_member *m) {
    double b = ceil((double)m->base_id / N_WORKERS);
    for (; b > t->bucket; t->bucket++)
        for (size_t i = 0; i < t->dim; i++) {
            t->w[i] -= 0.9 * t->v[i];
            t->v[i] *= 0.9;
        }
    double e = t->bucket - b;
    for (size_t i = 0; i < t->dim; i++) {
        t->v[i] += pow(0.9, e) * t->lr * u[i];
        t->w[i] -= (1 - pow(0.9, e + 1)) / 0.1 * t->lr * u[i];
    }
    memcpy(t->handed, t->w, t->dim * sizeof *t->w);
}

static const struct {
    const char *spec;
    twin_optim *step;
} optim_twin[] = {
    {"sgd", sgd},
    {"momentum", momentum},
    {"momentum:dampening=0.25", dampened},
    {"nesterov", nesterov},
    {"nesterov:form=torch", nesterov_torch},
    {"adam", adam},
    {"adamw", adamw},
    {"adagrad", adagrad},
    {"dana", dana},
    {"dana:form=multi", multi},
    {"dana:form=slim", slim},
    {"ormo", ormo},
};
#define N_OPTIM (sizeof optim_twin / sizeof *optim_twin)

static struct twin twin_new(size_t dim, double decay, const double *w0) {
    struct twin t = {.dim = dim, .lr = LR, .lr_max = LR, .decay = decay};
    double **array[] = {&t.w, &t.handed, &t.mean_square, &t.v, &t.second, &t.direction};
    for (size_t i = 0; i < sizeof array / sizeof *array; i++)
        *array[i] = own_room(dim, sizeof(double));
    for (int k = 0; k < N_WORKERS; k++) t.own[k] = own_room(dim, sizeof(double));
    memcpy(t.w, w0, dim * sizeof *w0);
    memcpy(t.handed, w0, dim * sizeof *w0);
    return t;
}

/* A commit: every member decayed and corrected, weighed, and one step of their sum. */
static void twin_commit(struct twin *t, twin_correct *correct, twin_optim *step, bool by_samples,
                        const struct twin_member *member, int n) {
    double *g = own_room(t->dim, sizeof *g), *one = own_room(t->dim, sizeof *one);
    double *u = own_room(t->dim, sizeof *u), samples = 0;
    for (int k = 0; k < n; k++) samples += member[k].samples;
    for (int k = 0; k < n; k++) {
        struct twin_member m = member[k];
        t->velocity = t->kind == PL_VELOCITY_OWN         ? t->own[m.worker]
                      : t->kind == PL_VELOCITY_STATE     ? t->v
                      : t->kind == PL_VELOCITY_DIRECTION ? t->direction
                                                         : NULL;
        double decay = step == adamw ? 0 : t->decay; /* which decouples it */
        for (size_t i = 0; i < t->dim; i++) g[i] = m.g[i] + decay * t->w[i];
        m.g = g;
        t->n_corrected++;
        t->n_group = n;
        t->n_left = n - k;
        correct(t, &m, one);
        double weight = by_samples ? m.samples / samples : 1.0 / n;
        for (size_t i = 0; i < t->dim; i++) u[i] += weight * one[i];
    }
    t->n_commits++;
    step(t, u, &member[0]);
}

#endif
