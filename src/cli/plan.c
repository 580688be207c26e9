/* paceline plan: predictions from theory and a delay law, without running anything. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define PLAN_FEW 6       /* rows shown without --all */
#define PLAN_SURE 1.2    /* a factor; with more doubt than that there is no recommendation */
#define PLAN_RATE 0.1    /* the learning rate, if none is given */
#define PLAN_TARGET 0.02 /* the default */

struct plan_view {
    const char *policy; /* NULL: all */
    bool json;
    struct pl_plan_row *row;
    int n_rows, room;
    bool lost; /* out of memory for one */
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
    if (r->best_of_all) plan_json_number("regret", r->regret_of_all);
    printf("\"exact\":%s,\"best_of_policy\":%s,\"best_of_all\":%s}\n", r->exact ? "true" : "false",
           r->best ? "true" : "false", r->best_of_all ? "true" : "false");
}

/* Collects the rows. */
static void plan_row(void *ctx, const struct pl_plan_row *r) {
    struct plan_view *v = ctx;
    if (v->policy && strcmp(v->policy, r->policy) != 0) return;
    if (v->n_rows == v->room) {
        int room = v->room ? 2 * v->room : 128;
        struct pl_plan_row *grown = realloc(v->row, (size_t)room * sizeof *grown);
        if (!grown) {
            v->lost = true;
            return;
        }
        v->row = grown;
        v->room = room;
    }
    v->row[v->n_rows++] = *r;
}

/* --- the table ----------------------------------------------------------------------------- */

static void plan_print_row(const struct pl_plan_row *r) {
    printf("%5d  %-12s", r->k, r->policy);
    plan_cell(r->time_per_update, 12, "%.4g");
    printf("%s", r->exact ? " " : "~");
    plan_cell(1 / r->time_per_update, 12, "%.4g");
    plan_cell(r->staleness, 11, "%.4g");
    plan_cell(r->error_floor, 13, "%.4g");
    plan_cell(r->time_to_target, 15, r->time_to_target < 1000 ? "%.4g" : "%.0f");
    printf("%s\n", r->best ? "  <- best K of this policy" : "");
}

/* By time to the target; rows that never reach it last, in their order. */
static int plan_less(const void *a, const void *b) {
    const struct pl_plan_row *x = a, *y = b;
    double s = isfinite(x->time_to_target) ? x->time_to_target : (double)INFINITY;
    double t = isfinite(y->time_to_target) ? y->time_to_target : (double)INFINITY;
    return s != t ? (s > t) - (s < t) : x->k - y->k;
}

/* The best few rows and the one to compare them with, or all. */
static void plan_table(const struct plan_view *v, bool all) {
    bool sampled = false;
    int shown = 0;
    printf("%5s  %-12s %12s %12s %10s %12s %14s\n", "K", "policy", "s/update", "updates/s",
           "staleness", "error floor", "s to target");
    for (int i = 0; i < v->n_rows; i++) {
        if (!all && shown >= PLAN_FEW && !v->row[i].loose_of_all) continue;
        plan_print_row(&v->row[i]);
        sampled = sampled || !v->row[i].exact;
        shown++;
    }
    if (shown < v->n_rows) printf("%d more rows: --all, or --policy NAME\n", v->n_rows - shown);
    if (sampled) printf("~ estimated by sampling; the other times are exact\n");
}

/* --- the advice ---------------------------------------------------------------------------- */

static void plan_assumptions(pl_setup *setup) {
    char text[900] = "", delay[520] = "", workers[32] = "";
    double lr = cli_number(setup, "lr");
    double convex = cli_number(setup, "convexity"), target = cli_number(setup, "target");
    pl_setup_get(setup, "delay", delay, sizeof delay);
    pl_setup_get(setup, "workers", workers, sizeof workers);
    cli_append(text, sizeof text, "assumed: %.200s, %s workers, independent tasks;",
               strcmp(delay, "auto") == 0 ? "exp:mean=1" : delay, workers);
    cli_append(text, sizeof text, " lr %.4g, batch %.0f;", lr > 0 ? lr : PLAN_RATE,
               cli_number(setup, "batch"));
    cli_append(text, sizeof text, " --smoothness %.4g, --noise %.4g, --start-loss %.4g,",
               cli_number(setup, "smoothness"), cli_number(setup, "noise"),
               cli_number(setup, "start-loss"));
    cli_append(text, sizeof text, " --target %.4g", target > 0 ? target : PLAN_TARGET);
    cli_append(text, sizeof text,
               convex > 0 ? " (excess loss; --convexity %.4g);" : " (squared gradient norm);",
               convex);
    cli_append(text, sizeof text,
               " staleness s changes a gradient by at most (lr L s)^2 of itself.");
    cli_wrap(0, 2, text);
}

/* The row to recommend, and the one that is best if the bound is loose. */
static void plan_advice(const struct plan_view *v, pl_setup *setup) {
    const struct pl_plan_row *best = NULL, *loose = NULL;
    char text[600] = "", workers[32] = "";
    bool alone = cli_number(setup, "workers") == 1; /* all methods do the same */
    for (int i = 0; i < v->n_rows; i++) {
        const struct pl_plan_row *r = &v->row[i];
        if (v->policy ? r->best : r->best_of_all) best = r;
        if (v->policy ? r->loose : r->loose_of_all) loose = r;
    }
    double regret = !best ? (double)INFINITY : v->policy ? best->regret : best->regret_of_all;
    if (best && (regret <= PLAN_SURE || alone)) {
        printf("recommended: --policy %s:k=%d (bound: %.4g s to the target)\n", best->policy,
               best->k, best->time_to_target);
        return;
    }
    pl_setup_get(setup, "workers", workers, sizeof workers);
    if (!best)
        cli_append(text, sizeof text,
                   "the bound reaches the target for no K; raise --target or "
                   "lower --lr.");
    if (!loose || alone) {
        cli_wrap(0, 2, text);
        return;
    }
    cli_append(text, sizeof text, "%splan cannot know which is best:", best ? "" : " ");
    if (best)
        cli_append(text, sizeof text, " --policy %s:k=%d by the bound, which is a worst case, but",
                   best->policy, best->k);
    cli_append(text, sizeof text,
               " --policy %s:k=%d if noise and staleness matter less than it assumes",
               loose->policy, loose->k);
    if (best && isfinite(regret))
        cli_append(text, sizeof text, " (up to %.1f times faster)", regret);
    cli_append(text, sizeof text, ". Compare them on your problem:");
    cli_wrap(0, 2, text);
    printf("  paceline race ");
    if (best) printf("%s:k=%d ", best->policy, best->k);
    printf("%s:k=%d sync --workers %s", loose->policy, loose->k, workers);
    if (pl_setup_get(setup, "delay", text, sizeof text) == PL_OK && strcmp(text, "auto") != 0)
        printf(" --delay '%s'", text);
    printf(" --data ... --target-accuracy ... --time ...\n");
}

struct plan_how {
    bool json, all;
    const char *policy;
};

static int plan_run(const struct cli_args *args, pl_setup *setup, void *ctx) {
    const struct plan_how *how = ctx;
    struct plan_view view = {.json = how->json, .policy = how->policy};
    (void)args;
    int status = cli_failed(pl_plan(setup, plan_row, &view), setup);
    if (status == CLI_OK && view.lost) status = cli_fail(CLI_FAILED, "out of memory");
    if (status == CLI_OK && view.n_rows == 0)
        status = cli_fail(CLI_USAGE,
                          "--policy %.40s is not one of ksync, kbatchsync, kasync, kbatchasync",
                          how->policy);
    for (int i = 0; status == CLI_OK && how->json && i < view.n_rows; i++) plan_json(&view.row[i]);
    if (status == CLI_OK && !how->json) {
        bool every = how->all || how->policy;
        if (!every) qsort(view.row, (size_t)view.n_rows, sizeof *view.row, plan_less);
        plan_table(&view, every);
        plan_assumptions(setup);
        plan_advice(&view, setup);
    }
    free(view.row);
    return status;
}

int cli_plan(int argc, char **argv) {
    struct plan_how how = {.json = false};
    const struct cli_flag flags[] = {
        {"policy", "NAME", "show only ksync, kbatchsync, kasync or kbatchasync", NULL, &how.policy},
        {"all", NULL, "show every K of every policy, not only the best few", &how.all, NULL},
        {"json", NULL, "print every row as one JSON object per line", &how.json, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "plan",
        .brief = "predict time per update, staleness and error floor for every K",
        .usage = "plan --workers P --delay LAW [--policy NAME] [--NAME VALUE ...]",
        .options = PL_FOR_PLAN,
        .own = PL_FOR_PLAN,
        .flag = flags,
        .notes =
            "To use measured delays, give --trace FILE: a recording (--record), or a text file\n"
            "with one number of seconds per line. Examples:\n\n"
            "  paceline plan --workers 16 --delay pareto:shape=2,scale=1\n"
            "  paceline plan --workers 8 --delay exp:mean=1 --policy ksync\n"
            "  paceline plan --trace run.rec\n\n"
            "Times and staleness are exact, or sampled where marked ~. The error floor and the\n"
            "time to target are bounds (docs/theory.md): compare K by them, not run times. Where\n"
            "the best K depends on how tight the bound is, plan says that it cannot know.\n"};
    return cli_with_setup(&args, argc, argv, plan_run, &how);
}
