#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/output.h"

const char *pl_status_text(int status) {
    switch (status) {
    case PL_OK: return "ok";
#define X(name, value, text)                                                                       \
    case name: return text;
        PL_STATUS_LIST(X)
#undef X
    default: return "unknown status";
    }
}

int pl_fail(struct pl_why *why, int status, const char *fmt, ...) {
    if (why) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(why->text, sizeof why->text, fmt, ap);
        va_end(ap);
    }
    return status;
}

int pl_fail_in(struct pl_why *why, int status, const char *prefix) {
    if (why) {
        char old[PL_WHY_MAX];
        memcpy(old, why->text, sizeof old);
        why->text[0] = '\0';
        pl_append(why->text, sizeof why->text, "%s: %s", prefix, old);
    }
    return status;
}

int pl_fail_create(struct pl_why *why, const char *what, const char *path) {
    char file[64];
    snprintf(file, sizeof file, "%s file", what);
    if (errno != EEXIST) return pl_output_no_folder(file, path, why);
    return pl_fail(why, PL_EIO,
                   "%s '%.200s' already exists and will not be overwritten; choose another name",
                   file, path);
}

void pl_append(char *out, size_t max, const char *fmt, ...) {
    size_t used = strnlen(out, max);
    if (used >= max) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out + used, max - used, fmt, ap);
    va_end(ap);
}
