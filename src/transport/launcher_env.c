/* The environment variables that launchers set for every process they start.
 *
 * Threads: any, before others change the environment. */
#include <stdlib.h>

#include "transport/mpi.h"

/* Slurm sets SLURM_PROCID for the script of a job too, which is one process; only steps that srun
 * started have SLURM_STEP_NUM_TASKS. */
static const struct {
    const char *rank, *size; /* size NULL: it has none */
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, /* Open MPI's mpirun */
    {"PMI_RANK", "PMI_SIZE"},                         /* MPICH's, Intel's, srun --mpi=pmi2 */
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},         /* srun */
    {"PMIX_RANK", NULL},                              /* any other with PMIx */
};

/* A whole number from the environment; -1: there is none. */
static long launcher_number(const char *name) {
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || !*text) return -1;
    long n = strtol(text, &end, 10);
    return *end == '\0' && n >= 0 && n < 1 << 30 ? n : -1;
}

bool pl_launcher_env(int *rank, int *size) {
    *rank = 0;
    *size = 1;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        long number = launcher_number(launchers[i].rank), all = launcher_number(launchers[i].size);
        if (number < 0 || (launchers[i].size && all < 0)) continue;
        if (launchers[i].size && all < 2) return false;
        *rank = (int)number;
        *size = launchers[i].size ? (int)all : 0;
        return true;
    }
    return false;
}
