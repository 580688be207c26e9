/* Several servers, each with a range of the vector: shards.
 *
 * Rank 0 decides; ranks 1 … n_servers - 1 follow a log that it writes, entry by entry, so that all
 * pass through the same versions although slices come in different orders. A worker speaks with
 * rank 0 alone, but its vectors come from all servers and go to all of them, each its range.
 *
 * A follower opens a port like the server's. tell(), cancel() and holds() do there what they do at
 * rank 0, but nothing is sent by them: what is sent and received, and when, is in the log as well,
 * written by rank 0's port and carried out by pl_group_next(). */
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

/* Rank 0: to all followers. Waits where one is far behind. */
void pl_group_log(struct pl_port *p, const struct pl_log_entry *e);

/* A follower: the next entry of the host's. 0, or PL_ERUN where there will be none. */
int pl_group_next(struct pl_port *p, struct pl_log_entry *out);

/* A follower: waits until the worker's slice, that it was told to receive, is there. */
int pl_group_settle(struct pl_port *p, int worker);

/* Called by all servers alike: a whole vector that rank 0 has is handed out, or the ranges are put
 * together at rank 0 (`whole` is NULL at the others). 0, or PL_ERUN where somebody does not answer.
 */
int pl_group_scatter(struct pl_port *p, const float *whole, float *mine);
int pl_group_gather(struct pl_port *p, const float *mine, float *whole);

/* Called by all alike: a table of which server s has rows range[s]; all have all of it afterwards.
 */
int pl_group_table(struct pl_port *p, double *table, const struct pl_range *range, size_t width);

/* Called by all servers alike: rank 0's n bytes go to the others. 0 or PL_ERUN. */
int pl_group_bytes(struct pl_port *p, void *bytes, size_t n);

#endif
