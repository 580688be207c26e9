/* Threads: liveness_watch() and what it calls run in a thread of their own, which shares with the
 * owner of the port what the lock protects. A worker's end runs in the worker. */
#define _GNU_SOURCE
#include "transport/liveness.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/lock.h"
#include "sys/thread.h"
#include "transport/client_link.h"
#include "transport/lobby.h"

#define LIVENESS_LOST (POLLHUP | POLLERR | POLLNVAL | POLLRDHUP)
#define LIVENESS_SECOND UINT64_C(1000000000)
#define LIVENESS_NEW_PER_SECOND 20000 /* messages that something is ready, */
#define LIVENESS_IDLE_PER_SECOND 1000 /* and those after which there is nothing new */

struct liveness_words {
    int first, n;
    char text[PL_LIVENESS_WORDS][PL_WORD_MAX];
};

struct liveness_seat {
    int ours, theirs;             /* ends of its socket; -1: not open in this process */
    struct liveness_words *words; /* NULL: none yet */
    atomic_uint n_words;          /* readable without the lock, */
    _Atomic uint64_t n_heard;     /* likewise: words so far, those that were ignored as well */
    bool speaks;                  /* its words are passed on */
    bool left;                    /* but some of what it said was not read */
    uint64_t paid_ns;             /* each word costs a part of a second, up to one in advance */
};

struct pl_liveness {
    struct pl_liveness_conf conf;
    int wakeup; /* an eventfd that wakes the watcher */
    struct pl_thread *watcher;

    struct pl_lock *lock; /* of what follows, up to the next blank line */
    struct pl_lobby *lobby;
    struct liveness_seat *seat;
    int making; /* expected, and not yet made */
    bool quit, deaf;

    struct pollfd *polled; /* the watcher's: [1 + PL_LOBBY_POLLED + n_seats], and whose they are */
    int *whose;
    nfds_t n_lobby; /* that come after the first */
    struct pl_answer answer;
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

/* --- clients ------------------------------------------------------------------------------ */

/* Sends the descriptors of all seats below n except the client's own. */
static bool liveness_send_more(struct pl_liveness *l, int sock, int seat, int n) {
    struct pl_more more;
    int fd[PL_MORE_FILES];
    bool sent = true;
    for (int i = 0; sent && i < n;) {
        more = (struct pl_more){.magic = PL_GREETING_MAGIC};
        for (; i < n && more.n < PL_MORE_FILES; i++) {
            if (i == seat) continue;
            fd[more.n] = l->conf.reader(l->conf.ctx, i);
            if (fd[more.n] < 0) sent = false;
            more.seat[more.n++] = (uint32_t)i;
        }
        if (sent && more.n > 0) sent = pl_greeting_send(sock, &more, sizeof more, fd, (int)more.n);
        for (uint64_t k = 0; k < more.n; k++) liveness_drop(&fd[k]);
    }
    return sent;
}

static bool liveness_welcome(void *ctx, int sock, const struct pl_newcomer *client) {
    struct pl_liveness *l = ctx;
    struct pl_answer *answer = &l->answer;
    int fd[PL_GIVEN] = {-1, -1, -1};
    *answer = (struct pl_answer){
        .magic = PL_GREETING_MAGIC, .version = PL_GREETING_VERSION, .code = PL_ANSWER_WELCOME};
    int seat = l->conf.admit(l->conf.ctx, client, answer, fd);
    if (seat < 0) {
        answer->code = PL_ANSWER_REFUSED;
        pl_greeting_send(sock, answer, sizeof *answer, NULL, 0);
        return false;
    }
    answer->seat = (uint32_t)seat;
    l->seat[seat].speaks = answer->speaks != 0;
    bool sent = pl_greeting_send(sock, answer, sizeof *answer, fd, PL_GIVEN);
    pl_areas_took(fd);
    if (sent) sent = liveness_send_more(l, sock, seat, (int)answer->n_more);
    if (sent)
        l->seat[seat].ours = sock;
    else
        l->conf.gone(l->conf.ctx, seat);
    return sent;
}

/* --- what they say ----------------------------------------------------------------------- */

static bool liveness_has_room(const struct pl_liveness *l, const struct liveness_seat *s) {
    return l->deaf || !s->words || s->words->n < PL_LIVENESS_WORDS;
}

/* When this seat is listened to again. */
static uint64_t liveness_silent_until(const struct liveness_seat *s) {
    return s->paid_ns > LIVENESS_SECOND ? s->paid_ns - LIVENESS_SECOND : 0;
}

static void liveness_pay(struct liveness_seat *s, uint64_t now, uint64_t per_second) {
    if (s->paid_ns < now) s->paid_ns = now;
    s->paid_ns += LIVENESS_SECOND / per_second;
}

static void liveness_add_word(struct liveness_seat *s, const char *text, size_t n) {
    if (!s->words && !(s->words = calloc(1, sizeof *s->words))) return;
    struct liveness_words *w = s->words;
    char *to = w->text[(w->first + w->n++) % PL_LIVENESS_WORDS];
    memcpy(to, text, n);
    to[n] = '\0';
    atomic_store(&s->n_words, (unsigned)w->n);
}

/* Bytes that were sent and not read. */
static int liveness_waiting(int sock) {
    int n = 0;
    return ioctl(sock, FIONREAD, &n) == 0 ? n : 0;
}

/* Reads one message; false: there is no other. What makes no sense is ignored, and paid for. */
static bool liveness_hear(struct pl_liveness *l, int seat, uint64_t now) {
    struct liveness_seat *s = &l->seat[seat];
    char data[1 + PL_WORD_MAX];
    struct pl_said said;
    ssize_t n = recv(s->ours, data, sizeof data, MSG_DONTWAIT);
    bool short_one = n > 0 && (data[0] == PL_SAID_READY || data[0] == PL_SAID_DONE);
    if (!short_one) liveness_pay(s, now, PL_WORDS_PER_SECOND);
    if (n < 1) return n == 0 && liveness_waiting(s->ours) > 0; /* an empty message, or the end */
    if (!pl_greeting_said(data, (size_t)n, &said)) return true;
    if (said.what == PL_SAID_WORD) {
        bool ignored = l->deaf || !s->speaks || !liveness_has_room(l, s);
        if (!ignored) liveness_add_word(s, said.word, said.n);
        atomic_fetch_add(&s->n_heard, 1);
        if (ignored) return true;
    }
    bool new = l->conf.said(l->conf.ctx, seat, said.what, said.number);
    if (short_one) liveness_pay(s, now, new ? LIVENESS_NEW_PER_SECOND : LIVENESS_IDLE_PER_SECOND);
    return true;
}

/* First what it said before it left, of which some may have to wait. */
static void liveness_bury(struct pl_liveness *l, int seat, uint64_t now) {
    struct liveness_seat *s = &l->seat[seat];
    while (liveness_has_room(l, s)) {
        if (liveness_hear(l, seat, now)) continue;
        liveness_drop(&s->ours);
        s->left = false;
        l->conf.gone(l->conf.ctx, seat);
        return;
    }
    s->left = true;
}

unsigned pl_liveness_words(struct pl_liveness *l, int seat) {
    return atomic_load(&l->seat[seat].n_words);
}

uint64_t pl_liveness_heard(struct pl_liveness *l, int seat) {
    return atomic_load(&l->seat[seat].n_heard);
}

bool pl_liveness_word(struct pl_liveness *l, int seat, char out[PL_WORD_MAX]) {
    struct liveness_seat *s = &l->seat[seat];
    pl_lock_enter(l->lock);
    struct liveness_words *w = s->words;
    bool there = w && w->n > 0, was_full = !liveness_has_room(l, s);
    if (there) {
        memcpy(out, w->text[w->first], PL_WORD_MAX);
        w->first = (w->first + 1) % PL_LIVENESS_WORDS;
        atomic_store(&s->n_words, (unsigned)--w->n);
    }
    pl_lock_leave(l->lock);
    if (was_full) liveness_wake_watcher(l);
    return there;
}

void pl_liveness_deaf(struct pl_liveness *l) {
    pl_lock_enter(l->lock);
    l->deaf = true;
    pl_lock_leave(l->lock);
    liveness_wake_watcher(l);
}

/* The watcher finds that the client is gone. */
void pl_liveness_hang_up(struct pl_liveness *l, int seat, bool again, const char *sentence) {
    char text[PL_WORD_MAX];
    snprintf(text, sizeof text, "%c%s", again ? PL_FAREWELL_AGAIN : PL_FAREWELL, sentence);
    pl_lock_enter(l->lock);
    int sock = l->seat[seat].ours;
    if (sock >= 0) {
        pl_greeting_send(sock, text, strlen(text), NULL, 0);
        shutdown(sock, SHUT_RDWR);
    }
    pl_lock_leave(l->lock);
    liveness_wake_watcher(l);
}

void pl_liveness_clear(struct pl_liveness *l, int seat) {
    struct liveness_seat *s = &l->seat[seat];
    pl_lock_enter(l->lock);
    free(s->words);
    s->words = NULL;
    s->paid_ns = 0;
    atomic_store(&s->n_words, 0);
    atomic_store(&s->n_heard, 0);
    pl_lock_leave(l->lock);
}

/* --- the watcher ------------------------------------------------------------------------- */

/* What to watch now: the eventfd, the lobby, all sockets. */
static nfds_t liveness_gather(struct pl_liveness *l, uint64_t now, uint64_t *until) {
    nfds_t n = 1;
    *until = PL_FOREVER;
    l->polled[0] = (struct pollfd){.fd = l->wakeup, .events = POLLIN};
    l->n_lobby =
        l->lobby && l->making == 0 ? pl_lobby_gather(l->lobby, l->polled + 1, now, until) : 0;
    n += l->n_lobby;
    for (int i = 0; i < l->conf.n_seats; i++) {
        const struct liveness_seat *s = &l->seat[i];
        uint64_t silent = liveness_silent_until(s);
        short events = POLLRDHUP;
        if (s->ours < 0 || (s->left && !liveness_has_room(l, s))) continue;
        if (silent <= now && liveness_has_room(l, s)) events |= POLLIN;
        if (silent > now && silent < *until) *until = silent;
        l->polled[n] = (struct pollfd){.fd = s->ours, .events = events};
        l->whose[n++] = i;
    }
    return n;
}

static void liveness_attend(struct pl_liveness *l, nfds_t n, uint64_t now) {
    uint64_t count;
    if (l->polled[0].revents && read(l->wakeup, &count, sizeof count) < 0) return;
    for (nfds_t i = 1 + l->n_lobby; i < n; i++) {
        int seat = l->whose[i];
        if (l->seat[seat].ours != l->polled[i].fd) continue;
        if (l->polled[i].revents & LIVENESS_LOST)
            liveness_bury(l, seat, now);
        else if (l->polled[i].revents & POLLIN)
            liveness_hear(l, seat, now);
    }
    if (l->lobby && l->making == 0)
        pl_lobby_attend(l->lobby, l->polled + 1, l->n_lobby, now, liveness_welcome, l);
}

static int liveness_wait_ms(uint64_t now, uint64_t until) {
    if (until == PL_FOREVER) return -1;
    uint64_t ms = until > now ? (until - now) / 1000000 + 1 : 0;
    return ms < 60000 ? (int)ms : 60000;
}

static void liveness_watch(void *arg) {
    struct pl_liveness *l = arg;
    pl_lock_enter(l->lock);
    while (!l->quit) {
        uint64_t until, now = pl_now_ns();
        nfds_t n = liveness_gather(l, now, &until);
        pl_lock_leave(l->lock);
        int found = poll(l->polled, n, liveness_wait_ms(now, until));
        pl_lock_enter(l->lock);
        if (found >= 0) liveness_attend(l, n, pl_now_ns());
    }
    pl_lock_leave(l->lock);
}

/* --- opening ----------------------------------------------------------------------------- */

int pl_liveness_open(const struct pl_liveness_conf *conf, struct pl_liveness **out,
                     struct pl_why *why) {
    size_t n = (size_t)conf->n_seats;
    struct pl_liveness *l = calloc(1, sizeof *l);
    if (!l) return pl_fail(why, PL_ENOMEM, "out of memory");
    l->conf = *conf;
    l->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->lock = pl_lock_new();
    l->seat = calloc(n, sizeof *l->seat);
    l->polled = calloc(n + 1 + PL_LOBBY_POLLED, sizeof *l->polled);
    l->whose = calloc(n + 1 + PL_LOBBY_POLLED, sizeof *l->whose);
    int rc = PL_OK;
    if (l->wakeup < 0 || !l->lock || !l->seat || !l->polled || !l->whose)
        rc = pl_fail(why, PL_ENOMEM, "out of memory or descriptors for %d workers", conf->n_seats);
    for (size_t i = 0; l->seat && i < n; i++) l->seat[i].ours = l->seat[i].theirs = -1;
    if (!rc && conf->listen) rc = pl_lobby_open(conf->listen, &l->lobby, why);
    if (!rc && pl_thread_start(liveness_watch, l, &l->watcher))
        rc = pl_fail(why, PL_ENOMEM, "out of memory for a thread");
    if (rc)
        pl_liveness_close(l);
    else
        *out = l;
    return rc;
}

void pl_liveness_close(struct pl_liveness *l) {
    if (!l) return;
    if (l->watcher) {
        pl_lock_enter(l->lock);
        l->quit = true;
        pl_lock_leave(l->lock);
        liveness_wake_watcher(l);
        pl_thread_join(l->watcher);
    }
    pl_lobby_close(l->lobby);
    liveness_drop(&l->wakeup);
    for (int i = 0; l->seat && i < l->conf.n_seats; i++) {
        liveness_drop(&l->seat[i].ours);
        liveness_drop(&l->seat[i].theirs);
        free(l->seat[i].words);
    }
    pl_lock_free(l->lock);
    free(l->seat);
    free(l->polled);
    free(l->whose);
    free(l);
}

/* --- making workers ---------------------------------------------------------------------- */

int pl_liveness_expect(struct pl_liveness *l, int seat, struct pl_why *why) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return pl_fail(why, PL_ERUN, "cannot open a socket for worker %d: %s", seat + 1,
                       strerror(errno));
    pl_lock_enter(l->lock);
    l->seat[seat].ours = pair[0];
    l->seat[seat].theirs = pair[1];
    l->making++;
    pl_lock_leave(l->lock);
    return PL_OK;
}

void pl_liveness_made(struct pl_liveness *l, int seat) {
    pl_lock_enter(l->lock);
    if (l->seat[seat].theirs >= 0) l->making--;
    liveness_drop(&l->seat[seat].theirs);
    pl_lock_leave(l->lock);
    liveness_wake_watcher(l);
}

/* The lock is not taken: the thread that may hold it is not in this process. */
int pl_liveness_close_in_child(struct pl_liveness *l, int seat) {
    int mine = l->seat[seat].theirs;
    l->seat[seat].theirs = -1;
    if (l->lobby) pl_lobby_close_in_child(l->lobby);
    liveness_drop(&l->wakeup);
    for (int i = 0; i < l->conf.n_seats; i++) {
        liveness_drop(&l->seat[i].ours);
        liveness_drop(&l->seat[i].theirs);
    }
    return mine;
}

/* --- a worker's end ---------------------------------------------------------------------- */

bool pl_liveness_lost(int sock) {
    struct pollfd p = {.fd = sock, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & LIVENESS_LOST);
}
