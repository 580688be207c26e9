/* What came of a run, for people or as one JSON object, and the exit status that goes with it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define SUMMARY_STUCK 10 /* usual tasks that one must have lasted at the end to be named for it */
#define SUMMARY_SLOW 8   /* slow workers that are told one by one */

static void summary_line(const char *name, double value, const char *unit) {
    if (isfinite(value))
        printf(value == floor(value) && fabs(value) < 1e15 ? "  %-18s %.0f%s\n"
                                                           : "  %-18s %.6g%s\n",
               name, value, unit);
    else
        printf("  %-18s -\n", name);
}

static void summary_slow(const pl_run *run);

static void summary_print(const pl_run *run, bool target) {
    static const char *const fates[] = {"applied", "dropped",  "cancelled",
                                        "lost",    "rejected", "running"};
    static const char *const shares[] = {"compute", "communication", "idle", "wasted"};
    double workers = pl_run_number(run, "workers");
    printf("  %-18s %s: %s, %.0f worker%s\n", "method", pl_run_text(run, "method"),
           pl_run_text(run, "policy"), workers, workers == 1 ? "" : "s");
    summary_line("time", pl_run_number(run, "time"), " s");
    summary_line("updates", pl_run_number(run, "updates"), "");
    summary_line("time per update", pl_run_number(run, "time_per_update"), " s");
    summary_line("K at the end", pl_run_number(run, "k_final"), "");
    if (isfinite(pl_run_number(run, "consensus")))
        summary_line("consensus", pl_run_number(run, "consensus"), " from the mean");
    summary_line("staleness", pl_run_number(run, "staleness.mean"), " mean");
    summary_line("", pl_run_number(run, "staleness.max"), " max");
    if (isfinite(pl_run_number(run, "loss"))) {
        summary_line("loss", pl_run_number(run, "loss"), "");
        summary_line("test loss", pl_run_number(run, "test_loss"), "");
        if (isfinite(pl_run_number(run, "test_rmse")))
            summary_line("test RMSE", pl_run_number(run, "test_rmse"), "");
        else
            summary_line("test accuracy", pl_run_number(run, "test_accuracy"), "");
    }
    if (isfinite(pl_run_number(run, "spread.pair_max"))) {
        summary_line("workers' models", pl_run_number(run, "spread.from_mean"), " from their mean");
        summary_line("", pl_run_number(run, "spread.from_model"), " from the newest model");
        summary_line("", pl_run_number(run, "spread.pair_max"), " between two at most");
        summary_line("", pl_run_number(run, "spread.move_max"), " the longest vector sent");
    }
    if (isfinite(pl_run_number(run, "time_to_target")))
        summary_line("time to target", pl_run_number(run, "time_to_target"), " s");
    else if (target)
        printf("  %-18s not reached\n", "target");
    double started = pl_run_number(run, "tasks.started");
    printf("  %-18s %.0f started%s", "tasks", started, started > 0 ? ":" : "");
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
    summary_slow(run);
    if (pl_run_text(run, "replay")) printf("  %-18s %s\n", "replay", pl_run_text(run, "replay"));
}

/* --- who was slow ------------------------------------------------------------------------ */

static int summary_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the mean task times; NAN where nobody brought any. */
static double summary_usual(const struct pl_worker_report *w, size_t n) {
    double *t = malloc((n + 1) * sizeof *t);
    size_t known = 0;
    for (size_t i = 0; t && i < n; i++)
        if (isfinite(w[i].task)) t[known++] = w[i].task;
    if (known) qsort(t, known, sizeof *t, summary_compare);
    double usual = known ? t[(known - 1) / 2] : NAN;
    free(t);
    return usual;
}

static void summary_worker(const struct pl_worker_report *w, size_t i, double usual) {
    double busy = w->compute + w->communication, all = busy + w->idle + w->wasted;
    printf("  %-18s worker %zu: %.3g s a task, %.1f times the usual, %.0f %% of it %s", "slow",
           i + 1, w->task, w->task / usual,
           100 * fmax(w->compute, w->communication) / (busy > 0 ? busy : 1),
           w->compute >= w->communication ? "compute" : "communication");
    if (w->held_up > 0)
        printf("; others waited %.3g s for it alone, it was last in %llu updates", w->held_up,
               (unsigned long long)w->last);
    if (w->unused > 0)
        printf("; %llu of its %llu tasks, %.0f %% of its time, went unused",
               (unsigned long long)w->unused, (unsigned long long)(w->tasks + w->unused),
               100 * w->wasted / (all > 0 ? all : 1));
    putchar('\n');
}

/* Whoever took half as long again as usual; those that never brought anything as well. */
static void summary_slow(const pl_run *run) {
    const struct pl_worker_report *w;
    size_t n = pl_run_workers(run, &w), named = 0;
    double usual = summary_usual(w, n), slowest = 0;
    if (n < 2 || !isfinite(usual)) return;
    for (size_t i = 0; i < n; i++) {
        bool stuck = w[i].unfinished > SUMMARY_STUCK * usual && w[i].unfinished > 1;
        if (!stuck && !isfinite(w[i].task) && w[i].unused == 0) continue;
        if (isfinite(w[i].task)) slowest = fmax(slowest, w[i].task / usual);
        if (!stuck && isfinite(w[i].task) && w[i].task < 1.5 * usual) continue;
        if (++named > SUMMARY_SLOW) continue;
        if (stuck)
            printf("  %-18s worker %zu: its last task had run for %.3g s when the run ended, where "
                   "%.3g s is usual\n",
                   "slow", i + 1, w[i].unfinished, usual);
        else if (isfinite(w[i].task))
            summary_worker(&w[i], i, usual);
        else
            printf("  %-18s worker %zu: none of its %llu tasks came back to be used\n", "slow",
                   i + 1, (unsigned long long)w[i].unused);
    }
    if (named > SUMMARY_SLOW)
        printf("  %-18s and %zu more\n", "", named - SUMMARY_SLOW);
    else if (named == 0)
        printf("  %-18s nobody: %.3g s a task is usual, the slowest took %.2f times that\n", "slow",
               usual, slowest);
}

int cli_report(pl_run *run, bool json, bool target) {
    if (json)
        puts(pl_run_json(run));
    else
        summary_print(run, target);
    const struct pl_worker_report *reports;
    if (cli_interrupted()) {
        int status = cli_fail(CLI_FAILED, "interrupted; these are the results so far");
        return pl_run_workers(run, &reports) ? CLI_OK : status; /* a real run ended as it should */
    }
    if (pl_run_text(run, "replay")) /* of a run that diverged it has to diverge */
        return pl_run_number(run, "replay.same") > 0
                   ? CLI_OK
                   : cli_fail(CLI_FAILED, "the replay %s", pl_run_text(run, "replay"));
    if (pl_run_text(run, "trouble"))
        return cli_fail(CLI_FAILED, "%s; these are the results so far",
                        pl_run_text(run, "trouble"));
    if (pl_run_diverged(run))
        return cli_fail(CLI_FAILED,
                        "the run diverged: no finite gradient came after update %.0f; a smaller "
                        "--lr may help",
                        pl_run_number(run, "updates"));
    return CLI_OK;
}

/* Where several ranks ran together, rank 0 alone has something to say. */
static int summary_end(int rc, pl_setup *setup, pl_run *run, bool json) {
    const char *why = pl_setup_why(setup);
    if (rc && pl_rank() > 0 && !why[0]) return rc == PL_EUSAGE ? CLI_USAGE : CLI_FAILED;
    if (rc) return cli_fail(rc, "%s", why);
    return run ? cli_report(run, json, cli_has_target(setup)) : CLI_OK;
}

int cli_one_run(struct cli_args *args, int argc, char **argv,
                int (*run)(pl_setup *setup, pl_run **out)) {
    bool json = false;
    const struct cli_flag flags[] = {
        {"json", NULL, "print one JSON object and nothing else", &json, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    pl_setup *setup;
    args->flag = flags;
    if (pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    int status = cli_parse(args, argc, argv, setup);
    if (status == CLI_OK && !args->helped) {
        struct cli_progress progress = {0};
        pl_run *out = NULL;
        cli_catch_signals();
        cli_progress_begin(&progress, "", setup);
        pl_setup_log(setup, cli_say, NULL);
        pl_setup_watch(setup, cli_progress_point, cli_progress_tick, &progress);
        int rc = run(setup, &out);
        cli_progress_end(&progress);
        status = summary_end(rc, setup, out, json);
        pl_run_free(out);
    }
    pl_setup_free(setup);
    return status;
}
