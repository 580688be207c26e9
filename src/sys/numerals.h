/* Numbers are read and written with a decimal point, whatever locale the calling program has set.
 *
 *     int pl_setup_set(...) {
 *         PL_NUMERALS;                  until the end of the block, in this thread
 *
 * Other parts of the locale, such as the language of messages, stay as they are. */
#ifndef PL_SYS_NUMERALS_H
#define PL_SYS_NUMERALS_H

#include <locale.h>

struct pl_numerals {
    locale_t ours, before; /* 0: the locale has a decimal point as it is */
};

struct pl_numerals pl_numerals_set(void);
void pl_numerals_restore(struct pl_numerals *n);

#define PL_NUMERALS                                                                                \
    struct pl_numerals pl_numerals_here __attribute__((unused, cleanup(pl_numerals_restore))) =    \
        pl_numerals_set()

#endif
