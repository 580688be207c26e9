/* Several servers, each with a range of the vector.
 *
 * Rank 0 decides; ranks 1 … n_servers - 1 follow a log that it writes, entry by entry, so that all
 * pass through the same versions although slices arrive in different orders. A worker exchanges
 * messages only with rank 0, but each server sends it its range of a vector and receives its range
 * of the result.
 *
 * A follower opens a port like rank 0's. tell(), cancel() and holds() do there what they do at rank
 * 0, except that they send nothing: the log tells what to send and receive, and when. Rank 0's port
 * writes these entries, and next() executes them.
 *
 * Threads: the one that owns the port executes everything. */
#ifndef PL_TRANSPORT_SERVER_GROUP_H
#define PL_TRANSPORT_SERVER_GROUP_H

#include "transport/transport.h"

#define PL_MAX_SERVERS 64

/* Kinds below PL_ENTRY_HOST are the port's own. The others are the host's, and so are their bytes:
 * the port passes them on unread. */
#define PL_ENTRY_HOST 16
#define PL_ENTRY_BYTES 96
struct pl_log_entry {
    uint32_t kind;
    int32_t worker;
    uint32_t flags;
    unsigned char bytes[PL_ENTRY_BYTES];
};

struct pl_group_ops {
    /* Rank 0: sends an entry to all followers. Waits if one is far behind. */
    void (*log)(struct pl_port *p, const struct pl_log_entry *e);
    /* A follower: the next entry of the host's. 0, or PL_ERUN if there will be none. */
    int (*next)(struct pl_port *p, struct pl_log_entry *out);
    /* A follower: waits until it has received the worker's slice. */
    int (*settle)(struct pl_port *p, int worker);
    /* Called by all servers: rank 0 hands out a whole vector, or puts one together from the ranges
     * (`whole` is NULL at the others). 0, or PL_ERUN if a server does not answer. */
    int (*scatter)(struct pl_port *p, const float *whole, float *mine);
    int (*gather)(struct pl_port *p, const float *mine, float *whole);
    /* Called by all servers: of a table, server s has rows range[s]; afterwards all have all of it.
     */
    int (*table)(struct pl_port *p, double *table, const struct pl_range *range, size_t width);
    /* Called by all servers: rank 0 sends its n bytes to the others. 0 or PL_ERUN. */
    int (*bytes)(struct pl_port *p, void *bytes, size_t n);
};

#endif
