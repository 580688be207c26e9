#include "core/filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER_ROW 10000    /* rejections in a row that may still be chance, */
#define FILTER_ROW_EACH 100 /* and this many more per worker */

struct filter_own {
    pl_real *vector[PL_FILTER_OWN]; /* NULL until the worker's first result */
};

struct pl_filter {
    struct pl_filter_conf conf;
    const struct pl_filter_kind *kind;
    struct pl_filter_memory memory;
    struct filter_own *own; /* [n_workers] */
    pl_real *trusted;       /* NULL: the filter needs none */
    uint64_t trusted_at;    /* the version it was computed at, plus 1; 0: never */
    uint64_t n_filtered, n_row;
};

static const struct pl_filter_kind *filter_kind(const struct pl_choice *c) {
    return (const struct pl_filter_kind *)c->entry;
}

bool pl_filter_any(const struct pl_choice *c) {
    return c->entry && filter_kind(c)->believes;
}

int pl_filter_check(const struct pl_choice *c, int n_workers, struct pl_why *why) {
    const struct pl_filter_kind *kind = filter_kind(c);
    const char *no = kind && kind->check ? kind->check(c->conf, n_workers) : NULL;
    char spec[PL_SPEC_MAX];
    if (!no) return PL_OK;
    pl_spec_print(&kind->id, c->conf, spec, sizeof spec);
    return pl_fail(why, PL_EUSAGE, "filter '%.200s' with %d workers: %s", spec, n_workers, no);
}

uint32_t pl_filter_trusts(const struct pl_choice *c) {
    if (!c->entry || !filter_kind(c)->trusts) return 0;
    return (uint32_t)((const struct pl_filter_trust *)c->conf)->samples;
}

/* --- creating ---------------------------------------------------------------------------- */

static pl_real *filter_vector(const struct pl_filter *f) {
    return calloc(f->conf.dim + 1, sizeof(pl_real));
}

static bool filter_memory(struct pl_filter *f) {
    struct pl_filter_memory *m = &f->memory;
    size_t n = (size_t)f->conf.n_workers;
    bool ok = true;
    for (int i = 0; i < f->kind->n_vectors; i++) ok = (m->vector[i] = filter_vector(f)) && ok;
    if (f->kind->trusts) ok = (f->trusted = filter_vector(f)) && ok;
    f->own = calloc(n, sizeof *f->own);
    m->number = calloc(n, sizeof *m->number);
    m->room = calloc(n, sizeof *m->room);
    m->mark = calloc(n * PL_FILTER_MARKS, sizeof *m->mark);
    m->whole = calloc(PL_FILTER_WHOLES(n), sizeof *m->whole);
    return ok && f->own && m->number && m->room && m->mark && m->whole;
}

int pl_filter_new(const struct pl_filter_conf *conf, struct pl_filter **out) {
    *out = NULL;
    if (!pl_filter_any(&conf->filter)) return PL_OK;
    struct pl_filter *f = calloc(1, sizeof *f);
    if (!f) return PL_ENOMEM;
    f->conf = *conf;
    f->kind = filter_kind(&conf->filter);
    if (!filter_memory(f)) {
        pl_filter_free(f);
        return PL_ENOMEM;
    }
    *out = f;
    return PL_OK;
}

void pl_filter_free(struct pl_filter *f) {
    if (!f) return;
    for (int i = 0; i < PL_RULE_VECTORS; i++) free(f->memory.vector[i]);
    for (int w = 0; f->own && w < f->conf.n_workers; w++)
        for (int i = 0; i < PL_FILTER_OWN; i++) free(f->own[w].vector[i]);
    free(f->own);
    free(f->trusted);
    free(f->memory.number);
    free(f->memory.room);
    free(f->memory.mark);
    free(f->memory.whole);
    free(f);
}

/* --- verdicts ---------------------------------------------------------------------------- */

/* The server's own gradient, computed again only when a result is compared with it. */
static int filter_trust(struct pl_filter *f, const struct pl_version *now) {
    if (!f->conf.trusted || !f->trusted) return PL_OK;
    uint64_t every = (uint64_t)((const struct pl_filter_trust *)f->conf.filter.conf)->every;
    uint64_t updates = f->trusted_at ? now->id - (f->trusted_at - 1) : UINT64_MAX;
    /* rejections count as well: without updates, an outdated gradient would reject all for ever */
    if (updates < every && (updates == 0 || f->n_row < every)) return PL_OK;
    int rc = f->conf.trusted(f->conf.ctx, now->model, f->trusted);
    if (!rc) f->trusted_at = now->id + 1;
    return rc;
}

bool pl_filter_give(struct pl_filter *f, uint64_t version, const pl_real *g) {
    if (!f || !f->trusted) return false;
    memcpy(f->trusted, g, f->conf.dim * sizeof *g);
    f->trusted_at = version + 1;
    return true;
}

int pl_filter_see(struct pl_filter *f, int worker, const struct pl_version *now,
                  const struct pl_version *base, pl_real *g, bool *believed) {
    *believed = true;
    if (!f) return PL_OK;
    int rc = filter_trust(f, now);
    if (rc) return rc;
    for (int i = 0; i < f->kind->n_own; i++) {
        pl_real **v = &f->own[worker].vector[i];
        if (!*v && !(*v = filter_vector(f))) return PL_ENOMEM;
        f->memory.own[i] = *v;
    }
    struct pl_filter_at at = {.n = pl_ranges_parameters(&f->conf.ranges, f->conf.dim),
                              .worker = worker,
                              .n_workers = f->conf.n_workers,
                              .version = now->id,
                              .base = base->id,
                              .lr = now->lr,
                              .w = now->model,
                              .base_w = base->lookahead,
                              .trusted = f->trusted};
    bool compares = !f->trusted || f->trusted_at > 0;
    *believed = compares && f->kind->believes(f->conf.filter.conf, &at, &f->memory, g);
    f->n_row = *believed ? 0 : f->n_row + 1;
    f->n_filtered += !*believed;
    return PL_OK;
}

uint64_t pl_filter_n(const struct pl_filter *f) {
    return f ? f->n_filtered : 0;
}

bool pl_filter_stuck(const struct pl_filter *f, uint64_t times) {
    return f && f->n_row / times > FILTER_ROW + FILTER_ROW_EACH * (uint64_t)f->conf.n_workers;
}

void pl_filter_trouble(const struct pl_filter *f, double seconds, struct pl_why *why) {
    pl_fail(why, PL_ERUN,
            "filter '%s' has rejected the last %llu gradients, so the run ends at %g s; use a "
            "smaller f or a milder filter",
            f->kind->id.name, (unsigned long long)f->n_row, seconds);
}

/* --- archiving --------------------------------------------------------------------------- */

/* A worker's own vectors. A worker for which none were saved is treated as new. */
static int filter_archive_own(struct pl_filter *f, const struct pl_archive *k, int worker) {
    for (int i = 0; i < f->kind->n_own; i++) {
        char name[48];
        snprintf(name, sizeof name, "filter.own.%d.%d", worker + 1, i);
        pl_real **v = &f->own[worker].vector[i];
        if (!*v && !k->restoring) continue;
        if (!*v && !(*v = filter_vector(f))) return PL_ENOMEM;
        if (pl_archive_reals(k, name, *v, f->conf.dim) > 0) continue;
        free(*v);
        *v = NULL;
        for (int m = 0; k->restoring && m < PL_FILTER_MARKS; m++)
            f->memory.mark[(size_t)worker * PL_FILTER_MARKS + (size_t)m] = 0;
    }
    return PL_OK;
}

int pl_filter_archive(struct pl_filter *f, const struct pl_archive *k) {
    if (!f) return PL_OK;
    size_t n = (size_t)f->conf.n_workers;
    uint64_t counts[3] = {f->trusted_at, f->n_filtered, f->n_row};
    char name[PL_NAME_MAX + 16];
    snprintf(name, sizeof name, "filter.%s", f->kind->id.name);
    if (pl_archive_wholes(k, name, counts, 3) == 0 && k->restoring) return PL_OK;
    pl_archive_numbers(k, "filter.numbers", f->memory.number, n);
    pl_archive_wholes(k, "filter.marks", f->memory.mark, n * PL_FILTER_MARKS);
    pl_archive_wholes(k, "filter.wholes", f->memory.whole, PL_FILTER_WHOLES(n));
    for (int i = 0; i < f->kind->n_vectors; i++) {
        snprintf(name, sizeof name, "filter.%d", i);
        pl_archive_reals(k, name, f->memory.vector[i], f->conf.dim);
    }
    if (f->trusted) pl_archive_reals(k, "filter.trusted", f->trusted, f->conf.dim);
    for (int i = 0; f->kind->n_own && i < f->conf.n_workers; i++)
        if (filter_archive_own(f, k, i)) return PL_ENOMEM;
    f->trusted_at = counts[0];
    f->n_filtered = counts[1];
    f->n_row = counts[2];
    return PL_OK;
}
