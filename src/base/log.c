#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static void log_say(const struct pl_log *log, int warning, const char *fmt, va_list ap) {
    char sentence[PL_WHY_MAX];
    if (!log->say) return;
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    log->say(log->ctx, warning, sentence);
}

void pl_log_warn(const struct pl_log *log, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    log_say(log, 1, fmt, ap);
    va_end(ap);
}

void pl_log_note(const struct pl_log *log, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    log_say(log, 0, fmt, ap);
    va_end(ap);
}
