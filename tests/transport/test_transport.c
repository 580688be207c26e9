/* Transports, each by the same suite: what is told arrives whole, once and in order, without a
 * copy; a cancel is never lost and never strikes another order; holds() says what is free; and
 * whatever a worker does to its box, the server lives. One thread plays both ends here, so every
 * interleaving is the one that is written down. Workers of their own are in test_concurrent.c, and
 * what happens when processes die is in test_process.c. */
#include "suite_transport.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/link.h"
#include "transport/shm_layout.h"

static const struct pl_transport *const *kinds;
static size_t n_kinds;

/* --- one thread, both ends --------------------------------------------------------------- */

static struct pl_order order_of(struct crew *c, int worker, uint64_t task) {
    return crew_order(c, task, c->version[task % CREW_VECTORS],
                      c->own[worker][task % CREW_VECTORS]);
}

static void tell(struct crew *c, int worker, uint64_t task) {
    struct pl_order o = order_of(c, worker, task);
    c->t->port.tell(c->p, worker, &o);
}

static void pull_is(struct crew *c, struct pl_link *l, uint64_t task) {
    struct pl_order o, told = order_of(c, 0, task); /* slots are common, or not compared */
    assert_int_equal(c->t->link.pull(l, &o), 0);
    assert_int_equal(o.task, told.task);
    assert_true(crew_noted(c, &o));
    if (!c->t->start->processes && !crew_is_far(c->t)) { /* the very same memory */
        assert_ptr_equal(o.input[0].v, told.input[0].v);
        assert_ptr_equal(o.out, told.out);
    }
    c->last = o;
}

/* Over HTTP, the vector of a result with a defect is not sent. */
static void push_with(struct crew *c, struct pl_link *l, uint64_t task, enum pl_defect defect) {
    struct pl_result r = {
        .task = task, .defect = defect, .samples = (uint32_t)task + 5, .loss = -0.5};
    c->t->link.push(l, &r);
}

static void push(struct crew *c, struct pl_link *l, uint64_t task) {
    push_with(c, l, task, PL_NOT_FINITE);
}

static void result_with(struct crew *c, int worker, uint64_t task, enum pl_defect defect) {
    struct pl_result r = crew_news(c, PL_NEWS_RESULT, worker).result;
    assert_int_equal(r.task, task);
    assert_int_equal(r.defect, defect);
    assert_int_equal(r.samples, task + 5);
    assert_true(r.loss == -0.5);
    assert_true(r.pulled_ns <= r.pushed_ns && r.pushed_ns <= pl_now_ns());
}

static void result_is(struct crew *c, int worker, uint64_t task) {
    result_with(c, worker, task, PL_NOT_FINITE);
}

typedef void crew_story(struct crew *c, struct pl_link *a, struct pl_link *b);

/* Runs a story with workers 0 and 1 at hand. */
static void on(const struct pl_transport *const *those, size_t n, crew_story *story) {
    for (size_t k = 0; k < n; k++) {
        struct crew c;
        crew_open(&c, those[k], 2, 33, true);
        struct pl_link *a = crew_client(&c, 0), *b = crew_client(&c, 1);
        crew_news(&c, PL_NEWS_JOINED, 0);
        crew_news(&c, PL_NEWS_JOINED, 1);
        story(&c, a, b);
        c.t->link.detach(a);
        c.t->link.detach(b);
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        crew_close(&c);
    }
}

/* On every transport whose ends share memory. */
static void on_all(crew_story *story) {
    on(kinds, n_kinds, story);
}

/* Also over HTTP, where the server hears later of what a worker does. */
static void on_far_too(crew_story *story) {
    const struct pl_transport *const *every;
    size_t n = crew_kinds(&every);
    on(every, n, story);
}

static void story_order_and_result(struct crew *c, struct pl_link *a, struct pl_link *b) {
    bool far = crew_is_far(c->t);
    crew_silent(c);
    for (uint64_t task = 1; task < 40; task++) {
        struct pl_link *l = task % 3 ? a : b;
        int worker = task % 3 ? 0 : 1;
        float *w = c->version[task % CREW_VECTORS], *out = c->own[worker][task % CREW_VECTORS];
        for (size_t i = 0; i < 33; i++) w[i] = (float)(task * 100 + i);
        if (!far) assert_int_equal(c->t->port.phase(c->p, worker), PL_PHASE_WAITING);
        tell(c, worker, task);
        pull_is(c, l, task);
        assert_int_equal(c->t->port.phase(c->p, worker), PL_PHASE_COMPUTING);
        assert_false(pl_cancelled(c->t->link.cancelled(l)));
        w[32] = -1; /* after the pull: nothing is copied where memory is shared */
        for (size_t i = 0; i < 33; i++) c->last.out[i] = c->last.input[0].v[i] + 1;
        push_with(c, l, task, PL_NO_DEFECT);
        result_with(c, worker, task, PL_NO_DEFECT);
        for (size_t i = 0; i < 32; i++) assert_true(out[i] == (float)(task * 100 + i) + 1);
        assert_true(out[32] == (far ? (float)(task * 100 + 32) + 1 : 0));
        crew_silent(c);
    }
}

TEST(orders_and_results_arrive_whole) {
    on_far_too(story_order_and_result);
}

/* What has a defect is told without its vector, and the next one has one again. */
static void story_defects(struct crew *c, struct pl_link *a, struct pl_link *b) {
    for (uint64_t task = 1; task < 12; task++) {
        enum pl_defect defect = (enum pl_defect)(task % 4); /* all of them */
        tell(c, 1, task);
        pull_is(c, b, task);
        for (size_t i = 0; i < 33; i++) c->last.out[i] = (float)task;
        push_with(c, b, task, defect);
        result_with(c, 1, task, defect);
        if (!defect) assert_true(c->own[1][task % CREW_VECTORS][32] == (float)task);
    }
    crew_silent(c);
}

TEST(defects_are_told) {
    on_far_too(story_defects);
}

static void story_replaced(struct crew *c, struct pl_link *a, struct pl_link *b) {
    tell(c, 0, 1);
    tell(c, 0, 2);
    pull_is(c, a, 2);
    tell(c, 0, 3);
    assert_false(pl_cancelled(c->t->link.cancelled(a)));
    push(c, a, 2); /* crosses 3 on the way */
    pull_is(c, a, 3);
    result_is(c, 0, 2);
    push(c, a, 3);
    tell(c, 0, 4);
    pull_is(c, a, 4);
    push(c, a, 4); /* nobody has read 3, which was late as soon as 4 was told */
    result_is(c, 0, 4);
    crew_silent(c);
    tell(c, 0, 5);
    pull_is(c, a, 5);
    pull_is(c, a, 5); /* neither answered nor cancelled */
    /* by the time they were pushed, not by number */
    tell(c, 1, 6);
    pull_is(c, b, 6);
    push(c, b, 6);
    push(c, a, 5);
    result_is(c, 1, 6);
    result_is(c, 0, 5);
}

TEST(a_new_order_replaces_the_last) {
    on_all(story_replaced);
}

static void story_cancel(struct crew *c, struct pl_link *a, struct pl_link *b) {
    tell(c, 0, 1);
    c->t->port.cancel(c->p, 0);
    tell(c, 0, 2);
    pull_is(c, a, 2); /* the cancel of 1 does not strike 2 */
    assert_false(pl_cancelled(c->t->link.cancelled(a)));
    assert_int_equal(c->t->link.sleep(a, 1000), 0);
    c->t->port.cancel(c->p, 0);
    assert_true(pl_cancelled(c->t->link.cancelled(a)));
    assert_int_equal(c->t->link.sleep(a, PL_FOREVER), PL_ECANCELLED);
    tell(c, 0, 3);
    assert_true(pl_cancelled(c->t->link.cancelled(a))); /* it is still at 2 */
    pull_is(c, a, 3);
    assert_false(pl_cancelled(c->t->link.cancelled(a)));
    c->t->port.cancel(c->p, 0);
    push(c, a, 3); /* crosses the cancel */
    result_is(c, 0, 3);
    c->t->port.cancel(c->p, 0); /* nothing */
    tell(c, 0, 4);
    pull_is(c, a, 4);
    push(c, a, 4);
    result_is(c, 0, 4);
    crew_silent(c);
}

TEST(a_cancel_strikes_its_order_alone) {
    on_all(story_cancel);
}

static void holds_is(struct crew *c, uint64_t task) {
    assert_int_equal(c->t->port.holds(c->p, 0), task);
}

static void story_holds(struct crew *c, struct pl_link *a, struct pl_link *b) {
    holds_is(c, 0);
    tell(c, 0, 1);
    holds_is(c, 0);
    tell(c, 0, 2); /* 1 was never pulled */
    holds_is(c, 0);
    pull_is(c, a, 2);
    holds_is(c, 0); /* 2 is its latest */
    tell(c, 0, 3);
    holds_is(c, 2);
    tell(c, 0, 4);
    holds_is(c, 2);
    pull_is(c, a, 4);
    holds_is(c, 0);
    push(c, a, 4);
    tell(c, 0, 5);
    holds_is(c, 0); /* 4 was answered */
    pull_is(c, a, 5);
    tell(c, 0, 6);
    push(c, a, 5);
    holds_is(c, 0); /* late, but answered */
    pull_is(c, a, 6);
    c->t->port.cancel(c->p, 0);
    holds_is(c, 6);
    tell(c, 0, 7);
    holds_is(c, 6);
    pull_is(c, a, 7);
    holds_is(c, 0);
    c->t->port.cancel(c->p, 0);
    holds_is(c, 7); /* at the end of the story it goes, and takes nothing along */
}

static void answered_is(struct crew *c, bool answered) {
    assert_true(c->t->shared->answered(c->p, 0) == answered);
}

static void story_answered(struct crew *c, struct pl_link *a, struct pl_link *b) {
    answered_is(c, false);
    tell(c, 0, 1);
    answered_is(c, false);
    pull_is(c, a, 1);
    answered_is(c, false);
    push(c, a, 1);
    answered_is(c, true); /* before it is news */
    result_is(c, 0, 1);
    answered_is(c, true);
    tell(c, 0, 2);
    answered_is(c, false); /* that was 1 */
    pull_is(c, a, 2);
    tell(c, 0, 3);
    push(c, a, 2);
    answered_is(c, false); /* 3 is its latest */
    pull_is(c, a, 3);
    push(c, a, 3);
    answered_is(c, true);
    c->t->port.cancel(c->p, 0);
    answered_is(c, false); /* there is no latest */
}

TEST(answered_tells_what_is_not_news_yet) {
    on_all(story_answered);
}

TEST(holds_tells_when_vectors_are_free) {
    on_all(story_holds);
    for (size_t k = 0; k < n_kinds; k++) { /* gone is let go, and the next owner starts clean */
        struct crew c;
        crew_open(&c, kinds[k], 1, 33, true);
        for (uint64_t task = 1; task < 8; task += 2) {
            holds_is(&c, 0);
            struct pl_link *a = crew_client(&c, 0);
            crew_news(&c, PL_NEWS_JOINED, 0);
            tell(&c, 0, task);
            pull_is(&c, a, task);
            c.t->port.cancel(c.p, 0);
            tell(&c, 0, task + 1);
            holds_is(&c, task);
            c.t->link.detach(a);
            crew_news(&c, PL_NEWS_GONE, 0);
            holds_is(&c, 0);
            assert_int_equal(c.t->port.phase(c.p, 0), PL_PHASE_AWAY);
            tell(&c, 0, 99); /* to nobody: not for the next owner either */
            assert_int_equal(c.t->port.phase(c.p, 0), PL_PHASE_AWAY);
        }
        struct pl_link *a = crew_client(&c, 0);
        crew_news(&c, PL_NEWS_JOINED, 0);
        tell(&c, 0, 20);
        pull_is(&c, a, 20);
        push(&c, a, 20);
        c.t->link.detach(a);
        result_is(&c, 0, 20); /* the last result, and then */
        crew_news(&c, PL_NEWS_GONE, 0);
        crew_silent(&c);
        crew_close(&c);
    }
}

/* --- a worker that writes what it likes -------------------------------------------------- */

static void claim(struct crew *c, struct pl_link *l, const uint64_t word[PL_SEQLOCK_WORDS]) {
    struct pl_head *head = crew_head(c);
    pl_seqlock_write(&l->mailbox->result, word);
    atomic_fetch_or(&head->ready[0], UINT64_C(1) << l->worker);
}

static void story_hostile(struct crew *c, struct pl_link *a, struct pl_link *b) {
    uint64_t now = pl_now_ns();
    const uint64_t sound[PL_SEQLOCK_WORDS] = {1, 7, 3, 0, now, now};
    const struct {
        int at;
        uint64_t value;
    } lie[] = {
        {PL_RESULT_SIZE, UINT64_C(4) << 32},
        {PL_RESULT_SIZE, UINT64_MAX},
        {PL_RESULT_SIZE, UINT64_C(1) << 31},
        {PL_RESULT_PUSHED, UINT64_MAX},
        {PL_RESULT_PUSHED, now + 3600000000000u},
        {PL_RESULT_PUSHED, now - 1},
        {PL_RESULT_PULLED, now + 1},
        {PL_RESULT_PULLED, 0},
    };
    claim(c, a, sound);
    assert_int_equal(crew_news(c, PL_NEWS_RESULT, 0).result.defect, PL_NO_DEFECT);
    for (size_t i = 0; i < sizeof lie / sizeof *lie; i++) {
        uint64_t word[PL_SEQLOCK_WORDS];
        memcpy(word, sound, sizeof word);
        word[lie[i].at] = lie[i].value;
        claim(c, a, word);
        struct pl_result r = crew_news(c, PL_NEWS_RESULT, 0).result;
        assert_int_equal(r.task, 7);
        assert_int_equal(r.defect, PL_NOT_COMPUTED);
        assert_int_equal(r.samples, 0);
        assert_true(isnan(r.loss) && r.pulled_ns <= r.pushed_ns && r.pushed_ns <= pl_now_ns());
    }
    uint64_t other[PL_SEQLOCK_WORDS] = {2, 7, 3, 0, now, now};
    claim(c, a, other); /* of an owner that is not the present one */
    crew_silent(c);
    atomic_fetch_or(&a->mailbox->result.seq, 1); /* as if it had died, or stopped, in push() */
    claim(c, b, sound);
    crew_news(c, PL_NEWS_RESULT, 1); /* the other one is not held up */
    crew_silent(c);
    atomic_store(&a->mailbox->phase, 77);
    assert_int_equal(c->t->port.phase(c->p, 0), PL_PHASE_AWAY);
    atomic_store(&a->mailbox->held, 12345);
    assert_int_equal(c->t->port.holds(c->p, 0), 12345);
    /* a worker takes no order with vectors that are not the server's */
    tell(c, 1, 9);
    atomic_store(&b->mailbox->order.word[PL_ORDER_INPUT], UINT64_MAX - 63);
    c->t->port.shutdown(c->p, 0);
    struct pl_order o;
    assert_int_equal(c->t->link.pull(b, &o), PL_ECANCELLED);
}

TEST(a_false_mailbox_harms_only_its_worker) {
    on_all(story_hostile);
}

/* --- sums of peers' vectors --- */

static void tell_sum(struct crew *c, int worker, uint64_t task) {
    const struct pl_input of[] = {{c->own[1][5], 0, 0.25, 1}, {c->version[9], 0, -3, -1}};
    struct pl_order o = crew_order(c, task, NULL, c->own[worker][2]);
    o.n_inputs = 2;
    o.input = of;
    o.base = c->own[worker][3];
    o.stays = true;
    c->t->port.tell(c->p, worker, &o);
}

static void push_base(struct crew *c, struct pl_link *l, uint64_t task) {
    c->t->link.push(l, &(struct pl_result){.task = task, .is_base = true});
}

static void base_is(struct crew *c, int worker, uint64_t task) {
    struct pl_result r = crew_news(c, PL_NEWS_BASE, worker).result;
    assert_true(r.is_base && r.task == task);
}

static void story_sum(struct crew *c, struct pl_link *a, struct pl_link *b) {
    struct pl_order o;
    c->own[1][5][7] = 17;
    c->version[9][7] = 4;
    tell_sum(c, 0, 1);
    assert_int_equal(c->t->link.pull(a, &o), 0);
    assert_true(o.n_inputs == 2 && o.stays && o.base && o.base != o.out);
    assert_true(o.input[0].v[7] == 17 && o.input[0].c == 0.25);
    assert_true(o.input[1].v[7] == 4 && o.input[1].c == -3);
    o.base[7] = -7.75f;
    o.out[7] = 2;
    crew_silent(c);
    push_base(c, a, 1);
    base_is(c, 0, 1);
    crew_silent(c);
    push(c, a, 1);
    result_is(c, 0, 1);
    assert_true(c->slot[3][7] == -7.75f && c->slot[2][7] == 2);
    /* one alone is what it computes on, as it is */
    o = crew_order(c, 2, c->own[1][5], c->slot[2]);
    c->input.writer = 1;
    c->t->port.tell(c->p, 0, &o);
    assert_int_equal(c->t->link.pull(a, &o), 0);
    assert_true(o.n_inputs == 1 && !o.base && o.input[0].v[7] == 17);
    push(c, a, 2);
    result_is(c, 0, 2);
    /* and a version is a version again */
    tell(c, 0, 3);
    pull_is(c, a, 3);
    push(c, a, 3);
    result_is(c, 0, 3);
    /* a base comes before its result also if the server finds both at once */
    tell_sum(c, 0, 4);
    tell_sum(c, 1, 5);
    assert_int_equal(c->t->link.pull(a, &o), 0);
    assert_int_equal(c->t->link.pull(b, &o), 0);
    push_base(c, a, 4);
    push(c, a, 4);
    push_base(c, b, 5);
    base_is(c, 0, 4);
    base_is(c, 1, 5);
    result_is(c, 0, 4);
    push(c, b, 5);
    result_is(c, 1, 5);
    crew_silent(c);
}

TEST(sums_arrive_whole) {
    on_all(story_sum);
}

static int wrong_sum;

static void story_wrong_sum(struct crew *c, struct pl_link *a, struct pl_link *b) {
    struct pl_mailbox_inputs *sum = &a->mailbox->inputs;
    struct pl_order o;
    _Atomic uint64_t *word = a->mailbox->order.word;
    tell_sum(c, 0, 1);
    switch (wrong_sum) {
    case 0: atomic_store(&sum->n, 0); break;
    case 1: atomic_store(&sum->n, PL_TERMS + 1); break;
    case 2: atomic_store(&sum->n, UINT64_MAX); break;
    case 3: atomic_store(&sum->at[1], 0); break;
    case 4: atomic_fetch_add(&sum->at[0], 4); break;
    case 5: atomic_store(&sum->at[0], UINT64_MAX - 63); break;
    case 6: atomic_store(&sum->c[1], pl_bits_of(NAN)); break;
    case 7: atomic_store(&sum->c[0], pl_bits_of(INFINITY)); break;
    case 8: atomic_store(&sum->base, 0); break;
    case 9: atomic_store(&sum->base, 64); break;
    /* and strips */
    case 10: word[PL_ORDER_FLAGS] = (PL_STRIPS + 1) << PL_FLAG_BITS; break;
    case 11: word[PL_ORDER_FLAGS] = UINT64_MAX; break;
    case 12: word[PL_ORDER_FLAGS] = 1 << PL_FLAG_BITS; break; /* it is nowhere */
    default:
        word[PL_ORDER_FLAGS] = 1 << PL_FLAG_BITS;
        for (int i = 0; i < 2; i++) word[PL_ORDER_STRIP + i] = word[PL_ORDER_OUT];
        word[PL_ORDER_STRIP + 2] = UINT64_MAX;
        break;
    }
    c->t->port.shutdown(c->p, 0);
    assert_int_equal(c->t->link.pull(a, &o), PL_ECANCELLED);
}

TEST(a_sum_that_cannot_be_is_not_taken) {
    for (wrong_sum = 0; wrong_sum < 14; wrong_sum++) on_all(story_wrong_sum);
}

static void story_lost_bell(struct crew *c, struct pl_link *a, struct pl_link *b) {
    struct pl_head *head = crew_head(c);
    tell(c, 0, 1);
    pull_is(c, a, 1);
    push(c, a, 1);
    atomic_store(&head->ready[0], 0); /* another worker did that */
    result_is(c, 0, 1);               /* later, but it comes */
}

TEST(a_cleared_bit_is_a_delay_and_no_loss) {
    on_all(story_lost_bell);
}

static int find_kinds(void **state) {
    n_kinds = crew_near(&kinds);
    return n_kinds == 0;
}

ALL_TESTS_BETWEEN(find_kinds, NULL)
