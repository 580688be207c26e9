/* Options: one table per plug-in drives parsing, range checks, `paceline list` and the manual.
 *
 * A spec is "name" or "name:key=value,key=value". A table describes the fields of a plain struct
 * (the "conf"), and parsing fills it. A piece without '=' continues the list before it, as in
 * "mlp:hidden=256,128" and "step:at=80,120,by=0.1". If the first option of a table is a text, its
 * key is optional: "idx:DIR" means "idx:dir=DIR". */
#ifndef PL_BASE_OPT_H
#define PL_BASE_OPT_H

#include "base/status.h"
#include "paceline_policy.h" /* struct pl_opt, struct pl_entry and the macros of option tables */

#define PL_SPEC_MAX 1024 /* a whole spec */

/* A family: its name, the question it answers, and its table (NULL-terminated). */
struct pl_family {
    const char *name, *brief;
    const struct pl_entry *const *table;
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

/* Reads a time with or without a unit: 90, 500ms, 1h30m. Returns whether it is one from min to max
 * seconds. */
bool pl_opt_seconds(const char *text, double min, double max, double *out);

/* Fails because args is not key=value. A number alone is meant for the first option, if that takes
 * it. */
int pl_opt_not_pair(const struct pl_opt *opts, const char *args, struct pl_why *why);

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

/* An option whose value names a file or a folder. The column `choices` of a text is the word that
 * stands for its value in help; without one it is TEXT. */
#define PL_OPT_FILE(conf, field, def, help)                                                        \
    PL_OPT(#field, TEXT, conf, field, def, 0, 0, "FILE", help, 0)
#define PL_OPT_DIR(conf, field, def, help)                                                         \
    PL_OPT(#field, TEXT, conf, field, def, 0, 0, "DIR", help, 0)

/* The word that stands for the value of an option in help: "N", "X", "yes|no", "FILE". */
const char *pl_opt_type(const struct pl_opt *opt);

/* Describes what an option accepts: "a whole number from 1 to 8", "yes or no". */
void pl_opt_accepts(const struct pl_opt *opt, char *out, size_t max);

#endif
