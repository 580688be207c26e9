/* Forked processes that run one function. */
#ifndef PL_SYS_PROCESS_H
#define PL_SYS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* Forks a child called `name` that runs run(arg) and exits with its result, without flushing or
 * freeing what it inherited. The child ignores Ctrl-C, SIGTERM and SIGHUP, which often reach a
 * whole group, and leaves them to the parent. Signals that the parent ignores, as under nohup, stay
 * ignored; the others have their default effect. Returns the pid, or PL_ENOMEM if
 * fork() fails; errno has the reason. */
int pl_process_start(const char *name, int (*run)(void *arg), void *arg);

/* Kills the process, even if it is stopped. Its status is collected later. */
void pl_process_kill(int pid);

/* The same, and waits for its end and describes how it ended: "left", "was killed by
 * signal 9 (Killed)", "failed with status 1". */
void pl_process_end(int pid, char *how, size_t max);

/* The same for a process that is about to exit: gives it `wait_ns` before it is killed. */
void pl_process_await(int pid, unsigned long wait_ns, char *how, size_t max);

/* In a new process: closes every descriptor except the standard streams and fd. What other runs and
 * threads of the parent have open would stay open as long as this process lives: sockets whose end
 * others wait for, files, ports. */
void pl_process_keep_only(int fd);

/* Tells whether the process is stopped (SIGSTOP, Ctrl-Z, a debugger). */
bool pl_process_stopped(int pid);

#endif
