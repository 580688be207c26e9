/* The runs of a race, side by side: a child process per simulated run, and one for every entrant
 * whose rate is tuned. A child shares the data that the race has opened, and sends lines through a
 * pipe: what is done of its run, or its runs, and at the end what cli_race_take enters. So results
 * do not depend on the number of children, a run that crashes ends nothing else, and the memory is
 * that of as many runs as there are children. Real runs would disturb each other's times, and a
 * dashboard shows runs of its own process: those go one after the other, in this process.
 *
 * Ctrl-C reaches every process of the terminal. Children leave it to the race, which ends them by
 * SIGTERM; the kernel ends those whose race has died. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "race.h"

#define JOBS_REFRESH_MS 200

struct job {
    pid_t pid;
    int fd;              /* the end of the pipe that the race reads */
    struct race_task of; /* what the child does */
    double share;        /* of its run that is done */
    int ended, least;    /* of the runs that find a rate */
    bool reported;       /* it sent its last line */
    char *text;          /* a line that has no end yet */
    size_t n;
};

struct jobs {
    struct race *race;
    race_work work;
    bool tuning[RACE_ENTRANTS]; /* it has begun, */
    bool rated[RACE_ENTRANTS];  /* the entrant may race */
    bool begun[RACE_ENTRANTS][RACE_SEEDS];
    struct job *running;   /* [race->jobs] */
    int n_running, n_left; /* n_left: tasks that have not begun; */
    int n_unrated;         /* those of them that find a rate */
    int n_ended, n_raced;  /* runs that have ended; n_raced: without those that find a rate */
    int status;            /* of the first task that failed */
    bool stop;             /* begin no more: results cannot be written */
};

/* --- the child --------------------------------------------------------------------------- */

/* Threads of one run, unless --threads gives them: the cores, divided by the runs at once. */
static void jobs_share_cores(const struct jobs *j) {
    int at_once = j->n_running + j->n_left, jobs = j->race->jobs;
    char threads[24];
    if (cli_number(j->race->setup, "threads") > 0) return;
    if (at_once > jobs) at_once = jobs;
    if (pl_ranks() > 1) at_once = pl_cores(); /* other ranks may be on this machine */
    snprintf(threads, sizeof threads, "%d", at_once < pl_cores() ? pl_cores() / at_once : 1);
    pl_setup_set(j->race->setup, "threads", threads);
}

static _Noreturn void jobs_child(struct jobs *j, struct race_task task, pid_t race, int fd) {
    char *result = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != race) _exit(CLI_FAILED);
    for (int i = 0; i < j->n_running; i++) close(j->running[i].fd); /* of others */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    cli_progress_into(fd);
    jobs_share_cores(j);
    int status = j->work(j->race, task, &result);
    if (result && dprintf(fd, "%s\n", result) < 0) status = CLI_FAILED;
    fflush(stderr);
    _exit(status);
}

/* False: no process could be started. */
static bool jobs_start(struct jobs *j, struct race_task task) {
    int ends[2];
    pid_t self = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) jobs_child(j, task, self, ends[1]);
    close(ends[1]);
    if (pid < 0) close(ends[0]);
    if (pid > 0)
        j->running[j->n_running++] =
            (struct job){.pid = pid, .fd = ends[0], .of = task, .least = RACE_TUNE_LEAST};
    return pid > 0;
}

/* --- what to do next --------------------------------------------------------------------- */

/* The next task: rates first, so that the longest chain of tasks begins first. */
static bool jobs_next(const struct jobs *j, struct race_task *task) {
    const struct race *r = j->race;
    for (int i = 0; i < r->n; i++) {
        *task = (struct race_task){i, RACE_TUNING};
        if (!j->rated[i] && !j->tuning[i] && cli_race_mine(r, *task)) return true;
    }
    for (int i = 0; i < r->n; i++)
        for (int s = 0; s < r->n_seeds; s++) {
            *task = (struct race_task){i, s};
            if (j->rated[i] && !r->entrant[i].done[s] && !j->begun[i][s] && cli_race_mine(r, *task))
                return true;
        }
    return false;
}

static void jobs_mark(struct jobs *j, struct race_task task) {
    *(task.seed == RACE_TUNING ? &j->tuning[task.entrant] : &j->begun[task.entrant][task.seed]) =
        true;
    j->n_left--;
    if (task.seed == RACE_TUNING) j->n_unrated--;
}

/* Counts what a task has done. */
static void jobs_count(struct jobs *j, struct race_task task, int ended) {
    bool tunes = task.seed == RACE_TUNING;
    j->n_ended += tunes ? ended : 1;
    if (!tunes) j->n_raced++;
}

/* Runs of an entrant that this process has to carry out. */
static int jobs_left(const struct race *r, int i) {
    int n = 0;
    for (int s = 0; s < r->n_seeds; s++)
        n += !r->entrant[i].done[s] && cli_race_mine(r, (struct race_task){i, s});
    return n;
}

static void jobs_failed(struct jobs *j, struct race_task task, int status) {
    if (j->status == CLI_OK) j->status = status;
    const struct race *r = j->race;
    if (task.seed == RACE_TUNING) j->n_left -= jobs_left(r, task.entrant); /* it does not race */
}

/* Enters what a task has found out. */
static void jobs_take(struct jobs *j, struct race_task task, const char *line) {
    int status = cli_race_take(j->race, task, line);
    if (task.seed == RACE_TUNING) j->rated[task.entrant] = true;
    if (status == CLI_OK) return;
    j->stop = true;
    jobs_failed(j, task, status);
}

/* Carries a task out in this process. */
static void jobs_here(struct jobs *j, struct race_task task) {
    char *line = NULL;
    int status = j->work(j->race, task, &line);
    if (line) jobs_take(j, task, line);
    if (status != CLI_OK) jobs_failed(j, task, status);
    jobs_count(j, task, j->race->entrant[task.entrant].n_tried);
    free(line);
}

/* Begins what can begin now. */
static void jobs_begin(struct jobs *j) {
    struct race_task task;
    while (!j->stop && !cli_interrupted() && j->n_running < j->race->jobs && jobs_next(j, &task)) {
        bool here = j->race->serves || (j->race->real && task.seed != RACE_TUNING);
        if (here && j->n_running > 0) return;
        if (!here && !jobs_start(j, task)) {
            if (j->n_running > 0) return; /* later, when there is room */
            here = true;
        }
        jobs_mark(j, task);
        if (here) jobs_here(j, task);
    }
}

/* --- children at work -------------------------------------------------------------------- */

static void jobs_line(struct jobs *j, struct job *c, const char *line) {
    if (sscanf(line, "runs %d %d", &c->ended, &c->least) > 0) return;
    if (*line != '{') {
        c->share = strtod(line, NULL);
        return;
    }
    c->reported = true;
    jobs_take(j, c->of, line);
}

/* A child has ended: says why if it was not by itself. */
static void jobs_ended(struct jobs *j, struct job *c) {
    const char *name = j->race->entrant[c->of.entrant].name;
    int status = 0;
    close(c->fd);
    free(c->text);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    jobs_count(j, c->of, c->ended);
    if (c->reported || cli_interrupted()) return;
    int failed = WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : CLI_FAILED;
    cli_progress_erase();
    if (WIFSIGNALED(status))
        cli_fail(CLI_FAILED, "in '%s': the process of its run was ended by signal %d (%s)%s", name,
                 WTERMSIG(status), strsignal(WTERMSIG(status)),
                 WTERMSIG(status) == SIGKILL
                     ? "; if there was not enough memory, a smaller --jobs needs less"
                     : "");
    else if (WEXITSTATUS(status) == CLI_OK)
        cli_fail(CLI_FAILED, "in '%s': its run ended without a result", name);
    jobs_failed(j, c->of, failed);
}

/* Reads what a child has sent; false: it has ended. */
static bool jobs_read(struct jobs *j, struct job *c) {
    char some[4096], *end;
    ssize_t got = read(c->fd, some, sizeof some);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    char *longer = got > 0 ? realloc(c->text, c->n + (size_t)got + 1) : NULL;
    if (!longer) return false;
    memcpy(longer + c->n, some, (size_t)got);
    c->text = longer;
    c->n += (size_t)got;
    c->text[c->n] = '\0';
    while ((end = memchr(c->text, '\n', c->n))) {
        *end++ = '\0';
        jobs_line(j, c, c->text);
        c->n -= (size_t)(end - c->text);
        memmove(c->text, end, c->n + 1);
    }
    return true;
}

/* A rate that helps is followed by more, so how many runs there will be is known once all entrants
 * have one. With a target, how long a run takes is known once one has reached it. */
static void jobs_show(const struct jobs *j, struct cli_progress *progress) {
    struct cli_progress_runs runs = {.ended = j->n_ended,
                                     .least = j->n_ended + j->n_left +
                                              j->n_unrated * (RACE_TUNE_LEAST - 1),
                                     .known = j->n_unrated == 0,
                                     .steady = !j->race->target || j->n_raced > 0};
    char text[200] = "";
    for (int i = 0; i < j->n_running; i++) {
        const struct job *c = &j->running[i];
        bool tunes = c->of.seed == RACE_TUNING;
        cli_append(text, sizeof text, "%s%s%.40s", i ? ", " : "", tunes ? "tuning " : "",
                   j->race->entrant[c->of.entrant].name);
        if (!tunes) cli_append(text, sizeof text, " %.0f %%", floor(100 * c->share));
        if (!tunes) runs.under_way += c->share;
        runs.least += tunes ? c->least : 1;
        runs.ended += tunes ? c->ended : 0;
        runs.known = runs.known && !tunes;
    }
    cli_progress_many(progress, &runs, text);
}

/* Waits a while for news of the children. */
static void jobs_wait(struct jobs *j, struct cli_progress *progress, struct pollfd *polled) {
    for (int i = 0; i < j->n_running; i++)
        polled[i] = (struct pollfd){.fd = j->running[i].fd, .events = POLLIN};
    if (poll(polled, (nfds_t)j->n_running, JOBS_REFRESH_MS) > 0)
        for (int i = j->n_running - 1; i >= 0; i--)
            if (polled[i].revents && !jobs_read(j, &j->running[i])) {
                jobs_ended(j, &j->running[i]);
                j->running[i] = j->running[--j->n_running];
            }
    if (!j->stop && !cli_interrupted()) jobs_show(j, progress); /* else runs end unfinished */
}

static void jobs_terminate(const struct jobs *j) {
    for (int i = 0; i < j->n_running; i++) kill(j->running[i].pid, SIGTERM);
}

/* Counts what is to do. */
static void jobs_plan(struct jobs *j) {
    const struct race *r = j->race;
    for (int i = 0; i < r->n; i++) {
        const struct race_entrant *e = &r->entrant[i];
        j->rated[i] = !r->tune || isfinite(e->tuned) || cli_race_has_rate(e);
        j->n_left += jobs_left(r, i);
        if (!j->rated[i]) j->n_unrated += cli_race_mine(r, (struct race_task){i, RACE_TUNING});
    }
    j->n_left += j->n_unrated;
}

int cli_race_jobs(struct race *r, race_work work) {
    struct jobs *j = calloc(1, sizeof *j);
    struct job *running = calloc((size_t)r->jobs, sizeof *running);
    struct pollfd *polled = calloc((size_t)r->jobs, sizeof *polled);
    struct cli_progress progress = {0};
    int status = CLI_FAILED;
    bool ended = false;
    if (j && running && polled) {
        *j = (struct jobs){.race = r, .work = work, .running = running};
        jobs_plan(j);
        cli_progress_begin(&progress, "", r->quiet ? CLI_PROGRESS_QUIET : CLI_PROGRESS_ALL,
                           r->setup);
        for (jobs_begin(j); j->n_running > 0; jobs_begin(j)) {
            bool end = j->stop || cli_interrupted();
            if (end && !ended) jobs_terminate(j);
            ended = end;
            jobs_wait(j, &progress, polled);
        }
        cli_progress_end(&progress);
        status = j->status;
    } else {
        cli_fail(CLI_FAILED, "out of memory");
    }
    free(polled);
    free(running);
    free(j);
    return status;
}
