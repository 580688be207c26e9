/* Policy `blocks`: it chooses what a scan over all blocks of the grid would choose, with the same
 * random draws, while workers arrive in any order and leave. */
#include "base/rng.h"
#include "core/plan.h"
#include "test.h"

extern const struct pl_policy pl_policy_blocks;

#define MOST 70 /* workers */

struct run {
    int n_workers, grid;
    bool near;
    void *state;
    struct pl_worker worker[MOST];
    struct pl_view view;
    struct pl_rng rng;
    uint64_t *used; /* [grid][grid] as the test counts */
    struct pl_action action[2 * MOST + 3];
};

/* Lists the busy workers. */
static void list_busy(struct run *r) {
    r->view.busy = -1;
    for (int i = r->n_workers - 1; i >= 0; i--) {
        if (r->worker[i].state != PL_BUSY) continue;
        r->worker[i].next = r->view.busy;
        r->view.busy = i;
    }
}

static void run_open(struct run *r, int n_workers, int grid, bool near) {
    struct {
        int grid;
        bool fine, near;
    } conf = {grid, false, near};
    memset(r, 0, sizeof *r);
    r->near = near;
    r->n_workers = n_workers;
    r->grid = grid;
    assert_int_equal(sizeof conf, pl_policy_blocks.id.conf_size);
    r->state = calloc(1, pl_policy_blocks.state_size + pl_policy_blocks.room(&conf, n_workers));
    r->used = calloc((size_t)grid * (size_t)grid, sizeof *r->used);
    assert_true(r->state && r->used);
    memcpy(r->state, &conf, sizeof conf);
    pl_rng_init(&r->rng, test_seed, PL_STREAM_INIT, 0, (uint64_t)grid);
    r->view = (struct pl_view){
        .n_workers = n_workers, .worker = r->worker, .idle = -1, .busy = -1, .rng = &r->rng};
}

static void run_close(struct run *r) {
    free(r->state);
    free(r->used);
}

static bool is_free(const struct run *r, int row, int column) {
    for (int i = r->view.busy; i >= 0; i = r->worker[i].next)
        if (r->worker[i].row == row || r->worker[i].col == column) return false;
    return true;
}

/* The reference: every block in turn. */
static void scan(const struct run *r, struct pl_rng *rng, int *row, int *column) {
    uint64_t least = UINT64_MAX;
    uint32_t n_equal = 0;
    for (int i = 0; i < r->grid; i++)
        for (int j = 0; j < r->grid; j++) {
            uint64_t used = r->used[i * r->grid + j];
            if (used > least || !is_free(r, i, j)) continue;
            n_equal = used < least ? 1 : n_equal + 1;
            least = used;
            if (n_equal > 1 && pl_rng_below(rng, n_equal) > 0) continue;
            *row = i;
            *column = j;
        }
}

/* near=yes: of the blocks that are used as little as that one, those in the worker's last row, and
 * only if there are none, those in its last column. */
static void scan_near(const struct run *r, struct pl_rng *rng, int *row, int *column, int last_row,
                      int last_column) {
    uint64_t least = r->used[*row * r->grid + *column];
    uint32_t n_equal = 0;
    for (int pass = 0; pass < 2 && n_equal == 0; pass++)
        for (int i = 0; i < r->grid; i++)
            for (int j = 0; j < r->grid; j++) {
                bool near = pass == 0 ? i == last_row : j == last_column;
                if (!near || r->used[i * r->grid + j] != least || !is_free(r, i, j)) continue;
                n_equal++;
                if (n_equal > 1 && pl_rng_below(rng, n_equal) > 0) continue;
                *row = i;
                *column = j;
            }
}

/* The worker joins (if it is not there) or arrives; both choose, and it starts. */
static void run_event(struct run *r, int worker) {
    struct pl_plan plan = {.action = r->action, .room = sizeof r->action / sizeof *r->action};
    struct pl_worker *w = &r->worker[worker];
    bool joins = w->state != PL_BUSY;
    int row = -1, column = -1;
    w->state = PL_IDLE;
    list_busy(r);
    if (!joins) r->used[w->row * r->grid + w->col]++;
    struct pl_rng rng = r->rng;
    scan(r, &rng, &row, &column);
    if (r->near && !joins) scan_near(r, &rng, &row, &column, w->row, w->col);
    if (joins)
        pl_policy_blocks.join(r->state, &r->view, worker, &plan);
    else
        pl_policy_blocks.arrive(r->state, &r->view, &(struct pl_arrival){.worker = worker}, &plan);
    const struct pl_action *a = &plan.action[plan.n - 1];
    assert_true(a->verb == PL_START && a->worker == worker);
    assert_true(a->row == row && a->col == column);
    assert_memory_equal(&rng, &r->rng, sizeof rng);
    w->row = row;
    w->col = column;
    w->state = PL_BUSY;
    list_busy(r);
}

TEST(chooses_as_a_scan_does) {
    static const struct {
        int n_workers, grid, events;
    } cases[] = {{1, 2, 100},   {1, 20, 3000}, {2, 20, 3000}, {3, 4, 1000},
                 {9, 10, 3000}, {20, 64, 600}, {31, 65, 600}, {MOST, 130, 400}};
    size_t n = sizeof cases / sizeof *cases;
    for (size_t k = 0; k < 2 * n; k++) {
        size_t i = k % n;
        struct run r;
        struct pl_rng order;
        run_open(&r, cases[i].n_workers, cases[i].grid, k >= n);
        pl_rng_init(&order, test_seed, PL_STREAM_INIT, 1, i);
        for (int e = 0; e < cases[i].events; e++) {
            int worker = (int)pl_rng_below(&order, (uint32_t)r.n_workers);
            if (pl_rng_below(&order, 20) == 0) { /* it leaves, and its block was not done */
                r.worker[worker].state = PL_GONE;
                list_busy(&r);
                continue;
            }
            run_event(&r, worker);
        }
        run_close(&r);
    }
}

/* Blocks of one row and column that stay busy: the others are used again and again meanwhile. */
TEST(chooses_around_a_worker_that_is_stuck) {
    struct run r;
    run_open(&r, 2, 5, false);
    run_event(&r, 0);
    for (int e = 0; e < 2000; e++) run_event(&r, 1);
    for (int e = 0; e < 2000; e++) run_event(&r, e % 2);
    run_close(&r);
}
