/* The inside of the server, which server.c, server_run.c and clients.c share.
 *
 * Threads: all of it is the deciding thread's. */
#ifndef PL_RUN_SERVER_STATE_H
#define PL_RUN_SERVER_STATE_H

#include <math.h>

#include "engine/engine.h"
#include "observe/stragglers.h"
#include "run/clients.h"
#include "run/leases.h"
#include "run/membership.h"
#include "run/saver.h"
#include "run/scorer.h"
#include "run/server.h"
#include "run/shards.h"
#include "run/tile_threads.h"
#include "run/waits.h"
#include "sys/clock.h"

#define SERVER_TICK 100000000u    /* ns between calls of the watch */
#define SERVER_SECOND 1000000000u /* ns between checks of everything else */
#define SERVER_BEAT 200000000u    /* ns between two rounds of the loop, unless it is stopped */

struct server_clock {
    uint64_t zero_ns;            /* when the run's clock started */
    uint64_t last_ns;            /* time of the last event */
    uint64_t end_ns;             /* when the run ended, before waiting for workers to leave */
    uint64_t tick_ns, second_ns; /* when the next checks are due; 0: see pl_server_begun() */
    uint64_t round_ns;           /* when this round of the loop began */
};

struct server_scoring {
    bool busy;                 /* the scorer has a model: */
    struct pl_model_now model; /* this one, */
    struct pl_point at;        /* which is of this moment */
    uint64_t until_ns;         /* at the end of an interrupted run: when it is given up */
};

struct server_versions {
    uint64_t began; /* the version that the run began with, */
    uint64_t known; /* the newest one that it told of, */
    uint64_t noted; /* and the one that the claim has */
};

/* Waiting for a core. */
struct server_waits {
    struct pl_core_waited *worker;  /* [n_workers] by local workers, and from results of others */
    bool known;                     /* somebody has measured them */
    struct pl_core_wait core;       /* of this thread, */
    struct pl_waits own;            /* and when it waited */
};

struct server {
    const struct pl_server_conf *conf;
    const struct pl_job *job;
    const struct pl_port_ops *ops;
    struct pl_why *why;
    struct pl_port *port;
    struct pl_membership membership;
    struct pl_engine *engine;
    const struct pl_view *view;
    struct pl_leases *leases;
    struct pl_shards shards;             /* what the servers share */
    bool several;                        /* there are other servers */
    struct pl_tile_threads tile_threads; /* for commits */
    struct pl_scorer *scorer;
    struct pl_saver *saver; /* NULL: no checkpoints */
    struct pl_stragglers *stragglers;
    struct server_clock clock;
    struct server_scoring scoring;
    struct server_versions versions;
    struct server_waits waits;
    float *room;             /* [dim] for a scored model that is not a version here; or NULL */
    struct pl_model_now end; /* the model at the end */
    float *end_room;         /* [dim] likewise */
    uint64_t alone_ns;       /* when to give up because no worker is left; 0: some are here */
    bool left_alone;
    bool interrupted; /* the watch has ended the run */
    struct pl_clients clients;
    struct pl_gateway *gateway; /* NULL: none */
    struct pl_outcome *out;
};

/* Before, the clock of the run does not go. */
static inline bool pl_server_begun(const struct server *s) {
    return s->clock.tick_ns > 0;
}

/* The time of the last event, which may be one of the engine's own. */
static inline uint64_t pl_server_last(const struct server *s) {
    uint64_t last = s->clock.last_ns;
    return s->view && s->view->now_ns > last ? s->view->now_ns : last;
}

/* The time on the run's clock. */
static inline uint64_t pl_server_now(const struct server *s) {
    uint64_t now = pl_now_ns() - s->clock.zero_ns, last = pl_server_last(s);
    return now > last ? now : last;
}

int pl_server_news(struct server *s, const struct pl_news *n);
void pl_server_lost(struct server *s); /* tells of updates that an earlier server had made */
void pl_server_made(void *server, uint64_t version); /* notes it, if it is new */

/* The whole current model; uses `room` if it is not a version here. 0, PL_ENOMEM or PL_ERUN. */
static inline int pl_server_model(void *server, float *room, struct pl_model_now *out) {
    struct server *s = server;
    if (!s->several) return pl_engine_model(s->engine, room, out);
    *out = (struct pl_model_now){.w = room, .consensus = NAN};
    int rc = pl_shards_model(&s->shards, pl_store_shown(pl_engine_store(s->engine)), room);
    if (rc) s->shards.failed = true;
    return rc;
}

bool pl_server_ticks(struct server *s, uint64_t now); /* whether the watch ends the run */
void pl_server_scored(struct server *s);              /* waits for the scorer */
int pl_server_loop(struct server *s);

#endif
