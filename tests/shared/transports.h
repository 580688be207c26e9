/* The transports that suites run with, if mpirun did not start the program. */
#ifndef PL_TESTS_TRANSPORTS_H
#define PL_TESTS_TRANSPORTS_H

#include "transport/transport.h"

static const struct pl_transport *const transports[] = {&pl_inproc, &pl_shm, &pl_http};
#define N_TRANSPORTS (sizeof transports / sizeof *transports)

#endif
