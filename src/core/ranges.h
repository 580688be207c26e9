/* Ranges of the model that are treated differently: groups of parameters with their own learning
 * rate and weight decay, and buffers.
 *
 * A model without a table of ranges (n == 0) is one range of parameters with factors 1; its results
 * have the same bits as before there were ranges. Elements that are in no range have factors 1.
 *
 * Parameters. The learning rate of the run is multiplied by lr_factor, and its weight decay by
 * decay_factor. The server does both if workers send gradients. If they send deltas or models, the
 * workers' own steps do both, and the server does neither. Corrections and reductions that compute
 * one number for the whole vector (a norm) use the learning rate of the run.
 *
 * Buffers are numbers that training does not descend on, such as the running statistics of batch
 * normalisation. They are the last elements of the vector, so they are versioned, sent, saved and
 * divided among servers together with the parameters. Whatever a worker sends in the parameters,
 * in the buffers it sends their new values. A commit sets the buffers to the mean of its members'
 * values, with equal weights, or, if they are whole numbers (a pointer, a count), to those of the
 * first worker if it contributed, and leaves them otherwise; correction, reduction, optimizer,
 * weight decay and schedule do not see them, nor do filters. */
#ifndef PL_CORE_RANGES_H
#define PL_CORE_RANGES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum pl_range_kind { PL_RANGE_PARAMETERS, PL_RANGE_BUFFERS, PL_RANGE_WHOLE_BUFFERS };

struct pl_model_range {
    size_t begin, end;              /* elements begin … end - 1 */
    double lr_factor, decay_factor; /* at least 0; buffers have none */
    enum pl_range_kind kind;
};

struct pl_ranges {
    const struct pl_model_range *range; /* in order; borrowed */
    int n;
};

#define PL_RANGE_FACTOR_MAX 1e6

/* The tensors of a model's parameters, one after the other: tensor i ends before element end[i]. A
 * result may lack some of them, because their parameters had no gradient. The result has zeros
 * there, and counts as a gradient of zero if another member of its group has the tensor, as with
 * find_unused_parameters of DistributedDataParallel. A tensor that no member has is skipped by the
 * commit, as torch.optim skips a parameter whose gradient is None: it does not move, and neither
 * do its momentum and its moments, whose steps are counted per tensor. */
struct pl_model_tensors {
    const size_t *end; /* borrowed */
    int n;             /* 0: results have all elements */
};

/* The tensor that element `at` is in; n if it is in none. */
int pl_model_tensors_find(const struct pl_model_tensors *t, size_t at);

/* Checks a table for a vector of `dim` elements: no range is empty, ranges are in order and do not
 * overlap, factors are numbers from 0 to PL_RANGE_FACTOR_MAX, and buffers end the vector. */
int pl_ranges_check(const struct pl_ranges *r, size_t dim, struct pl_why *why);

/* The number of elements before the first buffer. */
size_t pl_ranges_parameters(const struct pl_ranges *r, size_t dim);

/* Consecutive elements that are treated alike. */
struct pl_piece {
    size_t n;
    double lr_factor, decay_factor;
    bool buffers, whole; /* they are whole numbers */
};

static inline bool pl_range_is_buffers(const struct pl_model_range *x) {
    return x->kind == PL_RANGE_BUFFERS || x->kind == PL_RANGE_WHOLE_BUFFERS;
}

/* The longest piece that begins at element `at` and does not reach beyond `end`, at < end. */
struct pl_piece pl_ranges_piece(const struct pl_ranges *r, size_t at, size_t end);

#endif
