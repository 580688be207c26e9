/* paceline eval: evaluates the weights of a checkpoint on a data set. */
#include <math.h>
#include <string.h>

#include "cli.h"

/* The exit status is that of the run: 1 if it diverged. */
static int eval_print(const pl_run *run, bool json) {
    static const char *const keys[] = {"updates", "loss", "test_loss", "test_accuracy",
                                       "test_rmse"};
    static const char *const names[] = {"updates", "loss", "test loss", "test accuracy",
                                        "test RMSE"};
    if (json)
        putchar('{');
    else if (pl_run_diverged(run))
        printf("  %-18s %s\n", "diverged", pl_run_text(run, "diverged"));
    for (int i = 0; i < 5; i++) {
        double value = pl_run_number(run, keys[i]);
        if (!json && i > 1 && !isfinite(value)) continue; /* accuracy or RMSE, if any */
        char text[40];
        snprintf(text, sizeof text, i == 0 ? "%.0f" : json ? "%.17g" : "%.4g", value);
        if (!isfinite(value)) snprintf(text, sizeof text, "%s", json ? "null" : "-");
        if (json)
            printf("%s\"%s\":%s", i ? "," : "", keys[i], text);
        else
            printf("  %-18s %s\n", names[i], text);
    }
    if (json) printf(",\"diverged\":%s}\n", pl_run_diverged(run) ? "true" : "false");
    return pl_run_diverged(run) ? cli_fail(CLI_FAILED, "the run of this checkpoint diverged: %s",
                                           pl_run_text(run, "diverged"))
                                : CLI_OK;
}

static int eval_run(const struct cli_args *args, pl_setup *setup, void *ctx) {
    const bool *json = ctx;
    pl_run *run = NULL;
    int rc = pl_eval(setup, args->word[0], &run);
    int status = rc ? cli_failed(rc, setup) : eval_print(run, *json);
    pl_run_free(run);
    return status;
}

int cli_eval(int argc, char **argv) {
    bool json = false;
    const struct cli_flag flags[] = {
        {"json", NULL, "print one JSON object and nothing else", &json, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "eval",
        .brief = "the loss and accuracy of a checkpoint",
        .usage = "eval CHECKPOINT [--data DATA] [--NAME VALUE ...]",
        .options = PL_FOR_EVAL,
        .own = PL_FOR_EVAL,
        .flag = flags,
        .one_word = "eval takes one checkpoint: paceline eval CHECKPOINT",
        .restores = true,
        .notes = "CHECKPOINT is a file written by train --checkpoint, or its folder (the latest "
                 "file is\n"
                 "used). Model and data are those of the training run unless given. Examples:\n\n"
                 "  paceline train --data digits --updates 200 --checkpoint saved\n"
                 "  paceline eval saved\n"};
    return cli_with_setup(&args, argc, argv, eval_run, &json);
}
