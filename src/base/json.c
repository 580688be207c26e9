#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void json_put(struct pl_json *j, const char *text, size_t n) {
    if (j->failed) return;
    if (j->n + n + 1 > j->room) {
        size_t room = 2 * (j->n + n) + 256;
        char *grown = realloc(j->text, room);
        if (!grown) {
            j->failed = true;
            return;
        }
        j->text = grown;
        j->room = room;
    }
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
