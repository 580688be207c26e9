/* CIFAR-10, binary version: records of one label byte and 3072 picture bytes, three colour planes
 * of 32x32 one after the other. data_batch_1.bin … data_batch_5.bin train, test_batch.bin tests.
 * The official files hold 10,000 records each. Any whole number of records is accepted, so a
 * reduced copy works for a quick test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "data/file.h"
#include "data/rows.h"

#define CIFAR_SIDE 32
#define CIFAR_PIXELS (3 * CIFAR_SIDE * CIFAR_SIDE)
#define CIFAR_RECORD (1 + CIFAR_PIXELS)
#define CIFAR_CLASSES 10
#define CIFAR_BATCHES 5
#define CIFAR_FILE_MAX ((uint64_t)CIFAR_RECORD * 1000000)

struct cifar_conf {
    char dir[PL_TEXT_MAX];
};

/* Appends the records of dir/name to rows. */
static int cifar_append(const char *dir, const char *name, struct pl_rows *rows,
                        struct pl_why *why) {
    char path[PL_PATH_MAX];
    uint8_t *buf = NULL;
    size_t size;
    int rc = pl_file_find(dir, name, path, why);
    if (!rc) rc = pl_file_slurp(path, CIFAR_FILE_MAX, &buf, &size, why);
    if (rc) return rc;
    size_t n = size / CIFAR_RECORD, total = rows->n + n;
    if (size == 0 || size % CIFAR_RECORD != 0) {
        rc = pl_fail(why, PL_EDATA,
                     "%s is truncated or not CIFAR-10: its size, %zu bytes, is not a multiple "
                     "of the record size, %d bytes",
                     path, size, CIFAR_RECORD);
        goto out;
    }
    if (!PL_RESIZE(rows->byte, total * CIFAR_PIXELS) || !PL_RESIZE(rows->label, total)) {
        rc = pl_fail(why, PL_ENOMEM, "out of memory while reading %s", path);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        const uint8_t *record = buf + i * CIFAR_RECORD;
        if (record[0] >= CIFAR_CLASSES) {
            rc = pl_fail(why, PL_EDATA, "%s: record %zu has label %u; labels must be 0 to %d", path,
                         i, record[0], CIFAR_CLASSES - 1);
            goto out;
        }
        rows->label[rows->n + i] = record[0];
        memcpy(rows->byte + (rows->n + i) * CIFAR_PIXELS, record + 1, CIFAR_PIXELS);
    }
    rows->n = (uint32_t)total;
out:
    free(buf);
    return rc;
}

static int cifar_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct cifar_conf *c = conf;
    (void)seed;
    if (c->dir[0] == '\0')
        return pl_fail(why, PL_EUSAGE,
                       "cifar10 needs the directory of its .bin files: cifar10:DIR");
    for (int i = 1; i <= CIFAR_BATCHES; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        int rc = cifar_append(c->dir, name, data->train, why);
        if (rc) return rc;
    }
    data->shape[0] = 3;
    data->shape[1] = data->shape[2] = CIFAR_SIDE;
    data->n_classes = CIFAR_CLASSES;
    return cifar_append(c->dir, "test_batch.bin", data->test, why);
}

static const struct pl_opt cifar_opts[] = {
    PL_OPT_DIR(struct cifar_conf, dir, "",
               "folder with data_batch_[1-5].bin and test_batch.bin, plain or .gz"),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_cifar10 = {
    .id = {"cifar10", "CIFAR-10, binary version: 32x32 colour images, 10 classes",
           "Krizhevsky, Learning multiple layers of features from tiny images, 2009", cifar_opts,
           sizeof(struct cifar_conf), 0},
    .open = cifar_open,
};
