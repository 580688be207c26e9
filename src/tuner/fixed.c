/* Fixed: K and the bound keep the values of the policy's options. */
#include "core/tuner.h"

const struct pl_tuner pl_tuner_fixed = {
    .id = {"fixed", "K and the bound stay as the policy's options say", "", pl_no_opts, 0, 0},
};
