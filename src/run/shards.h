/* Several servers: rank 0 decides, and the others follow. Each event that rank 0's control has
 * handled goes into a log; a follower hands it to an engine of its own, which makes the same
 * decisions and carries them out on its slice of the vectors. What rank 0 alone does (scoring,
 * checkpoints, weights at the end) it does on whole vectors that are put together for it.
 *
 * Threads: all functions are called by the thread that decides, at rank 0 or at a follower. */
#ifndef PL_RUN_SHARDS_H
#define PL_RUN_SHARDS_H

#include "engine/engine.h"
#include "transport/server_group.h"

/* How the vector of a job is cut: the tiles and the elements of each server. */
struct pl_cut {
    int n;
    struct pl_range tiles[PL_MAX_SERVERS], range[PL_MAX_SERVERS];
};
struct pl_cut pl_cut_of(const struct pl_job *job, int n_servers);

struct pl_shards {
    const struct pl_job *job;
    struct pl_cut cut;
    struct pl_port *port;
    struct pl_archive kept; /* what pl_shards_archive goes through to */
    float *whole;           /* [dim] at rank 0, NULL at a follower */
    bool failed;            /* a server does not answer */
};

/* The slice of server `rank`; whole == 0 if there is one server. */
struct pl_slice pl_shards_slice(struct pl_shards *s, int rank);

/* A pl_control_log at rank 0; ctx is the shards. */
void pl_shards_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan);
void pl_shards_end(const struct pl_shards *s);

/* The newest version's model, whole, into out [dim] of the job. 0 or PL_ERUN. */
int pl_shards_model(const struct pl_shards *s, const struct pl_version *newest, float *out);

/* Archives the engines of all servers at once, with `k` at rank 0. */
int pl_shards_archive(struct pl_shards *s, struct pl_engine *e, const struct pl_archive *k);

/* What a follower does, until the end. */
int pl_shards_follow(const struct pl_job *job, int n_servers, int rank, struct pl_why *why);

#endif
