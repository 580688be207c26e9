#include "core/ranges.h"

static int ranges_factor(int i, const char *name, double factor, struct pl_why *why) {
    if (factor >= 0 && factor <= PL_RANGE_FACTOR_MAX) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "range %d of the model has %s %g, which is not between 0 and %g; use 1 for the "
                   "run's own",
                   i + 1, name, factor, PL_RANGE_FACTOR_MAX);
}

static int ranges_check_one(const struct pl_ranges *r, int i, size_t dim, struct pl_why *why) {
    const struct pl_model_range *x = &r->range[i];
    size_t from = i > 0 ? r->range[i - 1].end : 0;
    if (x->begin >= x->end || x->begin < from || x->end > dim)
        return pl_fail(why, PL_EUSAGE,
                       "range %d of the model has elements %zu to %zu, but ranges must not be "
                       "empty, must be in order without overlap, and must end within the model's "
                       "%zu elements",
                       i + 1, x->begin, x->end, dim);
    if (pl_range_is_buffers(x)) return PL_OK;
    if (x->kind != PL_RANGE_PARAMETERS)
        return pl_fail(why, PL_EUSAGE, "range %d of the model is of unknown kind %d", i + 1,
                       (int)x->kind);
    int rc = ranges_factor(i, "lr_factor", x->lr_factor, why);
    return rc ? rc : ranges_factor(i, "decay_factor", x->decay_factor, why);
}

int pl_ranges_check(const struct pl_ranges *r, size_t dim, struct pl_why *why) {
    size_t expected = 0; /* where the next range begins if the last was of buffers */
    for (int i = 0; i < r->n; i++) {
        const struct pl_model_range *x = &r->range[i];
        int rc = ranges_check_one(r, i, dim, why);
        if (rc) return rc;
        bool buffers = pl_range_is_buffers(x);
        if (expected > 0 && (!buffers || x->begin != expected)) break;
        expected = buffers ? x->end : 0;
    }
    if (expected > 0 && expected != dim)
        return pl_fail(why, PL_EUSAGE,
                       "the model has buffers up to element %zu and other elements after them; put "
                       "the buffers last",
                       expected);
    if (dim > 0 && pl_ranges_parameters(r, dim) == 0)
        return pl_fail(why, PL_EUSAGE, "the model has buffers only; give it parameters");
    return PL_OK;
}

size_t pl_ranges_parameters(const struct pl_ranges *r, size_t dim) {
    for (int i = r->n; i > 0 && pl_range_is_buffers(&r->range[i - 1]); i--)
        dim = r->range[i - 1].begin;
    return dim;
}

int pl_model_tensors_find(const struct pl_model_tensors *t, size_t at) {
    int low = 0, high = t->n; /* the first that ends after `at` */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (t->end[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct pl_piece pl_ranges_piece(const struct pl_ranges *r, size_t at, size_t end) {
    struct pl_piece p = {.n = end - at, .lr_factor = 1, .decay_factor = 1};
    int low = 0, high = r->n; /* the first range that ends after `at` */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (r->range[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == r->n) return p;
    const struct pl_model_range *x = &r->range[low];
    size_t stop = x->begin > at ? x->begin : x->end;
    if (stop < end) p.n = stop - at;
    if (x->begin > at) return p;
    p.buffers = pl_range_is_buffers(x);
    p.whole = x->kind == PL_RANGE_WHOLE_BUFFERS;
    if (p.buffers) return p;
    p.lr_factor = x->lr_factor;
    p.decay_factor = x->decay_factor;
    return p;
}
