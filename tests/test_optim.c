/* Optimizers in single precision: torch's numbers to 1e-6 after 50 steps. */
#include "golden_optim.h"

static void as_torch(void **state) {
    (void)state;
    golden_check_all(1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_torch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
