/* A tile of inner products, with vectors of GRAM_BYTES bytes. gram.c includes this file once per
 * instruction set, with GRAM_NAME and GRAM_TARGET: gcc splits vectors that are wider than those of
 * a function's own set before it inlines the function, so PL_VARIANTS is of no use here. With
 * enough registers, GRAM_KEEP keeps the compiler from loading a vector once per product. */

/* out [GRAM_SIDE * GRAM_SIDE]: the inner products of each of three rows y with three rows x. If x
 * and y are one array, a tile on the diagonal, those above it are not valid. Meanwhile `next`
 * [width] is fetched into the second-level cache. */
GRAM_TARGET static void GRAM_NAME(const pl_real *const *x, const pl_real *const *y, size_t width,
                                  const pl_real *next, pl_real *out) {
    typedef pl_real vector __attribute__((vector_size(GRAM_BYTES)));
    typedef pl_real loaded
        __attribute__((vector_size(GRAM_BYTES), aligned(sizeof(pl_real)), may_alias));
    typedef pl_real quarter __attribute__((vector_size(4 * sizeof(pl_real))));
    const pl_real *x0 = x[0], *x1 = x[1], *x2 = x[2], *y0 = y[0], *y1 = y[1], *y2 = y[2];
    pl_real lane[GRAM_SIDE * GRAM_SIDE][PL_GRAM_LANES];
    bool diagonal = x == y;
    size_t whole = width - width % PL_GRAM_LANES;
    for (size_t l = 0; l < PL_GRAM_LANES; l += GRAM_BYTES / sizeof(pl_real)) {
        vector s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, s4 = {0}, s5 = {0}, s6 = {0}, s7 = {0},
               s8 = {0};
        for (size_t at = l; at < whole && !diagonal; at += PL_GRAM_LANES) {
            vector a = *(const loaded *)(x0 + at), b = *(const loaded *)(x1 + at);
            vector c = *(const loaded *)(x2 + at), v = *(const loaded *)(y0 + at);
            GRAM_KEEP(a);
            GRAM_KEEP(b);
            GRAM_KEEP(c);
            GRAM_KEEP(v);
            __builtin_prefetch(next + at, 0, 2);
            s0 += a * v;
            s1 += b * v;
            s2 += c * v;
            v = *(const loaded *)(y1 + at);
            GRAM_KEEP(v);
            s3 += a * v;
            s4 += b * v;
            s5 += c * v;
            v = *(const loaded *)(y2 + at);
            GRAM_KEEP(v);
            s6 += a * v;
            s7 += b * v;
            s8 += c * v;
        }
        for (size_t at = l; at < whole && diagonal; at += PL_GRAM_LANES) {
            vector a = *(const loaded *)(x0 + at), b = *(const loaded *)(x1 + at);
            vector c = *(const loaded *)(x2 + at);
            __builtin_prefetch(next + at, 0, 2);
            s0 += a * a;
            s1 += b * a;
            s2 += c * a;
            s4 += b * b;
            s5 += c * b;
            s8 += c * c;
        }
        vector s[] = {s0, s1, s2, s3, s4, s5, s6, s7, s8};
        for (int p = 0; p < GRAM_SIDE * GRAM_SIDE; p++) memcpy(lane[p] + l, &s[p], sizeof s[p]);
    }
    for (size_t l = 0; l < width - whole; l++)
        for (int p = 0; p < GRAM_SIDE * GRAM_SIDE; p++)
            lane[p][l] += x[p % GRAM_SIDE][whole + l] * y[p / GRAM_SIDE][whole + l];
    for (int p = 0; p < GRAM_SIDE * GRAM_SIDE; p++) {
        quarter q[4];
        memcpy(q, lane[p], sizeof q);
        q[0] = (q[0] + q[2]) + (q[1] + q[3]);
        out[p] = (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
    }
}

#undef GRAM_NAME
#undef GRAM_TARGET
#undef GRAM_KEEP
#undef GRAM_BYTES
