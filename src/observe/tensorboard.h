/* Scalars for TensorBoard: an event file, written by hand. A file is a row of records (length, its
 * checksum, data, its checksum); the data of each is one small protobuf message, an Event. There is
 * one record per evaluation, at the step that is the number of updates, and it is in the file when
 * the call returns, so that TensorBoard can follow the run.
 *
 * Threads: one. */
#ifndef PL_OBSERVE_TENSORBOARD_H
#define PL_OBSERVE_TENSORBOARD_H

#include <stdint.h>

#include "base/status.h"

struct pl_tensorboard;

/* Makes the file events.out.tfevents.SECONDS.HOST in a directory that is there. `wall` is when the
 * run began, in seconds since 1970. PL_EIO where the file exists or cannot be made. */
int pl_tensorboard_open(const char *dir, double wall, struct pl_tensorboard **out,
                        struct pl_why *why);

/* One evaluation: loss, test_loss, test_accuracy, k, staleness, dropped, workers, and
 * samples_per_second; a number that is not known (NAN) is left out. */
void pl_tensorboard_point(struct pl_tensorboard *t, const struct pl_point *p,
                          double samples_per_second);

/* PL_EIO where something did not get into the file. NULL is fine. */
int pl_tensorboard_flush(struct pl_tensorboard *t, struct pl_why *why);
int pl_tensorboard_close(struct pl_tensorboard *t, struct pl_why *why);

const char *pl_tensorboard_path(const struct pl_tensorboard *t);

/* The checksum of the records, CRC-32C (Castagnoli). */
uint32_t pl_crc32c(const void *data, size_t n);

#endif
