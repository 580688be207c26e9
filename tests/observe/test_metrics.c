/* The metrics over a real socket: what Prometheus and a health check get, line by line, and what
 * clients that send something else get. The test supplies the clock of /healthz. */
#include <stdatomic.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "observe/metrics.h"
#include "sys/thread.h"
#include "test.h"

static struct pl_metrics *metrics;
static struct pl_why why;
static _Atomic uint64_t fake_ns;

static uint64_t fake_clock(void) {
    return atomic_load(&fake_ns);
}

/* --- a client ---------------------------------------------------------------------------- */

static int dial(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {30, 0};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void say(int fd, const char *text, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0) return; /* it was closed on us, which is an answer too */
        text += sent;
        n -= (size_t)sent;
    }
}

/* Everything up to the end, which must come. */
static char *hear(int fd) {
    static char text[1 << 23]; /* a page of 4,096 workers has more than a megabyte */
    size_t n = 0;
    ssize_t got;
    while ((got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0) n += (size_t)got;
    text[n] = '\0';
    close(fd);
    return text;
}

static char *ask_as(const char *host, const char *method, const char *path) {
    char request[400];
    int fd = dial(pl_metrics_port(metrics));
    int n = snprintf(request, sizeof request,
                     "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, path, host);
    say(fd, request, (size_t)n);
    return hear(fd);
}

static char *ask(const char *method, const char *path) {
    return ask_as("localhost", method, path);
}

static int status_of(const char *answer) {
    int status = 0;
    sscanf(answer, "HTTP/1.%*1[01] %d", &status);
    return status;
}

static char *body_of(char *answer) {
    char *body = strstr(answer, "\r\n\r\n");
    assert_non_null(body);
    return body + 4;
}

/* --- what is published ------------------------------------------------------------------- */

static struct pl_timeline_row rows[3] = {
    {.ns = {1500000000, 250000000, 125000000, 0}, .held_up_ns = 750000000},
    {.ns = {2000000000, 0, 0, 4000000000}},
    {.ns = {0}}};

static struct pl_metrics_now example(void) {
    return (struct pl_metrics_now){
        .updates = 12,
        .samples = 9007199254740991u,
        .fates = {20, 11, 1, 2, 3, 1, 2},
        .staleness = {1.25, 7, 0.5},
        .workers = 2,
        .workers_expected = 3,
        .workers_away = 1,
        .k = 2,
        .loss = 0.75,
        .test_loss = NAN,
        .test_accuracy = 0.9375,
        .consensus = 0.5,
        .run_seconds = 61.5,
        .last_update = 1700000000.25,
        .last_checkpoint = NAN,
        .row = rows,
        .n_rows = 3,
    };
}

static bool has_line(const char *text, const char *line) {
    size_t n = strlen(line);
    for (const char *at = text; (at = strstr(at, line)); at++)
        if ((at == text || at[-1] == '\n') && at[n] == '\n') return true;
    return false;
}

/* A line against the format: "# HELP name …", "# TYPE name kind", "name{…} value"; every family has
 * its two lines in front, and comes once. */
static void check_page(const char *text) {
    char family[100] = "", families[4000] = "", line[400], name[100], kind[20], rest[300];
    bool typed = false;
    for (size_t n; *text; text += n + 1) {
        n = strcspn(text, "\n");
        assert_int_equal(text[n], '\n');
        assert_true(n > 0 && n < sizeof line);
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (sscanf(line, "# HELP %99s %299[^\n]", name, rest) == 2) {
            char mark[110];
            snprintf(mark, sizeof mark, " %s ", name);
            assert_null(strstr(families, mark));
            pl_append(families, sizeof families, "%s", mark);
            snprintf(family, sizeof family, "%s", name);
            typed = false;
        } else if (sscanf(line, "# TYPE %99s %19s", name, kind) == 2) {
            assert_string_equal(name, family);
            bool total = strstr(name, "_total") && strlen(strstr(name, "_total")) == 6;
            assert_string_equal(kind, total ? "counter" : "gauge");
            typed = true;
        } else {
            char *end;
            assert_true(typed);
            assert_int_equal(strncmp(line, family, strlen(family)), 0);
            char *value = line + strlen(family);
            if (*value == '{') {
                assert_non_null(strchr(value, '}'));
                value = strchr(value, '}') + 1;
            }
            assert_int_equal(*value, ' ');
            assert_true(!isnan(strtod(value + 1, &end)));
            assert_true(end > value + 1 && *end == '\0');
        }
    }
}

TEST(test_page) {
    static const char *const lines[] = {
        "# TYPE paceline_updates_total counter",
        "# TYPE paceline_loss gauge",
        "paceline_updates_total 12",
        "paceline_samples_total 9007199254740991",
        "paceline_tasks_started_total 20",
        "paceline_tasks_total{fate=\"applied\"} 11",
        "paceline_tasks_total{fate=\"dropped\"} 1",
        "paceline_tasks_total{fate=\"cancelled\"} 2",
        "paceline_tasks_total{fate=\"lost\"} 3",
        "paceline_tasks_total{fate=\"rejected\"} 1",
        "paceline_staleness_mean 1.25",
        "paceline_staleness_max 7",
        "paceline_workers 2",
        "paceline_workers_expected 3",
        "paceline_workers_disconnected 1",
        "paceline_k 2",
        "paceline_loss 0.75",
        "paceline_test_accuracy 0.9375",
        "paceline_run_seconds 61.5",
        "paceline_last_update_timestamp_seconds 1700000000.25",
        "paceline_worker_seconds_total{worker=\"1\",kind=\"compute\"} 1.5",
        "paceline_worker_seconds_total{worker=\"1\",kind=\"communication\"} 0.25",
        "paceline_worker_seconds_total{worker=\"1\",kind=\"idle\"} 0.125",
        "paceline_worker_seconds_total{worker=\"2\",kind=\"wasted\"} 4",
        "paceline_worker_seconds_total{worker=\"3\",kind=\"idle\"} 0",
        "paceline_worker_held_up_seconds_total{worker=\"1\"} 0.75",
        "paceline_worker_held_up_seconds_total{worker=\"2\"} 0",
        "paceline_consensus_distance 0.5",
    };
    struct pl_metrics_now now = example();
    size_t n;
    char *text = pl_metrics_text(&now, &n);
    assert_int_equal(strlen(text), n);
    check_page(text);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!has_line(text, lines[i])) fail_msg("no line '%s' in\n%s", lines[i], text);
    assert_null(strstr(text, "test_loss"));
    assert_null(strstr(text, "checkpoint"));
    assert_null(strstr(text, "worker=\"4\""));
    free(text);
    now.loss = INFINITY;
    now.last_checkpoint = 1700000001;
    now.n_rows = 0;
    now.fates.applied = 0;
    text = pl_metrics_text(&now, &n);
    check_page(text);
    assert_true(has_line(text, "paceline_loss +Inf"));
    assert_true(has_line(text, "paceline_checkpoint_last_timestamp_seconds 1700000001"));
    assert_null(strstr(text, "worker_seconds"));
    assert_null(strstr(text, "staleness_max"));
    free(text);
}

TEST(test_well) {
    static const struct {
        double since, mean;
        bool well;
        const char *text;
    } row[] = {
        {0, NAN, true, "ok\n"},
        {30, NAN, true, "ok\n"},
        {31, NAN, false, "no update for 31 s\n"},
        {29, 0.001, true, "ok\n"},
        {31, 0.001, false, "no update for 31 s (mean 0.001 s per update)\n"},
        {99, 10, true, "ok\n"},
        {101, 10, false, "no update for 101 s (mean 10 s per update)\n"},
    };
    char text[160];
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        assert_int_equal(pl_metrics_well(row[i].since, row[i].mean, text, sizeof text),
                         row[i].well);
        assert_string_equal(text, row[i].text);
    }
}

/* --- over the socket --------------------------------------------------------------------- */

/* 0, or a skip where the library is built without a server, which must be said. */
static int open_metrics(void **state) {
    atomic_store(&fake_ns, 5000000000u);
    int rc = pl_metrics_open("0", fake_clock, &metrics, &why);
    if (rc == PL_EMISSING) {
        assert_non_null(strstr(why.text, "libmicrohttpd-dev"));
        metrics = NULL;
        return 0;
    }
    return rc;
}

static int close_metrics(void **state) {
    pl_metrics_close(metrics);
    metrics = NULL;
    return 0;
}

TEST_BETWEEN(open_metrics, close_metrics, test_pages) {
    if (!metrics) skip();
    assert_true(pl_metrics_port(metrics) > 0);
    char *answer = ask("GET", "/metrics"); /* nothing was published yet */
    assert_int_equal(status_of(answer), 200);
    check_page(body_of(answer));
    assert_true(has_line(body_of(answer), "paceline_updates_total 0"));
    struct pl_metrics_now now = example();
    pl_metrics_publish(metrics, &now);
    memset(&now, 0x55, sizeof now); /* it has a copy */
    answer = ask("GET", "/metrics");
    assert_int_equal(status_of(answer), 200);
    assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4"));
    check_page(body_of(answer));
    size_t n;
    now = example();
    char *text = pl_metrics_text(&now, &n);
    assert_string_equal(body_of(answer), text);
    free(text);
    answer = ask("GET", "/metrics?a=b");
    assert_int_equal(status_of(answer), 200);
    answer = ask("HEAD", "/metrics");
    assert_int_equal(status_of(answer), 200);
    assert_string_equal(body_of(answer), "");
    answer = ask("GET", "/healthz");
    assert_int_equal(status_of(answer), 200);
    assert_string_equal(body_of(answer), "ok\n");
    assert_int_equal(status_of(ask("GET", "/readyz")), 200);
    static const char *const nowhere[] = {"/", "/metrics/", "/Metrics", "//metrics", "/..", "*"};
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++)
        assert_int_equal(status_of(ask("GET", nowhere[i])), 404);
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS", "get", "X"};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        answer = ask(methods[i], "/metrics");
        assert_int_equal(status_of(answer), 405);
        assert_non_null(strstr(answer, "Allow: GET, HEAD"));
    }
}

static int health_after(double seconds, uint64_t updates) {
    struct pl_metrics_now now = example();
    now.updates = updates;
    atomic_fetch_add(&fake_ns, (uint64_t)(seconds * 1e9));
    pl_metrics_publish(metrics, &now);
    return status_of(ask("GET", "/healthz"));
}

TEST_BETWEEN(open_metrics, close_metrics, test_health) {
    if (!metrics) skip();
    atomic_fetch_add(&fake_ns, 3600000000000u); /* it waits for workers */
    assert_int_equal(status_of(ask("GET", "/healthz")), 200);
    assert_int_equal(status_of(ask("GET", "/readyz")), 200);
    assert_int_equal(health_after(0, 1000), 200); /* goes on where another run ended */
    assert_int_equal(health_after(29, 1000), 200);
    assert_int_equal(health_after(2, 1000), 503);
    assert_int_equal(health_after(9, 1010), 200); /* 10 in 40 s: 40 s of patience */
    assert_int_equal(health_after(39, 1010), 200);
    assert_int_equal(health_after(2, 1010), 503);
    char *answer = ask("GET", "/healthz");
    assert_string_equal(body_of(answer), "no update for 41 s (mean 4 s per update)\n");
    atomic_fetch_add(&fake_ns, 1000000000u); /* no publish: the run hangs */
    assert_int_equal(status_of(ask("GET", "/healthz")), 503);
    assert_int_equal(health_after(1, 1011), 200);
}

static struct pl_timeline_row many[PL_METRICS_WORKERS + 9];
static atomic_bool published_enough;

static void publish_many(void *unused) {
    struct pl_metrics_now now = example();
    (void)unused;
    now.row = many;
    for (int i = 0; !atomic_load(&published_enough); i++) {
        now.updates++;
        now.samples = now.updates;
        now.n_rows = (int)(now.updates * 37 % (sizeof many / sizeof many[0]));
        if (i % 50 == 0) now.n_rows = 1;
        if (i % 20) now.n_rows %= 40; /* small most of the time, for speed */
        pl_metrics_publish(metrics, &now);
    }
}

/* What is read while it is written is one moment's. */
TEST_BETWEEN(open_metrics, close_metrics, test_one_moment) {
    if (!metrics) skip();
    struct pl_thread *publisher;
    unsigned long long updates = 0, samples = 1, last = 0;
    atomic_store(&published_enough, false);
    assert_int_equal(pl_thread_start(publish_many, NULL, &publisher), 0);
    for (int round = 0; round < 20; round++) {
        char *body = body_of(ask("GET", "/metrics"));
        check_page(body);
        const char *line = strstr(body, "\npaceline_updates_total ");
        assert_non_null(line);
        assert_int_equal(sscanf(line, "\npaceline_updates_total %llu", &updates), 1);
        line = strstr(body, "\npaceline_samples_total ");
        assert_non_null(line);
        assert_int_equal(sscanf(line, "\npaceline_samples_total %llu", &samples), 1);
        if (updates) assert_true(updates == samples && updates >= last);
        last = updates;
    }
    atomic_store(&published_enough, true);
    pl_thread_join(publisher);
    struct pl_metrics_now now = example();
    now.row = many;
    now.n_rows = (int)(sizeof many / sizeof many[0]);
    pl_metrics_publish(metrics, &now);
    const char *body = body_of(ask("GET", "/metrics"));
    assert_non_null(strstr(body, "worker=\"4096\""));
    assert_null(strstr(body, "worker=\"4097\""));
}

/* A page of the web whose name was made to point to this machine; and a cluster's own names. */
TEST_BETWEEN(open_metrics, close_metrics, names_of_the_web_are_refused) {
    if (!metrics) skip();
    assert_int_equal(status_of(ask_as("evil.example", "GET", "/metrics")), 403);
    assert_int_equal(status_of(ask_as("[evil.example]", "GET", "/healthz")), 403);
    assert_int_equal(status_of(ask_as("[::1]:80", "GET", "/metrics")), 200);
    assert_int_equal(status_of(ask_as("127.0.0.1", "GET", "/metrics")), 200);
    pl_metrics_close(metrics);
    metrics = NULL;
    assert_int_equal(pl_metrics_open("0.0.0.0:0", fake_clock, &metrics, &why), PL_OK);
    assert_int_equal(status_of(ask_as("node7.cluster", "GET", "/metrics")), 200);
}

TEST_BETWEEN(open_metrics, close_metrics, test_strangers) {
    if (!metrics) skip();
    static char big[200000];
    memset(big, 'a', sizeof big);
    memcpy(big, "GET /", 5);
    int port = pl_metrics_port(metrics);
    for (size_t n = 1; n <= sizeof big; n = n * 7 + 1) { /* long paths, with and without an end */
        int fd = dial(port);
        say(fd, big, n);
        say(fd, " HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n", 45);
        const char *answer = hear(fd);
        if (n < 1000 && n > 5) assert_int_equal(status_of(answer), 404);
        if (n > 50000) assert_true(status_of(answer) != 200);
    }
    static const char *const garbage[] = {
        "\r\n\r\n\r\n",
        "\x16\x03\x01\x02 hello\r\n\r\n",
        "GET\r\n\r\n",
        "GET /metrics\r\n\r\n",
        "GET /metrics HTTP/9.9\r\n\r\n",
        "GET http://elsewhere/metrics HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET /%00%ff%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\nabc",
        "POST /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\nabc",
        "GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\nConnection: close\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        int fd = dial(port);
        say(fd, garbage[i], strlen(garbage[i]));
        shutdown(fd, SHUT_WR);
        hear(fd);
    }
    for (int i = 0; i < 100; i++) close(dial(port)); /* come and go */
    int held[40]; /* more than the connection limit: no client may hang */
    for (int i = 0; i < 40; i++) held[i] = dial(port);
    for (int i = 0; i < 40; i++) close(held[i]);
    assert_int_equal(status_of(ask("GET", "/healthz")), 200);
}

static bool has_ipv6(void) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    return bound;
}

TEST_BETWEEN(open_metrics, close_metrics, test_addresses) {
    if (!metrics) skip();
    static const char *const good[] = {"0", ":0", "127.0.0.1:0", "localhost:0", "0.0.0.0:0"};
    static const char *const bad[] = {"",        ":",          "a",           "host:",  "::1:9100",
                                      "host:-1", "host:65536", "host:000080", "[::1]",  "[::1]9100",
                                      "[]:1",    "h:1 ",       "1.5",         "h:0x50", "[::1:9"};
    struct pl_metrics *m;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (pl_metrics_open(good[i], fake_clock, &m, &why)) fail_msg("'%s': %s", good[i], why.text);
        assert_true(pl_metrics_port(m) > 0);
        pl_metrics_close(m);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (pl_metrics_open(bad[i], fake_clock, &m, &why) != PL_EUSAGE)
            fail_msg("'%s' is taken", bad[i]);
        assert_non_null(strstr(why.text, "HOST:PORT"));
    }
    bool ipv6 = has_ipv6(); /* without it this is an error, but it is understood */
    assert_int_equal(pl_metrics_open("[::1]:0", fake_clock, &m, &why), ipv6 ? PL_OK : PL_EIO);
    if (ipv6) pl_metrics_close(m);
    char taken[40];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", pl_metrics_port(metrics));
    assert_int_equal(pl_metrics_open(taken, fake_clock, &m, &why), PL_EIO);
    assert_non_null(strstr(why.text, "Address already in use"));
    char unknown[] = "no-name-has-a-part-of-more-than-sixty-three-letters-so-this-one-is-none:0";
    assert_int_equal(pl_metrics_open(unknown, fake_clock, &m, &why), PL_EIO);
    assert_non_null(strstr(why.text, "unknown host"));
}
