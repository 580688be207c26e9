/* What goes over the socket of a client, in both directions, and results in bfloat16. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bf16.h"
#include "fuzz.h"
#include "sys/clock.h"
#include "transport/client_link.h"
#include "transport/lobby.h"
#include "transport/shm_port.h"

#define DIM 8

/* --- what a client receives ----------------------------------------------------------------- */

enum { SHORT_FILE, PAGE_FILE, WHOLE_FILE, OPEN_FILE, FILES };

/* Files that a server might send: of one byte, of a page, long enough, not sealed. */
static int sent_file(uint64_t which) {
    static const size_t size[FILES] = {1, 4096, 1 << 20, 1 << 20};
    static int fd[FILES];
    size_t i = (size_t)which % FILES;
    if (fd[i] == 0) {
        fd[i] = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        FUZZ_MUST(fd[i] > 0 && ftruncate(fd[i], (off_t)size[i]) == 0);
        if (i != OPEN_FILE) FUZZ_MUST(fcntl(fd[i], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    }
    return fd[i];
}

static struct pl_answer welcome_of(struct fuzz_piece *rest) {
    struct pl_shape s = {.n_workers = 1 + fuzz_number(rest, 1) % 3,
                         .n_evaluators = 1,
                         .dim = DIM,
                         .n_versions = 2,
                         .n_slots = 2,
                         .n_own = 2,
                         .half = fuzz_number(rest, 1) % 4};
    FUZZ_MUST(pl_shape_of(&s));
    return (struct pl_answer){.magic = PL_GREETING_MAGIC,
                              .version = PL_GREETING_VERSION,
                              .code = PL_ANSWER_WELCOME,
                              .owner = 1,
                              .n_workers = s.n_workers,
                              .n_evaluators = s.n_evaluators,
                              .dim = s.dim,
                              .n_versions = s.n_versions,
                              .n_slots = s.n_slots,
                              .n_own = s.n_own,
                              .half = s.half,
                              .size = s.size,
                              .text = "about"};
}

/* Numbers of the input in place of some of the message's. */
static void spoil(void *message, size_t size, struct fuzz_piece *rest) {
    for (uint64_t n = fuzz_number(rest, 1) % 4; n > 0; n--) {
        size_t at = (size_t)fuzz_number(rest, 1) * 4 % (size - 8);
        uint64_t x = fuzz_number(rest, 8);
        memcpy((char *)message + at, &x, sizeof x);
    }
}

/* One message, of the size that is expected or another, with up to PL_MORE_FILES descriptors. */
static void send_one(int sock, const void *message, size_t size, struct fuzz_piece *rest) {
    int fd[PL_MORE_FILES];
    uint64_t how = fuzz_number(rest, 1), n = how % 8 == 7 ? fuzz_number(rest, 1) : how % 8;
    if (n > PL_MORE_FILES) n = PL_MORE_FILES;
    for (uint64_t i = 0; i < n; i++) fd[i] = sent_file(how & 8 ? WHOLE_FILE : fuzz_number(rest, 1));
    if (how & 16) size = (size_t)fuzz_number(rest, 2) % size;
    pl_greeting_send(sock, message, size, fd, (int)n);
}

static void use_link(struct pl_link *l, const struct pl_welcome *w, struct fuzz_piece *rest) {
    struct pl_order order;
    char *area = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, sent_file(WHOLE_FILE), 0);
    FUZZ_MUST(area != MAP_FAILED && w->worker >= 0 && w->n_workers > 0);
    FUZZ_MUST(strlen(w->about) < sizeof w->about);
    struct pl_mailbox *b = (struct pl_mailbox *)(void *)area;
    uint64_t word[PL_SEQLOCK_WORDS] = {0};
    for (int i = 0; i < PL_SEQLOCK_WORDS; i++) word[i] = fuzz_number(rest, 2);
    pl_seqlock_write(&b->order, word);
    atomic_store(&b->inputs.n, fuzz_number(rest, 1));
    if (w->worker < w->n_workers && pl_client_link_pull(l, 0, &order) == 0) {
        FUZZ_MUST(order.n_inputs >= 1 && order.n_strips == 0 && order.out != NULL);
        float sum = order.out[w->dim - 1];
        for (int i = 0; i < order.n_inputs; i++) sum += order.input[i].v[w->dim - 1];
        order.out[0] = sum;
    }
    if (w->worker >= w->n_workers) pl_client_link_newest(l, 0, NULL, NULL);
    pl_shm.link.detach(l);
    memset(area, 0, sizeof *b);
    munmap(area, 1 << 20);
}

/* The server's messages wait in the socket before the client asks. */
static void greeting(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n};
    struct pl_client_link_conf conf = {.path = "fuzz"};
    struct pl_answer answer = welcome_of(&rest);
    struct pl_welcome welcome;
    struct pl_link *l = NULL;
    struct pl_why why = {.text = ""};
    int pair[2];
    FUZZ_MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    answer.n_more = fuzz_number(&rest, 1) % 4;
    spoil(&answer, offsetof(struct pl_answer, text) + 8, &rest);
    send_one(pair[1], &answer, sizeof answer, &rest);
    for (uint64_t more = fuzz_number(&rest, 1) % 4; more > 0; more--) {
        struct pl_more m = {.magic = PL_GREETING_MAGIC, .n = 1, .seat = {1, 2}};
        spoil(&m, sizeof m, &rest);
        send_one(pair[1], &m, sizeof m, &rest);
    }
    close(pair[1]);
    if (pl_client_link_enter(&conf, pair[0], &l, &welcome, &why) == 0)
        use_link(l, &welcome, &rest);
    else
        FUZZ_MUST(why.text[0]);
}

/* --- what the server receives -------------------------------------------------------------- */

#define CALLERS 4

static struct pl_lobby *lobby;
static struct sockaddr_un address;
static bool takes;

static void close_lobby(void) {
    pl_lobby_close(lobby);
}

static void open_lobby(void) {
    char path[64];
    struct pl_why why = {.text = ""};
    snprintf(path, sizeof path, "/tmp/paceline-fuzz-%d.socket", (int)getpid());
    FUZZ_MUST(pl_greeting_address(path, &address, &why) == 0);
    FUZZ_MUST(pl_lobby_open(path, &lobby, &why) == 0);
    atexit(close_lobby);
}

static bool welcome(void *ctx, int sock, const struct pl_newcomer *client) {
    (void)ctx;
    FUZZ_MUST(client->kind == PL_CLIENT_WORKER || client->kind == PL_CLIENT_EVALUATOR);
    FUZZ_MUST(strlen(client->fingerprint) < sizeof client->fingerprint);
    if (takes) close(sock);
    return takes;
}

static nfds_t attend(uint64_t later) {
    struct pollfd polled[PL_LOBBY_POLLED];
    uint64_t now = pl_now_ns() + later, until = UINT64_MAX;
    nfds_t n = pl_lobby_gather(lobby, polled, now, &until);
    FUZZ_MUST(n <= PL_LOBBY_POLLED);
    poll(polled, n, 0);
    pl_lobby_attend(lobby, polled, n, now, welcome, NULL);
    return n;
}

static void say_hello(int sock, struct fuzz_piece *rest) {
    struct pl_hello hello = {.magic = PL_GREETING_MAGIC, .version = PL_GREETING_VERSION};
    size_t size = sizeof hello;
    uint64_t how = fuzz_number(rest, 1);
    hello.kind = how & 1;
    if (how & 2) memset(hello.fingerprint, 'x', sizeof hello.fingerprint);
    if (how & 4) spoil(&hello, sizeof hello, rest);
    if (how & 8) size = (size_t)fuzz_number(rest, 1) % (sizeof hello + 1);
    if (how & 16) {
        struct fuzz_piece any = fuzz_cut(rest);
        pl_greeting_send(sock, any.data, any.n, NULL, 0);
    } else {
        int fd = sent_file(how);
        pl_greeting_send(sock, &hello, size, &fd, how & 32 ? 1 : 0);
    }
}

/* A message of a client that is seated, as liveness.c reads it. */
static void later_message(struct fuzz_piece *rest) {
    struct fuzz_piece any = fuzz_cut(rest);
    struct pl_said said;
    if (!pl_greeting_said((const char *)any.data, any.n, &said)) return;
    FUZZ_MUST(said.what >= PL_SAID_READY && said.what <= PL_SAID_DONE);
    for (size_t i = 0; i < said.n; i++) FUZZ_MUST(said.word[i] >= ' ' && said.word[i] <= '~');
    FUZZ_MUST((said.what == PL_SAID_WORD) == (said.n > 0) && said.n < PL_WORD_MAX);
}

static void hello(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n};
    int caller[CALLERS] = {-1, -1, -1, -1}, n_calls = 0;
    if (!lobby) open_lobby();
    while (rest.n > 0) {
        uint64_t what = fuzz_number(&rest, 1);
        int *sock = &caller[what / 8 % CALLERS];
        takes = what & 128;
        switch (what % 8) {
        case 0:
            if (*sock >= 0) break;
            *sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            FUZZ_MUST(*sock >= 0);
            n_calls++;
            if (connect(*sock, (struct sockaddr *)&address, sizeof address)) {
                close(*sock);
                *sock = -1;
            }
            break;
        case 1:
        case 2:
            if (*sock >= 0) say_hello(*sock, &rest);
            break;
        case 3:
            if (*sock >= 0) close(*sock);
            *sock = -1;
            break;
        case 4: later_message(&rest); break;
        default: attend(0);
        }
    }
    for (int i = 0; i < CALLERS; i++)
        if (caller[i] >= 0) close(caller[i]);
    /* one comes in at a time, and leaves at the next; then nobody is left but the listener */
    for (int i = 0; i <= n_calls; i++) attend(UINT64_C(10000000000));
    FUZZ_MUST(attend(UINT64_C(10000000000)) == 1);
}

/* --- bfloat16 ------------------------------------------------------------------------------- */

#define WORKERS 2

static struct pl_port *port;
static float *version, *slot[WORKERS];

static void close_port(void) {
    pl_shm.port.close(port);
}

static void open_port(void) {
    char path[64];
    struct pl_why why = {.text = ""};
    struct pl_port_conf conf = {.n_workers = WORKERS,
                                .dim = DIM,
                                .n_versions = 2,
                                .n_slots = WORKERS,
                                .n_own = 1,
                                .listen = path,
                                .n_evaluators = 1,
                                .half = PL_HALF_RESULT | PL_HALF_MODEL};
    snprintf(path, sizeof path, "/tmp/paceline-fuzz-%d.port", (int)getpid());
    FUZZ_MUST(pl_shm.port.open(&conf, &port, &why) == 0);
    version = pl_shm.port.vector(port, -1);
    for (int w = 0; w < WORKERS; w++) FUZZ_MUST((slot[w] = pl_shm.port.vector(port, w)) != NULL);
    atexit(close_port);
}

static void next_news(struct pl_news *news) {
    pl_shm.port.news(port, 0, news);
    FUZZ_MUST(news->worker >= -1 && news->worker <= WORKERS);
    FUZZ_MUST(news->kind != PL_NEWS_RESULT || news->result.samples <= INT32_MAX);
}

/* The order of a client; what it is shown as bfloat16 is the version, rounded. */
static void give_order(int w, uint64_t task, struct fuzz_piece *rest) {
    struct pl_input input = {.v = version, .stamp = fuzz_number(rest, 1), .c = 1, .writer = -1};
    struct pl_order o = {.task = task, .n_inputs = 1, .input = &input, .out = slot[w]};
    const struct pl_shape *s = &port->memory.shape;
    for (int i = 0; i < DIM && input.stamp == 0; i++) {
        uint32_t bits = (uint32_t)fuzz_number(rest, 4);
        memcpy(&version[i], &bits, sizeof bits);
    }
    bool told = pl_port_knows(&port->seat[w]) && pl_port_is_client(port, w);
    pl_shm.port.tell(port, w, &o);
    uint16_t *half = (uint16_t *)(void *)((char *)port->memory.segment.at + s->halves);
    for (int i = 0; i < DIM && told && input.stamp == 0; i++)
        FUZZ_MUST(half[i] == pl_bf16_of(version[i]));
}

/* A result of which one word is the input's; if it answers the order, the server has floats. */
static void give_result(int w, struct fuzz_piece *rest) {
    struct pl_mailbox *b = pl_port_mailbox(port, w);
    uint64_t word[PL_SEQLOCK_WORDS] = {0};
    uint16_t half[DIM];
    struct pl_news news;
    for (int i = 0; i < DIM; i++) half[i] = (uint16_t)fuzz_number(rest, 2);
    memcpy(slot[w], half, sizeof half);
    word[PL_RESULT_OWNER] = atomic_load(&port->seat[w].owner);
    word[PL_RESULT_TASK] = port->seat[w].task;
    word[PL_RESULT_SIZE] = 1;
    word[PL_RESULT_PULLED] = word[PL_RESULT_PUSHED] = pl_now_ns();
    word[fuzz_number(rest, 1) % PL_SEQLOCK_WORDS] = fuzz_number(rest, 8);
    bool due = port->seat[w].half_out != NULL, joined = pl_port_is_joined(port, w);
    bool answers = port->seat[w].task != 0 &&
                   word[PL_RESULT_OWNER] == atomic_load(&port->seat[w].owner) &&
                   word[PL_RESULT_TASK] == port->seat[w].task &&
                   word[PL_RESULT_SAID] == 0; /* otherwise it waits for words that never come */
    pl_seqlock_write(&b->result, word);
    do next_news(&news);
    while (news.kind != PL_NEWS_NONE);
    for (int i = 0; i < DIM && due && joined && answers; i++) {
        float is, wanted = pl_bf16_float(half[i]);
        memcpy(&is, &slot[w][i], sizeof is);
        FUZZ_MUST(memcmp(&is, &wanted, sizeof is) == 0);
    }
}

static void enter(struct fuzz_piece *rest) {
    struct pl_newcomer client = {.kind = fuzz_number(rest, 1) % 2 ? PL_CLIENT_EVALUATOR
                                                                  : PL_CLIENT_WORKER};
    struct pl_answer answer = {.text = ""};
    int fd[PL_GIVEN] = {-1, -1, -1};
    int seat = pl_port_admit(port, &client, &answer, fd);
    FUZZ_MUST(seat < WORKERS + 1 && (seat >= 0 || answer.text[0]));
    if (seat >= 0) pl_areas_took(fd);
}

static void bf16(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n};
    struct pl_news news;
    uint64_t task = 0;
    if (!port) open_port();
    while (rest.n > 0) {
        uint64_t what = fuzz_number(&rest, 1);
        int w = (int)(what / 8 % WORKERS);
        struct pl_mailbox *b = pl_port_mailbox(port, w);
        switch (what % 8) {
        case 0: enter(&rest); break;
        case 1: atomic_store(&b->joined, atomic_load(&port->seat[w].owner)); break;
        case 2: give_order(w, ++task, &rest); break;
        case 3: give_result(w, &rest); break;
        case 4: pl_shm.port.cancel(port, w); break;
        case 5:
            if (atomic_load(&port->seat[WORKERS].taken))
                pl_port_said(port, WORKERS, PL_SAID_ASK, fuzz_number(&rest, 1));
            break;
        case 6: pl_port_show(port, WORKERS, version, NULL); break;
        default: next_news(&news);
        }
    }
    /* all leave */
    atomic_store(&port->gone[0], (UINT64_C(1) << (WORKERS + 1)) - 1);
    do next_news(&news);
    while (news.kind != PL_NEWS_NONE);
    for (int w = 0; w <= WORKERS; w++) FUZZ_MUST(!atomic_load(&port->seat[w].taken));
}

const struct fuzz_target fuzz_clients[] = {
    {"greeting", greeting}, {"hello", hello}, {"bf16", bf16}, {NULL, NULL}};
