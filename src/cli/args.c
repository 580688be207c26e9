/* Arguments: every library option is a flag; a command adds flags of its own. */
#define _GNU_SOURCE
#include <ctype.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define ARGS_MESSAGE 1024 /* longest message */
#define ARGS_NAME 63      /* longest name that may be meant by another */
#define ARGS_COLUMN 26    /* of the help, where texts begin */
#define ARGS_USAGE 16     /* behind "usage: paceline " */

/* Prints a line as a whole: those of other threads come before or after it. With several ranks, it
 * begins with "rank 3: "; rank 0 speaks for the whole run. */
static void args_print_line(const char *kind, const char *entrant, const char *text) {
    char line[2 * ARGS_MESSAGE] = "paceline: ";
    if (pl_rank() > 0) cli_append(line, sizeof line, "rank %d: ", pl_rank());
    cli_append(line, sizeof line, "%s%s%s%s", kind, entrant ? entrant : "", entrant ? ": " : "",
               text);
    flockfile(stderr);
    cli_put(stderr, 2, line);
    fputc('\n', stderr);
    funlockfile(stderr);
}

/* All ranks see the same bad usage, so only rank 0 reports it. */
int cli_fail(int status, const char *fmt, ...) {
    va_list ap;
    char text[ARGS_MESSAGE];
    if ((status == PL_EUSAGE || status == CLI_USAGE) && pl_rank() > 0) return CLI_USAGE;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    args_print_line("", NULL, text);
    if (status == PL_EUSAGE) return CLI_USAGE;
    return status == CLI_USAGE || status == CLI_INTERRUPTED ? status : CLI_FAILED;
}

bool cli_can_erase(void) {
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

void cli_progress_erase(void) {
    if (!cli_can_erase()) return;
    fputs(CLI_ERASE, stderr);
    fflush(stderr);
}

void cli_say(void *ctx, int level, const char *sentence) {
    const char *entrant = ctx; /* of a race; or NULL */
    cli_progress_erase();
    args_print_line(level == PL_WARNING ? "warning: " : "", entrant, sentence);
}

bool cli_shows_default(const struct pl_item_option *o) {
    return o->def[0] && !strstr(o->help, "(default");
}

bool cli_says_nothing(const struct pl_item_option *o) {
    bool word = isupper((unsigned char)o->type[0]) && isupper((unsigned char)o->type[1]);
    return word && !cli_shows_default(o); /* FILE, SPEC: the type says it all */
}

/* --- help -------------------------------------------------------------------------------- */

/* Headings of the option table, each with the first option below it. */
static const struct {
    const char *first, *heading;
} args_headings[] = {
    {"method", "Method; the parts replace those of the method:"},
    {"attack", "Workers:"},
    {"model", "Model, data and learning rate:"},
    {"delay", "Time:"},
    {"updates", "Limits and evaluation:"},
    {"seed", "Where and how it runs:"},
    {"checkpoint", "Files, and watching the run:"},
    {"smoothness", "The planner:"},
};

struct args_page {
    const struct cli_args *args;
    const char *heading; /* that the next option is printed below, or NULL */
};

static void args_row(const char *name, const char *value, const char *text) {
    char left[64];
    snprintf(left, sizeof left, "--%s %s", name, value);
    bool fits = printf("  %-*s", ARGS_COLUMN - 3, left) < ARGS_COLUMN;
    printf("%s%*s", fits ? "" : "\n", fits ? 1 : ARGS_COLUMN, "");
    cli_wrap(ARGS_COLUMN, ARGS_COLUMN, text);
}

static void args_print_option(void *ctx, const struct pl_item *item) {
    struct args_page *page = ctx;
    const struct pl_item_option *o = &item->option[0];
    bool choice = strncmp(o->accepts, "one of ", 7) == 0;
    char text[ARGS_MESSAGE];
    for (size_t i = 0; i < sizeof args_headings / sizeof *args_headings; i++)
        if (strcmp(item->name, args_headings[i].first) == 0)
            page->heading = args_headings[i].heading;
    if (!(item->commands & page->args->options)) return;
    if (page->heading) printf("\n%s\n", page->heading);
    page->heading = NULL;
    snprintf(text, sizeof text, "%s", item->brief);
    if (choice)
        cli_append(text, sizeof text, " (%s; default %s)", o->accepts + 7, o->def);
    else if (cli_shows_default(o) && !page->args->restores)
        cli_append(text, sizeof text, " (default %s)", o->def);
    args_row(item->name, choice ? "" : o->type, text);
}

/* Paragraphs are wrapped; examples, which are indented, are printed as they are. */
static void args_notes(const char *notes) {
    char text[2 * ARGS_MESSAGE] = "";
    for (const char *line = notes; *line;) {
        int n = (int)strcspn(line, "\n");
        bool prose = n > 0 && *line != ' ';
        const char *next = line + n + (line[n] == '\n');
        if (prose) cli_append(text, sizeof text, "%s%.*s", *text ? " " : "", n, line);
        if (*text && (!prose || !*next)) {
            cli_wrap(0, 0, text);
            *text = '\0';
        }
        if (!prose) printf("%.*s\n", n, line);
        line = next;
    }
}

static void args_help(struct cli_args *a) {
    struct args_page page = {.args = a};
    int at = printf("paceline %s: ", a->command);
    cli_wrap(at, 2, a->brief);
    printf("\nusage: paceline ");
    cli_wrap(ARGS_USAGE, ARGS_USAGE, a->usage);
    putchar('\n');
    for (const struct cli_flag *f = a->flag; f && f->name; f++)
        args_row(f->name, f->value ? f->value : "", f->help);
    pl_list("option", args_print_option, &page);
    putchar('\n');
    args_notes(a->notes);
}

/* --- parsing ----------------------------------------------------------------------------- */

struct args_search {
    const struct cli_args *args;
    const char *name;
    size_t n;
    bool exact, own; /* own: this command is listed as a reader of the option */
    bool yes_no;     /* the option takes yes or no */
    const char *of;  /* what its value is the name of, if it cannot be standard output, or NULL */
    char others[80]; /* commands that accept it, if this one does not */
    int best;
    char near[64];
};

/* Edit distance of the n characters at `a` to `b`: an insertion, a deletion, a substitution and a
 * swap of two neighbours cost 1. */
static int args_distance(const char *a, int n, const char *b, int m) {
    int before[ARGS_NAME + 1], last[ARGS_NAME + 1] = {0}, row[ARGS_NAME + 1];
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        memcpy(before, last, sizeof before);
        memcpy(last, row, sizeof last);
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

/* No hint is better than a wrong one: a third of the letters may differ. */
int cli_likeness(const char *a, size_t n, const char *b) {
    size_t m = strlen(b), longer = n > m ? n : m;
    if (longer > ARGS_NAME) return 0;
    int distance = args_distance(a, (int)n, b, (int)m);
    bool begins = n > 2 && strncmp(a, b, n) == 0;
    return begins || distance <= (int)longer / 3 ? ARGS_NAME + 1 - distance : 0;
}

static void args_consider(struct args_search *s, const char *name) {
    if (strlen(name) == s->n && strncmp(s->name, name, s->n) == 0) s->exact = true;
    int like = cli_likeness(s->name, s->n, name);
    if (like > s->best) {
        s->best = like;
        snprintf(s->near, sizeof s->near, "%s", name);
    }
}

/* What a value is the name of: "a file", "a folder"; NULL if it is another value, or if - stands
 * for standard output, which the help says then. */
static const char *args_path(const char *type, const char *help) {
    if (!type || strstr(help, "- is standard output")) return NULL;
    return strcmp(type, "FILE") == 0 ? "a file" : strcmp(type, "DIR") == 0 ? "a folder" : NULL;
}

static void args_look(void *ctx, const struct pl_item *item) {
    struct args_search *s = ctx;
    bool same = strlen(item->name) == s->n && strncmp(s->name, item->name, s->n) == 0;
    if (!(item->commands & s->args->options)) {
        if (same) snprintf(s->others, sizeof s->others, "%.79s", item->detail);
        return;
    }
    args_consider(s, item->name);
    if (same) {
        s->own = (item->commands & s->args->own) != 0;
        s->yes_no = strcmp(item->option[0].accepts, "yes or no") == 0;
        s->of = args_path(item->option[0].type, item->brief);
    }
}

static int args_unknown(const struct cli_args *a, const struct args_search *s) {
    char typed[64], hint[200];
    snprintf(typed, sizeof typed, "%.*s", (int)s->n, s->name);
    if (s->others[0])
        return cli_fail(CLI_USAGE, "%s has no option --%s; commands that have it: %s", a->command,
                        typed, s->others);
    if (pl_hint("option", typed, hint, sizeof hint))
        return cli_fail(CLI_USAGE, "%s has no option --%s; use %s", a->command, typed, hint);
    if (s->best > 0)
        return cli_fail(CLI_USAGE, "%s has no option --%s; did you mean --%s?", a->command, typed,
                        s->near);
    return cli_fail(CLI_USAGE, "%s has no option --%s; see paceline %s --help", a->command, typed,
                    a->command);
}

struct args_word {
    const char *word;
    const struct cli_args *args;
    const char *family; /* of what the word names; NULL while nothing is found */
    bool option;        /* the command has an option for that family */
};

static void args_match(void *ctx, const struct pl_item *item) {
    struct args_word *w = ctx;
    size_t n = strcspn(w->word, ":");
    if (strlen(item->name) == n && strncmp(w->word, item->name, n) == 0) w->family = item->family;
}

static void args_match_option(void *ctx, const struct pl_item *item) {
    struct args_word *w = ctx;
    if (strcmp(item->name, w->family) == 0 && (item->commands & w->args->options)) w->option = true;
}

/* A word where a flag is expected: the name of a method, a data set or a model lacks its flag. */
static int args_not_flag(const struct cli_args *a, const char *word) {
    static const char *const families[] = {"method", "data", "model"};
    struct args_word w = {.word = word, .args = a};
    for (size_t i = 0; i < sizeof families / sizeof *families && !w.family; i++)
        pl_list(families[i], args_match, &w);
    if (w.family) pl_list("option", args_match_option, &w);
    if (w.option)
        return cli_fail(CLI_USAGE, "'%.60s' is not expected here; write --%s %.60s", word, w.family,
                        word);
    char hint[200];
    bool known = word[0] == '-' && pl_hint("option", word + 1, hint, sizeof hint);
    if (word[0] == '-')
        return cli_fail(CLI_USAGE, "'%.60s' is not a flag of %s; %s %s", word, a->command,
                        known ? "use" : "write", known ? hint : "--NAME VALUE");
    return cli_fail(CLI_USAGE, "'%.60s' is not expected here; flags of %s are --NAME VALUE", word,
                    a->command);
}

/* Returns the command's own flag of that name, or NULL. */
static const struct cli_flag *args_own(const struct cli_args *a, const char *name, size_t n) {
    for (const struct cli_flag *f = a->flag; f && f->name; f++)
        if (strlen(f->name) == n && strncmp(f->name, name, n) == 0) return f;
    return NULL;
}

/* Set while a command is described: its arguments go there, and it does nothing. */
static void (*args_each)(void *ctx, const struct cli_args *args);
static void *args_ctx;

void cli_describe(const struct cli_command *command,
                  void (*each)(void *ctx, const struct cli_args *args), void *ctx) {
    char name[32], *argv[] = {name, NULL};
    snprintf(name, sizeof name, "%s", command->name);
    args_each = each;
    args_ctx = ctx;
    command->run(1, argv);
    args_each = NULL;
}

/* Whether the flag argv[at] was given before; "--name VALUE" and "--name=VALUE" are the same. */
static bool args_repeated(char **argv, int at, size_t n) {
    for (int i = 1; i < at; i++)
        if (strncmp(argv[i], argv[at], n + 2) == 0 && strchr("=", argv[i][n + 2])) return true;
    return false;
}

/* Scripts add flags to those they have ("$@"), so the last one counts. */
static void args_say_twice(const struct args_search *s) {
    char sentence[100];
    snprintf(sentence, sizeof sentence, "--%.*s is given twice; the last one counts",
             s->n < 60 ? (int)s->n : 60, s->name);
    if (pl_rank() <= 0) cli_say(NULL, 1, sentence);
}

/* Options that were given the value 0, whose meaning depends on the others. */
struct args_zero {
    bool updates;
    const char *target; /* which of args_targets, or NULL */
};

/* 0 means no limit, which only makes sense if there is another one. */
static int args_zero_updates(pl_setup *setup) {
    if (cli_number(setup, "updates") > 0 || cli_number(setup, "time") > 0 ||
        cli_number(setup, "epochs") > 0 || cli_has_target(setup))
        return CLI_OK;
    return cli_fail(CLI_USAGE, "--updates 0 means no limit, and the run has no other one; give at "
                               "least 1, or another limit, such as --time 60");
}

static const char *const args_targets[] = {"target-accuracy", "target-loss"};

/* A target of 0 removes the one that a saved run or the demo has; elsewhere it is a mistake. */
static int args_zero_target(const struct cli_args *a, pl_setup *setup, const char *target) {
    char resume[ARGS_MESSAGE] = "";
    pl_setup_get(setup, "resume", resume, sizeof resume);
    if (a->restores || resume[0]) return CLI_OK;
    return cli_fail(CLI_USAGE, "--%s takes %s; leave it out to run without this target", target,
                    target == args_targets[0] ? "a share above 0, up to 1, such as 0.9 or 90%"
                                              : "a number above 0, such as 0.1");
}

static int args_set(const struct args_search *s, const char *value, pl_setup *setup,
                    struct args_zero *zero) {
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)s->n, s->name);
    double before = cli_number(setup, key); /* of the demo */
    int rc = pl_setup_set(setup, key, value);
    if (rc) return cli_fail(rc, "--%s", pl_setup_why(setup));
    if (cli_number(setup, key) != 0) return CLI_OK;
    if (strcmp(key, "lr") == 0)
        return cli_fail(CLI_USAGE, "--lr takes a number above 0; leave it out to use the "
                                   "method's own learning rate");
    zero->updates = zero->updates || strcmp(key, "updates") == 0;
    for (int i = 0; i < 2; i++)
        if (strcmp(key, args_targets[i]) == 0 && !(before > 0)) zero->target = args_targets[i];
    return CLI_OK;
}

int cli_parse(struct cli_args *a, int argc, char **argv, pl_setup *setup) {
    if (args_each) {
        args_each(args_ctx, a);
        a->helped = true;
        return CLI_OK;
    }
    struct args_zero zero = {false, NULL};
    a->word = argv + 1;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            args_help(a);
            a->helped = true;
            return CLI_OK;
        }
        if (strcmp(arg, "-o") == 0 && args_own(a, "out", 3)) arg = "--out";
        if (strncmp(arg, "--", 2) != 0 || arg[2] == '\0') {
            if (!a->takes_words || arg[0] == '-') return args_not_flag(a, arg);
            a->word[a->n_words++] = argv[i];
            continue;
        }
        struct args_search s = {.args = a, .name = arg + 2, .n = strcspn(arg + 2, "=")};
        if (arg == argv[i] && args_repeated(argv, i, s.n)) args_say_twice(&s);
        const struct cli_flag *own = args_own(a, s.name, s.n);
        const char *value = s.name[s.n] == '=' ? s.name + s.n + 1 : NULL;
        if (own && own->on) {
            if (value) return cli_fail(CLI_USAGE, "--%s takes no value", own->name);
            *own->on = true;
            continue;
        }
        for (const struct cli_flag *f = a->flag; f && f->name; f++) args_consider(&s, f->name);
        pl_list("option", args_look, &s);
        if (!own && !s.exact) return args_unknown(a, &s);
        /* an option that takes yes or no may be given without a value */
        if (own) s.yes_no = strcmp(own->value, "yes|no") == 0;
        if (own) s.of = args_path(own->value, own->help);
        bool is_set =
            i + 1 < argc && (strcmp(argv[i + 1], "no") == 0 || strcmp(argv[i + 1], "yes") == 0);
        if (!value && s.yes_no && !is_set) value = "yes";
        if (!value && ++i < argc) value = argv[i];
        if (!value || !*value) return cli_fail(CLI_USAGE, "--%.*s needs a value", (int)s.n, s.name);
        if (s.of && strcmp(value, "-") == 0)
            return cli_fail(CLI_USAGE, "--%.*s takes the name of %s; - cannot be used here",
                            (int)s.n, s.name, s.of);
        if (own) {
            *own->text = value;
            continue;
        }
        int status = args_set(&s, value, setup, &zero);
        if (status != CLI_OK) return status;
        if (!s.own) a->changes = true;
    }
    if (zero.target && args_zero_target(a, setup, zero.target)) return CLI_USAGE;
    return zero.updates ? args_zero_updates(setup) : CLI_OK;
}

int cli_with_setup(struct cli_args *a, int argc, char **argv, cli_run *run, void *ctx) {
    pl_setup *setup;
    if (pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    for (const char *const *p = a->preset; p && *p; p += 2) pl_setup_set(setup, p[0], p[1]);
    a->takes_words = a->takes_words || a->one_word;
    int status = cli_parse(a, argc, argv, setup);
    if (status == CLI_OK && !a->helped)
        status = a->one_word && a->n_words != 1 ? cli_fail(CLI_USAGE, "%s", a->one_word)
                                                : run(a, setup, ctx);
    pl_setup_free(setup);
    return status;
}

int cli_failed(int rc, const pl_setup *setup) {
    return rc ? cli_fail(rc, "%s", pl_setup_why(setup)) : CLI_OK;
}

double cli_number(pl_setup *setup, const char *key) {
    char text[64];
    return pl_setup_get(setup, key, text, sizeof text) ? NAN : strtod(text, NULL);
}

bool cli_has_target(pl_setup *setup) {
    return cli_number(setup, "target-loss") > 0 || cli_number(setup, "target-accuracy") > 0;
}

/* Nothing reads what is written to a pipe whose other end is closed. */
static bool args_closed(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

int cli_finish(int status) {
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (failed && args_closed(STDOUT_FILENO)) return CLI_FAILED; /* as for "| head" */
    if (failed) return cli_fail(CLI_FAILED, "standard output could not be written completely");
    /* only rank 0 may end the job for bad usage; a faster rank would end it before the message */
    return status == CLI_USAGE && pl_rank() > 0 ? CLI_OK : status;
}
