/* Writes JSON: handles commas and quoting, and writes null for numbers that are not finite. */
#ifndef PL_BASE_JSON_H
#define PL_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_json {
    char *text; /* grows; NULL before the first write; free() it */
    size_t n, room;
    bool comma;  /* the next value needs a comma before it */
    bool failed; /* out of memory; the text is unusable */
};

/* `key` is NULL for array elements and for the outermost value. */
void pl_json_open(struct pl_json *j, const char *key, char bracket); /* '{' or '[' */
void pl_json_close(struct pl_json *j, char bracket);                 /* '}' or ']' */
void pl_json_text(struct pl_json *j, const char *key, const char *value);
void pl_json_real(struct pl_json *j, const char *key, double value);
void pl_json_whole(struct pl_json *j, const char *key, uint64_t value);

/* The same object with a line per member, two levels deep, ending with a line feed. free() it; NULL
 * if out of memory. */
char *pl_json_lines(const char *text);

/* Replaces bytes that are not UTF-8 by '?'. Paths and arguments can be any bytes, JSON cannot. */
void pl_json_utf8(char *text);

#endif
