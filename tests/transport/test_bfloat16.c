/* bfloat16: rounding, widening in place, and clients that exchange vectors in it. */
#define _GNU_SOURCE
#include "base/bf16.h"
#include "base/rng.h"
#include "suite_transport.h"
#include "transport/link.h"

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The nearest of the two neighbours, and the even one of two as near, in exact arithmetic. */
static uint16_t nearest(uint32_t bits) {
    uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
    uint32_t below = bits & 0xffff, above = 0x10000 - below;
    if (below == 0 || below < above) return low;
    if (below > above) return high;
    return low & 1 ? high : low;
}

TEST(bfloat16_is_rounded_to_nearest_even) {
    struct pl_rng rng;
    static const uint32_t special[] = {0,          0x80000000, 0x3f800000, 0x3f808000, 0x3f818000,
                                       0x3f807fff, 0x3f808001, 0x7f7fffff, 0xff7fffff, 0x7f800000,
                                       0xff800000, 1,          0x00008000, 0x00018000, 0x007fffff};
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 95, 0);
    for (size_t i = 0; i < 200000; i++) {
        size_t n = sizeof special / sizeof *special;
        uint32_t bits = i < n ? special[i] : (uint32_t)pl_rng_u64(&rng);
        float x = float_of(bits);
        uint16_t half = pl_bf16_of(x);
        if (isnan(x))
            assert_true(isnan(pl_bf16_float(half)));
        else
            assert_int_equal(half, nearest(bits));
        assert_int_equal(isnan(x) ? half : pl_bf16_of(pl_bf16_float(half)), half);
    }
    assert_true(isnan(pl_bf16_float(pl_bf16_of(float_of(0x7f800001))))); /* not infinite */
    assert_true(isinf(pl_bf16_float(pl_bf16_of(float_of(0x7f7fffff)))));
}

TEST(bfloat16_converts_in_place) {
    static const size_t length[] = {0, 1, 2, 3, 1023, 1024, 1025, 2047, 2048, 2049, 5000};
    for (size_t k = 0; k < sizeof length / sizeof *length; k++) {
        size_t n = length[k];
        float *v = calloc(n + 1, sizeof *v), *x = calloc(n + 1, sizeof *x);
        uint16_t *half = calloc(n + 1, sizeof *half);
        for (size_t i = 0; i < n; i++) x[i] = (float)i / 3 - 100;
        pl_bf16_narrow(x, n, half);
        memcpy(v, x, n * sizeof *v);
        v[n] = 77;
        pl_bf16_narrow_here(v, n);
        assert_memory_equal(v, half, n * sizeof *half);
        pl_bf16_widen_here(v, n);
        pl_bf16_widen(half, n, x);
        assert_memory_equal(v, x, n * sizeof *v);
        assert_true(v[n] == 77);
        free(v);
        free(x);
        free(half);
    }
}

static void push(struct crew *c, struct pl_link *l, uint64_t task) {
    c->t->link.push(l, &(struct pl_result){.task = task, .samples = 1});
    assert_int_equal(crew_news(c, PL_NEWS_RESULT, 0).result.task, task);
}

static void check_half(unsigned half) {
    struct crew c;
    struct pl_order o;
    crew_open_with(&c, &pl_shm, 1, 3000, true, (struct pl_port_conf){.half = half});
    struct pl_link *l = crew_client(&c, 0);
    crew_news(&c, PL_NEWS_JOINED, 0);
    for (uint64_t task = 1; task < 5; task++) {
        for (size_t i = 0; i < c.dim; i++) c.version[0][i] = (float)i / (float)(2 * task + 1);
        crew_tell(&c, 0, task);
        assert_int_equal(pl_client_link_pull(l, 0, &o), 0);
        assert_true((o.half_out != NULL) == ((half & PL_HALF_RESULT) != 0));
        assert_true((o.half_in != NULL) == ((half & PL_HALF_MODEL) != 0));
        for (size_t i = 0; i < c.dim; i++) {
            if (o.half_in) assert_int_equal(o.half_in[i], pl_bf16_of(c.version[0][i]));
            if (o.half_out)
                o.half_out[i] = pl_bf16_of(o.input[0].v[i] + 1);
            else
                o.out[i] = o.input[0].v[i] + 1;
        }
        push(&c, l, task);
        for (size_t i = 0; i < c.dim; i++) {
            float x = c.version[0][i] + 1;
            if (o.half_out) x = pl_bf16_float(pl_bf16_of(x));
            assert_true(c.own[0][0][i] == x);
        }
        /* a second answer to the same order does not widen it again */
        float first = c.own[0][0][0];
        push(&c, l, task);
        assert_true(c.own[0][0][0] == first);
    }
    c.t->link.detach(l);
    crew_news(&c, PL_NEWS_GONE, 0);
    crew_close(&c);
}

TEST(clients_exchange_bfloat16) {
    for (unsigned half = 0; half <= (PL_HALF_RESULT | PL_HALF_MODEL); half++) check_half(half);
}
