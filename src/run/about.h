/* What a server tells clients about its run, as a JSON object, and the judgement on clients.
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
    double weight_decay;
    size_t dim;
    size_t parameters; /* elements before the buffers */
    size_t tensors;    /* of parameters, that a result may lack; 0: results have all elements */
    int workers;
    double lr;
    uint32_t batch;
    uint64_t seed;
    bool half;            /* vectors are exchanged as bfloat16 */
    bool needs_evaluator; /* the server cannot evaluate the model, so there is a seat for an
                             evaluator */
    bool ranks;           /* workers are ranks of a launcher, and rank 0 has the token */
    /* What the server judges clients by; they are not told. */
    bool groups;                 /* parameters have factors of their own: see core/ranges.h */
    bool peers;                  /* workers have models of their own */
    bool moves;                  /* the rule takes steps, */
    bool any_steps;              /* and an optimizer of the client may take them */
    char requests[PL_TOKEN_MAX]; /* whose are carried out: "none", "any", or those with this token,
                                    which they are not told */
    char job[PL_JOB_MAX];        /* clients of another one are refused; "": of any */
};

void pl_about_job(const struct pl_job *job, const char *model, uint64_t fingerprint, bool half,
                  struct pl_about *out);

/* As text, up to PL_ABOUT_MAX - 1 bytes, and back, without what follows from the rule. Writing
 * fails if it does not fit, reading if it is not such a text: PL_ENOMEM or PL_EDATA. */
int pl_about_write(const struct pl_about *a, char out[PL_ABOUT_MAX]);
int pl_about_read(const char *text, struct pl_about *out);

/* A bit of pl_client.can: the program takes local steps with an optimizer of its own. */
#define PL_ABOUT_STEPS UINT64_C(1)

/* Whether a client may join, and whether its requests are carried out; for pl_port_conf.admit, with
 * a struct pl_about as its ctx. */
enum pl_admission pl_about_admits(void *about, const struct pl_newcomer *client,
                                  struct pl_why *why);

/* Whether an evaluator's number of this name can be true. One that is not finite is not known. */
bool pl_about_can_be(const char *name, size_t n, double value);

#endif
