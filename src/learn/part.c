#include "learn/part.h"

#include "model/mf.h"

int pl_part_side(const struct pl_job *job) {
    return job->grid ? pl_grid_side(job->grid) : 0;
}

uint64_t pl_part_number(struct pl_part p) {
    return pl_part_is(p) ? ((uint64_t)p.row + 1) << 32 | ((uint64_t)p.col + 1) : 0;
}

struct pl_part pl_part_of(const struct pl_job *job, uint64_t number) {
    uint64_t row = number >> 32, col = number & UINT32_MAX;
    uint64_t side = (uint64_t)pl_part_side(job);
    if (row < 1 || row > side || col < 1 || col > side) return PL_WHOLE;
    return (struct pl_part){(int)row - 1, (int)col - 1};
}

int pl_part_ranges(const struct pl_job *job, struct pl_part p, struct pl_range range[PL_STRIPS]) {
    size_t from[PL_STRIPS], n[PL_STRIPS];
    if (!pl_part_is(p) || !job->grid) {
        range[0] = (struct pl_range){0, job->model->dim};
        return 1;
    }
    pl_mf_ranges(job->model, pl_grid_side(job->grid), p.row, p.col, from, n);
    for (int i = 0; i < PL_STRIPS; i++) range[i] = (struct pl_range){from[i], n[i]};
    return PL_STRIPS;
}

void pl_part_longest(const struct pl_job *job, size_t most[PL_STRIPS]) {
    struct pl_range range[PL_STRIPS];
    int side = job->grid ? pl_grid_side(job->grid) : 1;
    for (int j = 0; j < PL_STRIPS; j++) most[j] = 0;
    for (int i = 0; i < side; i++) { /* a row and a column at a time */
        int n = pl_part_ranges(job, (struct pl_part){i, i}, range);
        for (int j = 0; j < n; j++)
            if (range[j].n > most[j]) most[j] = range[j].n;
    }
}

size_t pl_part_most(const struct pl_job *job) {
    size_t most[PL_STRIPS];
    pl_part_longest(job, most);
    return most[0] + most[1];
}

uint32_t pl_part_samples(const struct pl_job *job, struct pl_part p) {
    if (!pl_part_is(p) || !job->grid) return job->batch * pl_job_steps(job);
    return (uint32_t)pl_grid_size(job->grid, p.row, p.col);
}

double pl_part_work(const struct pl_job *job, struct pl_part p) {
    if (!pl_part_is(p) || !job->grid) return 1;
    double n = job->n_workers, mean = job->data->n_train / (n * n);
    size_t size = pl_grid_size(job->grid, p.row, p.col);
    return (double)(size ? size : 1) / mean;
}

double pl_part_share(const struct pl_job *job, struct pl_part p) {
    double side = pl_part_side(job), n = job->n_workers;
    return side > 0 ? pl_part_work(job, p) * (side * side) / (n * n) : 1;
}

double pl_part_size(const struct pl_job *job, struct pl_part p) {
    struct pl_range range[PL_STRIPS];
    size_t sum = 0;
    if (!pl_part_is(p) || !job->grid) return 1;
    int n = pl_part_ranges(job, p, range);
    for (int i = 0; i < n; i++) sum += range[i].n;
    return (double)sum / (double)job->model->dim;
}
