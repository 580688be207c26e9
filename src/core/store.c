#include "core/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "core/store_state.h"

#define STORE_MANY (UINT64_C(1) << 62) /* more commits or samples than any run has */

/* --- versions ---------------------------------------------------------------------------- */

/* The struct that belongs to a vector; it is reused together with the vector's id. */
static struct pl_version *store_struct(struct pl_store *s, int vector) {
    if (vector >= s->n_versions) {
        int n = s->n_versions ? s->n_versions : 16;
        while (n <= vector) n *= 2;
        if (!PL_RESIZE(s->version, n)) return NULL;
        memset(s->version + s->n_versions, 0, (size_t)(n - s->n_versions) * sizeof *s->version);
        s->n_versions = n;
    }
    if (!s->version[vector]) s->version[vector] = calloc(1, sizeof *s->version[vector]);
    return s->version[vector];
}

struct pl_version *pl_store_version(struct pl_store *s) {
    int model = pl_vector_add(s->vectors, PL_SERVER), lookahead = model;
    if (model != PL_NO_VECTOR && s->looks_ahead) lookahead = pl_vector_add(s->vectors, PL_SERVER);
    struct pl_version *v = model == PL_NO_VECTOR ? NULL : store_struct(s, model);
    if (v)
        *v = (struct pl_version){.model_vector = model,
                                 .lookahead_vector = lookahead,
                                 .model = pl_vector_at(s->vectors, model)};
    if (v && lookahead != PL_NO_VECTOR) v->lookahead = pl_vector_at(s->vectors, lookahead);
    if (v && v->model && v->lookahead) return v;
    if (lookahead != model) pl_vector_release(s->vectors, lookahead);
    pl_vector_release(s->vectors, model);
    return NULL;
}

struct pl_version *pl_store_newest(const struct pl_store *s) {
    return s->newest;
}

void pl_store_hold(struct pl_store *s, const struct pl_version *v) {
    pl_vector_hold(s->vectors, v->model_vector);
    if (v->lookahead_vector != v->model_vector) pl_vector_hold(s->vectors, v->lookahead_vector);
}

void pl_store_release(struct pl_store *s, const struct pl_version *v) {
    if (!v) return;
    if (v->lookahead_vector != v->model_vector) pl_vector_release(s->vectors, v->lookahead_vector);
    pl_vector_release(s->vectors, v->model_vector);
}

const pl_real *pl_store_shown(struct pl_store *s) {
    const pl_real *average = pl_average_shown(&s->average);
    return average ? average : s->newest->model;
}

bool pl_store_averages(const struct pl_store *s) {
    return s->average.conf.kind != PL_AVERAGE_NONE;
}

uint64_t pl_store_n_medians(const struct pl_store *s) {
    return pl_mixer_n_medians(s->mixer);
}

/* --- the rate ---------------------------------------------------------------------------- */

const struct pl_progress *pl_store_progress(const struct pl_store *s) {
    return &s->progress;
}

void pl_store_set_lr(struct pl_store *s, double lr) {
    pl_rate_set(&s->conf.rate, lr);
}

double pl_store_rate(const struct pl_store *s) {
    return pl_rate_now(&s->conf.rate, &s->progress, s->conf.n_workers);
}

/* --- what programs replace --------------------------------------------------------------- */

int pl_store_set_model(struct pl_store *s, const pl_real *w) {
    struct pl_version *next = pl_store_version(s);
    if (!next) return PL_ENOMEM;
    memcpy(next->model, w, s->conf.dim * sizeof *w);
    if (next->lookahead != next->model) memcpy(next->lookahead, w, s->conf.dim * sizeof *w);
    next->id = s->newest->id;
    next->lr = s->newest->lr;
    pl_store_release(s, s->newest);
    s->newest = next;
    pl_average_restart(&s->average);
    return PL_OK;
}

struct pl_store_state pl_store_state(const struct pl_store *s) {
    return (struct pl_store_state){.dim = s->conf.dim,
                                   .n = s->optim->n_vectors,
                                   .n_tensors = s->conf.tensors.n,
                                   .vector = s->optim_state};
}

uint64_t pl_store_steps(const struct pl_store *s, int tensor) {
    return s->progress.n_commits - (s->n_skipped ? s->n_skipped[tensor] : 0);
}

/* Memory for what is known about single tensors. */
static bool store_tensors(struct pl_store *s) {
    size_t n = (size_t)s->conf.tensors.n;
    if (!s->skip) s->skip = calloc(n, sizeof *s->skip);
    if (!s->n_skipped) s->n_skipped = calloc(n, sizeof *s->n_skipped);
    return s->skip && s->n_skipped;
}

int pl_store_set_steps(struct pl_store *s, const uint64_t *steps) {
    bool same = true;
    for (int t = 0; t < s->conf.tensors.n; t++) same = same && steps[t] == pl_store_steps(s, t);
    if (same) return PL_OK;
    if (!store_tensors(s)) return PL_ENOMEM;
    for (int t = 0; t < s->conf.tensors.n; t++) s->n_skipped[t] = s->progress.n_commits - steps[t];
    return PL_OK;
}

/* --- making ------------------------------------------------------------------------------ */

/* A vector of zeros that lives as long as the store. */
static pl_real *store_zeros(const struct pl_store *s) {
    const struct pl_offload_ops *offload = s->conf.offload;
    return offload ? offload->zeros(offload->ctx) : pl_vector_new(s->conf.dim);
}

static void store_first(struct pl_store *s, const pl_real *w0) {
    const struct pl_offload_ops *offload = s->conf.offload;
    struct pl_version *v = s->newest;
    if (offload) {
        offload->load(offload->ctx, v->model, v->lookahead);
    } else {
        memcpy(v->model, w0, s->conf.dim * sizeof *w0);
        if (s->looks_ahead) memcpy(v->lookahead, w0, s->conf.dim * sizeof *w0);
    }
    v->lr = pl_store_rate(s);
}

int pl_store_new(const struct pl_store_conf *conf, const pl_real *w0, struct pl_store **out,
                 struct pl_why *why) {
    int rc = conf->offload ? pl_offload_check(conf, why) : PL_OK;
    if (rc) return rc;
    struct pl_store *s = calloc(1, sizeof *s);
    if (!s) return pl_fail(why, PL_ENOMEM, "out of memory");
    s->conf = *conf;
    s->progress.epoch = conf->rate.epoch_samples;
    s->correct = (const struct pl_correct *)conf->correct.entry;
    s->geometry = pl_reduce_geometry(&conf->reduce);
    s->optim = (const struct pl_optim *)conf->optim.entry;
    s->decays = conf->weight_decay != 0 && conf->max_norm == 0 && !s->optim->decouples;
    s->looks_ahead = s->optim->looks_ahead && s->optim->looks_ahead(conf->optim.conf);
    s->vectors = conf->vectors;
    s->owns_vectors = !s->vectors && pl_vectors_new(&s->vectors) == PL_OK;
    if (s->owns_vectors) pl_vectors_memory(s->vectors, conf->dim, NULL);
    if (conf->slice.whole == 0)
        s->conf.slice = (struct pl_slice){.whole = conf->dim, .end = PL_TILES};
    size_t length;
    pl_tile(s->conf.slice.whole, s->conf.slice.first, &s->from, &length);
    size_t parameters = pl_ranges_parameters(&conf->ranges, s->conf.slice.whole);
    s->n_parameters = parameters < s->from ? 0 : parameters - s->from;
    if (s->n_parameters > conf->dim) s->n_parameters = conf->dim;
    bool ok = s->vectors != NULL;
    for (int i = 0; i < s->correct->n_vectors; i++)
        ok = (s->correct_state[i] = store_zeros(s)) && ok;
    for (int i = 0; i < s->optim->n_vectors; i++) ok = (s->optim_state[i] = store_zeros(s)) && ok;
    if (s->optim->per_worker) ok = (s->own = calloc((size_t)conf->n_workers, sizeof *s->own)) && ok;
    if (s->optim->velocity == PL_VELOCITY_DIRECTION && s->correct->id.needs & PL_NEEDS_BASE)
        ok = (s->direction = store_zeros(s)) && ok;
    if (conf->measures || pl_reduce_remembers(&conf->reduce)) ok = (s->last = store_zeros(s)) && ok;
    if (conf->max_norm > 0) ok = (s->reduced = store_zeros(s)) && ok;
    s->average = (struct pl_average){.conf = conf->average, .dim = conf->dim};
    for (int i = 0; i < pl_average_vectors(&conf->average); i++)
        ok = (s->average.vector[i] = store_zeros(s)) && ok;
    ok = (s->mixer = pl_mixer_new()) && ok;
    s->newest = ok ? pl_store_version(s) : NULL;
    if (!s->newest) {
        pl_store_free(s);
        return pl_fail(why, PL_ENOMEM, "out of memory for a model of %zu parameters", conf->dim);
    }
    store_first(s, w0);
    *out = s;
    return PL_OK;
}

static void store_free_vectors(struct pl_store *s) {
    for (int i = 0; i < PL_RULE_VECTORS; i++) {
        free(s->correct_state[i]);
        free(s->optim_state[i]);
    }
    for (int i = 0; s->own && i < s->conf.n_workers; i++) free(s->own[i]);
    for (int i = 0; i < 3; i++) free(s->average.vector[i]);
    free(s->direction);
    free(s->last);
    free(s->reduced);
}

static void store_free_group(struct pl_store *s) {
    struct store_group *g = &s->group;
    for (int i = 0; i < g->n; i++) {
        pl_store_release(s, g->member[i].base);
        free(g->member[i].absent);
    }
    free(g->member);
    free(g->samples);
    free(g->worker);
    free(g->factor);
}

static void store_free_work(struct store_work *w) {
    free(w->gram);
    for (int i = 0; i < w->n_kept; i++) free(w->kept[i]);
    free(w->kept);
    free(w->scratch);
    free(w->sums);
}

void pl_store_free(struct pl_store *s) {
    if (!s) return;
    store_free_group(s);
    pl_store_release(s, s->newest);
    for (int i = 0; i < s->n_versions; i++) free(s->version[i]);
    free(s->version);
    if (s->owns_vectors) pl_vectors_free(s->vectors);
    if (!s->conf.offload) store_free_vectors(s);
    free(s->own);
    store_free_work(&s->work);
    free(s->skip);
    free(s->n_skipped);
    pl_mixer_free(s->mixer);
    free(s);
}

/* --- archive ----------------------------------------------------------------------------- */

/* A worker's own vector: allocated if the archive has one. */
static int store_archive_own(struct pl_store *s, const struct pl_archive *k, int worker) {
    char name[PL_NAME_MAX + 32];
    snprintf(name, sizeof name, "own.%s.%d", s->optim->id.name, worker + 1);
    pl_real *v = s->own[worker];
    if (!v && k->restoring && !(v = pl_vector_new(s->conf.dim))) return PL_ENOMEM;
    size_t kept = v ? pl_archive_reals(k, name, v, s->conf.dim) : 0;
    if (kept == 0 && !s->own[worker]) {
        free(v);
        v = NULL;
    }
    s->own[worker] = v;
    return kept == 0 || kept == s->conf.dim ? PL_OK : PL_EDATA;
}

/* Vectors of a rule, under its name: the first vector of one optimizer means nothing to another. */
static int store_archive_vectors(const struct pl_store *s, const struct pl_archive *k,
                                 const char *family, const struct pl_entry *id, pl_real *const *v,
                                 int n) {
    for (int i = 0; i < n; i++) {
        char name[PL_NAME_MAX + 32];
        snprintf(name, sizeof name, "%s.%s.%d", family, id->name, i);
        size_t kept = pl_archive_reals(k, name, v[i], s->conf.dim);
        if (kept != 0 && kept != s->conf.dim) return PL_EDATA;
    }
    return PL_OK;
}

/* Vectors and numbers of correction and optimizer. */
static int store_archive_rules(struct pl_store *s, const struct pl_archive *k) {
    char name[PL_NAME_MAX + 32];
    snprintf(name, sizeof name, "store.correct.%s", s->correct->id.name);
    pl_archive_numbers(k, name, s->correct_number, PL_RULE_NUMBERS);
    snprintf(name, sizeof name, "store.optim.%s", s->optim->id.name);
    pl_archive_numbers(k, name, s->optim_number, PL_RULE_NUMBERS);
    pl_rate_archive(&s->conf.rate, k);
    int rc = store_archive_vectors(s, k, "correct", &s->correct->id, s->correct_state,
                                   s->correct->n_vectors);
    return rc ? rc
              : store_archive_vectors(s, k, "optim", &s->optim->id, s->optim_state,
                                      s->optim->n_vectors);
}

/* If an average is saved as the model, the newest version is kept here, for runs that resume. */
static int store_archive_average(struct pl_store *s, const struct pl_archive *k) {
    size_t dim = s->conf.dim, kept = 0;
    if (pl_store_averages(s) || k->restoring)
        kept = pl_archive_reals(k, "average.newest", s->newest->model, dim);
    return kept == 0 || kept == dim ? pl_average_archive(&s->average, k) : PL_EDATA;
}

/* How often tensors were skipped, if one ever was or had other steps before. */
static int store_archive_skipped(struct pl_store *s, const struct pl_archive *k) {
    size_t n = (size_t)s->conf.tensors.n;
    if (n == 0 || (!k->restoring && !s->skip)) return PL_OK;
    bool *skip = k->restoring ? calloc(n, sizeof *skip) : s->skip;
    uint64_t *count = k->restoring ? calloc(n, sizeof *count) : s->n_skipped;
    size_t kept = skip && count ? pl_archive_wholes(k, "store.skipped", count, n) : 0;
    if (!k->restoring) return PL_OK;
    int rc = !skip || !count ? PL_ENOMEM : kept == 0 || kept == n ? PL_OK : PL_EDATA;
    for (size_t t = 0; !rc && t < kept; t++)
        if (s->progress.n_commits - count[t] >= STORE_MANY) rc = PL_EDATA; /* steps */
    if (rc || kept == 0) {
        free(skip);
        free(count);
        return rc;
    }
    s->skip = skip;
    s->n_skipped = count;
    return PL_OK;
}

int pl_store_archive(struct pl_store *s, const struct pl_archive *k) {
    size_t dim = s->conf.dim;
    uint64_t counts[2] = {s->progress.n_commits, s->n_corrected};
    double numbers[2] = {s->lr_max, s->progress.samples};
    pl_archive_wholes(k, "store.counts", counts, 2);
    pl_archive_numbers(k, "store.numbers", numbers, 2);
    int rc = store_archive_rules(s, k);
    if (rc) return rc;
    if (s->direction) pl_archive_reals(k, "direction", s->direction, dim);
    if (s->last) pl_archive_reals(k, "last", s->last, dim);
    if ((rc = store_archive_average(s, k)) != 0) return rc;
    if (s->looks_ahead) pl_archive_reals(k, "handed", s->newest->lookahead, dim);
    for (int i = 0; s->own && i < s->conf.n_workers; i++)
        if ((rc = store_archive_own(s, k, i)) != 0) return rc;
    if (!k->restoring) return store_archive_skipped(s, k);
    if (counts[0] >= STORE_MANY || counts[1] >= STORE_MANY || !isfinite(numbers[0]) ||
        !(numbers[1] >= 0 && numbers[1] < (double)STORE_MANY))
        return PL_EDATA;
    s->progress.n_commits = s->newest->id = counts[0];
    s->n_corrected = counts[1];
    s->lr_max = numbers[0];
    s->progress.samples = numbers[1];
    s->newest->lr = pl_store_rate(s);
    return store_archive_skipped(s, k);
}

/* --- the group --------------------------------------------------------------------------- */

static bool store_grow(struct store_group *g) {
    if (g->n < g->room) return true;
    int room = g->room ? 2 * g->room : 16;
    if (!PL_RESIZE(g->member, room) || !PL_RESIZE(g->samples, room) ||
        !PL_RESIZE(g->worker, room) || !PL_RESIZE(g->factor, room))
        return false;
    g->room = room;
    return true;
}

int pl_store_take(struct pl_store *s, const struct pl_member *m, const struct pl_version *base,
                  const pl_real *vector, enum pl_finite finite) {
    struct store_group *g = &s->group;
    if (g->n > 0 && s->optim->id.needs & PL_NEEDS_ONE_AT_A_TIME) return PL_EPOLICY;
    if (!store_grow(g)) return PL_ENOMEM;
    if (s->optim->per_worker && !s->own[m->worker] && !(s->own[m->worker] = store_zeros(s)))
        return PL_ENOMEM;
    bool keep = s->correct->id.needs & PL_NEEDS_BASE;
    if (keep) pl_store_hold(s, base);
    g->samples[g->n] = m->samples;
    g->worker[g->n] = m->worker;
    g->member[g->n++] = (struct store_member){.base = keep ? base : NULL,
                                              .vector = vector,
                                              .worker = m->worker,
                                              .base_id = m->base,
                                              .lag = m->lag,
                                              .factor = m->factor,
                                              .loss = m->loss,
                                              .finite = finite};
    return PL_OK;
}

int pl_store_lacks(struct pl_store *s, const uint64_t *absent, size_t n) {
    size_t n_tensors = (size_t)s->conf.tensors.n, words = (n_tensors + 63) / 64;
    if (words == 0 || n == 0) return PL_OK;
    uint64_t *own = calloc(words, sizeof *own);
    if (!store_tensors(s) || !own) {
        free(own);
        return PL_ENOMEM;
    }
    memcpy(own, absent, (n < words ? n : words) * sizeof *own);
    s->group.member[s->group.n - 1].absent = own;
    return PL_OK;
}

bool pl_store_reads_twice(const struct pl_store *s) {
    return pl_correct_sums(&s->conf.correct) || s->geometry;
}

bool pl_store_is_spoiled(const struct pl_store *s, int i) {
    return s->group.member[i].finite == PL_FINITE_NO;
}
