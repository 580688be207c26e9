/* The transports that are always there; that of MPI is a module of its own.
 *
 * Threads: any. */
#include "transport/transport.h"

const struct pl_transport *const pl_transports[] = {&pl_inproc, &pl_shm, &pl_http, NULL};
