/* The bytes of a safetensors file, written out by hand, and the hash over them. */
#include "folder.h"
#include "run/tensors.h"
#include "test.h"

/* Bit by bit, after the polynomial. */
/* By sha256sum(1), another implementation. */
static void sha256sum(const uint8_t *p, size_t n, char digits[65]) {
    char command[600];
    folder_write("summed", p, n);
    snprintf(command, sizeof command, "sha256sum '%s'", folder_path("summed"));
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fread(digits, 1, 64, f), 64);
    digits[64] = '\0';
    pclose(f);
}

TEST(bytes_lie_as_the_format_says) {
    const float w[3] = {1, 2, -1};
    const uint64_t k = 258;
    const struct pl_tensor two[] = {{"w", PL_F32, 2, {3, 1}, w, sizeof w},
                                    {"run.k", PL_U64, 1, {1}, &k, sizeof k}};
    const struct pl_meta meta = {"updates", "7"};
    struct pl_why why = {""};
    uint8_t file[1024];
    if (pl_tensors_write(folder_path("b"), two, 2, &meta, 1, &why)) fail_msg("%s", why.text);
    size_t n = folder_read("b", file, sizeof file);

    static const char front[] = "{\"__metadata__\":{\"sha256\":\"";
    static const char rest[] =
        "\",\"format\":\"pt\",\"writer\":\"paceline\",\"updates\":\"7\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[8,20]},"
        "\"run.k\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[0,8]}}";
    size_t header = file[0] + 256u * file[1], used = strlen(front) + 64 + strlen(rest);
    size_t sha_at = 8 + strlen(front);
    for (int i = 2; i < 8; i++) assert_int_equal(file[i], 0);
    assert_int_equal(header % 8, 0);
    assert_true(header >= used && header < used + 64);
    assert_int_equal(n, 8 + header + 20);
    assert_memory_equal(file + 8, front, strlen(front));
    assert_memory_equal(file + sha_at + 64, rest, strlen(rest));
    for (size_t i = used; i < header; i++) assert_int_equal(file[8 + i], ' ');
    static const uint8_t data[20] = {2,   1, 0,    0,    0, 0, 0,    0, /* 258 */
                                     0,   0, 0x80, 0x3f,                /* 1 */
                                     0,   0, 0,    0x40, 0, 0, 0x80,    /* 2, -1 */
                                     0xbf};
    assert_memory_equal(file + 8 + header, data, sizeof data);

    /* the hash covers every byte, with its own digits as zeros */
    char hash[65], hash_expected[65];
    memcpy(hash, file + sha_at, 64);
    hash[64] = '\0';
    memset(file + sha_at, '0', 64);
    sha256sum(file, n, hash_expected);
    assert_string_equal(hash, hash_expected);
}

/* A change is found by the hash, and a file of ours without one is refused. */
TEST(a_file_of_ours_needs_its_hash) {
    const float w[3] = {1, 2, -1};
    const struct pl_tensor one = {"w", PL_F32, 1, {3}, w, sizeof w};
    struct pl_why why = {""};
    uint8_t file[1024];
    if (pl_tensors_write(folder_path("h"), &one, 1, NULL, 0, &why)) fail_msg("%s", why.text);
    size_t n = folder_read("h", file, sizeof file);
    for (int lacks = 0; lacks < 2; lacks++) {
        if (lacks) { /* another name for the hash: the file is as if it had none */
            char *name = strstr((char *)file + 8, "sha256");
            assert_non_null(name);
            memcpy(name, "sha255", 6);
        } else {
            file[n - 1] ^= 1;
        }
        folder_write("h", file, n);
        struct pl_tensors *t = NULL;
        int rc = pl_tensors_read(folder_path("h"), &t, &why);
        assert_int_equal(rc, PL_EDATA);
        if (!lacks) assert_non_null(strstr(why.text, "is damaged: its SHA-256 does not match"));
        pl_tensors_free(t);
    }
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
