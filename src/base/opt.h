/* Options: one table per plug-in drives parsing, range checks, `paceline list` and the manual.
 *
 * A spec is "name" or "name:key=value,key=value". A table describes the fields of a plain struct
 * (the "conf"), and parsing fills it. A piece without '=' continues the list before it, as in
 * "mlp:hidden=256,128" and "step:at=80,120,by=0.1". If the first option of a table is a text, its
 * key is optional: "idx:DIR" means "idx:dir=DIR". */
#ifndef PL_BASE_OPT_H
#define PL_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PL_NAME_MAX 48   /* name of a plug-in, including the final zero */
#define PL_SPEC_MAX 1024 /* a whole spec */
#define PL_TEXT_MAX 512  /* a text option */
#define PL_LIST_MAX 16   /* entries of a list option */
#define PL_NO_BOUND UINT64_MAX
#define PL_COUNT_AUTO (-1)

enum pl_opt_type {
    PL_TYPE_INT,    /* int64_t */
    PL_TYPE_REAL,   /* double */
    PL_TYPE_BOOL,   /* bool: yes|no */
    PL_TYPE_CHOICE, /* int: index into `choices`, "a|b|c" */
    PL_TYPE_COUNT,  /* int: a number, "all" (workers) or a percentage of them ("75%"); also "auto"
                       (PL_COUNT_AUTO) if that is the default */
    PL_TYPE_BOUND,  /* uint64_t: a number, or "inf" = PL_NO_BOUND */
    PL_TYPE_TEXT,   /* char[PL_TEXT_MAX] */
    PL_TYPE_LIST    /* struct pl_list_of */
};

struct pl_list_of {
    int n;
    double at[PL_LIST_MAX];
};

struct pl_opt {
    const char *name;
    enum pl_opt_type type;
    const char *def; /* as a user would type it; "" only for texts and lists */
    const char *help;
    double min, max;     /* inclusive; ignored for texts and if both are 0 */
    const char *choices; /* PL_TYPE_CHOICE only */
    size_t offset;       /* of the field in the conf */
    unsigned flags;      /* for the owner of the table; 0 in plug-ins */
};

/* A table has one line per option and ends with PL_OPT_END:
 *
 *     static const struct pl_opt ksync_opts[] = {
 *         PL_OPT_COUNT(struct ksync, k, "all", 1, PL_MAX_WORKERS, "workers an update waits for"),
 *         PL_OPT_BOOL(struct ksync, cancel, "yes", "restart the other workers at an update"),
 *         PL_OPT_END,
 *     };
 *
 * Columns: the conf struct, the field, which is also the option's name, the default as a user would
 * write it, the range or the choices, and the help. A field of the wrong type does not compile. */
#define PL_OPT_INT(conf, field, def, min, max, help)                                               \
    PL_OPT(#field, INT, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_REAL(conf, field, def, min, max, help)                                              \
    PL_OPT(#field, REAL, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_COUNT(conf, field, def, min, max, help)                                             \
    PL_OPT(#field, COUNT, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_BOUND(conf, field, def, min, max, help)                                             \
    PL_OPT(#field, BOUND, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_LIST(conf, field, def, min, max, help)                                              \
    PL_OPT(#field, LIST, conf, field, def, min, max, NULL, help, 0)
#define PL_OPT_CHOICE(conf, field, def, choices, help)                                             \
    PL_OPT(#field, CHOICE, conf, field, def, 0, 0, choices, help, 0)
#define PL_OPT_BOOL(conf, field, def, help)                                                        \
    PL_OPT(#field, BOOL, conf, field, def, 0, 0, NULL, help, 0)
#define PL_OPT_TEXT(conf, field, def, help)                                                        \
    PL_OPT(#field, TEXT, conf, field, def, 0, 0, NULL, help, 0)
#define PL_OPT_END                                                                                 \
    { .name = NULL }

/* The same with all columns, for an option that is not called like its field or has flags. */
#define PL_OPT(name_, TYPE, conf, field, def_, min_, max_, choices_, help_, flags_)                \
    {                                                                                              \
        .name = (name_), .type = PL_TYPE_##TYPE, .def = (def_), .help = (help_), .min = (min_),    \
        .max = (max_), .choices = (choices_), .flags = (flags_),                                   \
        .offset = offsetof(conf, field) + _Generic(&((conf *)0)->field, PL_FIELD_##TYPE : 0),      \
    }
#define PL_FIELD_INT int64_t *
#define PL_FIELD_REAL double *
#define PL_FIELD_BOOL bool *
#define PL_FIELD_CHOICE int *
#define PL_FIELD_COUNT int *
#define PL_FIELD_BOUND uint64_t *
#define PL_FIELD_TEXT char(*)[PL_TEXT_MAX]
#define PL_FIELD_LIST struct pl_list_of *

/* Every member of every family begins with this struct, so lookup, listing and the manual are
 * written once. `opts` ends with a NULL name. */
struct pl_entry {
    const char *name, *brief;
    const char *paper; /* citation, or "" */
    const struct pl_opt *opts;
    size_t conf_size;
    unsigned needs; /* what it needs of a run: PL_NEEDS_… in base/needs.h */
};

/* A name that a family had in an earlier version, and what to use instead. */
struct pl_retired {
    const char *name, *instead;
};

/* A family: its name, the question it answers, and its table (NULL-terminated). */
struct pl_family {
    const char *name, *brief;
    const struct pl_entry *const *table;
    const struct pl_retired *retired; /* ends with a NULL name; NULL if there are none */
};

extern const struct pl_opt pl_no_opts[];

/* Splits "name:args" into name[PL_NAME_MAX] and a pointer to args ("" if there are none). */
int pl_spec_split(const char *spec, char *name, const char **args, struct pl_why *why);

/* Finds the member called `name`. The error for an unknown name suggests the nearest one. */
int pl_entry_find(const struct pl_family *family, const char *name, const struct pl_entry **out,
                  struct pl_why *why);

/* Fills conf from the defaults, then from args. `n_workers` resolves counts like "all" and "75%".
 * On failure conf is unspecified; `why` names the option, the value and the accepted values. */
int pl_opt_parse(const struct pl_opt *opts, void *conf, const char *args, int n_workers,
                 struct pl_why *why);

/* Sets one option of a conf that already holds the others. */
int pl_opt_set(const struct pl_opt *opts, void *conf, const char *key, const char *value,
               int n_workers, struct pl_why *why);

/* Splits a spec, finds the entry and parses the options into *conf, which the caller frees. */
int pl_spec_parse(const struct pl_family *family, const char *spec, int n_workers,
                  const struct pl_entry **entry, void **conf, struct pl_why *why);

/* Writes "name:key=value,…" with the options that differ from their defaults, and all counts. */
void pl_spec_print(const struct pl_entry *entry, const void *conf, char *out, size_t max);

/* One value as text. */
void pl_opt_print(const struct pl_opt *opt, const void *conf, char *out, size_t max);

/* Describes what an option accepts: "a whole number from 1 to 8", "yes or no". */
void pl_opt_accepts(const struct pl_opt *opt, char *out, size_t max);

/* Returns the closest of names[n] to `word`, or NULL if none is close. */
const char *pl_nearest(const char *word, const char *const *names, size_t n);

#endif
