/* What workers and clients can write into the memory they share with the server, and say over their
 * sockets. Whatever it is, the server finds plausible news, and no more of them than it can hold.
 */
#include <string.h>

#include "fuzz.h"
#include "sys/clock.h"
#include "transport/shm_port.h"

#define WORKERS 3
#define DIM 8
#define VECTORS 4

static struct pl_port *port;
static float *version, *slot[WORKERS];

static void open_port(void) {
    struct pl_port_conf conf = {
        .n_workers = WORKERS, .dim = DIM, .n_versions = VECTORS, .n_slots = VECTORS};
    struct pl_why why;
    FUZZ_MUST(pl_inproc.port.open(&conf, &port, &why) == 0);
    version = pl_inproc.port.vector(port, -1);
    for (int w = 0; w < WORKERS; w++) {
        slot[w] = pl_inproc.port.vector(port, w);
        FUZZ_MUST(slot[w] && pl_inproc.start->expect(port, w, &why) == 0);
    }
    FUZZ_MUST(version != NULL);
}

static void check(const struct pl_news *news) {
    FUZZ_MUST(news->kind <= PL_NEWS_GONE || news->kind == PL_NEWS_WORD ||
              news->kind == PL_NEWS_ASK || news->kind == PL_NEWS_DONE);
    FUZZ_MUST(news->worker >= -1 && news->worker < WORKERS);
    FUZZ_MUST((news->worker >= 0) == (news->kind != PL_NEWS_NONE));
    if (news->kind != PL_NEWS_RESULT) return;
    const struct pl_result *r = &news->result;
    FUZZ_MUST(r->defect <= PL_NOT_COMPUTED && r->samples <= INT32_MAX);
    FUZZ_MUST(r->pulled_ns <= r->pushed_ns && r->pushed_ns <= pl_now_ns());
}

static void tell(int worker, uint64_t task) {
    struct pl_input input = {.v = version, .stamp = task, .c = 1, .writer = -1};
    struct pl_order o = {.task = task, .n_inputs = 1, .input = &input, .out = slot[worker]};
    pl_inproc.port.tell(port, worker, &o);
}

/* A plausible result, of which one word is the input's. */
static void push(int worker, struct fuzz_piece *rest) {
    struct pl_mailbox *b = pl_port_mailbox(port, worker);
    uint64_t word[PL_SEQLOCK_WORDS] = {0}, now = pl_now_ns();
    word[PL_RESULT_OWNER] = atomic_load(&port->seat[worker].owner);
    word[PL_RESULT_TASK] = port->seat[worker].task;
    word[PL_RESULT_SIZE] = 1;
    word[PL_RESULT_PULLED] = word[PL_RESULT_PUSHED] = now;
    word[fuzz_number(rest, 1) % PL_SEQLOCK_WORDS] = fuzz_number(rest, 8);
    pl_seqlock_write(&b->result, word);
}

static void step(struct fuzz_piece *rest) {
    struct pl_news news;
    uint64_t what = fuzz_number(rest, 1);
    int worker = (int)(what / 16 % WORKERS);
    struct pl_mailbox *b = pl_port_mailbox(port, worker);
    switch (what % 16) {
    case 0: tell(worker, fuzz_number(rest, 1)); break;
    case 1: pl_inproc.port.cancel(port, worker); break;
    case 2: atomic_store(&b->joined, atomic_load(&port->seat[worker].owner)); break;
    case 3: push(worker, rest); break;
    case 4: atomic_store(&b->held, fuzz_number(rest, 8)); break;
    case 5: atomic_store(&b->base_ready, fuzz_number(rest, 8)); break;
    case 6: atomic_store(&b->phase, (unsigned)fuzz_number(rest, 4)); break;
    case 7: atomic_store(&port->head->ready[0], fuzz_number(rest, 8)); break;
    case 8: { /* anything anywhere in the mailbox */
        size_t at = (size_t)fuzz_number(rest, 2) % (sizeof *b - 8);
        uint64_t x = fuzz_number(rest, 8);
        memcpy((char *)b + at, &x, sizeof x);
        break;
    }
    case 9: pl_port_said(port, worker, (int)fuzz_number(rest, 1), fuzz_number(rest, 8)); break;
    case 10: atomic_fetch_or(&port->gone[0], UINT64_C(1) << worker); break;
    case 11: pl_inproc.start->expect(port, worker, &(struct pl_why){.text = ""}); break;
    default:
        atomic_fetch_or(&port->head->ready[0], UINT64_C(1) << worker);
        for (int i = 0; i < 8; i++) {
            pl_inproc.port.news(port, 0, &news);
            check(&news);
            if (news.kind == PL_NEWS_NONE) break;
        }
    }
    pl_inproc.port.holds(port, worker);
    FUZZ_MUST(pl_inproc.port.phase(port, worker) <= PL_PHASE_COMPUTING);
}

static void mailbox(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n};
    struct pl_news news;
    open_port();
    for (int i = 0; i < 200 && rest.n > 0; i++) step(&rest);
    /* however it was, it ends */
    atomic_store(&port->gone[0], (UINT64_C(1) << WORKERS) - 1);
    int left = 1000;
    do {
        pl_inproc.port.news(port, 0, &news);
        check(&news);
    } while (news.kind != PL_NEWS_NONE && --left > 0);
    FUZZ_MUST(left > 0);
    pl_inproc.port.close(port);
}

const struct fuzz_target fuzz_mailboxes[] = {{"mailbox", mailbox}, {NULL, NULL}};
