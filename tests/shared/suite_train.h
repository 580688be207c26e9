/* Real runs, for tests: small ones, looked at when they have ended, and the tests that hold
 * wherever workers are: here, or, where mpirun started the program (mpi.sh), on its ranks.
 * There all ranks go through the same tests, and only rank 0 has runs to look at. */
#ifndef PL_TESTS_SUITE_TRAIN_H
#define PL_TESTS_SUITE_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/setup.h"
#include "folder.h"
#include "setups.h"

/* Options that say where workers are, one for each row of the table of transports: n_spawns() of
 * them begin with those whose workers the server starts; the network is after these. The array is
 * filled by both functions. */
#define SPAWNS_MAX 8
extern const char *spawns[SPAWNS_MAX];
size_t n_spawns(void);
size_t n_spawns_and_network(void);
void skip_processes(void);

void say(void *ctx, int level, const char *sentence); /* pl_setup_log into ctx, [4096] */

/* "key=value key=value …", as printf would print it, over what all have in common. */
__attribute__((format(printf, 1, 2))) pl_setup *make(const char *options, ...);
/* What a method needs besides: those that hand out blocks need a matrix. */
const char *options_of(const struct pl_entry *method);

void check_same_weights(const pl_run *a, const pl_run *b);

/* Nothing is left behind: no child, and no file or memory that is open (memory is a memfd). */
int look_around(void);
void check_left(int before);

/* The replay of a recording says that it is the same, and has the same weights. */
pl_run *check_same_replay(const pl_run *run, pl_setup *s, const char *tape);
/* A real run with these options, as printf would print them, and its replay: also the same log. */
__attribute__((format(printf, 1, 2))) void check_replay(const char *options, ...);

void nap(long ms);

/* A gradient in five dimensions, of half the squared distance to (0, 1, 2, 3, 4). */
struct pl_samples;
int quadratic(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss);
/* A gradient in three dimensions that is not finite at times. */
int bad_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss);

void test_every_method_as_simulated(void **state);
void test_twenty_asynchronous_runs(void **state);
void test_rejected(void **state);

#endif
