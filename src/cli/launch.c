/* paceline launch: starts the workers of a run that are programs of their own, such as Python
 * scripts, tells each who it is, and prints what they print.
 *
 * Every worker is the leader of a process group, so that a signal reaches what it started too. */
#define _GNU_SOURCE /* pipe2 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

#define LAUNCH_MAX 256
#define LAUNCH_SOCKET "run.socket"
#define LAUNCH_LINE 4096      /* longer lines are printed in parts */
#define LAUNCH_GRACE_S 10     /* from Ctrl-C until what is left is killed */
#define LAUNCH_BACK_OFF_S 60  /* the longest pause before a restart */
#define LAUNCH_STEADY_S 60    /* a worker that ran so long is restarted at once */
#define LAUNCH_QUICK_DEATHS 8 /* in a row, after which a worker is given up */

/* One of the two streams of a worker. */
struct launch_stream {
    int fd; /* -1: closed */
    FILE *to;
    size_t n;
    char line[LAUNCH_LINE];
};

struct launch_worker {
    pid_t pid; /* 0: it does not run */
    int rank, status;
    double began, again; /* again: when to restart it; 0: not */
    int quick_deaths;
    struct launch_stream stream[2];
};

struct launch {
    int n;
    bool respawn, colour;
    char folder[200]; /* of the socket, for this launch */
    char **command;
    struct launch_worker *worker;
};

static volatile sig_atomic_t launch_signal, launch_signals;

static void launch_catch(int number) {
    launch_signals = cli_signal(number);
    launch_signal = number;
}

/* --- the folder -------------------------------------------------------------------------- */

/* A folder of this user that others cannot write to, and the one of this launch in it, which rank 0
 * makes. */
static int launch_folder(struct launch *l) {
    const char *tmp = getenv("TMPDIR");
    char base[120];
    struct stat st;
    int n =
        snprintf(base, sizeof base, "%s/paceline-%ld", tmp && *tmp ? tmp : "/tmp", (long)getuid());
    if (n < 0 || (size_t)n >= 60) snprintf(base, sizeof base, "/tmp/paceline-%ld", (long)getuid());
    if (mkdir(base, 0700) && errno != EEXIST)
        return cli_fail(CLI_FAILED, "folder '%s' cannot be made: %s", base, strerror(errno));
    if (lstat(base, &st) || !S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 022))
        return cli_fail(CLI_FAILED,
                        "'%s' must be a folder that only this user can write to; remove it, or set "
                        "TMPDIR",
                        base);
    snprintf(l->folder, sizeof l->folder, "%s/launch-%ld", base, (long)getpid());
    return CLI_OK;
}

/* Rank 0 removes the folder, unless it was killed. Every run has a socket of its own there, and
 * files whose names begin with that of the socket. */
static void launch_clean(const struct launch *l) {
    DIR *folder = opendir(l->folder);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (strncmp(entry->d_name, LAUNCH_SOCKET, strlen(LAUNCH_SOCKET)) == 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder) closedir(folder);
    rmdir(l->folder);
}

/* --- starting ---------------------------------------------------------------------------- */

static void launch_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* The child: tells the program who it is, and becomes it. */
static void launch_become(const struct launch *l, int rank, bool again, const int out[2]) {
    char text[300];
    int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    if (nothing >= 0) dup2(nothing, 0);
    dup2(out[0], 1);
    dup2(out[1], 2);
    snprintf(text, sizeof text, "rank=%d,workers=%d,socket=%s/" LAUNCH_SOCKET "%s", rank, l->n,
             l->folder, again ? ",restarted=yes" : "");
    setenv("PACELINE", text, 1);
    launch_number("RANK", rank);
    launch_number("LOCAL_RANK", rank);
    launch_number("WORLD_SIZE", l->n);
    launch_number("LOCAL_WORLD_SIZE", l->n);
    if (!getenv("OMP_NUM_THREADS")) {
        int threads = pl_cores() / l->n;
        launch_number("OMP_NUM_THREADS", threads > 1 ? threads : 1);
    }
    setenv("PYTHONUNBUFFERED", "1", 0);
    execvp(l->command[0], l->command);
    fprintf(stderr, "paceline: '%.100s' cannot be started: %s\n", l->command[0], strerror(errno));
    _exit(127);
}

static int launch_start(const struct launch *l, struct launch_worker *w) {
    int pipes[2][2] = {{-1, -1}, {-1, -1}};
    bool ok = pipe2(pipes[0], O_CLOEXEC) == 0 && pipe2(pipes[1], O_CLOEXEC) == 0;
    bool again = w->began > 0;
    w->began = cli_now();
    w->again = 0;
    w->pid = ok ? fork() : -1;
    if (w->pid == 0) launch_become(l, w->rank, again, (int[]){pipes[0][1], pipes[1][1]});
    for (int i = 0; i < 2; i++) {
        if (pipes[i][1] >= 0) close(pipes[i][1]);
        if (w->pid < 0 && pipes[i][0] >= 0) close(pipes[i][0]);
        w->stream[i].fd = w->pid < 0 ? -1 : pipes[i][0];
        w->stream[i].n = 0;
    }
    if (w->pid > 0) {
        setpgid(w->pid, w->pid); /* the child does the same: either may be first */
        return CLI_OK;
    }
    w->pid = 0;
    return cli_fail(CLI_FAILED, "rank %d cannot be started: %s", w->rank, strerror(errno));
}

/* --- printing ---------------------------------------------------------------------------- */

static void launch_print(const struct launch *l, const struct launch_worker *w,
                         struct launch_stream *s) {
    if (s->n == 0) return;
    if (l->colour)
        fprintf(s->to, "\033[%dm[%d]\033[0m ", 31 + w->rank % 6, w->rank);
    else
        fprintf(s->to, "[%d] ", w->rank);
    fwrite(s->line, 1, s->n, s->to);
    if (s->line[s->n - 1] != '\n') fputc('\n', s->to);
    fflush(s->to);
    s->n = 0;
}

/* Reads what is there, and prints whole lines. */
static void launch_read(const struct launch *l, const struct launch_worker *w,
                        struct launch_stream *s) {
    char some[LAUNCH_LINE];
    ssize_t got = read(s->fd, some, sizeof some);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    for (ssize_t i = 0; i < got; i++) {
        s->line[s->n++] = some[i];
        if (some[i] == '\n' || s->n == sizeof s->line) launch_print(l, w, s);
    }
    if (got > 0) return;
    launch_print(l, w, s);
    close(s->fd);
    s->fd = -1;
}

/* Prints what is there within some time; false: there is nothing. */
static bool launch_poll(const struct launch *l, int ms) {
    struct pollfd polled[2 * LAUNCH_MAX];
    struct launch_stream *stream[2 * LAUNCH_MAX];
    struct launch_worker *whose[2 * LAUNCH_MAX];
    nfds_t n = 0;
    for (int i = 0; i < 2 * l->n; i++) {
        struct launch_stream *s = &l->worker[i / 2].stream[i % 2];
        if (s->fd < 0) continue;
        polled[n] = (struct pollfd){.fd = s->fd, .events = POLLIN};
        whose[n] = &l->worker[i / 2];
        stream[n++] = s;
    }
    if (poll(polled, n, ms) <= 0) return false;
    for (nfds_t i = 0; i < n; i++)
        if (polled[i].revents) launch_read(l, whose[i], stream[i]);
    return true;
}

/* --- ending ------------------------------------------------------------------------------ */

/* A worker has ended: says why if it failed, and decides whether it is started again. */
static void launch_ended(const struct launch *l, struct launch_worker *w, int status, bool over) {
    double now = cli_now(), ran = now - w->began;
    int pid = (int)w->pid;
    w->pid = 0;
    w->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (w->status == 0 || over) return;
    kill(-pid, SIGTERM); /* what it left behind */
    if (WIFSIGNALED(status))
        cli_fail(0, "rank %d was killed by signal %d after %.3g s", w->rank, WTERMSIG(status), ran);
    else
        cli_fail(0, "rank %d failed with status %d after %.3g s", w->rank, w->status, ran);
    if (!l->respawn) return;
    w->quick_deaths = ran < LAUNCH_STEADY_S ? w->quick_deaths + 1 : 0;
    if (w->quick_deaths >= LAUNCH_QUICK_DEATHS) {
        cli_fail(0, "rank %d failed %d times in a row and is not started again", w->rank,
                 w->quick_deaths);
        return;
    }
    double pause = w->quick_deaths > 0 ? (double)(1 << (w->quick_deaths - 1)) / 2 : 0;
    w->again = now + (pause < LAUNCH_BACK_OFF_S ? pause : LAUNCH_BACK_OFF_S);
}

static void launch_kill(const struct launch *l, int number) {
    for (int i = 0; i < l->n; i++)
        if (l->worker[i].pid > 0) kill(-l->worker[i].pid, number);
}

/* Whether a worker runs or will; collects those that have ended, and restarts others. */
static bool launch_look(const struct launch *l, bool over) {
    bool any = false;
    for (int i = 0; i < l->n; i++) {
        struct launch_worker *w = &l->worker[i];
        int status;
        if (w->pid > 0 && waitpid(w->pid, &status, WNOHANG) == w->pid)
            launch_ended(l, w, status, over);
        /* once rank 0 has ended in good order, there is no run to return to */
        bool ended = over || (l->worker[0].pid == 0 && l->worker[0].status == 0);
        if (ended && w->again > 0) w->again = w->status = 0;
        if (w->pid == 0 && w->again > 0 && cli_now() >= w->again) launch_start(l, w);
        any = any || w->pid > 0 || w->again > 0;
    }
    return any;
}

/* Waits for all workers; returns the exit status. */
static int launch_wait(const struct launch *l) {
    double kill_at = 0;
    int seen = 0, status = CLI_OK;
    while (launch_look(l, seen > 0)) {
        launch_poll(l, 50);
        if (launch_signals > seen) {
            bool first = seen == 0;
            seen = launch_signals;
            if (first)
                cli_say(NULL, PL_NOTE,
                        "interrupted; the workers are ending, a second signal kills them");
            launch_kill(l, first ? launch_signal : SIGKILL);
            if (first) kill_at = cli_now() + LAUNCH_GRACE_S;
        }
        if (kill_at > 0 && cli_now() > kill_at) launch_kill(l, SIGKILL);
    }
    /* what they printed last; what they started may hold the streams open, and is not waited for */
    for (int i = 0; i < 100 && launch_poll(l, 0); i++) continue;
    for (int i = 0; i < l->n; i++)
        if (status == CLI_OK) status = l->worker[i].status;
    return seen > 0 ? 128 + launch_signal : status;
}

/* --- the command ------------------------------------------------------------------------- */

static int launch_run(struct launch *l) {
    struct sigaction act = {.sa_handler = launch_catch};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    l->colour = isatty(1) && !getenv("NO_COLOR");
    l->worker = calloc((size_t)l->n, sizeof *l->worker);
    int status = l->worker ? launch_folder(l) : cli_fail(CLI_FAILED, "out of memory");
    for (int i = 0; status == CLI_OK && i < l->n; i++) {
        struct launch_worker *w = &l->worker[i];
        *w = (struct launch_worker){.rank = i, .stream = {{.fd = -1}, {.fd = -1}}};
        w->stream[0].to = stdout;
        w->stream[1].to = stderr;
    }
    for (int i = 0; status == CLI_OK && i < l->n; i++) status = launch_start(l, &l->worker[i]);
    if (status != CLI_OK && l->worker) launch_kill(l, SIGTERM);
    if (status == CLI_OK) status = launch_wait(l);
    if (l->folder[0]) launch_clean(l);
    free(l->worker);
    return status;
}

static int launch_count(const char *text, int *out) {
    char *end;
    if (!text)
        return cli_fail(CLI_USAGE, "launch needs a number of workers and a program: paceline "
                                   "launch -n 4 -- PROGRAM");
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > LAUNCH_MAX)
        return cli_fail(CLI_USAGE, "-n %.20s is not a number of workers from 1 to %d", text,
                        LAUNCH_MAX);
    *out = (int)n;
    return CLI_OK;
}

/* Returns the place of the first word that is neither a flag nor the value of --workers, or n. */
static int launch_word(int n, char **argv) {
    for (int i = 1; i < n; i++) {
        if (strcmp(argv[i], "--workers") == 0)
            i++;
        else if (argv[i][0] != '-')
            return i;
    }
    return n;
}

/* Says what to write instead of a word before "--", which is at `split`. */
static int launch_misplaced(int argc, char **argv, int at, int split) {
    const char *count = "N", *program = argv[at];
    bool number = program[strspn(program, "0123456789")] == '\0';
    if (number) {
        int next = split < argc ? split + 1 : at + 1;
        count = program;
        program = next < argc ? argv[next] : "PROGRAM";
    }
    return cli_fail(CLI_USAGE, "put %s before the %s: paceline launch -n %.20s -- %.60s ...",
                    number ? "-n" : "--", number ? "number of workers" : "program", count, program);
}

int cli_launch(int argc, char **argv) {
    static char workers[] = "--workers";
    bool respawn = false, quiet = false;
    const char *count = NULL;
    const struct cli_flag flags[] = {
        {"workers", "N", "number of workers; -n N is the same", NULL, &count},
        {"respawn", NULL, "restart workers that fail, after a pause that grows", &respawn, NULL},
        {"quiet", NULL, "print no progress, only what the copies print, and warnings", &quiet,
         NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "launch",
        .brief = "start N copies of a program as the workers of one run",
        .usage = "launch -n N [--respawn] [--quiet] -- PROGRAM [ARGUMENT ...]",
        .flag = flags,
        .notes =
            "Every copy has PACELINE=rank=R,workers=N,socket=PATH in its environment, from which\n"
            "paceline.torch knows who it is (docs/from-ddp.md), and RANK, LOCAL_RANK, WORLD_SIZE\n"
            "and LOCAL_WORLD_SIZE. OMP_NUM_THREADS is set to a fair share of the cores unless it\n"
            "is set already. Lines that a copy prints begin with its rank. The server of the run,\n"
            "which rank 0 starts, prints its progress after two seconds. Ctrl-C is passed on to\n"
            "all copies; after ten seconds, or at a second one, what is left is killed. The exit\n"
            "status is that of the first copy whose status is not 0. Example:\n\n"
            "  paceline launch -n 4 -- python3 train.py\n"};
    int n = 1, split = 1;
    while (split < argc && strcmp(argv[split], "--") != 0) split++;
    for (int i = 1; i < split; i++) {
        if (strcmp(argv[i], "-n") == 0) argv[i] = workers;
        if (strcmp(argv[i], "-np") == 0 || strcmp(argv[i], "--np") == 0 ||
            strcmp(argv[i], "--n") == 0)
            return cli_fail(CLI_USAGE, "launch has no option %s; use -n N", argv[i]);
    }
    int word = launch_word(split, argv);
    if (word < split) return launch_misplaced(argc, argv, word, split);
    pl_setup *setup;
    if (pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    int status = cli_parse(&args, split, argv, setup);
    if (status == CLI_OK && !args.helped) status = launch_count(count, &n);
    if (status == CLI_OK && !args.helped && split + 1 >= argc)
        status = cli_fail(CLI_USAGE, "launch needs a program: paceline launch -n %d -- PROGRAM", n);
    pl_setup_free(setup);
    if (status != CLI_OK || args.helped) return status;
    if (quiet) setenv("PACELINE_QUIET", "1", 1);
    struct launch l = {.n = n, .respawn = respawn, .command = argv + split + 1};
    return launch_run(&l);
}
