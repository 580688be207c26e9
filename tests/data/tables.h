/* Opens tables that a test writes to its folder, or sees how they are refused. */
#ifndef PL_TESTS_DATA_TABLES_H
#define PL_TESTS_DATA_TABLES_H

#include "data/data.h"
#include "folder.h"
#include "opened.h"

static struct pl_why why;

static void write_text(const char *name, const char *text) {
    folder_write(name, text, strlen(text));
}

/* Opens "KIND:DIR/FILE" and what follows. */
static int open_set(const char *kind, const char *name, const char *more, struct pl_data **data) {
    char spec[1500];
    why.text[0] = '\0';
    snprintf(spec, sizeof spec, "%s:%s%s", kind, folder_path(name), more);
    return pl_data_open(spec, 1, data, &why);
}

static struct pl_data *opened(const char *kind, const char *name, const char *more) {
    struct pl_data *data = NULL;
    if (open_set(kind, name, more, &data)) fail_msg("%s%s: %s", name, more, why.text);
    return own(data, close_data);
}

static void refused(const char *kind, const char *name, const char *more, const char *words) {
    struct pl_data *data = NULL;
    if (open_set(kind, name, more, &data) == 0) fail_msg("%s%s was accepted", name, more);
    if (!strstr(why.text, words)) fail_msg("\"%s\" lacks \"%s\"", why.text, words);
}

#endif
