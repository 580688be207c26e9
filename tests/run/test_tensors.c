/* Files of tensors: what is written comes back; no flipped bit, cut or hostile header gets through;
 * a write that fails changes nothing. Files are written to a fresh directory under TMPDIR. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "folder.h"
#include "run/tensors.h"
#include "test.h"

static struct pl_tensors *test_read(const char *name) {
    struct pl_tensors *t = NULL;
    struct pl_why why = {""};
    if (pl_tensors_read(folder_path(name), &t, &why)) fail_msg("%s", why.text);
    return t;
}

/* Refused with this status and a sentence that holds `word`. */
static void test_refused(const char *name, int status, const char *word, const char *what) {
    struct pl_tensors *t = NULL;
    struct pl_why why = {""};
    int rc = pl_tensors_read(folder_path(name), &t, &why);
    if (rc != status || !strstr(why.text, word))
        fail_msg("%s gave %d, \"%s\"; expected %d and '%s'", what, rc, why.text, status, word);
    if (status == PL_EDATA) assert_non_null(strstr(why.text, "is damaged: "));
    assert_null(t);
}

/* ---- what is written ---- */

static const float some_floats[6] = {1, -2.5f, 3e-40f, 0, 5, 6};
static const double some_doubles[2] = {3.141592653589793, -0.0};
static const uint64_t some_wholes[3] = {UINT64_MAX, 0, 1234567890123456789};
static const uint8_t some_bytes[5] = {0, 255, 34, 92, 10};

static const struct pl_tensor some[] = {
    {"bytes", PL_U8, 1, {5}, some_bytes, sizeof some_bytes},
    {"layer1.weight", PL_F32, 2, {2, 3}, some_floats, sizeof some_floats},
    {"one", PL_F32, 0, {0}, some_floats + 1, sizeof *some_floats},
    {"nothing", PL_F64, 1, {0}, NULL, 0},
    {"numbers \"quoted\" Δ", PL_F64, 1, {2}, some_doubles, sizeof some_doubles},
    {"wholes", PL_U64, 4, {1, 3, 1, 1}, some_wholes, sizeof some_wholes},
};

#define N_SOME (sizeof some / sizeof *some)

static const struct pl_meta some_meta[] = {
    {"spec", "mlp:hidden=\"256\"\n\\Δ"},
    {"empty", ""},
};

static int some_write(const char *name, struct pl_why *why) {
    return pl_tensors_write(folder_path(name), some, N_SOME, some_meta, 2, why);
}

TEST(round_trip) {
    struct pl_why why = {""};
    folder_empty(folder);
    if (some_write("a", &why)) fail_msg("%s", why.text);
    assert_int_equal(folder_count(folder), 1); /* no temporary is left */
    struct pl_tensors *t = test_read("a");
    assert_true(pl_tensors_checked(t));
    assert_int_equal(pl_tensors_count(t), N_SOME);
    for (size_t i = 0; i < N_SOME; i++) {
        const struct pl_tensor *read = pl_tensors_find(t, some[i].name);
        assert_ptr_equal(read, pl_tensors_at(t, i)); /* in the writer's order */
        assert_int_equal(read->type, some[i].type);
        assert_int_equal(read->n_dims, some[i].n_dims);
        assert_memory_equal(read->shape, some[i].shape, sizeof read->shape);
        assert_int_equal(read->bytes, some[i].bytes);
        if (read->bytes) assert_memory_equal(read->data, some[i].data, read->bytes);
        size_t size = read->type == PL_U8 ? 1 : read->type == PL_F32 ? 4 : 8;
        assert_int_equal((uintptr_t)read->data % size, 0);
    }
    assert_null(pl_tensors_find(t, "layer1"));
    assert_string_equal(pl_tensors_meta(t, "spec"), some_meta[0].value);
    assert_string_equal(pl_tensors_meta(t, "empty"), "");
    assert_string_equal(pl_tensors_meta(t, "format"), "pt");
    assert_null(pl_tensors_meta(t, "other"));
    pl_tensors_free(t);
    struct stat st;
    assert_int_equal(stat(folder_path("a"), &st), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(st.st_mode & 0777, 0644 & ~mask);
}

TEST(a_file_of_nothing) {
    struct pl_why why = {""};
    if (pl_tensors_write(folder_path("none"), NULL, 0, NULL, 0, &why)) fail_msg("%s", why.text);
    struct pl_tensors *t = test_read("none");
    assert_true(pl_tensors_checked(t));
    assert_int_equal(pl_tensors_count(t), 0);
    pl_tensors_free(t);
}

TEST(what_cannot_be_read_is_not_written) {
    char *name = malloc(300);
    memset(name, 'x', 299);
    name[299] = '\0';
    const struct {
        const char *word;
        struct pl_tensor t[2];
        struct pl_meta meta;
    } bad[] = {
        {"same name twice", {some[1], some[1]}, {"a", "b"}},
        {"same name twice", {some[0], some[1]}, {"sha256", "00000000"}},
        {"same name twice", {some[0], some[1]}, {"format", "pt"}},
        {"UTF-8", {some[0], some[1]}, {"path", "caf\xe9"}},
        {"UTF-8", {some[0], {"\xff", PL_U8, 1, {5}, some_bytes, 5}}, {"a", "b"}},
        {"needs 5 bytes", {some[1], {"a", PL_U8, 1, {5}, some_bytes, 4}}, {"a", "b"}},
        {"299 bytes", {some[1], {name, PL_U8, 1, {5}, some_bytes, 5}}, {"a", "b"}},
        {"0 bytes", {some[1], {"", PL_U8, 1, {5}, some_bytes, 5}}, {"a", "b"}},
        {"control", {some[1], {"a\033b", PL_U8, 1, {5}, some_bytes, 5}}, {"a", "b"}},
        {"dimensions", {some[1], {"a", PL_U8, 9, {5}, some_bytes, 5}}, {"a", "b"}},
        {"not a string", {some[0], some[1]}, {"a", NULL}},
    };
    folder_empty(folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pl_why why = {""};
        int rc = pl_tensors_write(folder_path("bad"), bad[i].t, 2, &bad[i].meta, 1, &why);
        if (rc != PL_EUSAGE || !strstr(why.text, bad[i].word))
            fail_msg("%zu gave %d, \"%s\"; expected '%s'", i, rc, why.text, bad[i].word);
        assert_int_equal(folder_count(folder), 0);
    }
    free(name);
}

/* ---- damage ---- */

TEST(every_flipped_bit_is_found) {
    uint8_t file[2048];
    struct pl_why why = {""};
    if (some_write("flip", &why)) fail_msg("%s", why.text);
    size_t n = folder_read("flip", file, sizeof file);
    assert_true(n > 500 && n < sizeof file);
    FILE *f = fopen(folder_path("flip"), "r+b");
    assert_non_null(f);
    setvbuf(f, NULL, _IONBF, 0);
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            char what[64];
            snprintf(what, sizeof what, "bit %d of byte %zu", bit, i);
            fseek(f, (long)i, SEEK_SET);
            fputc(file[i] ^ 1 << bit, f);
            test_refused("flip", PL_EDATA, "damaged", what);
        }
        fseek(f, (long)i, SEEK_SET);
        fputc(file[i], f);
    }
    fclose(f);
    pl_tensors_free(test_read("flip")); /* put back, it is whole again */
}

TEST(every_cut_is_found) {
    uint8_t file[2049] = {0};
    struct pl_why why = {""};
    if (some_write("cut", &why)) fail_msg("%s", why.text);
    size_t n = folder_read("cut", file, sizeof file - 1);
    for (size_t i = 0; i < n; i++) {
        char what[64];
        snprintf(what, sizeof what, "cut to %zu", i);
        folder_write("cut", file, i);
        test_refused("cut", PL_EDATA, "damaged", what);
    }
    folder_write("cut", file, n + 1);
    test_refused("cut", PL_EDATA, "damaged", "one byte more");
}

/* A file with this header and as many bytes of data. */
static void put_header(const char *name, const char *header, size_t n_header, size_t n_data) {
    uint8_t *file = calloc(8 + n_header + n_data, 1);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)(n_header >> (8 * i));
    memcpy(file + 8, header, n_header);
    folder_write(name, file, 8 + n_header + n_data);
    free(file);
}

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define T(dtype, shape, from, to)                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

TEST(hostile_headers_are_refused) {
    static const struct {
        const char *header;
        size_t n_data;
        const char *word;
    } bad[] = {
        {"", 0, "begin with {"},
        {" {}", 0, "begin with {"},
        {"[]", 0, "begin with {"},
        {"{", 0, "not JSON"},
        {"{}x", 0, "not JSON"},
        {"{}", 1, "0 bytes of data, but it has 1"},
        {"{\"a\":" T("F32", "2", "0", "8") "}", 7, "outside"},
        {"{\"a\":" T("F32", "2", "0", "8") "}", 9, "8 bytes of data, but it has 9"},
        {"{\"a\":" T("F32", "3", "0", "8") "}", 8, "needs 12 bytes"},
        {"{\"a\":" T("F32", "", "0", "8") "}", 8, "needs 4 bytes"},
        {"{\"a\":" T("F8", "4", "0", "4") "}", 4, "unknown dtype"},
        {"{\"a\":" T("F32", "-2", "0", "8") "}", 8, "not a whole number"},
        {"{\"a\":" T("F32", "2.0", "0", "8") "}", 8, "not a whole number"},
        {"{\"a\":" T("F32", "\"2\"", "0", "8") "}", 8, "not a whole number"},
        {"{\"a\":" T("F32", "2", "-8", "0") "}", 8, "outside"},
        {"{\"a\":" T("F32", "2", "8", "0") "}", 8, "outside"},
        {"{\"a\":" T("F32", "2", "0", "9223372036854775807") "}", 8, "outside"},
        {"{\"a\":" T("F32", "2", "0", "18446744073709551616") "}", 8, "not JSON"},
        {"{\"a\":" T("F32", "2", "0", "8.5") "}", 8, "data_offsets"},
        {"{\"a\":" T("F32", "2", "0", "8,8") "}", 8, "data_offsets"},
        {"{\"a\":" T("U64", "2305843009213693952", "0", "0") "}", 0, "too large"},
        {"{\"a\":" T("U64", "4294967296,4294967296", "0", "0") "}", 0, "too large"},
        {"{\"a\":" T("U8", "4294967296,4294967296,4", "0", "0") "}", 0, "too large"},
        {"{\"a\":" T("U8", "9223372036854775807,2,2", "0", "0") "}", 0, "too large"},
        {"{\"a\":" T("U8", "1,1,1,1,1,1,1,1,1", "0", "1") "}", 1, "at most 8 dimensions"},
        {"{\"a\":" T("U8", "4", "0", "4") ",\"b\":" T("U8", "4", "2", "6") "}", 6, "overlap"},
        {"{\"a\":" T("U8", "4", "0", "4") ",\"b\":" T("U8", "4", "0", "4") "}", 4, "overlap"},
        {"{\"a\":" T("U8", "2", "0", "2") ",\"b\":" T("U8", "2", "4", "6") "}", 6, "a hole"},
        {"{\"a\":" T("U8", "2", "2", "4") "}", 4, "a hole"},
        {"{\"a\":" T("U8", "2", "0", "2") ",\"a\":" T("U8", "2", "2", "4") "}", 4, "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
         "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"more\":1}}", 1,
         "nothing else"},
        {"{\"a\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,1]}}", 1, "dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "no shape"},
        {"{\"a\":[]}", 0, "dtype"},
        {"{\"a\":null}", 0, "dtype"},
        {"{\"\":" T("U8", "", "0", "1") "}", 1, "0 bytes"},
        {"{\"a\\u001b\":" T("U8", "", "0", "1") "}", 1, "control"},
        {"{\"a\\u0000\":" T("U8", "", "0", "1") "}", 1, "not JSON"},
        {"{\"\xff\":" T("U8", "", "0", "1") "}", 1, "UTF-8"},
        {"{\"\xc0\xaf\":" T("U8", "", "0", "1") "}", 1, "UTF-8"},
        {"{\"\xed\xa0\x80\":" T("U8", "", "0", "1") "}", 1, "UTF-8"},
        {"{\"__metadata__\":[]}", 0, "not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "not a string"},
        {"{\"__metadata__\":{\"a\":{}}}", 0, "not a string"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
        {"{\"__metadata__\":{\"sha256\":\"" DIGITS "\"}}", 0, "SHA-256 does not match"},
        {"{\"__metadata__\":{\"sha256\":\"\"}}", 0, "does not begin as this version"},
        {"{\"__metadata__\":{\"sha256\":\"", 0, "not JSON"},
        {"{\"__metadata__\": {\"sha256\":\"" DIGITS "\"}}", 0, "does not begin as this version"},
        {"{\"__metadata__\":{\"writer\":\"paceline\"}}", 0, "does not begin as this version"},
        {"{\"__metadata__\":{\"crc32\":\"00000000\",\"sha256\":\"" DIGITS "\"}}", 0,
         "does not begin as this version"},
        {"{\"a\":[[[[[[[[[[[]]]]]]]]]]]}", 0, "nested deeper than 8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_header("hostile", bad[i].header, strlen(bad[i].header), bad[i].n_data);
        test_refused("hostile", PL_EDATA, bad[i].word, bad[i].header);
    }
}

TEST(large_headers_are_bounded) {
    size_t n = (size_t)3 << 20;
    char *header = malloc(n);
    memset(header, '[', n);
    header[0] = '{';
    put_header("large", header, n, 0);
    test_refused("large", PL_EDATA, "nested deeper", "open brackets");
    memset(header, ',', n);
    memcpy(header, "{\"a\":[0", 7);
    for (size_t i = 7; i + 1 < n; i += 2) header[i + 1] = '0';
    put_header("large", header, n, 0);
    test_refused("large", PL_EDATA, "more than 1048576 values", "many values");
    /* a quote that never ends hides nothing from the parser */
    memset(header, '[', n);
    memcpy(header, "{\"", 2);
    put_header("large", header, n, 0);
    test_refused("large", PL_EDATA, "not JSON", "an open quote");
    memset(header, 'a', n);
    memcpy(header, "{\"", 2);
    memcpy(header + n - 5, "\":{}}", 5);
    put_header("large", header, n, 0);
    test_refused("large", PL_EDATA, "it has a name of", "a long name");
    free(header);

    static const uint64_t length[] = {11,         12,         100000001,  1ull << 31,
                                      1ull << 32, 1ull << 62, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
        uint8_t file[18] = "........{}        ";
        for (int b = 0; b < 8; b++) file[b] = (uint8_t)(length[i] >> (8 * b));
        folder_write("large", file, sizeof file);
        bool absurd = length[i] > 100000000;
        test_refused("large", PL_EDATA, absurd ? "not a safetensors file" : "header would take",
                     "a length");
    }
}

TEST(files_of_others_are_read) {
    static const char header[] = "{\"b\": " T("U8", "2", "8", "10") ",\n\t\"a\": " T(
        "F32", "1, 2", "0", "8") ", \"e\":" T("F64", "0,7", "8", "8") " }  ";
    put_header("other", header, strlen(header), 10);
    struct pl_tensors *t = test_read("other");
    assert_false(pl_tensors_checked(t));
    assert_int_equal(pl_tensors_count(t), 3);
    assert_string_equal(pl_tensors_at(t, 0)->name, "b"); /* in the order of the header */
    assert_int_equal(pl_tensors_find(t, "a")->bytes, 8);
    assert_null(pl_tensors_meta(t, "format"));
    pl_tensors_free(t);
}

/* Without a checksum it is the checks alone that stand between a file and its reader. Whatever gets
 * through must lie inside the file. */
TEST(noise_is_survived) {
    static const char header[] =
        "{\"__metadata__\":{\"a\":\"b\"},\"b\":" T("U8", "2", "8", "10") ",\"a\":" T(
            "F32", "1,2", "0", "8") ",\"c\":" T("U64", "3,1,1", "10", "34") "}";
    static const char letters[] = "0123456789{}[],:\"\\-.eF \xff\x01";
    uint8_t file[512], *noisy = malloc(sizeof file);
    put_header("noise", header, strlen(header), 34);
    size_t n = folder_read("noise", file, sizeof file), n_read = 0;
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 0, 0);
    for (int i = 0; i < 5000; i++) {
        memcpy(noisy, file, n);
        for (uint32_t j = 0; j <= pl_rng_below(&rng, 3); j++)
            noisy[8 + pl_rng_below(&rng, (uint32_t)n - 8)] =
                (uint8_t)letters[pl_rng_below(&rng, sizeof letters - 1)];
        folder_write("noise", noisy, n);
        struct pl_tensors *t = NULL;
        if (pl_tensors_read(folder_path("noise"), &t, NULL)) continue;
        n_read++;
        unsigned sum = 0;
        for (size_t k = 0; k < pl_tensors_count(t); k++)
            for (size_t b = 0; b < pl_tensors_at(t, k)->bytes; b++)
                sum += ((const uint8_t *)pl_tensors_at(t, k)->data)[b];
        assert_true(sum <= 34 * 255);
        pl_tensors_free(t);
    }
    free(noisy);
    assert_true(n_read > 0 && n_read < 5000);
}

TEST(only_plain_files) {
    folder_empty(folder);
    test_refused("missing", PL_EIO, "No such file", "a missing file");
    assert_int_equal(mkfifo(folder_path("pipe"), 0600), 0);
    test_refused("pipe", PL_EIO, "is not a plain file", "a pipe");
    assert_int_equal(mkdir(folder_path("folder"), 0700), 0);
    test_refused("folder", PL_EIO, "is not a plain file", "a folder");
    struct pl_why why = {""};
    assert_int_equal(some_write("folder", &why), PL_EIO);
    assert_non_null(strstr(why.text, "cannot be written"));
    assert_int_equal(some_write("nowhere/file", &why), PL_EIO);
    assert_int_equal(some_write("pipe/file", &why), PL_EIO);
    assert_int_equal(folder_count(folder), 2);
}

/* A limit on the size of files stands for a disk that is full: a write ends in the middle. */
TEST(a_full_disk_changes_nothing) {
    uint8_t before[2048], after[2048];
    struct pl_why why = {""};
    folder_empty(folder);
    if (pl_tensors_write(folder_path("full"), some, 2, NULL, 0, &why)) fail_msg("%s", why.text);
    size_t n_before = folder_read("full", before, sizeof before);
    if (some_write("size", &why)) fail_msg("%s", why.text);
    size_t size = folder_read("size", after, sizeof after);
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (size_t room = 0; room < size; room += 7) {
        limit = old;
        limit.rlim_cur = room;
        /* nothing may be printed between these two */
        int set = setrlimit(RLIMIT_FSIZE, &limit), rc = some_write("full", &why);
        int unset = setrlimit(RLIMIT_FSIZE, &old);
        assert_true(set == 0 && unset == 0);
        assert_int_equal(rc, PL_EIO);
        assert_non_null(strstr(why.text, "cannot be written: File too large"));
        assert_int_equal(folder_count(folder), 2);
        assert_int_equal(folder_read("full", after, sizeof after), n_before);
        assert_memory_equal(before, after, n_before);
    }
    signal(SIGXFSZ, handler);
    if (some_write("full", &why)) fail_msg("%s", why.text);
    assert_int_equal(folder_read("full", after, sizeof after), size);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
