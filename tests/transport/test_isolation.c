/* What a client of a port over shared memory cannot do: write what is not its own, also after it
 * has left; and what evaluators get, also when they freeze. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "suite_transport.h"
#include "sys/futex.h"
#include "sys/thread.h"
#include "transport/areas.h"
#include "transport/greeting.h"
#include "transport/link.h"

static void echo_client(struct crew *c) {
    struct pl_link *l;
    int worker;
    size_t dim;
    if (crew_connect(c->path, &l, &worker, &dim, NULL)) _exit(1);
    crew_echo(c, l, worker);
    c->t->link.detach(l);
    _exit(0);
}

static pid_t start_client(struct crew *c, void (*client)(struct crew *c)) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
    if (pid == 0) client(c);
    return pid;
}

static void end_client(pid_t pid, int status) {
    int was = -1;
    assert_int_equal(waitpid(pid, &was, 0), pid);
    assert_int_equal(was, status);
}

/* --- hostile ----------------------------------------------------------------------------- */

struct loot {
    int sock, fd[PL_GIVEN];
    struct pl_answer answer;
    struct pl_shape shape;
};

/* Joins by hand, and keeps the descriptors. False: it cannot. */
static bool loot_get(struct crew *c, struct loot *loot) {
    struct sockaddr_un a;
    struct pl_hello hello = {.magic = PL_GREETING_MAGIC, .version = PL_GREETING_VERSION};
    struct pl_answer *n = &loot->answer;
    int n_fds;
    loot->sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (pl_greeting_address(c->path, &a, NULL) ||
        connect(loot->sock, (struct sockaddr *)&a, sizeof a) ||
        !pl_greeting_send(loot->sock, &hello, sizeof hello, NULL, 0) ||
        pl_greeting_receive(loot->sock, n, sizeof *n, loot->fd, PL_GIVEN, &n_fds, 60000) ||
        n_fds != PL_GIVEN)
        return false;
    loot->shape = (struct pl_shape){.n_workers = n->n_workers,
                                    .n_evaluators = n->n_evaluators,
                                    .dim = n->dim,
                                    .n_versions = n->n_versions,
                                    .n_slots = n->n_slots,
                                    .n_own = n->n_own,
                                    .half = n->half};
    return pl_shape_of(&loot->shape);
}

static bool file_resists(int fd, size_t size) {
    char path[64];
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED || pwrite(fd, "x", 1, 0) >= 0 || ftruncate(fd, 1) == 0) return false;
    at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || mprotect(at, size, PROT_READ | PROT_WRITE) == 0) return false;
    munmap(at, size);
    /* a user may open its files again as it likes */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR);
    if (again < 0) return true;
    bool written = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED ||
                   pwrite(again, "x", 1, 0) >= 0 || ftruncate(again, 1) == 0 ||
                   fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
    close(again);
    return !written;
}

/* Everything in its area is noise; its mailbox says that it has joined. */
static _Noreturn void loot_scribble(struct crew *c, struct loot *loot, char *at) {
    struct pl_mailbox *b = (void *)at;
    struct pl_rng rng;
    const char ready = PL_SAID_READY;
    size_t n = loot->shape.slots - loot->shape.mailboxes + 4 * loot->shape.stride;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 91, 0);
    for (uint64_t i = 0;; i++) {
        ((_Atomic uint64_t *)(void *)at)[pl_rng_below(&rng, (uint32_t)(n / 8))] = pl_rng_u64(&rng);
        if (i % 64) continue;
        atomic_store(&b->joined, loot->answer.owner);
        if (loot->sock >= 0) send(loot->sock, &ready, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (i == 64 * 1000) atomic_fetch_add(&c->notes->gate, 1);
    }
}

/* Exits with 1 if it can do what it should not. */
static void vandal(struct crew *c) {
    struct loot loot;
    struct stat s;
    if (!loot_get(c, &loot)) _exit(2);
    size_t area = loot.shape.mailbox_step;
    if (!file_resists(loot.fd[PL_GIVEN_HEAD], loot.shape.mailboxes) ||
        !file_resists(loot.fd[PL_GIVEN_VERSIONS], loot.shape.versions_end - loot.shape.versions))
        _exit(1);
    if (fstat(loot.fd[PL_GIVEN_AREA], &s) || (size_t)s.st_size != area) _exit(1);
    if (ftruncate(loot.fd[PL_GIVEN_AREA], 1) == 0) _exit(1);
    char *at = mmap(NULL, area, PROT_READ | PROT_WRITE, MAP_SHARED, loot.fd[PL_GIVEN_AREA], 0);
    if (at == MAP_FAILED) _exit(2);
    loot_scribble(c, &loot, at);
}

/* Tasks for workers 0 and 1 while worker 2 does what it likes. */
static void tasks_with_vandal(struct crew *c, pid_t pid) {
    uint64_t task[2] = {0};
    int status;
    for (uint64_t done = 0; done < 2000 || !atomic_load(&c->notes->gate); done++) {
        struct pl_news n;
        for (int w = 0; w < 2; w++)
            if (done == 0) crew_tell(c, w, ++task[w]);
        do {
            c->t->port.news(c->p, CREW_PATIENCE_NS, &n);
            assert_true(n.kind != PL_NEWS_NONE);
            if (done % 512 == 0 && waitpid(pid, &status, WNOHANG) == pid)
                fail_msg("the client could do what it should not: status %d", status);
            if (n.worker == 2) c->t->port.holds(c->p, 2);
        } while (n.worker == 2 || n.kind != PL_NEWS_RESULT);
        assert_int_equal(n.result.task, task[n.worker]);
        assert_int_equal(n.result.defect, PL_NO_DEFECT);
        crew_echoed(c, n.worker, task[n.worker]);
        if (done % 16 == 0) {
            crew_tell(c, 2, done / 16 + 1);
            c->t->port.cancel(c->p, 2);
        }
        crew_tell(c, n.worker, ++task[n.worker]);
    }
}

static void check_vandal(bool peers) {
    struct crew c;
    crew_open_with(&c, &pl_shm, 3, 50, true, (struct pl_port_conf){.peers = peers});
    for (int i = 0; i < 50; i++) c.version[0][i] = c.version[1][i] = (float)i;
    crew_spawn(&c, 0, crew_echo);
    crew_news(&c, PL_NEWS_JOINED, 0);
    pid_t client = start_client(&c, echo_client);
    crew_news(&c, PL_NEWS_JOINED, 1);
    pid_t pid = start_client(&c, vandal);
    tasks_with_vandal(&c, pid);
    assert_int_equal(atomic_load(&crew_head(&c)->shutdown), 0);
    kill(pid, SIGKILL);
    end_client(pid, SIGKILL);
    c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
    end_client(client, 0);
    assert_int_equal(crew_join(&c, 0), 0);
    crew_close(&c);
}

TEST(a_vandal_harms_only_itself) {
    if (!crew_forks(&pl_shm)) return;
    check_vandal(false);
    check_vandal(true);
}

/* Leaves, but keeps its memory and writes on. It waits until the server knows that it has joined:
 * noise may say at any moment that it has not. */
static void ghost(struct crew *c) {
    struct loot loot;
    const char ready = PL_SAID_READY;
    if (!loot_get(c, &loot)) _exit(2);
    char *at = mmap(NULL, loot.shape.mailbox_step, PROT_READ | PROT_WRITE, MAP_SHARED,
                    loot.fd[PL_GIVEN_AREA], 0);
    if (at == MAP_FAILED) _exit(2);
    struct pl_mailbox *b = (void *)at;
    atomic_store(&b->joined, loot.answer.owner);
    if (send(loot.sock, &ready, 1, MSG_NOSIGNAL) != 1 || !crew_wait(&c->notes->gate, 1)) _exit(2);
    close(loot.sock);
    loot.sock = -1;
    loot_scribble(c, &loot, at);
}

/* Clients and processes take turns in its place. */
static void check_ghost(bool client_first, bool peers) {
    struct crew c;
    crew_open_with(&c, &pl_shm, 1, 50, true, (struct pl_port_conf){.peers = peers});
    pid_t haunts = start_client(&c, ghost);
    crew_news(&c, PL_NEWS_JOINED, 0);
    atomic_fetch_add(&c.notes->gate, 1);
    assert_true(crew_wait(&c.notes->gate, 2));
    crew_until(&c, PL_NEWS_GONE, 0);
    for (int round = 0; round < 4; round++) {
        pid_t client = 0;
        if (client_first == round % 2)
            crew_spawn(&c, 0, crew_echo);
        else
            client = start_client(&c, echo_client);
        crew_news(&c, PL_NEWS_JOINED, 0);
        for (size_t i = 0; i < c.dim; i++) c.own[0][5][i] = (float)round;
        for (uint64_t task = 1; task <= 500; task++) {
            crew_tell(&c, 0, task);
            assert_int_equal(crew_news(&c, PL_NEWS_RESULT, 0).result.task, task);
            for (size_t i = 0; i < c.dim; i++) assert_true(c.own[0][0][i] == (float)task);
        }
        kill(client ? client : c.member[0].pid, SIGKILL);
        crew_until(&c, PL_NEWS_GONE, 0);
        if (client) end_client(client, SIGKILL);
        if (!client) crew_join(&c, 0);
        struct pl_link *l = crew_client(&c, 0); /* moves the slots to yet another file */
        for (size_t i = 0; i < c.dim; i++)
            assert_true(c.own[0][0][i] == 500 && c.own[0][5][i] == (float)round);
        crew_news(&c, PL_NEWS_JOINED, 0);
        c.t->link.detach(l);
        crew_news(&c, PL_NEWS_GONE, 0);
    }
    kill(haunts, SIGKILL);
    end_client(haunts, SIGKILL);
    crew_close(&c);
}

/* The next one in its place, client or not, has other memory; what the server still reads is there
 * as before. */
TEST(a_ghost_is_not_in_its_place) {
    if (!crew_forks(&pl_shm)) return;
    for (int i = 0; i < 4; i++) check_ghost(i % 2, i / 2);
}

/* An order with vectors that the client cannot see is not taken. */
TEST(a_client_takes_no_order_it_cannot_do) {
    struct crew c;
    struct pl_order o;
    for (int peers = 0; peers < 2; peers++) {
        crew_open_with(&c, &pl_shm, 2, 5, true, (struct pl_port_conf){.peers = peers});
        struct pl_link *l = crew_client(&c, 0);
        crew_news(&c, PL_NEWS_JOINED, 0);
        struct pl_order bad = crew_order(&c, 1, c.version[0], c.own[1][0]);
        c.t->port.tell(c.p, 0, &bad);
        assert_int_equal(pl_client_link_pull(l, 0, &o), PL_ETIMEDOUT);
        c.own[1][3][2] = 7;
        struct pl_order other = crew_order(&c, 2, c.own[1][3], c.own[0][0]);
        c.t->port.tell(c.p, 0, &other);
        assert_int_equal(pl_client_link_pull(l, 0, &o), peers ? PL_OK : PL_ETIMEDOUT);
        if (peers) assert_true(o.input[0].v[2] == 7);
        c.t->link.detach(l);
        crew_close(&c);
    }
}

static int count_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static void counting_worker(struct crew *c, struct pl_link *l, int worker) {
    /* ., .., the three standard ones, the socket, and the folder that is being read */
    if (count_files() > 7) atomic_fetch_add(&c->notes->n_wrong, 1);
    atomic_store(&c->notes->value[worker], 1);
}

/* A worker that is forked has its socket, and nothing else of this process. */
TEST(workers_inherit_no_files) {
    if (!crew_forks(&pl_shm)) return;
    for (int listens = 0; listens < 2; listens++) {
        struct crew c;
        crew_open(&c, &pl_shm, 4, 5, listens);
        struct pl_link *l = listens ? crew_client(&c, 0) : NULL;
        crew_spawn(&c, 1, counting_worker);
        assert_true(crew_wait(&c.notes->value[1], 1));
        crew_join(&c, 1);
        c.t->link.detach(l);
        crew_close(&c);
    }
}

/* --- evaluators ---------------------------------------------------------------------------- */

static struct pl_link *evaluator(struct crew *c, int *number) {
    struct pl_link *l = NULL;
    struct pl_why why = {""};
    struct pl_welcome welcome;
    struct pl_client_link_conf conf = {.path = c->path, .client = {.kind = PL_CLIENT_EVALUATOR}};
    if (pl_client_link_connect(&conf, &l, &welcome, &why)) fail_msg("%s", why.text);
    *number = welcome.worker;
    return l;
}

struct looker {
    struct crew *c;
    struct pl_link *l;
    int n;
};

/* Every copy is of one version, and none is older than the one before. */
static void looker_main(void *arg) {
    struct looker *k = arg;
    size_t dim = k->c->dim;
    float *w = calloc(dim, sizeof *w);
    uint64_t note[PL_NOTE_WORDS], last = 0;
    for (k->n = 0; pl_client_link_newest(k->l, PL_FOREVER, w, note) == PL_OK; k->n++) {
        bool one = w[0] == (float)note[0] && note[0] >= last && note[5] == 5 * note[0];
        for (size_t i = 1; i < dim; i++) one = one && w[i] == w[0];
        if (!one) atomic_fetch_add(&k->c->notes->n_wrong, 1);
        last = note[0];
    }
    free(w);
}

/* The server writes a vector again as soon as it is told that it may. */
TEST(evaluators_get_the_newest_version) {
    struct crew c;
    int number, held[2] = {-1, -1};
    crew_open_with(&c, &pl_shm, 1, 5000, true, (struct pl_port_conf){.n_evaluators = 2});
    struct looker looker[2] = {{.c = &c}, {.c = &c}};
    struct pl_thread *thread[2];
    for (int k = 0; k < 2; k++) {
        looker[k].l = evaluator(&c, &number);
        assert_int_equal(number, 1 + k);
        assert_int_equal(pl_thread_start(looker_main, &looker[k], &thread[k]), 0);
    }
    for (uint64_t version = 1, shown = 0; shown < 100; version++) {
        struct pl_news n;
        int at = 0;
        while (at == held[0] || at == held[1]) at++;
        for (size_t i = 0; i < c.dim; i++) c.version[at][i] = (float)version;
        c.t->port.news(c.p, 1000000, &n);
        if (n.kind == PL_NEWS_NONE) continue;
        assert_true(n.worker == 1 || n.worker == 2);
        int *hold = &held[n.worker - 1];
        if (n.kind == PL_NEWS_DONE) {
            assert_true(*hold >= 0);
            *hold = -1;
        } else {
            const uint64_t note[PL_NOTE_WORDS] = {version, 0, 0, 0, 0, 5 * version};
            assert_int_equal(n.kind, PL_NEWS_ASK);
            assert_int_equal(*hold, -1);
            assert_true(c.t->clients->show(c.p, n.worker, c.version[at], note));
            assert_false(c.t->clients->show(c.p, n.worker, c.version[at], note)); /* once */
            *hold = at;
            shown++;
        }
    }
    c.t->port.shutdown(c.p, 0);
    for (int k = 0; k < 2; k++) {
        pl_thread_join(thread[k]);
        assert_true(looker[k].n > 0);
        c.t->link.detach(looker[k].l);
    }
    crew_close(&c);
}

static void ask(struct pl_link *l) {
    l->question++;
    assert_true(pl_link_send(l, PL_SAID_ASK, &l->question, sizeof l->question));
}

/* However long the server takes to answer a question, and however often it is repeated until then:
 * what is shown stays until it is copied, and then no question is open. */
TEST(a_late_answer_is_an_answer) {
    struct crew c;
    int number;
    float w[5];
    crew_open_with(&c, &pl_shm, 1, 5, true, (struct pl_port_conf){.n_evaluators = 1});
    struct pl_link *l = evaluator(&c, &number);
    for (int round = 1; round <= 3; round++) {
        ask(l);
        crew_news(&c, PL_NEWS_ASK, 1);
        ask(l);
        for (size_t i = 0; i < c.dim; i++) c.version[0][i] = (float)round;
        assert_true(c.t->clients->show(c.p, 1, c.version[0], NULL));
        ask(l);
        crew_sleep(20000000);
        crew_silent(&c);
        assert_int_equal(pl_client_link_newest(l, 0, w, NULL), PL_OK);
        assert_true(w[0] == (float)round && w[4] == (float)round);
        crew_news(&c, PL_NEWS_DONE, 1);
        crew_sleep(20000000);
        crew_silent(&c);
    }
    c.t->port.shutdown(c.p, 0);
    c.t->link.detach(l);
    crew_close(&c);
}

/* Frozen, dead and confused evaluators let go, without their doing. */
TEST(a_frozen_evaluator_lets_go) {
    struct crew c;
    struct pl_why why;
    struct pl_welcome welcome;
    struct pl_link *l = NULL;
    int number;
    struct pl_client_link_conf third = {.client = {.kind = PL_CLIENT_EVALUATOR}};
    crew_open_with(&c, &pl_shm, 1, 5, true,
                   (struct pl_port_conf){.n_evaluators = 2, .show_ns = 50000000});
    third.path = c.path;
    struct pl_link *a = evaluator(&c, &number), *b = evaluator(&c, &number);
    assert_int_equal(pl_client_link_connect(&third, &l, &welcome, &why), PL_ERUN);
    assert_non_null(strstr(why.text, "all its 2 evaluators"));
    assert_int_equal(pl_client_link_newest(a, 1000000, NULL, NULL), PL_ETIMEDOUT);
    crew_news(&c, PL_NEWS_ASK, 1);
    assert_false(c.t->clients->show(c.p, 0, c.version[0], NULL)); /* not an evaluator */
    assert_false(c.t->clients->show(c.p, 3, c.version[0], NULL)); /* nobody */
    assert_false(c.t->clients->show(c.p, 2, c.version[0], NULL)); /* has not asked */
    assert_false(c.t->clients->show(c.p, 1, c.slot[0], NULL));    /* not a version */
    ask(a);
    crew_news(&c, PL_NEWS_ASK, 1);
    assert_true(c.t->clients->show(c.p, 1, c.version[0], NULL));
    crew_news(&c, PL_NEWS_DONE, 1); /* after a while */
    ask(a);
    crew_news(&c, PL_NEWS_ASK, 1);
    assert_true(c.t->clients->show(c.p, 1, c.version[0], NULL));
    ask(a); /* it does not find what it is shown */
    crew_news(&c, PL_NEWS_DONE, 1);
    crew_news(&c, PL_NEWS_ASK, 1);
    assert_true(c.t->clients->show(c.p, 1, c.version[0], NULL));
    c.t->link.detach(a);
    crew_news(&c, PL_NEWS_DONE, 1);
    assert_false(c.t->clients->show(c.p, 1, c.version[0], NULL));
    crew_silent(&c);
    a = evaluator(&c, &number);
    assert_int_equal(number, 1);
    assert_int_equal(pl_client_link_newest(b, 0, NULL, NULL), PL_ETIMEDOUT);
    crew_news(&c, PL_NEWS_ASK, 2);
    c.t->link.detach(b);
    struct pl_link *w = crew_client(&c, 0);
    assert_int_equal(pl_client_link_newest(w, 0, NULL, NULL), PL_EUSAGE); /* a worker has orders */
    c.t->port.shutdown(c.p, 0);
    assert_int_equal(pl_client_link_newest(a, PL_FOREVER, NULL, NULL), PL_ECANCELLED);
    c.t->link.detach(a);
    c.t->link.detach(w);
    crew_close(&c);
}
