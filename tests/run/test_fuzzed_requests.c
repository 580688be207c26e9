/* Requests that are almost right, to a server with a worker, and to a server and its standby: they
 * are answered or dropped, and disturb nobody. `make fuzz-requests` sends many. */
#define _GNU_SOURCE

#include "base/rng.h"
#include "door.h"
#include "folder.h"

struct fuzzer {
    struct door d;
    const struct door *to; /* who gets the next request */
    struct pl_rng rng;
    char key[PL_WIRE_KEY + 1];
    char text[4096], last[4096]; /* a request, and the one before it */
    size_t n, last_n;
};

static uint64_t draw(struct fuzzer *f, size_t below) {
    return pl_rng_below(&f->rng, (uint32_t)below);
}

static void fuzz_add(struct fuzzer *f, const char *text) {
    size_t n = strlen(text);
    if (f->n + n > sizeof f->text) n = sizeof f->text - f->n;
    memcpy(f->text + f->n, text, n);
    f->n += n;
}

static const char *fuzz_number(struct fuzzer *f) {
    static const char *const number[] = {
        "0",    "1",  "2",   "132", "131",  "133",
        "66",   "-1", "1e9", "nan", "-inf", "18446744073709551615",
        "0x10", "",   "1,5", "512", "4096", "18446744073709551616"};
    return number[draw(f, sizeof number / sizeof *number)];
}

/* A request with any method, path and headers of the protocol. */
static void fuzz_request(struct fuzzer *f) {
    static const char *const method[] = {"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"};
    static const char *const tail[] = {"", "/next", "/events", "/word", "/newest", "/", "/../next"};
    static const char *const path[] = {"/healthz", "/v1/setup",     "/",          "/v1/",
                                       "*",        "/v1/seats?a=b", PL_WIRE_COPY, PL_WIRE_VOTES};
    static const char *const header[] = {
        PL_WIRE_VERSION,  "Content-Length",    PL_WIRE_TASK,   PL_WIRE_SAMPLES,    PL_WIRE_LOSS,
        PL_WIRE_DEFECT,   PL_WIRE_LR,          PL_WIRE_ABSENT, PL_WIRE_DIM,        PL_WIRE_KIND,
        PL_WIRE_CAN,      PL_WIRE_FINGERPRINT, PL_WIRE_TOKEN,  PL_WIRE_NUMBER,     PL_WIRE_WAIT,
        "Content-Length", "Transfer-Encoding", "Connection",   "Paceline-Unknown", "Expect",
        PL_WIRE_RUN,      PL_WIRE_EPOCH,       PL_WIRE_SEEN,   PL_WIRE_STANDBY,    PL_WIRE_ADDRESS};
    static const char *const word[] = {"worker", "evaluator", "chunked", "close", "100-continue"};
    fuzz_add(f, method[draw(f, 4) ? draw(f, 2) : draw(f, sizeof method / sizeof *method)]);
    fuzz_add(f, " ");
    if (draw(f, 8) == 0) {
        fuzz_add(f, path[draw(f, sizeof path / sizeof *path)]);
    } else {
        fuzz_add(f, PL_WIRE_SEATS);
        if (draw(f, 5)) {
            fuzz_add(f, "/");
            fuzz_add(f, draw(f, 8) ? f->key : "0123456789abcdef0123456789abcdef");
            fuzz_add(f, tail[draw(f, sizeof tail / sizeof *tail)]);
        }
    }
    fuzz_add(f, HOST);
    if (draw(f, 2)) fuzz_add(f, PL_WIRE_VERSION ": 1\r\n");
    for (uint64_t n = draw(f, 6); n > 0; n--) {
        fuzz_add(f, header[draw(f, sizeof header / sizeof *header)]);
        fuzz_add(f, ": ");
        fuzz_add(f, draw(f, 5) ? fuzz_number(f) : word[draw(f, sizeof word / sizeof *word)]);
        fuzz_add(f, "\r\n");
    }
    fuzz_add(f, "\r\n");
    for (uint64_t n = draw(f, 3) ? 0 : draw(f, 200); n > 0 && f->n < sizeof f->text; n--)
        f->text[f->n++] = (char)draw(f, 256);
}

/* What a standby asks a server, or a worker a standby, with a header that is missing or wrong now
 * and then. */
static void fuzz_standby(struct fuzzer *f) {
    static const char *const method[] = {"GET", "POST", "DELETE"};
    const char *const header[][2] = {{PL_WIRE_RUN, DOOR_RUN},
                                     {PL_WIRE_EPOCH, "3"},
                                     {PL_WIRE_SEEN, "7"},
                                     {PL_WIRE_SEAT, f->key},
                                     {PL_WIRE_ADDRESS, "127.0.0.1:1"},
                                     {"Content-Length", "0"}};
    bool copy = draw(f, 8) == 0; /* which is answered late */
    fuzz_add(f, draw(f, 8) ? copy ? "GET" : method[1 + draw(f, 2)] : method[draw(f, 3)]);
    fuzz_add(f, " ");
    fuzz_add(f, copy ? PL_WIRE_COPY : PL_WIRE_VOTES);
    fuzz_add(f, HOST);
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        if (draw(f, 8) == 0) continue;
        fuzz_add(f, header[i][0]);
        fuzz_add(f, ": ");
        fuzz_add(f, draw(f, 8) ? header[i][1] : fuzz_number(f));
        fuzz_add(f, "\r\n");
    }
    fuzz_add(f, "\r\n");
}

/* Flips, cuts, doubles, or leaves it as it is. */
static void fuzz_spoil(struct fuzzer *f) {
    switch (draw(f, 6)) {
    case 0:
        for (uint64_t n = 1 + draw(f, 4); n > 0 && f->n > 0; n--)
            f->text[draw(f, f->n)] = (char)draw(f, 256);
        break;
    case 1: f->n = draw(f, f->n + 1); break;
    case 2: /* the one before it comes again, behind it */
        if (f->n + f->last_n > sizeof f->text) break;
        memcpy(f->text + f->n, f->last, f->last_n);
        f->n += f->last_n;
        break;
    case 3: /* a header of any length */
        if (f->n < 2) break;
        f->n -= 2;
        fuzz_add(f, "X: ");
        for (uint64_t n = draw(f, 3000); n > 0 && f->n < sizeof f->text; n--)
            f->text[f->n++] = (char)(' ' + draw(f, 94));
        fuzz_add(f, "\r\n\r\n");
        break;
    default: break;
    }
}

static void fuzz_send(struct fuzzer *f) {
    char answer[4096];
    size_t n = 0;
    struct line l = line_open(call(f->to), f->to->keys);
    if (line_send(&l, f->text, f->n) > 0) line_finish(&l);
    while (draw(f, 8) && n < sizeof answer - 1) {
        ssize_t got = line_receive(&l, answer + n, sizeof answer - 1 - n, 20);
        if (got <= 0) break;
        n += (size_t)got;
    }
    answer[n] = '\0';
    line_close(&l);
    if (n >= 12 && (memcmp(answer, "HTTP/1.", 7) != 0 || memcmp(answer + 9, "500", 3) == 0))
        fail_msg("%.*s\n%s", (int)f->n, f->text, answer);
    const char *key = strstr(answer, PL_WIRE_SEAT ": ");
    if (key && strlen(key) > sizeof PL_WIRE_SEAT + 1 + PL_WIRE_KEY)
        snprintf(f->key, sizeof f->key, "%s", key + sizeof PL_WIRE_SEAT + 1);
}

static void fuzz_open(struct fuzzer *f, uint32_t stream) {
    memset(f, 0, sizeof *f);
    snprintf(f->key, sizeof f->key, "%s", "0123456789abcdef0123456789abcdef");
    pl_rng_init(&f->rng, test_seed, PL_STREAM_TEST, stream, 0);
    f->to = &f->d;
}

static void fuzz_once(struct fuzzer *f, void (*request)(struct fuzzer *f)) {
    f->n = 0;
    request(f);
    fuzz_spoil(f);
    fuzz_send(f);
    memcpy(f->last, f->text, f->n);
    f->last_n = f->n;
}

static uint64_t fuzz_requests(void) {
    const char *given = getenv("FUZZ_REQUESTS");
    return given ? strtoull(given, NULL, 10) : 1000;
}

/* Strangers can take the other seats; nobody else's results change. */
static void stands_fuzzed_requests(uint64_t n_requests, const char *keys) {
    static struct fuzzer f;
    uint64_t task = 1;
    fuzz_open(&f, 91);
    door_open_with(&f.d, 3, (struct pl_port_conf){.n_evaluators = 1}, keys);
    struct pl_link *l = join_worker(&f.d, 0);
    for (uint64_t i = 0; i < n_requests; i++) {
        fuzz_once(&f, fuzz_request);
        if (i % 3 == 0) { /* who has a seat has something to do */
            crew_tell(&f.d.c, 1, i + 1);
            crew_tell(&f.d.c, 2, i + 1);
        }
        if (i % 10 == 0) work_on(&f.d, l, task++);
    }
    assert_true(f.d.n_reports <= 10);
    work_on(&f.d, l, task++);
    pl_http.link.detach(l);
    struct pl_news n;
    do pl_shm.port.news(f.d.c.p, CREW_PATIENCE_NS, &n);
    while (n.kind != PL_NEWS_GONE || n.worker != 0);
    door_close(&f.d);
}

/* As many as FUZZ_REQUESTS says. */
TEST(fuzzed_requests_disturb_nobody) {
    stands_fuzzed_requests(fuzz_requests(), NULL);
}

/* Fewer, each with a handshake of its own. */
TEST(fuzzed_requests_over_tls_disturb_nobody) {
    char keys[300];
    line_keys(keys);
    stands_fuzzed_requests(fuzz_requests() / 5, keys);
}

/* --- a server and its standby ---------------------------------------------------------------- */

/* It answers, if only when connections of earlier requests have ended. */
static void is_alive(const struct door *d) {
    uint64_t end = pl_now_ns() + CREW_PATIENCE_NS;
    int status = 0;
    while (status != 200 && pl_now_ns() < end) status = ask(d, "GET /healthz" HOST "\r\n");
    assert_int_equal(status, 200);
}

static int votes(const struct door *standby) {
    return pl_gateway_tally(standby->gateway, DOOR_RUN, 1000, 0).n;
}

/* The only worker votes, however often, and nobody else can. */
TEST(fuzzed_votes_and_copies_disturb_nobody) {
    static struct fuzzer f;
    static struct door standby;
    uint64_t n_requests = fuzz_requests();
    char key[PL_WIRE_KEY + 1], secret[PL_WIRE_KEY + 1];
    fuzz_open(&f, 92);
    door_open(&f.d, 1, (struct pl_port_conf){0});
    door_open_standby(&standby, "127.0.0.1:0", 0);
    join_by_hand(&f.d, 0, key);
    secret_of(&f.d, secret);
    pl_gateway_follows(standby.gateway, secret);
    for (uint64_t i = 0; i < n_requests; i++) {
        f.to = draw(&f, 2) ? &f.d : &standby;
        snprintf(f.key, sizeof f.key, "%s", key);
        if (draw(&f, 4) == 0) f.key[draw(&f, PL_WIRE_KEY)] ^= 1;
        fuzz_once(&f, draw(&f, 8) ? fuzz_standby : fuzz_request);
        assert_true(votes(&standby) <= 1);
        if (i % 100 == 0) pl_gateway_follows(standby.gateway, secret);
    }
    is_alive(&f.d);
    is_alive(&standby);
    assert_true(f.d.n_reports <= 10 && standby.n_reports <= 10);
    assert_int_equal(vote(&standby, "POST", key, "0"), 503);
    assert_int_equal(votes(&standby), 1);
    assert_int_equal(vote(&standby, "DELETE", key, "0"), 204);
    assert_int_equal(votes(&standby), 0);
    pl_gateway_close(standby.gateway);
    door_close(&f.d);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
