/* A setup as text, one "key=value" per line, and back: how recordings and checkpoints store it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/setup.h"
#include "sys/numerals.h"
#include "timing/measured.h"
#include "timing/recording.h"

/* Whether a line sets its option: not if the option was set before, nor if it belongs to a method
 * and a method was set. */
static bool text_restores(const struct pl_setup *s, const struct pl_opt *o) {
    if (!(o->flags & PL_KEPT) || o->flags & PL_NOT_RESTORED) return false;
    if (o->flags & PL_OF_METHOD && pl_setup_is_set(s, "method")) return false;
    return !pl_setup_is_set(s, o->name);
}

/* Changes whenever a text would be understood differently. */
#define TEXT_FORMAT "format=3\n"

/* The program's version, the number of parameters if a function replaces the model, and every
 * option. */
int pl_setup_text_of(struct pl_setup *s, const struct pl_setup_conf *c, char **out) {
    size_t room = 200;
    for (const struct pl_opt *o = pl_setup_opts; o->name; o++)
        room += strlen(o->name) + PL_SPEC_MAX + 2;
    char *text = malloc(room);
    if (!text) return pl_fail(&s->why, PL_ENOMEM, "out of memory");
    size_t n = (size_t)snprintf(text, room, "program=%s\n" TEXT_FORMAT "function=%zu\n", PL_VERSION,
                                s->has_function ? s->function.dim : 0);
    for (const struct pl_opt *o = pl_setup_opts; o->name; o++) {
        char value[PL_SPEC_MAX];
        pl_opt_print(o, c, value, sizeof value);
        if (strchr(value, '\n')) {
            free(text);
            return pl_fail(&s->why, PL_EUSAGE, "the value of %s contains a line break", o->name);
        }
        if (!(o->flags & PL_KEPT)) continue;
        n += (size_t)snprintf(text + n, room - n, "%s=%s\n", o->name, value);
    }
    *out = text;
    return PL_OK;
}

int pl_setup_text(struct pl_setup *s, char **out) {
    return pl_setup_text_of(s, &s->conf, out);
}

/* Whether a value names files, which another machine does not have. */
static bool text_is_local(const struct pl_opt *o, const char *value) {
    const char *type = o->choices ? o->choices : "";
    char name[PL_NAME_MAX];
    const char *args;
    const struct pl_entry *entry;
    if (strcmp(type, "FILE") == 0 || strcmp(type, "DIR") == 0 || strcmp(type, "PATH") == 0)
        return true;
    if (strchr(value, '/')) return true;
    if (strcmp(o->name, "data") != 0 || pl_spec_split(value, name, &args, NULL) ||
        pl_entry_find(&pl_data_family, name, &entry, NULL))
        return false;
    /* the first option of those that read files is the file */
    return entry->opts && entry->opts->name && entry->opts->choices &&
           (strcmp(entry->opts->choices, "FILE") == 0 || strcmp(entry->opts->choices, "DIR") == 0);
}

int pl_setup_portable(struct pl_setup *s, char **out) {
    char *text;
    int rc = pl_setup_text(s, &text);
    if (rc) return rc;
    char *to = text;
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n"), n = strcspn(line, "=\n");
        char key[PL_NAME_MAX], value[PL_SPEC_MAX] = "";
        snprintf(key, sizeof key, "%.*s", (int)n, line);
        if (n < length) snprintf(value, sizeof value, "%.*s", (int)(length - n - 1), line + n + 1);
        const struct pl_opt *o = pl_setup_find(key);
        bool data = o && strcmp(key, "data") == 0;
        if (!o || !text_is_local(o, value)) {
            memmove(to, line, length + 1);
            to += length + 1;
        } else if (data) {
            memcpy(to, "data=?\n", 7); /* is not longer than what it replaces */
            to += 7;
        }
        line += length + (line[length] == '\n');
    }
    *to = '\0';
    *out = text;
    return PL_OK;
}

static int text_line(struct pl_setup *s, const char *line, size_t length) {
    char key[PL_NAME_MAX], value[PL_SPEC_MAX];
    size_t n = strcspn(line, "=\n");
    if (n == 3 && strncmp(line, "run=", 4) == 0) return PL_OK; /* what the run was, for people */
    if (n >= length || n >= sizeof key || length - n > sizeof value)
        return pl_fail(&s->why, PL_EDATA, "'%.*s' is not key=value", length < 60 ? (int)length : 60,
                       line);
    snprintf(key, sizeof key, "%.*s", (int)n, line);
    snprintf(value, sizeof value, "%.*s", (int)(length - n - 1), line + n + 1);
    if (strcmp(key, "program") == 0 || strcmp(key, "format") == 0) return PL_OK;
    if (strcmp(key, "function") == 0) {
        char mine[32];
        snprintf(mine, sizeof mine, "%zu", s->has_function ? s->function.dim : 0);
        if (strcmp(value, mine) == 0) return PL_OK;
        return pl_fail(&s->why, PL_EUSAGE,
                       "it was written by a run %s a function of the embedding program as the "
                       "model; set up this run in the same way",
                       strcmp(value, "0") == 0 ? "without" : "with");
    }
    const struct pl_opt *o = pl_setup_find(key);
    if (o && !text_restores(s, o)) return PL_OK;
    return pl_opt_set(pl_setup_opts, &s->conf, key, value, 1, &s->why);
}

/* A policy that the program had registered must be registered now. */
static int text_policy(struct pl_setup *s) {
    char name[PL_NAME_MAX];
    const char *args, *spec = s->conf.column[PL_COLUMN_POLICY];
    const struct pl_entry *entry;
    const struct pl_family policies = pl_setup_policies(s);
    if (!spec[0] || pl_setup_is_set(s, "policy") || pl_spec_split(spec, name, &args, NULL) ||
        !pl_entry_find(&policies, name, &entry, NULL))
        return PL_OK;
    return pl_fail(&s->why, PL_EUSAGE,
                   "the run has policy '%s', which is not registered here; use the program "
                   "that registers it, or call pl_setup_policy first",
                   name);
}

int pl_setup_lines(struct pl_setup *s, const char *text) {
    s->why.text[0] = '\0';
    if (!strstr(text, "\n" TEXT_FORMAT))
        return pl_fail(&s->why, PL_EDATA, "it was written by another version of Paceline");
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        int rc = text_line(s, line, length);
        if (rc) return rc;
        line += length + (line[length] == '\n');
    }
    return text_policy(s);
}

/* The caller frees the recording, unless this fails. */
int pl_setup_from(struct pl_setup *s, const char *path, struct pl_recording *out) {
    s->why.text[0] = '\0';
    int rc = pl_recording_read(path, out, &s->why);
    if (rc) return rc;
    rc = pl_setup_lines(s, out->text);
    if (rc) {
        char where[300];
        snprintf(where, sizeof where, "recording '%.200s'", path);
        pl_recording_free(out);
        return pl_fail_in(&s->why, rc, where);
    }
    return PL_OK;
}

static void text_warn(const struct pl_setup *s, const struct pl_recording *r) {
    double missing = pl_recording_missing(r);
    if (missing > 0.05 && missing <= PL_MEASURED_MISSING) /* more is refused */
        pl_log_warn(
            &s->log,
            "%.0f %% of the recorded tasks were cancelled or lost, and those were mostly the "
            "slow ones: the recorded times underestimate what waiting for them would have "
            "cost",
            100 * missing);
}

int pl_setup_recorded(pl_setup *s, const char *path) {
    PL_NUMERALS;
    struct pl_recording r;
    int rc = pl_setup_from(s, path, &r);
    if (rc) return rc;
    if (!pl_setup_is_set(s, "delay")) text_warn(s, &r);
    pl_recording_free(&r);
    /* recorded times include the network */
    if (!pl_setup_is_set(s, "net")) s->conf.net[0] = '\0';
    if (pl_setup_is_set(s, "delay")) return PL_OK;
    int n = snprintf(s->conf.delay, sizeof s->conf.delay, "recording:file=%s", path);
    if (n < 0 || (size_t)n >= sizeof s->conf.delay)
        return pl_fail(&s->why, PL_EUSAGE, "the path of the recording is too long");
    return PL_OK;
}
