/* paceline replay: repeats a recorded run, exactly or with other options. */
#include "cli.h"

struct replay {
    bool json, quiet;
};

static int replay_run(const struct cli_args *args, pl_setup *setup, void *ctx) {
    const struct replay *how = ctx;
    bool silent = how->json || how->quiet;
    const char *path = args->word[0];
    struct cli_progress progress = {0};
    pl_run *run = NULL;
    cli_catch_signals();
    pl_setup_log(setup, cli_say, NULL);
    pl_setup_watch(setup, cli_progress_point, cli_progress_tick, &progress);
    int rc = args->changes ? pl_setup_recorded(setup, path) : PL_OK;
    if (rc) return cli_failed(rc, setup);
    cli_progress_begin(&progress, "", silent ? CLI_PROGRESS_QUIET : CLI_PROGRESS_ALL, setup);
    progress.replays = !args->changes;
    cli_progress_tells(&progress);
    if (!args->changes) progress.updates = 0; /* the recording has the limits, and is read later */
    if (!silent) pl_setup_start(setup, cli_start, NULL);
    rc = args->changes ? pl_simulate(setup, &run) : pl_replay(setup, path, &run);
    cli_progress_end(&progress);
    int status = rc ? cli_failed(rc, setup) : cli_report(run, how->json, setup);
    pl_run_free(run);
    return status;
}

int cli_replay(int argc, char **argv) {
    struct replay how = {.json = false};
    const struct cli_flag flags[] = {
        {"json", NULL, "print one JSON object and nothing else", &how.json, NULL},
        {"quiet", NULL, "print no header and no progress, only results and warnings", &how.quiet,
         NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "replay",
        .brief = "repeat a recorded run bit for bit, or with other options",
        .usage = "replay FILE [--NAME VALUE ...]",
        .options = PL_FOR_SIMULATE,
        .own = PL_FOR_REPLAY,
        .flag = flags,
        .one_word = "replay takes one recording: paceline replay FILE",
        .restores = true,
        .notes =
            "FILE is a recording written by --record. Without options that change the run, the\n"
            "replay is exact: results arrive at the recorded times, and every decision and weight\n"
            "is recomputed and compared. The exit status is 1 if anything differs. --threads,\n"
            "--log, --events and --record do not change the run. With any other option, the run\n"
            "is simulated with the recorded options and task times, except for the options\n"
            "given. Examples:\n\n"
            "  paceline simulate --method kasync:k=2 --data digits --updates 200 \\\n"
            "      --record run.rec\n"
            "  paceline replay run.rec --events events.txt\n"
            "  paceline replay run.rec --method sync\n"};
    return cli_with_setup(&args, argc, argv, replay_run, &how);
}
