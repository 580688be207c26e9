/* paceline list: everything that a spec can name. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define LIST_FAMILIES                                                                              \
    "method, policy, tuner, correct, reduce, optim, local, filter, schedule, model, data, "        \
    "partition, delay, attack, option"

struct list_view {
    const char *family; /* the one printed last */
    bool detailed;
};

static void list_print(void *ctx, const struct pl_item *item) {
    struct list_view *v = ctx;
    if (!v->family || strcmp(v->family, item->family) != 0) {
        printf("%s%s: %s\n", v->family ? "\n" : "", item->family, item->family_brief);
        v->family = item->family;
    }
    printf("  %-20s %s\n", item->name, item->brief);
    if (!v->detailed) return;
    bool option = strcmp(item->family, "option") == 0;
    if (item->detail[0] && !option) printf("  %-20s   = %s\n", "", item->detail);
    for (size_t i = 0; i < item->n_options; i++) {
        const struct pl_item_option *o = &item->option[i];
        if (option && cli_says_nothing(o)) continue;
        if (option)
            printf("  %-20s   %s%s%s\n", "", o->accepts, cli_shows_default(o) ? "; default " : "",
                   cli_shows_default(o) ? o->def : "");
        else
            printf("  %-20s   %s=%s  %s; %s\n", "", o->name, o->def, o->help, o->accepts);
    }
    if (item->paper[0]) printf("  %-20s   [%s]\n", "", item->paper);
}

int cli_list(int argc, char **argv) {
    const struct cli_flag flags[] = {{NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "list",
        .brief = "list methods, policies, tuners, rules, models, data sets and delay laws",
        .usage = "list [FAMILY ...]",
        .options = "nothing",
        .flag = flags,
        .takes_words = true,
        .notes = "FAMILY is one of " LIST_FAMILIES ".\n"
                 "With a family, list shows the options and citations of its members. Specs are\n"
                 "written name:key=value,key=value.\n"};
    int status = cli_parse(&args, argc, argv, NULL);
    if (status != CLI_OK || args.helped) return status;
    struct list_view view = {.detailed = args.n_words > 0};
    if (args.n_words == 0) pl_list(NULL, list_print, &view);
    for (int i = 0; i < args.n_words; i++) {
        if (pl_list(args.word[i], list_print, &view))
            return cli_fail(CLI_USAGE, "there is no family '%.40s'; choose from " LIST_FAMILIES,
                            args.word[i]);
    }
    return CLI_OK;
}
