/* paceline list: everything that a spec can name, as lists, or one member explained. */
#include <jansson.h>
#include <string.h>

#include "cli.h"

#define LIST_FAMILIES                                                                              \
    "method, policy, tuner, correct, reduce, optim, local, filter, schedule, model, data, "        \
    "partition, delay, attack, option"
#define LIST_COLUMN 23 /* of a list, where descriptions begin */
#define LIST_INDENT 14 /* of what is told about one member */

/* --- lists --------------------------------------------------------------------------------- */

struct list_view {
    const char *family; /* the one printed last */
    bool detailed;
};

/* More about a member, below its description. */
static void list_more(const char *sign, const char *text) {
    int at = printf("%*s%s", LIST_COLUMN + 2, "", sign);
    cli_wrap(at, LIST_COLUMN + 4, text);
}

static void list_print(void *ctx, const struct pl_item *item) {
    struct list_view *v = ctx;
    if (!v->family || strcmp(v->family, item->family) != 0) {
        printf("%s%s: ", v->family ? "\n" : "", item->family);
        cli_wrap((int)strlen(item->family) + 2, 2, item->family_brief);
        v->family = item->family;
    }
    int at = printf("  %-20s ", item->name);
    cli_wrap(at, LIST_COLUMN, item->brief);
    if (!v->detailed) return;
    bool option = strcmp(item->family, "option") == 0;
    char text[1000];
    if (item->detail[0] && !option) list_more("= ", item->detail);
    for (size_t i = 0; i < item->n_options; i++) {
        const struct pl_item_option *o = &item->option[i];
        if (option && cli_says_nothing(o)) continue;
        if (option)
            snprintf(text, sizeof text, "%s%s%s", o->accepts,
                     cli_shows_default(o) ? "; default " : "", cli_shows_default(o) ? o->def : "");
        else
            snprintf(text, sizeof text, "%s=%s  %s; %s", o->name, o->def, o->help, o->accepts);
        list_more("", text);
    }
    if (!item->paper[0]) return;
    snprintf(text, sizeof text, "[%s]", item->paper);
    list_more("", text);
}

/* --- one member ---------------------------------------------------------------------------- */

/* A label and the text beside it. */
static void list_say(const char *label, const char *text) {
    printf("  %-*s", LIST_INDENT - 2, label);
    cli_wrap(LIST_INDENT, LIST_INDENT, text);
}

/* One option of a part; `set` is the value that a method gives it, or NULL. */
static void list_option(const struct pl_item_option *o, const char *part, const char *set,
                        const char *label) {
    char text[800] = "";
    cli_append(text, sizeof text, "%s=%s  %s; %s", o->name, o->type, o->help, o->accepts);
    if (set)
        cli_append(text, sizeof text, " (here %s)", set);
    else if (cli_shows_default(o))
        cli_append(text, sizeof text, " (default %s)", o->def);
    if (part[0]) cli_append(text, sizeof text, " [%s]", part);
    printf("  %-*s", LIST_INDENT - 2, label);
    cli_wrap(LIST_INDENT, LIST_INDENT + 4, text);
}

struct list_row {
    char family[32]; /* the part whose options are printed now: its family, */
    char spec[200];  /* and what the row has there */
    int n;           /* options printed so far */
};

/* The value that a spec gives an option, in value[max]; NULL if it does not. */
static const char *list_given(const char *spec, const char *key, char *value, size_t max) {
    size_t n = strlen(key);
    for (const char *at = strchr(spec, ':'); at; at = strchr(at + 1, ',')) {
        if (strncmp(at + 1, key, n) != 0 || at[1 + n] != '=') continue;
        snprintf(value, max, "%.*s", (int)strcspn(at + n + 2, ","), at + n + 2);
        return value;
    }
    return NULL;
}

static void list_row_part(void *ctx, const struct pl_item *item) {
    struct list_row *r = ctx;
    size_t n = strlen(item->name);
    const char *last = strrchr(r->spec, '+'), *spec = last ? last + 1 : r->spec;
    if (strncmp(spec, item->name, n) != 0 || (spec[n] && spec[n] != ':')) return;
    char part[64], value[100];
    snprintf(part, sizeof part, "%s %s", item->family, item->name);
    for (size_t i = 0; i < item->n_options; i++)
        list_option(&item->option[i], part,
                    list_given(spec, item->option[i].name, value, sizeof value),
                    r->n++ ? "" : "options");
}

/* The options of the parts that a method consists of. */
static void list_row_options(const char *row) {
    struct list_row r = {.n = 0};
    for (const char *at = row; *at;) {
        at += strspn(at, " -");
        size_t n = strcspn(at, " ");
        snprintf(r.family, sizeof r.family, "%.*s", (int)n, at);
        at += n + strspn(at + n, " ");
        n = strcspn(at, " ");
        snprintf(r.spec, sizeof r.spec, "%.*s", (int)n, at);
        at += n;
        if (strcmp(r.family, "lr-schedule") == 0)
            pl_list("schedule", list_row_part, &r);
        else
            pl_list(r.family, list_row_part, &r);
    }
}

/* The methods whose row has a part, up to a few of them. */
struct list_users {
    const char *family, *name;
    char text[400];
    int n;
};

static void list_user(void *ctx, const struct pl_item *method) {
    struct list_users *u = ctx;
    char key[80];
    snprintf(key, sizeof key, "--%s %s", strcmp(u->family, "schedule") ? u->family : "lr-schedule",
             u->name);
    const char *at = strstr(method->detail, key);
    if (!at || !strchr(": ", at[strlen(key)])) return;
    if (u->n++ < 12)
        cli_append(u->text, sizeof u->text, "%s%s", u->text[0] ? ", " : "", method->name);
}

static void list_run_option(const struct pl_item *item) {
    const struct pl_item_option *o = &item->option[0];
    char text[200];
    snprintf(text, sizeof text, "--%s %s", item->name, o->type);
    list_say("write", text);
    list_say("value", o->accepts);
    if (cli_shows_default(o)) list_say("default", o->def);
    list_say("commands", item->detail);
}

struct list_search {
    const char *word;
    int n_found, best;
    char near[64];
};

static void list_explain(const struct pl_item *item) {
    bool method = strcmp(item->family, "method") == 0;
    printf("%s %s\n", item->family, item->name);
    list_say("what", item->brief);
    if (strcmp(item->family, "option") == 0) {
        list_run_option(item);
        return;
    }
    if (method)
        list_say("row", item->detail);
    else
        list_say("answers", item->family_brief);
    if (item->when[0]) list_say("when", item->when);
    if (!method && item->detail[0]) list_say("default", item->detail);
    if (item->paper[0]) list_say("paper", item->paper);
    if (method) list_row_options(item->detail);
    for (size_t i = 0; i < item->n_options; i++)
        list_option(&item->option[i], "", NULL, i ? "" : "options");
    struct list_users users = {.family = item->family, .name = item->name};
    pl_list("method", list_user, &users);
    if (users.n) {
        if (users.n > 12) cli_append(users.text, sizeof users.text, " and %d more", users.n - 12);
        list_say("methods", users.text);
    }
    if (item->command[0]) {
        printf("  %-*s", LIST_INDENT - 2, "try");
        cli_wrap_command(LIST_INDENT, LIST_INDENT + 4, item->command);
    }
}

static void list_consider(struct list_search *s, const char *name) {
    int like = cli_likeness(s->word, strlen(s->word), name);
    if (like <= s->best) return;
    s->best = like;
    snprintf(s->near, sizeof s->near, "%s", name);
}

/* Explains the item if it is the one that is searched for; remembers the nearest name. */
static void list_match(void *ctx, const struct pl_item *item) {
    struct list_search *s = ctx;
    list_consider(s, item->family);
    list_consider(s, item->name);
    if (strcmp(s->word, item->name) != 0) return;
    if (s->n_found++) putchar('\n');
    list_explain(item);
}

static int list_one(const char *word) {
    struct list_search s = {.word = word};
    if (strncmp(word, "--", 2) == 0) s.word += 2;
    pl_list(NULL, list_match, &s);
    if (s.n_found) return CLI_OK;
    if (s.best > 3)
        return cli_fail(CLI_USAGE, "there is no family, method or part '%.40s'; did you mean '%s'?",
                        word, s.near);
    return cli_fail(CLI_USAGE,
                    "there is no family, method or part '%.40s'; 'paceline list' shows all, and "
                    "the families are " LIST_FAMILIES,
                    word);
}

/* --- JSON ---------------------------------------------------------------------------------- */

static json_t *list_options(const struct pl_item *item) {
    json_t *all = json_array();
    for (size_t i = 0; i < item->n_options; i++) {
        const struct pl_item_option *o = &item->option[i];
        json_array_append_new(all,
                              json_pack("{ss ss ss ss ss}", "name", o->name, "default", o->def,
                                        "type", o->type, "accepts", o->accepts, "help", o->help));
    }
    return all;
}

struct list_objects {
    json_t *all;
    const char *name; /* only items with this name; NULL: all */
    bool lost;        /* out of memory for one */
};

static void list_object(void *ctx, const struct pl_item *item) {
    struct list_objects *o = ctx;
    if (o->name && strcmp(o->name, item->name) != 0) return;
    json_t *x = json_pack("{ss ss ss ss ss ss ss so}", "family", item->family, "name", item->name,
                          "brief", item->brief, "paper", item->paper, "when", item->when, "command",
                          item->command, "detail", item->detail, "options", list_options(item));
    json_t *facts = json_loads(item->facts, 0, NULL);
    if (!facts || json_object_update(x, facts) || json_array_append_new(o->all, x)) o->lost = true;
    json_decref(facts);
}

/* One array with an object per item of these families, or with these names. */
static int list_json(int n, char *const *word) {
    struct list_objects o = {.all = json_array()};
    int status = CLI_OK;
    if (n == 0) pl_list(NULL, list_object, &o);
    for (int i = 0; status == CLI_OK && i < n; i++) {
        size_t before = json_array_size(o.all);
        o.name = NULL;
        if (pl_list(word[i], list_object, &o) == PL_OK) continue;
        o.name = strncmp(word[i], "--", 2) == 0 ? word[i] + 2 : word[i];
        pl_list(NULL, list_object, &o);
        if (json_array_size(o.all) == before) status = list_one(word[i]);
    }
    if (status == CLI_OK && (o.lost || json_dumpf(o.all, stdout, JSON_COMPACT)))
        status = cli_fail(CLI_FAILED, "out of memory");
    if (status == CLI_OK) putchar('\n');
    json_decref(o.all);
    return status;
}

int cli_list(int argc, char **argv) {
    bool json = false;
    const struct cli_flag flags[] = {
        {"json", NULL, "print one JSON array of objects and nothing else", &json, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "list",
        .brief = "explain a method or part, or list them all",
        .usage = "list [--json] [FAMILY | NAME ...]",
        .flag = flags,
        .takes_words = true,
        .notes = "Without arguments, list shows everything by family: " LIST_FAMILIES ".\n"
                 "With a family, it adds the options and citations of the members. With the name\n"
                 "of a method, a part or an option, it explains that one: what it does, what it\n"
                 "consists of, when to use it, its options, and a command to try. Specs are\n"
                 "written name:key=value,key=value. Examples:\n\n"
                 "  paceline list method\n"
                 "  paceline list kasync\n"
                 "  paceline list filter attack\n"
                 "  paceline list --json policy\n"};
    int status = cli_parse(&args, argc, argv, NULL);
    if (status != CLI_OK || args.helped) return status;
    if (json) return list_json(args.n_words, args.word);
    struct list_view view = {.detailed = args.n_words > 0};
    if (args.n_words == 0) pl_list(NULL, list_print, &view);
    for (int i = 0; status == CLI_OK && i < args.n_words; i++) {
        if (i) putchar('\n');
        view.family = NULL;
        if (pl_list(args.word[i], list_print, &view)) status = list_one(args.word[i]);
    }
    return status;
}
