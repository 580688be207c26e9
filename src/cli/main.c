/* The command line: dispatch and help. Each command has a file of its own. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define MAIN_BLAS_BUFFER ((size_t)128 << 20) /* that OpenBLAS maps per thread */

static const struct cli_command main_commands[] = {
    {"train", "train with real workers on this machine", cli_train},
    {"simulate", "train on a virtual clock, with any number of workers", cli_simulate},
    {"serve", "serve a run whose workers join from other machines", cli_serve},
    {"work", "compute for a server on another machine", cli_work},
    {"keys", "make the certificates of a server and its workers", cli_keys},
    {"launch", "start copies of a program as the workers of one run", cli_launch},
    {"race", "compare several methods on one workload; leaderboard and plot", cli_race},
    {"replay", "repeat a recorded run bit for bit, or with other options", cli_replay},
    {"report", "write an HTML page that shows runs, races and recordings", cli_report_page},
    {"eval", "print the loss and accuracy of a checkpoint", cli_eval},
    {"predict", "predict new rows by a checkpoint, as CSV", cli_predict},
    {"plan", "predict time per update and error for every K from your delays", cli_plan},
    {"reproduce", "run the claims of papers and say which of them are shown", cli_reproduce},
    {"list", "explain a method or part, or list them all", cli_list},
    {NULL, NULL, NULL},
};

static void main_help(FILE *out) {
    fprintf(out,
            "Paceline %s: distributed SGD that keeps its pace when workers straggle,\n"
            "stall, leave or lie.\n\nusage: paceline COMMAND [--NAME VALUE ...]\n\n",
            pl_version());
    for (const struct cli_command *c = main_commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->brief);
    fprintf(out, "\nRun 'paceline help COMMAND' for details. Try:\n\n"
                 "  paceline race --demo\n"
                 "  paceline simulate --method abs --data digits --delay pareto:shape=2,scale=1\n"
                 "  paceline list abs\n");
}

static const struct cli_command *main_find(const char *name) {
    for (const struct cli_command *c = main_commands; c->name; c++)
        if (strcmp(name, c->name) == 0) return c;
    return NULL;
}

static int main_unknown(const char *name) {
    int best = 0;
    const char *near = NULL;
    char names[200] = "", hint[200];
    for (const struct cli_command *c = main_commands; c->name; c++) {
        int like = cli_likeness(name, strlen(name), c->name);
        if (like > best) near = c->name;
        if (like > best) best = like;
        cli_append(names, sizeof names, "%s%s", c > main_commands ? ", " : "", c->name);
    }
    if (pl_hint("command", name, hint, sizeof hint))
        return cli_fail(CLI_USAGE, "there is no command '%.40s'; use %s", name, hint);
    if (best > 3)
        return cli_fail(CLI_USAGE, "there is no command '%.40s'; did you mean '%s'?", name, near);
    return cli_fail(CLI_USAGE, "there is no command '%.40s'; the commands are %s", name, names);
}

/* paceline help [COMMAND] */
static int main_help_for(int argc, char **argv) {
    if (argc == 0) {
        main_help(stdout);
        return CLI_OK;
    }
    const struct cli_command *command = main_find(argv[0]);
    if (argc > 1) return cli_fail(CLI_USAGE, "help takes one command: paceline help COMMAND");
    if (!command && strcmp(argv[0], "completion") == 0) {
        puts("paceline completion: print the completion of a shell\n\n"
             "usage: paceline completion bash|zsh\n\n"
             "  source <(paceline completion bash)");
        return CLI_OK;
    }
    if (!command) return main_unknown(argv[0]);
    char help[] = "--help", *args[] = {argv[0], help, NULL};
    return command->run(2, args);
}

/* OpenBLAS starts threads before main(), and each maps a buffer; one that cannot tries for ever,
 * and the process then waits for it at its end. Little address space (ulimit -v) is left to the
 * threads that this program starts: it begins again without those of OpenBLAS, which it does not
 * use. */
static void main_spare_threads(char **argv) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (getenv("OPENBLAS_NUM_THREADS")) return;
    void *volatile room = malloc((size_t)(cores > 0 ? cores : 1) * MAIN_BLAS_BUFFER);
    bool fits = room != NULL;
    free(room);
    if (!fits && setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0) execv("/proc/self/exe", argv);
}

/* A file or a socket that got the number of a closed standard stream would be given what is printed
 * there. Streams that are closed get the null device, for the wrong direction: using them is still
 * an error. */
static bool main_hold_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* Races are shared by the processes of a launcher that says how many there are. */
static bool main_uses_one_process(const struct cli_command *c) {
    if (c->run == cli_race || c->run == cli_reproduce) return pl_ranks() < 2;
    return c->run != cli_train && c->run != cli_serve && c->run != cli_work && c->run != cli_launch;
}

int main(int argc, char **argv) {
    static char line[BUFSIZ];
    if (!main_hold_streams()) return CLI_FAILED;
    setvbuf(stderr, line, _IOLBF, sizeof line); /* lines of several processes do not mix */
    main_spare_threads(argv);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a write error, which is reported */
    if (argc < 2) {
        main_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cli_finish(main_help_for(0, NULL));
    if (strcmp(argv[1], "help") == 0) return cli_finish(main_help_for(argc - 2, argv + 2));
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("paceline %s (%s)\n", pl_version(), pl_instruction_set());
        return cli_finish(CLI_OK);
    }
    if (strcmp(argv[1], "--man") == 0) {
        cli_man(stdout, main_commands);
        return cli_finish(CLI_OK);
    }
    if (strcmp(argv[1], "completion") == 0)
        return cli_finish(cli_completion(argc - 1, argv + 1, main_commands));
    const struct cli_command *command = main_find(argv[1]);
    bool ranks_idle = command && pl_rank() >= 0 && main_uses_one_process(command);
    if (ranks_idle && pl_rank() > 0) return CLI_OK;
    if (ranks_idle)
        cli_say(NULL, PL_WARNING,
                "this command uses one process, but a launcher such as mpirun started several: "
                "rank 0 runs it, and the others do nothing");
    return command ? cli_finish(command->run(argc - 1, argv + 1)) : main_unknown(argv[1]);
}
