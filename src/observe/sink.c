#define _GNU_SOURCE
#include "observe/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/output.h"

int pl_sink_open(const char *what, const char *path, FILE **out, struct pl_why *why) {
    FILE *f = fopen(path, "wx");
    if (!f) return pl_fail_create(why, what, path);
    *out = f;
    return PL_OK;
}

static bool sink_is_output(const char *path) {
    return strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0;
}

int pl_sink_open_stream(const char *what, const char *path, FILE **out, struct pl_why *why) {
    if (!sink_is_output(path)) return pl_sink_open(what, path, out, why);
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (fd >= 0 && (*out = fdopen(fd, "w"))) return PL_OK;
    int error = errno;
    if (fd >= 0) close(fd);
    return pl_fail(why, PL_EIO, "%s cannot be written to standard output: %s", what,
                   strerror(error));
}

int pl_sink_flush(const char *what, const char *path, FILE *f, struct pl_why *why) {
    errno = 0;
    if (!f || (fflush(f) == 0 && !ferror(f))) return PL_OK;
    return pl_fail(why, PL_EIO, "%s file '%.200s' cannot be written: %s", what, path,
                   errno ? strerror(errno) : "write error");
}

bool pl_sink_is_full(FILE *f, uint64_t max) {
    off_t at = f ? ftello(f) : 0;
    return at > 0 && (uint64_t)at >= max;
}

void pl_sink_discard(const char *path, FILE *f) {
    struct stat opened, named;
    if (!f || sink_is_output(path) || fstat(fileno(f), &opened) || lstat(path, &named)) return;
    if (S_ISREG(named.st_mode) && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino)
        unlink(path);
}

int pl_sink_close(const char *what, const char *path, FILE *f, struct pl_why *why) {
    if (!f) return PL_OK;
    errno = 0;
    bool bad = ferror(f) != 0;
    if (fclose(f) != 0) bad = true;
    return bad ? pl_fail(why, PL_EIO, "%s file '%.200s' could not be written completely: %s", what,
                         path, errno ? strerror(errno) : "write error")
               : PL_OK;
}

void pl_sink_point(FILE *f, const char *method, const struct pl_point *p) {
    struct pl_json j = {0};
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "method", method);
    pl_json_real(&j, "time", p->time);
    pl_json_whole(&j, "updates", p->updates);
    pl_json_real(&j, "epochs", p->epochs);
    pl_json_real(&j, "loss", p->loss);
    pl_json_real(&j, "test_loss", p->test_loss);
    pl_json_real(&j, "test_accuracy", p->test_accuracy);
    pl_json_whole(&j, "k", (uint64_t)p->k);
    pl_json_real(&j, "staleness", p->staleness);
    pl_json_whole(&j, "unused", p->unused);
    pl_json_whole(&j, "workers", (uint64_t)p->workers);
    if (isfinite(p->consensus)) pl_json_real(&j, "consensus", p->consensus);
    for (int i = 0; i < p->n_more; i++) pl_json_real(&j, p->more[i].name, p->more[i].value);
    pl_json_close(&j, '}');
    if (!j.failed) fprintf(f, "%s\n", j.text);
    free(j.text);
}

void pl_sink_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                   const struct pl_plan *plan) {
    if (e->kind == PL_END) return;
    size_t room = pl_control_print_room(c, plan);
    char *line = malloc(room);
    if (!line) {
        fprintf(ctx, "(a line is missing: out of memory)\n");
        return;
    }
    pl_control_print(c, e, plan, line, room);
    fprintf(ctx, "%s\n", line);
    free(line);
}

int pl_sink_describe(const char *path, const char *json, struct pl_why *why) {
    struct pl_why reason;
    char *lines = pl_json_lines(json);
    if (!lines) return pl_fail(why, PL_ENOMEM, "out of memory for '%.200s'", path);
    pl_json_utf8(lines);
    int rc = pl_output_write(path, lines, strlen(lines), &reason);
    free(lines);
    return rc ? pl_fail(why, rc, "'%.200s' cannot be written: %s", path, reason.text) : PL_OK;
}
