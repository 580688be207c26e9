/* Transports with workers of their own, threads, processes and (mpi.sh) ranks, all at once:
 * no order and no result is torn, no cancel is lost or strikes another order, no vector changes
 * under who may use it, and nobody spins. Written to be run under the thread sanitizer as well. */
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "suite_transport.h"
#include "sys/futex.h"
#include "sys/thread.h"

static const struct pl_transport *const *kinds;
static size_t n_kinds;

/* How often something is tried: messages take their time. */
static int rounds(const struct crew *c, int shared) {
    return crew_is_far(c->t) ? shared / 100 : c->t->shared ? shared : shared / 20;
}

static void tell(struct crew *c, int worker, uint64_t task) {
    struct pl_order o = crew_order(c, task, c->version[worker], c->own[worker][worker]);
    c->t->port.tell(c->p, worker, &o);
}

/* --- everything at random ---------------------------------------------------------------- */

/* Everything at random, with buffers that are spoilt as soon as holds() says they are free. The
 * worker reads its version whole, at the beginning and at the end. */
static void race_worker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_rng rng;
    struct pl_order o;
    uint64_t last = 0;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 62, (uint64_t)worker);
    while (c->t->link.pull(l, &o) == 0) {
        const struct pl_cancel *cancelled = c->t->link.cancelled(l);
        const float *w = o.input[0].v;
        bool wrong = o.task <= last || !crew_noted(c, &o);
        last = o.task;
        for (int pass = 0; pass < 2; pass++) {
            for (size_t i = 0; i < c->dim; i++) {
                wrong = wrong || w[i] != (float)o.task;
                o.out[i] = -w[i];
            }
            if (pass == 0 && pl_rng_below(&rng, 4) == 0)
                c->t->link.sleep(l, pl_rng_below(&rng, 200000));
        }
        if (wrong) atomic_fetch_add(&c->notes->n_wrong, 1);
        if (pl_cancelled(cancelled) && pl_rng_below(&rng, 4)) continue;
        c->t->link.push(l,
                        &(struct pl_result){.task = o.task, .samples = 1, .loss = (double)o.task});
    }
}

struct race {
    struct crew *c;
    uint64_t task[CREW_MAX], done[CREW_MAX];
    bool none[CREW_MAX];    /* the latest was cancelled */
    bool busy[CREW_MAX][4]; /* a buffer that may still be in use; task t has number t % 4 */
};

/* Spoils what is free. */
static void race_free(struct race *r, int w) {
    struct crew *c = r->c;
    if (c->t->port.holds(c->p, w) != 0) return;
    for (int i = 0; i < 4; i++) {
        if (!r->busy[w][i] || (!r->none[w] && i == (int)(r->task[w] % 4))) continue;
        r->busy[w][i] = false;
        for (size_t j = 0; j < c->dim; j++) c->version[4 * w + i][j] = -7;
        for (size_t j = 0; j < c->dim; j++) c->own[w][4 * w + i][j] = -7;
    }
}

static void race_news(struct race *r, uint64_t wait_ns) {
    struct crew *c = r->c;
    struct pl_news n;
    c->t->port.news(c->p, wait_ns, &n);
    if (n.kind != PL_NEWS_RESULT) return;
    int w = n.worker;
    assert_true(n.result.task > r->done[w] && n.result.task <= r->task[w]);
    assert_true(n.result.loss == (double)n.result.task);
    r->done[w] = n.result.task;
    if (n.result.task < r->task[w] || r->none[w]) return;
    const float *out = c->own[w][4 * w + (int)(r->task[w] % 4)];
    for (size_t j = 0; j < c->dim; j++) assert_true(out[j] == -(float)n.result.task);
}

static void race_tell(struct race *r, int w) {
    struct crew *c = r->c;
    uint64_t task = r->task[w] + 1;
    int at = (int)(task % 4);
    for (int tries = 0; r->busy[w][at]; tries++) {
        assert_true(tries < 100000);
        race_news(r, 100000);
        race_free(r, w);
    }
    r->busy[w][at] = true;
    r->none[w] = false;
    r->task[w] = task;
    for (size_t j = 0; j < c->dim; j++) c->version[4 * w + at][j] = (float)task;
    struct pl_order o = crew_order(c, task, c->version[4 * w + at], c->own[w][4 * w + at]);
    c->t->port.tell(c->p, w, &o);
}

static void race_cancel(struct race *r, int w) {
    r->c->t->port.cancel(r->c->p, w);
    r->none[w] = true;
}

/* What was told and not taken back is answered. */
static void race_settle(struct race *r) {
    for (int w = 0; w < r->c->n_workers; w++)
        for (int tries = 0; !r->none[w] && r->done[w] < r->task[w]; tries++) {
            assert_true(tries < 100000);
            race_news(r, 10000000);
        }
}

TEST(a_race_of_everything) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        struct race r = {.c = &c};
        struct pl_rng rng;
        if (!crew_forks(kinds[k])) continue;
        crew_open(&c, kinds[k], 4, 200, false);
        for (int w = 0; w < 4; w++) {
            crew_spawn(&c, w, race_worker);
            if (crew_is_far(c.t)) crew_news(&c, PL_NEWS_JOINED, w); /* nobody expects it */
        }
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 63, k);
        for (int round = sanitized || crew_is_far(c.t) ? 3000 : 12000; round > 0; round--) {
            int w = (int)pl_rng_below(&rng, 4);
            switch (pl_rng_below(&rng, 6)) {
            case 0: race_cancel(&r, w); break;
            case 1: race_free(&r, w); break;
            case 2: race_news(&r, 0); break;
            case 3: race_news(&r, 20000); break;
            default: race_tell(&r, w); break;
            }
            if (pl_rng_below(&rng, 16) == 0) race_settle(&r);
        }
        race_settle(&r);
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        for (int w = 0; w < 4; w++) assert_int_equal(crew_join(&c, w), 0);
        crew_close(&c);
    }
}

/* --- one end as fast as it can, the other too -------------------------------------------- */

/* Pulls and pulls; the same order comes again until it is answered. */
static void pull_worker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    for (int n = 1; c->t->link.pull(l, &o) == 0; n++) {
        const float *w = o.input[0].v;
        bool wrong = !crew_noted(c, &o);
        for (size_t i = 0; i < c->dim; i++) wrong = wrong || w[i] != (float)o.task;
        if (wrong) atomic_fetch_add(&c->notes->n_wrong, 1);
        if (n % 16) continue;
        for (size_t i = 0; i < c->dim; i++) o.out[i] = -w[i];
        c->t->link.push(l,
                        &(struct pl_result){.task = o.task, .samples = 1, .loss = (double)o.task});
    }
}

/* One that reads orders all the time, and one that writes and frees them all the time. */
TEST(no_order_is_torn_or_taken_too_late) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        struct race r = {.c = &c};
        if (!crew_forks(kinds[k])) continue;
        crew_open(&c, kinds[k], 1, 20, false);
        crew_spawn(&c, 0, pull_worker);
        crew_news(&c, PL_NEWS_JOINED, 0);
        for (int round = rounds(&c, sanitized ? 30000 : 500000); round > 0; round--) {
            race_tell(&r, 0);
            race_free(&r, 0);
        }
        race_settle(&r);
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        assert_int_equal(crew_join(&c, 0), 0);
        crew_close(&c);
    }
}

static struct pl_seqlock cell;
#define N_WRITTEN 1000000

static void write_cell(void *arg) {
    uint64_t word[PL_SEQLOCK_WORDS];
    for (uint64_t i = 1; i <= N_WRITTEN; i++) {
        for (int k = 0; k < PL_SEQLOCK_WORDS; k++) word[k] = i;
        pl_seqlock_write(&cell, word);
    }
}

TEST(a_cell_is_read_whole_or_not_at_all) {
    struct pl_thread *thread;
    uint64_t word[PL_SEQLOCK_WORDS] = {0}, last = 0;
    unsigned seq = 0;
    assert_int_equal(pl_thread_start(write_cell, NULL, &thread), 0);
    while (last < N_WRITTEN) {
        if (!pl_seqlock_read(&cell, word, &seq)) continue;
        for (int i = 1; i < PL_SEQLOCK_WORDS; i++) assert_int_equal(word[i], word[0]);
        assert_true(word[0] >= last);
        last = word[0];
    }
    pl_thread_join(thread);
}

#define N_RESULTS 200000

static void push_worker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    while (c->t->link.pull(l, &o) == 0)
        for (uint32_t n = 1; n <= N_RESULTS; n++)
            c->t->link.push(l, &(struct pl_result){.task = n, .samples = n, .loss = n});
}

TEST(no_result_is_torn) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        uint64_t last = 0;
        if (!kinds[k]->shared || crew_is_far(kinds[k]))
            continue; /* answers without orders: there is no cell to tear */
        if (!crew_forks(kinds[k])) continue;
        crew_open(&c, kinds[k], 1, 20, false);
        crew_spawn(&c, 0, push_worker);
        crew_news(&c, PL_NEWS_JOINED, 0);
        tell(&c, 0, 1);
        while (last < N_RESULTS) {
            struct pl_news n;
            c.t->port.news(c.p, CREW_PATIENCE_NS, &n);
            assert_int_equal(n.kind, PL_NEWS_RESULT);
            assert_true(n.result.task > last && n.result.defect == PL_NO_DEFECT);
            assert_true(n.result.samples == n.result.task && n.result.loss == n.result.samples);
            last = n.result.task;
        }
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        assert_int_equal(crew_join(&c, 0), 0);
        crew_close(&c);
    }
}

/* Even tasks are always cancelled and odd ones never. */
static void parity_worker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    while (c->t->link.pull(l, &o) == 0) {
        const struct pl_cancel *cancelled = c->t->link.cancelled(l);
        if (o.task % 2 == 0) {
            c->t->link.sleep(l, PL_FOREVER); /* a cancel that was lost: for ever */
            continue;
        }
        for (int i = 0; i < 20; i++)
            if (pl_cancelled(cancelled)) atomic_fetch_add(&c->notes->n_wrong, 1);
        c->t->link.push(l, &(struct pl_result){.task = o.task, .samples = 1});
    }
}

TEST(no_cancel_is_lost_or_stray) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        struct pl_rng rng;
        if (!crew_forks(kinds[k])) continue;
        crew_open(&c, kinds[k], 1, 20, false);
        crew_spawn(&c, 0, parity_worker);
        crew_news(&c, PL_NEWS_JOINED, 0);
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 64, k);
        uint64_t n_tasks = crew_is_far(c.t) ? 1000 : c.t->shared && !sanitized ? 20000 : 4000;
        for (uint64_t task = n_tasks; task > 1; task -= 2) {
            uint64_t even = 2 * (40000 - task);
            tell(&c, 0, even);
            for (volatile uint64_t i = pl_rng_below(&rng, 40000); i > 0; i--) {
            }
            c.t->port.cancel(c.p, 0);
            tell(&c, 0, even + 1);
            assert_int_equal(crew_news(&c, PL_NEWS_RESULT, 0).result.task, even + 1);
        }
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        assert_int_equal(crew_join(&c, 0), 0);
        crew_close(&c);
    }
}

/* --- waiting ----------------------------------------------------------------------------- */

static void rest_worker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    if (!c->t->shared && worker == 0) atomic_store(&c->notes->value[2], (int)getpid());
    while (c->t->link.pull(l, &o) == 0) {
        int rc = c->t->link.sleep(l, PL_FOREVER);
        atomic_fetch_add(&c->notes->value[worker], rc == PL_ECANCELLED);
    }
}

static void phase_becomes(struct crew *c, int worker, enum pl_phase phase) {
    for (int tries = 0; c->t->port.phase(c->p, worker) != phase; tries++) {
        assert_true(tries < 100000);
        crew_sleep(100000);
    }
}

TEST(a_cancel_wakes_a_worker_that_sleeps) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        if (!crew_forks(kinds[k]) || crew_is_far(kinds[k])) continue;
        crew_open(&c, kinds[k], 2, 3, false);
        for (int w = 0; w < 2; w++) crew_spawn(&c, w, rest_worker);
        for (int i = 1; i < 20; i++) {
            tell(&c, 0, (uint64_t)i);
            phase_becomes(&c, 0, PL_PHASE_SLEEPING);
            c.t->port.cancel(c.p, 0);
            phase_becomes(&c, 0, PL_PHASE_WAITING);
            assert_int_equal(c.notes->value[0], i);
        }
        tell(&c, 1, 20);
        phase_becomes(&c, 1, PL_PHASE_SLEEPING);
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS); /* wakes one who rests, too */
        for (int w = 0; w < 2; w++) assert_int_equal(crew_join(&c, w), 0);
        assert_int_equal(c.notes->value[1], 1);
        crew_close(&c);
    }
}

static double cpu_seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- bases ------------------------------------------------------------------------------- */

/* Processor time, not time on the wall: all ends wait for 300 ms and more. Who spins uses it in
 * each such wait; on a machine that is busy, to wake up may cost more than it should, in some of
 * them. */
TEST(who_waits_uses_no_processor) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        struct pl_news news;
        clockid_t theirs = CLOCK_PROCESS_CPUTIME_ID;
        if (!crew_forks(kinds[k]) || crew_is_far(kinds[k])) continue;
        crew_open(&c, kinds[k], 2, 3, true);
        for (int w = 0; w < 2; w++) crew_spawn(&c, w, rest_worker);
        tell(&c, 1, 1);
        phase_becomes(&c, 0, PL_PHASE_WAITING);
        phase_becomes(&c, 1, PL_PHASE_SLEEPING);
        for (int n_here = 0; n_here < 2; n_here++) { /* ranks come in any order */
            c.t->port.news(c.p, CREW_PATIENCE_NS, &news);
            assert_int_equal(news.kind, PL_NEWS_JOINED);
            if (c.t->shared) assert_int_equal(news.worker, n_here);
        }
        int pid = c.t->shared ? c.member[0].pid : atomic_load(&c.notes->value[2]);
        if (pid) assert_int_equal(clock_getcpuclockid(pid, &theirs), 0);
        /* over MPI who waits looks now and then: see pl_wire_pause */
        double most = c.t->shared ? 0.005 : 0.03, ours = most, other = most;
        for (int tries = 0; tries < 40 && (ours >= most || other >= most); tries++) {
            double ours_before = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
            double other_before = cpu_seconds(theirs);
            c.t->port.news(c.p, 300000000, &news);
            assert_int_equal(news.kind, PL_NEWS_NONE);
            ours = fmin(ours, cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - ours_before);
            other = fmin(other, cpu_seconds(theirs) - other_before);
        }
        if (ours >= most || other >= most) fail_msg("%s: %g s, %g s", c.t->name, ours, other);
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        for (int w = 0; w < 2; w++) assert_int_equal(crew_join(&c, w), 0);
        crew_close(&c);
    }
}

int main(void) {
    return crew_main(&kinds, &n_kinds);
}
