/* The interface between the library and the module that has MPI: one symbol, the table below.
 *
 * Everything that includes <mpi.h> is in the module, libpaceline-mpi.so: mpi_*.c except mpi_load.c.
 * Functions of the library that the module needs (sys, base) are linked into it a second time; they
 * have no state. Both sides come from the same build, which the layout checks.
 *
 * Threads: see mpi.h. */
#ifndef PL_TRANSPORT_MPI_MODULE_H
#define PL_TRANSPORT_MPI_MODULE_H

#include "transport/mpi.h"
#include "transport/server_group.h"

#define PL_MPI_FILE "libpaceline-mpi.so"
#define PL_MPI_SYMBOL "pl_mpi_module"

/* Sizes of what both sides read and write. */
struct pl_mpi_layout {
    size_t module, transport, port_conf, order, result, news, entry, why;
};

struct pl_mpi_module {
    const char *version; /* PL_VERSION; stays first, so that any version can be read */
    struct pl_mpi_layout layout;
    const struct pl_transport *transport;
    int (*begin)(int *rank, int *size, struct pl_why *why);
    int (*share)(int rc, char **text, struct pl_why *why);
    int (*agree)(int rc, const struct pl_patience *patience, struct pl_why *why);
    int (*connect)(const struct pl_range *range, int n_servers, struct pl_link **out, int *worker,
                   struct pl_why *why);
};

#define PL_MPI_LAYOUT                                                                              \
    {                                                                                              \
        sizeof(struct pl_mpi_module), sizeof(struct pl_transport), sizeof(struct pl_port_conf),    \
            sizeof(struct pl_order), sizeof(struct pl_result), sizeof(struct pl_news),             \
            sizeof(struct pl_log_entry), sizeof(struct pl_why)                                     \
    }

extern PL_API const struct pl_mpi_module pl_mpi_module; /* in the module */
extern const struct pl_transport pl_mpi;                /* in the module */

#endif
