/* Threads: the guest's. */
#define _GNU_SOURCE
#include "transport/guest.h"

#include <unistd.h>

#include "sys/clock.h"
#include "sys/segment.h"
#include "transport/link.h"
#include "transport/liveness.h"

int pl_guest_connect(const struct pl_guest_conf *conf, struct pl_link **out,
                     struct pl_welcome *welcome, struct pl_why *why) {
    struct pl_greeting g;
    struct pl_segment segment;
    uint64_t end = pl_until(pl_now_ns(), conf->wait_ns);
    int rc;
    while ((rc = pl_liveness_dial(conf->path, &g, why)) == PL_EIO && pl_now_ns() < end)
        pl_sleep_ns(10000000);
    if (rc) return rc;
    rc = pl_segment_map(g.segment, g.shape.size, &segment);
    if (rc) {
        close(g.sock);
        return pl_fail(why, rc, "cannot map the memory of the server at '%.200s' (%zu bytes)",
                       conf->path, g.shape.size);
    }
    pl_segment_protect(&segment, g.shape.versions, g.shape.slots - g.shape.versions);
    struct pl_link_conf link = {.shape = &g.shape,
                                .at = segment.at,
                                .worker = g.worker,
                                .owner = g.owner,
                                .sock = g.sock,
                                .segment = segment};
    rc = pl_link_open(&link, out);
    if (rc) {
        pl_segment_free(&segment);
        close(g.sock);
        return pl_fail(why, rc, "out of memory");
    }
    *welcome = (struct pl_welcome){
        .worker = g.worker, .n_workers = (int)g.shape.n_workers, .dim = g.shape.dim};
    return PL_OK;
}

int pl_guest_pull(struct pl_link *l, uint64_t wait_ns, struct pl_order *out) {
    return pl_link_pull_until(l, pl_until(pl_now_ns(), wait_ns), out);
}
