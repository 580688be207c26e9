/* A simulation in a loop of your own: you compute the gradients, wherever your vectors are.
 *
 * pl_simulate calls a gradient function and keeps all vectors in its own memory. A program with a
 * model on a GPU wants neither. Here the library decides what happens next, and the program does
 * it: one call returns one step. The library knows vectors by the addresses that the program gave
 * it, and never reads or writes them. Decisions, virtual time, the event log and the numbers of the
 * run are those of pl_simulate.
 *
 *     pl_loop *loop;
 *     struct pl_loop_step step;
 *     pl_setup_rows(setup, n_train, n_test, labels);
 *     if (pl_loop_open(setup, dim, &loop)) …
 *     while (!pl_loop_next(loop, &step) && step.what != PL_LOOP_END)
 *         switch (step.what) {
 *         case PL_LOOP_MEMORY:   … allocate step.n vectors of zeros: pl_loop_give(loop, address)
 *         case PL_LOOP_LOAD:     … copy the first weights to step.w, and to step.out if not NULL
 *         case PL_LOOP_GRADIENT: … gradient of samples step.row at step.w into step.out:
 *                                  pl_loop_gradient(loop, loss, finite)
 *         case PL_LOOP_COMMIT:   … run the kernel on step.argument
 *         case PL_LOOP_SCORE:    … evaluate step.w: pl_loop_score(loop, loss, test_loss, accuracy)
 *         }
 *
 * Steps are carried out in order; a GPU may lag behind if it keeps that order. A rule that needs to
 * see whole vectors in this process (robust reductions, filters, methods without a server, local
 * steps) is refused by pl_loop_open; pl_simulate with a function has all of them.
 *
 * Use a loop from one thread at a time. The setup must outlive it. */
#ifndef PACELINE_LOOP_H
#define PACELINE_LOOP_H

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_loop pl_loop;

enum pl_loop_what {
    PL_LOOP_END,      /* the run has ended; w is the final model */
    PL_LOOP_MEMORY,   /* give the loop n more vectors of zeros */
    PL_LOOP_LOAD,     /* write the first weights to w, and to out unless it is NULL */
    PL_LOOP_GRADIENT, /* compute the gradient at w of the samples row[n] into out */
    PL_LOOP_COMMIT,   /* run the kernel on a copy of argument */
    PL_LOOP_SCORE     /* evaluate w */
};

struct pl_loop_step {
    int what;         /* enum pl_loop_what */
    int worker;       /* GRADIENT: from 0 */
    uint64_t task;    /* GRADIENT: 1, 2, … of this worker */
    uint64_t version; /* GRADIENT, SCORE: of w */
    double time;      /* virtual seconds */
    double lr;        /* GRADIENT: in force at that version */
    void *w, *out;
    uint32_t n;           /* MEMORY: vectors; GRADIENT: samples */
    const uint32_t *row;  /* GRADIENT: [n], valid until the next call; NULL without rows */
    const void *argument; /* COMMIT: the argument of the kernel, valid until the next call */
    size_t argument_size;
};

/* Begins a simulation of a model of `dim` parameters. */
PL_API int pl_loop_open(pl_setup *setup, size_t dim, pl_loop **out);
PL_API void pl_loop_close(pl_loop *loop); /* NULL is allowed */

/* What to do next. An error has its message in pl_setup_why; the loop can only be closed then. */
PL_API int pl_loop_next(pl_loop *loop, struct pl_loop_step *step);

/* Memory for one vector, filled with zeros, which stays the program's. 0 or PL_ENOMEM. */
PL_API int pl_loop_give(pl_loop *loop, void *address);

/* Answers PL_LOOP_GRADIENT: the mean loss, NAN if unknown, and whether every element is finite. A
 * gradient that is not is rejected. PL_EUSAGE if no gradient was asked for. */
PL_API int pl_loop_gradient(pl_loop *loop, double loss, int finite);

/* Answers PL_LOOP_SCORE; NAN if unknown. PL_EUSAGE if no score was asked for. */
PL_API int pl_loop_score(pl_loop *loop, double loss, double test_loss, double test_accuracy);

/* Ends the run from outside: the next step is its last evaluation, or PL_LOOP_END. */
PL_API void pl_loop_stop(pl_loop *loop);

/* The results, after PL_LOOP_END, without weights, which are the program's. */
PL_API int pl_loop_run(pl_loop *loop, pl_run **out);

/* The source of the kernel of PL_LOOP_COMMIT for the rules of this run, as CUDA C++ (for NVRTC) or
 * C: a function
 *
 *     void pl_kernel(argument by value)        CUDA, extern "C" __global__, any one-dimensional
 * grid void pl_kernel(const void *argument)     C
 *
 * Compile it without contraction into fused multiply-adds (-fmad=false, -ffp-contract=off), so that
 * it computes what the library would. The text belongs to the loop. */
PL_API const char *pl_loop_kernel(pl_loop *loop);

#ifdef __cplusplus
}
#endif
#endif
