#define _GNU_SOURCE
#include "sys/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

static void process_signals(void) {
    struct sigaction before;
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP && sigaction(number, NULL, &before) == 0 &&
            before.sa_handler != SIG_IGN)
            signal(number, SIG_DFL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* What OpenBLAS does at every fork(): it stops its threads, and waits for those that still try to
 * map memory. It is no part of its interface, so it may be missing. */
extern int blas_thread_shutdown_(void) __attribute__((weak));

int pl_process_start(const char *name, int (*run)(void *arg), void *arg) {
    if (blas_thread_shutdown_) blas_thread_shutdown_(); /* while signals can still end the wait */
    /* the child must not receive a signal while it has its parent's handlers */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        process_signals();
        prctl(PR_SET_NAME, name);
        _exit(run(arg));
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid > 0 ? (int)pid : PL_ENOMEM;
}

static void process_tell(int status, char *how, size_t max) {
    if (WIFSIGNALED(status))
        snprintf(how, max, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        snprintf(how, max, "failed with status %d", WEXITSTATUS(status));
    else
        snprintf(how, max, "left");
}

void pl_process_kill(int pid) {
    kill(pid, SIGKILL);
}

void pl_process_end(int pid, char *how, size_t max) {
    pl_process_await(pid, 0, how, max);
}

void pl_process_await(int pid, unsigned long wait_ns, char *how, size_t max) {
    const struct timespec nap = {.tv_nsec = 2000000};
    int status = 0;
    pid_t rc;
    snprintf(how, max, "left");
    for (unsigned long waited = 0; waited < wait_ns; waited += (unsigned long)nap.tv_nsec) {
        rc = waitpid(pid, &status, WNOHANG);
        if (rc == pid) {
            process_tell(status, how, max);
            return;
        }
        if (rc < 0 && errno != EINTR) return; /* its status was already collected elsewhere */
        nanosleep(&nap, NULL);
    }
    kill(pid, SIGKILL);
    do rc = waitpid(pid, &status, 0);
    while (rc < 0 && errno == EINTR);
    if (rc == pid) process_tell(status, how, max);
}

static void process_close(unsigned from, unsigned to) {
    if (from > to || close_range(from, to, 0) == 0) return;
    long most = sysconf(_SC_OPEN_MAX); /* a kernel before 5.9 */
    for (long fd = from; fd < most && fd <= (long)to; fd++) close((int)fd);
}

void pl_process_keep_only(int fd) {
    unsigned first = STDERR_FILENO + 1;
    if (fd < (int)first) {
        process_close(first, ~0u);
        return;
    }
    process_close(first, (unsigned)fd - 1);
    process_close((unsigned)fd + 1, ~0u);
}

bool pl_process_stopped(int pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *end = strrchr(text, ')'); /* the name before it may contain any character */
    return end && strlen(end) > 2 && (end[2] == 'T' || end[2] == 't');
}
