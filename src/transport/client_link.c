/* Threads: the client's. */
#define _GNU_SOURCE
#include "transport/client_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/seconds.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/private_fd.h"
#include "sys/segment.h"
#include "transport/areas.h"
#include "transport/greeting.h"
#include "transport/link.h"
#include "transport/liveness.h"

#define CLIENT_TRY_NS UINT64_C(20000000)      /* between two tries to connect */
#define CLIENT_QUEUE_NS UINT64_C(10000000000) /* for a place in the server's queue, at least */
#define CLIENT_ANSWER_MS 10000                /* for the server's answer */
#define CLIENT_ASK_NS UINT64_C(200000000)     /* between two questions of an evaluator */

static void client_drop(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static uint64_t client_least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* --- connecting -------------------------------------------------------------------------- */

static int client_no_server(const struct pl_client_link_conf *conf, int error, struct pl_why *why) {
    char waited[64] = "";
    if (conf->wait_ns > 0)
        snprintf(waited, sizeof waited, " after %.3g s", pl_seconds(conf->wait_ns));
    return pl_fail(why, PL_EIO, "no server listens at '%.200s'%s: %s", conf->path, waited,
                   strerror(error));
}

/* Whether a server may come to be there. */
static bool client_may_come(const char *path, int error) {
    struct stat s;
    if (error == ENOENT || error == EAGAIN) return true;
    return error == ECONNREFUSED && lstat(path, &s) == 0 && S_ISSOCK(s.st_mode);
}

static void client_tell_wait(const struct pl_client_link_conf *conf, int error) {
    char text[400];
    if (!conf->waiting || error == EAGAIN) return;
    snprintf(text, sizeof text, "no server listens at '%.200s' yet; waiting up to %.3g s for it",
             conf->path, pl_seconds(conf->wait_ns));
    conf->waiting(conf->ctx, text);
}

/* Tries until there is a server, and room in its queue. */
static int client_call(const struct pl_client_link_conf *conf, int *out, struct pl_why *why) {
    struct sockaddr_un address;
    int rc = pl_greeting_address(conf->path, &address, why);
    if (rc) return rc;
    uint64_t begin = pl_now_ns(), end = pl_until(begin, conf->wait_ns);
    uint64_t queue_end = pl_until(begin, CLIENT_QUEUE_NS);
    for (bool first = true;; first = false) {
        int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (sock < 0) return pl_fail(why, PL_ERUN, "cannot open a socket: %s", strerror(errno));
        if (connect(sock, (struct sockaddr *)&address, sizeof address) == 0) {
            *out = sock;
            return PL_OK;
        }
        int error = errno;
        close(sock);
        uint64_t now = pl_now_ns();
        bool go_on = now < end || (error == EAGAIN && now < queue_end);
        if (!go_on || !client_may_come(conf->path, error))
            return client_no_server(conf, error, why);
        if (first) client_tell_wait(conf, error);
        struct pollfd none = {.fd = -1};
        if (poll(&none, 1, (int)(CLIENT_TRY_NS / 1000000)) < 0 && errno == EINTR)
            return pl_fail(why, PL_EINTR, "interrupted while waiting for a server at '%.200s'",
                           conf->path);
    }
}

static int client_no_answer(const char *path, int rc, struct pl_why *why) {
    if (rc == PL_EINTR)
        return pl_fail(why, rc, "interrupted while waiting for the server at '%.200s'", path);
    return pl_fail(why, PL_ERUN, "the server at '%.200s' did not answer", path);
}

static int client_judge(const char *path, struct pl_answer *a, int n_fds, struct pl_shape *s,
                        struct pl_why *why) {
    if (a->magic != PL_GREETING_MAGIC)
        return pl_fail(why, PL_EDATA, "'%.200s' is not the socket of a paceline server", path);
    if (a->version != PL_GREETING_VERSION)
        return pl_fail(why, PL_EDATA,
                       "the server at '%.200s' speaks protocol version %u and this program %d; "
                       "use the same release for both",
                       path, a->version, PL_GREETING_VERSION);
    a->text[sizeof a->text - 1] = '\0';
    if (a->code == PL_ANSWER_REFUSED)
        return pl_fail(why, PL_ERUN, "the server at '%.100s' refuses: %.380s", path, a->text);
    *s = (struct pl_shape){.n_workers = a->n_workers,
                           .n_evaluators = a->n_evaluators,
                           .dim = a->dim,
                           .n_versions = a->n_versions,
                           .n_slots = a->n_slots,
                           .n_own = a->n_own,
                           .half = a->half};
    if (a->code != PL_ANSWER_WELCOME || n_fds != PL_GIVEN || !pl_shape_of(s) ||
        s->size != a->size || a->n_own == 0 || a->seat >= pl_shape_seats(s) ||
        a->n_more > a->n_workers)
        return pl_fail(why, PL_EDATA, "the greeting of the server at '%.200s' is damaged", path);
    return PL_OK;
}

/* Says what the client is, and reads the answer. */
static int client_greet(const struct pl_client_link_conf *conf, int sock, struct pl_answer *answer,
                        int fd[PL_GIVEN], struct pl_shape *shape, struct pl_why *why) {
    struct pl_hello hello = {.magic = PL_GREETING_MAGIC,
                             .version = PL_GREETING_VERSION,
                             .kind = (uint32_t)conf->client.kind,
                             .dim = conf->client.dim,
                             .can = conf->client.can,
                             .seat = conf->client.seat};
    int n_fds = 0;
    memcpy(hello.fingerprint, conf->client.fingerprint, sizeof hello.fingerprint);
    memcpy(hello.token, conf->client.token, sizeof hello.token);
    memcpy(hello.job, conf->client.job, sizeof hello.job);
    if (!pl_greeting_kin(sock))
        return pl_fail(why, PL_ERUN, "the server at '%.200s' belongs to another user", conf->path);
    /* even if that fails, there may be an answer that says why */
    pl_greeting_send(sock, &hello, sizeof hello, NULL, 0);
    int rc =
        pl_greeting_receive(sock, answer, sizeof *answer, fd, PL_GIVEN, &n_fds, CLIENT_ANSWER_MS);
    if (rc) return client_no_answer(conf->path, rc, why);
    rc = client_judge(conf->path, answer, n_fds, shape, why);
    for (int i = 0; rc && i < n_fds; i++) client_drop(&fd[i]);
    return rc;
}

/* --- memory ------------------------------------------------------------------------------ */

static size_t client_area(const struct pl_shape *s, uint64_t seat) {
    return s->mailboxes + seat * s->mailbox_step;
}

/* Maps what other workers write, for reading. */
static int client_map_more(int sock, const struct pl_answer *a, const struct pl_shape *s,
                           const struct pl_segment *segment) {
    uint64_t left = a->n_more > 0 ? a->n_more - 1 : 0;
    int rc = PL_OK;
    while (!rc && left > 0) {
        struct pl_more more;
        int fd[PL_MORE_FILES], n = 0;
        rc = pl_greeting_receive(sock, &more, sizeof more, fd, PL_MORE_FILES, &n, CLIENT_ANSWER_MS);
        if (!rc &&
            (more.magic != PL_GREETING_MAGIC || n < 1 || more.n != (uint64_t)n || more.n > left))
            rc = PL_EDATA;
        for (int i = 0; i < n; i++) {
            if (!rc && (more.seat[i] >= s->n_workers || more.seat[i] == a->seat)) rc = PL_EDATA;
            if (!rc)
                rc = pl_segment_place(segment, client_area(s, more.seat[i]), s->mailbox_step, fd[i],
                                      false);
            client_drop(&fd[i]);
        }
        left -= rc ? 0 : (uint64_t)n;
    }
    return rc;
}

static int client_map(int sock, const struct pl_answer *a, const struct pl_shape *s,
                      const int fd[PL_GIVEN], struct pl_segment *out) {
    int rc = pl_segment_reserve(s->size, out);
    if (rc) return rc;
    rc = pl_segment_place(out, 0, s->mailboxes, fd[PL_GIVEN_HEAD], false);
    if (!rc)
        rc = pl_segment_place(out, s->versions, s->versions_end - s->versions,
                              fd[PL_GIVEN_VERSIONS], false);
    if (!rc)
        rc = pl_segment_place(out, client_area(s, a->seat), s->mailbox_step, fd[PL_GIVEN_AREA],
                              true);
    if (!rc) rc = client_map_more(sock, a, s, out);
    if (rc) pl_segment_free(out);
    return rc;
}

int pl_client_link_connect(const struct pl_client_link_conf *conf, struct pl_link **out,
                           struct pl_welcome *welcome, struct pl_why *why) {
    int sock = -1, rc = client_call(conf, &sock, why);
    return rc ? rc : pl_client_link_enter(conf, sock, out, welcome, why);
}

int pl_client_link_enter(const struct pl_client_link_conf *conf, int sock, struct pl_link **out,
                         struct pl_welcome *welcome, struct pl_why *why) {
    struct pl_answer answer;
    struct pl_shape shape;
    struct pl_link_conf link = {.shape = &shape, .client = true, .segment = {.fd = -1}};
    int fd[PL_GIVEN] = {-1, -1, -1};
    pl_private_fd(sock); /* the server finds that this process is gone, whatever it has forked */
    int rc = client_greet(conf, sock, &answer, fd, &shape, why);
    if (!rc) {
        rc = client_map(sock, &answer, &shape, fd, &link.segment);
        pl_areas_took(fd);
        if (rc)
            pl_fail(why, rc, "cannot map the memory of the server at '%.200s' (%zu bytes)",
                    conf->path, shape.size);
    }
    link.at = link.segment.at;
    link.worker = (int)answer.seat;
    link.owner = answer.owner;
    link.sock = sock;
    link.peers = answer.n_more > 0;
    if (!rc && (rc = pl_link_open(&link, out))) {
        pl_segment_free(&link.segment);
        pl_fail(why, rc, "out of memory");
    }
    if (rc) {
        pl_private_fd_close(sock);
        return rc;
    }
    *welcome = (struct pl_welcome){.worker = link.worker,
                                   .n_workers = (int)shape.n_workers,
                                   .dim = shape.dim,
                                   .half = (unsigned)shape.half,
                                   .speaks = answer.speaks != 0};
    snprintf(welcome->about, sizeof welcome->about, "%s", answer.text);
    return PL_OK;
}

/* --- orders and words -------------------------------------------------------------------- */

int pl_client_link_pull(struct pl_link *l, uint64_t wait_ns, struct pl_order *out) {
    if (wait_ns == 0) l->looked_ns = 0; /* the server may have hung up, and this is the only look */
    return pl_link_pull_until(l, pl_until(pl_now_ns(), wait_ns), out);
}

bool pl_client_link_lost(const struct pl_link *l) {
    return l->lost && !atomic_load(&l->head->shutdown);
}

bool pl_client_link_over(const struct pl_link *l) {
    return atomic_load(&l->head->shutdown);
}

const float *pl_client_link_final(const struct pl_link *l, uint64_t note[PL_NOTE_WORDS]) {
    uint64_t offset = atomic_load(&l->head->final);
    if (!pl_shape_is_version(&l->shape, offset)) return NULL;
    for (int i = 0; i < PL_NOTE_WORDS; i++) note[i] = atomic_load(&l->head->final_note[i]);
    return (const float *)(const void *)(l->at + offset);
}

bool pl_client_link_hung_up(const struct pl_link *l) {
    return l->sock >= 0 && pl_liveness_lost(l->sock);
}

bool pl_client_link_farewell(struct pl_link *l, char out[PL_WORD_MAX], bool *again) {
    ssize_t n = l->sock >= 0 ? recv(l->sock, out, PL_WORD_MAX - 1, MSG_DONTWAIT) : 0;
    /* what this client said and the server did not read comes first, as an error */
    if (n < 0 && errno == ECONNRESET) n = recv(l->sock, out, PL_WORD_MAX - 1, MSG_DONTWAIT);
    if (n <= 0) return false;
    *again = out[0] == PL_FAREWELL_AGAIN;
    for (ssize_t i = 1; i < n; i++) out[i - 1] = out[i] < ' ' || out[i] > '~' ? '?' : out[i];
    out[n - 1] = '\0';
    return true;
}

/* Sends, and waits while the server takes no more. */
static int client_send(struct pl_link *l, int what, const void *data, size_t n, uint64_t end) {
    struct pollfd p = {.fd = l->sock, .events = POLLOUT};
    for (;;) {
        uint64_t now = pl_now_ns();
        if (pl_link_disconnected(l, now)) return PL_ECANCELLED;
        if (pl_link_send(l, what, data, n)) return PL_OK;
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) return PL_ECANCELLED;
        if (now >= end) return PL_ETIMEDOUT;
        uint64_t ms = client_least(end - now, PL_LOOK_NS) / 1000000 + 1;
        if (poll(&p, 1, (int)ms) < 0 && errno == EINTR) return PL_EINTR;
    }
}

int pl_client_link_say(struct pl_link *l, const char *word, uint64_t wait_ns) {
    size_t n = strlen(word);
    if (l->sock < 0 || !pl_greeting_printable(word, n)) return PL_EUSAGE;
    int rc = client_send(l, PL_SAID_WORD, word, n, pl_until(pl_now_ns(), wait_ns));
    if (!rc) atomic_fetch_add(&l->n_said, 1);
    return rc;
}

/* --- watching ---------------------------------------------------------------------------- */

/* Copies what is shown in answer to a question that is not settled. False: nothing is, or not any
 * more. */
static bool client_copy(struct pl_link *l, float *out, uint64_t note[PL_NOTE_WORDS]) {
    struct pl_seqlock *order = &l->mailbox->order;
    uint64_t word[PL_SEQLOCK_WORDS];
    unsigned seq;
    if (!pl_seqlock_read(order, word, &seq)) return false;
    if (word[PL_ORDER_TASK] <= l->settled || word[PL_ORDER_TASK] > l->question) return false;
    if (!pl_shape_is_version(&l->shape, word[PL_ORDER_INPUT])) return false;
    if (out) memcpy(out, l->at + word[PL_ORDER_INPUT], l->shape.dim * sizeof *out);
    if (note) memcpy(note, &word[PL_ORDER_NOTE], PL_NOTE_WORDS * sizeof *note);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load(&order->seq) == seq;
}

/* Waits for an answer until `end`. */
static int client_await(struct pl_link *l, uint64_t end, float *out, uint64_t note[PL_NOTE_WORDS]) {
    uint64_t now = pl_now_ns();
    for (;;) {
        bool interrupted = false;
        unsigned seen = atomic_load(&l->mailbox->wake_worker);
        if (client_copy(l, out, note)) return PL_OK;
        if (pl_link_disconnected(l, now)) return PL_ECANCELLED;
        if (now >= end) return PL_ETIMEDOUT;
        now = pl_nap_on(&l->mailbox->wake_worker, seen, now, end, &interrupted);
        if (interrupted || atomic_exchange(&l->interrupted, false)) return PL_EINTR;
    }
}

static int client_ask(struct pl_link *l, uint64_t end) {
    l->question++;
    int rc = client_send(l, PL_SAID_ASK, &l->question, sizeof l->question, end);
    if (!rc) l->ask_ns = pl_until(pl_now_ns(), CLIENT_ASK_NS);
    return rc;
}

/* The server answers a question when it comes or not at all, so an evaluator repeats it after a
 * while; the answer may be to an earlier one. Questions stay open between calls: one that looks
 * without waiting finds the answer next time. */
int pl_client_link_newest(struct pl_link *l, uint64_t wait_ns, float *out,
                          uint64_t note[PL_NOTE_WORDS]) {
    uint64_t now = pl_now_ns(), end = pl_until(now, wait_ns);
    if (!l->client || l->worker < (int)l->shape.n_workers) return PL_EUSAGE;
    for (;;) {
        int rc = PL_ETIMEDOUT;
        bool due = now >= l->ask_ns;
        if (l->ask_ns) rc = client_await(l, due ? now : client_least(end, l->ask_ns), out, note);
        if (rc == PL_ETIMEDOUT && due) {
            rc = client_ask(l, end);
            if (!rc) rc = client_await(l, client_least(end, l->ask_ns), out, note);
        }
        if (!rc) {
            end = pl_until(pl_now_ns(), CLIENT_ASK_NS);
            client_send(l, PL_SAID_DONE, &l->question, sizeof l->question, end);
            l->settled = l->question;
            l->ask_ns = 0;
            return PL_OK;
        }
        now = pl_now_ns();
        if (rc != PL_ETIMEDOUT || now >= end) return rc;
    }
}

const struct pl_join_ops pl_shm_join = {
    pl_client_link_connect, pl_client_link_pull,   pl_client_link_lost,    pl_client_link_farewell,
    pl_client_link_say,     pl_client_link_newest, pl_client_link_hung_up, pl_client_link_final};

/* --- relaying ---------------------------------------------------------------------------- */

void pl_client_link_interrupt(struct pl_link *l) {
    atomic_store(&l->interrupted, true);
    pl_futex_ring(&l->mailbox->wake_worker);
}

atomic_uint *pl_client_link_bell(struct pl_link *l) {
    return &l->mailbox->wake_worker;
}

enum pl_relay pl_client_link_watch(struct pl_link *l, uint64_t task) {
    struct pl_mailbox *b = l->mailbox;
    uint64_t word[PL_SEQLOCK_WORDS];
    unsigned seq;
    if (atomic_load(&l->head->shutdown)) return PL_RELAY_OVER;
    bool known = pl_seqlock_read(&b->order, word, &seq);
    if (task && (atomic_load(&b->cancel) || (known && word[PL_ORDER_TASK] != task)))
        return PL_RELAY_CANCELLED;
    return PL_RELAY_NOTHING;
}
