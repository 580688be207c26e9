#include "learn/drift.h"

#include <math.h>
#include <string.h>

#include "core/rule.h"

void pl_drift_measure(struct pl_drift *s, const float *const *model, int n, const float *newest,
                      float *mean, size_t dim) {
    double weight[PL_DRIFT_MAX], from_mean = 0, from_model = 0;
    if (n < 1 || n > PL_DRIFT_MAX) return;
    for (int i = 0; i < n; i++) weight[i] = 1.0 / n;
    pl_vec_weighted(n, model, weight, dim, mean);
    for (int i = 0; i < n; i++) {
        from_mean += sqrt(pl_vec_distance2(model[i], mean, dim)) / n;
        from_model += sqrt(pl_vec_distance2(model[i], newest, dim)) / n;
        for (int j = 0; j < i; j++) {
            double pair = sqrt(pl_vec_distance2(model[i], model[j], dim));
            if (pair > s->pair) s->pair = pair;
        }
    }
    s->from_mean += from_mean;
    s->from_model += from_model;
    s->n_looks++;
}

void pl_drift_took(struct pl_drift *s, const float *vector, size_t dim) {
    double move = sqrt(pl_vec_dot(vector, vector, dim));
    if (move > s->move) s->move = move;
}
