/* Command lines: how the process was started, and how to run the same experiment again. */
#include "api/command.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool pl_command_masks(const char *requests) {
    return strcmp(requests, "none") != 0 && strcmp(requests, "any") != 0;
}

/* The token of --requests TOKEN, or --requests=TOKEN, is left out. Returns the new length. */
static size_t command_mask(char *text, size_t n) {
    static const char option[] = "--requests", mask[] = PL_COMMAND_MASK;
    const size_t length = sizeof option - 1;
    char *end = text + n;
    for (char *at = text; at < end; at += strlen(at) + 1) {
        char *value = at + length + 1;
        if (strncmp(at, option, length) != 0 || (at[length] != '\0' && at[length] != '=')) continue;
        if (value >= end || !pl_command_masks(value)) continue;
        size_t old = strlen(value), new = old < sizeof mask - 1 ? old : sizeof mask - 1;
        memcpy(value, mask, new);
        memmove(value + new, value + old, (size_t)(end - value) - old + 1);
        end -= old - new;
    }
    return (size_t)(end - text);
}

size_t pl_command_read(char text[PL_COMMAND_MAX + 1]) {
    size_t n = 0;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    for (ssize_t got = 1; fd >= 0 && got > 0 && n < PL_COMMAND_MAX;) {
        got = read(fd, text + n, PL_COMMAND_MAX - n);
        if (got > 0) n += (size_t)got;
    }
    if (fd >= 0) close(fd);
    text[n] = '\0';
    return command_mask(text, n);
}

/* One word of a command line, with quotes if a shell needs them. */
static void command_word(FILE *f, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    if (word[0] && strspn(word, plain) == strlen(word)) {
        fputs(word, f);
        return;
    }
    fputc('\'', f);
    for (; *word; word++) fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, f);
    fputc('\'', f);
}

static void command_process(FILE *f) {
    char text[PL_COMMAND_MAX + 1];
    size_t n = pl_command_read(text);
    for (size_t at = 0; at < n; at += strlen(text + at) + 1) {
        if (at) fputc(' ', f);
        command_word(f, text + at);
    }
}

/* Every option that defines the run and has not its default. The number of workers is always among
 * them, because its default depends on the machine. */
static void command_options(FILE *f, const struct pl_setup *s, const struct pl_setup *plain,
                            unsigned reader, const char *checkpoint) {
    for (const struct pl_opt *o = pl_setup_opts; o->name; o++) {
        char value[PL_SPEC_MAX], def[PL_SPEC_MAX];
        if (!(o->flags & reader) || !(o->flags & PL_KEPT) || (o->flags & PL_NOT_RESTORED)) continue;
        pl_opt_print(o, &s->conf, value, sizeof value);
        pl_opt_print(o, &plain->conf, def, sizeof def);
        if (strcmp(value, def) == 0) continue;
        fprintf(f, " --%s ", o->name);
        command_word(f, value);
    }
    if (checkpoint) {
        fputs(" --resume ", f);
        command_word(f, checkpoint);
    }
}

char *pl_command_new(const struct pl_setup *s, const char *kind, const char *recording,
                     const char *checkpoint) {
    char *text = NULL;
    size_t n;
    bool real = strcmp(kind, "train") == 0;
    /* a model, data or workers that only the program has */
    bool own = s->has_function || pl_setup_has_rows(s) || (real && s->conf.spawn == PL_SPAWN_NONE);
    struct pl_setup *plain;
    if (pl_setup_new(&plain)) return NULL;
    FILE *f = open_memstream(&text, &n);
    if (f && recording) {
        fputs("paceline replay ", f);
        command_word(f, recording);
    } else if (f && (own || strcmp(kind, "race") == 0)) {
        command_process(f);
    } else if (f) {
        fprintf(f, "paceline %s", real ? "train" : "simulate");
        command_options(f, s, plain, real ? PL_FOR_TRAIN : PL_FOR_SIMULATE, checkpoint);
    }
    if (f && fclose(f) != 0) {
        free(text);
        text = NULL;
    }
    pl_setup_free(plain);
    return text;
}
