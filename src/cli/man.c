/* paceline --man: the manual page, generated from the option tables. */
#include <string.h>

#include "cli.h"

struct man_view {
    FILE *out;
    const char *family; /* the one printed last */
    const char *skip;   /* one to leave out, or NULL */
};

/* Writes text as roff: protects a leading dot or quote, makes hyphens and backslashes literal. */
static void man_text(FILE *out, const char *s) {
    if (*s == '.' || *s == '\'') fputs("\\&", out);
    for (; *s; s++) {
        if (*s == '\\')
            fputs("\\e", out);
        else if (*s == '-')
            fputs("\\-", out);
        else
            fputc(*s, out);
    }
}

static void man_item(void *ctx, const struct pl_item *item) {
    struct man_view *v = ctx;
    bool option = strcmp(item->family, "option") == 0;
    if (v->skip && strcmp(v->skip, item->family) == 0) return;
    if (!v->family || strcmp(v->family, item->family) != 0) {
        fprintf(v->out, ".SH %s\n", option ? "OPTIONS" : item->family);
        man_text(v->out, item->family_brief);
        fputc('\n', v->out);
        v->family = item->family;
    }
    fputs(".TP\n.B ", v->out);
    if (option) fputs("\\-\\-", v->out);
    man_text(v->out, item->name);
    fputc('\n', v->out);
    man_text(v->out, item->brief);
    if (item->paper[0]) {
        fputs(" [", v->out);
        man_text(v->out, item->paper);
        fputc(']', v->out);
    }
    fputs(".\n", v->out);
    for (size_t i = 0; i < item->n_options; i++) {
        const struct pl_item_option *o = &item->option[i];
        if (option && cli_says_nothing(o)) continue;
        fputs(".br\n", v->out);
        if (!option) {
            fputs(".I ", v->out);
            man_text(v->out, o->name);
            fputs("\n\\&= ", v->out);
            man_text(v->out, o->def[0] ? o->def : "(empty)");
            fputs(": ", v->out);
            man_text(v->out, o->help);
            fputs("; ", v->out);
        } else if (cli_shows_default(o)) {
            fputs("Default ", v->out);
            man_text(v->out, o->def);
            fputs("; ", v->out);
        }
        man_text(v->out, o->accepts);
        fputs(".\n", v->out);
    }
}

void cli_man(FILE *out) {
    fprintf(out, ".TH PACELINE 1 \"\" \"Paceline %s\" \"User Commands\"\n", pl_version());
    fputs(".SH NAME\npaceline \\- distributed SGD that keeps its pace when workers straggle\n"
          ".SH SYNOPSIS\n.B paceline\n.I command\n[\\-\\-name value ...]\n"
          ".SH COMMANDS\n"
          ".TP\n.B train\nTrain with real workers on this machine, processes or threads.\n"
          ".TP\n.B simulate\nTrain on a virtual clock, with any number of workers.\n"
          ".TP\n.B race\nRun several methods on one workload; print a leaderboard, draw a plot.\n"
          "\\-\\-real uses real workers, after the simulator has predicted the outcome;\n"
          "\\-\\-seeds N repeats it, \\-\\-out DIR names the folder for results.\n"
          ".TP\n.B replay\nRepeat a recorded run bit for bit, or with other options.\n"
          ".TP\n.B report\nWrite one HTML page from log directories, races and recordings.\n"
          ".TP\n.B plot\nDraw a race or a run again, as SVG or PNG.\n"
          ".TP\n.B eval\nPrint the loss and accuracy of a checkpoint.\n"
          ".TP\n.B plan\nPredict time per update and error for every K from delays.\n"
          ".TP\n.B list\nShow methods, policies, tuners, rules, models, data sets, delay laws.\n"
          ".PP\nEvery command has \\-\\-help. Specs are written\n"
          ".IR name : key = value , key = value .\n"
          ".SH EXIT STATUS\n0 done, also if a signal ended a real run in good order; 1 the run "
          "failed;\n"
          "2 bad usage; 130 a second signal ended it at once.\n",
          out);
    struct man_view view = {.out = out};
    pl_list("option", man_item, &view);
    view.skip = "option"; /* printed first */
    pl_list(NULL, man_item, &view);
}
