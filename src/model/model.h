/* Models: differentiable functions of one flat single-precision vector.
 *
 * A kind (mlp, cnn, …) is a row in table.c. Opening it with a data set gives a struct pl_model,
 * which is immutable and shared by all threads. A call writes only to its output and to scratch
 * memory supplied by the caller. Equal inputs give equal bits, because every product is computed by
 * one thread. */
#ifndef PL_MODEL_MODEL_H
#define PL_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/opt.h"
#include "data/data.h"
#include "model/layout.h"

extern const struct pl_family pl_model_family;

/* One mini-batch. x and label are NULL for models that need no data; they draw noise from
 * PL_STREAM_NOISE with (seed, worker, batch_no). */
struct pl_batch {
    uint32_t n;
    const float *x;        /* [n][dim of the data] */
    const uint16_t *label; /* [n] */
    const float *target;   /* [n] numbers to predict, or NULL: classes */
    uint64_t seed;
    uint32_t worker;
    uint64_t batch_no;
    const uint32_t *row; /* [n] of the data, or NULL */
    bool test;           /* rows of the test set */
};

struct pl_model {
    const struct pl_model_kind *kind;
    size_t dim; /* parameters */
    /* With its data: score() reports an accuracy; its loss is a squared error, whose root is
     * reported as RMSE. */
    bool classifies, rates;
    const struct pl_layout *layout; /* names and shapes of its parts, if they are not the kind's; it
                                       outlives the model; or NULL */
    /* followed by the fields of the kind */
};

/* One named part of the flat vector: shape in C order, beginning at w[offset]. */
struct pl_model_tensor {
    char name[PL_TENSOR_NAME]; /* "layer1.weight" */
    size_t offset;
    int n_dims;
    uint64_t shape[PL_SHAPE_MAX];
    enum pl_dtype type; /* in files; zero: F32 */
};

struct pl_model_kind {
    struct pl_entry id;
    bool wants_data;
    bool classifies; /* it can be trained on classes; score() then reports an accuracy */
    bool regresses;  /* it can be trained on numbers, with a squared error */
    bool parts;      /* can also be trained in blocks: see learn/part.h */
    bool by_clients; /* clients compute it: no gradient(), no score(), no workers of ours */
    bool rates;      /* the loss of score() is always a squared error */
    /* Defaults that learn: the method, if neither a method nor a policy is given (NULL: that of
     * all models), and what the optimizer's learning rate is multiplied by if the model learns
     * numbers, whose curvature grows with the width of the last hidden layer (0: 1). */
    const char *method;
    double target_lr;

    /* `data` is NULL unless wants_data. The model may keep the pointer; data outlives it. */
    int (*open)(const void *conf, const struct pl_data *data, struct pl_model **out,
                struct pl_why *why);
    void (*close)(struct pl_model *m); /* NULL: free() */

    void (*init)(const struct pl_model *m, uint64_t seed, float *w); /* w [dim] */

    /* Floats of scratch that gradient() and score() need for a batch of n. */
    size_t (*scratch)(const struct pl_model *m, uint32_t n);

    /* Mean loss of the batch at w and its gradient g [dim] (written, not added to). `cancel` is
     * polled between layers; returns 0, or PL_ECANCELLED with g unspecified. */
    int (*gradient)(const struct pl_model *m, const float *w, const struct pl_batch *batch,
                    float *g, double *loss, float *scratch, const struct pl_cancel *cancel);

    /* Adds the summed loss to *loss and the number of correct classifications to *n_right. If it is
     * cancelled, both are unspecified. */
    void (*score)(const struct pl_model *m, const float *w, const struct pl_batch *batch,
                  float *scratch, double *loss, uint32_t *n_right, const struct pl_cancel *cancel);

    /* out [n][outputs]: the probabilities of classes, or the number or rating that is predicted.
     * NULL if clients compute the model or there is nothing to predict. */
    void (*predict)(const struct pl_model *m, const float *w, const struct pl_batch *batch,
                    float *scratch, float *out);

    /* Describes the i-th part of the vector; together the parts cover [0, dim) without gaps.
     * Returns false if there is no i-th part. If it is NULL, there is one part, "weights" [dim]. */
    bool (*tensor)(const struct pl_model *m, int i, struct pl_model_tensor *out);
};

int pl_model_open(const char *spec, const struct pl_data *data, struct pl_model **out,
                  struct pl_why *why);
void pl_model_close(struct pl_model *m); /* NULL is allowed */

/* Describes the i-th named part of the vector, i = 0, 1, …; false if there is none. */
bool pl_model_tensor(const struct pl_model *m, int i, struct pl_model_tensor *out);

#endif
