/* The command line: dispatch and help. Each command has a file of its own. */
#include <signal.h>
#include <string.h>

#include "cli.h"

static const struct {
    const char *name, *brief;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"train", "train with real workers on this machine", cli_train},
    {"simulate", "train on a virtual clock, with any number of workers", cli_simulate},
    {"race", "compare several methods on one workload; leaderboard and plot", cli_race},
    {"replay", "repeat a recorded run bit for bit, or with other options", cli_replay},
    {"report", "write an HTML page that shows runs, races and recordings", cli_report_page},
    {"plot", "draw a race or a run again, as SVG or PNG", cli_plot},
    {"eval", "print the loss and accuracy of a checkpoint", cli_eval},
    {"plan", "predict time per update and error for every K from your delays", cli_plan},
    {"list", "list methods, policies, tuners, rules, models, data sets, delay laws", cli_list},
};

#define N_COMMANDS (sizeof commands / sizeof *commands)

static void main_help(FILE *out) {
    fprintf(out,
            "Paceline %s: distributed SGD that keeps its pace when workers straggle, stall, "
            "leave or lie.\n\nusage: paceline COMMAND [--NAME VALUE ...]\n\n",
            pl_version());
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].brief);
    fprintf(out, "\nRun 'paceline COMMAND --help' for details. Try:\n\n"
                 "  paceline race --demo\n"
                 "  paceline simulate --method abs --data digits --delay pareto:shape=2,scale=1\n");
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        main_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        main_help(stdout);
        return cli_finish(CLI_OK);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("paceline %s\n", pl_version());
        return cli_finish(CLI_OK);
    }
    if (strcmp(argv[1], "--man") == 0) {
        cli_man(stdout);
        return cli_finish(CLI_OK);
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return cli_finish(commands[i].run(argc - 1, argv + 1));
    int best = 0;
    const char *near = NULL;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        int like = cli_likeness(argv[1], strlen(argv[1]), commands[i].name);
        if (like > best) {
            best = like;
            near = commands[i].name;
        }
    }
    if (best > 3)
        return cli_fail(CLI_USAGE, "there is no command '%.40s'; did you mean '%s'?", argv[1],
                        near);
    char names[200] = "";
    for (size_t i = 0; i < N_COMMANDS; i++)
        cli_append(names, sizeof names, "%s%s", i ? ", " : "", commands[i].name);
    return cli_fail(CLI_USAGE, "there is no command '%.40s'; the commands are %s", argv[1], names);
}
