#include "data/grid.h"

#include <stdlib.h>
#include <string.h>

struct pl_grid {
    int g;
    size_t *start; /* [g g + 1]: entries of block b are start[b] … start[b + 1] - 1 */
    size_t *size;  /* [g g]: number of ratings in block b */
    struct grid_half {
        size_t n;      /* entries of the first half of a block */
        uint32_t user; /* steps before the second */
    } * half;          /* [g g] */
    struct pl_grid_entry *entry;
};

void pl_grid_segment(uint32_t n, int g, int i, uint32_t *from, uint32_t *count) {
    uint64_t first = (uint64_t)n * (uint64_t)i / (uint64_t)g;
    uint64_t next = (uint64_t)n * ((uint64_t)i + 1) / (uint64_t)g;
    *from = (uint32_t)first;
    *count = (uint32_t)(next - first);
}

/* segment [n]: the segment of each id; local [n]: its index within the segment */
static void grid_cut(uint32_t n, int g, uint16_t *segment, uint32_t *local) {
    for (int s = 0; s < g; s++) {
        uint32_t from, count;
        pl_grid_segment(n, g, s, &from, &count);
        for (uint32_t i = 0; i < count; i++) {
            segment[from + i] = (uint16_t)s;
            local[from + i] = i;
        }
    }
}

/* Tables for building a grid. */
struct grid_maker {
    const struct pl_ratings *r;
    uint16_t *row_of, *col_of;         /* [n_users], [n_items] */
    uint32_t *user_local, *item_local; /* the same */
    struct pl_rating *first, *second;  /* [n_train]: sorted by item, then by user */
    uint32_t *count;                   /* [max(n_users, n_items) + 1] */
    uint32_t *last;                    /* [g g]: the previous user of each block */
};

static int grid_maker_new(struct grid_maker *m, const struct pl_ratings *r, int g) {
    size_t users = r->n_users, items = r->n_items, n = r->n_train;
    size_t most = users > items ? users : items;
    m->r = r;
    m->row_of = malloc(users * sizeof *m->row_of);
    m->col_of = malloc(items * sizeof *m->col_of);
    m->user_local = malloc(users * sizeof *m->user_local);
    m->item_local = malloc(items * sizeof *m->item_local);
    m->first = malloc((n + 1) * sizeof *m->first);
    m->second = malloc((n + 1) * sizeof *m->second);
    m->count = malloc((most + 1) * sizeof *m->count);
    m->last = calloc((size_t)g * (size_t)g, sizeof *m->last);
    if (!m->row_of || !m->col_of || !m->user_local || !m->item_local || !m->first || !m->second ||
        !m->count || !m->last)
        return PL_ENOMEM;
    grid_cut(r->n_users, g, m->row_of, m->user_local);
    grid_cut(r->n_items, g, m->col_of, m->item_local);
    return PL_OK;
}

static void grid_maker_free(struct grid_maker *m) {
    free(m->row_of);
    free(m->col_of);
    free(m->user_local);
    free(m->item_local);
    free(m->first);
    free(m->second);
    free(m->count);
    free(m->last);
}

/* Sorts by user, then by item: two stable counting sorts, by item first. They move the ratings
 * themselves, so that every pass reads in order. */
static void grid_sort(struct grid_maker *m) {
    const struct pl_rating *r = m->r->rating;
    uint32_t n = m->r->n_train, *count = m->count;
    memset(count, 0, ((size_t)m->r->n_items + 1) * sizeof *count);
    for (uint32_t i = 0; i < n; i++) count[r[i].item + 1]++;
    for (uint32_t v = 0; v < m->r->n_items; v++) count[v + 1] += count[v];
    for (uint32_t i = 0; i < n; i++) m->first[count[r[i].item]++] = r[i];
    memset(count, 0, ((size_t)m->r->n_users + 1) * sizeof *count);
    for (uint32_t i = 0; i < n; i++) count[r[i].user + 1]++;
    for (uint32_t u = 0; u < m->r->n_users; u++) count[u + 1] += count[u];
    for (uint32_t i = 0; i < n; i++) m->second[count[m->first[i].user]++] = m->first[i];
}

/* Tells whether the step to this user fits into an entry. */
static bool grid_near(uint32_t step) {
    return step < PL_GRID_FAR;
}

static size_t grid_block(const struct grid_maker *m, int g, const struct pl_rating *r) {
    return (size_t)m->row_of[r->user] * (size_t)g + m->col_of[r->item];
}

/* Counts the entries and ratings of each block into start[b + 1] and size[b]. */
static void grid_count(struct grid_maker *m, struct pl_grid *grid) {
    for (uint32_t i = 0; i < m->r->n_train; i++) {
        const struct pl_rating *r = &m->second[i];
        size_t b = grid_block(m, grid->g, r);
        uint32_t user = m->user_local[r->user];
        grid->size[b]++;
        grid->start[b + 1] += grid_near(user - m->last[b]) ? 1 : 2;
        m->last[b] = user;
    }
    size_t n_blocks = (size_t)grid->g * (size_t)grid->g;
    for (size_t b = 0; b < n_blocks; b++) grid->start[b + 1] += grid->start[b];
    memset(m->last, 0, n_blocks * sizeof *m->last);
}

/* Advances start[b] to the end of its block while filling, and resets it afterwards. */
static void grid_fill(struct grid_maker *m, struct pl_grid *grid) {
    size_t n_blocks = (size_t)grid->g * (size_t)grid->g;
    for (uint32_t i = 0; i < m->r->n_train; i++) {
        const struct pl_rating *r = &m->second[i];
        size_t b = grid_block(m, grid->g, r);
        uint32_t user = m->user_local[r->user], step = user - m->last[b];
        if (!grid_near(step)) {
            grid->entry[grid->start[b]++] = (struct pl_grid_entry){PL_GRID_FAR << 24 | step, 0};
            step = 0;
        }
        grid->entry[grid->start[b]++] =
            (struct pl_grid_entry){step << 24 | m->item_local[r->item], r->value};
        m->last[b] = user;
    }
    memmove(grid->start + 1, grid->start, n_blocks * sizeof *grid->start);
    grid->start[0] = 0;
}

static void grid_halve(struct pl_grid *grid) {
    size_t n_blocks = (size_t)grid->g * (size_t)grid->g;
    for (size_t b = 0; b < n_blocks; b++) {
        const struct pl_grid_entry *e = grid->entry + grid->start[b];
        size_t n = grid->start[b + 1] - grid->start[b], i = 0;
        uint32_t user = 0;
        for (; i < n; i++) {
            uint32_t step = e[i].where >> 24;
            if (step > 0 && 2 * i >= n) break;
            user += step == PL_GRID_FAR ? e[i].where & PL_GRID_ITEM : step;
        }
        grid->half[b] = (struct grid_half){i, user};
    }
}

int pl_grid_new(const struct pl_ratings *r, int g, struct pl_grid **out) {
    size_t n_blocks = (size_t)g * (size_t)g;
    struct grid_maker m = {.r = NULL};
    struct pl_grid *grid = calloc(1, sizeof *grid);
    if (!grid) return PL_ENOMEM;
    grid->g = g;
    grid->start = calloc(n_blocks + 1, sizeof *grid->start);
    grid->size = calloc(n_blocks, sizeof *grid->size);
    grid->half = calloc(n_blocks, sizeof *grid->half);
    int rc = grid->start && grid->size && grid->half ? grid_maker_new(&m, r, g) : PL_ENOMEM;
    if (!rc) {
        grid_sort(&m);
        grid_count(&m, grid);
        grid->entry = malloc((grid->start[n_blocks] + 1) * sizeof *grid->entry);
        if (grid->entry) {
            grid_fill(&m, grid);
            grid_halve(grid);
        } else {
            rc = PL_ENOMEM;
        }
    }
    grid_maker_free(&m);
    if (rc)
        pl_grid_free(grid);
    else
        *out = grid;
    return rc;
}

void pl_grid_free(struct pl_grid *grid) {
    if (!grid) return;
    free(grid->start);
    free(grid->size);
    free(grid->half);
    free(grid->entry);
    free(grid);
}

int pl_grid_side(const struct pl_grid *grid) {
    return grid->g;
}

size_t pl_grid_size(const struct pl_grid *grid, int row, int col) {
    return grid->size[(size_t)row * (size_t)grid->g + (size_t)col];
}

const struct pl_grid_entry *pl_grid_block(const struct pl_grid *grid, int row, int col, size_t *n) {
    size_t b = (size_t)row * (size_t)grid->g + (size_t)col;
    *n = grid->start[b + 1] - grid->start[b];
    return grid->entry + grid->start[b];
}

size_t pl_grid_half(const struct pl_grid *grid, int row, int col, uint32_t *user) {
    const struct grid_half *h = &grid->half[(size_t)row * (size_t)grid->g + (size_t)col];
    *user = h->user;
    return h->n;
}
