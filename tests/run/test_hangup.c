/* Clients that are evicted, or that do not answer: the server hangs up on them,
 * and another program gets their place. */
#include <pthread.h>

#include "client.h"

/* Tries for up to 120 s, as long as all places are taken. */
static pl_client *join_later(const struct server *s) {
    char why[400] = "";
    pl_client *c = NULL;
    struct pl_client_conf conf = {.path = s->path, .dim = DIM};
    for (int i = 0; !c && i < 12000; i++) {
        if (pl_client_open(&conf, &c, why, sizeof why) == 0) break;
        if (!strstr(why, "has all its 2 workers already")) fail_msg("%s", why);
        nap(10);
    }
    if (!c) fail_msg("nobody was hung up on: %s", why);
    return c;
}

/* One task, with this value in every coordinate of the result. */
static int reply(pl_client *c, float value, int *worker) {
    struct pl_client_task t;
    int rc = pl_client_pull(c, 120, &t);
    if (rc) return rc;
    for (int i = 0; i < DIM; i++) t.out[i] = value;
    if (worker) *worker = t.worker;
    nap(1);
    assert_int_equal(pl_client_push(c, DIM, 1, 1), PL_OK);
    return PL_OK;
}

static void *reply_to_all(void *client) {
    int rc;
    while ((rc = reply(client, 0, NULL)) == PL_OK) continue;
    assert_int_equal(rc, PL_ECANCELLED); /* the run has ended */
    return NULL;
}

/* A server with two clients: a, which computes in a thread, and b, the test's. With method=sync a
 * has no task while b is late. */
struct scene {
    struct server server;
    pl_client *a, *b;
    pthread_t thread;
};

static struct scene begin(const char *options) {
    char all[200];
    snprintf(all, sizeof all,
             "model=external:dim=5 workers=2 method=async updates=1000000000 time=3600 lr=0.001 %s",
             options);
    struct scene s = {.server = serve(all)};
    s.a = join(&s.server, (struct pl_client_conf){.dim = DIM});
    s.b = join(&s.server, (struct pl_client_conf){.dim = DIM});
    assert_int_equal(pthread_create(&s.thread, NULL, reply_to_all, s.a), 0);
    return s;
}

/* The task that b does not answer in time. */
static struct pl_client_task pull_b(const struct scene *s) {
    struct pl_client_task t;
    assert_int_equal(pl_client_pull(s->b, 120, &t), PL_OK);
    return t;
}

/* This client does 20 tasks and ends the run; returns its place. */
static int last_tasks(pl_client *c) {
    int worker = -1;
    for (int i = 0; i < 20; i++) assert_int_equal(reply(c, 0, &worker), PL_OK);
    assert_int_equal(pl_client_end(c), PL_OK);
    reply_to_all(c);
    return worker;
}

/* c, if it is not NULL, has taken the place of b. Returns this number of the results. */
static double end(struct scene *s, pl_client *c, const char *key) {
    pl_client_close(s->b);
    pl_client_close(c);
    pthread_join(s->thread, NULL);
    pl_client_close(s->a);
    struct served r = served(&s->server);
    if (!r.ok) fail_msg("%s", r.text);
    return said(&r, key);
}

TEST(a_client_that_does_not_answer_loses_its_seat) {
    struct scene s = begin("method=sync evict=5");
    struct pl_client_task t = pull_b(&s), none; /* and never answers */
    pl_client *c = join_later(&s.server);
    assert_int_equal(pl_client_pull(s.b, 120, &none), PL_ERUN);
    if (!strstr(pl_client_why(s.b), "did not answer for too long; and it cannot join again"))
        fail_msg("%s", pl_client_why(s.b));
    assert_int_equal(last_tasks(c), t.worker);
    assert_true(end(&s, c, "frozen") >= 1); /* a may have been late as well */
}

/* A result that comes after the server has hung up is not used for anything. */
TEST(a_result_after_that_is_not_used) {
    struct scene s = begin("method=sync evict=5");
    struct pl_client_task t = pull_b(&s), next;
    pl_client *c = join_later(&s.server);
    assert_int_equal(pl_client_pull(c, 120, &next), PL_OK);
    for (int i = 0; i < DIM; i++) next.out[i] = 0;
    for (int i = 0; i < DIM; i++) t.out[i] = NAN; /* memory of its own, not c's */
    pl_client_push(s.b, DIM, 1, 1);
    for (int i = 0; i < DIM; i++) assert_true(next.out[i] == 0);
    assert_int_equal(pl_client_push(c, DIM, 1, 1), PL_OK);
    last_tasks(c);
    assert_true(end(&s, c, "rejected") == 0);
}

/* A worker that was only slow joins again by itself, if its place is still free. */
TEST(a_client_that_was_only_slow_joins_again) {
    struct scene s = begin("method=sync evict=5");
    pull_b(&s);
    assert_true(server_said(&s.server, "does not answer"));
    pl_client_push(s.b, DIM, 1, 1);
    last_tasks(s.b);
    assert_true(end(&s, NULL, "frozen") >= 1);
}

TEST(an_evicted_client_is_told_so) {
    struct scene s = begin("evict=off");
    int worker = -1, rc;
    while ((rc = reply(s.b, NAN, &worker)) == PL_OK) continue;
    assert_int_equal(rc, PL_ERUN);
    if (!strstr(pl_client_why(s.b), "the server hung up: this worker was evicted"))
        fail_msg("%s", pl_client_why(s.b));
    pl_client *c = join_later(&s.server);
    assert_int_equal(last_tasks(c), worker);
    assert_true(end(&s, c, "evicted") == 1);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
