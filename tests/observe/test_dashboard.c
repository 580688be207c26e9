/* The dashboard over a real socket: the page, its data and its stream, what happens when a run
 * ends, and clients that are slow, silent or strange. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "observe/dashboard.h"
#include "sys/clock.h"
#include "test.h"

static struct pl_dashboard *dashboard;
static struct pl_why why;
static char text[4 << 20];

static int port(void) {
    char url[PL_DASHBOARD_URL];
    const char *colon = strrchr(pl_dashboard_url(dashboard, url), ':');
    return (int)strtol(colon + 1, NULL, 10);
}

static int dial(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port())};
    struct timeval limit = {30, 0};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void say(int fd, const char *what) {
    send(fd, what, strlen(what), MSG_NOSIGNAL);
}

/* Everything up to the end. */
static const char *hear(int fd) {
    size_t n = 0;
    ssize_t got;
    while (n < sizeof text - 1 && (got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(fd);
    return text;
}

static const char *ask(const char *path, const char *host) {
    char request[300];
    int fd = dial();
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
             path, host);
    say(fd, request);
    return hear(fd);
}

static struct pl_history *history(void) {
    const struct pl_history_info info = {"a \"quoted\" name", "virtual", "loss", "data=digits\n",
                                         "paceline simulate"};
    struct pl_history *h;
    assert_int_equal(pl_history_new(&info, 2, &h), PL_OK);
    return h;
}

static int begin(void **state) {
    why.text[0] = '\0';
    int rc = pl_dashboard_open("127.0.0.1:0", strdup("{}"), &dashboard, &why);
    if (rc == PL_EMISSING) printf("skipped: %s\n", why.text);
    return rc == PL_EMISSING ? 0 : rc;
}

static int end(void **state) {
    pl_dashboard_close(dashboard);
    dashboard = NULL;
    return 0;
}

TEST_BETWEEN(begin, end, the_page_is_whole) {
    if (!dashboard) skip();
    const char *page = ask("/", "localhost");
    assert_non_null(strstr(page, "HTTP/1.1 200"));
    assert_non_null(strstr(page, "<!-- paceline report -->"));
    assert_non_null(strstr(page, "uPlot"));
    assert_non_null(strstr(page, "</html>"));
    assert_non_null(strstr(ask("/healthz", "localhost"), "HTTP/1.1 200"));
    assert_non_null(strstr(ask("/etc/passwd", "localhost"), "HTTP/1.1 404"));
    assert_non_null(
        strstr(ask("/data/", "localhost"), "{\"first\":0,\"runs\":[],\"past\":0,\"over\":0}"));
}

TEST_BETWEEN(begin, end, a_run_stays_after_its_end) {
    if (!dashboard) skip();
    struct pl_history *h = history();
    pl_dashboard_attach(dashboard, h);
    const char *data = ask("/data/0", "127.0.0.1:80");
    assert_non_null(strstr(data, "a \\\"quoted\\\" name"));
    assert_non_null(strstr(data, "\"past\":0"));
    pl_dashboard_detach(dashboard);
    pl_history_free(h);
    data = ask("/data/0", "localhost");
    assert_non_null(strstr(data, "a \\\"quoted\\\" name"));
    assert_non_null(strstr(data, "\"past\":1"));
    data = ask("/data/1", "localhost"); /* what the page has already is not sent again */
    assert_null(strstr(data, "quoted"));
    assert_non_null(strstr(ask("/data/99999999999999999999", "localhost"), "\"past\":1"));
}

/* A page of the web whose name was made to point to this machine. */
TEST_BETWEEN(begin, end, strange_names_are_refused) {
    if (!dashboard) skip();
    assert_non_null(strstr(ask("/data/0", "evil.example"), "HTTP/1.1 403"));
    assert_non_null(strstr(ask("/data/0", "evil.example:80"), "HTTP/1.1 403"));
    assert_non_null(strstr(ask("/data/0", "[evil.example]"), "HTTP/1.1 403"));
    assert_non_null(strstr(ask("/data/0", "[::1]:80"), "HTTP/1.1 200"));
}

/* Reads the stream until it has n messages. */
static int messages(int fd, int n) {
    size_t used = 0;
    int seen = 0;
    while (seen < n && used < 100000) {
        ssize_t got = recv(fd, text + used, 4096, 0);
        if (got <= 0) return -1;
        used += (size_t)got;
        text[used] = '\0';
        seen = 0;
        for (const char *at = text; (at = strstr(at, "data: {")); at++) seen++;
    }
    return seen;
}

TEST_BETWEEN(begin, end, the_stream_says_when_there_is_news) {
    if (!dashboard) skip();
    int fd = dial();
    say(fd, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(messages(fd, 2) >= 2);
    assert_non_null(strstr(text, "text/event-stream"));
    assert_non_null(strstr(text, "\"over\":0"));
    /* more streams than there is room for: the others are told, and everybody else is served */
    int many[40];
    for (int i = 0; i < 40; i++) {
        many[i] = dial();
        say(many[i], "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    assert_non_null(strstr(ask("/healthz", "localhost"), "HTTP/1.1 200"));
    for (int i = 0; i < 40; i++) close(many[i]);
    close(fd);
}

/* Clients that send their request byte by byte, more than there is room for, cannot keep others
 * out. */
TEST_BETWEEN(begin, end, slow_clients_keep_nobody_out) {
    enum { SLOW = 100 };
    if (!dashboard) skip();
    int slow[SLOW], fd;
    for (int i = 0; i < SLOW; i++) slow[i] = dial();
    fd = dial();
    say(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    char answer[64] = "";
    for (int tries = 0; tries < 300 && !strstr(answer, "200"); tries++) {
        for (int i = 0; i < SLOW; i++) send(slow[i], "G", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        ssize_t got = recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT);
        if (got > 0) answer[got] = '\0';
        pl_sleep_ns(50000000);
    }
    assert_non_null(strstr(answer, "200"));
    close(fd);
    for (int i = 0; i < SLOW; i++) close(slow[i]);
}

TEST_BETWEEN(begin, end, bad_addresses_are_refused) {
    if (!dashboard) skip();
    struct pl_dashboard *other;
    assert_int_equal(pl_dashboard_open("nonsense", strdup("{}"), &other, &why), PL_EUSAGE);
    assert_non_null(strstr(why.text, "dashboard"));
}
