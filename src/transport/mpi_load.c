/* The library's side of mpi.h: loads the module that has MPI when a run first
 * asks for it, and calls it. A process that does not ask never maps an MPI library.
 *
 * Threads: the one that serves or works, which makes all calls to MPI. */
#include <string.h>

#include "sys/module.h"
#include "transport/mpi_module.h"

/* Of the process, as MPI is. NULL until pl_mpi_begin() has loaded it. */
static const struct pl_mpi_module *load_module;

int pl_mpi_load(struct pl_why *why) {
    const struct pl_mpi_layout ours = PL_MPI_LAYOUT;
    char error[PL_WHY_MAX / 2];
    if (load_module) return PL_OK;
    const struct pl_mpi_module *m = pl_module_load(PL_MPI_FILE, PL_MPI_SYMBOL, error, sizeof error);
    if (!m)
        return pl_fail(why, PL_EMISSING,
                       "MPI needs " PL_MPI_FILE ", which cannot be loaded (%s); build with MPI "
                       "(Debian: libopenmpi-dev and openmpi-bin), or set LD_LIBRARY_PATH to its "
                       "folder, or use --transport shm on one machine",
                       error);
    if (strcmp(m->version, PL_VERSION) != 0 || memcmp(&m->layout, &ours, sizeof ours) != 0)
        return pl_fail(why, PL_EMISSING,
                       PL_MPI_FILE " is of version %.40s, from another build than this program "
                                   "(%s); install both together",
                       m->version, PL_VERSION);
    load_module = m;
    return PL_OK;
}

int pl_mpi_begin(int *rank, int *size, struct pl_why *why) {
    *rank = 0;
    *size = 1;
    int rc = pl_mpi_load(why);
    return rc ? rc : load_module->begin(rank, size, why);
}

const struct pl_transport *pl_mpi_transport(void) {
    return load_module ? load_module->transport : NULL;
}

int pl_mpi_share(int rc, char **text, struct pl_why *why) {
    return load_module->share(rc, text, why);
}

int pl_mpi_agree(int rc, const struct pl_patience *patience, struct pl_why *why) {
    return load_module->agree(rc, patience, why);
}

int pl_mpi_connect(const struct pl_range *range, int n_servers, struct pl_link **out, int *worker,
                   struct pl_why *why) {
    return load_module->connect(range, n_servers, out, worker, why);
}
