/* paceline plot: draws a race or a run again. */
#include <stdio.h>

#include "cli.h"

int cli_plot(int argc, char **argv) {
    const char *out = NULL;
    char path[600], why[600];
    const struct cli_flag flags[] = {
        {"out", "FILE", "the picture, .svg or .png; -o for short (DIR/plot.svg)", NULL, &out},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "plot",
        .brief = "draw a race or a run again, as SVG or PNG",
        .usage = "plot DIR [-o FILE]",
        .flag = flags,
        .takes_words = true,
        .notes =
            "DIR is a folder of a race or of --log-dir. A picture that 'race' or 'plot' has drawn\n"
            "is replaced. Examples:\n\n"
            "  paceline race sync async --data digits --time 50 --out mine\n"
            "  paceline plot mine\n"
            "  paceline plot mine -o mine.png\n"};
    pl_setup *setup;
    if (pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    int status = cli_parse(&args, argc, argv, setup);
    pl_setup_free(setup);
    if (status != CLI_OK || args.helped) return status;
    if (args.n_words != 1)
        return cli_fail(CLI_USAGE, "plot takes one folder: paceline plot DIR [-o FILE]");
    snprintf(path, sizeof path, "%.580s/plot.svg", args.word[0]);
    int rc = pl_plot_folder(args.word[0], out, why, sizeof why);
    if (rc) return cli_fail(rc, "%s", why);
    printf("plot: %s\n", out ? out : path);
    return CLI_OK;
}
