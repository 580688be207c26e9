/* A convolution stage as matrix products.
 *
 * Pictures are [height][width][channel] with a zero border, so the kernel x channels values under
 * one line of the kernel are contiguous. Gathering the windows (im2col) is one short copy per
 * kernel line, and scattering their gradients (col2im) one short add, both without branches. The
 * product of the gathered windows col [positions][kernel kernel n_in] and W^T is again [position]
 * [channel], the layout that the next stage reads.
 *
 * The work is done in strips of an even number of picture lines, as many as keep col within
 * CONV_STRIP floats, so col is still in the second-level cache when the product reads it.
 *
 * Max pooling commutes with adding a bias and with ReLU, so pooling comes first, directly from the
 * strip of products: relu(max(z) + b). The full-resolution z never leaves the strip. The backward
 * pass needs one byte per pooled value, the position of its maximum. */
#include "model/conv.h"

#include <cblas.h>
#include <string.h>

#include "model/model.h"

#define CONV_STRIP ((size_t)1 << 17) /* floats of gathered windows: 512 KiB */

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

size_t pl_conv_scratch(const struct pl_conv *c) {
    return 2 * (size_t)conv_strip_lines(c) * conv_width(c) * (conv_window(c) + c->n_out);
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
static void conv_gather(const float *restrict in, size_t row, size_t width, size_t kernel,
                        size_t step, size_t run, float *restrict col) {
    for (size_t x = 0; x < width; x++, in += step)
        for (size_t k = 0; k < kernel; k++, col += run)
            for (size_t j = 0; j < run; j++) col[j] = in[k * row + j];
}

/* The reverse: adds col to the lines it was gathered from. */
static void conv_scatter(float *restrict in, size_t row, size_t width, size_t kernel, size_t step,
                         size_t run, const float *restrict col) {
    for (size_t x = 0; x < width; x++, in += step)
        for (size_t k = 0; k < kernel; k++, col += run)
            for (size_t j = 0; j < run; j++) in[k * row + j] += col[j];
}

/* Pools z [2][2 pw][n_out] into one line out [pw][n_out] and, unless NULL, which [pw][n_out]. */
static void conv_pool(const float *restrict z, const float *restrict b, size_t pw, size_t n_out,
                      float *restrict out, uint8_t *restrict which) {
    for (size_t x = 0; x < pw; x++, z += 2 * n_out, out += n_out) {
        const float *z2 = z + 2 * pw * n_out;
        for (size_t f = 0; f < n_out; f++) {
            float p = z[f], q = z[n_out + f], r = z2[f], s = z2[n_out + f];
            float pq = q > p ? q : p, rs = s > r ? s : r, max = rs > pq ? rs : pq;
            out[f] = max + b[f] > 0 ? max + b[f] : 0;
        }
        if (!which) continue;
        for (size_t f = 0; f < n_out; f++) {
            float p = z[f], q = z[n_out + f], r = z2[f], s = z2[n_out + f];
            uint8_t pq = q > p, rs = (uint8_t)(2 | (s > r));
            which[f] = (s > r ? s : r) > (q > p ? q : p) ? rs : pq;
        }
        which += n_out;
    }
}

/* The backward pass: if out is positive, delta [pw][n_out] goes to the position of the maximum. The
 * other positions get zero. Adds to db [n_out]. */
static void conv_unpool(const float *restrict delta, const float *restrict out,
                        const uint8_t *restrict which, size_t pw, size_t n_out, float *restrict dz,
                        float *restrict db) {
    for (size_t x = 0; x < pw; x++) {
        float *dz2 = dz + 2 * pw * n_out;
        for (size_t f = 0; f < n_out; f++) {
            float v = out[f] > 0 ? delta[f] : 0;
            int at = which[f];
            db[f] += v;
            dz[f] = at == 0 ? v : 0;
            dz[n_out + f] = at == 1 ? v : 0;
            dz2[f] = at == 2 ? v : 0;
            dz2[n_out + f] = at == 3 ? v : 0;
        }
        delta += n_out;
        out += n_out;
        which += n_out;
        dz += 2 * n_out;
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

int pl_conv_forward(const struct pl_conv *c, const float *w, const float *in, uint32_t n,
                    float *out, uint8_t *which, float *scratch, const struct pl_cancel *cancel) {
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
                      out + conv_out_at(c, line + i),
                      which ? which + (line + i) * (width / 2) * n_out : NULL);
    }
    return PL_OK;
}

int pl_conv_backward(const struct pl_conv *c, const float *w, const float *in, const float *out,
                     const uint8_t *which, const float *d_out, uint32_t n, float *g, float *d_in,
                     float *scratch, const struct pl_cancel *cancel) {
    const uint64_t n_lines = (uint64_t)n * (c->h / 2);
    const uint32_t strip = conv_strip_lines(c);
    const size_t width = conv_width(c), window = conv_window(c), n_out = c->n_out;
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
                        n_out, dz + 2 * i * width * n_out, g + window * n_out);
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
