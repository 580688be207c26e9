/* CSV files as people have them: with an index, with numbers as a country or a currency writes
 * them, with ends of lines of any system. They are read as meant or refused with a sentence. */
#include "tables.h"

/* A first column without a name is left out as an index if it counts up; it is never left out in
 * silence if it does not. */
TEST(test_csv_index) {
    static const char *const index[] = {
        ",b,y\n0,5,0\n1,6,1\n2,7,0\n",
        "Unnamed: 0,b,y\r\n-3,5,0\r\n10,6,1\r\n12,7,0\r\n", /* after a filter */
        "\"\",\"b\",\"y\"\n\"1\",5,0\n\"2\",6,1\n\"3\",7,0\n",
    };
    static const struct {
        const char *text, *words;
    } other[] = {
        {",b,y\n0.942,5,0\n0.1,6,1\n", "line 2: field 1 ('Unnamed: 0') is '0.942', but"},
        {",b,y\n0,5,0\n1,6,1\n1,7,0\n", "line 4: field 1 ('Unnamed: 0') is '1', but"},
        {",b,y\n7,5,0\n3,6,1\n", "line 3: field 1 ('Unnamed: 0') is '3', but"},
        {"Unnamed: 0,b,y\n1,5,0\n1.5,6,1\n", "line 3: field 1 ('Unnamed: 0') is '1.5', but"},
        {"\"\",b,y\nMazda RX4,5,0\nDatsun 710,6,1\n",
         "to learn from the column, name it in the first line"},
        {",b,y\n0,5,0\n,6,1\n", "line 3: field 1 ('Unnamed: 0') is empty, but"},
    };
    char more[500];
    for (size_t i = 0; i < sizeof index / sizeof *index; i++) {
        write_text("head.csv", index[i]);
        struct pl_data *d = opened("csv", "head.csv", ",share=0");
        assert_true(d->n_train == 3 && d->dim == 1);
        assert_non_null(strstr(d->note, ", the index left out"));
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        write_text("head.csv", other[i].text);
        refused("csv", "head.csv", "", other[i].words);
        assert_non_null(strstr(why.text, "leave the column out with ignore=Unnamed: 0"));
        struct pl_data *d = opened("csv", "head.csv", ",share=0,ignore=Unnamed: 0");
        assert_true(d->dim == 1 && !strstr(d->note, "index"));
    }
    struct pl_data *d = opened("csv", "head.csv", ",missing=fill,share=0,category=Unnamed: 0");
    assert_true(d->dim == 3); /* 0, missing; b */
    /* the training rows decide; an index of test rows need not count up */
    write_text("head.csv", index[0]);
    write_text("test.csv", ",b,y\n9,5,0\n4,6,1\n");
    snprintf(more, sizeof more, ",test=%s", folder_path("test.csv"));
    d = opened("csv", "head.csv", more);
    assert_true(d->n_test == 2 && d->dim == 1);
}

/* Numbers as people write them are refused, because they would become categories. */
TEST(test_csv_written_numbers) {
    static const struct {
        const char *text, *more, *words;
    } row[] = {
        {"a;b;y\n0,9;-1,4;A\n0,8;1,4;B\n", "",
         "line 2: field 1 ('a') is '0,9', a number with a "
         "decimal comma or thousands separator; write"},
        {"a;b;y\n1;-1,4;A\n", "", "field 2 ('b') is '-1,4', a number with a decimal comma"},
        {"a;b;y\n1;2;A\n2,5;2;B\n", "", "line 3: field 1 ('a') is '2,5', a number with a decimal"},
        {"a;y\n1,5E-05;A\n", "", "a number with a decimal comma"},
        {"0,9;-1,4;A\n0,8;1,4;B\n", "", "is '0,8', a number with a decimal comma"},
        {"a,y\n\"109,417\",A\n", "", "is '109,417', a number with a decimal comma or thousands"},
        {"a,y\n\"1,234,567.5\",A\n", "", "a number with a decimal comma or thousands"},
        {"a,y\n1.234.567,A\n", "", "a number with a decimal comma or thousands"},
        {"a,y\n1 234,A\n", "", "a number with a decimal comma or thousands"},
        {"a,y\n$100.9,A\n", "", "is '$100.9', a number with a currency sign; write"},
        {"a,y\n-$.50,A\n", "", "a number with a currency sign; write"},
        {"a,y\n\"1.234,50 \xe2\x82\xac\",A\n", "", "a number with a currency sign; write"},
        {"a,y\n101.5%,A\n", "", "is '101.5%', a number with a per cent sign; write"},
        {"a,y\n5 %,A\n", ",categories=0", "is '5 %', a number with a per cent sign; write"},
        {"a;y\n1;0,9\n", ",task=regress", "is '0,9', a number with a decimal comma"},
    };
    static const char *const text[] = {
        "2024-01-05", "01.02.2024", "10.0.0.1", "\"1,2,5\"", "$$", "18-25", "18+",    "114 55",
        "5 kg",       "%",          "$10-20",   "1,",        "$",  "1e",    "1 234 5"};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        write_text("bad.csv", row[i].text);
        refused("csv", "bad.csv", row[i].more, row[i].words);
        assert_non_null(strstr(why.text, "as 1234.5"));
        assert_true(!strstr(why.text, "category=NAME") == !strcmp(row[i].more, ",task=regress"));
    }
    write_text("bad.csv", row[0].text); /* unless the user says so */
    struct pl_data *d = opened("csv", "bad.csv", ",share=0,category=a,b");
    assert_int_equal(d->dim, 4);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        char all[80];
        snprintf(all, sizeof all, "a;y\n%s;0\nx;1\n", text[i]);
        write_text("bad.csv", all);
        d = opened("csv", "bad.csv", ",share=0");
        assert_non_null(strstr(d->note, "1 column of categories"));
    }
}

/* Lines may end with LF, CR LF or CR; a line counts once. */
TEST(test_csv_line_ends) {
    static const char *const end[] = {"\n", "\r\n", "\r"};
    for (size_t i = 0; i < 3; i++) {
        char text[80];
        snprintf(text, sizeof text, "a,b%s1,0%s# c%s%s2,1%s", end[i], end[i], end[i], end[i],
                 end[i]);
        write_text("a.csv", text);
        struct pl_data *d = opened("csv", "a.csv", ",share=0");
        assert_true(d->n_train == 2 && d->dim == 1 && d->n_classes == 2);
        pl_append(text, sizeof text, "3");
        write_text("a.csv", text);
        refused("csv", "a.csv", "", "line 6: fewer than 2 fields");
    }
}

static int finish(void **state) {
    static const char *const names[] = {"a.csv", "bad.csv", "head.csv", "test.csv"};
    return folder_end(names, sizeof names / sizeof *names);
}

ALL_TESTS_BETWEEN(folder_make, finish)
