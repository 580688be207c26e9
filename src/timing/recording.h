/* Recordings: the external events of a run (which worker joined or left, which task arrived when).
 * Decisions and vectors are not stored. They follow, bit for bit, from the same events: a task is a
 * function of (job, worker, task, version), and a plan of the events before it.
 *
 * docs/recording.md describes the format. Each checksum covers an event and all before it, so a
 * truncated file is valid up to its last whole event. */
#ifndef PL_TIMING_RECORDING_H
#define PL_TIMING_RECORDING_H

#include "core/control.h"

#define PL_RECORDING_TEXT_MAX 1000000 /* longest text of the setup, in characters */

/* --- writing ----------------------------------------------------------------------------- */

struct pl_recorder;

/* Creates `path`; never overwrites a file. `text` holds the "key=value" lines of the setup; `steps`
 * is the number of mini-batches per task. */
int pl_recorder_open(const char *path, const char *text, int n_workers, uint32_t steps,
                     struct pl_recorder **out, struct pl_why *why);
/* A pl_control_log; ctx is the recorder. Keeps the first error for pl_recorder_close. */
void pl_recorder_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan);
void pl_recorder_flush(struct pl_recorder *r); /* everything written is then in the file */

/* Records the end of the run and its weights (NULL if there are none). */
void pl_recorder_end(struct pl_recorder *r, uint64_t now_ns, uint64_t n_updates,
                     const float *weights, size_t dim);
/* The recording ends early, with what was written before: the file could not be written, or has the
 * size up to which recordings can be read. PL_EIO and why, or 0. */
int pl_recorder_failed(const struct pl_recorder *r, struct pl_why *why);
int pl_recorder_close(struct pl_recorder *r, struct pl_why *why); /* NULL is allowed */

/* --- reading ----------------------------------------------------------------------------- */

struct pl_recording {
    const char *path; /* the caller's, where it was read */
    char *text;       /* the setup's lines */
    int n_workers;
    uint32_t steps; /* mini-batches per task */
    struct pl_event *event;
    uint64_t *began_ns; /* [n_events] when the task that arrived was started; 0 for other events */
    size_t n_events;
    bool cut;   /* the file ends within an event, or before the end of the run */
    bool ended; /* the end was recorded, with: */
    uint64_t end_ns, n_updates, digest;
    void *memory; /* owns everything above */
};

/* Returns PL_EDATA if the file is damaged. */
int pl_recording_read(const char *path, struct pl_recording *out, struct pl_why *why);
void pl_recording_free(struct pl_recording *r);

/* The fraction of tasks that did not come back, before the last one that did: they were cancelled
 * or lost, most of them because they were slow. */
double pl_recording_missing(const struct pl_recording *r);

/* Tells whether `path` begins like a recording. */
bool pl_recording_is(const char *path);

/* Copies the value of the line "key=value" of `text` to out[max]; false if there is none. */
bool pl_recording_line(const char *text, const char *key, char *out, size_t max);

/* Whether the run had real workers: it was not simulated. */
bool pl_recording_is_real(const struct pl_recording *r);

/* The digest of weights stored at the end of a recording: depends on every bit and on the order; 0
 * for none. */
uint64_t pl_digest(const float *w, size_t dim);

#endif
