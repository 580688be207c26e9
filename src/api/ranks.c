#include "api/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/fit.h"
#include "run/shards.h"
#include "run/worker.h"
#include "transport/mpi.h"

#define RANKS_READY UINT64_C(600000000000) /* ns in which all must have read their data */
#define RANKS_END UINT64_C(10000000000)    /* ns in which all must have left */

int pl_rank(void) {
    int rank, size;
    return pl_launcher_env(&rank, &size) ? rank : -1;
}

int pl_ranks(void) {
    int rank, size;
    return pl_launcher_env(&rank, &size) ? size : 1;
}

/* Whether clients compute the model: programs that call mpi_client.c. */
static bool ranks_by_clients(const struct pl_setup *s) {
    const struct pl_model_kind *kind = pl_setup_kind(s);
    return kind && kind->by_clients;
}

/* Refuses options that are not for MPI. */
static int ranks_check(struct pl_setup *s, const struct pl_ranks *r) {
    const struct pl_setup_conf *c = &s->conf;
    static const char *const here[] = {"spawn", "respawn", "listen"};
    if (r->size < 2)
        return pl_fail(&s->why, PL_EUSAGE,
                       "a run over MPI needs at least 2 ranks (1 server + 1 worker), but 1 was "
                       "started; use mpirun -n 9, or --transport shm");
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        if (pl_setup_is_set(s, here[i]) && (i != 1 || c->respawn))
            return pl_fail(&s->why, PL_EUSAGE,
                           "--%s is for workers on this machine; over MPI the launcher starts the "
                           "workers",
                           here[i]);
    if (r->clients && c->servers > 1)
        return pl_fail(&s->why, PL_EUSAGE,
                       "--servers %lld divides a model that the library knows; model 'external' "
                       "has one server",
                       (long long)c->servers);
    return PL_OK;
}

int pl_ranks_choose(struct pl_setup *s, struct pl_ranks *r) {
    const struct pl_setup_conf *c = &s->conf;
    int rank, size, where = c->transport;
    *r = (struct pl_ranks){.size = 1};
    bool several = pl_launcher_env(&rank, &size) && !pl_setup_is_set(s, "spawn") &&
                   (pl_setup_spawns(s) || (ranks_by_clients(s) && !c->listen[0]));
    if (where == PL_WHERE_MPI || (where == PL_WHERE_AUTO && several)) {
        int rc = pl_mpi_begin(&r->rank, &r->size, &s->why);
        if (rc) return rc;
        r->mpi = where == PL_WHERE_MPI || r->size > 1;
    }
    bool threads = where == PL_WHERE_INPROC || c->spawn == PL_SPAWN_THREADS;
    if ((where == PL_WHERE_INPROC && pl_setup_is_set(s, "spawn") && c->spawn != PL_SPAWN_THREADS) ||
        (where == PL_WHERE_SHM && c->spawn == PL_SPAWN_THREADS))
        return pl_fail(&s->why, PL_EUSAGE, "--spawn %s cannot be combined with --transport %s",
                       c->spawn == PL_SPAWN_THREADS ? "threads" : "processes or none",
                       where == PL_WHERE_SHM ? "shm" : "inproc");
    if (!r->mpi && pl_setup_is_set(s, "servers") && c->servers > 1)
        return pl_fail(&s->why, PL_EUSAGE,
                       "--servers %lld needs MPI; without it there is one server",
                       (long long)c->servers);
    if (!r->mpi && threads) s->conf.spawn = PL_SPAWN_THREADS;
    r->transport = r->mpi ? pl_mpi_transport() : threads ? &pl_inproc : &pl_shm;
    return PL_OK;
}

/* The number of workers follows from the number of ranks. */
static int ranks_workers(struct pl_setup *s, const struct pl_ranks *r) {
    int rc = ranks_check(s, r);
    if (rc) return rc;
    long long workers = s->conf.workers, servers = s->conf.servers;
    if (servers >= r->size)
        return pl_fail(&s->why, PL_EUSAGE,
                       "--servers %lld needs at least %lld ranks (%lld servers + 1 worker), but %d "
                       "were started",
                       servers, servers + 1, servers, r->size);
    if (pl_setup_is_set(s, "workers") && workers != r->size - servers)
        return pl_fail(
            &s->why, PL_EUSAGE,
            "--workers %lld needs %lld ranks (%lld server%s + %lld workers), but %d were "
            "started",
            workers, workers + servers, servers, servers == 1 ? "" : "s", workers, r->size);
    s->conf.workers = r->size - servers;
    s->conf.spawn = PL_SPAWN_PROCESSES;
    s->conf.respawn = false;
    s->conf.listen[0] = '\0';
    return PL_OK;
}

int pl_ranks_share(struct pl_setup *s, struct pl_ranks *r, int rc) {
    char *text = NULL;
    if (!r->mpi) return rc;
    s->ranks = true;
    r->clients = r->rank == 0 && ranks_by_clients(s);
    if (r->rank == 0 && !rc) rc = ranks_workers(s, r);
    if (r->rank == 0 && !rc) rc = pl_setup_text(s, &text);
    rc = pl_mpi_share(rc, &text, &s->why);
    if (!rc && r->rank != 0) {
        memset(s->is_set, 0, sizeof s->is_set);
        rc = pl_setup_lines(s, text);
        if (!rc && ranks_by_clients(s))
            rc =
                pl_fail(&s->why, PL_EUSAGE,
                        "paceline train cannot compute model 'external'; start it as rank 0 alone: "
                        "mpirun -n 1 paceline train … : -n %d python3 …",
                        r->size - 1);
        if (rc) rc = pl_ranks_ready(s, r, rc); /* only this rank failed: tell the others */
    }
    free(text);
    return rc;
}

/* The caller wants the run to end, before it has begun. */
static bool ranks_ended(void *ctx) {
    const struct pl_setup *s = ctx;
    const struct pl_point none = {.loss = NAN,
                                  .test_loss = NAN,
                                  .test_accuracy = NAN,
                                  .staleness = NAN,
                                  .consensus = NAN,
                                  .expected = (int)s->conf.workers};
    return s->tick && s->tick(s->watch_ctx, &none);
}

int pl_ranks_ready(struct pl_setup *s, const struct pl_ranks *r, int rc) {
    const struct pl_patience patience = {RANKS_READY, ranks_ended, s};
    return r->mpi ? pl_mpi_agree(rc, &patience, &s->why) : rc;
}

int pl_ranks_end(struct pl_setup *s, const struct pl_ranks *r, int rc) {
    const struct pl_patience patience = {.wait_ns = RANKS_END};
    /* clients leave when they have seen the end, which the port waits for */
    return r->mpi && !r->clients ? pl_mpi_agree(rc, &patience, &s->why) : rc;
}

int pl_ranks_cut(struct pl_setup *s, const struct pl_ranks *r, const struct pl_built *b) {
    const struct pl_job *job = &b->job;
    int tiles = pl_tiles(job->model->dim);
    int rc = r->mpi ? pl_fit(s, b, PL_HOST_REAL, (int)s->conf.servers) : PL_OK;
    if (rc) return rc;
    if (!r->mpi || s->conf.servers <= tiles) return PL_OK;
    return pl_fail(&s->why, PL_EUSAGE,
                   "--servers must be 1 to %d: a vector of %zu parameters has no more tiles", tiles,
                   job->model->dim);
}

int pl_ranks_work(struct pl_setup *s, const struct pl_ranks *r, const struct pl_job *job) {
    int n_servers = (int)s->conf.servers;
    if (r->rank < n_servers) return pl_shards_follow(job, n_servers, r->rank, &s->why);
    struct pl_cut cut = pl_cut_of(job, n_servers);
    struct pl_link *link;
    int worker, rc = pl_mpi_connect(cut.range, n_servers, &link, &worker, &s->why);
    if (rc) return rc;
    rc = pl_worker_loop(job, pl_mpi_transport(), link, worker, NULL);
    pl_mpi_transport()->link.detach(link);
    return rc ? pl_fail(&s->why, rc, "%s", pl_status_text(rc)) : PL_OK;
}
