/* The real host: control and store driven by workers that really compute.
 *
 * One thread decides. It sleeps until a result, an arrival or a departure is there, hands it to
 * control as one event, and carries the plan out on the store and the transport. Commits are split
 * over the cores by tiles of the vector; scoring and writing checkpoints go on beside it, from
 * versions that are held. Whatever a worker does or fails to do, the others go on. */
#ifndef PL_RUN_SERVER_H
#define PL_RUN_SERVER_H

#include "learn/outcome.h"
#include "run/checkpoint.h"
#include "transport/transport.h"

struct pl_listener {
    pl_control_log *log;
    void *ctx;
};

struct pl_server_conf {
    const struct pl_job *job;
    const struct pl_transport *transport;
    int n_servers;      /* ranks that share the vector; 0 and 1: this one alone */
    bool spawn;         /* makes its workers itself */
    bool respawn;       /* and makes a new one for every one that goes */
    const char *listen; /* where others can come; NULL: nobody */
    struct pl_watch watch;
    struct pl_listener listener[PL_LISTENERS];
    int n_listeners;
    void (*second)(void *ctx, uint64_t now_ns); /* about once a second; NULL: not */
    void *second_ctx;

    const struct pl_saved *from;    /* where to go on; NULL: from the start */
    const char *save_dir;           /* where checkpoints go; NULL: none are made */
    uint64_t save_updates, save_ns; /* between two of them; 0: not by this */
    size_t save_keep;
    const char *save_text; /* the setup, kept with each of them */
    double *saved;         /* when the last was written, in seconds since 1970; NULL: never mind */

    void (*made)(void *ctx, int worker, int pid); /* a worker process was made; NULL: never mind */
    void *made_ctx;
};

/* out->weights is the caller's to free(). */
int pl_server_run(const struct pl_server_conf *conf, struct pl_outcome *out, struct pl_why *why);

#endif
