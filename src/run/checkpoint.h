/* Checkpoints: everything a run needs in order to be resumed, in one file.
 *
 * A snapshot collects the pieces while training waits: state is copied, the weights are referred to
 * (versions do not change). Another thread can then write it, however long that takes. The file is
 * DIR/checkpoint-0000000200.safetensors after 200 updates, and DIR/latest is a link to the one that
 * was written last. DIR/best is a link to the weights with the best score so far, without state. In
 * the file the weights have the names of the model's layers, so that other tools find them; the
 * names of state begin with "run.".
 *
 * A checkpoint that was read returns the pieces by the same names.
 *
 * Threads: any one at a time. The thread that decides collects a snapshot; the saver's own thread
 * writes it. */
#ifndef PL_RUN_CHECKPOINT_H
#define PL_RUN_CHECKPOINT_H

#include "base/status.h"
#include "core/archive.h"
#include "model/model.h"

/* --- saving ------------------------------------------------------------------------------ */

struct pl_snapshot;

int pl_snapshot_new(struct pl_snapshot **out, struct pl_why *why);
void pl_snapshot_free(struct pl_snapshot *s); /* NULL is fine */

/* For control and store to save themselves; every piece is copied. If there is no memory for a
 * piece, here or below, pl_checkpoint_write fails. */
struct pl_archive pl_snapshot_archive(struct pl_snapshot *s);

/* w [m->dim] is not copied: it must not change until the snapshot is written or freed. */
void pl_snapshot_weights(struct pl_snapshot *s, const struct pl_model *m, const float *w);

/* Whether all weights are finite. */
bool pl_snapshot_finite(const struct pl_snapshot *s);

/* A note in UTF-8. Keys in use: sha256, format, writer, updates. "origin" is the first run of
 * the chain that the run continues: only checkpoints with the same origin are removed for this one.
 */
void pl_snapshot_text(struct pl_snapshot *s, const char *key, const char *value);

/* The bytes of its file, malloc()ed. */
int pl_snapshot_pack(struct pl_snapshot *s, uint64_t updates, unsigned char **out, size_t *bytes,
                     struct pl_why *why);

/* Creates `dir` if it does not exist, and checks that files can be created in it, and that a name
 * of a link is free or that of a run's link. */
int pl_checkpoint_folder(const char *dir, struct pl_why *why);

/* Whether a run gives this name to something in its folder of checkpoints. */
bool pl_checkpoint_uses(const char *name);

/* Creates `dir` if it does not exist, writes the file, links `latest` to it and removes the oldest
 * so that keep_n are left (0: removes none). Returns when it is on the disk. If it fails, the
 * existing checkpoints are unchanged. */
int pl_checkpoint_write(const char *dir, size_t keep_n, const struct pl_snapshot *s,
                        uint64_t updates, struct pl_why *why);

/* The same for the best weights: replaces DIR/best.safetensors, to which DIR/best is a link. */
int pl_checkpoint_write_best(const char *dir, const struct pl_snapshot *s, uint64_t updates,
                             struct pl_why *why);

/* A number among the notes of the best weights in `dir`; NAN if there are none. */
double pl_checkpoint_best(const char *dir, const char *key);

/* --- restoring --------------------------------------------------------------------------- */

/* The file to resume from: `where` itself if it is a file; if it is a folder, the file that
 * `latest` names, or if there is no such link, the one with the most updates. PL_EMISSING if there
 * is none. */
int pl_checkpoint_find(const char *where, char path[], size_t max, struct pl_why *why);

/* Whether a folder without a checkpoint has best weights; then *why says what can be done. */
bool pl_checkpoint_only_best(const char *dir, struct pl_why *why);

struct pl_saved;

/* If the file is damaged, the message names another one in its folder that is not. */
int pl_checkpoint_read(const char *path, struct pl_saved **out, struct pl_why *why);
/* The same for the latest checkpoint of a folder. If that is damaged or not finite, the last one
 * that is complete and finite is read, and `skipped` has a sentence about it; otherwise "". */
int pl_checkpoint_read_last(const char *dir, struct pl_saved **out, struct pl_why *skipped,
                            struct pl_why *why);

void pl_saved_free(struct pl_saved *s); /* NULL is fine */

const char *pl_saved_path(const struct pl_saved *s);

/* PL_EDATA if a weight is not finite, or if it has weights but no run to continue. */
int pl_saved_resumable(const struct pl_saved *s, struct pl_why *why);

/* For control and store to restore themselves. If the file has more of a piece than was asked for,
 * the rest is ignored; the number returned is the file's. */
struct pl_archive pl_saved_archive(const struct pl_saved *s);

/* Fills w [m->dim]; if names or shapes are not those of the model, fails and leaves w as it is. */
int pl_saved_weights(const struct pl_saved *s, const struct pl_model *m, float *w,
                     struct pl_why *why);

const char *pl_saved_text(const struct pl_saved *s, const char *key); /* NULL: no such note */

#endif
