/* Requests of those who do not belong, or do not keep to the protocol: they are refused, and
 * disturb nobody. */
#define _GNU_SOURCE

#include "base/rng.h"
#include "door.h"
#include "folder.h"
#include "sys/certificates.h"

static void refuses_wrong_requests(const char *keys) {
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
    door_open_with(&d, 1, (struct pl_port_conf){0}, keys);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int status = ask(&d, row[i].request);
        if (status != row[i].status) fail_msg("%s: %d", row[i].request, status);
    }
    crew_silent(&d.c);
    assert_int_equal(d.n_reports, 2); /* the client that was refused, and one of its requests */
    door_close(&d);
}

TEST(wrong_requests_are_refused) {
    refuses_wrong_requests(NULL);
}

TEST(wrong_requests_over_tls_are_refused) {
    char keys[300];
    line_keys(keys);
    refuses_wrong_requests(keys);
}

/* Results that are too long, too short, of another task, sent twice, or broken off. */
TEST(wrong_results_harm_nobody) {
    struct door d;
    char request[400], key[PL_WIRE_KEY + 1];
    door_open(&d, 2, (struct pl_port_conf){0});
    struct pl_link *l = join_worker(&d, 0);
    join_by_hand(&d, 1, key);
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
    /* once per address, and so is the length that was no number, which libmicrohttpd refused */
    while (d.n_reports < 2) crew_sleep(MS);
    int sock = call_from(&d, "127.0.0.2");
    assert_true(send(sock, request, strlen(request), 0) > 0);
    close(sock);
    while (d.n_reports < 3) crew_sleep(MS);
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
    assert_int_equal(d.n_reports, 3);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

static enum pl_admission admit_mute(void *ctx, const struct pl_newcomer *client,
                                    struct pl_why *why) {
    (void)ctx, (void)client, (void)why;
    return PL_ADMITTED;
}

/* A client without the token hears that its requests are not carried out. */
TEST(who_may_not_change_the_run_is_told) {
    struct door d;
    char request[400], key[PL_WIRE_KEY + 1];
    door_open(&d, 1, (struct pl_port_conf){.admit = admit_mute});
    join_by_hand(&d, 0, key);
    crew_tell(&d.c, 0, 1);
    static const struct {
        const char *tail;
        int status;
    } row[] = {
        {"word" HOST "Content-Length: 3\r\n\r\nend", 403},
        {"next" HOST "Content-Length: 0\r\n\r\n", 200},
        {"next" HOST "Paceline-Task: 1\r\nPaceline-Defect: 3\r\nPaceline-Lr: 9\r\n"
         "Content-Length: 0\r\n\r\n",
         403},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(request, sizeof request, "POST /v1/seats/%s/%s", key, row[i].tail);
        int status = ask(&d, request);
        if (status != row[i].status) fail_msg("%s: %d", request, status);
    }
    crew_silent(&d.c);
    snprintf(request, sizeof request, "DELETE /v1/seats/%s" HOST "\r\n", key);
    assert_int_equal(ask(&d, request), 200);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

/* The beginning of a ClientHello, whose other 508 bytes are missing. */
static const unsigned char hello[] = {22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};

/* If the server wants keys, some of the noise looks like a handshake, some comes after one instead
 * of encrypted records, and some is encrypted as a request would be. */
static void stands_noise(const char *keys) {
    struct door d;
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 90, 0);
    door_open_with(&d, 1, (struct pl_port_conf){0}, keys);
    struct pl_link *l = join_worker(&d, 0);
    for (int i = 0; i < 200; i++) {
        uint64_t noise[80];
        for (int k = 0; k < 80; k++) noise[k] = pl_rng_u64(&rng);
        size_t n = pl_rng_below(&rng, sizeof noise);
        if (keys && i % 2) memcpy(noise, hello, sizeof hello);
        struct line line = line_open(call(&d), keys && i % 8 < 2 ? keys : NULL);
        if (i % 8 == 0)
            line_send(&line, noise, n);
        else
            send(line.sock, noise, n, MSG_NOSIGNAL);
        line_close(&line);
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

TEST(noise_disturbs_nobody) {
    stands_noise(NULL);
}

TEST(noise_disturbs_nobody_over_tls) {
    char keys[300];
    line_keys(keys);
    stands_noise(keys);
}

/* --- certificates ----------------------------------------------------------------------------- */

/* What a client with the certificate in this folder is told; "": it joined. */
static struct pl_why knock_with(const struct door *d, const char *keys, size_t dim) {
    struct pl_client_link_conf conf = {.path = d->url, .client = {.dim = dim}, .keys = keys};
    struct pl_welcome welcome;
    struct pl_why why = {""};
    struct pl_link *l = NULL;
    if (pl_http.join->connect(&conf, &l, &welcome, &why) == 0) {
        pl_http.link.detach(l);
        why.text[0] = '\0';
    }
    return why;
}

static struct pl_why knock(const struct door *d, const char *keys) {
    return knock_with(d, keys, DIM);
}

static void copy_file(const char *from, const char *to) {
    char text[8192];
    folder_write(to, text, folder_read(from, text, sizeof text));
}

TEST(only_certificates_that_hold) {
    struct door d;
    struct pl_why why = {""};
    char keys[300], other[300];
    snprintf(keys, sizeof keys, "%s", folder_path("keys"));
    snprintf(other, sizeof other, "%s", folder_path("other"));
    int rc = pl_certificates_make(keys, "127.0.0.1", "alice", 1, &why);
    if (rc == PL_EMISSING) skip();
    if (rc || pl_certificates_make(keys, NULL, "expired", -1, &why) ||
        pl_certificates_make(keys, NULL, "bob", 1, &why) ||
        pl_certificates_make(other, "127.0.0.1", "alice", 1, &why))
        fail_msg("%s", why.text);
    door_open_with(&d, 1, (struct pl_port_conf){0}, keys);
    assert_string_equal(knock(&d, keys).text, "");
    crew_news(&d.c, PL_NEWS_JOINED, 0);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    char old[400];
    snprintf(old, sizeof old, "%s/expired", keys);
    assert_non_null(strstr(knock(&d, old).text, "its certificate has expired"));
    assert_int_equal(d.n_reports, 1);
    for (int i = 0; i < 3; i++) /* it does not trust us */
        assert_non_null(strstr(knock(&d, other).text, "is not trusted: "));
    while (d.n_reports < 2) crew_sleep(MS); /* once, when the connection has ended */
    copy_file("keys/ca.pem", "other/ca.pem");
    assert_non_null(strstr(knock(&d, other).text, "not of this run's authority"));
    snprintf(old, sizeof old, "%s/bob", keys);
    assert_string_equal(knock(&d, old).text, "");
    crew_news(&d.c, PL_NEWS_JOINED, 0);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    assert_int_equal(d.n_reports, 3);
    for (int i = 0; i < 5; i++) knock(&d, other);
    assert_int_equal(d.n_reports, 3); /* each once, */
    for (size_t i = 1; i < 10; i++) knock_with(&d, keys, DIM + i);
    assert_int_equal(d.n_reports, 10); /* and no more than ten */
    door_close(&d);
}

/* TLS asks for a certificate and lets a client in that has none: every request of it is refused. */
TEST(requests_without_a_certificate_are_refused) {
    static const char *const request[] = {"GET /healthz" HOST "\r\n", "GET /v1/setup" HOST "\r\n",
                                          "POST /v1/seats" HOST
                                          "Paceline-Protocol: 1\r\nContent-Length: 0\r\n\r\n",
                                          "GET /no/such/thing" HOST "\r\n"};
    struct door d;
    char keys[300];
    line_keys(keys);
    door_open_with(&d, 1, (struct pl_port_conf){0}, keys);
    d.keys = "";
    for (size_t i = 0; i < sizeof request / sizeof *request; i++)
        assert_int_equal(ask(&d, request[i]), 403);
    crew_silent(&d.c);
    assert_int_equal(d.n_reports, 1);
    d.keys = keys;
    assert_int_equal(ask(&d, request[0]), 200);
    door_close(&d);
}

/* --- slow senders ----------------------------------------------------------------------------- */

static bool closed_by_server(int sock) {
    char rest[200];
    struct pollfd p = {.fd = sock, .events = POLLIN};
    return poll(&p, 1, 0) == 1 && recv(sock, rest, sizeof rest, MSG_DONTWAIT) <= 0;
}

/* One address takes all connections that it can get, and says nothing: others are heard. */
TEST(one_address_does_not_take_all) {
    enum { MANY = 200, HELD = 64 };
    struct door d;
    int sock[MANY], closed = 0;
    door_open(&d, 1, (struct pl_port_conf){0});
    for (int i = 0; i < MANY; i++) sock[i] = call_from(&d, "127.0.0.2");
    assert_int_equal(ask(&d, "GET /healthz" HOST "\r\n"), 200);
    for (int i = 0; i < MANY; i++) {
        closed += i < HELD && closed_by_server(sock[i]);
        close(sock[i]);
    }
    /* or it was heard because their time was up; which ones are one too many depends on the order
     * in which threads count them */
    assert_true(closed < HELD / 2);
    door_close(&d);
}

/* Several addresses together take all connections that there are, and say nothing. The others wait,
 * and so does a request: when it is answered, some of those before it were cut off. */
TEST(all_addresses_together_have_a_limit) {
    enum { MANY = 180, ADDRESSES = 3, ROOM = 2 * (3 + 64) };
    struct door d;
    int sock[MANY], closed = 0;
    char from[32];
    door_open_gateway(&d, 1, (struct pl_port_conf){0},
                      (struct pl_gateway_conf){.n_clients = 1, .timeout_s = 1});
    struct pl_link *l = join_worker(&d, 0);
    for (int i = 0; i < MANY; i++) {
        snprintf(from, sizeof from, "127.0.0.%d", 2 + i % ADDRESSES);
        sock[i] = call_from(&d, from);
    }
    assert_int_equal(ask(&d, "GET /healthz" HOST "\r\n"), 200);
    for (int i = 0; i < MANY; i++) closed += closed_by_server(sock[i]);
    assert_true(closed > MANY - ROOM);
    work_on(&d, l, 1);
    for (int i = 0; i < MANY; i++) close(sock[i]);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

/* One says nothing, one has stopped in the middle, and one sends a byte now and then for ever: the
 * server hangs up on all of them, which it reports once, and a worker works meanwhile. */
static void disconnects_slow_senders(const char *keys) {
    enum { SLOW = 3 };
    struct door d;
    int sock[SLOW], left = SLOW;
    uint64_t task = 1, end = pl_now_ns() + CREW_PATIENCE_NS;
    door_open_gateway(&d, 1, (struct pl_port_conf){0},
                      (struct pl_gateway_conf){.keys = keys, .timeout_s = keys ? 4 : 1});
    struct pl_link *l = join_worker(&d, 0);
    for (int i = 0; i < SLOW; i++) sock[i] = call(&d);
    for (int i = 1; i < SLOW; i++)
        assert_true(send(sock[i], keys ? (const char *)hello : "POST /v1/se", 11, 0) == 11);
    for (; left > 0 && pl_now_ns() < end; task++) {
        work_on(&d, l, task);
        for (int i = 0; i < SLOW; i++) {
            if (sock[i] < 0) continue;
            if (i == 2) send(sock[i], "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (!closed_by_server(sock[i])) continue;
            close(sock[i]);
            sock[i] = -1;
            left--;
        }
        crew_sleep(500 * MS);
    }
    assert_int_equal(left, 0);
    while (d.n_reports < 1) crew_sleep(MS);
    pl_http.link.detach(l);
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
    assert_int_equal(d.n_reports, 1);
}

TEST(slow_senders_are_disconnected) {
    disconnects_slow_senders(NULL);
}

TEST(stalled_handshakes_are_disconnected) {
    char keys[300];
    line_keys(keys);
    disconnects_slow_senders(keys);
}

/* A link of 10 kB/s is slow, and no reason to hang up, however long the body is. */
TEST(a_slow_link_is_not_too_slow) {
    const uint64_t second = 1000 * MS;
    for (uint64_t s = 1; s < 100000; s++)
        assert_false(pl_gateway_is_slow(10000 * s, s * second, PL_GATEWAY_SLOW_NS));
    assert_false(pl_gateway_is_slow(1, 60 * second,
                                    PL_GATEWAY_SLOW_NS)); /* the last byte may come any moment */
    assert_true(pl_gateway_is_slow(12, 61 * second, PL_GATEWAY_SLOW_NS));
    assert_true(pl_gateway_is_slow(1000000, 1000 * second, PL_GATEWAY_SLOW_NS));
    assert_true(pl_gateway_is_slow(0, UINT64_MAX, PL_GATEWAY_SLOW_NS));
}

/* Sends the result of task 1 byte by byte, until the server hangs up; the last byte never comes. */
static void send_slowly(const struct door *d, const char *key) {
    char request[200];
    snprintf(request, sizeof request,
             "POST /v1/seats/%s/next" HOST "Paceline-Task: 1\r\nContent-Length: 132\r\n\r\n", key);
    int sock = send_request(d, request);
    uint64_t end = pl_now_ns() + CREW_PATIENCE_NS;
    for (int n = 0; !closed_by_server(sock) && pl_now_ns() < end; crew_sleep(50 * MS))
        if (++n < 132) send(sock, "a", 1, MSG_NOSIGNAL);
    assert_true(closed_by_server(sock));
    close(sock);
}

/* A body that trickles in ends its connection, which is reported once; the same result at once is
 * a result. */
TEST(a_body_that_trickles_is_cut_off) {
    struct door d;
    char key[PL_WIRE_KEY + 1], request[400];
    door_open_gateway(&d, 1, (struct pl_port_conf){0}, (struct pl_gateway_conf){.slow_ns = 1});
    join_by_hand(&d, 0, key);
    crew_tell(&d.c, 0, 1);
    snprintf(request, sizeof request, "POST /v1/seats/%s/next" HOST "Content-Length: 0\r\n\r\n",
             key);
    assert_int_equal(ask(&d, request), 200);
    for (int i = 0; i < 3 && d.n_reports == 0; i++) send_slowly(&d, key);
    send_slowly(&d, key);
    assert_int_equal(d.n_reports, 1);
    crew_silent(&d.c);
    int n = snprintf(
        request, sizeof request,
        "POST /v1/seats/%s/next" HOST "Paceline-Task: 1\r\nContent-Length: 132\r\n\r\n", key);
    memset(request + n, 0, 132);
    int sock = call(&d);
    assert_int_equal(send(sock, request, (size_t)n + 132, MSG_NOSIGNAL), n + 132);
    struct pl_news news = crew_news(&d.c, PL_NEWS_RESULT, 0);
    assert_int_equal(news.result.defect, PL_NO_DEFECT);
    close(sock);
    door_close(&d);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
