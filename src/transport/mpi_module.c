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
                                            .connect = pl_mpi_connect,
                                            .log = pl_group_log,
                                            .next = pl_group_next,
                                            .settle = pl_group_settle,
                                            .scatter = pl_group_scatter,
                                            .gather = pl_group_gather,
                                            .table = pl_group_table,
                                            .bytes = pl_group_bytes};
