/* paceline plan: predictions from theory and a delay law, without running anything. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct plan_view {
    const char *policy; /* NULL: all */
    bool json, sampled;
    int n_rows;
    struct pl_plan_row best;
    bool has_best;
};

static void plan_cell(double value, int width, const char *format) {
    char text[32];
    if (isnan(value))
        snprintf(text, sizeof text, "-");
    else if (isinf(value))
        snprintf(text, sizeof text, "never");
    else
        snprintf(text, sizeof text, format, value);
    printf("%*s", width, text);
}

/* Prints a number, or null if it is not finite. */
static void plan_json_number(const char *key, double value) {
    printf(isfinite(value) ? "\"%s\":%.9g," : "\"%s\":null,", key, value);
}

static void plan_json(const struct pl_plan_row *r) {
    printf("{\"policy\":\"%s\",\"k\":%d,", r->policy, r->k);
    plan_json_number("time_per_update", r->time_per_update);
    plan_json_number("updates_per_second", 1 / r->time_per_update);
    plan_json_number("staleness", r->staleness);
    plan_json_number("error_floor", r->error_floor);
    plan_json_number("time_to_target", r->time_to_target);
    printf("\"exact\":%s,\"best_of_policy\":%s,\"best_of_all\":%s}\n", r->exact ? "true" : "false",
           r->best ? "true" : "false", r->best_of_all ? "true" : "false");
}

static void plan_row(void *ctx, const struct pl_plan_row *r) {
    struct plan_view *v = ctx;
    if (v->policy && strcmp(v->policy, r->policy) != 0) return;
    if (r->best_of_all || (v->policy && r->best)) {
        v->best = *r;
        v->has_best = true;
    }
    v->n_rows++;
    if (v->json) {
        plan_json(r);
        return;
    }
    if (v->n_rows == 1)
        printf("%5s  %-12s %12s %12s %10s %12s %14s\n", "K", "policy", "s/update", "updates/s",
               "staleness", "error floor", "s to target");
    printf("%5d  %-12s", r->k, r->policy);
    plan_cell(r->time_per_update, 12, "%.4g");
    printf("%s", r->exact ? " " : "~");
    plan_cell(1 / r->time_per_update, 12, "%.4g");
    plan_cell(r->staleness, 11, "%.4g");
    plan_cell(r->error_floor, 13, "%.4g");
    plan_cell(r->time_to_target, 15, r->time_to_target < 1000 ? "%.4g" : "%.0f");
    printf("%s\n", r->best ? "  <- best K" : "");
    if (!r->exact) v->sampled = true;
}

int cli_plan(int argc, char **argv) {
    bool json = false;
    const char *policy = NULL;
    const struct cli_flag flags[] = {
        {"policy", "NAME", "show only ksync, kbatchsync, kasync or kbatchasync", NULL, &policy},
        {"json", NULL, "print one JSON object per line", &json, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "plan",
        .brief = "predict time per update, staleness and error floor for every K",
        .usage = "plan --workers P --delay LAW [--policy NAME] [--NAME VALUE ...]",
        .options = "plan",
        .flag = flags,
        .notes =
            "To use measured delays, give --trace FILE: a recording (--record), or a text file\n"
            "with one number of seconds per line. Examples:\n\n"
            "  paceline plan --workers 16 --delay pareto:shape=2,scale=1\n"
            "  paceline plan --workers 8 --delay exp:mean=1 --policy ksync\n"
            "  paceline plan --trace run.rec\n\n"
            "Times and staleness are exact, or sampled where marked ~. The error floor and the\n"
            "time to target are bounds (docs/theory.md): compare K by them, not run times.\n"};
    pl_setup *setup;
    if (pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    int status = cli_parse(&args, argc, argv, setup);
    struct plan_view view = {.json = json, .policy = policy};
    if (status == CLI_OK && !args.helped) {
        int rc = pl_plan(setup, plan_row, &view);
        if (rc) {
            status = cli_fail(rc, "%s", pl_setup_why(setup));
        } else if (view.n_rows == 0) {
            status = cli_fail(CLI_USAGE,
                              "--policy %.40s is not one of ksync, kbatchsync, kasync, kbatchasync",
                              policy);
        } else if (!json) {
            if (view.sampled) printf("~ estimated by sampling; the other times are exact\n");
            if (view.has_best)
                printf("recommended: --policy %s:k=%d (bound: %.4g s to the target)\n",
                       view.best.policy, view.best.k, view.best.time_to_target);
            else
                printf("the bound reaches the target for no K; raise --target or lower --lr\n");
        }
    }
    pl_setup_free(setup);
    return status;
}
