#define _GNU_SOURCE
#include "sys/private_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/grow.h"

/* The lock is held across a fork, so that the child finds the list complete. */
static pthread_mutex_t private_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t private_once = PTHREAD_ONCE_INIT;
static int *private_fd;
static size_t private_n, private_room;

static void private_before(void) {
    pthread_mutex_lock(&private_lock);
}

static void private_after(void) {
    pthread_mutex_unlock(&private_lock);
}

/* Calls only what may be called in the child of a process with threads. The number stays in use:
 * the child may close it. */
static void private_in_child(void) {
    int dead = private_n > 0 ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
    for (size_t i = 0; i < private_n; i++)
        if (dead < 0 || dup3(dead, private_fd[i], O_CLOEXEC) < 0) close(private_fd[i]);
    if (dead >= 0) close(dead);
    private_n = 0;
    pthread_mutex_unlock(&private_lock);
}

static void private_begin(void) {
    pthread_atfork(private_before, private_after, private_in_child);
}

void pl_private_fd(int fd) {
    pthread_once(&private_once, private_begin);
    pthread_mutex_lock(&private_lock);
    if (PL_GROW(private_fd, private_room, private_n + 1)) private_fd[private_n++] = fd;
    pthread_mutex_unlock(&private_lock);
}

void pl_private_fd_close(int fd) {
    pthread_mutex_lock(&private_lock);
    size_t i = 0;
    while (i < private_n && private_fd[i] != fd) i++;
    if (i < private_n) private_fd[i] = private_fd[--private_n];
    close(fd);
    pthread_mutex_unlock(&private_lock);
}
