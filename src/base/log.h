/* Messages for people. There is no global log: each run owns one. */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

#define PL_WORKER_NAME 64

/* A zeroed struct pl_log is silent. */
struct pl_log {
    void (*say)(void *ctx, int level, const char *sentence);
    void *ctx;
    bool ranks; /* workers are ranks of a launcher */
    /* [workers] the names in their certificates, or ""; NULL: no worker has one */
    char (*names)[PL_WORKER_NAME];
};

struct pl_who {
    char text[PL_WORKER_NAME + 24];
};

/* "worker 1", "worker 2 (alice)", …, or "rank 0", …, as their launcher counts them. */
struct pl_who pl_log_who(const struct pl_log *log, int worker);
#define PL_WHO(log, worker) pl_log_who(log, worker).text

void pl_log_warn(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);
void pl_log_note(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);
void pl_log_detail(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);

#endif
