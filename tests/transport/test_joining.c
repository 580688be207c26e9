/* Clients that come by a socket: beside workers that were started, refused, and with greetings that
 * lie. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite_transport.h"
#include "sys/segment.h"
#include "sys/thread.h"
#include "transport/greeting.h"

TEST(clients_come_and_are_refused) {
    struct crew c;
    struct stat s;
    struct pl_link *l = NULL;
    struct pl_why why;
    int worker;
    size_t dim;
    crew_open(&c, &pl_shm, 3, 50, true);
    assert_int_equal(lstat(c.path, &s), 0);
    assert_true(S_ISSOCK(s.st_mode));
    assert_int_equal(s.st_mode & 0777, 0600);
    struct pl_link *a = crew_client(&c, 0), *b = crew_client(&c, 1), *d = crew_client(&c, 2);
    for (int w = 0; w < 3; w++) crew_news(&c, PL_NEWS_JOINED, w);
    assert_int_equal(crew_connect(c.path, &l, &worker, &dim, &why), PL_ERUN);
    assert_non_null(strstr(why.text, "has all its 3 workers"));
    c.t->link.detach(b);
    crew_news(&c, PL_NEWS_GONE, 1);
    b = crew_client(&c, 1);
    crew_news(&c, PL_NEWS_JOINED, 1);
    struct pl_order o;
    crew_tell(&c, 1, 4);
    assert_int_equal(c.t->link.pull(b, &o), 0);
    assert_int_equal(o.task, 4);
    c.t->port.shutdown(c.p, 0);
    assert_int_equal(c.t->link.pull(a, &o), PL_ECANCELLED);
    c.t->link.detach(a);
    c.t->link.detach(b);
    c.t->link.detach(d);
    crew_close(&c);
}

/* Clients and children at the same time: every number once, everybody finds work. */
TEST(clients_and_children_mix) {
    struct crew c;
    pid_t client[4];
    uint64_t done[CREW_MAX] = {0};
    if (!crew_forks(&pl_shm)) return;
    crew_open(&c, &pl_shm, 8, 50, true);
    for (int i = 0; i < 4; i++) crew_spawn(&c, 4 + i, crew_echo);
    for (int i = 0; i < 4; i++) {
        if ((client[i] = fork())) continue;
        struct pl_link *l;
        int worker;
        size_t dim;
        if (crew_connect(c.path, &l, &worker, &dim, NULL) || worker > 3 || dim != 50) _exit(1);
        crew_echo(&c, l, worker);
        c.t->link.detach(l);
        _exit(0);
    }
    for (int left = 8 * 20; left > 0;) {
        struct pl_news n;
        c.t->port.news(c.p, CREW_PATIENCE_NS, &n);
        assert_true(n.kind == PL_NEWS_JOINED || n.kind == PL_NEWS_RESULT);
        assert_true(n.kind == PL_NEWS_JOINED ? done[n.worker] == 0
                                             : n.result.task == done[n.worker]);
        if (n.kind == PL_NEWS_RESULT) left--;
        if (done[n.worker] < 20) crew_tell(&c, n.worker, ++done[n.worker]);
    }
    c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
    for (int i = 0; i < 4; i++) {
        int status = -1;
        assert_int_equal(waitpid(client[i], &status, 0), client[i]);
        assert_int_equal(status, 0);
        assert_int_equal(crew_join(&c, 4 + i), 0);
    }
    crew_close(&c);
}

TEST(bad_paths_are_refused) {
    struct pl_why why;
    struct pl_port *p = NULL;
    struct pl_link *l = NULL;
    struct stat s;
    char path[64], lengthy[300];
    int worker;
    size_t dim;
    struct pl_port_conf conf = {
        .n_workers = 1, .dim = 1, .n_versions = 1, .n_slots = 1, .listen = path};
    snprintf(path, sizeof path, "transport-%d.txt", (int)getpid());
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    assert_true(fd >= 0 && write(fd, "mine", 4) == 4);
    close(fd);
    assert_int_equal(pl_shm.port.open(&conf, &p, &why), PL_EIO);
    assert_non_null(strstr(why.text, path));
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_size, 4);
    assert_int_equal(crew_connect(path, &l, &worker, &dim, &why), PL_EIO);
    unlink(path);
    assert_int_equal(crew_connect(path, &l, &worker, &dim, &why), PL_EIO);
    assert_int_equal(crew_connect("", &l, &worker, &dim, &why), PL_EUSAGE);
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    conf.listen = lengthy;
    assert_int_equal(pl_shm.port.open(&conf, &p, &why), PL_EUSAGE);
    assert_int_equal(crew_connect(lengthy, &l, &worker, &dim, &why), PL_EUSAGE);
    conf.listen = "no/such/folder/socket";
    assert_int_equal(pl_shm.port.open(&conf, &p, &why), PL_EIO);
    assert_null(p);
    /* somebody else's file in the place of ours stays */
    conf.listen = path;
    assert_int_equal(pl_shm.port.open(&conf, &p, &why), 0);
    assert_int_equal(unlink(path), 0);
    assert_true((fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600)) >= 0);
    close(fd);
    pl_shm.port.close(p);
    assert_int_equal(unlink(path), 0);
}

struct liar {
    int sock;
    size_t n;
    const struct pl_answer *answer;
};

static void liar_main(void *arg) {
    struct liar *liar = arg;
    int client = accept(liar->sock, NULL, NULL);
    if (liar->n) send(client, liar->answer, liar->n, MSG_NOSIGNAL);
    close(client);
}

/* Whatever a socket says that is not a server's, the client fails with a sentence. */
TEST(greetings_are_not_believed) {
    struct pl_answer none = {0}, good = {.magic = PL_GREETING_MAGIC,
                                         .version = PL_GREETING_VERSION,
                                         .n_workers = 1,
                                         .dim = 1,
                                         .n_versions = 1,
                                         .n_slots = 1,
                                         .n_own = 1,
                                         .size = 4 * PL_PAGE};
    struct pl_answer bad[6];
    for (size_t i = 0; i < 6; i++) bad[i] = good;
    bad[0].version = 9;
    bad[1].code = 9;
    bad[2].seat = 5;
    bad[3].dim = UINT64_MAX;
    bad[4].n_own = 0;
    bad[5].n_more = 7;
    struct liar liar[] = {
        {0, 0, NULL},
        {0, 10, &good},
        {0, 64, &none},
        {0, sizeof none, &none},
        {0, sizeof good, &good}, /* all is right, but there is no memory */
        {0, sizeof good, &bad[0]},
        {0, sizeof good, &bad[1]},
        {0, sizeof good, &bad[2]},
        {0, sizeof good, &bad[3]},
        {0, sizeof good, &bad[4]},
        {0, sizeof good, &bad[5]},
    };
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "transport-%d.liar", (int)getpid());
    int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(sock, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(sock, 1), 0);
    for (size_t i = 0; i < sizeof liar / sizeof *liar; i++) {
        struct pl_thread *thread;
        struct pl_link *l = NULL;
        struct pl_why why = {""};
        int worker;
        size_t dim;
        liar[i].sock = sock;
        assert_int_equal(pl_thread_start(liar_main, &liar[i], &thread), 0);
        int rc = crew_connect(a.sun_path, &l, &worker, &dim, &why);
        assert_int_equal(rc, i < 3 ? PL_ERUN : PL_EDATA);
        assert_true(strlen(why.text) > 10);
        pl_thread_join(thread);
    }
    close(sock);
    unlink(a.sun_path);
}
