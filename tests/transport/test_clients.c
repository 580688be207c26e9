/* Clients of a port over shared memory: how they join and are refused, what they can say,
 * evaluators, bfloat16, and that a hostile one harms only itself. */
#define _GNU_SOURCE

#include <poll.h>

#include <signal.h>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "paceline_client.h"
#include "setups.h"
#include "suite_transport.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/thread.h"
#include "transport/areas.h"
#include "transport/greeting.h"
#include "transport/link.h"
#include "transport/liveness.h"

#define MS UINT64_C(1000000)

/* A client of this kind and dim comes. */
static int connect_client(struct crew *c, struct pl_newcomer client, struct pl_link **l,
                          struct pl_welcome *welcome, struct pl_why *why) {
    struct pl_client_link_conf conf = {.path = c->path, .client = client};
    *l = NULL;
    return pl_client_link_connect(&conf, l, welcome, why);
}

static struct pl_link *join(struct crew *c, struct pl_newcomer client, struct pl_welcome *welcome) {
    struct pl_why why = {""};
    struct pl_link *l;
    if (connect_client(c, client, &l, welcome, &why)) fail_msg("%s", why.text);
    assert_non_null(l);
    return l;
}

static void refused(struct crew *c, struct pl_newcomer client, const char *sentence) {
    struct pl_why why = {""};
    struct pl_welcome welcome;
    struct pl_link *l;
    assert_int_equal(connect_client(c, client, &l, &welcome, &why), PL_ERUN);
    assert_null(l);
    if (!strstr(why.text, sentence) || !strstr(why.text, c->path)) fail_msg("%s", why.text);
}

/* --- joining ----------------------------------------------------------------------------- */

static enum pl_admission judge(void *ctx, const struct pl_newcomer *g, struct pl_why *why) {
    assert_string_equal(ctx, "ctx");
    if (g->can == 2) return false;
    if (strcmp(g->fingerprint, "mlp-64") == 0 || !g->fingerprint[0]) return true;
    pl_fail(why, PL_ERUN, "the run trains mlp-64, and this worker has '%s'", g->fingerprint);
    return false;
}

TEST(a_wrong_client_is_told_why) {
    struct crew c;
    struct pl_welcome welcome;
    char longest[2 * PL_ABOUT_MAX];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "model mlp", 9);
    longest[sizeof longest - 1] = 0;
    crew_open_with(&c, &pl_shm, 1, 33, true,
                   (struct pl_port_conf){.about = longest, .admit = judge, .admit_ctx = "ctx"});
    refused(&c, (struct pl_newcomer){.dim = 34}, "has 33 parameters, and that of the client 34");
    refused(&c, (struct pl_newcomer){.fingerprint = "cnn-7"}, "this worker has 'cnn-7'");
    refused(&c, (struct pl_newcomer){.can = 2}, "no reason");
    refused(&c, (struct pl_newcomer){.kind = PL_CLIENT_EVALUATOR}, "takes no evaluators");
    refused(&c, (struct pl_newcomer){.kind = (enum pl_client_kind)7}, "not this kind");
    struct pl_newcomer right = {.dim = 33, .fingerprint = "mlp-64"};
    struct pl_link *l = join(&c, right, &welcome);
    assert_non_null(l);
    assert_int_equal(welcome.worker, 0);
    assert_int_equal(welcome.n_workers, 1);
    assert_int_equal(welcome.dim, 33);
    assert_int_equal(strlen(welcome.about), PL_ABOUT_MAX - 1);
    assert_memory_equal(welcome.about, longest, PL_ABOUT_MAX - 1);
    crew_news(&c, PL_NEWS_JOINED, 0);
    assert_true(c.t->clients->is_client(c.p, 0));
    refused(&c, right, "has all its 1 workers");
    c.t->link.detach(l);
    crew_news(&c, PL_NEWS_GONE, 0);
    assert_false(c.t->clients->is_client(c.p, 0));
    crew_close(&c);
}

/* Other releases, other programs, and some who say nothing; then a client as it should be. */
TEST(strangers_are_sent_away) {
    struct crew c;
    struct pl_rng rng;
    int silent[3], fd[PL_GIVEN];
    crew_open(&c, &pl_shm, 1, 5, true);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 81, 0);
    for (int i = 0; i < 3; i++) silent[i] = crew_call(&c);
    struct pl_hello hello = {.magic = PL_GREETING_MAGIC, .version = PL_GREETING_VERSION - 1};
    int sock = crew_call(&c);
    assert_int_equal(send(sock, &hello, 16, 0), 16); /* another release's may be shorter */
    struct pl_answer answer = crew_answer(sock, fd);
    assert_int_equal(answer.code, PL_ANSWER_REFUSED);
    assert_non_null(strstr(answer.text, "use the same release"));
    close(sock);
    for (int i = 0; i < 200; i++) {
        uint64_t noise[100];
        char byte;
        for (int k = 0; k < 100; k++) noise[k] = pl_rng_u64(&rng);
        sock = crew_call(&c);
        send(sock, noise, pl_rng_below(&rng, sizeof noise), MSG_NOSIGNAL);
        if (pl_rng_below(&rng, 2)) shutdown(sock, SHUT_WR);
        struct pollfd end = {.fd = sock, .events = POLLIN};
        assert_true(poll(&end, 1, 60000) == 1 && recv(sock, &byte, 1, 0) <= 0);
        close(sock);
    }
    struct pl_link *l = crew_client(&c, 0);
    crew_news(&c, PL_NEWS_JOINED, 0);
    for (int i = 0; i < 3; i++) {
        answer = crew_answer(silent[i], fd);
        assert_int_equal(answer.code, PL_ANSWER_REFUSED);
        close(silent[i]);
    }
    c.t->link.detach(l);
    crew_close(&c);
}

/* More than any backlog of old, while the server is busy: all are answered. */
TEST(visitors_queue) {
    enum { VISITORS = 300 };
    struct crew c;
    struct pl_why why;
    int sock[VISITORS], welcome = 0, fd[PL_GIVEN];
    struct pl_hello hello = {.magic = PL_GREETING_MAGIC, .version = PL_GREETING_VERSION};
    crew_open_with(&c, &pl_shm, 4, 5, true, (struct pl_port_conf){0});
    assert_int_equal(c.t->start->expect(c.p, 3, &why), 0); /* until made(), nobody is let in */
    for (int i = 0; i < VISITORS; i++) {
        sock[i] = crew_call(&c);
        assert_int_equal(send(sock[i], &hello, sizeof hello, 0), sizeof hello);
    }
    c.t->start->made(c.p, 3);
    for (int i = 0; i < VISITORS; i++) {
        struct pl_answer answer = crew_answer(sock[i], fd);
        if (answer.code == PL_ANSWER_WELCOME) {
            welcome++;
            pl_areas_took(fd);
        } else {
            assert_non_null(strstr(answer.text, "all its 4 workers"));
        }
    }
    for (int i = 0; i < VISITORS; i++) close(sock[i]);
    assert_true(welcome >= 3 && welcome <= 4);
    crew_close(&c);
}

/* --- the server's own places --- */

TEST(clients_do_not_take_what_the_server_starts) {
    struct crew c;
    struct pl_why why;
    crew_open_with(&c, &pl_shm, 2, 5, true, (struct pl_port_conf){.starts = 2});
    refused(&c, (struct pl_newcomer){0}, "all its 2 workers");
    assert_int_equal(c.t->start->expect(c.p, 0, &why), 0);
    c.t->start->made(c.p, 0); /* nobody was started */
    crew_news(&c, PL_NEWS_GONE, 0);
    refused(&c, (struct pl_newcomer){0}, "all its 2 workers");
    assert_int_equal(c.t->start->expect(c.p, 0, &why), 0);
    c.t->start->made(c.p, 0);
    crew_news(&c, PL_NEWS_GONE, 0);
    c.t->clients->offer(c.p, 0);
    struct pl_link *l = crew_client(&c, 0);
    crew_news(&c, PL_NEWS_JOINED, 0);
    refused(&c, (struct pl_newcomer){0}, "all its 2 workers");
    c.t->link.detach(l);
    crew_news(&c, PL_NEWS_GONE, 0);
    assert_int_equal(c.t->start->expect(c.p, 0, &why), 0); /* the server has changed its mind */
    c.t->start->made(c.p, 0);
    crew_news(&c, PL_NEWS_GONE, 0);
    refused(&c, (struct pl_newcomer){0}, "all its 2 workers");
    crew_close(&c);
}

/* Before the server has started any of its workers. */
TEST(what_the_server_does_not_start_is_open_at_once) {
    struct crew c;
    crew_open_with(&c, &pl_shm, 3, 5, true, (struct pl_port_conf){.starts = 2});
    struct pl_link *l = crew_client(&c, 2);
    crew_news(&c, PL_NEWS_JOINED, 2);
    refused(&c, (struct pl_newcomer){0}, "all its 3 workers");
    refused(&c, (struct pl_newcomer){.seat = 1}, "all its 3 workers");
    c.t->link.detach(l);
    crew_news(&c, PL_NEWS_GONE, 2);
    l = crew_client(&c, 2);
    crew_news(&c, PL_NEWS_JOINED, 2);
    c.t->link.detach(l);
    crew_close(&c);
}

/* A visitor that comes and goes all the time: the run starts its own workers as if it were not. */
TEST(visitors_do_not_disturb_a_run) {
    char path[64], why[512] = "";
    if (!crew_forks(&pl_shm)) return;
    snprintf(path, sizeof path, "clients-%d.sock", (int)getpid());
    pid_t visitor = fork();
    if (visitor == 0) prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
    if (visitor == 0)
        for (;;) {
            pl_client *client;
            const struct pl_client_conf conf = {.path = path, .wait = -1};
            if (!pl_client_open(&conf, &client, why, sizeof why)) pl_client_close(client);
        }
    pl_setup *s = setup_of("model=quadratic workers=3 spawn=processes respawn=yes updates=300 "
                           "listen=%s",
                           path);
    for (int i = 0; i < 5; i++) train(s);
    kill(visitor, SIGKILL);
    waitpid(visitor, NULL, 0);
}

TEST(a_port_number_is_not_a_path) {
    struct pl_why why;
    struct pl_port *p = NULL;
    struct pl_link *l;
    struct stat s;
    struct pl_welcome welcome;
    static const char *const bad[] = {"localhost:8080", ":80", "127.0.0.1:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pl_port_conf conf = {
            .n_workers = 1, .dim = 1, .n_versions = 1, .n_slots = 1, .listen = bad[i]};
        struct pl_client_link_conf client = {.path = bad[i]};
        assert_int_equal(pl_shm.port.open(&conf, &p, &why), PL_EUSAGE);
        assert_non_null(strstr(why.text, "HOST:PORT"));
        assert_int_equal(lstat(bad[i], &s), -1);
        assert_int_equal(pl_client_link_connect(&client, &l, &welcome, &why), PL_EUSAGE);
    }
    pl_setup *setup = setup_of("model=quadratic listen=%s,%s", bad[0], bad[1]);
    pl_run *run = NULL;
    assert_int_equal(pl_train(setup, &run), PL_EUSAGE);
    assert_non_null(strstr(pl_setup_why(setup), "one of each"));
}

/* --- waiting ----------------------------------------------------------------------------- */

static void on_alarm(int signal) {}

/* A signal arrives again and again, in case one comes before the wait. */
static void ring_alarms(bool on) {
    struct sigaction act = {.sa_handler = on_alarm};
    struct itimerval t = {0};
    if (on) t.it_interval.tv_usec = t.it_value.tv_usec = 20000;
    assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &t, NULL), 0);
}

static void count_sentence(void *ctx, const char *sentence) {
    atomic_int *n = ctx;
    assert_non_null(strstr(sentence, "waiting up to"));
    atomic_fetch_add(n, 1);
}

struct late {
    atomic_int n_said;
    char path[64];
};

static void late_client(void *arg) {
    struct late *late = arg;
    struct pl_link *l;
    struct pl_welcome welcome;
    struct pl_client_link_conf conf = {.path = late->path,
                                       .wait_ns = 2 * CREW_PATIENCE_NS,
                                       .waiting = count_sentence,
                                       .ctx = &late->n_said};
    if (pl_client_link_connect(&conf, &l, &welcome, NULL)) abort();
    if (atomic_load(&late->n_said) != 1) abort();
    pl_shm.link.detach(l);
}

TEST(a_client_waits_for_its_server) {
    struct crew c;
    struct pl_why why;
    struct pl_link *l;
    struct pl_welcome welcome;
    struct late late = {.n_said = 0};
    struct pl_thread *thread;
    snprintf(late.path, sizeof late.path, "transport-%d.sock", (int)getpid());
    struct pl_client_link_conf conf = {.path = late.path, .wait_ns = 50 * MS};
    assert_int_equal(pl_client_link_connect(&conf, &l, &welcome, &why), PL_EIO);
    assert_non_null(strstr(why.text, "after 0.05 s: No such file"));
    int n_files = crew_files("/proc/self/fd");
    conf.wait_ns = PL_FOREVER;
    ring_alarms(true);
    assert_int_equal(pl_client_link_connect(&conf, &l, &welcome, &why), PL_EINTR);
    ring_alarms(false);
    assert_int_equal(pl_thread_start(late_client, &late, &thread), 0);
    assert_true(crew_wait(&late.n_said, 1));
    crew_open(&c, &pl_shm, 1, 5, true);
    c.n_files = n_files; /* not with a socket that the client just tried */
    crew_news(&c, PL_NEWS_JOINED, 0);
    pl_thread_join(thread);
    crew_news(&c, PL_NEWS_GONE, 0);
    crew_close(&c);
}

TEST(a_pull_has_an_end) {
    struct crew c;
    struct pl_order o;
    crew_open(&c, &pl_shm, 1, 5, true);
    struct pl_link *l = crew_client(&c, 0);
    crew_news(&c, PL_NEWS_JOINED, 0);
    assert_int_equal(pl_client_link_pull(l, 0, &o), PL_ETIMEDOUT);
    assert_int_equal(pl_client_link_pull(l, 20 * MS, &o), PL_ETIMEDOUT);
    ring_alarms(true);
    assert_int_equal(pl_client_link_pull(l, PL_FOREVER, &o), PL_EINTR);
    ring_alarms(false);
    crew_tell(&c, 0, 1);
    assert_int_equal(pl_client_link_pull(l, 0, &o), 0);
    assert_int_equal(o.task, 1);
    c.t->port.cancel(c.p, 0);
    assert_int_equal(c.t->port.holds(c.p, 0), 1);
    assert_int_equal(pl_client_link_pull(l, 0, &o), PL_ETIMEDOUT);
    assert_int_equal(c.t->port.holds(c.p, 0), 0); /* whoever gives up holds nothing */
    crew_tell(&c, 0, 2);
    assert_int_equal(pl_client_link_pull(l, 0, &o), 0);
    assert_int_equal(pl_client_link_pull(l, 0, &o), 0); /* comes again */
    assert_int_equal(o.task, 2);
    c.t->port.shutdown(c.p, 0);
    assert_int_equal(pl_client_link_pull(l, PL_FOREVER, &o), PL_ECANCELLED);
    assert_int_equal(pl_client_link_say(l, "too late", PL_FOREVER), PL_ECANCELLED);
    c.t->link.detach(l);
    crew_close(&c);
}

/* --- words ------------------------------------------------------------------------------- */

static void word_is(struct crew *c, int seat, const char *word) {
    struct pl_news n = crew_news(c, PL_NEWS_WORD, seat);
    assert_string_equal(n.word, word);
}

TEST(words_arrive_in_order) {
    struct crew c;
    struct pl_welcome welcome;
    char longest[PL_WORD_MAX + 1], text[32];
    memset(longest, '~', sizeof longest);
    longest[PL_WORD_MAX] = 0;
    crew_open_with(&c, &pl_shm, 1, 5, true, (struct pl_port_conf){.n_evaluators = 1});
    struct pl_link *l = crew_client(&c, 0);
    struct pl_link *w = join(&c, (struct pl_newcomer){.kind = PL_CLIENT_EVALUATOR}, &welcome);
    assert_int_equal(welcome.worker, 1);
    crew_news(&c, PL_NEWS_JOINED, 0);
    assert_int_equal(pl_client_link_say(l, "", 0), PL_EUSAGE);
    assert_int_equal(pl_client_link_say(l, "two\nlines", 0), PL_EUSAGE);
    assert_int_equal(pl_client_link_say(l, "\x1b[2J", 0), PL_EUSAGE);
    assert_int_equal(pl_client_link_say(l, longest, 0), PL_EUSAGE);
    longest[PL_WORD_MAX - 1] = 0;
    assert_int_equal(pl_client_link_say(l, longest, 0), 0);
    word_is(&c, 0, longest);
    assert_int_equal(pl_client_link_say(w, "accuracy 0.75", 0), 0);
    word_is(&c, 1, "accuracy 0.75");
    crew_silent(&c);
    /* raw nonsense over the socket is no word */
    const char *const bad[] = {"", "\x02", "\x02\n", "\x07hm", "\x03short", "\x04", "\x02\xc2\x9b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) send(l->sock, bad[i], strlen(bad[i]), 0);
    send(l->sock, longest, sizeof longest, 0);
    /* what was said before it left comes before that */
    for (int i = 0; i < 30; i++) {
        snprintf(text, sizeof text, "word %d", i);
        assert_int_equal(pl_client_link_say(l, text, 0), 0);
    }
    c.t->link.detach(l);
    for (int i = 0; i < 30; i++) {
        snprintf(text, sizeof text, "word %d", i);
        word_is(&c, 0, text);
    }
    crew_news(&c, PL_NEWS_GONE, 0);
    c.t->link.detach(w);
    l = crew_client(&c, 0);
    crew_news(&c, PL_NEWS_JOINED, 0);
    crew_silent(&c);
    c.t->link.detach(l);
    crew_close(&c);
}

static void chatterbox(struct crew *c, struct pl_link *l, int worker) {
    while (!atomic_load(&c->notes->gate)) pl_client_link_say(l, "word", MS);
}

/* Floods the server with words: others are served as before, and few of the words are taken. */
TEST(a_flood_of_words_drowns_nobody) {
    struct crew c;
    uint64_t begin = pl_now_ns(), words = 0;
    if (!crew_forks(&pl_shm)) return;
    crew_open(&c, &pl_shm, 2, 5, true);
    crew_spawn(&c, 0, crew_echo);
    crew_spawn(&c, 1, chatterbox);
    for (uint64_t task = 1; task <= 2000; task++) {
        struct pl_news n;
        crew_tell(&c, 0, task);
        do {
            c.t->port.news(c.p, CREW_PATIENCE_NS, &n);
            if (n.kind == PL_NEWS_WORD) words++;
        } while (n.kind != PL_NEWS_RESULT);
        assert_int_equal(n.result.task, task);
        crew_echoed(&c, 0, task);
    }
    double seconds = (double)(pl_now_ns() - begin) * 1e-9;
    assert_true((double)words <= PL_LIVENESS_WORDS + PL_WORDS_PER_SECOND * (2 + seconds));
    atomic_store(&c.notes->gate, 1);
    c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
    assert_int_equal(crew_join(&c, 0), 0);
    assert_int_equal(crew_join(&c, 1), 0);
    crew_close(&c);
}
