/* Scalars for TensorBoard: writes an event file without TensorFlow. A file is a sequence of records
 * (length, its checksum, data, its checksum) whose data is a small protobuf message, an Event.
 * There is one record per evaluation, at the step that is the number of updates. It is in the file
 * when the call returns, so TensorBoard can follow the run.
 *
 * Threads: one. */
#ifndef PL_OBSERVE_TENSORBOARD_H
#define PL_OBSERVE_TENSORBOARD_H

#include <stdint.h>

#include "base/status.h"

struct pl_tensorboard;

/* Creates events.out.tfevents.SECONDS.HOST in an existing directory. `wall` is the start of the run
 * in seconds since 1970. PL_EIO if the file exists or cannot be created. */
int pl_tensorboard_open(const char *dir, double wall, struct pl_tensorboard **out,
                        struct pl_why *why);

/* One evaluation: loss, test_loss, test_accuracy, k, staleness, unused, workers, and
 * samples_per_second; numbers that are NAN are left out. */
void pl_tensorboard_point(struct pl_tensorboard *t, const struct pl_point *p,
                          double samples_per_second);

/* PL_EIO if a write failed. NULL is allowed. */
int pl_tensorboard_flush(struct pl_tensorboard *t, struct pl_why *why);
int pl_tensorboard_close(struct pl_tensorboard *t, struct pl_why *why);

const char *pl_tensorboard_path(const struct pl_tensorboard *t);

/* The checksum of records, CRC-32C (Castagnoli). */
uint32_t pl_crc32c(const void *data, size_t n);

#endif
