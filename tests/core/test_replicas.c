/* Models without a server, on numbers: the arithmetic of the replicas. What exchanges conserve is
 * in test_exchanges.c, whole runs are in test_gossip.c. */
#include "core/replicas.h"
#include "learn/replica_mean.h"
#include "replica_numbers.h"

/* --- rows --------------------------------------------------------------------------------- */

static struct pl_replicas *book_of(int n) {
    struct pl_replicas *b = NULL;
    assert_int_equal(pl_replicas_new(n, &b), 0);
    for (int i = 0; i < n; i++) {
        pl_replicas_join(b, i);
        assert_int_equal(pl_replicas_start(b, i), 0);
    }
    return b;
}

static const char *exchange(struct pl_replicas *b, enum pl_verb verb, int worker, int peer,
                            double keep, double factor) {
    struct pl_action a = {
        .verb = verb, .worker = worker, .peer = peer, .keep = keep, .factor = factor};
    return pl_replicas_exchange(b, &a);
}

/* Worker i begins with i, as far as anybody can tell. */
static struct numbers *apart(int n) {
    struct numbers *x = numbers_of(book_of(n));
    for (int i = 0; i < n; i++) {
        bring(x, i, i);
        pl_replicas_arrive(x->replicas, i);
        pl_replicas_take(x->replicas, i, 1);
    }
    return x;
}

static void done(struct numbers *x) {
    pl_replicas_free(x->replicas);
    free(x);
}

TEST(test_rows) {
    struct numbers *x = apart(4);
    struct pl_replicas *b = x->replicas;
    assert_null(exchange(b, PL_PAIR, 1, 3, 0, 0.5));
    assert_true(model(x, 1) == 2 && model(x, 3) == 2);
    assert_null(exchange(b, PL_PAIR, 0, 3, 0, 0.25));
    assert_true(model(x, 0) == 0.5 && model(x, 3) == 1.5);
    assert_null(exchange(b, PL_BLEND, 2, 0, 0.5, 0.5));
    assert_true(model(x, 2) == 1.25 && model(x, 0) == 0.5);
    /* to the inbox and out of it, by weight: 1/2 of worker 1's and all of worker 2's */
    assert_null(exchange(b, PL_PUSH, 1, 2, 0, 0.5));
    assert_true(model(x, 2) == 1.25 && model(x, 1) == 2);
    assert_null(exchange(b, PL_ABSORB, 2, -1, 0, 0));
    assert_true(fabs(model(x, 2) - (1.25 + 0.5 * 2) / 1.5) < 1e-15);
    struct pl_combination row;
    assert_true(pl_replicas_model(b, 1, &row) == 0.5 && pl_replicas_model(b, 2, &row) == 1.5);
    /* what nobody refers to is free, and a row of one is a base as it is */
    assert_int_equal(x->n_freed, 0);
    assert_int_equal(pl_replicas_start(b, 1), 0);
    assert_true(pl_replica_task(b, 1).base_pending && pl_replica_task(b, 1).input->n == 2);
    bring(x, 1, 1);
    pl_replicas_arrive(b, 1);
    assert_int_equal(x->n_freed, 0);
    pl_replicas_take(b, 1, 1);
    assert_int_equal(x->n_freed, 1);
    assert_true(model(x, 1) == 3);
    assert_int_equal(pl_replicas_start(b, 1), 0);
    assert_true(!pl_replica_task(b, 1).base_pending);
    done(x);
}

/* Two may change places altogether: what one alone had is not free in between. */
TEST(test_places_change) {
    struct numbers *x = apart(3);
    assert_null(exchange(x->replicas, PL_PAIR, 1, 2, 0, 1));
    assert_true(model(x, 1) == 2 && model(x, 2) == 1);
    assert_int_equal(x->n_freed, 0);
    done(x);
}

TEST(test_refusals) {
    struct numbers *x = apart(3);
    struct pl_replicas *b = x->replicas;
    pl_replicas_leave(b, 2);
    assert_non_null(exchange(b, PL_PAIR, 0, 0, 0, 0.5));
    assert_non_null(exchange(b, PL_PAIR, 0, 2, 0, 0.5));
    assert_non_null(exchange(b, PL_PAIR, 2, 0, 0, 0.5));
    assert_non_null(exchange(b, PL_PAIR, 0, 3, 0, 0.5));
    assert_non_null(exchange(b, PL_BLEND, 0, -1, 0.5, 0.5));
    assert_non_null(exchange(b, PL_BLEND, 0, 1, NAN, 0.5));
    assert_non_null(exchange(b, PL_PUSH, 0, 1, 0, 0));
    assert_non_null(exchange(b, PL_PUSH, 0, 1, 0, 1));
    assert_non_null(exchange(b, PL_ABSORB, 2, -1, 0, 0));
    assert_non_null(pl_replicas_exchange(NULL, &(struct pl_action){.verb = PL_PAIR}));
    assert_true(model(x, 0) == 0 && model(x, 1) == 1);
    done(x);
}

/* Nobody reads a base before its worker has answered: a pair in between gets what it is made of. */
TEST(test_a_base_on_its_way) {
    struct numbers *x = apart(3);
    struct pl_replicas *b = x->replicas;
    assert_null(exchange(b, PL_PAIR, 0, 1, 0, 0.5));
    assert_int_equal(pl_replicas_start(b, 1), 0); /* on a base of its own, 0.5 */
    x->value[pl_replica_task(b, 1).base] = NAN;
    assert_null(exchange(b, PL_PAIR, 2, 1, 0, 0.5));
    assert_true(model(x, 2) == 1.25 && model(x, 1) == 1.25);
    /* and it dies without having made it */
    pl_replicas_leave(b, 1);
    assert_true(model(x, 2) == 1.25 && model(x, 0) == 0.5);
    /* the one that comes in its place has what it is given */
    pl_replicas_join(b, 1);
    assert_null(exchange(b, PL_BLEND, 1, 0, 0, 1));
    assert_true(model(x, 1) == 0.5);
    /* an answer that will not do: the base never was */
    assert_int_equal(pl_replicas_start(b, 2), 0);
    assert_null(exchange(b, PL_PAIR, 2, 0, 0, 0.5));
    pl_replicas_reject(b, 2);
    assert_true(model(x, 2) == 0.875 && model(x, 0) == 0.875);
    /* once it has been made it is read, and what it was made of is not */
    assert_int_equal(pl_replicas_start(b, 0), 0);
    make(x, 0);
    pl_replicas_base_ready(b, 0);
    assert_int_equal(pl_replicas_start(b, 1), 0);
    assert_null(exchange(b, PL_BLEND, 1, 0, 0, 1));
    struct pl_combination row;
    pl_replicas_model(b, 1, &row);
    assert_true(row.n == 1 && row.term[0].vector == pl_replica_task(b, 0).base);
    pl_replicas_leave(b, 0);
    assert_true(model(x, 1) == 0.875);
    /* who is the last to leave leaves its model to the next */
    pl_replicas_leave(b, 1);
    pl_replicas_leave(b, 2);
    assert_true(sum(x, pl_replicas_last_model(b)) == 0.875);
    pl_replicas_join(b, 2);
    assert_true(model(x, 2) == 0.875);
    done(x);
}

/* Random exchanges, steps, deaths and joins: whatever the policy was told fits does fit, rows have
 * the values that plain numbers have, and nothing is read that is not written or is freed. */
static void check_book(uint64_t run) {
    struct pl_rng r;
    double want[8] = {0}, inbox[8] = {0}, weight[8], in[8] = {0};
    bool here[8], busy[8];
    pl_rng_init(&r, test_seed, PL_STREAM_TEST, 3, run);
    int n = 2 + (int)pl_rng_below(&r, 7);
    struct numbers *x = numbers_of(book_of(n));
    for (int i = 0; i < n; i++) here[i] = busy[i] = true, weight[i] = 1;
    for (int k = 0; k < 400; k++) {
        int i = (int)pl_rng_below(&r, (uint32_t)n), j = (int)pl_rng_below(&r, (uint32_t)n);
        uint32_t dice = pl_rng_below(&r, 100);
        double a = pl_rng_unit(&r), step = pl_rng_unit(&r) - 0.5;
        if (!here[i]) {
            if (dice > 20) continue;
            pl_replicas_join(x->replicas, i);
            here[i] = true;
            want[i] = sum(x, pl_replicas_last_model(x->replicas));
            weight[i] = 1;
            assert_int_equal(pl_replicas_start(x->replicas, i), 0);
            busy[i] = true;
        } else if (dice < 4) {
            pl_replicas_leave(x->replicas, i);
            here[i] = busy[i] = false;
            weight[i] = in[i] = inbox[i] = 0;
        } else if (dice < 8 && busy[i]) {
            pl_replicas_reject(x->replicas, i);
            assert_int_equal(pl_replicas_start(x->replicas, i), 0);
        } else if (dice < 20 && busy[i]) {
            make(x, i);
            pl_replicas_base_ready(x->replicas, i);
        } else if (dice < 45 && busy[i]) {
            bring(x, i, step);
            pl_replicas_arrive(x->replicas, i);
            bool fits = here[j] && i != j && pl_replicas_fits(x->replicas, i, j);
            if (fits && dice % 2) {
                if (exchange(x->replicas, PL_PAIR, i, j, 0, a)) fail_msg("run %d", (int)run);
                double d = want[j] - want[i];
                want[i] += a * d;
                want[j] -= a * d;
            }
            pl_replicas_take(x->replicas, i, a);
            want[i] += a * step;
            if (fits && dice % 2 == 0) {
                if (exchange(x->replicas, PL_BLEND, j, i, 1 - a, a)) fail_msg("run %d", (int)run);
                want[j] += a * (want[i] - want[j]);
            }
            assert_int_equal(pl_replicas_start(x->replicas, i), 0);
        } else if (here[j] && i != j && pl_replicas_fits(x->replicas, i, j)) {
            if (exchange(x->replicas, PL_PUSH, i, j, 0, 0.1 + 0.8 * a))
                fail_msg("run %d", (int)run);
            double sent = (0.1 + 0.8 * a) * weight[i];
            inbox[j] = (inbox[j] * in[j] + want[i] * sent) / (in[j] + sent);
            in[j] += sent;
            weight[i] -= sent;
            if (dice % 3) continue;
            assert_null(exchange(x->replicas, PL_ABSORB, j, -1, 0, 0));
            want[j] = (want[j] * weight[j] + inbox[j] * in[j]) / (weight[j] + in[j]);
            weight[j] += in[j];
            in[j] = inbox[j] = 0;
        }
        for (int w = 0; w < n; w++)
            if (here[w] && !(fabs(model(x, w) - want[w]) < 1e-9))
                fail_msg("run %d, step %d: worker %d is at %g, not %g", (int)run, k, w, model(x, w),
                         want[w]);
    }
    assert_true(pl_vectors_n(pl_replicas_vectors(x->replicas)) < n * (3 * PL_TERMS + 2));
    done(x);
}

TEST(test_random_books) {
    for (uint64_t run = 0; run < (sanitized ? 50u : 500u); run++) check_book(run);
}

/* --- vectors ------------------------------------------------------------------------------ */

static const float *vector_of(void *ctx, int snapshot) {
    return ((const float **)ctx)[snapshot];
}

TEST(test_mean_and_consensus) {
    enum { DIM = 2500 };
    float *v[8] = {NULL}, out[DIM];
    struct pl_replicas *b = book_of(3);
    double far = NAN;
    for (int i = 0; i < 8; i++) {
        v[i] = malloc(sizeof out);
        assert_non_null(v[i]);
        for (int k = 0; k < DIM; k++) v[i][k] = (float)i;
    }
    assert_int_equal(pl_replica_mean(b, vector_of, v, DIM, out, &far), 0);
    assert_true(out[0] == 0 && out[DIM - 1] == 0 && far == 0);
    for (int i = 0; i < 3; i++) { /* their numbers are 1, 2, 3 */
        pl_replicas_arrive(b, i);
        pl_replicas_take(b, i, 1);
    }
    assert_int_equal(pl_replica_mean(b, vector_of, v, DIM, out, &far), 0);
    assert_true(out[0] == 2 && out[DIM - 1] == 2);
    assert_true(fabs(far - sqrt(DIM * 2.0 / 3)) < 1e-9);
    /* by weight: W1 has half of its own, the rest is on its way to W2 */
    assert_null(exchange(b, PL_PUSH, 0, 1, 0, 0.5));
    assert_int_equal(pl_replica_mean(b, vector_of, v, DIM, out, &far), 0);
    assert_true(out[7] == 2);
    assert_null(exchange(b, PL_ABSORB, 1, -1, 0, 0));
    assert_int_equal(pl_replica_mean(b, vector_of, v, DIM, out, &far), 0);
    assert_true(fabsf(out[7] - 2) < 1e-6f);
    for (int i = 0; i < 3; i++) pl_replicas_leave(b, i);
    assert_int_equal(pl_replica_mean(b, vector_of, v, DIM, out, &far), 0);
    assert_true(out[9] == 3 && far != far);
    for (int i = 0; i < 8; i++) free(v[i]);
    pl_replicas_free(b);
}
