#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static void log_say(const struct pl_log *log, int level, const char *fmt, va_list ap) {
    char sentence[PL_WHY_MAX];
    if (!log->say) return;
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    log->say(log->ctx, level, sentence);
}

void pl_log_warn(const struct pl_log *log, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    log_say(log, PL_WARNING, fmt, ap);
    va_end(ap);
}

void pl_log_note(const struct pl_log *log, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    log_say(log, PL_NOTE, fmt, ap);
    va_end(ap);
}

void pl_log_detail(const struct pl_log *log, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    log_say(log, PL_DETAIL, fmt, ap);
    va_end(ap);
}
