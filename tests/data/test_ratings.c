/* Ratings: files in all their forms, damaged ones refused with their line; splitting, shuffling and
 * grids that lose nothing. Files are written to a fresh directory under TMPDIR. */
#include <unistd.h>

#include <zlib.h>

#include "base/rng.h"
#include "data/grid.h"
#include "folder.h"
#include "opened.h"

static char test_file[500];

/* ---- files ---- */

static void test_write(const char *text, size_t n, bool gz) {
    gzFile f = gzopen(test_file, gz ? "wb" : "wbT");
    assert_non_null(f);
    if (n) assert_int_equal(gzwrite(f, text, (unsigned)n), n);
    assert_int_equal(gzclose(f), Z_OK);
}

static const char *test_spec(const char *rest) {
    static char spec[800];
    snprintf(spec, sizeof spec, "ratings:%s%s", test_file, rest);
    return spec;
}

/* The four ratings that each of the forms below says. */
TEST(forms_say_the_same) {
    static const char *const forms[] = {
        "7\t30\t4.5\t881250949\n7\t10\t1\t1\n900\t30\t-2\t2\n8\t20\t3e-1\t3\n",
        "7::30::4.5::881250949\n7::10::1::0\n900::30::-2::0\n8::20::.3::0\n",
        "7 30 4.5\n7 10 1\n900 30 -2\n8 20 0.3",
        "userId,movieId,rating,timestamp\n7,30,4.5,881250949\n7,10,1,0\n900,30,-2,0\n8,20,+0.3,0\n",
        ("\xef\xbb\xbf\"user\",\"item\",\"rating\"\n\"7\",\"30\",\"4.5\"\r\n"
         "\"7\",\"10\",1\n\"900\",30,\"-2\"\n8,\"20\",\"+0.3\"\n"),
        "\xef\xbb\xbf"
        "7 30 4.5\n7 10 1\n900 30 -2\n8 20 0.3\n",
        "7,30,4.5\r\n7,10,1\r\n\r\n900,30,-2\r\n8,20,0.3\r\n",
        "  7  30\t4.5 \n\n \t\n7 10 1.0\n0900 30 -2.\n8 , 20 , 0.3, 12.5\n\n",
    };
    static const struct pl_rating said[] = {{0, 2, 4.5f}, {0, 0, 1}, {2, 2, -2}, {1, 1, 0.3f}};
    for (size_t i = 0; i < 2 * sizeof forms / sizeof *forms; i++) {
        test_write(forms[i / 2], strlen(forms[i / 2]), i % 2);
        struct pl_data *d = open_data(test_spec(",test=0,shuffle=no"), test_seed);
        assert_int_equal(d->ratings->n_users, 3);
        assert_int_equal(d->ratings->n_items, 3);
        assert_int_equal(d->n_train, 4);
        assert_int_equal(d->n_test, 0);
        assert_int_equal(d->dim, 3);
        assert_int_equal(d->n_classes, 0);
        assert_true(fabs(d->ratings->mean - 3.8 / 4) < 1e-6);
        for (uint32_t r = 0; r < 4; r++) {
            float x[3];
            uint16_t label = 9;
            pl_data_rows(d, false, &r, 1, x, &label);
            assert_true(x[0] == (float)said[r].user && x[1] == (float)said[r].item);
            assert_true(x[2] == said[r].value && label == 0);
        }
    }
}

TEST(ids_may_be_huge) {
    static const char text[] = "18446744073709551615 0 1\n0 18446744073709551615 2\n"
                               "4294967296 4294967296 3\n18446744073709551614 1 4\n";
    static const uint32_t user[] = {3, 0, 1, 2}, item[] = {0, 3, 2, 1};
    test_write(text, sizeof text - 1, false);
    struct pl_data *d = open_data(test_spec(",test=0,shuffle=no"), 1);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(d->ratings->rating[i].user, user[i]);
        assert_int_equal(d->ratings->rating[i].item, item[i]);
    }
}

/* Enough ids for the table to grow several times, many times apart. */
TEST(many_ids_are_told_apart) {
    enum { N = 5000 };
    size_t room = (size_t)N * 48, n = 0;
    char *text = malloc(room);
    for (uint64_t i = 0; i < N; i++)
        n += (size_t)snprintf(text + n, room - n, "%llu %llu %d\n",
                              (unsigned long long)((N - 1 - i) << 40), (unsigned long long)(i * i),
                              (int)(i % 100));
    test_write(text, n, true);
    struct pl_data *d = open_data(test_spec(",test=0,shuffle=no"), 1);
    assert_int_equal(d->ratings->n_users, N);
    assert_int_equal(d->ratings->n_items, N);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(d->ratings->rating[i].user, N - 1 - i);
        assert_int_equal(d->ratings->rating[i].item, i);
        assert_true(d->ratings->rating[i].value == (float)(i % 100));
    }
    free(text);
}

TEST(damage_is_told_with_its_line) {
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"1 2 3\n1 2\n", "line 2"},
        {"1 2 3\n\n1\n", "line 3"},
        {"1 2 x\n", "line 1"},
        {"1 2 nan\n", "finite"},
        {"1 2 -inf\n", "finite"},
        {"1 2 1e60\n", "finite"},
        {"1 2 3 x\n", "line 1"},
        {"1 2 3 4 5\n", "line 1"},
        {"1 2 3x\n", "line 1"},
        {"-1 2 3\n", "user"},
        {"1 -2 3\n", "item"},
        {"1.5 2 3\n", "user"},
        {"18446744073709551616 2 3\n", "user"},
        {"1:2:3\n", "line 1"},
        {"1,,2,3\n", "item"},
        {"1 2 3\nuserId,movieId,rating\n", "line 2"},
        {"", "no ratings"},
        {"\n\n", "no ratings"},
        {"userId,movieId,rating\n", "no ratings"},
        {"1\"1,2,3\n", "a quote inside of a field"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pl_data *d = NULL;
        struct pl_why why = {""};
        test_write(cases[i].text, strlen(cases[i].text), false);
        int rc = pl_data_open(test_spec(""), 1, &d, &why);
        if (rc != PL_EDATA || !strstr(why.text, cases[i].word))
            fail_msg("'%s' gave %d, \"%s\"", cases[i].text, rc, why.text);
        assert_null(d);
    }
    char line[400];
    memset(line, '1', sizeof line);
    test_write(line, sizeof line, false);
    struct pl_data *d = NULL;
    struct pl_why why = {""};
    assert_int_equal(pl_data_open(test_spec(""), 1, &d, &why), PL_EDATA);
    assert_non_null(strstr(why.text, "line 1: the line is too long"));
    test_write("1 2 3\n1 2\0003\n", 11, false);
    assert_int_equal(pl_data_open(test_spec(""), 1, &d, &why), PL_EDATA);
    assert_non_null(strstr(why.text, "line 2: zero byte"));
    assert_int_equal(pl_data_open("ratings:/nosuch/file", 1, &d, &why), PL_EIO);
    assert_int_equal(pl_data_open("ratings", 1, &d, &why), PL_EUSAGE);
}

/* Cut anywhere, a compressed file is refused or shorter, and nothing else happens. */
TEST(cut_files_do_no_harm) {
    static const char text[] = "1\t2\t3\t4\n5\t6\t7\t8\n9\t10\t11\t12\n";
    uint8_t bytes[256];
    test_write(text, sizeof text - 1, true);
    FILE *f = fopen(test_file, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t cut = 0; cut < n; cut++) {
        struct pl_data *d = NULL;
        struct pl_why why = {""};
        f = fopen(test_file, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, cut, f), cut);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(pl_data_open(test_spec(""), 1, &d, &why), PL_EDATA);
        assert_true(why.text[0] != '\0');
    }
}

/* Bytes changed at random: read, with numbers in range, or refused with a sentence. */
TEST(noise_does_no_harm) {
    static const char text[] = "1\t2\t3\t4\n5::6::7::8\n9,10,11,12\n13 14 15\n16 17 1.5e3\n";
    static const char bytes[] = "0123456789 \t,:.+-eEnx\n\r\0\xff";
    struct pl_rng rng;
    int n_read = 0;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, 0);
    for (int i = 0; i < 400; i++) {
        char noisy[sizeof text];
        struct pl_data *d = NULL;
        struct pl_why why = {""};
        memcpy(noisy, text, sizeof text);
        for (uint32_t n = 1 + pl_rng_below(&rng, 3); n > 0; n--)
            noisy[pl_rng_below(&rng, sizeof text - 1)] =
                bytes[pl_rng_below(&rng, sizeof bytes - 1)];
        test_write(noisy, sizeof text - 1, false);
        int rc = pl_data_open(test_spec(",test=0"), 1, &d, &why);
        if (rc) {
            assert_int_equal(rc, PL_EDATA);
            assert_non_null(strstr(why.text, "line "));
            continue;
        }
        n_read++;
        for (uint32_t r = 0; r < d->n_train; r++) {
            assert_true(d->ratings->rating[r].user < d->ratings->n_users);
            assert_true(d->ratings->rating[r].item < d->ratings->n_items);
            assert_true(isfinite(d->ratings->rating[r].value));
        }
        pl_data_free(d);
    }
    assert_true(n_read > 20 && n_read < 380);
}

/* ---- laws of sets ---- */

static int rating_order(const void *a, const void *b) {
    const struct pl_rating *x = a, *y = b;
    if (x->user != y->user) return x->user < y->user ? -1 : 1;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

#define SMALL "lowrank:users=300,items=200,ratings=9000"

/* All ratings of a set, sorted. */
static struct pl_rating *all_sorted(const struct pl_data *d) {
    size_t n = (size_t)d->n_train + d->n_test;
    struct pl_rating *all = malloc(n * sizeof *all);
    memcpy(all, d->ratings->rating, n * sizeof *all);
    qsort(all, n, sizeof *all, rating_order);
    return all;
}

TEST(splitting_loses_nothing) {
    struct pl_data *whole = open_data(SMALL ",test=0,shuffle=no", test_seed);
    struct pl_data *parted = open_data(SMALL ",test=0.25,shuffle=no", test_seed);
    struct pl_data *again = open_data(SMALL ",test=0.25,shuffle=no", test_seed);
    size_t n = whole->n_train;
    assert_int_equal(parted->n_train, n - n / 4);
    assert_int_equal(parted->n_test, n / 4);
    struct pl_rating *a = all_sorted(whole), *b = all_sorted(parted);
    assert_memory_equal(a, b, n * sizeof *a);
    assert_memory_equal(parted->ratings->rating, again->ratings->rating, n * sizeof *a);
    /* the test set is a fair draw: its rows come from all over the set */
    double sum = 0;
    for (size_t i = parted->n_train; i < n; i++) sum += parted->ratings->rating[i].value;
    sum /= parted->n_test;
    assert_true(fabs(sum - parted->ratings->mean) < 5 / sqrt((double)parted->n_test));
    float x[3];
    uint16_t label;
    uint32_t row = 0;
    pl_data_rows(parted, true, &row, 1, x, &label);
    assert_true(x[2] == parted->ratings->rating[parted->n_train].value);
    free(a);
    free(b);
}

/* Shuffling renames: the same values, and users keep their numbers of ratings. */
TEST(shuffling_renames) {
    struct pl_data *d[2] = {open_data(SMALL ",test=0,shuffle=no", test_seed),
                            open_data(SMALL ",test=0", test_seed)};
    uint32_t n = d[0]->n_train, n_users = d[0]->ratings->n_users;
    uint32_t *name = own_room(n_users, sizeof *name), n_moved = 0;
    bool *taken = own_room(n_users, sizeof *taken);
    memset(name, 0xff, n_users * sizeof *name);
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_rating *a = &d[0]->ratings->rating[i], *b = &d[1]->ratings->rating[i];
        assert_true(a->value == b->value);
        if (name[a->user] == UINT32_MAX) n_moved += a->user != b->user;
        if (name[a->user] == UINT32_MAX) name[a->user] = b->user;
        assert_int_equal(name[a->user], b->user);
    }
    assert_true(n_moved > n_users / 2);
    for (uint32_t u = 0; u < n_users; u++) {
        if (name[u] == UINT32_MAX) continue; /* this user was never drawn */
        assert_false(taken[name[u]]);
        taken[name[u]] = true;
    }
}

static double grid_unevenness(const struct pl_data *d, int g) {
    struct pl_grid *grid = open_grid(d, g);
    size_t most = 0, sum = 0;
    for (int b = 0; b < g * g; b++) {
        size_t size = pl_grid_size(grid, b / g, b % g);
        most = size > most ? size : most;
        sum += size;
    }
    assert_int_equal(sum, d->n_train);
    return (double)most * g * g / (double)sum;
}

TEST(shuffled_blocks_are_even) {
    struct pl_data *in_order = open_data("lowrank:ratings=200000,shuffle=no", test_seed);
    struct pl_data *shuffled = open_data("lowrank:ratings=200000", test_seed);
    double a = grid_unevenness(in_order, 4), b = grid_unevenness(shuffled, 4);
    print_message("largest block over the mean: in order %.2f, shuffled %.2f\n", a, b);
    assert_true(a > 3 && b < 1.5); /* in order: half of each side lies in the first quarter */
}

/* ---- grids ---- */

/* Walks a block; its ratings go to `to`, with the ids of the whole. Returns how many. */
static size_t grid_walk(const struct pl_data *d, const struct pl_grid *grid, int row, int col,
                        struct pl_rating *to) {
    uint32_t user, item, n_users, n_items;
    size_t n, found = 0;
    const struct pl_grid_entry *e = pl_grid_block(grid, row, col, &n);
    pl_grid_segment(d->ratings->n_users, pl_grid_side(grid), row, &user, &n_users);
    pl_grid_segment(d->ratings->n_items, pl_grid_side(grid), col, &item, &n_items);
    uint32_t first = user;
    for (size_t i = 0; i < n; i++) {
        uint32_t step = e[i].where >> 24, at = e[i].where & PL_GRID_ITEM;
        user += step == PL_GRID_FAR ? at : step;
        if (step == PL_GRID_FAR) continue;
        assert_true(user < first + n_users && at < n_items);
        to[found++] = (struct pl_rating){user, item + at, e[i].value};
        if (found > 1) /* by user, then by item */
            assert_true(to[found - 2].user < user ||
                        (to[found - 2].user == user && to[found - 2].item <= item + at));
    }
    return found;
}

TEST(grids_lose_nothing) {
    static const char *const specs[] = {
        SMALL, SMALL ",shuffle=no", "lowrank:users=5,items=3,ratings=40",
        "lowrank:users=4000,items=2,ratings=50,test=0", /* steps that do not fit an entry */
        "lowrank:users=1,items=1,ratings=1,test=0"};
    static const int sides[] = {1, 2, 3, 7, 64};
    for (size_t i = 0; i < 25; i++) {
        struct pl_data *d = open_data(specs[i / 5], test_seed);
        struct pl_grid *grid = open_grid(d, sides[i % 5]);
        struct pl_rating *all = own_room(d->n_train, sizeof *all);
        struct pl_rating *want = own_room(d->n_train, sizeof *want);
        size_t n = 0;
        for (int row = 0; row < sides[i % 5]; row++)
            for (int col = 0; col < sides[i % 5]; col++) {
                size_t found = grid_walk(d, grid, row, col, all + n);
                assert_int_equal(found, pl_grid_size(grid, row, col));
                n += found;
            }
        assert_int_equal(n, d->n_train);
        memcpy(want, d->ratings->rating, n * sizeof *want);
        qsort(want, n, sizeof *want, rating_order);
        qsort(all, n, sizeof *all, rating_order);
        assert_memory_equal(all, want, n * sizeof *all);
    }
}

/* Users 254, 255 and 256 apart: the last step that fits an entry, and those that do not. */
TEST(steps_of_every_length) {
    enum { USERS = 2200 };
    static const uint32_t far[] = {0, 254, 254 + 255, 254 + 255 + 256, 1099};
    size_t room = USERS * 16 + 200, n = 0;
    char *text = malloc(room);
    struct pl_rating found[8];
    for (int u = 0; u < USERS; u++) n += (size_t)snprintf(text + n, room - n, "%d 1 3\n", u);
    for (size_t i = 0; i < 5; i++)
        n += (size_t)snprintf(text + n, room - n, "%u 2 %zu\n", (unsigned)far[i], i);
    test_write(text, n, false);
    struct pl_data *d = open_data(test_spec(",test=0,shuffle=no"), 1);
    struct pl_grid *grid = open_grid(d, 2);
    assert_int_equal(pl_grid_size(grid, 0, 0), USERS / 2);
    assert_int_equal(pl_grid_size(grid, 0, 1), 5);
    assert_int_equal(pl_grid_size(grid, 1, 1), 0);
    assert_int_equal(grid_walk(d, grid, 0, 1, found), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(found[i].user, far[i]);
        assert_int_equal(found[i].item, 1);
        assert_true(found[i].value == (float)i);
    }
    free(text);
}

static int setup(void **state) {
    int failed = folder_make(state);
    snprintf(test_file, sizeof test_file, "%s/ratings", folder);
    return failed;
}

static int teardown(void **state) {
    unlink(test_file);
    return folder_remove(state);
}

ALL_TESTS_BETWEEN(setup, teardown)
