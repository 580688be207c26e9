#include "core/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gram.h"

#define STORE_MANY (UINT64_C(1) << 62) /* no run commits so often, or on so many samples */

struct store_member {
    struct pl_version *base; /* NULL where no rule asks for it */
    const pl_real *vector;
    int worker;
    uint64_t base_id, lag;
    double factor; /* of the take */
    double loss;
    struct pl_correct_at at;
    struct pl_range range[PL_RANGES];
    int n_ranges; /* 0: a vector to be reduced */
};

struct pl_store {
    struct pl_store_conf conf;
    const struct pl_correct *correct;
    const struct pl_optim *optim;
    bool looks_ahead;
    size_t from; /* first element of the share, in the whole vector */

    struct pl_versions versions;
    struct pl_version *newest;

    struct store_member *member;
    uint32_t *samples;
    int *worker;
    double *factor; /* of takes and corrections */
    int n_members, room_members;

    struct pl_mixer *mixer;
    double *gram; /* [PL_TILES + 1] squares of inner products: of every tile, and their sum */
    size_t room_gram;
    pl_real **kept; /* [n_kept][dim] corrected members, where they are needed twice */
    int n_kept;
    bool geometry;
    uint64_t n_medians;

    pl_real *correct_state[PL_RULE_VECTORS], *optim_state[PL_RULE_VECTORS];
    pl_real **own; /* [n_workers], filled in when a worker first contributes */
    pl_real *direction;
    pl_real *last;    /* the reduced vector of the commit before, where somebody asks */
    pl_real *scratch; /* [PL_TILES slots][room] blocks for corrected members */
    size_t scratch_room;
    double (*sums)[PL_RULE_SUMS]; /* [PL_TILES * members] of the first pass, kept for the next */
    size_t room_sums;

    double lr_max;
    uint64_t n_corrected, n_commits;
    double samples_applied;
    double correct_number[PL_RULE_NUMBERS], optim_number[PL_RULE_NUMBERS];
};

/* --- versions ---------------------------------------------------------------------------- */

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

uint64_t pl_store_n_medians(const struct pl_store *s) {
    return s->n_medians;
}

int pl_store_n_versions(const struct pl_store *s) {
    return s->versions.n;
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
    return pl_rate_now(&s->conf.rate, s->n_commits, pl_store_epochs(s), s->conf.n_workers);
}

/* --- making ------------------------------------------------------------------------------ */

int pl_store_new(const struct pl_store_conf *conf, const pl_real *w0, struct pl_store **out,
                 struct pl_why *why) {
    struct pl_store *s = calloc(1, sizeof *s);
    if (!s) return pl_fail(why, PL_ENOMEM, "out of memory");
    s->conf = *conf;
    s->correct = (const struct pl_correct *)conf->correct.entry;
    s->geometry = pl_reduce_geometry(&conf->reduce);
    if (s->geometry) pl_gram_init();
    s->optim = (const struct pl_optim *)conf->optim.entry;
    s->looks_ahead = s->optim->looks_ahead && s->optim->looks_ahead(conf->optim.conf);
    s->versions =
        (struct pl_versions){.dim = conf->dim, .looks_ahead = s->looks_ahead, .alloc = conf->alloc};
    if (conf->slice.whole == 0)
        s->conf.slice = (struct pl_slice){.whole = conf->dim, .end = PL_TILES};
    size_t length;
    pl_tile(s->conf.slice.whole, s->conf.slice.first, &s->from, &length);
    bool ok = true;
    for (int i = 0; i < s->correct->n_vectors; i++)
        ok = (s->correct_state[i] = pl_vector_new(conf->dim)) && ok;
    for (int i = 0; i < s->optim->n_vectors; i++)
        ok = (s->optim_state[i] = pl_vector_new(conf->dim)) && ok;
    if (s->optim->per_worker) ok = (s->own = calloc((size_t)conf->n_workers, sizeof *s->own)) && ok;
    if (s->optim->velocity == PL_VELOCITY_DIRECTION && s->correct->id.needs & PL_NEEDS_BASE)
        ok = (s->direction = pl_vector_new(conf->dim)) && ok;
    if (conf->measures || pl_reduce_remembers(&conf->reduce))
        ok = (s->last = pl_vector_new(conf->dim)) && ok;
    ok = (s->mixer = pl_mixer_new()) && ok;
    s->newest = ok ? pl_versions_spare(&s->versions) : NULL;
    if (!s->newest) {
        pl_store_free(s);
        return pl_fail(why, PL_ENOMEM, "out of memory for a model of %zu parameters", conf->dim);
    }
    memcpy(s->newest->model, w0, conf->dim * sizeof *w0);
    if (s->looks_ahead) memcpy(s->newest->lookahead, w0, conf->dim * sizeof *w0);
    s->newest->n_holders = 1;
    s->newest->lr = store_rate(s);
    *out = s;
    return PL_OK;
}

void pl_store_free(struct pl_store *s) {
    if (!s) return;
    pl_versions_free(&s->versions);
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
    free(s->member);
    free(s->samples);
    free(s->worker);
    free(s->factor);
    for (int i = 0; i < s->n_kept; i++) free(s->kept[i]);
    free(s->kept);
    free(s->gram);
    pl_mixer_free(s->mixer);
    free(s);
}

/* --- keeping ----------------------------------------------------------------------------- */

/* A worker's own vector: made when one was kept for it. */
static int store_archive_own(struct pl_store *s, const struct pl_archive *k, int worker) {
    char name[PL_NAME_MAX + 32];
    snprintf(name, sizeof name, "own.%s.%d", s->optim->id.name, worker + 1);
    pl_real *v = s->own[worker];
    if (!v && k->restoring && !(v = pl_vector_new(s->conf.dim))) return PL_ENOMEM;
    size_t kept = v ? k->reals(k->ctx, name, v, s->conf.dim) : 0;
    if (kept == 0 && !s->own[worker]) {
        free(v);
        v = NULL;
    }
    s->own[worker] = v;
    return kept == 0 || kept == s->conf.dim ? PL_OK : PL_EDATA;
}

/* Vectors of a rule. They fit only one of the same name: what one optimizer calls its first is no
 * other's. */
static int store_archive_vectors(const struct pl_store *s, const struct pl_archive *k,
                                 const char *family, const struct pl_entry *id, pl_real *const *v,
                                 int n) {
    for (int i = 0; i < n; i++) {
        char name[PL_NAME_MAX + 32];
        snprintf(name, sizeof name, "%s.%s.%d", family, id->name, i);
        size_t kept = k->reals(k->ctx, name, v[i], s->conf.dim);
        if (kept != 0 && kept != s->conf.dim) return PL_EDATA;
    }
    return PL_OK;
}

/* What the schedules keep; earlier versions kept it with the optimizers. */
static void store_archive_schedules(struct pl_store *s, const struct pl_archive *k) {
    for (int i = 0; i < s->conf.rate.schedule.n; i++) {
        const struct pl_entry *id = s->conf.rate.schedule.link[i].entry;
        char name[PL_NAME_MAX + 32];
        if (!((const struct pl_schedule *)id)->commit) continue;
        snprintf(name, sizeof name, "store.optim.%s", id->name);
        if (k->restoring) k->numbers(k->ctx, name, s->conf.rate.number[i], PL_RULE_NUMBERS);
        snprintf(name, sizeof name, "store.schedule.%s", id->name);
        k->numbers(k->ctx, name, s->conf.rate.number[i], PL_RULE_NUMBERS);
    }
}

/* Vectors and numbers of both rules. */
static int store_archive_rules(struct pl_store *s, const struct pl_archive *k) {
    char name[PL_NAME_MAX + 32];
    snprintf(name, sizeof name, "store.correct.%s", s->correct->id.name);
    k->numbers(k->ctx, name, s->correct_number, PL_RULE_NUMBERS);
    snprintf(name, sizeof name, "store.optim.%s", s->optim->id.name);
    k->numbers(k->ctx, name, s->optim_number, PL_RULE_NUMBERS);
    store_archive_schedules(s, k);
    int rc = store_archive_vectors(s, k, "correct", &s->correct->id, s->correct_state,
                                   s->correct->n_vectors);
    return rc ? rc
              : store_archive_vectors(s, k, "optim", &s->optim->id, s->optim_state,
                                      s->optim->n_vectors);
}

int pl_store_archive(struct pl_store *s, const struct pl_archive *k) {
    size_t dim = s->conf.dim;
    uint64_t counts[2] = {s->n_commits, s->n_corrected};
    double numbers[2] = {s->lr_max, s->samples_applied};
    k->wholes(k->ctx, "store.counts", counts, 2);
    k->numbers(k->ctx, "store.numbers", numbers, 2);
    int rc = store_archive_rules(s, k);
    if (rc) return rc;
    if (s->direction) k->reals(k->ctx, "direction", s->direction, dim);
    if (s->last) k->reals(k->ctx, "last", s->last, dim);
    if (s->looks_ahead) k->reals(k->ctx, "handed", s->newest->lookahead, dim);
    for (int i = 0; s->own && i < s->conf.n_workers; i++)
        if ((rc = store_archive_own(s, k, i)) != 0) return rc;
    if (!k->restoring) return PL_OK;
    if (counts[0] >= STORE_MANY || counts[1] >= STORE_MANY || !isfinite(numbers[0]) ||
        !(numbers[1] >= 0 && numbers[1] < (double)STORE_MANY))
        return PL_EDATA;
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
    int *worker = realloc(s->worker, (size_t)room * sizeof *worker);
    if (worker) s->worker = worker;
    double *factor = realloc(s->factor, (size_t)room * sizeof *factor);
    if (factor) s->factor = factor;
    if (!member || !samples || !worker || !factor) return false;
    s->room_members = room;
    return true;
}

int pl_store_take(struct pl_store *s, const struct pl_member *m, struct pl_version *base,
                  const pl_real *vector) {
    if (s->n_members > 0 && s->optim->id.needs & PL_NEEDS_ONE_AT_A_TIME) return PL_EPOLICY;
    if (!store_grow(s)) return PL_ENOMEM;
    if (s->optim->per_worker && !s->own[m->worker] &&
        !(s->own[m->worker] = pl_vector_new(s->conf.dim)))
        return PL_ENOMEM;
    bool keep = s->correct->id.needs & PL_NEEDS_BASE;
    if (keep) pl_store_hold(base);
    s->samples[s->n_members] = m->samples;
    s->worker[s->n_members] = m->worker;
    s->member[s->n_members++] = (struct store_member){.base = keep ? base : NULL,
                                                      .vector = vector,
                                                      .worker = m->worker,
                                                      .base_id = m->base,
                                                      .lag = m->lag,
                                                      .factor = m->factor,
                                                      .loss = m->loss};
    return PL_OK;
}

int pl_store_take_part(struct pl_store *s, const struct pl_member *m, const struct pl_range *range,
                       int n_ranges, const pl_real *vector) {
    int rc = pl_store_take(s, m, NULL, vector);
    if (rc) return rc;
    struct store_member *mine = &s->member[s->n_members - 1];
    mine->n_ranges = n_ranges;
    memcpy(mine->range, range, (size_t)n_ranges * sizeof *range);
    return PL_OK;
}

/* --- a commit ---------------------------------------------------------------------------- */

/* Scratch for the members of a group, in every tile at once; in elements. */
struct store_plan {
    size_t pointers, corrected, mixture, lanes;
};

struct store_job {
    struct pl_store *s;
    struct pl_version *next;
    struct pl_optim_at at;
    size_t block; /* elements worked on at a time: shorter for large groups */
    bool raw;     /* members are reduced as they came: no scratch */
    bool kept;    /* … as they were kept in the pass before */
    struct pl_mixed mixed;
    struct store_plan plan;
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

/* The contribution of one member in one block, as a gradient: a model is made the move to it, and
 * weight decay is added (into tmp, both). */
static struct pl_correct_block store_block(const struct pl_store *s, const struct store_member *m,
                                           size_t at, size_t n, pl_real *tmp) {
    struct pl_correct_block b = {.n = n,
                                 .g = m->vector + at,
                                 .w = s->newest->model + at,
                                 .base = m->base ? m->base->lookahead + at : NULL,
                                 .velocity = store_velocity(s, m->worker, at)};
    for (int i = 0; i < s->correct->n_vectors; i++) b.state[i] = s->correct_state[i] + at;
    if (s->conf.sends == PL_SENDS_MODEL) {
        for (size_t i = 0; i < n; i++) tmp[i] = b.w[i] - b.g[i];
        b.g = tmp;
    } else if (s->conf.weight_decay != 0) {
        pl_real decay = (pl_real)s->conf.weight_decay;
        for (size_t i = 0; i < n; i++) tmp[i] = b.g[i] + decay * b.w[i];
        b.g = tmp;
    }
    return b;
}

/* A tile of the share, counted from where the share begins. */
static void store_tile(const struct pl_store *s, int tile, size_t *from, size_t *n) {
    pl_tile(s->conf.slice.whole, tile, from, n);
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

/* One block of a member, corrected: into mine [n] where it is not at hand. */
static const pl_real *store_corrected(const struct store_job *job, int m, size_t at, size_t n,
                                      pl_real *mine) {
    const struct pl_store *s = job->s;
    pl_real tmp[PL_BLOCK];
    if (job->raw) return s->member[m].vector + at;
    if (job->kept) return s->kept[m] + at;
    struct pl_correct_block b = store_block(s, &s->member[m], at, n, tmp);
    if (s->correct->apply)
        s->correct->apply(s->conf.correct.conf, &s->member[m].at, &b, mine);
    else
        memcpy(mine, b.g, n * sizeof *mine);
    return mine;
}

/* The pass between: inner products of all members and, the last, of the result before. */
static void store_gram(void *arg, int tile) {
    struct store_job *job = arg;
    struct pl_store *s = job->s;
    int side = s->n_members + 1;
    size_t square = (size_t)side * (size_t)side, from, n_tile;
    double *sum = s->gram + (size_t)tile * square;
    pl_real *x = s->scratch + (size_t)tile * s->scratch_room;
    pl_real *room = x + (size_t)side * PL_GRAM_BLOCK;
    bool last = pl_reduce_remembers(&s->conf.reduce);
    store_tile(s, tile, &from, &n_tile);
    memset(sum, 0, square * sizeof *sum);
    for (size_t at = from; at < from + n_tile; at += PL_GRAM_BLOCK) {
        size_t n = from + n_tile - at < PL_GRAM_BLOCK ? from + n_tile - at : PL_GRAM_BLOCK;
        for (int m = 0; m < side; m++) {
            pl_real *to = x + (size_t)m * PL_GRAM_BLOCK;
            const pl_real *v = m < s->n_members ? store_corrected(job, m, at, n, to)
                               : last           ? s->last + at
                                                : NULL;
            if (!v)
                memset(to, 0, n * sizeof *to);
            else if (v != to)
                memcpy(to, v, n * sizeof *to);
            if (m < s->n_members && s->n_kept > 0) memcpy(s->kept[m] + at, to, n * sizeof *to);
        }
        pl_gram_add(side, n, x, PL_GRAM_BLOCK, room, sum);
    }
}

/* A weighted sum, or the member itself where it is one. */
static const pl_real *store_mixed(const struct store_job *job, const pl_real *const *member,
                                  const double *weight, size_t n, pl_real *out) {
    int one = -1;
    for (int m = 0; m < job->mixed.width; m++)
        if (weight[m] != 0) one = one < 0 && weight[m] == 1 ? m : job->mixed.width;
    if (one >= 0 && one < job->mixed.width) return member[one];
    return pl_vec_weighted(job->mixed.width, member, weight, n, out);
}

/* What a tile needs besides its blocks: pointers to members and to what was mixed of them. */
struct store_desk {
    const pl_real **member, **mixed;
    pl_real *corrected, *mixture, *lanes;
};

static struct store_desk store_desk(const struct store_job *job, int tile) {
    const struct pl_store *s = job->s;
    struct store_plan p = job->plan;
    pl_real *at = s->scratch + (size_t)tile * s->scratch_room;
    struct store_desk d = {.member = (const pl_real **)(void *)at};
    d.mixed = d.member + s->n_members + 1;
    d.corrected = at + p.pointers;
    d.mixture = d.corrected + p.corrected;
    d.lanes = d.mixture + p.mixture;
    return d;
}

static const pl_real *store_reduce(struct store_job *job, const struct store_desk *d, size_t at,
                                   size_t n, pl_real *out) {
    struct pl_store *s = job->s;
    const struct pl_mixed *mixed = &job->mixed;
    for (int m = 0; m < s->n_members; m++)
        d->member[m] = store_corrected(job, m, at, n, d->corrected + (size_t)m * job->block);
    d->member[s->n_members] = s->last ? s->last + at : NULL;
    if (!mixed->rule) return store_mixed(job, d->member, mixed->row, n, out);
    for (int i = 0; i < mixed->at.n; i++) {
        pl_real *to = d->mixture + (size_t)i * job->block;
        if (mixed->row)
            d->mixed[i] =
                store_mixed(job, d->member, mixed->row + (size_t)i * (size_t)mixed->width, n, to);
        else
            d->mixed[i] = mixed->factor[i] == 1
                              ? d->member[i]
                              : pl_vec_weighted(1, d->member + i, mixed->factor + i, n, to);
    }
    mixed->rule->apply(mixed->conf, &mixed->at, d->mixed, n, d->lanes, out);
    return out;
}

/* Second pass: everything elementwise. */
static void store_step(void *arg, int tile) {
    struct store_job *job = arg;
    struct pl_store *s = job->s;
    pl_real reduced[PL_BLOCK];
    size_t from, n_tile;
    store_tile(s, tile, &from, &n_tile);
    struct store_desk desk = store_desk(job, tile);
    double dot = 0;
    for (size_t at = from; at < from + n_tile; at += job->block) {
        size_t n = from + n_tile - at < job->block ? from + n_tile - at : job->block;
        const pl_real *u = store_reduce(job, &desk, at, n, reduced);
        struct pl_optim_block b = {.n = n,
                                   .u = u,
                                   .w = s->newest->model + at,
                                   .out = job->next->model + at,
                                   .ahead = s->looks_ahead ? job->next->lookahead + at : NULL,
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
    const struct pl_slice *slice = &s->conf.slice;
    struct store_tiles tiles = {job, arg, slice->first};
    int n = slice->end - slice->first;
    if (s->conf.parallel_for.run)
        s->conf.parallel_for.run(s->conf.parallel_for.ctx, n, store_one, &tiles);
    else
        for (int i = 0; i < n; i++) store_one(&tiles, i);
}

static int store_allreduce(const struct pl_store *s, double *row, size_t width) {
    const struct pl_slice *slice = &s->conf.slice;
    return slice->allreduce ? slice->allreduce(slice->ctx, row, width) : PL_OK;
}

/* Factors of corrections and takes. */
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
        if (store_allreduce(s, job->sum[0], (size_t)s->n_members * PL_RULE_SUMS)) return PL_ERUN;
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
        s->factor[m] = s->member[m].factor;
        if (c->factor) s->factor[m] *= c->factor(s->conf.correct.conf, at);
        memcpy(s->correct_number, at->number, sizeof at->number);
    }
    return PL_OK;
}

/* Blocks are shorter where all members have one in scratch. */
static struct store_plan store_plan(struct store_job *job) {
    const struct pl_store *s = job->s;
    const struct pl_mixed *mixed = &job->mixed;
    size_t n = (size_t)s->n_members;
    bool mixes = mixed->row != NULL, raw = job->raw || job->kept;
    for (int m = 0; m < s->n_members; m++) mixes |= mixed->factor[m] != 1;
    mixes &= mixed->rule != NULL;
    job->block = PL_GROUP_BLOCK / n & ~(size_t)15;
    if (job->block > PL_BLOCK || (raw && !mixes)) job->block = PL_BLOCK;
    if (job->block < 16) job->block = 16;
    return (struct store_plan){.pointers = ((2 * n + 2) * sizeof(void *) / sizeof(pl_real) + 15) &
                                           ~(size_t)15,
                               .corrected = raw ? 0 : n * job->block,
                               .mixture = mixes ? n * job->block : 0,
                               .lanes = mixed->rule ? PL_ROOM(n) : 0};
}

static bool store_scratch(struct pl_store *s, size_t room) {
    if (room <= s->scratch_room) return true;
    free(s->scratch);
    s->scratch_room = (room + 15) & ~(size_t)15;
    s->scratch = pl_vector_new(s->scratch_room * PL_TILES);
    if (!s->scratch) s->scratch_room = 0;
    return s->scratch != NULL;
}

/* Corrections that remember are applied once, and what they gave is kept for the second time. */
static bool store_keeps(struct pl_store *s) {
    if (s->n_members <= s->n_kept) return true;
    pl_real **kept = realloc(s->kept, (size_t)s->n_members * sizeof *kept);
    if (!kept) return false;
    s->kept = kept;
    while (s->n_kept < s->n_members)
        if (!(kept[s->n_kept++] = pl_vector_new(s->conf.dim))) return s->n_kept--, false;
    return true;
}

/* The weights of the members; inner products first, where they depend on them. */
static int store_mix(struct pl_store *s, struct store_job *job) {
    struct pl_rng rng;
    size_t side = (size_t)s->n_members + 1, square = side * side;
    struct pl_reduce_at at = {
        .n = s->n_members, .k = s->conf.k, .samples = s->samples, .worker = s->worker, .rng = &rng};
    pl_rng_init(&rng, s->conf.seed, PL_STREAM_REDUCE, 0, s->n_commits);
    if (s->geometry && s->n_members <= PL_GRAM_MAX) {
        size_t room = (PL_TILES + 1) * square;
        if (room > s->room_gram) {
            free(s->gram);
            s->gram = malloc(room * sizeof *s->gram);
            s->room_gram = s->gram ? room : 0;
        }
        if (!s->gram || !store_scratch(s, side * (PL_GRAM_BLOCK + side))) return PL_ENOMEM;
        if (s->correct->apply && !store_keeps(s)) return PL_ENOMEM;
        memset(s->gram, 0, PL_TILES * square * sizeof *s->gram);
        store_tiles(s, store_gram, job);
        if (store_allreduce(s, s->gram, square)) return PL_ERUN;
        job->kept = s->correct->apply;
        double *sum = s->gram + PL_TILES * square;
        memset(sum, 0, square * sizeof *sum);
        for (size_t t = 0; t < PL_TILES; t++)
            for (size_t i = 0; i < square; i++) sum[i] += s->gram[t * square + i];
        for (size_t i = 0; i < side; i++)
            for (size_t j = 0; j < i; j++) sum[j * side + i] = sum[i * side + j];
        at.gram = sum;
    }
    int rc = pl_mix(s->mixer, &s->conf.reduce, &at, s->factor, &job->mixed);
    if (rc) return rc;
    s->n_medians += job->mixed.fell_back;
    job->plan = store_plan(job);
    struct store_plan *p = &job->plan;
    size_t room = p->pointers + p->corrected + p->mixture + p->lanes;
    return store_scratch(s, room) ? PL_OK : PL_ENOMEM;
}

/* What the optimizer is told of a commit, and what it notes. */
static struct pl_optim_at store_begin(struct pl_store *s, double lr) {
    struct pl_optim_at at = {.lr = lr,
                             .count = ++s->n_commits,
                             .n_workers = s->conf.n_workers,
                             .base = s->member[0].base_id};
    memcpy(at.number, s->optim_number, sizeof at.number);
    if (s->optim->begin) s->optim->begin(s->conf.optim.conf, &at);
    memcpy(s->optim_number, at.number, sizeof at.number);
    return at;
}

/* The group is in the newest version. */
static void store_end(struct pl_store *s) {
    double known = 0, loss = 0; /* samples whose loss is known, and the sum of those losses */
    for (int m = 0; m < s->n_members; m++) {
        if (!isnan(s->member[m].loss)) {
            known += s->samples[m];
            loss += s->samples[m] * s->member[m].loss;
        }
        s->samples_applied += s->samples[m];
        pl_store_release(s, s->member[m].base);
    }
    s->n_members = 0;
    pl_rate_commit(&s->conf.rate, known, known > 0 ? loss / known : NAN);
    s->newest->id = s->n_commits;
    s->newest->lr = store_rate(s);
}

/* New values of ranges: nothing else is read or written. */
static int store_commit_parts(struct pl_store *s) {
    struct pl_version *v = pl_versions_alone(&s->versions, s->newest);
    if (!v) return PL_ENOMEM;
    s->newest = v;
    for (int m = 0; m < s->n_members; m++)
        for (int i = 0; i < s->member[m].n_ranges; i++) {
            const struct pl_range *r = &s->member[m].range[i];
            memcpy(v->model + r->from, s->member[m].vector + r->from, r->n * sizeof *v->model);
        }
    store_begin(s, store_rate(s));
    store_end(s);
    return PL_OK;
}

int pl_store_commit(struct pl_store *s, double factor, struct pl_measure *measure) {
    if (s->n_members > 0 && s->member[0].n_ranges > 0) return store_commit_parts(s);
    bool moved = s->conf.sends != PL_SENDS_GRADIENT;
    bool by_k = s->conf.rate.by_k || (moved && s->conf.sum_members);
    double lr = (moved ? s->conf.outer : store_rate(s)) * factor * (by_k ? s->n_members : 1);
    if (lr > s->lr_max) s->lr_max = lr;
    struct store_job job = {.s = s, .next = pl_versions_spare(&s->versions)};
    if (!job.next) return PL_ENOMEM;
    job.raw = !s->correct->apply && s->conf.weight_decay == 0 && s->conf.sends != PL_SENDS_MODEL;
    int rc = store_correct(s, &job, lr);
    if (!rc) rc = store_mix(s, &job);
    if (rc) return rc;

    job.at = store_begin(s, lr);
    store_tiles(s, store_step, &job);
    if (s->last && store_allreduce(s, job.dot, 1)) return PL_ERUN;

    if (measure) {
        measure->dot = s->last && s->n_commits > 1 ? 0 : NAN;
        for (int t = 0; t < PL_TILES; t++) measure->dot += job.dot[t];
    }
    pl_store_release(s, s->newest);
    s->newest = job.next;
    s->newest->n_holders = 1;
    store_end(s);
    return PL_OK;
}
