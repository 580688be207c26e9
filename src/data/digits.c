/* Generated pictures of digits, for trying things out without a file.
 *
 * Each digit is one pen stroke (a polyline) in a unit square. A picture is its digit under a random
 * shift, scale, slant and rotation, drawn with a random pen width; darkness falls off linearly at
 * the edge of the pen, and every pixel gets uniform noise. The set behaves like a small MNIST: a
 * linear model makes errors that a hidden layer removes.
 *
 * Row i of a half is a pure function of (seed, half, i), and digits alternate. */
#include <math.h>

#include "base/rng.h"
#include "data/rows.h"

#define DIGITS_CLASSES 10
#define DIGITS_POINTS 12 /* the most points of one digit */
#define DIGITS_SIDE 256

struct digits_conf {
    int64_t samples, test, side;
    double noise;
};

/* One polyline, points (x, y) with y downwards. Curves are polygons. */
struct digits_glyph {
    int n;
    float at[DIGITS_POINTS][2];
};

static const struct digits_glyph digits_font[DIGITS_CLASSES] = {
    {9,
     {{.5f, 0},
      {.8f, .15f},
      {.85f, .5f},
      {.8f, .85f},
      {.5f, 1},
      {.2f, .85f},
      {.15f, .5f},
      {.2f, .15f},
      {.5f, 0}}},
    {3, {{.3f, .2f}, {.55f, 0}, {.55f, 1}}},
    {7, {{.15f, .2f}, {.35f, 0}, {.7f, .03f}, {.82f, .25f}, {.7f, .5f}, {.15f, 1}, {.85f, 1}}},
    {10,
     {{.15f, .1f},
      {.5f, 0},
      {.8f, .15f},
      {.75f, .38f},
      {.42f, .48f},
      {.78f, .58f},
      {.85f, .8f},
      {.65f, .97f},
      {.4f, 1},
      {.12f, .88f}}},
    {4, {{.65f, 1}, {.65f, 0}, {.1f, .68f}, {.9f, .68f}}},
    {9,
     {{.8f, 0},
      {.25f, 0},
      {.2f, .45f},
      {.55f, .38f},
      {.82f, .52f},
      {.85f, .75f},
      {.68f, .95f},
      {.4f, 1},
      {.15f, .88f}}},
    {11,
     {{.75f, .05f},
      {.45f, .1f},
      {.2f, .45f},
      {.17f, .75f},
      {.35f, .98f},
      {.65f, .98f},
      {.83f, .78f},
      {.75f, .55f},
      {.5f, .46f},
      {.25f, .58f},
      {.18f, .75f}}},
    {3, {{.12f, 0}, {.85f, 0}, {.4f, 1}}},
    {12,
     {{.5f, .47f},
      {.22f, .3f},
      {.25f, .08f},
      {.5f, 0},
      {.75f, .08f},
      {.78f, .3f},
      {.5f, .47f},
      {.17f, .72f},
      {.35f, .98f},
      {.65f, .98f},
      {.83f, .72f},
      {.5f, .47f}}},
    {10,
     {{.82f, .25f},
      {.7f, .05f},
      {.4f, 0},
      {.18f, .2f},
      {.25f, .45f},
      {.5f, .53f},
      {.78f, .42f},
      {.82f, .25f},
      {.78f, .7f},
      {.6f, 1}}},
};

/* Strokes as line segments: start and direction, with 1 / length^2 */
struct digits_line {
    float x, y, dx, dy, inv;
};

static float digits_clamp(float v, float most) {
    return v < 0 ? 0 : v > most ? most : v;
}

/* What a pen with this ink draws on the pixels at height y; darkness falls off over the last of
 * `reach` pixels. Clamped values are stored at once, because gcc vectorizes no other loops. */
static void digits_row(const struct digits_line *line, int n, float y, float reach, float ink,
                       uint32_t side, float *row) {
    float along[DIGITS_SIDE];
    for (uint32_t x = 0; x < side; x++) row[x] = 1e9f; /* squares of distances */
    for (int i = 0; i < n; i++) {
        const struct digits_line l = line[i];
        float end = l.y + l.dy, py = y - l.y, far = reach + 1; /* rounding errors are smaller */
        if (y < fminf(l.y, end) - far || y > fmaxf(l.y, end) + far) continue;
        for (uint32_t x = 0; x < side; x++)
            along[x] = digits_clamp((((float)x + 0.5f - l.x) * l.dx + py * l.dy) * l.inv, 1);
        for (uint32_t x = 0; x < side; x++) {
            float ex = (float)x + 0.5f - l.x - along[x] * l.dx, ey = py - along[x] * l.dy;
            float d2 = ex * ex + ey * ey;
            row[x] = d2 < row[x] ? d2 : row[x];
        }
    }
    for (uint32_t x = 0; x < side; x++) row[x] = digits_clamp(ink * (reach - sqrtf(row[x])), ink);
}

static float digits_between(struct pl_rng *rng, double low, double high) {
    return (float)(low + (high - low) * pl_rng_unit(rng));
}

/* The strokes of `digit` in pixels of a side x side picture, moved about at random. */
static int digits_strokes(unsigned digit, float side, struct pl_rng *rng,
                          struct digits_line *line) {
    float size = side * digits_between(rng, 0.55, 0.72), turn = digits_between(rng, -0.2, 0.2);
    float slant = digits_between(rng, -0.25, 0.25), narrow = digits_between(rng, 0.7, 1.0);
    float room = side * 0.12f;
    float mx = side * 0.5f + digits_between(rng, -room, room);
    float my = side * 0.5f + digits_between(rng, -room, room);
    float c = cosf(turn), s = sinf(turn);
    const struct digits_glyph *g = &digits_font[digit];
    float last[2] = {0, 0};
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        const float *p = g->at[i];
        float y = (p[1] - 0.5f) * size, x = (p[0] - 0.5f) * size * narrow - slant * y;
        float to[2] = {mx + c * x - s * y, my + s * x + c * y};
        if (i > 0) {
            float dx = to[0] - last[0], dy = to[1] - last[1];
            line[n++] = (struct digits_line){last[0], last[1], dx, dy, 1 / (dx * dx + dy * dy)};
        }
        last[0] = to[0];
        last[1] = to[1];
    }
    return n;
}

/* picture [side][side] */
static void digits_draw(unsigned digit, uint32_t side, double noise, struct pl_rng *rng,
                        uint8_t *picture) {
    struct digits_line line[DIGITS_POINTS];
    int n = digits_strokes(digit, (float)side, rng, line);
    float pen = (float)side * digits_between(rng, 0.035, 0.07);
    float ink = digits_between(rng, 0.7, 1.0), grain = (float)noise;
    float row[DIGITS_SIDE];
    uint32_t bits = 0;
    for (uint32_t i = 0; i < side * side; i++, bits >>= 8) {
        if (i % 4 == 0) bits = pl_rng_u32(rng);
        picture[i] = (uint8_t)bits;
    }
    for (uint32_t y = 0; y < side; y++, picture += side) {
        digits_row(line, n, (float)y + 0.5f, pen + 0.5f, ink, side, row);
        for (uint32_t x = 0; x < side; x++)
            row[x] = digits_clamp(row[x] + grain * ((float)picture[x] * (2.0f / 255.0f) - 1), 1);
        for (uint32_t x = 0; x < side; x++) picture[x] = (uint8_t)(row[x] * 255.0f + 0.5f);
    }
}

static int digits_fill(const struct digits_conf *c, uint64_t seed, uint32_t half, uint64_t n,
                       struct pl_rows *rows, struct pl_why *why) {
    uint64_t pixels = (uint64_t)(c->side * c->side);
    int rc = pl_rows_array(&rows->byte, n, pixels, why);
    if (!rc) rc = pl_rows_array(&rows->label, n, sizeof *rows->label, why);
    if (rc) return rc;
    for (uint64_t i = 0; i < n; i++) {
        struct pl_rng rng;
        pl_rng_init(&rng, seed, PL_STREAM_DATA, half, i);
        rows->label[i] = (uint16_t)(i % DIGITS_CLASSES);
        digits_draw(rows->label[i], (uint32_t)c->side, c->noise, &rng, rows->byte + i * pixels);
    }
    rows->n = (uint32_t)n;
    return PL_OK;
}

static int digits_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct digits_conf *c = conf;
    data->shape[0] = 1;
    data->shape[1] = data->shape[2] = (uint32_t)c->side;
    data->n_classes = DIGITS_CLASSES;
    int rc = digits_fill(c, seed, 0, (uint64_t)c->samples, data->train, why);
    return rc ? rc : digits_fill(c, seed, 1, (uint64_t)c->test, data->test, why);
}

static const struct pl_opt digits_opts[] = {
    PL_OPT_INT(struct digits_conf, samples, "10000", 1, 1e8, "training images"),
    PL_OPT_INT(struct digits_conf, test, "2000", 0, 1e8, "test images"),
    PL_OPT_INT(struct digits_conf, side, "16", 8, DIGITS_SIDE,
               "width and height of an image in pixels"),
    PL_OPT_REAL(struct digits_conf, noise, "0.3", 0, 10, "maximum noise per pixel (white is 1)"),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_digits = {
    .id = {"digits", "generated: small images of digits, 10 classes, no files needed", "",
           digits_opts, sizeof(struct digits_conf), 0},
    .open = digits_open,
};
