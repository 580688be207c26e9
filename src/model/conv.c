/* A convolution stage as matrix products.
 *
 * Pictures are [height][width][channel] with a zero border, so the kernel x channels values under
 * one line of the kernel are contiguous. Gathering the windows (im2col) is one short copy per
 * kernel line, and scattering their gradients (col2im) one short add, both without branches. The
 * product of the gathered windows col [positions][kernel kernel n_in] and W^T is again [position]
 * [channel], the layout that the next stage reads.
 *
 * A stage with few filters is computed without gathering (model/narrow.h): the windows are read
 * from the picture, whose overlap keeps them in the first-level cache, and so are, for the gradient
 * of the input, the windows of the gradient of the output.
 *
 * Otherwise the work is done in strips of an even number of picture lines, as many as keep col
 * within CONV_STRIP floats, so col is still in the second-level cache when the product reads it.
 *
 * Max pooling commutes with adding a bias and with ReLU, so pooling comes first, directly from the
 * strip of products: relu(max(z) + b). The full-resolution z never leaves the strip. The backward
 * pass needs one byte per pooled value, the position of its maximum. */
#include "model/conv.h"

#include <cblas.h>
#include <string.h>

#include "base/isa.h"
#include "model/model.h"
#include "model/narrow.h"

#define CONV_STRIP ((size_t)1 << 17) /* floats of gathered windows: 512 KiB */
#define CONV_NARROW 32               /* filters, or floats of a window, below which it pays */

static uint32_t conv_pad(const struct pl_conv *c) {
    return c->kernel / 2;
}

/* the number of floats under the kernel */
static size_t conv_window(const struct pl_conv *c) {
    return (size_t)c->kernel * c->kernel * c->n_in;
}

/* the number of positions computed per line, which is even */
static uint32_t conv_width(const struct pl_conv *c) {
    return c->w / 2 * 2;
}

/* the number of pooled lines per strip; the lines of all n pictures are numbered consecutively */
static uint32_t conv_strip_lines(const struct pl_conv *c) {
    size_t lines = CONV_STRIP / (2 * conv_width(c) * conv_window(c));
    return lines < 1 ? 1 : lines > 1024 ? 1024 : (uint32_t)lines;
}

size_t pl_conv_dim(const struct pl_conv *c) {
    return (conv_window(c) + 1) * c->n_out;
}

size_t pl_conv_in_size(const struct pl_conv *c) {
    return (size_t)(c->h + 2 * conv_pad(c)) * (c->w + 2 * conv_pad(c)) * c->n_in;
}

size_t pl_conv_out_size(const struct pl_conv *c) {
    return (size_t)(c->h / 2 + 2 * c->out_pad) * (c->w / 2 + 2 * c->out_pad) * c->n_out;
}

size_t pl_conv_which_size(const struct pl_conv *c) {
    return (size_t)(c->h / 2) * (c->w / 2) * c->n_out;
}

/* Whether there are few enough columns to be the lanes of vectors, and no lane is idle on any
 * processor: all of them compute the same way. */
static bool conv_narrow(uint32_t n_columns, size_t window) {
    bool few = n_columns <= CONV_NARROW || window <= CONV_NARROW;
    return few && (n_columns == 8 || n_columns % 16 == 0);
}

/* the number of floats of one picture's output before pooling, with a zero border */
static size_t conv_flat(const struct pl_conv *c) {
    return (size_t)(c->h + 2 * conv_pad(c)) * (c->w + 2 * conv_pad(c)) * c->n_out;
}

/* The offset in out, past the border, of pooled line `line` of all pictures. */
static size_t conv_out_at(const struct pl_conv *c, uint64_t line) {
    uint32_t ph = c->h / 2;
    size_t row = (size_t)(c->w / 2 + 2 * c->out_pad) * c->n_out;
    return (size_t)(line / ph) * pl_conv_out_size(c) + (line % ph + c->out_pad) * row +
           (size_t)c->out_pad * c->n_out;
}

/* The offset in the padded input of the first window of picture line y. */
static size_t conv_in_at(const struct pl_conv *c, uint64_t pooled_line, uint32_t odd) {
    uint32_t ph = c->h / 2;
    size_t row = (size_t)(c->w + 2 * conv_pad(c)) * c->n_in;
    return (size_t)(pooled_line / ph) * pl_conv_in_size(c) + (2 * (pooled_line % ph) + odd) * row;
}

/* in: padded lines, `row` floats apart; col [width][kernel][run], run = kernel n_in */
static PL_VARIANTS(void, conv_gather,
                   (const float *restrict in, size_t row, size_t width, size_t kernel, size_t step,
                    size_t run, float *restrict col),
                   (in, row, width, kernel, step, run, col)) {
    for (size_t x = 0; x < width; x++, in += step)
        for (size_t k = 0; k < kernel; k++, col += run)
            for (size_t j = 0; j < run; j++) col[j] = in[k * row + j];
}

/* The reverse: adds col to the lines it was gathered from. */
static PL_VARIANTS(void, conv_scatter,
                   (float *restrict in, size_t row, size_t width, size_t kernel, size_t step,
                    size_t run, const float *restrict col),
                   (in, row, width, kernel, step, run, col)) {
    for (size_t x = 0; x < width; x++, in += step)
        for (size_t k = 0; k < kernel; k++, col += run)
            for (size_t j = 0; j < run; j++) in[k * row + j] += col[j];
}

/* Eight channels. Comparisons of vectors are -1 or 0 in each lane; these masks do what ?: does. */
typedef float conv_floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t conv_masks __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint8_t conv_bytes __attribute__((vector_size(8), aligned(1), may_alias));
#define CONV_LANES 8
#define CONV_MASK(test, v) ((conv_floats)((test) & (conv_masks)(v)))
#define CONV_CHOOSE(test, a, b)                                                                    \
    ((conv_floats)(((test) & (conv_masks)(a)) | (~(test) & (conv_masks)(b))))
#define CONV_AT(p) (*(const conv_floats *)(p))

/* One pooled value, and the position of its maximum. */
static float conv_pool_one(float p, float q, float r, float s, float b, uint8_t *which) {
    float pq = q > p ? q : p, rs = s > r ? s : r, max = rs > pq ? rs : pq;
    *which = rs > pq ? (uint8_t)(2 | (s > r)) : (uint8_t)(q > p);
    return max + b > 0 ? max + b : 0;
}

/* Pools two lines z [2][2 pw][n_out] into one, out [pw][n_out] and which [pw][n_out]. */
static PL_VARIANTS(void, conv_pool,
                   (const float *restrict z, const float *restrict b, size_t pw, size_t n_out,
                    float *restrict out, uint8_t *restrict which),
                   (z, b, pw, n_out, out, which)) {
    for (size_t x = 0; x < pw; x++, z += 2 * n_out, out += n_out, which += n_out) {
        const float *z2 = z + 2 * pw * n_out;
        size_t f = 0;
        for (; f + CONV_LANES <= n_out; f += CONV_LANES) {
            conv_floats p = CONV_AT(z + f), q = CONV_AT(z + n_out + f);
            conv_floats r = CONV_AT(z2 + f), s = CONV_AT(z2 + n_out + f);
            conv_masks right = q > p, right2 = s > r;
            conv_floats pq = CONV_CHOOSE(right, q, p), rs = CONV_CHOOSE(right2, s, r);
            conv_masks below = rs > pq;
            conv_floats max = CONV_CHOOSE(below, rs, pq) + CONV_AT(b + f);
            conv_masks at = (below & (2 | (right2 & 1))) | (~below & right & 1);
            *(conv_floats *)(out + f) = CONV_MASK(max > 0, max);
            *(conv_bytes *)(which + f) = __builtin_convertvector(at, conv_bytes);
        }
        for (; f < n_out; f++)
            out[f] = conv_pool_one(z[f], z[n_out + f], z2[f], z2[n_out + f], b[f], which + f);
    }
}

/* The backward pass: if out is positive, delta [pw][n_out] goes to the position of the maximum in
 * the lines dz and dz2 [2 pw][n_out]. The other positions get zero. Adds to db [n_out]. */
static PL_VARIANTS(void, conv_unpool,
                   (const float *restrict delta, const float *restrict out,
                    const uint8_t *restrict which, size_t pw, size_t n_out, float *restrict dz,
                    float *restrict dz2, float *restrict db),
                   (delta, out, which, pw, n_out, dz, dz2, db)) {
    for (size_t x = 0; x < pw; x++, delta += n_out, out += n_out, which += n_out) {
        size_t f = 0;
        for (; f + CONV_LANES <= n_out; f += CONV_LANES) {
            conv_floats v = CONV_MASK(CONV_AT(out + f) > 0, CONV_AT(delta + f));
            conv_masks at = __builtin_convertvector(*(const conv_bytes *)(which + f), conv_masks);
            *(conv_floats *)(db + f) += v;
            *(conv_floats *)(dz + f) = CONV_MASK(at == 0, v);
            *(conv_floats *)(dz + n_out + f) = CONV_MASK(at == 1, v);
            *(conv_floats *)(dz2 + f) = CONV_MASK(at == 2, v);
            *(conv_floats *)(dz2 + n_out + f) = CONV_MASK(at == 3, v);
        }
        for (; f < n_out; f++) {
            float v = out[f] > 0 ? delta[f] : 0;
            db[f] += v;
            dz[f] = which[f] == 0 ? v : 0;
            dz[n_out + f] = which[f] == 1 ? v : 0;
            dz2[f] = which[f] == 2 ? v : 0;
            dz2[n_out + f] = which[f] == 3 ? v : 0;
        }
        dz += 2 * n_out;
        dz2 += 2 * n_out;
    }
}

/* Gathers the windows of n_lines pooled lines, starting at `line`, into col. */
static void conv_gather_strip(const struct pl_conv *c, const float *in, uint64_t line,
                              uint32_t n_lines, float *col) {
    size_t row = (size_t)(c->w + 2 * conv_pad(c)) * c->n_in, width = conv_width(c);
    for (uint32_t i = 0; i < 2 * n_lines; i++)
        conv_gather(in + conv_in_at(c, line + i / 2, i % 2), row, width, c->kernel, c->n_in,
                    (size_t)c->kernel * c->n_in, col + i * width * conv_window(c));
}

/* All windows of a picture whose lines are w + 2 pad positions of n_channels. */
static struct pl_rows conv_windows(const struct pl_conv *c, size_t n_channels, size_t n_lines,
                                   size_t width) {
    size_t row = (c->w + 2 * (size_t)conv_pad(c)) * n_channels;
    return (struct pl_rows){.n_runs = c->kernel,
                            .run = c->kernel * n_channels,
                            .apart = row,
                            .n_lines = n_lines,
                            .width = width,
                            .next = row,
                            .step = n_channels};
}

/* Work space of a stage with few filters: weights as the product reads them, alone and interleaved
 * with themselves; two pictures of outputs, and the two interleaved; two pictures of inputs,
 * interleaved. */
struct conv_room {
    float *packed, *doubled, *flat[2], *flats, *ins, *sum;
    size_t floats;
};

static struct conv_room conv_room(const struct pl_conv *c, float *scratch) {
    const size_t weights = conv_window(c) * c->n_out, flat = conv_flat(c);
    size_t at[] = {weights, 2 * weights, flat, flat, 2 * flat, 2 * pl_conv_in_size(c), weights};
    size_t floats = 0;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        size_t size = at[i];
        at[i] = floats;
        floats += size;
    }
    if (!scratch) return (struct conv_room){.floats = floats};
    return (struct conv_room){.packed = scratch + at[0],
                              .doubled = scratch + at[1],
                              .flat = {scratch + at[2], scratch + at[3]},
                              .flats = scratch + at[4],
                              .ins = scratch + at[5],
                              .sum = scratch + at[6],
                              .floats = floats};
}

size_t pl_conv_scratch(const struct pl_conv *c) {
    size_t gathered = 2 * (size_t)conv_strip_lines(c) * conv_width(c) * (conv_window(c) + c->n_out);
    size_t narrow = conv_room(c, NULL).floats;
    return gathered > narrow ? gathered : narrow;
}

static int conv_narrow_forward(const struct pl_conv *c, const float *w, const float *in, uint32_t n,
                               float *out, uint8_t *which, float *scratch,
                               const struct pl_cancel *cancel) {
    const size_t width = conv_width(c), window = conv_window(c), n_out = c->n_out, ph = c->h / 2;
    const size_t size = pl_conv_in_size(c);
    const struct pl_rows lines = conv_windows(c, c->n_in, 2, width);
    const struct conv_room room = conv_room(c, scratch);
    const bool pairs = pl_narrow_pairs(n_out);
    if (c->out_pad) memset(out, 0, n * pl_conv_out_size(c) * sizeof *out);
    pl_narrow_pack(w, window, n_out, room.packed);
    if (pairs) pl_narrow_interleave(room.packed, room.packed, window * n_out, room.doubled);
    for (uint32_t i = 0, m; i < n; i += m, in += m * size) {
        m = pairs && i + 1 < n ? 2 : 1; /* pictures at a time */
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        if (m == 2) pl_narrow_interleave(in, in + size, size, room.ins);
        for (size_t y = 0; y < ph; y++) {
            const size_t at = conv_in_at(c, y, 0);
            if (m == 2)
                pl_narrow_product_pair(&lines, room.ins + 2 * at, room.doubled, room.flat[0],
                                       room.flat[1]);
            else
                pl_narrow_product(&lines, in + at, room.packed, n_out, room.flat[0]);
            for (uint32_t p = 0; p < m; p++) {
                uint64_t line = (i + p) * ph + y;
                conv_pool(room.flat[p], w + window * n_out, width / 2, n_out,
                          out + conv_out_at(c, line), which + line * (width / 2) * n_out);
            }
        }
    }
    return PL_OK;
}

/* w [n_out][kernel][kernel][n_in] to [n_in][kernel][kernel][n_out] packed, the kernel turned by
 * half a turn: the product of a window of output gradients with it is an input gradient. */
static void conv_turn(const struct pl_conv *c, const float *w, float *room, float *packed) {
    const size_t kernels = (size_t)c->kernel * c->kernel, n_in = c->n_in, n_out = c->n_out;
    for (size_t f = 0; f < n_out; f++)
        for (size_t k = 0; k < kernels; k++)
            for (size_t i = 0; i < n_in; i++)
                room[(i * kernels + kernels - 1 - k) * n_out + f] = w[(f * kernels + k) * n_in + i];
    pl_narrow_pack(room, kernels * n_out, n_in, packed);
}

/* Adds the weight gradients of m pictures to room->sum, and writes their input gradients to d_in
 * unless it is NULL. */
static void conv_narrow_products(const struct pl_conv *c, const struct conv_room *room,
                                 const float *in, uint32_t m, float *d_in) {
    const size_t pad = conv_pad(c), n_out = c->n_out, n_in = c->n_in, size = pl_conv_in_size(c);
    const size_t row = (c->w + 2 * pad) * n_out, in_row = (c->w + 2 * pad) * n_in;
    const size_t border = pad * row + pad * n_out;
    const struct pl_rows windows = conv_windows(c, n_in, 2 * (c->h / 2), conv_width(c));
    const struct pl_rows line = conv_windows(c, n_out, 1, c->w);
    const bool pair = m == 2 && pl_narrow_pairs(n_out), pair_in = m == 2 && pl_narrow_pairs(n_in);
    if (pair || pair_in)
        pl_narrow_interleave(room->flat[0], room->flat[1], conv_flat(c), room->flats);
    if (pair) {
        pl_narrow_interleave(in, in + size, size, room->ins);
        pl_narrow_gradient_pair(&windows, room->ins, room->flats + 2 * border, row, room->sum);
    }
    for (uint32_t p = 0; !pair && p < m; p++)
        pl_narrow_gradient(&windows, in + p * size, room->flat[p] + border, row, n_out, room->sum);
    for (size_t y = 0; d_in && y < c->h; y++) {
        float *to = d_in + (y + pad) * in_row + pad * n_in;
        if (pair_in)
            pl_narrow_product_pair(&line, room->flats + 2 * y * row, room->doubled, to, to + size);
        for (uint32_t p = 0; !pair_in && p < m; p++)
            pl_narrow_product(&line, room->flat[p] + y * row, room->packed, n_in, to + p * size);
    }
}

static int conv_narrow_backward(const struct pl_conv *c, const float *w, const float *in,
                                const float *out, const uint8_t *which, const float *d_out,
                                uint32_t n, float *g, float *d_in, float *scratch,
                                const struct pl_cancel *cancel) {
    const size_t pad = conv_pad(c), width = conv_width(c), weights = conv_window(c) * c->n_out;
    const size_t n_out = c->n_out, ph = c->h / 2, row = (c->w + 2 * pad) * n_out;
    const struct conv_room room = conv_room(c, scratch);
    const bool pairs = pl_narrow_pairs(n_out) || (d_in && pl_narrow_pairs(c->n_in));
    if (d_in) {
        conv_turn(c, w, room.sum, room.packed);
        pl_narrow_interleave(room.packed, room.packed, weights, room.doubled);
    }
    memset(room.sum, 0, weights * sizeof *room.sum);
    memset(room.flat[0], 0, conv_flat(c) * sizeof *room.flat[0]);
    memset(room.flat[1], 0, conv_flat(c) * sizeof *room.flat[1]);
    memset(g + weights, 0, n_out * sizeof *g);
    for (uint32_t i = 0, m; i < n; i += m) {
        m = pairs && i + 1 < n ? 2 : 1; /* pictures at a time */
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        for (uint64_t line = i * ph; line < (i + m) * ph; line++) {
            size_t at = conv_out_at(c, line);
            float *dz = room.flat[line / ph - i] + (pad + 2 * (line % ph)) * row + pad * n_out;
            conv_unpool(d_out + at, out + at, which + line * (width / 2) * n_out, width / 2, n_out,
                        dz, dz + row, g + weights);
        }
        conv_narrow_products(c, &room, in + i * pl_conv_in_size(c), m,
                             d_in ? d_in + i * pl_conv_in_size(c) : NULL);
    }
    pl_narrow_unpack(room.sum, conv_window(c), n_out, g);
    return PL_OK;
}

int pl_conv_forward(const struct pl_conv *c, const float *w, const float *in, uint32_t n,
                    float *out, uint8_t *which, float *scratch, const struct pl_cancel *cancel) {
    if (conv_narrow(c->n_out, conv_window(c)))
        return conv_narrow_forward(c, w, in, n, out, which, scratch, cancel);
    const uint64_t n_lines = (uint64_t)n * (c->h / 2);
    const uint32_t strip = conv_strip_lines(c);
    const size_t width = conv_width(c), window = conv_window(c), n_out = c->n_out;
    float *col = scratch, *z = scratch + 2 * strip * width * window;
    if (c->out_pad) memset(out, 0, n * pl_conv_out_size(c) * sizeof *out);
    for (uint64_t line = 0; line < n_lines; line += strip) {
        uint32_t now = n_lines - line < strip ? (uint32_t)(n_lines - line) : strip;
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        conv_gather_strip(c, in, line, now, col);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)(2 * now * width), (int)n_out,
                    (int)window, 1, col, (int)window, w, (int)window, 0, z, (int)n_out);
        for (uint32_t i = 0; i < now; i++)
            conv_pool(z + 2 * i * width * n_out, w + window * n_out, width / 2, n_out,
                      out + conv_out_at(c, line + i), which + (line + i) * (width / 2) * n_out);
    }
    return PL_OK;
}

int pl_conv_backward(const struct pl_conv *c, const float *w, const float *in, const float *out,
                     const uint8_t *which, const float *d_out, uint32_t n, float *g, float *d_in,
                     float *scratch, const struct pl_cancel *cancel) {
    size_t window = conv_window(c);
    if (conv_narrow(c->n_out, window) && (!d_in || conv_narrow(c->n_in, window)))
        return conv_narrow_backward(c, w, in, out, which, d_out, n, g, d_in, scratch, cancel);
    const uint64_t n_lines = (uint64_t)n * (c->h / 2);
    const uint32_t strip = conv_strip_lines(c);
    const size_t width = conv_width(c), n_out = c->n_out;
    const size_t row = (size_t)(c->w + 2 * conv_pad(c)) * c->n_in;
    float *col = scratch, *dz = scratch + 2 * strip * width * window;
    memset(g, 0, pl_conv_dim(c) * sizeof *g);
    if (d_in) memset(d_in, 0, n * pl_conv_in_size(c) * sizeof *d_in);
    for (uint64_t line = 0; line < n_lines; line += strip) {
        uint32_t now = n_lines - line < strip ? (uint32_t)(n_lines - line) : strip;
        int m = (int)(2 * now * width);
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        for (uint32_t i = 0; i < now; i++) {
            size_t at = conv_out_at(c, line + i);
            conv_unpool(d_out + at, out + at, which + (line + i) * (width / 2) * n_out, width / 2,
                        n_out, dz + 2 * i * width * n_out, dz + (2 * i + 1) * width * n_out,
                        g + window * n_out);
        }
        conv_gather_strip(c, in, line, now, col);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)n_out, (int)window, m, 1, dz,
                    (int)n_out, col, (int)window, 1, g, (int)window);
        if (!d_in) continue;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, (int)window, (int)n_out, 1, dz,
                    (int)n_out, w, (int)window, 0, col, (int)window);
        for (uint32_t i = 0; i < 2 * now; i++)
            conv_scatter(d_in + conv_in_at(c, line + i / 2, i % 2), row, width, c->kernel, c->n_in,
                         (size_t)c->kernel * c->n_in, col + i * width * window);
    }
    return PL_OK;
}
