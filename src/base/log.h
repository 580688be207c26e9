/* Messages for people. There is no global log: each run owns one. */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

/* A zeroed struct pl_log is silent. */
struct pl_log {
    void (*say)(void *ctx, int level, const char *sentence);
    void *ctx;
    bool ranks; /* workers are ranks of a launcher */
};

/* For "%s %d": worker 1, 2, …, or rank 0, 1, …, as their launcher counts them. */
#define PL_WHO(log, worker) (log)->ranks ? "rank" : "worker", (worker) + !(log)->ranks

void pl_log_warn(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);
void pl_log_note(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);
void pl_log_detail(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);

#endif
