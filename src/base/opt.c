#include "base/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hint.h"

const struct pl_opt pl_no_opts[] = {PL_OPT_END};

int pl_spec_split(const char *spec, char *name, const char **args, struct pl_why *why) {
    size_t n = strcspn(spec, ":");
    if (n == 0 || n >= PL_NAME_MAX || strlen(spec) >= PL_SPEC_MAX)
        return pl_fail(why, PL_EUSAGE,
                       "'%.60s' is not a spec; write name or name:key=value,key=value", spec);
    memcpy(name, spec, n);
    name[n] = '\0';
    *args = spec[n] == ':' ? spec + n + 1 : spec + n;
    return PL_OK;
}

int pl_entry_find(const struct pl_family *family, const char *name, const struct pl_entry **out,
                  struct pl_why *why) {
    const char *names[64];
    size_t n = 0;
    for (const struct pl_entry *const *e = family->table; *e; e++) {
        if (strcmp((*e)->name, name) == 0) {
            *out = *e;
            return PL_OK;
        }
        if (n < 64) names[n++] = (*e)->name;
    }
    char hint[PL_TEXT_MAX];
    const char *near = pl_nearest(name, names, n);
    int rc = pl_fail(why, PL_EUSAGE, "no %s is called '%.40s'", family->name, name);
    if (!why) return rc;
    if (pl_hint_find(family->name, name, hint, sizeof hint))
        pl_append(why->text, sizeof why->text, "; use %s", hint);
    else if (near)
        pl_append(why->text, sizeof why->text, "; did you mean '%s'?", near);
    else if (!pl_hint_names(why->text, sizeof why->text, "; give one of", names, n))
        pl_append(why->text, sizeof why->text, "; 'paceline list %s' shows them", family->name);
    return rc;
}

/* Units that may follow a number, by the word that stands for the option's value in help. */
static const struct opt_unit {
    const char *of, *names;
    double times;
    const char *example; /* how they are written, once for each word */
} opt_units[] = {{"SECONDS", "ms", 1e-3, " (seconds, or 500ms, 90s, 5m, 2h, 1h30m, 1d)"},
                 {"SECONDS", "s|sec|secs|second|seconds", 1, NULL},
                 {"SECONDS", "m|min|mins|minute|minutes", 60, NULL},
                 {"SECONDS", "h|hr|hrs|hour|hours", 3600, NULL},
                 {"SECONDS", "d|day|days", 86400, NULL},
                 {"SHARE", "%", 0.01, " (or 90%)"},
                 {NULL, NULL, 0, NULL}};

static bool opt_has(const struct pl_opt *opt, const char *word) {
    return opt->type == PL_TYPE_REAL && opt->choices && strcmp(opt->choices, word) == 0;
}

static bool opt_auto(const struct pl_opt *opt) {
    return strcmp(opt->def, "auto") == 0;
}

/* As few digits as read back as the same number. */
static const char *opt_shortest(double x, char out[32]) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, x);
        if (strtod(out, NULL) == x) break;
    }
    return out;
}

/* What a text is the name of. */
static const char *opt_text(const struct pl_opt *opt) {
    static const char *const known[][2] = {{"FILE", "the name of a file"},
                                           {"DIR", "the name of a folder"},
                                           {"auto|PATH", "auto, or the name of a file or a folder"},
                                           {"HOST:PORT", "an address and a port"},
                                           {"SPEC", "name or name:key=value,key=value"}};
    for (size_t i = 0; opt->choices && i < sizeof known / sizeof *known; i++)
        if (strcmp(opt->choices, known[i][0]) == 0) return known[i][1];
    return "a text";
}

const char *pl_opt_type(const struct pl_opt *opt) {
    switch (opt->type) {
    case PL_TYPE_INT: return "N";
    case PL_TYPE_REAL: return opt->choices ? opt->choices : "X";
    case PL_TYPE_BOOL: return "yes|no";
    case PL_TYPE_COUNT: return opt_auto(opt) ? "N|P%|all|auto" : "N|P%|all";
    case PL_TYPE_BOUND: return "N|inf";
    case PL_TYPE_LIST: return "X,X,...";
    case PL_TYPE_CHOICE: return opt->choices;
    case PL_TYPE_TEXT: break;
    }
    return opt->choices ? opt->choices : "TEXT";
}

void pl_opt_accepts(const struct pl_opt *opt, char *out, size_t max) {
    char a[32], b[32];
    out[0] = '\0';
    bool ranged = opt->min != 0 || opt->max != 0;
    switch (opt->type) {
    case PL_TYPE_INT: pl_append(out, max, "a whole number"); break;
    case PL_TYPE_REAL: pl_append(out, max, "a number"); break;
    case PL_TYPE_BOOL: pl_append(out, max, "yes or no"); return;
    case PL_TYPE_CHOICE: pl_append(out, max, "one of %s", opt->choices); return;
    case PL_TYPE_COUNT:
        pl_append(out, max, "a whole number from %.10g, %s'all' or a percentage up to 100%%",
                  opt->min, opt_auto(opt) ? "'auto', " : "");
        return;
    case PL_TYPE_BOUND:
        pl_append(out, max, "a whole number of at least %.10g, or 'inf'", opt->min);
        return;
    case PL_TYPE_TEXT: pl_append(out, max, "%s", opt_text(opt)); return;
    case PL_TYPE_LIST: pl_append(out, max, "numbers separated by commas"); break;
    }
    if (opt_has(opt, "RATE")) /* 0 is the default, and means that another rate is taken */
        pl_append(out, max, " above 0, up to %s", opt_shortest(opt->max, a));
    else if (ranged && opt->max < 1e300)
        pl_append(out, max, " from %s to %s", opt_shortest(opt->min, a), opt_shortest(opt->max, b));
    else if (ranged)
        pl_append(out, max, " of at least %s", opt_shortest(opt->min, a));
    for (const struct opt_unit *u = opt_units; u->of; u++)
        if (opt_has(opt, u->of) && u->example) pl_append(out, max, "%s", u->example);
}

static bool opt_choice(const char *choices, const char *value, int *out) {
    size_t len = strlen(value);
    int index = 0;
    for (const char *c = choices; len > 0; index++) {
        size_t n = strcspn(c, "|");
        if (n == len && strncmp(c, value, n) == 0) {
            *out = index;
            return true;
        }
        if (c[n] == '\0') break;
        c += n + 1;
    }
    return false;
}

/* The unit that the n characters are; NULL if the option has none of that name. */
static const struct opt_unit *opt_unit_of(const struct pl_opt *opt, const char *text, size_t n) {
    char name[16];
    int at;
    if (n >= sizeof name) return NULL;
    memcpy(name, text, n);
    name[n] = '\0';
    for (const struct opt_unit *u = opt_units; u->of; u++)
        if (opt_has(opt, u->of) && opt_choice(u->names, name, &at)) return u;
    return NULL;
}

/* Parses a finite number in the option's range. What follows it is a unit, or an error; after a
 * unit there may be another number with a smaller one, as in 1h30m. */
static bool opt_number(const struct pl_opt *opt, const char *value, double *out) {
    double sum = 0, larger = HUGE_VAL;
    do {
        char *end;
        bool first = larger == HUGE_VAL;
        if (isspace((unsigned char)*value) || (!first && !isdigit((unsigned char)*value)))
            return false;
        errno = 0;
        double x = strtod(value, &end);
        if (end == value || !isfinite(x)) return false;
        if (x == 0 && errno == ERANGE) return false; /* too small to be told from 0 */
        size_t n = strcspn(end, "0123456789");
        const struct opt_unit *u = opt_unit_of(opt, end, n);
        if (u ? u->times >= larger : n > 0 || !first) return false;
        sum += u ? x * u->times : x;
        larger = u ? u->times : larger;
        value = end + n;
    } while (*value);
    if ((opt->min != 0 || opt->max != 0) && (sum < opt->min || sum > opt->max)) return false;
    *out = sum;
    return true;
}

bool pl_opt_seconds(const char *text, double min, double max, double *out) {
    const struct pl_opt opt = {.type = PL_TYPE_REAL, .min = min, .max = max, .choices = "SECONDS"};
    return opt_number(&opt, text, out);
}

/* A number with a decimal comma, or with commas or _ between thousands, without them. Returns false
 * if it may be either. */
static bool opt_without_commas(const struct pl_opt *opt, const char *value, char *out, size_t max) {
    size_t n = strspn(value, "0123456789"), after = strspn(value + n + 1, "0123456789");
    bool whole = opt->type == PL_TYPE_INT, group = after == 3 && value[0] != '0';
    if (after == 0 || value[n + 1 + after] || whole != (group || value[n] == '_')) return false;
    snprintf(out, max, "%.*s%s%s", (int)n, value, whole ? "" : ".", value + n + 1);
    return true;
}

/* The number that a text was meant as: without what separates thousands, with k, M or G for a whole
 * number, and with % for a share. 5e lacks its exponent. Returns false if there is none. */
static bool opt_as_number(const struct pl_opt *opt, const char *value, char *out, size_t max) {
    static const char *const words[] = {"kK", "mM", "gGbB"};
    size_t n = strspn(value, "0123456789."), after = value[n] ? strlen(value + n + 1) : 0;
    double x = strtod(value, NULL), times = 1000;
    if (n == 0 || strlen(value) > 60) return false;
    if (value[n] == ',' || value[n] == '_') return opt_without_commas(opt, value, out, max);
    if (value[n] == '\0') { /* 90 for 90%, but not 1.5 for 1.5% */
        snprintf(out, max, "%s%%", value);
        return opt_has(opt, "SHARE") && x > 2;
    }
    if (after > 0) return false;
    snprintf(out, max, "%.*s", (int)n, value);
    if (strchr("eE", value[n])) return true;
    if (value[n] == '%') snprintf(out, max, "%.10g", x / 100);
    if (opt->type == PL_TYPE_REAL) return value[n] == '%';
    for (int i = 0; i < 3; i++, times *= 1000) {
        snprintf(out, max, "%.0f", x * times);
        if (strchr(words[i], value[n])) return true;
    }
    return false;
}

static int opt_bad(const struct pl_opt *opt, const char *value, struct pl_why *why) {
    char accepts[160], number[64], meant[80] = "";
    double x;
    pl_opt_accepts(opt, accepts, sizeof accepts);
    if (opt->type == PL_TYPE_INT || opt->type == PL_TYPE_REAL)
        if ((opt_as_number(opt, value, number, sizeof number) ||
             pl_hint_unspaced(value, number, sizeof number)) &&
            opt_number(opt, number, &x))
            snprintf(meant, sizeof meant, "; did you mean %s?", number);
    return pl_fail(why, PL_EUSAGE, "%s=%.60s is not accepted; %s takes %s%s", opt->name, value,
                   opt->name, accepts, meant);
}

static bool opt_whole(const struct pl_opt *opt, const char *value, double *out) {
    return opt_number(opt, value, out) && *out == floor(*out) && fabs(*out) <= 0x1p53;
}

static bool opt_list(const struct pl_opt *opt, const char *value, struct pl_list_of *out) {
    out->n = 0;
    while (*value) {
        char piece[64];
        size_t n = strcspn(value, ",");
        if (n == 0 || n >= sizeof piece || out->n == PL_LIST_MAX) return false;
        memcpy(piece, value, n);
        piece[n] = '\0';
        if (!opt_number(opt, piece, &out->at[out->n++])) return false;
        value += n;
        if (*value == ',' && *++value == '\0') return false;
    }
    return true;
}

static bool opt_count(const struct pl_opt *opt, const char *value, int n_workers, int *out) {
    double x;
    size_t n = strlen(value);
    if (strcmp(value, "all") == 0) {
        *out = n_workers;
    } else if (opt_auto(opt) && strcmp(value, "auto") == 0) {
        *out = PL_COUNT_AUTO;
    } else if (n > 1 && n < 32 && value[n - 1] == '%') {
        char share[32];
        const struct pl_opt percent = {.type = PL_TYPE_REAL, .min = 0, .max = 100};
        memcpy(share, value, n - 1);
        share[n - 1] = '\0';
        if (!opt_number(&percent, share, &x)) return false;
        double count = floor(x / 100.0 * n_workers + 0.5);
        *out = count < 1 ? 1 : (int)count;
    } else {
        if (!opt_whole(opt, value, &x)) return false;
        *out = (int)x;
    }
    return true;
}

static int opt_store(const struct pl_opt *opt, void *conf, const char *value, int n_workers,
                     struct pl_why *why) {
    void *at = (char *)conf + opt->offset;
    double x;
    switch (opt->type) {
    case PL_TYPE_INT:
        if (!opt_whole(opt, value, &x)) break;
        *(int64_t *)at = (int64_t)x;
        return PL_OK;
    case PL_TYPE_REAL:
        if (!opt_number(opt, value, &x)) break;
        *(double *)at = x;
        return PL_OK;
    case PL_TYPE_BOOL: {
        int yes;
        if (!opt_choice("no|yes", value, &yes)) break;
        *(bool *)at = yes != 0;
        return PL_OK;
    }
    case PL_TYPE_CHOICE:
        if (!opt_choice(opt->choices, value, at)) break;
        return PL_OK;
    case PL_TYPE_COUNT:
        if (!opt_count(opt, value, n_workers, at)) break;
        return PL_OK;
    case PL_TYPE_BOUND:
        if (strcmp(value, "inf") == 0) {
            *(uint64_t *)at = PL_NO_BOUND;
            return PL_OK;
        }
        if (!opt_whole(opt, value, &x) || x < 0) break;
        *(uint64_t *)at = (uint64_t)x;
        return PL_OK;
    case PL_TYPE_TEXT:
        if (strlen(value) >= PL_TEXT_MAX)
            return pl_fail(why, PL_EUSAGE, "%s is longer than %d characters", opt->name,
                           PL_TEXT_MAX - 1);
        snprintf(at, PL_TEXT_MAX, "%s", value);
        return PL_OK;
    case PL_TYPE_LIST:
        if (!opt_list(opt, value, at)) break;
        return PL_OK;
    }
    return opt_bad(opt, value, why);
}

int pl_opt_set(const struct pl_opt *opts, void *conf, const char *key, const char *value,
               int n_workers, struct pl_why *why) {
    const char *names[64];
    size_t n = 0;
    for (const struct pl_opt *o = opts; o->name; o++) {
        if (strcmp(o->name, key) == 0) return opt_store(o, conf, value, n_workers, why);
        if (n < 64) names[n++] = o->name;
    }
    char hint[PL_TEXT_MAX] = "none are accepted";
    if (n == 0 && pl_hint_find("key", key, hint, sizeof hint))
        return pl_fail(why, PL_EUSAGE, "there is no option '%.40s'; use %s", key, hint);
    if (n == 0) return pl_fail(why, PL_EUSAGE, "there is no option '%.40s'; %s", key, hint);
    const char *near = pl_nearest(key, names, n);
    int rc = pl_fail(why, PL_EUSAGE, "there is no option '%.40s'", key);
    if (near && why) pl_append(why->text, sizeof why->text, "; did you mean '%s'?", near);
    if (!why || (near && n == 1)) return rc;
    const char *words = near     ? " The options are"
                        : n == 1 ? "; the only option is"
                                 : "; the options are";
    if (!pl_hint_names(why->text, sizeof why->text, words, names, n) && !near)
        pl_append(why->text, sizeof why->text, "; 'paceline list' shows them");
    return rc;
}

/* Tells whether args begins with "name=" of an option in the table. */
static bool opt_known(const struct pl_opt *opts, const char *args, size_t n) {
    if (args[n] != '=') return false;
    for (const struct pl_opt *o = opts; o->name; o++)
        if (strlen(o->name) == n && strncmp(o->name, args, n) == 0) return true;
    return false;
}

int pl_opt_not_pair(const struct pl_opt *opts, const char *args, struct pl_why *why) {
    char value[40], meant[PL_NAME_MAX + 64] = "";
    double x;
    size_t n = strcspn(args, ",");
    bool number = opts->name && (opts->type == PL_TYPE_INT || opts->type == PL_TYPE_REAL ||
                                 opts->type == PL_TYPE_COUNT || opts->type == PL_TYPE_BOUND);
    if (number && n < sizeof value) {
        memcpy(value, args, n);
        value[n] = '\0';
        if (opt_number(opts, value, &x))
            snprintf(meant, sizeof meant, "; did you mean %s=%s?", opts->name, value);
    }
    return pl_fail(why, PL_EUSAGE, "'%.60s' is not key=value%s", args, meant);
}

int pl_opt_parse(const struct pl_opt *opts, void *conf, const char *args, int n_workers,
                 struct pl_why *why) {
    for (const struct pl_opt *o = opts; o->name; o++) {
        int rc = opt_store(o, conf, o->def, n_workers, why);
        if (rc) return rc;
    }
    bool first = true;
    while (*args) {
        char key[PL_NAME_MAX], value[PL_TEXT_MAX];
        size_t n = strcspn(args, "=,");
        bool bare = first && *args != ',' && !opt_known(opts, args, n);
        if (bare && opts->name && opts->type == PL_TYPE_TEXT) {
            snprintf(key, sizeof key, "%s", opts->name);
        } else {
            if (args[n] != '=' || n == 0 || n >= sizeof key)
                return pl_opt_not_pair(opts, args, why);
            memcpy(key, args, n);
            key[n] = '\0';
            args += n + 1;
        }
        first = false;
        /* the value runs up to the next comma that is followed by another key= */
        size_t len = strcspn(args, ",");
        while (args[len] == ',') {
            size_t next = strcspn(args + len + 1, "=,");
            if (args[len + 1 + next] == '=') break;
            len += 1 + next;
        }
        if (len > 0 && args[len - 1] == ',')
            return pl_fail(why, PL_EUSAGE, "a spec cannot %s",
                           args[len] ? "have two commas in a row" : "end with a comma");
        if (len >= sizeof value)
            return pl_fail(why, PL_EUSAGE, "the value of '%s' is longer than %d characters", key,
                           PL_TEXT_MAX - 1);
        memcpy(value, args, len);
        value[len] = '\0';
        args += len + (args[len] == ',');
        int rc = pl_opt_set(opts, conf, key, value, n_workers, why);
        if (rc) return rc;
    }
    return PL_OK;
}

int pl_spec_parse(const struct pl_family *family, const char *spec, int n_workers,
                  const struct pl_entry **entry, void **conf, struct pl_why *why) {
    char name[PL_NAME_MAX];
    const char *args = "";
    int rc = pl_spec_split(spec, name, &args, why);
    if (rc) return pl_fail_in(why, rc, family->name);
    rc = pl_entry_find(family, name, entry, why);
    if (rc) return rc;
    void *fresh = calloc(1, (*entry)->conf_size ? (*entry)->conf_size : 1);
    if (!fresh) return pl_fail(why, PL_ENOMEM, "out of memory");
    rc = pl_opt_parse((*entry)->opts, fresh, args, n_workers, why);
    if (rc) {
        char prefix[80];
        snprintf(prefix, sizeof prefix, "%s '%s'", family->name, name);
        free(fresh);
        return pl_fail_in(why, rc, prefix);
    }
    *conf = fresh;
    return PL_OK;
}

/* Prints 10 digits if they parse back to the same number, otherwise all 17. */
static void opt_print_real(double x, char *out, size_t max) {
    char text[40];
    snprintf(text, sizeof text, "%.10g", x);
    if (strtod(text, NULL) != x) snprintf(text, sizeof text, "%.17g", x);
    pl_append(out, max, "%s", text);
}

void pl_opt_print(const struct pl_opt *opt, const void *conf, char *out, size_t max) {
    const void *at = (const char *)conf + opt->offset;
    out[0] = '\0';
    switch (opt->type) {
    case PL_TYPE_INT: pl_append(out, max, "%lld", (long long)*(const int64_t *)at); break;
    case PL_TYPE_REAL: opt_print_real(*(const double *)at, out, max); break;
    case PL_TYPE_BOOL: pl_append(out, max, "%s", *(const bool *)at ? "yes" : "no"); break;
    case PL_TYPE_COUNT:
        if (*(const int *)at == PL_COUNT_AUTO)
            pl_append(out, max, "auto");
        else
            pl_append(out, max, "%d", *(const int *)at);
        break;
    case PL_TYPE_TEXT: pl_append(out, max, "%s", (const char *)at); break;
    case PL_TYPE_BOUND:
        if (*(const uint64_t *)at == PL_NO_BOUND)
            pl_append(out, max, "inf");
        else
            pl_append(out, max, "%llu", (unsigned long long)*(const uint64_t *)at);
        break;
    case PL_TYPE_CHOICE: {
        const char *c = opt->choices;
        for (int i = *(const int *)at; i > 0; i--) c += strcspn(c, "|") + 1;
        pl_append(out, max, "%.*s", (int)strcspn(c, "|"), c);
        break;
    }
    case PL_TYPE_LIST: {
        const struct pl_list_of *list = at;
        for (int i = 0; i < list->n; i++) {
            if (i) pl_append(out, max, ",");
            opt_print_real(list->at[i], out, max);
        }
        break;
    }
    }
}

void pl_spec_print(const struct pl_entry *entry, const void *conf, char *out, size_t max) {
    snprintf(out, max, "%s", entry->name);
    char sep = ':';
    for (const struct pl_opt *o = entry->opts; o->name; o++) {
        char value[PL_TEXT_MAX + 16];
        pl_opt_print(o, conf, value, sizeof value);
        if (o->type != PL_TYPE_COUNT) {
            /* compare as values, so that 1e-1 and 0.1 are the same */
            char def[PL_TEXT_MAX + 16];
            char *plain = calloc(1, entry->conf_size);
            if (!plain) return;
            int rc = opt_store(o, plain, o->def, 1, NULL);
            pl_opt_print(o, plain, def, sizeof def);
            free(plain);
            if (rc == PL_OK && strcmp(def, value) == 0) continue;
        }
        pl_append(out, max, "%c%s=%s", sep, o->name, value);
        sep = ',';
    }
}
