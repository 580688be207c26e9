/* Optimizers in single precision: torch's numbers to 1e-6 after 50 steps. */
#include "golden_optim.h"

TEST(as_torch) {
    golden_check_all(1e-6);
}
