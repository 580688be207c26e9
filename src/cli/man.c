/* paceline --man: the manual page, generated from the tables of commands, options and parts. */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "cli.h"

struct man_view {
    FILE *out;
    const char *family; /* the one printed last */
    const char *skip;   /* one to leave out, or NULL */
};

/* Writes a character of several bytes by its code point, and returns its last byte. */
static const char *man_utf8(FILE *out, const char *s) {
    const unsigned char *at = (const unsigned char *)s;
    unsigned code = *at & (*at >= 0xf0 ? 0x07 : *at >= 0xe0 ? 0x0f : 0x1f);
    while ((at[1] & 0xc0) == 0x80) code = code << 6 | (*++at & 0x3f);
    fprintf(out, "\\[u%04X]", code);
    return (const char *)at;
}

/* Writes text as roff: protects a leading dot or quote, makes hyphens and backslashes literal. */
static void man_text(FILE *out, const char *s) {
    if (*s == '.' || *s == '\'') fputs("\\&", out);
    for (; *s; s++) {
        if (*s == '\\')
            fputs("\\e", out);
        else if (*s == '-')
            fputs("\\-", out);
        else if ((unsigned char)*s >= 0x80)
            s = man_utf8(out, s);
        else
            fputc(*s, out);
    }
}

/* Writes roff, in which every '%' stands for the next text. */
static void man_put(FILE *out, const char *roff, ...) {
    va_list ap;
    va_start(ap, roff);
    for (; *roff; roff++)
        if (*roff == '%')
            man_text(out, va_arg(ap, const char *));
        else
            fputc(*roff, out);
    va_end(ap);
}

static void man_heading(FILE *out, const char *name) {
    fputs(".SH ", out);
    for (; *name; name++) fputc(toupper((unsigned char)*name), out);
    fputc('\n', out);
}

static void man_option(FILE *out, const struct pl_item_option *o, bool of_run) {
    if (of_run && cli_says_nothing(o)) return;
    fputs(".br\n", out);
    if (!of_run) man_put(out, "\\fB%\\fR=\\fI%\\fR: %; ", o->name, o->type, o->help);
    man_put(out, cli_shows_default(o) ? "%; default %.\n" : "%.\n", o->accepts, o->def);
}

static void man_item(void *ctx, const struct pl_item *item) {
    struct man_view *v = ctx;
    bool option = strcmp(item->family, "option") == 0;
    if (v->skip && strcmp(v->skip, item->family) == 0) return;
    if (!v->family || strcmp(v->family, item->family) != 0) {
        man_heading(v->out, option ? "options" : item->family);
        man_put(v->out, "%.\n", item->family_brief);
        v->family = item->family;
    }
    if (option)
        man_put(v->out, ".TP\n\\fB\\-\\-%\\fR \\fI%\\fR\n", item->name, item->option[0].type);
    else
        man_put(v->out, ".TP\n\\fB%\\fR\n", item->name);
    man_put(v->out, item->paper[0] ? "% [%].\n" : "%.\n", item->brief, item->paper);
    if (item->when[0]) man_put(v->out, "%\n", item->when);
    if (option)
        man_put(v->out, "Commands: %.\n", item->detail);
    else if (item->detail[0])
        man_put(v->out, ".br\n= %\n", item->detail);
    for (size_t i = 0; i < item->n_options; i++) man_option(v->out, &item->option[i], option);
}

/* A command: what it does, how it is written, and the flags that are its own. */
static void man_command(void *ctx, const struct cli_args *a) {
    man_put(ctx, ".TP\n.B %\n%.\n.br\npaceline %\n", a->command, a->brief, a->usage);
    for (const struct cli_flag *f = a->flag; f && f->name; f++)
        if (f->value)
            man_put(ctx, ".br\n\\fB\\-\\-%\\fR \\fI%\\fR: %.\n", f->name, f->value, f->help);
        else
            man_put(ctx, ".br\n\\fB\\-\\-%\\fR: %.\n", f->name, f->help);
}

static void man_lines(FILE *out, const char *const *line) {
    for (; *line; line++) {
        if (strcmp(*line, "example") == 0)
            man_put(out, ".PP\n.nf\n.RS\n%\n.RE\n.fi\n", *++line);
        else if (strcmp(*line, "item") == 0)
            man_put(out, ".TP\n.B %\n", *++line);
        else
            man_put(out, "%\n", *line);
    }
}

static const char *const man_description[] = {
    "Paceline trains models by stochastic gradient descent on many workers that straggle, stall,",
    "leave or lie. Every published compromise between waiting for slow workers and using stale",
    "gradients is one method; a method is a choice from seven families of parts. The same code",
    "decides on a virtual clock (simulate), on real workers of this machine (train), and on MPI",
    "ranks (train, started by mpirun or srun), so that methods can be compared before they are",
    "used.",
    "Every command has --help, and 'paceline list NAME' explains one method or part. Specs are",
    "written name:key=value,key=value; paths and other texts are taken as they are.",
    NULL};

static const char *const man_examples[] = {
    "Compare eight methods on Fashion-MNIST with heavy-tailed delays:",
    "example",
    "paceline race --demo",
    "Simulate one method on data that needs no files, and try another number of workers:",
    "example",
    "paceline simulate --method abs --data digits --workers 16",
    "Train with four processes for twenty seconds and keep the weights:",
    "example",
    "paceline train --data digits --workers 4 --time 20 --checkpoint saved",
    "Train on a table of your own (see FILES), and evaluate:",
    "example",
    "paceline train --data csv:table.csv,target=price,task=regress --checkpoint saved",
    "example",
    "paceline eval saved",
    "Repeat a recorded run bit for bit:",
    "example",
    "paceline train --data digits --record run.rec",
    "example",
    "paceline replay run.rec",
    NULL};

static const char *const man_files[] = {
    "item",
    "/usr/share/datasets/fashion-mnist",
    "Fashion-MNIST, from the Debian package dataset-fashion-mnist; the default data set.",
    "item",
    "*.csv, *.npy, LIBSVM text, IDX and CIFAR-10 files, ratings",
    "What --data reads; docs/data.md describes the formats. They may be gzipped.",
    "item",
    "DIR/checkpoint-*.safetensors, DIR/latest",
    "What --checkpoint DIR writes: weights and the state of the run.",
    "item",
    "DIR/points.jsonl, trace.json, events.txt, events.out.tfevents.*",
    "What --log-dir DIR writes: a JSON line per evaluation, a Chrome trace, the event log, and",
    "events for TensorBoard.",
    "item",
    "race/results.jsonl, race/points-*.jsonl, race/plot.svg",
    "What race writes, into race, race-2, and so on, or into --out DIR.",
    NULL};

static const char *const man_status[] = {
    "item",
    "0",
    "Done; also if a signal ended a real run in good order.",
    "item",
    "1",
    "The run failed: a file cannot be read or written, the run diverged (of a race: all its runs),",
    "or workers were lost.",
    "item",
    "2",
    "Bad usage; one line on standard error says what to type instead.",
    "item",
    "130",
    "A signal interrupted the command before it had its result, or a second one ended it at once.",
    NULL};

void cli_man(FILE *out, const struct cli_command *commands) {
    fprintf(out, ".TH PACELINE 1 \"\" \"Paceline %s\" \"User Commands\"\n", pl_version());
    fputs(".SH NAME\npaceline \\- distributed SGD that keeps its pace when workers straggle\n"
          ".SH SYNOPSIS\n.B paceline\n.I command\n[\\fB\\-\\-\\fIname value\\fR ...]\n.br\n"
          ".B paceline help\n.I command\n.br\n.B paceline list\n.I name\n"
          ".SH DESCRIPTION\n",
          out);
    man_lines(out, man_description);
    fputs(".SH COMMANDS\n", out);
    for (const struct cli_command *c = commands; c->name; c++) cli_describe(c, man_command, out);
    struct man_view view = {.out = out};
    pl_list("option", man_item, &view);
    fputs(".SH EXAMPLES\n", out);
    man_lines(out, man_examples);
    fputs(".SH FILES\n", out);
    man_lines(out, man_files);
    fputs(".SH EXIT STATUS\n", out);
    man_lines(out, man_status);
    view.skip = "option"; /* printed already */
    pl_list(NULL, man_item, &view);
    fputs(".SH SEE ALSO\n.BR mpirun (1)\n", out);
}
