/* Places of a server over shared memory: those who do not use theirs, or keep others out, lose it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "suite_transport.h"
#include "sys/clock.h"
#include "sys/thread.h"
#include "transport/areas.h"
#include "transport/greeting.h"
#include "transport/link.h"
#include "transport/lobby.h"

#define MS UINT64_C(1000000)
#define SOCKET_ROOM 2000 /* more messages than a socket holds */

/* Gets the only place, and does not join. */
static int intruder(struct crew *c) {
    struct pl_hello hello = {.magic = PL_GREETING_MAGIC, .version = PL_GREETING_VERSION};
    int fd[PL_GIVEN], sock = crew_call(c);
    assert_int_equal(send(sock, &hello, sizeof hello, 0), sizeof hello);
    assert_int_equal(crew_answer(sock, fd).code, PL_ANSWER_WELCOME);
    pl_areas_took(fd);
    return sock;
}

/* Sooner or later, somebody else can have it. */
static void place_is_free(struct crew *c) {
    struct pl_news news;
    struct pl_why why;
    struct pl_link *l = NULL;
    int number;
    size_t dim;
    for (int i = 0; !l && i < 3000; i++) {
        c->t->port.news(c->p, 10 * MS, &news);
        crew_connect(c->path, &l, &number, &dim, &why);
    }
    assert_non_null(l);
    crew_news(c, PL_NEWS_JOINED, 0);
    c->t->link.detach(l);
}

/* A client that talks, never joins and leaves does not keep its place. */
TEST(words_keep_no_place) {
    struct crew c;
    crew_open_with(&c, &pl_shm, 1, 5, true, (struct pl_port_conf){0});
    int sock = intruder(&c);
    for (int i = 0; i < 12; i++) assert_int_equal(send(sock, "\2checkpoint", 11, 0), 11);
    close(sock);
    place_is_free(&c);
    crew_close(&c);
}

/* One that never joins does not keep it either, though it stays connected. */
TEST(a_place_is_for_those_who_join) {
    struct crew c;
    for (int peers = 0; peers < 2; peers++) {
        crew_open_with(&c, &pl_shm, 1, 5, true,
                       (struct pl_port_conf){.peers = peers, .join_ns = 10 * MS});
        int sock = intruder(&c);
        place_is_free(&c);
        close(sock);
        crew_close(&c);
    }
}

/* Connections that say nothing keep nobody out. */
TEST(silence_is_not_a_queue) {
    enum { SILENT = 500 };
    struct crew c;
    int sock[SILENT];
    crew_open(&c, &pl_shm, 1, 5, true);
    for (int i = 0; i < SILENT; i++) sock[i] = crew_call(&c);
    struct pl_link *l = crew_client(&c, 0);
    crew_news(&c, PL_NEWS_JOINED, 0);
    for (int i = 0; i < SILENT; i++) close(sock[i]);
    c.t->link.detach(l);
    crew_close(&c);
}

/* A client spoke while the server made workers, for longer than the lobby has patience: it is not
 * sent away before it was listened to. One that says nothing is. */
static bool take(void *ctx, int sock, const struct pl_newcomer *client) {
    int *n_taken = ctx;
    assert_int_equal(client->dim, 7);
    close(sock);
    ++*n_taken;
    return true;
}

static void attend_lobby(struct pl_lobby *lobby, uint64_t now, int *n_taken) {
    struct pollfd polled[PL_LOBBY_POLLED];
    uint64_t until = UINT64_MAX;
    nfds_t n = pl_lobby_gather(lobby, polled, now, &until);
    poll(polled, n, 0);
    pl_lobby_attend(lobby, polled, n, now, take, n_taken);
}

TEST(who_spoke_is_heard_after_a_long_time) {
    struct crew c = {0};
    struct pl_hello hello = {.magic = PL_GREETING_MAGIC, .version = PL_GREETING_VERSION, .dim = 7};
    struct pl_lobby *lobby = NULL;
    struct pl_why why = {""};
    uint64_t now = pl_now_ns();
    int fd[PL_GIVEN], n_taken = 0;
    snprintf(c.path, sizeof c.path, "lobby-%d.sock", getpid());
    if (pl_lobby_open(c.path, &lobby, &why)) fail_msg("%s", why.text);
    int speaks = crew_call(&c), silent = crew_call(&c);
    for (int i = 0; i < 2; i++) attend_lobby(lobby, now, &n_taken);
    assert_int_equal(send(speaks, &hello, sizeof hello, 0), sizeof hello);
    now += 60000 * MS;
    pl_lobby_attend(lobby, NULL, 0, now, take, &n_taken);
    assert_int_equal(n_taken, 0);
    attend_lobby(lobby, now, &n_taken);
    assert_int_equal(n_taken, 1);
    assert_int_equal(crew_answer(silent, fd).code, PL_ANSWER_REFUSED);
    close(speaks);
    close(silent);
    pl_lobby_close(lobby);
}

/* Two servers that start at once: while one has its socket, but does not listen yet, it holds the
 * lock of the folder. */
struct starter {
    int folder, sock;
};

static void starter_main(void *arg) {
    struct starter *s = arg;
    crew_sleep(50 * MS);
    listen(s->sock, 4);
    close(s->folder);
}

TEST(servers_do_not_take_each_others_socket) {
    struct starter s = {.folder = open(".", O_RDONLY | O_DIRECTORY),
                        .sock = socket(AF_UNIX, SOCK_SEQPACKET, 0)};
    struct sockaddr_un a;
    struct pl_why why;
    struct pl_lobby *lobby = NULL;
    struct pl_thread *thread;
    char path[64];
    snprintf(path, sizeof path, "starting-%d.sock", getpid());
    assert_int_equal(pl_greeting_address(path, &a, &why), 0);
    assert_int_equal(flock(s.folder, LOCK_EX), 0);
    assert_int_equal(bind(s.sock, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(pl_thread_start(starter_main, &s, &thread), 0);
    int rc = pl_lobby_open(path, &lobby, &why);
    pl_thread_join(thread);
    unlink(path);
    close(s.sock);
    if (!rc) pl_lobby_close(lobby);
    assert_int_equal(rc, PL_EIO);
    assert_non_null(strstr(why.text, "already exists"));
}

/* Says that it is ready, and says nothing, as fast as it can: the server does not listen as fast.
 */
static void check_noise(const char *message, size_t n, double per_second) {
    struct crew c;
    crew_open(&c, &pl_shm, 1, 5, true);
    struct pl_link *l = crew_client(&c, 0);
    crew_news(&c, PL_NEWS_JOINED, 0);
    uint64_t begin = pl_now_ns(), said = 0;
    while (pl_now_ns() - begin < 300 * MS)
        if (send(l->sock, message, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) said++;
    double seconds = (double)(pl_now_ns() - begin) * 1e-9;
    assert_true((double)said <= SOCKET_ROOM + per_second * (2 + seconds));
    c.t->link.detach(l);
    crew_close(&c);
}

TEST(a_flood_of_nothing_is_not_read) {
    const char ready = PL_SAID_READY;
    check_noise("", 0, PL_WORDS_PER_SECOND);
    check_noise(&ready, 1, 1000);
}
