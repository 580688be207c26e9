#include "run/shards.h"

#include <stdlib.h>
#include <string.h>

#include "run/leases.h"
#include "run/tile_threads.h"
#include "sys/fpu.h"
#include "transport/mpi.h"

enum { SHARDS_EVENT = PL_ENTRY_HOST, SHARDS_MODEL, SHARDS_SAVE, SHARDS_RESTORE, SHARDS_END };

_Static_assert(sizeof(struct pl_event) <= PL_ENTRY_BYTES, "an entry has room for an event");

struct pl_cut pl_cut_of(const struct pl_job *job, int n_servers) {
    struct pl_cut c = {.n = n_servers};
    for (int i = 0; i < n_servers; i++) {
        struct pl_slice s =
            pl_slice_cut(pl_part_most(job), n_servers, i, &c.range[i].from, &c.range[i].n);
        c.tiles[i] = (struct pl_range){(size_t)s.first, (size_t)(s.end - s.first)};
    }
    return c;
}

static int shards_allreduce(void *ctx, double *row, size_t width) {
    struct pl_shards *s = ctx;
    return s->group->table(s->port, row, s->cut.tiles, width);
}

struct pl_slice pl_shards_slice(struct pl_shards *s, int rank) {
    const struct pl_range *tiles = &s->cut.tiles[rank];
    if (s->cut.n == 1) return (struct pl_slice){.whole = 0};
    return (struct pl_slice){.whole = s->job->model->dim,
                             .n = s->cut.range[rank].n,
                             .first = (int)tiles->from,
                             .end = (int)(tiles->from + tiles->n),
                             .allreduce = shards_allreduce,
                             .ctx = s};
}

/* --- rank 0 ---------------------------------------------------------------------------------- */

static void shards_log(const struct pl_shards *s, uint32_t kind) {
    s->group->log(s->port, &(struct pl_log_entry){.kind = kind});
}

void pl_shards_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan) {
    const struct pl_shards *s = ctx;
    struct pl_log_entry entry = {.kind = SHARDS_EVENT, .worker = e->worker};
    (void)c;
    (void)plan;
    memcpy(entry.bytes, e, sizeof *e);
    s->group->log(s->port, &entry);
}

void pl_shards_end(const struct pl_shards *s) {
    shards_log(s, SHARDS_END);
}

int pl_shards_model(const struct pl_shards *s, const float *slice, float *out) {
    shards_log(s, SHARDS_MODEL);
    return s->failed ? PL_ERUN : s->group->gather(s->port, slice, out);
}

/* --- archives -------------------------------------------------------------------------------- */

/* Sends the bytes that rank 0 restored, and their number of elements, to the followers. */
static size_t shards_share(struct pl_shards *s, size_t n_restored, void *v, size_t bytes) {
    uint64_t n = n_restored;
    if (s->group->bytes(s->port, &n, sizeof n) || s->group->bytes(s->port, v, bytes))
        s->failed = true;
    return (size_t)n;
}

/* A vector of the model, of which each server has its slice. */
static size_t shards_reals(struct pl_shards *s, const char *name, pl_real *v, size_t n) {
    bool leads = s->whole != NULL;
    uint64_t n_restored = n;
    if (!s->archive.restoring) {
        if (s->group->gather(s->port, v, s->whole)) s->failed = true;
        if (leads && !s->failed) pl_archive_reals(&s->archive, name, s->whole, s->job->model->dim);
        return n;
    }
    if (leads) n_restored = pl_archive_reals(&s->archive, name, s->whole, s->job->model->dim);
    if (s->group->bytes(s->port, &n_restored, sizeof n_restored) ||
        (n_restored > 0 && s->group->scatter(s->port, s->whole, v)))
        s->failed = true;
    return n_restored > 0 ? n : 0;
}

static size_t shards_piece(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                           size_t n) {
    struct pl_shards *s = ctx;
    if (kind == PL_REALS) return shards_reals(s, name, v, n);
    size_t done = s->whole ? s->archive.piece(s->archive.ctx, name, kind, v, n) : n;
    return s->archive.restoring ? shards_share(s, done, v, n * pl_archive_size(kind)) : done;
}

static int shards_archive(struct pl_shards *s, struct pl_engine *e) {
    struct pl_archive archive = {s->archive.restoring, s, shards_piece};
    int rc = pl_engine_archive(e, &archive);
    return s->failed ? PL_ERUN : rc;
}

int pl_shards_archive(struct pl_shards *s, struct pl_engine *e, const struct pl_archive *k) {
    s->archive = *k;
    shards_log(s, k->restoring ? SHARDS_RESTORE : SHARDS_SAVE);
    return shards_archive(s, e);
}

/* --- a follower ------------------------------------------------------------------------------ */

struct shards_follower {
    struct pl_shards shards;
    struct pl_leases *leases;
    struct pl_tile_threads tile_threads;
    struct pl_engine *engine;
    struct pl_outcome out;
    struct pl_why *why;
};

static int shards_follower_event(struct shards_follower *f, const struct pl_log_entry *entry) {
    struct pl_event e;
    memcpy(&e, entry->bytes, sizeof e);
    int rc = e.kind == PL_ARRIVE ? f->shards.group->settle(f->shards.port, e.worker) : PL_OK;
    if (e.kind == PL_JOIN) pl_leases_gone(f->leases, e.worker);
    if (!rc) rc = pl_engine_event(f->engine, &e, NULL, f->why);
    return rc;
}

/* Executes one entry of the log. The last one sets *end. */
static int shards_follower_do(struct shards_follower *f, const struct pl_log_entry *e, bool *end) {
    switch (e->kind) {
    case SHARDS_EVENT: return shards_follower_event(f, e);
    case SHARDS_MODEL:
        return f->shards.group->gather(f->shards.port, pl_store_shown(pl_engine_store(f->engine)),
                                       NULL);
    case SHARDS_SAVE:
    case SHARDS_RESTORE:
        f->shards.archive = (struct pl_archive){.restoring = e->kind == SHARDS_RESTORE};
        return shards_archive(&f->shards, f->engine);
    case SHARDS_END: *end = true; return PL_OK;
    default: return PL_ERUN;
    }
}

static int shards_follower_engine(struct shards_follower *f, int rank, const float *w0) {
    struct pl_engine_conf conf = {.job = f->shards.job,
                                  .host = pl_leases_host(f->leases, NULL, NULL, NULL, NULL),
                                  .follows = true,
                                  .slice = pl_shards_slice(&f->shards, rank),
                                  .parallel_for = pl_tile_threads_for(&f->tile_threads)};
    int rc = pl_engine_new(&conf, w0, &f->out, &f->engine, f->why);
    if (!rc) pl_leases_engine(f->leases, f->engine);
    return rc;
}

static int shards_follower_open(struct shards_follower *f, int rank) {
    const struct pl_job *job = f->shards.job;
    struct pl_port_conf conf = {.dim = f->shards.cut.range[rank].n,
                                .range = f->shards.cut.range,
                                .n_servers = f->shards.cut.n};
    const struct pl_transport *t = pl_mpi_transport();
    f->shards.group = t->group;
    pl_leases_room(job, &conf);
    int rc = t->port.open(&conf, &f->shards.port, f->why);
    if (rc) return rc;
    float *w0 = malloc(conf.dim * sizeof *w0);
    if (!w0 || pl_leases_new(job, conf.dim, t, f->shards.port, &f->leases))
        rc = pl_fail(f->why, PL_ENOMEM, "out of memory for the model");
    f->tile_threads = pl_tile_threads_of(conf.dim, job->n_threads, t->stream, f->shards.port);
    if (!rc && pl_tile_threads_start(&f->tile_threads))
        rc = pl_fail(f->why, PL_ENOMEM, "out of memory for threads");
    if (!rc) rc = f->shards.group->scatter(f->shards.port, NULL, w0);
    if (!rc) rc = shards_follower_engine(f, rank, w0);
    free(w0);
    return rc;
}

int pl_shards_follow(const struct pl_job *job, int n_servers, int rank, struct pl_why *why) {
    struct shards_follower f = {.shards = {.job = job, .cut = pl_cut_of(job, n_servers)},
                                .out = pl_outcome_none(),
                                .why = why};
    uint64_t fpu = pl_fpu_flush();
    bool end = false;
    int rc = shards_follower_open(&f, rank);
    while (!rc && !end) {
        struct pl_log_entry e;
        rc = f.shards.group->next(f.shards.port, &e);
        if (!rc) rc = shards_follower_do(&f, &e, &end);
    }
    pl_engine_free(f.engine);
    pl_leases_free(f.leases);
    pl_tile_threads_free(&f.tile_threads);
    if (f.shards.port) pl_mpi_transport()->port.close(f.shards.port);
    pl_fpu_restore(fpu);
    if (rc && !why->text[0]) pl_fail(why, rc, "%s", pl_status_text(rc));
    return rc;
}
