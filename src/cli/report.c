/* paceline report: one HTML page from log directories, races and recordings. */
#include <string.h>

#include "cli.h"

static int report_run(const struct cli_args *args, pl_setup *setup, void *ctx) {
    const char *out = *(const char **)ctx;
    struct cli_progress progress = {0};
    if (args->n_words == 0)
        return cli_fail(CLI_USAGE, "report needs a folder or a recording: paceline report PATH ... "
                                   "-o report.html");
    cli_catch_signals();
    cli_progress_begin(&progress, "replaying", CLI_PROGRESS_TERMINAL, setup);
    pl_setup_log(setup, cli_say, NULL);
    pl_setup_watch(setup, NULL, cli_progress_tick, &progress);
    int rc = pl_report(setup, (const char *const *)args->word, (size_t)args->n_words, out);
    cli_progress_end(&progress);
    if (rc) return cli_failed(rc, setup);
    if (strcmp(out, "-") != 0) printf("report: %s\n", out);
    return cli_interrupted() ? cli_fail(CLI_FAILED, "interrupted; the report has what was replayed")
                             : CLI_OK;
}

int cli_report_page(int argc, char **argv) {
    const char *out = "report.html";
    const struct cli_flag flags[] = {
        {"out", "FILE", "the page to write, - is standard output; -o for short (report.html)", NULL,
         &out},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "report",
        .brief = "one HTML page from log directories, races and recordings",
        .usage = "report PATH ... [-o FILE]",
        .flag = flags,
        .takes_words = true,
        .notes =
            "Each PATH is a folder of --log-dir, a folder of a race, a file of --history, or a\n"
            "recording, which is replayed. The page is one file that works without a network.\n"
            "Examples:\n\n"
            "  paceline simulate --method kasync:k=4 --data digits --time 50 --log-dir logs\n"
            "  paceline report logs -o report.html\n"
            "  paceline report race --out race.html\n"};
    return cli_with_setup(&args, argc, argv, report_run, &out);
}
