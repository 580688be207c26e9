/* The model of a run on blocks, in strips: after any sequence of tasks that are applied, given up
 * or rejected, the model is what a plain vector would be, each task reads its ranges of that, and
 * no task writes where the model or another task is. */
#include "base/rng.h"
#include "core/rule.h"
#include "engine/blocks.h"
#include "test.h"
#include "transport/shm_layout.h"
#include "vectors.h"

#define SIDE 5
#define WORKERS 4

struct run {
    struct pl_data *data;
    struct pl_job job;
    struct pl_vectors *vectors;
    struct pl_blocks *blocks;
    float *w, *copy;     /* [dim] the plain vector; room */
    int output[WORKERS]; /* of each worker */
    struct pl_part part[WORKERS];
    struct pl_strip strip[WORKERS][PL_STRIPS];
    bool busy[WORKERS];
    struct pl_rng rng;
};

static void run_open(struct run *r, bool trusts) {
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
    r->job.n_workers = WORKERS;
    assert_int_equal(pl_vectors_new(&r->vectors), 0);
    pl_vectors_memory(r->vectors, pl_part_most(&r->job), NULL);
    assert_int_equal(pl_blocks_new(&r->job, r->vectors, r->w, &r->blocks), 0);
    for (int i = 0; i < WORKERS; i++)
        assert_int_not_equal(r->output[i] = pl_blocks_output(r->blocks, i), PL_NO_VECTOR);
    assert_int_equal(vectors_in_use(r->vectors), SIDE + WORKERS);
    pl_rng_init(&r->rng, test_seed, PL_STREAM_INIT, 2, trusts);
}

static void run_close(struct run *r) {
    pl_blocks_free(r->blocks);
    pl_vectors_free(r->vectors);
    free(r->w);
    free(r->copy);
    pl_grid_free(r->job.grid);
    pl_model_close(r->job.model);
    pl_data_free(r->data);
}

static void check_model(struct run *r) {
    pl_blocks_model(r->blocks, r->copy);
    assert_memory_equal(r->copy, r->w, r->job.model->dim * sizeof *r->w);
}

/* No strip that a task writes is one that the other reads or writes. */
static void check_apart(const struct pl_strip *task, const struct pl_strip *other) {
    for (int j = 0; j < PL_STRIPS; j++)
        for (int k = 0; k < PL_STRIPS; k++) {
            assert_ptr_not_equal(task[j].out, other[k].in);
            if (task != other) assert_ptr_not_equal(task[j].out, other[k].out);
        }
}

/* Starts a worker on a block whose row and column are free, if it finds one. */
static void start(struct run *r, int worker) {
    struct pl_range range[PL_STRIPS];
    struct pl_part part = {(int)pl_rng_below(&r->rng, SIDE), (int)pl_rng_below(&r->rng, SIDE)};
    for (int i = 0; i < WORKERS; i++)
        if (r->busy[i] && (r->part[i].row == part.row || r->part[i].col == part.col)) return;
    struct pl_strip *strip = r->strip[worker];
    int n = pl_part_ranges(&r->job, part, range);
    assert_int_equal(pl_blocks_strips(r->blocks, part, r->output[worker], strip), n);
    for (int j = 0; j < n; j++) {
        assert_int_equal(strip[j].n, range[j].n);
        assert_memory_equal(strip[j].in, r->w + range[j].from, range[j].n * sizeof(float));
    }
    check_apart(strip, strip);
    for (int i = 0; i < WORKERS; i++)
        if (r->busy[i]) check_apart(strip, r->strip[i]);
    r->busy[worker] = true;
    r->part[worker] = part;
}

/* The worker writes; what it wrote is applied, or is void. */
static void finish(struct run *r, int worker, bool trusts) {
    struct pl_range range[PL_STRIPS];
    const struct pl_strip *strip = r->strip[worker];
    int n = pl_part_ranges(&r->job, r->part[worker], range);
    uint32_t fate = pl_rng_below(&r->rng, trusts ? 4 : 5);
    for (int j = 0; j < n; j++)
        for (size_t i = 0; i < strip[j].n; i++) strip[j].out[i] = (float)pl_rng_unit(&r->rng);
    check_model(r); /* so far nothing has happened to it */
    r->busy[worker] = false;
    if (fate == 0) return; /* given up */
    if (fate == 1) {       /* the worker left: its vector goes to whoever is next */
        pl_vector_release(r->vectors, r->output[worker]);
        r->output[worker] = pl_blocks_output(r->blocks, worker);
        assert_int_equal(vectors_in_use(r->vectors), SIDE + WORKERS);
        return;
    }
    if (fate == 4) { /* one value of one strip */
        int j = (int)pl_rng_below(&r->rng, (uint32_t)n);
        strip[j].out[pl_rng_below(&r->rng, (uint32_t)strip[j].n)] =
            pl_rng_below(&r->rng, 2) ? NAN : INFINITY;
        assert_false(pl_blocks_adopt(r->blocks, r->part[worker], r->output[worker], false));
        check_model(r);
        return;
    }
    for (int j = 0; j < n; j++)
        memcpy(r->w + range[j].from, strip[j].out, range[j].n * sizeof(float));
    assert_true(pl_blocks_adopt(r->blocks, r->part[worker], r->output[worker], trusts));
    check_model(r);
}

TEST(the_model_is_that_of_a_plain_vector) {
    for (int trusts = 0; trusts < 2; trusts++) {
        struct run r;
        run_open(&r, trusts);
        check_model(&r);
        for (int step = 0; step < 2000; step++) {
            int worker = (int)pl_rng_below(&r.rng, WORKERS);
            if (r.busy[worker])
                finish(&r, worker, trusts);
            else
                start(&r, worker);
        }
        run_close(&r);
    }
}

/* What a worker that left may still write to is nobody else's. */
TEST(a_vector_in_use_is_not_given_away) {
    struct run r;
    run_open(&r, false);
    pl_vector_hold(r.vectors, r.output[0]);
    pl_vector_release(r.vectors, r.output[0]); /* it left, and the host holds it */
    int other = pl_blocks_output(r.blocks, 1);
    for (int i = 0; i < WORKERS; i++) assert_int_not_equal(other, r.output[i]);
    run_close(&r);
}

TEST(offsets) {
    struct pl_shape s = {.n_workers = 2, .n_versions = 1, .n_slots = 3, .dim = 100};
    assert_true(pl_shape_of(&s));
    size_t end = s.slots + 3 * s.stride;
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
