/* The inside of snapshots and of checkpoints that were read, which snapshot.c, saved.c and
 * checkpoint.c share.
 *
 * Threads: the one that the caller hands them to; nothing here is shared. */
#ifndef PL_RUN_CHECKPOINT_STATE_H
#define PL_RUN_CHECKPOINT_STATE_H

#include "run/checkpoint.h"
#include "run/tensors.h"

#define PL_CHECKPOINT_PATH_MAX 4096
#define PL_BEST_FILE "best.safetensors"
#define PL_RUN_STATE "run." /* begins the names of all tensors that are not weights */
#define PL_MASTER "weights" /* all weights in single precision, if a tensor has another type */

struct snapshot_piece {
    char *name;
    void *copy; /* NULL for weights, which are not copied */
};

struct pl_snapshot {
    size_t n, n_room;
    struct pl_tensor *tensor;     /* [n] */
    struct snapshot_piece *piece; /* [n] memory that it owns */
    size_t n_text, n_text_room;
    struct pl_meta *text; /* [n_text]; it owns the strings */
    bool failed;          /* out of memory for a piece */
};

struct pl_saved {
    struct pl_tensors *tensors;
    char path[PL_CHECKPOINT_PATH_MAX];
};

enum pl_dtype pl_snapshot_dtype(enum pl_archive_kind kind); /* in the file */

#endif
