/* Threads: liveness_watch() and what it calls (liveness_gather, liveness_attend, liveness_welcome)
 * run in a thread of their own, which shares with the owner of the port what the lock protects. A
 * worker's end runs in the worker. */
#define _GNU_SOURCE
#include "transport/liveness.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"
#include "sys/lock.h"
#include "sys/thread.h"

#define LIVENESS_MAGIC UINT64_C(0x656e696c65636170) /* "paceline" */
#define LIVENESS_VERSION 3
#define LIVENESS_WAIT_MS 10000 /* for the greeting */
#define LIVENESS_DEAF_MS 1000  /* without new guests after accept() failed */
#define LIVENESS_LOST (POLLHUP | POLLERR | POLLNVAL | POLLRDHUP)

enum liveness_answer { LIVENESS_WELCOME, LIVENESS_FULL, LIVENESS_STRANGER };

/* What a guest is sent, with the descriptor of the segment. Both are on the same machine. */
struct liveness_hello {
    uint64_t magic;
    uint32_t version, answer, worker, owner;
    uint64_t n_workers, dim, n_versions, n_slots, size;
};

struct liveness_ends {
    int ours, theirs; /* of a worker's socket; -1: not open in this process */
};

struct pl_liveness {
    struct pl_liveness_conf conf;
    struct sockaddr_un address; /* of the listener */
    dev_t dev;
    ino_t ino;
    int listener, wakeup; /* -1: none; an eventfd that wakes the watcher */
    struct pl_thread *watcher;

    struct pl_lock *lock; /* of what follows, up to the next blank line */
    struct liveness_ends *ends;
    int making; /* expected, and not yet made */
    bool quit;

    struct pollfd *polled; /* the watcher's: [2 + n_workers], and whose they are */
    int *whose;
    bool deaf;
};

static void liveness_drop(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void liveness_wake_watcher(struct pl_liveness *l) {
    uint64_t one = 1;
    if (write(l->wakeup, &one, sizeof one) < 0)
        return; /* the counter is full, so the watcher is awake */
}

/* --- guests ------------------------------------------------------------------------------ */

/* The process at the other end belongs to the same user. */
static bool liveness_kin(int sock) {
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && n == sizeof peer &&
           peer.uid == geteuid();
}

static bool liveness_send(int sock, struct liveness_hello *hello, int fd) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {hello, sizeof *hello};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *hello;
}

static void liveness_welcome(struct pl_liveness *l) {
    const struct pl_shape *s = &l->conf.shape;
    struct liveness_hello hello = {.magic = LIVENESS_MAGIC,
                                   .version = LIVENESS_VERSION,
                                   .n_workers = s->n_workers,
                                   .dim = s->dim,
                                   .n_versions = s->n_versions,
                                   .n_slots = s->n_slots,
                                   .size = s->size};
    int sock = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (sock < 0) {
        /* out of descriptors, perhaps: the guest still waits, and polling on would spin */
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) l->deaf = true;
        return;
    }
    unsigned owner = 0;
    int worker = -1;
    if (!liveness_kin(sock))
        hello.answer = LIVENESS_STRANGER;
    else if ((worker = l->conf.admit(l->conf.ctx, &owner)) < 0)
        hello.answer = LIVENESS_FULL;
    hello.worker = worker < 0 ? 0 : (uint32_t)worker;
    hello.owner = owner;
    bool sent = liveness_send(sock, &hello, worker < 0 ? -1 : l->conf.segment);
    if (worker >= 0 && sent) {
        l->ends[worker].ours = sock;
        return;
    }
    close(sock);
    if (worker >= 0) l->conf.gone(l->conf.ctx, worker);
}

/* --- the watcher ------------------------------------------------------------------------- */

/* What to watch now: the eventfd, the listener, all sockets. */
static nfds_t liveness_gather(struct pl_liveness *l) {
    nfds_t n = 2;
    bool open = l->making == 0 && !l->deaf;
    l->polled[0] = (struct pollfd){.fd = l->wakeup, .events = POLLIN};
    l->polled[1] = (struct pollfd){.fd = open ? l->listener : -1, .events = POLLIN};
    for (int w = 0; w < l->conf.n_workers; w++) {
        if (l->ends[w].ours < 0) continue;
        l->polled[n] = (struct pollfd){.fd = l->ends[w].ours, .events = POLLRDHUP};
        l->whose[n++] = w;
    }
    return n;
}

static void liveness_attend(struct pl_liveness *l, nfds_t n) {
    uint64_t count;
    if (l->polled[0].revents && read(l->wakeup, &count, sizeof count) < 0) return;
    for (nfds_t i = 2; i < n; i++) {
        if (!(l->polled[i].revents & LIVENESS_LOST)) continue;
        liveness_drop(&l->ends[l->whose[i]].ours);
        l->conf.gone(l->conf.ctx, l->whose[i]);
    }
    if (l->polled[1].revents && l->making == 0) liveness_welcome(l);
}

static void liveness_watch(void *arg) {
    struct pl_liveness *l = arg;
    pl_lock_enter(l->lock);
    while (!l->quit) {
        nfds_t n = liveness_gather(l);
        pl_lock_leave(l->lock);
        int found = poll(l->polled, n, l->deaf ? LIVENESS_DEAF_MS : -1);
        if (found == 0) l->deaf = false;
        pl_lock_enter(l->lock);
        if (found > 0) liveness_attend(l, n);
    }
    pl_lock_leave(l->lock);
}

/* --- opening ----------------------------------------------------------------------------- */

static bool liveness_address(const char *path, struct sockaddr_un *a) {
    size_t n = strlen(path);
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n == 0 || n >= sizeof a->sun_path) return false;
    memcpy(a->sun_path, path, n + 1);
    return true;
}

static int liveness_too_long(const char *path, struct pl_why *why) {
    return pl_fail(why, PL_EUSAGE,
                   "'%.200s' cannot be the path of a socket; use a path of 1 to %zu bytes", path,
                   sizeof((struct sockaddr_un *)0)->sun_path - 1);
}

/* A socket that a killed server left behind: it refuses connections. */
static bool liveness_stale(const char *path, const struct sockaddr_un *address) {
    struct stat s;
    if (lstat(path, &s) || !S_ISSOCK(s.st_mode)) return false;
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (sock < 0) return false;
    bool refused = connect(sock, (const struct sockaddr *)address, sizeof *address) != 0 &&
                   errno == ECONNREFUSED;
    close(sock);
    return refused;
}

static int liveness_bind(int sock, const char *path, const struct sockaddr_un *address) {
    int rc = bind(sock, (const struct sockaddr *)address, sizeof *address);
    if (rc && errno == EADDRINUSE && liveness_stale(path, address)) {
        unlink(path);
        rc = bind(sock, (const struct sockaddr *)address, sizeof *address);
    }
    return rc;
}

/* No guest can connect before listen(), when the mode has been set. */
static int liveness_listen(struct pl_liveness *l, const char *path, struct pl_why *why) {
    struct stat s;
    if (!liveness_address(path, &l->address)) return liveness_too_long(path, why);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0 || liveness_bind(sock, path, &l->address)) {
        int error = errno;
        if (sock >= 0) close(sock);
        errno = error == EADDRINUSE ? EEXIST : error;
        return pl_fail_create(why, "socket", path);
    }
    l->listener = sock;
    if (chmod(path, 0600) || lstat(path, &s) || listen(sock, 64)) {
        int error = errno;
        unlink(path);
        liveness_drop(&l->listener);
        return pl_fail(why, PL_EIO, "cannot listen at '%.200s': %s", path, strerror(error));
    }
    l->dev = s.st_dev;
    l->ino = s.st_ino;
    return PL_OK;
}

int pl_liveness_open(const struct pl_liveness_conf *conf, struct pl_liveness **out,
                     struct pl_why *why) {
    size_t n = (size_t)conf->n_workers;
    struct pl_liveness *l = calloc(1, sizeof *l);
    if (!l) return pl_fail(why, PL_ENOMEM, "out of memory");
    l->conf = *conf;
    l->listener = -1;
    l->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->lock = pl_lock_new();
    l->ends = calloc(n, sizeof *l->ends);
    l->polled = calloc(n + 2, sizeof *l->polled);
    l->whose = calloc(n + 2, sizeof *l->whose);
    int rc = PL_OK;
    if (l->wakeup < 0 || !l->lock || !l->ends || !l->polled || !l->whose)
        rc =
            pl_fail(why, PL_ENOMEM, "out of memory or descriptors for %d workers", conf->n_workers);
    for (size_t w = 0; l->ends && w < n; w++) l->ends[w] = (struct liveness_ends){-1, -1};
    if (!rc && conf->listen) rc = liveness_listen(l, conf->listen, why);
    if (!rc && pl_thread_start(liveness_watch, l, &l->watcher))
        rc = pl_fail(why, PL_ENOMEM, "out of memory for a thread");
    if (rc)
        pl_liveness_close(l);
    else
        *out = l;
    return rc;
}

void pl_liveness_close(struct pl_liveness *l) {
    struct stat s;
    if (!l) return;
    if (l->watcher) {
        pl_lock_enter(l->lock);
        l->quit = true;
        pl_lock_leave(l->lock);
        liveness_wake_watcher(l);
        pl_thread_join(l->watcher);
    }
    const char *path = l->address.sun_path;
    if (l->listener >= 0 && lstat(path, &s) == 0 && s.st_dev == l->dev && s.st_ino == l->ino)
        unlink(path);
    liveness_drop(&l->listener);
    liveness_drop(&l->wakeup);
    for (int w = 0; l->ends && w < l->conf.n_workers; w++) {
        liveness_drop(&l->ends[w].ours);
        liveness_drop(&l->ends[w].theirs);
    }
    pl_lock_free(l->lock);
    free(l->ends);
    free(l->polled);
    free(l->whose);
    free(l);
}

/* --- making workers ---------------------------------------------------------------------- */

int pl_liveness_expect(struct pl_liveness *l, int worker, struct pl_why *why) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return pl_fail(why, PL_ERUN, "cannot open a socket for worker %d: %s", worker + 1,
                       strerror(errno));
    pl_lock_enter(l->lock);
    l->ends[worker] = (struct liveness_ends){pair[0], pair[1]};
    l->making++;
    pl_lock_leave(l->lock);
    return PL_OK;
}

void pl_liveness_made(struct pl_liveness *l, int worker) {
    pl_lock_enter(l->lock);
    if (l->ends[worker].theirs >= 0) l->making--;
    liveness_drop(&l->ends[worker].theirs);
    pl_lock_leave(l->lock);
    liveness_wake_watcher(l);
}

/* The lock is not taken: the thread that may hold it is not in this process. */
int pl_liveness_keep(struct pl_liveness *l, int worker) {
    int mine = l->ends[worker].theirs;
    l->ends[worker].theirs = -1;
    liveness_drop(&l->listener);
    liveness_drop(&l->wakeup);
    for (int w = 0; w < l->conf.n_workers; w++) {
        liveness_drop(&l->ends[w].ours);
        liveness_drop(&l->ends[w].theirs);
    }
    return mine;
}

/* --- a worker's end ---------------------------------------------------------------------- */

bool pl_liveness_lost(int sock) {
    struct pollfd p = {.fd = sock, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & LIVENESS_LOST);
}

/* The greeting and at most one descriptor; -1: none came. */
static bool liveness_receive(int sock, struct liveness_hello *hello, int *fd) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec part = {hello, sizeof *hello};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    struct pollfd p = {.fd = sock, .events = POLLIN};
    *fd = -1;
    int found;
    do found = poll(&p, 1, LIVENESS_WAIT_MS);
    while (found < 0 && errno == EINTR);
    if (found <= 0) return false;
    ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0) return false;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            liveness_drop(fd);
            memcpy(fd, CMSG_DATA(c) + at, sizeof *fd);
        }
    }
    return n == (ssize_t)sizeof *hello && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
}

static int liveness_judge(const char *path, const struct liveness_hello *h, int fd,
                          struct pl_shape *s, struct pl_why *why) {
    if (h->magic != LIVENESS_MAGIC)
        return pl_fail(why, PL_EDATA, "'%.200s' is not the socket of a paceline server", path);
    if (h->version != LIVENESS_VERSION)
        return pl_fail(why, PL_EDATA,
                       "the server at '%.200s' speaks protocol version %u and this program %d; "
                       "use the same release for both",
                       path, h->version, LIVENESS_VERSION);
    if (h->answer == LIVENESS_FULL)
        return pl_fail(why, PL_ERUN, "the server at '%.200s' has all its %llu workers already",
                       path, (unsigned long long)h->n_workers);
    if (h->answer == LIVENESS_STRANGER)
        return pl_fail(
            why, PL_ERUN,
            "the server at '%.200s' belongs to another user; run the worker as that user", path);
    *s = (struct pl_shape){.n_workers = h->n_workers,
                           .dim = h->dim,
                           .n_versions = h->n_versions,
                           .n_slots = h->n_slots};
    if (h->answer != LIVENESS_WELCOME || fd < 0 || !pl_shape_of(s) || s->size != h->size ||
        h->worker >= h->n_workers)
        return pl_fail(why, PL_EDATA, "the greeting of the server at '%.200s' is damaged", path);
    return PL_OK;
}

int pl_liveness_dial(const char *path, struct pl_greeting *out, struct pl_why *why) {
    struct sockaddr_un address;
    struct liveness_hello hello = {0};
    int fd = -1, rc = PL_OK;
    if (!liveness_address(path, &address)) return liveness_too_long(path, why);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0) return pl_fail(why, PL_ERUN, "cannot open a socket: %s", strerror(errno));
    if (connect(sock, (struct sockaddr *)&address, sizeof address))
        rc = pl_fail(why, PL_EIO, "no server listens at '%.200s': %s", path, strerror(errno));
    else if (!liveness_kin(sock))
        rc = pl_fail(why, PL_ERUN, "the server at '%.200s' belongs to another user", path);
    else if (!liveness_receive(sock, &hello, &fd))
        rc = pl_fail(why, PL_ERUN, "the server at '%.200s' did not answer", path);
    else
        rc = liveness_judge(path, &hello, fd, &out->shape, why);
    if (rc) {
        liveness_drop(&fd);
        liveness_drop(&sock);
        return rc;
    }
    out->sock = sock;
    out->segment = fd;
    out->worker = (int)hello.worker;
    out->owner = hello.owner;
    return PL_OK;
}
