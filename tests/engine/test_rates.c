/* The engine under a host that computes nothing: every result is a vector of zeros. */
#include "hosts.h"
#include "setups.h"
#include "test.h"

#define WORKERS 2
#define BATCH 32

struct host {
    pl_setup *setup;
    struct pl_built built;
    struct pl_outcome out;
    struct pl_engine *engine;
    struct pl_start last[WORKERS];
    struct pl_why why;
};

static int host_start(void *ctx, const struct pl_start *s) {
    ((struct host *)ctx)->last[s->worker] = *s;
    return PL_OK;
}

static void host_cancel(void *ctx, int worker) {}

/* Options up to the engine, which is made by host_begin. */
static void host_open(struct host *h, const char *method, const char *key, const char *value) {
    *h = (struct host){0};
    /* one epoch per task */
    h->setup = setup_of("workers=2 batch=32 lr=1 model=softmax data=digits:samples=32,test=8");
    set(h->setup, "method", method);
    set(h->setup, key, value);
    h->built = build(h->setup);
}

static void host_begin(struct host *h) {
    h->out = pl_outcome_none();
    struct pl_engine_conf conf = {.job = &h->built.job,
                                  .host = {.ctx = h, .start = host_start, .cancel = host_cancel}};
    if (pl_engine_new(&conf, NULL, &h->out, &h->engine, &h->why)) fail_msg("%s", h->why.text);
}

static void host_close(struct host *h) {
    pl_engine_free(h->engine);
    pl_built_free(&h->built);
    pl_setup_free(h->setup);
}

static int host_event(struct host *h, enum pl_event_kind kind, int worker, double loss) {
    struct pl_event e = {.kind = kind,
                         .worker = worker,
                         .task = h->last[worker].task,
                         .samples = BATCH,
                         .loss = loss};
    if (kind == PL_ARRIVE) {
        const struct pl_start *s = &h->last[worker];
        struct pl_vectors *table = pl_engine_vectors(h->engine);
        memset(pl_vector_at(table, s->output), 0, h->built.job.model->dim * sizeof(float));
        if (s->base != PL_NO_VECTOR && host_event(h, PL_BASE_READY, worker, loss)) return PL_ERUN;
    }
    return pl_engine_event(h->engine, &e, NULL, &h->why);
}

/* A policy whose groups are larger than it declares is named, not the memory. */
TEST(test_group_for_one_at_a_time) {
    struct host h;
    host_open(&h, "dana", "policy", "kbatchasync:k=1");
    struct pl_choice *policy = &h.built.job.policy;
    assert_int_equal(pl_opt_set(policy->entry->opts, policy->conf, "k", "2", WORKERS, &h.why), 0);
    host_begin(&h);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(host_event(&h, PL_JOIN, i, 0), 0);
    assert_int_equal(host_event(&h, PL_ARRIVE, 0, 1), 0);
    assert_int_equal(host_event(&h, PL_ARRIVE, 1, 1), PL_EPOLICY);
    assert_string_equal(h.why.text, "policy 'kbatchasync' broke its contract: it made a group of 2 "
                                    "for a rule that takes one at a time");
    host_close(&h);
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
TEST(test_bold_everywhere) {
    static const char *const method[] = {"async", "ad-psgd", "sgp"};
    static const double loss[] = {2, 1, 3, 3}, rate[] = {1, 1.05, 0.525, 0.525};
    for (size_t m = 0; m < sizeof method / sizeof *method; m++) {
        struct host h;
        struct kept kept = {false};
        struct pl_archive archive = {.ctx = &kept, .piece = keep_numbers};
        host_open(&h, method[m], "lr-schedule", "bold");
        host_begin(&h);
        for (int i = 0; i < WORKERS; i++) assert_int_equal(host_event(&h, PL_JOIN, i, 0), 0);
        for (int i = 0; i < 4; i++) {
            if (host_event(&h, PL_ARRIVE, i % 2, loss[i])) fail_msg("%s", h.why.text);
            /* in rounds it is not started yet: the rate is that of the next start */
            if (h.last[i % 2].version > (uint64_t)i)
                assert_float_equal(h.last[i % 2].lr, rate[i], 1e-6);
        }
        assert_int_equal(pl_engine_archive(h.engine, &archive), 0);
        assert_true(kept.any);
        pl_engine_free(h.engine);
        host_begin(&h);
        archive.restoring = true;
        assert_int_equal(pl_engine_archive(h.engine, &archive), 0);
        assert_int_equal(host_event(&h, PL_JOIN, 0, 0), 0);
        assert_float_equal(h.last[0].lr, 0.525, 1e-6);
        host_close(&h);
    }
}
