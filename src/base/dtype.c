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

/* Reads element i of `from` as a C type. */
#define DTYPE_GET(ctype)                                                                           \
    do {                                                                                           \
        ctype one;                                                                                 \
        for (size_t i = 0; i < n; i++) {                                                           \
            memcpy(&one, at + i * sizeof one, sizeof one);                                         \
            to[i] = (float)one;                                                                    \
        }                                                                                          \
    } while (0)

void pl_dtype_widen(enum pl_dtype type, const void *from, size_t n, float *to) {
    const char *at = from;
    uint16_t half;
    switch (type) {
    case PL_F32:
        if (n > 0) memcpy(to, from, n * sizeof *to);
        break;
    case PL_F64: DTYPE_GET(double); break;
    case PL_U64: DTYPE_GET(uint64_t); break;
    case PL_I64: DTYPE_GET(int64_t); break;
    case PL_I32: DTYPE_GET(int32_t); break;
    case PL_I16: DTYPE_GET(int16_t); break;
    case PL_I8: DTYPE_GET(int8_t); break;
    case PL_U8:
    case PL_BOOL: DTYPE_GET(uint8_t); break;
    case PL_F16:
    case PL_BF16:
        for (size_t i = 0; i < n; i++) {
            memcpy(&half, at + i * sizeof half, sizeof half);
            to[i] = type == PL_F16 ? dtype_of_half(half) : dtype_of_bits((uint32_t)half << 16);
        }
        break;
    case PL_DTYPES: break;
    }
}

/* The nearest whole number in [least, most]. The bounds are exact as doubles, except that 2^63 - 1
 * and 2^64 - 1 are one too large: the largest float below is what counts. */
static double dtype_whole(float x, double least, double most) {
    double whole = isnan(x) ? 0 : rint((double)x);
    return whole < least ? least : whole > most ? most : whole;
}

#define DTYPE_PUT(ctype, least, most)                                                              \
    do {                                                                                           \
        for (size_t i = 0; i < n; i++) {                                                           \
            ctype one = (ctype)dtype_whole(from[i], least, most);                                  \
            memcpy(at + i * sizeof one, &one, sizeof one);                                         \
        }                                                                                          \
    } while (0)

void pl_dtype_narrow(enum pl_dtype type, const float *from, size_t n, void *to) {
    char *at = to;
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
    case PL_U64: DTYPE_PUT(uint64_t, 0, 0x1.fffffep63); break;
    case PL_I64: DTYPE_PUT(int64_t, -0x1p63, 0x1.fffffep62); break;
    case PL_I32: DTYPE_PUT(int32_t, INT32_MIN, INT32_MAX); break;
    case PL_I16: DTYPE_PUT(int16_t, INT16_MIN, INT16_MAX); break;
    case PL_I8: DTYPE_PUT(int8_t, INT8_MIN, INT8_MAX); break;
    case PL_U8: DTYPE_PUT(uint8_t, 0, UINT8_MAX); break;
    case PL_BOOL: DTYPE_PUT(uint8_t, 0, 1); break;
    case PL_F16:
    case PL_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t half = type == PL_F16 ? dtype_half(from[i]) : dtype_bfloat(from[i]);
            memcpy(at + i * sizeof half, &half, sizeof half);
        }
        break;
    case PL_DTYPES: break;
    }
}
