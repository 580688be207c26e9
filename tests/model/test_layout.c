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
    int64_t i64[5];
    float back[5];
    pl_dtype_narrow(PL_I8, x, 5, i8);
    pl_dtype_narrow(PL_BOOL, x, 5, b);
    pl_dtype_narrow(PL_I64, x, 5, i64);
    assert_true(i8[0] == 2 && i8[1] == -4 && i8[2] == 127 && i8[3] == -128 && i8[4] == 0);
    assert_true(b[0] == 1 && b[1] == 0 && b[4] == 0);
    assert_true(i64[0] == 2 && i64[2] > 0 && i64[3] == INT64_MIN && i64[4] == 0);
    pl_dtype_widen(PL_I64, i64, 5, back);
    assert_true(back[0] == 2 && back[1] == -4 && back[2] > 9e18f);
    assert_int_equal(pl_dtype_find("BF16"), PL_BF16);
    assert_int_equal(pl_dtype_find("F8"), -1);
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
    assert_int_equal(l.dim, 13);
    assert_int_equal(l.tensor[2].offset, 8);
    assert_int_equal(l.tensor[3].n, 1);
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
