/* Replaces mpi_*.c if MPI was not found: every call fails with one message.
 *
 * Threads: any. */
#include "transport/mpi.h"
#include "transport/server_group.h"

static int none(struct pl_why *why) {
    return pl_fail(why, PL_EMISSING,
                   "this program was built without MPI; install it (Debian: libopenmpi-dev and "
                   "openmpi-bin) and build again, or use --transport shm on one machine");
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

int pl_mpi_connect(const struct pl_range *range, int n_servers, struct pl_link **out, int *worker,
                   struct pl_why *why) {
    (void)range;
    (void)n_servers;
    (void)out;
    (void)worker;
    return none(why);
}

void pl_group_log(struct pl_port *p, const struct pl_log_entry *e) {
    (void)p;
    (void)e;
}

int pl_group_next(struct pl_port *p, struct pl_log_entry *out) {
    (void)p;
    (void)out;
    return PL_EMISSING;
}

int pl_group_settle(struct pl_port *p, int worker) {
    (void)p;
    (void)worker;
    return PL_EMISSING;
}

int pl_group_scatter(struct pl_port *p, const float *whole, float *mine) {
    (void)p;
    (void)whole;
    (void)mine;
    return PL_EMISSING;
}

int pl_group_gather(struct pl_port *p, const float *mine, float *whole) {
    (void)p;
    (void)mine;
    (void)whole;
    return PL_EMISSING;
}

int pl_group_table(struct pl_port *p, double *table, const struct pl_range *range, size_t width) {
    (void)p;
    (void)table;
    (void)range;
    (void)width;
    return PL_EMISSING;
}

int pl_group_bytes(struct pl_port *p, void *bytes, size_t n) {
    (void)p;
    (void)bytes;
    (void)n;
    return PL_EMISSING;
}

static int none_open(const struct pl_port_conf *conf, struct pl_port **out, struct pl_why *why) {
    (void)conf;
    (void)out;
    return none(why);
}

const struct pl_transport pl_mpi = {
    .name = "mpi", .brief = "not in this program", .processes = true, .port = {.open = none_open}};
