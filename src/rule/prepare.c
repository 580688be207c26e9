/* Reductions that prepare the gradients for another one: fewer gradients, shorter ones, or each
 * mixed with its neighbours. */
#include <math.h>
#include <string.h>

#include "rule/reduce.h"

/* --- nnm: nearest-neighbour mixing ------------------------------------------------------- */

static int nnm_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    size_t side = (size_t)at->n + 1;
    double *d = at->room, share = 1.0 / (at->n - at->f);
    (void)conf;
    for (int i = 0; i < at->n; i++, row += side) {
        const double *g = at->gram + (size_t)i * side;
        for (int j = 0; j < at->n; j++) {
            double x = g[i] + at->gram[(size_t)j * side + (size_t)j] - 2 * g[j];
            d[j] = i == j ? -1 : isfinite(x) ? (x > 0 ? x : 0) : INFINITY;
        }
        for (int k = 0; k < at->n - at->f; k++) {
            int best = -1;
            for (int j = 0; j < at->n; j++)
                if (row[j] == 0 && (best < 0 || d[j] < d[best])) best = j;
            row[best] = share;
        }
    }
    return at->n;
}

const struct pl_reduce pl_reduce_nnm = {
    .id = {"nnm", "before another rule: replace every gradient by the mean of its K-f nearest",
           "Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, AISTATS 2023", pl_reduce_f_opts,
           sizeof(struct pl_reduce_f), PL_NEEDS_SERVER},
    .prepares = true,
    .geometry = true,
    .needs = "2f < K",
    .most = pl_reduce_minority,
    .mix = nnm_mix,
};

/* --- bucketing --------------------------------------------------------------------------- */

struct bucketing {
    int64_t s;
};

static const struct pl_opt bucketing_opts[] = {
    PL_OPT_INT(struct bucketing, s, "2", 1, 1000000, "gradients per bucket"),
    PL_OPT_END,
};

static int bucketing_rows(const void *conf, int n) {
    int64_t s = ((const struct bucketing *)conf)->s;
    return (int)((n + s - 1) / s);
}

/* Buckets are drawn at random for every commit. The last one may be smaller. */
static int bucketing_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    int64_t s = ((const struct bucketing *)conf)->s;
    int n_rows = bucketing_rows(conf, at->n), *order = (int *)at->room;
    for (int i = 0; i < at->n; i++) order[i] = i;
    for (int i = at->n - 1; i > 0; i--) {
        int j = (int)pl_rng_below(at->rng, (uint32_t)i + 1), mine = order[i];
        order[i] = order[j];
        order[j] = mine;
    }
    for (int b = 0; b < n_rows; b++, row += at->n + 1) {
        int64_t from = b * s, to = from + s < at->n ? from + s : at->n;
        for (int64_t i = from; i < to; i++) row[order[i]] = 1.0 / (double)(to - from);
    }
    return n_rows;
}

const struct pl_reduce pl_reduce_bucketing = {
    .id = {.name = "bucketing",
           .brief = "before another rule: means of random groups of s gradients",
           .paper = "Karimireddy, He, Jaggi, ICLR 2022",
           .opts = bucketing_opts,
           .conf_size = sizeof(struct bucketing),
           .needs = PL_NEEDS_SERVER},
    .prepares = true,
    .rows = bucketing_rows,
    .mix = bucketing_mix,
};

/* --- clipping ---------------------------------------------------------------------------- */

enum { CLIPPING_STATIC, CLIPPING_ARC };

struct clipping {
    struct pl_reduce_f f;
    double c;
    int form;
};

static const struct pl_opt clipping_opts[] = {
    PL_OPT_REAL(struct clipping, c, "1", 1e-300, 1e300, "form=static: maximum norm of a gradient"),
    PL_OPT_CHOICE(
        struct clipping, form, "static", "static|arc",
        "static: clip to norm c; arc: clip the floor(2f(K-f)/K) longest to the next longest"),
    PL_REDUCE_F,
    PL_OPT_END,
};

static double clipping_length(const struct pl_reduce_at *at, int i) {
    double x = at->gram[(size_t)i * ((size_t)at->n + 1) + (size_t)i];
    return isfinite(x) ? sqrt(x > 0 ? x : 0) : INFINITY;
}

/* The length with rank n - floor(2f(n-f)/n), counted from the shortest. */
static double clipping_arc(const struct pl_reduce_at *at) {
    int n_cut = (int)(2.0 * at->f * (at->n - at->f) / at->n), n_above = 0;
    double *length = at->room, longest = 0;
    for (int i = 0; i < at->n; i++) length[i] = clipping_length(at, i);
    do { /* takes the longest remaining one, n_cut + 1 times */
        int best = 0;
        for (int i = 1; i < at->n; i++)
            if (length[i] > length[best]) best = i;
        longest = length[best];
        length[best] = -1;
    } while (n_above++ < n_cut);
    return longest;
}

static int clipping_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    const struct clipping *c = conf;
    double longest = c->form == CLIPPING_ARC ? clipping_arc(at) : c->c;
    if (!isfinite(longest)) return 0;
    for (int i = 0; i < at->n; i++) {
        double length = clipping_length(at, i);
        row[(size_t)i * ((size_t)at->n + 1) + (size_t)i] = length > longest ? longest / length : 1;
    }
    return at->n;
}

const struct pl_reduce pl_reduce_clipping = {
    .id = {"clipping", "before another rule: clip long gradients",
           "Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan, arXiv 2405.14432 (ARC)",
           clipping_opts, sizeof(struct clipping), PL_NEEDS_SERVER},
    .prepares = true,
    .geometry = true,
    .needs = "2f < K",
    .most = pl_reduce_minority,
    .mix = clipping_mix,
};

/* --- buffers: BASGD ----------------------------------------------------------------------
 * Yang, Li, "Buffered asynchronous SGD for Byzantine learning": the gradients of all workers s with
 * the same s mod B become one, their mean. */

struct buffers {
    int b;
};

static const struct pl_opt buffers_opts[] = {
    PL_OPT_COUNT(struct buffers, b, "auto", 1, 1000000,
                 "number of buffers (auto: the policy's k or b)"),
    PL_OPT_END,
};

static int buffers_rows(const void *conf, int n) {
    int b = ((const struct buffers *)conf)->b;
    return b == PL_COUNT_AUTO || b > n ? n : b;
}

/* Leaves out buffers without contributions. */
static int buffers_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    int b = ((const struct buffers *)conf)->b, n_rows = 0;
    if (b == PL_COUNT_AUTO) b = at->k;
    if (!at->worker || b < 1) return 0;
    for (int i = 0; i < at->n; i++) {
        int n_mine = 0, first = at->n;
        for (int j = at->n; j-- > 0;) {
            if (at->worker[j] % b != at->worker[i] % b) continue;
            first = j;
            n_mine++;
        }
        if (first < i) continue;
        double *mine = row + (size_t)n_rows++ * ((size_t)at->n + 1);
        for (int j = i; j < at->n; j++)
            if (at->worker[j] % b == at->worker[i] % b) mine[j] = 1.0 / n_mine;
    }
    return n_rows;
}

const struct pl_reduce pl_reduce_buffers = {
    .id = {"buffers", "before another rule: one mean per buffer; worker s uses buffer s mod b",
           "Yang and Li, JMLR 2023 (BASGD)", buffers_opts, sizeof(struct buffers), PL_NEEDS_SERVER},
    .prepares = true,
    .rows = buffers_rows,
    .mix = buffers_mix,
};
