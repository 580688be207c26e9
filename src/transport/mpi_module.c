/* What the module shows to the library that loads it.
 *
 * Threads: see mpi.h. */
#include "transport/mpi_module.h"

const struct pl_mpi_module pl_mpi_module = {.version = PL_VERSION,
                                            .layout = PL_MPI_LAYOUT,
                                            .transport = &pl_mpi,
                                            .begin = pl_mpi_begin,
                                            .share = pl_mpi_share,
                                            .agree = pl_mpi_agree,
                                            .connect = pl_mpi_connect};
