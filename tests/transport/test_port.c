/* The port itself: its memory, absurd shapes, numbers of tasks, waking, and noise in a mailbox. */
#include <time.h>

#include "base/rng.h"
#include "suite_transport.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/thread.h"
#include "transport/link.h"
#include "transport/shm_layout.h"

static const struct pl_transport *const *kinds;
static size_t n_kinds;

static void make_noise(struct pl_rng *rng, void *at, size_t bytes) {
    _Atomic uint64_t *word = at;
    for (size_t i = 0; i < bytes / sizeof *word; i++)
        if (pl_rng_below(rng, 4) == 0)
            atomic_store(&word[i], pl_rng_below(rng, 2) ? pl_rng_u64(rng) : pl_rng_below(rng, 3));
}

/* Everything a worker can write is noise, again and again. */
TEST(noise_kills_nobody) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        struct pl_rng rng;
        crew_open(&c, kinds[k], 2, 33, true);
        struct pl_link *a = crew_client(&c, 0);
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 61, k);
        for (int round = 0; round < 2000; round++) {
            make_noise(&rng, crew_head(&c), sizeof(struct pl_head) + sizeof(uint64_t));
            make_noise(&rng, a->mailbox, sizeof *a->mailbox);
            make_noise(&rng, crew_mailbox(&c, 1), sizeof *a->mailbox);
            struct pl_news news;
            c.t->port.news(c.p, 0, &news);
            assert_true(news.kind <= PL_NEWS_RESULT);
            assert_true(news.worker < 1); /* nobody is made up */
            if (news.kind == PL_NEWS_RESULT)
                assert_true(news.result.defect <= PL_NOT_COMPUTED &&
                            news.result.samples <= INT32_MAX &&
                            news.result.pushed_ns <= pl_now_ns());
            assert_true(c.t->port.phase(c.p, 0) <= PL_PHASE_COMPUTING);
            crew_tell(&c, 0, (uint64_t)round + 1);
            c.t->port.cancel(c.p, 0);
            c.t->port.holds(c.p, 0);
        }
        c.t->link.detach(a);
        crew_until(&c, PL_NEWS_GONE, 0);
        crew_silent(&c);
        crew_close(&c);
    }
}

/* --- the port itself --------------------------------------------------------------------- */

TEST(memory_is_lined_up_and_ends) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct pl_port_conf conf = {.n_workers = 3, .dim = 17, .n_versions = 5, .n_slots = 4};
        struct pl_port *p = NULL;
        float *at[9];
        assert_int_equal(kinds[k]->port.open(&conf, &p, NULL), 0);
        for (int i = 0; i < 9; i++) {
            at[i] = i < 5 ? kinds[k]->port.vector(p, -1) : kinds[k]->port.vector(p, i - 5);
            assert_non_null(at[i]);
            assert_int_equal((uintptr_t)at[i] % 64, 0);
            for (int j = 0; j < 17; j++) assert_true(at[i][j] == 0);
            for (int j = 0; j < 17; j++) at[i][j] = (float)i;
        }
        for (int i = 0; i < 9; i++)
            for (int j = 0; j < 17; j++) assert_true(at[i][j] == (float)i);
        assert_null(kinds[k]->port.vector(p, -1));
        assert_null(kinds[k]->port.vector(p, 0));
        kinds[k]->port.close(p);
        /* what is not touched costs nothing: 40 GB, or what a sanitizer has room for */
        conf.dim = sanitized ? 1000000 : 10000000;
        conf.n_versions = 1000;
        assert_int_equal(kinds[k]->port.open(&conf, &p, NULL), 0);
        for (int i = 0; i < 1000; i++) at[0] = kinds[k]->port.vector(p, -1);
        at[0][0] = 1;
        kinds[k]->port.close(p);
        kinds[k]->port.close(NULL);
    }
}

TEST(absurd_ports_are_refused) {
    const struct pl_port_conf conf[] = {
        {.n_workers = 0, .dim = 1, .n_versions = 1, .n_slots = 1},
        {.n_workers = -1, .dim = 1, .n_versions = 1, .n_slots = 1},
        {.n_workers = INT32_MAX, .dim = 1, .n_versions = 1, .n_slots = 1},
        {.n_workers = 1, .dim = 0, .n_versions = 1, .n_slots = 1},
        {.n_workers = 1, .dim = SIZE_MAX, .n_versions = 1, .n_slots = 1},
        {.n_workers = 1, .dim = 1, .n_versions = INT32_MIN, .n_slots = 1},
        {.n_workers = 1, .dim = 1, .n_versions = 1, .n_slots = 0},
    };
    struct pl_port_conf huge = {
        .n_workers = 1, .dim = (size_t)1 << 38, .n_versions = 1 << 20, .n_slots = 1 << 20};
    for (size_t k = 0; k < n_kinds; k++) {
        struct pl_port *p = NULL;
        struct pl_why why;
        for (size_t i = 0; i < sizeof conf / sizeof *conf; i++) {
            why.text[0] = 0;
            assert_int_equal(kinds[k]->port.open(&conf[i], &p, &why), PL_EUSAGE);
            assert_true(strlen(why.text) > 10);
        }
        assert_int_equal(kinds[k]->port.open(&huge, &p, &why), PL_ENOMEM);
        assert_null(p);
    }
}

/* A transport is asked for nothing that it has no extension for. */
TEST(extensions_are_checked) {
    const struct pl_range range[2] = {{0, 1}, {1, 1}};
    const struct pl_port_conf plain = {.n_workers = 1, .dim = 2}, peers = {.peers = true},
                              listens = {.listen = "here"},
                              group = {.range = range, .n_servers = 2};
    struct pl_transport sends = pl_inproc;
    struct pl_why why = {""};
    sends.shared = NULL;
    assert_int_equal(pl_transport_check(&pl_inproc, &plain, &why), PL_OK);
    assert_int_equal(pl_transport_check(&pl_inproc, &peers, &why), PL_OK);
    assert_int_equal(pl_transport_check(&pl_shm, &listens, &why), PL_OK);
    assert_int_equal(pl_transport_check(&pl_inproc, &listens, &why), PL_EUSAGE);
    assert_string_equal(why.text, "transport inproc cannot let clients join; use another one");
    assert_int_equal(pl_transport_check(&pl_shm, &group, &why), PL_EUSAGE);
    assert_int_equal(pl_transport_check(&sends, &peers, &why), PL_EUSAGE);
}

TEST(numbers_are_given_once) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        struct pl_why why;
        crew_open(&c, kinds[k], 2, 3, true);
        assert_int_equal(c.t->start->expect(c.p, -1, &why), PL_EUSAGE);
        assert_int_equal(c.t->start->expect(c.p, 2, &why), PL_EUSAGE);
        struct pl_link *a = crew_client(&c, 0);
        assert_int_equal(c.t->start->expect(c.p, 0, &why), PL_EUSAGE);
        crew_news(&c, PL_NEWS_JOINED, 0);
        assert_int_equal(c.t->start->expect(c.p, 0, &why), PL_EUSAGE);
        c.t->link.detach(a);
        crew_news(&c, PL_NEWS_GONE, 0);
        assert_int_equal(c.t->start->expect(c.p, 0, &why), 0); /* but nobody is made */
        c.t->start->made(c.p, 0);
        if (c.t->start->processes)
            crew_news(&c, PL_NEWS_GONE, 0);
        else
            crew_silent(&c);
        assert_int_equal(c.t->start->expect(c.p, 0, &why), 0);
        c.t->start->made(c.p, 0);
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        crew_close(&c);
    }
}

static void wake_later(void *arg) {
    struct crew *c = arg;
    struct timespec t = {.tv_nsec = 20000000};
    nanosleep(&t, NULL);
    c->t->port.wake(c->p);
}

TEST(wake_ends_the_wait) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        struct pl_news news;
        struct pl_thread *thread;
        crew_open(&c, kinds[k], 1, 3, true);
        assert_int_equal(pl_thread_start(wake_later, &c, &thread), 0);
        c.t->port.news(c.p, PL_FOREVER, &news);
        assert_int_equal(news.kind, PL_NEWS_NONE);
        pl_thread_join(thread);
        struct pl_link *a = crew_client(&c, 0);
        c.t->port.wake(c.p); /* beforehand, and while there is something */
        c.t->port.news(c.p, PL_FOREVER, &news);
        assert_int_equal(news.kind, PL_NEWS_NONE);
        c.t->port.news(c.p, PL_FOREVER, &news);
        assert_int_equal(news.kind, PL_NEWS_JOINED);
        c.t->link.detach(a);
        crew_news(&c, PL_NEWS_GONE, 0);
        crew_close(&c);
    }
}

static int find_kinds(void **state) {
    n_kinds = crew_near(&kinds);
    return n_kinds == 0;
}

ALL_TESTS_BETWEEN(find_kinds, NULL)
