/* paceline completion bash|zsh: a completion script, generated from the tables of commands, options
 * and parts. Both shells have the same cases, which set `want` (words) or `files`; they differ in
 * how the script learns the words on the line and offers others. */
#include <ctype.h>
#include <string.h>

#include "claims.h"
#include "cli.h"

/* --- the cases ----------------------------------------------------------------------------- */

static void completion_member(void *ctx, const struct pl_item *item) {
    (void)ctx;
    printf(" %s", item->name);
}

/* What stands for a value in help, as in "auto|PATH": words, and what is a file. */
static void completion_type(const char *type) {
    const char *files = "";
    fputs("want='", stdout);
    for (size_t n; *type; type += n + (type[n] == '|')) {
        n = strcspn(type, "|");
        if (islower((unsigned char)*type))
            printf(" %.*s", (int)n, type);
        else if (strncmp(type, "DIR", n) == 0)
            files = "d";
        else if (strncmp(type, "FILE", n) == 0 || strncmp(type, "PATH", n) == 0)
            files = "f";
    }
    printf("' files=%s ;;\n", files);
}

/* The values of one option: members of a family, of which some read a file, words, or files. */
static void completion_value(void *ctx, const struct pl_item *item) {
    (void)ctx;
    printf("    --%s) ", item->name);
    if (strcmp(item->option[0].type, "SPEC") != 0) {
        completion_type(item->option[0].type);
        return;
    }
    fputs("want='", stdout);
    pl_list(strcmp(item->name, "lr-schedule") ? item->name : "schedule", completion_member, NULL);
    fputs("' ;;\n", stdout);
}

/* The values of the flags that are a command's own. */
static void completion_flag_values(void *ctx, const struct cli_args *a) {
    (void)ctx;
    for (const struct cli_flag *f = a->flag; f && f->name; f++)
        if (f->value && strcmp(f->name, "out") != 0) { /* a folder or a file, by command */
            printf("    --%s) ", f->name);
            completion_type(f->value);
        }
}

static void completion_option(void *ctx, const struct pl_item *item) {
    const struct cli_args *a = ctx;
    if (item->commands & a->options) printf(" --%s", item->name);
}

static void completion_command(void *ctx, const struct cli_args *a) {
    struct cli_args copy = *a;
    (void)ctx;
    printf("      %s) want='--help", a->command);
    for (const struct cli_flag *f = a->flag; f && f->name; f++) printf(" --%s", f->name);
    pl_list("option", completion_option, &copy);
    fputs("' ;;\n", stdout);
}

#define COMPLETION_NAMES 16384 /* bytes of the names of all families and members */

/* Appends a word to a list that begins with a space, unless it is there. */
static void completion_add(char *list, size_t max, const char *word) {
    char key[80];
    size_t n = strlen(list);
    cli_append(list, max, " ");
    snprintf(key, sizeof key, " %s ", word);
    bool found = strstr(list, key) != NULL;
    list[n] = '\0';
    if (!found) cli_append(list, max, " %s", word);
}

/* Every family and every member, once: a method and a policy may have the same name. */
static void completion_name(void *ctx, const struct pl_item *item) {
    char *list = ctx;
    completion_add(list, COMPLETION_NAMES, item->family);
    completion_add(list, COMPLETION_NAMES, item->name);
}

static void completion_claims(void) {
    struct claims claims;
    if (cli_claims_read(&claims, NULL) == CLI_OK)
        for (int i = 0; i < claims.n_claims; i++) printf(" %s", claims.claim[i].name);
    cli_claims_free(&claims);
}

static void completion_commands(const struct cli_command *commands) {
    for (const struct cli_command *c = commands; c->name; c++) printf(" %s", c->name);
}

/* The word under the cursor is a command, the value of an option, a plain word, or an option. */
static void completion_cases(const struct cli_command *commands) {
    char names[COMPLETION_NAMES] = "";
    fputs("  if [[ -z $command ]]; then want='help", stdout);
    completion_commands(commands);
    fputs(" --help --version'; else\n    case $prev in\n", stdout);
    fputs("    -o | --out | --data: | --delay:) files=f ;;\n    *:) ;;\n", stdout);
    pl_list("option", completion_value, NULL);
    for (const struct cli_command *c = commands; c->name; c++)
        cli_describe(c, completion_flag_values, NULL);
    fputs("    *)\n      case $command in\n      help) want='", stdout);
    completion_commands(commands);
    fputs("' ;;\n", stdout);
    for (const struct cli_command *c = commands; c->name; c++)
        cli_describe(c, completion_command, NULL);
    fputs("      esac\n      case $cur$command in\n      -*) ;;\n      *list) want='", stdout);
    pl_list(NULL, completion_name, names);
    fputs(names, stdout);
    fputs("' ;;\n      *race) want='", stdout);
    pl_list("method", completion_member, NULL);
    fputs("' ;;\n      *reproduce) want='", stdout);
    completion_claims();
    fputs("' ;;\n      *replay | *eval | *predict | *report | *plot) want= files=f ;;\n      esac "
          ";;\n"
          "    esac\n  fi\n",
          stdout);
}

/* --- the command --------------------------------------------------------------------------- */

static const struct {
    const char *shell, *before, *after;
} completion_shells[] = {
    {"bash",
     "# bash completion for paceline, written by 'paceline completion bash'\n"
     "_paceline() {\n"
     "  local cur prev command want= files=\n"
     "  COMPREPLY=()\n"
     "  cur=${COMP_WORDS[COMP_CWORD]}\n"
     "  command=${COMP_WORDS[1]}\n"
     "  # bash splits --name=value and name:value into three words\n"
     "  local at=$((COMP_CWORD-1)) colon=\n"
     "  if [[ $cur == [:=] ]]; then cur= at=$COMP_CWORD; fi\n"
     "  if [[ ${COMP_WORDS[at]} == : ]]; then colon=: at=$((at-2)); fi\n"
     "  if [[ ${COMP_WORDS[at]} == = ]]; then at=$((at-1)); fi\n"
     "  prev=${COMP_WORDS[at]}$colon\n"
     "  if (( COMP_CWORD == 1 )); then command=; fi\n",
     "  case $files in\n"
     "  d) mapfile -t COMPREPLY < <(compgen -d -W \"$want\" -- \"$cur\") ;;\n"
     "  f) mapfile -t COMPREPLY < <(compgen -f -W \"$want\" -- \"$cur\") ;;\n"
     "  *) mapfile -t COMPREPLY < <(compgen -W \"$want\" -- \"$cur\") ;;\n"
     "  esac\n"
     "}\n"
     "complete -o filenames -F _paceline paceline\n"},
    {"zsh",
     "#compdef paceline\n"
     "# zsh completion for paceline, written by 'paceline completion zsh'\n"
     "_paceline() {\n"
     "  local cur=${words[CURRENT]} prev=${words[CURRENT-1]} command=${words[2]} want= files=\n"
     "  # --name=value is one word\n"
     "  if [[ $cur == --*=* ]]; then prev=${cur%%=*}; cur=${cur#*=}; compset -P '*='; fi\n"
     "  if [[ $prev == --* && $cur == *:* ]]; then prev+=:; compset -P '*:'; fi\n"
     "  if (( CURRENT == 2 )); then command=; fi\n",
     "  case $files in\n"
     "  d) _files -/ ;;\n"
     "  f) _files ;;\n"
     "  esac\n"
     "  if [[ -n $want ]]; then compadd -- ${=want}; fi\n"
     "}\n"
     "_paceline \"$@\"\n"},
};

int cli_completion(int argc, char **argv, const struct cli_command *commands) {
    for (size_t i = 0; argc == 2 && i < sizeof completion_shells / sizeof *completion_shells; i++) {
        if (strcmp(argv[1], completion_shells[i].shell) != 0) continue;
        fputs(completion_shells[i].before, stdout);
        completion_cases(commands);
        fputs(completion_shells[i].after, stdout);
        return CLI_OK;
    }
    return cli_fail(CLI_USAGE, "completion takes the name of a shell: paceline completion bash, or "
                               "paceline completion zsh");
}
