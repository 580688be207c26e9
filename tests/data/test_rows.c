/* Mini-batches: rows of bytes become the same numbers on every instruction set. */
#include "base/isa.h"
#include "data/data.h"
#include "opened.h"

#define ROWS 64
#define DIM_MAX 1024

/* A row of 11 x 11 is no multiple of any vector, and one of 28 x 28 is drawn in several fetches. */
TEST(test_scales) {
    static const char *const spec[] = {"digits:side=11,samples=200,test=0",
                                       "digits:side=28,samples=200,test=0"};
    static float plain[ROWS * DIM_MAX], x[ROWS * DIM_MAX];
    uint16_t label[ROWS];
    uint32_t index[ROWS];
    enum pl_isa was = pl_isa;
    for (uint32_t i = 0; i < ROWS; i++) index[i] = i * 37 % 200;
    for (size_t s = 0; s < sizeof spec / sizeof *spec; s++) {
        struct pl_data *data = open_data(spec[s], 1);
        size_t n = (size_t)ROWS * data->dim;
        assert_true(n <= (size_t)ROWS * DIM_MAX);
        pl_isa = PL_ISA_BASELINE;
        pl_data_rows(data, false, index, ROWS, plain, label);
        float most = 0;
        for (size_t i = 0; i < n; i++) {
            float byte = (float)(int)(plain[i] * 255.0f + 0.5f);
            assert_true(plain[i] == byte * (1.0f / 255.0f));
            if (plain[i] > most) most = plain[i];
        }
        assert_true(most > 0.5f);
        for (int isa = 0; isa < PL_N_ISAS; isa++) {
            if (!pl_isa_present((enum pl_isa)isa)) continue;
            pl_isa = (enum pl_isa)isa;
            memset(x, 0xff, sizeof x);
            pl_data_rows(data, false, index, ROWS, x, label);
            assert_memory_equal(x, plain, n * sizeof *x);
        }
        pl_isa = was;
    }
}
