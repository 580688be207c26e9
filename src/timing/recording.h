/* Recordings: what happened in a run, from outside: who came, who went, which task came back when.
 * Decisions and vectors are not in it. They follow, bit for bit, from the same events: a task is a
 * function of (job, worker, task, version), and a plan of the events before it.
 *
 * The bytes are described in docs/recording.md. Every event is checksummed together with all before
 * it; a file that was cut short is good up to its last whole event. */
#ifndef PL_TIMING_RECORDING_H
#define PL_TIMING_RECORDING_H

#include "core/control.h"

#define PL_RECORDING_TEXT_MAX 1000000 /* characters of the setup's lines */

/* --- writing ----------------------------------------------------------------------------- */

struct pl_recorder;

/* Creates `path` (never writes over a file). `text`: "key=value" lines of the setup; `steps`:
 * mini-batches in a task. */
int pl_recorder_open(const char *path, const char *text, int n_workers, uint32_t steps,
                     struct pl_recorder **out, struct pl_why *why);
/* A pl_control_log; ctx is the recorder. Keeps the first error for pl_recorder_close. */
void pl_recorder_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan);
void pl_recorder_flush(struct pl_recorder *r); /* what was written is in the file afterwards */

/* The run came to its end, with these weights (NULL: none). */
void pl_recorder_end(struct pl_recorder *r, uint64_t now_ns, uint64_t n_updates,
                     const float *weights, size_t dim);
int pl_recorder_close(struct pl_recorder *r, struct pl_why *why); /* NULL is fine */

/* --- reading ----------------------------------------------------------------------------- */

struct pl_recording {
    char *text; /* the setup's lines */
    int n_workers;
    uint32_t steps; /* mini-batches in a task */
    struct pl_event *event;
    uint64_t *began_ns; /* [n_events] when the task that came back was started; 0 for others */
    size_t n_events;
    bool cut;   /* the file ends in the middle of an event, or without the end of the run */
    bool ended; /* the end is there, and with it: */
    uint64_t end_ns, n_updates, digest;
    void *memory; /* everything above lies in it */
};

/* PL_EDATA where a byte is not what was written. */
int pl_recording_read(const char *path, struct pl_recording *out, struct pl_why *why);
void pl_recording_free(struct pl_recording *r);

/* Whether `path` begins as recordings do. */
bool pl_recording_is(const char *path);

/* The value of a line "key=value" of `text`, copied into out[max]; false where there is none. */
bool pl_recording_line(const char *text, const char *key, char *out, size_t max);

/* Of weights, as the end of a recording keeps it: depends on every bit and on the order; 0 for
 * none. */
uint64_t pl_digest(const float *w, size_t dim);

#endif
