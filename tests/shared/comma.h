/* A locale with a decimal comma, for tests. */
#ifndef PL_TESTS_COMMA_H
#define PL_TESTS_COMMA_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Builds a locale that differs from C in its numbers, in this folder, and sets it. False: that is
 * not possible here. */
static inline bool use_comma(const char *folder) {
    char command[900], path[300];
    snprintf(path, sizeof path, "%s/comma", folder);
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fputs("LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n",
          f);
    fclose(f);
    snprintf(command, sizeof command, "localedef -c --no-archive -i %s %s/xx_XX >/dev/null 2>&1",
             path, folder);
    if (system(command) < 0) return false;
    setenv("LOCPATH", folder, 1);
    bool set = setlocale(LC_NUMERIC, "xx_XX") != NULL;
    unsetenv("LOCPATH"); /* while it is set, glibc's newlocale() loses some memory */
    return set && strcmp(localeconv()->decimal_point, ",") == 0;
}

#endif
