/* Blocks: a worker that becomes free gets the free block that was used least; nobody waits.
 *
 * The matrix is divided into a square grid. A block is free if no busy worker is in its row or its
 * column, so two workers never touch the same factors. Of the free blocks, the one with the
 * smallest use count is next; ties are broken at random. Each result is applied at once.
 *
 * Zhuang, Chin, Juan, Lin, "A fast parallel SGD for matrix factorization in shared memory systems"
 * (FPSGD, LIBMF), RecSys 2013, between threads; Li et al. 2014 (FDSGD), between machines. The grid
 * has more rows than there are workers: with equal numbers, a worker that finishes would always
 * find only its own block free. LIBMF asks for at least 2T+1 rows and takes 20 (fine=yes).
 *
 * A block counts as used when its result arrives: a block whose task was lost or rejected is done
 * again. */
#include <string.h>

#include "paceline_policy.h"

#define BLOCKS_MAX 1024 /* rows */
#define BLOCKS_FINE 20  /* rows of LIBMF's grid */

struct blocks {
    int grid;
    bool fine;
};

struct blocks_state {
    struct blocks conf;
    uint64_t used[]; /* [grid][grid] */
};

static const struct pl_opt blocks_opts[] = {
    PL_OPT_COUNT(struct blocks, grid, "auto", 1, BLOCKS_MAX,
                 "the matrix is cut into grid x grid blocks (auto: workers + 1)"),
    PL_OPT_BOOL(struct blocks, fine, "no", "finer grid=auto: 2 x workers + 1, at least 20"),
    PL_OPT_END,
};

static int blocks_grid(const void *conf, int n_workers) {
    const struct blocks *c = conf;
    if (c->grid != PL_COUNT_AUTO) return c->grid;
    if (n_workers >= BLOCKS_MAX) return BLOCKS_MAX; /* which check() refuses */
    int least = c->fine ? 2 * n_workers + 1 : n_workers + 1;
    if (c->fine && least < BLOCKS_FINE) least = BLOCKS_FINE;
    return least < BLOCKS_MAX ? least : BLOCKS_MAX;
}

static const char *blocks_check(const void *conf, int n_workers) {
    if (n_workers >= BLOCKS_MAX)
        return "a grid has at most 1024 rows and needs more rows than workers; use fewer workers";
    return blocks_grid(conf, n_workers) > n_workers
               ? NULL
               : "grid must be more than the number of workers, or a worker that finishes "
                 "would find no free block but its own";
}

static size_t blocks_room(const void *conf, int n_workers) {
    size_t n = (size_t)blocks_grid(conf, n_workers);
    return n * n * sizeof(uint64_t);
}

static struct pl_knobs blocks_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

/* Rows and columns without a busy worker. */
struct blocks_free {
    int row[BLOCKS_MAX], column[BLOCKS_MAX], n_rows, n_columns;
};

static void blocks_look(const struct pl_view *v, int grid, struct blocks_free *f) {
    bool row[BLOCKS_MAX] = {false}, column[BLOCKS_MAX] = {false};
    for (int i = v->busy; i >= 0; i = pl_next(v, i)) {
        row[v->worker[i].row] = true;
        column[v->worker[i].col] = true;
    }
    f->n_rows = f->n_columns = 0;
    for (int i = 0; i < grid; i++) {
        if (!row[i]) f->row[f->n_rows++] = i;
        if (!column[i]) f->column[f->n_columns++] = i;
    }
}

static void blocks_next(const struct blocks_state *s, const struct pl_view *v, int worker,
                        struct pl_plan *p) {
    int grid = blocks_grid(&s->conf, v->n_workers), row = 0, column = 0;
    struct blocks_free f;
    uint64_t least = UINT64_MAX;
    uint32_t n_equal = 0;
    blocks_look(v, grid, &f);
    for (int i = 0; i < f.n_rows; i++)
        for (int j = 0; j < f.n_columns; j++) {
            uint64_t used = s->used[f.row[i] * grid + f.column[j]];
            if (used > least) continue;
            n_equal = used < least ? 1 : n_equal + 1;
            least = used;
            /* the n-th of equal blocks replaces the choice with probability 1/n: all are as likely
             */
            if (n_equal > 1 && pl_rng_below(v->rng, n_equal) > 0) continue;
            row = f.row[i];
            column = f.column[j];
        }
    pl_start_part(p, worker, row, column);
}

static void blocks_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    struct blocks_state *s = state;
    const struct pl_worker *w = &v->worker[a->worker];
    pl_take(p, 1);
    pl_commit(p, 1);
    s->used[w->row * blocks_grid(&s->conf, v->n_workers) + w->col]++;
    blocks_next(s, v, a->worker, p);
}

static void blocks_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    blocks_next(state, v, worker, p);
}

const struct pl_policy pl_policy_blocks = {
    .id = {"blocks",
           "matrix blocks: a free worker takes the least used free block; no worker waits",
           "Zhuang, Chin, Juan, Lin, RecSys 2013; Li et al. 2014", blocks_opts,
           sizeof(struct blocks), 0},
    .state_size = sizeof(struct blocks_state),
    .room = blocks_room,
    .grid = blocks_grid,
    .check = blocks_check,
    .knobs = blocks_knobs,
    .arrive = blocks_arrive,
    .join = blocks_join,
};
