/* pl_list: everything that a spec can name, for `paceline list`, the manual and other programs. */
#include <stdlib.h>
#include <string.h>

#include "api/setup.h"
#include "core/tuner.h"

#define LIST_OPTIONS 64

/* In the order in which a newcomer would ask. */
static const struct pl_family *const families[] = {
    &pl_recipe_family,   &pl_policy_family, &pl_tuner_family, &pl_correct_family,
    &pl_reduce_family,   &pl_optim_family,  &pl_local_family, &pl_filter_family,
    &pl_schedule_family, &pl_model_family,  &pl_data_family,  &pl_partition_family,
    &pl_delay_family,    &pl_attack_family};

static const struct pl_entry list_none = {
    .name = "none", .brief = "no model: simulate timing only", .paper = "", .opts = pl_no_opts};

static size_t list_options(const struct pl_opt *opts, struct pl_item_option *out) {
    size_t n = 0;
    for (const struct pl_opt *o = opts; o->name && n < LIST_OPTIONS; o++, n++) {
        out[n] = (struct pl_item_option){.name = o->name, .def = o->def, .help = o->help};
        pl_opt_accepts(o, out[n].accepts, sizeof out[n].accepts);
    }
    return n;
}

static void list_entry(const struct pl_family *f, const struct pl_entry *e,
                       void (*each)(void *ctx, const struct pl_item *item), void *ctx) {
    struct pl_item_option option[LIST_OPTIONS];
    struct pl_item item = {.family = f->name,
                           .family_brief = f->brief,
                           .name = e->name,
                           .brief = e->brief,
                           .paper = e->paper,
                           .n_options = list_options(e->opts, option),
                           .option = option};
    if (f == &pl_recipe_family) {
        const struct pl_recipe *r = (const struct pl_recipe *)e;
        for (int i = 0; i < PL_N_COLUMNS; i++)
            if (r->column[i])
                pl_append(item.detail, sizeof item.detail, "%s--%s %s", i ? " " : "",
                          pl_column_family[i]->name, r->column[i]);
        if (r->schedule)
            pl_append(item.detail, sizeof item.detail, " --lr-schedule %s", r->schedule);
        if (r->lr > 0) pl_append(item.detail, sizeof item.detail, " --lr %g", r->lr);
    } else if (f == &pl_optim_family) {
        pl_append(item.detail, sizeof item.detail, "--lr %g", ((const struct pl_optim *)e)->lr);
    }
    each(ctx, &item);
}

/* The commands that read an option, in the item's detail. */
static void list_readers(unsigned flags, char *out, size_t max) {
    static const char *const command[] = {"simulate", "train", "race", "plan", "replay", "eval"};
    for (size_t i = 0; i < sizeof command / sizeof *command; i++)
        if (flags & 1U << i) pl_append(out, max, "%s%s", out[0] ? " " : "", command[i]);
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
                               .n_options = 1,
                               .option = &option[i]};
        list_readers(pl_setup_opts[i].flags, item.detail, sizeof item.detail);
        each(ctx, &item);
    }
}

int pl_list(const char *family, void (*each)(void *ctx, const struct pl_item *item), void *ctx) {
    bool found = false;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        if (family && strcmp(family, families[f]->name) != 0) continue;
        found = true;
        for (const struct pl_entry *const *e = families[f]->table; *e; e++)
            list_entry(families[f], *e, each, ctx);
        if (families[f] == &pl_model_family) list_entry(families[f], &list_none, each, ctx);
    }
    if (!family || strcmp(family, "option") == 0) {
        found = true;
        list_setup(each, ctx);
    }
    return found ? PL_OK : PL_EUSAGE;
}
