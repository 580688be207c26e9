/* All models. A new one needs its file and one line here. */
#include "model/model.h"

extern const struct pl_model_kind pl_model_quadratic, pl_model_softmax, pl_model_linear,
    pl_model_mlp, pl_model_cnn, pl_model_mf, pl_model_external;

static const struct pl_entry *const model_table[] = {
    &pl_model_quadratic.id, &pl_model_softmax.id, &pl_model_linear.id,   &pl_model_mlp.id,
    &pl_model_cnn.id,       &pl_model_mf.id,      &pl_model_external.id, NULL};

const struct pl_family pl_model_family = {"model", "what is trained?", model_table};
