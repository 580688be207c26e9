/* Clients that join over HTTP: to the port they are like those of the same machine, whatever the
 * network does, and strangers disturb nobody. */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "run/gateway.h"
#include "sys/clock.h"
#include "sys/thread.h"
#include "tests/transport/suite_transport.h"
#include "transport/http_wire.h"

#define MS UINT64_C(1000000)
#define LONG_NS (20000 * MS)

enum { DIM = 33 };

static const struct pl_log silent;

/* A port with a gateway before it. */
struct door {
    struct crew c;
    struct pl_gateway *gateway;
    char url[64];
};

static void door_open(struct door *d, int n_workers, struct pl_port_conf conf) {
    struct pl_why why = {""};
    crew_open_with(&d->c, &pl_shm, n_workers, DIM, true, conf);
    struct pl_gateway_conf g = {.address = "127.0.0.1:0",
                                .path = d->c.path,
                                .n_clients = 8,
                                .setup = "model=none\n",
                                .log = &silent};
    if (pl_gateway_open(&g, &d->gateway, &why) == PL_EMISSING) {
        print_message("skipped: %s\n", why.text);
        skip();
    }
    assert_non_null(d->gateway);
    snprintf(d->url, sizeof d->url, "http://127.0.0.1:%d", pl_gateway_port(d->gateway));
    for (int i = 0; i < n_workers; i++)
        for (int k = 0; k < DIM; k++) d->c.version[i][k] = (float)(100 * i + k) / 8;
}

static void door_close(struct door *d) {
    pl_gateway_close(d->gateway);
    crew_close(&d->c);
}

static struct pl_link *join(struct door *d, struct pl_newcomer client, struct pl_welcome *welcome) {
    struct pl_client_link_conf conf = {.path = d->url, .client = client, .wait_ns = LONG_NS};
    struct pl_why why = {""};
    struct pl_link *l = NULL;
    if (pl_http.join->connect(&conf, &l, welcome, &why)) fail_msg("%s", why.text);
    return l;
}

static struct pl_link *join_worker(struct door *d, int worker) {
    struct pl_welcome welcome;
    struct pl_link *l = join(d, (struct pl_newcomer){.dim = DIM}, &welcome);
    assert_int_equal(welcome.worker, worker);
    assert_int_equal(welcome.dim, DIM);
    crew_news(&d->c, PL_NEWS_JOINED, worker);
    return l;
}

/* Takes the order of this task. */
static struct pl_order take(struct door *d, struct pl_link *l, uint64_t task) {
    struct pl_order o;
    assert_int_equal(pl_http.join->pull(l, LONG_NS, &o), 0);
    assert_int_equal(o.task, task);
    assert_true(crew_noted(&d->c, &o));
    return o;
}

static void echo(const struct pl_order *o, struct pl_link *l) {
    for (int i = 0; i < DIM; i++) o->out[i] = o->input[0].v[i] + (float)o->task;
    pl_http.link.push(l, &(struct pl_result){.task = o->task, .samples = 7, .loss = 0.1});
}

TEST(orders_and_results_travel) {
    struct door d;
    door_open(&d, 2, (struct pl_port_conf){0});
    struct pl_link *l[2] = {join_worker(&d, 0), NULL};
    l[1] = join_worker(&d, 1);
    for (uint64_t task = 1; task <= 20; task++)
        for (int w = 0; w < 2; w++) {
            crew_tell(&d.c, w, task);
            struct pl_order o = take(&d, l[w], task);
            assert_memory_equal(o.input[0].v, d.c.version[w], DIM * sizeof(float));
            echo(&o, l[w]);
            struct pl_news n = crew_news(&d.c, PL_NEWS_RESULT, w);
            assert_int_equal(n.result.task, task);
            assert_int_equal(n.result.samples, 7);
            assert_true(n.result.loss == 0.1 && !n.result.defect && !n.result.sets_lr);
            crew_echoed(&d.c, w, task);
        }
    assert_true(pl_shm.clients->is_client(d.c.p, 1));
    pl_http.link.detach(l[0]);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    pl_http.link.detach(l[1]);
    crew_news(&d.c, PL_NEWS_GONE, 1);
    door_close(&d);
}

/* Everything that a result can say. */
TEST(results_say_everything) {
    struct door d;
    const uint64_t absent[] = {UINT64_C(0x8000000000000001), 5};
    door_open(&d, 1, (struct pl_port_conf){0});
    struct pl_link *l = join_worker(&d, 0);
    crew_tell(&d.c, 0, 1);
    take(&d, l, 1);
    pl_http.link.push(l, &(struct pl_result){.task = 1, .defect = PL_NOT_FINITE, .loss = INFINITY});
    struct pl_news n = crew_news(&d.c, PL_NEWS_RESULT, 0);
    assert_int_equal(n.result.defect, PL_NOT_FINITE);
    crew_tell(&d.c, 0, 2);
    struct pl_order o = take(&d, l, 2);
    echo(&o, l);
    crew_news(&d.c, PL_NEWS_RESULT, 0);
    crew_tell(&d.c, 0, 3);
    take(&d, l, 3);
    pl_http.link.push(l, &(struct pl_result){.task = 3,
                                             .samples = 4000000,
                                             .loss = NAN,
                                             .sets_lr = true,
                                             .lr = 1e-300,
                                             .absent = absent,
                                             .n_absent = 2});
    n = crew_news(&d.c, PL_NEWS_RESULT, 0);
    assert_int_equal(n.result.samples, 4000000);
    assert_true(isnan(n.result.loss) && n.result.sets_lr && n.result.lr == 1e-300);
    assert_int_equal(n.result.n_absent, 2);
    assert_memory_equal(n.result.absent, absent, sizeof absent);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

TEST(cancels_arrive) {
    struct door d;
    door_open(&d, 1, (struct pl_port_conf){0});
    struct pl_link *l = join_worker(&d, 0);
    for (uint64_t task = 1; task < 20; task += 2) {
        crew_tell(&d.c, 0, task);
        take(&d, l, task);
        assert_false(pl_cancelled(pl_http.link.cancelled(l)));
        if (task % 4 == 1)
            pl_shm.port.cancel(d.c.p, 0);
        else
            crew_tell(&d.c, 0, task + 1); /* replaces it */
        assert_int_equal(pl_http.link.sleep(l, LONG_NS), PL_ECANCELLED);
        if (task % 4 == 1) crew_tell(&d.c, 0, task + 1);
        struct pl_order o = take(&d, l, task + 1);
        echo(&o, l);
        struct pl_news n = crew_news(&d.c, PL_NEWS_RESULT, 0);
        assert_int_equal(n.result.task, task + 1);
        crew_echoed(&d.c, 0, task + 1);
    }
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

TEST(a_pull_has_an_end) {
    struct door d;
    struct pl_order o;
    door_open(&d, 1, (struct pl_port_conf){0});
    struct pl_link *l = join_worker(&d, 0);
    assert_int_equal(pl_http.join->pull(l, 0, &o), PL_ETIMEDOUT);
    assert_int_equal(pl_http.join->pull(l, 30 * MS, &o), PL_ETIMEDOUT);
    crew_tell(&d.c, 0, 1);
    take(&d, l, 1);
    /* one that was not answered comes again */
    take(&d, l, 1);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

/* A result that was pushed before its worker left counts. */
TEST(a_result_comes_before_the_good_bye) {
    struct door d;
    door_open(&d, 1, (struct pl_port_conf){0});
    for (uint64_t task = 1; task <= 10; task++) {
        struct pl_link *l = join_worker(&d, 0);
        crew_tell(&d.c, 0, task);
        struct pl_order o = take(&d, l, task);
        echo(&o, l);
        pl_http.link.detach(l);
        struct pl_news n = crew_news(&d.c, PL_NEWS_RESULT, 0);
        assert_int_equal(n.result.task, task);
        crew_news(&d.c, PL_NEWS_GONE, 0);
    }
    door_close(&d);
}

TEST(words_and_evaluators) {
    struct door d;
    struct pl_welcome welcome;
    float shown[DIM];
    uint64_t note[PL_NOTE_WORDS], given[PL_NOTE_WORDS] = {5, 6, 7};
    door_open(&d, 1, (struct pl_port_conf){.n_evaluators = 1, .about = "{\"model\": 1}"});
    struct pl_link *l = join_worker(&d, 0);
    struct pl_link *e = join(&d, (struct pl_newcomer){.kind = PL_CLIENT_EVALUATOR}, &welcome);
    assert_int_equal(welcome.worker, 1);
    assert_string_equal(welcome.about, "{\"model\": 1}");
    assert_int_equal(pl_http.join->say(l, "two\nlines", LONG_NS), PL_EUSAGE);
    assert_int_equal(pl_http.join->say(l, "lr 0.5", LONG_NS), 0);
    struct pl_news n = crew_news(&d.c, PL_NEWS_WORD, 0);
    assert_string_equal(n.word, "lr 0.5");
    assert_int_equal(pl_http.join->newest(e, 0, shown, note), PL_ETIMEDOUT);
    crew_news(&d.c, PL_NEWS_ASK, 1);
    assert_true(pl_shm.clients->show(d.c.p, 1, d.c.version[0], given));
    assert_int_equal(pl_http.join->newest(e, LONG_NS, shown, note), 0);
    assert_memory_equal(shown, d.c.version[0], sizeof shown);
    assert_memory_equal(note, given, sizeof note);
    crew_until(&d.c, PL_NEWS_DONE, 1);
    pl_http.link.detach(e);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

TEST(bfloat16_is_half_as_long) {
    struct door d;
    door_open(&d, 1, (struct pl_port_conf){.half = PL_HALF_RESULT | PL_HALF_MODEL});
    struct pl_link *l = join_worker(&d, 0);
    crew_tell(&d.c, 0, 1);
    struct pl_order o = take(&d, l, 1);
    assert_true(o.half_in && o.half_out);
    assert_memory_equal(o.input[0].v, d.c.version[0], DIM * sizeof(float)); /* all are exact */
    for (int i = 0; i < DIM; i++) o.half_out[i] = 0x3f80;                   /* 1 */
    pl_http.link.push(l, &(struct pl_result){.task = 1, .samples = 1});
    crew_news(&d.c, PL_NEWS_RESULT, 0);
    for (int i = 0; i < DIM; i++) assert_true(d.c.own[0][0][i] == 1);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

/* --- endings ---------------------------------------------------------------------------------- */

TEST(a_client_hears_why_it_must_leave) {
    struct door d;
    struct pl_order o;
    char sentence[PL_WORD_MAX];
    bool again = false;
    door_open(&d, 1, (struct pl_port_conf){0});
    struct pl_link *l = join_worker(&d, 0);
    assert_true(pl_shm.clients->hang_up(d.c.p, 0, true, "too slow"));
    assert_int_equal(pl_http.join->pull(l, LONG_NS, &o), PL_ECANCELLED);
    assert_true(pl_http.join->lost(l));
    assert_true(pl_http.join->farewell(l, sentence, &again));
    assert_string_equal(sentence, "too slow");
    assert_true(again);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    pl_http.link.detach(l);
    l = join_worker(&d, 0);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

struct waiter {
    struct pl_link *link;
    int rc;
};

static void wait_for_end(void *arg) {
    struct waiter *w = arg;
    struct pl_order o;
    w->rc = pl_http.join->pull(w->link, LONG_NS, &o);
}

/* Leaves a link that has computed a task and hears what comes: it has heard of a cancel. */
static struct pl_link *join_and_hear(struct door *d, int worker) {
    struct pl_link *l = join_worker(d, worker);
    crew_tell(&d->c, worker, 1);
    take(d, l, 1);
    pl_shm.port.cancel(d->c.p, worker);
    assert_int_equal(pl_http.link.sleep(l, LONG_NS), PL_ECANCELLED);
    crew_tell(&d->c, worker, 2);
    struct pl_order o = take(d, l, 2);
    echo(&o, l);
    crew_news(&d->c, PL_NEWS_RESULT, worker);
    return l;
}

/* One that waits and one that computes both hear that the run is over. */
TEST(all_hear_of_the_end) {
    struct door d;
    struct pl_thread *thread;
    door_open(&d, 2, (struct pl_port_conf){0});
    struct pl_link *l = join_and_hear(&d, 0), *busy = join_and_hear(&d, 1);
    struct waiter waiter = {.link = l};
    crew_tell(&d.c, 1, 3);
    take(&d, busy, 3);
    assert_int_equal(pl_thread_start(wait_for_end, &waiter, &thread), 0);
    pl_gateway_close(d.gateway);
    d.gateway = NULL;
    pl_thread_join(thread);
    assert_int_equal(waiter.rc, PL_ECANCELLED);
    assert_int_equal(pl_http.link.sleep(busy, LONG_NS), PL_ECANCELLED);
    assert_false(pl_http.join->lost(l));
    assert_false(pl_http.join->lost(busy));
    pl_http.link.detach(l);
    pl_http.link.detach(busy);
    int gone = 0; /* in any order */
    for (int n = 0; n < 2; n++) {
        struct pl_news news;
        do pl_shm.port.news(d.c.p, LONG_NS, &news);
        while (news.kind == PL_NEWS_NONE);
        assert_int_equal(news.kind, PL_NEWS_GONE);
        gone |= 1 << news.worker;
    }
    assert_int_equal(gone, 3);
    door_close(&d);
}

/* --- strangers -------------------------------------------------------------------------------- */

static int call(const struct door *d) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)pl_gateway_port(d->gateway)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(sock, (struct sockaddr *)&to, sizeof to), 0);
    return sock;
}

/* The status of the answer to a request, which is written as it is. */
static int ask(const struct door *d, const char *request) {
    char answer[4096] = "";
    size_t n = 0;
    int sock = call(d);
    assert_true(send(sock, request, strlen(request), MSG_NOSIGNAL) >= 0);
    for (;;) {
        struct pollfd p = {.fd = sock, .events = POLLIN};
        if (poll(&p, 1, 30000) != 1) break;
        ssize_t got = recv(sock, answer + n, sizeof answer - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
        answer[n] = '\0';
        if (strstr(answer, "\r\n\r\n")) break;
    }
    close(sock);
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? (int)strtol(answer + 9, NULL, 10) : 0;
}

#define HOST " HTTP/1.1\r\nHost: a\r\n"

TEST(wrong_requests_are_refused) {
    static const struct {
        const char *request;
        int status;
    } row[] = {
        {"GET /healthz" HOST "\r\n", 200},
        {"GET /v1/setup" HOST "\r\n", 200},
        {"GET /" HOST "\r\n", 404},
        {"GET /v1/seats" HOST "\r\n", 404},
        {"PUT /v1/seats" HOST "Content-Length: 0\r\n\r\n", 404},
        {"POST /v1/seats/../../next" HOST "Content-Length: 0\r\n\r\n", 404},
        {"POST /v1/seats/0123456789abcdef0123456789abcdef/next" HOST "Content-Length: 0\r\n\r\n",
         404},
        {"GET /v1/seats/0123456789abcdef0123456789abcdef/events" HOST "\r\n", 404},
        {"POST /v1/seats" HOST "Content-Length: 0\r\n\r\n", 400}, /* no protocol */
        {"POST /v1/seats" HOST "Paceline-Protocol: 2\r\nContent-Length: 0\r\n\r\n", 400},
        {"POST /v1/seats" HOST "Paceline-Protocol: 1\r\nPaceline-Dim: -1\r\n"
         "Content-Length: 0\r\n\r\n",
         400},
        {"POST /v1/seats" HOST "Paceline-Protocol: 1\r\nPaceline-Kind: king\r\n"
         "Content-Length: 0\r\n\r\n",
         400},
        {"POST /v1/seats" HOST "Paceline-Protocol: 1\r\nPaceline-Dim: 34\r\n"
         "Content-Length: 0\r\n\r\n",
         403}, /* the run has 33 */
        {"POST /v1/seats" HOST "Paceline-Protocol: 1\r\nContent-Length: 99999999999\r\n\r\n", 413},
        {"POST /v1/seats" HOST "Paceline-Protocol: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 411},
    };
    struct door d;
    door_open(&d, 1, (struct pl_port_conf){0});
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int status = ask(&d, row[i].request);
        if (status != row[i].status) fail_msg("%s: %d", row[i].request, status);
    }
    crew_silent(&d.c);
    door_close(&d);
}

/* Results that are too long, too short, of another task, sent twice, or broken off. */
TEST(wrong_results_harm_nobody) {
    struct door d;
    char request[400], key[PL_WIRE_KEY + 1] = "", answer[2000] = "";
    door_open(&d, 2, (struct pl_port_conf){0});
    struct pl_link *l = join_worker(&d, 0);
    int sock = call(&d);
    const char *hello = "POST /v1/seats" HOST "Paceline-Protocol: 1\r\nContent-Length: 0\r\n\r\n";
    assert_true(send(sock, hello, strlen(hello), 0) > 0);
    while (!strstr(answer, "\r\n\r\n"))
        assert_true(recv(sock, answer + strlen(answer), 500, 0) > 0);
    assert_memory_equal(answer, "HTTP/1.1 201", 12);
    const char *at = strstr(answer, "Paceline-Seat: ");
    assert_non_null(at);
    memcpy(key, at + 15, PL_WIRE_KEY);
    close(sock);
    crew_news(&d.c, PL_NEWS_JOINED, 1);
    crew_tell(&d.c, 1, 1);
    static const struct {
        const char *head;
        int status;
    } row[] = {
        {"Content-Length: 0", 200}, /* the order */
        {"Paceline-Task: 1\r\nContent-Length: 131", 413},
        {"Paceline-Task: 1\r\nContent-Length: 133", 413},
        {"Paceline-Task: 1\r\nContent-Length: 99999999999999999999", 413},
        {"Paceline-Task: 7\r\nContent-Length: 133", 413},
        {"Paceline-Task: 1", 413},
        {"Paceline-Task: x\r\nContent-Length: 132", 400},
        {"Paceline-Task: 1\r\nPaceline-Loss: 1,5\r\nContent-Length: 132", 400},
        {"Paceline-Task: 1\r\nPaceline-Defect: 9\r\nContent-Length: 0", 400},
        {"Paceline-Task: 1\r\nPaceline-Absent: 12\r\nContent-Length: 132", 400},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(request, sizeof request, "POST /v1/seats/%s/next" HOST "%s\r\n\r\n", key,
                 row[i].head);
        int status = ask(&d, request);
        if (status != row[i].status) fail_msg("%s: %d", request, status);
    }
    /* broken off in the middle */
    snprintf(request, sizeof request,
             "POST /v1/seats/%s/next" HOST "Paceline-Task: 1\r\nContent-Length: 132\r\n\r\nabcd",
             key);
    sock = call(&d);
    assert_true(send(sock, request, strlen(request), 0) > 0);
    close(sock);
    crew_silent(&d.c);
    /* the others work, and so does this one, with the result it had */
    crew_tell(&d.c, 0, 5);
    struct pl_order o = take(&d, l, 5);
    echo(&o, l);
    crew_news(&d.c, PL_NEWS_RESULT, 0);
    snprintf(request, sizeof request,
             "POST /v1/seats/%s/next" HOST
             "Paceline-Task: 1\r\nPaceline-Defect: 3\r\nContent-Length: 0\r\n\r\n",
             key);
    sock = call(&d);
    assert_true(send(sock, request, strlen(request), 0) > 0);
    struct pl_news n = crew_news(&d.c, PL_NEWS_RESULT, 1);
    assert_int_equal(n.result.defect, PL_NOT_COMPUTED);
    close(sock);
    /* replayed: it was answered */
    sock = call(&d);
    assert_true(send(sock, request, strlen(request), 0) > 0);
    crew_tell(&d.c, 1, 2);
    struct pollfd p = {.fd = sock, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 30000), 1);
    close(sock);
    crew_silent(&d.c);
    snprintf(request, sizeof request, "DELETE /v1/seats/%s" HOST "\r\n", key);
    assert_int_equal(ask(&d, request), 200);
    crew_news(&d.c, PL_NEWS_GONE, 1);
    assert_int_equal(ask(&d, request), 404);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

TEST(noise_disturbs_nobody) {
    struct door d;
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 90, 0);
    door_open(&d, 1, (struct pl_port_conf){0});
    struct pl_link *l = join_worker(&d, 0);
    for (int i = 0; i < 200; i++) {
        uint64_t noise[64];
        for (int k = 0; k < 64; k++) noise[k] = pl_rng_u64(&rng);
        int sock = call(&d);
        send(sock, noise, pl_rng_below(&rng, sizeof noise), MSG_NOSIGNAL);
        close(sock);
        if (i % 20) continue;
        crew_tell(&d.c, 0, (uint64_t)i + 1);
        struct pl_order o = take(&d, l, (uint64_t)i + 1);
        echo(&o, l);
        crew_news(&d.c, PL_NEWS_RESULT, 0);
        crew_echoed(&d.c, 0, (uint64_t)i + 1);
    }
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}
