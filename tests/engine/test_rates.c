/* The rate at which workers learn and the groups that a rule takes, under a host whose workers
 * compute nothing. */
#include "host.h"

/* One epoch per task. */
#define SMALL "workers=2 batch=32 lr=1 model=softmax data=digits:samples=32,test=8 "

static int happens(struct host *h, enum pl_event_kind kind, int worker, double loss) {
    struct pl_event e = {.kind = kind, .worker = worker, .samples = 32, .loss = loss};
    e.task = h->worker[worker].start.task;
    return host_try(h, e);
}

static void begin(struct host *h) {
    h->results = HOST_SENDS_ZEROS;
    host_begin(h, false, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(happens(h, PL_JOIN, i, 0), 0);
}

/* A policy whose groups are larger than it declares is named, not the memory. */
TEST(a_group_for_a_rule_that_takes_one_is_refused) {
    struct host *h = host_of(setup_of(SMALL "method=dana policy=kbatchasync:k=1"));
    struct pl_choice *policy = &h->job->policy;
    assert_int_equal(pl_opt_set(policy->entry->opts, policy->conf, "k", "2", 2, &h->why), 0);
    begin(h);
    assert_int_equal(happens(h, PL_ARRIVE, 0, 1), 0);
    assert_int_equal(happens(h, PL_ARRIVE, 1, 1), PL_EPOLICY);
    assert_string_equal(h->why.text, "policy 'kbatchasync' broke its contract: it made a group of "
                                     "2 for a rule that takes one at a time");
}

struct kept {
    bool any;
    double number[PL_RULE_NUMBERS];
};

static size_t keep_numbers(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                           size_t n) {
    struct kept *k = ctx;
    if (strcmp(name, "store.schedule.bold") != 0) return 0;
    assert_true(kind == PL_NUMBERS && n == PL_RULE_NUMBERS);
    memcpy(k->any ? v : k->number, k->any ? k->number : v, sizeof k->number);
    k->any = true;
    return n;
}

/* A schedule that goes by the losses does so with a model at a server and with one per worker, and
 * what it keeps outlives the process. */
TEST(the_bold_driver_works_with_every_kind_of_model) {
    static const char *const method[] = {"async", "ad-psgd", "sgp"};
    static const double loss[] = {2, 1, 3, 3}, rate[] = {1, 1.05, 0.525, 0.525};
    for (size_t m = 0; m < sizeof method / sizeof *method; m++) {
        struct kept kept = {false};
        struct pl_archive archive = {.ctx = &kept, .piece = keep_numbers};
        struct host *h = host_of(setup_of(SMALL "method=%s lr-schedule=bold", method[m]));
        begin(h);
        for (int i = 0; i < 4; i++) {
            if (happens(h, PL_ARRIVE, i % 2, loss[i])) fail_msg("%s", h->why.text);
            /* in rounds it is not started yet: the rate is that of the next start */
            const struct pl_start *s = &h->worker[i % 2].start;
            if (s->version > (uint64_t)i) assert_float_equal(s->lr, rate[i], 1e-6);
        }
        assert_int_equal(pl_engine_archive(h->engine, &archive), 0);
        assert_true(kept.any);
        host_begin(h, false, 0);
        archive.restoring = true;
        assert_int_equal(pl_engine_archive(h->engine, &archive), 0);
        assert_int_equal(happens(h, PL_JOIN, 0, 0), 0);
        assert_float_equal(h->worker[0].start.lr, 0.525, 1e-6);
    }
}
