/* Readers of binary files and data sets. What opens is also read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "fuzz.h"
#include "model/model.h"
#include "run/checkpoint.h"
#include "run/tensors_header.h"

#define ROWS 4

static void use_rows(const struct pl_data *d, bool test, uint32_t n) {
    uint32_t index[ROWS];
    uint16_t label[ROWS];
    if (n == 0 || d->dim > 1u << 20) return;
    for (uint32_t i = 0; i < ROWS; i++) index[i] = i < ROWS / 2 ? i % n : n - 1 - i % n;
    float *x = malloc(sizeof *x * ROWS * d->dim);
    if (!x) return;
    pl_data_rows(d, test, index, ROWS, x, label);
    for (int i = 0; i < ROWS; i++) FUZZ_MUST(d->n_classes == 0 || label[i] < d->n_classes);
    free(x);
}

static void use_data(const char *spec) {
    struct pl_data *d = NULL;
    struct pl_why why = {.text = ""};
    int rc = pl_data_open(spec, 1, &d, &why);
    FUZZ_MUST((rc == 0) == (d != NULL) && (rc == 0 || why.text[0]));
    if (rc) return;
    FUZZ_MUST(d->n_train > 0 && d->dim > 0);
    use_rows(d, false, d->n_train);
    use_rows(d, true, d->n_test);
    const struct pl_ratings *r = d->ratings;
    for (size_t i = 0; r && i < (size_t)r->n_train + r->n_test; i++)
        FUZZ_MUST(r->rating[i].user < r->n_users && r->rating[i].item < r->n_items);
    pl_data_free(d);
}

static void use_file(const char *kind, const uint8_t *data, size_t n, const char *options) {
    char spec[200];
    snprintf(spec, sizeof spec, "%s:%s%s", kind, fuzz_file(0, data, n), options);
    use_data(spec);
}

static void libsvm(const uint8_t *data, size_t n) {
    use_file("libsvm", data, n, "");
}

static void ratings(const uint8_t *data, size_t n) {
    use_file("ratings", data, n, "");
}

static void csv(const uint8_t *data, size_t n) {
    static const char *const options[] = {"", ",sep=blank", ",target=1", ",sep=comma,ignore=1"};
    struct fuzz_piece rest = {data, n};
    const char *o = options[fuzz_number(&rest, 1) % 4];
    use_file("csv", rest.data, rest.n, o);
}

static void npy(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n}, target = fuzz_cut(&rest);
    char spec[200];
    snprintf(spec, sizeof spec, "npy:file=%s,target=%s", fuzz_file(0, rest.data, rest.n),
             fuzz_file(1, target.data, target.n));
    use_data(spec);
}

static void idx(const uint8_t *data, size_t n) {
    static const char *const name[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                       "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    struct fuzz_piece rest = {data, n};
    char spec[200];
    for (int i = 0; i < 4; i++) {
        struct fuzz_piece p = i < 3 ? fuzz_cut(&rest) : rest;
        snprintf(spec, sizeof spec, "idx:%s", fuzz_folder(i, name[i]));
        fuzz_file(i, p.data, p.n);
    }
    use_data(spec);
}

/* A record has 3073 bytes; here zeros follow the bytes of the input up to a whole one. */
static void cifar(const uint8_t *data, size_t n) {
    static const char *const name[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                       "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    static uint8_t whole[4 * 3073];
    struct fuzz_piece rest = {data, n};
    char spec[200];
    for (int i = 0; i < 6; i++) {
        struct fuzz_piece p = i < 5 ? fuzz_cut(&rest) : rest;
        size_t pad = p.n % 2 ? 0 : (3073 - p.n % 3073) % 3073; /* half of them are cut short */
        snprintf(spec, sizeof spec, "cifar10:%s", fuzz_folder(i, name[i]));
        if (p.n + pad > sizeof whole || (p.n > 1 && p.data[0] == 0x1f)) pad = 0;
        if (pad) {
            memset(whole, 0, p.n + pad);
            memcpy(whole, p.data, p.n);
        }
        fuzz_file(i, pad ? whole : p.data, p.n + pad);
    }
    use_data(spec);
}

static void recording(const uint8_t *data, size_t n) {
    fuzz_recording(fuzz_file(0, data, n));
}

static void use_tensors(struct pl_tensors *t) {
    uint8_t sum = 0;
    for (size_t i = 0; i < pl_tensors_count(t); i++) {
        const struct pl_tensor *one = pl_tensors_at(t, i);
        for (size_t b = 0; b < one->bytes; b++) sum ^= ((const uint8_t *)one->data)[b];
        FUZZ_MUST(pl_tensors_find(t, one->name) != NULL);
        pl_tensor_finite(one);
    }
    if (sum == 0) pl_tensors_meta(t, "setup");
}

static void safetensors(const uint8_t *data, size_t n) {
    struct pl_tensors *t = NULL;
    struct pl_why why = {.text = ""};
    const char *path = fuzz_file(0, data, n);
    if (pl_tensors_read(path, &t, &why) == 0)
        use_tensors(t);
    else
        FUZZ_MUST(why.text[0]);
    pl_tensors_free(t);
    t = NULL;
    if (pl_tensors_head(path, &t, &why) == 0) pl_tensors_meta(t, "updates");
    pl_tensors_free(t);
}

/* A checkpoint whose hash is right: the input is the rest of its header, behind the
 * hash, and the data. */
static const char *seal(const uint8_t *data, size_t n) {
    static char file[1 << 16];
    struct fuzz_piece rest = {data, n}, header = fuzz_cut(&rest);
    char *at = file + 8, digits[TENSORS_SHA_DIGITS + 1];
    struct sha256_ctx sha;
    memcpy(at, TENSORS_FRONT, TENSORS_SHA_AT);
    memset(at + TENSORS_SHA_AT, '0', TENSORS_SHA_DIGITS);
    size_t n_header = TENSORS_SHA_AT + TENSORS_SHA_DIGITS + header.n;
    FUZZ_MUST(8 + n_header + rest.n <= sizeof file);
    if (header.n) memcpy(at + TENSORS_SHA_AT + TENSORS_SHA_DIGITS, header.data, header.n);
    if (rest.n) memcpy(at + n_header, rest.data, rest.n);
    pl_tensors_put_length((unsigned char *)file, n_header);
    pl_tensors_sha(at, n_header, &sha);
    sha256_update(&sha, rest.n, (const uint8_t *)at + n_header);
    pl_tensors_sha_digits(&sha, digits);
    memcpy(at + TENSORS_SHA_AT, digits, TENSORS_SHA_DIGITS);
    return fuzz_file(0, (const uint8_t *)file, 8 + n_header + rest.n);
}

static void checkpoint(const uint8_t *data, size_t n) {
    static struct pl_model *model;
    struct pl_saved *s = NULL;
    struct pl_why why = {.text = ""};
    float w[4];
    if (!model) FUZZ_MUST(pl_model_open("quadratic:dim=4", NULL, &model, &why) == 0);
    if (pl_checkpoint_read(seal(data, n), &s, &why) == 0) {
        uint64_t whole[4];
        double number[4];
        uint8_t byte[4];
        struct pl_archive a = pl_saved_archive(s);
        pl_archive_wholes(&a, "control.counts", whole, 4);
        pl_archive_numbers(&a, "control.seconds", number, 4);
        pl_archive_bytes(&a, "policy", byte, 4);
        pl_archive_reals(&a, "last", w, 4);
        pl_saved_resumable(s, &why);
        if (pl_saved_weights(s, model, w, &why)) FUZZ_MUST(why.text[0]);
        pl_saved_text(s, "setup");
    } else {
        FUZZ_MUST(why.text[0]);
    }
    pl_saved_free(s);
}

const struct fuzz_target fuzz_files[] = {{"libsvm", libsvm},
                                         {"ratings", ratings},
                                         {"csv", csv},
                                         {"npy", npy},
                                         {"idx", idx},
                                         {"cifar", cifar},
                                         {"recording", recording},
                                         {"safetensors", safetensors},
                                         {"checkpoint", checkpoint},
                                         {NULL, NULL}};
