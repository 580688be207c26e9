/* Settings of claims that another program runs: bench/deep.py trains networks of PyTorch. The
 * program is given `--out FOLDER`, and `--jobs N` and `--quiet` if they are. It appends a line to
 * FOLDER/results.jsonl for every run that has ended, as a race does, and goes on with what is
 * there; it ends with status 0 if all results are there. If it ends with status 77, which means
 * skipped, the last line of its standard output says what is missing: a GPU, or data. A program
 * that cannot be started has failed.
 *
 * FOLDER/setting.json has the command, and how it ended. A setting that is complete is not run
 * again, so what came out can be looked at where the program cannot run. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reproduce.h"

#define PROGRAM_POLL_MS 200
#define PROGRAM_SKIPPED 77
#define PROGRAM_ABSENT 127 /* as a shell has it */

/* --- setting.json ------------------------------------------------------------------------ */

static json_t *program_read(const char *folder) {
    char path[REPRODUCE_PATH + 32];
    snprintf(path, sizeof path, "%s/setting.json", folder);
    return json_load_file(path, 0, NULL);
}

static int program_write(const char *folder, const char *command, bool complete,
                         const char *missing) {
    char path[REPRODUCE_PATH + 32], why[600] = "out of memory";
    snprintf(path, sizeof path, "%s/setting.json", folder);
    json_t *all =
        json_pack("{s:s, s:b, s:s?}", "command", command, "complete", complete, "missing", missing);
    char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    bool bad = !text || pl_write_file(path, text, why, sizeof why);
    json_decref(all);
    free(text);
    return bad ? cli_fail(CLI_FAILED, "%s", why) : CLI_OK;
}

bool cli_program_is_complete(const char *folder) {
    json_t *all = program_read(folder);
    bool complete = json_is_true(json_object_get(all, "complete"));
    json_decref(all);
    return complete;
}

char *cli_program_missing(const char *folder) {
    json_t *all = program_read(folder);
    const char *missing = json_string_value(json_object_get(all, "missing"));
    char *copy = missing ? strdup(missing) : NULL;
    json_decref(all);
    return copy;
}

/* --- the process ------------------------------------------------------------------------- */

static _Noreturn void program_child(char **word, pid_t parent, int out) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || dup2(out, STDOUT_FILENO) < 0) _exit(CLI_FAILED);
    execvp(word[0], word);
    cli_fail(CLI_FAILED,
             "'%s' cannot be started: %s; the paths of claims begin in the source folder", word[0],
             strerror(errno));
    _exit(PROGRAM_ABSENT);
}

/* Keeps the last line that the program prints, until it prints no more. Ctrl-C ends it. */
static void program_listen(pid_t pid, int fd, char *last, size_t max) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    bool ended = false, begins = true;
    for (char c = '\0';;) {
        if (cli_interrupted() && !ended) kill(pid, SIGTERM);
        ended = cli_interrupted();
        if (poll(&polled, 1, PROGRAM_POLL_MS) <= 0) continue;
        ssize_t got = read(fd, &c, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return;
        if (begins) *last = '\0';
        begins = c == '\n';
        if (!begins) cli_append(last, max, "%c", c);
    }
}

/* Returns the program's exit status and its last line. */
static int program_run(char **word, char *last, size_t max) {
    int ends[2], status = 0;
    pid_t self = getpid();
    *last = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) return cli_fail(CLI_FAILED, "%s", strerror(errno));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) program_child(word, self, ends[1]);
    close(ends[1]);
    if (pid > 0) program_listen(pid, ends[0], last, max);
    close(ends[0]);
    if (pid < 0) return cli_fail(CLI_FAILED, "'%s' cannot be started: %s", *word, strerror(errno));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); /* as a shell has it */
}

/* --- a setting --------------------------------------------------------------------------- */

/* Of several processes, each runs its share of the programs. */
static bool program_mine(const struct reproduce *p, const struct claim_setting *s) {
    struct race shared = {0};
    cli_race_share(&shared);
    return shared.shares < 2 || (s - p->claims.setting) % shared.shares == shared.share;
}

/* What an earlier run in the folder was. *done: it is complete. */
static int program_before(const char *folder, const char *command, bool *done) {
    json_t *before = program_read(folder);
    const char *then = json_string_value(json_object_get(before, "command"));
    int status = CLI_OK;
    *done = json_is_true(json_object_get(before, "complete"));
    if (then && strcmp(then, command) != 0)
        status =
            cli_fail(CLI_USAGE, "'%s' has the results of another command: '%.300s'", folder, then);
    json_decref(before);
    return status;
}

int cli_program_part(struct reproduce *p, const struct claim_setting *s, const char *folder,
                     char **word, int n, char **missing) {
    char command[REPRODUCE_COMMAND], last[400];
    bool done = false;
    cli_setting_command(p, s, command, sizeof command);
    int status = program_before(folder, command, &done);
    if (status != CLI_OK || done || !program_mine(p, s)) return status;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return cli_fail(CLI_FAILED, "'%s' cannot be created: %s", folder, strerror(errno));
    if (program_write(folder, command, false, NULL) != CLI_OK) return CLI_FAILED;
    word[n] = (char *)(uintptr_t) "--out";
    word[n + 1] = (char *)(uintptr_t)folder;
    word[n + 2] = NULL;
    cli_catch_signals();
    status = program_run(word, last, sizeof last);
    p->closes = true;
    if (status == PROGRAM_SKIPPED) *missing = strdup(*last ? last : "its program does not say why");
    if (cli_interrupted()) return CLI_FAILED;
    if (status != CLI_OK && !*missing)
        return cli_fail(CLI_FAILED, "setting %s: its program ended with status %d", s->name,
                        status);
    return program_write(folder, command, status == CLI_OK, *missing);
}
