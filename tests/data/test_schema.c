/* What travels with weights about their data: its text comes back as what it was, new rows become
 * the same numbers, and a text that is damaged is refused with a sentence. */
#include "base/rng.h"
#include "data/data.h"
#include "folder.h"
#include "opened.h"

static struct pl_why why;
static const char table[] =
    "a,caf\xe9 %,b,y\n1,x y,2,dog\n2,,4,cat\n?,\"x,y\",6,dog\n4,x y,9,cat\n";

static char *spec_of(const char *kind, const char *name, const char *more) {
    static char spec[1500];
    snprintf(spec, sizeof spec, "%s:%s%s", kind, folder_path(name), more);
    return spec;
}

static char *schema_of(const char *spec) {
    char *text = NULL;
    struct pl_data *d = open_data(spec, 1);
    assert_int_equal(pl_data_schema(d, &text, &why), PL_OK);
    assert_non_null(text);
    return text;
}

/* All rows of the file, read as new ones, are those that the model was trained on. */
TEST(test_same_numbers) {
    folder_write("t.csv", table, sizeof table - 1);
    const char *spec = spec_of("csv", "t.csv", ",missing=fill,share=0");
    char *text = schema_of(spec), *again = NULL, number[12];
    struct pl_data *d = open_data(spec, 1), *as = NULL;
    if (pl_data_open_as(spec, 1, text, &as, &why)) fail_msg("%s", why.text);
    assert_true(as->n_train == 0 && as->n_test == 4 && as->dim == 5 && d->dim == 5);
    assert_string_equal(pl_data_class(as, 1, number), "dog");
    assert_int_equal(pl_data_schema(as, &again, &why), PL_OK);
    assert_string_equal(text, again);
    float old[20], new[20];
    uint16_t label[4];
    const uint32_t index[] = {0, 1, 2, 3};
    pl_data_rows(d, false, index, 4, old, label);
    pl_data_rows(as, true, index, 4, new, label);
    for (int i = 0; i < 4; i++) { /* the training rows are shuffled */
        int found = 0;
        for (int k = 0; k < 4; k++) found += memcmp(new + 5 * i, old + 5 * k, 5 * sizeof *old) == 0;
        assert_int_equal(found, 1);
    }
    pl_data_free(as);
    free(text);
    free(again);
}

/* An index that the training left out is left out of new rows, whether it counts up or not. */
TEST(test_index) {
    static const char train[] = ",b,y\n0,5,0\n1,6,1\n2,8,0\n";
    static const char *const rows[] = {",b\n9,8\n3,6\n", "b\n8\n6\n", ",b,y\nx,8,\n,6,\n",
                                       "Unnamed: 0,b\n0.5,8\n0.1,6\n"};
    folder_write("t.csv", train, sizeof train - 1);
    char *text = schema_of(spec_of("csv", "t.csv", ",share=0,scale=no"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_data *d = NULL;
        const uint32_t index[] = {0, 1};
        float x[2];
        uint16_t label[2];
        folder_write("t.csv", rows[i], strlen(rows[i]));
        if (pl_data_open_as(spec_of("csv", "t.csv", ""), 1, text, &d, &why))
            fail_msg("%s: %s", rows[i], why.text);
        assert_true(d->n_test == 2 && d->dim == 1);
        pl_data_rows(d, true, index, 2, x, label);
        assert_true(x[0] == 8 && x[1] == 6);
        pl_data_free(d);
    }
    struct pl_data *d = NULL;
    folder_write("t.csv", "b\n5,5\n", 6);
    assert_int_equal(pl_data_open_as(spec_of("csv", "t.csv", ",sep=semicolon"), 1, text, &d, &why),
                     PL_EDATA);
    assert_non_null(strstr(why.text, "is '5,5', a number with a decimal comma"));
    assert_true(!strstr(why.text, "category=") && !strstr(why.text, "ignore="));
    free(text);
}

static void refused(const char *spec, const char *text) {
    struct pl_data *d = NULL;
    why.text[0] = '\0';
    if (pl_data_open_as(spec, 1, text, &d, &why) == 0) fail_msg("accepted: %s", text);
    if (!strstr(why.text, "is damaged")) fail_msg("\"%s\" for %s", why.text, text);
}

TEST(test_damaged) {
#define FIRST "paceline-data 1\nshape 1 1 2\nclasses 2\n"
    static const char *const bad[] = {
        "",
        "paceline-data 2\nshape 1 1 2\nclasses 2\n",
        "paceline-data 1\n",
        "paceline-data 1\nshape 1 1 2\n",
        "paceline-data 1\nclasses 2\n",
        "paceline-data 1\nshape 67108864 67108864 67108864\nclasses 2\n",
        "paceline-data 1\nshape 1 1 -2\nclasses 2\n",
        "paceline-data 1\nshape 1 1 2\nclasses 70000\n",
        "paceline-data 1\nshape 1 1 2\nnumbers nan 1\n",
        FIRST "numbers 0 1\n",
        FIRST "nothing 1\n",
        FIRST "class a\n",
        FIRST "class a\nclass b",
        FIRST "class %\nclass b\n",
        FIRST "class %00\nclass b\n",
        FIRST "number 0 0 1 0\n",
        FIRST "number 0 0 1\nnumber 1 0 1 0\n",
        FIRST "number 0 0 inf 0\nnumber 1 0 1 0\n",
        FIRST "fields 2 1\nnumber 5 0 1 0\nnumber 1 0 1 0\n",
        FIRST "text a\n",
        FIRST "texts 0\ntext a\ntext a\n",
        FIRST "user 1\n",
        "paceline-data 1\nshape 1 1 3\nratings 3 2 1\nuser 1\nitem 1\n",
        "paceline-data 1\nshape 1 1 3\nratings 3 1 1\nratings 3 1 1\n",
        "paceline-data 1\nshape 1 1 3\nratings 3 0 99999999999999999999\n",
    };
    folder_write("t.csv", table, sizeof table - 1);
    const char *spec = spec_of("csv", "t.csv", "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(spec, bad[i]);
}

static void rows_to_predict(const char *spec, const char *text, struct pl_data **d) {
    *d = NULL;
    if (pl_data_open_as(spec, 1, text, d, &why)) fail_msg("%s: %s", spec, why.text);
}

/* An array without its targets: numbers are scaled as in training, bytes stay bytes. */
TEST(test_arrays) {
    static const char head[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }\n";
    static const char byte[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 2), }\n";
    static const float x[8] = {1, 5, 2, 5, 3, 5, 4, 5}, y[8] = {-7, 3, -7, 3, 0, 0, 0, 0};
    static const char *const target = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n";
    uint8_t file[256];
    const struct {
        const char *name, *head;
        const void *bytes;
        size_t n;
    } array[] = {{"x.npy", head, x, sizeof x}, {"p.npy", byte, x, 8}, {"y.npy", target, y, 16}};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(array[i].head);
        memcpy(file, "\x93NUMPY\x01\x00", 8);
        file[8] = (uint8_t)n;
        file[9] = 0;
        memcpy(file + 10, array[i].head, n);
        memcpy(file + 10 + n, array[i].bytes, array[i].n);
        folder_write(array[i].name, file, 10 + n + array[i].n);
    }
    for (int pictures = 0; pictures < 2; pictures++) {
        const char *name = pictures ? "p.npy" : "x.npy";
        char more[600], number[12];
        float row[8];
        uint16_t label[4];
        const uint32_t index[] = {0, 1, 2, 3};
        struct pl_data *d;
        snprintf(more, sizeof more, ",target=%s,share=0", folder_path("y.npy"));
        char *text = schema_of(spec_of("npy", name, more));
        rows_to_predict(spec_of("npy", name, ""), text, &d);
        assert_true(d->n_test == 4 && d->dim == 2 && d->n_classes == 2);
        assert_string_equal(pl_data_class(d, 0, number), "-7");
        pl_data_rows(d, true, index, 4, row, label);
        if (pictures)
            for (int i = 0; i < 8; i++)
                assert_true(row[i] == (float)((const uint8_t *)x)[i] * (1.0f / 255.0f));
        else
            assert_true(fabs((double)(row[0] + row[6])) < 1e-6 && row[1] == 0);
        pl_data_free(d);
        d = NULL;
        assert_int_not_equal(
            pl_data_open_as(spec_of("npy", pictures ? "x.npy" : "y.npy", ""), 1, text, &d, &why),
            PL_OK);
        free(text);
    }
}

/* Pictures without labels and without the training half. */
TEST(test_pictures) {
    static const uint8_t file[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 255, 0, 51, 255};
    static const char text[] = "paceline-data 1\nshape 1 1 2\nclasses 3\n";
    const uint32_t index[] = {0, 1};
    struct pl_data *d = NULL;
    char spec[600], number[12];
    float row[4];
    uint16_t label[2];
    folder_write("t10k-images-idx3-ubyte", file, sizeof file);
    snprintf(spec, sizeof spec, "idx:%s", folder_path("."));
    rows_to_predict(spec, text, &d);
    assert_true(d->n_test == 2 && d->n_classes == 3);
    pl_data_rows(d, true, index, 2, row, label);
    assert_true(row[0] == 1 && row[1] == 0 && row[3] == 1);
    assert_string_equal(pl_data_class(d, 2, number), "2");
    pl_data_free(d);
    assert_int_not_equal(
        pl_data_open_as(spec, 1, "paceline-data 1\nshape 1 2 2\nclasses 3\n", &d, &why), PL_OK);
    assert_non_null(strstr(why.text, "pictures of 1x2 pixels; the training set has 2x2"));
}

/* Texts that were changed at random never do more than fail. */
TEST(test_fuzz) {
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 0, 0);
    static const char ratings[] = "1,10,3\n2,20,4\n1,20,5\n3,10,1\n";
    folder_write("t.csv", table, sizeof table - 1);
    folder_write("r.txt", ratings, sizeof ratings - 1);
    for (int i = 0; i < 2000; i++) {
        const char *spec = i % 2 ? spec_of("csv", "t.csv", ",missing=fill")
                                 : spec_of("ratings", "r.txt", ",test=0");
        char *text = schema_of(spec);
        size_t n = strlen(text);
        for (uint32_t k = pl_rng_below(&rng, 4); k > 0; k--)
            text[pl_rng_below(&rng, (uint32_t)n)] = "0129 \n%=-.esx"[pl_rng_below(&rng, 13)];
        if (pl_rng_below(&rng, 4) == 0) text[pl_rng_below(&rng, (uint32_t)n)] = '\0';
        struct pl_data *d = NULL;
        why.text[0] = '\0';
        if (pl_data_open_as(spec, 1, text, &d, &why) == 0)
            pl_data_free(d);
        else
            assert_true(why.text[0] != '\0');
        free(text);
    }
}

static int finish(void **state) {
    static const char *const names[] = {"t.csv", "r.txt", "x.npy",
                                        "p.npy", "y.npy", "t10k-images-idx3-ubyte"};
    return folder_end(names, sizeof names / sizeof *names);
}

ALL_TESTS_BETWEEN(folder_make, finish)
