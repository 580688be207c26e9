/* paceline predict: predictions of a checkpoint for new rows, as CSV. */
#include <errno.h>
#include <string.h>

#include "cli.h"

struct predict_lines {
    FILE *to;
    unsigned long long n; /* lines so far; the first has the names of the columns */
};

static int predict_print(void *ctx, const char *line) {
    struct predict_lines *lines = ctx;
    lines->n++;
    return fputs(line, lines->to) < 0 || fputc('\n', lines->to) < 0;
}

static void predict_told(unsigned long long n_lines, const char *out) {
    char text[1024];
    unsigned long long rows = n_lines ? n_lines - 1 : 0;
    snprintf(text, sizeof text, "wrote %llu row%s to %.900s", rows, rows == 1 ? "" : "s", out);
    cli_say(NULL, PL_NOTE, text);
}

/* A file that exists is not overwritten, and one that could not be completed is not left. */
static int predict_to_file(pl_setup *setup, const char *path, const char *out) {
    FILE *to = fopen(out, "wx");
    if (!to && errno == EEXIST)
        return cli_fail(CLI_FAILED,
                        "'%s' already exists and will not be overwritten; choose another name",
                        out);
    if (!to) return cli_fail(CLI_FAILED, "'%s' cannot be created: %s", out, strerror(errno));
    struct predict_lines lines = {.to = to};
    int rc = pl_predict(setup, path, predict_print, &lines);
    bool written = !ferror(to);
    written &= fclose(to) == 0;
    if (rc || !written) remove(out);
    if (rc) return cli_failed(rc, setup);
    if (!written) return cli_fail(CLI_FAILED, "'%s' cannot be written", out);
    predict_told(lines.n, out);
    return CLI_OK;
}

static int predict_run(const struct cli_args *args, pl_setup *setup, void *ctx) {
    const char *const *out = ctx;
    if (*out && strcmp(*out, "-") != 0) return predict_to_file(setup, args->word[0], *out);
    struct predict_lines lines = {.to = stdout};
    int rc = pl_predict(setup, args->word[0], predict_print, &lines);
    return rc && ferror(stdout) ? CLI_FAILED : cli_failed(rc, setup); /* cli_finish tells */
}

int cli_predict(int argc, char **argv) {
    const char *out = NULL;
    const struct cli_flag flags[] = {
        {"out", "FILE",
         "file to write, which must not exist; - is standard output; -o for short (-)", NULL, &out},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "predict",
        .brief = "predict new rows by a checkpoint, as CSV",
        .usage = "predict CHECKPOINT --data DATA [--out FILE]",
        .options = PL_FOR_PREDICT,
        .own = PL_FOR_PREDICT,
        .flag = flags,
        .one_word = "predict takes one checkpoint: paceline predict CHECKPOINT --data csv:FILE",
        .restores = true,
        .notes = "CHECKPOINT is a file written by train --checkpoint, or its folder (the latest "
                 "file is\n"
                 "used). Names of classes, columns, categories and scaling are those of the "
                 "training\n"
                 "run, so DATA needs the features only: the target may be missing. If values of "
                 "features\n"
                 "are missing too, add missing=fill again, as in training. Examples:\n\n"
                 "  paceline train --data csv:flats.csv,target=price,task=regress \\\n"
                 "      --checkpoint saved\n"
                 "  paceline predict saved --data csv:new.csv --out prices.csv\n"};
    return cli_with_setup(&args, argc, argv, predict_run, &out);
}
