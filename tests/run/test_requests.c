/* Whose requests a server carries out: those of clients that show its token, of all, or of none.
 * The server is another process, as in test_client.c. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "run/worker.h"
#include "transport/client_link.h"

#define RUN "model=external:dim=5 workers=2 method=async updates=40 lr=0.01 "

static void refused(const struct server *s, struct pl_client_conf conf, const char *sentence) {
    pl_client *c = NULL;
    char why[400] = "";
    conf.path = s->path;
    assert_int_equal(pl_client_open(&conf, &c, why, sizeof why), PL_ERUN);
    assert_non_null(strstr(why, sentence));
}

/* Every request of this client is refused, and says what to do. */
static void cannot_ask(pl_client *c) {
    assert_int_equal(pl_client_set_lr(c, 1e6), PL_EUSAGE);
    assert_non_null(strstr(pl_client_why(c), "--requests TOKEN"));
    assert_int_equal(pl_client_checkpoint(c), PL_EUSAGE);
    assert_int_equal(pl_client_save(c), PL_EUSAGE);
    assert_int_equal(pl_client_load(c), PL_EUSAGE);
    assert_int_equal(pl_client_end(c), PL_EUSAGE);
}

static double rate_after(pl_client *c) {
    struct pl_client_task t = {.lr = NAN};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pl_client_pull(c, 120, &t), PL_OK);
        bowl(t.w, t.out);
        assert_int_equal(pl_client_push(c, DIM, 1, 0), PL_OK);
    }
    return t.lr;
}

/* By default a client can only compute. */
TEST(test_nobody) {
    struct server s = serve(RUN "requests=none");
    pl_client *a = join(&s, (struct pl_client_conf){0}), *b = join(&s, (struct pl_client_conf){0});
    refused(&s, (struct pl_client_conf){.role = PL_ROLE_EVALUATOR}, "takes no requests");
    refused(&s, (struct pl_client_conf){.token = "none"}, "a token that is not the run's");
    cannot_ask(a);
    assert_true(rate_after(b) > 0);
    pl_client_close(b);
    work(a, 0);
    struct served r = served(&s);
    if (!r.ok || said(&r, "updates") != 40) fail_msg("%s", r.text);
}

/* A client of another job is refused, and so is one of a job if the run belongs to none. One that
 * does not say joins. */
TEST(test_jobs) {
    struct server s = serve(RUN "job=slurm-7.1");
    refused(&s, (struct pl_client_conf){.job = "slurm-8.1"},
            "this run belongs to job slurm-7.1, and this program to job slurm-8.1; give each job");
    pl_client *a = join(&s, (struct pl_client_conf){.job = "slurm-7.1"});
    pl_client *b = join(&s, (struct pl_client_conf){0});
    pl_client_close(b);
    work(a, 0);
    struct served r = served(&s);
    if (!r.ok || said(&r, "updates") != 40) fail_msg("%s", r.text);
    s = serve(RUN "workers=1");
    refused(&s, (struct pl_client_conf){.job = "slurm-7.1"}, "this run belongs to no job, and");
    work(join(&s, (struct pl_client_conf){0}), 0);
    r = served(&s);
    if (!r.ok) fail_msg("%s", r.text);
}

/* The owner can, and those beside it cannot. A request and results reach the server by different
 * ways: results that are sent after "end" may be applied before it, so no other limit is near. */
TEST(test_owner) {
    struct server s = serve(RUN "requests=s3cret updates=1000000000");
    refused(&s, (struct pl_client_conf){.token = "secret"}, "a token that is not the run's");
    refused(&s, (struct pl_client_conf){.role = PL_ROLE_EVALUATOR}, "only with a token");
    pl_client *owner = join(&s, (struct pl_client_conf){.token = "s3cret"});
    pl_client *other = join(&s, (struct pl_client_conf){0});
    pl_client *e = join(&s, (struct pl_client_conf){.role = PL_ROLE_EVALUATOR, .token = "s3cret"});
    cannot_ask(other);
    assert_true(rate_after(other) == 0.01);
    assert_int_equal(pl_client_set_lr(owner, 0.5), PL_OK);
    assert_true(rate_after(owner) == 0.5);
    assert_int_equal(pl_client_end(owner), PL_OK);
    pl_client_close(e);
    pl_client_close(other);
    work(owner, 0);
    struct served r = served(&s);
    if (!r.ok || !(said(&r, "updates") < 1e9)) fail_msg("%s", r.text);
}

/* A program that sends requests without being asked for them is not listened to. */
TEST(test_liar) {
    struct server s = serve(RUN "requests=s3cret");
    pl_client *c = join(&s, (struct pl_client_conf){.token = "s3cret"});
    struct pl_client_link_conf conf = {
        .path = s.path, .client = {.can = 0}, .wait_ns = 120000000000u};
    struct pl_link *link = NULL;
    struct pl_welcome welcome;
    struct pl_why why;
    struct pl_order order;
    assert_int_equal(pl_client_link_connect(&conf, &link, &welcome, &why), PL_OK);
    assert_false(welcome.speaks);
    for (int i = 0; i < 3; i++) pl_client_link_say(link, i ? "end" : "lr 1000", 120000000000u);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pl_client_link_pull(link, 120000000000u, &order), PL_OK);
        for (int k = 0; k < DIM; k++) order.out[k] = 0;
        struct pl_result r = {
            .task = order.task, .samples = 1, .loss = 0, .sets_lr = true, .lr = 1e6};
        pl_shm.link.push(link, &r);
    }
    assert_true(rate_after(c) == 0.01);
    pl_shm.link.detach(link);
    work(c, 0);
    struct served r = served(&s);
    if (!r.ok || said(&r, "updates") != 40) fail_msg("%s", r.text);
}

/* What an evaluator says must be possible: an accuracy in per cent reaches no target. */
TEST(test_numbers) {
    struct server s = serve("model=external:dim=5 workers=1 method=async updates=3000 lr=0.002 "
                            "target-accuracy=0.99 eval-every=0.001");
    pl_client *c = join(&s, (struct pl_client_conf){0});
    struct pl_client_task t;
    struct pl_client_link_conf conf = {.path = s.path,
                                       .client = {.kind = PL_CLIENT_EVALUATOR, .token = "any"},
                                       .wait_ns = 120000000000u};
    struct pl_link *link = NULL;
    struct pl_welcome welcome;
    struct pl_why why;
    int rc, n = 0;
    pl_client *e = join(&s, (struct pl_client_conf){.role = PL_ROLE_EVALUATOR});
    assert_int_equal(answer(c, 0), PL_OK);
    assert_int_equal(pl_client_pull(e, 120, &t), PL_OK);
    static const double accuracy[] = {7.5, -5, 1e308};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pl_client_report(e, "test_accuracy", accuracy[i]), PL_EUSAGE);
    assert_non_null(strstr(pl_client_why(e), "from 0 to 1"));
    assert_int_equal(pl_client_report(e, "test_loss", 1e308), PL_EUSAGE);
    assert_int_equal(pl_client_report(e, "test_loss", INFINITY), PL_OK); /* it diverged */
    pl_client_close(e);
    /* the same without this library's checks */
    while ((rc = pl_client_link_connect(&conf, &link, &welcome, &why)))
        assert_int_equal(rc, PL_ERUN);
    while (n < 3) {
        assert_int_equal(answer(c, 0), PL_OK);
        struct pl_order shown = {0};
        float w[DIM];
        if (pl_client_link_newest(link, 1000000, w, shown.note)) continue;
        char word[100];
        snprintf(word, sizeof word, "score %llu test_accuracy=7.5",
                 (unsigned long long)pl_note_unpack(&shown).version);
        n += pl_client_link_say(link, word, 120000000000u) == 0;
    }
    pl_shm.link.detach(link);
    work(c, 0);
    struct served r = served(&s);
    if (!r.ok || said(&r, "updates") != 3000 || strstr(r.text, "\"test_accuracy\":7.5"))
        fail_msg("%s", r.text);
}

/* One worker with huge gradients makes the model infinite: the run has diverged, and the other one
 * is not to blame. */
TEST(test_huge) {
    struct server s = serve("model=external:dim=5 workers=2 method=async updates=100000 lr=100");
    pl_client *good = join(&s, (struct pl_client_conf){0});
    pl_client *bad = join(&s, (struct pl_client_conf){0});
    struct pl_client_task t;
    int rc = PL_OK;
    for (int i = 0; rc == PL_OK && i < 1000; i++) {
        rc = pl_client_pull(bad, 120, &t);
        for (int k = 0; rc == PL_OK && k < DIM; k++) t.out[k] = 3e38f;
        if (rc == PL_OK) rc = pl_client_push(bad, DIM, 1, 0);
        if (rc == PL_OK) rc = answer(good, 0);
    }
    assert_int_equal(rc, PL_ECANCELLED);
    pl_client_close(bad);
    pl_client_close(good);
    struct served r = served(&s);
    if (!strstr(r.text, "diverged") || said(&r, "quarantined") != 0 || said(&r, "evicted") != 0)
        fail_msg("%s", r.text);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
