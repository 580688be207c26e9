#include "run/shards.h"

#include <stdlib.h>
#include <string.h>

#include "run/leases.h"
#include "sys/fpu.h"
#include "transport/mpi.h"

enum {
    SHARDS_TAKE = PL_ENTRY_HOST,
    SHARDS_COMMIT,
    SHARDS_START,
    SHARDS_CANCEL,
    SHARDS_GONE,
    SHARDS_MODEL,
    SHARDS_SAVE,
    SHARDS_RESTORE,
    SHARDS_END
};

/* The bytes of a TAKE; a COMMIT uses the factor, a START the task. */
struct shards_payload {
    uint64_t task, base, lag;
    double factor, loss;
    uint32_t samples;
};
_Static_assert(sizeof(struct shards_payload) <= PL_ENTRY_BYTES, "an entry has room for it");

static void shards_log(const struct pl_shards *s, struct pl_log_entry e,
                       const struct shards_payload *payload) {
    memcpy(e.bytes, payload, sizeof *payload);
    pl_group_log(s->port, &e);
}

struct pl_cut pl_cut_of(const struct pl_job *job, int n_servers) {
    struct pl_cut c = {.n = n_servers};
    for (int i = 0; i < n_servers; i++) {
        struct pl_slice s =
            pl_slice_cut(job->model->dim, n_servers, i, &c.range[i].from, &c.range[i].n);
        c.tiles[i] = (struct pl_range){(size_t)s.first, (size_t)(s.end - s.first)};
    }
    return c;
}

static int shards_allreduce(void *ctx, double *row, size_t width) {
    struct pl_shards *s = ctx;
    return pl_group_table(s->port, row, s->cut.tiles, width);
}

struct pl_store_conf pl_shards_store(struct pl_shards *s, int rank) {
    const struct pl_job *job = s->job;
    struct pl_store_conf conf = pl_job_store(job);
    conf.dim = s->cut.range[rank].n;
    if (s->cut.n > 1)
        conf.slice = (struct pl_slice){.whole = job->model->dim,
                                       .first = (int)s->cut.tiles[rank].from,
                                       .end = (int)(s->cut.tiles[rank].from + s->cut.tiles[rank].n),
                                       .allreduce = shards_allreduce,
                                       .ctx = s};
    return conf;
}

/* --- rank 0: the log --------------------------------------------------------------------- */

void pl_shards_take(const struct pl_shards *s, const struct pl_member *m) {
    if (!s) return;
    shards_log(s, (struct pl_log_entry){.kind = SHARDS_TAKE, .worker = m->worker},
               &(struct shards_payload){.task = m->task,
                                        .base = m->base,
                                        .lag = m->lag,
                                        .samples = m->samples,
                                        .factor = m->factor,
                                        .loss = m->loss});
}

void pl_shards_commit(const struct pl_shards *s, double factor) {
    if (s)
        shards_log(s, (struct pl_log_entry){.kind = SHARDS_COMMIT},
                   &(struct shards_payload){.factor = factor});
}

void pl_shards_start(const struct pl_shards *s, int worker, uint64_t task, enum pl_from from) {
    if (!s) return;
    shards_log(
        s, (struct pl_log_entry){.kind = SHARDS_START, .worker = worker, .flags = (uint32_t)from},
        &(struct shards_payload){.task = task});
}

static void shards_say(const struct pl_shards *s, uint32_t kind, int worker) {
    if (s) pl_group_log(s->port, &(struct pl_log_entry){.kind = kind, .worker = worker});
}

void pl_shards_cancel(const struct pl_shards *s, int worker) {
    shards_say(s, SHARDS_CANCEL, worker);
}

void pl_shards_gone(const struct pl_shards *s, int worker) {
    shards_say(s, SHARDS_GONE, worker);
}

void pl_shards_end(const struct pl_shards *s) {
    shards_say(s, SHARDS_END, 0);
}

int pl_shards_model(const struct pl_shards *s, const struct pl_version *newest, float *out) {
    shards_say(s, SHARDS_MODEL, 0);
    return pl_group_gather(s->port, newest->model, out);
}

/* --- checkpoints ------------------------------------------------------------------------- */

/* One vector of the store at all servers at once. Restoring, rank 0 tells how long it was kept, so
 * that all make of it what rank 0 makes. */
static size_t shards_reals(void *ctx, const char *name, pl_real *v, size_t n) {
    struct pl_shards *s = ctx;
    bool leads = s->whole != NULL;
    uint64_t kept = n;
    if (!s->kept.restoring) {
        if (pl_group_gather(s->port, v, s->whole)) s->failed = true;
        if (leads && !s->failed) s->kept.reals(s->kept.ctx, name, s->whole, s->job->model->dim);
        return n;
    }
    if (leads) kept = s->kept.reals(s->kept.ctx, name, s->whole, s->job->model->dim);
    if (pl_group_bytes(s->port, &kept, sizeof kept) ||
        (kept > 0 && pl_group_scatter(s->port, s->whole, v)))
        s->failed = true;
    return kept > 0 ? n : 0;
}

static size_t shards_wholes(void *ctx, const char *name, uint64_t *v, size_t n) {
    struct pl_shards *s = ctx;
    size_t kept = s->whole ? s->kept.wholes(s->kept.ctx, name, v, n) : n;
    if (s->kept.restoring && pl_group_bytes(s->port, v, n * sizeof *v)) s->failed = true;
    return kept;
}

static size_t shards_numbers(void *ctx, const char *name, double *v, size_t n) {
    struct pl_shards *s = ctx;
    size_t kept = s->whole ? s->kept.numbers(s->kept.ctx, name, v, n) : n;
    if (s->kept.restoring && pl_group_bytes(s->port, v, n * sizeof *v)) s->failed = true;
    return kept;
}

static size_t shards_bytes(void *ctx, const char *name, void *v, size_t n) {
    struct pl_shards *s = ctx; /* the store has none */
    return s->whole ? s->kept.bytes(s->kept.ctx, name, v, n) : 0;
}

static struct pl_archive shards_archive(struct pl_shards *s) {
    return (struct pl_archive){.restoring = s->kept.restoring,
                               .ctx = s,
                               .reals = shards_reals,
                               .wholes = shards_wholes,
                               .numbers = shards_numbers,
                               .bytes = shards_bytes};
}

struct pl_archive pl_shards_archive(struct pl_shards *s, const struct pl_archive *k) {
    if (!s) return *k;
    s->kept = *k;
    shards_say(s, k->restoring ? SHARDS_RESTORE : SHARDS_SAVE, 0);
    return shards_archive(s);
}

/* --- the others -------------------------------------------------------------------------- */

struct follower {
    struct pl_shards shards;
    struct pl_store *store;
    struct pl_leases *leases;
    struct pl_why *why;
};

static float *follower_place(void *ctx) {
    struct follower *f = ctx;
    return pl_mpi.port.vector(f->shards.port, -1);
}

/* One entry; *end is set by the last. */
static int follower_do(struct follower *f, const struct pl_log_entry *e, bool *end) {
    struct pl_port *port = f->shards.port;
    struct pl_measure measure;
    struct shards_payload has;
    memcpy(&has, e->bytes, sizeof has);
    switch (e->kind) {
    case SHARDS_TAKE: {
        struct pl_member m = {.worker = e->worker,
                              .task = has.task,
                              .base = has.base,
                              .lag = has.lag,
                              .samples = has.samples,
                              .factor = has.factor,
                              .loss = has.loss};
        int rc = pl_group_settle(port, e->worker);
        return rc ? rc : pl_leases_take(f->leases, &m);
    }
    case SHARDS_COMMIT: return pl_leases_commit(f->leases, has.factor, &measure);
    case SHARDS_START:
        return pl_leases_start(f->leases, e->worker, has.task, (enum pl_from)e->flags, PL_WHOLE);
    case SHARDS_CANCEL: pl_mpi.port.cancel(port, e->worker); return PL_OK;
    case SHARDS_GONE: pl_leases_gone(f->leases, e->worker); return PL_OK;
    case SHARDS_MODEL: return pl_group_gather(port, pl_store_newest(f->store)->model, NULL);
    case SHARDS_SAVE:
    case SHARDS_RESTORE: {
        f->shards.kept = (struct pl_archive){.restoring = e->kind == SHARDS_RESTORE};
        struct pl_archive archive = shards_archive(&f->shards);
        int rc = pl_store_archive(f->store, &archive);
        return f->shards.failed ? PL_ERUN : rc;
    }
    case SHARDS_END: *end = true; return PL_OK;
    default: return PL_ERUN;
    }
}

static int follower_open(struct follower *f, int rank) {
    const struct pl_job *job = f->shards.job;
    struct pl_port_conf conf = {.dim = f->shards.cut.range[rank].n,
                                .range = f->shards.cut.range,
                                .n_servers = f->shards.cut.n};
    pl_leases_room(job, &conf);
    int rc = pl_mpi.port.open(&conf, &f->shards.port, f->why);
    if (rc) return rc;
    float *w0 = malloc(conf.dim * sizeof *w0);
    if (!w0) return pl_fail(f->why, PL_ENOMEM, "out of memory for the model");
    rc = pl_group_scatter(f->shards.port, NULL, w0);
    struct pl_store_conf store = pl_shards_store(&f->shards, rank);
    store.alloc = (struct pl_vector_alloc){follower_place, f};
    if (!rc) rc = pl_store_new(&store, w0, &f->store, f->why);
    free(w0);
    if (!rc && pl_leases_new(job, conf.dim, &pl_mpi, f->shards.port, f->store, &f->leases))
        rc = pl_fail(f->why, PL_ENOMEM, "out of memory for %d workers", job->n_workers);
    return rc;
}

int pl_shards_follow(const struct pl_job *job, int n_servers, int rank, struct pl_why *why) {
    struct follower f = {.shards = {.job = job, .cut = pl_cut_of(job, n_servers)}, .why = why};
    uint64_t fpu = pl_fpu_flush();
    bool end = false;
    int rc = follower_open(&f, rank);
    while (!rc && !end) {
        struct pl_log_entry e;
        rc = pl_group_next(f.shards.port, &e);
        if (!rc) rc = follower_do(&f, &e, &end);
    }
    pl_leases_free(f.leases);
    pl_store_free(f.store);
    if (f.shards.port) pl_mpi.port.close(f.shards.port);
    pl_fpu_restore(fpu);
    if (rc && !why->text[0]) pl_fail(why, rc, "%s", pl_status_text(rc));
    return rc;
}
