/* Processes that are copies of this one and run one function. */
#ifndef PL_SYS_PROCESS_H
#define PL_SYS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* Forks; the child is called `name`, runs run(arg) and exits with what that returns, without
 * flushing or freeing what it inherited. Ctrl-C and SIGTERM, which often reach a whole group, are
 * left to the parent; every other signal has its default effect. The pid, or PL_ENOMEM where no
 * more processes can be made. */
int pl_process_start(const char *name, int (*run)(void *arg), void *arg);

/* Ends it at once, also where it is stopped, and takes its status: "left", "was killed by signal 9
 * (Killed)", "failed with status 1". */
void pl_process_end(int pid, char *how, size_t max);

/* The same for one that is ending by itself: nothing is sent to it for as long as `wait_ns`. */
void pl_process_await(int pid, unsigned long wait_ns, char *how, size_t max);

/* Whether somebody has stopped it (SIGSTOP, Ctrl-Z, a debugger). */
bool pl_process_stopped(int pid);

#endif
