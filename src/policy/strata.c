/* Strata: blocks of a matrix that share no row or column, and a barrier after each such set.
 *
 * Gemulla, Nijkamp, Haas, Sismanis, "Large-scale matrix factorization with distributed stochastic
 * gradient descent" (DSGD), KDD 2011. With a grid of t rows, an epoch is t strata; stratum k has
 * the blocks (i, (i + k) mod t), and there is a barrier after each stratum. Worker i has row i, so
 * the factors of the rows stay where they are and only those of the columns move.
 *
 * The paper has as many rows as workers, and no worker leaves. Here a row without a worker of its
 * own goes to any free worker, and the block of a worker that left is done again. Each result is
 * applied at once: no other worker reads it before the barrier. */
#include <string.h>

#include "paceline_policy.h"

#define STRATA_MAX 1024 /* rows */

enum { STRATA_SEQUENTIAL, STRATA_RANDOM };

struct strata {
    int grid, order;
};

struct strata_state {
    struct strata conf;
    uint32_t n;     /* strata done in this epoch */
    uint32_t begun; /* not 0: the order of the epoch is drawn */
    /* [grid] the epoch's strata in order, and [grid] which rows of the present one are done */
    uint16_t cell[];
};

static const struct pl_opt strata_opts[] = {
    PL_OPT_COUNT(struct strata, grid, "auto", 1, STRATA_MAX,
                 "the matrix is cut into grid x grid blocks (auto: workers)"),
    PL_OPT_CHOICE(struct strata, order, "sequential", "sequential|random",
                  "order of the strata within an epoch; random: reshuffled every epoch"),
    PL_OPT_END,
};

static int strata_grid(const void *conf, int n_workers) {
    const struct strata *c = conf;
    if (c->grid != PL_COUNT_AUTO) return c->grid;
    return n_workers < STRATA_MAX ? n_workers : STRATA_MAX;
}

static const char *strata_check(const void *conf, int n_workers) {
    if (n_workers > STRATA_MAX)
        return "a grid has at most 1024 rows and needs a row for every worker; use fewer workers";
    return strata_grid(conf, n_workers) >= n_workers
               ? NULL
               : "grid cannot be less than the number of workers: a stratum needs a block for each";
}

static size_t strata_room(const void *conf, int n_workers) {
    return 2 * (size_t)strata_grid(conf, n_workers) * sizeof(uint16_t);
}

static struct pl_knobs strata_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

/* Fisher-Yates shuffle of the previous epoch's order. */
static void strata_shuffle(uint16_t *order, int grid, struct pl_rng *rng) {
    for (int i = grid - 1; i > 0; i--) {
        int j = (int)pl_rng_below(rng, (uint32_t)i + 1);
        uint16_t other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}

static void strata_begin(struct strata_state *s, const struct pl_view *v, int grid) {
    for (int i = 0; !s->begun && i < grid; i++) s->cell[i] = (uint16_t)i;
    if (s->conf.order == STRATA_RANDOM) strata_shuffle(s->cell, grid, v->rng);
    s->begun = 1;
    s->n = 0;
}

/* All rows are done: begins the next stratum. */
static void strata_advance(struct strata_state *s, const struct pl_view *v, int grid) {
    if (++s->n >= (uint32_t)grid) strata_begin(s, v, grid);
    memset(s->cell + grid, 0, (size_t)grid * sizeof *s->cell);
}

/* Rows of the present stratum that are neither done nor being worked on. */
static int strata_open(const struct strata_state *s, const struct pl_view *v, int grid,
                       bool open[STRATA_MAX]) {
    int n = 0;
    for (int i = 0; i < grid; i++) open[i] = s->cell[grid + i] == 0;
    for (int i = v->busy; i >= 0; i = pl_next(v, i)) open[v->worker[i].row] = false;
    for (int i = 0; i < grid; i++) n += open[i];
    return n;
}

static void strata_start(const struct strata_state *s, int grid, int worker, int row,
                         bool open[STRATA_MAX], struct pl_plan *p) {
    int k = s->cell[s->n % (uint32_t)grid];
    open[row] = false;
    pl_start_part(p, worker, row, (row + k) % grid);
}

/* Every idle worker gets an open row: its own, or else any. */
static void strata_fill(struct strata_state *s, const struct pl_view *v, struct pl_plan *p) {
    int grid = strata_grid(&s->conf, v->n_workers), row = 0;
    bool open[STRATA_MAX], own[STRATA_MAX] = {false};
    if (!s->begun) strata_begin(s, v, grid);
    if (strata_open(s, v, grid, open) == 0 && pl_n_busy(v) == 0) {
        strata_advance(s, v, grid);
        strata_open(s, v, grid, open);
    }
    for (int i = v->idle; i >= 0; i = pl_next(v, i)) {
        own[i] = open[i];
        if (own[i]) strata_start(s, grid, i, i, open, p);
    }
    for (int i = v->idle; i >= 0; i = pl_next(v, i)) {
        if (own[i]) continue;
        while (row < grid && !open[row]) row++;
        if (row == grid) return;
        strata_start(s, grid, i, row, open, p);
    }
}

static void strata_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    struct strata_state *s = state;
    pl_take(p, 1);
    pl_commit(p, 1);
    s->cell[strata_grid(&s->conf, v->n_workers) + v->worker[a->worker].row] = 1;
    strata_fill(s, v, p);
}

static void strata_move(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    strata_fill(state, v, p);
}

const struct pl_policy pl_policy_strata = {
    .id = {"strata", "matrix blocks: sets of independent blocks, with a barrier after each set",
           "Gemulla, Nijkamp, Haas, Sismanis, KDD 2011", strata_opts, sizeof(struct strata), 0},
    .state_size = sizeof(struct strata_state),
    .room = strata_room,
    .grid = strata_grid,
    .check = strata_check,
    .knobs = strata_knobs,
    .arrive = strata_arrive,
    .join = strata_move,
    .leave = strata_move,
};
