/* Threads: see lobby.h. */
#define _GNU_SOURCE
#include "transport/lobby.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOBBY_BACKLOG 4096                     /* the kernel may allow less */
#define LOBBY_PATIENCE_NS UINT64_C(2000000000) /* for what a client says about itself */
#define LOBBY_LOCK_TRIES 1000                  /* for the lock of the folder, every LOBBY_LOCK_MS */
#define LOBBY_LOCK_MS 10
#define LOBBY_DEAF_NS UINT64_C(1000000000) /* without new clients after accept() failed */

struct lobby_client {
    int sock; /* -1: the place is free */
    uint64_t until;
};

struct pl_lobby {
    struct sockaddr_un address;
    dev_t dev;
    ino_t ino;
    int listener;
    uint64_t deaf_until;
    struct lobby_client client[PL_LOBBY_ROOM];
    int whose[PL_LOBBY_POLLED]; /* of what was gathered: a client, or -1 */
    struct pl_answer answer;
};

static void lobby_drop(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* --- listening --------------------------------------------------------------------------- */

/* A socket that a killed server left behind: it refuses connections. */
static bool lobby_stale(const char *path, const struct sockaddr_un *address) {
    struct stat s;
    if (lstat(path, &s) || !S_ISSOCK(s.st_mode)) return false;
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0) return false;
    bool refused = connect(sock, (const struct sockaddr *)address, sizeof *address) != 0 &&
                   errno == ECONNREFUSED;
    close(sock);
    return refused;
}

static int lobby_bind(int sock, const char *path, const struct sockaddr_un *address) {
    int rc = bind(sock, (const struct sockaddr *)address, sizeof *address);
    if (rc && errno == EADDRINUSE && lobby_stale(path, address)) {
        unlink(path);
        rc = bind(sock, (const struct sockaddr *)address, sizeof *address);
    }
    return rc;
}

/* The folder, locked, or -1: two servers that start at once would otherwise take each other's
 * socket, which refuses connections before listen(), for one that was left behind. The lock is
 * advisory, and waiting for it ends, because others may have reasons to lock a folder, too. */
static int lobby_lock_folder(const char *path) {
    struct sockaddr_un folder;
    const char *slash = strrchr(path, '/');
    struct pollfd none = {.fd = -1};
    snprintf(folder.sun_path, sizeof folder.sun_path, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    int fd = open(folder.sun_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOBBY_LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB); i++)
        poll(&none, 1, LOBBY_LOCK_MS);
    return fd;
}

/* No client can connect before listen(), when the mode has been set. */
static int lobby_listen(struct pl_lobby *l, const char *path, struct pl_why *why) {
    struct stat s;
    int rc = pl_greeting_address(path, &l->address, why);
    if (rc) return rc;
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0 || lobby_bind(sock, path, &l->address)) {
        int error = errno;
        if (sock >= 0) close(sock);
        errno = error == EADDRINUSE ? EEXIST : error;
        return pl_fail_create(why, "socket", path);
    }
    if (chmod(path, 0600) || lstat(path, &s) || listen(sock, LOBBY_BACKLOG)) {
        int error = errno;
        unlink(path);
        close(sock);
        return pl_fail(why, PL_EIO, "cannot listen at '%.200s': %s", path, strerror(error));
    }
    l->listener = sock;
    l->dev = s.st_dev;
    l->ino = s.st_ino;
    return PL_OK;
}

int pl_lobby_open(const char *path, struct pl_lobby **out, struct pl_why *why) {
    struct pl_lobby *l = calloc(1, sizeof *l);
    if (!l) return pl_fail(why, PL_ENOMEM, "out of memory");
    l->listener = -1;
    for (int i = 0; i < PL_LOBBY_ROOM; i++) l->client[i].sock = -1;
    int folder = lobby_lock_folder(path), rc = lobby_listen(l, path, why);
    lobby_drop(&folder);
    if (rc)
        pl_lobby_close(l);
    else
        *out = l;
    return rc;
}

void pl_lobby_close_in_child(struct pl_lobby *l) {
    lobby_drop(&l->listener);
    for (int i = 0; i < PL_LOBBY_ROOM; i++) lobby_drop(&l->client[i].sock);
}

void pl_lobby_close(struct pl_lobby *l) {
    struct stat s;
    if (!l) return;
    const char *path = l->address.sun_path;
    if (l->listener >= 0 && lstat(path, &s) == 0 && s.st_dev == l->dev && s.st_ino == l->ino)
        unlink(path);
    pl_lobby_close_in_child(l);
    free(l);
}

/* --- clients ------------------------------------------------------------------------------ */

/* Sends a client away; `answer` is used for the message. */
static void lobby_refuse(int sock, const char *sentence, struct pl_answer *answer) {
    *answer = (struct pl_answer){
        .magic = PL_GREETING_MAGIC, .version = PL_GREETING_VERSION, .code = PL_ANSWER_REFUSED};
    snprintf(answer->text, sizeof answer->text, "%s", sentence);
    pl_greeting_send(sock, answer, sizeof *answer, NULL, 0);
}

static void lobby_give_up(struct pl_lobby *l, int i) {
    lobby_refuse(l->client[i].sock,
                 "it was not told in time what connected; use the same release for both",
                 &l->answer);
    lobby_drop(&l->client[i].sock);
}

nfds_t pl_lobby_gather(struct pl_lobby *l, struct pollfd *polled, uint64_t now, uint64_t *until) {
    nfds_t n = 0;
    if (now < l->deaf_until && l->deaf_until < *until) *until = l->deaf_until;
    if (now >= l->deaf_until) {
        polled[n] = (struct pollfd){.fd = l->listener, .events = POLLIN};
        l->whose[n++] = -1;
    }
    for (int i = 0; i < PL_LOBBY_ROOM; i++) {
        if (l->client[i].sock < 0) continue;
        polled[n] = (struct pollfd){.fd = l->client[i].sock, .events = POLLIN};
        l->whose[n++] = i;
        if (l->client[i].until < *until) *until = l->client[i].until;
    }
    return n;
}

/* A free place; if all are taken, that of the client that has kept silent longest. */
static int lobby_place(struct pl_lobby *l) {
    int first = 0;
    for (int i = 0; i < PL_LOBBY_ROOM; i++) {
        if (l->client[i].sock < 0) return i;
        if (l->client[i].until < l->client[first].until) first = i;
    }
    lobby_give_up(l, first);
    return first;
}

static void lobby_accept(struct pl_lobby *l, uint64_t now) {
    int sock = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (sock < 0) {
        /* out of descriptors, perhaps: the client still waits, and polling on would spin */
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            l->deaf_until = now + LOBBY_DEAF_NS;
        return;
    }
    if (!pl_greeting_kin(sock)) {
        lobby_refuse(sock, "it belongs to another user; run the worker as that user", &l->answer);
        close(sock);
        return;
    }
    l->client[lobby_place(l)] = (struct lobby_client){sock, now + LOBBY_PATIENCE_NS};
}

/* What the client said, checked; false: it is answered already, or nothing that could be. */
static bool lobby_hello(struct pl_lobby *l, int sock, struct pl_newcomer *client) {
    struct pl_hello hello;
    char text[200];
    ssize_t n = recv(sock, &hello, sizeof hello, MSG_DONTWAIT | MSG_TRUNC);
    if (n < (ssize_t)(sizeof hello.magic + sizeof hello.version) ||
        hello.magic != PL_GREETING_MAGIC)
        return false;
    snprintf(text, sizeof text,
             "it speaks protocol version %d and this program %u; use the same release for both",
             PL_GREETING_VERSION, hello.version);
    bool sound = n == (ssize_t)sizeof hello && hello.version == PL_GREETING_VERSION;
    if (sound && hello.kind > PL_CLIENT_EVALUATOR) {
        snprintf(text, sizeof text, "it knows workers and evaluators, and not this kind of client");
        sound = false;
    }
    if (!sound) {
        lobby_refuse(sock, text, &l->answer);
        return false;
    }
    *client = (struct pl_newcomer){.kind = (enum pl_client_kind)hello.kind,
                                   .dim = hello.dim,
                                   .can = hello.can,
                                   .seat = hello.seat};
    hello.fingerprint[PL_FINGERPRINT_MAX - 1] = '\0';
    hello.token[PL_TOKEN_MAX - 1] = '\0';
    hello.job[PL_JOB_MAX - 1] = '\0';
    snprintf(client->fingerprint, sizeof client->fingerprint, "%s", hello.fingerprint);
    snprintf(client->token, sizeof client->token, "%s", hello.token);
    snprintf(client->job, sizeof client->job, "%s", hello.job);
    return true;
}

void pl_lobby_attend(struct pl_lobby *l, const struct pollfd *polled, nfds_t n, uint64_t now,
                     bool (*welcome)(void *ctx, int sock, const struct pl_newcomer *client),
                     void *ctx) {
    bool knocks = false;
    for (nfds_t k = 0; k < n; k++) {
        struct pl_newcomer client;
        int i = l->whose[k];
        if (!polled[k].revents) continue;
        knocks = knocks || i < 0;
        if (i < 0) continue;
        if (lobby_hello(l, l->client[i].sock, &client) && welcome(ctx, l->client[i].sock, &client))
            l->client[i].sock = -1; /* it is not ours any more */
        lobby_drop(&l->client[i].sock);
    }
    /* without a poll, it is not known whether they have spoken */
    for (int i = 0; n > 0 && i < PL_LOBBY_ROOM; i++)
        if (l->client[i].sock >= 0 && now >= l->client[i].until) lobby_give_up(l, i);
    if (knocks) lobby_accept(l, now); /* last, so that no client that has spoken makes room */
}
