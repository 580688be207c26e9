/* Fixed: K and the bound keep the values of the policy's options. */
#include "core/tuner.h"

const struct pl_tuner pl_tuner_fixed = {
    .id = {.name = "fixed",
           .brief = "K and the bound stay as the policy's options say",
           .paper = "",
           .opts = pl_no_opts},
};
