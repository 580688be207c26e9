/* Expected time per update, staleness and fresh share of the four variants of Dutta et al.,
 * AISTATS 2018 (Lemmas 3-5, Theorems 1-2), the speed-ups between them, and the fixed-delay times of
 * Rennala SGD (Tyurin and Richtarik 2023) and m-synchronous SGD (arXiv 2602.03802). */
#ifndef PL_THEORY_RUNTIME_H
#define PL_THEORY_RUNTIME_H

#include <stdint.h>

#include "theory/order.h"

enum pl_variant { PL_KSYNC, PL_KBATCHSYNC, PL_KASYNC, PL_KBATCHASYNC, PL_N_VARIANTS };

/* "ksync", …: the policy names. */
extern const char *const pl_variant_names[PL_N_VARIANTS];

struct pl_runtime {
    double seconds;  /* long-run mean time per update */
    double sd_error; /* its standard error; 0 unless simulated */
    enum pl_how how; /* of `seconds` */
    double lag;      /* mean staleness of an applied gradient; exact for every law */
    double fresh;    /* fraction of applied gradients with lag 0; NAN if unknown */
};

/* Fills out[i] for K = k[i], i < n_k, k ascending. K is in 1..P; the two batch variants also accept
 * K > P. Cells without a closed form are simulated with about `draws` delays each, by `seed`. */
int pl_runtime_of(const struct pl_delay *d, int n_workers, enum pl_variant variant, const int *k,
                  int n_k, uint64_t seed, uint64_t draws, struct pl_runtime *out,
                  struct pl_why *why);

/* Simulates one cell even if a closed form exists: an oracle that shares no code with the
 * simulator. Runs `updates` updates, for asynchronous variants after a warm-up of a tenth of that.
 * `lag` is measured, not computed. Returns 0 or PL_ENOMEM. */
int pl_runtime_simulated(const struct pl_delay *d, int n_workers, enum pl_variant variant, int k,
                         uint64_t seed, uint64_t updates, struct pl_runtime *out);

#endif
