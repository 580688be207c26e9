/* Parts of the model without a run: rates change by losses, and a policy survives whatever a
 * checkpoint says about its blocks. */
#include "choices.h"
#include "core/recipe.h"
#include "suite_train.h"

/* --- going on from a checkpoint ---------------------------------------------------------- */

/* What a checkpoint holds is not believed: whatever the memory of a policy was, it goes on and
 * keeps to the rules, which control checks. */
static struct pl_rng kept_rng;

static size_t kept_bytes(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                         size_t n) {
    if (kind != PL_BYTES) return 0;
    uint32_t how = pl_rng_below(&kept_rng, 3);
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)v)[i] = how == 0   ? (uint8_t)pl_rng_u32(&kept_rng)
                            : how == 1 ? 0xff
                                       : (uint8_t)pl_rng_below(&kept_rng, 2);
    return n;
}

TEST(test_kept_nonsense) {
    static const char *const policies[] = {"blocks", "blocks:grid=9", "strata",
                                           "strata:grid=7,order=random"};
    const struct pl_archive archive = {.restoring = true, .piece = kept_bytes};
    for (uint64_t round = 0; round < 400; round++) {
        struct pl_why why = {""};
        const struct pl_plan *plan;
        pl_rng_init(&kept_rng, test_seed, PL_STREAM_TEST, 9, round);
        struct pl_control *c = control_of(policies[round % 4], "fixed", 5, round);
        assert_int_equal(pl_control_archive(c, &archive), 0);
        const struct pl_view *v = pl_control_view(c);
        for (int i = 0; i < 300; i++) {
            int w = i < 5 ? i : (int)pl_rng_below(&kept_rng, 5);
            bool here = v->worker[w].state != PL_GONE;
            struct pl_event e = {.kind = !here                              ? PL_JOIN
                                         : pl_rng_below(&kept_rng, 10) == 0 ? PL_LEAVE
                                                                            : PL_ARRIVE,
                                 .worker = w,
                                 .task = v->worker[w].task,
                                 .samples = 1};
            if (pl_control_step(c, &e, &plan, &why))
                fail_msg("%s, round %d: %s", policies[round % 4], (int)round, why.text);
        }
    }
}

/* --- the store --------------------------------------------------------------------------- */

#define STORE_DIM 1000

/* The rate goes with the mean loss of epochs of 100 samples. */
TEST(test_bold) {
    static const double loss[] = {4, 2, 3, 3, 1}; /* of the epochs */
    static const double lr[] = {0.1, 0.1, 0.105, 0.0525, 0.0525, 0.055125};
    struct pl_store_conf conf = rules_of(STORE_DIM, 2, "none", "mean", "sgd", 0.1);
    conf.rate.epoch_samples = 100;
    conf.rate.schedule = choose_chain(&pl_schedule_family, "bold", 2);
    struct pl_store *s = store_of(&conf, NULL);
    static pl_real vector[STORE_DIM];
    for (int i = 0; i < 5; i++) {
        assert_true(fabs(pl_store_newest(s)->lr - lr[i]) < 1e-12);
        for (int half = 0; half < 2; half++) {
            /* one has no loss to tell, and counts for nothing */
            const struct pl_member members[] = {
                {.samples = 70, .factor = 1, .loss = NAN},
                {.samples = 50, .factor = 1, .loss = loss[i] + half - 0.5}};
            for (int m = 0; m < 2; m++) {
                assert_int_equal(
                    pl_store_take(s, &members[m], pl_store_newest(s), vector, PL_FINITE_UNKNOWN),
                    0);
                assert_int_equal(pl_store_commit(s, 1, NULL), 0);
            }
        }
    }
    assert_true(fabs(pl_store_newest(s)->lr - lr[5]) < 1e-12);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
