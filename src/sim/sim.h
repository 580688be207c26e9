/* The virtual host: a run on a virtual clock, with any number of workers and real gradients.
 *
 * Time passes only in the event queue. Delays are drawn from the job's law, keyed by (seed, worker,
 * task); messages pass through the network model; evaluation takes no virtual time. Decisions and
 * arithmetic are the engine's, the same that a real server runs. */
#ifndef PL_SIM_SIM_H
#define PL_SIM_SIM_H

#include "learn/outcome.h"
#include "sim/net.h"
#include "sim/replay.h"
#include "sim/script.h"

/* What a run is resumed from: the state of the engine, and the weights [dim]. */
struct pl_sim_from {
    struct pl_archive archive;
    const float *weights;
};

struct pl_sim_conf {
    const struct pl_job *job;
    struct pl_net_conf net;
    const struct pl_script *script; /* NULL: nothing happens to the workers */
    struct pl_watch watch;
    pl_control_log *events; /* the event log; NULL: none */
    void *events_ctx;
    /* Replaces delays, network, script and limits by a recording; `check` says how the run compares
     * with it. If it is NULL, nothing is replayed. */
    const struct pl_recording *replay;
    const struct pl_sim_from *from; /* what the recorded run was resumed from; NULL: nothing */
    struct pl_replay_check *check;
};

/* The caller must free() out->weights. */
int pl_sim_run(const struct pl_sim_conf *conf, struct pl_outcome *out, struct pl_why *why);

#endif
