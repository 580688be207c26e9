/* Data sets: what is written comes back, what is damaged is refused with a sentence, generated
 * sets depend on their seed and nothing else. */
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "base/rng.h"
#include "data/data.h"
#include "folder.h"
#include "opened.h"
#include "setups.h"

#define N_TRAIN 3
#define N_TEST 2
#define SIDE 2
#define CIFAR_RECORD 3073

static void test_write_gz(const char *name, const void *bytes, size_t n) {
    gzFile f = gzopen(folder_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, bytes, (unsigned)n), n);
    assert_int_equal(gzclose(f), Z_OK);
}

/* Refused with this status and a sentence that holds `word`; nothing is left behind. */
static void test_refused(const char *spec, int status, const char *word) {
    struct pl_data *data = NULL;
    struct pl_why why = {""};
    int rc = pl_data_open(spec, test_seed, &data, &why);
    if (rc != status || !strstr(why.text, word))
        fail_msg("%s gave %d, \"%s\"; expected %d and '%s'", spec, rc, why.text, status, word);
    assert_null(data);
}

static const char *test_spec(const char *kind, const char *rest) {
    static char spec[1200];
    snprintf(spec, sizeof spec, "%s:%s%s", kind, folder, rest);
    return spec;
}

/* ---- IDX ---- */

static uint8_t idx_pictures[16 + N_TRAIN * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, N_TRAIN,
                                                           0, 0, 0, SIDE, 0, 0, 0, SIDE};
static uint8_t idx_labels[8 + N_TRAIN] = {0, 0, 8, 1, 0, 0, 0, N_TRAIN, 7, 0, 9};
static uint8_t idx_test_pictures[16 + N_TEST * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, N_TEST,
                                                               0, 0, 0, SIDE, 0, 0, 0, SIDE};
static uint8_t idx_test_labels[8 + N_TEST] = {0, 0, 8, 1, 0, 0, 0, N_TEST, 1, 2};

static void idx_write(bool gz) {
    void (*put)(const char *, const void *, size_t) = gz ? test_write_gz : folder_write;
    folder_empty(folder);
    for (uint8_t i = 0; i < N_TRAIN * SIDE * SIDE; i++) idx_pictures[16 + i] = (uint8_t)(20 * i);
    put(gz ? "train-images-idx3-ubyte.gz" : "train-images-idx3-ubyte", idx_pictures,
        sizeof idx_pictures);
    put(gz ? "train-labels-idx1-ubyte.gz" : "train-labels-idx1-ubyte", idx_labels,
        sizeof idx_labels);
    put(gz ? "t10k-images-idx3-ubyte.gz" : "t10k-images-idx3-ubyte", idx_test_pictures,
        sizeof idx_test_pictures);
    put(gz ? "t10k-labels-idx1-ubyte.gz" : "t10k-labels-idx1-ubyte", idx_test_labels,
        sizeof idx_test_labels);
}

TEST(idx_round_trip) {
    for (int gz = 0; gz < 2; gz++) {
        idx_write(gz);
        struct pl_data *data = open_data(test_spec("idx", ""), test_seed);
        assert_int_equal(data->n_train, N_TRAIN);
        assert_int_equal(data->n_test, N_TEST);
        assert_int_equal(data->dim, SIDE * SIDE);
        assert_int_equal(data->shape[0], 1);
        assert_int_equal(data->n_classes, 10);
        const uint32_t index[2] = {2, 0};
        float x[2 * SIDE * SIDE];
        uint16_t label[2];
        pl_data_rows(data, false, index, 2, x, label);
        assert_true(label[0] == 9 && label[1] == 7);
        for (int j = 0; j < SIDE * SIDE; j++) {
            assert_true(x[j] == (float)(20 * (8 + j)) * (1.0f / 255.0f));
            assert_true(x[4 + j] == (float)(20 * j) * (1.0f / 255.0f));
        }
        pl_data_rows(data, true, index + 1, 1, x, label);
        assert_int_equal(label[0], 1);
    }
}

TEST(idx_damage_is_refused) {
    uint8_t bytes[64];
    idx_write(false);
    for (size_t n = 0; n < sizeof idx_pictures; n++) {
        folder_write("train-images-idx3-ubyte", idx_pictures, n);
        test_refused(test_spec("idx", ""), PL_EDATA, "train-images-idx3-ubyte is truncated");
    }
    memcpy(bytes, idx_pictures, sizeof idx_pictures);
    folder_write("train-images-idx3-ubyte", bytes, sizeof idx_pictures + 1);
    test_refused(test_spec("idx", ""), PL_EDATA, "too long");
    /* any single wrong byte in the header is noticed, among them sizes up to 2^32 */
    for (size_t i = 0; i < 16; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bytes, idx_pictures, sizeof idx_pictures);
            bytes[i] ^= (uint8_t)(1 << bit);
            folder_write("train-images-idx3-ubyte", bytes, sizeof idx_pictures);
            test_refused(test_spec("idx", ""), PL_EDATA, "train-images-idx3-ubyte");
        }
    /* sizes whose product comes to zero in 32 bits */
    static const uint8_t wrap[16] = {0, 0, 8, 3, 0x10, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x10, 0};
    folder_write("train-images-idx3-ubyte", wrap, sizeof wrap);
    test_refused(test_spec("idx", ""), PL_EDATA, "truncated");
    idx_write(false);
    for (size_t n = 0; n < sizeof idx_labels; n++) {
        folder_write("train-labels-idx1-ubyte", idx_labels, n);
        test_refused(test_spec("idx", ""), PL_EDATA, "train-labels-idx1-ubyte is truncated");
    }
    memcpy(bytes, idx_labels, sizeof idx_labels);
    bytes[9] = 10;
    folder_write("train-labels-idx1-ubyte", bytes, sizeof idx_labels);
    test_refused(test_spec("idx", ""), PL_EDATA, "label 1 is 10");
    test_refused(test_spec("idx", ",classes=7"), PL_EDATA, "label 0 is 7");
    bytes[7] = N_TRAIN + 1;
    folder_write("train-labels-idx1-ubyte", bytes, sizeof idx_labels + 1);
    test_refused(test_spec("idx", ""), PL_EDATA, "has 4 labels");
    /* test pictures of another size */
    idx_write(false);
    memcpy(bytes, idx_test_pictures, sizeof idx_test_pictures);
    bytes[11] = 1;
    bytes[15] = 4;
    folder_write("t10k-images-idx3-ubyte", bytes, sizeof idx_test_pictures);
    test_refused(test_spec("idx", ""), PL_EDATA, "1x4");
    unlink(folder_path("t10k-images-idx3-ubyte"));
    test_refused(test_spec("idx", ""), PL_EIO, "t10k-images-idx3-ubyte");
    test_refused("idx", PL_EUSAGE, "idx:DIR");
    test_refused("idx:/nonexistent", PL_EIO, "/nonexistent");
}

/* Whatever is cut from a compressed file or changed in it, no damaged picture is handed out. */
TEST(gz_damage_is_refused) {
    const char *name = "train-images-idx3-ubyte.gz";
    uint8_t whole[256], bytes[256];
    idx_write(true);
    size_t n = folder_read(name, whole, sizeof whole);
    assert_in_range(n, 20, sizeof whole - 1);
    for (size_t cut = 0; cut < n; cut++) {
        folder_write(name, whole, cut);
        test_refused(test_spec("idx", ""), PL_EDATA, name);
    }
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            struct pl_data *data = NULL;
            struct pl_why why = {""};
            memcpy(bytes, whole, n);
            bytes[i] ^= (uint8_t)(1 << bit);
            folder_write(name, bytes, n);
            int rc = pl_data_open(test_spec("idx", ""), 1, &data, &why);
            if (rc == PL_OK) { /* time stamp and the like carry nothing */
                const uint32_t index[N_TRAIN] = {0, 1, 2};
                float x[N_TRAIN * SIDE * SIDE];
                uint16_t label[N_TRAIN];
                pl_data_rows(data, false, index, N_TRAIN, x, label);
                for (int j = 0; j < N_TRAIN * SIDE * SIDE; j++)
                    assert_true(x[j] == (float)(20 * j) * (1.0f / 255.0f));
            } else {
                assert_int_equal(rc, PL_EDATA);
                assert_non_null(strstr(why.text, name));
            }
            pl_data_free(data);
        }
    /* a compressed file that is no IDX, and a directory in place of a file */
    test_write_gz(name, "hello", 5);
    test_refused(test_spec("idx", ""), PL_EDATA, "is not an IDX file");
    unlink(folder_path(name));
    char dir[800];
    snprintf(dir, sizeof dir, "%s", folder_path("train-images-idx3-ubyte"));
    assert_int_equal(mkdir(dir, 0700), 0);
    test_refused(test_spec("idx", ""), PL_EIO, "not a plain file");
    assert_int_equal(rmdir(dir), 0);
}

/* ---- CIFAR-10 ---- */

static void cifar_record(uint8_t *record, uint8_t label) {
    record[0] = label;
    for (int i = 1; i < CIFAR_RECORD; i++) record[i] = (uint8_t)(i * 7 + label);
}

TEST(cifar_round_trip) {
    uint8_t *two = malloc(2 * CIFAR_RECORD);
    float *x = malloc(3072 * sizeof *x);
    char name[32];
    folder_empty(folder);
    for (uint8_t i = 0; i < 5; i++) {
        cifar_record(two, i);
        cifar_record(two + CIFAR_RECORD, (uint8_t)(9 - i));
        snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
        folder_write(name, two, 2 * CIFAR_RECORD);
    }
    folder_write("test_batch.bin", two, CIFAR_RECORD);
    struct pl_data *data = open_data(test_spec("cifar10", ""), test_seed);
    assert_int_equal(data->n_train, 10);
    assert_int_equal(data->n_test, 1);
    assert_int_equal(data->dim, 3072);
    assert_int_equal(data->shape[0], 3);
    const uint32_t index = 7; /* batch 4, second */
    uint16_t label;
    pl_data_rows(data, false, &index, 1, x, &label);
    assert_int_equal(label, 6);
    for (int j = 0; j < 3072; j++)
        assert_true(x[j] == (float)(uint8_t)((j + 1) * 7 + 6) * (1.0f / 255.0f));

    const size_t cuts[] = {0, 1, CIFAR_RECORD - 1, CIFAR_RECORD + 1, 2 * CIFAR_RECORD - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        folder_write("data_batch_2.bin", two, cuts[i]);
        test_refused(test_spec("cifar10", ""), PL_EDATA, "data_batch_2.bin");
    }
    two[CIFAR_RECORD] = 10;
    folder_write("data_batch_2.bin", two, 2 * CIFAR_RECORD);
    test_refused(test_spec("cifar10", ""), PL_EDATA, "record 1 has label 10");
    unlink(folder_path("data_batch_2.bin"));
    test_refused(test_spec("cifar10", ""), PL_EIO, "data_batch_2.bin");
    test_refused("cifar10", PL_EUSAGE, "cifar10:DIR");
    free(two);
    free(x);
}

/* ---- LIBSVM ---- */

static void libsvm_write(const char *name, const char *text) {
    folder_write(name, text, strlen(text));
}

TEST(libsvm_round_trip) {
    folder_empty(folder);
    libsvm_write("a", "+1 1:0.5 3:-2 # a comment\n\n-1 2:1e-1\r\n# all comment\n7\n-1 4:4\n"
                      "+1 1:1 2:2 3:3 4:4");
    libsvm_write("b", "7 6:1\n");
    struct pl_data *data = open_data(test_spec("libsvm", "/a"), test_seed);
    assert_int_equal(data->n_train, 4);
    assert_int_equal(data->n_test, 1);
    assert_int_equal(data->dim, 4);
    assert_int_equal(data->n_classes, 3);
    const uint32_t index[4] = {0, 1, 2, 3};
    const float want[16] = {0.5f, 0, -2, 0, 0, 0.1f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4};
    const uint16_t classes[4] = {1, 0, 2, 0};
    float x[24];
    uint16_t label[4];
    pl_data_rows(data, false, index, 4, x, label);
    assert_memory_equal(x, want, sizeof want);
    assert_memory_equal(label, classes, sizeof classes);
    pl_data_rows(data, true, index, 1, x, label);
    assert_true(label[0] == 1 && x[0] == 1 && x[3] == 4);

    char rest[600];
    snprintf(rest, sizeof rest, "/a,test=%s/b", folder);
    data = open_data(test_spec("libsvm", rest), test_seed);
    assert_int_equal(data->n_train, 5);
    assert_int_equal(data->n_test, 1);
    assert_int_equal(data->dim, 6);
    pl_data_rows(data, true, index, 1, x, label);
    assert_true(label[0] == 2 && x[5] == 1);
    data = open_data(test_spec("libsvm", "/a,share=0"), test_seed);
    assert_int_equal(data->n_test, 0);
}

TEST(libsvm_damage_is_refused) {
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"1 1:1\nx 1:1\n", "line 2: the label 'x'"},
        {"1 1:1\n1.5 1:1\n", "line 2"},
        {"1 1:1\nnan 1:1\n", "line 2"},
        {"1 1:1\n1e300 1:1\n", "line 2"},
        {"1 1:1\n2 0:1\n", "line 2: index 0"},
        {"1 1:1\n2 2:1 2:1\n", "line 2: index 2 follows 2"},
        {"1 1:1\n2 2:1 1:1\n", "ascend"},
        {"1 1:1\n2 1\n", "line 2: '1' is not index:value"},
        {"1 1:1\n2 -1:1\n", "line 2"},
        {"1 1:1\n2 :1\n", "line 2"},
        {"1 1:1\n2 1:\n", "line 2"},
        {"1 1:1\n2 1:inf\n", "line 2"},
        {"1 1:1\n2 1:1e39\n", "line 2"},
        {"1 1:1\n2 1:1x\n", "line 2"},
        {"1 1:1\n2 4294967297:1\n", "line 2"},
        {"1 1:1\n2 99999999999999999999999:1\n", "line 2"},
        {"1 1:1\n2 1:0000000000000000000000000000000000000000000000000000000000000000001\n",
         "line 2: this is not LIBSVM text"},
        {"1 1:1\n1 2:1\n", "1 different labels"},
        {"1\n2\n", "no features"},
        {"", "no rows"},
        {"# nothing\n\n", "no rows"},
    };
    folder_empty(folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        libsvm_write("bad", bad[i].text);
        test_refused(test_spec("libsvm", "/bad"), PL_EDATA, bad[i].word);
    }
    folder_write("bad", "1 1:1\n2 1:1\0 2:1\n", 16);
    test_refused(test_spec("libsvm", "/bad"), PL_EDATA, "line 2");
    test_refused(test_spec("libsvm", "/none"), PL_EIO, "none");
    test_refused("libsvm", PL_EUSAGE, "libsvm:FILE");
}

/* Random text never crashes the reader, and is refused or read. */
TEST(libsvm_survives_noise) {
    static const char alphabet[] = "0123456789:::   ..--+e#\n\n\r\tx";
    struct pl_rng rng;
    char text[200];
    folder_empty(folder);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 0, 0);
    for (int i = 0; i < 1500; i++) {
        uint32_t n = pl_rng_below(&rng, sizeof text);
        for (uint32_t j = 0; j < n; j++) text[j] = alphabet[pl_rng_below(&rng, sizeof alphabet)];
        folder_write("noise", text, n);
        struct pl_data *data = NULL;
        struct pl_why why = {""};
        int rc = pl_data_open(test_spec("libsvm", "/noise"), 1, &data, &why);
        if (rc) {
            assert_int_equal(rc, PL_EDATA);
            assert_true(why.text[0] != '\0');
        } else {
            pl_data_free(data);
        }
    }
}

/* ---- generated ---- */

TEST(generated_sets_follow_their_seed) {
    static const char *const specs[] = {"blobs:samples=50,test=20", "digits:samples=50,test=20"};
    for (size_t s = 0; s < 2; s++) {
        struct pl_data *a, *b, *c;
        a = open_data(specs[s], test_seed);
        b = open_data(specs[s], test_seed);
        c = open_data(specs[s], test_seed + 1);
        assert_int_equal(a->n_train, 50);
        assert_int_equal(a->n_test, 20);
        assert_int_equal(a->n_classes, 10);
        size_t dim = a->dim;
        float *x = own_room(3 * dim, sizeof *x);
        uint16_t label[3];
        for (uint32_t i = 0; i < 20; i++) {
            pl_data_rows(a, i % 2, &i, 1, x, label);
            pl_data_rows(b, i % 2, &i, 1, x + dim, label + 1);
            pl_data_rows(c, i % 2, &i, 1, x + 2 * dim, label + 2);
            assert_memory_equal(x, x + dim, dim * sizeof *x);
            assert_memory_not_equal(x, x + 2 * dim, dim * sizeof *x);
            assert_true(label[0] == label[1] && label[0] < 10);
            pl_data_rows(a, !(i % 2), &i, 1, x + dim, label);
            assert_memory_not_equal(x, x + dim, dim * sizeof *x);
        }
    }
    test_refused("blobs:samples=0", PL_EUSAGE, "samples");
    test_refused("digits:side=4", PL_EUSAGE, "side");
    test_refused("blobs:samples=100000000,dim=1000000", PL_EUSAGE, "GiB");
    test_refused("nosuch", PL_EUSAGE, "nosuch");
}

/* Where Debian's package is installed it must load; where it is not, the sentence must help. */
TEST(fashion_loads_or_explains) {
    struct pl_data *data = NULL;
    struct pl_why why = {""};
    int rc = pl_data_open("fashion", 1, &data, &why);
    if (rc) {
        assert_non_null(strstr(why.text, "dataset-fashion-mnist"));
        print_message("fashion: %s\n", why.text);
        skip();
    }
    assert_int_equal(data->n_train, 60000);
    assert_int_equal(data->n_test, 10000);
    assert_int_equal(data->dim, 784);
    pl_data_free(data);
}

/* ---- files that would block or never end ---- */

TEST(pipes_are_refused) {
    char law[300];
    const char *pipe = folder_path("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    pl_run *run = NULL;
    pl_setup *s = plain();
    set(s, "data", "digits"); /* fashion need not be installed */
    set(s, "script", folder_path("pipe"));
    assert_int_equal(pl_simulate(s, &run), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "is not a plain file"));
    set(s, "script", "");
    snprintf(law, sizeof law, "trace:file=%s", folder_path("pipe"));
    set(s, "delay", law);
    assert_int_equal(pl_simulate(s, &run), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "is not a plain file"));
    s = plain();
    set(s, "data", "digits");
    set(s, "layout", folder_path("pipe"));
    assert_int_equal(pl_train(s, &run), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "is not a plain file"));
    snprintf(law, sizeof law, "%s", folder_path("pipe"));
    assert_int_equal(pl_report(s, &(const char *){law}, 1, folder_path("page.html")), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "is not a plain file"));
    unlink(folder_path("pipe"));
}

/* The stream is damaged after a megabyte. Who reads the first bytes only does not notice. */
static void write_zeros(const char *to) {
    gzFile gz = gzopen(to, "wb1");
    static const char zeros[1 << 16];
    assert_non_null(gz);
    for (int i = 0; i < 64; i++) assert_true(gzwrite(gz, zeros, sizeof zeros) > 0);
    gzclose(gz);
    struct stat st;
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(truncate(to, st.st_size / 2), 0);
}

TEST(idx_looks_at_the_magic_first) {
    static const char *const name[] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                       "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
    struct pl_data *data = NULL;
    struct pl_why why = {.text = ""};
    char spec[300], dir[200], file[300];
    snprintf(dir, sizeof dir, "%s", folder_path("zeros"));
    mkdir(dir, 0700);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", dir, name[i]);
        write_zeros(file);
    }
    snprintf(spec, sizeof spec, "idx:%s", dir);
    assert_int_equal(pl_data_open(spec, 1, &data, &why), PL_EDATA);
    if (!strstr(why.text, "begins with 00000000")) fail_msg("%s", why.text);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", dir, name[i]);
        unlink(file);
    }
    rmdir(dir);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
