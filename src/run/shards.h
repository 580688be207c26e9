/* Several servers: rank 0 decides, and the others follow. Each event that rank 0's control has
 * handled goes into a log. A follower gives it to its own engine, which makes the same decisions
 * and carries them out on its slice of the vectors. Only rank 0 evaluates, writes checkpoints and
 * returns the weights; for that, whole vectors are gathered from all servers.
 *
 * Threads: all functions are called by the thread that decides, at rank 0 or at a follower. */
#ifndef PL_RUN_SHARDS_H
#define PL_RUN_SHARDS_H

#include "engine/engine.h"
#include "transport/server_group.h"

/* How the vector is divided: the tiles and the elements of each server. */
struct pl_cut {
    int n;
    struct pl_range tiles[PL_MAX_SERVERS], range[PL_MAX_SERVERS];
};
struct pl_cut pl_cut_of(const struct pl_job *job, int n_servers);

struct pl_shards {
    const struct pl_job *job;
    struct pl_cut cut;
    const struct pl_group_ops *group; /* NULL: there is one server */
    struct pl_port *port;
    struct pl_archive archive; /* rank 0's, which pl_shards_archive uses */
    float *whole;              /* [dim] at rank 0, NULL at a follower */
    bool failed;               /* a server does not answer */
};

/* The slice of server `rank`; its `whole` is 0 if there is one server. */
struct pl_slice pl_shards_slice(struct pl_shards *s, int rank);

/* A pl_control_log at rank 0; ctx is the shards. */
void pl_shards_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan);
void pl_shards_end(const struct pl_shards *s);

/* Gathers the newest version's model into out [dim of the job]. 0 or PL_ERUN. */
int pl_shards_model(const struct pl_shards *s, const float *slice, float *out);

/* Saves or restores the engines of all servers, with `k` at rank 0. */
int pl_shards_archive(struct pl_shards *s, struct pl_engine *e, const struct pl_archive *k);

/* Runs a follower until the end of the run. */
int pl_shards_follow(const struct pl_job *job, int n_servers, int rank, struct pl_why *why);

#endif
