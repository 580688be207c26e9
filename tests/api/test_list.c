/* What `paceline list` tells is true: every command to try is accepted, every method says when to
 * use it, every option has a type. */

#include "setups.h"

static pl_setup *digits, *lowrank; /* have loaded their data; copies share it */

/* Sets the options of "paceline simulate --name value --name value …". */
static void set_options(pl_setup *s, const char *command) {
    char text[300], *rest = text, *word;
    assert_true(strlen(command) < sizeof text);
    memcpy(text, command, strlen(command) + 1);
    assert_string_equal(strsep(&rest, " "), "paceline");
    assert_string_equal(strsep(&rest, " "), "simulate");
    while ((word = strsep(&rest, " ")) != NULL) {
        char *value = strsep(&rest, " ");
        assert_memory_equal(word, "--", 2);
        assert_non_null(value);
        if (pl_setup_set(s, word + 2, value)) fail_msg("%s: %s", command, pl_setup_why(s));
    }
}

struct tried {
    int n, n_files, n_refused;
};

static void try_one(void *ctx, const struct pl_item *item) {
    struct tried *t = ctx;
    if (strcmp(item->family, "option") == 0) {
        assert_string_equal(item->command, "");
        return;
    }
    if (!strstr(item->command, item->name) && !strstr(item->command, "--method"))
        fail_msg("%s does not try %s", item->command, item->name);
    t->n++;
    if (strstr(item->command, ":FILE") || strstr(item->command, ":DIR") ||
        strstr(item->command, "fashion") || strstr(item->command, "--listen")) {
        t->n_files++; /* needs files that may not be here, or other programs */
        return;
    }
    size_t owned = n_owned();
    pl_setup *s = change(strstr(item->command, "lowrank") ? lowrank : digits, NULL);
    set_options(s, item->command);
    if (pl_setup_check(s)) {
        print_error("%s: %s\n", item->command, pl_setup_why(s));
        t->n_refused++;
    }
    release_owned(owned);
}

static pl_setup *loaded(const char *data, const char *model) {
    pl_setup *s = plain();
    pl_setup_set(s, "data", data);
    pl_setup_set(s, "model", model);
    pl_setup_set(s, "method", "sync");
    assert_int_equal(pl_setup_check(s), 0);
    set_all(s, "method= model=mlp");
    return s;
}

TEST(test_commands) {
    struct tried t = {0};
    digits = loaded("digits", "softmax");
    lowrank = loaded("lowrank", "mf");
    assert_int_equal(pl_list(NULL, try_one, &t), 0);
    assert_int_equal(t.n_refused, 0);
    assert_true(t.n > 100 && t.n_files >= 6 && t.n_files < 15);
}

static void check_words(void *ctx, const struct pl_item *item) {
    bool method = strcmp(item->family, "method") == 0;
    size_t n = strlen(item->when);
    if (method && (n < 20 || item->when[n - 1] != '.'))
        fail_msg("method %s does not tell when to use it", item->name);
    if (!method) assert_string_equal(item->when, "");
    for (size_t i = 0; i < item->n_options; i++) {
        const struct pl_item_option *o = &item->option[i];
        assert_non_null(o->type);
        assert_true(o->type[0] != '\0');
        /* a run's option that is a text says of what */
        if (strcmp(item->family, "option") == 0 && strcmp(o->type, "TEXT") == 0)
            fail_msg("option %s has no type", item->name);
    }
}

TEST(test_words) {
    assert_int_equal(pl_list(NULL, check_words, NULL), 0);
}
