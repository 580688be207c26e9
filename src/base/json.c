#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

static void json_put(struct pl_json *j, const char *text, size_t n) {
    if (j->failed) return;
    j->failed = !PL_GROW(j->text, j->room, j->n + n + 1);
    if (j->failed) return;
    memcpy(j->text + j->n, text, n);
    j->n += n;
    j->text[j->n] = '\0';
}

static void json_quote(struct pl_json *j, const char *s) {
    json_put(j, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        char esc[8];
        if (c == '"' || c == '\\')
            json_put(j, esc, (size_t)snprintf(esc, sizeof esc, "\\%c", c));
        else if (c < 0x20)
            json_put(j, esc, (size_t)snprintf(esc, sizeof esc, "\\u%04x", c));
        else
            json_put(j, s, 1);
    }
    json_put(j, "\"", 1);
}

static void json_key(struct pl_json *j, const char *key) {
    if (j->comma) json_put(j, ",", 1);
    j->comma = true;
    if (!key) return;
    json_quote(j, key);
    json_put(j, ":", 1);
}

void pl_json_open(struct pl_json *j, const char *key, char bracket) {
    json_key(j, key);
    json_put(j, &bracket, 1);
    j->comma = false;
}

void pl_json_close(struct pl_json *j, char bracket) {
    json_put(j, &bracket, 1);
    j->comma = true;
}

void pl_json_text(struct pl_json *j, const char *key, const char *value) {
    json_key(j, key);
    if (value)
        json_quote(j, value);
    else
        json_put(j, "null", 4);
}

void pl_json_real(struct pl_json *j, const char *key, double value) {
    char text[40];
    json_key(j, key);
    if (!isfinite(value)) {
        json_put(j, "null", 4);
        return;
    }
    /* the shortest form that parses back to the same number */
    for (int digits = 9; digits <= 17; digits += 4) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    json_put(j, text, strlen(text));
}

void pl_json_whole(struct pl_json *j, const char *key, uint64_t value) {
    char text[24];
    json_key(j, key);
    json_put(j, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)value));
}

#define JSON_DEPTH 2 /* of objects that pl_json_lines writes line by line */

static void json_break(struct pl_json *j, int depth) {
    json_put(j, "\n", 1);
    for (int i = 0; i < depth; i++) json_put(j, "  ", 2);
}

/* Copies the string that begins at the quote `at`; returns its last byte. */
static const char *json_copy_string(struct pl_json *j, const char *at) {
    const char *end = at + 1;
    while (*end && *end != '"') end += *end == '\\' && end[1] ? 2 : 1;
    if (!*end) end--;
    json_put(j, at, (size_t)(end - at) + 1);
    return end;
}

char *pl_json_lines(const char *text) {
    struct pl_json j = {0};
    int depth = 0, inner = 0; /* inner: open brackets of a value that stays on one line */
    for (const char *at = text; *at; at++) {
        char c = *at;
        if (c == '"') {
            at = json_copy_string(&j, at);
            continue;
        }
        bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
        bool flat = inner > 0 || (opens && (c == '[' || depth == JSON_DEPTH || at[1] == '}'));
        if (closes && !flat) json_break(&j, --depth);
        json_put(&j, at, 1);
        if (c == ':' || (flat && c == ',')) json_put(&j, " ", 1);
        if (flat) inner += opens - closes;
        if (!flat && opens) depth++;
        if (!flat && (opens || c == ',')) json_break(&j, depth);
    }
    json_put(&j, "\n", 1);
    if (j.failed) free(j.text);
    return j.failed ? NULL : j.text;
}

/* The bytes of the character at s, 0 if it is not UTF-8. Overlong forms and surrogates are not. */
static size_t json_character(const unsigned char *s) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (n < 2) return n;
    uint32_t code = s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) return 0;
        code = code << 6 | (s[i] & 0x3Fu);
    }
    return code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : n;
}

void pl_json_utf8(char *text) {
    for (char *at = text; *at;) {
        size_t n = json_character((const unsigned char *)at);
        if (n == 0) *at = '?';
        at += n ? n : 1;
    }
}
