/* A port with a gateway before it, for tests: clients of the library, and requests that are written
 * by hand. */
#ifndef PL_TESTS_RUN_DOOR_H
#define PL_TESTS_RUN_DOOR_H

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "line.h"
#include "run/gateway.h"
#include "sys/clock.h"
#include "sys/thread.h"
#include "tests/transport/suite_transport.h"
#include "transport/http_wire.h"

#define MS UINT64_C(1000000)
#define LONG_NS (120000 * MS)

enum { DIM = 33 };

/* A port with a gateway before it. */
#define DOOR_RUN "a-run"
#define DOOR_EPOCH 3

struct door {
    struct crew c;
    struct pl_gateway *gateway;
    char url[64];
    const char *keys;     /* with which clients knock: see line_open() */
    atomic_int n_reports; /* of clients that did not join, or whose requests are wrong */
    struct pl_log log;
};

static inline void door_say(void *ctx, int level, const char *sentence) {
    struct door *d = ctx;
    bool reports = strstr(sentence, "refused") || strstr(sentence, "before it asked") ||
                   strstr(sentence, "cannot be used");
    atomic_fetch_add(&d->n_reports, reports);
}

static inline void door_told(void *ctx) {
    struct door *d = ctx;
    if (d->gateway) pl_gateway_told(d->gateway);
}

/* Of the gateway, what is not the same for all doors. */
static inline void door_open_gateway(struct door *d, int n_workers, struct pl_port_conf conf,
                                     struct pl_gateway_conf g) {
    struct pl_why why = {""};
    atomic_init(&d->n_reports, 0);
    d->log = (struct pl_log){.say = door_say, .ctx = d};
    d->gateway = NULL;
    d->keys = g.keys;
    conf.told = door_told;
    conf.told_ctx = d;
    crew_open_with(&d->c, &pl_shm, n_workers, DIM, true, conf);
    g.address = "127.0.0.1:0";
    g.path = d->c.path;
    if (!g.n_clients) g.n_clients = 8;
    g.run = DOOR_RUN;
    g.epoch = DOOR_EPOCH;
    g.setup = "model=none\n";
    g.log = &d->log;
    if (pl_gateway_open(&g, &d->gateway, &why) == PL_EMISSING) {
        print_message("skipped: %s\n", why.text);
        skip();
    }
    assert_non_null(d->gateway);
    snprintf(d->url, sizeof d->url, "http%s://127.0.0.1:%d", g.keys ? "s" : "",
             pl_gateway_port(d->gateway));
    for (int i = 0; i < n_workers; i++)
        for (int k = 0; k < DIM; k++) d->c.version[i][k] = (float)(100 * i + k) / 8;
}

/* With certificates if `keys` is a folder of them. */
static inline void door_open_with(struct door *d, int n_workers, struct pl_port_conf conf,
                                  const char *keys) {
    door_open_gateway(d, n_workers, conf, (struct pl_gateway_conf){.keys = keys});
}

static inline void door_open(struct door *d, int n_workers, struct pl_port_conf conf) {
    door_open_with(d, n_workers, conf, NULL);
}

static inline void door_close(struct door *d) {
    pl_gateway_close(d->gateway);
    d->gateway = NULL;
    crew_close(&d->c);
}

/* Tries that often: on a busy machine a handshake may take longer than a server allows. */
static inline struct pl_link *join_in(int tries, struct door *d, struct pl_newcomer client,
                                      struct pl_welcome *welcome) {
    struct pl_client_link_conf conf = {
        .path = d->url, .client = client, .wait_ns = LONG_NS, .keys = d->keys};
    struct pl_why why = {""};
    struct pl_link *l = NULL;
    while (pl_http.join->connect(&conf, &l, welcome, &why))
        if (--tries <= 0) fail_msg("%s", why.text);
    return l;
}

static inline struct pl_link *join(struct door *d, struct pl_newcomer client,
                                   struct pl_welcome *welcome) {
    return join_in(1, d, client, welcome);
}

static inline struct pl_link *join_worker(struct door *d, int worker) {
    struct pl_welcome welcome;
    struct pl_link *l = join_in(20, d, (struct pl_newcomer){.dim = DIM}, &welcome);
    assert_int_equal(welcome.worker, worker);
    assert_int_equal(welcome.dim, DIM);
    crew_news(&d->c, PL_NEWS_JOINED, worker);
    return l;
}

/* Takes the order of this task. */
static inline struct pl_order take(struct door *d, struct pl_link *l, uint64_t task) {
    struct pl_order o;
    assert_int_equal(pl_http.join->pull(l, LONG_NS, &o), 0);
    assert_int_equal(o.task, task);
    assert_true(crew_noted(&d->c, &o));
    return o;
}

static inline void echo(const struct pl_order *o, struct pl_link *l) {
    for (int i = 0; i < DIM; i++) o->out[i] = o->input[0].v[i] + (float)o->task;
    pl_http.link.push(l, &(struct pl_result){.task = o->task, .samples = 7, .loss = 0.1});
}

/* The worker does one task, as it should; what is news of others is skipped. */
static inline void work_on(struct door *d, struct pl_link *l, uint64_t task) {
    struct pl_news n;
    crew_tell(&d->c, 0, task);
    struct pl_order o = take(d, l, task);
    echo(&o, l);
    uint64_t end = pl_now_ns() + CREW_PATIENCE_NS;
    do pl_shm.port.news(d->c.p, CREW_PATIENCE_NS, &n);
    while (pl_now_ns() < end && n.worker != 0);
    assert_int_equal(n.kind, PL_NEWS_RESULT);
    assert_int_equal(n.result.task, task);
    crew_echoed(&d->c, 0, task);
}

/* --- by hand -------------------------------------------------------------------------------- */

static inline int call_from(const struct door *d, const char *address) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {inet_addr(address)}};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)pl_gateway_port(d->gateway)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(sock, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(sock, (struct sockaddr *)&to, sizeof to), 0);
    return sock;
}

static inline int call(const struct door *d) {
    return call_from(d, "127.0.0.1");
}

#define ANSWER 4096

/* A socket that accepts connections at this URL, and does not answer. */
static inline int false_server(char url[64]) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof a;
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(sock, (struct sockaddr *)&a, size), 0);
    assert_int_equal(listen(sock, 5), 0);
    assert_int_equal(getsockname(sock, (struct sockaddr *)&a, &size), 0);
    snprintf(url, 64, "http://127.0.0.1:%d", ntohs(a.sin_port));
    return sock;
}

/* The head of the answer to what was sent. */
static inline void hear_on(struct line *l, char answer[ANSWER]) {
    size_t n = 0;
    answer[0] = '\0';
    while (!strstr(answer, "\r\n\r\n")) {
        ssize_t got = line_receive(l, answer + n, ANSWER - 1 - n, 30000);
        if (got <= 0) break;
        n += (size_t)got;
        answer[n] = '\0';
    }
    line_close(l);
}

static inline void hear(int sock, char answer[ANSWER]) {
    hear_on(&(struct line){.sock = sock}, answer);
}

/* Sends a request, which is written as it is. */
static inline int send_request(const struct door *d, const char *request) {
    int sock = call(d);
    assert_true(send(sock, request, strlen(request), MSG_NOSIGNAL) >= 0);
    return sock;
}

/* The status of the answer. */
static inline int ask(const struct door *d, const char *request) {
    char answer[ANSWER];
    struct line l = line_open(call(d), d->keys);
    line_send(&l, request, strlen(request));
    hear_on(&l, answer);
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? (int)strtol(answer + 9, NULL, 10) : 0;
}

#define HOST " HTTP/1.1\r\nHost: a\r\n"

/* Opens a gateway that collects votes. */
static inline void door_open_standby(struct door *d, const char *address, int listens) {
    struct pl_why why = {""};
    atomic_init(&d->n_reports, 0);
    d->keys = NULL;
    d->log = (struct pl_log){.say = door_say, .ctx = d};
    struct pl_gateway_conf conf = {
        .address = address, .socket = listens, .n_clients = 8, .log = &d->log};
    assert_int_equal(pl_gateway_open(&conf, &d->gateway, &why), PL_OK);
}

/* The secret of the server's keys, which it tells its standby. */
static inline void secret_of(const struct door *d, char secret[PL_WIRE_KEY + 1]) {
    char answer[ANSWER];
    hear(send_request(d, "GET " PL_WIRE_COPY HOST PL_WIRE_ADDRESS ": 127.0.0.1:1\r\n\r\n"), answer);
    const char *at = strstr(answer, PL_WIRE_SECRET ": ");
    assert_non_null(at);
    snprintf(secret, PL_WIRE_KEY + 1, "%s", at + strlen(PL_WIRE_SECRET ": "));
}

static inline int vote(const struct door *standby, const char *method, const char *key,
                       const char *seen) {
    char request[300];
    snprintf(request, sizeof request,
             "%s " PL_WIRE_VOTES HOST PL_WIRE_SEAT ": %s\r\n" PL_WIRE_RUN ": " DOOR_RUN
             "\r\n" PL_WIRE_SEEN ": %s\r\nContent-Length: 0\r\n\r\n",
             method, key, seen);
    return ask(standby, request);
}

/* Joins by hand, as worker `number`; the key of its seat. */
static inline void join_by_hand(struct door *d, int number, char key[PL_WIRE_KEY + 1]) {
    const char *hello = "POST /v1/seats" HOST "Paceline-Protocol: 1\r\nContent-Length: 0\r\n\r\n";
    char answer[2000] = "";
    int sock = call(d);
    assert_true(send(sock, hello, strlen(hello), 0) > 0);
    while (!strstr(answer, "\r\n\r\n"))
        assert_true(recv(sock, answer + strlen(answer), 500, 0) > 0);
    assert_memory_equal(answer, "HTTP/1.1 201", 12);
    const char *at = strstr(answer, "Paceline-Seat: ");
    assert_non_null(at);
    snprintf(key, PL_WIRE_KEY + 1, "%s", at + 15);
    close(sock);
    crew_news(&d->c, PL_NEWS_JOINED, number);
}

/* Waits until the gateway tells that the worker is away, or back. */
static inline void until_away(struct door *d, bool expected) {
    struct pl_gateway_move m = {.away = !expected};
    for (int tries = 0; tries < 10000 && m.away != expected; tries++) {
        while (pl_gateway_moved(d->gateway, &m)) continue;
        if (m.away != expected) crew_sleep(2 * MS);
    }
    assert_int_equal(m.away, expected);
}

/* The worker with this key hears its events, and loses that connection: it is away. */
static inline void listen_and_go(struct door *d, const char *key) {
    char text[200];
    int n = snprintf(text, sizeof text, "GET /v1/seats/%s/events" HOST "\r\n", key);
    int events = call(d);
    assert_int_equal(send(events, text, (size_t)n, 0), n);
    assert_int_equal(recv(events, text, 12, MSG_WAITALL), 12);
    close(events);
    until_away(d, true);
}

#endif
