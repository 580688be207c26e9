/* paceline simulate: one run on a virtual clock. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void simulate_line(const char *name, double value, const char *unit) {
    if (isfinite(value))
        printf(value == floor(value) && fabs(value) < 1e15 ? "  %-18s %.0f%s\n"
                                                           : "  %-18s %.6g%s\n",
               name, value, unit);
    else
        printf("  %-18s -\n", name);
}

static void simulate_summary(const pl_run *run, bool target) {
    static const char *const fates[] = {"applied", "dropped",  "cancelled",
                                        "lost",    "rejected", "running"};
    static const char *const shares[] = {"compute", "communication", "idle", "wasted"};
    printf("  %-18s %s: %s, %.0f workers\n", "method", pl_run_text(run, "method"),
           pl_run_text(run, "policy"), pl_run_number(run, "workers"));
    simulate_line("time", pl_run_number(run, "time"), " s");
    simulate_line("updates", pl_run_number(run, "updates"), "");
    simulate_line("time per update", pl_run_number(run, "time_per_update"), " s");
    simulate_line("K at the end", pl_run_number(run, "k_final"), "");
    simulate_line("staleness", pl_run_number(run, "staleness.mean"), " mean");
    simulate_line("", pl_run_number(run, "staleness.max"), " max");
    if (isfinite(pl_run_number(run, "loss"))) {
        simulate_line("loss", pl_run_number(run, "loss"), "");
        simulate_line("test loss", pl_run_number(run, "test_loss"), "");
        simulate_line("test accuracy", pl_run_number(run, "test_accuracy"), "");
    }
    if (isfinite(pl_run_number(run, "time_to_target")))
        simulate_line("time to target", pl_run_number(run, "time_to_target"), " s");
    else if (target)
        printf("  %-18s not reached\n", "target");
    printf("  %-18s %.0f started:", "tasks", pl_run_number(run, "tasks.started"));
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        char key[32];
        snprintf(key, sizeof key, "tasks.%s", fates[i]);
        if (pl_run_number(run, key) > 0) printf(" %.0f %s", pl_run_number(run, key), fates[i]);
    }
    printf("\n  %-18s", "workers' time");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        char key[40];
        snprintf(key, sizeof key, "worker_time.%s", shares[i]);
        printf(" %.1f %% %s", 100 * pl_run_number(run, key), shares[i]);
    }
    putchar('\n');
}

int cli_simulate(int argc, char **argv) {
    bool json = false;
    const struct cli_flag flags[] = {
        {"json", NULL, "print one JSON object and nothing else", &json, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "simulate",
        .brief = "train on a virtual clock, with any number of workers",
        .usage = "simulate [--method METHOD] [--NAME VALUE ...]",
        .options = "simulate",
        .flag = flags,
        .notes = "'paceline list' shows methods, policies, laws and their options. Examples:\n\n"
                 "  paceline simulate --method gap-aware --lr 0.01 --workers 16 --time 100\n"
                 "  paceline simulate --policy ksync:k=4 --model none --updates 200000 --json\n"};
    pl_setup *setup;
    if (pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    int status = cli_parse(&args, argc, argv, setup);
    if (status == CLI_OK && !args.helped) {
        struct cli_progress progress = {0};
        pl_run *run = NULL;
        cli_catch_signals();
        cli_progress_begin(&progress, "", &args);
        pl_setup_log(setup, cli_say, NULL);
        pl_setup_watch(setup, cli_progress_point, cli_progress_tick, &progress);
        int rc = pl_simulate(setup, &run);
        cli_progress_end(&progress);
        if (rc) {
            status = cli_fail(rc, "%s", pl_setup_why(setup));
        } else {
            if (json)
                puts(pl_run_json(run));
            else
                simulate_summary(run, args.target);
            if (pl_run_diverged(run))
                status = cli_fail(CLI_FAILED,
                                  "the run diverged: no finite gradient came after update %.0f; a "
                                  "smaller --lr may help",
                                  pl_run_number(run, "updates"));
            else if (cli_interrupted())
                status = cli_fail(CLI_FAILED, "interrupted; these are the results so far");
        }
        pl_run_free(run);
    }
    pl_setup_free(setup);
    return status;
}
