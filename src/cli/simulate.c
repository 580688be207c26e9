/* paceline simulate: one run on a virtual clock. */
#include "cli.h"

int cli_simulate(int argc, char **argv) {
    struct cli_args args = {
        .command = "simulate",
        .brief = "train on a virtual clock, with any number of workers",
        .usage = "simulate [--method METHOD] [--NAME VALUE ...]",
        .options = PL_FOR_SIMULATE,
        .own = PL_FOR_SIMULATE,
        .notes = "'paceline list' shows methods, policies, laws and their options. Examples:\n\n"
                 "  paceline simulate --method gap-aware --lr 0.01 --workers 16 --time 100\n"
                 "  paceline simulate --policy ksync:k=4 --model none --updates 200000 --json\n"};
    return cli_one_run(&args, argc, argv, pl_simulate);
}
