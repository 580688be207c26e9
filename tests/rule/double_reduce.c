/* Golden values of the robust reductions to the printed digits, in double precision. */
#include "golden_reduce.h"

TEST(golden_values) {
    golden_a(0);
    golden_b();
    golden_c(0);
}
