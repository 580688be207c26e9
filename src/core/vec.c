/* Eight running sums side by side: the additions of strict floating point become independent and
 * fill the vector units, and the order stays a function of n alone. */
#include "core/rule.h"

#define LANES 8

static double vec_fold(const double *lane) {
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

double pl_vec_dot(const pl_real *a, const pl_real *b, size_t n) {
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += (double)a[i + l] * (double)b[i + l];
    for (; i < n; i++) lane[i % LANES] += (double)a[i] * (double)b[i];
    return vec_fold(lane);
}

double pl_vec_distance2(const pl_real *a, const pl_real *b, size_t n) {
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            double d = (double)a[i + l] - (double)b[i + l];
            lane[l] += d * d;
        }
    for (; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        lane[i % LANES] += d * d;
    }
    return vec_fold(lane);
}
