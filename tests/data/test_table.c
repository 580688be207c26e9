/* Tables of people's own: CSV and NPY, for classes and for numbers; ratings with a test file of
 * their own. What is written comes back, and every kind of damage is refused with a sentence. Files
 * are written to a fresh directory. */
#include "base/rng.h"
#include "tables.h"

/* --- CSV ----------------------------------------------------------------------------------- */

TEST(test_csv) {
    float x[12];
    uint16_t label[4];
    const uint32_t index[] = {0, 1, 2, 3};
    static const char *const same[] = {
        "id,a,b,class\n7,1,2,dog\n8,3,4,cat\n9,5,6,dog\n9,7,8,ant\n",
        ("\xef\xbb\xbf\"id\" ; a;b;class\r\n7;1;2;dog\r\n\r\n# "
         "comment\n8;3;4;cat\n9;5;6;dog\n9;7;8;ant"),
        "id\ta\tb\tclass\n7\t1\t2\tdog\n8\t3\t4\tcat\n9\t5\t6\t\"dog\"\n9\t7\t8\tant\n",
        "id a  b class\n7  1 2 dog\n8 3 4   cat\n9 5 6 dog\n9 7 8 ant\n"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        write_text("a.csv", same[i]);
        struct pl_data *d = opened("csv", "a.csv", ",ignore=id,scale=no,share=0");
        assert_true(d->n_train == 4 && d->n_test == 0 && d->dim == 2 && d->n_classes == 3);
        assert_false(d->has_targets);
        pl_data_rows(d, false, index, 4, x, label);
        for (int r = 0; r < 4; r++) { /* rows are shuffled: the first feature tells which */
            int row = (int)(x[2 * r] - 1) / 2;
            static const int class[] = {2, 1, 2, 0}; /* ant, cat, dog */
            assert_true(x[2 * r + 1] == x[2 * r] + 1 && label[r] == class[row]);
        }
    }
    /* a target by name in the middle, a number as class, columns by number, no line of names */
    write_text("b.csv", "1,10,2,0\n3,-1,4,1\n5,10,6,0.5\n");
    struct pl_data *d = opened("csv", "b.csv", ",target=2,ignore=1,3,share=0.4,scale=no");
    assert_true(d->n_train == 2 && d->n_test == 1 && d->dim == 1 && d->n_classes == 2);
}

TEST(test_csv_numbers) {
    float target[4], x[4];
    uint16_t label[4];
    const uint32_t index[] = {0, 1, 2, 3};
    write_text("train.csv", "x,y\n1,10\n2,20\n3,30\n4,40\n");
    write_text("test.csv", "x,y\n2.5,25\n2.5,50\n");
    char more[500];
    snprintf(more, sizeof more, ",task=regress,test=%s", folder_path("test.csv"));
    struct pl_data *d = opened("csv", "train.csv", more);
    assert_true(d->n_train == 4 && d->n_test == 2 && d->has_targets && d->n_classes == 0);
    double sd = sqrt(125);
    assert_true(fabs(d->target_scale - sd) < 1e-9);
    pl_data_targets(d, false, index, 4, target);
    pl_data_rows(d, false, index, 4, x, label);
    for (int i = 0; i < 4; i++) {
        assert_true(fabs(target[i] - (10 * (i + 1) - 25) / sd) < 1e-6);
        assert_true(fabs(x[i] - (i + 1 - 2.5) / sqrt(1.25)) < 1e-6 && label[i] == 0);
    }
    pl_data_targets(d, true, index, 2, target);
    assert_true(target[0] == 0 && fabs(target[1] - 25 / sd) < 1e-6);
}

TEST(test_csv_damaged) {
    static const struct {
        const char *text, *more, *words;
    } row[] = {
        {"", "", "has no rows"},
        {"a,b\n", "", "has no rows"},
        {"a,b\n1,2\n3\n", "", "line 3: fewer than 2 fields"},
        {"a,b\n1,2\n3,4,5\n", "", "line 3: more than 2 fields"},
        {"a,b\n1,2\n,4\n", "", "line 3: field 1 ('a') is empty; add missing=fill"},
        {"a,b\n1,2\n3,\n", "", "line 3: the target is missing (field 2, the last one, 'b'), which"},
        {"a,b,\n1,2,\n", "",
         "line 2: the target is missing (field 3, the last one, without a name), which"},
        {"a,b,\n1,2,\n", "", "does not replace; if each line ends with a separator, remove it; if"},
        {"1,2,\n3,4,\n", "", "(field 3, the last one), which"},
        {"a,b\n1,2\nnan,4\n", "", "field 1 ('a') is 'nan'; add missing=fill"},
        {"a,b\n1,2\n1e999,4\n", "", "not a finite number"},
        {"a,b\n1,2\n1e39,4\n", "", "not a finite number"},
        {"a,b\n1,2\ninf,4\n", "", "not a finite number"},
        {"a,b\n1,2\n3,x\n", ",task=regress", "leave out task=regress"},
        {"a,b\n1,2\n3,2.5\n", "", "the target 2.5 is not a class; to predict numbers, add"},
        {"a,b\n1,2\n3,2\n", "", "all rows have the same target;"},
        {"a,b\ninf,4\n1,2\n", "", "not a finite number"},
        {"price,b\n1,2\n3,2\n", ",target=pirce",
         "has no column 'pirce' to predict; did you mean 'price'? Its columns are price, b"},
        {",a,price\n0,1,x\n1,2,y\n", ",target=pirce", "Its columns are (unnamed), a, price"},
        {"Unnamed: 0,a,price\n0,1,x\n1,2,y\n", ",target=pirce", "are Unnamed: 0, a, price"},
        {"a,b,a\n1,2,3\n3,2,4\n", ",target=a", "has two columns called 'a'"},
        {"a,b\n1,2\nx,3\n", "", "field 1 ('a') is 'x', not a finite number as in the lines above"},
        {"a,b\nx,2\ny,3\n", ",categories=0", "leave out categories=0"},
        {"a,b\nx,2\ny,3\nz,3\n", ",categories=2", "more than 2 different texts; allow more with"},
        {"1,2\n3,4\n", ",target=c", "give the column's number"},
        {"a,b\n1,2\n3,4\n", ",ignore=a", "no column left to learn from"},
        {",b\n1,2\n3,4\n", ",task=regress", "the first one was taken for an index"},
        {"a,b\n1,2\n3,\n", ",task=regress,missing=fill",
         "(field 2, the last one, 'b'), which missing=fill does"},
        {"a\n1\n2\n", "", "no column left"},
        {"a,b\n\"1,2\n3,4\n", "", "line 2: a quoted field does not end on its line; line breaks"},
        {"a,b\n\"x\ny\",2\n", "", "line 2: a quoted field does not end on its line; line breaks"},
        {"\"a\nb\",c\n1,2\n", "", "line 1: a quoted field does not end on its line; line breaks"},
        {"a,b\n\"1\"x,2\n3,4\n", "", "quoted field does not end before the next separator"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        write_text("bad.csv", row[i].text);
        refused("csv", "bad.csv", row[i].more, row[i].words);
    }
    folder_write("bad.csv", "a,b\n1,\0,2\n", 10);
    refused("csv", "bad.csv", "", "zero byte");
    refused("csv", "nosuch.csv", "", "cannot be opened");
    refused("csv", ".", "", "not a plain file");
    write_text("a.csv", "a,b\n1,2\n3,4\n");
    write_text("other.csv", "b,a\n1,2\n3,4\n");
    char more[500];
    snprintf(more, sizeof more, ",test=%s", folder_path("other.csv"));
    refused("csv", "a.csv", more, "other names");
}

/* Whether the first line holds names: header=auto guesses right, and the data says what it took. */
TEST(test_csv_header) {
    static const struct {
        const char *text, *more, *note;
        uint32_t rows, features;
    } row[] = {
        /* pandas: columns without names, with and without an index, and all of it */
        {"0,1,target\n1.5,2,0\n3,4,1\n", "", "names", 2, 2},
        {"0,1,target\n1.5,2,dog\n3,4,cat\n", "", "names", 2, 2},
        {"0,1,2\n1.5,2,0\n3,4,1\n", "", "names", 2, 2},
        {"0,1,2,3\n1,2,3,0\n3,4,5,1\n", "", "names", 2, 3},
        {",0,1,2\n0,1.5,2,0\n1,3,4,1\n", "", "names in the first line, the index left out", 2, 2},
        {",a,b\n0,1.5,0\n1,3,1\n", ",target=b", "the index left out", 2, 1},
        {"Unnamed: 0,a,b\n0,1.5,0\n1,3,1\n", "", "the index left out", 2, 1},
        {"a,2,b\n1,2,3\n3,4,5\n", ",target=a", "names", 2, 2},
        {"2023,2024,y\n1,2,3\n3,4,5\n", "", "names", 2, 2},
        {"0,1,2\n1,2,0\n3,4,1\n", ",header=yes", "names", 2, 2},
        {"x,y\nu,v\nu,w\n", "", "names", 2, 1},
        /* names that count up from any number, or have a class that no row has */
        {"2019,2020,2021\n1.5,2,0\n3,4,1\n", "", "names", 2, 2},
        {"2019,2020,2021,2022\n1,2,5,3\n3,4,1,7\n", ",task=regress", "names", 2, 3},
        {"1,2,3\n3,2,0\n4,7,1\n5,1,1\n7,2,0\n", "", "names", 4, 2},
        {"2016,2020,2024\n3,2,0\n4,7,1\n5,1,1\n7,2,0\n", "", "names", 4, 2},
        {"1,4,7\n3,2,dog\n4,7,cat\n", "", "names", 2, 2},
        /* rows */
        {"1,2,3\n3,2,0\n4,7,1\n5,1,1\n7,2,0\n", ",header=no", "no names", 5, 2},
        {"1,2,3\n3,2,0\n4,7,3\n5,1,3\n7,2,0\n", "", "no names", 5, 2},
        {"2,1,3\n3,2,0\n4,7,1\n5,1,1\n7,2,0\n", "", "no names", 5, 2},
        {"1,2,3\n3,2,0\n4,7,1\n5,1,2\n7,2,4\n", "", "no names", 5, 2},
        {"1,2,3,4\n5,6,7,8\n9,10,11,12\n", ",task=regress", "no names", 3, 3},
        {"1,2,3\n4,2,0\n", ",task=regress", "no names", 2, 2},
        {"1,2\n2.5,2\n3,1\n", "", "no names", 3, 1},
        {"0,1,2\n1,2,0\n3,4,1\n", "", "no names", 3, 2},
        {"1,2,dog\n3,4,cat\n", "", "no names", 2, 2},
        {"1,1,0\n1.5,2,1\n", "", "no names", 2, 2},
        {"x,y\nu,v\nu,w\n", ",header=no", "no names", 3, 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char more[80];
        write_text("head.csv", row[i].text);
        snprintf(more, sizeof more, ",share=0%s", row[i].more);
        struct pl_data *d = opened("csv", "head.csv", more);
        /* one with categories has a feature per category */
        bool texts = strstr(d->note, "categories");
        if (d->n_train != row[i].rows || (!texts && d->dim != row[i].features) ||
            !strstr(d->note, row[i].note) || (row[i].note[1] == 'a' && d->note[1] == 'o'))
            fail_msg("%s: %u rows of %u features, %s", row[i].text, d->n_train, d->dim, d->note);
    }
}

/* Texts become a feature per category; missing values the mean, or a category; true is 1. */
TEST(test_csv_categories) {
    write_text("cat.csv", "a,b,c,y\n1,red,true,10\n?,,False,20\n3,blue,TRUE,30\n5,red,,40\n");
    struct pl_data *d = opened("csv", "cat.csv", ",task=regress,missing=fill,scale=no,share=0");
    static const float want[4][5] = {/* a, red, missing, blue, c */
                                     {1, 1, 0, 0, 1},
                                     {3, 0, 1, 0, 0},
                                     {3, 0, 0, 1, 1},
                                     {5, 1, 0, 0, 2.0f / 3}};
    const uint32_t index[] = {0, 1, 2, 3};
    float x[20], y[4];
    uint16_t label[4];
    assert_true(d->dim == 5 && d->n_train == 4);
    pl_data_rows(d, false, index, 4, x, label);
    pl_data_targets(d, false, index, 4, y);
    for (int i = 0; i < 4; i++) { /* the target tells which row it is */
        long row = lround((double)y[i] * d->target_scale / 10 + 1.5);
        assert_in_range(row, 0, 3);
        for (int j = 0; j < 5; j++) assert_true(fabs((double)(x[5 * i + j] - want[row][j])) < 1e-6);
    }
    d = opened("csv", "cat.csv", ",task=regress,missing=fill,category=a,ignore=c");
    assert_int_equal(d->dim, 7); /* 1, missing, 3, 5; red, missing, blue */
    assert_non_null(strstr(d->note, "2 columns of categories"));
}

/* Random bytes and randomly damaged files never do more than fail. */
TEST(test_csv_fuzz) {
    static const char good[] = "id,a,\"b\",class\n7,1,2,dog\n8,3.5e-2,4,\"c\"\"at\"\n9,5,6,dog\n";
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 0, 0);
    for (int i = 0; i < 500; i++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        size_t n = sizeof good - 1 - pl_rng_below(&rng, 20);
        for (uint32_t k = pl_rng_below(&rng, 4); k > 0; k--)
            text[pl_rng_below(&rng, (uint32_t)n)] = "\",;\n\r \t\0-9e#"[pl_rng_below(&rng, 12)];
        folder_write("fuzz.csv", text, n);
        struct pl_data *d = NULL;
        if (open_set("csv", "fuzz.csv", i % 2 ? ",missing=fill" : ",task=regress,target=a", &d) ==
            0)
            pl_data_free(d);
        else
            assert_true(why.text[0] != '\0');
    }
}

/* --- NPY ----------------------------------------------------------------------------------- */

/* Writes an array: the header that numpy.save writes, and the bytes. */
static void write_npy(const char *name, const char *header, const void *bytes, size_t n) {
    uint8_t all[4096] = "\x93NUMPY\x01\x00";
    size_t length = strlen(header);
    assert_true(10 + length + n <= sizeof all);
    all[8] = (uint8_t)length;
    all[9] = (uint8_t)(length >> 8);
    memcpy(all + 10, header, length);
    memcpy(all + 10 + length, bytes, n);
    folder_write(name, all, 10 + length + n);
}

#define HEADER(type, shape)                                                                        \
    "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }  \n"

static const float features[] = {1, 2, 3, 4, 5, 6, 7, 8};
static const int64_t classes[] = {-5, 12, -5, 12};

static void write_pair(void) {
    write_npy("x.npy", HEADER("<f4", "(4, 2)"), features, sizeof features);
    write_npy("y.npy", HEADER("<i8", "(4,)"), classes, sizeof classes);
}

static const char *with_target(const char *name) {
    static char more[500];
    snprintf(more, sizeof more, ",target=%s,scale=no,share=0", folder_path(name));
    return more;
}

TEST(test_npy) {
    float x[16];
    uint16_t label[4];
    const uint32_t index[] = {0, 1, 2, 3};
    write_pair();
    struct pl_data *d = opened("npy", "x.npy", with_target("y.npy"));
    assert_true(d->n_train == 4 && d->dim == 2 && d->n_classes == 2);
    pl_data_rows(d, false, index, 4, x, label);
    for (int i = 0; i < 4; i++) {
        int row = (int)(x[2 * i] - 1) / 2;
        assert_true(x[2 * i + 1] == x[2 * i] + 1 && label[i] == row % 2);
    }
    static const int16_t shorts[] = {-1, 300, 2, -32768};
    write_npy("s.npy", HEADER("<i2", "(4, 1)"), shorts, sizeof shorts);
    char more[600];
    snprintf(more, sizeof more, "%s,task=regress", with_target("s.npy"));
    d = opened("npy", "x.npy", more);
    assert_true(d->has_targets);
    /* pictures: two channels of 1 x 2 pixels; they stay bytes, and have a shape */
    static const uint8_t pixel[] = {0, 255, 51, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    write_npy("p.npy", HEADER("|u1", "(4, 2, 1, 2)"), pixel, sizeof pixel);
    snprintf(more, sizeof more, "%s,test=%s,test-target=%s", with_target("y.npy"),
             folder_path("p.npy"), folder_path("y.npy"));
    d = opened("npy", "p.npy", more);
    assert_true(d->shape[0] == 2 && d->shape[1] == 1 && d->shape[2] == 2 && d->n_test == 4);
    pl_data_rows(d, true, index, 1, x, label);
    assert_true(x[0] == 0 && fabsf(x[1] - 1) < 1e-6f && fabsf(x[2] - 0.2f) < 1e-6f);
}

TEST(test_npy_damaged) {
    static const struct {
        const char *header;
        size_t n;
        const char *words;
    } row[] = {
        {HEADER("<f4", "(4, 2)"), 31, "truncated: its header announces 32 bytes, but 31"},
        {HEADER("<f4", "(4, 2)"), 33, "too long"},
        {HEADER("<f4", "(4611686018427387904, 2)"), 32, "its shape is not"},
        {HEADER("<f4", "(1073741824, 67108864)"), 32, "its shape is not"},
        {HEADER("<f4", "(4, 0)"), 0, "its shape is not"},
        {HEADER("<f4", "()"), 4, "its shape is not"},
        {HEADER("<f4", "(2, 1, 1, 2, 2)"), 32, "its shape is not"},
        {HEADER("<f4", "(-4, 2)"), 32, "its shape is not"},
        {HEADER("<f4", "(4, 2"), 32, "its shape is not"},
        {HEADER("<f4", "(3, 2)"), 24, "has 4 targets in 4 rows"},
        {HEADER(">f4", "(4, 2)"), 32, "of type '>f4'"},
        {HEADER("<f2", "(4, 4)"), 32, "of type '<f2'"},
        {HEADER("|O", "(4, 2)"), 32, "of type '|O'"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (4, 2), }\n", 32, "C order"},
        {"{'shape': (4, 2)}", 32, "C order"},
        {"", 32, "C order"},
    };
    float x[16];
    for (int i = 0; i < 16; i++) x[i] = (float)i;
    write_pair();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        write_npy("bad.npy", row[i].header, x, row[i].n);
        refused("npy", "bad.npy", with_target("y.npy"), row[i].words);
    }
    x[3] = NAN;
    write_npy("bad.npy", HEADER("<f4", "(4, 2)"), x, 32);
    refused("npy", "bad.npy", with_target("y.npy"),
            "row 1 has a value that is not a finite number");
    x[3] = INFINITY;
    write_npy("bad.npy", HEADER("<f4", "(4,)"), x, 16);
    refused("npy", "x.npy", with_target("bad.npy"), "target 3 is not a finite number");
    write_text("bad.npy", "\x93NUM");
    refused("npy", "bad.npy", with_target("y.npy"), "is not a file of numpy.save");
    folder_write("bad.npy", "\x93NUMPY\x01\x00\xff\xff{'", 12);
    refused("npy", "bad.npy", with_target("y.npy"), "truncated in its header");
    folder_write("bad.npy", "\x93NUMPY\x09\x00\xff\xff{'", 12);
    refused("npy", "bad.npy", with_target("y.npy"), "version 9");
    refused("npy", "x.npy", "", "in pairs");
    /* every prefix, and every byte of the header changed */
    uint8_t all[200];
    write_npy("x.npy", HEADER("<f4", "(4, 2)"), features, sizeof features);
    FILE *f = fopen(folder_path("x.npy"), "rb");
    size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    for (size_t i = 0; i < 2 * n; i++) {
        struct pl_data *d = NULL;
        uint8_t was = all[i % n];
        if (i >= n) all[i % n] ^= 0x15;
        folder_write("bad.npy", all, i < n ? i : n);
        if (open_set("npy", "bad.npy", with_target("y.npy"), &d) == 0) pl_data_free(d);
        all[i % n] = was;
    }
}

/* --- ratings ------------------------------------------------------------------------------- */

TEST(test_ratings_test_file) {
    write_text("r.txt", "1 1 5\n1 2 3\n2 1 4\n");
    write_text("t.txt", "2 2 1\n3 1 2\n");
    char more[500];
    snprintf(more, sizeof more, ",test-file=%s", folder_path("t.txt"));
    struct pl_data *d = opened("ratings", "r.txt", more);
    assert_true(d->n_train == 3 && d->n_test == 2);
    assert_true(d->ratings->n_users == 3 && d->ratings->mean == 4);
    assert_true(d->ratings->rating[3].value == 1 && d->ratings->rating[4].value == 2);
    write_text("t.txt", "");
    refused("ratings", "r.txt", more, "t.txt has no ratings");
    write_text("t.txt", "1 1 x\n");
    refused("ratings", "r.txt", more, "t.txt");
}

/* --- models that predict numbers ------------------------------------------------------------ */

/* The gradient is that of the loss. */
TEST(test_gradient) {
    static const char *const specs[] = {"linear", "mlp:hidden=5"};
    enum { N = 16 };
    struct pl_data *d = open_data("friedman:samples=50,test=10", 1);
    uint32_t index[N];
    float x[N * 10], target[N];
    uint16_t label[N];
    for (uint32_t i = 0; i < N; i++) index[i] = i;
    pl_data_rows(d, false, index, N, x, label);
    pl_data_targets(d, false, index, N, target);
    struct pl_batch b = {.n = N, .x = x, .label = label, .target = target};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct pl_model *m = open_model(specs[s], d);
        assert_true(m->rates && !m->classifies);
        float *w = own_room(m->dim, sizeof *w), *g = own_room(m->dim, sizeof *g);
        float *scratch = calloc(m->kind->scratch(m, N) + 1, sizeof *scratch);
        double loss, up, down, sum = 0;
        uint32_t right = 0;
        m->kind->init(m, 3, w);
        for (size_t i = 0; i < m->dim; i++) w[i] += 0.1f * (float)((int)(i * 7 % 5) - 2);
        assert_int_equal(m->kind->gradient(m, w, &b, g, &loss, scratch, NULL), 0);
        m->kind->score(m, w, &b, scratch, &sum, &right, NULL);
        assert_true(fabs(sum / N - loss) < 1e-5 * (1 + loss) && right == 0);
        for (size_t i = 0; i < m->dim; i++) {
            float was = w[i], h = 1e-3f;
            w[i] = was + h;
            up = down = 0;
            m->kind->score(m, w, &b, scratch, &up, &right, NULL);
            w[i] = was - h;
            m->kind->score(m, w, &b, scratch, &down, &right, NULL);
            w[i] = was;
            double slope = (up - down) / N / (2 * (double)h);
            if (fabs(slope - g[i]) > 2e-2 * (1 + fabs(slope)))
                fail_msg("%s, parameter %zu: %g is not %g", specs[s], i, g[i], slope);
        }
        free(scratch);
    }
    struct pl_model *m = NULL;
    assert_int_equal(pl_model_open("softmax", d, &m, &why), PL_EUSAGE);
    assert_non_null(strstr(why.text, "use model linear or mlp"));
}

static int finish(void **state) {
    static const char *const names[] = {
        "a.csv", "b.csv", "train.csv", "test.csv", "bad.csv", "other.csv", "fuzz.csv", "x.npy",
        "y.npy", "s.npy", "p.npy",     "bad.npy",  "r.txt",   "t.txt",     "head.csv", "cat.csv"};
    return folder_end(names, sizeof names / sizeof *names);
}

ALL_TESTS_BETWEEN(folder_make, finish)
