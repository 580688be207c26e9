#include "run/strips.h"

#include <stdlib.h>
#include <string.h>

#include "core/rule.h"

/* What an output vector stands for. */
struct strips_output {
    const float *v;
    float *strip[PL_RANGES];
    struct pl_part part; /* of its latest task */
};

struct pl_strips {
    const struct pl_job *job;
    bool judges;
    size_t longest[PL_RANGES];
    int side;
    float **model[PL_RANGES]; /* [side] the strips of the model: users, items */
    struct strips_output *output;
    int n_outputs, room;
};

int pl_strips_slots(const struct pl_job *job) {
    return pl_grid_side(job->grid);
}

/* Segment i of the users and segment i of the items share a slot at first. */
static int strips_first(struct pl_strips *p, const struct pl_port_ops *ops, struct pl_port *port,
                        const float *w) {
    for (int i = 0; i < p->side; i++) {
        struct pl_range range[PL_RANGES];
        float *v = ops->vector(port, 0);
        if (!v) return PL_ENOMEM;
        int n = pl_part_ranges(p->job, (struct pl_part){i, i}, range);
        for (int j = 0; j < n; v += p->longest[j++]) {
            memcpy(v, w + range[j].from, range[j].n * sizeof *v);
            p->model[j][i] = v;
        }
    }
    return PL_OK;
}

int pl_strips_new(const struct pl_job *job, const struct pl_port_ops *ops, struct pl_port *port,
                  const float *w, bool judges, struct pl_strips **out) {
    struct pl_strips *p = calloc(1, sizeof *p);
    if (!p) return PL_ENOMEM;
    *p = (struct pl_strips){.job = job, .judges = judges, .side = pl_grid_side(job->grid)};
    pl_part_longest(job, p->longest);
    bool ok = true;
    for (int j = 0; j < PL_RANGES; j++)
        ok = (p->model[j] = calloc((size_t)p->side, sizeof *p->model[j])) && ok;
    if (!ok || strips_first(p, ops, port, w)) {
        pl_strips_free(p);
        return PL_ENOMEM;
    }
    *out = p;
    return PL_OK;
}

void pl_strips_free(struct pl_strips *p) {
    if (!p) return;
    for (int j = 0; j < PL_RANGES; j++) free(p->model[j]);
    free(p->output);
    free(p);
}

static struct strips_output *strips_find(struct pl_strips *p, const float *v) {
    for (int i = 0; i < p->n_outputs; i++)
        if (p->output[i].v == v) return &p->output[i];
    return NULL;
}

/* The output at v, which has the strips of its own slot when it is first used. */
static struct strips_output *strips_output(struct pl_strips *p, float *v) {
    struct strips_output *o = strips_find(p, v);
    if (o) return o;
    if (p->n_outputs == p->room) {
        int room = p->room ? 2 * p->room : 16;
        struct strips_output *grown = realloc(p->output, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        p->output = grown;
        p->room = room;
    }
    o = &p->output[p->n_outputs++];
    *o = (struct strips_output){.v = v};
    for (int j = 0; j < PL_RANGES; v += p->longest[j++]) o->strip[j] = v;
    return o;
}

/* The strip of the model that has range j of a part. */
static float **strips_at(const struct pl_strips *p, struct pl_part part, int j) {
    return &p->model[j][j == 0 ? part.row : part.col];
}

int pl_strips_order(struct pl_strips *p, struct pl_part part, float *v, struct pl_order *order) {
    struct strips_output *o = strips_output(p, v);
    if (!o) return PL_ENOMEM;
    o->part = part;
    for (int j = 0; j < PL_RANGES; j++) {
        order->strips.in[j] = *strips_at(p, part, j);
        order->strips.out[j] = o->strip[j];
    }
    return PL_OK;
}

bool pl_strips_adopt(struct pl_strips *p, const float *v) {
    struct strips_output *o = strips_find(p, v);
    struct pl_range range[PL_RANGES];
    if (!o) return false;
    int n = pl_part_ranges(p->job, o->part, range);
    for (int j = 0; p->judges && j < n; j++)
        if (!pl_vec_finite(o->strip[j], range[j].n)) return false;
    for (int j = 0; j < n; j++) {
        float **at = strips_at(p, o->part, j), *written = o->strip[j];
        o->strip[j] = *at;
        *at = written;
    }
    return true;
}

void pl_strips_model(const struct pl_strips *p, float *w) {
    for (int i = 0; i < p->side; i++) {
        struct pl_range range[PL_RANGES];
        int n = pl_part_ranges(p->job, (struct pl_part){i, i}, range);
        for (int j = 0; j < n; j++)
            memcpy(w + range[j].from, p->model[j][i], range[j].n * sizeof *w);
    }
}
