/* Prints the results of a run, as text or as one JSON object, and derives the exit status. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define SUMMARY_INDENT 21 /* where texts begin */
#define SUMMARY_SLOW 8    /* stragglers reported one by one */

/* Exact numbers in full, others with three digits; no exponent for large ones. */
static void summary_line(FILE *f, const char *name, double value, const char *unit) {
    const char *format = value == floor(value) || fabs(value) >= 1000 ? "%.0f" : "%.3g";
    char text[32] = "-";
    if (isfinite(value)) snprintf(text, sizeof text, fabs(value) < 1e15 ? format : "%.3g", value);
    fprintf(f, "  %-18s %s%s\n", name, text, isfinite(value) ? unit : "");
}

static void summary_known(FILE *f, const char *name, double value) {
    if (isfinite(value)) summary_line(f, name, value, "");
}

/* Seconds with the unit that suits them. */
static const char *summary_time(double s, char text[static 24]) {
    static const double scale[] = {1, 1e3, 1e6};
    static const char *const unit[] = {"s", "ms", "µs"};
    int i = s >= 1 || s == 0 ? 0 : s >= 1e-3 ? 1 : 2;
    snprintf(text, 24, s < 1000 ? "%.3g %s" : "%.0f %s", s * scale[i], unit[i]);
    return cli_signs(text);
}

static void summary_seconds(FILE *f, const char *name, double s) {
    char text[24];
    fprintf(f, "  %-18s %s\n", name, isfinite(s) ? summary_time(s, text) : "-");
}

int cli_decimals(double within) {
    return (int)fmin(9, fmax(0, ceil(-log10(2 * within))));
}

static void summary_target(FILE *f, const pl_run *run) {
    double s = pl_run_number(run, "time_to_target"), within = pl_run_number(run, "target_within");
    if (within > 0)
        fprintf(f, "  %-18s %.*f s %s %.1g\n", "time to target", cli_decimals(within), s,
                cli_signs((char[]){"±"}), within);
    else
        summary_seconds(f, "time to target", s);
}

/* How long it took, on which clock: only real runs have reports of workers. */
static void summary_time_of(FILE *f, const pl_run *run) {
    const struct pl_worker_report *reports;
    double s = pl_run_number(run, "time");
    bool real = pl_run_workers(run, &reports) > 0;
    char text[24];
    fprintf(f, "  %-18s %s%s\n", "time", isfinite(s) ? summary_time(s, text) : "-",
            real || !isfinite(s) ? "" : " (virtual)");
}

static void summary_frozen(FILE *f, const pl_run *run) {
    double n = pl_run_number(run, "suspended.frozen");
    if (n > 0)
        fprintf(f,
                "  %-18s %.0f time%s: a worker did not answer, and the run continued without it\n",
                "frozen", n, n == 1 ? "" : "s");
}

static void summary_stragglers(FILE *f, const pl_run *run);

static void summary_print(FILE *f, const pl_run *run, bool target) {
    static const char *const fates[] = {"applied", "dropped",  "cancelled",
                                        "lost",    "rejected", "running"};
    static const char *const shares[] = {"compute", "communication", "idle", "wasted"};
    double workers = pl_run_number(run, "workers");
    if (pl_run_diverged(run)) fprintf(f, "  %-18s %s\n", "diverged", pl_run_text(run, "diverged"));
    fprintf(f, "  %-18s %s (%s), %.0f worker%s", "method", pl_run_text(run, "method"),
            pl_run_text(run, "choices"), workers, workers == 1 ? "" : "s");
    bool learns = isfinite(pl_run_number(run, "loss")) || pl_run_diverged(run);
    if (learns) fprintf(f, ", lr %.3g", pl_run_number(run, "lr"));
    if (learns && isfinite(pl_run_number(run, "batch")))
        fprintf(f, ", batch %.0f", pl_run_number(run, "batch"));
    fputc('\n', f);
    summary_time_of(f, run);
    summary_line(f, "updates", pl_run_number(run, "updates"), "");
    summary_seconds(f, "time per update", pl_run_number(run, "time_per_update"));
    if (pl_run_text(run, "policy_final"))
        fprintf(f, "  %-18s %s\n", "final policy", pl_run_text(run, "policy_final"));
    summary_known(f, "final K", pl_run_number(run, "k_final"));
    if (isfinite(pl_run_number(run, "consensus")))
        summary_line(f, "consensus distance", pl_run_number(run, "consensus"), "");
    summary_line(f, "staleness", pl_run_number(run, "staleness.mean"), " (mean)");
    summary_line(f, "", pl_run_number(run, "staleness.max"), " (max)");
    if (isfinite(pl_run_number(run, "loss"))) {
        summary_line(f, "loss", pl_run_number(run, "loss"), "");
        summary_known(f, "test loss", pl_run_number(run, "test_loss"));
        summary_known(f, "test RMSE", pl_run_number(run, "test_rmse"));
        summary_known(f, "test accuracy", pl_run_number(run, "test_accuracy"));
    }
    if (isfinite(pl_run_number(run, "time_to_target")))
        summary_target(f, run);
    else if (target)
        fprintf(f, "  %-18s not reached\n", "target");
    double started = pl_run_number(run, "tasks.started");
    const char *sep = ": ";
    fprintf(f, "  %-18s %.0f started", "tasks", started);
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
        char key[32];
        snprintf(key, sizeof key, "tasks.%s", fates[i]);
        if (!(pl_run_number(run, key) > 0)) continue;
        fprintf(f, "%s%.0f %s", sep, pl_run_number(run, key), fates[i]);
        sep = ", ";
    }
    fprintf(f, "\n  %-18s", "worker time");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        char key[40];
        snprintf(key, sizeof key, "worker_time.%s", shares[i]);
        fprintf(f, "%s%.1f %% %s", i ? ", " : " ", 100 * pl_run_number(run, key), shares[i]);
    }
    fputc('\n', f);
    if (pl_run_number(run, "core_wait") >= 0.01)
        fprintf(f, "  %-18s %.1f %% of worker time, part of compute%s\n", "waiting for a core",
                100 * pl_run_number(run, "core_wait"),
                pl_run_number(run, "worker_time.wasted") >= 0.0005 ? " and wasted" : "");
    summary_frozen(f, run);
    summary_stragglers(f, run);
    if (pl_run_text(run, "replay"))
        fprintf(f, "  %-18s %s\n", "replay", pl_run_text(run, "replay"));
}

/* --- stragglers -------------------------------------------------------------------------- */

static void summary_worker(FILE *f, const struct pl_worker_report *w, size_t i) {
    double busy = w->compute + w->communication, all = busy + w->idle + w->wasted;
    char text[24];
    fprintf(f, "  %-18s worker %zu: %s per task (%.1f%s the median, %.0f %% of it %s)",
            "stragglers", i + 1, summary_time(w->task, text), w->task / w->usual,
            cli_signs((char[]){"×"}),
            100 * fmax(w->compute, w->communication) / (busy > 0 ? busy : 1),
            w->compute >= w->communication ? "compute" : "communication");
    if (w->held_up > 0)
        fprintf(f, "; others waited %s for it alone; it was last in %llu updates",
                summary_time(w->held_up, text), (unsigned long long)w->last);
    if (w->unused > 0)
        fprintf(f, "; %llu of its %llu tasks (%.0f %% of its time) were not used",
                (unsigned long long)w->unused, (unsigned long long)(w->tasks + w->unused),
                100 * w->wasted / (all > 0 ? all : 1));
    fputc('\n', f);
}

static void summary_straggler(FILE *f, const struct pl_worker_report *w, size_t i) {
    char at_end[24], text[24];
    if (w->pace == PL_PACE_STUCK)
        fprintf(f,
                "  %-18s worker %zu: its last task had run for %s when the run ended (median "
                "task %s)\n",
                "stragglers", i + 1, summary_time(w->unfinished, at_end),
                summary_time(w->usual, text));
    else if (isfinite(w->task))
        summary_worker(f, w, i);
    else
        fprintf(f, "  %-18s worker %zu: none of its %llu tasks was used\n", "stragglers", i + 1,
                (unsigned long long)w->unused);
}

/* Workers that were there, but had too few tasks to be called slow or not. */
static void summary_unknown(FILE *f, size_t unknown, size_t here, size_t last) {
    fprintf(f, "  %-18s too few tasks to tell", "stragglers");
    if (unknown == here)
        fprintf(f, " (fewer than %d per worker)\n", PL_PACE_TASKS);
    else if (unknown == 1)
        fprintf(f, " for worker %zu (fewer than %d)\n", last + 1, PL_PACE_TASKS);
    else
        fprintf(f, " for %zu of %zu workers (fewer than %d each)\n", unknown, here, PL_PACE_TASKS);
}

/* Reports workers that were slow, hung at the end, or had no task used. */
static void summary_stragglers(FILE *f, const pl_run *run) {
    const struct pl_worker_report *w;
    size_t n = pl_run_workers(run, &w), named = 0, unknown = 0, here = 0, last = 0;
    double median = n ? w->usual : NAN, slowest = 0;
    char text[24];
    if (n < 2 || !isfinite(median)) return;
    for (size_t i = 0; i < n; i++) {
        uint64_t tasks = w[i].tasks + w[i].unused;
        if (tasks == 0 && !(w[i].unfinished > 0)) continue; /* a place that no worker took */
        here++;
        if (w[i].pace == PL_PACE_SLOW || w[i].pace == PL_PACE_STUCK) {
            if (++named <= SUMMARY_SLOW) summary_straggler(f, &w[i], i);
        } else if (w[i].pace == PL_PACE_UNKNOWN) {
            unknown++;
            last = i;
        } else {
            slowest = fmax(slowest, w[i].task / median);
        }
    }
    if (named > SUMMARY_SLOW) fprintf(f, "  %-18s and %zu more\n", "", named - SUMMARY_SLOW);
    if (unknown > 0)
        summary_unknown(f, unknown, here, last);
    else if (named == 0)
        fprintf(f, "  %-18s none (median task %s, slowest worker %.2f%s)\n", "stragglers",
                summary_time(median, text), slowest, cli_signs((char[]){"×"}));
}

/* --- files ------------------------------------------------------------------------------- */

/* The folder of the checkpoints, and how a run that did not reach its limits goes on. */
static void summary_saved(FILE *f, const pl_run *run, bool unfinished) {
    const char *folder = pl_run_text(run, "checkpoint");
    if (!folder) return;
    fprintf(f, "  %-18s ", "saved");
    cli_print_to(f, folder);
    fprintf(f, ", update %.0f", pl_run_number(run, "checkpoint_updates"));
    if (unfinished) {
        char word[4 * PATH_MAX];
        fputs(" (--resume ", f);
        cli_print_to(f, cli_word(word, sizeof word, folder));
        fputs(" continues)", f);
    }
    fputc('\n', f);
}

/* The other files that were asked for. */
static void summary_written(FILE *f, pl_setup *setup) {
    static const char *const files[] = {"log-dir", "record", "log", "events"};
    const char *sep = "";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[1024];
        if (pl_setup_get(setup, files[i], name, sizeof name) || !name[0]) continue;
        if (!*sep) fprintf(f, "  %-18s ", "written");
        fputs(sep, f);
        cli_print_to(f, strcmp(name, "-") == 0 ? "standard output" : name);
        sep = ", ";
    }
    if (*sep) fputc('\n', f);
}

/* The results, and what the run was. */
static void summary_json(pl_run *run) {
    const char *results = pl_run_json(run), *what = pl_run_text(run, "run");
    size_t n = strlen(results);
    if (what && n > 2)
        printf("%.*s,\"run\":%s}\n", (int)n - 1, results, what);
    else
        puts(results);
}

void cli_start(void *ctx, const char *header, const char *json) {
    if (ctx) cli_progress_limits(ctx, json);
    cli_put_lines(stderr, CLI_HEADER_INDENT, header);
}

/* The summary of a run; an exit status. */
static int summary_text(const pl_run *run, pl_setup *setup, bool interrupted) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (f) {
        summary_print(f, run, cli_has_target(setup));
        summary_saved(f, run, interrupted || pl_run_text(run, "trouble"));
        summary_written(f, setup);
    }
    bool lost = !f || fclose(f) != 0;
    if (!lost) cli_put_lines(stdout, SUMMARY_INDENT, text);
    free(text);
    return lost ? cli_fail(CLI_FAILED, "out of memory") : CLI_OK;
}

int cli_report(pl_run *run, bool json, pl_setup *setup) {
    char attack[64];
    bool attacked = pl_setup_get(setup, "attack", attack, sizeof attack) || attack[0];
    const char *remedy = attacked ? "workers were hostile (--attack); see docs/hostile.md for "
                                    "methods that withstand them"
                                  : "try a smaller --lr";
    const struct pl_worker_report *reports;
    bool interrupted = cli_interrupted() && !pl_run_text(run, "trouble");
    if (interrupted) cli_fail(CLI_INTERRUPTED, "interrupted; these are the results so far");
    if (json)
        summary_json(run);
    else if (summary_text(run, setup, interrupted) != CLI_OK)
        return CLI_FAILED;
    if (interrupted) /* for a real run this is an orderly end */
        return pl_run_workers(run, &reports) ? CLI_OK : CLI_INTERRUPTED;
    if (pl_run_text(run, "replay")) /* the replay of a run that diverged must diverge */
        return pl_run_number(run, "replay.same") > 0
                   ? CLI_OK
                   : cli_fail(CLI_FAILED, "the replay %s", pl_run_text(run, "replay"));
    if (pl_run_text(run, "trouble"))
        return cli_fail(CLI_FAILED, "%s; these are the results", pl_run_text(run, "trouble"));
    return pl_run_diverged(run) ? cli_fail(CLI_FAILED, "the run diverged: %s; %s",
                                           pl_run_text(run, "diverged"), remedy)
                                : CLI_OK;
}

/* With several ranks, only rank 0 reports. */
static int summary_end(int rc, pl_setup *setup, pl_run *run, bool json) {
    const char *why = pl_setup_why(setup);
    if (rc && pl_rank() > 0 && !why[0]) return rc == PL_EUSAGE ? CLI_USAGE : CLI_FAILED;
    if (rc) return cli_fail(rc, "%s", why);
    return run ? cli_report(run, json, setup) : CLI_OK;
}

struct summary_run {
    bool json, quiet;
    int (*run)(pl_setup *setup, pl_run **out);
};

static int summary_run(const struct cli_args *args, pl_setup *setup, void *ctx) {
    const struct summary_run *one = ctx;
    bool silent = one->json || one->quiet;
    struct cli_progress progress = {0};
    pl_run *out = NULL;
    (void)args;
    cli_catch_signals();
    cli_progress_begin(&progress, "", silent ? CLI_PROGRESS_QUIET : CLI_PROGRESS_ALL, setup);
    cli_progress_tells(&progress);
    pl_setup_log(setup, cli_say, NULL);
    if (!silent) pl_setup_start(setup, cli_start, &progress);
    pl_setup_watch(setup, cli_progress_point, cli_progress_tick, &progress);
    int rc = one->run(setup, &out);
    cli_progress_end(&progress);
    int status = summary_end(rc, setup, out, one->json);
    pl_run_free(out);
    return status;
}

int cli_one_run(struct cli_args *args, int argc, char **argv,
                int (*run)(pl_setup *setup, pl_run **out)) {
    struct summary_run one = {.run = run};
    const struct cli_flag flags[] = {
        {"json", NULL, "print one JSON object and nothing else", &one.json, NULL},
        {"quiet", NULL, "print no header and no progress, only results and warnings", &one.quiet,
         NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    args->flag = flags;
    return cli_with_setup(args, argc, argv, summary_run, &one);
}
