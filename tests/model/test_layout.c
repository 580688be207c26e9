/* Types of tensors, and the layout of a model's vector. */
#include "model/layout.h"
#include "test.h"

TEST(halves_are_rounded_to_nearest) {
    const struct {
        float x;
        uint16_t f16, bf16;
    } row[] = {{0, 0x0000, 0x0000},
               {-0.0f, 0x8000, 0x8000},
               {1, 0x3c00, 0x3f80},
               {-2, 0xc000, 0xc000},
               {65504, 0x7bff, 0x4780},
               {65519.996f, 0x7bff, 0x4780},
               {65520, 0x7c00, 0x4780},
               {0x1p-24f, 0x0001, 0x3380},
               {0x1p-25f, 0x0000, 0x3300}, /* a tie, to even */
               {0x1.8p-24f, 0x0002, 0x33c0},
               {0x1.ffcp-15f, 0x0400, 0x3880}, /* carries into the exponent */
               {1 + 0x1p-11f, 0x3c00, 0x3f80}, /* ties, to even */
               {1 + 0x1.8p-10f, 0x3c02, 0x3f80},
               {1 + 0x1p-8f, 0x3c04, 0x3f80},
               {1 + 0x1.8p-7f, 0x3c0c, 0x3f82},
               {INFINITY, 0x7c00, 0x7f80}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint16_t half;
        pl_dtype_narrow(PL_F16, &row[i].x, 1, &half);
        if (half != row[i].f16) fail_msg("%a is %04x as F16", (double)row[i].x, half);
        pl_dtype_narrow(PL_BF16, &row[i].x, 1, &half);
        if (half != row[i].bf16) fail_msg("%a is %04x as BF16", (double)row[i].x, half);
    }
}

/* Every value of a narrow type comes back. */
TEST(halves_come_back) {
    for (uint32_t h = 0; h < 65536; h++) {
        for (int t = 0; t < 2; t++) {
            enum pl_dtype type = t ? PL_F16 : PL_BF16;
            uint16_t half = (uint16_t)h, back;
            float x;
            pl_dtype_widen(type, &half, 1, &x);
            pl_dtype_narrow(type, &x, 1, &back);
            if (back != half && !isnan(x)) fail_msg("%04x became %04x", half, back);
        }
    }
}

TEST(wholes_are_clamped) {
    const float x[] = {2.5f, -3.5f, 1e30f, -1e30f, NAN};
    int8_t i8[5];
    uint8_t b[5];
    pl_dtype_narrow(PL_I8, x, 5, i8);
    pl_dtype_narrow(PL_BOOL, x, 5, b);
    assert_true(i8[0] == 2 && i8[1] == -4 && i8[2] == 127 && i8[3] == -128 && i8[4] == 0);
    assert_true(b[0] == 1 && b[1] == 0 && b[4] == 0);
    const struct {
        float top;
        int64_t is;
        uint64_t u;
    } row[] = {{1e30f, INT64_MAX, UINT64_MAX}, {-1e30f, INT64_MIN, 0}, {NAN, 0, 0}};
    for (size_t i = 0; i < 3; i++) {
        const float digit[8] = {[7] = row[i].top};
        int64_t is;
        uint64_t u;
        pl_dtype_narrow(PL_I64, digit, 1, &is);
        pl_dtype_narrow(PL_U64, digit, 1, &u);
        /* the largest double below a power of two is that much below it */
        assert_true(is <= row[i].is && is >= row[i].is - (row[i].is > 0 ? 1023 : 0));
        assert_true(u <= row[i].u && u >= row[i].u - (row[i].u > 0 ? 2047 : 0));
    }
    assert_int_equal(pl_dtype_find("BF16"), PL_BF16);
    assert_int_equal(pl_dtype_find("F8"), -1);
}

/* Numbers come back as they were, also if the vector is bf16 or has rounding errors; the mean of
 * two is theirs. */
TEST(wholes_come_back) {
    static const int64_t row[] = {0,  1,         -1,        255,       256, -256, 16777217,
                                  65, INT64_MAX, INT64_MIN, INT32_MAX, 127, -128, -16777217};
    const enum pl_dtype type[] = {PL_I64, PL_I32, PL_I16, PL_I8, PL_U64, PL_U8};
    for (size_t t = 0; t < 6; t++) {
        size_t size = pl_dtypes[type[t]].size;
        assert_int_equal(pl_dtype_floats(type[t]), size);
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            float x[8], bad[8];
            uint16_t half[8];
            int64_t back = 0, kept = 0;
            memcpy(&kept, &row[i], size); /* its lowest bytes are a number of the type, too */
            pl_dtype_widen(type[t], &kept, 1, x);
            pl_dtype_narrow(PL_BF16, x, size, half);
            pl_dtype_widen(PL_BF16, half, size, bad);
            for (size_t k = 0; k < size; k++) bad[k] *= 1 + 0x1p-20f;
            pl_dtype_narrow(type[t], bad, 1, &back);
            if (back != kept) fail_msg("%lld became %lld", (long long)kept, (long long)back);
        }
    }
    const int64_t pair[] = {255, 257};
    float x[16], mean[8];
    int64_t back;
    pl_dtype_widen(PL_I64, pair, 2, x);
    for (size_t k = 0; k < 8; k++) mean[k] = (x[k] + x[8 + k]) / 2;
    pl_dtype_narrow(PL_I64, mean, 1, &back);
    assert_int_equal(back, 256);
}

static const struct pl_tensor_info some[] = {
    {.name = "a.weight", .shape = {2, 3}, .n_dims = 2},
    {.name = "a.bias", .shape = {2}, .n_dims = 1},
    {.name = "b.weight", .dtype = "F16", .shape = {4}, .n_dims = 1},
    {.name = "b.count", .dtype = "I64"}};

static struct pl_layout layout(void) {
    struct pl_layout l = {0};
    for (size_t i = 0; i < 4; i++) assert_int_equal(pl_layout_add(&l, &some[i], NULL), PL_OK);
    return l;
}

TEST(tensors_lie_one_after_the_other) {
    struct pl_layout l = layout();
    assert_int_equal(l.dim, 20);
    assert_int_equal(l.tensor[2].offset, 8);
    assert_int_equal(l.tensor[3].n, 8);
    assert_int_equal(pl_layout_elements(&l.tensor[3]), 1);
    uint64_t print = pl_layout_fingerprint(&l);
    assert_true(print == pl_fingerprint(some, 4) && print != pl_fingerprint(some, 3));
    struct pl_tensor_info other[4];
    memcpy(other, some, sizeof other);
    other[0].shape[0] = 3;
    other[0].shape[1] = 2;
    assert_true(pl_fingerprint(other, 4) != print);
    memcpy(other, some, sizeof other);
    other[2].dtype = "BF16";
    assert_true(pl_fingerprint(other, 4) != print);

    struct pl_tensor_info bad = {.name = "a.bias"};
    struct pl_why why = {""};
    assert_int_equal(pl_layout_add(&l, &bad, &why), PL_EUSAGE);
    assert_non_null(strstr(why.text, "two tensors are called 'a.bias'"));
    bad = (struct pl_tensor_info){.name = "x", .dtype = "F8"};
    assert_int_equal(pl_layout_add(&l, &bad, &why), PL_EUSAGE);
    bad = (struct pl_tensor_info){.name = "x", .shape = {UINT64_MAX, 2}, .n_dims = 2};
    assert_int_equal(pl_layout_add(&l, &bad, &why), PL_EUSAGE);
    bad = (struct pl_tensor_info){.name = "x", .n_dims = 9};
    assert_int_equal(pl_layout_add(&l, &bad, &why), PL_EUSAGE);
    bad = (struct pl_tensor_info){.name = "x\n"};
    assert_int_equal(pl_layout_add(&l, &bad, &why), PL_EUSAGE);
    assert_int_equal(l.n, 4);
    pl_layout_free(&l);
}

TEST(rules_are_for_names) {
    struct pl_layout l = layout();
    assert_false(pl_layout_has_rules(&l));
    assert_int_equal(pl_layout_rules(&l,
                                     "# groups\n\n*.weight decay=0.5 lr=2 # both\r\n"
                                     "b.weight lr=3\nb.count\tbuffer=yes",
                                     NULL),
                     PL_OK);
    assert_true(pl_layout_has_rules(&l));
    assert_true(l.tensor[0].lr == 2 && l.tensor[0].decay == 0.5 && l.tensor[1].lr == 1);
    assert_true(l.tensor[2].lr == 3 && l.tensor[2].decay == 0.5 && l.tensor[3].buffer);
    static const char *const bad[][2] = {
        {"c lr=1", "line 1: no tensor"},     {"\na.bias", "line 2"},
        {"a.bias lr=-1", "lr=-1"},           {"a.bias lr=nan", "lr=nan"},
        {"a.bias lr=1x", "lr=1x"},           {"a.bias lr=", "'lr='"},
        {"a.bias momentum=1", "momentum=1"}, {"a.bias buffer=maybe", "buffer=maybe"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pl_why why = {""};
        assert_int_equal(pl_layout_rules(&l, bad[i][0], &why), PL_EUSAGE);
        if (!strstr(why.text, bad[i][1])) fail_msg("%s: %s", bad[i][0], why.text);
    }
    pl_layout_free(&l);
}
