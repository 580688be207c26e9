/* paceline work: a worker for a server on another machine. */
#include "cli.h"

static int work_tick(void *ctx, const struct pl_point *p) {
    (void)ctx, (void)p;
    return cli_interrupted();
}

static int work_run(const struct cli_args *args, pl_setup *setup, void *ctx) {
    const char *const *keys = ctx;
    cli_catch_signals();
    pl_setup_log(setup, cli_say, NULL);
    pl_setup_watch(setup, NULL, work_tick, NULL);
    return cli_failed(pl_work(setup, args->word[0], *keys), setup);
}

int cli_work(int argc, char **argv) {
    const char *keys = NULL;
    const struct cli_flag flags[] = {
        {"keys", "DIR", "folder of this worker's certificate (paceline keys)", NULL, &keys},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "work",
        .brief = "compute for a server on another machine",
        .usage = "work HOST:PORT[,HOST:PORT] [--keys DIR] [--data DATA] [--threads N]",
        .options = PL_FOR_WORK,
        .own = PL_FOR_WORK,
        .flag = flags,
        .one_word = "work takes one server: paceline work HOST:PORT",
        .restores = true,
        .notes = "Model, data and method are the server's (paceline serve); data that is a file "
                 "must be\n"
                 "given here. A second address is that of a standby. The worker joins again by "
                 "itself\n"
                 "after the server or the network was away.\n"
                 "Ctrl-C, SIGTERM or SIGHUP makes it leave: the server knows at once. Examples:\n\n"
                 "  paceline work server.lab:7070 --keys keys\n"
                 "  paceline work 127.0.0.1:7070\n"};
    return cli_with_setup(&args, argc, argv, work_run, &keys);
}
