/* The pool: whatever the owner does in whatever order, a piece runs at most once, a piece that is
 * waited for has run, the most urgent ones run first, nobody runs further ahead than the window,
 * and no two pieces share a thread index at the same time. Written to be run under the thread
 * sanitizer, where every answer is also checked for having been handed over properly. */
#include "base/rng.h"
#include "sys/lock.h"
#include "sys/pool.h"
#include "test.h"

#define MAX_THREADS 16
#define N_PIECES 40

/* What pieces find wrong; cmocka's checks are for the owner's thread. */
static atomic_int n_wrong, busy[MAX_THREADS + 1], n_started;
static int pool_size;

struct piece {
    struct pl_work work; /* first */
    uint64_t in, out;    /* out is written by run(): not atomic, handed over by the pool */
    int n_runs, spin;
    bool until_cancelled;
    bool submitted;
    uint64_t key;
};

static uint64_t piece_answer(uint64_t in) {
    return in * 6364136223846793005u + 1442695040888963407u;
}

static void piece_run(struct pl_work *w, int thread) {
    struct piece *p = (struct piece *)w;
    atomic_fetch_add(&n_started, 1);
    if (thread < 0 || thread >= pool_size || atomic_fetch_add(&busy[thread], 1) != 0) n_wrong++;
    for (volatile int i = 0; i < p->spin; i++) {
    }
    while (p->until_cancelled && !atomic_load(&w->cancel)) {
    }
    p->out = piece_answer(p->in);
    p->n_runs++;
    if (thread >= 0 && thread < pool_size) atomic_fetch_sub(&busy[thread], 1);
}

static struct pl_pool *pool_open(int n_threads) {
    struct pl_pool *pool = NULL;
    assert_int_equal(pl_pool_new(n_threads, &pool), 0);
    pool_size = pl_pool_size(pool);
    assert_true(pool_size >= 1 && pool_size <= MAX_THREADS + 1);
    n_wrong = n_started = 0;
    return pool;
}

static void piece_submit(struct pl_pool *pool, struct piece *p, struct pl_rng *rng) {
    p->work.run = piece_run;
    p->in = pl_rng_u64(rng);
    p->out = 0;
    p->n_runs = 0;
    p->spin = (int)pl_rng_below(rng, 2000);
    p->key = pl_rng_below(rng, 10);
    p->submitted = true;
    assert_int_equal(pl_pool_submit(pool, &p->work, p->key), 0);
}

static void piece_wait(struct pl_pool *pool, struct piece *p) {
    pl_pool_wait(pool, &p->work);
    assert_int_equal(p->n_runs, 1);
    assert_true(p->out == piece_answer(p->in));
    p->submitted = false;
}

static void piece_drop(struct pl_pool *pool, struct piece *p) {
    pl_pool_drop(pool, &p->work);
    assert_true(p->n_runs <= 1);
    assert_int_equal(p->work.state, PL_WORK_NEW);
    p->submitted = false;
}

/* ---- each ---- */

struct count {
    int n;
    int *times; /* [n] */
};

static void count_one(void *arg, int i, int thread) {
    struct count *c = arg;
    if (i < 0 || i >= c->n || thread < 0 || thread >= pool_size) {
        n_wrong++;
        return;
    }
    if (atomic_fetch_add(&busy[thread], 1) != 0) n_wrong++;
    c->times[i]++;
    atomic_fetch_sub(&busy[thread], 1);
}

static void check_each(struct pl_pool *pool, int n) {
    int times[200] = {0};
    struct count c = {n, times};
    pl_pool_each(pool, n, count_one, &c);
    for (int i = 0; i < n; i++) assert_int_equal(times[i], 1);
    for (int i = n; i < 200; i++) assert_int_equal(times[i], 0);
}

TEST(each_runs_every_index_once) {
    for (int threads = 1; threads <= 8; threads++) {
        struct pl_pool *pool = pool_open(threads);
        for (int n = 0; n < 200; n += 1 + n / 3) check_each(pool, n);
        pl_pool_free(pool);
        assert_int_equal(n_wrong, 0);
    }
}

/* ---- everything at random ---- */

static void random_owner(int threads, int rounds, uint32_t stream) {
    static struct piece piece[N_PIECES];
    struct pl_rng rng;
    struct pl_pool *pool = pool_open(threads);
    memset(piece, 0, sizeof piece);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, stream, (uint64_t)threads);
    for (int round = 0; round < rounds; round++) {
        struct piece *p = &piece[pl_rng_below(&rng, N_PIECES)];
        uint32_t what = pl_rng_below(&rng, 100);
        if (what < 4)
            pl_pool_window(pool, (int)pl_rng_below(&rng, 12));
        else if (what < 6)
            check_each(pool, (int)pl_rng_below(&rng, 100));
        else if (!p->submitted)
            piece_submit(pool, p, &rng);
        else if (what < 60)
            piece_wait(pool, p);
        else
            piece_drop(pool, p);
    }
    for (int i = 0; i < N_PIECES; i++) piece_drop(pool, &piece[i]); /* idle ones as well */
    pl_pool_free(pool);
    assert_int_equal(n_wrong, 0);
}

TEST(pieces_survive_a_random_owner) {
    static const int threads[] = {1, 2, 3, 5, 16};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        random_owner(threads[i], sanitized ? 3000 : 20000, (uint32_t)i);
}

/* Pools that are made and freed with little or nothing to do. */
TEST(pools_come_and_go) {
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 50, 0);
    for (int i = 0; i < 60; i++) {
        struct piece p = {.spin = 0};
        struct pl_pool *pool = pool_open(1 + i % 6);
        if (i % 3) piece_submit(pool, &p, &rng);
        if (i % 3 == 1) piece_wait(pool, &p);
        if (i % 3 == 2) piece_drop(pool, &p);
        pl_pool_free(pool);
    }
    pl_pool_free(NULL);
}

/* ---- promises ---- */

/* With one thread nothing runs before it is waited for, and what is dropped never does. */
TEST(one_thread_computes_what_is_needed) {
    struct piece piece[6];
    struct pl_rng rng;
    struct pl_pool *pool = pool_open(1);
    memset(piece, 0, sizeof piece);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 51, 0);
    assert_int_equal(pool_size, 1);
    for (int i = 0; i < 6; i++) piece_submit(pool, &piece[i], &rng);
    assert_int_equal(n_started, 0);
    piece_wait(pool, &piece[4]);
    piece_drop(pool, &piece[0]);
    piece_wait(pool, &piece[2]);
    assert_int_equal(n_started, 2);
    for (int i = 0; i < 6; i++) piece_drop(pool, &piece[i]);
    assert_int_equal(n_started, 2);
    pl_pool_free(pool);
}

/* Threads take the smallest keys, first come first served, and no more than the window. */
TEST(urgent_pieces_first_within_the_window) {
    for (int window = 0; window <= N_PIECES; window += 1 + window / 2) {
        struct piece piece[N_PIECES];
        struct pl_rng rng;
        struct pl_pool *pool = pool_open(4);
        memset(piece, 0, sizeof piece);
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 52, (uint64_t)window);
        pl_pool_window(pool, 0);
        for (int i = 0; i < N_PIECES; i++) piece_submit(pool, &piece[i], &rng);
        pl_pool_window(pool, window);
        while (n_started < window) {
        }
        pl_pool_window(pool, 0); /* so that dropping makes no room */
        for (int i = 0; i < N_PIECES; i++) piece_drop(pool, &piece[i]);
        assert_int_equal(n_started, window);
        for (int i = 0; i < N_PIECES; i++) {
            int before = 0;
            for (int j = 0; j < N_PIECES; j++)
                before += piece[j].key < piece[i].key || (piece[j].key == piece[i].key && j < i);
            assert_int_equal(piece[i].n_runs, before < window);
        }
        pl_pool_free(pool);
        assert_int_equal(n_wrong, 0);
    }
}

/* A piece that is waited for runs at once, though the window is shut and others are more urgent. */
TEST(who_waits_does_not_wait_in_line) {
    struct piece piece[N_PIECES];
    struct pl_rng rng;
    struct pl_pool *pool = pool_open(3);
    memset(piece, 0, sizeof piece);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 54, 0);
    pl_pool_window(pool, 0);
    for (int i = 0; i < N_PIECES; i++) piece_submit(pool, &piece[i], &rng);
    piece_wait(pool, &piece[N_PIECES - 1]);
    piece_wait(pool, &piece[7]);
    assert_int_equal(n_started, 2);
    for (int i = 0; i < N_PIECES; i++) piece_drop(pool, &piece[i]);
    assert_int_equal(n_started, 2);
    pl_pool_free(pool);
}

/* A piece that is dropped while it runs is told so, and is gone when the drop returns. */
TEST(dropped_pieces_are_told) {
    for (int round = 0; round < (sanitized ? 50 : 300); round++) {
        struct piece p = {.until_cancelled = true};
        struct pl_rng rng;
        struct pl_pool *pool = pool_open(2);
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 53, (uint64_t)round);
        piece_submit(pool, &p, &rng);
        while (round % 2 && n_started == 0) {
        }
        piece_drop(pool, &p);
        assert_true(round % 2 == 0 || p.n_runs == 1);
        p.until_cancelled = false;
        piece_submit(pool, &p, &rng); /* the mark is off again */
        piece_wait(pool, &p);
        assert_false(atomic_load(&p.work.cancel));
        pl_pool_free(pool);
    }
}

static struct pl_lock *lock;
static long guarded;

static void guarded_add(void *arg, int i, int thread) {
    for (int k = 0; k < 100; k++) {
        pl_lock_enter(lock);
        guarded += i;
        pl_lock_leave(lock);
    }
}

TEST(locks_lock) {
    struct pl_pool *pool = pool_open(4);
    lock = pl_lock_new();
    assert_non_null(lock);
    pl_pool_each(pool, 100, guarded_add, NULL);
    assert_int_equal(guarded, 100 * 4950);
    pl_lock_free(lock);
    pl_lock_free(NULL);
    pl_pool_free(pool);
}

TEST(there_is_a_core) {
    assert_true(pl_cores() >= 1);
}
