/* In place of mpi_*.c where MPI was not found: one sentence. */
#include "transport/mpi.h"

static int none(struct pl_why *why) {
    return pl_fail(why, PL_EMISSING,
                   "this program was built without MPI; install it (Debian: libopenmpi-dev and "
                   "openmpi-bin) and build again, or say --transport shm for one machine");
}

int pl_mpi_begin(int *rank, int *size, struct pl_why *why) {
    *rank = 0;
    *size = 1;
    return none(why);
}

int pl_mpi_share(int rc, char **text, struct pl_why *why) {
    (void)rc;
    (void)text;
    return none(why);
}

int pl_mpi_agree(int rc, uint64_t wait_ns, struct pl_why *why) {
    (void)rc;
    (void)wait_ns;
    return none(why);
}

int pl_mpi_connect(size_t dim, struct pl_link **out, int *worker, struct pl_why *why) {
    (void)dim;
    (void)out;
    (void)worker;
    return none(why);
}

static int none_open(const struct pl_port_conf *conf, struct pl_port **out, struct pl_why *why) {
    (void)conf;
    (void)out;
    return none(why);
}

const struct pl_transport pl_mpi = {
    .name = "mpi", .brief = "not in this program", .processes = true, .open = none_open};
