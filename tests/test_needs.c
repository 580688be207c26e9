/* What a run needs and what it is offered: choices that do not go together are refused in one
 * sentence, which says what was given and what to type instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/setup.h"
#include "blocks.h"

#define MATRIX "model=" BLOCKS_MODEL " data=" BLOCKS_DATA

static pl_setup *make(const char *options) {
    char text[600], *rest = text;
    pl_setup *s = NULL;
    assert_int_equal(pl_setup_new(&s), 0);
    snprintf(text, sizeof text, "workers=4%s%s", options[0] ? " " : "", options);
    while (*rest) {
        char *end = rest + strcspn(rest, " "), *value = strchr(rest, '=');
        char *next = *end ? end + 1 : end;
        *end = *value = '\0';
        if (pl_setup_set(s, rest, value + 1)) fail_msg("%s", pl_setup_why(s));
        rest = next;
    }
    return s;
}

static void refuses(const char *options, const char *words) {
    pl_setup *s = make(options);
    int rc = pl_setup_check(s);
    if (rc != PL_EUSAGE || !strstr(pl_setup_why(s), words))
        fail_msg("%s: %d, %s", options, rc, pl_setup_why(s));
    pl_setup_free(s);
}

/* What does not go with blocks of a matrix. */
static void test_blocks(void **state) {
    static const struct {
        const char *options, *words;
    } row[] = {
        {"method=fdsgd model=softmax data=digits",
         "model 'softmax' has none; use --model mf --data ratings:FILE"},
        {"method=dsgd model=quadratic", "model 'quadratic' has none; use --model mf"},
        {"method=async local=sweep model=softmax data=digits",
         "use policy blocks or strata with model mf"},
        {"method=async lr-schedule=bold model=quadratic", "no data to count"},
        {MATRIX " method=fdsgd optim=adam", "use optim sgd"},
        {MATRIX " method=fdsgd correct=gap", "use correct none"},
        {MATRIX " method=fdsgd reduce=median", "use reduce mean"},
        {MATRIX " method=fdsgd local=steps", "use local sweep"},
        {MATRIX " method=fdsgd filter=kardam", "use filter none"},
        {MATRIX " method=dsgd attack=signflip:f=1", "use none"},
        {MATRIX " method=dsgd weight-decay=0.1", "use l2 of model mf"},
        {MATRIX " method=dsgd partition=iid", "use partition whole"},
        {MATRIX " method=fdsgd spread=yes", "use spread no"},
        {MATRIX " method=dsgd listen=here", "use workers that the server makes"},
        {MATRIX " method=fdsgd:grid=4", "grid must be more than the number of workers"},
        {MATRIX " method=dsgd:grid=3", "grid cannot be less than the number of workers"},
        {MATRIX " method=fdsgd tuner=adasync", "moves K"},
        {MATRIX " method=fdsgd optim=bold", "was removed; use --optim sgd --lr-schedule bold"},
        {MATRIX " method=fdsgd optim=libmf", "use --optim sgd --local sweep:adaptive=yes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) refuses(row[i].options, row[i].words);
}

/* Options kept by versions in which the bold driver was an optimizer. */
static void test_earlier_options(void **state) {
    static const struct {
        const char *text, *set, *schedule, *words;
    } row[] = {
        {"method=dsgd\noptim=\nlr-schedule=constant\n", NULL, "constant+bold", NULL},
        {"lr-schedule=warmup\nmethod=dsgd\noptim=\n", NULL, "warmup+bold", NULL},
        {"method=dsgd\noptim=sgd\nlr-schedule=constant\n", NULL, "constant", NULL},
        {"method=fdsgd\noptim=\nlr-schedule=constant\n", NULL, "constant", NULL},
        {"method=dsgd\noptim=\nlr-schedule=constant\n", "lr-schedule=cosine", "cosine", NULL},
        {"format=2\nmethod=dsgd\noptim=\nlr-schedule=constant\n", NULL, "constant", NULL},
        {"format=2\nmethod=dsgd\noptim=\nlr-schedule=auto\n", NULL, "auto", NULL},
        {"method=fdsgd\noptim=bold:up=1.1\nlr-schedule=constant\n", NULL, "constant",
         "optim 'bold' was removed; use --optim sgd --lr-schedule bold"},
        {"policy=blocks\noptim=libmf\nlr-schedule=constant\n", NULL, "constant",
         "optim 'libmf' was removed; use --optim sgd --local sweep:adaptive=yes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[300];
        pl_setup *s = make(row[i].set ? row[i].set : "");
        snprintf(text, sizeof text,
                 "program=0.1.0\n%smodel=" BLOCKS_MODEL "\ndata=" BLOCKS_DATA "\n", row[i].text);
        if (pl_setup_lines(s, text)) fail_msg("%s: %s", row[i].text, pl_setup_why(s));
        assert_string_equal(s->conf.lr_schedule, row[i].schedule);
        int rc = pl_setup_check(s);
        if (row[i].words ? !rc || !strstr(pl_setup_why(s), row[i].words) : rc)
            fail_msg("%s: %s", row[i].text, pl_setup_why(s));
        pl_setup_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_earlier_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
