/* How much of a period a thread waited for a core, in periods that other threads begin. */
#include "run/waits.h"
#include "test.h"

/* Three preemptions between the time when a result was pushed and when it was read: all of them
 * count, not only the last. */
TEST(all_waits_of_a_period_count) {
    struct pl_waits w = {.n = 0};
    pl_waits_note(&w, 1000, 300); /* 700 to 1000 */
    pl_waits_note(&w, 2000, 500); /* 1500 to 2000 */
    pl_waits_note(&w, 2600, 100); /* 2500 to 2600 */
    assert_int_equal(pl_waits_between(&w, 0, 3000), 900);
    assert_int_equal(pl_waits_between(&w, 700, 2600), 900);
    assert_int_equal(pl_waits_between(&w, 800, 2600), 800);  /* pushed during the first */
    assert_int_equal(pl_waits_between(&w, 1000, 2600), 600); /* and after it */
    assert_int_equal(pl_waits_between(&w, 1700, 2550), 350);
    assert_int_equal(pl_waits_between(&w, 1000, 1500), 0); /* it ran all the time */
    assert_int_equal(pl_waits_between(&w, 2600, 9000), 0);
    assert_int_equal(pl_waits_between(&w, 2000, 1000), 0);
}

/* The kernel's count and the clock may differ a little; no time counts twice. */
TEST(waits_do_not_overlap) {
    struct pl_waits w = {.n = 0};
    assert_int_equal(pl_waits_between(&w, 0, 100), 0);
    pl_waits_note(&w, 100, 500); /* longer than there has been time */
    assert_int_equal(pl_waits_between(&w, 0, 100), 100);
    pl_waits_note(&w, 200, 150);
    assert_int_equal(pl_waits_between(&w, 0, 200), 200);
    pl_waits_note(&w, 200, 10);
    assert_int_equal(pl_waits_between(&w, 0, 300), 200);
}

/* Of very many waits, those that are long past are forgotten. */
TEST(old_waits_are_forgotten) {
    struct pl_waits w = {.n = 0};
    for (uint64_t i = 1; i <= 3 * PL_WAITS; i++) pl_waits_note(&w, 10 * i, 5);
    assert_int_equal(pl_waits_between(&w, 0, UINT64_MAX), 5 * PL_WAITS);
    assert_int_equal(pl_waits_between(&w, 30 * PL_WAITS - 100, UINT64_MAX), 50);
}
