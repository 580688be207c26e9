/* Threads: any. */
#define _GNU_SOURCE
#include "transport/greeting.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

union greeting_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(PL_MORE_FILES * sizeof(int))];
};

bool pl_greeting_kin(int sock) {
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && n == sizeof peer &&
           peer.uid == geteuid();
}

bool pl_greeting_send(int sock, const void *data, size_t n, const int *fd, int n_fds) {
    union greeting_control control = {.bytes = {0}};
    struct iovec part = {(void *)(uintptr_t)data, n};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    size_t bytes = (size_t)n_fds * sizeof *fd;
    if (n_fds > PL_MORE_FILES) return false;
    if (n_fds > 0) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(c), fd, bytes);
    }
    return sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* Takes the descriptors out of a message; closes those for which there is no room. */
static int greeting_files(struct msghdr *m, int *fd, int room) {
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int one;
            memcpy(&one, CMSG_DATA(c) + at, sizeof one);
            if (n < room)
                fd[n++] = one;
            else
                close(one);
        }
    }
    return n;
}

int pl_greeting_receive(int sock, void *data, size_t n, int *fd, int room, int *n_fds, int ms) {
    union greeting_control control;
    struct iovec part = {data, n};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    struct pollfd p = {.fd = sock, .events = POLLIN};
    *n_fds = 0;
    int found = poll(&p, 1, ms);
    if (found < 0) return errno == EINTR ? PL_EINTR : PL_EDATA;
    if (found == 0) return PL_ETIMEDOUT;
    ssize_t got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    /* the other end has left something unread, but may have answered before */
    if (got < 0 && errno == ECONNRESET) got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) return PL_EDATA;
    *n_fds = greeting_files(&m, fd, room);
    if (got == (ssize_t)n && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) return PL_OK;
    for (int i = 0; i < *n_fds; i++) close(fd[i]);
    *n_fds = 0;
    return PL_EDATA;
}

bool pl_greeting_printable(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return n > 0 && n < PL_WORD_MAX;
}

bool pl_greeting_said(const char *data, size_t n, struct pl_said *out) {
    if (n < 1) return false;
    *out = (struct pl_said){.what = data[0]};
    switch (out->what) {
    case PL_SAID_READY: return true;
    case PL_SAID_WORD:
        out->word = data + 1;
        out->n = n - 1;
        return pl_greeting_printable(out->word, out->n);
    case PL_SAID_ASK:
    case PL_SAID_DONE:
        if (n != 1 + sizeof out->number) return false;
        memcpy(&out->number, data + 1, sizeof out->number);
        return true;
    default: return false;
    }
}

/* HOST:PORT, as other options take it. */
static bool greeting_is_port(const char *path) {
    const char *colon = strrchr(path, ':');
    if (!colon || strchr(path, '/') || !colon[1]) return false;
    for (const char *c = colon + 1; *c; c++)
        if (!isdigit((unsigned char)*c)) return false;
    return true;
}

int pl_greeting_address(const char *path, struct sockaddr_un *a, struct pl_why *why) {
    size_t n = strlen(path);
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n == 0 || n >= sizeof a->sun_path)
        return pl_fail(why, PL_EUSAGE,
                       "'%.200s' cannot be the path of a socket; use a path of 1 to %zu bytes",
                       path, sizeof a->sun_path - 1);
    if (greeting_is_port(path))
        return pl_fail(why, PL_EUSAGE,
                       "'%.200s' looks like HOST:PORT, but workers join through a socket file on "
                       "the same machine; use a path such as run.socket, or ./%.200s",
                       path, path);
    memcpy(a->sun_path, path, n + 1);
    return PL_OK;
}
