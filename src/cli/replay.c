/* paceline replay: repeats a recorded run, exactly or with other options. */
#include "cli.h"

static int replay_run(const struct cli_args *args, bool json, bool quiet, pl_setup *setup) {
    const char *path = args->word[0];
    struct cli_progress progress = {0};
    pl_run *run = NULL;
    cli_catch_signals();
    pl_setup_log(setup, cli_say, NULL);
    pl_setup_watch(setup, cli_progress_point, cli_progress_tick, &progress);
    int rc = args->changes ? pl_setup_recorded(setup, path) : PL_OK;
    if (rc) return cli_fail(rc, "%s", pl_setup_why(setup));
    cli_progress_begin(&progress, "", json || quiet ? CLI_PROGRESS_QUIET : CLI_PROGRESS_ALL, setup);
    if (!args->changes) progress.updates = 0; /* the recording has the limits, and is read later */
    if (!json && !quiet) pl_setup_start(setup, cli_start, NULL);
    rc = args->changes ? pl_simulate(setup, &run) : pl_replay(setup, path, &run);
    cli_progress_end(&progress);
    int status = rc ? cli_fail(rc, "%s", pl_setup_why(setup)) : cli_report(run, json, setup);
    pl_run_free(run);
    return status;
}

int cli_replay(int argc, char **argv) {
    bool json = false, quiet = false;
    const struct cli_flag flags[] = {
        {"json", NULL, "print one JSON object and nothing else", &json, NULL},
        {"quiet", NULL, "print no header and no progress, only results and warnings", &quiet, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "replay",
        .brief = "repeat a recorded run bit for bit, or with other options",
        .usage = "replay FILE [--NAME VALUE ...]",
        .options = PL_FOR_SIMULATE,
        .own = PL_FOR_REPLAY,
        .flag = flags,
        .takes_words = true,
        .restores = true,
        .notes =
            "FILE is a recording written by --record. Without options that change the run, the\n"
            "replay is exact: results arrive at the recorded times, and every decision and weight\n"
            "is recomputed and compared. The exit status is 1 if anything differs. --threads,\n"
            "--log, --events and --record do not change the run. With any other option, the run\n"
            "is simulated with the recorded options and task times, except for the options\n"
            "given. Examples:\n\n"
            "  paceline simulate --method kasync:k=2 --data digits --updates 200 --record run.rec\n"
            "  paceline replay run.rec --events events.txt\n"
            "  paceline replay run.rec --method sync\n"};
    pl_setup *setup;
    if (pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    int status = cli_parse(&args, argc, argv, setup);
    if (status == CLI_OK && !args.helped)
        status = args.n_words == 1
                     ? replay_run(&args, json, quiet, setup)
                     : cli_fail(CLI_USAGE, "replay takes one recording: paceline replay FILE");
    pl_setup_free(setup);
    return status;
}
