/* Who counts when a standby asks for the workers of a server, and what clients hear of their end.
 */
#include "door.h"
#include "run/worker.h"

#define COPY                                                                                       \
    "GET /v1/copy" HOST "Paceline-Address: 127.0.0.1:1\r\nPaceline-Seen: 0\r\n"                    \
    "Paceline-Run: " DOOR_RUN "\r\nPaceline-Epoch: 3\r\n\r\n"

/* Whether the server tells a standby that it has this many workers. */
static bool has_workers(const struct door *d, int n) {
    char answer[ANSWER], header[40];
    snprintf(header, sizeof header, "Paceline-Workers: %d\r\n", n);
    hear(send_request(d, COPY), answer);
    return strstr(answer, header) != NULL;
}

static void next_of(char request[200], const char *key) {
    snprintf(request, 200, "POST /v1/seats/%s/next" HOST "Content-Length: 0\r\n\r\n", key);
}

/* The server has given up the place of a worker that is away. */
TEST(whoever_lost_its_place_does_not_count) {
    struct door d;
    char key[PL_WIRE_KEY + 1], request[200], answer[ANSWER];
    door_open(&d, 2, (struct pl_port_conf){0});
    join_by_hand(&d, 0, key);
    assert_true(has_workers(&d, 1));
    listen_and_go(&d, key); /* the server knows, and decides itself */
    assert_true(pl_shm.clients->hang_up(d.c.p, 0, true, "too long"));
    crew_news(&d.c, PL_NEWS_GONE, 0);
    bool none = false;
    for (int i = 0; i < 15 && !none; i++) none = has_workers(&d, 0);
    assert_true(none);
    next_of(request, key);
    for (int i = 0; i < 2; i++) { /* each request hears the same */
        hear(send_request(&d, request), answer);
        if (strncmp(answer, "HTTP/1.1 404", 12) == 0) break; /* it was told, and is forgotten */
        assert_memory_equal(answer, "HTTP/1.1 410", 12);
        assert_non_null(strstr(answer, "Paceline-Over: 0"));
        assert_non_null(strstr(answer, "Paceline-Again: 1"));
    }
    door_close(&d);
}

/* Its seat has ended, and the run has not. */
TEST(a_client_that_leaves_does_not_hear_of_the_end) {
    struct door d;
    char key[PL_WIRE_KEY + 1], request[200], answer[ANSWER];
    door_open(&d, 1, (struct pl_port_conf){0});
    join_by_hand(&d, 0, key);
    next_of(request, key);
    int waits = send_request(&d, request);
    crew_sleep(100 * MS); /* it waits, or comes late and finds no seat */
    snprintf(request, sizeof request, "DELETE /v1/seats/%s" HOST "\r\n", key);
    assert_int_equal(ask(&d, request), 200);
    hear(waits, answer);
    assert_true(strncmp(answer, "HTTP/1.1 410", 12) == 0 ||
                strncmp(answer, "HTTP/1.1 404", 12) == 0);
    assert_null(strstr(answer, "Paceline-Over: 1"));
    crew_news(&d.c, PL_NEWS_GONE, 0);
    door_close(&d);
}

static int join_from(const struct door *d, int epoch, const char *seen) {
    char request[300];
    snprintf(request, sizeof request,
             "POST /v1/seats" HOST "Paceline-Protocol: 1\r\nPaceline-Run: " DOOR_RUN "\r\n"
             "Paceline-Epoch: %d\r\nPaceline-Seen: %s\r\nContent-Length: 0\r\n\r\n",
             epoch, seen);
    return ask(d, request);
}

/* What this server showed is not lost, those who are refused are not believed, and neither is a
 * worker that is alone with what it says. */
TEST(only_earlier_servers_have_shown_more) {
    struct door d;
    door_open(&d, 4, (struct pl_port_conf){0});
    assert_int_equal(join_from(&d, DOOR_EPOCH, "21"), 201);
    assert_int_equal(join_from(&d, DOOR_EPOCH - 1, "1000000000000000000"), 201);
    assert_int_equal(pl_gateway_seen(d.gateway), 0);
    assert_int_equal(join_from(&d, DOOR_EPOCH - 1, "9"), 201);
    assert_int_equal(pl_gateway_seen(d.gateway), 9);
    assert_int_equal(join_from(&d, DOOR_EPOCH - 2, "12"), 201);
    assert_int_equal(pl_gateway_seen(d.gateway), 12);
    assert_int_equal(join_from(&d, DOOR_EPOCH - 1, "99"), 403); /* there is no place */
    assert_int_equal(pl_gateway_seen(d.gateway), 12);
    door_close(&d);
}

/* The newest version has been sent to one worker only. */
TEST(the_newest_version_counts) {
    struct door d;
    door_open_gateway(&d, 3, (struct pl_port_conf){0}, (struct pl_gateway_conf){.n_clients = 3});
    assert_int_equal(join_from(&d, DOOR_EPOCH - 1, "9"), 201);
    assert_int_equal(join_from(&d, DOOR_EPOCH - 1, "12"), 201);
    assert_int_equal(pl_gateway_seen(d.gateway), 12);
    assert_int_equal(join_from(&d, DOOR_EPOCH - 1, "16"), 201);
    assert_int_equal(pl_gateway_seen(d.gateway), 12);
    door_close(&d);
}

/* There is nobody else to ask. */
TEST(the_only_worker_is_believed) {
    struct door d;
    door_open_gateway(&d, 1, (struct pl_port_conf){0}, (struct pl_gateway_conf){.n_clients = 1});
    assert_int_equal(join_from(&d, DOOR_EPOCH - 1, "9"), 201);
    assert_int_equal(pl_gateway_seen(d.gateway), 9);
    door_close(&d);
}

static void note_loss(void *ctx, int level, const char *sentence) {
    atomic_int *n = ctx;
    atomic_fetch_add(n, strstr(sentence, "is lost") != NULL);
}

/* What it has seen could be lost. */
TEST(an_evaluator_waits_for_the_standby) {
    struct door d;
    struct pl_welcome welcome;
    struct pl_order order = {0};
    float shown[DIM];
    uint64_t note[PL_NOTE_WORDS];
    atomic_int n_lost = 0;
    door_open(&d, 1, (struct pl_port_conf){.n_evaluators = 1, .about = "{\"model\": 1}"});
    d.log = (struct pl_log){.say = note_loss, .ctx = &n_lost};
    struct pl_link *e = join(&d, (struct pl_newcomer){.kind = PL_CLIENT_EVALUATOR}, &welcome);
    assert_true(has_workers(&d, 0)); /* a standby is there, with version 0 */
    pl_note_pack(&order, &(struct pl_run_note){.version = 5});
    assert_int_equal(pl_http.join->newest(e, 0, shown, note), PL_ETIMEDOUT);
    crew_news(&d.c, PL_NEWS_ASK, 1);
    assert_true(pl_shm.clients->show(d.c.p, 1, d.c.version[0], order.note));
    int rc = pl_http.join->newest(e, 300 * MS, shown, note);
    assert_true(rc == PL_ETIMEDOUT || n_lost > 0); /* this took so long that the standby was lost */
    pl_http.link.detach(e);
    door_close(&d);
}

/* A server whose workers may have gone to the standby does not go on because others come. */
TEST(newcomers_are_no_majority) {
    struct door d;
    char key[3][PL_WIRE_KEY + 1], request[200];
    int events[3];
    atomic_int n_lost = 0;
    door_open(&d, 3, (struct pl_port_conf){0});
    d.log = (struct pl_log){.say = note_loss, .ctx = &n_lost};
    join_by_hand(&d, 0, key[0]);
    assert_true(has_workers(&d, 1)); /* the standby has been here, and says no more */
    listen_and_go(&d, key[0]);       /* its worker has heard of it, and may vote */
    for (int i = 1; i < 3; i++) {
        join_by_hand(&d, i, key[i]);
        snprintf(request, sizeof request, "GET /v1/seats/%s/events" HOST "\r\n", key[i]);
        events[i] = send_request(&d, request);
    }
    crew_sleep(7000 * MS); /* the standby is silent for long enough */
    assert_int_equal(n_lost, 0);
    for (int i = 1; i < 3; i++) close(events[i]);
    door_close(&d);
}

/* Asks for the events of a seat, and says whether it knows of a standby. */
static int ask_events(const struct door *d, const char *key, bool knows) {
    char request[200];
    snprintf(request, sizeof request, "GET /v1/seats/%s/events" HOST "%s\r\n", key,
             knows ? "Paceline-Standby: http://127.0.0.1:1\r\n" : "");
    return send_request(d, request);
}

/* Waits for a line of the events. */
static void hear_line(int sock, const char *line) {
    char text[ANSWER] = "";
    size_t n = 0;
    while (!strstr(text, line)) {
        ssize_t got = recv(sock, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) fail_msg("no '%s' in '%s'", line, text);
        n += (size_t)got;
        text[n] = '\0';
    }
}

/* A standby is silent, and its only elector is connected: it may have voted all the same. */
TEST(a_standby_is_lost_when_it_is_forgotten) {
    struct door d;
    char key[PL_WIRE_KEY + 1];
    atomic_int n_lost = 0;
    door_open(&d, 1, (struct pl_port_conf){0});
    d.log = (struct pl_log){.say = note_loss, .ctx = &n_lost};
    join_by_hand(&d, 0, key);
    int before = ask_events(&d, key, false); /* it has not heard of a standby yet */
    assert_true(has_workers(&d, 1));
    hear_line(before, "forget http://127.0.0.1:1\n");
    int voted = ask_events(&d, key, true);
    hear_line(voted, "forget http://127.0.0.1:1\n");
    crew_sleep(500 * MS);
    assert_int_equal(n_lost, 0);
    int forgot = ask_events(&d, key, false);
    hear_line(forgot, "standby \n");
    assert_int_equal(n_lost, 1);
    close(before);
    close(voted);
    close(forgot);
    door_close(&d);
}

/* --- at a standby ----------------------------------------------------------------------------- */

static struct pl_gateway_tally tally(const struct door *standby, uint64_t has) {
    return pl_gateway_tally(standby->gateway, DOOR_RUN, 3, has);
}

/* Two of three workers decide, whatever the third says that it has seen. */
TEST(one_worker_alone_does_not_keep_a_standby_from_taking_over) {
    struct door d, standby;
    char key[3][PL_WIRE_KEY + 1], secret[PL_WIRE_KEY + 1];
    door_open(&d, 3, (struct pl_port_conf){0});
    door_open_standby(&standby, "127.0.0.1:0", 0);
    for (int i = 0; i < 3; i++) join_by_hand(&d, i, key[i]);
    secret_of(&d, secret);
    pl_gateway_follows(standby.gateway, secret);
    assert_int_equal(vote(&standby, "POST", key[0], "5"), 503);
    assert_int_equal(vote(&standby, "POST", key[1], "1000000"), 503);
    assert_true(tally(&standby, 5).most);
    assert_false(tally(&standby, 5).elected); /* most of them may have seen what it has not */
    assert_int_equal(tally(&standby, 5).seen, 1000000);
    assert_int_equal(vote(&standby, "POST", key[2], "4"), 503);
    assert_false(tally(&standby, 3).elected);
    assert_false(tally(&standby, 4).elected);
    assert_true(tally(&standby, 5).elected);
    pl_gateway_close(standby.gateway);
    door_close(&d);
}

/* --- the port of a standby ---------------------------------------------------------------------
 */

/* No other program can take it, and connections that are made meanwhile are answered later. */
TEST(the_port_stays_open_between_two_servers) {
    struct door d;
    char address[40], answer[ANSWER];
    door_open_standby(&d, "127.0.0.1:0", 0);
    int port = pl_gateway_port(d.gateway), listens = pl_gateway_socket(d.gateway);
    assert_true(listens > 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    pl_gateway_close(d.gateway);
    int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&at, sizeof at), -1);
    assert_int_equal(connect(other, (struct sockaddr *)&at, sizeof at), 0);
    const char *request = "GET /healthz" HOST "\r\n";
    assert_true(send(other, request, strlen(request), MSG_NOSIGNAL) > 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    door_open_standby(&d, address, listens);
    assert_int_equal(pl_gateway_port(d.gateway), port);
    hear(other, answer);
    assert_memory_equal(answer, "HTTP/1.1 ", 9);
    pl_gateway_close(d.gateway);
    other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* although the socket is still there */
    assert_int_equal(connect(other, (struct sockaddr *)&at, sizeof at), -1);
    close(other);
    close(listens);
}

/* --- a false server --------------------------------------------------------------------------- */

static void answer_once(void *arg) {
    static const char answer[] = "HTTP/1.1 201 Created\r\nPaceline-Worker: 0\r\n"
                                 "Paceline-Workers: 1\r\nPaceline-Dim: 1\r\nPaceline-Seat: "
                                 "0123456789abcdef0123456789abcdef"
                                 "\r\nContent-Length: 2\r\n\r\n{}";
    int sock = accept(*(int *)arg, NULL, NULL);
    char request[ANSWER];
    if (sock < 0 || recv(sock, request, sizeof request, 0) <= 0) abort();
    if (send(sock, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0) abort();
    close(sock);
}

TEST(vectors_of_another_length_are_refused) {
    char url[64];
    struct pl_thread *thread;
    int sock = false_server(url);
    assert_int_equal(pl_thread_start(answer_once, &sock, &thread), 0);
    struct pl_client_link_conf conf = {.path = url, .client = {.dim = DIM}, .wait_ns = LONG_NS};
    struct pl_welcome welcome;
    struct pl_why why = {""};
    struct pl_link *l = NULL;
    assert_int_equal(pl_http.join->connect(&conf, &l, &welcome, &why), PL_EDATA);
    pl_thread_join(thread);
    close(sock);
}
