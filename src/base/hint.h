/* Hints: what words of other tools are called here. An unknown word that stands in the table is
 * answered with what to type instead; other unknown words get the nearest name. */
#ifndef PL_BASE_HINT_H
#define PL_BASE_HINT_H

#include <stdbool.h>
#include <stddef.h>

/* Writes what to type instead of `word` to out[max]. `kind` is "option" or the name of a family.
 * Returns false if the table does not have the word. */
bool pl_hint_find(const char *kind, const char *word, char *out, size_t max);

/* Returns the closest of names[n] to `word`, or NULL if none is close. */
const char *pl_nearest(const char *word, const char *const *names, size_t n);

/* Writes a time without its blanks, and with its units in short, to out[max]: 1h30m for
 * "1 hour 30 min". Returns false if the text has no blanks or is not a time. */
bool pl_hint_unspaced(const char *text, char *out, size_t max);

/* Appends `words` and the names to out[max], with commas between them, if they are few. Returns
 * whether they are. */
bool pl_hint_names(char *out, size_t max, const char *words, const char *const *names, size_t n);

#endif
