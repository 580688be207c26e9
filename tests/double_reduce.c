/* Golden values of the robust reductions to the printed digits, in double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "golden_reduce.h"

static void golden_values(void **state) {
    (void)state;
    golden_a(0);
    golden_b();
    golden_c(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
