/* paceline train: one run with real workers. */
#include "cli.h"

int cli_train(int argc, char **argv) {
    struct cli_args args = {
        .command = "train",
        .brief = "train with real workers on this machine, processes or threads",
        .usage = "train [--method METHOD] [--NAME VALUE ...]",
        .options = PL_FOR_TRAIN,
        .own = PL_FOR_TRAIN,
        .notes = "Ctrl-C, SIGTERM or SIGHUP ends the run in good order: the current update is "
                 "finished, a\n"
                 "checkpoint is written if --checkpoint is given, and the results are printed. A\n"
                 "second signal ends the program at once."
                 "\n'paceline list' shows methods, policies, laws and their options. Examples:\n\n"
                 "  paceline train --method abs --workers 4 --time 20\n"
                 "  paceline train --data digits --delay '3*const:t=0.01|const:t=0.05' \\\n"
                 "      --record run.rec\n"
                 "  paceline train --data digits --checkpoint saved --resume auto --respawn\n"};
    return cli_one_run(&args, argc, argv, pl_train);
}
