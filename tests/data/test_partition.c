/* Partitions of a data set: every row has one owner, every worker a row, and a mini-batch is a
 * function of its number. */
#include "data/data.h"
#include "opened.h"

/* seen [n_train] counts how often each row lies in a share; returns the smallest share. */
static uint32_t partition_count(const struct pl_partition *p, int n_workers, uint32_t *seen) {
    uint32_t least = UINT32_MAX;
    for (uint32_t w = 0; w < (uint32_t)n_workers; w++) {
        uint32_t size = pl_partition_size(p, w), *index = own_room(size + 1, sizeof *index);
        assert_true(size > 0);
        /* one pass over a share is the share */
        pl_partition_draw(p, PL_SAMPLE_EPOCH, test_seed, w, 0, size, index);
        for (uint32_t i = 0; i < size; i++) seen[index[i]]++;
        if (size < least) least = size;
    }
    return least;
}

static struct pl_partition *partition_open(const char *spec, const struct pl_data *data, int n) {
    struct pl_partition *p = NULL;
    struct pl_why why = {""};
    if (pl_partition_open(spec, data, n, test_seed, &p, &why)) fail_msg("%s: %s", spec, why.text);
    return p;
}

TEST(partition_deals_every_row_once) {
    static const char *const specs[] = {"iid", "label:alpha=100", "label", "label:alpha=0.001"};
    static const int workers[] = {1, 2, 7, 100, 997, 1000};
    struct pl_data *data = open_data("blobs:dim=1,samples=1000,test=0", test_seed);
    for (size_t s = 0; s < 4; s++)
        for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
            uint32_t seen[1000] = {0};
            struct pl_partition *p = partition_open(specs[s], data, workers[i]);
            uint32_t least = partition_count(p, workers[i], seen);
            for (int r = 0; r < 1000; r++) assert_int_equal(seen[r], 1);
            if (s == 0) assert_int_equal(least, 1000 / workers[i]);
            pl_partition_free(p);
        }
    struct pl_partition *p = NULL;
    struct pl_why why;
    assert_int_equal(pl_partition_open("iid", data, 1001, 1, &p, &why), PL_EUSAGE);
    assert_non_null(strstr(why.text, "1001 workers"));
    assert_int_equal(pl_partition_open("label:alpha=0", data, 2, 1, &p, &why), PL_EUSAGE);
    p = partition_open("whole", data, 100000);
    assert_int_equal(pl_partition_size(p, 99999), 1000);
    pl_partition_free(p);
}

/* Mean over workers of the largest part that one class has in a share: 0.1 for equal parts of ten
 * classes, 1 where each share is one class. */
static double partition_skew(const struct pl_data *data, const char *spec) {
    struct pl_partition *p = partition_open(spec, data, 20);
    uint32_t *index = own_room(data->n_train, sizeof *index);
    uint16_t *label = own_room(data->n_train, sizeof *label);
    float *x = own_room(data->n_train, sizeof *x);
    double sum = 0;
    for (uint32_t w = 0; w < 20; w++) {
        uint32_t n = pl_partition_size(p, w), count[10] = {0}, most = 0;
        pl_partition_draw(p, PL_SAMPLE_EPOCH, 1, w, 0, n, index);
        pl_data_rows(data, false, index, n, x, label);
        for (uint32_t i = 0; i < n; i++) count[label[i]]++;
        for (int k = 0; k < 10; k++) most = count[k] > most ? count[k] : most;
        sum += (double)most / n;
    }
    pl_partition_free(p);
    return sum / 20;
}

TEST(partition_skew_grows_as_alpha_falls) {
    struct pl_data *data = open_data("blobs:dim=1,samples=20000,test=0", test_seed);
    double iid = partition_skew(data, "iid"), even = partition_skew(data, "label:alpha=1000");
    double some = partition_skew(data, "label:alpha=1"),
           much = partition_skew(data, "label:alpha=.05");
    /* shares of 1000: the largest of ten parts of 0.1 is within 0.1 + 4 sqrt(.09/1000) */
    assert_true(iid < 0.14 && even < 0.14);
    assert_true(some > 1.5 * even && much > 1.3 * some && much > 0.5);
}

/* Batches cut across passes at any size; still every pass holds every row once. */
TEST(epoch_covers_each_pass) {
    static const char *const sizes[] = {"1", "2", "3", "5", "64", "65", "1000"};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        char spec[64];
        snprintf(spec, sizeof spec, "blobs:dim=1,test=0,samples=%s", sizes[s]);
        struct pl_data *data = open_data(spec, test_seed);
        struct pl_partition *p = partition_open("whole", data, 3);
        uint32_t n = data->n_train, seen[1000], order[2][1000], batch[7], pass = 0, at = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t b = 0; pass < 4; b++) {
            pl_partition_draw(p, PL_SAMPLE_EPOCH, test_seed, 1, b, 7, batch);
            for (int i = 0; i < 7 && pass < 4; i++) {
                assert_true(batch[i] < n);
                assert_int_equal(seen[batch[i]]++, pass);
                order[pass % 2][at++] = batch[i];
                if (at < n) continue;
                at = 0;
                if (pass++ > 0 && n >= 64) assert_memory_not_equal(order[0], order[1], n * 4);
            }
        }
        pl_partition_free(p);
    }
}

/* First and second places of shuffled passes are uniform and independent: chi-square over the
 * 90 ordered pairs of a share of ten, 89 degrees of freedom, mean 89, deviation 13.3; 6 allowed. */
TEST(epoch_order_is_uniform) {
    struct pl_data *data = open_data("blobs:dim=1,test=0,samples=10", test_seed);
    struct pl_partition *p = partition_open("whole", data, 1);
    double count[10][10] = {{0}}, chi2 = 0;
    const uint32_t n = 18000;
    for (uint64_t pass = 0; pass < n; pass++) {
        uint32_t index[10];
        pl_partition_draw(p, PL_SAMPLE_EPOCH, test_seed, 0, pass, 10, index);
        count[index[0]][index[1]]++;
    }
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 10; j++)
            if (i != j) chi2 += (count[i][j] - n / 90.0) * (count[i][j] - n / 90.0) / (n / 90.0);
    if (!(chi2 < 89 + 6 * 13.3)) fail_msg("chi-square %g", chi2);
    pl_partition_free(p);
}

TEST(draws_depend_on_nothing_else) {
    struct pl_data *data = open_data("blobs:dim=1,test=0,samples=500", test_seed);
    struct pl_partition *p = partition_open("iid", data, 5), *q = partition_open("iid", data, 5);
    uint32_t first[20][16], again[16], differ = 0;
    for (int sampling = PL_SAMPLE_IID; sampling <= PL_SAMPLE_EPOCH; sampling++) {
        for (uint32_t b = 0; b < 20; b++)
            pl_partition_draw(p, (enum pl_sampling)sampling, test_seed, b % 5, b, 16, first[b]);
        for (uint32_t b = 20; b-- > 0;) {
            pl_partition_draw(q, (enum pl_sampling)sampling, test_seed, b % 5, b, 16, again);
            assert_memory_equal(first[b], again, sizeof again);
            pl_partition_draw(q, (enum pl_sampling)sampling, test_seed + 1, b % 5, b, 16, again);
            differ += memcmp(first[b], again, sizeof again) != 0;
        }
    }
    assert_int_equal(differ, 40);
    pl_partition_free(p);
    pl_partition_free(q);
}
