#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

struct pl_who pl_log_who(const struct pl_log *log, int worker) {
    const char *name = log->names ? log->names[worker] : "";
    struct pl_who who;
    snprintf(who.text, sizeof who.text, "%s %d%s%s%s", log->ranks ? "rank" : "worker",
             worker + !log->ranks, name[0] ? " (" : "", name, name[0] ? ")" : "");
    return who;
}

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
