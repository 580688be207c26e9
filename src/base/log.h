/* Messages for people. There is no global log: each run owns one. */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include "base/status.h"

/* A zeroed struct pl_log is silent. */
struct pl_log {
    void (*say)(void *ctx, int level, const char *sentence);
    void *ctx;
};

void pl_log_warn(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);
void pl_log_note(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);
void pl_log_detail(const struct pl_log *log, const char *fmt, ...) PL_PRINTF(2, 3);

#endif
