/* Clients that join over HTTP: to the port they are like those of the same machine, whatever the
 * network does. */
#define _GNU_SOURCE

#include "door.h"

#if __has_include(<microhttpd.h>)
#include "run/gateway_state.h"
#define IS_WAITED_FOR(d) ((d).gateway->seats->presence.back_ns > 0)

/* Seconds between two beats of the only client; 0: it does not ask for its events. */
static unsigned beats_of(const struct door *d) {
    unsigned beat_s = 0;
    pl_lock_enter(d->gateway->lock);
    for (const struct request *r = d->gateway->requests; r; r = r->next)
        if (r->events.beat_s > beat_s) beat_s = r->events.beat_s;
    pl_lock_leave(d->gateway->lock);
    return beat_s;
}
#else
#define IS_WAITED_FOR(d) true /* the tests are skipped */
#define beats_of(d) 0u
#endif

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

/* The more places, the rarer the beats, and clients are told how rare. */
TEST(beats_are_rarer_in_a_crowd) {
    static const struct {
        int n_clients;
        const char *says;
    } row[] = {{1, PL_WIRE_BEAT ": 2\r\n"}, {200, ": 2\r\n"}, {1000, PL_WIRE_BEAT ": 10\r\n"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct door d;
        char answer[ANSWER];
        door_open_gateway(&d, 1, (struct pl_port_conf){0},
                          (struct pl_gateway_conf){.n_clients = row[i].n_clients});
        hear(send_request(&d, "POST /v1/seats" HOST PL_WIRE_VERSION ": 1\r\n"
                              "Content-Length: 0\r\n\r\n"),
             answer);
        assert_non_null(strstr(answer, row[i].says));
        crew_news(&d.c, PL_NEWS_JOINED, 0);
        door_close(&d);
    }
}

/* A client that hears of a standby hears of it at once, and wants more beats. */
TEST(with_a_standby_beats_are_not_rare) {
    struct door d;
    door_open_gateway(&d, 1, (struct pl_port_conf){0}, (struct pl_gateway_conf){.n_clients = 6000});
    struct pl_link *l = join_worker(&d, 0);
    while (beats_of(&d) != 60) crew_sleep(MS);
    int standby =
        send_request(&d, "GET " PL_WIRE_COPY HOST PL_WIRE_ADDRESS ": 127.0.0.1:1\r\n" PL_WIRE_SEEN
                         ": 0\r\n" PL_WIRE_RUN ": " DOOR_RUN "\r\n" PL_WIRE_EPOCH ": 3\r\n\r\n");
    while (beats_of(&d) != PL_WIRE_BEAT_S) crew_sleep(MS);
    close(standby);
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

static bool from_the_third_time(void *ctx) {
    int *n = ctx;
    return ++*n >= 3;
}

/* A server that accepts connections, and never answers, does not hold up who wants to leave. */
TEST(whoever_waits_for_an_answer_can_stop) {
    char url[64], text[100];
    int n = 0, sock = false_server(url);
    struct pl_client_link_conf conf = {
        .path = url, .wait_ns = CREW_PATIENCE_NS, .stop = from_the_third_time, .ctx = &n};
    struct pl_why why = {""};
    assert_int_equal(pl_http_fetch(&conf, "/v1/setup", text, sizeof text, &why), PL_EINTR);
    close(sock);
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

static void close_gateway(void *d) {
    pl_gateway_close(((struct door *)d)->gateway);
}

/* Asks again while there is no answer yet, as any client must: the seat may have been interrupted
 * when its last connection was closed. */
static int ask_until(struct door *d, const char *request) {
    int status;
    do status = ask(d, request);
    while (status == 204);
    return status;
}

/* One that has no connection at that moment, because it has just joined or lost it, hears of the
 * end when it comes back. */
TEST(the_end_waits_for_those_who_come_back) {
    struct door d;
    struct pl_thread *closes;
    char request[200], key[2][PL_WIRE_KEY + 1];
    door_open(&d, 2, (struct pl_port_conf){0});
    for (int w = 0; w < 2; w++) join_by_hand(&d, w, key[w]);
    assert_int_equal(pl_thread_start(close_gateway, &d, &closes), 0);
    for (int w = 0; w < 2; w++)
        for (int n = 0; n < 2; n++) { /* also if it asks twice */
            snprintf(request, sizeof request,
                     "POST /v1/seats/%s/next" HOST "Content-Length: 0\r\n\r\n", key[w]);
            if (n == 0 || w == 0) assert_int_equal(ask_until(&d, request), 410);
        }
    pl_thread_join(closes);
    d.gateway = NULL;
    crew_until(&d.c, PL_NEWS_GONE, 0);
    crew_until(&d.c, PL_NEWS_GONE, 1);
    door_close(&d);
}

/* It tells nothing new for a moment. */
static void stays(struct door *d) {
    struct pl_gateway_move m;
    for (int tries = 0; tries < 100; tries++) {
        assert_false(pl_gateway_moved(d->gateway, &m));
        crew_sleep(2 * MS);
    }
}

/* After a cut, a worker can ask for orders before it hears events again: it is back, and computing
 * is not being away. */
TEST(who_is_back_is_not_away_between_requests) {
    struct door d;
    char request[200], key[PL_WIRE_KEY + 1];
    door_open(&d, 1, (struct pl_port_conf){0});
    join_by_hand(&d, 0, key);
    listen_and_go(&d, key);
    snprintf(request, sizeof request, "POST /v1/seats/%s/next" HOST "Content-Length: 0\r\n\r\n",
             key);
    crew_tell(&d.c, 0, 1);
    assert_int_equal(ask_until(&d, request), 200);
    until_away(&d, false);
    stays(&d);
    assert_true(IS_WAITED_FOR(d));
    listen_and_go(&d, key);
    assert_false(IS_WAITED_FOR(d)); /* it has had a connection, and lost it */
    door_close(&d);
}

/* Of a worker that dies, the events can end before its last request is read. */
TEST(a_last_request_brings_nobody_back) {
    struct door d;
    char request[200], key[PL_WIRE_KEY + 1];
    door_open(&d, 1, (struct pl_port_conf){0});
    join_by_hand(&d, 0, key);
    int next = call(&d);
    listen_and_go(&d, key);
    int n = snprintf(request, sizeof request,
                     "POST /v1/seats/%s/next" HOST "Content-Length: 0\r\n\r\n", key);
    assert_int_equal(send(next, request, (size_t)n, 0), n);
    until_away(&d, false);
    close(next);
    until_away(&d, true);
    door_close(&d);
}
