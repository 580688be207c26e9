/* Several servers: rank 0 decides, and the others execute its plans as a log, each on its share of
 * the vector (see transport/server_group.h). Takes, commits and starts go into the log as they are
 * carried out at rank 0; what only rank 0 does (scoring, checkpoints, weights at the end) it does
 * on whole vectors that are put together for it. */
#ifndef PL_RUN_SHARDS_H
#define PL_RUN_SHARDS_H

#include "learn/job.h"
#include "transport/server_group.h"

/* How the vector of a job is cut: who has which tiles, and which elements. */
struct pl_cut {
    int n;
    struct pl_range tiles[PL_MAX_SERVERS], range[PL_MAX_SERVERS];
};
struct pl_cut pl_cut_of(const struct pl_job *job, int n_servers);

/* Rank 0's handle; NULL, in all that follows, where it is the only server: nothing happens then. */
struct pl_shards {
    const struct pl_job *job;
    struct pl_cut cut;
    struct pl_port *port;
    struct pl_archive kept; /* what pl_shards_archive goes through to */
    float *whole;           /* [dim] */
    bool failed;            /* somebody does not answer */
};

/* A store of share `rank`; sums are agreed on over the port of `s`. */
struct pl_store_conf pl_shards_store(struct pl_shards *s, int rank);

void pl_shards_take(const struct pl_shards *s, const struct pl_member *m);
void pl_shards_commit(const struct pl_shards *s, double factor);
void pl_shards_start(const struct pl_shards *s, int worker, uint64_t task, enum pl_from from);
void pl_shards_cancel(const struct pl_shards *s, int worker);
void pl_shards_gone(const struct pl_shards *s, int worker);
void pl_shards_end(const struct pl_shards *s);

/* The newest version's model, whole: into out [dim] of the job. 0 or PL_ERUN. */
int pl_shards_model(const struct pl_shards *s, const struct pl_version *newest, float *out);

/* For pl_store_archive at rank 0: vectors are put together, or handed out, on their way to `k`. */
struct pl_archive pl_shards_archive(struct pl_shards *s, const struct pl_archive *k);

/* What the other servers do, until the end. */
int pl_shards_follow(const struct pl_job *job, int n_servers, int rank, struct pl_why *why);

#endif
