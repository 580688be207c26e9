/* Workers that are processes: killed, stopped, broken, without a server; and nothing that any of
 * them leaves behind. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "suite_transport.h"
#include "sys/futex.h"
#include "sys/process.h"
#include "sys/segment.h"

static void result_is(struct crew *c, int worker, uint64_t task) {
    struct pl_result r = crew_news(c, PL_NEWS_RESULT, worker).result;
    assert_int_equal(r.task, task);
    assert_int_equal(r.defect, PL_NO_DEFECT);
    assert_true(r.samples == 1 && r.loss == 2);
    crew_echoed(c, worker, task);
}

static void all_end_well(struct crew *c) {
    c->t->port.shutdown(c->p, CREW_PATIENCE_NS);
    for (int w = 0; w < c->n_workers; w++) assert_int_equal(crew_join(c, w), 0);
    crew_close(c);
}

/* --- death ------------------------------------------------------------------------------- */

TEST(a_killed_worker_is_gone) {
    struct crew c;
    struct pl_rng rng;
    uint64_t task = 0, got = 0;
    if (!crew_forks(&pl_shm)) return;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 71, 0);
    crew_open(&c, &pl_shm, 2, 50, false);
    crew_spawn(&c, 1, crew_echo);
    crew_news(&c, PL_NEWS_JOINED, 1);
    for (int round = 0; round < 40; round++) {
        bool here = false, gone = false;
        uint64_t first = task + 1;
        crew_spawn(&c, 0, crew_echo);
        for (uint64_t n = pl_rng_below(&rng, 30); n > 0; n--) {
            crew_tell(&c, 0, ++task);
            crew_sleep(pl_rng_below(&rng, 40000));
        }
        kill(c.member[0].pid, SIGKILL);
        while (!gone) {
            struct pl_news n;
            c.t->port.news(c.p, CREW_PATIENCE_NS, &n);
            assert_int_equal(n.worker, 0);
            assert_true(n.kind != PL_NEWS_RESULT ||
                        (here && n.result.task >= first && n.result.task <= task &&
                         n.result.task > got && n.result.defect == PL_NO_DEFECT));
            assert_true(n.kind != PL_NEWS_JOINED || !here);
            if (n.kind == PL_NEWS_RESULT) got = n.result.task;
            here = here || n.kind == PL_NEWS_JOINED;
            gone = n.kind == PL_NEWS_GONE;
        }
        assert_int_equal(crew_join(&c, 0), SIGKILL);
        assert_false(c.t->port.holds(c.p, 0));
        crew_silent(&c);
        crew_tell(&c, 1, (uint64_t)round + 1);
        result_is(&c, 1, (uint64_t)round + 1);
    }
    all_end_well(&c);
}

static void dies_at_once(struct crew *c, struct pl_link *l, int worker) {
    raise(SIGKILL);
}

/* Between fork and attach; no fork at all is in test_transport.c. */
TEST(a_worker_may_die_before_it_comes) {
    struct crew c;
    if (!crew_forks(&pl_shm)) return;
    crew_open(&c, &pl_shm, 1, 3, false);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(c.t->start->expect(c.p, 0, NULL), 0);
        crew_tell(&c, 0, 5);
        pid_t pid = fork();
        if (pid == 0) _exit(3);
        c.t->start->made(c.p, 0);
        crew_news(&c, PL_NEWS_GONE, 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        crew_spawn(&c, 0, dies_at_once);
        crew_news(&c, PL_NEWS_JOINED, 0);
        crew_news(&c, PL_NEWS_GONE, 0);
        assert_int_equal(crew_join(&c, 0), SIGKILL);
    }
    crew_spawn(&c, 0, crew_echo);
    crew_news(&c, PL_NEWS_JOINED, 0);
    crew_tell(&c, 0, 6);
    result_is(&c, 0, 6);
    all_end_well(&c);
}

TEST(a_stopped_worker_holds_up_nobody) {
    struct crew c;
    struct pl_rng rng;
    if (!crew_forks(&pl_shm)) return;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 72, 0);
    crew_open(&c, &pl_shm, 2, 50, false);
    crew_spawn(&c, 0, crew_echo);
    crew_news(&c, PL_NEWS_JOINED, 0);
    crew_spawn(&c, 1, crew_echo);
    crew_news(&c, PL_NEWS_JOINED, 1);
    for (uint64_t round = 1; round < 30; round++) {
        int status;
        crew_tell(&c, 0, round);
        crew_sleep(pl_rng_below(&rng, 60000));
        kill(c.member[0].pid, SIGSTOP);
        assert_int_equal(waitpid(c.member[0].pid, &status, WUNTRACED), c.member[0].pid);
        assert_true(WIFSTOPPED(status));
        bool early = false; /* it was done before it was stopped */
        for (uint64_t i = 0; i < 10; i++) {
            struct pl_news n;
            crew_tell(&c, 1, 100 * round + i);
            do {
                n = (struct pl_news){.kind = PL_NEWS_NONE};
                c.t->port.news(c.p, CREW_PATIENCE_NS, &n);
                assert_int_equal(n.kind, PL_NEWS_RESULT);
                early = early || n.worker == 0;
            } while (n.worker == 0);
            assert_int_equal(n.result.task, 100 * round + i);
        }
        kill(c.member[0].pid, SIGCONT);
        if (!early) result_is(&c, 0, round);
    }
    kill(c.member[0].pid, SIGSTOP);
    c.t->port.shutdown(c.p, 20000000); /* comes back although one of them cannot hear */
    kill(c.member[0].pid, SIGCONT);
    all_end_well(&c);
}

static void vandal(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own */
    if (c->t->link.pull(l, &o)) return;
    o.out[0] = 1;
    memset((void *)(uintptr_t)o.input[0].v, 7, c->dim * sizeof(float));
}

TEST(a_worker_cannot_write_a_version) {
    struct crew c;
    if (!crew_forks(&pl_shm)) return;
    crew_open(&c, &pl_shm, 1, 50, false);
    crew_spawn(&c, 0, vandal);
    crew_news(&c, PL_NEWS_JOINED, 0);
    crew_tell(&c, 0, 1);
    crew_news(&c, PL_NEWS_GONE, 0);
    assert_int_equal(WTERMSIG(crew_join(&c, 0)), SIGSEGV);
    for (int i = 0; i < 50; i++) assert_true(c.version[0][i] == 0);
    assert_true(c.slot[0][0] == 1);
    crew_close(&c);
}

static void noise_maker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_shape s = crew_shape(c);
    struct pl_rng rng;
    struct pl_head *head = (void *)((char *)c->version[0] - s.versions);
    _Atomic uint64_t *word = (void *)head;
    size_t from =
        (s.mailboxes + sizeof(struct pl_mailbox)) / sizeof *word; /* its own box, and what is */
    size_t n = s.versions / sizeof *word - from;                  /* behind it */
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 73, 0);
    for (uint64_t i = 0;; i++) {
        word[from + i % n] = pl_rng_u64(&rng);
        if (i % 64 == 0) atomic_fetch_or(&head->ready[0], 2);
        if (i == 100000) atomic_store(&c->notes->gate, 1);
    }
}

/* Noise while the server reads; the next owner of the box finds it clean. */
TEST(a_mad_worker_harms_itself) {
    struct crew c;
    if (!crew_forks(&pl_shm)) return;
    crew_open(&c, &pl_shm, 2, 50, false);
    crew_spawn(&c, 0, crew_echo);
    crew_news(&c, PL_NEWS_JOINED, 0);
    crew_spawn(&c, 1, noise_maker);
    for (uint64_t task = 1; task < 200 || !atomic_load(&c.notes->gate); task++) {
        struct pl_news n;
        crew_tell(&c, 0, task);
        crew_tell(&c, 1, task);
        c.t->port.cancel(c.p, 1);
        do {
            c.t->port.news(c.p, CREW_PATIENCE_NS, &n);
            assert_true(n.kind >= PL_NEWS_JOINED && n.kind <= PL_NEWS_RESULT);
            assert_true(n.kind != PL_NEWS_BASE || n.worker == 1); /* only noise */
            c.t->port.holds(c.p, 1);
            assert_true(c.t->port.phase(c.p, 1) <= PL_PHASE_COMPUTING);
        } while (n.worker != 0);
        assert_int_equal(n.result.task, task);
    }
    kill(c.member[1].pid, SIGKILL);
    crew_until(&c, PL_NEWS_GONE, 1);
    crew_join(&c, 1);
    crew_spawn(&c, 1, crew_echo);
    crew_news(&c, PL_NEWS_JOINED, 1);
    crew_tell(&c, 1, 7);
    result_is(&c, 1, 7);
    all_end_well(&c);
}

/* --- the server's death ------------------------------------------------------------------ */

/* Without the signal that a parent's death sends; the socket must do. */
static void orphan_pulls(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    if (worker) prctl(PR_SET_PDEATHSIG, 0);
    atomic_fetch_add(&c->notes->gate, 1);
    while (c->t->link.pull(l, &o) == 0) {
    }
}

static void orphan_rests(struct crew *c, struct pl_link *l, int worker) {
    prctl(PR_SET_PDEATHSIG, 0);
    atomic_fetch_add(&c->notes->gate, 1);
    if (c->t->link.sleep(l, PL_FOREVER) != PL_ECANCELLED) orphan_pulls(c, l, worker);
}

/* A client that has a child, which is still there when the client is killed. */
static void client_with_child(struct crew *c, int say) {
    struct pl_link *l;
    int worker;
    size_t dim;
    if (crew_connect(c->path, &l, &worker, &dim, NULL)) _exit(1);
    pid_t child = fork();
    if (child == 0) child = getpid();
    alarm(CREW_PATIENCE_NS / 500000000); /* if the test has failed */
    if (child == getpid() && write(say, &child, sizeof child) != sizeof child) _exit(1);
    for (;;) pause();
}

TEST(a_child_of_a_client_does_not_stand_in_for_it) {
    struct crew c;
    int pipes[2];
    pid_t child;
    if (!crew_forks(&pl_shm)) return;
    assert_int_equal(pipe(pipes), 0);
    crew_open(&c, &pl_shm, 1, 3, true);
    pid_t client = fork();
    if (client == 0) client_with_child(&c, pipes[1]);
    crew_news(&c, PL_NEWS_JOINED, 0);
    assert_int_equal(read(pipes[0], &child, sizeof child), sizeof child);
    kill(client, SIGKILL);
    assert_int_equal(waitpid(client, NULL, 0), client);
    crew_news(&c, PL_NEWS_GONE, 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    crew_close(&c);
    close(pipes[0]);
    close(pipes[1]);
}

/* A client that is a process, and no child of the server's. */
static void orphan_client(struct crew *c) {
    struct pl_link *l;
    int worker;
    size_t dim;
    if (crew_connect(c->path, &l, &worker, &dim, NULL)) _exit(1);
    orphan_pulls(c, l, worker);
    _exit(0);
}

static void server_main(struct crew *c, int say) {
    char one = 1;
    crew_open(c, &pl_shm, 5, 3, true);
    crew_spawn(c, 0, orphan_pulls);
    crew_spawn(c, 1, orphan_pulls);
    crew_spawn(c, 2, orphan_rests);
    crew_spawn(c, 3, orphan_pulls);
    if (fork() == 0) orphan_client(c);
    if (!crew_wait(&c->notes->gate, 5) || write(say, &one, 1) != 1) _exit(1);
    for (;;) pause();
}

TEST(workers_end_with_their_server) {
    struct crew c;
    int pipes[2];
    char byte;
    if (!crew_forks(&pl_shm)) return;
    assert_int_equal(pipe(pipes), 0);
    pid_t server = fork();
    if (server == 0) {
        close(pipes[0]);
        server_main(&c, pipes[1]);
    }
    close(pipes[1]);
    struct pollfd end = {.fd = pipes[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, (int)(CREW_PATIENCE_NS / 1000000)), 1);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
    /* the pipe ends when the last of them has ended */
    assert_int_equal(poll(&end, 1, (int)(CREW_PATIENCE_NS / 1000000)), 1);
    assert_int_equal(read(pipes[0], &byte, 1), 0);
    close(pipes[0]);
    char path[64];
    snprintf(path, sizeof path, "transport-%d.sock", (int)server);
    assert_int_equal(unlink(path), 0); /* what a killed server does leave */
}

/* --- nothing is left --------------------------------------------------------------------- */

TEST(segments_have_no_name_and_keep_their_size) {
    struct pl_segment s, t;
    struct stat at;
    assert_int_equal(pl_segment_new(3 * PL_PAGE, true, &s), 0);
    assert_int_equal(fstat(s.fd, &at), 0);
    assert_int_equal(at.st_mode & 0777, 0600);
    assert_int_equal(at.st_blocks, 0);
    assert_int_equal(at.st_nlink, 0);               /* in no folder */
    assert_int_equal(ftruncate(s.fd, PL_PAGE), -1); /* by whoever was given the descriptor */
    assert_int_equal(pl_segment_map(dup(s.fd), 3 * PL_PAGE + 1, &t), PL_EDATA);
    assert_int_equal(pl_segment_map(dup(s.fd), 3 * PL_PAGE, &t), 0);
    ((char *)t.at)[PL_PAGE] = 5;
    assert_int_equal(((char *)s.at)[PL_PAGE], 5);
    int zero = open("/dev/zero", O_RDWR);
    assert_int_equal(pl_segment_map(zero, PL_PAGE, &(struct pl_segment){0}), PL_EDATA);
    pl_segment_free(&t);
    /* found where a process has it, and nothing else is */
    assert_int_equal(pl_segment_find((int)getpid(), s.fd, 3 * PL_PAGE, &t), 0);
    *(char *)t.at = 7;
    assert_int_equal(*(char *)s.at, 7);
    pl_segment_free(&t);
    assert_int_equal(pl_segment_find((int)getpid(), s.fd, 3 * PL_PAGE + 1, &t), PL_EDATA);
    assert_int_equal(pl_segment_find((int)getpid(), 0, 1, &t), PL_EDATA);
    assert_int_equal(pl_segment_find((int)getpid(), -1, 1, &t), PL_EDATA);
    assert_int_equal(pl_segment_find(0, s.fd, PL_PAGE, &t), PL_EDATA);
    pl_segment_free(&s);
    pl_segment_free(&s);
    assert_int_equal(pl_segment_new(0, true, &s), PL_ENOMEM);
    assert_int_equal(pl_segment_new(SIZE_MAX, false, &s), PL_ENOMEM);
}

/* --- signals across fork ------------------------------------------------------------------- */

static int count_blocked(void *arg) {
    sigset_t now;
    int n = 0;
    sigprocmask(SIG_BLOCK, NULL, &now);
    for (int i = 1; i < 32; i++) n += sigismember(&now, i) == 1;
    return n;
}

/* Neither a new process nor its parent has a signal blocked that was not before. */
TEST(signals_are_blocked_only_across_a_fork) {
    char how[96];
    int before = count_blocked(NULL);
    int pid = pl_process_start("mask", count_blocked, NULL);
    assert_true(pid > 0);
    assert_int_equal(count_blocked(NULL), before);
    pl_process_await(pid, UINT64_C(120000000000), how, sizeof how);
    assert_string_equal(how, "left");
}
