#include "sim/script.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/input.h"
#include "base/seconds.h"

#define SCRIPT_LINES 1000000 /* the longest script */
#define SCRIPT_TIME 1e9      /* seconds */

static int script_parse(char *text, int n_workers, struct pl_script_line *out, struct pl_why *why) {
    static const char *const verbs[] = {"leave", "join", "freeze"};
    char verb[16], extra[2];
    double when, worker, seconds = 0;
    int n = sscanf(text, "%lf %15s %lf %lf %1s", &when, verb, &worker, &seconds, extra);
    if (n < 3)
        return pl_fail(why, PL_EDATA,
                       "write TIME leave|join|freeze WORKER, and SECONDS after freeze");
    int v = 0;
    while (v < 3 && strcmp(verb, verbs[v]) != 0) v++;
    if (v == 3) return pl_fail(why, PL_EDATA, "'%s' is not one of leave, join, freeze", verb);
    if (n != (v == PL_SCRIPT_FREEZE ? 4 : 3))
        return pl_fail(why, PL_EDATA, "%s takes %s", verb,
                       v == PL_SCRIPT_FREEZE ? "a worker and seconds" : "only a worker");
    if (!(when >= 0 && when <= SCRIPT_TIME) || !(seconds >= 0 && seconds <= SCRIPT_TIME))
        return pl_fail(why, PL_EDATA, "times must be from 0 to %g seconds", SCRIPT_TIME);
    if (!(worker >= 1 && worker <= n_workers) || worker != floor(worker))
        return pl_fail(why, PL_EDATA, "there is no worker %.10g; workers are numbered 1 to %d",
                       worker, n_workers);
    *out = (struct pl_script_line){pl_ns(when), pl_ns(seconds), (enum pl_script_verb)v,
                                   (int)worker - 1};
    return PL_OK;
}

int pl_script_read(const char *path, int n_workers, struct pl_script *out, struct pl_why *why) {
    *out = (struct pl_script){0};
    const char *wrong;
    FILE *f = pl_input_file(path, &wrong);
    if (!f) return pl_fail(why, PL_EIO, "script '%.200s' cannot be read: %s", path, wrong);
    char text[256];
    size_t room = 0, number = 0;
    int rc = PL_OK;
    while (!rc && fgets(text, sizeof text, f)) {
        number++;
        bool whole = strchr(text, '\n') || feof(f);
        text[strcspn(text, "#\n")] = '\0';
        if (text[strspn(text, " \t\r")] == '\0' && whole) continue;
        if (out->n >= SCRIPT_LINES || !PL_GROW(out->line, room, out->n + 1)) {
            rc = pl_fail(why, PL_EDATA, "more than %d lines", SCRIPT_LINES);
            break;
        }
        rc = whole ? script_parse(text, n_workers, &out->line[out->n++], why)
                   : pl_fail(why, PL_EDATA, "the line is too long");
    }
    bool broken = !rc && ferror(f);
    int error = errno;
    fclose(f);
    if (broken) {
        pl_script_free(out);
        return pl_fail(why, PL_EIO, "script '%.200s' cannot be read: %s", path, strerror(error));
    }
    if (rc) {
        char where[300];
        snprintf(where, sizeof where, "script '%.200s', line %zu", path, number);
        pl_script_free(out);
        return pl_fail_in(why, rc, where);
    }
    return PL_OK;
}

void pl_script_free(struct pl_script *s) {
    free(s->line);
    *s = (struct pl_script){0};
}
