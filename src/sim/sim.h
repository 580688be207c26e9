/* The virtual host: the run on a virtual clock, any number of workers, real gradients.
 *
 * Time passes only in the event queue. Delays are drawn from the job's law, keyed by (seed, worker,
 * task); messages pass the network model; evaluation costs no virtual time. Decisions are control's
 * and arithmetic is the store's: the same objects a real server runs. */
#ifndef PL_SIM_SIM_H
#define PL_SIM_SIM_H

#include "learn/outcome.h"
#include "sim/net.h"
#include "sim/replay.h"
#include "sim/script.h"

/* Where a run goes on from: what control and store were, and the weights [dim]. */
struct pl_sim_from {
    struct pl_archive archive;
    const float *weights;
};

struct pl_sim_conf {
    const struct pl_job *job;
    struct pl_net_conf net;
    const struct pl_script *script; /* NULL: nothing happens to anybody */
    struct pl_watch watch;
    pl_control_log *events; /* the event log; NULL: not wanted */
    void *events_ctx;
    /* Feeds the run with what was recorded instead of delays, network, script and limits; then
     * `check` tells how it compares. NULL: no replay. */
    const struct pl_recording *replay;
    const struct pl_sim_from *from; /* where the recorded run went on from; NULL: it began */
    struct pl_replay_check *check;
};

/* out->weights is the caller's to free(). */
int pl_sim_run(const struct pl_sim_conf *conf, struct pl_outcome *out, struct pl_why *why);

#endif
