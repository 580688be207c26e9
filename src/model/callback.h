/* A model computed by the embedding program: struct pl_function of paceline.h as a pl_model. */
#ifndef PL_MODEL_CALLBACK_H
#define PL_MODEL_CALLBACK_H

#include "model/model.h"

/* `f` is copied; `data` is NULL unless f->wants_data. */
int pl_callback_open(const struct pl_function *f, const struct pl_data *data, struct pl_model **out,
                     struct pl_why *why);

#endif
