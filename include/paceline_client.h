/* Workers and evaluators of other programs. A program joins a run that another process of the same
 * user and machine serves with the option "listen", for example
 *
 *     paceline train --model external --init start.safetensors --listen run.socket --workers 2
 *
 * and computes what the server asks for:
 *
 *     struct pl_client_conf conf = {.path = "run.socket", .dim = dim};
 *     struct pl_client_task task;
 *     pl_client *client;
 *     char why[400];
 *     if (pl_client_open(&conf, &client, why, sizeof why)) …
 *     while ((rc = pl_client_pull(client, -1, &task)) == PL_OK) {
 *         … compute the gradient at task.w into task.out; stop if pl_client_cancelled(client) …
 *         pl_client_push(client, task.dim, samples, loss);
 *     }
 *     pl_client_close(client);
 *
 * The vectors are in shared memory and are not copied. Use a client from one thread at a time,
 * except for pl_client_interrupt. Nothing here installs signal handlers or starts threads. A client
 * belongs to the process that opened it: a child must not use its parent's. */
#ifndef PACELINE_CLIENT_H
#define PACELINE_CLIENT_H

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_client pl_client;

enum pl_role { PL_ROLE_WORKER, PL_ROLE_EVALUATOR };

/* Zero everything, then set what is needed. */
struct pl_client_conf {
    const char *path;     /* the server's socket, http[s]://HOST:PORT, or mpi: for rank 0 */
    int role;             /* enum pl_role */
    double wait;          /* seconds to wait for a server at that path; 0: 30; negative: none */
    size_t dim;           /* parameters of this program's model; 0: any number is accepted */
    uint64_t fingerprint; /* pl_fingerprint of it; 0: not compared */
    /* Non-zero: this program has an optimizer of its own. If the method takes local steps that any
     * optimizer can take, tasks want PL_WANTS_STEPS. If 0, and for other methods, tasks want
     * gradients, and the library takes the local steps itself. */
    int steps;
    /* Called once with a message for people if the server is not there yet. May be NULL. */
    void (*waiting)(void *ctx, const char *sentence);
    void *waiting_ctx;
    int raw; /* non-zero: if the server has "wire" bf16, this program writes results
                to out16; 0: the library converts them */
    /* The value of the server's "requests", if it is a token: this program may then evaluate and
     * send requests. If it is NULL, it has none. A token that is not the run's is refused. */
    const char *token;
    int number; /* of the worker that this program would like to be, from 1; 0, or if it is taken:
                   the lowest that is free */
    const char *keys; /* for https://…: folder of its certificate; NULL: that of PACELINE_KEYS */
    int checks; /* non-zero: this program does what task.checks asks for; 0: the library does it */
    /* Its launcher's job. A server whose option "job" is another one refuses it, so that it never
     * joins the run of another job at the same address. If it is NULL, it joins any run. */
    const char *job;
};

/* What a task's result is. */
enum pl_wants {
    PL_WANTS_GRADIENT, /* the gradient of the mean loss over one mini-batch at w */
    PL_WANTS_STEPS,    /* the model after `steps` steps from w, each on a mini-batch of its own. w
                          and out are the same vector */
    PL_WANTS_NUMBERS   /* an evaluator's: numbers about w, by pl_client_report */
};

struct pl_client_task {
    int worker;       /* number of this worker, from 0; -1: an evaluator */
    uint64_t task;    /* number of the task; with `worker` it can identify a mini-batch */
    uint64_t version; /* of the model: the number of updates so far */
    size_t dim;
    const float *w;      /* [dim] the model to start from; read-only */
    float *out;          /* [dim] for the result; NULL for an evaluator, and with conf.raw if there
                            is out16 */
    const uint16_t *w16; /* [dim] w as bf16, if the server has "wire" bf16; otherwise NULL */
    uint16_t *out16;     /* [dim] for the result as bf16, likewise; only conf.raw uses it */
    int wants;           /* enum pl_wants */
    uint32_t steps;      /* mini-batches until the next push: 1 for a gradient */
    uint32_t step;       /* which mini-batch of the task is the first of them, from 0. A task of
                            several is pulled and pushed in parts; only the last push sends */
    double lr;           /* learning rate: of the local steps if there are any, or the server's */
    double weight_decay; /* that the worker applies in its local steps; 0: the server applies it */
    int checks; /* non-zero: push the loss INFINITY if the gradient is not finite (conf.checks) */
};

/* Joins. Waits for the server at most conf->wait seconds, in a way that a signal interrupts. 0, or:
 *   PL_EUSAGE        the conf makes no sense
 *   PL_EIO           no server within that time, or none can be at this path
 *   PL_ERUN          the server refused: all seats are taken, or another model or local rule
 *   PL_EINTR         a signal was caught
 *   PL_EDATA         it is not a server, or one of another version
 *   PL_EMISSING      this build has no MPI; PL_ENOMEM
 * why[why_max] then has a sentence, of the server's own if it refused. */
PL_API int pl_client_open(const struct pl_client_conf *conf, pl_client **out, char *why,
                          size_t why_max);
PL_API void pl_client_close(pl_client *client); /* leaves the run; NULL is allowed */

/* The run, as a JSON object that the client owns: "paceline" (version of the server), "model",
 * "dim", "parameters" (elements before the buffers), "tensors" (of parameters, for
 * pl_client_absent; 0 if results have all elements: the server knows the tensors of models that
 * clients compute, and under local steps workers skip them themselves), "fingerprint", "method",
 * "rule", "options", "wants", "batches_per_task", "workers", "lr", "weight_decay", "batch", "seed",
 * "wire", "evaluator", "requests" ("none", "any", "token" or "rank 0"). */
PL_API const char *pl_client_server(const pl_client *client);

/* Waits for the next task, at most `seconds`; negative: without limit; 0: looks once. An evaluator
 * gets the newest version, as soon as it is newer than the last it got. 0, or:
 *   PL_ETIMEDOUT     nothing came in time; call again
 *   PL_EINTR         a signal was caught, or pl_client_interrupt was called; call again, or close
 *   PL_ECANCELLED    the run has ended; task->w is its last version, or NULL if that did not come
 *   PL_ERUN          the server is gone without having ended the run, or has hung up:
 *                    pl_client_why() says why
 * A worker that was only too slow has joined again, if there was a place. A task that was pulled
 * and not answered comes again, unless it was cancelled. */
PL_API int pl_client_pull(pl_client *client, double seconds, struct pl_client_task *task);

/* Makes a pull that waits, or the next one, return PL_EINTR. From any thread or signal handler. */
PL_API void pl_client_interrupt(pl_client *client);

/* 1: the current task is no longer wanted. 2: the server has hung up, and may use the memory at `w`
 * again. Otherwise 0. Cheap. Pull the next task if it is not 0. */
PL_API int pl_client_cancelled(const pl_client *client);

/* Answers the current task: n elements of `out` were written; it is the mean over `samples` samples
 * (0: "batch" of the server, times steps), and `loss` is their mean loss. NAN: the loss is unknown,
 * which no rule minds except those that read losses. A result that is not finite or not dim
 * elements long is rejected and counted. An evaluator pushes the numbers that it has reported. 0,
 * or PL_EUSAGE if there is no current task. */
PL_API int pl_client_push(pl_client *client, size_t n, uint32_t samples, double loss);

/* Call before the push of a gradient in which some parameters of the model had no part: absent[i]
 * is non-zero if tensor i was not used. The n tensors are those of parameters that are not empty,
 * in the order of the model; n is "tensors" of the server. Write zeros to `out` there. In an
 * update, a tensor that some results lack counts as zero in these; one that all of them lack is
 * left alone: it is not decayed, and neither it nor its momentum or moments move. 0, or PL_EUSAGE
 * if there is no current task or n is another number. */
PL_API int pl_client_absent(pl_client *client, const unsigned char *absent, size_t n);

/* Answers the current task, which could not be computed. The server counts it as rejected. */
PL_API int pl_client_fail(pl_client *client);

/* Sets a number of an evaluator's answer: "test_loss" and "test_accuracy" (0 to 1), which targets,
 * the log and the best checkpoint use, "loss" (of training), or any other name of at most 31
 * letters, digits, _ . and -; at most 16 in all. Others are in the log and in the result. 0, or
 * PL_EUSAGE. */
PL_API int pl_client_report(pl_client *client, const char *name, double value);

/* Requests to the server, from workers and evaluators that have the run's token, or from all if
 * "requests" of the server is any. They are carried out in order, soon, and before the next result
 * of this client. 0; PL_EUSAGE if the value makes no sense or the server takes no requests of this
 * client; PL_ERUN if the server is gone or does not take the request within a second. */
PL_API int pl_client_set_lr(pl_client *client, double lr); /* from the next update on, a worker's
                                                              with its next result, unless its
                                                              task is cancelled; replaces "lr", and
                                                              schedules multiply it */
PL_API int pl_client_checkpoint(pl_client *client);        /* soon; nothing without "checkpoint" */
PL_API int pl_client_pause(pl_client *client, int yes);    /* 1: it leaves its task alone to
                                                              evaluate; 0: it continues; "evict"
                                                              does not count that time */
PL_API int pl_client_save(pl_client *client); /* the optimizer's state goes to "exchange"/saved */
PL_API int pl_client_load(pl_client *client); /* weights and state come from "load" there */
PL_API int pl_client_end(pl_client *client);  /* the run ends in good order */

/* A sentence about the last failure of this client, or "". Valid until the next call. */
PL_API const char *pl_client_why(const pl_client *client);

#ifdef __cplusplus
}
#endif
#endif
