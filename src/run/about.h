/* What a server tells guests about its run, as a JSON object, and the judgement on guests.
 *
 * Threads: any; nothing here changes after it was made. */
#ifndef PL_RUN_ABOUT_H
#define PL_RUN_ABOUT_H

#include "learn/job.h"
#include "transport/transport.h"

#define PL_ABOUT_NAME 64

struct pl_about {
    char version[PL_ABOUT_NAME]; /* of the server's library */
    char model[PL_ABOUT_NAME], method[PL_ABOUT_NAME];
    char fingerprint[PL_ABOUT_NAME];
    char rule[PL_ABOUT_NAME];  /* the local rule, */
    char options[PL_SPEC_MAX]; /* its options, all of them, */
    int sends;                 /* what it sends (enum pl_sends), */
    uint32_t steps;            /* and its mini-batches per task */
    double local_lr;           /* learning rate of its steps; 0: the one of the order */
    double decay;              /* weight decay that workers apply; 0: the server does */
    double outer;              /* factor on deltas, for workers with models of their own */
    double own_decay;          /* weight decay of those */
    size_t dim;
    int workers;
    double lr;
    uint32_t batch;
    uint64_t seed;
    bool groups;  /* parts of the vector are treated differently: see core/ranges.h */
    bool peers;   /* workers have models of their own */
    bool keeps;   /* the rule keeps something from task to task */
    bool half;    /* vectors are exchanged as bfloat16 */
    bool outside; /* the server cannot evaluate the model, so there is a seat for an evaluator */
};

void pl_about_job(const struct pl_job *job, const char *model, uint64_t fingerprint, bool half,
                  struct pl_about *out);

/* As text, up to PL_ABOUT_MAX - 1 bytes, and back. Writing fails if it does not fit, reading if it
 * is not such a text: PL_ENOMEM or PL_EDATA. */
int pl_about_write(const struct pl_about *a, char out[PL_ABOUT_MAX]);
int pl_about_read(const char *text, struct pl_about *out);

/* The bit of a local rule in pl_guest.can; 0: there is no such rule. */
uint64_t pl_about_rule(const char *name, size_t n);

/* The rule of workers that send the gradient of one mini-batch: the first of its family. */
#define PL_ABOUT_GRADIENT UINT64_C(1)
const char *pl_about_gradient(void); /* its name */

/* Whether workers that compute gradients, and this library around them, can compute the rule. */
bool pl_about_from_gradients(const struct pl_about *a);

/* Whether a guest may join; for pl_port_conf.admit, with a struct pl_about as its ctx. */
bool pl_about_admits(void *about, const struct pl_guest *guest, struct pl_why *why);

#endif
