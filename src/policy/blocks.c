/* Blocks: a worker that becomes free gets the free block that was used least; no worker waits.
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
 * near=yes: of equally used blocks, one in the row or else the column of the block that the worker
 * has just finished is next. Half of its factors, or more, are then still in the worker's cache.
 *
 * A block counts as used when its result arrives: a block whose task was lost or rejected is done
 * again.
 *
 * The choice looks at every free row, but only at those of its blocks that were used as little as
 * any in the row: bits say which. All others are looked at only in a row that has fewer uses than
 * all rows before it, or whose least used blocks are in the columns of busy workers. */
#include <string.h>

#include "paceline_policy.h"

#define BLOCKS_MAX 1024 /* rows */
#define BLOCKS_FINE 20  /* rows of LIBMF's grid */

struct blocks {
    int grid;
    bool fine, near;
};

/* A state of zeros is one where no block has been used. */
struct blocks_state {
    struct blocks conf;
    /* used [grid][grid]: how often; least [grid]: the smallest count of each row; above [grid]
     * [words]: a bit per column, whether the block was used more often than the least of its row */
    uint64_t cell[];
};

static const struct pl_opt blocks_opts[] = {
    PL_OPT_COUNT(struct blocks, grid, "auto", 1, BLOCKS_MAX,
                 "the matrix is cut into grid x grid blocks (auto: workers + 1)"),
    PL_OPT_BOOL(struct blocks, fine, "no", "finer grid=auto: 2 x workers + 1, at least 20"),
    PL_OPT_BOOL(struct blocks, near, "no",
                "of equally used blocks, prefer one with the worker's last users or items"),
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

static size_t blocks_words(size_t grid) {
    return (grid + 63) / 64;
}

static size_t blocks_room(const void *conf, int n_workers) {
    size_t n = (size_t)blocks_grid(conf, n_workers);
    return n * (n + 1 + blocks_words(n)) * sizeof(uint64_t);
}

/* The tables of a state. */
struct blocks_tables {
    size_t grid, words;
    uint64_t *used, *least, *above;
};

static struct blocks_tables blocks_tables(struct blocks_state *s, int n_workers) {
    size_t grid = (size_t)blocks_grid(&s->conf, n_workers);
    uint64_t *least = s->cell + grid * grid;
    return (struct blocks_tables){grid, blocks_words(grid), s->cell, least, least + grid};
}

static struct pl_knobs blocks_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

static void blocks_count(struct blocks_tables *t, size_t row, size_t column) {
    uint64_t *used = t->used + row * t->grid, *above = t->above + row * t->words;
    bool lowest = used[column]++ == t->least[row];
    above[column / 64] |= UINT64_C(1) << column % 64;
    if (!lowest) return;
    for (size_t j = 0; j < t->grid; j++)
        if (used[j] == t->least[row]) return;
    t->least[row]++; /* that of a row grows by one at a time: some block was used once more */
    memset(above, 0, t->words * sizeof *above);
    for (size_t j = 0; j < t->grid; j++)
        if (used[j] > t->least[row]) above[j / 64] |= UINT64_C(1) << j % 64;
}

/* Free rows and columns, and the choice so far. */
struct blocks_choice {
    bool busy_row[BLOCKS_MAX];
    uint64_t busy[BLOCKS_MAX / 64]; /* a bit per column */
    size_t row, column;
    uint64_t least;
    uint32_t n_equal;
};

static void blocks_look(const struct pl_view *v, struct blocks_choice *c) {
    *c = (struct blocks_choice){.least = UINT64_MAX};
    for (int i = v->busy; i >= 0; i = pl_next(v, i)) {
        c->busy_row[v->worker[i].row] = true;
        c->busy[v->worker[i].col / 64] |= UINT64_C(1) << v->worker[i].col % 64;
    }
}

static void blocks_consider(struct blocks_choice *c, struct pl_rng *rng, uint64_t used, size_t row,
                            size_t column) {
    if (used > c->least) return;
    c->n_equal = used < c->least ? 1 : c->n_equal + 1;
    c->least = used;
    /* the n-th of equal blocks replaces the choice with probability 1/n: all are as likely */
    if (c->n_equal > 1 && pl_rng_below(rng, c->n_equal) > 0) return;
    c->row = row;
    c->column = column;
}

/* Considers the blocks of a row in order. Once the choice has as few uses as any in the row, only
 * those at the row's least can matter, unless `all` do. */
static void blocks_row(const struct blocks_tables *t, struct blocks_choice *c, struct pl_rng *rng,
                       size_t row, bool all) {
    const uint64_t *used = t->used + row * t->grid, *above = t->above + row * t->words;
    size_t column = 0;
    for (; (all || c->least > t->least[row]) && column < t->grid; column++)
        if (!(c->busy[column / 64] >> column % 64 & 1))
            blocks_consider(c, rng, used[column], row, column);
    if (c->least < t->least[row]) return;
    for (size_t word = column / 64; word < t->words; word++) {
        uint64_t rest = ~above[word] & ~c->busy[word];
        if (word == column / 64) rest &= UINT64_MAX << column % 64;
        if (word == t->grid / 64) rest &= (UINT64_C(1) << t->grid % 64) - 1;
        for (; rest; rest &= rest - 1)
            blocks_consider(c, rng, t->least[row], row, word * 64 + (size_t)__builtin_ctzll(rest));
    }
}

/* Replaces the choice by an equal block in this row, or else in this column, if there is one. */
static void blocks_near(const struct blocks_tables *t, struct blocks_choice *c, struct pl_rng *rng,
                        size_t row, size_t column) {
    struct blocks_choice near = *c;
    near.n_equal = 0;
    for (size_t j = 0; j < t->grid; j++)
        if (!(c->busy[j / 64] >> j % 64 & 1) && t->used[row * t->grid + j] == c->least)
            blocks_consider(&near, rng, c->least, row, j);
    for (size_t i = 0, in_row = near.n_equal; in_row == 0 && i < t->grid; i++)
        if (!c->busy_row[i] && t->used[i * t->grid + column] == c->least)
            blocks_consider(&near, rng, c->least, i, column);
    *c = near;
}

/* `last` is what the worker has just finished; NULL: it joins. */
static void blocks_next(struct blocks_state *s, const struct pl_view *v, int worker,
                        const struct pl_worker *last, struct pl_plan *p) {
    struct blocks_tables t = blocks_tables(s, v->n_workers);
    struct blocks_choice c;
    blocks_look(v, &c);
    /* the tables of a damaged checkpoint may hide all free blocks: then every one is considered */
    for (int all = 0; all < 2 && c.n_equal == 0; all++)
        for (size_t row = 0; row < t.grid; row++)
            if (!c.busy_row[row] && (all || t.least[row] <= c.least))
                blocks_row(&t, &c, v->rng, row, all);
    if (s->conf.near && last) blocks_near(&t, &c, v->rng, (size_t)last->row, (size_t)last->col);
    pl_start_part(p, worker, (int)c.row, (int)c.column);
}

static void blocks_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    struct blocks_state *s = state;
    const struct pl_worker *w = &v->worker[a->worker];
    pl_take(p, 1);
    pl_commit(p, 1);
    struct blocks_tables t = blocks_tables(s, v->n_workers);
    blocks_count(&t, (size_t)w->row, (size_t)w->col);
    blocks_next(s, v, a->worker, w, p);
}

static void blocks_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    blocks_next(state, v, worker, NULL, p);
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
