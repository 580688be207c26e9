/* A worker: takes orders, computes, answers, until the run is over. */
#ifndef PL_RUN_WORKER_H
#define PL_RUN_WORKER_H

#include "learn/task.h"
#include "transport/transport.h"

/* Returns when there are no more orders: 0, or PL_ENOMEM. */
int pl_worker_loop(const struct pl_job *job, const struct pl_transport *t, struct pl_link *link,
                   int worker);

/* What an order computes on [dim]: the version it names, or the sum of its parts, which is made. */
const float *pl_worker_base(const struct pl_order *o, size_t dim);

#endif
