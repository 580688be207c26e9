/* paceline serve: the server of a run whose workers are on other machines. */
#include "cli.h"

int cli_serve(int argc, char **argv) {
    static const char *const preset[] = {"spawn", "none", "listen", "127.0.0.1:7070", NULL};
    struct cli_args args = {
        .command = "serve",
        .brief = "serve a run whose workers join from other machines",
        .usage = "serve [--listen HOST:PORT] [--keys DIR] [--NAME VALUE ...]",
        .options = PL_FOR_TRAIN,
        .own = PL_FOR_TRAIN,
        .preset = preset,
        .notes =
            "This is train --spawn none, at --listen 127.0.0.1:7070 unless given. Workers "
            "join and\n"
            "leave at any time: with paceline work, or PyTorch programs with "
            "PACELINE=https://HOST:PORT.\n"
            "Other machines need certificates. Example, of two machines:\n\n"
            "  paceline keys --out keys --host server.lab\n"
            "  paceline keys --out keys --name alice        # copy keys/alice to her machine\n"
            "  paceline serve --data digits --workers 4 --listen 0.0.0.0:7070 --keys keys\n"
            "  paceline work server.lab:7070 --keys alice   # there\n\n"
            "A standby gets the run from the server that it follows, and takes over if that dies:"
            "\n\n"
            "  paceline serve --standby https://server.lab:7070 --listen other.lab:7070 \\\n"
            "      --keys keys\n"};
    return cli_one_run(&args, argc, argv, pl_train);
}
