#include "base/dtype.h"

#include <math.h>
#include <string.h>

const struct pl_dtype_row pl_dtypes[PL_DTYPES] = {
    [PL_F32] = {"F32", 4}, [PL_F64] = {"F64", 8},   [PL_U64] = {"U64", 8},  [PL_U8] = {"U8", 1},
    [PL_F16] = {"F16", 2}, [PL_BF16] = {"BF16", 2}, [PL_I64] = {"I64", 8},  [PL_I32] = {"I32", 4},
    [PL_I16] = {"I16", 2}, [PL_I8] = {"I8", 1},     [PL_BOOL] = {"BOOL", 1}};

int pl_dtype_find(const char *name) {
    for (int i = 0; i < PL_DTYPES; i++)
        if (strcmp(pl_dtypes[i].name, name) == 0) return i;
    return -1;
}

static float dtype_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t dtype_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float dtype_of_half(uint16_t h) {
    float sign = h >> 15 ? -1.0f : 1.0f;
    int exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(fraction + 1024), exponent - 25);
}

static uint16_t dtype_half(float x) {
    uint16_t sign = (uint16_t)(dtype_bits(x) >> 16 & 0x8000);
    float a = fabsf(x);
    if (isnan(x)) return sign | 0x7e00;
    if (a >= 65520) return sign | 0x7c00; /* rounds to more than the largest */
    if (a < 0x1p-14f) return (uint16_t)(sign | (uint16_t)lrintf(ldexpf(a, 24)));
    int exponent;
    float fraction = frexpf(a, &exponent); /* in [0.5, 1) */
    long rounded = lrintf(ldexpf(fraction, 11));
    /* a fraction that is rounded up to 2048 carries into the exponent, as it should */
    return (uint16_t)(sign | (uint16_t)(((exponent + 13) << 10) + (int)rounded));
}

static uint16_t dtype_bfloat(float x) {
    uint32_t bits = dtype_bits(x);
    if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A whole number is the sum of its bytes times powers of 256, the highest byte with a sign if the
 * type has one. So a mean of such rows is a row of the mean. */
static bool dtype_has_sign(enum pl_dtype type) {
    return type == PL_I64 || type == PL_I32 || type == PL_I16 || type == PL_I8;
}

static void dtype_split(enum pl_dtype type, const unsigned char *from, size_t n, float *to) {
    size_t size = pl_dtypes[type].size;
    for (size_t i = 0; i < n * size; i++) {
        bool sign = dtype_has_sign(type) && i % size == size - 1;
        to[i] = sign && from[i] > 127 ? (float)from[i] - 256 : (float)from[i];
    }
}

/* Whether the floats are bytes, but for rounding errors. */
static bool dtype_joins(enum pl_dtype type, const float *from, unsigned char *to) {
    size_t size = pl_dtypes[type].size;
    for (size_t k = 0; k < size; k++) {
        bool sign = dtype_has_sign(type) && k == size - 1;
        float whole = rintf(from[k]);
        if (!(fabsf(from[k] - whole) < 0x1p-6f)) return false;
        if (!(whole >= (sign ? -128 : 0) && whole <= (sign ? 127 : type == PL_BOOL ? 1 : 255)))
            return false;
        to[k] = (unsigned char)(int)whole;
    }
    return true;
}

/* The nearest number of the type; NAN becomes 0. */
static void dtype_round(enum pl_dtype type, const float *from, unsigned char *to) {
    size_t size = pl_dtypes[type].size;
    double end = type == PL_BOOL ? 2 : ldexp(1, (int)(8 * size) - dtype_has_sign(type)), x = 0;
    for (size_t k = size; k > 0; k--) x = 256 * x + (double)from[k - 1];
    x = isnan(x) ? 0 : fmax(rint(x), dtype_has_sign(type) ? -end : 0);
    x = fmin(x, nextafter(end, 0)); /* which is cut off below */
    uint64_t bits = x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x;
    for (size_t k = 0; k < size; k++) to[k] = (unsigned char)(bits >> 8 * k);
}

void pl_dtype_widen(enum pl_dtype type, const void *from, size_t n, float *to) {
    const char *at = from;
    uint16_t half;
    double one;
    switch (type) {
    case PL_F32:
        if (n > 0) memcpy(to, from, n * sizeof *to);
        break;
    case PL_F64:
        for (size_t i = 0; i < n; i++) {
            memcpy(&one, at + i * sizeof one, sizeof one);
            to[i] = (float)one;
        }
        break;
    case PL_F16:
    case PL_BF16:
        for (size_t i = 0; i < n; i++) {
            memcpy(&half, at + i * sizeof half, sizeof half);
            to[i] = type == PL_F16 ? dtype_of_half(half) : dtype_of_bits((uint32_t)half << 16);
        }
        break;
    default: dtype_split(type, from, n, to);
    }
}

void pl_dtype_narrow(enum pl_dtype type, const float *from, size_t n, void *to) {
    size_t size = pl_dtypes[type].size;
    unsigned char *at = to;
    switch (type) {
    case PL_F32:
        if (n > 0) memcpy(to, from, n * sizeof *from);
        break;
    case PL_F64:
        for (size_t i = 0; i < n; i++) {
            double one = (double)from[i];
            memcpy(at + i * sizeof one, &one, sizeof one);
        }
        break;
    case PL_F16:
    case PL_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t half = type == PL_F16 ? dtype_half(from[i]) : dtype_bfloat(from[i]);
            memcpy(at + i * sizeof half, &half, sizeof half);
        }
        break;
    default:
        for (size_t i = 0; i < n; i++)
            if (!dtype_joins(type, from + i * size, at + i * size))
                dtype_round(type, from + i * size, at + i * size);
    }
}
