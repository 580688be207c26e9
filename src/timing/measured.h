/* Measured delays: the seconds of finished mini-batches, worker by worker, read from a text file (a
 * trace) or from a recording of a run. The laws `trace` and `recording` of delay.h draw from them.
 *
 * A trace has one number of seconds per line, or two columns "worker seconds" with workers numbered
 * from 1; '#' begins a comment. In a recording, every task that arrived and was not rejected
 * counts, from its start to its arrival, divided by its mini-batches. A worker that finished no
 * task shares the times of the next one that did. If there are more workers than were measured, the
 * measurements are used in turn. A recording is refused if most of its tasks have no time: they
 * were cancelled, and those that were not are the fastest. */
#ifndef PL_TIMING_MEASURED_H
#define PL_TIMING_MEASURED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PL_MEASURED_MISSING 0.5 /* more than this fraction of tasks without a time is too much */

struct pl_measured; /* one sample per worker */

int pl_measured_trace(const char *file, struct pl_measured **out, struct pl_why *why);
int pl_measured_recording(const char *file, struct pl_measured **out, struct pl_why *why);
void pl_measured_free(struct pl_measured *m); /* NULL is allowed */

size_t pl_measured_workers(const struct pl_measured *m);

/* The measurements of `worker`: their number, ascending, and in the order they were measured. */
struct pl_sample {
    const double *ascending, *in_order; /* [n] seconds */
    size_t n;
    double mean;
};
struct pl_sample pl_measured_of(const struct pl_measured *m, uint32_t worker);

#endif
