/* Text for people: lines that fit a terminal, the signs of its character set, and no character that
 * it would carry out; and words for a shell. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"

#define TEXT_WORD 600 /* bytes; a longer word may be broken */
#define TEXT_NARROW 40
#define TEXT_WIDTH 79 /* of help; with its end a line has 80 columns */

/* Bytes that follow the first one of a character in UTF-8; -1: it is no first byte. */
static int text_following(unsigned char c) {
    return c < 0x80 ? 0 : c < 0xc2 ? -1 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : -1;
}

/* Whether the environment names a locale of another character set, such as C. Without a locale,
 * terminals show UTF-8. */
static bool text_is_ascii(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *locale = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && (!locale || !*locale); i++)
        locale = getenv(names[i]);
    return locale && *locale && !strcasestr(locale, "utf-8") && !strcasestr(locale, "utf8");
}

/* What stands for a sign of ours in ASCII; NULL for other characters, which are a user's. */
static const char *text_ascii(const char *c) {
    static const char *const signs[][2] = {{"±", "+-"}, {"×", "x"},  {"µ", "u"},
                                           {"≥", ">="}, {"≤", "<="}, {"…", "..."}};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (strncmp(c, signs[i][0], strlen(signs[i][0])) == 0) return signs[i][1];
    return NULL;
}

char *cli_signs(char *text) {
    char *to = text;
    bool ascii = text_is_ascii();
    for (const char *c = text; *c;) {
        const char *sign = ascii ? text_ascii(c) : NULL;
        if (!sign) {
            *to++ = *c++;
            continue;
        }
        c += text_following((unsigned char)*c) + 1;
        while (*sign) *to++ = *sign++; /* which is not longer */
    }
    *to = '\0';
    return text;
}

void cli_print_to(FILE *to, const char *text) {
    bool ascii = text_is_ascii();
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int n = text_following(*c), i = 0;
        while (i < n && (c[i + 1] & 0xc0) == 0x80) i++;
        bool control = *c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0);
        const char *sign = ascii ? text_ascii((const char *)c) : NULL;
        if (sign)
            fputs(sign, to);
        else if (control && n == 0)
            fprintf(to, "^%c", *c ^ 0x40);
        else if (control || i != n)
            fputc('?', to);
        else
            fwrite(c, 1, (size_t)n + 1, to);
        c += i + 1;
    }
}

void cli_print(const char *text) {
    cli_print_to(stderr, text);
}

/* --- lines --------------------------------------------------------------------------------- */

/* Prints text with line breaks between words for `width` columns, 0 being without limit. It begins
 * at column `at`; `more` is printed before a break, and `indent` blanks after it. */
static void text_fold(FILE *to, int at, int indent, int width, const char *more, const char *text) {
    for (const char *c = text; *c;) {
        char word[TEXT_WORD];
        int blanks = (int)strspn(c, " "), n = (int)strcspn(c + blanks, " "), wide = 0;
        if (n >= TEXT_WORD) n = TEXT_WORD - 1;
        while (n > 0 && (c[blanks + n] & 0xc0) == 0x80) n--; /* cuts no character */
        snprintf(word, sizeof word, "%.*s", n, c + blanks);
        for (int i = 0; i < n; i++) wide += (word[i] & 0xc0) != 0x80; /* UTF-8 */
        bool fits = at + blanks + wide + (int)strlen(more) <= width;
        if (c == text || n == 0 || width == 0 || fits) {
            fprintf(to, "%*s", blanks, "");
            at += blanks + wide;
        } else {
            fprintf(to, "%s\n%*s", more, indent, "");
            at = indent + wide;
        }
        cli_print_to(to, word);
        c += blanks + n;
    }
}

/* The columns of a terminal, less one; 0 of a file, a pipe, and a terminal that is too narrow. */
static int text_columns(FILE *to) {
    struct winsize size = {.ws_col = 0};
    if (!isatty(fileno(to))) return 0;
    ioctl(fileno(to), TIOCGWINSZ, &size);
    if (size.ws_col == 0) return TEXT_WIDTH;
    return size.ws_col < TEXT_NARROW ? 0 : size.ws_col - 1;
}

void cli_put(FILE *to, int indent, const char *text) {
    text_fold(to, 0, indent, text_columns(to), "", text);
}

void cli_put_lines(FILE *to, int indent, const char *text) {
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        char *line = strndup(text, n);
        if (line) cli_put(to, indent, line);
        free(line);
        fputc('\n', to);
    }
}

void cli_wrap(int at, int indent, const char *text) {
    text_fold(stdout, at, indent, TEXT_WIDTH, "", text);
    putchar('\n');
}

void cli_wrap_command(int at, int indent, const char *text) {
    text_fold(stdout, at, indent, TEXT_WIDTH, " \\", text);
    putchar('\n');
}

/* --- strings ------------------------------------------------------------------------------- */

void cli_append(char *out, size_t max, const char *fmt, ...) {
    size_t used = strnlen(out, max);
    if (used >= max) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out + used, max - used, fmt, ap);
    va_end(ap);
}

void cli_append_word(char *out, size_t max, const char *word, size_t n) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    bool quoted = n == 0 || strspn(word, plain) < n;
    if (quoted) cli_append(out, max, "'");
    for (size_t i = 0; i < n; i++)
        cli_append(out, max, "%s", word[i] == '\'' ? "'\\''" : (char[]){word[i], '\0'});
    if (quoted) cli_append(out, max, "'");
}

const char *cli_word(char *out, size_t max, const char *word) {
    *out = '\0';
    cli_append_word(out, max, word, strlen(word));
    return out;
}
