/* IDX, the format of MNIST and its drop-in replacements (Fashion-MNIST, KMNIST, EMNIST).
 *
 * A file is a big-endian header - two zero bytes, a type (8 = unsigned byte), the number of
 * dimensions, one 32-bit size per dimension - and then the bytes. Nothing may follow them. Format:
 * Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/file.h"
#include "data/rows.h"
#include "data/schema.h"

#define IDX_FASHION_DIR "/usr/share/datasets/fashion-mnist"
#define IDX_FASHION_CLASSES 10
#define IDX_DIMS_MAX 3

struct idx_conf {
    char dir[PL_TEXT_MAX];
    int64_t classes;
};

static uint32_t idx_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Reads and checks the header, before anything is allocated or decompressed for the payload. */
static int idx_head(struct pl_file *f, uint32_t n_dims, uint32_t *size, uint64_t *want,
                    struct pl_why *why) {
    uint8_t head[4 + 4 * IDX_DIMS_MAX];
    size_t n = 0, header = 4 + 4 * (size_t)n_dims;
    int rc = pl_file_read(f, head, header, &n, why);
    if (rc) return rc;
    if (n >= 4 && idx_be32(head) != (0x0800u | n_dims))
        return pl_fail(why, PL_EDATA,
                       "%s is not an IDX file of %s: it begins with %08x instead of %08x", f->path,
                       n_dims == 1 ? "labels" : "pictures", (unsigned)idx_be32(head),
                       (unsigned)(0x0800u | n_dims));
    if (n < header)
        return pl_fail(why, PL_EDATA, "%s is truncated: %zu bytes, less than its header of %zu",
                       f->path, n, header);
    *want = 1;
    for (uint32_t d = 0; d < n_dims; d++) {
        size[d] = idx_be32(head + 4 + 4 * (size_t)d);
        uint64_t max = d == 0 ? PL_DATA_ROWS_MAX : PL_DATA_SIDE_MAX;
        if (size[d] == 0 || size[d] > max)
            return pl_fail(why, PL_EDATA, "%s claims %lu %s; 1 to %llu are accepted", f->path,
                           (unsigned long)size[d], d == 0 ? "rows" : "pixels per side",
                           (unsigned long long)max);
        *want *= size[d]; /* at most 2^30 * 2^12 * 2^12 */
    }
    return PL_OK;
}

/* Reads size[n_dims] from the header and the payload into *out, which the caller frees. */
static int idx_read(const char *path, uint32_t n_dims, uint32_t *size, uint8_t **out,
                    struct pl_why *why) {
    struct pl_file f;
    uint8_t *buf = NULL;
    size_t n = 0;
    uint64_t want = 0;
    int rc = pl_file_open(&f, path, why);
    if (!rc) rc = idx_head(&f, n_dims, size, &want, why);
    /* one byte more than announced is enough to know that there are too many */
    uint64_t most = want < PL_DATA_BYTES_MAX ? want : PL_DATA_BYTES_MAX;
    if (!rc) rc = pl_file_rest(&f, most + 1, &buf, &n, why);
    pl_file_close(&f);
    if (!rc && n != want)
        rc = pl_fail(why, PL_EDATA, "%s is %s: its header announces %llu bytes, but %s%zu follow",
                     path, n < want ? "truncated" : "too long", (unsigned long long)want,
                     n < want ? "" : "at least ", n);
    if (rc) {
        free(buf);
        return rc;
    }
    uint8_t *fit = realloc(buf, n);
    *out = fit ? fit : buf;
    return PL_OK;
}

/* Reads the pictures of half of the set, which must match the shape, unless that is 0. */
static int idx_pictures(const char *dir, const char *half, uint32_t *shape, struct pl_rows *rows,
                        struct pl_why *why) {
    char path[PL_PATH_MAX], name[64];
    uint32_t size[3] = {0};
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", half);
    int rc = pl_file_find(dir, name, path, why);
    if (!rc) rc = idx_read(path, 3, size, &rows->byte, why);
    if (rc) return rc;
    if (shape[0] == 0) {
        shape[0] = 1;
        shape[1] = size[1];
        shape[2] = size[2];
    }
    rows->n = size[0];
    if (shape[0] == 1 && shape[1] == size[1] && shape[2] == size[2]) return PL_OK;
    return pl_fail(why, PL_EDATA, "%s has pictures of %lux%lu pixels; the training set has %lux%lu",
                   path, (unsigned long)size[1], (unsigned long)size[2], (unsigned long)shape[1],
                   (unsigned long)shape[2]);
}

/* Reads half of the set: pictures, and as many labels. */
static int idx_half(const char *dir, const char *half, uint32_t classes, uint32_t *shape,
                    struct pl_rows *rows, struct pl_why *why) {
    char labels[PL_PATH_MAX], name[64];
    uint32_t n_labels = 0;
    uint8_t *raw = NULL;
    void *label = NULL;
    int rc = idx_pictures(dir, half, shape, rows, why);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", half);
    if (!rc) rc = pl_file_find(dir, name, labels, why);
    if (!rc) rc = idx_read(labels, 1, &n_labels, &raw, why);
    if (!rc && n_labels != rows->n)
        rc = pl_fail(why, PL_EDATA, "%s has %lu labels, but there are %lu pictures", labels,
                     (unsigned long)n_labels, (unsigned long)rows->n);
    if (!rc) rc = pl_rows_array(&label, n_labels, sizeof *rows->label, why);
    rows->label = label;
    for (uint32_t i = 0; !rc && i < n_labels; i++) {
        if (raw[i] >= classes)
            rc = pl_fail(why, PL_EDATA, "%s: label %lu is %u; %lu classes allow 0 to %lu", labels,
                         (unsigned long)i, raw[i], (unsigned long)classes,
                         (unsigned long)classes - 1);
        rows->label[i] = raw[i];
    }
    free(raw);
    return rc;
}

static int idx_load(const char *dir, uint32_t classes, struct pl_data *data, struct pl_why *why) {
    data->n_classes = classes;
    int rc = idx_half(dir, "train", classes, data->shape, data->train, why);
    return rc ? rc : idx_half(dir, "t10k", classes, data->shape, data->test, why);
}

static int idx_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct idx_conf *c = conf;
    (void)seed;
    if (c->dir[0] == '\0')
        return pl_fail(why, PL_EUSAGE, "idx needs the directory of its four files: idx:DIR");
    return idx_load(c->dir, (uint32_t)c->classes, data, why);
}

static int idx_fashion_open(const void *conf, uint64_t seed, struct pl_data *data,
                            struct pl_why *why) {
    (void)conf;
    (void)seed;
    if (access(IDX_FASHION_DIR, F_OK) != 0)
        return pl_fail(why, PL_EIO,
                       "%s does not exist; install the Debian package dataset-fashion-mnist, give "
                       "the files' directory as --data idx:DIR, or use --data digits, which needs "
                       "no files",
                       IDX_FASHION_DIR);
    return idx_load(IDX_FASHION_DIR, IDX_FASHION_CLASSES, data, why);
}

/* The pictures for testing; their labels and the training half need not be there. */
static int idx_open_as(const void *conf, struct pl_data *data, struct pl_why *why) {
    const struct idx_conf *c = conf;
    if (c->dir[0] == '\0')
        return pl_fail(why, PL_EUSAGE, "idx needs the directory of its files: idx:DIR");
    if (data->schema->n_columns > 0)
        return pl_fail(why, PL_EUSAGE, "the model was not trained on pictures");
    return idx_pictures(c->dir, "t10k", data->shape, data->test, why);
}

static const struct pl_opt idx_opts[] = {
    PL_OPT_DIR(struct idx_conf, dir, "",
               "folder with the four files train-images-idx3-ubyte and so on, plain or .gz"),
    PL_OPT_INT(struct idx_conf, classes, "10", 2, 256,
               "number of classes; a label of this or more is an error"),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_idx = {
    .id = {"idx", "images in the format of MNIST (four files)",
           "LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document "
           "recognition, Proc. IEEE 1998",
           idx_opts, sizeof(struct idx_conf), 0},
    .open = idx_open,
    .open_as = idx_open_as,
};

const struct pl_data_kind pl_data_fashion = {
    .id = {"fashion", "Fashion-MNIST from Debian's dataset-fashion-mnist: 28x28 images, 10 classes",
           "Xiao, Rasul, Vollgraf, Fashion-MNIST, arXiv:1708.07747", pl_no_opts, 0, 0},
    .open = idx_fashion_open,
};
