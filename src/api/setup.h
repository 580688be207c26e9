/* Inside a pl_setup: the options as they were given, and how they become a job. */
#ifndef PL_API_SETUP_H
#define PL_API_SETUP_H

#include <stdatomic.h>

#include "core/recipe.h"
#include "learn/job.h"
#include "sim/net.h"
#include "sim/script.h"

/* Every key of pl_setup_set; the table is setup_opts in setup.c. */
struct pl_setup_conf {
    char method[PL_TEXT_MAX];
    char column[PL_N_COLUMNS][PL_TEXT_MAX]; /* policy, tuner, …; "": the method's */
    int64_t workers, batch, updates, eval_samples, seed, threads;
    char model[PL_TEXT_MAX], data[PL_TEXT_MAX], partition[PL_TEXT_MAX];
    int sampling;
    double lr, weight_decay;
    char lr_schedule[PL_TEXT_MAX];
    int lr_scale;
    char delay[PL_TEXT_MAX], net[PL_TEXT_MAX], script[PL_TEXT_MAX];
    double epochs, time, target_loss, target_accuracy, eval_every;
    char log[PL_TEXT_MAX], events[PL_TEXT_MAX];
    double smoothness, noise, convexity, start_loss, target; /* of the planner */
};
extern const struct pl_opt pl_setup_opts[];

/* A data set that several setups use. */
struct pl_shared_data {
    struct pl_data *data;
    char spec[PL_TEXT_MAX];
    atomic_int n_holders; /* copies of a setup may be used and freed on several threads at once */
};

struct pl_setup {
    struct pl_setup_conf conf;
    struct pl_why why;
    struct pl_shared_data *data; /* NULL until a run needed it */
    bool has_function;
    struct pl_function function;
    void (*point)(void *ctx, const struct pl_point *p);
    int (*tick)(void *ctx, const struct pl_point *p);
    void *watch_ctx;
    struct pl_log log;
};

/* Gives up the data, and frees it where nobody else holds it. */
void pl_setup_let_go(struct pl_setup *s);

/* A job with what it owns. */
struct pl_built {
    struct pl_job job;
    struct pl_net_conf net;
    struct pl_script script;
    char method[PL_NAME_MAX];
    char spec[PL_N_COLUMNS][PL_SPEC_MAX]; /* resolved, as they are reported */
};

/* Resolves and checks everything; opens data, model and laws. Free with pl_built_free. */
int pl_build(struct pl_setup *setup, struct pl_built *out);
void pl_built_free(struct pl_built *b);

#endif
