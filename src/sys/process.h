/* Forked processes that run one function. */
#ifndef PL_SYS_PROCESS_H
#define PL_SYS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* Forks a child called `name` that runs run(arg) and exits with its result, without flushing or
 * freeing what it inherited. The child ignores Ctrl-C and SIGTERM, which often reach a whole group,
 * and leaves them to the parent; other signals have their default effect. Returns the pid, or
 * PL_ENOMEM if fork() fails. */
int pl_process_start(const char *name, int (*run)(void *arg), void *arg);

/* Kills the process, even if it is stopped, and describes how it ended: "left", "was killed by
 * signal 9 (Killed)", "failed with status 1". */
void pl_process_end(int pid, char *how, size_t max);

/* The same for a process that is about to exit: gives it `wait_ns` before it is killed. */
void pl_process_await(int pid, unsigned long wait_ns, char *how, size_t max);

/* Tells whether the process is stopped (SIGSTOP, Ctrl-Z, a debugger). */
bool pl_process_stopped(int pid);

#endif
