/* pl_list: everything that a spec can name, for `paceline list`, the manual, completion and other
 * programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/setup.h"
#include "base/hint.h"
#include "base/json.h"
#include "base/needs.h"
#include "core/tuner.h"
#include "sys/numerals.h"

#define LIST_OPTIONS PL_SETUP_OPTS
#define LIST_COMMANDS                                                                              \
    (PL_FOR_SIMULATE | PL_FOR_TRAIN | PL_FOR_RACE | PL_FOR_PLAN | PL_FOR_REPLAY | PL_FOR_EVAL |    \
     PL_FOR_PREDICT | PL_FOR_WORK)

/* In the order in which a newcomer would ask. */
static const struct pl_family *const families[] = {
    &pl_recipe_family,   &pl_policy_family, &pl_tuner_family, &pl_correct_family,
    &pl_reduce_family,   &pl_optim_family,  &pl_local_family, &pl_filter_family,
    &pl_schedule_family, &pl_model_family,  &pl_data_family,  &pl_partition_family,
    &pl_delay_family,    &pl_attack_family};

/* Not in the table of models: nothing is opened. */
static const struct pl_model_kind list_none = {.id = {.name = "none",
                                                      .brief = "no model: simulate timing only",
                                                      .paper = "",
                                                      .opts = pl_no_opts}};

static size_t list_options(const struct pl_opt *opts, struct pl_item_option *out) {
    size_t n = 0;
    for (const struct pl_opt *o = opts; o->name && n < LIST_OPTIONS; o++, n++) {
        out[n] = (struct pl_item_option){
            .name = o->name, .def = o->def, .help = o->help, .type = pl_opt_type(o)};
        pl_opt_accepts(o, out[n].accepts, sizeof out[n].accepts);
    }
    return n;
}

/* --- a command to try ---------------------------------------------------------------------- */

/* Members that need more than their name in a command: more of a spec, or another option. */
static const struct {
    const char *family, *name, *more;
} list_special[] = {
    {"reduce", "nnm", "+median"},
    {"reduce", "bucketing", "+median"},
    {"reduce", "clipping", "+median"},
    {"delay", "hetero", ":v=0.6,exp:mean=1"},
    {"model", "none", "--delay pareto:shape=2,scale=1"},
    {"model", "quadratic", "--delay pareto:shape=2,scale=1"},
    {"model", "mf", "--data lowrank"},
    {"model", "linear", "--data friedman"},
    {"model", "external", ":dim=1000"},
    {"data", "ratings", "--model mf"},
    {"data", "lowrank", "--model mf"},
};

/* Of a member: what follows its name, beginning with '+' or ':'; or else an option. */
static const char *list_more(const struct pl_family *f, const struct pl_entry *e) {
    for (size_t i = 0; i < sizeof list_special / sizeof *list_special; i++)
        if (strcmp(list_special[i].family, f->name) == 0 &&
            strcmp(list_special[i].name, e->name) == 0)
            return list_special[i].more;
    return "";
}

/* Whether a spec, or a link of a chain of specs, names the member. */
static bool list_names(const char *spec, const char *name) {
    size_t n = strlen(name);
    for (const char *at = spec; at; at = strchr(at, '+') ? strchr(at, '+') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && strchr(":+", at[n])) return true;
    return false;
}

/* The first method that has the member in its row; NULL if there is none. */
static const struct pl_recipe *list_method_with(int column, const struct pl_entry *e) {
    for (const struct pl_entry *const *m = pl_recipe_family.table; *m; m++)
        if (list_names(pl_recipe_column((const struct pl_recipe *)*m, column), e->name))
            return (const struct pl_recipe *)*m;
    return NULL;
}

/* The data that a method can be tried on; and an attacker, if it is made against attacks. */
static const char *list_workload(const struct pl_recipe *r) {
    char name[PL_NAME_MAX];
    const char *args;
    const struct pl_entry *policy;
    if (pl_spec_split(r->policy, name, &args, NULL) == PL_OK &&
        pl_entry_find(&pl_policy_family, name, &policy, NULL) == PL_OK &&
        ((const struct pl_policy *)policy)->grid)
        return "--model mf --data lowrank";
    if (r->reduce || r->filter) return "--workers 11 --data digits --attack signflip:f=2";
    return "--data digits --delay pareto:shape=2,scale=1";
}

static void list_command(const struct pl_family *f, const struct pl_entry *e, char *out,
                         size_t max) {
    const char *more = list_more(f, e);
    bool option = more[0] == '-';
    int column = 0;
    while (column < PL_N_COLUMNS && pl_column_family[column] != f) column++;
    const struct pl_recipe *r = f == &pl_recipe_family  ? (const struct pl_recipe *)e
                                : column < PL_N_COLUMNS ? list_method_with(column, e)
                                                        : NULL;
    char spec[120];
    snprintf(spec, sizeof spec, "%s%s", e->name, option ? "" : more);
    if (e->opts->name && e->opts->choices && !e->opts->def[0] && strchr("FD", *e->opts->choices))
        pl_append(spec, sizeof spec, ":%s", e->opts->choices); /* FILE or DIR */
    if (f == &pl_model_family && ((const struct pl_model_kind *)e)->by_clients) {
        pl_append(out, max, "paceline train --model %s --spawn none --listen run.socket", spec);
        return;
    }
    pl_append(out, max, "paceline simulate ");
    if (r)
        pl_append(out, max, "--method %s %s", r->id.name, list_workload(r));
    else if (column < PL_N_COLUMNS)
        pl_append(out, max, "--policy %s --%s %s --data digits",
                  column == PL_COLUMN_REDUCE ? "ksync:k=all" : "kasync:k=1", f->name, spec);
    else if (f == &pl_schedule_family)
        pl_append(out, max, "--lr-schedule %s --data digits", spec);
    else if (f == &pl_attack_family)
        pl_append(out, max, "--workers 11 --method byzantine-median --attack %s --data digits",
                  spec);
    else if (f == &pl_delay_family)
        pl_append(out, max, "--delay %s --model none", spec);
    else
        pl_append(out, max, "--%s %s%s", f->name, spec,
                  f == &pl_data_family || option ? "" : " --data digits");
    if (option) pl_append(out, max, " %s", more);
}

/* --- what it needs, and what a method is ------------------------------------------------------ */

/* As an object; NULL if out of memory. The caller frees it. */
static char *list_facts(const struct pl_family *f, const struct pl_entry *e) {
    pl_setup *s = NULL;
    struct pl_json j = {0};
    int rc = PL_OK;
    pl_json_open(&j, NULL, '{');
    if (f == &pl_recipe_family) {
        if ((rc = pl_setup_new(&s)) || (rc = pl_setup_set(s, "method", e->name)))
            j.failed = true;
        else
            rc = pl_method_print(s, &j, "method");
        pl_setup_free(s);
    } else {
        pl_needs_print(e->needs, &j);
    }
    pl_json_close(&j, '}');
    if (!rc && !j.failed) return j.text;
    free(j.text);
    return NULL;
}

/* --- the items ----------------------------------------------------------------------------- */

static int list_entry(const struct pl_family *f, const struct pl_entry *e,
                      void (*each)(void *ctx, const struct pl_item *item), void *ctx) {
    struct pl_item_option option[LIST_OPTIONS];
    char *facts = list_facts(f, e);
    if (!facts) return PL_ENOMEM;
    struct pl_item item = {.family = f->name,
                           .family_brief = f->brief,
                           .name = e->name,
                           .brief = e->brief,
                           .paper = e->paper,
                           .when = "",
                           .facts = facts,
                           .n_options = list_options(e->opts, option),
                           .option = option};
    list_command(f, e, item.command, sizeof item.command);
    if (f == &pl_recipe_family) {
        const struct pl_recipe *r = (const struct pl_recipe *)e;
        item.when = r->when;
        for (int i = 0; i < PL_N_COLUMNS; i++)
            if (r->column[i])
                pl_append(item.detail, sizeof item.detail, "%s--%s %s", i ? " " : "",
                          pl_column_family[i]->name, r->column[i]);
        if (r->schedule)
            pl_append(item.detail, sizeof item.detail, " --lr-schedule %s", r->schedule);
        if (r->average) pl_append(item.detail, sizeof item.detail, " --average %s", r->average);
        if (r->lr > 0) pl_append(item.detail, sizeof item.detail, " --lr %g", r->lr);
    } else if (f == &pl_optim_family) {
        pl_append(item.detail, sizeof item.detail, "--lr %g", ((const struct pl_optim *)e)->lr);
    }
    each(ctx, &item);
    free(facts);
    return PL_OK;
}

/* The commands that read an option, in the item's detail. A replay is a simulation with changes. */
static void list_readers(unsigned commands, char *out, size_t max) {
    static const char *const command[] = {"simulate", "train, serve", "race",    "plan",
                                          "replay",   "eval",         "predict", "work"};
    for (size_t i = 0; i < sizeof command / sizeof *command; i++)
        if (commands & 1U << i || (commands & PL_FOR_SIMULATE && 1U << i == PL_FOR_REPLAY))
            pl_append(out, max, "%s%s", out[0] ? ", " : "", command[i]);
}

/* The run's own options, one item each. */
static void list_setup(void (*each)(void *ctx, const struct pl_item *item), void *ctx) {
    struct pl_item_option option[LIST_OPTIONS];
    size_t n = list_options(pl_setup_opts, option);
    for (size_t i = 0; i < n; i++) {
        struct pl_item item = {.family = "option",
                               .family_brief =
                                   "settings of a run; on the command line --NAME VALUE",
                               .name = option[i].name,
                               .brief = option[i].help,
                               .paper = "",
                               .when = "",
                               .facts = "{\"needs\":[]}",
                               .n_options = 1,
                               .option = &option[i]};
        item.commands = pl_setup_opts[i].flags & LIST_COMMANDS;
        list_readers(item.commands, item.detail, sizeof item.detail);
        each(ctx, &item);
    }
}

int pl_list(const char *family, void (*each)(void *ctx, const struct pl_item *item), void *ctx) {
    PL_NUMERALS;
    bool found = false;
    int rc = PL_OK;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        if (family && strcmp(family, families[f]->name) != 0) continue;
        found = true;
        for (const struct pl_entry *const *e = families[f]->table; !rc && *e; e++)
            rc = list_entry(families[f], *e, each, ctx);
        if (!rc && families[f] == &pl_model_family)
            rc = list_entry(families[f], &list_none.id, each, ctx);
    }
    if (!rc && (!family || strcmp(family, "option") == 0)) {
        found = true;
        list_setup(each, ctx);
    }
    return rc ? rc : found ? PL_OK : PL_EUSAGE;
}

int pl_hint(const char *kind, const char *word, char *out, size_t max) {
    return pl_hint_find(kind, word, out, max);
}
