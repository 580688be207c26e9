#include "learn/outcome.h"

struct pl_worker_time pl_worker_shares(struct pl_worker_time t) {
    double all = t.compute + t.communication + t.idle + t.wasted;
    if (!(all > 0)) return t;
    return (struct pl_worker_time){t.compute / all, t.communication / all, t.idle / all,
                                   t.wasted / all};
}
