/* How a vector is divided into tiles, and tiles among slices. */
#include "core/store.h"

void pl_tile(size_t dim, int t, size_t *from, size_t *n) {
    size_t size = ((dim + PL_TILES - 1) / PL_TILES + 15) & ~(size_t)15;
    *from = (size_t)t * size < dim ? (size_t)t * size : dim;
    *n = *from + size < dim ? size : dim - *from;
}

int pl_tiles(size_t dim) {
    size_t from, n;
    int tiles = 0;
    do pl_tile(dim, tiles, &from, &n);
    while (n > 0 && ++tiles < PL_TILES);
    return tiles;
}

struct pl_slice pl_slice_cut(size_t dim, int n, int i, size_t *from, size_t *n_elements) {
    int tiles = pl_tiles(dim);
    size_t length, end;
    struct pl_slice s = {.whole = dim, .first = tiles * i / n, .end = tiles * (i + 1) / n};
    pl_tile(dim, s.first, from, &length);
    pl_tile(dim, s.end - 1, &end, &length);
    s.n = *n_elements = end + length - *from;
    return s;
}
