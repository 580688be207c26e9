/* softmax, linear and mlp: the same stack of dense layers, without and with hidden layers.
 *
 * softmax (multinomial logistic regression) and linear (least squares) are convex and start at
 * zero; mlp learns classes, or numbers if the data has those, and starts from He-normal weights
 * (He, Zhang, Ren, Sun, "Delving deep into rectifiers", ICCV 2015). */
#include <stdlib.h>
#include <string.h>

#include "model/dense.h"
#include "model/model.h"

struct mlp_conf {
    struct pl_list_of hidden;
};

struct mlp {
    struct pl_model base;
    struct pl_dense dense;
};

static int mlp_open_with(const struct pl_list_of *hidden, const struct pl_data *data,
                         struct pl_model **out, struct pl_why *why) {
    struct mlp *m = calloc(1, sizeof *m);
    if (!m) return pl_fail(why, PL_ENOMEM, "out of memory");
    int rc =
        pl_dense_plan(&m->dense, data->dim, hidden, data->has_targets ? 1 : data->n_classes, why);
    if (rc) {
        free(m);
        return rc;
    }
    m->base.dim = pl_dense_dim(&m->dense);
    *out = &m->base;
    return PL_OK;
}

static int mlp_open(const void *conf, const struct pl_data *data, struct pl_model **out,
                    struct pl_why *why) {
    const struct mlp_conf *c = conf;
    if (c->hidden.n == 0)
        return pl_fail(why, PL_EUSAGE, "mlp needs a hidden layer; or use softmax");
    return mlp_open_with(&c->hidden, data, out, why);
}

static int mlp_softmax_open(const void *conf, const struct pl_data *data, struct pl_model **out,
                            struct pl_why *why) {
    static const struct pl_list_of none = {.n = 0};
    (void)conf;
    return mlp_open_with(&none, data, out, why);
}

static void mlp_init(const struct pl_model *m, uint64_t seed, float *w) {
    pl_dense_init(&((const struct mlp *)m)->dense, seed, 0, w);
}

static void mlp_softmax_init(const struct pl_model *m, uint64_t seed, float *w) {
    (void)seed;
    memset(w, 0, m->dim * sizeof *w);
}

static size_t mlp_scratch(const struct pl_model *m, uint32_t n) {
    return pl_dense_scratch(&((const struct mlp *)m)->dense, n);
}

static int mlp_gradient(const struct pl_model *m, const float *w, const struct pl_batch *batch,
                        float *g, double *loss, float *scratch, const struct pl_cancel *cancel) {
    return pl_dense_gradient(&((const struct mlp *)m)->dense, w, batch->x, batch->label,
                             batch->target, batch->n, g, NULL, loss, scratch, cancel);
}

static void mlp_score(const struct pl_model *m, const float *w, const struct pl_batch *batch,
                      float *scratch, double *loss, uint32_t *n_right,
                      const struct pl_cancel *cancel) {
    pl_dense_score(&((const struct mlp *)m)->dense, w, batch->x, batch->label, batch->target,
                   batch->n, scratch, loss, n_right, cancel);
}

static void mlp_predict(const struct pl_model *m, const float *w, const struct pl_batch *batch,
                        float *scratch, float *out) {
    pl_dense_predict(&((const struct mlp *)m)->dense, w, batch->x, batch->n, scratch, out);
}

static bool mlp_tensor(const struct pl_model *m, int i, struct pl_model_tensor *out) {
    return pl_dense_tensor(&((const struct mlp *)m)->dense, 0, i, out);
}

static const struct pl_opt mlp_opts[] = {
    PL_OPT_LIST(struct mlp_conf, hidden, "256", 1, PL_MODEL_WIDTH_MAX,
                "units of the hidden layers, input side first"),
    PL_OPT_END,
};

/* What the three kinds share. */
#define MLP_COMPUTES                                                                               \
    .scratch = mlp_scratch, .gradient = mlp_gradient, .score = mlp_score, .predict = mlp_predict,  \
    .tensor = mlp_tensor

const struct pl_model_kind pl_model_mlp = {
    .id = {"mlp", "dense layers with ReLU between them; learns classes or numbers", "", mlp_opts,
           sizeof(struct mlp_conf), 0},
    .wants_data = true,
    .classifies = true,
    .regresses = true,
    .target_lr = 0.03,
    .open = mlp_open,
    .init = mlp_init,
    MLP_COMPUTES,
};

const struct pl_model_kind pl_model_softmax = {
    .id = {"softmax", "multinomial logistic regression: one dense layer, convex", "", pl_no_opts, 0,
           0},
    .wants_data = true,
    .classifies = true,
    .open = mlp_softmax_open,
    .init = mlp_softmax_init,
    MLP_COMPUTES,
};

const struct pl_model_kind pl_model_linear = {
    .id = {"linear", "linear least squares: one output, convex; learns numbers", "", pl_no_opts, 0,
           0},
    .wants_data = true,
    .regresses = true,
    .open = mlp_softmax_open,
    .init = mlp_softmax_init,
    MLP_COMPUTES,
};
