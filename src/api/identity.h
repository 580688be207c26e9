/* What a run is: an id, and a description as JSON (docs/runs.md) and as a few lines for people.
 *
 * The description is made once, when everything is resolved and before the first task. When the run
 * has ended, "ended", "why", "trouble" and "core_wait" are added. */
#ifndef PL_API_IDENTITY_H
#define PL_API_IDENTITY_H

#include "api/setup.h"
#include "learn/outcome.h"

#define PL_ID_MAX 32        /* of an id, with its end */
#define PL_CHOICES_MAX 4096 /* of what pl_method_choices writes */

struct pl_identity {
    char id[PL_ID_MAX];     /* "20261115-170229-7f3a9c": UTC, and six random digits */
    char origin[PL_ID_MAX]; /* of the first run, if this one continues another; otherwise `id` */
    const char *kind;       /* as given to pl_identity_new */
    char *body;             /* the JSON object without what the end adds */
    char *json;       /* the JSON object: of a run that has begun, then of one that has ended */
    char *header;     /* for people: lines, each ended by a line feed */
    char *command;    /* a command line that runs it again */
    const char *why;  /* it ended: a word of docs/runs.md; NULL: it has not */
    double core_wait; /* share of the workers' time in which they waited for a core; or NAN */
};

/* The policy, the other columns that are not the default, and the average of the weights, as in
 * "ksync:k=4, correct lag". */
void pl_method_choices(const struct pl_built *b, char *out, size_t max);

/* The checkpoint that a run continues from. */
struct pl_resumed {
    const char *path;
    const char *run;    /* id of the run that wrote it; NULL: it was written without one */
    const char *origin; /* id of the first run of the chain; NULL likewise */
    uint64_t updates;
};

/* `kind` is "simulate", "train", "replay" or "race"; a race has no method. `recording`, the file of
 * a replay, and `resumed` may be NULL. Free with pl_identity_free, also if this fails: 0 or
 * PL_ENOMEM. */
int pl_identity_new(const struct pl_setup *s, const struct pl_built *b, const char *kind,
                    const char *recording, const struct pl_resumed *resumed,
                    struct pl_identity *out);
void pl_identity_free(struct pl_identity *id);

/* The options, with what "auto" and defaults stand for in such a run. */
void pl_identity_resolve(const struct pl_setup *s, const struct pl_built *b, const char *kind,
                         struct pl_setup_conf *c);

/* Adds the end. `why` is a word of docs/runs.md, `trouble` a sentence or "". */
void pl_identity_end(struct pl_identity *id, const char *why, const char *trouble,
                     double core_wait);

/* Why a run without errors that did not diverge ended, as a word of docs/runs.md. */
const char *pl_identity_why(const struct pl_outcome *out, const struct pl_limits *limits,
                            bool interrupted);

#endif
