#include "core/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct store_member {
    struct pl_version *base; /* NULL where no rule asks for it */
    const pl_real *vector;
    int worker;
    uint64_t base_id, lag;
    double factor; /* of the take */
    struct pl_correct_at at;
};

struct pl_store {
    struct pl_store_conf conf;
    const struct pl_correct *correct;
    const struct pl_reduce *reduce;
    const struct pl_optim *optim;
    bool looks_ahead;
    size_t from; /* first element of the share, in the whole vector */

    struct pl_version **version; /* every version buffer there is */
    int n_versions, room_versions;
    struct pl_version *newest;

    struct store_member *member;
    uint32_t *samples;
    double *weight;
    int n_members, room_members;

    pl_real *correct_state[PL_RULE_VECTORS], *optim_state[PL_RULE_VECTORS];
    pl_real **own; /* [n_workers], filled in when a worker first contributes */
    pl_real *direction;
    pl_real *last;    /* the reduced vector of the commit before, where conf.measures */
    pl_real *scratch; /* [PL_TILES slots][room] blocks for corrected members */
    size_t scratch_room;
    double (*sums)[PL_RULE_SUMS]; /* [PL_TILES * members] of the first pass, kept for the next */
    size_t room_sums;

    double lr_max;
    uint64_t n_corrected, n_commits;
    double samples_applied;
    double correct_number[PL_RULE_NUMBERS], optim_number[PL_RULE_NUMBERS];
};

void pl_tile(size_t dim, int t, size_t *from, size_t *n) {
    size_t size = ((dim + PL_TILES - 1) / PL_TILES + 15) & ~(size_t)15;
    *from = (size_t)t * size < dim ? (size_t)t * size : dim;
    *n = *from + size < dim ? size : dim - *from;
}

int pl_tiles(size_t dim) {
    size_t from, n;
    int tiles = 0;
    do pl_tile(dim, tiles, &from, &n);
    while (n > 0 && ++tiles < PL_TILES);
    return tiles;
}

struct pl_share pl_share_cut(size_t dim, int n, int i, size_t *from, size_t *n_elements) {
    int tiles = pl_tiles(dim);
    size_t length, end;
    struct pl_share s = {.whole = dim, .first = tiles * i / n, .end = tiles * (i + 1) / n};
    pl_tile(dim, s.first, from, &length);
    pl_tile(dim, s.end - 1, &end, &length);
    *n_elements = end + length - *from;
    return s;
}

static void *store_vector(size_t dim) {
    size_t bytes = (dim * sizeof(pl_real) + 63) & ~(size_t)63;
    void *v = aligned_alloc(64, bytes ? bytes : 64);
    if (v) memset(v, 0, bytes);
    return v;
}

/* --- versions ---------------------------------------------------------------------------- */

static pl_real *store_placed(const struct pl_store *s) {
    const struct pl_place *place = &s->conf.place;
    return place->vector ? place->vector(place->ctx) : store_vector(s->conf.dim);
}

static void store_forget(const struct pl_store *s, struct pl_version *v) {
    if (!s->conf.place.vector) {
        if (v->handed != v->model) free(v->handed);
        free(v->model);
    }
    free(v);
}

static struct pl_version *store_free_version(struct pl_store *s) {
    for (int i = 0; i < s->n_versions; i++)
        if (s->version[i]->n_holders == 0) return s->version[i];
    if (s->n_versions == s->room_versions) {
        int room = s->room_versions ? 2 * s->room_versions : 8;
        struct pl_version **grown = realloc(s->version, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        s->version = grown;
        s->room_versions = room;
    }
    struct pl_version *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    v->model = store_placed(s);
    v->handed = s->looks_ahead ? store_placed(s) : v->model;
    if (!v->model || !v->handed) {
        store_forget(s, v);
        return NULL;
    }
    s->version[s->n_versions++] = v;
    return v;
}

struct pl_version *pl_store_newest(const struct pl_store *s) {
    return s->newest;
}

void pl_store_hold(struct pl_version *v) {
    v->n_holders++;
}

void pl_store_release(struct pl_store *s, struct pl_version *v) {
    (void)s;
    if (v) v->n_holders--;
}

int pl_store_n_versions(const struct pl_store *s) {
    return s->n_versions;
}

/* --- the rate ---------------------------------------------------------------------------- */

double pl_store_epochs(const struct pl_store *s) {
    double size = s->conf.rate.epoch_samples;
    return size > 0 ? s->samples_applied / size : 0;
}

double pl_store_samples(const struct pl_store *s) {
    return s->samples_applied;
}

static double store_rate(const struct pl_store *s) {
    const struct pl_rate *r = &s->conf.rate;
    double lr = r->lr;
    for (int i = 0; i < r->n_chain; i++) {
        const struct pl_schedule *schedule = (const struct pl_schedule *)r->chain[i].entry;
        const struct pl_schedule_unit *unit = r->chain[i].conf;
        double progress = unit->unit == PL_UNIT_UPDATES ? (double)s->n_commits : pl_store_epochs(s);
        lr *= schedule->factor(r->chain[i].conf, progress, s->conf.n_workers);
    }
    return lr;
}

/* --- making ------------------------------------------------------------------------------ */

int pl_store_new(const struct pl_store_conf *conf, const pl_real *w0, struct pl_store **out,
                 struct pl_why *why) {
    struct pl_store *s = calloc(1, sizeof *s);
    if (!s) return pl_fail(why, PL_ENOMEM, "out of memory");
    s->conf = *conf;
    s->correct = (const struct pl_correct *)conf->correct.entry;
    s->reduce = (const struct pl_reduce *)conf->reduce.entry;
    s->optim = (const struct pl_optim *)conf->optim.entry;
    s->looks_ahead = s->optim->looks_ahead && s->optim->looks_ahead(conf->optim.conf);
    if (conf->share.whole == 0)
        s->conf.share = (struct pl_share){.whole = conf->dim, .end = PL_TILES};
    size_t length;
    pl_tile(s->conf.share.whole, s->conf.share.first, &s->from, &length);
    bool ok = true;
    for (int i = 0; i < s->correct->n_vectors; i++)
        ok = (s->correct_state[i] = store_vector(conf->dim)) && ok;
    for (int i = 0; i < s->optim->n_vectors; i++)
        ok = (s->optim_state[i] = store_vector(conf->dim)) && ok;
    if (s->optim->per_worker) ok = (s->own = calloc((size_t)conf->n_workers, sizeof *s->own)) && ok;
    if (s->optim->velocity == PL_VELOCITY_DIRECTION && s->correct->needs_base)
        ok = (s->direction = store_vector(conf->dim)) && ok;
    if (conf->measures) ok = (s->last = store_vector(conf->dim)) && ok;
    s->newest = ok ? store_free_version(s) : NULL;
    if (!s->newest) {
        pl_store_free(s);
        return pl_fail(why, PL_ENOMEM, "out of memory for a model of %zu parameters", conf->dim);
    }
    memcpy(s->newest->model, w0, conf->dim * sizeof *w0);
    if (s->looks_ahead) memcpy(s->newest->handed, w0, conf->dim * sizeof *w0);
    s->newest->n_holders = 1;
    s->newest->lr = store_rate(s);
    *out = s;
    return PL_OK;
}

void pl_store_free(struct pl_store *s) {
    if (!s) return;
    for (int i = 0; i < s->n_versions; i++) store_forget(s, s->version[i]);
    for (int i = 0; i < PL_RULE_VECTORS; i++) {
        free(s->correct_state[i]);
        free(s->optim_state[i]);
    }
    for (int i = 0; s->own && i < s->conf.n_workers; i++) free(s->own[i]);
    free(s->own);
    free(s->direction);
    free(s->last);
    free(s->scratch);
    free(s->sums);
    free(s->version);
    free(s->member);
    free(s->samples);
    free(s->weight);
    free(s);
}

/* --- keeping ----------------------------------------------------------------------------- */

/* A worker's own vector: made when one was kept for it. */
static int store_keep_own(struct pl_store *s, const struct pl_keep *k, int worker) {
    char name[32];
    snprintf(name, sizeof name, "own.%d", worker + 1);
    pl_real *v = s->own[worker];
    if (!v && k->restoring && !(v = store_vector(s->conf.dim))) return PL_ENOMEM;
    if (v && k->reals(k->ctx, name, v, s->conf.dim) == 0 && !s->own[worker]) {
        free(v);
        v = NULL;
    }
    s->own[worker] = v;
    return PL_OK;
}

int pl_store_keep(struct pl_store *s, const struct pl_keep *k) {
    size_t dim = s->conf.dim;
    char name[32];
    uint64_t counts[2] = {s->n_commits, s->n_corrected};
    double numbers[2] = {s->lr_max, s->samples_applied};
    k->wholes(k->ctx, "store.counts", counts, 2);
    k->numbers(k->ctx, "store.numbers", numbers, 2);
    k->numbers(k->ctx, "store.correct", s->correct_number, PL_RULE_NUMBERS);
    k->numbers(k->ctx, "store.optim", s->optim_number, PL_RULE_NUMBERS);
    for (int i = 0; i < s->correct->n_vectors; i++) {
        snprintf(name, sizeof name, "correct.%d", i);
        k->reals(k->ctx, name, s->correct_state[i], dim);
    }
    for (int i = 0; i < s->optim->n_vectors; i++) {
        snprintf(name, sizeof name, "optim.%d", i);
        k->reals(k->ctx, name, s->optim_state[i], dim);
    }
    if (s->direction) k->reals(k->ctx, "direction", s->direction, dim);
    if (s->last) k->reals(k->ctx, "last", s->last, dim);
    if (s->looks_ahead) k->reals(k->ctx, "handed", s->newest->handed, dim);
    for (int i = 0; s->own && i < s->conf.n_workers; i++)
        if (store_keep_own(s, k, i)) return PL_ENOMEM;
    if (!k->restoring) return PL_OK;
    s->n_commits = s->newest->id = counts[0];
    s->n_corrected = counts[1];
    s->lr_max = numbers[0];
    s->samples_applied = numbers[1];
    s->newest->lr = store_rate(s);
    return PL_OK;
}

/* --- the group --------------------------------------------------------------------------- */

static bool store_grow(struct pl_store *s) {
    if (s->n_members < s->room_members) return true;
    int room = s->room_members ? 2 * s->room_members : 16;
    struct store_member *member = realloc(s->member, (size_t)room * sizeof *member);
    if (member) s->member = member;
    uint32_t *samples = realloc(s->samples, (size_t)room * sizeof *samples);
    if (samples) s->samples = samples;
    double *weight = realloc(s->weight, (size_t)room * sizeof *weight);
    if (weight) s->weight = weight;
    if (!member || !samples || !weight) return false;
    s->room_members = room;
    return true;
}

int pl_store_take(struct pl_store *s, const struct pl_member *m, struct pl_version *base,
                  const pl_real *vector) {
    if (!store_grow(s)) return PL_ENOMEM;
    if (s->optim->per_worker && !s->own[m->worker] &&
        !(s->own[m->worker] = store_vector(s->conf.dim)))
        return PL_ENOMEM;
    bool keep = s->correct->needs_base;
    if (keep) pl_store_hold(base);
    s->samples[s->n_members] = m->samples;
    s->member[s->n_members++] = (struct store_member){.base = keep ? base : NULL,
                                                      .vector = vector,
                                                      .worker = m->worker,
                                                      .base_id = m->base,
                                                      .lag = m->lag,
                                                      .factor = m->factor};
    return PL_OK;
}

/* --- a commit ---------------------------------------------------------------------------- */

struct store_job {
    struct pl_store *s;
    struct pl_version *next;
    struct pl_optim_at at;
    size_t block;                /* elements worked on at a time: shorter for large groups */
    bool raw;                    /* members are reduced as they came: no scratch */
    double (*sum)[PL_RULE_SUMS]; /* [PL_TILES * n_members] in the first pass */
    double dot[PL_TILES];
};

static const pl_real *store_velocity(const struct pl_store *s, int worker, size_t at) {
    switch (s->optim->velocity) {
    case PL_VELOCITY_STATE: return s->optim_state[0] + at;
    case PL_VELOCITY_OWN: return s->own[worker] + at;
    case PL_VELOCITY_DIRECTION: return s->direction ? s->direction + at : NULL;
    default: return NULL;
    }
}

/* The contribution of one member in one block, weight decay added (into tmp where there is any). */
static struct pl_correct_block store_block(const struct pl_store *s, const struct store_member *m,
                                           size_t at, size_t n, pl_real *tmp) {
    struct pl_correct_block b = {.n = n,
                                 .g = m->vector + at,
                                 .w = s->newest->model + at,
                                 .base = m->base ? m->base->handed + at : NULL,
                                 .velocity = store_velocity(s, m->worker, at)};
    for (int i = 0; i < s->correct->n_vectors; i++) b.state[i] = s->correct_state[i] + at;
    if (s->conf.weight_decay != 0) {
        pl_real decay = (pl_real)s->conf.weight_decay;
        for (size_t i = 0; i < n; i++) tmp[i] = b.g[i] + decay * b.w[i];
        b.g = tmp;
    }
    return b;
}

/* A tile of the share, counted from where the share begins. */
static void store_tile(const struct pl_store *s, int tile, size_t *from, size_t *n) {
    pl_tile(s->conf.share.whole, tile, from, n);
    *from -= s->from;
}

/* First pass: the sums that corrections ask for. */
static void store_sums(void *arg, int tile) {
    struct store_job *job = arg;
    struct pl_store *s = job->s;
    pl_real tmp[PL_BLOCK];
    size_t from, n_tile;
    store_tile(s, tile, &from, &n_tile);
    for (int m = 0; m < s->n_members; m++) {
        double *sum = job->sum[tile * s->n_members + m];
        for (size_t at = from; at < from + n_tile; at += PL_BLOCK) {
            size_t n = from + n_tile - at < PL_BLOCK ? from + n_tile - at : PL_BLOCK;
            struct pl_correct_block b = store_block(s, &s->member[m], at, n, tmp);
            s->correct->sums(s->conf.correct.conf, &b, sum);
        }
    }
}

static const pl_real *store_reduce(struct store_job *job, int tile, size_t at, size_t n,
                                   pl_real *out) {
    struct pl_store *s = job->s;
    const pl_real *list[64];
    const pl_real **member = list;
    /* room for the pointers of a large group lies at the end of the tile's scratch */
    pl_real *scratch = s->scratch + (size_t)tile * s->scratch_room;
    if (s->n_members > 64)
        member =
            (const pl_real **)(void *)(scratch + s->scratch_room -
                                       (size_t)s->n_members * sizeof(void *) / sizeof(pl_real));
    for (int m = 0; m < s->n_members; m++) {
        if (job->raw) {
            member[m] = s->member[m].vector + at;
            continue;
        }
        pl_real tmp[PL_BLOCK], *mine = scratch + (size_t)m * job->block;
        struct pl_correct_block b = store_block(s, &s->member[m], at, n, tmp);
        if (s->correct->apply)
            s->correct->apply(s->conf.correct.conf, &s->member[m].at, &b, mine);
        else
            memcpy(mine, b.g, n * sizeof *mine);
        member[m] = mine;
    }
    return s->reduce->apply(s->conf.reduce.conf, s->n_members, member, s->weight, n, out);
}

/* Second pass: everything elementwise. */
static void store_step(void *arg, int tile) {
    struct store_job *job = arg;
    struct pl_store *s = job->s;
    pl_real reduced[PL_BLOCK];
    size_t from, n_tile;
    store_tile(s, tile, &from, &n_tile);
    double dot = 0;
    for (size_t at = from; at < from + n_tile; at += job->block) {
        size_t n = from + n_tile - at < job->block ? from + n_tile - at : job->block;
        const pl_real *u = store_reduce(job, tile, at, n, reduced);
        struct pl_optim_block b = {.n = n,
                                   .u = u,
                                   .w = s->newest->model + at,
                                   .out = job->next->model + at,
                                   .ahead = s->looks_ahead ? job->next->handed + at : NULL,
                                   .own = s->own ? s->own[s->member[0].worker] + at : NULL,
                                   .direction = s->direction ? s->direction + at : NULL};
        for (int i = 0; i < s->optim->n_vectors; i++) b.state[i] = s->optim_state[i] + at;
        s->optim->step(s->conf.optim.conf, &job->at, &b);
        if (s->last) {
            dot += pl_vec_dot(u, s->last + at, n);
            memcpy(s->last + at, u, n * sizeof *u);
        }
    }
    job->dot[tile] = dot;
}

struct store_tiles {
    void (*job)(void *arg, int tile);
    void *arg;
    int first;
};

static void store_one(void *arg, int i) {
    const struct store_tiles *t = arg;
    t->job(t->arg, t->first + i);
}

static void store_tiles(struct pl_store *s, void (*job)(void *, int), void *arg) {
    const struct pl_share *share = &s->conf.share;
    struct store_tiles tiles = {job, arg, share->first};
    int n = share->end - share->first;
    if (s->conf.team.run)
        s->conf.team.run(s->conf.team.ctx, n, store_one, &tiles);
    else
        for (int i = 0; i < n; i++) store_one(&tiles, i);
}

static int store_agree(const struct pl_store *s, double *row, size_t width) {
    const struct pl_share *share = &s->conf.share;
    return share->agree ? share->agree(share->ctx, row, width) : PL_OK;
}

/* Factors of corrections and takes, multiplied into the weights. */
static int store_correct(struct pl_store *s, struct store_job *job, double lr) {
    const struct pl_correct *c = s->correct;
    size_t n = (size_t)PL_TILES * (size_t)s->n_members;
    bool sums = c->n_sums > 0 && (!c->wants_sums || c->wants_sums(s->conf.correct.conf));
    if (sums) {
        if (n > s->room_sums) {
            free(s->sums);
            s->sums = malloc(n * sizeof *s->sums);
            s->room_sums = s->sums ? n : 0;
        }
        if (!s->sums) return PL_ENOMEM;
        memset(s->sums, 0, n * sizeof *s->sums);
        job->sum = s->sums;
        store_tiles(s, store_sums, job);
        if (store_agree(s, job->sum[0], (size_t)s->n_members * PL_RULE_SUMS)) return PL_ERUN;
    }
    for (int m = 0; m < s->n_members; m++) {
        struct pl_correct_at *at = &s->member[m].at;
        *at = (struct pl_correct_at){.lag = s->member[m].lag,
                                     .count = ++s->n_corrected,
                                     .lr = lr,
                                     .lr_max = s->lr_max,
                                     .n_workers = s->conf.n_workers};
        memcpy(at->number, s->correct_number, sizeof at->number);
        for (int t = 0; sums && t < PL_TILES; t++)
            for (int i = 0; i < c->n_sums; i++) at->sum[i] += job->sum[t * s->n_members + m][i];
        s->weight[m] *= s->member[m].factor;
        if (c->factor) s->weight[m] *= c->factor(s->conf.correct.conf, at);
        memcpy(s->correct_number, at->number, sizeof at->number);
    }
    return PL_OK;
}

/* Scratch for the members of a group in every tile at once. */
static bool store_scratch(struct pl_store *s, const struct store_job *job) {
    size_t room = job->raw ? 0 : (size_t)s->n_members * job->block;
    if (s->n_members > 64) room += (size_t)s->n_members * sizeof(void *) / sizeof(pl_real) + 16;
    if (room <= s->scratch_room) return true;
    free(s->scratch);
    s->scratch_room = (room + 15) & ~(size_t)15;
    s->scratch = store_vector(s->scratch_room * PL_TILES);
    if (!s->scratch) s->scratch_room = 0;
    return s->scratch != NULL;
}

int pl_store_commit(struct pl_store *s, double factor, struct pl_measure *measure) {
    double lr = store_rate(s) * factor * (s->conf.rate.by_k ? s->n_members : 1);
    if (lr > s->lr_max) s->lr_max = lr;
    struct store_job job = {.s = s, .next = store_free_version(s)};
    if (!job.next) return PL_ENOMEM;
    job.raw = !s->correct->apply && s->conf.weight_decay == 0;
    job.block = PL_GROUP_BLOCK / (size_t)s->n_members & ~(size_t)15;
    if (job.block > PL_BLOCK) job.block = PL_BLOCK;
    if (job.block < 16 || job.raw) job.block = job.raw ? PL_BLOCK : 16;
    if (!store_scratch(s, &job)) return PL_ENOMEM;
    s->reduce->weigh(s->conf.reduce.conf, s->n_members, s->samples, s->weight);
    int rc = store_correct(s, &job, lr);
    if (rc) return rc;

    s->n_commits++;
    job.at = (struct pl_optim_at){.lr = lr,
                                  .count = s->n_commits,
                                  .n_workers = s->conf.n_workers,
                                  .base = s->member[0].base_id};
    memcpy(job.at.number, s->optim_number, sizeof job.at.number);
    if (s->optim->begin) s->optim->begin(s->conf.optim.conf, &job.at);
    memcpy(s->optim_number, job.at.number, sizeof job.at.number);
    store_tiles(s, store_step, &job);
    if (s->last && store_agree(s, job.dot, 1)) return PL_ERUN;

    if (measure) {
        measure->dot = s->last && s->n_commits > 1 ? 0 : NAN;
        for (int t = 0; t < PL_TILES; t++) measure->dot += job.dot[t];
    }
    for (int m = 0; m < s->n_members; m++) {
        s->samples_applied += s->samples[m];
        pl_store_release(s, s->member[m].base);
    }
    s->n_members = 0;
    pl_store_release(s, s->newest);
    s->newest = job.next;
    s->newest->n_holders = 1;
    s->newest->id = s->n_commits;
    s->newest->lr = store_rate(s);
    return PL_OK;
}
