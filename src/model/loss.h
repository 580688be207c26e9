/* Inside src/model: the loss on top of the dense layers. Exponentials are computed here rather than
 * by the C library, many at a time and with the same bits on every processor. */
#ifndef PL_MODEL_LOSS_H
#define PL_MODEL_LOSS_H

#include <stddef.h>
#include <stdint.h>

/* x [n] = exp(x), for x <= 0 or NaN. Within 0.51 units of the last place. */
void pl_loss_exp(float *x, size_t n);

/* Cross-entropy of rows z [n][k] with their classes: log sum exp(z) - z[label], after subtracting
 * the largest z so that exp cannot overflow. Adds it to *loss row by row, and replaces z by the
 * softmax. */
void pl_loss_entropy(float *z, size_t n, size_t k, const uint16_t *label, double *loss);

/* Replaces the outputs z [n][k] by their derivatives of the mean loss, and returns the summed loss:
 * cross-entropy, or the squared error (z - y)^2 of the only output if target is not NULL. */
double pl_loss_gradient(float *z, size_t n, size_t k, const uint16_t *label, const float *target);

#endif
