/* Checkpoints: everything a run needs to go on, in one file.
 *
 * A snapshot collects the pieces while training waits: state is copied, the weights are taken by
 * reference (versions do not change). Writing it may then take its time, on another thread. The
 * file is DIR/checkpoint-0000000200.safetensors after 200 updates; DIR/latest is a link to the one
 * written last. In the file the weights have the names of the model's layers, so that other tools
 * find them; state has "run." in front of its names.
 *
 * A checkpoint that was read hands the pieces back, by the same names. */
#ifndef PL_RUN_CHECKPOINT_H
#define PL_RUN_CHECKPOINT_H

#include "base/status.h"
#include "core/archive.h"
#include "model/model.h"

/* --- saving ------------------------------------------------------------------------------ */

struct pl_snapshot;

int pl_snapshot_new(struct pl_snapshot **out, struct pl_why *why);
void pl_snapshot_free(struct pl_snapshot *s); /* NULL is fine */

/* For control and store to save themselves; every piece is copied. Here and below, a piece for
 * which there is no memory makes pl_checkpoint_write fail. */
struct pl_archive pl_snapshot_archive(struct pl_snapshot *s);

/* w [m->dim] is not copied: it must stay as it is until the snapshot is written or freed. */
void pl_snapshot_weights(struct pl_snapshot *s, const struct pl_model *m, const float *w);

/* A note in UTF-8. Keys in use: crc32, format, writer, updates. */
void pl_snapshot_text(struct pl_snapshot *s, const char *key, const char *value);

/* Makes `dir` where it is missing, and sees that files can be made in it. */
int pl_checkpoint_folder(const char *dir, struct pl_why *why);

/* Makes `dir` where it is missing, writes the file, lets `latest` point to it and removes the
 * oldest so that keep_n are left (0: all stay). Blocks until it is on the disk. Where it fails, the
 * checkpoints that were there are still there. */
int pl_checkpoint_write(const char *dir, size_t keep_n, const struct pl_snapshot *s,
                        uint64_t updates, struct pl_why *why);

/* --- restoring --------------------------------------------------------------------------- */

/* The file to resume from: `where` itself where it is a file; where it is a folder, the one of most
 * updates in it. PL_EMISSING where there is none. */
int pl_checkpoint_find(const char *where, char path[], size_t max, struct pl_why *why);

struct pl_saved;

/* Of a damaged file the sentence tells which other one in its folder is whole. */
int pl_checkpoint_read(const char *path, struct pl_saved **out, struct pl_why *why);
void pl_saved_free(struct pl_saved *s); /* NULL is fine */

/* For control and store to restore themselves. A piece that was kept longer than asked for fills
 * what there is; the number returned is that of the file. */
struct pl_archive pl_saved_archive(const struct pl_saved *s);

/* w [m->dim] is filled, or left as it is where names or shapes are not those of the model. */
int pl_saved_weights(const struct pl_saved *s, const struct pl_model *m, float *w,
                     struct pl_why *why);

const char *pl_saved_text(const struct pl_saved *s, const char *key); /* NULL: no such note */

#endif
