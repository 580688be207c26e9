/* The peer of bench_run (b): `mpirun -n P peer_mpi N` prints the median milliseconds of an
 * all-reduce of N floats. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define REPEATS 31

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 10000000;
    double t[REPEATS];
    float *v = calloc((size_t)n, sizeof *v);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!v) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = -3; i < REPEATS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double mine = MPI_Wtime() - start, slowest;
        MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (i >= 0) t[i] = slowest;
    }
    qsort(t, REPEATS, sizeof *t, order);
    if (rank == 0) printf("%.3f\n", 1e3 * t[REPEATS / 2]);
    free(v);
    MPI_Finalize();
    return 0;
}
