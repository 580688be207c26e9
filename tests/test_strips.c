/* The model of a run on blocks, in strips: after any sequence of tasks that are applied, given up
 * or rejected, the model is what a plain vector would be, each task reads its ranges of that, and
 * no task writes where the model or another task is.
 *
 * Seed: PL_TEST_SEED in the environment. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "run/strips.h"
#include "seed.h"
#include "transport/shm_layout.h"

#define SIDE 5
#define WORKERS 4
#define SLOTS (SIDE + WORKERS)

static uint64_t test_seed;

/* A port that has slots and nothing else. */
struct pl_port {
    size_t dim;
    float *slot[SLOTS];
    int n;
};

static float *port_vector(struct pl_port *p, int writer) {
    (void)writer;
    return p->n < SLOTS ? p->slot[p->n++] = calloc(p->dim, sizeof(float)) : NULL;
}

static const struct pl_port_ops port_ops = {.vector = port_vector};

struct run {
    struct pl_data *data;
    struct pl_job job;
    struct pl_port port;
    struct pl_strips *strips;
    float *w, *copy;        /* [dim] the plain vector; room */
    float *output[WORKERS]; /* of each worker */
    struct pl_part part[WORKERS];
    struct pl_order order[WORKERS];
    bool busy[WORKERS];
    struct pl_rng rng;
};

static void run_open(struct run *r, bool judges) {
    struct pl_why why;
    memset(r, 0, sizeof *r);
    /* users and items are no multiples of the side, so segments have different lengths */
    assert_int_equal(pl_data_open("lowrank:users=43,items=32,ratings=600", 1, &r->data, &why), 0);
    assert_int_equal(pl_model_open("mf:k=3", r->data, &r->job.model, &why), 0);
    assert_int_equal(pl_grid_new(r->data->ratings, SIDE, &r->job.grid), 0);
    size_t dim = r->job.model->dim;
    r->w = malloc(dim * sizeof *r->w);
    r->copy = malloc(dim * sizeof *r->copy);
    assert_true(r->w && r->copy);
    r->job.model->kind->init(r->job.model, 1, r->w);
    r->port.dim = pl_part_most(&r->job);
    assert_int_equal(pl_strips_slots(&r->job), SIDE);
    assert_int_equal(pl_strips_new(&r->job, &port_ops, &r->port, r->w, judges, &r->strips), 0);
    for (int i = 0; i < WORKERS; i++) assert_non_null(r->output[i] = port_vector(&r->port, i));
    pl_rng_init(&r->rng, test_seed, PL_STREAM_INIT, 2, judges);
}

static void run_close(struct run *r) {
    pl_strips_free(r->strips);
    for (int i = 0; i < r->port.n; i++) free(r->port.slot[i]);
    free(r->w);
    free(r->copy);
    pl_grid_free(r->job.grid);
    pl_model_close(r->job.model);
    pl_data_free(r->data);
}

static void check_model(struct run *r) {
    pl_strips_model(r->strips, r->copy);
    assert_memory_equal(r->copy, r->w, r->job.model->dim * sizeof *r->w);
}

/* No strip that the order writes is one that the other reads or writes. */
static void check_apart(const struct pl_order *o, const struct pl_order *other) {
    for (int j = 0; j < PL_RANGES; j++)
        for (int k = 0; k < PL_RANGES; k++) {
            assert_ptr_not_equal(o->strips.out[j], other->strips.in[k]);
            if (o != other) assert_ptr_not_equal(o->strips.out[j], other->strips.out[k]);
        }
}

/* Starts a worker on a block whose row and column are free, if it finds one. */
static void start(struct run *r, int worker) {
    struct pl_range range[PL_RANGES];
    struct pl_part part = {(int)pl_rng_below(&r->rng, SIDE), (int)pl_rng_below(&r->rng, SIDE)};
    for (int i = 0; i < WORKERS; i++)
        if (r->busy[i] && (r->part[i].row == part.row || r->part[i].col == part.col)) return;
    struct pl_order *o = &r->order[worker];
    *o = (struct pl_order){.task = 1};
    assert_int_equal(pl_strips_order(r->strips, part, r->output[worker], o), 0);
    int n = pl_part_ranges(&r->job, part, range);
    for (int j = 0; j < n; j++) {
        assert_memory_equal(o->strips.in[j], r->w + range[j].from, range[j].n * sizeof(float));
    }
    check_apart(o, o);
    for (int i = 0; i < WORKERS; i++)
        if (r->busy[i]) check_apart(o, &r->order[i]);
    r->busy[worker] = true;
    r->part[worker] = part;
}

/* The worker writes; what it wrote is applied, or is void. */
static void finish(struct run *r, int worker, bool judges) {
    struct pl_range range[PL_RANGES];
    const struct pl_order *o = &r->order[worker];
    int n = pl_part_ranges(&r->job, r->part[worker], range);
    uint32_t fate = pl_rng_below(&r->rng, judges ? 4 : 3);
    for (int j = 0; j < n; j++)
        for (size_t i = 0; i < range[j].n; i++) o->strips.out[j][i] = (float)pl_rng_unit(&r->rng);
    check_model(r); /* so far nothing has happened to it */
    r->busy[worker] = false;
    if (fate == 0) return; /* given up */
    if (fate == 3) {       /* one value of one range */
        int j = (int)pl_rng_below(&r->rng, (uint32_t)n);
        o->strips.out[j][pl_rng_below(&r->rng, (uint32_t)range[j].n)] =
            pl_rng_below(&r->rng, 2) ? NAN : INFINITY;
        assert_false(pl_strips_adopt(r->strips, r->output[worker]));
        check_model(r);
        return;
    }
    for (int j = 0; j < n; j++)
        memcpy(r->w + range[j].from, o->strips.out[j], range[j].n * sizeof(float));
    assert_true(pl_strips_adopt(r->strips, r->output[worker]));
    check_model(r);
}

static void is_what_a_plain_vector_is(void **state) {
    (void)state;
    for (int judges = 0; judges < 2; judges++) {
        struct run r;
        run_open(&r, judges);
        check_model(&r);
        for (int step = 0; step < 2000; step++) {
            int worker = (int)pl_rng_below(&r.rng, WORKERS);
            if (r.busy[worker])
                finish(&r, worker, judges);
            else
                start(&r, worker);
        }
        run_close(&r);
    }
}

/* A vector that no task was told to write to has nothing that could be applied. */
static void nothing_written(void **state) {
    struct run r;
    (void)state;
    run_open(&r, false);
    assert_false(pl_strips_adopt(r.strips, r.output[0]));
    check_model(&r);
    run_close(&r);
}

static void offsets(void **state) {
    struct pl_shape s = {
        .n_workers = 2, .n_versions = 1, .n_slots = 3, .dim = 1000, .slot_dim = 100};
    (void)state;
    assert_true(pl_shape_of(&s));
    size_t end = s.slots + 3 * s.slot_stride;
    assert_true(pl_shape_in_slots(&s, s.slots, 100));
    assert_true(pl_shape_in_slots(&s, s.slots + 400, 0));
    assert_true(pl_shape_in_slots(&s, end - 40, 10));
    assert_false(pl_shape_in_slots(&s, end - 40, 11));
    assert_false(pl_shape_in_slots(&s, s.slots - 4, 1));
    assert_false(pl_shape_in_slots(&s, s.versions, 1));
    assert_false(pl_shape_in_slots(&s, s.slots + 2, 1));
    assert_false(pl_shape_in_slots(&s, s.slots, UINT64_MAX / 2));
    assert_false(pl_shape_in_slots(&s, UINT64_MAX - 3, 1));
    s.n_own = 1; /* slots belong to one worker each */
    assert_false(pl_shape_in_slots(&s, s.slots, 1));
}

int main(void) {
    test_seed = seed_of_test(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_what_a_plain_vector_is),
        cmocka_unit_test(nothing_written),
        cmocka_unit_test(offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
