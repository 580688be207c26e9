#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void pl_log_warn(const struct pl_log *log, const char *fmt, ...) {
    if (!log->say) return;
    char sentence[PL_WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    log->say(log->ctx, 1, sentence);
}
