#include "setups.h"

#include "test.h"

void set(pl_setup *s, const char *key, const char *value) {
    if (pl_setup_set(s, key, value)) fail_msg("%s: %s", key, pl_setup_why(s));
}

void set_all(pl_setup *s, const char *options) {
    char text[1200];
    assert_true(snprintf(text, sizeof text, "%s", options) < (int)sizeof text);
    for (char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        char *next = at + strcspn(at, " "), *value = strchr(at, '=');
        if (!value || value > next) fail_msg("'%s' has a word without '='", options);
        if (*next) *next++ = '\0';
        *value = '\0';
        set(s, at, value + 1);
        at = next;
    }
}

pl_setup *plain(void) {
    pl_setup *s = NULL;
    assert_int_equal(pl_setup_new(&s), 0);
    return s;
}

pl_setup *setup_of(const char *options) {
    pl_setup *s = plain();
    set_all(s, options);
    return s;
}

pl_setup *change(const pl_setup *from, ...) {
    pl_setup *s = NULL;
    va_list ap;
    assert_int_equal(pl_setup_copy(from, &s), 0);
    va_start(ap, from);
    for (const char *key; (key = va_arg(ap, const char *));) set(s, key, va_arg(ap, const char *));
    va_end(ap);
    return s;
}

pl_run *simulate(pl_setup *s) {
    pl_run *run = NULL;
    if (pl_simulate(s, &run)) fail_msg("%s", pl_setup_why(s));
    pl_setup_free(s);
    return run;
}
