#include "observe/tensorboard.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observe/sink.h"

#define TENSORBOARD_PATH 1024
#define TENSORBOARD_EVENT 512 /* size of the largest event: nine scalars with short names */

struct pl_tensorboard {
    FILE *f;
    double wall;
    char path[TENSORBOARD_PATH];
};

/* --- checksums --------------------------------------------------------------------------- */

uint32_t pl_crc32c(const void *data, size_t n) {
    const unsigned char *p = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

/* TensorFlow rotates and offsets checksums of data that may itself contain checksums. */
static uint32_t tensorboard_masked(const void *data, size_t n) {
    uint32_t crc = pl_crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* --- protobuf ---------------------------------------------------------------------------- */

/* A message being written. What does not fit is dropped, and `full` is set. */
struct tensorboard_bytes {
    unsigned char byte[TENSORBOARD_EVENT];
    size_t n;
    bool full;
};

static void tensorboard_byte(struct tensorboard_bytes *b, unsigned value) {
    if (b->n == sizeof b->byte)
        b->full = true;
    else
        b->byte[b->n++] = (unsigned char)(value & 0xff);
}

static void tensorboard_varint(struct tensorboard_bytes *b, uint64_t value) {
    for (; value >= 0x80; value >>= 7) tensorboard_byte(b, (unsigned)(value & 0x7f) | 0x80);
    tensorboard_byte(b, (unsigned)value);
}

/* The lowest `size` bytes, little-endian. */
static void tensorboard_fixed(struct tensorboard_bytes *b, uint64_t value, int size) {
    for (int i = 0; i < size; i++) tensorboard_byte(b, (unsigned)(value >> 8 * i & 0xff));
}

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void tensorboard_key(struct tensorboard_bytes *b, unsigned field, unsigned wire) {
    tensorboard_varint(b, field << 3 | wire);
}

static void tensorboard_bytes(struct tensorboard_bytes *b, unsigned field, const void *data,
                              size_t n) {
    tensorboard_key(b, field, WIRE_BYTES);
    tensorboard_varint(b, n);
    for (size_t i = 0; i < n; i++) tensorboard_byte(b, ((const unsigned char *)data)[i]);
}

static void tensorboard_double(struct tensorboard_bytes *b, unsigned field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    tensorboard_key(b, field, WIRE_64);
    tensorboard_fixed(b, bits, 8);
}

/* --- events ------------------------------------------------------------------------------ */

/* Summary.Value { tag = 1; simple_value = 2; } as field 1 of a Summary. */
static void tensorboard_scalar(struct tensorboard_bytes *summary, const char *tag, double value) {
    struct tensorboard_bytes b = {.n = 0};
    float single = (float)value;
    uint32_t bits;
    if (isnan(value)) return;
    memcpy(&bits, &single, sizeof bits);
    tensorboard_bytes(&b, 1, tag, strlen(tag));
    tensorboard_key(&b, 2, WIRE_32);
    tensorboard_fixed(&b, bits, 4);
    tensorboard_bytes(summary, 1, b.byte, b.n);
}

/* Writes length, masked checksum of the length, data, masked checksum of the data. */
static void tensorboard_record(FILE *f, const struct tensorboard_bytes *data) {
    struct tensorboard_bytes head = {.n = 0}, tail = {.n = 0};
    if (data->full) return;
    tensorboard_fixed(&head, data->n, 8);
    tensorboard_fixed(&head, tensorboard_masked(head.byte, head.n), 4);
    tensorboard_fixed(&tail, tensorboard_masked(data->byte, data->n), 4);
    fwrite(head.byte, 1, head.n, f);
    fwrite(data->byte, 1, data->n, f);
    fwrite(tail.byte, 1, tail.n, f);
    fflush(f);
}

void pl_tensorboard_point(struct pl_tensorboard *t, const struct pl_point *p,
                          double samples_per_second) {
    const struct {
        const char *tag;
        double value;
    } scalar[] = {{"loss", p->loss},
                  {"test_loss", p->test_loss},
                  {"test_accuracy", p->test_accuracy},
                  {"k", p->k},
                  {"staleness", p->staleness},
                  {"unused", (double)p->unused},
                  {"workers", p->workers},
                  {"samples_per_second", samples_per_second},
                  {"consensus", p->consensus}};
    struct tensorboard_bytes event = {.n = 0}, summary = {.n = 0};
    for (size_t i = 0; i < sizeof scalar / sizeof scalar[0]; i++)
        tensorboard_scalar(&summary, scalar[i].tag, scalar[i].value);
    tensorboard_double(&event, 1, t->wall + p->time);
    tensorboard_key(&event, 2, WIRE_VARINT);
    tensorboard_varint(&event, p->updates);
    tensorboard_bytes(&event, 5, summary.byte, summary.n);
    tensorboard_record(t->f, &event);
}

/* --- the file ---------------------------------------------------------------------------- */

/* The name of this machine, without characters that cannot be in a file name. */
static void tensorboard_host(char *out, size_t max) {
    if (gethostname(out, max) != 0) out[0] = '\0';
    out[max - 1] = '\0';
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.') *c = '-';
    if (!out[0]) snprintf(out, max, "localhost");
}

int pl_tensorboard_open(const char *dir, double wall, struct pl_tensorboard **out,
                        struct pl_why *why) {
    static const char version[] = "brain.Event:2";
    struct tensorboard_bytes event = {.n = 0};
    char host[65];
    struct pl_tensorboard *t = calloc(1, sizeof *t);
    if (!t) return pl_fail(why, PL_ENOMEM, "out of memory for the TensorBoard file");
    tensorboard_host(host, sizeof host);
    int n =
        snprintf(t->path, sizeof t->path, "%s/events.out.tfevents.%.0f.%s", dir, floor(wall), host);
    int rc = n < TENSORBOARD_PATH
                 ? pl_sink_open("TensorBoard", t->path, &t->f, why)
                 : pl_fail(why, PL_EUSAGE, "directory '%.100s…': the name is too long", dir);
    if (rc) {
        free(t);
        return rc;
    }
    t->wall = wall;
    tensorboard_double(&event, 1, wall);
    tensorboard_bytes(&event, 3, version, sizeof version - 1);
    tensorboard_record(t->f, &event);
    *out = t;
    return PL_OK;
}

int pl_tensorboard_flush(struct pl_tensorboard *t, struct pl_why *why) {
    if (fflush(t->f) == 0 && !ferror(t->f)) return PL_OK;
    return pl_fail(why, PL_EIO, "TensorBoard file '%.200s' cannot be written", t->path);
}

int pl_tensorboard_close(struct pl_tensorboard *t, struct pl_why *why) {
    if (!t) return PL_OK;
    int rc = pl_sink_close("TensorBoard", t->path, t->f, why);
    free(t);
    return rc;
}

const char *pl_tensorboard_path(const struct pl_tensorboard *t) {
    return t->path;
}
