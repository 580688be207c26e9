/* Tensors that no member of a group has: a commit leaves them, and what the optimizer keeps for
 * them, as if it had not been for them. */
#include "base/rng.h"
#include "choices.h"

enum { N_WORKERS = 2, N_COMMITS = 5, SIZE = 3000, END = 1100 };

static float *vector_of(struct pl_rng *rng) {
    float *v = own_room(SIZE, sizeof *v);
    for (size_t i = 0; i < SIZE; i++) v[i] = (float)(2 * pl_rng_unit(rng) - 1);
    return v;
}

/* Commits the vectors of every commit k, or of the even ones; `absent` are the tensors that all
 * members of the odd ones lack. */
static void commit_some(const struct pl_store_conf *conf, const float *w0, size_t from,
                        float *(*vector)[N_WORKERS], bool all, uint64_t absent, float *out) {
    struct pl_store *s = store_of(conf, w0 + from);
    for (int k = 0; k < N_COMMITS; k += all ? 1 : 2) {
        for (int m = 0; m < 2; m++) {
            struct pl_member member = {.worker = m, .base = pl_store_newest(s)->id, .factor = 1};
            const float *v = vector[k][m] + from;
            pl_store_take(s, &member, pl_store_newest(s), v, PL_FINITE_UNKNOWN);
            uint64_t lacks = m == 0 ? absent | 1 : absent; /* one of two is not enough */
            if (k % 2) assert_int_equal(pl_store_lacks(s, &lacks, 1), 0);
        }
        assert_int_equal(pl_store_commit(s, 1, NULL), 0);
    }
    memcpy(out + from, pl_store_newest(s)->model, conf->dim * sizeof *out);
}

TEST(absent_tensors_miss_the_commit) {
    static const char *const optim[] = {
        "sgd", "momentum:dampening=0.5", "nesterov", "adagrad", "adam", "adamw"};
    const size_t end[] = {END, SIZE};
    float *vector[N_COMMITS][N_WORKERS], found[SIZE], expected[SIZE];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 7, 0);
    float *w0 = vector_of(&rng);
    for (int k = 0; k < N_COMMITS; k++)
        for (int m = 0; m < 2; m++) vector[k][m] = vector_of(&rng);
    for (size_t i = 0; i < sizeof optim / sizeof *optim; i++) {
        struct pl_store_conf c = rules_of(SIZE, N_WORKERS, "none", "mean", optim[i], 0.0625);
        c.weight_decay = 0.125;
        c.outer = 1;
        c.tensors = (struct pl_model_tensors){end, 2};
        commit_some(&c, w0, 0, vector, true, 2, found);
        c.tensors.n = 0;
        c.dim = END;
        commit_some(&c, w0, 0, vector, true, 0, expected);
        c.dim = SIZE - END;
        commit_some(&c, w0, END, vector, false, 0, expected);
        if (memcmp(found, expected, sizeof found) != 0) fail_msg("%s differs", optim[i]);
    }
}

ALL_TESTS_FROM_SEED(20261116, NULL, NULL)
