/* The real host: an engine driven by workers that really compute.
 *
 * Whatever a worker does or fails to do, the others continue.
 *
 * Threads: one decides. It sleeps until there is news from the transport (a result, a worker that
 * joined or left) and gives it to the engine as one event. Commits are split over the cores by
 * tiles of the vector. Scoring and writing checkpoints run on other threads, from versions that
 * are held. */
#ifndef PL_RUN_SERVER_H
#define PL_RUN_SERVER_H

#include "learn/outcome.h"
#include "run/checkpoint.h"
#include "run/claim.h"
#include "run/gateway.h"
#include "transport/transport.h"

struct pl_last_save {
    double when;      /* in seconds since 1970 */
    uint64_t updates; /* of the model in it */
};

/* Which checkpoints are written, and what each of them says besides the state. */
struct pl_save_conf {
    const char *dir;               /* folder for them; NULL: write none */
    uint64_t updates, ns;          /* between two of them; 0: not used */
    size_t keep;                   /* how many of the last ones stay */
    bool first;                    /* one at once: the state of a standby is nowhere else */
    uint64_t epoch;                /* of this server: gateway.h */
    const char *text;              /* the setup */
    const char *run, *id, *origin; /* the run, its id and the first of its chain; or NULL */
    const char *schema;            /* what its data are (pl_data_schema); or NULL */
    const char *layout;            /* what applies to some tensors only; or NULL */
    struct pl_last_save *last;     /* set when a checkpoint was written; or NULL */
};

struct pl_server_conf {
    const struct pl_job *job;
    const struct pl_transport *transport;
    int n_servers;      /* ranks that share the vector; 0 and 1: this one alone */
    int n_local;        /* workers that it starts, the first ones; the others join */
    bool respawn;       /* restart workers that end */
    const char *listen; /* where other programs can join; NULL: nowhere */
    const char *where;  /* the same, and on which address, for people */
    const struct pl_gateway_conf *gateway; /* where clients on other machines join; or NULL */
    const char *requests; /* whose requests are carried out (run/about.h); NULL: nobody's */
    const char *job_name; /* clients of another job are refused; NULL: those of any */
    const char *exchange; /* folder for the state that requests save and load; NULL: none */
    const char *model;    /* its spec, for other programs */
    uint64_t fingerprint; /* of its tensors */
    bool half;            /* other programs exchange vectors as bfloat16 */
    int min_workers;      /* of other programs, with which the run begins; 0: all */
    uint64_t wait_ns;     /* for workers of other programs, before giving up; 0: for ever */
    struct pl_watch watch;
    pl_control_log *events; /* the event log; NULL: none */
    /* A worker has a certificate with this name; or NULL. */
    void (*named)(void *ctx, int worker, const char *name);
    void *events_ctx;                           /* of both */
    void (*second)(void *ctx, uint64_t now_ns); /* about once per second, or NULL */
    void *second_ctx;

    const struct pl_saved *from; /* to resume from; NULL: start from the beginning */
    struct pl_save_conf save;
    struct pl_claim *claim; /* of the folder of checkpoints, for a server with a gateway; or NULL */

    void (*made)(void *ctx, int worker, int pid); /* a worker process was started; or NULL */
    void *made_ctx;
};

/* The caller must free() out->weights. */
int pl_server_run(const struct pl_server_conf *conf, struct pl_outcome *out, struct pl_why *why);

#endif
