/* Requests of those who do not belong, or do not keep to the protocol: they are refused, and
 * disturb nobody. */
#define _GNU_SOURCE

#include "base/rng.h"
#include "door.h"

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
    int sock = call(&d);
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
